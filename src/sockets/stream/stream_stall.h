/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_STREAM_STALL_H
#define VIA_SOCKETS_STREAM_STALL_H

#include "base/types.h"
#include "core/pipe_inline.h"
#include "sockets/stream/stream.h"

/*
 * A stall: both ends of a connection send, and neither reads. The kernel's buffers hold megabytes
 * of such data (tcp_wmem and tcp_rmem grow), the rings less: a program that works over TCP would
 * hang. When neither direction has moved for a while, although both writers wait for room, an end
 * spills: it writes DEMOTE and sends the following bytes through the kernel. When the peer has read
 * the whole pipe, the end returns to the pipe.
 *
 * No I/O, as in the rest of the stream. A thread that waits for room calls, before each sleep, with
 * both streams of its end:
 *
 *   if via_stream_stall_is_full()
 *       via_stream_rx_next(), which returns to the peer the credit for SWITCH;
 *       via_stream_stall_give_back(), and wakes the peer's writer if it returns true;
 *       if via_stream_stall_is_due(): DEMOTE, then .spills = true;
 *       else sleep for at most VIA_STREAM_STALL_NS, and begin again
 *   if via_stream_stall_is_hidden(), and the kernel has no room either
 *       via_stream_rx_next(), as above: the peer spills only after that credit; and sleep as above
 *
 * An end whose peer leaves the pipes does not spill: it must resend bytes first.
 */

/* Long compared with the pauses of two ends that make progress, short for a program that hangs. */
#define VIA_STREAM_STALL_NS (30 * VIA_MSEC_NS)

struct via_stream_stall {
    uint64_t begin_ns; /* no progress since then; 0: not both ends wait for room */
    uint64_t read;     /* bytes that this end had read by then */
    uint32_t taken;    /* records that the peer had released by then */
    bool spills;       /* writes go through the kernel until the peer has read the pipe */
};

/* Quick check: false if there is nothing to read from the peer, so that the peer does not wait for
 * room. */
static inline bool via_stream_stall_is_possible(const struct via_stream_rx *rx)
{
    return rx->span != VIA_SPAN_PIPE || rx->held || via_pipe_is_ready(&rx->pipe);
}

/* True if this end writes to a pipe without room. Otherwise there is no stall to watch. */
bool via_stream_stall_is_full(struct via_stream_tx *tx);

/* True if this end writes to the kernel, while the peer may begin to write to its pipe. */
static inline bool via_stream_stall_is_hidden(const struct via_stream_tx *tx,
                                              const struct via_stream_rx *rx)
{
    return tx->span != VIA_SPAN_PIPE && rx->span == VIA_SPAN_KERNEL;
}

/* Returns the credit for all read bytes to the peer, whose writer may wait for it. True if this end
 * must wake that writer. */
bool via_stream_stall_give_back(struct via_stream_rx *rx);

/* True if this end must spill now. kernel_unread: the kernel has bytes for this end. now_ns > 0. */
bool via_stream_stall_is_due(struct via_stream_stall *stall, const struct via_stream_tx *tx,
                             const struct via_stream_rx *rx, bool kernel_unread, uint64_t now_ns);

/* Called in a kernel span, before SWITCH: true if this end has not spilled, or the peer has read
 * the whole pipe since. */
bool via_stream_stall_is_over(struct via_stream_stall *stall, struct via_stream_tx *tx);

/* When the peer leaves the pipes: true if its unread bytes must stay in the pipe. After FIN this
 * end can not send anything, and resent bytes would come behind spilled ones. */
bool via_stream_stall_must_stay(const struct via_stream_stall *stall,
                                const struct via_stream_tx *tx);

#endif
