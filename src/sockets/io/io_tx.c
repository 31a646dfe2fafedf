/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <linux/sockios.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/mutant.h"
#include "sockets/conn/demote.h"
#include "sockets/conn/steward.h"
#include "sockets/fabric/fabric.h"
#include "sockets/hooks/signals.h"
#include "sockets/io/io_internal.h"
#include "sockets/io/stall.h"
#include "sockets/io/wait.h"
#include "sockets/io/zcopy.h"
#include "sockets/process/real.h"
#include "sockets/stream/stream_quick.h"

/* How often a writer that always finds room polls the kernel for the peer's end. */
#define POLL_US 1000u
/* How often, after one direction has ended, a writer queries the kernel whether a process still
 * holds the other end. */
#define HOLDER_POLL_US 100000u

/* Bodies are stored past the caches if a call sends at least PAST_CACHES_BYTES, or if the ring
 * holds PAST_CACHES_QUEUED bytes. (The reader may have read up to a quarter of the ring of these:
 * it returns credit by quarters.) */
#define PAST_CACHES_BYTES (32u * 1024)
#define PAST_CACHES_QUEUED (96u * 1024)

/* With the tx token: true if bytes go through the kernel, but the pipes may be ready for the rest
 * of this call's bytes. Another thread may be setting up the pipes, for which it needs no token. */
static bool is_piecewise(const struct via_op *op)
{
    return (!via_conn_has_pipes(op->conn) || op->side->tx.span != VIA_SPAN_PIPE) &&
           via_side_is_in(op->side, VIA_PHASES_MAY_SWITCH);
}

static size_t iov_bytes(const struct iovec *iov, int iov_count)
{
    size_t bytes = 0;
    for (int i = 0; i < iov_count; i++) {
        bytes += iov[i].iov_len;
    }
    return bytes;
}

/* Sends through the kernel, without waiting. Errors are the kernel's, SIGPIPE included. */
static ssize_t kernel_send(struct via_op *op, struct via_iov *iov, int flags)
{
    struct iovec pieces[VIA_IO_PIECES_MAX];
    struct msghdr message = {.msg_iov = pieces};
    uint64_t most = is_piecewise(op) ? VIA_IO_PIECE_BYTES : UINT64_MAX;
    message.msg_iovlen = (size_t)via_io_pieces(iov, most, pieces);
    ssize_t n = VIA_REAL(sendmsg)(op->fd, &message, flags | MSG_DONTWAIT);
    if (n < 0) {
        int error = errno == EWOULDBLOCK ? -EAGAIN : -errno;
        if (error == -EAGAIN) {
            via_io_note_full(op);
        } else if (error == -ECONNRESET) {
            via_io_note_kernel_events(op, POLLERR,
                                      0); /* the kernel reports a reset only once: by this call */
        }
        return error;
    }
    size_t bytes = iov_bytes(message.msg_iov, (int)message.msg_iovlen);
    if ((size_t)n < bytes) {
        via_io_note_full(op);
    }
    via_iov_skip(iov, (size_t)n);
    via_io_count_kernel(op, n);
    return n;
}

/* Makes the kernel send the bytes that MSG_MORE or Nagle's algorithm holds back: they precede the
 * bytes in the pipe. */
static void push_kernel_bytes(int fd)
{
    int unsent = 0;
    if (VIA_REAL(ioctl)(fd, SIOCOUTQNSD, &unsent) == 0 && unsent > 0) {
        via_conn_push(fd);
    }
}

void via_io_try_switch(struct via_op *op)
{
    struct via_carrier_undo undo;
    struct via_conn *conn = op->conn;
    uint64_t sent;
    if (!via_stream_stall_is_over(&op->side->stall, &op->side->tx)) {
        return;
    }
    if (!via_conn_tx_is_switch_allowed(conn) ||
        via_kernel_sent(op->fd, op->side->connector, &sent) != 0) {
        return;
    }
    via_carrier_tx_begin(conn, &undo);
    if (via_stream_tx_switch(&op->side->tx, sent) != 0) {
        return;
    }
    push_kernel_bytes(op->fd);
    if (!via_conn_is_local(conn)) {
        /* Within one machine the next record wakes the peer. */
        via_carrier_tx_end(conn, &undo, false);
    }
}

/*
 * True if bodies should bypass the caches. If reader and writer are on two CPUs and large bodies
 * follow each other, the ring's cache lines should not move between the two caches: bypassing gives
 * 9 to 15 GB/s on any two CPUs, against 6 to 8 where the CPUs are near each other and 2 where they
 * are not. A reader that waits for a single, smaller body gets it earlier through the caches.
 */
static bool is_past_caches(const struct via_op *op, size_t bytes)
{
    struct via_side *side = op->side;
    return bytes >= VIA_IO_LARGE_BYTES &&
           (bytes >= PAST_CACHES_BYTES ||
            via_pipe_writer_data_bytes(&side->tx.pipe) >= PAST_CACHES_QUEUED) &&
           via_side_is_apart(side);
}

/* Writes one record with as much of *iov as fits, and notifies the peer. */
static ssize_t write_record(struct via_op *op, struct via_iov *iov)
{
    struct via_conn *conn = op->conn;
    struct via_stream_tx *tx = &op->side->tx;
    struct via_carrier_undo undo;
    undo.frames = false;
    struct via_iov before = *iov;
    tx->past_caches = via_conn_is_local(conn) && is_past_caches(op, iov->left);
    via_carrier_tx_begin(conn, &undo);
    ssize_t n = via_stream_tx_write(tx, iov);
    int rc = n > 0 ? via_carrier_tx_end(conn, &undo, false) : 0;
    if (via_unlikely(rc != 0)) {
        *iov = before;
        /* The host of a peer that has left the pipes, and whose program may have ended, accepts no
         * frames any more: then the caller sends through the kernel. */
        return rc == -EAGAIN || via_conn_has_demotion_request(conn) ? -EAGAIN : -ECONNRESET;
    }
    conn->stats->tx_frames_bytes += undo.frames && n > 0 ? (uint64_t)n : 0;
    return n;
}

/* True if the peer has announced its end, or its announcement may be under way. Otherwise it was
 * killed before it could announce the end. A peer that has spilled to the kernel (stream_stall.h)
 * writes no FIN into the pipe: its stream ends with the kernel's FIN. Within one machine it
 * announces this by VIA_FLAG_ENDS; between hosts the end of its pipe span, which may be unread, is
 * the announcement. */
static bool is_end_announced(struct via_op *op)
{
    struct via_side *side = op->side;
    if (side->tx_fin_seen || via_rx_take(op) != 0) {
        return true;
    }
    side->tx_fin_seen =
        side->rx.span != VIA_SPAN_PIPE || via_stream_rx_is_ending(&side->rx) ||
        (((via_side_flags(side) & VIA_FLAG_ENDS) != 0 || via_stream_rx_is_left(&side->rx)) &&
         !VIA_MUTANT(CONN_SPILLED_END));
    via_rx_give(op);
    return side->tx_fin_seen || op->conn->carrier->is_follow_possible(op->conn);
}

/* One direction has ended. True if a process still holds the other end, and may read the other
 * direction. */
static bool is_other_end_held(struct via_op *op, uint64_t now)
{
    struct via_side *side = op->side;
    if (now - side->tx_holder_ticks > via_os_us_to_ticks(HOLDER_POLL_US)) {
        side->tx_holder_ticks = now;
        side->tx_peer_over = op->conn->carrier->is_over(op->conn, op->fd);
    }
    return !side->tx_peer_over;
}

/* Polls the kernel from time to time for the peer's end. If the peer has ended, its end came before
 * the last `fresh` bytes were written. */
static void poll_hangup_sometimes(struct via_op *op, size_t fresh)
{
    uint64_t now = via_os_ticks();
    if (via_unlikely(now - op->side->tx_polled_ticks > via_os_us_to_ticks(POLL_US))) {
        VIA_KEEP_ERRNO;
        op->side->tx_polled_ticks = now;
        via_io_poll_kernel_after(op, fresh);
    }
}

bool via_tx_has_lost_holder(struct via_op *op)
{
    struct via_side *side = op->side;
    uint32_t seen = atomic_load_explicit(&side->shadow, memory_order_relaxed);
    if (via_likely((seen & VIA_POLL_GONE) == 0)) {
        return false;
    }
    if ((seen & (POLLHUP | POLLERR)) != 0) {
        return true;
    }
    bool held =
        (side->rx_shut != 0 || is_end_announced(op)) && is_other_end_held(op, via_os_ticks());
    if (held) {
        return false;
    }
    /* No process holds the other end, and the caller lets the kernel's call report that. If bytes
     * were lost, this end must be reset before. OPEN: the carrier will know soon how the stream has
     * ended. */
    bool known = op->conn->carrier->end_of(op->conn) != VIA_CARRIER_END_OPEN;
    if (known) {
        via_io_fabric_ended(op);
    }
    return known;
}

/* As via_tx_is_peer_gone(), by the flags and by what the kernel has reported before. */
static bool is_peer_gone(struct via_op *op)
{
    return via_unlikely((via_side_flags(op->side) & VIA_FLAG_CLOSED) != 0) ||
           via_tx_has_lost_holder(op);
}

bool via_tx_is_peer_gone(struct via_op *op)
{
    poll_hangup_sometimes(op, 0);
    return is_peer_gone(op);
}

/* Returns the error of a send after a shutdown() or a reset that the library has not passed to the
 * kernel yet. */
static int take_send_error(const struct via_op *op, int flags)
{
    int error = via_real_option(op->fd, SOL_SOCKET, SO_ERROR);
    if (error != 0) {
        return -error;
    }
    if ((flags & MSG_NOSIGNAL) == 0) {
        raise(SIGPIPE);
    }
    return -EPIPE;
}

/* Between hosts a record could not be sent. If the peer's host has refused it, or deliveries have
 * failed for too long, ends the connection. Returns the error for the program. */
static ssize_t end_if_refused(struct via_op *op, ssize_t error)
{
    if (via_io_take_time_out(op) != 0) {
        return -ETIMEDOUT;
    }
    if (error == -ECONNRESET) {
        via_io_record_refused(op);
    }
    return error;
}

ssize_t via_io_send_once(struct via_op *op, struct via_iov *iov, int flags)
{
    struct via_stream_tx *tx = &op->side->tx;
    if (!via_conn_has_pipes(op->conn)) {
        /* This end has left the pipes after its peer, and has not resent all bytes yet. */
        int rc =
            via_side_is_in(op->side, VIA_PHASES_REPLAY) ? via_conn_replay(op->conn, op->fd) : 0;
        return rc != 0 ? rc : kernel_send(op, iov, flags);
    }
    if (via_conn_has_demotion_request(op->conn)) {
        via_conn_follow_demotion_tx(op->conn, op->fd);
    }
    if (via_unlikely(tx->span != VIA_SPAN_PIPE)) {
        if (via_unlikely(via_side_is_in(op->side, VIA_PHASES_REPLAY))) {
            int rc = via_conn_replay(op->conn, op->fd);
            if (rc != 0) {
                return rc;
            }
        }
        /* SWITCH without bytes behind it would be an EPOLLET edge at the peer. */
        if (iov->left != 0) {
            via_io_try_switch(op);
        }
        if (tx->span != VIA_SPAN_PIPE) {
            return kernel_send(op, iov, flags);
        }
    }
    if (via_unlikely(!via_conn_is_local(op->conn))) {
        if (via_io_take_time_out(op) != 0) {
            return -ETIMEDOUT;
        }
        if (atomic_load_explicit(&op->side->lost, memory_order_relaxed) == VIA_LOST_REFUSED) {
            return take_send_error(op, flags);
        }
    }
    if (via_unlikely(tx->ended) || via_unlikely(is_peer_gone(op))) {
        /* The peer has ended: the kernel's call returns the right error. */
        return kernel_send(op, iov, flags);
    }
    size_t total = 0;
    bool noted_full = false;
    while (iov->left != 0) {
        ssize_t n = write_record(op, iov);
        if (n == -EAGAIN && !noted_full) {
            /* Counted before via_io_has_room() requests the wake-up, so that the thread that the
             * peer wakes finds an edge. */
            via_io_note_full(op);
            noted_full = true;
            if (via_io_has_room(op)) {
                continue;
            }
        }
        noted_full = false;
        if (n < 0) {
            if (total != 0) {
                break;
            }
            poll_hangup_sometimes(op, 0);
            if (!via_conn_is_local(op->conn)) {
                via_fabric_handle_results();
                n = end_if_refused(op, n);
            }
            return n == -EPROTO ? -ECONNRESET : n;
        }
        total += (size_t)n;
    }
    op->conn->stats->tx_pipe_bytes += total;
    /* The peer handles the bytes meanwhile, so reading the clock now delays nothing. An end found
     * here counts for the next call, as with TCP. */
    poll_hangup_sometimes(op, total);
    return (ssize_t)total;
}

/* Sends bytes without copying, and adds them to *total. 0, or the negative errno that ends the
 * call. */
static int send_uncopied(struct via_op *op, struct via_iov *iov,
                         const struct via_zcopy_trial *trial, size_t *total)
{
    bool interrupted;
    ssize_t n = via_zcopy_send(op, iov, trial, &interrupted);
    if (n < 0) {
        return (int)n;
    }
    *total += (size_t)n;
    return interrupted && (*total != 0 || !via_signals_has_restart()) ? -EINTR : 0;
}

static ssize_t send_loop(struct via_op *op, struct via_iov *iov, int flags)
{
    bool nonblocking = (flags & MSG_DONTWAIT) != 0 || via_op_is_nonblocking(op);
    size_t total = 0;
    uint64_t deadline_ns = 0;
    struct via_zcopy_trial trial = {.bytes = 0};
    for (;;) {
        if (via_unlikely(iov->left >= via_zcopy_least) && !nonblocking &&
            via_zcopy_is_suitable(op, iov, &trial)) {
            int ended = send_uncopied(op, iov, &trial, &total);
            if (ended != 0 || iov->left == 0) {
                return total != 0 ? (ssize_t)total : ended;
            }
            trial.begin_ticks = 0; /* its duration does not count: not all bytes took one way */
        }
        int rc = via_tx_take(op);
        if (rc != 0) {
            return -EAGAIN; /* a signal handler made the call inside a call that sends */
        }
        if (via_conn_is_leaving(op)) {
            via_tx_give(op);
            rc = via_conn_join_demotion(op);
            if (rc != 0) {
                return total != 0 ? (ssize_t)total : rc;
            }
            continue;
        }
        ssize_t n = via_io_send_once(op, iov, flags);
        bool piecewise = n > 0 && iov->left != 0 && is_piecewise(op);
        via_tx_give(op);
        bool changed = via_io_update_registrations(op);
        if (n >= 0) {
            total += (size_t)n;
            if (iov->left == 0) {
                if (via_unlikely(trial.bytes != 0)) {
                    via_zcopy_note_copy(&trial);
                }
                return (ssize_t)total;
            }
        } else if (n != -EAGAIN) {
            return total != 0 ? (ssize_t)total : n;
        }
        if (piecewise) {
            if (via_conn_is_undecided(op->conn)) {
                via_conn_step(op);
            }
            continue;
        }
        if (changed) {
            continue; /* epoll sets now watch the kernel; room may have come before */
        }
        if (nonblocking) {
            if (via_conn_has_pipes(op->conn) && !via_stall_is_none(op->conn)) {
                if (via_stall_watch(op) == 0) {
                    continue; /* the program may never wait for room in a call of the library */
                }
                /* Threads that went to sleep before do not watch a stall. */
                via_io_ring_holders(op);
            }
            return total != 0 ? (ssize_t)total : -EAGAIN;
        }
        if (n > 0) {
            continue;
        }
        if (deadline_ns == 0) {
            deadline_ns = via_io_deadline(&op->side->sndtimeo_ns);
        }
        rc = via_io_wait(op, POLLOUT, deadline_ns);
        if (rc != 0) {
            return total != 0 ? (ssize_t)total : rc;
        }
    }
}

static ssize_t send_plain(struct via_op *op, const struct iovec *iov, int iov_count, int flags)
{
    ssize_t n = via_io_call_kernel(op, iov, iov_count, flags, true);
    if (n == -EAGAIN || (n >= 0 && (size_t)n < iov_bytes(iov, iov_count))) {
        via_io_note_full(op);
    }
    if (n > 0) {
        via_io_count_kernel(op, n);
    }
    return n;
}

/* True if the call sends more than VIA_IO_PIECE_BYTES on a connection that may get pipes
 * meanwhile. */
static bool is_worth_pieces(struct via_op *op, const struct iovec *iov, int iov_count)
{
    size_t bytes = 0;
    for (int i = 0; i < iov_count && bytes <= VIA_IO_PIECE_BYTES; i++) {
        bytes += via_min(iov[i].iov_len, (size_t)VIA_IO_PIECE_BYTES + 1);
    }
    return bytes > VIA_IO_PIECE_BYTES && via_conn_is_undecided(op->conn);
}

ssize_t via_io_send_now(struct via_op *op, const void *buf, size_t bytes, int flags)
{
    struct via_conn *conn = op->conn;
    struct via_side *side = op->side;
    if ((flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL)) != 0 || bytes >= via_zcopy_least ||
        !via_conn_has_pipes(conn) || !via_conn_is_local(conn) ||
        (via_side_flags(side) & (VIA_FLAG_DEMOTE | VIA_FLAG_CLOSED)) != 0 ||
        (atomic_load_explicit(&side->shadow, memory_order_relaxed) & VIA_POLL_GONE) != 0 ||
        !atomic_load_explicit(&side->options_known, memory_order_relaxed) || via_tx_take(op) != 0) {
        return -EAGAIN;
    }
    /* Checked with the token: another thread may have left the pipes before. */
    bool sent = via_conn_has_pipes(conn) && !is_past_caches(op, bytes) &&
                via_stream_tx_write_quick(&side->tx, buf, bytes);
    if (via_likely(sent)) {
        via_conn_posted_record(conn);
        conn->stats->tx_pipe_bytes += bytes;
        poll_hangup_sometimes(op, bytes);
    }
    via_tx_give(op);
    via_steward_start(op->alone);
    return sent ? (ssize_t)bytes : -EAGAIN;
}

/*
 * A program that sends with MSG_ZEROCOPY on a socket with SO_ZEROCOPY waits for a notification,
 * which only the kernel creates, and counts (Documentation/networking/msg_zerocopy.rst of Linux):
 * from the first such send on, the connection is the kernel's. gRPC sets SO_ZEROCOPY on each
 * listener and never sends with the flag, so the option alone costs no pipes. 0, or -ENOBUFS, after
 * which a program sends without the flag, as when the kernel has no memory for notifications.
 */
static int leave_for_notifications(struct via_op *op)
{
    if (via_real_option(op->fd, SOL_SOCKET, SO_ZEROCOPY) == 0) {
        return 0; /* the kernel ignores the flag, too */
    }
    int rc = via_conn_demote(op, VIA_REASON_OPTION);
    return rc == 0 || rc == -ETIMEDOUT ? 0 : -ENOBUFS;
}

/* Prepares a send with flags that pipes do not support, and ends a demotion that another thread has
 * begun. 0 or a negative errno. */
static int prepare_send(struct via_op *op, int flags)
{
    int rc = 0;
    if (via_unlikely((flags & MSG_OOB) != 0)) {
        /* The urgent mark (tcp(7)) is a position in the kernel's stream. */
        via_conn_demote(op, VIA_REASON_OPTION);
    } else if (via_unlikely((flags & MSG_ZEROCOPY) != 0)) {
        rc = leave_for_notifications(op);
    }
    return rc == 0 && !via_conn_has_pipes(op->conn) ? via_conn_await_demotion(op) : rc;
}

/* The peer has returned to the kernel: sends the bytes again that it has not read. New bytes must
 * follow them. One call of the program then makes one call of the kernel: MSG_ZEROCOPY counts
 * calls. 0 or a negative errno. */
static int resend_first(struct via_op *op, int flags)
{
    struct via_iov none = {.left = 0};
    bool replays = via_side_is_in(op->side, VIA_PHASES_REPLAY) && !VIA_MUTANT(CONN_OVERTAKE);
    return replays ? (int)send_loop(op, &none, flags & (MSG_DONTWAIT | MSG_NOSIGNAL)) : 0;
}

static ssize_t send_deferred(struct via_op *op, const struct iovec *iov, int iov_count, int flags)
{
    struct via_iov cursor;
    ssize_t n;
    if (via_unlikely(atomic_load_explicit(&op->side->shutting, memory_order_relaxed) != 0)) {
        return take_send_error(op, flags);
    }
    int rc = prepare_send(op, flags);
    if (via_unlikely(rc != 0)) {
        return rc;
    }
    bool pipes = via_conn_has_pipes(op->conn);
    bool plain = !pipes && (op->exclusive || via_conn_is_plain(op->conn)) &&
                 !is_worth_pieces(op, iov, iov_count);
    if ((flags & MSG_OOB) != 0 && pipes) {
        n = send_plain(op, iov, iov_count, flags);
    } else if (plain || (flags & MSG_OOB) != 0) {
        rc = resend_first(op, flags);
        if (via_unlikely(rc != 0)) {
            return rc;
        }
        via_conn_note_demoted(op->conn);
        n = send_plain(op, iov, iov_count, flags);
    } else {
        rc = via_iov_init(&cursor, iov, iov_count);
        if (rc != 0) {
            return rc;
        }
        via_conn_learn_options(op);
        n = send_loop(op, &cursor, flags);
        via_steward_start(op->alone);
    }
    if (!pipes && n > 0 && via_conn_is_undecided(op->conn)) {
        via_conn_step(op);
    }
    return n;
}

ssize_t via_io_send_slowly(struct via_op *op, const struct iovec *iov, int iov_count, int flags)
{
    return via_io_call_deferred(send_deferred, op, iov, iov_count, flags);
}
