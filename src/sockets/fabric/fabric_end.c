/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* How connections between hosts end: bytes that may follow the kernel's FIN, and bytes that were
 * unread when the peer died. */
#include <errno.h>
#include <poll.h>

#include "base/mutant.h"
#include "host/client.h"
#include "sockets/fabric/fabric_internal.h"

/* How long frames with the rest of the stream may arrive after the kernel's FIN. */
#define FOLLOW_NS (2 * VIA_SEC_NS)
#define FOLLOW_POLL_NS (2 * VIA_MSEC_NS)
/* That time does not run while the peer's host is unreachable, for at most this long. */
#define FOLLOW_CUT_OFF_NS (10 * VIA_SEC_NS)
/* If bytes are missing after this time, this end requests from the peer's host how many records
 * the peer had sent. */
#define REQUEST_NS (FOLLOW_NS / 4)
#define UNPROVEN_POLL_NS (10 * VIA_MSEC_NS)

/* With one of these flags nothing follows in the pipe, and unread bytes are not lost. */
#define ANNOUNCED (VIA_FLAG_CLOSED | VIA_FLAG_DEMOTE | VIA_FLAG_KERNEL_END | VIA_FLAG_STAYS)

static _Atomic unsigned following; /* connections that wait for the rest of the stream */

/* True if the connection, or this process's daemon, has failed. Makes no request to the daemon. */
static bool is_lost(struct via_fabric *fabric)
{
    struct via_attach *attach = via_fabric_attached();
    return atomic_load_explicit(&fabric->error, memory_order_relaxed) != 0 ||
           (attach != NULL && via_attach_poll(attach) < 0);
}

bool via_fabric_is_over(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    struct via_remote *probe = NULL;
    if (is_lost(fabric) || !via_fabric_is_put_possible(fabric)) {
        return atomic_load_explicit(&fabric->error, memory_order_relaxed) != 0;
    }
    /* A segment is removed when the process that made it ends. So opening it once more shows
     * whether that process lives. */
    int rc =
        via_remote_open(fabric->attach, fabric->host, fabric->remote_handle, fabric->bytes, &probe);
    if (rc == 0) {
        via_remote_close(probe);
    }
    return rc == -EACCES || rc == -ENOENT || rc == -ECONNRESET;
}

/* For an acceptor that does not know the connector's segment yet: true if the connector's mailbox
 * was removed, because the connector has ended. */
static bool is_mailbox_gone(struct via_fabric *fabric)
{
    struct via_attach *attach = via_fabric_attached();
    struct via_remote *box = NULL;
    if (attach != NULL && fabric->remote == NULL && fabric->note.mailbox_bytes != 0) {
        box = via_fabric_mailbox_get(attach, &fabric->note);
    }
    bool gone = box != NULL && via_client_remote_is_gone(box);
    via_fabric_mailbox_put(box);
    return gone;
}

/* Reads a word of the peer's own memory: mapped, or by a request to the peer's host. 0; -EAGAIN:
 * not known yet; or another error: it can not be read any more. */
static int read_peer_word(struct via_fabric *fabric, size_t off, struct via_client_word *request,
                          uint64_t *ret_word)
{
    const unsigned char *direct = via_remote_direct(fabric->remote);
    if (direct == NULL) {
        int rc = via_client_remote_word(fabric->remote, off, request, ret_word);
        if (!via_client_is_given_up(rc)) {
            return rc;
        }
        /* Repeats the request: the peer's host may be reachable again. */
        *request = (struct via_client_word){.attach = NULL};
        return -EAGAIN;
    }
    *ret_word = atomic_load_explicit((const _Atomic uint64_t *)(const void *)(direct + off),
                                     memory_order_relaxed);
    return 0;
}

/* 1: records of the peer are under way, or lost; 0: none are; or an error of read_peer_word(). */
static int is_more_sent(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    /* An end in LEAVING has stopped reading, and may return to its pipe. */
    const struct via_side *side = conn->side;
    const struct via_pipe_reader *pipe =
        via_side_is_in(side, VIA_PHASES_LEAVING) ? &side->rx_left.pipe : &side->rx.pipe;
    uint64_t sent;
    int rc = via_fabric_is_put_possible(fabric)
                 ? read_peer_word(fabric, VIA_SEGMENT_SENT_OFF, &fabric->sent, &sent)
                 : -ENOTCONN;
    if (rc != 0) {
        return rc;
    }
    uint32_t at = pipe->sequence;
    while ((int32_t)((uint32_t)sent - at) > 0 && via_pipe_is_ready_at(pipe, at)) {
        at++;
    }
    return (int32_t)((uint32_t)sent - at) > 0;
}

/* True if nothing of the peer is under way any more: the peer's process has ended, and its host has
 * delivered all of the process's puts, unless no path led to this host. Or the peer has closed,
 * which it announces after everything else; if it has forked (SHARED), other processes may have put
 * records later. */
static bool has_all_arrived(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    uint64_t flags = via_side_flags(conn->side);
    if ((flags & (VIA_FLAG_SHARED | VIA_FLAG_CLOSED)) != 0) {
        return (flags & VIA_FLAG_SHARED) == 0;
    }
    if (!via_fabric_is_put_possible(fabric)) {
        return is_mailbox_gone(fabric);
    }
    int more = via_client_remote_is_gone(fabric->remote) ? is_more_sent(conn) : 1;
    return more != 1 && more != -EAGAIN;
}

static void follow(struct via_fabric *fabric)
{
    if (!fabric->follows) {
        fabric->follows = true;
        atomic_fetch_add_explicit(&following, 1, memory_order_relaxed);
    }
}

/* The kernel has reported the end: true while the rest of the stream has time to arrive. A peer
 * that has closed refuses this end's credits (fabric->error), while its earlier bytes may still be
 * under way. So only the end of this process's own daemon ends the wait early. */
static bool has_time(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    struct via_attach *attach = via_fabric_attached();
    uint64_t now = via_os_now_ns();
    /* A cancelled put is noted first: later checks would take its failure for the peer's end. */
    (void)via_fabric_is_given_up(conn);
    if (fabric->fin_ns == 0) {
        fabric->fin_ns = now;
        fabric->fin_first_ns = now;
    }
    if (now - fabric->fin_first_ns < FOLLOW_CUT_OFF_NS && via_fabric_is_cut_off(conn)) {
        fabric->fin_ns = now;
    }
    bool host_is_lost = attach != NULL && via_attach_poll(attach) < 0;
    return now - fabric->fin_ns < FOLLOW_NS && !host_is_lost;
}

/* True if bytes are missing although nothing follows any more: a put was cancelled because this
 * host was unreachable. Otherwise all sent bytes, or the end of the pipe span, have arrived. */
static bool is_cut_short(struct via_conn *conn)
{
    uint64_t flags = via_side_flags(conn->side);
    if ((flags & ANNOUNCED & ~VIA_FLAG_CLOSED) != 0 || conn->side->rx.ended) {
        return false;
    }
    int more = is_more_sent(conn);
    return more == 1 || (more < 0 && (flags & VIA_FLAG_CLOSED) != 0 &&
                         (flags & VIA_FLAG_SHARED) != 0 && conn->side->rx.span == VIA_SPAN_PIPE);
}

bool via_fabric_is_follow_possible(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    bool may = has_time(conn) && !VIA_MUTANT(CONN_EARLY_END);
    bool all_is_there = fabric->all_is_there;
    /* If it has just become true, the caller reads the pipe once more: the next call returns
     * false. */
    fabric->all_is_there = all_is_there || has_all_arrived(conn);
    if (!may || conn->side->rx.ended || all_is_there) {
        if (!may && fabric->end != VIA_CARRIER_END_RESET && is_cut_short(conn)) {
            fabric->end = VIA_CARRIER_END_RESET;
        }
        via_fabric_stop_following(conn);
        return false;
    }
    if (via_os_now_ns() - fabric->fin_ns > REQUEST_NS) {
        (void)is_more_sent(conn); /* requested now, so that the answer is here in time */
    }
    follow(fabric);
    return true;
}

bool via_fabric_is_switch_allowed(struct via_conn *conn)
{
    const struct via_fabric *fabric = conn->fabric;
    const struct via_attach *attach = via_fabric_attached();
    struct via_fabric_offer offer;
    uint64_t flags = via_side_flags(conn->side);
    if ((flags & ANNOUNCED) != 0) {
        return false;
    }
    /* Bytes that the peer stores directly arrive before the kernel's FIN. */
    if (attach != NULL && (fabric->way & VIA_STATUS_DIRECT) != 0 &&
        (via_client_status(attach, fabric->host) & VIA_CLIENT_WAY_MASK) == fabric->way) {
        return false;
    }
    if (fabric->slot >= 0 && fabric->slot_attach == attach &&
        via_fabric_read_offer(fabric, &offer) < 0) {
        return false; /* the acceptor has withdrawn the offer, or ended */
    }
    return via_fabric_is_follow_possible(conn);
}

/* --- what was unread ------------------------------------------------------------------------- */

static bool is_unread(const struct via_side *side)
{
    uint64_t sent = atomic_load_explicit(&side->tx.pipe_bytes, memory_order_relaxed);
    return via_stream_tx_is_unread(
        &side->tx, sent - atomic_load_explicit(&side->tx_at_end, memory_order_relaxed));
}

/* Reads how far the peer has read, from the peer's memory into the same place of the mirror.
 * Results as read_peer_word(). */
static int read_peer_position(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    _Atomic uint64_t *mirrored = (void *)(fabric->mirror + VIA_SEGMENT_READ_OFF);
    uint64_t read;
    int rc = read_peer_word(fabric, VIA_SEGMENT_READ_OFF, &fabric->read, &read);
    if (rc == 0) {
        atomic_store_explicit(mirrored, read, memory_order_relaxed);
    }
    return rc;
}

/* True if bytes of the peer can not arrive any more, because its host was unreachable for too
 * long. */
static bool is_rest_lost(struct via_conn *conn)
{
    return via_fabric_is_cut_off(conn) && !conn->fabric->all_is_there && !has_all_arrived(conn);
}

/* True for REQUEST_NS after the first call. A program that makes no call for long gets here only
 * when the time for the rest is over; the answer needs time of its own. */
static bool is_request_recent(struct via_fabric *fabric)
{
    uint64_t now = via_os_now_ns();
    if (fabric->request_ns == 0) {
        fabric->request_ns = now;
    }
    return now - fabric->request_ns < REQUEST_NS;
}

static enum via_carrier_end find_end(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    struct via_side *side = conn->side;
    if ((via_side_flags(side) & ANNOUNCED) != 0 || side->rx.ended) {
        return VIA_CARRIER_END_PLAIN;
    }
    bool may_wait = is_request_recent(fabric);
    may_wait |= has_time(conn);
    if (via_fabric_is_cut_off(conn)) {
        /* The host may be unreachable only for a moment. */
        return may_wait             ? VIA_CARRIER_END_OPEN
               : is_rest_lost(conn) ? VIA_CARRIER_END_RESET
                                    : VIA_CARRIER_END_PLAIN;
    }
    if (!is_unread(side) || !via_fabric_is_put_possible(fabric)) {
        return VIA_CARRIER_END_PLAIN;
    }
    /* `gone` is loaded before the peer's word: a dead peer reads nothing more. */
    bool gone = via_client_remote_is_gone(fabric->remote);
    bool direct = via_remote_direct(fabric->remote) != NULL;
    int rc = gone || direct ? read_peer_position(conn) : -EAGAIN;
    if (rc == 0 && !is_unread(side)) {
        return VIA_CARRIER_END_PLAIN;
    }
    if (rc == -EAGAIN || !gone) {
        return may_wait ? VIA_CARRIER_END_OPEN : VIA_CARRIER_END_PLAIN;
    }
    return rc == 0 ? VIA_CARRIER_END_RESET : VIA_CARRIER_END_PLAIN;
}

enum via_carrier_end via_fabric_end_of(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    if (atomic_load_explicit(&conn->side->lost, memory_order_relaxed) != VIA_LOST_NOT) {
        return VIA_CARRIER_END_RESET;
    }
    if ((atomic_load_explicit(&conn->side->shadow, memory_order_relaxed) & POLLRDHUP) == 0) {
        return VIA_CARRIER_END_PLAIN; /* the kernel has not reported the peer's end */
    }
    if (fabric->end == VIA_CARRIER_END_OPEN) {
        fabric->end = find_end(conn);
        if (fabric->end == VIA_CARRIER_END_OPEN) {
            follow(fabric);
        } else {
            via_fabric_stop_following(conn);
        }
    }
    return (enum via_carrier_end)fabric->end;
}

void via_fabric_forbid_switch(struct via_conn *conn)
{
    struct via_side *side = conn->side;
    bool reported =
        (via_side_flags(side) & VIA_FLAG_DEMOTE) != 0 || via_side_is_in(side, VIA_PHASES_GONE);
    if (!reported && !side->connector && conn->fabric->remote == NULL) {
        /* If this put fails, there is no caller to which to report it. */
        (void)!via_fabric_put_offer(conn, VIA_FABRIC_ENDED);
    }
}

void via_fabric_decline(struct via_conn *conn, uint64_t flag)
{
    struct via_fabric *fabric = conn->fabric;
    struct via_attach *attach = via_fabric_attached();
    struct via_fabric_offer offer;
    struct via_remote *remote;
    if (attach == NULL || fabric->slot < 0 || fabric->slot_attach != attach ||
        via_fabric_read_offer(fabric, &offer) != 0 ||
        via_remote_open(attach, fabric->host, offer.segment, offer.segment_bytes, &remote) != 0) {
        return;
    }
    via_remote_try_put(remote, VIA_SEGMENT_FLAGS_OFF, &flag, sizeof(flag), VIADUCT_PUT_NOTIFY);
    via_remote_close(remote);
}

void via_fabric_stop_following(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    if (fabric->follows) {
        fabric->follows = false;
        atomic_fetch_sub_explicit(&following, 1, memory_order_relaxed);
    }
}

uint64_t via_fabric_sleep_ns_max(void)
{
    uint64_t unproven_ns = via_fabric_take_unproven() ? UNPROVEN_POLL_NS : VIA_NEVER_NS;
    return atomic_load_explicit(&following, memory_order_relaxed) != 0 ? FOLLOW_POLL_NS
                                                                       : unproven_ns;
}
