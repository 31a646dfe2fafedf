/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "daemon/config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/config_keys.h"
#include "daemon/key.h"
#include "daemon/number.h"
#include "host/config_file.h"
#include "host/tuning.h"

#define SHOWN_BYTES 80 /* of a value, in error messages */

enum link_key {
    LINK_TO,
    LINK_PEER,
    LINK_DIMENSION,
    LINK_KEYS_COUNT,
};
static const char *const link_keys[LINK_KEYS_COUNT] = {"to", "peer", "dimension"};

struct parse {
    const char *name;
    struct via_daemon_options *options;
    struct via_daemon_report *report;
    bool failed;

    char section[64]; /* "": none yet */
    bool skipped;     /* the section was refused; its keys are ignored */
    /* index of the link that the section describes; -1: the section is not a link's */
    int link;
    /* Numbers of lines; 0: absent. */
    unsigned key_lines[VIA_CONFIG_KEYS_COUNT];
    struct {
        unsigned section;
        unsigned keys[LINK_KEYS_COUNT];
    } link_lines[VIA_PORTS_MAX];
};

static void complain(struct parse *parse, unsigned line, const char *format, ...) VIA_PRINTF(3, 4);

static void complain(struct parse *parse, unsigned line, const char *format, ...)
{
    char text[VIA_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (line != 0) {
        via_daemon_report_add(parse->report, "%s:%u: %s", parse->name, line, text);
    } else {
        via_daemon_report_add(parse->report, "%s: %s", parse->name, text);
    }
    parse->failed = true;
}

static void complain_value(struct parse *parse, unsigned line, const char *section, const char *key,
                           const char *value, const char *cause)
{
    complain(parse, line, "[%s] %.40s = %.*s%s: %s", section, key, SHOWN_BYTES, value,
             strlen(value) > SHOWN_BYTES ? "..." : "", cause);
}

/* --- sections --------------------------------------------------------------------------------- */

static bool is_section(const char *name)
{
    for (size_t i = 0; i < VIA_CONFIG_KEYS_COUNT; i++) {
        if (strcmp(via_config_keys[i].section, name) == 0) {
            return true;
        }
    }
    return false;
}

static void begin_link(struct parse *parse, unsigned line, const char *name)
{
    struct via_daemon_options *options = parse->options;
    unsigned count = options->host.links_count;
    if (via_rundir_check_name(name, NULL) != 0) {
        complain(parse, line,
                 "[link %.40s]: a link has a name of 1 to %u letters, digits or ._-, not beginning "
                 "with a dot",
                 name, VIA_FABRIC_NAME_BYTES_MAX);
        return;
    }
    for (unsigned i = 0; i < count; i++) {
        if (strcmp(options->link_names[i], name) == 0) {
            complain(parse, line, "[link %s]: is a duplicate of line %u", name,
                     parse->link_lines[i].section);
            return;
        }
    }
    if (count == VIA_PORTS_MAX) {
        complain(parse, line, "[link %s]: a host has at most %u links", name, VIA_PORTS_MAX);
        return;
    }
    strcpy(options->link_names[count], name);
    options->link_descriptions[count][0] = '\0';
    options->links[count] = (struct via_host_link){
        .description = options->link_descriptions[count],
        .peer = VIA_HOST_PEER_LEARNED,
        .name = options->link_names[count],
    };
    parse->link_lines[count].section = line;
    options->host.links_count++;
    parse->link = (int)count;
    parse->skipped = false;
}

static void begin_section(struct parse *parse, unsigned line, const char *name)
{
    parse->skipped = true;
    parse->link = -1;
    snprintf(parse->section, sizeof(parse->section), "%s", name);
    if (strncmp(name, "link", 4) == 0 && (name[4] == ' ' || name[4] == '\t' || name[4] == '\0')) {
        begin_link(parse, line, name + 4 + strspn(name + 4, " \t"));
    } else if (!is_section(name)) {
        complain(parse, line,
                 "[%.40s]: there is no such section; there are host, fabric, rights, quota, "
                 "limits, transport, times, log and link NAME",
                 name);
    } else {
        parse->skipped = false;
    }
}

/* --- keys ------------------------------------------------------------------------------------- */

static int set_link_key(struct parse *parse, enum link_key key, const char *value,
                        struct via_error *err)
{
    unsigned index = (unsigned)parse->link;
    struct via_host_link *link = &parse->options->links[index];
    uint64_t number;
    switch (key) {
    case LINK_TO:
        if (strlen(value) >= VIA_DAEMON_DESCRIPTION_BYTES) {
            return via_error_set(err, -EINVAL, "longer than %u bytes",
                                 VIA_DAEMON_DESCRIPTION_BYTES - 1);
        }
        strcpy(parse->options->link_descriptions[index], value);
        return via_host_link_check(link, err);
    case LINK_PEER:
        if (!via_daemon_number_parse(value, 0, VIA_HOSTS_MAX - 1, &number)) {
            return via_error_set(err, -EINVAL, "the id of a host is expected, 0 to %u",
                                 VIA_HOSTS_MAX - 1);
        }
        link->peer = (uint16_t)number;
        return 0;
    default:
        if (!via_daemon_number_parse(value, 0, VIA_DIMENSIONS_MAX - 1, &number)) {
            return via_error_set(err, -EINVAL, "a number from 0 to %u is expected",
                                 VIA_DIMENSIONS_MAX - 1);
        }
        link->dimension = (uint8_t)number;
        return 0;
    }
}

static void take_link_key(struct parse *parse, const struct via_config_line *line)
{
    struct via_error err;
    for (unsigned i = 0; i < LINK_KEYS_COUNT; i++) {
        unsigned *seen = &parse->link_lines[parse->link].keys[i];
        if (strcmp(link_keys[i], line->key) != 0) {
            continue;
        }
        if (*seen != 0) {
            complain(parse, line->number, "[%s] %s: is given already, in line %u", parse->section,
                     line->key, *seen);
            return;
        }
        *seen = line->number;
        if (set_link_key(parse, (enum link_key)i, line->value, &err) != 0) {
            complain_value(parse, line->number, parse->section, line->key, line->value, err.text);
        }
        return;
    }
    complain(parse, line->number,
             "[%s] %.40s: there is no such key; there are to, peer and dimension", parse->section,
             line->key);
}

static void complain_key(struct parse *parse, const struct via_config_line *line)
{
    char names[128] = "";
    for (size_t i = 0; i < VIA_CONFIG_KEYS_COUNT; i++) {
        if (strcmp(via_config_keys[i].section, parse->section) == 0) {
            size_t used = strlen(names);
            snprintf(names + used, sizeof(names) - used, "%s%s", used != 0 ? ", " : "",
                     via_config_keys[i].name);
        }
    }
    complain(parse, line->number, "[%s] %.40s: there is no such key; there are %s", parse->section,
             line->key, names);
}

static void take_key(struct parse *parse, const struct via_config_line *line)
{
    struct via_error err;
    for (size_t i = 0; i < VIA_CONFIG_KEYS_COUNT; i++) {
        const struct via_config_key *key = &via_config_keys[i];
        if (strcmp(key->section, parse->section) != 0 || strcmp(key->name, line->key) != 0) {
            continue;
        }
        if (parse->key_lines[i] != 0) {
            complain(parse, line->number, "[%s] %s: is given already, in line %u", parse->section,
                     line->key, parse->key_lines[i]);
            return;
        }
        parse->key_lines[i] = line->number;
        if (via_config_key_set(key, parse->options, line->value, &err) != 0) {
            complain_value(parse, line->number, parse->section, line->key, line->value, err.text);
        }
        return;
    }
    complain_key(parse, line);
}

static void on_line(void *ctx, const struct via_config_line *line)
{
    struct parse *parse = ctx;
    if (line->section != NULL) {
        begin_section(parse, line->number, line->section);
    } else if (parse->section[0] == '\0') {
        complain(parse, line->number, "%.40s: in front of it a section is missing, such as [host]",
                 line->key);
    } else if (!parse->skipped && parse->link >= 0) {
        take_link_key(parse, line);
    } else if (!parse->skipped) {
        take_key(parse, line);
    }
}

static void on_error(void *ctx, unsigned number, const char *what)
{
    complain(ctx, number, "%s", what);
}

/* --- the whole file --------------------------------------------------------------------------- */

static void check_keys(struct parse *parse)
{
    for (size_t i = 0; i < VIA_CONFIG_KEYS_COUNT; i++) {
        const struct via_config_key *key = &via_config_keys[i];
        if (key->needed && parse->key_lines[i] == 0) {
            complain(parse, 0, "[%s] %s: is missing", key->section, key->name);
        }
    }
}

static void check_link(struct parse *parse, unsigned index)
{
    const struct via_daemon_options *options = parse->options;
    const struct via_host_link *link = &options->links[index];
    const unsigned *lines = parse->link_lines[index].keys;
    char section[64];
    char value[16];
    snprintf(section, sizeof(section), "link %s", link->name);
    snprintf(value, sizeof(value), "%u", link->peer);
    unsigned hosts_max = options->host.hosts_max != 0 ? options->host.hosts_max : 64;
    if (lines[LINK_TO] == 0) {
        complain(parse, parse->link_lines[index].section, "[%s] to: is missing", section);
    }
    if (link->peer != VIA_HOST_PEER_LEARNED && link->peer == options->host.host) {
        complain_value(parse, lines[LINK_PEER], section, "peer", value,
                       "is the id of this host itself");
    } else if (link->peer != VIA_HOST_PEER_LEARNED && link->peer >= hosts_max) {
        complain_value(parse, lines[LINK_PEER], section, "peer", value,
                       "ids of this fabric are below hosts-max");
    }
    for (unsigned i = 0; i < index && lines[LINK_TO] != 0; i++) {
        if (strcmp(options->link_descriptions[i], options->link_descriptions[index]) == 0) {
            complain(parse, lines[LINK_TO], "[%s] to: is the same as that of [link %s] in line %u",
                     section, options->link_names[i], parse->link_lines[i].keys[LINK_TO]);
            return;
        }
    }
}

static unsigned line_of(const struct parse *parse, const char *section, const char *name)
{
    unsigned line = 0;
    for (size_t i = 0; i < VIA_CONFIG_KEYS_COUNT; i++) {
        const struct via_config_key *key = &via_config_keys[i];
        if (strcmp(key->section, section) == 0 && strcmp(key->name, name) == 0) {
            line = parse->key_lines[i];
        }
    }
    return line;
}

/* Checks keys against each other, such as sizes that contradict each other. */
static void check_host(struct parse *parse)
{
    struct via_error err;
    const struct via_daemon_options *options = parse->options;
    unsigned hosts_max = options->host.hosts_max != 0 ? options->host.hosts_max : 64;
    if (options->host.host >= hosts_max) {
        complain(parse, 0, "[host] id = %u: ids of this fabric are below hosts-max, %u",
                 options->host.host, hosts_max);
    }
    if (options->host.encrypt && options->key_file[0] == '\0') {
        complain(parse, line_of(parse, "fabric", "encrypt"),
                 "[fabric] encrypt = yes: needs [fabric] key");
    }
    if (!parse->failed && via_host_options_check(&parse->options->host, &err) != 0) {
        complain(parse, 0, "%s", err.text);
    }
}

/* Makes the host's options point to the texts of the file. */
static void connect_texts(struct via_daemon_options *options)
{
    struct via_host_options *host = &options->host;
    for (unsigned i = 0; i < options->identity.addresses_count; i++) {
        options->addresses[i] = options->identity.addresses[i];
    }
    host->addresses = options->addresses;
    host->addresses_count = options->identity.addresses_count;
    host->name = options->identity.name[0] != '\0' ? options->identity.name : NULL;
    host->fabric = options->identity.fabric[0] != '\0' ? options->identity.fabric : NULL;
    host->listen = options->listen[0] != '\0' ? options->listen : NULL;
    host->rundir = options->rundir.text;
    host->links = options->links;
    options->tune_path = options->tune_file[0] != '\0' ? options->tune_file : NULL;
    options->metrics = options->metrics_at[0] != '\0' ? options->metrics_at : NULL;
    options->key_path = options->key_file[0] != '\0' ? options->key_file : NULL;
}

int via_daemon_config_parse(const char *name, const char *text, size_t bytes,
                            struct via_daemon_options *ret_options,
                            struct via_daemon_report *report)
{
    struct parse *parse = calloc(1, sizeof(*parse));
    if (parse == NULL) {
        via_daemon_report_add(report, "%s: read: %s", name, strerror(ENOMEM));
        return -EINVAL;
    }
    *parse = (struct parse){.name = name, .options = ret_options, .report = report, .link = -1};
    strcpy(ret_options->rundir.text, VIA_DAEMON_RUNDIR);
    strcpy(ret_options->state, geteuid() == 0 ? VIA_DAEMON_STATE : "");
    ret_options->measures = true;
    ret_options->host.links_may_fail = true;
    struct via_config_calls calls = {.ctx = parse, .line = on_line, .error = on_error};
    via_config_file_parse(text, bytes, &calls);
    check_keys(parse);
    for (unsigned i = 0; i < ret_options->host.links_count; i++) {
        check_link(parse, i);
    }
    if (ret_options->host.links_max == 0) {
        ret_options->host.links_max = VIA_DAEMON_LINKS_MAX;
    }
    connect_texts(ret_options);
    check_host(parse);
    bool failed = parse->failed;
    free(parse);
    return failed ? -EINVAL : 0;
}

int via_daemon_config_load(const char *path, struct via_daemon_options *ret_options,
                           struct via_daemon_report *report)
{
    struct via_error err;
    struct via_daemon_key key;
    char *text = NULL;
    size_t bytes = 0;
    if (via_config_file_read(path, VIA_DAEMON_CONFIG_BYTES_MAX, &text, &bytes, &err) != 0) {
        via_daemon_report_add(report, "%s: %s", path, err.text);
        return -EINVAL;
    }
    int rc = via_daemon_config_parse(path, text, bytes, ret_options, report);
    free(text);
    if (ret_options->key_path != NULL &&
        via_daemon_key_read(ret_options->key_path, &key, &err) != 0) {
        via_daemon_report_add(report, "%s: [fabric] key: %s", path, err.text);
        rc = -EINVAL;
    }
    explicit_bzero(&key, sizeof(key));
    static struct via_tuning tuning;
    if (ret_options->tune_path != NULL &&
        via_tuning_load(ret_options->tune_path, &tuning, &err) != 0) {
        via_daemon_report_add(report, "%s: [transport] tune: %s", path, err.text);
        rc = -EINVAL;
    }
    return rc;
}

void via_daemon_config_print(const struct via_daemon_options *options, FILE *to)
{
    char value[VIA_CONFIG_VALUE_BYTES];
    const char *section = "";
    for (size_t i = 0; i < VIA_CONFIG_KEYS_COUNT; i++) {
        const struct via_config_key *key = &via_config_keys[i];
        via_config_key_show(key, options, value, sizeof(value));
        if (value[0] == '\0') {
            continue;
        }
        if (strcmp(key->section, section) != 0) {
            fprintf(to, "%s[%s]\n", section[0] != '\0' ? "\n" : "", key->section);
            section = key->section;
        }
        fprintf(to, "%s = %s\n", key->name, value);
    }
    for (unsigned i = 0; i < options->host.links_count; i++) {
        const struct via_host_link *link = &options->links[i];
        fprintf(to, "\n[link %s]\nto = %s\n", link->name, link->description);
        if (link->peer != VIA_HOST_PEER_LEARNED) {
            fprintf(to, "peer = %u\n", link->peer);
        }
        fprintf(to, "dimension = %u\n", link->dimension);
    }
}

unsigned via_daemon_config_compare(const struct via_daemon_options *running,
                                   const struct via_daemon_options *loaded,
                                   struct via_daemon_report *report)
{
    unsigned count = 0;
    for (size_t i = 0; i < VIA_CONFIG_KEYS_COUNT; i++) {
        const struct via_config_key *key = &via_config_keys[i];
        char old[VIA_CONFIG_VALUE_BYTES];
        char new[VIA_CONFIG_VALUE_BYTES];
        via_config_key_show(key, running, old, sizeof(old));
        via_config_key_show(key, loaded, new, sizeof(new));
        if (!key->at_run_time && strcmp(old, new) != 0) {
            via_daemon_report_add(report,
                                  "[%s] %s: stays %s, not %s: it changes when the daemon "
                                  "restarts",
                                  key->section, key->name, old[0] != '\0' ? old : "unset",
                                  new[0] != '\0' ? new : "unset");
            count++;
        }
    }
    return count;
}
