/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "daemon/config_keys.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/number.h"
#include "metrics/server.h"

static void append(char *text, size_t bytes, const char *format, ...) VIA_PRINTF(3, 4);

static void append(char *text, size_t bytes, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, bytes - used, format, args);
    va_end(args);
}

/* --- [host] and [fabric] ---------------------------------------------------------------------- */

static int set_name(struct via_daemon_options *options, const char *value, struct via_error *err)
{
    return via_host_identity_set_name(&options->identity, value, err);
}

static void show_name(const struct via_daemon_options *options, char *ret_text, size_t bytes)
{
    append(ret_text, bytes, "%s", options->identity.name);
}

static int set_addresses(struct via_daemon_options *options, const char *value,
                         struct via_error *err)
{
    int rc = 0;
    for (const char *at = value; at != NULL && rc == 0;) {
        char address[64];
        at += strspn(at, " \t");
        size_t bytes = strcspn(at, ", \t");
        snprintf(address, sizeof(address), "%.*s", (int)via_min(bytes, sizeof(address)), at);
        rc = via_host_identity_add_address(&options->identity, address, err);
        at += bytes;
        at += strspn(at, " \t");
        if (rc == 0 && *at != ',' && *at != '\0') {
            rc = via_error_set(err, -EINVAL, "addresses are separated by commas");
        }
        at = *at == ',' ? at + 1 : NULL;
    }
    return rc;
}

static void show_addresses(const struct via_daemon_options *options, char *ret_text, size_t bytes)
{
    for (unsigned i = 0; i < options->identity.addresses_count; i++) {
        append(ret_text, bytes, "%s%s", i != 0 ? ", " : "", options->identity.addresses[i]);
    }
}

static int set_text(char *to, size_t bytes, const char *value, struct via_error *err)
{
    if (value[0] == '\0') {
        return via_error_set(err, -EINVAL, "no value");
    }
    if (strlen(value) >= bytes) {
        return via_error_set(err, -EINVAL, "longer than %zu bytes", bytes - 1);
    }
    strcpy(to, value);
    return 0;
}

/* A user does not know the daemon's working directory, so paths are absolute. */
static int set_path(char *to, size_t bytes, const char *value, struct via_error *err)
{
    if (value[0] != '/') {
        return via_error_set(err, -EINVAL, "is not an absolute path");
    }
    return set_text(to, bytes, value, err);
}

static int set_listen(struct via_daemon_options *options, const char *value, struct via_error *err)
{
    return set_text(options->listen, sizeof(options->listen), value, err);
}

static void show_listen(const struct via_daemon_options *options, char *ret_text, size_t bytes)
{
    append(ret_text, bytes, "%s", options->listen);
}

static int set_rundir(struct via_daemon_options *options, const char *value, struct via_error *err)
{
    return set_path(options->rundir.text, sizeof(options->rundir.text), value, err);
}

static void show_rundir(const struct via_daemon_options *options, char *ret_text, size_t bytes)
{
    append(ret_text, bytes, "%s", options->rundir.text);
}

static int set_state(struct via_daemon_options *options, const char *value, struct via_error *err)
{
    return set_path(options->state, sizeof(options->state), value, err);
}

static void show_state(const struct via_daemon_options *options, char *ret_text, size_t bytes)
{
    append(ret_text, bytes, "%s", options->state);
}

static int set_fabric(struct via_daemon_options *options, const char *value, struct via_error *err)
{
    return via_host_identity_set_fabric(&options->identity, value, err);
}

static void show_fabric(const struct via_daemon_options *options, char *ret_text, size_t bytes)
{
    append(ret_text, bytes, "%s", options->identity.fabric);
}

static int set_tune(struct via_daemon_options *options, const char *value, struct via_error *err)
{
    return set_path(options->tune_file, sizeof(options->tune_file), value, err);
}

static void show_tune(const struct via_daemon_options *options, char *ret_text, size_t bytes)
{
    append(ret_text, bytes, "%s", options->tune_file);
}

static int set_metrics(struct via_daemon_options *options, const char *value, struct via_error *err)
{
    struct sockaddr_storage address;
    int rc = via_metrics_parse_address(value, &address, err);
    return rc != 0 ? rc : set_text(options->metrics_at, sizeof(options->metrics_at), value, err);
}

static void show_metrics(const struct via_daemon_options *options, char *ret_text, size_t bytes)
{
    append(ret_text, bytes, "%s", options->metrics_at);
}

static int set_key(struct via_daemon_options *options, const char *value, struct via_error *err)
{
    return set_path(options->key_file, sizeof(options->key_file), value, err);
}

static void show_key(const struct via_daemon_options *options, char *ret_text, size_t bytes)
{
    append(ret_text, bytes, "%s", options->key_file);
}

static int set_yes(bool *ret_yes, const char *value, struct via_error *err)
{
    bool yes = strcmp(value, "yes") == 0;
    if (!yes && strcmp(value, "no") != 0) {
        return via_error_set(err, -EINVAL, "yes or no is expected");
    }
    *ret_yes = yes;
    return 0;
}

static int set_encrypt(struct via_daemon_options *options, const char *value, struct via_error *err)
{
    return set_yes(&options->host.encrypt, value, err);
}

static void show_encrypt(const struct via_daemon_options *options, char *ret_text, size_t bytes)
{
    append(ret_text, bytes, "%s", options->host.encrypt ? "yes" : "no");
}

static int set_measures(struct via_daemon_options *options, const char *value,
                        struct via_error *err)
{
    return set_yes(&options->measures, value, err);
}

static void show_measures(const struct via_daemon_options *options, char *ret_text, size_t bytes)
{
    append(ret_text, bytes, "%s", options->measures ? "yes" : "no");
}

/* --- [rights] and [quota] --------------------------------------------------------------------- */

/* Blanks may surround the commas, as in the other lists of the file. */
static int set_rights(struct via_rights *rights, const char *value, struct via_error *err)
{
    char text[VIA_CONFIG_VALUE_BYTES];
    size_t used = 0;
    for (const char *at = value; *at != '\0' && used < sizeof(text) - 1; at++) {
        if (*at != ' ' && *at != '\t') {
            text[used++] = *at;
        } else if (used != 0 && text[used - 1] != ',' && at[strspn(at, " \t")] != ',') {
            return via_error_set(err, -EINVAL, "users and groups are separated by commas");
        }
    }
    text[used] = '\0';
    return via_rights_add(rights, text, err);
}

static void show_rights(const struct via_rights *rights, char *ret_text, size_t bytes)
{
    append(ret_text, bytes, "owner");
    for (unsigned i = 0; i < rights->count; i++) {
        const struct via_rights_entry *entry = &rights->entries[i];
        if (entry->kind == VIA_RIGHTS_ALL) {
            append(ret_text, bytes, ", all");
        } else {
            append(ret_text, bytes, ", %s:%" PRIu32,
                   entry->kind == VIA_RIGHTS_USER ? "user" : "group", entry->id);
        }
    }
}

static int set_attach(struct via_daemon_options *options, const char *value, struct via_error *err)
{
    return set_rights(&options->host.attach, value, err);
}

static void show_attach(const struct via_daemon_options *options, char *ret_text, size_t bytes)
{
    show_rights(&options->host.attach, ret_text, bytes);
}

static int set_admin(struct via_daemon_options *options, const char *value, struct via_error *err)
{
    return set_rights(&options->host.admin, value, err);
}

static void show_admin(const struct via_daemon_options *options, char *ret_text, size_t bytes)
{
    show_rights(&options->host.admin, ret_text, bytes);
}

static int set_quota(struct via_daemon_options *options, const char *what, const char *value,
                     struct via_error *err)
{
    char text[64];
    if ((size_t)snprintf(text, sizeof(text), "%s=%s", what, value) >= sizeof(text) ||
        strchr(value, ',') != NULL) {
        return via_error_set(err, -EINVAL, "a number from 1 on is expected");
    }
    return via_quota_parse(&options->host.quota, text, err);
}

static void show_quota(uint64_t amount, char *ret_text, size_t bytes)
{
    if (amount != 0) {
        append(ret_text, bytes, "%" PRIu64, amount);
    }
}

#define QUOTA(name, field)                                                                  \
    static int set_quota_##name(struct via_daemon_options *options, const char *value,      \
                                struct via_error *err)                                      \
    {                                                                                       \
        return set_quota(options, #name, value, err);                                       \
    }                                                                                       \
    static void show_quota_##name(const struct via_daemon_options *options, char *ret_text, \
                                  size_t bytes)                                             \
    {                                                                                       \
        show_quota(options->host.quota.field, ret_text, bytes);                             \
    }
QUOTA(segments, segments)
QUOTA(memory, memory_bytes)
QUOTA(pipes, pipes)
QUOTA(notes, notes)

/* --- [log] ------------------------------------------------------------------------------------ */

static int set_log_file(struct via_daemon_options *options, const char *value,
                        struct via_error *err)
{
    return set_path(options->log_file, sizeof(options->log_file), value, err);
}

static void show_log_file(const struct via_daemon_options *options, char *ret_text, size_t bytes)
{
    append(ret_text, bytes, "%s", options->log_file);
}

static int set_log_level(struct via_daemon_options *options, const char *value,
                         struct via_error *err)
{
    int level = via_log_level_parse(value);
    if (level < 0) {
        return via_error_set(err, -EINVAL, "error, warn, info, debug or trace is expected");
    }
    options->log_level = (enum via_log_level)level;
    return 0;
}

static void show_log_level(const struct via_daemon_options *options, char *ret_text, size_t bytes)
{
    append(ret_text, bytes, "%s", via_log_level_name(options->log_level));
}

/* --- the table -------------------------------------------------------------------------------- */

/* Columns: section, name, changes at run time, required, number; or set and show. */
const struct via_config_key via_config_keys[VIA_CONFIG_KEYS_COUNT] = {
    {"host", "id", false, true, "host", NULL, NULL},
    {"host", "name", true, false, NULL, set_name, show_name},
    {"host", "addresses", true, false, NULL, set_addresses, show_addresses},
    {"host", "listen", false, false, NULL, set_listen, show_listen},
    {"host", "metrics", false, false, NULL, set_metrics, show_metrics},
    {"host", "rundir", false, false, NULL, set_rundir, show_rundir},
    {"host", "state", false, false, NULL, set_state, show_state},
    {"fabric", "name", true, false, NULL, set_fabric, show_fabric},
    {"fabric", "key", false, false, NULL, set_key, show_key},
    {"fabric", "encrypt", false, false, NULL, set_encrypt, show_encrypt},
    {"fabric", "hosts-max", false, false, "hosts-max", NULL, NULL},
    {"rights", "attach", true, false, NULL, set_attach, show_attach},
    {"rights", "admin", true, false, NULL, set_admin, show_admin},
    {"quota", "segments", true, false, NULL, set_quota_segments, show_quota_segments},
    {"quota", "memory", true, false, NULL, set_quota_memory, show_quota_memory},
    {"quota", "pipes", true, false, NULL, set_quota_pipes, show_quota_pipes},
    {"quota", "notes", true, false, NULL, set_quota_notes, show_quota_notes},
    {"limits", "processes", false, false, "processes", NULL, NULL},
    {"limits", "links", false, false, "links", NULL, NULL},
    {"transport", "channels", false, false, "channels", NULL, NULL},
    {"transport", "slots", false, false, "slots", NULL, NULL},
    {"transport", "frame-bytes", false, false, "frame-bytes", NULL, NULL},
    {"transport", "dma-bytes", false, false, "dma-bytes", NULL, NULL},
    {"transport", "tune", false, false, NULL, set_tune, show_tune},
    {"transport", "measure-sockets", false, false, NULL, set_measures, show_measures},
    {"times", "give-up-ms", false, false, "give-up-ms", NULL, NULL},
    {"times", "wait-ms", false, false, "wait-ms", NULL, NULL},
    {"times", "heartbeat-ms", false, false, "heartbeat-ms", NULL, NULL},
    {"times", "dead-ms", false, false, "dead-ms", NULL, NULL},
    {"times", "spin-us", false, false, "spin-us", NULL, NULL},
    {"log", "file", false, false, NULL, set_log_file, show_log_file},
    {"log", "level", true, false, NULL, set_log_level, show_log_level},
    {"log", "bytes", true, false, "log-bytes", NULL, NULL},
};

int via_config_key_set(const struct via_config_key *key, struct via_daemon_options *options,
                       const char *value, struct via_error *err)
{
    if (key->number != NULL) {
        return via_daemon_number_set(via_daemon_number_find(key->number), options, value, err);
    }
    return key->set(options, value, err);
}

void via_config_key_show(const struct via_config_key *key, const struct via_daemon_options *options,
                         char *ret_text, size_t bytes)
{
    ret_text[0] = '\0';
    if (key->number != NULL) {
        append(ret_text, bytes, "%" PRIu64,
               via_daemon_number_get(via_daemon_number_find(key->number), options));
    } else {
        key->show(options, ret_text, bytes);
    }
}
