/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The hardware of system B: hosts in a ring, each with one adapter towards either neighbour. The
 * adapter at the left end of a link has the link's registers, and the DMA engine that puts to the
 * right. The scenario's parts are used by name: "host pc" describes all hosts.
 */
#ifndef SIM_PAPER_RING_NET_H
#define SIM_PAPER_RING_NET_H

#include "sim/cost/net.h"

#define SIM_RING_HOSTS_MAX 8u

struct sim_ring_place {
    unsigned host, right_chip, left_chip; /* nodes */
    struct sim_path to_chip, from_chip;   /* this host's right chip */
    struct sim_path chip_to_right;        /* from there to the right neighbour */
    struct sim_path right_to_chip;        /* the right neighbour's path to that chip */
};

struct sim_ring_net {
    struct sim_net net;
    unsigned hosts_count;
    struct sim_ring_place places[SIM_RING_HOSTS_MAX];
};

void sim_ring_net_init(struct sim_ring_net *ring, struct sim_cost *cost,
                       const struct sim_scenario *scenario, unsigned hosts_count);
void sim_ring_net_fini(struct sim_ring_net *ring);

/* The time in which the host at its right reads a register of a link's chip, across the cable, on
 * an idle fabric. Uses the clock. */
uint64_t sim_ring_net_read_ps(struct sim_ring_net *ring);

#endif
