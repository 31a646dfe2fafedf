/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_DIAG_H
#define VIA_SOCKETS_DIAG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "sockets/meet/policy.h"

/* What the kernel knows of a TCP socket of this network namespace: see sock_diag(7). */
struct via_diag {
    uint64_t cookie; /* SO_COOKIE: no two sockets have had the same */
    uid_t uid;
    bool held;   /* by a process: not only by the kernel, until it is done with it */
    bool marked; /* by via_diag_mark(), as far as this kernel tells */
};

/*
 * Marks a TCP socket so that the other end can see that this program runs Viaduct, by an option
 * that means nothing to TCP (IP_MULTICAST_LOOP off). What is accepted has the mark of its listener.
 */
void via_diag_mark(int fd);

/*
 * Looks up the socket at the other end of a connection whose both ends are on this machine. 0;
 * -ENOENT when there is none (the peer is remote, or has closed), or what the kernel says when it
 * does not answer such questions (no INET_DIAG).
 */
int via_diag_peer(const struct via_tuple *tuple, struct via_diag *ret_diag);

/* In a forked child: the socket to the kernel is shared with the parent and must not be used. */
void via_diag_forked(void);

#endif
