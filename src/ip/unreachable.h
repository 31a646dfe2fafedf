/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Makes an ICMP error (RFC 792, RFC 4443) for a packet whose host can not be reached. With this
 * error connect(2) fails at once with EHOSTUNREACH, instead of waiting for its time-out. Pure.
 */
#ifndef VIA_IP_UNREACHABLE_H
#define VIA_IP_UNREACHABLE_H

#include "ip/packet.h"

/* At most the minimum MTU: RFC 1812, 4.3.2.3 and RFC 4443, 2.4 (c). */
#define VIA_IP_UNREACHABLE_BYTES_MAX (VIA_IP_VNET_BYTES + 1280u)

/*
 * Makes the error for a parsed frame of this machine's own device, as a frame for the device.
 * Returns its size; 0: no error must be sent, because the packet is an ICMP error, a later
 * fragment, or has no source address.
 *
 * The source of the error is the packet's destination, because the kernel drops incoming packets
 * with one of its own addresses as source.
 */
size_t via_ip_unreachable_make(const uint8_t *frame, size_t frame_bytes,
                               const struct via_ip_packet *packet,
                               uint8_t ret_frame[VIA_IP_UNREACHABLE_BYTES_MAX]);

#endif
