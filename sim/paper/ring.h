/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * System B as its paper describes it: hosts in a ring, each with an adapter towards either
 * neighbour, and puts that transfer threads relay. Choices that the paper leaves open are made here
 * and marked; every time comes from the scenario.
 *
 * A put is a request {source, destination, offset, size}. At every host on the way, its source
 * first, a transfer thread takes the request from one of two queues and forwards it to the right.
 * The thread waits until its data doorbell is free and copies into its part of the shared region.
 * Then it takes the port, runs the DMA, writes the scratchpads (one set a link, whose last content
 * the neighbour must have read) and rings; the source sets up the address translation before. At
 * the neighbour the interrupt handler reads the scratchpads and wakes the service thread of that
 * doorbell, which copies the data out (into the symmetric object or a bypass buffer), frees the
 * doorbell, and queues the request if it goes on. A request is done when it is back at its source.
 * A thread that waits for the port or the scratchpads polls.
 */
#ifndef SIM_PAPER_RING_H
#define SIM_PAPER_RING_H

#include "sim/cost/actor.h"
#include "sim/cost/dma.h"
#include "sim/paper/ring_net.h"

#define SIM_RING_THREADS_MAX 16u

enum sim_ring_step {
    SIM_RING_TAKE,      /* request taken up */
    SIM_RING_INTERRUPT, /* wait for the thread's doorbell to be free */
    SIM_RING_COPY_IN,   /* into the shared region */
    SIM_RING_PORT,      /* wait for the port */
    SIM_RING_TRANSLATE, /* at the source: address translation set up, registers of the port */
    SIM_RING_DMA,
    SIM_RING_SCRATCHPAD, /* wait until the neighbour has read them; write them */
    SIM_RING_DOORBELL,   /* ring; until the interrupt is there */
    SIM_RING_HANDLER,    /* interrupt handler: reads the scratchpads */
    SIM_RING_SERVICE,    /* wake-up of the service thread */
    SIM_RING_COPY_OUT,
    SIM_RING_QUEUE, /* until a transfer thread takes it */
    SIM_RING_STEPS
};

struct sim_ring_run {
    unsigned hosts_count;
    unsigned threads_count; /* transfer threads of a host */
    unsigned senders_count; /* hosts that put: all, or only one */
    unsigned window;        /* puts of a host under way */
    unsigned puts_count;    /* puts measured, per host */
    uint64_t bytes;
};

struct sim_ring_result {
    double put_ps;                  /* time per put of a host, in steady state */
    double latency_ps;              /* latency of a put, from submit to its end */
    double step_ps[SIM_RING_STEPS]; /* per hop */
    uint64_t events_count;
};

/* Runs a whole history. The scenario has the sections above. */
void sim_ring_run(const struct sim_scenario *scenario, const struct sim_ring_run *run,
                  struct sim_ring_result *ret_result);

/* The DMA engine alone: seconds per transfer, one after the other, its completion polled. */
double sim_ring_raw_ps(const struct sim_scenario *scenario, uint64_t bytes);

#endif
