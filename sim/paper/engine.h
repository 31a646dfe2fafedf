/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A device's engine, used by a host: after the doorbell it fetches its command, moves the data, and
 * writes a word into the host's memory, which the host polls.
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
    uint64_t notice_ps; /* from the word in memory until the host notices */
    uint64_t done_ps;   /* called when the host notices */
};

/* Adds nodes, "dma device" and the paths between them; -EINVAL. Call fini after a failure, too. */
int sim_engine_init(struct sim_engine *engine, const struct sim_scenario *scenario,
                    const char *host, const char *device, const char *dma, uint64_t notice_ps,
                    struct via_error *err) VIA_MUST_CHECK;
void sim_engine_fini(struct sim_engine *engine);

/* Sets the next transfer: from the host's memory to the device, or the reverse. */
void sim_engine_prepare(struct sim_engine *engine, bool to_device, uint64_t bytes);
/* The doorbell arrives. */
struct sim_call sim_engine_rung(struct sim_engine *engine);
/* The host notices the completion now. */
struct sim_call sim_engine_done(struct sim_engine *engine);

#endif
