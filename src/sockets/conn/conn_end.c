/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* How a connection ends: by close(), with its process, or by exec. */
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "sockets/conn/board.h"
#include "sockets/conn/demote.h"
#include "sockets/conn/steward.h"
#include "sockets/epoll/epoll_set.h"
#include "sockets/io/io_internal.h"
#include "sockets/process/lock.h"
#include "sockets/process/real.h"

/* How long close() waits for room in the kernel, or for frames to arrive, before it leaves the rest
 * to the steward. */
#define CLOSE_NS (100 * VIA_MSEC_NS)
/* How long it waits if there is no steward. */
#define PARTING_NS_MAX (4 * VIA_SEC_NS)

/*
 * True if the peer gets RST instead of FIN: the program requested that (SO_LINGER), or this end
 * discards received bytes (RFC 1122, 4.2.2.13). The kernel does not see unread bytes of a pipe, so
 * this function sets SO_LINGER for them.
 */
static bool prepare_reset(struct via_conn *conn, int fd, bool exclusive)
{
    struct via_side *side = conn->side;
    struct linger linger = {.l_onoff = 0};
    socklen_t bytes = sizeof(linger);
    if (via_unlikely(conn->dissolved)) {
        return true;
    }
    if (via_token_take(&side->rx_token, exclusive, via_os_thread()) == 0) {
        int next = via_stream_rx_next(&side->rx);
        int kernel = 0;
        bool unread =
            next == VIA_NEXT_DATA || next == VIA_NEXT_AVAIL ||
            ((next == VIA_NEXT_KERNEL || next == VIA_NEXT_KERNEL_UNTIL || next == VIA_NEXT_AGAIN) &&
             VIA_REAL(ioctl)(fd, SIOCINQ, &kernel) == 0 && kernel > 0 &&
             (uint64_t)kernel > side->rx.again);
        via_token_give(&side->rx_token);
        if (unread) {
            linger = (struct linger){.l_onoff = 1, .l_linger = 0};
            VIA_REAL(setsockopt)(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
            return true;
        }
    }
    return VIA_REAL(getsockopt)(fd, SOL_SOCKET, SO_LINGER, &linger, &bytes) == 0 &&
           linger.l_onoff != 0 && linger.l_linger == 0;
}

/* Announces the end of both directions, before the kernel sends FIN. */
void via_conn_announce_end(struct via_conn *conn, int fd)
{
    struct via_side *side = conn->side;
    bool exclusive = via_is_alone() && side->forked == 0;
    bool reset = prepare_reset(conn, fd, exclusive);
    if (via_token_take(&side->tx_token, exclusive, via_os_thread()) != 0) {
        return;
    }
    /* No FIN after a reset, or when both directions have ended. */
    bool over =
        via_conn_is_local(conn) &&
        (atomic_load_explicit(&side->shadow, memory_order_relaxed) & (POLLHUP | POLLERR)) != 0;
    if (!reset && !over) {
        (void)!conn->carrier->send_fin(conn, fd, VIA_STREAM_FIN_CLOSED, true);
    }
    side->sent_flags |= VIA_FLAG_TAKEN | VIA_FLAG_CLOSED;
    conn->carrier->send_flags(conn, side->sent_flags, true);
    via_token_give(&side->tx_token);
}

/* --- the end between hosts ------------------------------------------------------------------- */

bool via_conn_continue_parting(struct via_conn *conn, int fd)
{
    struct via_side *side = conn->side;
    if (conn->parting == VIA_PARTING_FIN &&
        conn->carrier->send_fin(conn, fd, VIA_STREAM_FIN_CLOSED, false) == 0) {
        conn->parting = VIA_PARTING_ARRIVES;
    }
    if (conn->parting == VIA_PARTING_ARRIVES && conn->carrier->has_arrived(conn)) {
        conn->parting = VIA_PARTING_CLOSED;
    }
    if (conn->parting == VIA_PARTING_CLOSED) {
        side->sent_flags |= VIA_FLAG_TAKEN | VIA_FLAG_CLOSED;
        if (conn->carrier->send_flags(conn, side->sent_flags, false) == 0) {
            conn->parting = VIA_PARTING_CONFIRMED;
        }
    }
    if (conn->parting == VIA_PARTING_CONFIRMED && conn->carrier->has_arrived(conn)) {
        conn->parting = VIA_PARTING_DONE;
    }
    struct via_op op = via_conn_op(conn, fd);
    if (via_io_is_given_up(&op)) {
        conn->parting = VIA_PARTING_DONE; /* and the peer gets no FIN */
    }
    return conn->parting == VIA_PARTING_DONE;
}

/* How long close() waits until everything has arrived: for the program's SO_LINGER time; without
 * SO_LINGER for CLOSE_NS, or not at all if no path leads to the peer's host. */
static uint64_t parting_ns(const struct via_conn *conn, int fd)
{
    struct linger linger = {.l_onoff = 0};
    socklen_t bytes = sizeof(linger);
    if (VIA_REAL(getsockopt)(fd, SOL_SOCKET, SO_LINGER, &linger, &bytes) == 0 &&
        linger.l_onoff != 0 && linger.l_linger > 0) {
        return (uint64_t)linger.l_linger * VIA_SEC_NS;
    }
    return conn->carrier->is_cut_off(conn) ? 0 : CLOSE_NS;
}

/* Frames are slower than the kernel's FIN, which must not arrive before everything else. If bytes
 * do not arrive soon, the steward waits for them (steward.h), with a descriptor that keeps the
 * kernel connection open; without a steward this thread waits. */
void via_conn_begin_parting(struct via_conn *conn, int fd)
{
    struct via_side *side = conn->side;
    bool exclusive = via_is_alone() && side->forked == 0;
    bool reset = prepare_reset(conn, fd, exclusive);
    if (via_token_take(&side->tx_token, exclusive, via_os_thread()) != 0) {
        return;
    }
    uint64_t end_ns = via_os_now_ns() + parting_ns(conn, fd);
    bool kept = false;
    conn->parting = reset ? VIA_PARTING_ARRIVES : VIA_PARTING_FIN;
    for (unsigned tries = 0; !kept && tries < 2 && !via_conn_continue_parting(conn, fd);) {
        /* As in the kernel, a signal ends the lingering; its handler runs after close(). */
        bool interrupted = tries == 0 && via_lock_thread.deferred;
        if (!interrupted && via_os_now_ns() < end_ns) {
            via_os_pause(50000);
            continue;
        }
        kept = tries++ == 0 && via_steward_keep_conn(conn, fd);
        end_ns = via_os_now_ns() + PARTING_NS_MAX;
    }
    via_token_give(&side->tx_token);
    if (kept) {
        via_steward_start(false);
    }
}

static void follow_demotion_at_end(struct via_conn *conn, int fd)
{
    if (!via_conn_has_demotion_request(conn)) {
        return;
    }
    struct via_op op = via_conn_op(conn, fd);
    via_conn_follow_demotion(&op);
    if (atomic_load_explicit(&conn->side->refs, memory_order_relaxed) <= conn->fds) {
        via_conn_await_leaving(&op);
        via_conn_follow_demotion(&op);
    }
}

/* Resends the bytes that must be resent: after this close or exit no holder could do that. */
static void resend_all(struct via_conn *conn, int fd, bool exits)
{
    struct via_op op = via_conn_op(conn, fd);
    if (!via_side_is_in(conn->side, VIA_PHASES_REPLAY) || via_tx_take(&op) != 0) {
        return;
    }
    uint64_t patience_ns = exits ? VIA_REPLAY_EXIT_NS : CLOSE_NS;
    bool left = via_conn_replay_all(conn, fd, patience_ns) == -EAGAIN;
    bool kept = left && !exits && via_steward_keep_conn(conn, fd);
    if (left && !kept) {
        via_conn_reset(fd);
    }
    via_tx_give(&op);
    if (kept) {
        via_steward_start(false);
    }
}

void via_conn_end(struct via_conn *conn, int fd)
{
    follow_demotion_at_end(conn, fd);
    resend_all(conn, fd, true);
    /* Discards bytes that the peer has resent and this end had already read in the pipe: if they
     * stayed unread in the kernel, close() would send RST. */
    follow_demotion_at_end(conn, fd);
}

uint32_t via_conn_uncount(struct via_conn *conn)
{
    uint32_t fds = atomic_load_explicit(&conn->fds, memory_order_relaxed);
    return atomic_fetch_sub_explicit(&conn->side->refs, fds, memory_order_acq_rel) - fds;
}

void via_conn_announce_exit(struct via_conn *conn, int fd)
{
    if (via_conn_uncount(conn) == 0 && via_conn_has_pipes(conn)) {
        /* via_fabric_end() waits until all announcements have arrived. */
        via_conn_announce_end(conn, fd);
    }
}

static void begin_exec(struct via_conn *conn)
{
    if (conn->side->forked != 0) {
        via_conn_uncount(conn);
    }
}

static void fail_exec(struct via_conn *conn)
{
    if (conn->side->forked != 0) {
        atomic_fetch_add_explicit(&conn->side->refs, conn->fds, memory_order_relaxed);
    }
}

bool via_conn_exec_begin(void)
{
    return via_conn_try_each(begin_exec);
}

void via_conn_exec_failed(void)
{
    VIA_KEEP_ERRNO;
    via_conn_each(fail_exec);
}

void via_conn_closing(struct via_conn *conn, int fd)
{
    VIA_KEEP_ERRNO;
    bool last_here = atomic_load_explicit(&conn->fds, memory_order_relaxed) == 1;
    follow_demotion_at_end(conn, fd);
    if (last_here) {
        resend_all(conn, fd, false);
        follow_demotion_at_end(conn, fd); /* as in via_conn_end() */
    }
    if (atomic_fetch_sub_explicit(&conn->side->refs, 1, memory_order_acq_rel) == 1 &&
        via_conn_has_pipes(conn)) {
        conn->carrier->announce_close(conn, fd);
    } else if (conn->side->refs == 0 && via_conn_is_in(conn, VIA_PHASE_BIT(PENDING))) {
        conn->carrier->decline(conn, VIA_FLAG_CLOSED);
    }
    if (last_here) {
        via_ep_conn_closing(conn);
    } else {
        via_ep_conn_fd_closing(conn, fd);
    }
    via_board_forget(fd);
}

void via_conn_closed(struct via_conn *conn)
{
    if (atomic_fetch_sub_explicit(&conn->fds, 1, memory_order_acq_rel) == 1) {
        VIA_KEEP_ERRNO;
        via_file_put_slowly(&conn->file);
    }
}
