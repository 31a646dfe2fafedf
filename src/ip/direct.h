/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The direct path: if two hosts have a link over TCP, their kernels exchange packets without a
 * process (docs/ip.md, Direct path; ADR 66). This file agrees on the path with the peer, tests it
 * continuously, and closes it; kernel_code.c makes the programs of the kernel.
 *
 * Each host writes a card (port, token) into the other's inbox. A probe, as long as the longest
 * packet, and its echo prove that the path works; from then on packets take it. If echoes stop, the
 * link goes down, or the session changes, packets go through the inboxes again.
 *
 * Only the thread of queue 0 calls these functions.
 */
#ifndef VIA_IP_DIRECT_H
#define VIA_IP_DIRECT_H

#include "host/client_tcp.h"
#include "ip/lane.h"

struct via_ip_shared;
struct via_ip_direct;

/* NULL: no memory, or the kernel programs are not loaded. */
struct via_ip_direct *via_ip_direct_new(const struct via_ip_shared *shared);
void via_ip_direct_free(struct via_ip_direct *direct);
/* Called periodically for each lane between queues 0. */
void via_ip_direct_tick(struct via_ip_direct *direct, struct via_ip_lane *lane, uint64_t now_ns);
/* Receives probes and echoes. */
void via_ip_direct_receive(struct via_ip_direct *direct, uint64_t now_ns);
/* Closes all paths: the host's daemon has ended, or this process ends. */
void via_ip_direct_end_all(struct via_ip_direct *direct);

#endif
