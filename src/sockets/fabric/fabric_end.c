/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* How connections between hosts end: bytes that may still follow the kernel's end, and bytes that
 * were unread when the peer died. */
#include <errno.h>
#include <poll.h>

#include "base/mutant.h"
#include "host/client.h"
#include "sockets/fabric/fabric_internal.h"

/* After the kernel's FIN, frames with the rest of the stream have this long to arrive. */
#define FOLLOW_NS (2 * VIA_SEC_NS)
#define FOLLOW_POLL_NS (2 * VIA_MSEC_NS)
/* ... and the clock stops while the peer's host is cut off, for at most this long. */
#define FOLLOW_CUT_OFF_NS (10 * VIA_SEC_NS)
/* Bytes that have not come by then may be missing. */
#define ASK_NS (FOLLOW_NS / 4)
#define UNPROVEN_POLL_NS (10 * VIA_MSEC_NS)

/* In one of these phases nothing follows by the pipe, and unread bytes are not lost. */
#define SAID (VIA_FLAG_CLOSED | VIA_FLAG_DEMOTE | VIA_FLAG_KERNEL_END | VIA_FLAG_STAYS)

static _Atomic unsigned following; /* connections that wait for the rest */

/* Decided by the state at hand, without a request to the host. */
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
    /* A segment is removed with the process that made it; opening it once more shows whether it is
     * there. */
    int rc =
        via_remote_open(fabric->attach, fabric->host, fabric->remote_handle, fabric->bytes, &probe);
    if (rc == 0) {
        via_remote_close(probe);
    }
    return rc == -EACCES || rc == -ENOENT || rc == -ECONNRESET;
}

/* If only the slot of a connector's offer is known, the connector is gone when that slot's mailbox
 * is gone. */
static bool mailbox_is_gone(struct via_fabric *fabric)
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

/* A word that the peer keeps in its own memory. 0; -EAGAIN: not known yet; or it will never be. */
static int ask_word(struct via_fabric *fabric, size_t off, struct via_client_word *asked,
                    uint64_t *ret_word)
{
    const unsigned char *direct = via_remote_direct(fabric->remote);
    if (direct == NULL) {
        int rc = via_client_remote_word(fabric->remote, off, asked, ret_word);
        if (!via_client_is_given_up(rc)) {
            return rc;
        }
        *asked = (struct via_client_word){.attach = NULL}; /* its host may be reached again */
        return -EAGAIN;
    }
    *ret_word = atomic_load_explicit((const _Atomic uint64_t *)(const void *)(direct + off),
                                     memory_order_relaxed);
    return 0;
}

/* Are records of the peer under way, or lost? 1, 0, or as ask_word(). */
static int is_more_sent(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    /* An end that is leaving reads nothing, and may take its pipe back. */
    const struct via_side *side = conn->side;
    const struct via_pipe_reader *pipe =
        via_side_is_in(side, VIA_PHASES_LEAVING) ? &side->rx_left.pipe : &side->rx.pipe;
    uint64_t sent;
    int rc = via_fabric_is_put_possible(fabric)
                 ? ask_word(fabric, VIA_SEGMENT_SENT_OFF, &fabric->sent, &sent)
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

/* The peer's process has gone, and its host has delivered all its puts, unless no link led to this
 * host. Or the peer has closed, which it announces behind everything else. But other processes that
 * share the connection may have put something, too. */
static bool all_has_arrived(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    uint64_t flags = via_side_flags(conn->side);
    if ((flags & (VIA_FLAG_SHARED | VIA_FLAG_CLOSED)) != 0) {
        return (flags & VIA_FLAG_SHARED) == 0;
    }
    if (!via_fabric_is_put_possible(fabric)) {
        return mailbox_is_gone(fabric);
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

/* The end has been seen, now or before: is there time for the rest? A peer that has closed refuses
 * our credits (fabric->error), while its earlier bytes may still be under way: only our own host's
 * death ends the wait early. */
static bool has_time(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    struct via_attach *attach = via_fabric_attached();
    uint64_t now = via_os_now_ns();
    (void)via_fabric_is_given_up(
        conn); /* before a check of the peer attributes that failure to it */
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

/* Nothing follows by the pipe. But the bytes sent there, or the pipe's end, must have come: bytes
 * that an unreachable host has given up are missing in front of either. */
static bool is_cut_short(struct via_conn *conn)
{
    uint64_t flags = via_side_flags(conn->side);
    if ((flags & SAID & ~VIA_FLAG_CLOSED) != 0 || conn->side->rx.ended) {
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
    fabric->all_is_there = all_is_there || all_has_arrived(conn); /* check once more */
    if (!may || conn->side->rx.ended || all_is_there) {
        if (!may && fabric->end != VIA_CARRIER_END_RESET && is_cut_short(conn)) {
            fabric->end = VIA_CARRIER_END_RESET;
        }
        via_fabric_follows_no_more(conn);
        return false;
    }
    if (via_os_now_ns() - fabric->fin_ns > ASK_NS) {
        (void)is_more_sent(conn); /* so that it is known in time */
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
    if ((flags & SAID) != 0) {
        return false;
    }
    /* Directly stored bytes are there before the kernel reports anything. */
    if (attach != NULL && (fabric->way & VIA_STATUS_DIRECT) != 0 &&
        (via_client_status(attach, fabric->host) & VIA_CLIENT_WAY_MASK) == fabric->way) {
        return false;
    }
    if (fabric->slot >= 0 && fabric->slot_attach == attach &&
        via_fabric_read_offer(fabric, &offer) < 0) {
        return false; /* it was taken, and is void now */
    }
    return via_fabric_is_follow_possible(conn);
}

/* --- what was unread ------------------------------------------------------------------------- */

static bool is_unread(const struct via_side *side)
{
    uint64_t sent = atomic_load_explicit(&side->tx.pipe_bytes, memory_order_relaxed);
    return via_stream_tx_is_unread(&side->tx, sent - side->tx_at_end);
}

/* Reads from the peer's memory how far the peer has read, into the same place of the mirror. 0,
 * -EAGAIN: not known yet, or an error: it never will be. */
static int ask_how_far(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    _Atomic uint64_t *mirrored = (void *)(fabric->mirror + VIA_SEGMENT_READ_OFF);
    uint64_t read;
    int rc = ask_word(fabric, VIA_SEGMENT_READ_OFF, &fabric->read, &read);
    if (rc == 0) {
        atomic_store_explicit(mirrored, read, memory_order_relaxed);
    }
    return rc;
}

/* Is it possible that bytes of the peer can not arrive any more? Its host has been cut off for too
 * long. */
static bool is_rest_lost(struct via_conn *conn)
{
    return via_fabric_is_cut_off(conn) && !conn->fabric->all_is_there && !all_has_arrived(conn);
}

static enum via_carrier_end find_end(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    struct via_side *side = conn->side;
    if ((via_side_flags(side) & SAID) != 0 || side->rx.ended) {
        return VIA_CARRIER_END_PLAIN;
    }
    if (!has_time(conn)) {
        return is_rest_lost(conn) ? VIA_CARRIER_END_RESET : VIA_CARRIER_END_PLAIN;
    }
    if (via_fabric_is_cut_off(conn)) {
        return VIA_CARRIER_END_OPEN; /* for a moment only, it may be */
    }
    if (!is_unread(side) || !via_fabric_is_put_possible(fabric)) {
        return VIA_CARRIER_END_PLAIN;
    }
    /* In this order: it reads nothing more when it is gone. */
    bool gone = via_client_remote_is_gone(fabric->remote);
    bool direct = via_remote_direct(fabric->remote) != NULL;
    int rc = gone || direct ? ask_how_far(conn) : -EAGAIN;
    if (rc == 0 && !is_unread(side)) {
        return VIA_CARRIER_END_PLAIN;
    }
    if (rc == -EAGAIN || !gone) {
        return VIA_CARRIER_END_OPEN;
    }
    return rc == 0 ? VIA_CARRIER_END_RESET : VIA_CARRIER_END_PLAIN;
}

enum via_carrier_end via_fabric_end_of(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    if ((atomic_load_explicit(&conn->side->shadow, memory_order_relaxed) & POLLRDHUP) == 0) {
        return VIA_CARRIER_END_PLAIN; /* it has not */
    }
    if (fabric->end == VIA_CARRIER_END_OPEN) {
        fabric->end = find_end(conn);
        if (fabric->end == VIA_CARRIER_END_OPEN) {
            follow(fabric);
        } else {
            via_fabric_follows_no_more(conn);
        }
    }
    return (enum via_carrier_end)fabric->end;
}

void via_fabric_never_switches(struct via_conn *conn)
{
    struct via_side *side = conn->side;
    bool told =
        (via_side_flags(side) & VIA_FLAG_DEMOTE) != 0 || via_side_is_in(side, VIA_PHASES_GONE);
    if (!told && !side->connector && conn->fabric->remote == NULL) {
        /* A failure here has no receiver. */
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

void via_fabric_follows_no_more(struct via_conn *conn)
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
