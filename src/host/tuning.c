/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/tuning.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/config_file.h"
#include "wire/record.h"

/* --- the file --------------------------------------------------------------------------------- */

enum section { NONE, MACHINE, PIPES, LINK };

struct parse {
    const char *name;
    struct via_tuning *tuning;
    struct via_error *err;
    int rc; /* of the first error; the rest is not parsed */
    enum section section;
    bool has_machine, has_pipes;
};

static void complain(struct parse *parse, unsigned line, const char *format, ...) VIA_PRINTF(3, 4);

static void complain(struct parse *parse, unsigned line, const char *format, ...)
{
    char text[400];
    va_list args;
    if (parse->rc != 0) {
        return;
    }
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    parse->rc = via_error_set(parse->err, -EINVAL, "%s:%u: %s", parse->name, line, text);
}

/* Copies a text of [cpu] or [hardware], which appears in logs. */
static bool copy_text(char *to, size_t bytes, const char *from)
{
    for (const char *at = from; *at != '\0'; at++) {
        if (*at < ' ' || *at > '~') {
            return false;
        }
    }
    return from[0] != '\0' && (size_t)snprintf(to, bytes, "%s", from) < bytes;
}

static void begin_link(struct parse *parse, unsigned line, const char *text)
{
    struct via_tuning *tuning = parse->tuning;
    struct via_link_config config;
    struct via_error err;
    if (tuning->links_count == VIA_TUNING_LINKS_MAX) {
        complain(parse, line, "[link %.40s]: more than %u links", text, VIA_TUNING_LINKS_MAX);
    } else if (via_link_parse(text, &config, &err) != 0) {
        complain(parse, line, "[link %.40s]: %.200s", text, err.text);
    } else if (via_tuning_find(tuning, text) != NULL) {
        complain(parse, line, "[link %.40s]: is a duplicate", text);
    } else {
        struct via_tuning_link *link = &tuning->links[tuning->links_count++];
        *link = (struct via_tuning_link){0};
        snprintf(link->link, sizeof(link->link), "%s", text);
        parse->section = LINK;
    }
}

static void begin(struct parse *parse, unsigned line, const char *name)
{
    if (strcmp(name, "machine") == 0 && !parse->has_machine) {
        parse->section = MACHINE;
        parse->has_machine = true;
    } else if (strcmp(name, "pipes") == 0 && !parse->has_pipes) {
        parse->section = PIPES;
        parse->has_pipes = true;
    } else if (strncmp(name, "link ", 5) == 0) {
        begin_link(parse, line, name + 5);
    } else {
        complain(parse, line, "[%.40s]: not one of machine, pipes (once each) and link LINK", name);
    }
}

static bool take_number(const char *text, uint64_t min, uint64_t max, uint32_t *ret_number)
{
    struct via_link_word word = {.value = text};
    uint64_t number;
    if (*ret_number != 0 || !via_link_word_parse_number(&word, max, &number) || number < min) {
        return false;
    }
    *ret_number = (uint32_t)number;
    return true;
}

/* Parses NAME, or NAME from BYTES, where BYTES is a power of two. */
static int parse_part(const char *text, size_t length, unsigned *ret_class,
                      const struct via_store **ret_store)
{
    char part[32], name[16];
    unsigned bytes = 1;
    int end = -1;
    if (length >= sizeof(part)) {
        return -EINVAL;
    }
    memcpy(part, text, length);
    part[length] = '\0';
    if (sscanf(part, " %15[^ ] from %u%n", name, &bytes, &end) < 2) {
        end = -1;
        if (sscanf(part, " %15[^ ]%n", name, &end) != 1) {
            return -EINVAL;
        }
    }
    *ret_class = via_store_class(bytes);
    bool is_none = strcmp(name, "-") == 0;
    *ret_store = is_none ? NULL : via_store_find(name);
    bool is_known = is_none || *ret_store != NULL;
    return is_known && end == (int)length && bytes == 1u << *ret_class ? 0 : -EINVAL;
}

/* -EINVAL: invalid text, or this CPU has no such store; ret_stores are then undefined. */
static int parse_stores(const char *text, const struct via_store *ret_stores[VIA_STORE_CLASSES])
{
    unsigned next = 0;
    for (unsigned i = 0; i < VIA_STORE_CLASSES; i++) {
        ret_stores[i] = NULL;
    }
    for (;;) {
        const struct via_store *store;
        unsigned first;
        size_t length = strcspn(text, ",");
        int rc = parse_part(text, length, &first, &store);
        if (rc != 0 || first < next) {
            return -EINVAL;
        }
        for (unsigned i = first; i < VIA_STORE_CLASSES; i++) {
            ret_stores[i] = store;
        }
        next = first + 1;
        if (text[length] == '\0') {
            return 0;
        }
        text += length + 1;
    }
}

static void take_link_key(struct parse *parse, const struct via_config_line *line)
{
    struct via_tuning_link *link = &parse->tuning->links[parse->tuning->links_count - 1];
    bool good = true;
    if (strcmp(line->key, "hardware") == 0) {
        good = link->hardware[0] == '\0' &&
               copy_text(link->hardware, sizeof(link->hardware), line->value);
    } else if (strcmp(line->key, "dma-bytes") == 0) {
        good = take_number(line->value, 1, VIA_RECORD_BODY_BYTES_MAX, &link->dma_bytes_min);
    } else if (strcmp(line->key, "store") == 0) {
        good = !link->has_stores && parse_stores(line->value, link->stores) == 0;
        link->has_stores = true;
    } else {
        complain(parse, line->number,
                 "%.40s: there is no such key; there are hardware, dma-bytes and store", line->key);
    }
    if (!good) {
        complain(parse, line->number, "%s = %.40s: given twice, or not a value of it (on this CPU)",
                 line->key, line->value);
    }
}

static void on_line(void *ctx, const struct via_config_line *line)
{
    struct parse *parse = ctx;
    struct via_tuning *tuning = parse->tuning;
    bool good = false;
    if (parse->rc != 0) {
        return;
    }
    if (line->section != NULL) {
        begin(parse, line->number, line->section);
        return;
    }
    if (parse->section == LINK) {
        take_link_key(parse, line);
        return;
    }
    if (parse->section == MACHINE && strcmp(line->key, "cpu") == 0 && tuning->cpu[0] == '\0') {
        good = copy_text(tuning->cpu, sizeof(tuning->cpu), line->value);
    } else if (parse->section == PIPES && strcmp(line->key, "slots") == 0) {
        good = take_number(line->value, 1, VIA_TUNING_SLOTS_MAX, &tuning->slots) &&
               (tuning->slots & (tuning->slots - 1)) == 0;
    }
    if (!good) {
        complain(parse, line->number,
                 "%.40s = %.40s: no such key here, twice, or not a value of it", line->key,
                 line->value);
    }
}

static void on_error(void *ctx, unsigned number, const char *what)
{
    complain(ctx, number, "%s", what);
}

int via_tuning_parse(const char *name, const char *text, size_t bytes,
                     struct via_tuning *ret_tuning, struct via_error *err)
{
    struct parse parse = {.name = name, .tuning = ret_tuning, .err = err};
    struct via_config_calls calls = {.ctx = &parse, .line = on_line, .error = on_error};
    *ret_tuning = (struct via_tuning){0};
    via_config_file_parse(text, bytes, &calls);
    if (parse.rc == 0 && ret_tuning->cpu[0] == '\0') {
        complain(&parse, 1, "[machine] cpu: is missing");
    }
    for (unsigned i = 0; i < ret_tuning->links_count; i++) {
        if (ret_tuning->links[i].hardware[0] == '\0') {
            complain(&parse, 1, "[link %.80s] hardware: is missing", ret_tuning->links[i].link);
        }
    }
    return parse.rc;
}

int via_tuning_load(const char *path, struct via_tuning *ret_tuning, struct via_error *err)
{
    char *text;
    size_t bytes;
    int rc = via_config_file_read(path, VIA_TUNING_FILE_BYTES_MAX, &text, &bytes, err);
    if (rc != 0) {
        return via_error_prefix(err, "%s: ", path);
    }
    rc = via_tuning_parse(path, text, bytes, ret_tuning, err);
    free(text);
    return rc;
}

void via_tuning_print(const struct via_tuning *tuning, FILE *to)
{
    fprintf(to, "# Measured by viaduct tune; viaduct-tune(1).\n[machine]\ncpu = %s\n", tuning->cpu);
    if (tuning->slots != 0) {
        fprintf(to, "\n[pipes]\nslots = %" PRIu32 "\n", tuning->slots);
    }
    for (unsigned i = 0; i < tuning->links_count; i++) {
        const struct via_tuning_link *link = &tuning->links[i];
        fprintf(to, "\n[link %s]\nhardware = %s\n", link->link, link->hardware);
        if (link->dma_bytes_min != 0) {
            fprintf(to, "dma-bytes = %" PRIu32 "\n", link->dma_bytes_min);
        }
        if (link->has_stores) {
            char text[VIA_STORE_TEXT_BYTES];
            via_store_print(link->stores, text);
            fprintf(to, "store = %s\n", text);
        }
    }
}

int via_tuning_save(const char *path, const struct via_tuning *tuning, struct via_error *err)
{
    char part[4096];
    if ((size_t)snprintf(part, sizeof(part), "%s.%d", path, (int)getpid()) >= sizeof(part)) {
        return via_error_set(err, -ENAMETOOLONG, "%.100s...: write: %s", path,
                             strerror(ENAMETOOLONG));
    }
    int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (file == NULL) {
        int cause = errno;
        if (fd >= 0) {
            close(fd);
            unlink(part);
        }
        return via_error_set(err, -cause, "%s: create: %s", part, strerror(cause));
    }
    via_tuning_print(tuning, file);
    bool written = fflush(file) == 0 && fsync(fd) == 0;
    int cause = errno;
    if (fclose(file) != 0 && written) {
        written = false;
        cause = errno;
    }
    if (written && rename(part, path) == 0) {
        return 0;
    }
    cause = written ? errno : cause;
    unlink(part);
    return via_error_set(err, -cause, "%s: write: %s", path, strerror(cause));
}

/* --- the measured hardware -------------------------------------------------------------------- */

static void make_plain(char *text)
{
    size_t length = strcspn(text, "\n");
    text[length] = '\0';
    for (char *at = text; *at != '\0'; at++) {
        *at = *at >= ' ' && *at <= '~' ? *at : '?';
    }
    while (length != 0 && text[length - 1] == ' ') {
        text[--length] = '\0'; /* as the parser of the file does */
    }
}

void via_tuning_cpu(char ret_text[VIA_TUNING_TEXT_BYTES])
{
    char line[4096];
    FILE *file = fopen("/proc/cpuinfo", "re");
    char model[160] = "unknown", family[8] = "?", number[8] = "?", stepping[8] = "?";
    while (file != NULL && fgets(line, sizeof(line), file) != NULL && line[0] != '\n') {
        char *colon = strchr(line, ':');
        char *to = strncmp(line, "model name", 10) == 0   ? model
                   : strncmp(line, "cpu family", 10) == 0 ? family
                   : strncmp(line, "model\t", 6) == 0     ? number
                   : strncmp(line, "stepping", 8) == 0    ? stepping
                                                          : NULL;
        if (colon != NULL && to != NULL) {
            colon[1 + strcspn(colon + 1, "\n")] = '\0';
            snprintf(to, to == model ? sizeof(model) : sizeof(family), "%s",
                     colon + 1 + strspn(colon + 1, " "));
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    snprintf(ret_text, VIA_TUNING_TEXT_BYTES, "%s (%s/%s/%s)", model, family, number, stepping);
    make_plain(ret_text);
}

void via_tuning_hardware(const struct via_driver *driver, const struct via_port *port,
                         char ret_text[VIA_TUNING_TEXT_BYTES])
{
    struct via_port_status status;
    char found[256] = "";
    driver->status(port, &status);
    if (driver->describes_hardware) {
        driver->describe(port, found, sizeof(found));
    }
    snprintf(ret_text, VIA_TUNING_TEXT_BYTES, "%s, class %s%s%s", driver->name, status.class_name,
             found[0] != '\0' ? ", " : "", found);
    make_plain(ret_text);
}

int via_tuning_check_cpu(const struct via_tuning *tuning, struct via_error *err)
{
    char cpu[VIA_TUNING_TEXT_BYTES];
    via_tuning_cpu(cpu);
    return strcmp(cpu, tuning->cpu) == 0
               ? 0
               : via_error_set(err, -ENODEV,
                               "settings of another machine: measured on '%.150s', this one has "
                               "'%.150s'; viaduct tune measures again",
                               tuning->cpu, cpu);
}

int via_tuning_check_link(const struct via_tuning_link *link, const struct via_driver *driver,
                          const struct via_port *port, struct via_error *err)
{
    char hardware[VIA_TUNING_TEXT_BYTES];
    via_tuning_hardware(driver, port, hardware);
    return strcmp(hardware, link->hardware) == 0
               ? 0
               : via_error_set(err, -ENODEV,
                               "settings of other hardware: measured on '%.160s', this is "
                               "'%.160s'; viaduct tune measures again",
                               link->hardware, hardware);
}

const struct via_tuning_link *via_tuning_find(const struct via_tuning *tuning, const char *link)
{
    for (unsigned i = 0; i < tuning->links_count; i++) {
        if (strcmp(tuning->links[i].link, link) == 0) {
            return &tuning->links[i];
        }
    }
    return NULL;
}

bool via_tuning_has_dma(const struct via_tuning *tuning)
{
    for (unsigned i = 0; i < tuning->links_count; i++) {
        if (tuning->links[i].dma_bytes_min != 0) {
            return true;
        }
    }
    return false;
}
