/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Guards for mappings that raise SIGBUS when their device is removed. The signal handler then
 * replaces a guarded mapping by private memory of all-ones: loads return all-ones, like reads of a
 * bus without an answer, stores vanish, and the process survives. The process has one handler; it
 * passes SIGBUS at other addresses to the handler that was installed before.
 */
#ifndef VIA_VFIO_GUARD_H
#define VIA_VFIO_GUARD_H

#include <stdbool.h>
#include <stddef.h>

#include "base/types.h"

/* Guards a mapping until via_guard_remove(): 0 and the guard's number; -ENOSPC; or the error of
 * installing the handler. */
VIA_MUST_CHECK int via_guard_add(void *at, size_t bytes, unsigned *ret_guard);
/* Called before the mapping is unmapped, when no thread uses it any more. */
void via_guard_remove(unsigned guard);
/* True if an access to the mapping has raised SIGBUS. */
bool via_guard_is_hit(unsigned guard);
/* The same, and clears the flag: for callers that then map the addresses again. */
bool via_guard_take_hit(unsigned guard);

#endif
