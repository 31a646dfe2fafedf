/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/cost/cost.h"

#include <assert.h>
#include <stdlib.h>

#include "base/types.h"
#include "sim/memory.h"

void sim_cost_init(struct sim_cost *cost)
{
    *cost = (struct sim_cost){.capacity = 1024};
    cost->heap = sim_alloc(cost->capacity * sizeof(*cost->heap));
}

void sim_cost_fini(struct sim_cost *cost)
{
    free(cost->heap);
    cost->heap = NULL;
}

void sim_cost_at(struct sim_cost *cost, uint64_t time_ps, struct sim_call call)
{
    if (call.run == NULL) {
        return;
    }
    if (cost->count == cost->capacity) {
        cost->capacity *= 2;
        cost->heap = sim_realloc(cost->heap, cost->capacity * sizeof(*cost->heap));
    }
    const struct sim_cost_event event = {
        .when = {.time = via_max(time_ps, cost->now_ps), .order = cost->next_order++},
        .call = call,
    };
    sim_heap_push(cost->heap, cost->count++, &event, sizeof(event));
}

void sim_cost_after(struct sim_cost *cost, uint64_t delay_ps, struct sim_call call)
{
    sim_cost_at(cost, cost->now_ps + delay_ps, call);
}

bool sim_cost_step(struct sim_cost *cost)
{
    if (cost->count == 0) {
        return false;
    }
    const struct sim_cost_event event = cost->heap[0];
    sim_heap_pop(cost->heap, cost->count--, sizeof(event));
    /* Large runs wait for memory: prefetch the object of the next call while this call is made. */
    const char *next = cost->heap[0].call.object;
    __builtin_prefetch(next);
    __builtin_prefetch(next + VIA_CACHELINE);
    cost->now_ps = event.when.time;
    cost->taken_count++;
    event.call.run(event.call.object, event.call.arg);
    return true;
}

bool sim_cost_run(struct sim_cost *cost, uint64_t events_max)
{
    for (uint64_t i = 0; i < events_max; i++) {
        if (!sim_cost_step(cost)) {
            return true;
        }
    }
    return cost->count == 0;
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

void sim_pool_fini(struct sim_pool *pool)
{
    free(pool->waiters);
    pool->waiters = NULL;
}

bool sim_pool_try(struct sim_pool *pool, uint64_t count)
{
    if (pool->waiters_count > 0 || pool->free_count < count) {
        return false;
    }
    pool->free_count -= count;
    return true;
}

static void grow(struct sim_pool *pool)
{
    size_t capacity = via_max(pool->waiters_capacity * 2, (size_t)8);
    struct sim_pool_waiter *waiters = sim_alloc(capacity * sizeof(*waiters));
    for (size_t i = 0; i < pool->waiters_count; i++) {
        waiters[i] = pool->waiters[(pool->first + i) % pool->waiters_capacity];
    }
    free(pool->waiters);
    pool->waiters = waiters;
    pool->waiters_capacity = capacity;
    pool->first = 0;
}

void sim_pool_take(struct sim_pool *pool, uint64_t count, struct sim_call call)
{
    assert(count <= pool->total_count);
    if (sim_pool_try(pool, count)) {
        sim_cost_after(pool->cost, 0, call);
        return;
    }
    if (pool->waiters_count == pool->waiters_capacity) {
        grow(pool);
    }
    pool->waiters[(pool->first + pool->waiters_count++) % pool->waiters_capacity] =
        (struct sim_pool_waiter){.count = count, .call = call};
    pool->waited_count++;
}

void sim_pool_give(struct sim_pool *pool, uint64_t count)
{
    pool->free_count += count;
    assert(pool->free_count <= pool->total_count);
    while (pool->waiters_count > 0 && pool->waiters[pool->first].count <= pool->free_count) {
        const struct sim_pool_waiter waiter = pool->waiters[pool->first];
        pool->first = (pool->first + 1) % pool->waiters_capacity;
        pool->waiters_count--;
        pool->free_count -= waiter.count;
        sim_cost_after(pool->cost, 0, waiter.call);
    }
}
