/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The direct path: where a link over TCP joins two hosts, the kernels carry packets between their
 * devices, and no process is on the path (docs/ip.md, Direct path; ADR 66). Here is how two hosts
 * agree on it, test it all the time, and give it up; kernel_code.c is what the kernel does.
 *
 * Each host lays a card (port, token) in the other's inbox. A probe, as long as the longest packet,
 * and its echo show that the way is open; from then on packets go directly. Without an echo for a
 * while, without a link, or in another session, the inboxes carry them again.
 *
 * Of the thread of queue 0.
 */
#ifndef VIA_IP_DIRECT_H
#define VIA_IP_DIRECT_H

#include "host/client_tcp.h"
#include "ip/lane.h"

struct via_ip_shared;
struct via_ip_direct;

/* NULL: no memory, or the kernel has no part in it. */
struct via_ip_direct *via_ip_direct_new(const struct via_ip_shared *shared);
void via_ip_direct_free(struct via_ip_direct *direct);
/* From time to time, of a lane between queues 0. */
void via_ip_direct_tick(struct via_ip_direct *direct, struct via_ip_lane *lane, uint64_t now_ns);
/* Takes probes and echoes. */
void via_ip_direct_hear(struct via_ip_direct *direct, uint64_t now_ns);
/* Gives all paths up: the host's daemon has gone, or this process ends. */
void via_ip_direct_end_all(struct via_ip_direct *direct);

#endif
