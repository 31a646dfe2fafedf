/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/cost/cost.h"

#include <assert.h>

#include "base/types.h"
#include "sim/memory.h"

void sim_cost_init(struct sim_cost *cost)
{
    *cost = (struct sim_cost){.waiters = {.bytes = sizeof(struct sim_pool_waiter)}};
    sim_queue_init(&cost->queue, sizeof(struct sim_cost_event));
}

void sim_cost_fini(struct sim_cost *cost)
{
    sim_queue_fini(&cost->queue);
    sim_objects_fini(&cost->waiters);
}

void sim_cost_at(struct sim_cost *cost, uint64_t time_ps, struct sim_call call)
{
    if (call.run == NULL) {
        return;
    }
    struct sim_cost_event *event = sim_queue_add(&cost->queue, via_max(time_ps, cost->now_ps));
    event->queued.object = call.object;
    event->run = call.run;
    event->arg = call.arg;
}

void sim_cost_after(struct sim_cost *cost, uint64_t delay_ps, struct sim_call call)
{
    sim_cost_at(cost, cost->now_ps + via_min(delay_ps, UINT64_MAX - cost->now_ps), call);
}

bool sim_cost_step(struct sim_cost *cost)
{
    struct sim_cost_event *event = sim_queue_take(&cost->queue);
    if (event == NULL) {
        return false;
    }
    const struct sim_call call = {event->run, event->queued.object, event->arg};
    cost->now_ps = event->queued.time;
    cost->taken_count++;
    sim_objects_free(&cost->queue.events, event);
    call.run(call.object, call.arg);
    return true;
}

bool sim_cost_step_until(struct sim_cost *cost, uint64_t end_ps)
{
    return sim_queue_next(&cost->queue) <= end_ps && sim_cost_step(cost);
}

bool sim_cost_run(struct sim_cost *cost, uint64_t events_max)
{
    for (uint64_t i = 0; i < events_max; i++) {
        if (!sim_cost_step(cost)) {
            return true;
        }
    }
    return false;
}

static void note_end(void *object, uint64_t arg)
{
    *(uint64_t *)object = arg;
}

struct sim_call sim_cost_ending(uint64_t *ended)
{
    *ended = false;
    return (struct sim_call){.run = note_end, .object = ended, .arg = true};
}

uint64_t sim_cost_wait(struct sim_cost *cost, const uint64_t *ended)
{
    uint64_t from_ps = cost->now_ps;
    while (!*ended && sim_cost_step(cost)) {
    }
    assert(*ended);
    return cost->now_ps - from_ps;
}

/* --- server ---------------------------------------------------------------------------------- */

void sim_server_init(struct sim_server *server, struct sim_cost *cost)
{
    *server = (struct sim_server){.cost = cost};
}

uint64_t sim_server_add(struct sim_server *server, uint64_t service_ps, uint64_t lag_ps,
                        struct sim_call done)
{
    return sim_server_add_at(server, server->cost->now_ps, service_ps, lag_ps, done);
}

uint64_t sim_server_add_at(struct sim_server *server, uint64_t ready_ps, uint64_t service_ps,
                           uint64_t lag_ps, struct sim_call done)
{
    ready_ps = via_max(ready_ps, server->cost->now_ps);
    server->free_ps = via_max(server->free_ps, ready_ps) + service_ps;
    server->busy_ps += service_ps;
    sim_cost_at(server->cost, server->free_ps + lag_ps, done);
    return server->free_ps;
}

/* --- pool ------------------------------------------------------------------------------------ */

void sim_pool_init(struct sim_pool *pool, struct sim_cost *cost, uint64_t total_count)
{
    *pool = (struct sim_pool){.cost = cost, .free_count = total_count, .total_count = total_count};
}

bool sim_pool_try(struct sim_pool *pool, uint64_t count)
{
    if (pool->first != NULL || pool->free_count < count) {
        return false;
    }
    pool->free_count -= count;
    return true;
}

void sim_pool_take(struct sim_pool *pool, uint64_t count, struct sim_call call)
{
    assert(count <= pool->total_count);
    if (sim_pool_try(pool, count)) {
        sim_cost_after(pool->cost, 0, call);
        return;
    }
    struct sim_pool_waiter *waiter = sim_objects_new(&pool->cost->waiters);
    *waiter = (struct sim_pool_waiter){.count = count, .call = call};
    *(pool->first == NULL ? &pool->first : &pool->last->next) = waiter;
    pool->last = waiter;
    pool->waited_count++;
}

void sim_pool_give(struct sim_pool *pool, uint64_t count)
{
    pool->free_count += count;
    assert(pool->free_count <= pool->total_count);
    for (struct sim_pool_waiter *waiter;
         (waiter = pool->first) != NULL && waiter->count <= pool->free_count;) {
        pool->first = waiter->next;
        pool->free_count -= waiter->count;
        sim_cost_after(pool->cost, 0, waiter->call);
        sim_objects_free(&pool->cost->waiters, waiter);
    }
}
