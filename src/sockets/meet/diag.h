/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_DIAG_H
#define VIA_SOCKETS_DIAG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "sockets/meet/policy.h"

/* The kernel's information about a TCP socket of this network namespace: see sock_diag(7). */
struct via_diag {
    uint64_t cookie; /* SO_COOKIE: no two sockets have had the same */
    uid_t uid;
    /* A process holds it; if not, only the kernel does, until the connection has ended. */
    bool held;
    bool marked; /* marked by via_diag_mark(), if this kernel reports marks */
};

/*
 * Marks a TCP socket, so that the peer can see that this program runs Viaduct: by an option that
 * has no meaning for TCP (IP_MULTICAST_LOOP off). Accepted sockets inherit the mark of their
 * listener.
 */
void via_diag_mark(int fd);

/*
 * Looks up the peer's socket of a connection whose both ends are on this machine. 0; -ENOENT if
 * there is none (the peer is remote, or has closed), or the kernel's error if it does not answer
 * such requests (no INET_DIAG).
 */
int via_diag_peer(const struct via_tuple *tuple, struct via_diag *ret_diag);

/* In a forked child: forgets the netlink socket, which is shared with the parent and must not be
 * used. */
void via_diag_forked(void);

#endif
