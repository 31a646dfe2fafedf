/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The common part of receiving and sending. */
#ifndef VIA_SOCKETS_IO_INTERNAL_H
#define VIA_SOCKETS_IO_INTERNAL_H

#include <poll.h>

#include "core/pipe_inline.h"
#include "sockets/conn/carrier.h"
#include "sockets/io/io.h"
#include "sockets/process/cancel.h"

#ifndef POLLRDHUP
#define POLLRDHUP 0x2000
#endif
#define VIA_POLL_GONE (POLLRDHUP | POLLHUP | POLLERR)

static inline int via_rx_take(struct via_op *op)
{
    return via_token_take(&op->side->rx_token, op->exclusive, op->thread);
}

static inline void via_rx_give(struct via_op *op)
{
    via_token_give(&op->side->rx_token);
}

static inline int via_tx_take(struct via_op *op)
{
    return via_token_take(&op->side->tx_token, op->exclusive, op->thread);
}

static inline void via_tx_give(struct via_op *op)
{
    via_token_give(&op->side->tx_token);
}

/* Called when a writer has found no room: the next free space is an EPOLLET edge (epoll_edge.c). */
static inline void via_io_note_full(const struct via_op *op)
{
    atomic_fetch_add_explicit(&op->side->tx_full, 1, memory_order_relaxed);
}

/* Quick check for a reader, without a system call: true if the next step may find something. Made
 * without the token, so the caller repeats it with the token. */
static inline bool via_io_has_news(const struct via_stream_rx *rx)
{
    /* KERNEL_UNTIL: the kernel's bytes are next, even if the pipe has some. */
    return rx->span != VIA_SPAN_KERNEL_UNTIL &&
           (rx->held || rx->avail.held || via_pipe_is_ready(&rx->pipe));
}

/* Counts bytes that were sent through the kernel. */
static inline void via_io_count_kernel(const struct via_op *op, ssize_t bytes)
{
    via_stats_count(&op->conn->stats->tx_kernel_bytes, (uint64_t)bytes);
}

/* Polls the kernel's socket, and records the result in side->shadow. Returns VIA_POLL_GONE bits. */
uint32_t via_io_poll_kernel(struct via_op *op);
/* The same, called by a thread that has just written `fresh` bytes: if the kernel reports an end
 * now, the end came before these bytes. */
uint32_t via_io_poll_kernel_after(struct via_op *op, size_t fresh);

/*
 * io_end.c. Called when the kernel has just reported the end of the peer's direction. If the peer
 * did not announce the end, and has not read all bytes that were written here, except the last
 * `fresh`, resets the connection. Returns further VIA_POLL_GONE bits. Any token may be held.
 */
uint32_t via_io_peer_ended(struct via_op *op, uint32_t events, size_t fresh);
/* With the rx token, called when the reader has reached the end of the kernel's stream and of the
 * pipe. Returns 0 or, once, a negative errno: how the connection was reset. */
int via_io_end(struct via_op *op);
/* Between hosts: true if bytes that this end has sent could not be delivered (fabric.h). Then it
 * ends the connection here, and the peer gets RST. Any token may be held. */
bool via_io_is_given_up(struct via_op *op);
/* Between hosts, called when the peer's host has refused a record because its reader has ended. The
 * writer's call then returns ECONNRESET, and later sends return EPIPE. Resets the connection here:
 * now or, if the kernel has unread bytes, when the program has read these. Any token may be
 * held. */
void via_io_record_refused(struct via_op *op);
/* Between hosts, called when nothing follows the kernel's end (via_io_is_following()): as
 * via_io_peer_ended(). */
uint32_t via_io_fabric_ended(struct via_op *op);

/* Between hosts: true while the kernel has reported an end, and bytes before the end may still be
 * under way. */
bool via_io_is_following(struct via_op *op);

/* With the rx token: as via_stream_rx_next(), for which it determines how many of the kernel's
 * bytes have been read, and discards resent bytes. -EAGAIN: some of those have not arrived yet, or
 * the kernel's count keeps changing. */
int via_rx_next(struct via_op *op);

/* Discards at most `most` of the kernel's bytes. Returns the number discarded. */
uint64_t via_io_drop(struct via_op *op, uint64_t most);

/* From this size on, determining the reader's CPU costs less than it saves. */
#define VIA_IO_LARGE_BYTES 4096u

/* While the connection may still get pipes, a call gives the kernel at most VIA_IO_PIECE_BYTES at a
 * time and then checks for pipes again: it may be the only call on the connection. */
#define VIA_IO_PIECE_BYTES (64u * 1024)

/* With the tx token: switches from the kernel span to the pipe, if the peer can already read
 * there. */
void via_io_try_switch(struct via_op *op);

/* With the tx token: true if the pipe has room for a record. If not, the peer wakes this end when
 * there is room. */
bool via_io_has_room(struct via_op *op);

/* With the tx token: tries once to send, without waiting. Returns bytes or a negative errno. */
ssize_t via_io_send_once(struct via_op *op, struct via_iov *iov, int flags);

/* With the tx token: true if no process will ever read bytes written to the pipe. */
bool via_tx_is_peer_gone(struct via_op *op);
/* The same, by the last poll of the kernel: true if no process holds the other end any more. */
bool via_tx_has_lost_holder(struct via_op *op);

/* A cleanup handler for a thread that is cancelled in its call; its argument is the struct
 * via_op. */
void via_io_end_cancelled(void *of_op);
/* The kernel's own call to send or receive, in which a thread may be cancelled. Bytes, or a
 * negative errno. */
ssize_t via_io_call_kernel(struct via_op *op, const struct iovec *iov, int iov_count, int flags,
                           bool sends);

/* Makes the call with cancellation deferred: process/cancel.h. */
typedef ssize_t via_io_call(struct via_op *op, const struct iovec *iov, int iov_count, int flags);
static inline ssize_t via_io_call_deferred(via_io_call *call, struct via_op *op,
                                           const struct iovec *iov, int iov_count, int flags)
{
    struct via_cancel before;
    if (op->alone) {
        return call(op, iov, iov_count, flags);
    }
    via_cancel_off(&before);
    ssize_t n = call(op, iov, iov_count, flags);
    via_cancel_back(&before);
    return n;
}

/* Waits for POLLIN or POLLOUT in a blocking call. 0: try again; -EAGAIN: the deadline has passed;
 * -EINTR. */
int via_io_wait(struct via_op *op, uint32_t what, uint64_t deadline_ns);

/* Copies the buffers at the cursor, at most `limit` bytes of them, into an array of iovec. Returns
 * their number. */
#define VIA_IO_PIECES_MAX 64
int via_io_pieces(const struct via_iov *cursor, uint64_t limit, struct iovec *ret_pieces);

/* Wakes the threads and processes that sleep in any call on this end, so that they check it again;
 * nothing if there are none. Processes share the bells that existed when they forked. */
void via_io_ring_holders(const struct via_op *op);

/* Returns the deadline of a call that begins now, from SO_RCVTIMEO or SO_SNDTIMEO. */
uint64_t via_io_deadline(const _Atomic uint64_t *timeout_ns);

#endif
