/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/heap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

#define BLOCKS_START 64u
#define CHAINS_START 64u

/* --- slots ------------------------------------------------------------------------------------ */

/* An operation needs at most two slots; reserving them first means that it can not fail
 * half-way. */
static int reserve_slots(struct via_heap *heap, uint32_t count)
{
    uint32_t spare = 0;

    for (uint32_t slot = heap->spare; slot != VIA_HEAP_NONE && spare < count; spare++)
        slot = heap->blocks[slot].next;
    if (spare + (heap->blocks_max - heap->blocks_count) >= count)
        return 0;
    uint32_t max = heap->blocks_max ? heap->blocks_max * 2 : BLOCKS_START;
    struct via_heap_block *blocks = realloc(heap->blocks, max * sizeof(*blocks));
    if (!blocks)
        return -ENOMEM;
    heap->blocks = blocks;
    heap->blocks_max = max;
    return 0;
}

static uint32_t take_slot(struct via_heap *heap)
{
    uint32_t slot = heap->spare;

    if (slot != VIA_HEAP_NONE)
        heap->spare = heap->blocks[slot].next;
    else
        slot = heap->blocks_count++;
    return slot;
}

static void give_slot(struct via_heap *heap, uint32_t slot)
{
    heap->blocks[slot].bytes = 0;
    heap->blocks[slot].next = heap->spare;
    heap->spare = slot;
}

/* --- free blocks by size class ---------------------------------------------------------------- */

static unsigned class_of(uint64_t bytes)
{
    return via_log2_u64(bytes / VIA_HEAP_GRANULE);
}

static void class_insert(struct via_heap *heap, uint32_t slot)
{
    struct via_heap_block *block = &heap->blocks[slot];
    unsigned class = class_of(block->bytes);
    uint32_t first = heap->classes[class];

    block->used = false;
    block->previous = VIA_HEAP_NONE;
    block->next = first;
    if (first != VIA_HEAP_NONE)
        heap->blocks[first].previous = slot;
    heap->classes[class] = slot;
    heap->classes_filled |= UINT64_C(1) << class;
}

static void class_remove(struct via_heap *heap, uint32_t slot)
{
    struct via_heap_block *block = &heap->blocks[slot];
    unsigned class = class_of(block->bytes);

    if (block->next != VIA_HEAP_NONE)
        heap->blocks[block->next].previous = block->previous;
    if (block->previous != VIA_HEAP_NONE)
        heap->blocks[block->previous].next = block->next;
    else
        heap->classes[class] = block->next;
    if (heap->classes[class] == VIA_HEAP_NONE)
        heap->classes_filled &= ~(UINT64_C(1) << class);
}

/* --- used blocks by offset -------------------------------------------------------------------- */

static uint32_t chain_of(const struct via_heap *heap, uint64_t off)
{
    /* Fibonacci hashing: the upper bits of the product are the mixed ones. */
    uint64_t hash = (off / VIA_HEAP_GRANULE) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(hash >> 32) & (heap->chains_count - 1);
}

static void chain_insert(struct via_heap *heap, uint32_t slot)
{
    struct via_heap_block *block = &heap->blocks[slot];
    uint32_t chain = chain_of(heap, block->off);

    block->used = true;
    block->next = heap->chains[chain];
    heap->chains[chain] = slot;
    heap->used_count++;
    heap->used_bytes += block->bytes;
}

static void chain_remove(struct via_heap *heap, uint32_t slot)
{
    uint32_t *link = &heap->chains[chain_of(heap, heap->blocks[slot].off)];

    while (*link != slot)
        link = &heap->blocks[*link].next;
    *link = heap->blocks[slot].next;
    heap->used_count--;
    heap->used_bytes -= heap->blocks[slot].bytes;
}

/* If growing fails, the chains only get longer. */
static void grow_chains(struct via_heap *heap)
{
    if (heap->used_count < 2 * heap->chains_count)
        return;
    uint32_t old_count = heap->chains_count;
    uint32_t *old = heap->chains;
    uint32_t *chains = malloc(2 * old_count * sizeof(*chains));
    if (!chains)
        return;
    heap->chains = chains;
    heap->chains_count = 2 * old_count;
    memset(chains, 0xff, heap->chains_count * sizeof(*chains));
    for (uint32_t i = 0; i < old_count; i++) {
        for (uint32_t slot = old[i], next; slot != VIA_HEAP_NONE; slot = next) {
            next = heap->blocks[slot].next;
            uint32_t chain = chain_of(heap, heap->blocks[slot].off);
            heap->blocks[slot].next = chains[chain];
            chains[chain] = slot;
        }
    }
    free(old);
}

static uint32_t find_used(const struct via_heap *heap, uint64_t off)
{
    uint32_t slot = heap->chains[chain_of(heap, off)];

    while (slot != VIA_HEAP_NONE && heap->blocks[slot].off != off)
        slot = heap->blocks[slot].next;
    return slot;
}

/* --- cutting and joining ---------------------------------------------------------------------- */

/* Cuts the part past `bytes` off a block that is in no list; returns the slot of the rest, which is
 * in no list either. */
static uint32_t split(struct via_heap *heap, uint32_t slot, uint64_t bytes)
{
    uint32_t rest_slot = take_slot(heap);
    struct via_heap_block *block = &heap->blocks[slot];
    struct via_heap_block *rest = &heap->blocks[rest_slot];

    rest->off = block->off + bytes;
    rest->bytes = block->bytes - bytes;
    rest->before = slot;
    rest->after = block->after;
    if (rest->after != VIA_HEAP_NONE)
        heap->blocks[rest->after].before = rest_slot;
    else
        heap->last = rest_slot;
    block->after = rest_slot;
    block->bytes = bytes;
    return rest_slot;
}

/* Appends the neighbour after a block to it; both are in no list. */
static void absorb_after(struct via_heap *heap, uint32_t slot)
{
    struct via_heap_block *block = &heap->blocks[slot];
    uint32_t gone = block->after;

    block->bytes += heap->blocks[gone].bytes;
    block->after = heap->blocks[gone].after;
    if (block->after != VIA_HEAP_NONE)
        heap->blocks[block->after].before = slot;
    else
        heap->last = slot;
    give_slot(heap, gone);
}

static bool is_free(const struct via_heap *heap, uint32_t slot)
{
    return slot != VIA_HEAP_NONE && !heap->blocks[slot].used;
}

/* Makes a block that is in no list free, joined with free neighbours. */
static void release(struct via_heap *heap, uint32_t slot)
{
    if (is_free(heap, heap->blocks[slot].after)) {
        class_remove(heap, heap->blocks[slot].after);
        absorb_after(heap, slot);
    }
    uint32_t before = heap->blocks[slot].before;
    if (is_free(heap, before)) {
        class_remove(heap, before);
        absorb_after(heap, before);
        slot = before;
    }
    class_insert(heap, slot);
}

/* --- the interface ---------------------------------------------------------------------------- */

int via_heap_init(struct via_heap *heap, uint64_t bytes)
{
    memset(heap, 0, sizeof(*heap));
    heap->spare = heap->last = VIA_HEAP_NONE;
    memset(heap->classes, 0xff, sizeof(heap->classes));
    heap->chains_count = CHAINS_START;
    heap->chains = malloc(CHAINS_START * sizeof(*heap->chains));
    if (!heap->chains || via_heap_grow(heap, bytes) < 0) {
        via_heap_fini(heap);
        return -ENOMEM;
    }
    memset(heap->chains, 0xff, CHAINS_START * sizeof(*heap->chains));
    return 0;
}

void via_heap_fini(struct via_heap *heap)
{
    free(heap->blocks);
    free(heap->chains);
    memset(heap, 0, sizeof(*heap));
}

uint64_t via_heap_bytes_for(const struct via_heap *heap, uint64_t bytes, uint64_t align)
{
    uint64_t off = is_free(heap, heap->last) ? heap->blocks[heap->last].off : heap->bytes;

    align = via_max(align, VIA_HEAP_GRANULE);
    if (bytes > UINT64_MAX / 4 || align > UINT64_MAX / 4)
        return UINT64_MAX;
    return via_align_up(off, align) + via_align_up(bytes, VIA_HEAP_GRANULE);
}

int via_heap_grow(struct via_heap *heap, uint64_t bytes)
{
    bytes = via_align_down(bytes, VIA_HEAP_GRANULE);
    if (bytes <= heap->bytes)
        return 0;
    if (reserve_slots(heap, 1) < 0)
        return -ENOMEM;
    uint32_t slot = take_slot(heap);
    heap->blocks[slot] = (struct via_heap_block){.off = heap->bytes,
                                                 .bytes = bytes - heap->bytes,
                                                 .before = heap->last,
                                                 .after = VIA_HEAP_NONE};
    if (heap->last != VIA_HEAP_NONE)
        heap->blocks[heap->last].after = slot;
    heap->last = slot;
    heap->bytes = bytes;
    release(heap, slot);
    return 0;
}

/* Where a block of `bytes` would begin in this one, or UINT64_MAX. */
static uint64_t fit(const struct via_heap_block *block, uint64_t bytes, uint64_t align)
{
    uint64_t off = via_align_up(block->off, align);

    if (off < block->off || off - block->off > block->bytes ||
        block->bytes - (off - block->off) < bytes)
        return UINT64_MAX;
    return off;
}

/* First fit in the smallest class that has a fitting block. */
static uint32_t find_free(const struct via_heap *heap, uint64_t bytes, uint64_t align,
                          uint64_t *ret_off)
{
    uint64_t classes = heap->classes_filled & (UINT64_MAX << class_of(bytes));

    for (; classes; classes &= classes - 1) {
        uint32_t slot = heap->classes[__builtin_ctzll(classes)];
        for (; slot != VIA_HEAP_NONE; slot = heap->blocks[slot].next) {
            *ret_off = fit(&heap->blocks[slot], bytes, align);
            if (*ret_off != UINT64_MAX)
                return slot;
        }
    }
    return VIA_HEAP_NONE;
}

int via_heap_alloc(struct via_heap *heap, uint64_t bytes, uint64_t align, uint64_t *ret_off)
{
    uint64_t off;

    if (bytes > heap->bytes)
        return -ENOSPC;
    bytes = via_align_up(bytes, VIA_HEAP_GRANULE);
    if (align < VIA_HEAP_GRANULE)
        align = VIA_HEAP_GRANULE;
    if (reserve_slots(heap, 2) < 0)
        return -ENOMEM;
    uint32_t slot = find_free(heap, bytes, align, &off);
    if (slot == VIA_HEAP_NONE)
        return -ENOSPC;

    class_remove(heap, slot);
    if (off > heap->blocks[slot].off) {
        uint32_t rest = split(heap, slot, off - heap->blocks[slot].off);
        class_insert(heap, slot);
        slot = rest;
    }
    if (heap->blocks[slot].bytes > bytes)
        class_insert(heap, split(heap, slot, bytes));
    chain_insert(heap, slot);
    grow_chains(heap);
    *ret_off = off;
    return 0;
}

int via_heap_free(struct via_heap *heap, uint64_t off)
{
    uint32_t slot = find_used(heap, off);

    if (slot == VIA_HEAP_NONE)
        return -EINVAL;
    chain_remove(heap, slot);
    release(heap, slot);
    return 0;
}

int via_heap_resize(struct via_heap *heap, uint64_t off, uint64_t bytes)
{
    uint32_t slot = find_used(heap, off);

    if (slot == VIA_HEAP_NONE)
        return -EINVAL;
    if (bytes > heap->bytes)
        return -ENOSPC;
    bytes = via_align_up(bytes, VIA_HEAP_GRANULE);
    uint32_t after = heap->blocks[slot].after;
    uint64_t room =
        heap->blocks[slot].bytes + (is_free(heap, after) ? heap->blocks[after].bytes : 0);
    if (bytes > room)
        return -ENOSPC;
    if (reserve_slots(heap, 1) < 0)
        return -ENOMEM;

    chain_remove(heap, slot);
    if (is_free(heap, after)) {
        class_remove(heap, after);
        absorb_after(heap, slot);
    }
    if (room > bytes)
        class_insert(heap, split(heap, slot, bytes));
    chain_insert(heap, slot);
    return 0;
}

uint64_t via_heap_block_bytes(const struct via_heap *heap, uint64_t off)
{
    uint32_t slot = find_used(heap, off);

    return slot == VIA_HEAP_NONE ? 0 : heap->blocks[slot].bytes;
}

/* --- for tests -------------------------------------------------------------------------------- */

static bool is_in_class(const struct via_heap *heap, uint32_t wanted)
{
    uint32_t slot = heap->classes[class_of(heap->blocks[wanted].bytes)];

    while (slot != VIA_HEAP_NONE && slot != wanted)
        slot = heap->blocks[slot].next;
    return slot == wanted;
}

int via_heap_check(const struct via_heap *heap)
{
    uint64_t off = 0, used_bytes = 0;
    uint32_t slot = VIA_HEAP_NONE, used_count = 0;

    for (uint32_t i = 0; i < heap->blocks_count && slot == VIA_HEAP_NONE; i++)
        if (heap->blocks[i].bytes > 0 && heap->blocks[i].before == VIA_HEAP_NONE)
            slot = i;
    for (uint32_t before = VIA_HEAP_NONE; slot != VIA_HEAP_NONE;
         before = slot, slot = heap->blocks[slot].after) {
        const struct via_heap_block *block = &heap->blocks[slot];
        if (block->off != off || block->bytes == 0 || block->bytes % VIA_HEAP_GRANULE != 0)
            return 1;
        if (block->before != before)
            return 2;
        if (!block->used && is_free(heap, before))
            return 3;
        if (block->used ? find_used(heap, off) != slot : !is_in_class(heap, slot))
            return 4;
        off += block->bytes;
        used_bytes += block->used ? block->bytes : 0;
        used_count += block->used;
    }
    if (off != heap->bytes)
        return 5;
    return used_bytes == heap->used_bytes && used_count == heap->used_count ? 0 : 6;
}
