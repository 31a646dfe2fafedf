/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Stores of one core into a window.
 *
 * Write-combined: stores fill a line in a fill buffer; a full line leaves as one TLP, and its
 * buffer is free again when the root port has sent the TLP. With all buffers full the core waits,
 * so the limit is first the core, then the link, and, when its credits are used up, the receiver.
 *
 * Uncached: each store is a TLP of its own. The core puts it into a short queue, which passes
 * stores to the root port strictly one after the other; with the queue full the core waits.
 */
#ifndef SIM_COST_PIO_H
#define SIM_COST_PIO_H

#include "sim/cost/net.h"

struct sim_pio {
    struct sim_net *net; /* borrowed */
    uint64_t store_ps;   /* time of a store into a fill buffer */
    unsigned store_bytes;
    unsigned line_bytes;
    uint64_t uncached_store_ps; /* time of a store into the queue */
    uint64_t uncached_drain_ps; /* from the head of the queue to the root port */
    struct sim_pool buffers;
    struct sim_pool queue;
    struct sim_server drain; /* of the queue */
    struct sim_server core;  /* stores are made in order */
};

void sim_pio_init(struct sim_pio *pio, struct sim_net *net, const struct sim_scenario *scenario);

struct sim_pio_store {
    struct sim_pio *pio;
    const struct sim_path *path;
    uint64_t bytes;
    bool combined;           /* write-combined, otherwise uncached */
    struct sim_call stored;  /* combined: the link has sent the last line, as after a fence;
                                uncached: the last store is in the queue */
    struct sim_call arrived; /* the last byte is visible at the far end */
    uint64_t left_bytes;     /* private */
};

/* The caller's storage until both calls were made. One transfer at a time per core. */
void sim_pio_start(struct sim_pio_store *store);

#endif
