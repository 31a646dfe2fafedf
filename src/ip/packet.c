/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "ip/packet.h"

#include <linux/virtio_net.h>

#include "base/mutant.h"

/* Kernel 6.2; not in all headers. */
#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif

#define IPV4_HEADER_BYTES 20u
#define IPV6_HEADER_BYTES 40u
#define TCP_HEADER_BYTES 20u
#define UDP_HEADER_BYTES 8u
#define PROTOCOL_TCP 6u
#define PROTOCOL_UDP 17u
#define CHECKSUM_OFF_TCP 16u
#define CHECKSUM_OFF_UDP 6u
/* The "more fragments" bit and the fragment offset. */
#define IPV4_FRAGMENT_MASK 0x3fffu

_Static_assert(sizeof(struct virtio_net_hdr) == VIA_IP_VNET_BYTES, "as the device has it");

static const char *const drop_names[VIA_IP_DROPS_COUNT] = {
    [VIA_IP_DROP_NONE] = "none",       [VIA_IP_DROP_MALFORMED] = "malformed",
    [VIA_IP_DROP_OFFLOAD] = "offload", [VIA_IP_DROP_SPOOFED] = "spoofed",
    [VIA_IP_DROP_FOREIGN] = "foreign", [VIA_IP_DROP_MULTICAST] = "multicast",
    [VIA_IP_DROP_NO_HOST] = "no_host", [VIA_IP_DROP_UNREACHABLE] = "unreachable",
    [VIA_IP_DROP_FULL] = "full",       [VIA_IP_DROP_KERNEL] = "kernel",
};

const char *via_ip_drop_name(enum via_ip_drop drop)
{
    return drop_names[drop];
}

static unsigned get_be16(const uint8_t *bytes)
{
    return (unsigned)bytes[0] << 8 | bytes[1];
}

static uint32_t get_be32(const uint8_t *bytes)
{
    return (uint32_t)get_be16(bytes) << 16 | get_be16(bytes + 2);
}

static unsigned get_le16(const uint8_t *bytes)
{
    return (unsigned)bytes[1] << 8 | bytes[0];
}

static size_t ipv4_header_bytes(const uint8_t *ip)
{
    return (size_t)(ip[0] & 15) * 4;
}

static enum via_ip_drop parse4(const uint8_t *ip, size_t bytes, struct via_ip_packet *packet)
{
    if (bytes < IPV4_HEADER_BYTES || ipv4_header_bytes(ip) < IPV4_HEADER_BYTES ||
        ipv4_header_bytes(ip) > bytes || get_be16(ip + 2) != bytes) {
        return VIA_IP_DROP_MALFORMED;
    }
    packet->source4 = get_be32(ip + 12);
    packet->destination4 = get_be32(ip + 16);
    return VIA_IP_DROP_NONE;
}

static enum via_ip_drop parse6(const uint8_t *ip, size_t bytes, struct via_ip_packet *packet)
{
    if (bytes < IPV6_HEADER_BYTES || get_be16(ip + 4) + IPV6_HEADER_BYTES != bytes) {
        return VIA_IP_DROP_MALFORMED;
    }
    packet->source6 = ip + 8;
    packet->destination6 = ip + 24;
    return VIA_IP_DROP_NONE;
}

enum via_ip_drop via_ip_packet_parse(const uint8_t *head, size_t head_bytes, size_t frame_bytes,
                                     struct via_ip_packet *ret_packet)
{
    if (head_bytes <= VIA_IP_VNET_BYTES || frame_bytes > VIA_IP_FRAME_BYTES_MAX) {
        return VIA_IP_DROP_MALFORMED;
    }
    const uint8_t *ip = head + VIA_IP_VNET_BYTES;
    size_t bytes = frame_bytes - VIA_IP_VNET_BYTES;
    *ret_packet = (struct via_ip_packet){.version = ip[0] >> 4};
    switch (ret_packet->version) {
    case 4:
        return parse4(ip, bytes, ret_packet);
    case 6:
        return parse6(ip, bytes, ret_packet);
    default:
        return VIA_IP_DROP_MALFORMED;
    }
}

/* --- the offload header ---------------------------------------------------------------------- */

struct offload {
    unsigned flags;
    unsigned type; /* without ECN */
    bool ecn;
    size_t header_bytes;
    size_t segment_bytes;
    size_t start; /* of the transport header, in the packet */
    size_t off;   /* of the checksum in it */
};

static struct offload read_offload(const uint8_t *head)
{
    return (struct offload){
        .flags = head[0],
        .type = head[1] & ~(unsigned)VIRTIO_NET_HDR_GSO_ECN,
        .ecn = (head[1] & VIRTIO_NET_HDR_GSO_ECN) != 0,
        .header_bytes = get_le16(head + 2),
        .segment_bytes = get_le16(head + 4),
        .start = get_le16(head + 6),
        .off = get_le16(head + 8),
    };
}

static size_t network_header_bytes(const uint8_t *ip, const struct via_ip_packet *packet)
{
    return packet->version == 4 ? ipv4_header_bytes(ip) : IPV6_HEADER_BYTES;
}

/* Checks the place at which the receiving kernel, or a network card, writes the checksum. */
static bool is_checksum_valid(const struct offload *offload, const uint8_t *ip, size_t bytes,
                              const struct via_ip_packet *packet)
{
    size_t transport = offload->off == CHECKSUM_OFF_TCP ? TCP_HEADER_BYTES : UDP_HEADER_BYTES;
    if (offload->off != CHECKSUM_OFF_TCP && offload->off != CHECKSUM_OFF_UDP) {
        return false;
    }
    size_t network = network_header_bytes(ip, packet);
    /* IPv6 may have extension headers before it; IPv4 has none. */
    bool at = packet->version == 4 ? offload->start == network : offload->start >= network;
    return at && (offload->start + transport <= bytes || VIA_MUTANT(IP_CHECKSUM));
}

static bool is_protocol(const uint8_t *ip, const struct via_ip_packet *packet, unsigned protocol)
{
    /* If IPv6 has extension headers, only the first one is checked; the kernel parses the rest. */
    return packet->version == 6 ? ip[6] == protocol || ip[6] == 0 || ip[6] == 43 || ip[6] == 60
                                : ip[9] == protocol;
}

static bool is_tcp_valid(const struct offload *offload, const uint8_t *ip, size_t ip_head_bytes,
                         size_t bytes, const struct via_ip_packet *packet)
{
    unsigned type = packet->version == 4 ? VIRTIO_NET_HDR_GSO_TCPV4 : VIRTIO_NET_HDR_GSO_TCPV6;
    if (offload->type != type || offload->off != CHECKSUM_OFF_TCP ||
        !is_protocol(ip, packet, PROTOCOL_TCP) ||
        offload->start + TCP_HEADER_BYTES > ip_head_bytes) {
        return false;
    }
    size_t header_bytes = offload->start + (size_t)(ip[offload->start + 12] >> 4) * 4;
    return header_bytes >= offload->start + TCP_HEADER_BYTES && header_bytes < bytes;
}

static bool is_udp_valid(const struct offload *offload, const uint8_t *ip, size_t bytes,
                         const struct via_ip_packet *packet)
{
    return offload->type == VIRTIO_NET_HDR_GSO_UDP_L4 && !offload->ecn &&
           offload->off == CHECKSUM_OFF_UDP && is_protocol(ip, packet, PROTOCOL_UDP) &&
           offload->start + UDP_HEADER_BYTES < bytes;
}

/* Checks a large packet that the receiving kernel may segment. */
static bool is_segmentation_valid(const struct offload *offload, const uint8_t *ip,
                                  size_t ip_head_bytes, size_t bytes,
                                  const struct via_ip_packet *packet)
{
    bool fragment = packet->version == 4 && (get_be16(ip + 6) & IPV4_FRAGMENT_MASK) != 0;
    return (offload->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) != 0 && !fragment &&
           offload->segment_bytes != 0 && offload->segment_bytes < bytes &&
           (is_tcp_valid(offload, ip, ip_head_bytes, bytes, packet) ||
            is_udp_valid(offload, ip, bytes, packet));
}

enum via_ip_drop via_ip_packet_check_offload(const uint8_t *head, size_t head_bytes,
                                             size_t frame_bytes, const struct via_ip_packet *packet)
{
    const uint8_t *ip = head + VIA_IP_VNET_BYTES;
    size_t ip_head_bytes = head_bytes - VIA_IP_VNET_BYTES;
    size_t bytes = frame_bytes - VIA_IP_VNET_BYTES;
    struct offload offload = read_offload(head);
    bool good = (offload.flags &
                 ~(unsigned)(VIRTIO_NET_HDR_F_NEEDS_CSUM | VIRTIO_NET_HDR_F_DATA_VALID)) == 0 &&
                offload.header_bytes <= bytes;
    if ((offload.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) != 0) {
        good = good && is_checksum_valid(&offload, ip, bytes, packet);
    }
    if (offload.type != VIRTIO_NET_HDR_GSO_NONE || offload.ecn) {
        good = good && is_segmentation_valid(&offload, ip, ip_head_bytes, bytes, packet);
    }
    return good ? VIA_IP_DROP_NONE : VIA_IP_DROP_OFFLOAD;
}
