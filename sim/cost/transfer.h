/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A transfer thread of src/host on a modelled CPU: turns of a compiled node, and between them the
 * waiting rules of host/host_wait.c. The fabric that uses it supplies the costs, and the work of a
 * turn besides the node's.
 */
#ifndef SIM_COST_TRANSFER_H
#define SIM_COST_TRANSFER_H

#include "host/host_wait.h"
#include "sim/cost/actor.h"

struct sim_transfer;

struct sim_transfer_ops {
    /* Called at the beginning of a turn: spends the turn's own cost and takes programs' commands;
     * returns how many. */
    unsigned (*begin)(struct sim_transfer *transfer);
    /* Called after the node's poll, which found `work`. */
    void (*polled)(struct sim_transfer *transfer, unsigned work);
    /* Are there commands that the node would accept? */
    bool (*has_commands)(const struct sim_transfer *transfer);
};

struct sim_transfer {
    struct sim_actor actor;
    struct sim_cpu *cpu;   /* borrowed, as are the following */
    struct via_node *node; /* set before the first event */
    struct sim_transfer
        *first; /* the host's, of channel 0: it also does the control thread's work */
    const struct sim_transfer_ops *ops;
    const bool *stopping;
    unsigned channel;
    struct via_host_wait wait;
    uint64_t seen_count; /* counts wake-ups without a bell that may have given this thread work */
    uint64_t ticket;     /* number of the current wait; timers of earlier waits are void */
    bool is_polling;
};

/* Starts it with the next event. */
void sim_transfer_start(struct sim_transfer *transfer, struct sim_cpu *cpu, uint64_t spin_ps);

/* A change in memory that it sees if it polls: stores, the end of a fence. */
void sim_transfer_show(struct sim_transfer *transfer);
/* The bell rings. */
void sim_transfer_ring(struct sim_transfer *transfer);

#endif
