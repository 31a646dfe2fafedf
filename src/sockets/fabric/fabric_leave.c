/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Demotion between hosts: see demote.h. */
#include <errno.h>

#include "sockets/fabric/fabric_internal.h"

/* How long to wait until a withdrawn offer has arrived. It takes longer only without a path. */
#define ARRIVE_NS VIA_SEC_NS
/* How long to wait for the hello of a peer that took the offer before. */
#define HELLO_NS (200 * VIA_MSEC_NS)
#define POLL_NS VIA_MSEC_NS

/* Waits until the puts of this remote have arrived. */
static bool wait_arrived(struct via_attach *attach, struct via_remote *remote)
{
    uint64_t end_ns = via_os_now_ns() + ARRIVE_NS;
    while (via_remote_pending(remote) != 0) {
        if (via_os_now_ns() > end_ns || via_attach_poll(attach) < 0) {
            return false;
        }
        via_os_pause(POLL_NS);
    }
    return true;
}

static bool is_known(struct via_conn *conn)
{
    via_conn_tx_is_switch_allowed(conn);
    return conn->fabric->remote != NULL;
}

/* Withdraws an offer. 0: the peer had taken it; 1: the peer will not take it; or a negative
 * errno. */
static int withdraw(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    int rc = via_fabric_put_offer(conn, VIA_FABRIC_WITHDRAWN);
    if (rc != 0) {
        return rc;
    }
    struct via_attach *attach = via_fabric_attach();
    struct via_remote *box = via_fabric_mailbox_get(attach, &fabric->note);
    bool arrived = box != NULL && wait_arrived(attach, box);
    via_fabric_mailbox_put(box);
    if (!arrived) {
        return -EAGAIN;
    }
    uint64_t end_ns = via_os_now_ns() + HELLO_NS;
    while (!is_known(conn)) {
        if (via_os_now_ns() > end_ns) {
            return 1;
        }
        via_os_pause(POLL_NS);
    }
    return 0;
}

int via_fabric_leave_begin(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    if (!is_known(conn)) {
        int rc = withdraw(conn);
        if (rc != 0) {
            return rc;
        }
    }
    return via_remote_direct(fabric->remote) != NULL || via_fabric_is_put_possible(fabric)
               ? 0
               : -ENOTCONN;
}

void via_fabric_resend_flags(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    struct via_carrier_undo undo;
    if (fabric->remote == NULL) {
        return;
    }
    via_fabric_tx_begin(conn, &undo);
    if (undo.frames && via_fabric_is_put_possible(fabric)) {
        via_fabric_push_word(fabric, VIA_SEGMENT_FLAGS_OFF, &fabric->pushed_flags, NULL, false);
    }
}

/* --- bytes to send again --------------------------------------------------------------------- */

/* Copies bytes from the peer's segment into the same place of the mirror. */
static int fetch(void *ctx, size_t off, size_t bytes)
{
    struct via_fabric *fabric = ctx;
    off += VIA_SEGMENT_PIPE_OFF;
    if (via_remote_direct(fabric->remote) == NULL && !via_fabric_is_put_possible(fabric)) {
        return -ENOTCONN;
    }
    if (via_attach_hops(fabric->attach, fabric->host) < 0) {
        return -EAGAIN;
    }
    return via_remote_get(fabric->remote, off, fabric->mirror + off, bytes);
}

int via_fabric_gather(struct via_conn *conn)
{
    struct via_fabric *fabric = conn->fabric;
    const struct via_meet_gather gather = {.memory = fabric->mirror + VIA_SEGMENT_PIPE_OFF,
                                           .mirrored = conn->side->tx_mirrored,
                                           .fetch = fetch,
                                           .ctx = fabric};
    return via_meet_gather(&gather, &conn->side->tx.pipe);
}
