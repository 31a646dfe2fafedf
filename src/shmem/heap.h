/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_HEAP_H
#define VIA_SHMEM_HEAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/types.h"

/*
 * The allocator of the symmetric heap; it handles offsets, not addresses. Every PE runs its own
 * copy with the same sequence of calls and gets the same offsets, so the PEs exchange nothing. Its
 * state is in private memory; other PEs write the heap itself, so the allocator neither trusts nor
 * touches it.
 *
 * Blocks are whole granules, so that no two objects share a cache line: a PE never writes the line
 * that another PE polls. Free blocks are in lists by size class; a freed block is merged with free
 * neighbours.
 *
 * One thread at a time; the caller holds a lock.
 */
#define VIA_HEAP_GRANULE UINT64_C(64)
#define VIA_HEAP_CLASSES 64u
#define VIA_HEAP_NONE UINT32_MAX

struct via_heap_block {
    uint64_t off;
    uint64_t bytes;
    uint32_t before, after;  /* neighbours by address */
    uint32_t previous, next; /* free: link in the list of its class; used: link in its hash chain */
    bool used;
};

struct via_heap {
    uint64_t bytes;
    uint64_t used_bytes;
    struct via_heap_block *blocks; /* owned; slots, not addresses, are stable */
    uint32_t blocks_count, blocks_max;
    uint32_t spare; /* chain of slots that are not in use */
    uint32_t last;  /* the block at the end */
    uint32_t classes[VIA_HEAP_CLASSES];
    uint64_t classes_filled; /* bit c: classes[c] is not empty */
    uint32_t *chains;        /* owned; used blocks by hash of their offset */
    uint32_t chains_count, used_count;
};

/* bytes is rounded down to granules. -ENOMEM. */
int via_heap_init(struct via_heap *heap, uint64_t bytes) VIA_MUST_CHECK;
void via_heap_fini(struct via_heap *heap);

/* bytes > 0; align is a power of two. -ENOSPC: does not fit; -ENOMEM: no private memory. */
int via_heap_alloc(struct via_heap *heap, uint64_t bytes, uint64_t align,
                   uint64_t *ret_off) VIA_MUST_CHECK;

/*
 * The heap size that a request which did not fit would need. UINT64_MAX: more than any.
 */
uint64_t via_heap_bytes_for(const struct via_heap *heap, uint64_t bytes, uint64_t align);
/* Sets the heap's size to `bytes`, rounded down; never shrinks it. -ENOMEM. */
int via_heap_grow(struct via_heap *heap, uint64_t bytes) VIA_MUST_CHECK;

/* -EINVAL: off is not the beginning of an allocated block. */
int via_heap_free(struct via_heap *heap, uint64_t off);

/*
 * Resizes the block in place; bytes > 0. 0, -EINVAL as above, -ENOSPC: the memory behind the block
 * is not free, -ENOMEM.
 */
int via_heap_resize(struct via_heap *heap, uint64_t off, uint64_t bytes) VIA_MUST_CHECK;

/* The size of the block that begins at off (at least the requested size), 0 if no block does. */
uint64_t via_heap_block_bytes(const struct via_heap *heap, uint64_t off);

/* For tests: checks all invariants. 0, or the number of a rule that is broken. */
int via_heap_check(const struct via_heap *heap);

#endif
