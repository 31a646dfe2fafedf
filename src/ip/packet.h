/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Frames of a TUN device with IFF_VNET_HDR: 10 bytes of struct virtio_net_hdr, little-endian, and
 * an IP packet. Checks frames of a peer before they reach the kernel. Pure.
 */
#ifndef VIA_IP_PACKET_H
#define VIA_IP_PACKET_H

#include "base/types.h"

#define VIA_IP_VNET_BYTES 10u
#define VIA_IP_PACKET_BYTES_MAX 65535u
#define VIA_IP_FRAME_BYTES_MAX (VIA_IP_VNET_BYTES + VIA_IP_PACKET_BYTES_MAX)
/* The first VIA_IP_HEAD_BYTES of a frame hold all headers that are checked: 10 of virtio-net, 40 of
 * IPv6, 60 of TCP, and the rest for extension headers of IPv6. */
#define VIA_IP_HEAD_BYTES 256u

/* Why a packet was dropped; each reason has a counter. */
enum via_ip_drop {
    VIA_IP_DROP_NONE,
    VIA_IP_DROP_MALFORMED,   /* not an IP packet, or inconsistent lengths */
    VIA_IP_DROP_OFFLOAD,     /* the offload header does not match the packet */
    VIA_IP_DROP_SPOOFED,     /* the source address is not the sending host's */
    VIA_IP_DROP_FOREIGN,     /* the destination is not this host */
    VIA_IP_DROP_MULTICAST,   /* multicast or broadcast */
    VIA_IP_DROP_NO_HOST,     /* no host has this destination address */
    VIA_IP_DROP_UNREACHABLE, /* no route to the host, or it does not run viaduct-ip */
    VIA_IP_DROP_FULL,        /* the host receives too slowly */
    VIA_IP_DROP_KERNEL,      /* the device refused it */
    VIA_IP_DROPS_COUNT
};

/* "spoofed" */
const char *via_ip_drop_name(enum via_ip_drop drop);

struct via_ip_packet {
    unsigned version; /* 4 or 6 */
    uint32_t source4; /* host byte order */
    uint32_t destination4;
    const uint8_t *source6; /* into the head */
    const uint8_t *destination6;
};

/*
 * head: the first head_bytes of a frame of frame_bytes, head_bytes >= min(frame_bytes,
 * VIA_IP_HEAD_BYTES), in memory that no other thread writes. VIA_IP_DROP_NONE and *ret_packet, or
 * _MALFORMED. Reads addresses and checks lengths.
 */
enum via_ip_drop via_ip_packet_parse(const uint8_t *head, size_t head_bytes, size_t frame_bytes,
                                     struct via_ip_packet *ret_packet) VIA_MUST_CHECK;

/*
 * Checks the offload header of a parsed frame against the packet. VIA_IP_DROP_NONE or _OFFLOAD.
 * Accepts what a kernel's TUN device produces: plain packets, a partial checksum of TCP or UDP, and
 * large TCP or UDP packets to be segmented.
 */
enum via_ip_drop via_ip_packet_check_offload(const uint8_t *head, size_t head_bytes,
                                             size_t frame_bytes,
                                             const struct via_ip_packet *packet) VIA_MUST_CHECK;

#endif
