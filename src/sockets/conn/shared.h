/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_SHARED_H
#define VIA_SOCKETS_SHARED_H

#include <stdint.h>

#include "sockets/conn/conn.h"

/*
 * An end that several processes hold, since one of them has forked. One of these may be killed
 * between what it has put into the peer's memory and the ring for it. While others hold the end the
 * kernel does not tell of that, and the peer sleeps beside what has come. So who forks says so
 * first (VIA_FLAG_SHARED) and calls, and a peer that has been told sleeps for a second at most,
 * whatever for, before it looks again, as long as it has such a connection. Within one machine;
 * between hosts a sleeping thread checks more often (fabric.h).
 */

/* Before fork(): tells the peer, once. */
void via_shared_announce(struct via_conn *conn);

/* Has the peer said so? Then a sleeping thread checks again, and from now on sleeps no longer. No
 * token is held, and no lock of sets. */
void via_shared_note(struct via_conn *conn);
/* The connection is given back. */
void via_shared_forget(struct via_conn *conn);

/* How long any thread may sleep for connections. */
uint64_t via_shared_sleep_ns_max(void);

#endif
