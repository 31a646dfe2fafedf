/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Reads scenario files. inih splits them into lines; this file interprets them and finds errors. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mutant.h"
#include "base/types.h"
#include "sim/cost/scenario.h"
#include "sim/memory.h"

struct parse {
    const char *text; /* the text not read yet */
    size_t bytes;
    unsigned line;
    struct sim_scenario *scenario;
    struct via_error *err;
    unsigned failed_line; /* 0: all is well */
    bool skipped;         /* the lines belong to a section that was refused */
    bool library;         /* parts.ini: sections and keys that no caller declares are ignored */
};

struct unit {
    const char *name;
    double factor;
};

static const struct unit times[] = {{"ps", 1},   {"ns", 1e3}, {"us", 1e6},
                                    {"ms", 1e9}, {"s", 1e12}, {NULL, 0}};
static const struct unit sizes[] = {{"B", 1},    {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 0x1p30},
                                    {"kB", 1e3}, {"MB", 1e6},   {NULL, 0}};
static const struct unit bandwidths[] = {{"B/s", 1},    {"kB/s", 1e3},     {"MB/s", 1e6},
                                         {"GB/s", 1e9}, {"Mb/s", 1e6 / 8}, {"Gb/s", 1e9 / 8},
                                         {NULL, 0}};
static const struct unit lengths[] = {{"m", 1}, {"cm", 0.01}, {NULL, 0}};
static const struct unit delays[] = {{"ns/m", 1e3}, {"ps/m", 1}, {NULL, 0}};
static const struct unit percents[] = {{"%", 0.01}, {NULL, 0}};
static const struct unit rates[] = {{"GT/s", 1}, {"Gb/s", 1}, {NULL, 0}};

static const struct {
    const struct unit *units; /* NULL: any word */
    const char *expected;
} dimensions[] = {
    [SIM_COUNT] = {NULL, "a word for what is counted"},
    [SIM_RATE] = {rates, "GT/s or Gb/s"},
    [SIM_TIME] = {times, "ps, ns, us, ms or s"},
    [SIM_BYTES] = {sizes, "B, KiB, MiB, GiB, kB or MB"},
    [SIM_BANDWIDTH] = {bandwidths, "B/s, kB/s, MB/s, GB/s, Mb/s or Gb/s"},
    [SIM_LENGTH] = {lengths, "m or cm"},
    [SIM_TIME_LENGTH] = {delays, "ns/m or ps/m"},
    [SIM_PERCENT] = {percents, "%"},
};

/* --- errors ---------------------------------------------------------------------------------- */

static const struct sim_part *last_part(const struct parse *parse)
{
    const struct sim_scenario *scenario = parse->scenario;
    return scenario->parts_count > 0 ? &scenario->parts[scenario->parts_count - 1] : NULL;
}

/* Keeps the first error. what: its section or key. Returns 0, inih's "failed". */
static int complain(struct parse *parse, unsigned line, const char *what, const char *format, ...)
    VIA_PRINTF(4, 5);
static int complain(struct parse *parse, unsigned line, const char *what, const char *format, ...)
{
    if (parse->failed_line != 0) {
        return 0;
    }
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    via_error_set(parse->err, -EINVAL, "%.200s:%u: %.80s: %s", parse->scenario->name, line, what,
                  text);
    parse->failed_line = line;
    return 0;
}

static int complain_key(struct parse *parse, const struct sim_part *part, const char *key,
                        const char *said, const char *detail)
{
    char what[128];
    char text[256];
    snprintf(what, sizeof(what), "[%s%s%s] %.48s", part->section->name,
             part->instance[0] != '\0' ? " " : "", part->instance, key);
    snprintf(text, sizeof(text), "%s%.100s", said, detail);
    return complain(parse, parse->line, what, "%s", text);
}

/* --- sections -------------------------------------------------------------------------------- */

static bool is_name(const char *text, size_t bytes)
{
    if (bytes == 0 || bytes >= sizeof(((struct sim_part *)0)->instance) ||
        !isalpha((unsigned char)text[0])) {
        return false;
    }
    for (size_t i = 0; i < bytes; i++) {
        if (!isalnum((unsigned char)text[i]) && text[i] != '-' && text[i] != '_') {
            return false;
        }
    }
    return true;
}

static const struct sim_section *declared(const struct parse *parse, const char *name, size_t bytes)
{
    for (size_t i = 0; i < parse->scenario->sections_count; i++) {
        const struct sim_section *section = parse->scenario->sections[i];
        if (strlen(section->name) == bytes && memcmp(section->name, name, bytes) == 0) {
            return section;
        }
    }
    return NULL;
}

static size_t find_part(const struct sim_scenario *scenario, const struct sim_section *section,
                        const char *instance)
{
    for (size_t i = 0; i < scenario->parts_count; i++) {
        const struct sim_part *part = &scenario->parts[i];
        if (part->section == section && strcmp(part->instance, instance) == 0) {
            return i;
        }
    }
    return SIZE_MAX;
}

/* header: "link cable", the text between the brackets. */
static void begin_section(struct parse *parse, const char *header)
{
    struct sim_scenario *scenario = parse->scenario;
    size_t kind_bytes = strcspn(header, " \t");
    const char *instance = header + kind_bytes + strspn(header + kind_bytes, " \t");
    char name[64];
    const char *like = strchr(instance, ':');
    snprintf(name, sizeof(name), "%.*s", (int)(like != NULL ? like - instance : 63), instance);
    like = like != NULL ? like + 1 + strspn(like + 1, " \t") : NULL;
    instance = name;
    const struct sim_section *section = declared(parse, header, kind_bytes);
    char what[64];
    snprintf(what, sizeof(what), "[%.60s]", header);
    parse->skipped = true;
    if (section == NULL && parse->library) {
        return;
    }
    if (section == NULL) {
        complain(parse, parse->line, what, "unknown section");
    } else if (section->named && !is_name(instance, strlen(instance))) {
        complain(parse, parse->line, what, "expected a name: [%s NAME]", section->name);
    } else if (!section->named && instance[0] != '\0') {
        complain(parse, parse->line, what, "takes no name: [%s]", section->name);
    } else if (like != NULL && (!section->named || !is_name(like, strlen(like)))) {
        complain(parse, parse->line, what, "expected [%s NAME: PART]", section->name);
    } else if (scenario->parts_count == SIM_PARTS_MAX) {
        complain(parse, parse->line, what, "more than %d sections", SIM_PARTS_MAX);
    } else {
        size_t same = find_part(scenario, section, instance);
        if (same != SIZE_MAX) {
            complain(parse, parse->line, what, "is in line %u already", scenario->parts[same].line);
            return;
        }
        struct sim_part *part = &scenario->parts[scenario->parts_count++];
        *part = (struct sim_part){.section = section, .line = parse->line};
        snprintf(part->instance, sizeof(part->instance), "%.31s", instance);
        snprintf(part->like, sizeof(part->like), "%.31s", like != NULL ? like : "");
        parse->skipped = false;
    }
}

/* --- values ---------------------------------------------------------------------------------- */

/* Cuts the next word off *text; "" at the end. */
static char *next_word(char **text)
{
    char *word = *text + strspn(*text, " \t");
    char *end = word + strcspn(word, " \t");
    *text = *end == '\0' ? end : end + 1;
    *end = '\0';
    return word;
}

static bool is_listed(const char *words, const char *word)
{
    size_t bytes = strlen(word);
    for (const char *at = words; bytes > 0 && (at = strstr(at, word)) != NULL; at += bytes) {
        if ((at == words || at[-1] == ' ') && (at[bytes] == ' ' || at[bytes] == '\0')) {
            return true;
        }
    }
    return false;
}

static int parse_unit(struct parse *parse, struct sim_value *value, const char *unit)
{
    const struct sim_part *part = last_part(parse);
    const struct sim_key *key = value->key;
    const char *expected = dimensions[key->dimension].expected;
    if (unit[0] == '\0' || unit[0] == '[') {
        return complain_key(parse, part, key->name, "the unit is missing: expected ", expected);
    }
    if (strlen(unit) >= sizeof(value->unit)) {
        return complain_key(parse, part, key->name, "unknown unit: expected ", expected);
    }
    snprintf(value->unit, sizeof(value->unit), "%.15s", unit);
    const struct unit *units = dimensions[key->dimension].units;
    if (units == NULL) {
        value->unit_factor = 1;
        return isalpha((unsigned char)unit[0])
                   ? 1
                   : complain_key(parse, part, key->name, "not a unit: expected ", expected);
    }
    for (; units->name != NULL; units++) {
        if (strcmp(units->name, unit) == 0) {
            value->unit_factor = units->factor;
            return 1;
        }
    }
    return complain_key(parse, part, key->name, "unknown unit: expected ", expected);
}

static int parse_number(struct parse *parse, struct sim_value *value, const char *number,
                        const char *unit)
{
    const struct sim_part *part = last_part(parse);
    const struct sim_key *key = value->key;
    char *end;
    double written = strtod(number, &end);
    if (end == number || *end != '\0' || !isfinite(written)) {
        return complain_key(parse, part, key->name, "not a number: ", number);
    }
    if (!parse_unit(parse, value, unit)) {
        return 0;
    }
    value->number = written * value->unit_factor;
    bool whole = key->dimension == SIM_COUNT || key->dimension == SIM_BYTES;
    if (!(value->number >= key->min && value->number <= key->max) && !VIA_MUTANT(SCENARIO_RANGE)) {
        char range[96];
        snprintf(range, sizeof(range), "out of range: %g to %g %.15s are allowed",
                 key->min / value->unit_factor, key->max / value->unit_factor, value->unit);
        return complain_key(parse, part, key->name, range, "");
    }
    if (whole && value->number != floor(value->number)) {
        return complain_key(parse, part, key->name, "not a whole number: ", number);
    }
    return 1;
}

static int parse_word(struct parse *parse, struct sim_value *value, const char *word)
{
    const struct sim_key *key = value->key;
    if (key->dimension == SIM_WORD && !is_listed(key->words, word)) {
        return complain_key(parse, last_part(parse), key->name, "expected one of: ", key->words);
    }
    if (strlen(word) >= sizeof(value->text) ||
        (key->dimension == SIM_NAME && !is_name(word, strlen(word)))) {
        return complain_key(parse, last_part(parse), key->name, "not a name: ", word);
    }
    snprintf(value->text, sizeof(value->text), "%.31s", word);
    return 1;
}

static int parse_mark(struct parse *parse, struct sim_value *value, const char *mark)
{
    for (enum sim_mark i = SIM_STATED; i <= SIM_FITTED; i++) {
        size_t bytes = strlen(sim_mark_name(i));
        if (mark[0] == '[' && strncmp(mark + 1, sim_mark_name(i), bytes) == 0 &&
            strcmp(mark + 1 + bytes, "]") == 0) {
            value->mark = i;
            return 1;
        }
    }
    return complain_key(
        parse, last_part(parse), value->key->name,
        "expected [stated], [spec], [typical], [chosen] or [fitted] after the value, not ",
        mark[0] != '\0' ? mark : "the end of the line");
}

static int parse_value(struct parse *parse, struct sim_value *value, char *text)
{
    bool word = value->key->dimension == SIM_WORD || value->key->dimension == SIM_NAME;
    char *first = next_word(&text);
    int ok = word ? parse_word(parse, value, first)
                  : parse_number(parse, value, first, next_word(&text));
    ok = ok && parse_mark(parse, value, next_word(&text));
    const char *source = text + strspn(text, " \t");
    if (ok && source[0] == '\0') {
        return complain_key(parse, last_part(parse), value->key->name,
                            "the source is missing: which paper, data sheet or measurement?", "");
    }
    snprintf(value->source, sizeof(value->source), "%.159s", source);
    return ok;
}

static const struct sim_key *key_of(const struct sim_section *section, const char *name)
{
    for (size_t i = 0; i < section->keys_count; i++) {
        if (strcmp(section->keys[i].name, name) == 0) {
            return &section->keys[i];
        }
    }
    return NULL;
}

static const struct sim_value *value_of(const struct sim_scenario *scenario, size_t part,
                                        const struct sim_key *key)
{
    for (size_t i = 0; i < scenario->values_count; i++) {
        if (scenario->values[i].part == part && scenario->values[i].key == key) {
            return &scenario->values[i];
        }
    }
    return NULL;
}

/* inih's: a line "name = text". Its section is ours already, see read_line. */
static int on_value(void *object, const char *section, const char *name, const char *text)
{
    (void)section;
    struct parse *parse = object;
    struct sim_scenario *scenario = parse->scenario;
    if (parse->failed_line != 0 || parse->skipped) {
        return parse->failed_line == 0 && parse->library;
    }
    const struct sim_part *part = last_part(parse);
    if (part == NULL) {
        return complain(parse, parse->line, name, "stands before the first [section]");
    }
    const struct sim_key *key = key_of(part->section, name);
    if (key == NULL && parse->library) {
        return 1;
    }
    if (key == NULL) {
        return complain_key(parse, part, name, "unknown key", "");
    }
    if (value_of(scenario, scenario->parts_count - 1, key) != NULL) {
        return complain_key(parse, part, name, "is given twice", "");
    }
    if (scenario->values_count == SIM_VALUES_MAX) {
        return complain_key(parse, part, name, "too many values", "");
    }
    struct sim_value *value = &scenario->values[scenario->values_count];
    *value = (struct sim_value){.part = scenario->parts_count - 1, .key = key, .line = parse->line};
    char copy[512];
    snprintf(copy, sizeof(copy), "%s", text);
    if (!parse_value(parse, value, copy)) {
        return 0;
    }
    scenario->values_count++;
    return 1;
}

/* --- lines ----------------------------------------------------------------------------------- */

static void parse_section_header(struct parse *parse, const char *line)
{
    const char *start = line + strspn(line, " \t\r\n");
    const char *end = strchr(start, ']');
    char header[64];
    if (start[0] != '[' || end == NULL) {
        return;
    }
    if ((size_t)(end - start) > sizeof(header)) {
        parse->skipped = true;
        complain(parse, parse->line, "section", "its name is too long");
        return;
    }
    snprintf(header, sizeof(header), "%.*s", (int)(end - start - 1), start + 1);
    begin_section(parse, header);
}

/* inih's reader, like fgets: it knows no line numbers and takes a line in pieces when it is long.
 */
static char *read_line(char *ret, int size, void *object)
{
    struct parse *parse = object;
    if (parse->bytes == 0 || parse->failed_line != 0) {
        return NULL;
    }
    parse->line++;
    const char *newline = memchr(parse->text, '\n', parse->bytes);
    size_t bytes = newline != NULL ? (size_t)(newline - parse->text) + 1 : parse->bytes;
    if (bytes >= (size_t)size) {
        complain(parse, parse->line, "line", "longer than %d bytes", size - 2);
        return NULL;
    }
    if (memchr(parse->text, '\0', bytes) != NULL) {
        complain(parse, parse->line, "line", "holds a zero byte: not a text file");
        return NULL;
    }
    memcpy(ret, parse->text, bytes);
    ret[bytes] = '\0';
    parse->text += bytes;
    parse->bytes -= bytes;
    parse_section_header(parse, ret);
    return ret;
}

static void check_complete(struct parse *parse)
{
    const struct sim_scenario *scenario = parse->scenario;
    for (size_t i = 0; i < scenario->parts_count; i++) {
        const struct sim_part *part = &scenario->parts[i];
        for (size_t k = 0; k < part->section->keys_count; k++) {
            if (value_of(scenario, i, &part->section->keys[k]) == NULL) {
                parse->line = part->line;
                complain_key(parse, part, part->section->keys[k].name, "is missing", "");
            }
        }
    }
    for (size_t i = 0; i < scenario->sections_count; i++) {
        if (!scenario->sections[i]->named &&
            !sim_scenario_has(scenario, scenario->sections[i]->name)) {
            char what[64];
            snprintf(what, sizeof(what), "[%.60s]", scenario->sections[i]->name);
            complain(parse, via_max(parse->line, 1u), what, "the section is missing");
        }
    }
}

static int parse_text(struct parse *parse, const char *name,
                      const struct sim_section *const *sections, size_t sections_count)
{
    struct sim_scenario *scenario = parse->scenario;
    scenario->sections = sections;
    scenario->sections_count = sections_count;
    scenario->parts_count = 0;
    scenario->values_count = 0;
    snprintf(scenario->name, sizeof(scenario->name), "%s", name);
    scenario->parts_name[0] = '\0';
    ini_allow_multiline = false; /* a line that begins with a blank is a line like any other */
    int line = ini_parse_stream(read_line, parse, on_value, parse);
    if (line < 0) {
        return via_error_set(parse->err, -ENOMEM, "%.200s: reading: out of memory", name);
    }
    if (line > 0 && (parse->failed_line == 0 || (unsigned)line < parse->failed_line)) {
        return via_error_set(parse->err, -EINVAL, "%.200s:%d: neither [section] nor key = value",
                             name, line);
    }
    return parse->failed_line == 0 ? 0 : -EINVAL;
}

int sim_scenario_parse(const char *name, const char *text, size_t bytes,
                       const struct sim_section *const *sections, size_t sections_count,
                       struct sim_scenario *ret, struct via_error *err)
{
    struct parse parse = {.text = text, .bytes = bytes, .scenario = ret, .err = err};
    int rc = parse_text(&parse, name, sections, sections_count);
    if (rc == 0) {
        check_complete(&parse);
    }
    return parse.failed_line == 0 ? rc : -EINVAL;
}

/* --- parts that several scenarios have -------------------------------------------------------- */

/* Takes missing keys of a part from the library's part. */
static int fill_in(struct parse *parse, size_t part, const struct sim_scenario *library,
                   size_t library_part)
{
    struct sim_scenario *scenario = parse->scenario;
    for (size_t i = 0; i < library->values_count; i++) {
        const struct sim_value *value = &library->values[i];
        if (value->part != library_part || value_of(scenario, part, value->key) != NULL) {
            continue;
        }
        if (scenario->values_count == SIM_VALUES_MAX) {
            return complain(parse, parse->line, "parts", "too many values");
        }
        struct sim_value *copy = &scenario->values[scenario->values_count++];
        *copy = *value;
        copy->part = part;
        copy->shared = true;
    }
    return 1;
}

/* A part that the file does not mention at all. */
static size_t add_part(struct parse *parse, const struct sim_part *like)
{
    struct sim_scenario *scenario = parse->scenario;
    if (scenario->parts_count == SIM_PARTS_MAX) {
        complain(parse, parse->line, "parts", "more than %d sections", SIM_PARTS_MAX);
        return SIZE_MAX;
    }
    scenario->parts[scenario->parts_count] = *like;
    return scenario->parts_count++;
}

/* The contents of the file, and what it takes from the parts: sections without names, and media. */
static void take_parts(struct parse *parse, const struct sim_scenario *library)
{
    struct sim_scenario *scenario = parse->scenario;
    size_t own_count = scenario->parts_count;
    for (size_t i = 0; i < own_count && parse->failed_line == 0; i++) {
        const struct sim_part *part = &scenario->parts[i];
        const char *like = part->like[0] != '\0' ? part->like : part->instance;
        size_t from = find_part(library, part->section, like);
        if (from != SIZE_MAX) {
            fill_in(parse, i, library, from);
        } else if (part->like[0] != '\0') {
            char what[96];
            snprintf(what, sizeof(what), "[%s %s: %s]", part->section->name, part->instance, like);
            complain(parse, part->line, what, "%.150s has no such part", library->name);
        }
    }
    for (size_t i = 0; i < library->parts_count && parse->failed_line == 0; i++) {
        const struct sim_part *part = &library->parts[i];
        bool everywhere = !part->section->named || strcmp(part->section->name, "medium") == 0;
        if (everywhere && find_part(scenario, part->section, part->instance) == SIZE_MAX) {
            size_t added = add_part(parse, part);
            if (added != SIZE_MAX) {
                fill_in(parse, added, library, i);
            }
        }
    }
}

/* The whole file, owned by the caller; NULL with err and *ret_rc. */
static char *read_file(const char *path, size_t *ret_bytes, int *ret_rc, struct via_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        *ret_rc = -errno;
        via_error_set(err, *ret_rc, "%s: open: %s", path, strerror(-*ret_rc));
        return NULL;
    }
    char *text = sim_alloc(SIM_SCENARIO_BYTES_MAX + 1);
    size_t bytes = 0;
    ssize_t count = 1;
    while (count > 0 && bytes <= SIM_SCENARIO_BYTES_MAX) {
        count = read(fd, text + bytes, SIM_SCENARIO_BYTES_MAX + 1 - bytes);
        bytes += count > 0 ? (size_t)count : 0;
    }
    *ret_rc = 0;
    if (count < 0) {
        *ret_rc = -errno;
        via_error_set(err, *ret_rc, "%s: read: %s", path, strerror(-*ret_rc));
    } else if (bytes > SIM_SCENARIO_BYTES_MAX) {
        *ret_rc = via_error_set(err, -EFBIG, "%s: read: larger than %u bytes", path,
                                SIM_SCENARIO_BYTES_MAX);
    }
    close(fd);
    *ret_bytes = bytes;
    if (*ret_rc != 0) {
        free(text);
        return NULL;
    }
    return text;
}

static int parse_file(struct parse *parse, const char *path,
                      const struct sim_section *const *sections, size_t sections_count)
{
    int rc;
    char *text = read_file(path, &parse->bytes, &rc, parse->err);
    if (text != NULL) {
        parse->text = text;
        rc = parse_text(parse, path, sections, sections_count);
        free(text);
    }
    return rc;
}

int sim_scenario_load(const char *path, const char *parts,
                      const struct sim_section *const *sections, size_t sections_count,
                      struct sim_scenario *ret, struct via_error *err)
{
    struct parse parse = {.scenario = ret, .err = err};
    int rc = parse_file(&parse, path, sections, sections_count);
    if (rc == 0 && parts != NULL) {
        struct sim_scenario *library = sim_alloc(sizeof(*library));
        struct parse shared = {.scenario = library, .err = err, .library = true};
        rc = parse_file(&shared, parts, sections, sections_count);
        if (rc == 0) {
            take_parts(&parse, library);
            snprintf(ret->parts_name, sizeof(ret->parts_name), "%s", parts);
        }
        free(library);
    }
    if (rc == 0) {
        check_complete(&parse);
    }
    return parse.failed_line == 0 ? rc : -EINVAL;
}
