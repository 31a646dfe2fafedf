/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/mutant.h"
#include "sockets/conn/demote.h"
#include "sockets/fabric/fabric.h"
#include "sockets/io/io_internal.h"
#include "sockets/io/zcopy.h"
#include "sockets/process/real.h"
#include "sockets/stream/stream_quick.h"

/* A flag of this file: the call has already got bytes, so an error is left for the next call. */
#define HAS_SOME MSG_CONFIRM

/* How often a reader that finds the pipe empty, and does not sleep, queries the kernel whether
 * the peer has ended. */
#define POLL_US 20u

uint64_t via_io_drop(struct via_op *op, uint64_t most)
{
    char scratch[4096];
    uint64_t dropped = 0;
    int unread;
    while (dropped < most && VIA_REAL(ioctl)(op->fd, SIOCINQ, &unread) == 0 && unread > 0) {
        uint64_t bytes =
            via_min(most - dropped, (uint64_t)via_min((size_t)unread, sizeof(scratch)));
        ssize_t n = VIA_REAL(recv)(op->fd, scratch, (size_t)bytes, MSG_DONTWAIT);
        if (n <= 0) {
            break;
        }
        dropped += (uint64_t)n;
    }
    return dropped;
}

/* Discards the kernel's bytes that this end has already read in the pipe. 0; -EAGAIN: some have not
 * arrived yet. */
static int drop_again(struct via_op *op)
{
    struct via_stream_rx *rx = &op->side->rx;
    /* Polled before the bytes are read: all bytes that precede a reported end have arrived. */
    bool gone = (via_io_poll_kernel(op) & VIA_POLL_GONE) != 0;
    rx->again -= VIA_MUTANT(CONN_KEPT_AGAIN) ? rx->again : via_io_drop(op, rx->again);
    if (rx->again != 0 && gone) {
        rx->again = 0; /* the peer ended before it resent these */
    }
    return rx->again != 0 ? -EAGAIN : 0;
}

int via_rx_next(struct via_op *op)
{
    struct via_stream_rx *rx = &op->side->rx;
    for (;;) {
        int next = via_stream_rx_next(rx);
        if (via_unlikely(next == VIA_NEXT_AGAIN)) {
            int rc = drop_again(op);
            if (rc != 0) {
                return rc;
            }
            continue;
        }
        if (next != VIA_NEXT_KERNEL_UNTIL || rx->kernel_known) {
            return next;
        }
        uint64_t total;
        int rc = via_kernel_read(op->fd, rx->switch_at, &total);
        if (rc == 0) {
            rc = via_stream_rx_kernel_total(rx, total);
        }
        if (rc != 0) {
            return rc;
        }
    }
}

int via_io_pieces(const struct via_iov *cursor, uint64_t limit, struct iovec *ret_pieces)
{
    size_t off = cursor->off;
    int count = 0;
    for (int i = 0; i < cursor->count && count < VIA_IO_PIECES_MAX && limit > 0; i++, off = 0) {
        size_t bytes = cursor->iov[i].iov_len - off;
        if (bytes == 0) {
            continue;
        }
        ret_pieces[count] = (struct iovec){
            .iov_base = (unsigned char *)cursor->iov[i].iov_base + off,
            .iov_len = bytes < limit ? bytes : (size_t)limit,
        };
        limit -= ret_pieces[count++].iov_len;
    }
    return count;
}

/* For a call that already has bytes, when the kernel has none: 0 at the end of the stream, -EAGAIN
 * before the end. recvmsg() is not called, because the kernel reports an error only once, and the
 * program's next call must get it. */
static ssize_t kernel_has_none(struct via_op *op)
{
    uint32_t seen = via_io_poll_kernel(op);
    return (seen & POLLERR) != 0 ? -ECONNRESET : (seen & VIA_POLL_GONE) != 0 ? 0 : -EAGAIN;
}

/* Receives at most `limit` bytes from the kernel, without waiting. */
static ssize_t kernel_recv(struct via_op *op, struct via_iov *iov, int flags, uint64_t limit)
{
    struct iovec pieces[VIA_IO_PIECES_MAX];
    struct msghdr message = {.msg_iov = pieces};
    int unread = 0;
    if (via_unlikely((flags & HAS_SOME) != 0) && VIA_REAL(ioctl)(op->fd, SIOCINQ, &unread) == 0 &&
        unread == 0) {
        return kernel_has_none(op);
    }
    message.msg_iovlen = (size_t)via_io_pieces(iov, limit, pieces);
    ssize_t n =
        VIA_REAL(recvmsg)(op->fd, &message, (flags & ~(MSG_WAITALL | HAS_SOME)) | MSG_DONTWAIT);
    if (n < 0) {
        int error = errno == EWOULDBLOCK ? -EAGAIN : -errno;
        if (error == -ECONNRESET) {
            via_io_note_kernel_events(op, POLLERR,
                                      0); /* the kernel reports a reset only once: by this call */
        }
        return error;
    }
    if (n > 0) {
        via_iov_skip(iov, (size_t)n);
        if ((flags & MSG_PEEK) == 0) {
            via_stats_count(&op->conn->stats->rx_kernel_bytes, (uint64_t)n);
        }
    }
    return n;
}

/*
 * The pipe is empty. A call that will not sleep queries the kernel from time to time whether the
 * peer has ended; while a call sleeps, the kernel reports that by poll(). If the peer has ended,
 * reads the pipe once more, because the peer's last bytes have arrived by now, and lets the
 * kernel's call report how the stream ended.
 */
static ssize_t recv_idle(struct via_op *op, struct via_iov *iov, int flags)
{
    struct via_side *side = op->side;
    uint32_t seen = atomic_load_explicit(&side->shadow, memory_order_acquire);
    bool waits = side->rx_shut == 0; /* after shutdown(SHUT_RD) an empty pipe is the end of file */
    if ((seen & VIA_POLL_GONE) == 0 && waits) {
        if ((flags & MSG_DONTWAIT) == 0) {
            return -EAGAIN;
        }
        uint64_t now = via_os_ticks();
        if (now - side->rx_polled_ticks < via_os_us_to_ticks(POLL_US) && side->rx_shut == 0) {
            return -EAGAIN;
        }
        side->rx_polled_ticks = now;
        seen = via_io_poll_kernel(op);
        if ((seen & VIA_POLL_GONE) == 0) {
            return -EAGAIN;
        }
    }
    if (via_pipe_is_ready(&side->rx.pipe)) {
        return -ESTALE; /* the caller reads the pipe */
    }
    const struct via_carrier *carrier = op->conn->carrier;
    if (waits && (carrier->is_follow_possible(op->conn) ||
                  carrier->end_of(op->conn) == VIA_CARRIER_END_OPEN)) {
        return -EAGAIN;
    }
    if ((flags & HAS_SOME) != 0) {
        return 0;
    }
    /* Bytes in the kernel can only come from a peer that was killed while it left the pipe. */
    via_io_drop(op, UINT64_MAX);
    ssize_t n = kernel_recv(op, iov, flags, SIZE_MAX);
    return n == 0 ? via_io_end(op) : n;
}

static ssize_t recv_pipe(struct via_op *op, struct via_iov *iov)
{
    struct via_stream_rx *rx = &op->side->rx;
    ssize_t n = via_stream_rx_read(rx, iov);
    if (n > 0) {
        op->conn->stats->rx_pipe_bytes += (uint64_t)n;
        via_quiet_note();
    }
    if (via_conn_is_local(op->conn)) {
        if (n >= (ssize_t)VIA_IO_LARGE_BYTES) {
            via_side_publish_cpu(op->side);
        }
        if (via_stream_rx_take_writer_ring(rx)) {
            via_conn_posted(op->conn);
        }
    }
    return n;
}

/* MSG_PEEK at the boundary between the kernel's bytes and the pipe's: `n` bytes before it have been
 * peeked. Peeks those behind the boundary, too, and returns the sum. */
static ssize_t peek_on(struct via_op *op, struct via_iov *iov, int flags, bool pipe, ssize_t n)
{
    bool kernel = !pipe;
    if (pipe && iov->left != 0) {
        ssize_t more = via_stream_rx_peek(&op->side->rx, iov, &kernel);
        n += via_max(more, (ssize_t)0);
    }
    if (kernel && iov->left != 0) {
        ssize_t more = kernel_recv(op, iov, flags | HAS_SOME, SIZE_MAX);
        n += via_max(more, (ssize_t)0);
    }
    return n;
}

/* Between hosts, at the end of the kernel's stream: frames that are still under way may continue
 * the peer's stream. Returns 0 at the end, or -EAGAIN. */
static ssize_t kernel_end(struct via_op *op)
{
    struct via_side *side = op->side;
    if (side->rx_shut == 0) {
        via_io_poll_kernel(op);
    }
    if (side->rx_shut != 0 ||
        (!op->conn->carrier->is_switch_allowed(op->conn) && !via_pipe_is_ready(&side->rx.pipe) &&
         op->conn->carrier->end_of(op->conn) != VIA_CARRIER_END_OPEN)) {
        return via_io_end(op);
    }
    side->rx_kernel_ended = true;
    return -EAGAIN;
}

/* One step on a connection with pipes: bytes, 0 at the end of the stream, -EAGAIN, or an error. */
static ssize_t recv_step(struct via_op *op, struct via_iov *iov, int flags)
{
    struct via_stream_rx *rx = &op->side->rx;
    bool peek = (flags & MSG_PEEK) != 0;
    for (;;) {
        int next = via_rx_next(op);
        ssize_t n;
        switch (next) {
        case VIA_NEXT_DATA:
            return peek ? peek_on(op, iov, flags, true, 0) : recv_pipe(op, iov);
        case VIA_NEXT_AVAIL:
            n = via_zcopy_fetch(op, iov, peek);
            if (n == -ESTALE) {
                continue;
            }
            return n;
        case VIA_NEXT_KERNEL:
            n = kernel_recv(op, iov, flags, SIZE_MAX);
            if (n <= 0 && via_pipe_is_ready(&rx->pipe)) {
                continue; /* the peer has begun a pipe span meanwhile */
            }
            if (n == 0 && (flags & HAS_SOME) == 0) {
                n = via_conn_is_local(op->conn) ? via_io_end(op) : kernel_end(op);
            }
            return n;
        case VIA_NEXT_KERNEL_UNTIL:
            n = kernel_recv(op, iov, flags, via_stream_rx_kernel_left(rx));
            if (n > 0 && !peek) {
                via_stream_rx_kernel_read(rx, (size_t)n);
            } else if (n > 0 && (uint64_t)n == via_stream_rx_kernel_left(rx)) {
                return peek_on(op, iov, flags, true, n);
            }
            return n;
        case VIA_NEXT_EMPTY:
            n = recv_idle(op, iov, flags);
            if (n == -ESTALE) {
                continue;
            }
            return n;
        case VIA_NEXT_FIN:
            /* After both directions were shut down here, the kernel answers arriving bytes by RST,
             * and its recv() reports that. */
            return via_unlikely(op->side->rx_shut && op->side->tx_shut)
                       ? kernel_recv(op, iov, flags, SIZE_MAX)
                       : 0;
        case -EAGAIN:
            return next; /* the kernel's byte count keeps changing, see via_kernel_read() */
        default:
            return -ECONNRESET; /* the peer broke the protocol: none of its bytes can be used */
        }
    }
}

/* One try on a connection with pipes. A program that gets fewer bytes than it requested concludes
 * that no more have arrived, and may wait for an edge (epoll(7)). So it gets all available bytes,
 * from the pipe and from the kernel. */
static ssize_t recv_piped(struct via_op *op, struct via_iov *iov, int flags)
{
    const struct via_stream_rx *rx = &op->side->rx;
    ssize_t total = 0;
    for (;;) {
        bool pipe = rx->span == VIA_SPAN_PIPE;
        ssize_t n = recv_step(op, iov, flags);
        if (n <= 0) {
            return total != 0 ? total : n;
        }
        total += n;
        pipe &= rx->span != VIA_SPAN_PIPE; /* the pipe span has ended: the kernel may have more */
        if (via_likely(iov->left == 0) || (flags & MSG_PEEK) != 0 ||
            (!pipe && !via_io_has_news(rx))) {
            return total;
        }
        flags |= HAS_SOME;
    }
}

/* One try, with the rx token. */
static ssize_t recv_once(struct via_op *op, struct via_iov *iov, int flags)
{
    if (!via_conn_has_pipes(op->conn)) {
        return kernel_recv(op, iov, flags, SIZE_MAX);
    }
    if (via_likely(via_conn_is_local(op->conn))) {
        return recv_piped(op, iov, flags);
    }
    via_carrier_rx_begin(op->conn);
    ssize_t n = recv_piped(op, iov, flags);
    via_carrier_rx_end(op->conn);
    if (n == -EAGAIN) {
        via_fabric_handle_results();
    }
    if (n <= 0 && !op->side->rx.ended && via_unlikely(via_io_is_given_up(op))) {
        n = via_io_take_time_out(op);
    }
    return n;
}

/* The fast path: reads bytes of the pipe into one buffer. 0: there are none, and the caller can
 * only wait; -EAGAIN: nothing has been done, take the slow path. */
static ssize_t take_now(struct via_op *op, void *buf, size_t bytes, int flags)
{
    struct via_conn *conn = op->conn;
    struct via_side *side = op->side;
    struct via_stream_rx *rx = &side->rx;
    bool all = (flags & MSG_WAITALL) != 0;
    if ((flags & ~(MSG_DONTWAIT | MSG_WAITALL | MSG_NOSIGNAL)) != 0 || !via_conn_has_pipes(conn) ||
        !via_conn_is_local(conn) || via_conn_has_demotion_request(conn) ||
        !via_zcopy_is_sink_known(op, bytes, flags) ||
        !atomic_load_explicit(&side->options_known, memory_order_relaxed) || via_rx_take(op) != 0) {
        return -EAGAIN;
    }
    /* Checked with the token: another thread may have left the pipes before. */
    bool quick = via_conn_has_pipes(conn) && via_stream_rx_is_quick(rx);
    size_t n = quick ? via_stream_rx_quick(rx, buf, bytes, all) : 0;
    bool more =
        n < bytes && !all && via_conn_has_pipes(conn) && (rx->held || via_pipe_is_ready(&rx->pipe));
    if (more) {
        struct iovec rest = {.iov_base = (unsigned char *)buf + n, .iov_len = bytes - n};
        struct via_iov cursor;
        ssize_t k = via_iov_init(&cursor, &rest, 1) == 0 ? via_stream_rx_read(rx, &cursor) : 0;
        n += k > 0 ? (size_t)k : 0; /* the program's next call gets the error */
    }
    conn->stats->rx_pipe_bytes += n;
    via_quiet_note();
    if (via_unlikely(n >= VIA_IO_LARGE_BYTES)) {
        via_side_publish_cpu(side);
    }
    if (via_unlikely(rx->posted) && via_conn_has_pipes(conn) &&
        via_stream_rx_take_writer_ring(rx)) {
        via_conn_posted(conn);
    }
    bool empty = n == 0 && quick && !more && !via_pipe_is_ready(&rx->pipe);
    via_rx_give(op);
    if (more) {
        via_io_update_registrations(op); /* one of the records may have ended the pipe span */
    }
    return n != 0 || empty ? (ssize_t)n : -EAGAIN;
}

/* The pipe is empty. True if the call may wait without a limit. */
static bool is_waiting_without_limit(const struct via_op *op, int flags)
{
    struct via_side *side = op->side;
    return (flags & MSG_DONTWAIT) == 0 && !via_op_is_nonblocking(op) &&
           atomic_load_explicit(&side->rcvtimeo_ns, memory_order_relaxed) == 0 &&
           (atomic_load_explicit(&side->shadow, memory_order_acquire) & VIA_POLL_GONE) == 0;
}

ssize_t via_io_recv_now(struct via_op *op, void *buf, size_t bytes, int flags)
{
    ssize_t n = take_now(op, buf, bytes, flags);
    if (n == 0 && bytes != 0 && is_waiting_without_limit(op, flags)) {
        VIA_KEEP_ERRNO;
        int rc = via_io_wait(op, POLLIN, VIA_NEVER_NS);
        n = rc == 0 ? take_now(op, buf, bytes, flags) : rc;
    }
    return n != 0 ? n : -EAGAIN;
}

/* As via_io_recv_now(), without waiting, for the rest of a call's buffer, if the call has only
 * one. */
static ssize_t recv_rest_now(struct via_op *op, const struct via_iov *iov, int flags)
{
    if (iov->count != 1) {
        return 0;
    }
    return take_now(op, (unsigned char *)iov->iov->iov_base + iov->off, iov->left, flags);
}

/* Receives into *iov: at least one byte, or all with MSG_WAITALL. */
static ssize_t recv_loop(struct via_op *op, struct via_iov *iov, int flags)
{
    bool peek = (flags & MSG_PEEK) != 0;
    size_t least = (flags & MSG_WAITALL) != 0 && !peek ? iov->left : 1;
    size_t total = 0;
    uint64_t deadline_ns = 0;
    flags &= ~HAS_SOME;
    if (via_op_is_nonblocking(op)) {
        flags |= MSG_DONTWAIT;
    }
    via_io_update_registrations(op); /* the peer may have left the pipes meanwhile */
    for (;;) {
        int rc = via_rx_take(op);
        if (rc != 0) {
            return -EAGAIN; /* a signal handler made the call inside a call that receives */
        }
        if (via_conn_is_leaving(op)) {
            via_rx_give(op);
            rc = via_conn_join_demotion(op);
            if (rc != 0) {
                return total != 0 ? (ssize_t)total : rc;
            }
            continue;
        }
        /* Without pipes another thread may be setting them up. */
        if (total == 0 && via_conn_has_pipes(op->conn)) {
            via_zcopy_announce_sink(op, iov->left, flags);
        }
        ssize_t n = recv_once(op, iov, flags);
        via_rx_give(op);
        via_io_update_registrations(op);
        if (n < 0 && n != -EAGAIN) {
            return total != 0 ? (ssize_t)total : n;
        }
        total += n > 0 ? (size_t)n : 0;
        if (n == 0 || total >= least) {
            return (ssize_t)total;
        }
        if ((flags & MSG_DONTWAIT) != 0) {
            return total != 0 ? (ssize_t)total : -EAGAIN;
        }
        flags |= total != 0 ? HAS_SOME : 0;
        if (n > 0) {
            continue; /* more may have arrived */
        }
        if (deadline_ns == 0) {
            deadline_ns = via_io_deadline(&op->side->rcvtimeo_ns);
        }
        rc = via_io_wait(op, POLLIN, deadline_ns);
        if (rc != 0) {
            return total != 0 ? (ssize_t)total : rc;
        }
        n = total == 0 ? recv_rest_now(op, iov, flags) : 0;
        if (n > 0) {
            return n;
        }
    }
}

/* Calls the kernel's function unchanged. */
static ssize_t recv_plain(struct via_op *op, const struct iovec *iov, int iov_count, int flags)
{
    ssize_t n = via_io_call_kernel(op, iov, iov_count, flags, false);
    if (n >= 0 && (flags & (MSG_PEEK | MSG_OOB)) == 0) {
        via_stats_count(&op->conn->stats->rx_kernel_bytes, (uint64_t)n);
    }
    return n;
}

/* MSG_TRUNC on a TCP socket discards the bytes (tcp(7)), and the buffer may be invalid. */
static ssize_t recv_nowhere(struct via_op *op, size_t bytes, int flags)
{
    unsigned char scratch[16384];
    struct iovec iov = {.iov_base = scratch, .iov_len = via_min(bytes, sizeof(scratch))};
    struct via_iov cursor;
    via_iov_init(&cursor, &iov, 1);
    return recv_loop(op, &cursor, flags & ~(MSG_TRUNC | MSG_WAITALL));
}

/* A recv() of 0 bytes waits once in Linux: for a byte, the end, the timeout or a signal. Then it
 * returns 0: tcp_recvmsg_locked() (net/ipv4/tcp.c) leaves its loop if no bytes are requested. */
static ssize_t recv_none(struct via_op *op, int flags)
{
    unsigned char byte;
    struct iovec iov = {.iov_base = &byte, .iov_len = sizeof(byte)};
    struct via_iov cursor;
    via_iov_init(&cursor, &iov, 1);
    ssize_t n = recv_loop(op, &cursor, (flags & MSG_DONTWAIT) | MSG_PEEK);
    bool waited = (flags & MSG_DONTWAIT) == 0 && !via_op_is_nonblocking(op) &&
                  op->side->rcvtimeo_ns != VIA_AT_ONCE_NS;
    return n > 0 || (waited && (n == -EAGAIN || n == -EINTR)) ? 0 : n;
}

static ssize_t recv_deferred(struct via_op *op, const struct iovec *iov, int iov_count, int flags)
{
    struct via_iov cursor;
    ssize_t n;
    if ((flags & (MSG_OOB | MSG_ERRQUEUE)) != 0) {
        return recv_plain(op, iov, iov_count, flags);
    }
    if (via_unlikely((flags & (MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT)) ==
                     (MSG_PEEK | MSG_WAITALL))) {
        via_conn_demote(op, VIA_REASON_OPTION); /* only the kernel can wait until all bytes of the
                                                   buffer can be peeked */
    }
    int rc = via_conn_has_pipes(op->conn) ? 0 : via_conn_await_demotion(op);
    if (via_unlikely(rc != 0)) {
        return rc;
    }
    bool pipes = via_conn_has_pipes(op->conn);
    if (!pipes && (op->exclusive || via_conn_is_plain(op->conn))) {
        via_conn_note_demoted(op->conn);
        n = recv_plain(op, iov, iov_count, flags);
    } else {
        rc = via_iov_init(&cursor, iov, iov_count);
        if (rc != 0) {
            return rc;
        }
        via_conn_learn_options(op);
        if (via_unlikely(cursor.left == 0)) {
            n = recv_none(op, flags);
        } else {
            n = (flags & (MSG_TRUNC | MSG_PEEK)) == MSG_TRUNC
                    ? recv_nowhere(op, cursor.left, flags)
                    : recv_loop(op, &cursor, flags & ~MSG_TRUNC);
        }
    }
    if (!pipes && n > 0 && via_conn_is_undecided(op->conn)) {
        via_conn_step(op);
    }
    return n;
}

ssize_t via_io_recv_slowly(struct via_op *op, const struct iovec *iov, int iov_count, int flags)
{
    return via_io_call_deferred(recv_deferred, op, iov, iov_count, flags);
}
