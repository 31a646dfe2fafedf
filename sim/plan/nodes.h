/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The reference for the planner: the compiled nodes of src/core, on the same cards, cables and
 * CPUs. Links come up by the node's own handshake, routes by its own announcements; frames,
 * credits, relays, bubbles and acknowledgements are the node's. The durations of a port's calls
 * come from the parts file. The interface is that of fabric.h, with the same events.
 *
 * Fabrics of up to PLAN_NODES_MAX hosts, and messages of one frame.
 */
#ifndef SIM_PLAN_NODES_H
#define SIM_PLAN_NODES_H

#include "sim/plan/fabric.h"

#define PLAN_NODES_MAX 64u

struct plan_nodes;

/* Steps the cost model until every host has a route to every other host. */
struct plan_nodes *plan_nodes_new(struct sim_cost *cost, const struct plan_costs *costs,
                                  const struct plan_shape *shape, struct plan_wiring *wiring,
                                  const struct plan_events *events, uint64_t bytes_max,
                                  uint64_t seed);
/* Stops submitting: runs until all threads have ended. */
void plan_nodes_free(struct plan_nodes *nodes);

void plan_nodes_submit(struct plan_nodes *nodes, unsigned source, unsigned destination,
                       unsigned channel, uint64_t bytes, uint8_t tag);

uint64_t plan_nodes_stuck(const struct plan_nodes *nodes); /* frames dropped so far */

#endif
