/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sockets/conn/demote.h"
#include "sockets/epoll/epoll_set.h"
#include "sockets/fabric/fabric.h"
#include "sockets/hooks/signals.h"
#include "sockets/io/io_internal.h"
#include "sockets/io/stall.h"
#include "sockets/io/wait.h"
#include "sockets/process/cancel.h"
#include "sockets/process/real.h"
#include "sockets/stream/stream_quick.h"

#define IN_EVENTS (POLLIN | POLLRDNORM)
#define OUT_EVENTS (POLLOUT | POLLWRNORM)

uint32_t via_io_note_kernel_events(struct via_op *op, uint32_t events, size_t fresh)
{
    uint32_t gone = events & VIA_POLL_GONE;
    if (via_unlikely(gone != 0)) {
        uint32_t known = atomic_load_explicit(&op->side->shadow, memory_order_relaxed);
        if ((gone & ~known & POLLRDHUP) != 0) {
            uint64_t at_end =
                atomic_load_explicit(&op->side->tx.pipe_bytes, memory_order_relaxed) - fresh;
            atomic_store_explicit(&op->side->tx_at_end, at_end, memory_order_relaxed);
            gone |= via_io_peer_ended(op, gone, fresh);
        }
        /* Pairs with the acquire in via_io_fabric_ended(), which needs tx_at_end. */
        atomic_fetch_or_explicit(&op->side->shadow, gone, memory_order_acq_rel);
    }
    return events | gone;
}

/* The socket's state without poll(), which returns EINVAL for more than RLIMIT_NOFILE entries
 * (poll(2)): for any entry if the limit is 0. */
static uint32_t state_without_poll(int fd)
{
    struct tcp_info info;
    socklen_t bytes = sizeof(info);
    int count;
    uint32_t events = 0;
    if (VIA_REAL(getsockopt)(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) {
        return 0;
    }
    if (info.tcpi_state == TCP_CLOSE) {
        return IN_EVENTS | OUT_EVENTS | POLLRDHUP | POLLHUP;
    }
    if (VIA_REAL(ioctl)(fd, SIOCINQ, &count) == 0 && count > 0) {
        events = IN_EVENTS;
    }
    if (VIA_REAL(ioctl)(fd, SIOCOUTQ, &count) == 0 && count == 0) {
        events |= OUT_EVENTS; /* later than poll(), whose condition for POLLOUT no call returns */
    }
    bool ended = info.tcpi_state == TCP_CLOSE_WAIT || info.tcpi_state == TCP_LAST_ACK ||
                 info.tcpi_state == TCP_CLOSING || info.tcpi_state == TCP_TIME_WAIT;
    return events | (ended ? IN_EVENTS | POLLRDHUP : 0u);
}

/* Polls the kernel's socket for these events, without waiting. */
static uint32_t poll_kernel(struct via_op *op, uint32_t events, size_t fresh)
{
    const struct timespec none = {.tv_sec = 0};
    struct pollfd pfd = {.fd = op->fd, .events = (short)(events | POLLRDHUP)};
    /* The C library's poll() is a cancellation point (pthreads(7)), and tokens are held here. */
    if (syscall(SYS_ppoll, &pfd, 1, &none, NULL, 0) < 0) {
        uint32_t seen = errno == EINVAL ? state_without_poll(op->fd) : 0;
        pfd.revents = (short)(seen & (events | VIA_POLL_GONE));
    }
    return via_io_note_kernel_events(op, (uint32_t)(unsigned short)pfd.revents, fresh);
}

uint32_t via_io_poll_kernel(struct via_op *op)
{
    return poll_kernel(op, 0, 0);
}

uint32_t via_io_poll_kernel_after(struct via_op *op, size_t fresh)
{
    return poll_kernel(op, 0, fresh);
}

/* Polls the reading direction: returns the events that are certain. *ret_kernel_events: further
 * events for which the kernel must be polled; *ret_idle: there is certainly nothing to read. */
static uint32_t poll_rx(struct via_op *op, uint32_t *ret_kernel_events, bool *ret_idle)
{
    struct via_stream_rx *rx = &op->side->rx;
    uint32_t bits = 0;
    if (via_rx_take(op) != 0) {
        op->busy = true;
        return 0;
    }
    via_carrier_rx_begin(op->conn);
    if (via_conn_is_local(op->conn) && via_stream_rx_has_quick(rx)) {
        via_rx_give(op);
        return IN_EVENTS; /* the record stays in the pipe: a read takes whole records there */
    }
    switch (via_rx_next(op)) {
    case VIA_NEXT_DATA:
    case VIA_NEXT_AVAIL:
        bits = IN_EVENTS;
        break;
    case VIA_NEXT_FIN:
        bits = IN_EVENTS | POLLRDHUP;
        *ret_kernel_events |= POLLRDHUP; /* the kernel reports whether both directions have ended */
        break;
    case VIA_NEXT_EMPTY:
        *ret_idle = true;
        break;
    case VIA_NEXT_KERNEL:
        if (op->side->rx_kernel_ended) {
            *ret_idle = true;
            break;
        }
        *ret_kernel_events |= IN_EVENTS;
        break;
    case VIA_NEXT_KERNEL_UNTIL:
    case -EAGAIN: /* the kernel's byte count keeps changing: see via_kernel_read() */
        *ret_kernel_events |= IN_EVENTS;
        break;
    default:
        bits = IN_EVENTS | POLLERR;
        break;
    }
    via_carrier_rx_end(op->conn);
    via_rx_give(op);
    return bits;
}

/*
 * With the tx token: true if there is room. If not, the peer wakes this end when it returns credit,
 * whichever thread waits then: TCP likewise sets SOCK_NOSPACE in each call that finds no room. The
 * peer may already have answered the last want by a wake-up for an earlier credit, so the writer
 * repeats the want and the check.
 */
bool via_io_has_room(struct via_op *op)
{
    struct via_stream_tx *tx = &op->side->tx;
    bool room;
    while (!(room = via_stream_tx_is_writable(tx)) &&
           (tx->pipe.want == 0 || via_pipe_want_is_old(&tx->pipe))) {
        op->conn->carrier->tx_request_room(op->conn);
    }
    return room && via_carrier_has_path_room(op->conn);
}

static uint32_t poll_tx(struct via_op *op, uint32_t *ret_kernel_events)
{
    struct via_stream_tx *tx = &op->side->tx;
    uint32_t bits = 0;
    if (via_tx_take(op) != 0) {
        op->busy = true;
        return 0;
    }
    if (tx->span != VIA_SPAN_PIPE || tx->ended || via_tx_is_peer_gone(op)) {
        *ret_kernel_events |= OUT_EVENTS;
    } else if (via_io_has_room(op)) {
        bits = OUT_EVENTS;
    } else {
        via_io_note_full(op);
    }
    via_tx_give(op);
    return bits;
}

bool via_io_is_following(struct via_op *op)
{
    const struct via_stream_rx *rx = &op->side->rx;
    const struct via_carrier *carrier = op->conn->carrier;
    if (op->side->rx_shut != 0 || via_pipe_is_ready(&rx->pipe) || via_io_is_given_up(op)) {
        return false;
    }
    bool may = rx->span == VIA_SPAN_PIPE ? carrier->is_follow_possible(op->conn)
                                         : carrier->is_switch_allowed(op->conn);
    return may || carrier->end_of(op->conn) == VIA_CARRIER_END_OPEN;
}

/* Between hosts: true at the kernel's end of file while the reader may still get a pipe span. The
 * end is not reported yet. */
static bool is_at_kernel_end(struct via_op *op)
{
    int unread = 0;
    return !via_conn_is_local(op->conn) && op->side->rx.span == VIA_SPAN_KERNEL &&
           via_conn_has_pipes(op->conn) && VIA_REAL(ioctl)(op->fd, SIOCINQ, &unread) == 0 &&
           unread == 0;
}

/* True if the kernel has reported the end, or the peer has announced it. */
static bool is_end_known(const struct via_op *op)
{
    return atomic_load_explicit(&op->side->shadow, memory_order_acquire) != 0 ||
           (via_side_flags(op->side) & (VIA_FLAG_CLOSED | VIA_FLAG_FIN)) != 0;
}

uint32_t via_io_ready(struct via_op *op, uint32_t wanted)
{
    uint32_t bits = 0;
    uint32_t kernel_events = wanted & (POLLPRI | POLLRDBAND);
    bool idle = false;
    if (via_conn_has_demotion_request(op->conn)) {
        via_conn_follow_demotion(op);
    }
    if (via_unlikely(!via_conn_is_local(op->conn))) {
        (void)via_io_is_given_up(op);
    }
    if ((wanted & (IN_EVENTS | POLLRDHUP)) != 0) {
        bits |= poll_rx(op, &kernel_events, &idle);
    }
    if (via_unlikely(atomic_load_explicit(&op->side->rx_shut, memory_order_relaxed) != 0)) {
        bits |= IN_EVENTS | POLLRDHUP; /* after shutdown(SHUT_RD) reads return end of file */
    }
    if ((wanted & OUT_EVENTS) != 0) {
        bits |= op->side->shutting != 0 ? OUT_EVENTS : poll_tx(op, &kernel_events);
    }
    if (via_unlikely(atomic_load_explicit(&op->side->tx_shut, memory_order_relaxed) != 0)) {
        kernel_events |=
            POLLRDHUP; /* poll() reports the end of both directions even if bytes are unread */
        bits |= op->side->shutting != 0 && op->side->rx_shut != 0 ? (uint32_t)POLLHUP : 0;
    }
    if (kernel_events != 0 || via_unlikely(is_end_known(op))) {
        uint32_t seen = poll_kernel(op, kernel_events, 0);
        if ((wanted & kernel_events & OUT_EVENTS) != 0 && (seen & OUT_EVENTS) == 0) {
            via_io_note_full(op);
        }
        if (via_unlikely((seen & POLLRDHUP) != 0) && is_at_kernel_end(op)) {
            idle = true;
            seen &= ~(uint32_t)IN_EVENTS;
        }
        if (idle && (seen & VIA_POLL_GONE) != 0) {
            if (via_io_is_following(op)) {
                seen &= (seen & (POLLHUP | POLLRDHUP)) != 0 ? ~(uint32_t)VIA_POLL_GONE : ~0u;
            } else {
                bits |= IN_EVENTS; /* the end of the stream, or bytes that arrived just before the
                                      end */
                bits |= via_io_fabric_ended(op);
            }
        }
        bits |= seen & (kernel_events | VIA_POLL_GONE);
    }
    uint8_t lost = atomic_load_explicit(&op->side->lost, memory_order_relaxed);
    if (via_unlikely(lost == VIA_LOST_DUE || lost == VIA_LOST_TIMED_OUT)) {
        bits |= POLLERR | POLLHUP;
    }
    return bits & (wanted | POLLERR | POLLHUP);
}

void via_io_arm(struct via_op *op, uint32_t wanted)
{
    struct via_conn *conn = op->conn;
    /* Within one machine the writer loads the bell's word, which says whether this thread
     * sleeps. */
    if (via_conn_is_local(conn)) {
        return;
    }
    bool in = (wanted & (IN_EVENTS | POLLRDHUP)) != 0;
    bool out = (wanted & OUT_EVENTS) != 0;
    if (in && via_rx_take(op) == 0) {
        via_fabric_rx_arm(conn);
        via_rx_give(op);
        in = false;
    }
    if (out && via_tx_take(op) == 0) {
        if (op->side->tx.span == VIA_SPAN_PIPE) { /* otherwise the kernel reports room */
            op->conn->carrier->tx_request_room(op->conn);
        }
        via_tx_give(op);
        out = false;
    }
    if (in || out) {
        op->busy = true;
    }
}

uint32_t via_io_kernel_events(const struct via_op *op, uint32_t wanted)
{
    const struct via_side *side = op->side;
    uint32_t events = wanted & (POLLPRI | POLLRDBAND);
    uint32_t seen = atomic_load_explicit(&side->shadow, memory_order_relaxed);
    if ((wanted & (IN_EVENTS | POLLRDHUP)) != 0) {
        events |= (seen & POLLRDHUP) == 0 ? (uint32_t)POLLRDHUP : 0;
        bool kernel = side->rx.span != VIA_SPAN_PIPE ||
                      via_side_is_in(side, VIA_PHASES_FOLLOW); /* the peer may resend bytes */
        events |= kernel && !side->rx_kernel_ended ? wanted & IN_EVENTS : 0;
    }
    if ((wanted & OUT_EVENTS) != 0) {
        events |= side->tx.span != VIA_SPAN_PIPE ? wanted & OUT_EVENTS
                  : (seen & POLLRDHUP) == 0      ? (uint32_t)POLLRDHUP
                                                 : 0;
    }
    if (via_unlikely(via_side_is_in(side, VIA_PHASES_REPLAY))) {
        events |= POLLOUT; /* so that each waiting thread continues the resending, see demote.h */
    }
    return events;
}

int via_io_kernel_fd(const struct via_op *op)
{
    uint32_t seen = atomic_load_explicit(&op->side->shadow, memory_order_relaxed);
    return !via_conn_is_local(op->conn) && (seen & (POLLHUP | POLLERR)) != 0 ? -1 : op->fd;
}

/* --- a blocking call ------------------------------------------------------------------------- */

uint64_t via_io_deadline(const _Atomic uint64_t *timeout_ns)
{
    uint64_t timeout = atomic_load_explicit(timeout_ns, memory_order_relaxed);
    return timeout == 0 ? VIA_NEVER_NS : via_os_now_ns() + timeout;
}

static bool has_tx_room(struct via_op *op)
{
    if (op->side->tx.span != VIA_SPAN_PIPE || via_tx_take(op) != 0) {
        return false;
    }
    bool room = via_io_has_room(op);
    via_tx_give(op);
    return room;
}

static bool has_news(struct via_op *op, uint32_t what)
{
    bool over = !via_conn_is_local(op->conn) && via_io_is_given_up(op);
    return over || (what == POLLIN ? via_io_has_news(&op->side->rx) : has_tx_room(op));
}

/* If the peer's direction has ended before, the kernel reports no event to a writer when the last
 * process closes the other end: how often to check for that. */
#define HALF_CLOSED_POLL_NS (100 * VIA_MSEC_NS)

/* How long a thread sleeps if poll() refuses any descriptor: see state_without_poll(). */
#define BLIND_NS VIA_MSEC_NS

/* Sleeps until an event of the kernel's socket, a ring of a bell, or the deadline. */
static int sleep_for(struct via_op *op, uint32_t what, bool pipes, uint64_t bells,
                     uint64_t deadline_ns, uint64_t most_ns)
{
    struct pollfd fds[2] = {{.fd = op->fd, .events = (short)what}};
    uint64_t until_ns = deadline_ns;
    if (pipes) {
        uint32_t seen = atomic_load_explicit(&op->side->shadow, memory_order_relaxed);
        fds[0].fd = via_io_kernel_fd(op);
        fds[0].events = (short)via_io_kernel_events(op, what);
        if (what == POLLOUT && (seen & POLLRDHUP) != 0) {
            until_ns = via_min(deadline_ns, via_os_now_ns() + HALF_CLOSED_POLL_NS);
        }
    }
    via_stats_count(&op->conn->stats->sleeps, 1);
    uint32_t seen = 0;
    int n = -EAGAIN;
    if (fds[0].fd >= 0 && fds[0].events == POLLRDHUP && until_ns == VIA_NEVER_NS) {
        n = via_sleep_watching(op->fd, op->conn->serial, bells, most_ns, &seen);
    }
    if (n == -EAGAIN) {
        if (most_ns != VIA_NEVER_NS) {
            until_ns = via_min(until_ns, via_os_now_ns() + most_ns);
        }
        n = via_sleep(fds, 1, bells, until_ns, NULL);
        seen = (uint32_t)(unsigned short)fds[0].revents;
        if (via_unlikely(n == -EINVAL)) { /* state_without_poll() */
            seen = 0;
            n = via_sleep(fds, 0, bells, via_min(until_ns, via_os_now_ns() + BLIND_NS), NULL);
        }
    }
    if (n == -EINTR) {
        return deadline_ns == VIA_NEVER_NS && via_signals_has_restart() ? 0 : -EINTR;
    }
    via_io_note_kernel_events(op, seen, 0);
    if (n == 0 && deadline_ns != VIA_NEVER_NS && via_os_now_ns() >= deadline_ns) {
        return -EAGAIN;
    }
    return n < 0 ? n : 0;
}

/* True if poll() reports a hangup that is not yet recorded. */
static bool has_new_hangup(struct via_op *op)
{
    uint32_t known = atomic_load_explicit(&op->side->shadow, memory_order_relaxed);
    return (via_io_poll_kernel(op) & VIA_POLL_GONE & ~known) != 0;
}

void via_io_end_cancelled(void *of_op)
{
    struct via_op *op = of_op;
    via_op_end(op);
}

ssize_t via_io_call_kernel(struct via_op *op, const struct iovec *iov, int iov_count, int flags,
                           bool sends)
{
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)iov,
                             .msg_iovlen = (size_t)iov_count};
    ssize_t n;
    pthread_cleanup_push(via_io_end_cancelled, op);
    via_cancel_allow();
    if (iov_count == 1) {
        n = sends ? VIA_REAL(send)(op->fd, iov->iov_base, iov->iov_len, flags)
                  : VIA_REAL(recv)(op->fd, iov->iov_base, iov->iov_len, flags);
    } else {
        n = sends ? VIA_REAL(sendmsg)(op->fd, &message, flags)
                  : VIA_REAL(recvmsg)(op->fd, &message, flags);
    }
    via_cancel_defer();
    pthread_cleanup_pop(0);
    via_op_slept(op);
    return n >= 0 ? n : -errno;
}

/* What give_up() needs if the thread is cancelled in its sleep. */
struct sleeper {
    struct via_op *op;
    const struct via_wait *wait;
    const struct via_bell_sleep *sleep;
};

static void give_up(void *of_sleeper)
{
    const struct sleeper *sleeper = of_sleeper;
    via_sock_bell_leave(sleeper->sleep);
    via_wait_end(sleeper->wait);
    via_op_end(sleeper->op);
}

/* As sleep_for(), called with the bells entered: a thread that is cancelled leaves them. */
static int sleep_cancellably(struct via_op *op, uint32_t what, bool pipes,
                             const struct via_bell_sleep *sleep, uint64_t deadline_ns,
                             uint64_t most_ns, const struct via_wait *wait)
{
    struct sleeper sleeper = {.op = op, .wait = wait, .sleep = sleep};
    struct via_cancel before;
    int rc;
    if (op->alone) {
        return sleep_for(op, what, pipes, sleep->bells, deadline_ns, most_ns);
    }
    via_cancel_off(&before);
    pthread_cleanup_push(give_up, &sleeper);
    rc = sleep_for(op, what, pipes, sleep->bells, deadline_ns, most_ns);
    pthread_cleanup_pop(0);
    via_cancel_back(&before);
    return rc;
}

int via_io_wait(struct via_op *op, uint32_t what, uint64_t deadline_ns)
{
    struct via_wait wait;
    bool pipes = via_conn_has_pipes(op->conn);
    via_wait_begin(&wait);
    if (pipes) {
        do {
            if (has_news(op, what) || (via_wait_take_poll_due(&wait) && has_new_hangup(op))) {
                via_wait_end(&wait);
                return 0;
            }
        } while (via_wait_spin(&wait));
        via_io_arm(op, what);
    }
    uint64_t most_ns = pipes && what == POLLOUT ? via_stall_watch(op) : VIA_NEVER_NS;
    struct via_bell_sleep sleep;
    via_sock_bell_enter(&sleep, via_conn_bells(op->conn));
    int rc = 0;
    if (most_ns != 0 && (!pipes || !has_news(op, what))) {
        via_wait_sleeps(&wait);
        rc = sleep_cancellably(op, what, pipes, &sleep, deadline_ns, most_ns, &wait);
        via_wait_slept(&wait);
    }
    via_sock_bell_leave(&sleep);
    via_op_slept(op);
    via_wait_end(&wait);
    return rc;
}

/* --- the rest -------------------------------------------------------------------------------- */

bool via_io_update_registrations(struct via_op *op)
{
    struct via_conn *conn = op->conn;
    if (via_conn_has_demotion_request(conn)) {
        via_conn_follow_demotion(op);
    }
    if (via_likely(atomic_load_explicit(&conn->spans, memory_order_relaxed) ==
                   via_conn_spans(conn))) {
        return false;
    }
    via_ep_conn_changed(conn);
    return true;
}

/* With the rx token. The pipe has `piped` bytes, and `left` bytes of the kernel precede them.
 * Returns how many bytes can be read: of these, and of the kernel's bytes that follow the
 * pipe's. */
static size_t count_readable(struct via_op *op, size_t piped, uint64_t left)
{
    const struct via_stream_rx *rx = &op->side->rx;
    bool follow = via_side_is_in(op->side, VIA_PHASES_FOLLOW) || via_stream_rx_is_left(rx);
    int unread = 0;
    if ((left == 0 && !follow) || VIA_REAL(ioctl)(op->fd, SIOCINQ, &unread) != 0) {
        return piped;
    }
    uint64_t kernel = (uint64_t)unread;
    if (kernel < left) {
        return (size_t)kernel;
    }
    uint64_t before = left + via_stream_rx_resent_bytes(rx);
    return (size_t)left + piped + (follow && kernel > before ? (size_t)(kernel - before) : 0);
}

int via_io_readable_bytes(struct via_op *op)
{
    struct via_stream_rx *rx = &op->side->rx;
    int kernel = 0;
    via_io_update_registrations(op); /* the peer may have left the pipes meanwhile */
    if (via_conn_has_pipes(op->conn) && via_rx_take(op) == 0) {
        int next = via_rx_next(op);
        bool until = next == VIA_NEXT_KERNEL_UNTIL;
        bool bytes = next == VIA_NEXT_DATA || next == VIA_NEXT_AVAIL || until;
        size_t piped = bytes ? via_stream_rx_bytes(rx, INT32_MAX) : 0;
        piped = count_readable(op, piped, until ? via_stream_rx_kernel_left(rx) : 0);
        via_rx_give(op);
        if (bytes || next == VIA_NEXT_EMPTY || next == VIA_NEXT_FIN) {
            return (int)via_min(piped, (size_t)INT32_MAX);
        }
    }
    return VIA_REAL(ioctl)(op->fd, SIOCINQ, &kernel) == 0 ? kernel : -errno;
}
