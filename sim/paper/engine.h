/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A device's engine that a host uses: rung, it fetches its command, moves the data, and writes a
 * word into the host's memory, which the host polls.
 */
#ifndef SIM_PAPER_ENGINE_H
#define SIM_PAPER_ENGINE_H

#include "sim/cost/dma.h"

struct sim_engine {
    const struct sim_scenario *scenario; /* borrowed */
    struct sim_cost cost;
    struct sim_net net;
    struct sim_dma dma;
    struct sim_path to_device, to_host, nowhere;
    struct sim_dma_transfer transfer;
    uint64_t notice_ps; /* from the word in memory until the host knows */
    uint64_t done_ps;   /* when it knows */
};

/* Both nodes, "dma device" and ways between them; -EINVAL. To be finished also after a failure. */
int sim_engine_init(struct sim_engine *engine, const struct sim_scenario *scenario,
                    const char *host, const char *device, const char *dma, uint64_t notice_ps,
                    struct via_error *err) VIA_MUST_CHECK;
void sim_engine_fini(struct sim_engine *engine);

/* What it will do when rung: from the host's memory to the device, or the contrary. */
void sim_engine_prepare(struct sim_engine *engine, bool to_device, uint64_t bytes);
/* The doorbell has arrived. */
struct sim_call sim_engine_rung(struct sim_engine *engine);
/* The host knows: now. */
struct sim_call sim_engine_done(struct sim_engine *engine);

#endif
