/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * shutdown(). TCP's shutdown() never waits. But the kernel's FIN, which must reach the peer last,
 * may overtake frames, and bytes that this end resends to a peer that has left the pipes. After a
 * cable is repaired, a flag that this end stores directly may overtake them, too. A peer that has
 * not read its pipe yet would take the FIN or the flag for the end of the stream. The steward later
 * sends what shutdown() can not send soon. The program sees no difference, because it can not send
 * any more.
 */
#include <errno.h>
#include <sys/socket.h>

#include "sockets/conn/demote.h"
#include "sockets/conn/steward.h"
#include "sockets/epoll/epoll_set.h"
#include "sockets/io/io_internal.h"
#include "sockets/process/real.h"

/* How long to wait for frames to arrive, if there is a path. */
#define SHUT_NS (100 * VIA_MSEC_NS)
/* How long to wait if no thread can send the rest later. */
#define PATIENCE_NS (2 * VIA_SEC_NS)
#define PAUSE_NS (50 * VIA_USEC_NS)

/* With the tx token, after the kernel's shutdown(): announces it to the peer. When both directions
 * are shut down the kernel answers further bytes by RST (RFC 793, 3.5). So the peer must then send
 * through the kernel, whose call returns the right error. 0, or -EAGAIN. */
static int publish_shut(struct via_conn *conn)
{
    struct via_side *side = conn->side;
    uint64_t flags = VIA_FLAG_TAKEN;
    flags |= side->tx_shut != 0 && via_conn_is_local(conn) ? VIA_FLAG_FIN : 0;
    flags |= side->tx_shut != 0 && side->rx_shut != 0 ? VIA_FLAG_CLOSED : 0;
    if (!via_conn_has_pipes(conn) || side->shutting != 0 ||
        (flags & ~side->sent_flags & ~(uint64_t)VIA_FLAG_TAKEN) == 0) {
        return 0;
    }
    side->sent_flags |= flags;
    return conn->carrier->send_flags(conn, side->sent_flags, false);
}

void via_io_shut_now(struct via_conn *conn, int fd)
{
    if (conn->side->shutting != 0) {
        VIA_REAL(shutdown)(fd, SHUT_WR);
        conn->side->shutting = 0;
    }
}

/* With the tx token: sends what must precede the kernel's FIN. True when all of that has
 * arrived. */
static bool send_before_fin(struct via_conn *conn, int fd)
{
    if (via_side_is_in(conn->side, VIA_PHASES_REPLAY) && via_conn_replay(conn, fd) == -EAGAIN) {
        return false;
    }
    if (conn->carrier->send_fin(conn, fd, 0, false) != 0 || !conn->carrier->has_arrived(conn)) {
        return false;
    }
    struct via_op op = via_conn_op(conn, fd);
    (void)via_io_is_given_up(&op); /* after a failed delivery this sends RST, and not FIN */
    return true;
}

bool via_io_continue_shutdown(struct via_conn *conn, int fd)
{
    if (conn->side->shutting != 0 && !send_before_fin(conn, fd)) {
        return false;
    }
    via_io_shut_now(conn, fd);
    return publish_shut(conn) == 0;
}

/* Waits for at most `ns` until everything has arrived; without the token, which other threads may
 * need meanwhile. */
static bool wait_all_arrived(struct via_op *op, uint64_t ns)
{
    uint64_t end_ns = via_os_now_ns() + ns;
    bool gone = false;
    for (;;) {
        if (via_tx_take(op) != 0) {
            return true; /* a signal handler makes this call inside a call that sends */
        }
        gone = send_before_fin(op->conn, op->fd);
        via_tx_give(op);
        if (gone || via_os_now_ns() >= end_ns) {
            return gone;
        }
        via_os_pause(PAUSE_NS);
    }
}

/* Ends this direction in the pipe. True if the kernel may send FIN now. */
static bool end_writing(struct via_op *op)
{
    struct via_side *side = op->side;
    atomic_store_explicit(&side->shutting, 1, memory_order_relaxed);
    atomic_store_explicit(&side->tx_shut, 1, memory_order_relaxed);
    if (via_conn_is_local(op->conn) && (via_io_poll_kernel(op) & (POLLHUP | POLLERR)) != 0) {
        return true; /* after a reset there is no peer to notify */
    }
    bool waits = !via_conn_is_local(op->conn) && !op->conn->carrier->is_cut_off(op->conn);
    if (wait_all_arrived(op, waits ? SHUT_NS : 0) ||
        (via_io_poll_kernel(op) & (POLLHUP | POLLERR)) != 0) {
        return true;
    }
    if (via_steward_keep_conn(op->conn, op->fd)) {
        via_steward_start(false);
        op->exclusive = false; /* the steward takes tokens, too */
        return false;
    }
    if (!wait_all_arrived(op, PATIENCE_NS) && via_side_is_in(side, VIA_PHASES_REPLAY)) {
        via_conn_reset(op->fd); /* after FIN nothing can be resent */
    }
    return true;
}

static void notify_peer(struct via_op *op)
{
    if (via_tx_take(op) == 0) {
        uint64_t before = op->side->sent_flags;
        publish_shut(op->conn);
        bool reported = op->side->sent_flags != before;
        via_tx_give(op);
        if (reported && !via_conn_is_local(op->conn) && !op->conn->carrier->is_cut_off(op->conn)) {
            wait_all_arrived(op, SHUT_NS);
        }
    }
}

void via_io_ring_holders(const struct via_op *op)
{
    if (op->exclusive) {
        return;
    }
    /* Threads that sleep on a connection between hosts watch the bell of their process's attachment
     * to the host. */
    uint64_t bells = via_conn_is_local(op->conn) ? 0 : via_sock_bells_adopted();
    int bell = atomic_load_explicit(&op->conn->bell, memory_order_relaxed);
    for (bells |= bell >= 0 ? VIA_BELL_MASK((unsigned)bell) : 0; bells != 0; bells &= bells - 1) {
        via_sock_bell_ring((unsigned)__builtin_ctzll(bells));
    }
}

int via_io_shutdown(struct via_op *op, int how)
{
    struct via_side *side = op->side;
    int rc = 0;
    if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) {
        return -EINVAL;
    }
    if (how != SHUT_RD && !via_conn_is_local(op->conn) && via_conn_is_undecided(op->conn)) {
        via_conn_poll_meeting(op); /* takes an offer that was made: after it the acceptor expects
                                      the end in the pipe */
    }
    if (how != SHUT_RD && via_conn_has_demotion_request(op->conn)) {
        via_conn_follow_demotion(op);
    }
    /* Counted before the kernel reports the shutdown. epoll sets of other processes that hold this
     * end compare this counter; the ring below wakes them. */
    atomic_fetch_add_explicit(&side->shuts, 1, memory_order_relaxed);
    /* later: an earlier shutdown() is still in progress. reported: the kernel has sent FIN, because
     * another thread has left the pipes meanwhile. */
    bool later = how != SHUT_RD && side->shutting != 0;
    bool reported = false;
    if (how != SHUT_RD && side->tx_shut == 0 &&
        (via_side_is_in(side, VIA_PHASES_REPLAY) || via_conn_has_pipes(op->conn))) {
        later = !end_writing(op);
        reported = !later && side->shutting == 0;
    }
    if (how != SHUT_WR) {
        atomic_store_explicit(&side->rx_shut, 1, memory_order_relaxed);
    }
    if (how != SHUT_RD) {
        atomic_store_explicit(&side->tx_shut, 1, memory_order_relaxed);
    }
    if (!later || how == SHUT_RDWR) {
        /* If this end has announced the shutdown, and the peer has closed since, the kernel returns
         * ENOTCONN. */
        rc = VIA_REAL(shutdown)(op->fd, later ? SHUT_RD : how) == 0 || reported ? 0 : -errno;
    }
    if (!later && how != SHUT_RD) {
        atomic_store_explicit(&side->shutting, 0, memory_order_relaxed);
    }
    /* The kernel wakes sleepers even if it returns an error (inet_shutdown()). */
    via_ep_conn_woken(op->conn);
    via_io_ring_holders(op); /* the shutdown may be what they wait for */
    if (rc == 0) {
        notify_peer(op);
    }
    return rc;
}
