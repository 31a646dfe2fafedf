/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Lists of machines, as users, files and Slurm write them, and the placement of PEs on machines. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shmem/launch_remote.h"

#define LINE_BYTES 512u

/* ssh and srun get the name as a word of their command line, so it must be neither an option nor a
 * pattern. */
static bool is_name(const char *name, size_t bytes)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-@%";

    return bytes > 0 && bytes < VIA_LAUNCH_NAME_BYTES && name[0] != '-' &&
           strspn(name, allowed) >= bytes;
}

static int add(struct via_launch_machines *machines, const char *name, size_t bytes, uint32_t slots,
               struct via_error *err)
{
    if (!is_name(name, bytes))
        return via_error_set(err, -EINVAL, "\"%.*s\": not the name of a machine",
                             (int)via_min(bytes, (size_t)80), name);
    for (uint32_t i = 0; i < machines->count; i++) {
        struct via_launch_machine_name *known = &machines->names[i];
        if (strlen(known->text) == bytes && memcmp(known->text, name, bytes) == 0) {
            known->slots = via_max(known->slots, 1u) + via_max(slots, 1u);
            /* The limit matters for nested brackets, which could otherwise add slots to one machine
             * endlessly. */
            return known->slots <= VIA_JOB_PES_MAX
                       ? 0
                       : via_error_set(err, -EINVAL, "\"%.80s\": more than %u slots", known->text,
                                       VIA_JOB_PES_MAX);
        }
    }
    if (machines->count == VIA_LAUNCH_MACHINES_MAX)
        return via_error_set(err, -EINVAL, "more than %u machines", VIA_LAUNCH_MACHINES_MAX);
    struct via_launch_machine_name *machine = &machines->names[machines->count++];
    memcpy(machine->text, name, bytes);
    machine->text[bytes] = '\0';
    machine->slots = slots;
    return 0;
}

static bool parse_slots(const char *text, size_t bytes, uint32_t *ret_slots)
{
    unsigned long slots = 0;

    for (size_t i = 0; i < bytes && slots <= VIA_JOB_PES_MAX; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        slots = slots * 10 + (unsigned long)(text[i] - '0');
    }
    *ret_slots = (uint32_t)slots;
    return bytes > 0 && slots > 0 && slots <= VIA_JOB_PES_MAX;
}

/* "name" or "name:slots" */
static int add_word(struct via_launch_machines *machines, const char *word, size_t bytes,
                    struct via_error *err)
{
    const char *colon = memchr(word, ':', bytes);
    uint32_t slots = 0;

    if (colon && !parse_slots(colon + 1, bytes - (size_t)(colon + 1 - word), &slots))
        return via_error_set(err, -EINVAL, "\"%.*s\": expected name:slots, with 1 to %u slots",
                             (int)via_min(bytes, (size_t)80), word, VIA_JOB_PES_MAX);
    return add(machines, word, colon ? (size_t)(colon - word) : bytes, slots, err);
}

static int check(const struct via_launch_machines *machines, struct via_error *err)
{
    if (machines->count == 0)
        return via_error_set(err, -EINVAL, "no machines");
    return 0;
}

bool via_launch_machines_are_named(const char *list)
{
    return list[strspn(list, "0123456789,-:")] != '\0';
}

int via_launch_machines_parse(const char *list, struct via_launch_machines *ret_machines,
                              struct via_error *err)
{
    const char *at = list;
    int result = 0;

    ret_machines->count = 0;
    do {
        size_t bytes = strcspn(at, ",");
        result = add_word(ret_machines, at, bytes, err);
        at += bytes;
    } while (result == 0 && *at++ == ',');
    return result == 0 ? check(ret_machines, err) : result;
}

/* --- a file ----------------------------------------------------------------------------------- */

static int read_line(struct via_launch_machines *machines, char *line, struct via_error *err)
{
    uint32_t slots = 0;

    line[strcspn(line, "#\r\n")] = '\0';
    char *name = line + strspn(line, " \t");
    size_t bytes = strcspn(name, " \t");
    char *rest = name + bytes;
    if (bytes == 0)
        return 0;
    rest += strspn(rest, " \t");
    if (*rest == '\0')
        return add_word(machines, name, bytes, err);
    size_t value_bytes = strcspn(rest, " \t");
    if (strncmp(rest, "slots=", strlen("slots=")) != 0 ||
        rest[value_bytes + strspn(rest + value_bytes, " \t")] != '\0' ||
        !parse_slots(rest + strlen("slots="), value_bytes - strlen("slots="), &slots))
        return via_error_set(err, -EINVAL, "\"%.80s\": expected \"name\" or \"name slots=N\"",
                             name);
    return add(machines, name, bytes, slots, err);
}

int via_launch_machines_read(const char *path, struct via_launch_machines *ret_machines,
                             struct via_error *err)
{
    char line[LINE_BYTES];
    unsigned number = 0;
    int result = 0;
    FILE *file = fopen(path, "re");

    if (!file)
        return via_error_set(err, -errno, "%s: %s", path, strerror(errno));
    ret_machines->count = 0;
    while (result == 0 && fgets(line, sizeof(line), file)) {
        number++;
        if (!strchr(line, '\n') && !feof(file))
            result = via_error_set(err, -EINVAL, "a line of more than %u bytes, or a zero byte",
                                   LINE_BYTES - 2);
        else
            result = read_line(ret_machines, line, err);
    }
    if (result == 0 && ferror(file)) {
        number++;
        result = via_error_set(err, -errno, "%s", strerror(errno));
    }
    fclose(file);
    if (result < 0)
        return via_error_prefix(err, "%s: line %u: ", path, number);
    return check(ret_machines, err) < 0 ? via_error_prefix(err, "%s: ", path) : 0;
}

/* --- Slurm ------------------------------------------------------------------------------------ */

/* The end of the first name: a comma outside brackets. */
static size_t slurm_word(const char *list)
{
    bool inside = false;
    size_t i = 0;

    for (; list[i] != '\0' && (inside || list[i] != ','); i++)
        inside = list[i] == '[' || (inside && list[i] != ']');
    return i;
}

/* `word` with its first brackets replaced by each of their numbers, and so on. */
static int expand(struct via_launch_machines *machines, const char *word, struct via_error *err)
{
    char name[LINE_BYTES];
    const char *open = strchr(word, '['), *close = open ? strchr(open, ']') : NULL, *at = open;
    int result = 0;

    if (!open)
        return add(machines, word, strlen(word), 0, err);
    if (!close)
        return via_error_set(err, -EINVAL, "\"%.80s\": a bracket is not closed", word);
    while (result == 0 && at < close) {
        char *end;
        at++;
        size_t digits = strspn(at, "0123456789");
        unsigned long first = strtoul(at, &end, 10), last = first;
        if (digits > 0 && digits <= 9 && *end == '-') {
            at = end + 1;
            size_t last_digits = strspn(at, "0123456789");
            last = strtoul(at, &end, 10);
            digits = last_digits > 0 && last_digits <= 9 ? digits : 0;
        }
        if (digits == 0 || digits > 9 || last < first || (*end != ',' && end != close) ||
            last - first >= VIA_LAUNCH_MACHINES_MAX)
            return via_error_set(err, -EINVAL, "\"%.80s\": expected numbers in brackets", word);
        at = end;
        for (unsigned long i = first; i <= last && result == 0; i++) {
            int bytes = snprintf(name, sizeof(name), "%.*s%0*lu%s", (int)(open - word), word,
                                 (int)digits, i, close + 1);
            result = bytes >= (int)sizeof(name)
                         ? via_error_set(err, -EINVAL, "\"%.80s\": too long", word)
                         : expand(machines, name, err);
        }
    }
    return result;
}

/* "4(x2),1": four, four, one. */
static int take_tasks(struct via_launch_machines *machines, const char *tasks,
                      struct via_error *err)
{
    uint32_t at = 0;
    const char *text = tasks;

    while (at < machines->count && *text != '\0') {
        char *end;
        unsigned long slots = strtoul(text, &end, 10), times = 1;
        bool good = end != text && slots > 0 && slots <= VIA_JOB_PES_MAX;
        if (good && strncmp(end, "(x", 2) == 0) {
            text = end + 2;
            times = strtoul(text, &end, 10);
            good = end != text && *end++ == ')';
        }
        if (!good || (*end != ',' && *end != '\0'))
            break;
        for (; times > 0 && at < machines->count; times--)
            machines->names[at++].slots = (uint32_t)slots;
        text = *end == ',' ? end + 1 : end;
    }
    if (at < machines->count || *text != '\0')
        return via_error_set(err, -EINVAL, "SLURM_TASKS_PER_NODE=\"%.80s\": not for %u nodes",
                             tasks, machines->count);
    return 0;
}

int via_launch_machines_of_slurm(const char *list, const char *tasks,
                                 struct via_launch_machines *ret_machines, struct via_error *err)
{
    char word[LINE_BYTES];
    const char *at = list;
    int result = 0;

    ret_machines->count = 0;
    do {
        size_t bytes = slurm_word(at);
        if (bytes >= sizeof(word))
            return via_error_set(err, -EINVAL, "SLURM_JOB_NODELIST: a word of %zu bytes", bytes);
        memcpy(word, at, bytes);
        word[bytes] = '\0';
        result = expand(ret_machines, word, err);
        at += bytes;
    } while (result == 0 && *at++ == ',');
    if (result < 0)
        return via_error_prefix(err, "SLURM_JOB_NODELIST: ");
    return tasks ? take_tasks(ret_machines, tasks, err) : 0;
}

/* --- placement -------------------------------------------------------------------------------- */

int via_launch_share_out(const char *what, const uint32_t *slots, uint32_t count,
                         uint32_t pes_count, struct via_launch_place *place, struct via_error *err)
{
    uint32_t sum = 0, pe = 0;
    bool has_slots = false;

    for (uint32_t i = 0; i < count; i++) {
        sum += via_max(slots[i], 1u);
        has_slots = has_slots || slots[i] > 0;
    }
    if (has_slots && sum < pes_count)
        return via_error_set(err, -EINVAL, "%u PEs, but the %ss have %u slots", pes_count, what,
                             sum);
    if (!has_slots && count > pes_count)
        return via_error_set(err, -EINVAL, "%u %ss for %u PEs: each %s needs one", count, what,
                             pes_count, what);
    place->nodes_count = count;
    for (; pe < pes_count && !has_slots; pe++)
        place->node_of[pe] = (uint32_t)((uint64_t)pe * count / pes_count);
    for (uint32_t node = 0; pe < pes_count; node++) {
        for (uint32_t i = 0; i < via_max(slots[node], 1u) && pe < pes_count; i++)
            place->node_of[pe++] = node;
        place->nodes_count = node + 1;
    }
    return 0;
}

int via_launch_machines_place(struct via_launch_machines *machines, uint32_t pes_count,
                              struct via_launch_place *ret_place, struct via_error *err)
{
    struct via_launch_place *place = ret_place;
    uint32_t slots[VIA_LAUNCH_MACHINES_MAX];

    memset(place, 0, sizeof(*place));
    for (uint32_t i = 0; i < machines->count; i++)
        slots[i] = machines->names[i].slots;
    int result = via_launch_share_out("machine", slots, machines->count, pes_count, place, err);
    if (result < 0)
        return result;
    machines->count = place->nodes_count;
    place->fabric = place->nodes_count > 1;
    return 0;
}
