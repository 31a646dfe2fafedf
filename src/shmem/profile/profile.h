/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_PROFILE_PROFILE_H
#define VIA_SHMEM_PROFILE_PROFILE_H

/*
 * A tool of the profiling interface (OpenSHMEM 1.6, section 10): it has a function of each call's
 * name, notes when the call begins and ends, and makes it by its pshmem_ name. It uses nothing of
 * the library but the standard's interface.
 *
 *   VIADUCT_SHMEM_PROFILE   a file, or - for standard error: a line for each kind of call
 *   VIADUCT_SHMEM_TIMELINE  a file: every call of 1 us or more, as Chrome's trace viewer and
 *                           Perfetto read it (JSON, "trace event format")
 */
#define VIADUCT_SHMEM_NO_GENERIC
#include <stdint.h>

#pragma GCC visibility push(default)
#include <shmem.h>
#pragma GCC visibility pop

struct via_profile_call {
    const char *name;
    const char *kind;
};

/* Made by tools/pshmem-calls, with the functions that call these: */
extern const struct via_profile_call via_profile_calls[];
extern const unsigned via_profile_calls_count;

/* The time at which a call begins; 0: it is not measured. */
uint64_t via_profile_enter(void);
/* pe: -1 = none. */
void via_profile_leave(unsigned number, uint64_t begin_ns, int pe, uint64_t bytes);

#endif
