/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_DAEMON_NUMBER_H
#define VIA_DAEMON_NUMBER_H

#include "daemon/options.h"

/* The numeric options of the daemon. They have the same names on the command line and in the
 * configuration file. */
struct via_daemon_number {
    const char *name;
    size_t offset;       /* in struct via_daemon_options */
    uint8_t bytes;       /* size of the field: 1, 2, 4 or 8 */
    bool zero_is_stored; /* 0 is stored as `zero` */
    uint64_t min, max;   /* of the text, before scaling */
    uint64_t otherwise;  /* the default */
    uint64_t scale;      /* the field is the text's number multiplied by this */
    uint64_t zero;
};

/* NULL: no number has this name. */
const struct via_daemon_number *via_daemon_number_find(const char *name);

/* Decimal digits, min to max. -EINVAL, and the text names the allowed range. */
VIA_MUST_CHECK int via_daemon_number_set(const struct via_daemon_number *number,
                                         struct via_daemon_options *options, const char *text,
                                         struct via_error *err);

/* The number as the user writes it, or the default. */
uint64_t via_daemon_number_get(const struct via_daemon_number *number,
                               const struct via_daemon_options *options);

/* Decimal, min to max. */
bool via_daemon_number_parse(const char *text, uint64_t min, uint64_t max, uint64_t *ret_number);

#endif
