/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_DAEMON_CONFIG_KEYS_H
#define VIA_DAEMON_CONFIG_KEYS_H

#include "daemon/options.h"

/* The keys of the configuration file, except those of links. */
#define VIA_CONFIG_VALUE_BYTES 1024u

struct via_config_key {
    const char *section;
    const char *name;
    bool at_run_time;   /* a reload changes the value of the running host */
    bool needed;        /* the key has no default */
    const char *number; /* name of its entry in daemon/number.h; NULL: `set` and `show` apply */
    int (*set)(struct via_daemon_options *options, const char *value, struct via_error *err);
    void (*show)(const struct via_daemon_options *options, char *ret_text, size_t bytes);
};

#define VIA_CONFIG_KEYS_COUNT 33u
extern const struct via_config_key via_config_keys[VIA_CONFIG_KEYS_COUNT];

/* 0; or -EINVAL, and the text says what is wrong with the value. */
VIA_MUST_CHECK int via_config_key_set(const struct via_config_key *key,
                                      struct via_daemon_options *options, const char *value,
                                      struct via_error *err);
/* The value in the form that set() accepts. "": not set, and without a default. */
void via_config_key_show(const struct via_config_key *key, const struct via_daemon_options *options,
                         char *ret_text, size_t bytes);

#endif
