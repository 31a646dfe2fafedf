/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_STREAM_STALL_H
#define VIA_SOCKETS_STREAM_STALL_H

#include "base/types.h"
#include "core/pipe_inline.h"
#include "sockets/stream/stream.h"

/*
 * Both ends of a connection send, and neither reads. The kernel's buffers hold megabytes of such
 * data (tcp_wmem and tcp_rmem grow), the rings less: a program that works over TCP would hang. When
 * neither direction has moved for a while, although both writers wait for room, an end spills: it
 * writes DEMOTE, the following bytes go through the kernel, and by the pipe again when the peer has
 * emptied it.
 *
 * Pure, as the rest of the stream. With both of an end's streams, before each sleep of a thread
 * that waits for room:
 *
 *   if via_stream_stall_is_full()
 *       via_stream_rx_next(), so that the peer learns that the beginning of its pipe was seen;
 *       via_stream_stall_give_back(), where the doorbell of the peer's writer rings for credits
 *       via_stream_stall_is_due(): DEMOTE, then .spills = true; else sleep for VIA_STREAM_STALL_NS
 *       at most, and ask again
 *   if via_stream_stall_is_hidden(), and the kernel has no room either
 *       via_stream_rx_next(), which the peer waits for before it spills; and sleep as above
 *
 * An end whose peer leaves the pipes does not spill: it has to send again first.
 */

/* Long for two ends that make progress, short for a program that hangs. */
#define VIA_STREAM_STALL_NS (30 * VIA_MSEC_NS)

struct via_stream_stall {
    uint64_t begin_ns; /* no progress since then; 0: one of the two ends does not wait */
    uint64_t read;     /* bytes that the peer had read by then */
    uint32_t taken;    /* records that this end had taken by then */
    bool spills;       /* writes go through the kernel until the peer has read the pipe */
};

/* Quick check: false if the peer, from which there is nothing to read, does not wait as well. */
static inline bool via_stream_stall_is_possible(const struct via_stream_rx *rx)
{
    return rx->span != VIA_SPAN_PIPE || rx->held || via_pipe_is_ready(&rx->pipe);
}

/* Does this end write to a pipe without room? Otherwise there is no stall to watch. */
bool via_stream_stall_is_full(struct via_stream_tx *tx);

/* Does this end write by the kernel, while the peer may begin to write by pipe? */
static inline bool via_stream_stall_is_hidden(const struct via_stream_tx *tx,
                                              const struct via_stream_rx *rx)
{
    return tx->span != VIA_SPAN_PIPE && rx->span == VIA_SPAN_KERNEL;
}

/* Returns the credit for all read bytes to the peer, which may wait for just that. True if the peer
 * must get a ring. */
bool via_stream_stall_give_back(struct via_stream_rx *rx);

/* Must this end spill now? kernel_unread: the kernel has bytes for this end. now_ns > 0. */
bool via_stream_stall_is_due(struct via_stream_stall *stall, const struct via_stream_tx *tx,
                             const struct via_stream_rx *rx, bool kernel_unread, uint64_t now_ns);

/* In a kernel span, before a SWITCH, if this end spilled: has the peer emptied the pipe? */
bool via_stream_stall_is_over(struct via_stream_stall *stall, struct via_stream_tx *tx);

/* The peer leaves the pipes. Must its unread bytes stay in the pipe? Nothing can be sent again
 * behind an end, and spilled bytes would come before. */
bool via_stream_stall_must_stay(const struct via_stream_stall *stall,
                                const struct via_stream_tx *tx);

#endif
