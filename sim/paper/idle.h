/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* One message at a time between two nodes of an idle fabric: by stores of a core, a load, or an
 * engine. Each is measured on a fabric of its own. */
#ifndef SIM_PAPER_IDLE_H
#define SIM_PAPER_IDLE_H

#include "sim/cost/dma.h"
#include "sim/cost/pio.h"

struct sim_idle {
    const struct sim_scenario *scenario; /* borrowed */
    struct sim_cost cost;
    struct sim_net net;
    struct sim_dma dma;
    struct sim_pio pio;
    struct sim_pio_store store;
    unsigned from, to; /* nodes */
    struct sim_path there, back, nowhere;
    struct sim_path to_engine, from_engine, to_target;
    struct sim_dma_transfer transfer;
    uint64_t notice_ps;
    uint64_t left_ps, done_ps;
};

/* from, to: names of nodes, between which there is a path. */
void sim_idle_init(struct sim_idle *idle, const struct sim_scenario *scenario, const char *from,
                   const char *to);
void sim_idle_fini(struct sim_idle *idle);

/* Until the last store has left the core's buffers, and until it can be seen; of [pio]. */
void sim_idle_store(struct sim_idle *idle, bool combined, uint64_t bytes, uint64_t *ret_left_ps,
                    uint64_t *ret_seen_ps);
/* A word of the other node. */
uint64_t sim_idle_read(struct sim_idle *idle);
/* The engine in that node, [dma NODE], moves memory of one node to the other; then a register of it
 * is loaded. */
void sim_idle_dma(struct sim_idle *idle, const char *node, uint64_t bytes, uint64_t *ret_moved_ps,
                  uint64_t *ret_polled_ps);

/* A device's engine, [dma NAME], used by a host: after the doorbell it fetches its command, moves
 * the data, and writes a word into the host's memory, which the host polls. */
struct sim_idle_engine {
    const char *name;
    bool to_device;
    bool stored; /* the doorbell is a core's store, by [pio]; otherwise it leaves at once */
    uint64_t bytes, before_ps, notice_ps;
};
uint64_t sim_idle_engine(struct sim_idle *idle, const struct sim_idle_engine *run);

#endif
