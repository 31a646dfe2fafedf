/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The two programs that carry packets of the direct path in the kernel (docs/ip.md, Direct path),
 * and the table that they share with viaduct-ip. Pure: writes instructions into a buffer.
 *
 * - out, at the device: adds a head to a packet for a host whose `out_on` is set, and sends it to
 *   the address of the peer's machine. Other packets pass to viaduct-ip.
 * - in, at a network interface: passes a packet with the head and token of a host whose `in_on` is
 *   set to the device, if the packet's addresses are those of the two hosts.
 *
 * A head is an IPv4 header, a UDP header, and struct via_ip_direct_head.
 */
#ifndef VIA_IP_KERNEL_CODE_H
#define VIA_IP_KERNEL_CODE_H

#include <linux/bpf.h>
#include <stdatomic.h>

#include "ip/address.h"

#define VIA_IP_KERNEL_INSNS_MAX 192u
#define VIA_IP_TOKEN_BYTES 16u

enum via_ip_direct_kind {
    VIA_IP_DIRECT_PACKET = 1, /* an IP packet follows; only the kernel handles it */
    VIA_IP_DIRECT_PROBE = 2,  /* a nonce (8) follows, and zeros up to the longest packet */
    VIA_IP_DIRECT_ECHO = 3,   /* the nonce of a probe follows */
};
#define VIA_IP_DIRECT_VERSION 1u

/* Follows the UDP header; little-endian. */
struct via_ip_direct_head {
    uint16_t host; /* sender */
    uint8_t kind;
    uint8_t version;
    uint8_t token[VIA_IP_TOKEN_BYTES]; /* made by the receiver for this sender */
};
_Static_assert(sizeof(struct via_ip_direct_head) == 20, "without gaps");

#define VIA_IP_OUTER_BYTES (20u + 8u)
#define VIA_IP_DIRECT_BYTES (VIA_IP_OUTER_BYTES + 20u)

/* The entry of a host: an element of a BPF array that viaduct-ip has mapped. viaduct-ip writes all
 * fields except the counters, which the kernel writes. */
struct via_ip_kernel_host {
    _Atomic uint32_t out_on; /* set last, cleared first */
    _Atomic uint32_t in_on;
    uint32_t out_interface;
    uint32_t out_bytes_max; /* longest packet, or segment */
    uint32_t out_sum;       /* of the IPv4 header without its length, ones' complement */
    uint32_t peer4;         /* source of its packets; network byte order, like inner4 */
    uint32_t inner4;        /* its address on the fabric */
    uint32_t reserved;
    uint8_t out_head[VIA_IP_DIRECT_BYTES]; /* template, without lengths and checksum */
    uint8_t in_token[VIA_IP_TOKEN_BYTES];
    uint8_t inner6[16];
    /* Written by the kernel. */
    _Atomic uint64_t packets_sent, bytes_sent;
    _Atomic uint64_t packets_received, bytes_received;
    _Atomic uint64_t spoofed, foreign;
};
_Static_assert(sizeof(struct via_ip_kernel_host) % 8 == 0, "as the kernel spaces elements");

struct via_ip_kernel_params {
    int table_fd;
    unsigned hosts_max;
    unsigned device; /* interface index of the TUN device */
    struct via_ip_network network;
    uint16_t host; /* this host */
    /* For `in`: its address and port; network byte order. */
    uint32_t local4;
    uint16_t port;
};

/* Return the number of instructions written, at most VIA_IP_KERNEL_INSNS_MAX. */
unsigned via_ip_kernel_code_out(const struct via_ip_kernel_params *params, struct bpf_insn *ret);
unsigned via_ip_kernel_code_in(const struct via_ip_kernel_params *params, struct bpf_insn *ret);

/* Fills in out_head and out_sum. */
void via_ip_kernel_fill_head(struct via_ip_kernel_host *host, uint32_t local4, uint16_t local_port,
                             uint32_t peer4, uint16_t peer_port,
                             const struct via_ip_direct_head *head);

#endif
