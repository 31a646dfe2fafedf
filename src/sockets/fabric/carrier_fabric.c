/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The carrier between two hosts: see fabric.h. */
#include <errno.h>

#include "base/mutant.h"
#include "sockets/conn/demote.h"
#include "sockets/fabric/fabric.h"
#include "sockets/io/io_internal.h"

/* --- getting to pipes ------------------------------------------------------------------------ */

static int find_offer(struct via_op *op)
{
    int rc = via_fabric_take(op->conn);
    if (rc == -EAGAIN && via_conn_has_waited_enough(op->conn)) {
        return VIA_REASON_PEER;
    }
    if (rc == 0 || rc == -EAGAIN) {
        return rc;
    }
    /* -EACCES: the acceptor, which made the offer, has closed meanwhile. */
    return rc == -ECANCELED                    ? VIA_REASON_DEMOTED
           : rc == -ESHUTDOWN || rc == -EACCES ? VIA_REASON_SHORT
                                               : VIA_REASON_FABRIC;
}

/* Never called: find_offer() takes the offer. */
static int take_offer(struct via_op *op)
{
    (void)op;
    return VIA_REASON_FABRIC;
}

static int make_offer(struct via_op *op)
{
    return (int)via_fabric_offer(op->conn);
}

/* A direction that has ended before there were pipes never uses them: announces this to the peer,
 * which would otherwise wait for SWITCH. */
static void announce_kernel_end(struct via_conn *conn)
{
    struct via_side *side = conn->side;
    bool exclusive = via_is_alone() && side->forked == 0;
    if (side->tx_shut && via_token_take(&side->tx_token, exclusive, via_os_thread()) == 0) {
        side->tx.ended = true;
        side->sent_flags |= VIA_FLAG_TAKEN | VIA_FLAG_KERNEL_END;
        (void)!via_fabric_send_flags(conn, side->sent_flags, true);
        via_token_give(&side->tx_token);
    }
}

/* --- carrying -------------------------------------------------------------------------------- */

/* Frames are slower than the kernel's FIN. So the end is always announced in the pipe, too, or by
 * KERNEL_END that the pipe will never be used. A reader that gets the FIN then knows whether frames
 * follow. */
static int switch_before_fin(struct via_conn *conn, int fd, bool wait)
{
    struct via_carrier_undo undo;
    uint64_t sent;
    int rc = 0;
    if (conn->side->tx.span != VIA_SPAN_KERNEL || conn->side->tx.ended) {
        return 0;
    }
    if (!via_conn_tx_is_switch_allowed(conn)) {
        via_fabric_forbid_switch(conn);
    } else if (via_kernel_sent(fd, conn->side->connector, &sent) == 0) {
        via_fabric_tx_begin(conn, &undo);
        if (via_stream_tx_switch(&conn->side->tx, sent) == 0) {
            rc = via_fabric_tx_end(conn, &undo, wait);
        } else if (!VIA_MUTANT(CONN_UNANNOUNCED_END)) {
            /* No room, after a stall: no further pipe span begins. */
            conn->side->sent_flags |= VIA_FLAG_TAKEN | VIA_FLAG_KERNEL_END;
            rc = via_fabric_send_flags(conn, conn->side->sent_flags, wait);
        }
    }
    return wait || rc != -EAGAIN ? 0 : -EAGAIN;
}

static int send_fin(struct via_conn *conn, int fd, uint8_t flags, bool wait)
{
    struct via_carrier_undo undo;
    int rc = 0;
    if (switch_before_fin(conn, fd, wait) != 0) {
        return -EAGAIN;
    }
    via_fabric_tx_begin(conn, &undo);
    if (via_stream_tx_fin(&conn->side->tx, flags) == 0) {
        rc = via_fabric_tx_end(conn, &undo, wait);
        conn->side->tx.ended = wait || rc != -EAGAIN || !via_fabric_has_peer(conn);
    }
    return conn->side->tx.ended ? 0 : -EAGAIN;
}

static bool is_over(struct via_conn *conn, int fd)
{
    (void)fd;
    return via_fabric_is_over(conn);
}

static int gather(struct via_conn *conn)
{
    via_conn_tx_is_switch_allowed(conn); /* opens the peer's segment if it is known by now */
    /* OFFERED: another thread is checking whether the offer is taken. */
    return via_conn_is_in(conn, VIA_PHASES_OFFERED) ? -EAGAIN : via_fabric_gather(conn);
}

const struct via_carrier via_carrier_fabric = {
    .find_offer = find_offer,
    .take_offer = take_offer,
    .make_offer = make_offer,
    .announce_taken = announce_kernel_end,
    .is_taken = via_fabric_is_taken,
    .decline = via_fabric_decline,
    .tx_begin = via_fabric_tx_begin,
    .tx_end = via_fabric_tx_end,
    .tx_request_room = via_fabric_tx_request_room,
    .has_path_room = via_fabric_has_path_room,
    .rx_begin = via_fabric_rx_begin,
    .rx_end = via_fabric_rx_end,
    .send_flags = via_fabric_send_flags,
    .send_fin = send_fin,
    .has_arrived = via_fabric_has_arrived,
    .is_cut_off = via_fabric_is_cut_off,
    .announce_close = via_conn_begin_parting,
    .is_over = is_over,
    .is_follow_possible = via_fabric_is_follow_possible,
    .is_switch_allowed = via_fabric_is_switch_allowed,
    .stop_following = via_fabric_stop_following,
    .end_of = via_fabric_end_of,
    .is_given_up = via_fabric_is_given_up,
    .leave_begin = via_fabric_leave_begin,
    .gather = gather,
};
