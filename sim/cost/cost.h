/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Virtual time for the cost model: calls at a given time, servers with a queue, and pools of tokens
 * that callers wait for in order. The whole cost model consists of these three. Time is in
 * picoseconds, because a TLP of 64 bytes on Gen3 x16 lasts 5.5 ns and a run adds up millions of
 * them. One thread; nothing here is random, so a scenario has one history.
 */
#ifndef SIM_COST_COST_H
#define SIM_COST_COST_H

#include <stdbool.h>

#include "sim/queue.h"

#define SIM_NS_PS UINT64_C(1000)
#define SIM_USEC_PS UINT64_C(1000000)
#define SIM_SEC_PS UINT64_C(1000000000000)

/* The time of `bytes` at a rate in bytes per second. */
static inline double sim_ps_of(uint64_t bytes, double rate)
{
    return (double)bytes / rate * (double)SIM_SEC_PS;
}

struct sim_cost;

/* A call: run(object, arg). Without run it has no effect. The object is borrowed and must live
 * until the call. It is at least as large as a pointer, see sim_queued. */
struct sim_call {
    void (*run)(void *object, uint64_t arg);
    void *object;
    uint64_t arg;
};

struct sim_cost_event {
    struct sim_queued queued; /* time: ps */
    void (*run)(void *object, uint64_t arg);
    uint64_t arg;
};

struct sim_cost {
    uint64_t now_ps;
    uint64_t taken_count;
    struct sim_queue queue;
    struct sim_objects waiters; /* of all pools */
};

void sim_cost_init(struct sim_cost *cost);
void sim_cost_fini(struct sim_cost *cost);

/* Of two calls at one time the one scheduled first is made first; a time in the past means now.
 * These functions never make a call themselves, only sim_cost_step does. */
void sim_cost_at(struct sim_cost *cost, uint64_t time_ps, struct sim_call call);
void sim_cost_after(struct sim_cost *cost, uint64_t delay_ps, struct sim_call call);

/* Makes the next call; false if there is none. */
bool sim_cost_step(struct sim_cost *cost);
/* The same; false, too, if the next call is later than end_ps. */
bool sim_cost_step_until(struct sim_cost *cost, uint64_t end_ps);
/* Steps until no call is left, or events_max calls were made; false in the second case. */
bool sim_cost_run(struct sim_cost *cost, uint64_t events_max);

/* A call that sets *ended, and the time from now until it is made. The caller schedules the call
 * before it waits. */
struct sim_call sim_cost_ending(uint64_t *ended);
uint64_t sim_cost_wait(struct sim_cost *cost, const uint64_t *ended);

/* --- a server: one job after the other, in the order they come ------------------------------- */

/* A link direction, a DMA channel's data path, a memory bus. */
struct sim_server {
    struct sim_cost *cost; /* borrowed */
    uint64_t free_ps;      /* end of all jobs so far */
    uint64_t busy_ps;      /* total time of all jobs so far */
};

void sim_server_init(struct sim_server *server, struct sim_cost *cost);

/*
 * Adds a job of service_ps behind the earlier ones; `done` is called lag_ps after the job's end
 * (the lag is a propagation time: it does not occupy the server). Returns the job's end, without
 * the lag.
 */
uint64_t sim_server_add(struct sim_server *server, uint64_t service_ps, uint64_t lag_ps,
                        struct sim_call done);
/* The same for a job that can not begin before ready_ps. */
uint64_t sim_server_add_at(struct sim_server *server, uint64_t ready_ps, uint64_t service_ps,
                           uint64_t lag_ps, struct sim_call done);

/* --- a pool: tokens, and callers who wait for them in order ---------------------------------- */

struct sim_pool_waiter {
    struct sim_pool_waiter *next;
    uint64_t count;
    struct sim_call call;
};

/* For fill buffers, flow-control credits, tags of outstanding reads, doorbell bits. */
struct sim_pool {
    struct sim_cost *cost;                /* borrowed; it frees the waiters that are left */
    struct sim_pool_waiter *first, *last; /* the last, if there is a first */
    uint64_t free_count, total_count;
    uint64_t waited_count; /* number of takes that had to wait */
};

void sim_pool_init(struct sim_pool *pool, struct sim_cost *cost, uint64_t total_count);

/* Calls `got` when `count` tokens belong to the caller, now or later; first come, first served,
 * even if a later caller needs fewer. count is at most total_count. */
void sim_pool_take(struct sim_pool *pool, uint64_t count, struct sim_call call);
/* The same without waiting; false if there are not enough, or other callers wait. */
bool sim_pool_try(struct sim_pool *pool, uint64_t count);
void sim_pool_give(struct sim_pool *pool, uint64_t count);

#endif
