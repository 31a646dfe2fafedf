/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A transfer thread that waits: it looks at its memory for a while, which keeps its processor,
 * waits for fences, and sleeps. What nodes on planned fabrics and nodes in a published system's
 * ring share.
 */
#ifndef SIM_COST_POLLER_H
#define SIM_COST_POLLER_H

#include "sim/cost/actor.h"

struct sim_poller {
    struct sim_cost *cost; /* borrowed */
    struct sim_actor actor;
    uint64_t arrivals; /* of stores in its memory */
    uint64_t ticket;   /* of the spin under way */
    bool spinning, fencing;
};

/* Stores have arrived. */
void sim_poller_arrived(struct sim_poller *poller);
/* To look again, whether it spins or sleeps. */
void sim_poller_poke(struct sim_poller *poller);
/* A fence has come back. */
void sim_poller_fenced(struct sim_poller *poller);

/* --- from within its actor ------------------------------------------------------------------- */

/* Until something comes or it is poked; true if something came. */
bool sim_poller_spin(struct sim_poller *poller, uint64_t until_ps);
/* Until a fence comes back. */
void sim_poller_wait_for_fence(struct sim_poller *poller);

#endif
