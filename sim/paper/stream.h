/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * System A as its paper describes it: a program writes, again and again, to a socket whose port is
 * configured. The kernel copies into the area of the NT port, the switch's DMA engine moves it to
 * the peer's area, the kernel polls for completion, and a doorbell wakes the receiver, which copies
 * the data out. The receiver may not read before the doorbell, the sender may not overwrite unread
 * data. Choices that the paper leaves open are made here; every time comes from the scenario.
 */
#ifndef SIM_PAPER_STREAM_H
#define SIM_PAPER_STREAM_H

#include "sim/cost/actor.h"
#include "sim/cost/dma.h"
#include "sim/cost/net.h"

enum sim_stream_mode {
    SIM_STREAM_POLLING,  /* as the paper did: one buffer, its state polled in the chip */
    SIM_STREAM_DOORBELL, /* as the paper proposes: the engine's interrupt rings, a doorbell frees
                            buffers */
};

struct sim_stream_result {
    double rate;   /* bytes per second that the receiver's program gets */
    double cpu_ps; /* CPU time of the sender's host, per write */
};

void sim_stream_run(const struct sim_scenario *scenario, enum sim_stream_mode mode, uint64_t bytes,
                    struct sim_stream_result *ret_result);

/* Seconds that an eight-byte store takes from host to host. */
double sim_stream_latency(const struct sim_scenario *scenario);

#endif
