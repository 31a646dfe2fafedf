/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Actors: threads of a modelled host, each a fiber with the thread's code and a task that needs a
 * CPU. And memory: all copies of a host share its bandwidth.
 */
#ifndef SIM_COST_ACTOR_H
#define SIM_COST_ACTOR_H

#include "sim/cost/cpu.h"
#include "sim/cost/fiber.h"

struct sim_actor {
    struct sim_fiber fiber;
    struct sim_task task;
    bool asleep;  /* it sleeps until sim_actor_wake() */
    bool woken;   /* it was woken while awake: its next sleep ends at once */
    bool granted; /* the pool that it waits for has given it its tokens */
};

/* Starts main(arg) now. The actor and the CPU must not move in memory. */
void sim_actor_start(struct sim_actor *actor, struct sim_cpu *cpu, void (*main)(void *arg),
                     void *arg);
void sim_actor_fini(struct sim_actor *actor);

/* Wakes it if it sleeps, else makes its next sleep end at once. May be called anywhere. */
void sim_actor_wake(struct sim_actor *actor);

/* --- called by the actor's own fiber --------------------------------------------------------- */

/* Computes. */
void sim_actor_work(struct sim_actor *actor, uint64_t work_ps);
/* Sleeps until woken. */
void sim_actor_sleep(struct sim_actor *actor);
/* Waits without giving up its CPU until the call sim_fiber_call(&actor->fiber): polling, or a slow
 * load. */
void sim_actor_stall(struct sim_actor *actor);
/* The same for a given time. */
void sim_actor_stall_until(struct sim_actor *actor, uint64_t time_ps);
/* Takes a token of a pool, sleeping while there is none. */
void sim_actor_take(struct sim_actor *actor, struct sim_pool *pool);
/* The same without sleeping. */
void sim_actor_spin_take(struct sim_actor *actor, struct sim_pool *pool);

/* --- memory ---------------------------------------------------------------------------------- */

/* The memory of a host. A core copies at a rate of its own as long as the bus can follow. */
struct sim_memory {
    struct sim_server bus;
    double copy_rate; /* bytes per second that one core copies alone */
    double bus_rate;  /* bytes per second that all cores and devices read or write */
    double
        crossings; /* bus bytes per byte copied: read, written, and fetched before it is written */
    uint64_t piece_bytes; /* part of a copy, after which other copies get their turn */
};

void sim_memory_init(struct sim_memory *memory, struct sim_cost *cost,
                     const struct sim_scenario *scenario);

void sim_actor_copy(struct sim_actor *actor, struct sim_memory *memory, uint64_t bytes);
/* Reads or writes of a device, which slow down copies. */
void sim_memory_traffic(struct sim_memory *memory, uint64_t bytes);

#endif
