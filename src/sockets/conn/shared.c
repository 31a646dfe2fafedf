/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/conn/shared.h"

#include <errno.h>

#include "sockets/epoll/epoll_set.h"
#include "sockets/io/io_internal.h"
#include "sockets/process/lock.h"

#define POLL_NS VIA_SEC_NS

/* Tries of some milliseconds to take the token. */
#define ANNOUNCE_TRIES 10u

/* Count of this process's connections whose peers are shared. */
static _Atomic uint32_t shared_count;

/* Gives up after some tries: a signal handler may fork while its thread holds the token of one
 * connection, and another thread's handler while that thread holds the token of another one. Then
 * both would wait for each other. */
static bool take_to_announce(struct via_op *op)
{
    int rc = -EDEADLK;
    for (unsigned i = 0; rc != 0 && i < ANNOUNCE_TRIES; i++) {
        via_lock_enter(); /* limits the wait: token.h */
        rc = via_tx_take(op);
        via_lock_leave();
    }
    return rc == 0;
}

bool via_shared_announce(struct via_op *op, const void *unused)
{
    struct via_side *side = op->side;
    (void)unused;
    if (via_conn_has_pipes(op->conn) && (side->sent_flags & VIA_FLAG_SHARED) == 0 &&
        take_to_announce(op)) {
        side->sent_flags |= VIA_FLAG_TAKEN | VIA_FLAG_SHARED;
        op->conn->carrier->send_flags(op->conn, side->sent_flags, true);
        via_tx_give(op);
    }
    return true;
}

void via_shared_note(struct via_conn *conn)
{
    if (!via_conn_is_local(conn) || !via_conn_has_pipes(conn) ||
        via_likely((via_side_flags(conn->side) & VIA_FLAG_SHARED) == 0) ||
        atomic_exchange_explicit(&conn->peer_shared, true, memory_order_relaxed)) {
        return;
    }
    atomic_fetch_add_explicit(&shared_count, 1, memory_order_relaxed);
    via_ep_conn_changed(conn); /* the connection is not cold any more: epoll_cold.c */
    int bell = atomic_load_explicit(&conn->bell, memory_order_relaxed);
    if (bell >= 0) { /* a thread that sleeps for the connection without a limit */
        via_sock_bell_ring((unsigned)bell);
    }
}

void via_shared_forget(struct via_conn *conn)
{
    if (atomic_load_explicit(&conn->peer_shared, memory_order_relaxed)) {
        atomic_fetch_sub_explicit(&shared_count, 1, memory_order_relaxed);
    }
}

uint64_t via_shared_sleep_ns_max(void)
{
    return via_unlikely(atomic_load_explicit(&shared_count, memory_order_relaxed) != 0)
               ? POLL_NS
               : VIA_NEVER_NS;
}
