/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_SHARED_H
#define VIA_SOCKETS_SHARED_H

#include <stdint.h>

#include "sockets/conn/conn.h"

/*
 * An end that several processes hold, because one of them has forked. One of these may be killed
 * between its store into the peer's memory and the ring for it. While other processes hold the end
 * the kernel reports nothing, and the peer would sleep although bytes have arrived. So a process
 * announces a fork before it (VIA_FLAG_SHARED), and calls the peer. From then on the threads of the
 * peer's process sleep for a second at most, and then check again, whatever they wait for.
 *
 * Within one machine; between hosts a sleeping thread checks more often (fabric.h).
 */

/* Called before fork(): announces it to the peer, once. Visits a connection for via_op_each(). */
bool via_shared_announce(struct via_op *op, const void *unused);

/* If the peer has announced a fork, wakes the sleeping threads, and limits the sleeps from now on.
 * No token is held, and no lock of an epoll set. */
void via_shared_note(struct via_conn *conn);
/* Called when the connection is freed. */
void via_shared_forget(struct via_conn *conn);

/* How long a thread may sleep at most. */
uint64_t via_shared_sleep_ns_max(void);

#endif
