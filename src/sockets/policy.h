/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_POLICY_H
#define VIA_SOCKETS_POLICY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* An internet address and port; IPv4 is held as ::ffff:a.b.c.d, so that a connection made through
 * an IPv6 socket looks the same from both ends. */
struct via_address {
    unsigned char ip[16];
    uint16_t port; /* host byte order */
};

/* One connection as one end sees it. */
struct via_tuple {
    struct via_address local;
    struct via_address remote;
};

/* false for anything but AF_INET and AF_INET6. */
bool via_address_of(const struct sockaddr *addr, socklen_t bytes, struct via_address *ret_address);
bool via_address_is_v4(const struct via_address *address);
bool via_address_is_any(const struct via_address *address);
bool via_address_ip_equal(const struct via_address *a, const struct via_address *b);

/* What the environment says; see viaduct-sockets(7). */
struct via_policy_range {
    uint16_t first;
    uint16_t last;
};

struct via_policy_network {
    unsigned char ip[16];
    uint8_t prefix_bits;
};

#define VIA_POLICY_RULES_MAX 32u

struct via_policy {
    bool on;
    unsigned ports_count; /* 0: all */
    struct via_policy_range ports[VIA_POLICY_RULES_MAX];
    unsigned networks_count; /* 0: all */
    struct via_policy_network networks[VIA_POLICY_RULES_MAX];
    uint32_t after_calls; /* an acceptor offers pipes after so many calls that moved data */
    int host;             /* of the fabric this process runs on, -1: none */
    const char *stats;    /* file to append to, NULL: none */
};

extern struct via_policy via_policy;

/* Reads the environment. Rules that can not be understood switch everything off: what was meant to
 * be kept out must not come in. */
void via_policy_init(void);

/* "80,6000-6010" and "127.0.0.0/8,::1": 0 or -EINVAL. For the above, and for tests. */
int via_policy_parse_ports(struct via_policy *policy, const char *text);
int via_policy_parse_networks(struct via_policy *policy, const char *text);

/* May a connection with a server at `server`, whose other end is at `peer`, be accelerated? */
bool via_policy_allows(const struct via_policy *policy, const struct via_address *server,
                       const struct via_address *peer);

/* Is this an address of this machine (as far as this network namespace goes)? */
bool via_address_is_local(const struct via_address *address);

/* The fabric host that an address belongs to (127.77.0.H, 10.77.0.H), or -1. */
int via_address_fabric_host(const struct via_address *address);

#endif
