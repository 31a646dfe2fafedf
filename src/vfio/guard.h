/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Mappings that may raise SIGBUS when their device is removed. A guarded one then turns into
 * private memory of all-ones: loads bring what a bus without an answer brings, stores vanish, and
 * no thread dies. One handler of the process; what is no guarded address goes to the handler that
 * was there before.
 */
#ifndef VIA_VFIO_GUARD_H
#define VIA_VFIO_GUARD_H

#include <stdbool.h>
#include <stddef.h>

#include "base/types.h"

/* Guards a mapping until via_guard_remove(): 0 and a number, or -ENOSPC, or why there is no
 * handler. */
VIA_MUST_CHECK int via_guard_add(void *at, size_t bytes, unsigned *ret_guard);
/* Before it is unmapped; no thread uses it any more. */
void via_guard_remove(unsigned guard);
/* Has a thread met SIGBUS there? */
bool via_guard_is_hit(unsigned guard);
/* The same, once for each time: for callers that map anew what is at these addresses. */
bool via_guard_take_hit(unsigned guard);

#endif
