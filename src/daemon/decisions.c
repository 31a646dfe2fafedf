/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "daemon/decisions.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/node.h"
#include "daemon/number.h"
#include "host/config_file.h"

#define PATH_BYTES 512u
#define PER_CENT_MAX 100000u

enum key { CARRIER, SMALL, MEDIUM, STREAM, SESSION, TIME, MADE_FOR, KEYS_COUNT };
static const char *const key_names[KEYS_COUNT] = {"carrier", "small", "medium", "stream",
                                                  "session", "time",  "for"};
static const char *const carriers[] = {
    [VIA_MEASURED_KERNEL] = "kernel",
    [VIA_MEASURED_PIPES] = "pipes",
};

/* --- reading ---------------------------------------------------------------------------------- */

struct parse {
    const char *name;
    struct via_error *err;
    int rc;
    struct via_measured *of; /* VIA_HOSTS_MAX */
    bool *there;
    int host; /* id of the present section's host; -1: none yet */
    unsigned section_line;
    unsigned seen; /* bits of the section's keys */
};

static void complain(struct parse *parse, unsigned line, const char *what)
{
    if (parse->rc == 0) {
        parse->rc = via_error_set(parse->err, -EINVAL, "%s:%u: %s", parse->name, line, what);
    }
}

static void end_section(struct parse *parse)
{
    if (parse->host >= 0 && parse->seen != (1u << KEYS_COUNT) - 1) {
        complain(parse, parse->section_line, "a key of this section is missing");
    }
}

static void begin_section(struct parse *parse, const struct via_config_line *line)
{
    uint64_t id;
    end_section(parse);
    if (strncmp(line->section, "host ", 5) != 0 ||
        !via_daemon_number_parse(line->section + 5, 0, VIA_HOSTS_MAX - 1, &id)) {
        complain(parse, line->number, "is no [host ID]");
        return;
    }
    if (parse->there[id]) {
        complain(parse, line->number, "this host is a duplicate");
    }
    parse->there[id] = true;
    parse->host = (int)id;
    parse->section_line = line->number;
    parse->seen = 0;
}

static bool take_value(struct via_measured *measured, enum key key, const char *value)
{
    uint64_t number = 0;
    uint32_t *const per_cents[] = {
        [SMALL] = &measured->small_pct, &measured->medium_pct, &measured->stream_pct};
    switch (key) {
    case CARRIER:
        for (unsigned i = VIA_MEASURED_KERNEL; i <= VIA_MEASURED_PIPES; i++) {
            measured->carrier = strcmp(value, carriers[i]) == 0 ? (uint8_t)i : measured->carrier;
        }
        return measured->carrier != VIA_MEASURED_NOT;
    case SMALL:
    case MEDIUM:
    case STREAM:
        if (!via_daemon_number_parse(value, 1, PER_CENT_MAX, &number)) {
            return false;
        }
        *per_cents[key] = (uint32_t)number;
        return true;
    case SESSION:
        if (!via_daemon_number_parse(value, 0, UINT32_MAX, &number)) {
            return false;
        }
        measured->session = (uint32_t)number;
        return true;
    case TIME:
        if (!via_daemon_number_parse(value, 0, INT64_MAX / VIA_SEC_NS, &number)) {
            return false;
        }
        measured->measured_ns = number * VIA_SEC_NS;
        return true;
    default:
        return (size_t)snprintf(measured->made_for, sizeof(measured->made_for), "%s", value) <
               sizeof(measured->made_for);
    }
}

static void take_key(struct parse *parse, const struct via_config_line *line)
{
    for (unsigned key = 0; key < KEYS_COUNT; key++) {
        if (strcmp(key_names[key], line->key) != 0) {
            continue;
        }
        if ((parse->seen & 1u << key) != 0) {
            complain(parse, line->number, "this key is a duplicate");
        } else if (!take_value(&parse->of[parse->host], (enum key)key, line->value)) {
            complain(parse, line->number, "no value of this key");
        }
        parse->seen |= 1u << key;
        return;
    }
    complain(parse, line->number, "there is no such key");
}

static void on_line(void *ctx, const struct via_config_line *line)
{
    struct parse *parse = ctx;
    if (parse->rc != 0) {
        return;
    }
    if (line->section != NULL) {
        begin_section(parse, line);
    } else if (parse->host < 0) {
        complain(parse, line->number, "in front of it a section is missing");
    } else {
        take_key(parse, line);
    }
}

static void on_error(void *ctx, unsigned number, const char *what)
{
    complain(ctx, number, what);
}

int via_decisions_parse(const char *name, const char *text, size_t bytes,
                        void (*take)(void *ctx, uint16_t host, const struct via_measured *measured),
                        void *ctx, struct via_error *err)
{
    struct parse parse = {.name = name, .err = err, .host = -1};
    struct via_config_calls calls = {.ctx = &parse, .line = on_line, .error = on_error};
    parse.of = calloc(VIA_HOSTS_MAX, sizeof(*parse.of));
    parse.there = calloc(VIA_HOSTS_MAX, sizeof(*parse.there));
    if (parse.of == NULL || parse.there == NULL) {
        parse.rc = via_error_set(err, -ENOMEM, "%s: %s", name, strerror(ENOMEM));
    } else {
        via_config_file_parse(text, bytes, &calls);
        end_section(&parse);
    }
    for (unsigned id = 0; parse.rc == 0 && id < VIA_HOSTS_MAX; id++) {
        if (parse.there[id]) {
            take(ctx, (uint16_t)id, &parse.of[id]);
        }
    }
    free(parse.of);
    free(parse.there);
    return parse.rc;
}

static void restore(void *ctx, uint16_t id, const struct via_measured *measured)
{
    via_host_measured_restore(ctx, id, measured);
}

int via_decisions_load(const char *folder, struct via_host *host, struct via_error *err)
{
    char path[PATH_BYTES];
    char *text;
    size_t bytes;
    snprintf(path, sizeof(path), "%s/%s", folder, VIA_DECISIONS_FILE);
    int rc = via_config_file_read(path, VIA_DECISIONS_BYTES_MAX, &text, &bytes, err);
    if (rc == -ENOENT) {
        return 0;
    }
    if (rc != 0) {
        return via_error_prefix(err, "%s: ", path);
    }
    rc = via_decisions_parse(path, text, bytes, restore, host, err);
    free(text);
    return rc;
}

/* --- writing ---------------------------------------------------------------------------------- */

char *via_decisions_text(const struct via_host *host)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL) {
        return NULL;
    }
    fprintf(out, "# viaductd writes this: what carries TCP connections to other hosts, as was "
                 "measured. Without the file it measures again.\n");
    for (unsigned id = 0; id < VIA_HOSTS_MAX; id++) {
        const struct via_measured *measured = via_host_measured_kept(host, (uint16_t)id);
        if (measured == NULL || strpbrk(measured->made_for, "\r\n") != NULL) {
            continue;
        }
        fprintf(out,
                "[host %u]\ncarrier = %s\nsmall = %" PRIu32 "\nmedium = %" PRIu32
                "\nstream = %" PRIu32 "\nsession = %" PRIu32 "\ntime = %" PRIu64 "\nfor = %s\n",
                id, carriers[measured->carrier], measured->small_pct, measured->medium_pct,
                measured->stream_pct, measured->session, measured->measured_ns / VIA_SEC_NS,
                measured->made_for);
    }
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

static int write_all(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t count = write(fd, text, bytes);
        if (count < 0 && errno != EINTR) {
            return -errno;
        }
        text += count > 0 ? count : 0;
        bytes -= count > 0 ? (size_t)count : 0;
    }
    return 0;
}

int via_decisions_write(const char *folder, const char *text, struct via_error *err)
{
    char path[PATH_BYTES], made[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/%s", folder, VIA_DECISIONS_FILE);
    snprintf(made, sizeof(made), "%s/%s.new", folder, VIA_DECISIONS_FILE);
    (void)mkdir(folder, 0700); /* it exists already, or open() reports the error */
    (void)unlink(made);        /* left by a daemon that was killed */
    int fd = open(made, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return via_error_set(err, -errno, "%s: open: %s", made, strerror(errno));
    }
    int rc = write_all(fd, text, strlen(text));
    if (rc == 0 && fsync(fd) != 0) {
        rc = -errno;
    }
    if (close(fd) != 0 && rc == 0) {
        rc = -errno;
    }
    if (rc == 0 && rename(made, path) != 0) {
        rc = -errno;
    }
    if (rc != 0) {
        (void)unlink(made);
        return via_error_set(err, rc, "%s: write: %s", path, strerror(-rc));
    }
    return 0;
}
