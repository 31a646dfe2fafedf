/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "ip/unreachable.h"

#include <string.h>

#define IPV4_HEADER_BYTES 20u
#define IPV6_HEADER_BYTES 40u
#define ICMP_HEADER_BYTES 8u
#define PACKET4_BYTES_MAX 576u
#define PACKET6_BYTES_MAX 1280u
#define HOPS 64u
#define PROTOCOL_ICMP 1u
#define PROTOCOL_ICMP6 58u
/* Host unreachable, and address unreachable: EHOSTUNREACH for both. */
#define TYPE4 3u
#define CODE4 1u
#define TYPE6 1u
#define CODE6 3u
#define FRAGMENT4_OFF_MASK 0x1fffu
/* Types from here on are informational messages (RFC 4443, 2.1), not errors. */
#define TYPE6_INFORMATIONAL 128u

static unsigned get_be16(const uint8_t *bytes)
{
    return (unsigned)bytes[0] << 8 | bytes[1];
}

static void put_be16(uint8_t *bytes, size_t value)
{
    bytes[0] = (uint8_t)(value >> 8);
    bytes[1] = (uint8_t)value;
}

static uint32_t add_words(uint32_t sum, const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i + 1 < count; i += 2) {
        sum += get_be16(bytes + i);
    }
    return count % 2 != 0 ? sum + ((uint32_t)bytes[count - 1] << 8) : sum;
}

static void put_checksum(uint8_t *at, uint32_t sum)
{
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    put_be16(at, ~sum & 0xffff);
}

static bool is_error4(const uint8_t *ip, size_t bytes)
{
    size_t header = (size_t)(ip[0] & 15) * 4;
    /* Requests such as echo may be answered; if the type is missing, no error is sent. */
    return ip[9] == PROTOCOL_ICMP &&
           (header >= bytes || (ip[header] != 8 && ip[header] != 13 && ip[header] != 0));
}

static size_t make4(const uint8_t *ip, size_t bytes, uint8_t *out)
{
    static const uint8_t unspecified[4];
    if (is_error4(ip, bytes) || (get_be16(ip + 6) & FRAGMENT4_OFF_MASK) != 0 ||
        memcmp(ip + 12, unspecified, sizeof(unspecified)) == 0) {
        return 0;
    }
    size_t quoted =
        via_min(bytes, (size_t)(PACKET4_BYTES_MAX - IPV4_HEADER_BYTES - ICMP_HEADER_BYTES));
    size_t all = IPV4_HEADER_BYTES + ICMP_HEADER_BYTES + quoted;
    uint8_t *icmp = out + IPV4_HEADER_BYTES;
    out[0] = 0x45;
    out[1] = 0xc0; /* internetwork control, as the kernel's own errors */
    put_be16(out + 2, all);
    out[8] = HOPS;
    out[9] = PROTOCOL_ICMP;
    memcpy(out + 12, ip + 16, 4);
    memcpy(out + 16, ip + 12, 4);
    put_checksum(out + 10, add_words(0, out, IPV4_HEADER_BYTES));
    icmp[0] = TYPE4;
    icmp[1] = CODE4;
    memcpy(icmp + ICMP_HEADER_BYTES, ip, quoted);
    put_checksum(icmp + 2, add_words(0, icmp, ICMP_HEADER_BYTES + quoted));
    return all;
}

static size_t make6(const uint8_t *ip, size_t bytes, uint8_t *out)
{
    static const uint8_t unspecified[16];
    bool is_error = ip[6] == PROTOCOL_ICMP6 &&
                    (bytes <= IPV6_HEADER_BYTES || ip[IPV6_HEADER_BYTES] < TYPE6_INFORMATIONAL);
    if (is_error || memcmp(ip + 8, unspecified, sizeof(unspecified)) == 0) {
        return 0;
    }
    size_t quoted =
        via_min(bytes, (size_t)(PACKET6_BYTES_MAX - IPV6_HEADER_BYTES - ICMP_HEADER_BYTES));
    size_t payload = ICMP_HEADER_BYTES + quoted;
    uint8_t *icmp = out + IPV6_HEADER_BYTES;
    out[0] = 0x60;
    put_be16(out + 4, payload);
    out[6] = PROTOCOL_ICMP6;
    out[7] = HOPS;
    memcpy(out + 8, ip + 24, 16);
    memcpy(out + 24, ip + 8, 16);
    icmp[0] = TYPE6;
    icmp[1] = CODE6;
    memcpy(icmp + ICMP_HEADER_BYTES, ip, quoted);
    /* The pseudo-header of RFC 8200, 8.1: addresses, length and protocol. */
    uint32_t sum = add_words((uint32_t)payload + PROTOCOL_ICMP6, out + 8, 32);
    put_checksum(icmp + 2, add_words(sum, icmp, payload));
    return IPV6_HEADER_BYTES + payload;
}

size_t via_ip_unreachable_make(const uint8_t *frame, size_t frame_bytes,
                               const struct via_ip_packet *packet,
                               uint8_t ret_frame[VIA_IP_UNREACHABLE_BYTES_MAX])
{
    const uint8_t *ip = frame + VIA_IP_VNET_BYTES;
    size_t bytes = frame_bytes - VIA_IP_VNET_BYTES;
    memset(ret_frame, 0, VIA_IP_UNREACHABLE_BYTES_MAX);
    size_t made = packet->version == 4 ? make4(ip, bytes, ret_frame + VIA_IP_VNET_BYTES)
                                       : make6(ip, bytes, ret_frame + VIA_IP_VNET_BYTES);
    return made != 0 ? VIA_IP_VNET_BYTES + made : 0;
}
