/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The two programs that carry packets of the direct path in the kernel (docs/ip.md, Direct path),
 * and the table that they share with viaduct-ip. Pure: instructions into a buffer.
 *
 *   out  at the device: a packet for a host whose `out_on` is set gets a head and goes to the
 * peer's machine by that machine's own address; all else goes on to viaduct-ip in   at a network
 * interface: a packet with the head of a host whose `in_on` is set, and with its token, goes to the
 * device, if its addresses are those of the two hosts
 *
 * Heads are an IPv4 header, a UDP header, and struct via_ip_direct_head.
 */
#ifndef VIA_IP_KERNEL_CODE_H
#define VIA_IP_KERNEL_CODE_H

#include <linux/bpf.h>
#include <stdatomic.h>

#include "ip/address.h"

#define VIA_IP_KERNEL_INSNS_MAX 192u
#define VIA_IP_TOKEN_BYTES 16u

enum via_ip_direct_kind {
    VIA_IP_DIRECT_PACKET = 1, /* an IP packet follows; never seen by viaduct-ip */
    VIA_IP_DIRECT_PROBE = 2,  /* a nonce (8) follows, and zeros up to the longest packet */
    VIA_IP_DIRECT_ECHO = 3,   /* the nonce of a probe follows */
};
#define VIA_IP_DIRECT_VERSION 1u

/* Behind the UDP header, little-endian. */
struct via_ip_direct_head {
    uint16_t host; /* the sender's */
    uint8_t kind;
    uint8_t version;
    uint8_t token[VIA_IP_TOKEN_BYTES]; /* the receiver has made it for this sender */
};
_Static_assert(sizeof(struct via_ip_direct_head) == 20, "without gaps");

#define VIA_IP_OUTER_BYTES (20u + 8u)
#define VIA_IP_DIRECT_BYTES (VIA_IP_OUTER_BYTES + 20u)

/* The kernel's entry for a host: an element of an array that viaduct-ip has mapped. viaduct-ip
 * writes it, except for the counters, which the kernel writes. */
struct via_ip_kernel_host {
    _Atomic uint32_t out_on; /* set last, cleared first */
    _Atomic uint32_t in_on;
    uint32_t out_interface;
    uint32_t out_bytes_max; /* longest packet, or segment */
    uint32_t out_sum;       /* of the IPv4 header without its length, ones' complement */
    uint32_t peer4;         /* where its packets come from; network byte order, as the next */
    uint32_t inner4;        /* its address on the fabric */
    uint32_t reserved;
    uint8_t out_head[VIA_IP_DIRECT_BYTES]; /* without lengths and checksum */
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
    uint16_t host; /* this one */
    /* Of `in`: where it listens; network byte order. */
    uint32_t local4;
    uint16_t port;
};

/* How many instructions were written: at most VIA_IP_KERNEL_INSNS_MAX. */
unsigned via_ip_kernel_code_out(const struct via_ip_kernel_params *params, struct bpf_insn *ret);
unsigned via_ip_kernel_code_in(const struct via_ip_kernel_params *params, struct bpf_insn *ret);

/* Fills in out_head and out_sum. */
void via_ip_kernel_fill_head(struct via_ip_kernel_host *host, uint32_t local4, uint16_t local_port,
                             uint32_t peer4, uint16_t peer_port,
                             const struct via_ip_direct_head *head);

#endif
