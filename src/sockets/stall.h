/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_STALL_H
#define VIA_SOCKETS_STALL_H

#include "sockets/conn.h"
#include "sockets/stream_quick.h"

/*
 * Both ends of a connection send, and neither reads. The kernel's buffers take megabytes of that
 * (tcp_wmem and tcp_rmem grow), the rings less: a program that TCP carries would hang. When neither
 * direction has moved for a while, although both writers wait for room, what follows goes by the
 * kernel, and by the pipe again when the peer has read that empty.
 *
 * Called before each sleep of a thread that waits for room. How long it may sleep until the next
 * call, in nanoseconds; VIA_NEVER_NS when there is nothing to watch; 0 when it is the kernel's
 * turn: do not sleep. No token is held, and no lock.
 */
uint64_t via_stall_watch(struct via_op *op);

/* At a glance: there is nothing to watch. */
static inline bool via_stall_is_none(const struct via_side *side, bool fabric)
{
    /* Within one machine who writes to us wakes whoever sleeps, whatever for. */
    return side->tx.span != VIA_SPAN_PIPE ||
           (!fabric && !side->rx.held && !via_pipe_is_ready(&side->rx.pipe));
}

#endif
