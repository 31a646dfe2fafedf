/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/conn/demote.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>

#include "base/mutant.h"
#include "sockets/conn/steward.h"
#include "sockets/epoll/epoll_set.h"
#include "sockets/fabric/fabric.h"
#include "sockets/io/io_internal.h"
#include "sockets/process/cancel.h"
#include "sockets/process/real.h"

#define ANSWER_NS (2 * VIA_SEC_NS)
/* How long to wait until the peer has read SWITCH, which begins the pipe span. Until then the peer
 * would read bytes from the kernel before those in the pipe. */
#define ORDER_NS (5 * VIA_SEC_NS)
#define POLL_NS_MIN (50 * VIA_USEC_NS)
#define POLL_NS_MAX (2 * VIA_MSEC_NS)
/* Maximum of polls for the acknowledgement of resent bytes, and for resent bytes to discard. */
#define ARRIVE_POLLS 20u
/* How long a leaving end waits for room in the send buffer while it resends bytes. If the peer does
 * not read, and the socket buffers hold less than the pipe, it resends a part only. */
#define AGAIN_NS (100 * VIA_MSEC_NS)

/* Publishes one more flag. With the tx token. */
static void publish_flag(struct via_conn *conn, uint64_t flag)
{
    conn->side->sent_flags |= VIA_FLAG_TAKEN | flag;
    conn->carrier->send_flags(conn, conn->side->sent_flags, true);
}

/* --- the peer's part ------------------------------------------------------------------------- */

/* Waits, for a limited time, until the peer's kernel has acknowledged all sent bytes. */
static void wait_until_acked(int fd)
{
    int under_way;
    for (unsigned polls = 0; polls < ARRIVE_POLLS; polls++) {
        if (VIA_REAL(ioctl)(fd, SIOCOUTQ, &under_way) != 0 || under_way <= 0) {
            return;
        }
        via_os_pause(POLL_NS_MIN);
    }
}

/* Makes the written bytes available for resending. 0; -EAGAIN: not possible now. If they are lost,
 * resets the connection and returns 0. */
static int gather(struct via_conn *conn, int fd)
{
    int rc = conn->carrier->gather(conn);
    if (rc != 0 && rc != -EAGAIN) {
        via_conn_reset(fd);
        rc = 0;
    }
    return rc;
}

void via_conn_follow_demotion_tx(struct via_conn *conn, int fd)
{
    struct via_side *side = conn->side;
    const void *data;
    uint64_t flags = via_side_flags(side);
    if (!via_side_is_in(side, VIA_PHASES_MAY_FOLLOW) || (flags & VIA_FLAG_DEMOTE) == 0) {
        return;
    }
    if (side->sent_again != VIA_AGAIN_NOTHING) {
        /* Both ends have left, and this end has already resent its bytes: the peer finds DEMOTE in
         * the pipe. */
        bool whole = side->sent_again == VIA_AGAIN_WHOLE;
        via_phase_apply(&side->phase, whole ? VIA_EVENT_FOLLOW : VIA_EVENT_STAY);
        via_phase_apply(&side->phase, VIA_EVENT_REPLAY); /* nothing is left to resend */
        publish_flag(conn, whole ? VIA_FLAG_FOLLOWS : VIA_FLAG_STAYS);
        return;
    }
    via_stream_tx_note_left(&side->tx, VIA_FLAGS_LEFT_RELEASED(flags));
    if (gather(conn, fd) != 0) {
        return; /* a later call tries again */
    }
    via_stream_replay_begin(&side->replay, &side->tx,
                            VIA_MUTANT(CONN_NO_SKIP) ? 0 : VIA_FLAGS_LEFT_SKIP(flags));
    if (via_stream_stall_must_stay(&side->stall, &side->tx) &&
        via_stream_replay_next(&side->replay, &data) != 0) {
        via_phase_apply(&side->phase, VIA_EVENT_STAY);
        publish_flag(conn, VIA_FLAG_STAYS);
        return;
    }
    via_phase_apply(&side->phase, VIA_EVENT_FOLLOW);
    if (via_conn_replay(conn, fd) == 0 && side->replay.sent != 0) {
        wait_until_acked(fd); /* otherwise the next send resends the rest first */
    }
    publish_flag(conn, VIA_FLAG_FOLLOWS);
}

/* The reader's next step (enum via_stream_next), on any carrier. With the rx token. */
static int pipe_next(struct via_op *op)
{
    via_carrier_rx_begin(op->conn);
    int next = via_rx_next(op);
    via_carrier_rx_end(op->conn);
    return next;
}

/* With the rx token: true if the pipe span is read to its end, or its rest could be skipped. */
static bool finish_pipe_span(struct via_op *op)
{
    int next = pipe_next(op);
    if (next != VIA_NEXT_KERNEL && via_stream_rx_skip(&op->side->rx)) {
        next = pipe_next(op);
    }
    return next == VIA_NEXT_KERNEL && !via_pipe_is_ready(&op->side->rx.pipe);
}

/* With both tokens, when the peer is about to leave: returns credit for all bytes read, and answers
 * READY. From then on the peer may resend its bytes through the kernel, and this end discards those
 * before it closes (via_conn_await_leaving). */
static void prepare_for_demotion(struct via_op *op)
{
    struct via_conn *conn = op->conn;
    uint64_t requests = via_side_flags(op->side) & (VIA_FLAG_LEAVING | VIA_FLAG_DEMOTE);
    via_carrier_rx_begin(conn);
    via_rx_next(op);
    via_pipe_post_credit(&op->side->rx.pipe);
    via_carrier_rx_end(conn);
    if (requests == VIA_FLAG_LEAVING && (op->side->sent_flags & VIA_FLAG_READY) == 0) {
        publish_flag(conn, VIA_FLAG_READY);
    }
}

/* True if the TCP connection has ended, or no process holds the other end any more. FIN alone does
 * not distinguish a killed peer from one that has called shutdown(SHUT_WR); the carrier does. */
static bool is_peer_gone(struct via_op *op)
{
    uint32_t seen = via_io_poll_kernel(op);
    return (seen & (POLLHUP | POLLERR)) != 0 ||
           ((seen & POLLRDHUP) != 0 && !VIA_MUTANT(CONN_UNSEEN_DEATH) &&
            op->conn->carrier->is_over(op->conn, op->fd));
}

void via_conn_await_leaving(struct via_op *op)
{
    uint64_t begin_ns = via_os_now_ns();
    while ((op->side->sent_flags & VIA_FLAG_READY) != 0 && via_conn_has_pipes(op->conn) &&
           (via_side_flags(op->side) & (VIA_FLAG_LEAVING | VIA_FLAG_DEMOTE)) == VIA_FLAG_LEAVING &&
           !is_peer_gone(op) && via_os_now_ns() - begin_ns < ANSWER_NS) {
        via_os_pause(POLL_NS_MIN);
    }
}

/* Applies an event after which this end does not use its pipes. */
static void mark_plain(struct via_op *op, enum via_event event, enum via_reason reason)
{
    struct via_conn *conn = op->conn;
    /* A delayed shutdown(SHUT_WR) is due now, unless this end must resend bytes first. */
    if (!via_side_is_in(op->side, VIA_PHASES_REPLAY) || VIA_MUTANT(CONN_EARLY_SHUT)) {
        via_io_shut_now(conn, op->fd);
    }
    conn->side->why = (uint8_t)reason;
    via_phase_apply(&conn->side->phase, event);
    via_conn_note_demoted(conn);
    conn->carrier->stop_following(conn);
}

void via_conn_follow_demotion(struct via_op *op)
{
    struct via_conn *conn = op->conn;
    struct via_side *side = op->side;
    VIA_KEEP_ERRNO;
    if (via_tx_take(op) == 0) {
        via_conn_follow_demotion_tx(conn, op->fd);
        if (via_side_is_in(side, VIA_PHASES_REPLAY)) {
            via_conn_replay(conn, op->fd);
        }
        if (!via_side_is_in(side, VIA_PHASES_REPLAY) && via_rx_take(op) == 0) {
            if (!via_side_is_in(side, VIA_PHASES_FOLLOW)) {
                prepare_for_demotion(op);
            } else if (finish_pipe_span(op)) {
                mark_plain(op, VIA_EVENT_FINISH, VIA_REASON_DEMOTED);
            }
            via_rx_give(op);
        }
        via_tx_give(op);
    }
}

/* --- the end that starts the demotion -------------------------------------------------------- */

/* Between hosts, waits for the peer's last records. Frames are slower than the kernel's FIN: when
 * the kernel has reported FIN, earlier frames may still be under way. */
static void wait_for_end(struct via_op *op)
{
    struct via_stream_rx *rx = &op->side->rx;
    while (!via_conn_is_local(op->conn) && rx->span == VIA_SPAN_PIPE &&
           (via_io_poll_kernel(op) & VIA_POLL_GONE) != 0 && pipe_next(op) == VIA_NEXT_EMPTY &&
           op->conn->carrier->is_follow_possible(op->conn)) {
        via_os_pause(POLL_NS_MAX);
    }
}

/* Waits, for a limited time, for resent bytes that this end has to discard. */
static void discard_resent(struct via_op *op)
{
    for (unsigned polls = 0; polls < ARRIVE_POLLS && op->side->rx.again != 0; polls++) {
        if (pipe_next(op) == -EAGAIN) {
            via_os_pause(POLL_NS_MIN);
        }
    }
}

static bool is_unread(struct via_op *op, int next)
{
    return next == VIA_NEXT_DATA || next == VIA_NEXT_AVAIL ||
           (next == VIA_NEXT_KERNEL_UNTIL && via_pipe_is_ready(&op->side->rx.pipe));
}

/* Waits for the peer's last records. True if this end may leave: it has read all bytes of the pipe,
 * or the peer can resend the others. */
static bool prepare_leave(struct via_op *op)
{
    struct via_stream_rx *rx = &op->side->rx;
    wait_for_end(op);
    discard_resent(op);
    int next = pipe_next(op);
    /* A peer that has left resends nothing more, but may have resent its bytes when it left. */
    bool left = via_side_is_in(op->side, VIA_PHASES_FOLLOW | VIA_PHASE_BIT(STAYS));
    if (is_unread(op, next) && left && via_stream_rx_skip(rx)) {
        next = pipe_next(op);
    }
    if (!is_unread(op, next)) {
        if (next == VIA_NEXT_EMPTY && is_peer_gone(op)) {
            via_io_drop(op, UINT64_MAX); /* the peer died while it resent what was read here */
        }
        return next > 0;
    }
    return (!left || VIA_MUTANT(CONN_BOTH_LEFT)) && !via_stream_rx_is_ending(rx) &&
           !is_peer_gone(op);
}

int via_conn_end_pipe_span(struct via_op *op, bool whole)
{
    struct via_conn *conn = op->conn;
    struct via_stream_tx *tx = &op->side->tx;
    uint64_t again = op->side->again;
    struct via_carrier_undo undo;
    if (tx->span != VIA_SPAN_PIPE || tx->ended) {
        return 0;
    }
    via_carrier_tx_begin(conn, &undo);
    int rc = via_stream_tx_demote_again(tx, again, whole);
    return rc == 0 ? via_carrier_tx_end(conn, &undo, true) : rc;
}

/* With the tx token: resends, through the kernel, the bytes that the peer may not have read. The
 * peer gets them even if it stays with the pipes. Returns their number; *ret_whole: true if they
 * are all unread bytes. */
static uint64_t resend_unread(struct via_op *op, bool *ret_whole)
{
    struct via_conn *conn = op->conn;
    struct via_stream_tx *tx = &op->side->tx;
    struct via_stream_replay *replay = &op->side->replay;
    unsigned char *direct = tx->pipe.target.direct;
    const void *data;
    /* Resends nothing to a peer that has closed: its kernel would answer these bytes by RST. */
    uint64_t flags = via_side_flags(op->side);
    bool ready =
        (flags & VIA_FLAG_READY) != 0 && !op->side->leave_failed && via_stream_tx_has_begun(tx);
    bool gathered = (flags & VIA_FLAG_CLOSED) == 0 && conn->carrier->gather(conn) == 0;
    *ret_whole = false;
    if (gathered) {
        via_stream_replay_begin(replay, tx, 0);
        tx->span = VIA_SPAN_PIPE;
        *ret_whole = ready ? via_conn_replay_all(conn, op->fd, AGAIN_NS) == 0
                           : via_stream_replay_next(replay, &data) == 0;
    }
    tx->pipe.target.direct = direct;
    if (gathered && replay->sent != 0) {
        wait_until_acked(op->fd);
        return replay->sent;
    }
    return 0;
}

/* With the tx token: ends the pipe span of this end permanently. */
static int end_tx_span(struct via_op *op)
{
    struct via_side *side = op->side;
    bool whole = false;
    if (side->tx.span != VIA_SPAN_PIPE || side->tx.ended) {
        return 0;
    }
    /* Otherwise an earlier attempt has resent the bytes, but found no room for DEMOTE. */
    if (side->again == 0) {
        side->again = resend_unread(op, &whole);
    }
    side->sent_again = whole              ? VIA_AGAIN_WHOLE
                       : side->again != 0 ? VIA_AGAIN_PART
                                          : VIA_AGAIN_NOTHING;
    return via_conn_end_pipe_span(op, whole);
}

/* With both tokens: ends this end's use of its pipes. */
static int leave(struct via_op *op, enum via_reason reason)
{
    struct via_conn *conn = op->conn;
    struct via_side *side = op->side;
    if (!via_conn_has_pipes(conn)) {
        return 0; /* another thread was first */
    }
    if (!prepare_leave(op)) {
        return -EPIPE;
    }
    if (side->tx.span == VIA_SPAN_KERNEL && !side->tx.ended) {
        /* Writes SWITCH first: a DEMOTE record can only end a pipe span. */
        via_io_try_switch(op);
    }
    int rc = end_tx_span(op);
    if (rc != 0) {
        return rc;
    }
    side->rx_left = side->rx;
    uint32_t skip = via_stream_rx_leave(&side->rx);
    mark_plain(op, VIA_EVENT_LEAVE, reason);
    side->sent_flags &= ~(uint64_t)VIA_FLAG_LEAVING;
    publish_flag(conn, VIA_FLAG_DEMOTE | via_flags_left(side->rx.pipe.released, skip));
    return 0;
}

/* True if the peer is a connector without pipes yet. It loads the flags before it uses pipes. */
static bool peer_has_no_pipes(const struct via_conn *conn)
{
    return via_conn_is_local(conn) && !conn->side->connector &&
           (via_side_flags(conn->side) & VIA_FLAG_TAKEN) == 0;
}

/* True if the peer has read the SWITCH, so that this end may send through the kernel again. */
static bool is_kernel_allowed(const struct via_stream_tx *tx)
{
    return tx->ended || via_stream_tx_is_demoted(tx);
}

/* True if the peer has left, too, and has resent the bytes that this end had not read. *ret_read:
 * how many of the resent bytes this end had read in the pipe. */
static bool is_resent(const struct via_side *side, uint64_t *ret_read)
{
    struct via_stream_rx left = side->rx_left;
    left.probe = true;
    bool again = via_side_is_in(side, VIA_PHASES_LEAVING) && via_stream_rx_skip(&left);
    *ret_read = again ? left.again : 0;
    return again;
}

static bool is_answered(struct via_op *op)
{
    uint64_t flags = via_side_flags(op->side);
    uint64_t read;
    if ((flags & (VIA_FLAG_CLOSED | VIA_FLAG_STAYS)) != 0 || peer_has_no_pipes(op->conn) ||
        VIA_MUTANT(CONN_EARLY_LEAVER) ||
        ((flags & VIA_FLAG_DEMOTE) != 0 && is_resent(op->side, &read))) {
        return true;
    }
    /* A peer that has left, too, does not read the pipe, so it need not have read the SWITCH. */
    return (flags & VIA_FLAG_FOLLOWS) != 0 &&
           ((flags & VIA_FLAG_DEMOTE) != 0 || is_kernel_allowed(&op->side->tx));
}

/* Answers a peer that leaves at the same time, and therefore waits for this end's answer, too. */
static void follow_peer_demotion(struct via_op *op)
{
    struct via_side *side = op->side;
    if ((via_side_flags(side) & VIA_FLAG_DEMOTE) != 0 && via_tx_take(op) == 0) {
        via_conn_follow_demotion_tx(op->conn, op->fd);
        if (via_side_is_in(side, VIA_PHASES_REPLAY)) {
            via_conn_replay_all(op->conn, op->fd, VIA_SEC_NS);
        }
        via_tx_give(op);
    }
}

/* Answers the peer if it belongs to this process: this thread may be the only one that can. */
static bool follow_demotion_here(struct via_op *op, const void *unused)
{
    (void)unused;
    if (atomic_load_explicit(&op->conn->attached, memory_order_acquire) &&
        via_side_is_in(op->side, VIA_PHASES_GONE & VIA_PHASES_MAY_FOLLOW)) {
        follow_peer_demotion(op);
    } else if (via_conn_has_demotion_request(op->conn)) {
        via_conn_follow_demotion(op);
    }
    return false;
}

static void resend_flags(struct via_op *op)
{
    if (!via_conn_is_local(op->conn) && via_tx_take(op) == 0) {
        via_fabric_resend_flags(op->conn);
        via_tx_give(op);
    }
}

/* begin_ns: when this demotion, perhaps of several connections, began. 0 or -ETIMEDOUT. */
static int wait_for_answer(struct via_op *op, uint64_t begin_ns)
{
    uint64_t pause_ns = POLL_NS_MIN;
    while (!is_answered(op)) {
        /* Between hosts the peer's answer may still be under way: FIN is faster than frames. */
        if (is_peer_gone(op) && (via_conn_is_local(op->conn) || VIA_MUTANT(CONN_EARLY_GONE) ||
                                 !op->conn->carrier->is_follow_possible(op->conn))) {
            return 0; /* no answer will come */
        }
        uint64_t most_ns = is_kernel_allowed(&op->side->tx) ? ANSWER_NS : ORDER_NS;
        if (via_os_now_ns() - begin_ns > most_ns) {
            return -ETIMEDOUT;
        }
        follow_peer_demotion(op);
        resend_flags(op);
        via_op_each(follow_demotion_here, NULL);
        via_os_pause(pause_ns);
        pause_ns = via_min(2 * pause_ns, POLL_NS_MAX);
    }
    return 0;
}

/* True if this end may resend unread bytes of the pipe through the kernel, or there are none.
 * *ret_most_ns: how long to wait for that. */
static bool is_ready(struct via_op *op, uint64_t *ret_most_ns)
{
    struct via_stream_tx *tx = &op->side->tx;
    bool ready = true;
    if (via_conn_has_pipes(op->conn) && via_tx_take(op) == 0) {
        *ret_most_ns = via_stream_tx_has_begun(tx) ? ANSWER_NS : ORDER_NS;
        ready = tx->span != VIA_SPAN_PIPE || tx->ended || op->side->leave_failed ||
                via_pipe_writer_outstanding(&tx->pipe) == 0 ||
                (via_side_flags(op->side) & VIA_FLAG_READY) != 0;
        via_tx_give(op);
    }
    return ready;
}

void via_conn_demote_announce(struct via_op *op)
{
    uint64_t most_ns;
    if (!is_ready(op, &most_ns) && via_tx_take(op) == 0) {
        if ((op->side->sent_flags & VIA_FLAG_LEAVING) == 0 && via_conn_has_pipes(op->conn)) {
            publish_flag(op->conn, VIA_FLAG_LEAVING);
        }
        via_tx_give(op);
    }
}

/* Before the peer is ready this end resends nothing: the peer would read resent bytes before
 * earlier ones in the pipe, or close with unread bytes, which causes RST. */
static void wait_until_ready(struct via_op *op, uint64_t begin_ns)
{
    uint64_t pause_ns = POLL_NS_MIN;
    uint64_t most_ns;
    while (!is_ready(op, &most_ns) && via_os_now_ns() - begin_ns < most_ns &&
           (via_side_flags(op->side) & (VIA_FLAG_CLOSED | VIA_FLAG_STAYS)) == 0 &&
           !is_peer_gone(op)) {
        if (via_conn_has_demotion_request(op->conn)) {
            via_conn_follow_demotion(op);
        }
        /* Another thread may have made the pipes, or written to them, since the first check. */
        via_conn_demote_announce(op);
        resend_flags(op);
        via_op_each(follow_demotion_here, NULL);
        via_os_pause(pause_ns);
        pause_ns = via_min(2 * pause_ns, POLL_NS_MAX);
    }
}

static int leave_pipes(struct via_op *op, enum via_reason reason)
{
    struct via_side *side = op->side;
    int rc = via_tx_take(op);
    if (rc != 0) {
        return rc;
    }
    rc = via_rx_take(op);
    if (rc == 0) {
        rc = leave(op, reason);
        via_rx_give(op);
    }
    if (rc != 0 && (side->sent_flags & VIA_FLAG_LEAVING) != 0) {
        /* This end stays: a READY that the peer has sent no longer holds. */
        side->sent_flags &= ~(uint64_t)VIA_FLAG_LEAVING;
        side->leave_failed = true;
        publish_flag(op->conn, 0);
    }
    via_tx_give(op);
    return rc;
}

/* Makes an undecided end plain: it will never have pipes. False: another thread is still setting up
 * pipes after ANSWER_NS. */
static bool settle(struct via_conn *conn, enum via_reason reason, uint64_t begin_ns)
{
    if (via_conn_is_in(conn, VIA_PHASE_BIT(PENDING))) {
        conn->carrier->decline(conn, VIA_FLAG_KERNEL_END);
    }
    while (via_conn_is_undecided(conn) && !via_conn_try_settle_plain(conn, reason)) {
        if (via_os_now_ns() - begin_ns > ANSWER_NS) {
            return false;
        }
        via_os_pause(POLL_NS_MIN);
    }
    return true;
}

int via_conn_demote_begin(struct via_op *op, enum via_reason reason, uint64_t begin_ns)
{
    struct via_conn *conn = op->conn;
    int rc = 0;
    if (!settle(conn, reason, begin_ns)) {
        return -EAGAIN;
    }
    if (via_conn_has_pipes(conn)) {
        wait_until_ready(op, begin_ns);
        via_io_update_registrations(op); /* the peer may have left meanwhile */
    }
    if (!via_conn_has_pipes(conn)) {
        return 0;
    }
    rc = conn->carrier->leave_begin(conn);
    if (rc > 0) {
        mark_plain(op, VIA_EVENT_WITHDRAW, reason); /* no peer to wait for */
    }
    rc = rc == 0 ? leave_pipes(op, reason) : via_min(rc, 0);
    if (rc == 0) {
        /* A thread that waits for the pipe must wait for the kernel instead. */
        via_ep_conn_changed(conn);
        if (conn->bell >= 0) {
            via_sock_bell_ring((unsigned)conn->bell);
        }
    }
    return rc;
}

/* With the rx token, after the peer has ended and resent nothing: true if the pipe contains bytes
 * that this end has not read. Between hosts waits for records that are under way. */
static bool find_left_bytes(struct via_op *op)
{
    struct via_stream_rx *left = &op->side->rx_left;
    uint64_t read;
    if (is_resent(op->side, &read)) {
        return false;
    }
    bool follow = !via_conn_is_local(op->conn);
    for (;;) {
        if (via_stream_rx_has_left_bytes(left)) {
            return true;
        }
        /* The peer's state arrives after its records. */
        if (!follow || (via_side_flags(op->side) & VIA_FLAG_STAYS) != 0 ||
            via_stream_rx_is_ending(left) || !op->conn->carrier->is_follow_possible(op->conn)) {
            break;
        }
        via_os_pause(POLL_NS_MAX);
    }
    if (follow) {
        op->conn->carrier->stop_following(op->conn);
    }
    return false;
}

/* With both tokens, when the peer has ended without an answer. If it ended before it saw the
 * request, it has resent nothing, and the pipe may contain unread bytes: then this end reads its
 * pipe again (true). It still writes to the kernel, and publishes KERNEL_END for a peer on another
 * host, which would otherwise wait for records after FIN. */
static bool return_to_pipe(struct via_op *op)
{
    struct via_side *side = op->side;
    uint64_t flags = via_side_flags(side);
    uint64_t read;
    bool leaves = via_side_is_in(side, VIA_PHASES_LEAVING);
    if (leaves && find_left_bytes(op)) {
        side->rx = side->rx_left;
        via_phase_apply(&side->phase, VIA_EVENT_TAKE_BACK);
        op->conn->stats->demoted = false;
        op->conn->stats->reason = VIA_REASON_NONE;
        side->sent_flags &= ~(VIA_FLAG_DEMOTE | VIA_FLAGS_LEFT_MASK);
        publish_flag(op->conn, side->tx.ended ? 0 : VIA_FLAG_KERNEL_END);
        return true;
    }
    if (leaves && (flags & (VIA_FLAG_CLOSED | VIA_FLAG_STAYS)) == 0 &&
        side->rx_left.span == VIA_SPAN_PIPE && !is_resent(side, &read)) {
        via_io_drop(op, UINT64_MAX); /* the peer was killed while it resent those bytes */
    }
    return false;
}

/* 0, or -EPIPE if this end has returned to its pipe. No token is held. */
static int finish_at_end(struct via_op *op)
{
    uint64_t flags = via_side_flags(op->side);
    bool over = (flags & (VIA_FLAG_CLOSED | VIA_FLAG_STAYS)) != 0 || is_peer_gone(op);
    bool back = false;
    if ((flags & VIA_FLAG_FOLLOWS) != 0 || !over || via_tx_take(op) != 0) {
        return 0;
    }
    if (via_rx_take(op) == 0) {
        back = return_to_pipe(op);
        via_rx_give(op);
    }
    via_tx_give(op);
    if (back) {
        via_ep_conn_changed(op->conn);
    }
    return back ? -EPIPE : 0;
}

/* Discards those of the peer's resent bytes that this end had already read in the pipe, unless
 * another thread has done so. 0, or -EAGAIN: a signal handler has interrupted a call that receives.
 */
static int discard_read(struct via_op *op)
{
    uint64_t read = 0;
    if (via_rx_take(op) != 0) {
        return -EAGAIN;
    }
    if (via_side_is_in(op->side, VIA_PHASES_LEAVING)) {
        is_resent(op->side, &read);
        for (unsigned polls = 0; read != 0 && polls < ARRIVE_POLLS; polls++) {
            bool gone = (via_io_poll_kernel(op) & VIA_POLL_GONE) != 0;
            read -= via_io_drop(op, read);
            if (read == 0 || gone) {
                break;
            }
            via_os_pause(POLL_NS_MIN);
        }
        via_phase_apply(&op->side->phase, VIA_EVENT_ANSWER);
    }
    via_rx_give(op);
    return 0;
}

/* Resends bytes to a peer that had left before. If the send buffer has no room for all, the steward
 * resends the rest, because the program may make no further send. */
static void finish_replay(struct via_op *op)
{
    if (!via_side_is_in(op->side, VIA_PHASES_REPLAY) || VIA_MUTANT(CONN_UNSENT) ||
        via_tx_take(op) != 0) {
        return;
    }
    bool kept = false;
    if (via_conn_replay(op->conn, op->fd) == -EAGAIN) {
        kept = via_steward_keep_conn(op->conn, op->fd);
        if (!kept) {
            via_conn_replay_all(op->conn, op->fd, VIA_SEC_NS);
        }
    }
    via_tx_give(op);
    if (kept) {
        via_steward_start(false);
        op->exclusive = false; /* the steward takes tokens, too */
    }
}

int via_conn_demote_finish(struct via_op *op, uint64_t begin_ns)
{
    int rc = 0;
    if (!atomic_load_explicit(&op->conn->attached, memory_order_acquire)) {
        return 0;
    }
    if (via_side_is_in(op->side, VIA_PHASES_LEAVING)) {
        rc = wait_for_answer(op, begin_ns);
        follow_peer_demotion(op); /* a peer that has left at the same time waits, too */
        rc = rc == 0 ? finish_at_end(op) : rc;
    }
    if (via_side_is_in(op->side, VIA_PHASES_LEAVING)) {
        int discarded = discard_read(op);
        rc = discarded != 0 ? discarded : rc;
    }
    finish_replay(op);
    return rc;
}

int via_conn_join_demotion(struct via_op *op)
{
    VIA_CANCEL_NEVER;
    VIA_KEEP_ERRNO;
    int rc = -EAGAIN; /* a signal handler has interrupted the demotion */
    if (via_tx_take(op) == 0) {
        via_tx_give(op);
        rc = via_conn_demote_finish(op, via_os_now_ns());
    }
    return rc == -EAGAIN ? rc : 0;
}

int via_conn_demote(struct via_op *op, enum via_reason reason)
{
    VIA_CANCEL_NEVER;
    VIA_KEEP_ERRNO;
    uint64_t begin_ns = via_os_now_ns();
    bool pipes = via_conn_has_pipes(op->conn);
    via_conn_demote_announce(op);
    int rc = via_conn_demote_begin(op, reason, begin_ns);
    if (rc == 0 && (pipes || via_conn_is_leaving(op))) {
        rc = via_conn_demote_finish(op, begin_ns);
        rc = rc == 0 && via_conn_has_pipes(op->conn) ? -EPIPE : rc; /* by another thread */
    }
    return rc;
}

bool via_conn_end_pipes(struct via_op *op, enum via_event event, enum via_reason reason)
{
    bool done = false;
    if (via_tx_take(op) != 0) {
        return false;
    }
    if (via_rx_take(op) == 0) {
        done = true;
        mark_plain(op, event, reason);
        via_rx_give(op);
    }
    via_tx_give(op);
    return done;
}

void via_conn_abandon(struct via_op *op)
{
    struct via_conn *conn = op->conn;
    via_conn_try_settle_plain(conn, VIA_REASON_EPOLL);
    if (via_conn_has_pipes(conn)) {
        conn->dissolved = true;
        if (conn->side->refs <= conn->fds) {
            conn->carrier->announce_close(conn, op->fd);
        }
        conn->dissolved = false;
        via_conn_end_pipes(op, VIA_EVENT_LEAVE, VIA_REASON_EPOLL);
        via_phase_apply(&conn->side->phase, VIA_EVENT_ANSWER);
        via_phase_apply(&conn->side->phase, VIA_EVENT_REPLAY); /* nothing is sent again */
    }
    via_ep_conn_changed(conn);
}
