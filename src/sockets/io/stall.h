/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_STALL_H
#define VIA_SOCKETS_STALL_H

#include "sockets/conn/conn.h"

/*
 * The rule of stream_stall.h for a connection. Called before each sleep of a thread that waits for
 * room. Returns how long the thread may sleep until the next call, in nanoseconds; VIA_NEVER_NS: no
 * stall to watch; 0: do not sleep, the next bytes go through the kernel. No token is held, and no
 * lock.
 */
uint64_t via_stall_watch(struct via_op *op);

/* Does this end write by the kernel, while the peer may begin to write by pipe, or has begun and
 * waits for a credit that found no room on its way? The peer does not spill before the credit says
 * that the beginning of its pipe span was read. */
static inline bool via_stall_is_hidden(const struct via_side *side)
{
    return via_stream_stall_is_hidden(&side->tx, &side->rx) ||
           (side->tx.span != VIA_SPAN_PIPE &&
            atomic_load_explicit(&side->rx_credit_due, memory_order_relaxed));
}

/* Quick check: true if there is no stall to watch. */
static inline bool via_stall_is_none(const struct via_conn *conn)
{
    const struct via_side *side = conn->side;
    /* Within one machine a writer wakes each sleeping thread, whatever it waits for. */
    return side->tx.span != VIA_SPAN_PIPE
               ? !via_stall_is_hidden(side)
               : via_conn_is_local(conn) && !via_stream_stall_is_possible(&side->rx);
}

#endif
