/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/cost/cost.h"

#include <assert.h>
#include <stdlib.h>

#include "base/types.h"
#include "sim/memory.h"

/* An event of a later day. */
struct sim_cost_later {
    struct sim_cost_later *next;
    struct sim_cost_event event;
};

void sim_cost_init(struct sim_cost *cost)
{
    *cost = (struct sim_cost){.capacity = 1024, .limit_ps = UINT64_MAX};
    cost->heap = sim_alloc(cost->capacity * sizeof(*cost->heap));
    cost->all_later.bytes = sizeof(struct sim_cost_later);
}

void sim_cost_fini(struct sim_cost *cost)
{
    free(cost->heap);
    free(cost->days);
    sim_objects_fini(&cost->all_later);
    cost->heap = NULL;
    cost->days = NULL;
}

static void push(struct sim_cost *cost, const struct sim_cost_event *event)
{
    if (cost->count == cost->capacity) {
        cost->capacity *= 2;
        cost->heap = sim_realloc(cost->heap, cost->capacity * sizeof(*cost->heap));
    }
    sim_heap_push(cost->heap, cost->count++, event, sizeof(*event));
}

/* --- days ------------------------------------------------------------------------------------ */

#define DAYS_COUNT 4096u   /* a power of two; day N uses list N % DAYS_COUNT */
#define DAY_EVENTS 4u      /* the goal for the length of a day */
#define CHECK_EVENTS 1024u /* between two checks of the length */

void sim_cost_use_days(struct sim_cost *cost)
{
    cost->days = sim_alloc(DAYS_COUNT * sizeof(*cost->days));
    cost->day_shift = 63; /* all events are in the heap until the first check */
}

static void list(struct sim_cost *cost, struct sim_cost_later *later)
{
    uint64_t day = later->event.when.time >> cost->day_shift;
    later->next = cost->days[day % DAYS_COUNT];
    cost->days[day % DAYS_COUNT] = later;
}

static void push_later(struct sim_cost *cost, const struct sim_cost_event *event)
{
    struct sim_cost_later *later = sim_objects_new(&cost->all_later);
    later->event = *event;
    cost->later_count++;
    list(cost, later);
}

/* Moves all events to lists of days of another length. The next day that begins is the current
 * one. */
static void set_days(struct sim_cost *cost, unsigned shift)
{
    struct sim_cost_later *all = NULL, *later;
    for (unsigned i = 0; i < DAYS_COUNT; i++) {
        while ((later = cost->days[i]) != NULL) {
            cost->days[i] = later->next;
            later->next = all;
            all = later;
        }
    }
    cost->day_shift = shift;
    cost->limit_ps = cost->now_ps >> shift << shift;
    cost->ahead = NULL;
    while ((later = all) != NULL) {
        all = later->next;
        list(cost, later);
    }
    for (; cost->count > 0; cost->count--) {
        push_later(cost, &cost->heap[cost->count - 1]);
    }
}

/* Changes the length of a day that is far from the goal. */
static void check_days(struct sim_cost *cost)
{
    uint64_t day_ps = (cost->now_ps - cost->checked_ps) / (CHECK_EVENTS / DAY_EVENTS);
    unsigned shift = 63 - (unsigned)__builtin_clzll(day_ps | 1);
    cost->checked_ps = cost->now_ps;
    if (shift + 1 < cost->day_shift || shift > cost->day_shift + 1) {
        set_days(cost, shift);
    }
}

static void prefetch(const void *memory)
{
    __builtin_prefetch(memory);
    __builtin_prefetch((const char *)memory + VIA_CACHELINE);
}

/* Large runs wait for memory. While the events of a day are taken, the list and the objects of the
 * next day are prefetched, and when that day begins, where the objects' first pointers lead. */
static void prefetch_ahead(struct sim_cost *cost)
{
    prefetch(cost->ahead->event.call.object);
    cost->ahead = cost->ahead->next;
    __builtin_prefetch(cost->ahead);
}

/* Moves the events of a day into the heap. */
static void take_day(struct sim_cost *cost, uint64_t day)
{
    struct sim_cost_later *later, **link = &cost->days[day % DAYS_COUNT];
    while ((later = *link) != NULL) {
        if (later->event.when.time >> cost->day_shift != day) {
            link = &later->next;
            continue;
        }
        prefetch(*(void *const *)later->event.call.object);
        push(cost, &later->event);
        *link = later->next;
        sim_objects_free(&cost->all_later, later);
        cost->later_count--;
    }
}

/* The heap is empty: fills it with the events of the next day that has any. */
static void begin_day(struct sim_cost *cost)
{
    uint64_t day = cost->limit_ps >> cost->day_shift;
    for (unsigned empty = 0; cost->count == 0; empty++) {
        if (empty == DAYS_COUNT) { /* none soon */
            set_days(cost, cost->day_shift + 6);
            day = cost->limit_ps >> cost->day_shift;
            empty = 0;
        }
        take_day(cost, day++);
    }
    cost->limit_ps = day << cost->day_shift;
    cost->ahead = cost->days[day % DAYS_COUNT];
}

/* --- calls ----------------------------------------------------------------------------------- */

void sim_cost_at(struct sim_cost *cost, uint64_t time_ps, struct sim_call call)
{
    if (call.run == NULL) {
        return;
    }
    const struct sim_cost_event event = {
        .when = {.time = via_max(time_ps, cost->now_ps), .order = cost->next_order++},
        .call = call,
    };
    (cost->days == NULL || event.when.time < cost->limit_ps ? push : push_later)(cost, &event);
}

void sim_cost_after(struct sim_cost *cost, uint64_t delay_ps, struct sim_call call)
{
    sim_cost_at(cost, cost->now_ps + delay_ps, call);
}

bool sim_cost_step(struct sim_cost *cost)
{
    if (cost->count == 0 && cost->later_count > 0) {
        begin_day(cost);
    }
    if (cost->count == 0) {
        return false;
    }
    const struct sim_cost_event event = cost->heap[0];
    sim_heap_pop(cost->heap, cost->count--, sizeof(event));
    if (cost->ahead != NULL) {
        prefetch_ahead(cost);
    }
    cost->now_ps = event.when.time;
    cost->taken_count++;
    if (cost->days != NULL && cost->taken_count % CHECK_EVENTS == 0) {
        check_days(cost);
    }
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
    return cost->count + cost->later_count == 0;
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
