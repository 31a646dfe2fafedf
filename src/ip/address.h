/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Addresses of hosts: network address plus host id, for IPv4 and IPv6. They are computed, without a
 * table. Pure.
 */
#ifndef VIA_IP_ADDRESS_H
#define VIA_IP_ADDRESS_H

#include "base/error.h"

#define VIA_IP_NETWORK4_DEFAULT "10.78.0.0/16"
/* A unique local prefix (RFC 4193). */
#define VIA_IP_NETWORK6_DEFAULT "fd76:6961::/64"

struct via_ip_network {
    uint32_t base4; /* host byte order */
    unsigned bits4; /* 8 to 30 */
    uint8_t base6[16];
    unsigned bits6; /* 8 to 112: the last two bytes hold the id; 0 = no IPv6 */
};

/* "10.78.0.0/16". -EINVAL: not an address, no length, bits set behind the length, multicast or
 * loopback; err contains the text. */
int via_ip_network_parse4(const char *text, struct via_ip_network *network,
                          struct via_error *err) VIA_MUST_CHECK;
/* "fd76:6961::/64", or "none". */
int via_ip_network_parse6(const char *text, struct via_ip_network *network,
                          struct via_error *err) VIA_MUST_CHECK;

/* True if the network has an address for this host; the first and the last address of the network
 * are not usable. */
bool via_ip_network_has4(const struct via_ip_network *network, unsigned host);

uint32_t via_ip_address4(const struct via_ip_network *network, unsigned host);
void via_ip_address6(const struct via_ip_network *network, unsigned host, uint8_t ret_address[16]);

/* The host with this address, or -1: outside the network, or not the address of a host. */
int via_ip_host_of4(const struct via_ip_network *network, uint32_t address);
int via_ip_host_of6(const struct via_ip_network *network, const uint8_t address[16]);

/* True for multicast and broadcast: 224.0.0.0/4, the network's last address, 255.255.255.255;
 * ff00::/8. */
bool via_ip_is_multicast4(const struct via_ip_network *network, uint32_t address);
bool via_ip_is_multicast6(const uint8_t address[16]);

#endif
