/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_GROW_H
#define VIA_SHMEM_GROW_H

#include <stdbool.h>
#include <stdint.h>

/*
 * The symmetric heap grows when a request does not fit: each PE lengthens its memfd and, between
 * hosts, registers it again; then all PEs map the new part. Addresses were reserved at the start,
 * so no object moves, and other threads can use the old part meanwhile. The heap at least doubles,
 * so growing is rare.
 */

/* Collective, for a request of `bytes` that did not fit at any PE. Returns false at all PEs if the
 * heap may not or can not grow so far. */
bool via_grow(uint64_t bytes, uint64_t align);

/* Bytes of the heap that programs may allocate, without the library's own. */
uint64_t via_grow_max(void);

/* Called after the gate of shmem_init; and when no PE uses the memory of others any more. */
void via_grow_init(void);
void via_grow_fini(void);

#endif
