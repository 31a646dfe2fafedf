/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The answer to the kernel for a packet whose host can not be reached: an ICMP error (RFC 792, RFC
 * 4443), with which connect(2) fails with EHOSTUNREACH instead of waiting for its time-out. Pure.
 */
#ifndef VIA_IP_UNREACHABLE_H
#define VIA_IP_UNREACHABLE_H

#include "ip/packet.h"

/* No longer than any network must carry: RFC 1812, 4.3.2.3 and RFC 4443, 2.4 (c). */
#define VIA_IP_UNREACHABLE_BYTES_MAX (VIA_IP_VNET_BYTES + 1280u)

/*
 * The error for a parsed frame of this machine's own device, as a frame for the device; its bytes.
 * 0: none is due, as for an ICMP error, a later fragment, or a packet without a source.
 *
 * The error comes from the address that the packet was for: the kernel drops what comes in by a
 * device from an address of its own.
 */
size_t via_ip_unreachable_make(const uint8_t *frame, size_t frame_bytes,
                               const struct via_ip_packet *packet,
                               uint8_t ret_frame[VIA_IP_UNREACHABLE_BYTES_MAX]);

#endif
