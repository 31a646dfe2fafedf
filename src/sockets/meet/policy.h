/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_POLICY_H
#define VIA_SOCKETS_POLICY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "host/control_rules.h"
#include "host/control_sockets.h"

/* An IP address and port. IPv4 is stored as ::ffff:a.b.c.d, so that a connection made through an
 * IPv6 socket looks the same at both ends. */
struct via_address {
    unsigned char ip[16];
    uint16_t port; /* host byte order */
};

/* One connection as one end sees it. */
struct via_tuple {
    struct via_address local;
    struct via_address remote;
};

/* False for any family but AF_INET and AF_INET6. */
bool via_address_read(const struct sockaddr *addr, socklen_t bytes,
                      struct via_address *ret_address);
bool via_address_is_v4(const struct via_address *address);
bool via_address_is_any(const struct via_address *address);
/* Replaces the unspecified address (0.0.0.0, ::) by loopback, which a connect() to it reaches. */
void via_address_of_any(struct via_address *address);
bool via_address_is_ip_equal(const struct via_address *a, const struct via_address *b);

/* The rules and the environment; see viaduct-sockets(7). */
struct via_policy {
    bool on;
    enum via_reason off_reason; /* the reason, when it is off */
    struct via_rules rules;
    const char *stats; /* the file to which to append the report; NULL: none */
};

extern struct via_policy via_policy;

/* Reads the rules and the environment. Invalid rules switch acceleration off: they may have
 * excluded connections that must not be accelerated. */
void via_policy_init(void);

/* True if a connection between a server at `server` and a peer at `peer` may be accelerated. */
bool via_policy_is_allowed(const struct via_policy *policy, const struct via_address *server,
                           const struct via_address *peer);

/* True if this is an address of this machine, in this network namespace. */
bool via_address_is_local(const struct via_address *address);

#endif
