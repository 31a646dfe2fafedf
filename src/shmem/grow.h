/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_GROW_H
#define VIA_SHMEM_GROW_H

#include <stdbool.h>
#include <stdint.h>

/*
 * The symmetric heap grows when a request does not fit: each PE makes its memfd longer and, between
 * hosts, registers it anew; then all map what is new. Addresses were reserved at the start, so no
 * object moves, and other threads go on using what there was. It grows to twice its size at least,
 * so it does so seldom.
 */

/* Collective, for a request of `bytes` that did not fit at any PE. False, at all PEs: it may not or
 * can not grow so far. */
bool via_grow(uint64_t bytes, uint64_t align);

/* Bytes that the heap may have, without the library's own. */
uint64_t via_grow_max(void);

/* After the gate of shmem_init; and when no PE uses the memory of others any more. */
void via_grow_init(void);
void via_grow_fini(void);

#endif
