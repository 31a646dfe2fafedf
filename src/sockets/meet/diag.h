/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_DIAG_H
#define VIA_SOCKETS_DIAG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "sockets/meet/policy.h"

/* What the kernel reports about a TCP socket of this network namespace: see sock_diag(7). */
struct via_diag {
    uint64_t cookie; /* SO_COOKIE: a number that no other socket has had */
    uid_t uid;
    /* A process holds the socket. Otherwise only the kernel does, until the connection has
     * ended. */
    bool held;
    bool marked; /* marked by via_diag_mark(), if this kernel reports marks */
};

/*
 * Marks a TCP socket, so that the peer can find out that this program runs Viaduct: by an option
 * without a meaning for TCP (IP_MULTICAST_LOOP off). Accepted sockets inherit the mark of their
 * listener.
 */
void via_diag_mark(int fd);

/*
 * Looks up the peer's socket of a connection with both ends on this machine. 0; -ENOENT: there is
 * none (the peer is remote, or has closed); or the kernel's error if it does not answer such
 * requests (no INET_DIAG).
 */
int via_diag_peer(const struct via_tuple *tuple, struct via_diag *ret_diag);

/* Called in a forked child: closes the netlink socket, which the parent uses. */
void via_diag_forked(void);

#endif
