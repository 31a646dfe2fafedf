/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Segments: memory of this host that frames may access by (handle, offset).
 *
 * The control thread adds and removes segments; channels look them up without a lock. The memory of
 * a removed segment may be unmapped once every channel has been outside a turn since then. Each
 * channel counts its turns; the count is odd within a turn.
 */
#include <errno.h>

#include "base/copy.h"
#include "base/mutant.h"
#include "core/segment.h"

#define KEY_MASK ((UINT64_C(1) << 48) - 1)

/* A count of turns starts at an even value, so a slot that was never used is idle. */
static bool slot_is_idle(const struct via_node *node, const struct via_segment_slot *slot)
{
    for (unsigned k = 0; k < node->config.channels_count; k++) {
        /* Pairs with the release at the end of via_node_poll(), which follows the channel's last
         * access. */
        uint32_t turn = atomic_load_explicit(&node->channels[k].turn, memory_order_acquire);
        if (slot->turns[k] % 2 == 1 && turn == slot->turns[k]) {
            return false;
        }
    }
    return true;
}

int via_node_segment_add(struct via_node *node, void *base, size_t bytes, unsigned flags,
                         uint64_t key, uint64_t *ret_handle)
{
    if (base == NULL || bytes == 0 || (key & KEY_MASK) == 0 ||
        (flags & ~(VIA_SEGMENT_READ | VIA_SEGMENT_WRITE)) != 0) {
        return -EINVAL;
    }
    for (unsigned s = 0; s < node->config.segments_count; s++) {
        struct via_segment_slot *slot = &node->segments[s];
        if (atomic_load_explicit(&slot->handle, memory_order_relaxed) != 0 || slot->retired != 0 ||
            !slot_is_idle(node, slot)) {
            continue;
        }
        uint64_t handle = (key & KEY_MASK) << 16 | s;
        slot->base = base;
        slot->bytes = bytes;
        atomic_store_explicit(&slot->flags, flags, memory_order_relaxed);
        /* Pairs with the load in via_segment_reach(): base, bytes and flags are stored before the
         * handle. */
        atomic_store_explicit(&slot->handle, handle, memory_order_release);
        *ret_handle = handle;
        return 0;
    }
    return -ENOSPC;
}

static struct via_segment_slot *slot_of(struct via_node *node, uint64_t handle)
{
    uint16_t index = via_segment_handle_index(handle);
    return index < node->config.segments_count ? &node->segments[index] : NULL;
}

int via_node_segment_limit(struct via_node *node, uint64_t handle, unsigned flags)
{
    struct via_segment_slot *slot = slot_of(node, handle);

    if (slot == NULL || handle == 0 ||
        atomic_load_explicit(&slot->handle, memory_order_relaxed) != handle) {
        return -ENOENT;
    }
    atomic_fetch_and_explicit(&slot->flags, flags, memory_order_relaxed);
    return 0;
}

int via_node_segment_retire(struct via_node *node, uint64_t handle)
{
    struct via_segment_slot *slot = slot_of(node, handle);

    if (slot == NULL || handle == 0 ||
        atomic_load_explicit(&slot->handle, memory_order_relaxed) != handle) {
        return -ENOENT;
    }
    slot->handle_removed = handle;
    /* This thread stores the handle, then loads the turn. A channel stores its turn, then loads the
     * handle. All are sequentially consistent: either the channel finds no handle, or this thread
     * loads the odd turn. */
    atomic_store_explicit(&slot->handle, 0, memory_order_seq_cst);
    for (unsigned k = 0; k < node->config.channels_count; k++) {
        slot->turns[k] = atomic_load_explicit(&node->channels[k].turn, memory_order_seq_cst);
    }
    slot->retired = handle;
    return 0;
}

int via_node_segment_remove(struct via_node *node, uint64_t handle)
{
    struct via_segment_slot *slot = slot_of(node, handle);
    bool retired = slot != NULL && handle != 0 && slot->retired == handle;
    int rc = retired ? 0 : via_node_segment_retire(node, handle);

    if (rc == 0) {
        slot->retired = 0;
    }
    return rc;
}

bool via_node_segment_is_idle(struct via_node *node, uint64_t handle)
{
    struct via_segment_slot *slot = slot_of(node, handle);

    if (slot == NULL || handle == 0) {
        return true;
    }
    if (atomic_load_explicit(&slot->handle, memory_order_relaxed) == handle) {
        return false;
    }
    return slot->handle_removed != handle || slot_is_idle(node, slot);
}

int via_segment_reach(struct via_channel *channel, uint64_t handle, uint64_t offset, uint64_t bytes,
                      unsigned need, unsigned char **ret_memory)
{
    struct via_segment_slot *slot = slot_of(channel->node, handle);

    /* seq_cst: see via_node_segment_retire(). Acquire pairs with via_node_segment_add(). */
    if (slot == NULL || handle == 0 ||
        atomic_load_explicit(&slot->handle, memory_order_seq_cst) != handle ||
        (atomic_load_explicit(&slot->flags, memory_order_relaxed) & need) != need) {
        via_count(&channel->counters.refused_key, 1);
        return -EACCES;
    }
    if (offset > slot->bytes || (bytes > slot->bytes - offset && !VIA_MUTANT(NODE_RANGE))) {
        via_count(&channel->counters.refused_range, 1);
        return -ERANGE;
    }
    *ret_memory = slot->base + offset;
    return 0;
}

/* --- stores ---------------------------------------------------------------------------------- */

static void store_word(unsigned char *memory, const void *data)
{
    uint64_t word;
    memcpy(&word, data, sizeof(word));
    /* Pairs with the acquire of the memory's owner, who then finds earlier puts. */
    atomic_store_explicit((_Atomic uint64_t *)(void *)memory, word, memory_order_release);
}

static void store_last_word_last(unsigned char *memory, const void *data, size_t bytes)
{
    const unsigned char *from = data;
    uintptr_t start = (uintptr_t)memory;
    uintptr_t word = via_align_down(start + bytes, 8);
    if (word < start + 8) {
        via_copy_once(memory, data, bytes); /* it contains no aligned word */
        atomic_thread_fence(memory_order_release);
        return;
    }
    size_t before = word - 8 - start;
    via_copy_once(memory, from, before);
    via_copy_once(memory + before + 8, from + before + 8, bytes - before - 8);
    store_word(memory + before, from + before);
}

void via_segment_store(unsigned char *memory, const void *data, size_t bytes, unsigned flags)
{
    uintptr_t place = (uintptr_t)memory;

    if (bytes == 0) {
        return;
    }
    if (bytes == 8 && place % 8 == 0) {
        store_word(memory, data);
    } else if (bytes == 4 && place % 4 == 0) {
        uint32_t word;
        memcpy(&word, data, sizeof(word));
        atomic_store_explicit((_Atomic uint32_t *)(void *)memory, word, memory_order_release);
    } else if ((flags & VIA_FRAME_FLAG_LAST_WORD) != 0) {
        store_last_word_last(memory, data, bytes);
    } else {
        /* Not memcpy: other threads may poll and reset any word of it. */
        via_copy_once(memory, data, bytes);
    }
}

void via_segment_signal(unsigned char *memory, uint64_t signal_offset, uint64_t value)
{
    _Atomic uint64_t *word = (_Atomic uint64_t *)(void *)memory;

    /* Release: the payload is stored before. */
    if ((signal_offset & VIA_FRAME_SIGNAL_ADD) != 0) {
        atomic_fetch_add_explicit(word, value, memory_order_release);
    } else {
        atomic_store_explicit(word, value, memory_order_release);
    }
}

/* --- atomics --------------------------------------------------------------------------------- */

#define DEFINE_ATOMIC(name, type)                                                                  \
    static int name(_Atomic type *word, unsigned operation, type operand, type compare, type *ret) \
    {                                                                                              \
        switch (operation) {                                                                       \
        case VIA_ATOMIC_ADD:                                                                       \
            *ret = atomic_fetch_add(word, operand);                                                \
            return 0;                                                                              \
        case VIA_ATOMIC_AND:                                                                       \
            *ret = atomic_fetch_and(word, operand);                                                \
            return 0;                                                                              \
        case VIA_ATOMIC_OR:                                                                        \
            *ret = atomic_fetch_or(word, operand);                                                 \
            return 0;                                                                              \
        case VIA_ATOMIC_XOR:                                                                       \
            *ret = atomic_fetch_xor(word, operand);                                                \
            return 0;                                                                              \
        case VIA_ATOMIC_SWAP:                                                                      \
            *ret = atomic_exchange(word, operand);                                                 \
            return 0;                                                                              \
        case VIA_ATOMIC_COMPARE_SWAP:                                                              \
            *ret = compare;                                                                        \
            atomic_compare_exchange_strong(word, ret, operand);                                    \
            return 0;                                                                              \
        case VIA_ATOMIC_FETCH:                                                                     \
            *ret = atomic_load(word);                                                              \
            return 0;                                                                              \
        default:                                                                                   \
            return -EINVAL;                                                                        \
        }                                                                                          \
    }

/* CPU atomics, so that they compose with atomics of the processes that map the memory. */
DEFINE_ATOMIC(atomic_on_64, uint64_t)
DEFINE_ATOMIC(atomic_on_32, uint32_t)

int via_segment_atomic(unsigned char *memory, unsigned operation, uint64_t operand,
                       uint64_t compare, uint64_t *ret_old)
{
    if ((uintptr_t)memory % via_atomic_bytes(operation) != 0) {
        return -EINVAL;
    }
    if ((operation & VIA_ATOMIC_32) == 0) {
        return atomic_on_64((_Atomic uint64_t *)(void *)memory, operation, operand, compare,
                            ret_old);
    }
    uint32_t old = 0;
    int rc = atomic_on_32((_Atomic uint32_t *)(void *)memory, operation & ~VIA_ATOMIC_32,
                          (uint32_t)operand, (uint32_t)compare, &old);
    if (rc == 0) {
        *ret_old = old;
    }
    return rc;
}
