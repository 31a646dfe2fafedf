/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A transfer thread of src/host on a modelled processor: turns of a compiled node, and between them
 * what host/host_wait.c says. What a turn does beside the node's work, and what all of it costs, is
 * the fabric's.
 */
#ifndef SIM_COST_TRANSFER_H
#define SIM_COST_TRANSFER_H

#include "host/host_wait.h"
#include "sim/cost/actor.h"

struct sim_transfer;

struct sim_transfer_ops {
    /* At the beginning of a turn: spends the turn's own cost and takes programs' commands; returns
     * how many it served. */
    unsigned (*begin)(struct sim_transfer *transfer);
    /* The node has been polled and found `work`. */
    void (*polled)(struct sim_transfer *transfer, unsigned work);
    /* Commands that the node would take. */
    bool (*has_commands)(const struct sim_transfer *transfer);
};

struct sim_transfer {
    struct sim_actor actor;
    struct sim_cpu *cpu;        /* borrowed, as all that follows */
    struct via_node *node;      /* set before the first event */
    struct sim_transfer *first; /* the host's, of channel 0: it does what a control thread does */
    const struct sim_transfer_ops *ops;
    const bool *stopping;
    unsigned channel;
    struct via_host_wait wait;
    uint64_t seen_count; /* events without a bell that may have given this thread work */
    uint64_t ticket;     /* of the wait under way; what was to end an earlier one is late */
    bool is_polling;
};

/* Begins with the next event. */
void sim_transfer_start(struct sim_transfer *transfer, struct sim_cpu *cpu, uint64_t spin_ps);

/* Something in memory that it sees if it looks: stores, the end of a fence. */
void sim_transfer_show(struct sim_transfer *transfer);
/* The bell. */
void sim_transfer_ring(struct sim_transfer *transfer);

#endif
