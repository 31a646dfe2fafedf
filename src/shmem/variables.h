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
    /* Checks a value: 0, or negative errno and a text; NULL: any value is valid */
    int (*check)(const char *value, struct via_error *err);
};

extern const struct via_variable via_variables[];
extern const size_t via_variables_count;

/* The value, under either name; NULL if not set. */
const char *via_variable_value(const struct via_variable *variable);

#endif
