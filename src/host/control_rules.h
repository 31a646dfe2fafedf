/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_CONTROL_RULES_H
#define VIA_HOST_CONTROL_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/*
 * Rules for sockets: they allow or forbid pipes by the server's port, by the network of the peer,
 * and by program. They come from a file and from the environment, which overrides the file; see
 * viaduct-sockets(7). The library obeys them, the command checks them.
 *
 * Each list has items that include and items, with "!" in front, that exclude. A port, network or
 * program is allowed if no item excludes it, and an item includes it or no item includes anything.
 */
#define VIA_RULES_ITEMS_MAX 32u
#define VIA_RULES_PATTERN_BYTES 64u
#define VIA_RULES_FILE "/etc/viaduct/sockets.conf"
#define VIA_RULES_FILE_BYTES_MAX 65536u

struct via_rules_ports {
    uint16_t first, last;
    bool out;
};

struct via_rules_network {
    unsigned char ip[16]; /* IPv4 as ::ffff:a.b.c.d */
    uint8_t prefix_bits;
    bool out;
};

struct via_rules_program {
    char pattern[VIA_RULES_PATTERN_BYTES]; /* as fnmatch(3) */
    bool out;
};

#define VIA_RULES_AFTER_DEFAULT 4u
#define VIA_RULES_AFTER_MAX 1000000u

struct via_rules {
    bool on;
    unsigned ports_count;
    struct via_rules_ports ports[VIA_RULES_ITEMS_MAX];
    unsigned networks_count;
    struct via_rules_network networks[VIA_RULES_ITEMS_MAX];
    unsigned programs_count;
    struct via_rules_program programs[VIA_RULES_ITEMS_MAX];
    bool network_links;    /* pipes also to hosts that only links of class network reach */
    bool spin;             /* threads spin before they sleep, while that saves time */
    uint32_t after_calls;  /* calls that move data before a connection gets pipes */
    uint64_t memory_bytes; /* limit for pipes of a process (below: of a user); beyond it new
                              connections get none */
    uint64_t user_memory_bytes;
};

/* Allows everything. */
void via_rules_init(struct via_rules *rules);

/*
 * Reads a file's text; name is for errors. Checks sections for other programs than this one, and
 * ignores their values. 0, or -EINVAL with "name:line: key: reason".
 */
int via_rules_parse(struct via_rules *rules, const char *name, const char *text, size_t bytes,
                    const char *program, struct via_error *err);

/* One value: key as in the file. -ENOENT when there is no such key, -EINVAL; *ret_why is the reason
 * (a constant text). Replaces the earlier value. */
int via_rules_set(struct via_rules *rules, const char *key, const char *value,
                  const char **ret_why);

/*
 * Loads all rules for this program: from the file of VIADUCT_SOCKETS_CONFIG, or the usual file if
 * it exists, then from the variables. 0 or a negative errno; after an error the rules must not be
 * used.
 */
int via_rules_load(struct via_rules *rules, const char *program, struct via_error *err);

bool via_rules_is_program_allowed(const struct via_rules *rules, const char *program);
bool via_rules_is_port_allowed(const struct via_rules *rules, uint16_t port);
/* ip: 16 bytes, IPv4 mapped. */
bool via_rules_is_network_allowed(const struct via_rules *rules, const unsigned char *ip);

#endif
