/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_SHARED_H
#define VIA_SOCKETS_SHARED_H

#include <stdint.h>

#include "sockets/conn/conn.h"

/*
 * An end that several processes hold, since one of them has forked. One of these may be killed
 * between its store into the peer's memory and the ring for it. While others hold the end the
 * kernel does not report that, and the peer sleeps although data have come. So a process that forks
 * first announces it (VIA_FLAG_SHARED) and calls, and a peer that knows of it sleeps for a second
 * at most, whatever it waits for, before it checks again, as long as it has such a connection.
 * Within one machine; between hosts a sleeping thread checks more often (fabric.h).
 */

/* Before fork(): tells the peer, once. */
bool via_shared_announce(struct via_op *op, const void *unused);

/* Has the peer announced it? Then sleeping threads check again, and sleep for a limited time from
 * now on. No token is held, and no lock of sets. */
void via_shared_note(struct via_conn *conn);
/* The connection is freed: it does not count any more. */
void via_shared_forget(struct via_conn *conn);

/* How long a thread may sleep at most, whatever it sleeps for. */
uint64_t via_shared_sleep_ns_max(void);

#endif
