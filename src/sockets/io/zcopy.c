/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/io/zcopy.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/mutant.h"
#include "sockets/hooks/signals.h"
#include "sockets/io/io_internal.h"
#include "sockets/io/wait.h"
#include "sockets/meet/rendezvous.h"
#include "sockets/process/real.h"

/* If the receiver does not begin to fetch for this long, or stops in the middle: copy the rest. */
#define PATIENCE_NS (10 * VIA_MSEC_NS)
/* A receiver that has begun to fetch and makes no progress for this long is stopped: waiting for a
 * CPU takes less. */
#define STOPPED_NS VIA_SEC_NS
/* How many sends are copied after a receiver did not come: PAUSE_MIN, doubled each time up to
 * PAUSE_MAX. */
#define PAUSE_MIN 16u
#define PAUSE_MAX 4096u
/* Limit of one system call: in between, the sender sees progress, and may revoke. */
#define FETCH_BYTES_MAX (1u << 20)
/* Fetching smaller pieces costs more than copying: each needs a system call. */
#define FETCH_BYTES_MIN (16u * 1024)
/* How often a sender that sees progress checks for signals. */
#define SIGNAL_POLL_NS VIA_MSEC_NS

enum mode { AUTO, OFF, ON };

size_t via_zcopy_least = SIZE_MAX;
bool via_zcopy_lends;
static enum mode mode;

void via_zcopy_init(void)
{
    const char *text = getenv("VIADUCT_SOCKETS_ZEROCOPY");
    via_zcopy_least = VIA_ZCOPY_LEAST;
    via_zcopy_lends = true;
    mode = AUTO;
    if (text == NULL || strcmp(text, "auto") == 0) {
        return;
    }
    char *end = NULL;
    unsigned long bytes = *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : 0;
    if (strcmp(text, "on") == 0) {
        mode = ON;
    } else if (end != NULL && *end == '\0' && bytes >= FETCH_BYTES_MIN) {
        mode = ON;
        via_zcopy_least = bytes;
    } else {
        mode = OFF;
        via_zcopy_least = SIZE_MAX;
        via_zcopy_lends = false;
    }
}

void via_zcopy_meet(struct via_conn *conn, int control_fd)
{
    conn->zcopy = (struct via_zcopy){.own_pid = via_os_pid()};
    if (mode == OFF) {
        return;
    }
    struct ucred cred = via_rendezvous_peer(control_fd);
    /* A process of another pid namespace has pid 0 here (pid_namespaces(7)). A single thread that
     * holds both ends can not send and receive at once. */
    if (cred.pid <= 0 || cred.uid != geteuid() || cred.uid != getuid() ||
        !via_os_uid_is_one(cred.uid) || (cred.pid == conn->zcopy.own_pid && via_is_alone())) {
        return;
    }
    conn->zcopy.peer_pid = cred.pid;
    conn->zcopy.able = true;
    via_side_allow_avail(conn->side);
}

/* The pipes are checked first: that acquire pairs with the release in note_pipes(), which
 * follows via_zcopy_meet(). */
static bool is_able(const struct via_op *op)
{
    return via_conn_has_pipes(op->conn) &&
           atomic_load_explicit(&op->conn->zcopy.able, memory_order_relaxed) &&
           via_conn_is_local(op->conn) && !op->side->ever_forked;
}

/* --- receiving ------------------------------------------------------------------------------- */

void via_zcopy_announce_sink_slowly(struct via_op *op, size_t bytes, int flags)
{
    bool waits = (flags & (MSG_DONTWAIT | MSG_TRUNC)) == 0 && !via_op_is_nonblocking(op);
    bool would = waits && bytes >= via_zcopy_least && is_able(op);
    via_stream_rx_sink(&op->side->rx, would ? bytes : 0);
}

static void refuse_offer(struct via_op *op)
{
    via_stream_rx_refuse(&op->side->rx);
    via_conn_posted(op->conn); /* wakes the peer, which may sleep until its offer has ended */
}

/* Reads from the peer's memory. Returns bytes or a negative errno. */
static ssize_t read_peer(struct via_op *op, const struct via_iov *iov)
{
    const struct via_stream_rx *rx = &op->side->rx;
    struct iovec pieces[VIA_IO_PIECES_MAX];
    uint64_t bytes = via_min(rx->avail.bytes - rx->avail.done, (uint64_t)FETCH_BYTES_MAX);
    int count = via_io_pieces(iov, bytes, pieces);
    struct iovec remote = {
        .iov_base = (void *)(uintptr_t)(rx->avail.address + rx->avail.done),
        .iov_len = (size_t)bytes,
    };
    ssize_t n =
        process_vm_readv(op->conn->zcopy.peer_pid, pieces, (unsigned long)count, &remote, 1, 0);
    return n < 0 ? -errno : n;
}

ssize_t via_zcopy_fetch(struct via_op *op, struct via_iov *iov, bool peek)
{
    struct via_stream_rx *rx = &op->side->rx;
    if (!is_able(op) || via_os_pid() != op->conn->zcopy.own_pid) {
        refuse_offer(op);
        return -ESTALE;
    }
    if (via_stream_rx_claim(rx) != 0) {
        return -ESTALE;
    }
    ssize_t n = read_peer(op, iov);
    /* If the peer's process has ended, another process may have got its pid. But then the kernel
     * has already reported the end of the connection. */
    if (n <= 0 || (via_io_poll_kernel(op) & VIA_POLL_GONE) != 0) {
        if (n == -EPERM || n == -ENOSYS) {
            atomic_store_explicit(&op->conn->zcopy.able, false, memory_order_relaxed);
            via_stream_rx_sink(rx, 0);
        }
        refuse_offer(op);
        return -ESTALE;
    }
    via_stream_rx_pulled(rx, peek ? 0 : (uint64_t)n);
    via_iov_skip(iov, (size_t)n);
    if (!peek) {
        op->conn->stats->rx_pipe_bytes += (uint64_t)n;
        if (rx->avail.held && rx->avail.sink == 0) {
            /* The peer's memory is in small pieces: copying the rest is faster. */
            via_stream_rx_refuse(rx);
        }
    }
    via_conn_posted(op->conn);
    return n;
}

/* --- sending --------------------------------------------------------------------------------- */

static size_t piece_bytes(const struct via_iov *iov)
{
    return iov->count > 0 ? iov->iov->iov_len - iov->off : 0;
}

bool via_zcopy_is_suitable(struct via_op *op, const struct via_iov *iov,
                           struct via_zcopy_trial *trial)
{
    const struct via_side *side = op->side;
    struct via_zcopy *zcopy = &op->conn->zcopy;
    if (!is_able(op) || side->tx.span != VIA_SPAN_PIPE || piece_bytes(iov) < via_zcopy_least ||
        via_stream_tx_sink(&side->tx) < via_zcopy_least ||
        atomic_load_explicit(&side->sndtimeo_ns, memory_order_relaxed) != 0 ||
        via_os_pid() != zcopy->own_pid) {
        return false;
    }
    uint32_t left = atomic_load_explicit(&zcopy->pause_left, memory_order_relaxed);
    if (left > 0) {
        atomic_store_explicit(&zcopy->pause_left, left - 1, memory_order_relaxed);
        return false;
    }
    if (mode == ON || trial->bytes != 0) {
        return mode == ON; /* if the beginning of a send was copied, so is the rest */
    }
    bool counts;
    bool fetches = via_zcopy_is_fetching(piece_bytes(iov), &counts);
    trial->bytes = iov->left;
    trial->begin_ticks = counts ? via_os_ticks() : 0;
    return fetches;
}

void via_zcopy_note_copy(const struct via_zcopy_trial *trial)
{
    if (via_unlikely(trial->begin_ticks != 0)) {
        via_zcopy_note_duration(trial->bytes, false, via_os_ticks() - trial->begin_ticks);
    }
}

/* A thread must not leave a send while a receiver reads its buffer: neither by longjmp() from a
 * signal handler nor by cancellation. Both are blocked meanwhile, for a short time. */
struct shield {
    sigset_t before;
    int cancel;
};

static void shield_up(struct shield *shield)
{
    sigset_t all;
    sigfillset(&all);
    /* Instructions of the thread itself cause these. What happens if they are blocked then is
     * undefined (sigprocmask(2)). */
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        sigdelset(&all, own[i]);
    }
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &shield->cancel);
    pthread_sigmask(SIG_BLOCK, &all, &shield->before);
    via_signals_mark(); /* handlers run in via_sleep(), or after shield_down() */
}

static void shield_down(const struct shield *shield)
{
    pthread_sigmask(SIG_SETMASK, &shield->before, NULL);
    pthread_setcancelstate(shield->cancel, NULL);
}

/* True if a signal is pending that only the shield blocks. */
static bool is_signal_pending(const struct shield *shield)
{
    sigset_t pending;
    bool waits = false;
    if (sigpending(&pending) != 0 || sigisemptyset(&pending)) {
        return false;
    }
    for (int number = 1; number < _NSIG; number++) {
        waits |= sigismember(&pending, number) == 1 && sigismember(&shield->before, number) != 1;
    }
    return waits;
}

/* One offer in progress. */
struct offer {
    struct shield shield;
    uint64_t done;
    uint64_t progress_ns;
    uint64_t polled_ns;
    bool revoked;
    bool late; /* the receiver did not come in time */
    bool handled;
};

static void take_back(struct via_op *op, struct offer *offer)
{
    offer->revoked = true;
    via_stream_tx_avail_revoke(&op->side->tx);
}

/* Sleeps until the receiver makes progress, for at most PATIENCE_NS. If the receiver has claimed
 * the bytes and is stopped, the sender has to wait without a limit. Then signal handlers run, as in
 * any other call. */
static void sleep_some(struct via_op *op, struct offer *offer, uint64_t bells, bool claimed)
{
    uint64_t now = via_os_now_ns();
    uint32_t seen = atomic_load_explicit(&op->side->shadow, memory_order_relaxed);
    struct pollfd fds[2] = {{.fd = (seen & (POLLHUP | POLLERR)) != 0 ? -1 : op->fd,
                             .events = (seen & POLLRDHUP) != 0 ? 0 : POLLRDHUP}};
    const sigset_t *mask = offer->revoked && claimed && now - offer->progress_ns > STOPPED_NS
                               ? &offer->shield.before
                               : NULL;
    via_stats_count(&op->conn->stats->sleeps, 1);
    if (via_sleep(fds, 1, bells, now + PATIENCE_NS, mask) == -EINTR) {
        offer->handled = true;
    }
    via_io_note_kernel_events(op, (uint32_t)(unsigned short)fds[0].revents, 0);
}

/* True if the process that fetches, or would fetch, is dead: then all descriptors of the other end
 * are closed, and the kernel has ended its process_vm_readv(). */
static bool is_reader_dead(struct via_op *op)
{
    bool dead = false;
    if (via_tx_take(op) == 0) {
        dead = via_tx_has_lost_holder(op);
        via_tx_give(op);
    }
    return dead;
}

/* Revokes an open offer if the receiver has ended, does not come, or a signal is pending. */
static void check_offer(struct via_op *op, struct offer *offer, bool claimed)
{
    uint64_t now = via_os_now_ns();
    if (offer->revoked) {
        return;
    }
    if ((via_side_flags(op->side) & VIA_FLAG_CLOSED) != 0 || is_reader_dead(op)) {
        take_back(op, offer);
    } else if (now - offer->progress_ns > PATIENCE_NS && !claimed) {
        offer->late = true;
        take_back(op, offer);
    } else if (now - offer->polled_ns > SIGNAL_POLL_NS) {
        offer->polled_ns = now;
        if (is_signal_pending(&offer->shield)) {
            take_back(op, offer);
        }
    }
}

static int read_progress(struct via_op *op, struct offer *offer)
{
    uint64_t done;
    int state = via_stream_tx_avail_state(&op->side->tx, &done);
    if (done != offer->done) {
        offer->done = done;
        offer->progress_ns = via_os_now_ns();
    }
    return state;
}

/* Waits until the offer has ended: 0, or -EPROTO. */
static int wait_for_end(struct via_op *op, struct offer *offer)
{
    uint64_t bells = via_conn_bells(op->conn);
    for (;;) {
        struct via_wait wait;
        int state;
        via_wait_begin(&wait);
        do {
            state = read_progress(op, offer);
        } while ((state == VIA_AVAIL_OPEN || state == VIA_AVAIL_CLAIMED) && via_wait_spin(&wait));
        if (state == VIA_AVAIL_OPEN || state == VIA_AVAIL_CLAIMED) {
            struct via_bell_sleep sleep;
            via_sock_bell_enter(&sleep, bells);
            state = read_progress(op, offer);
            if (state == VIA_AVAIL_OPEN || state == VIA_AVAIL_CLAIMED) {
                via_wait_sleeps(&wait);
                sleep_some(op, offer, bells, state == VIA_AVAIL_CLAIMED);
                via_wait_slept(&wait);
                state = read_progress(op, offer);
            }
            via_sock_bell_leave(&sleep);
        }
        via_wait_end(&wait);
        if (state == VIA_AVAIL_CLAIMED && offer->revoked &&
            (VIA_MUTANT(CONN_EARLY_REUSE) || is_reader_dead(op))) {
            return 0;
        }
        if (state != VIA_AVAIL_OPEN && state != VIA_AVAIL_CLAIMED) {
            return state < 0 ? state : 0;
        }
        check_offer(op, offer, state == VIA_AVAIL_CLAIMED);
    }
}

/* Writes the AVAIL record into the stream. 0 or a negative errno. */
static int make_offer(struct via_op *op, const struct via_iov *iov)
{
    struct via_stream_tx *tx = &op->side->tx;
    int rc = via_tx_take(op);
    if (rc != 0) {
        return rc;
    }
    rc = tx->span != VIA_SPAN_PIPE || tx->ended || via_tx_is_peer_gone(op) ? -EPIPE : 0;
    if (rc == 0) {
        uintptr_t address = (uintptr_t)iov->iov->iov_base + iov->off;
        rc = via_stream_tx_avail(tx, address, piece_bytes(iov));
    }
    if (rc == 0) {
        via_conn_posted_record(op->conn);
    }
    via_tx_give(op);
    return rc;
}

/* Decides by the result of this offer how many of the next sends are copied. */
static void choose_pause(struct via_zcopy *zcopy, const struct offer *offer)
{
    uint32_t pause = atomic_load_explicit(&zcopy->pause, memory_order_relaxed);
    uint32_t next = pause == 0 ? PAUSE_MIN : via_min(2 * pause, PAUSE_MAX);
    atomic_store_explicit(&zcopy->pause, offer->late ? next : 0, memory_order_relaxed);
    if (offer->late) {
        atomic_store_explicit(&zcopy->pause_left, next, memory_order_relaxed);
    }
}

ssize_t via_zcopy_send(struct via_op *op, struct via_iov *iov, const struct via_zcopy_trial *trial,
                       bool *ret_interrupted)
{
    struct offer offer = {.done = 0};
    *ret_interrupted = false;
    shield_up(&offer.shield);
    int rc = make_offer(op, iov);
    if (rc != 0) {
        shield_down(&offer.shield);
        atomic_store_explicit(&op->conn->zcopy.pause_left, 1,
                              memory_order_relaxed); /* copying returns the error */
        return 0;
    }
    offer.progress_ns = offer.polled_ns = via_os_now_ns();
    rc = wait_for_end(op, &offer);
    if (rc == 0) {
        via_stream_tx_avail_end(&op->side->tx);
    }
    shield_down(&offer.shield);
    *ret_interrupted = offer.handled || via_signals_has_handled();
    if (rc < 0) {
        return -ECONNRESET;
    }
    choose_pause(&op->conn->zcopy, &offer);
    if (via_unlikely(trial->begin_ticks != 0) && !offer.revoked && offer.done == piece_bytes(iov)) {
        via_zcopy_note_duration((size_t)offer.done, true, via_os_ticks() - trial->begin_ticks);
    }
    op->conn->stats->tx_pipe_bytes += offer.done;
    op->conn->stats->tx_fetched_bytes += offer.done;
    via_iov_skip(iov, (size_t)offer.done);
    return (ssize_t)offer.done;
}
