/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_CHECK_H
#define VIA_SHMEM_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/types.h"
#include "shmem/check_calls.h"
#include "shmem/job.h"

/*
 * VIADUCT_SHMEM_CHECK: finds mistakes in programs that the library does not detect by itself, or
 * that would be too slow to detect. The program's calls go through stubs (check_hook.c) to
 * via_check_enter, which checks the arguments before the call is made. Without the variable no call
 * goes through a stub.
 *
 *   check.c             start and stop, messages, selection of the checks of each call
 *   check_memory.c      checks that memory is symmetric, and that accesses end within the object
 *   check_collective.c  checks that all PEs make the same collective call
 *   check_order.c       finds flags that may overtake their data
 */

/* --- check.c ---------------------------------------------------------------------------------- */

/* Called in shmem_init, when the job is known, and after the last shmem_finalize. */
void via_check_start(void);
void via_check_stop(void);

/* Prints one line on standard error; the same mistake at the same place only once. section: of
 * OpenSHMEM 1.6; NULL = that of the call. Ends the program if the variable says so. */
void via_check_report(const struct via_arguments *arguments, const char *section,
                      const char *format, ...) VIA_PRINTF(3, 4);

/* --- check_memory.c --------------------------------------------------------------------------- */

struct via_check_span {
    const char *name; /* of the argument */
    uintptr_t address;
    uint64_t bytes;
};

bool via_check_locate(uintptr_t address, enum via_region *ret_region, uint64_t *ret_off);

#define VIA_CHECK_TEXT_BYTES 160u
/* "table+40", "byte 40 of the 64 of shmem_malloc", or another description of the place. */
const char *via_check_describe(uintptr_t address, char text[VIA_CHECK_TEXT_BYTES]);

/* Returns false if it reported a mistake. pe: rank in the world, or -1. */
bool via_check_symmetric(const struct via_arguments *arguments, const struct via_check_span *span,
                         int pe);
/* Checks memory that need not be symmetric: if its bounds are known, the access must fit into
 * them. */
void via_check_bounds(const struct via_arguments *arguments, const struct via_check_span *span);

/* Reports free and realloc of an address that no allocation returned. */
void via_check_block(const struct via_arguments *arguments, const struct via_check_span *span);

/* Makes the allocation calls record their blocks. */
void via_check_memory_init(void);
void via_check_memory_clear(void);

/* --- check_collective.c ----------------------------------------------------------------------- */

/* PEs start, start + stride, ... of the world. */
struct via_check_group {
    uint64_t id;
    int start, stride, size;
    char name[48];
};

bool via_check_find_group(const struct via_arguments *arguments, struct via_check_group *ret_group);
void via_check_collective(const struct via_arguments *arguments,
                          const struct via_check_group *group);

/* --- check_order.c ---------------------------------------------------------------------------- */

/* Records a put to or an update of pe's memory; a wait of this PE; a fence, quiet or barrier of
 * this PE. */
void via_check_order_put(const struct via_arguments *arguments, uintptr_t address, uint64_t bytes,
                         int pe, bool flag);
void via_check_order_wait(uintptr_t address);
void via_check_order_done(void);
void via_check_order_forget(void);

#endif
