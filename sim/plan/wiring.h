/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A fabric's hardware: hosts, adapter cards, cables and switch chips, of the types that a parts
 * file describes, wired up in a shape as a net of the cost model.
 *
 * host -- slot -- chip of the card -- cable -- chip of the next card or of a switch -- ...
 */
#ifndef SIM_PLAN_WIRING_H
#define SIM_PLAN_WIRING_H

#include "sim/cost/net.h"
#include "sim/plan/shape.h"

/* Names of the parts; only trees use a switch. */
struct plan_parts {
    char card[32], cable[32], chip[32];
};

/* Payload of the TLP of a store: one fill buffer. */
#define PLAN_STORE_BYTES 64u

struct plan_wiring {
    const struct plan_shape *shape; /* borrowed */
    struct sim_net net;
    unsigned cards_per_host, cables_per_card;
    unsigned *slots;  /* owned; links, [host x cards_per_host + card] */
    unsigned *cables; /* owned; tori: [host x dimensions + d], the link from a host up in d */
    unsigned *ups[PLAN_LEVELS_MAX]; /* owned; trees: uplinks of a level, see plan_shape_uplinks */
};

/* The parts exist and fit: tools/sim_fabric.py has checked that. */
void plan_wiring_init(struct plan_wiring *wiring, const struct plan_shape *shape,
                      struct sim_cost *cost, const struct sim_scenario *parts,
                      const struct plan_parts *names);
void plan_wiring_fini(struct plan_wiring *wiring);

/* The host or switch at an end of a cable; cards count as their host. Hosts are numbered first,
 * then switches, level by level. */
unsigned plan_wiring_end(const struct plan_wiring *wiring, unsigned link, bool far);

/* The path from a host to a neighbour. */
void plan_wiring_path(const struct plan_wiring *wiring, unsigned from, unsigned to,
                      struct sim_path *ret_path);

/* Capacity of a port in one direction, in bytes per second of payload, for bodies of body_bytes
 * with a record each. */
double plan_wiring_port_rate(const struct plan_wiring *wiring, uint64_t body_bytes,
                             uint64_t record_bytes);
/* The same for any path, in TLPs of mps_bytes. */
double plan_wiring_rate(const struct plan_wiring *wiring, const struct sim_path *path,
                        uint64_t body_bytes, uint64_t record_bytes, unsigned mps_bytes);
/* The same for a cable. */
double plan_wiring_cable_rate(const struct plan_wiring *wiring, uint64_t body_bytes,
                              uint64_t record_bytes);

#endif
