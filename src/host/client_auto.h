/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_CLIENT_AUTO_H
#define VIA_HOST_CLIENT_AUTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "host/client.h"
#include "host/client_tcp_inside.h"

/*
 * Connections to hosts that the library opens by itself
 * (docs/adr/0081-connections-by-themselves.md), unless VIADUCT_DIRECT is "asked" or "off".
 *
 * When a program has put for a while to a neighbour over TCP, and has done nothing else there, a
 * thread opens a connection to that host. From then on the connection carries the puts of
 * via_remote_put() and via_remote_put_from(), and frames carry everything else. An operation on one
 * path waits until the host has applied the operations on the other path, so accesses stay in
 * order. The library keeps the puts of the connection until the host has acknowledged them
 * (client_kept.h). When the connection ends, or the link goes down, the host reports how much it
 * has applied, and frames carry the rest. So no put is lost or applied twice, and either end may
 * close the connection at any time.
 */

/* Called before any operation on the host except a plain put: waits until the host has applied the
 * puts of the connection, or frames carry them. 0, -EHOSTUNREACH, -ENOTCONN. */
int via_client_auto_leave_slow(struct via_attach *attach, unsigned host) VIA_MUST_CHECK;
static inline int via_client_auto_leave(struct via_attach *attach, unsigned host)
{
    return via_likely(atomic_load_explicit(&attach->autos, memory_order_acquire) == NULL)
               ? 0
               : via_client_auto_leave_slow(attach, host);
}

/* As via_client_auto_leave(), for a call that does not wait long: -EAGAIN while no route leads to
 * the host. */
int via_client_auto_try_leave(struct via_attach *attach, unsigned host) VIA_MUST_CHECK;

/* 0: if *ret_end, the connection carries the put; else the caller sends it in frames. */
int via_client_auto_put(struct via_remote *remote, uint64_t off, const void *src, size_t bytes,
                        unsigned flags, bool *ret_end) VIA_MUST_CHECK;
/* Number of puts of the remote that its host has not acknowledged. Receives answers first. */
unsigned via_client_auto_pending(struct via_remote *remote);
/* The program closes the remote. False: a connection keeps puts of it, and the host is
 * unreachable. */
bool via_client_auto_close_remote(struct via_remote *remote);
/* A refusal that the next quiet reports, or 0. */
int via_client_auto_refusal(const struct via_attach *attach);
/* Called when the program itself connects a remote of the host: the library gives up its own
 * connection to that host. */
int via_client_auto_give_up(struct via_attach *attach, unsigned host) VIA_MUST_CHECK;

/* Waits until the host has applied all puts of the connection, or frames carry them. reports:
 * returns a refusal by the host; else leaves it for a later call. */
int via_client_auto_quiet(struct via_client_tcp *tcp, bool reports) VIA_MUST_CHECK;
/* [the library's thread] Ends connections whose link has gone down. True: must be called again
 * soon. */
bool via_client_auto_tend(struct via_attach *attach);
/* Before the attachment closes: hands kept puts over to frames, for one second at most. */
void via_client_auto_close(struct via_attach *attach);

#endif
