/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_VARIABLES_H
#define VIA_SHMEM_VARIABLES_H

#include <stddef.h>

#include "base/error.h"

/* The environment variables that the library knows: for SHMEM_INFO and oshinfo. */
struct via_variable {
    const char *name;
    const char *old_name; /* NULL = none */
    const char *text;
    const char *fallback; /* the default */
    /* 0, or negative errno and a text for a value that the library would refuse; NULL: accepts
     * any */
    int (*check)(const char *value, struct via_error *err);
};

extern const struct via_variable via_variables[];
extern const size_t via_variables_count;

/* Its value, by either name; NULL when it is not set. */
const char *via_variable_value(const struct via_variable *variable);

#endif
