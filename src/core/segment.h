/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CORE_SEGMENT_H
#define VIA_CORE_SEGMENT_H

#include "core/layout.h"

/* Layer 3: memory of this host that frames reach, and what a request does to it, whether it came in
 * a frame or was submitted on this host. */

struct via_segment_slot {
    _Atomic uint64_t handle; /* 0 = free; written by the control thread, read by channels */
    unsigned char *base;
    size_t bytes;
    _Atomic unsigned flags;
    uint64_t handle_removed; /* control thread: the last one that was here */
    uint64_t retired;        /* control thread: the handle that keeps the slot; 0 = none */
    uint32_t *turns;         /* control thread: each channel's turn when it was removed */
};

/* --- segment.c ------------------------------------------------------------------------------- */

/* The memory of an access, or -EACCES, -ERANGE, counted as refused. Valid until the end of the
 * channel's turn. */
int via_segment_reach(struct via_channel *channel, uint64_t handle, uint64_t offset, uint64_t bytes,
                      unsigned need, unsigned char **ret_memory);
/* Stores a payload by the method that its flags select. */
void via_segment_store(unsigned char *memory, const void *data, size_t bytes, unsigned flags);
/* The signal of a put: set, or add with VIA_FRAME_SIGNAL_ADD in signal_offset. */
void via_segment_signal(unsigned char *memory, uint64_t signal_offset, uint64_t value);
/* Executes an atomic on a word that via_segment_reach() gave. 0 or -EINVAL. */
int via_segment_atomic(unsigned char *memory, unsigned operation, uint64_t operand,
                       uint64_t compare, uint64_t *ret_old);
/* Bytes of the word an operation works on. */
static inline unsigned via_atomic_bytes(unsigned operation)
{
    return (operation & VIA_ATOMIC_32) != 0 ? 4 : 8;
}

/* --- apply.c --------------------------------------------------------------------------------- */

/* Applies a request to this host's consumers and memory: 0, -EAGAIN (not now), or refused. */
int via_apply_message(struct via_channel *channel, uint16_t source, uint16_t flow,
                      const struct via_frame_message *args, const void *data, uint32_t bytes);
int via_apply_put(struct via_channel *channel, const struct via_frame_access *args,
                  const void *data, uint32_t bytes, unsigned flags);
int via_apply_put_strided(struct via_channel *channel, const struct via_frame_strided *args,
                          const void *data, uint32_t bytes);
int via_apply_put_signal(struct via_channel *channel, const struct via_frame_signal *args,
                         const void *data, uint32_t bytes, unsigned flags);
int via_apply_atomic(struct via_channel *channel, const struct via_frame_atomic *args,
                     const struct via_frame_atomic_operands *operands, uint64_t *ret_old);

#endif
