/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_STALL_H
#define VIA_SOCKETS_STALL_H

#include "sockets/conn/conn.h"

/*
 * Applies the rule of stream_stall.h to a connection. Called before each sleep of a thread that
 * waits for room. Returns how many nanoseconds the thread may sleep before the next call.
 * VIA_NEVER_NS: there is no stall to watch; 0: do not sleep, the next bytes go through the kernel.
 * No token is held, and no lock.
 */
uint64_t via_stall_watch(struct via_op *op);

/* True if this end writes to the kernel, while the peer may begin to write to its pipe, or has
 * begun and waits for a credit that found no room on its way. The peer spills only after the credit
 * for SWITCH, the beginning of its pipe span. */
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
    /* Within one machine a peer that writes wakes this thread, even if it waits for room: then the
     * caller checks again. */
    return side->tx.span != VIA_SPAN_PIPE
               ? !via_stall_is_hidden(side)
               : via_conn_is_local(conn) && !via_stream_stall_is_possible(&side->rx);
}

#endif
