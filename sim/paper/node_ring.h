/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Our protocol on the hardware of system B: the nodes of src/core, as they are compiled, on ports
 * whose calls take the time they would take there. A put leaves by write-combined stores as frames
 * in the pipe of a channel; the neighbour's transfer thread finds them in its own memory, copies
 * them to their place and acknowledges; doorbells are for threads that sleep. This is what core
 * does today: it does not use DMA engines.
 */
#ifndef SIM_PAPER_NODE_RING_H
#define SIM_PAPER_NODE_RING_H

#include "sim/cost/actor.h"
#include "sim/paper/ring.h"

/* Parameters of [viaduct]. */
extern const struct sim_section sim_node_ring_section;

/* The same run as of the published system; of the result only put_ps, latency_ps, cpu_percent and
 * events_count are set. 0, or -EPROTO when a put failed. */
int sim_node_ring_run(const struct sim_scenario *scenario, const struct sim_ring_run *run,
                      struct sim_ring_result *ret_result) VIA_MUST_CHECK;

#endif
