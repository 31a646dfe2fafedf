/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Fences: a read across the link. On its way out it waits for the queue's writes, and its
 * completion pushes the peer's writes on its way back: completions do not pass posted writes. Only
 * those writes of the peer count that had left when the read arrived.
 */
#include <errno.h>
#include <string.h>

#include "sim/posted.h"

static uint32_t event_end(const struct sim_end *end)
{
    return (uint32_t)(end - end->link->end);
}

static bool is_under_way(const struct sim_fence *fence)
{
    return fence->state == SIM_FENCE_OUT || fence->state == SIM_FENCE_BACK;
}

static uint64_t latency(struct sim_world *world)
{
    const struct sim_config_port *port = &world->config.port;
    return sim_between(&world->rng_port, port->put_ns_min, port->put_ns_max);
}

static void schedule(struct sim_end *end, unsigned queue, uint64_t at_ns)
{
    sim_clock_at(&end->world->clock, at_ns, SIM_EVENT_FENCE, end->link->index,
                 event_end(end) | queue << 8, end->fences[queue].number);
}

int sim_fence_start(struct sim_end *end, unsigned queue)
{
    struct sim_world *world = end->world;
    struct sim_fence *fence = &end->fences[queue];
    fence->state = SIM_FENCE_NONE;
    fence->number++;
    if (!end->link->up) {
        return -ENOLINK;
    }
    world->counts.fences++;
    fence->era = end->link->era;
    if (world->plant == SIM_PLANT_HOLLOW_FENCE) {
        fence->state = SIM_FENCE_DONE;
        return 0;
    }
    sim_posted_drain(end, &end->lanes[queue]);
    fence->state = SIM_FENCE_OUT;
    fence->mark = end->posted_count;
    fence->there_ns = world->clock.now_ns + latency(world);
    fence->back_ns = fence->there_ns + latency(world);
    schedule(end, queue, fence->there_ns);
    return 0;
}

int sim_fence_poll(struct sim_end *end, unsigned queue)
{
    struct sim_fence *fence = &end->fences[queue];
    if (fence->state == SIM_FENCE_NONE) {
        return -EINVAL;
    }
    bool same_link = end->link->up && fence->era == end->link->era;
    if (same_link && is_under_way(fence)) {
        return 0;
    }
    fence->state = SIM_FENCE_NONE;
    return same_link ? 1 : -ENOLINK;
}

void sim_link_fence(struct sim_link *link, uint32_t end_number, uint32_t queue, uint32_t number)
{
    struct sim_end *end = &link->end[end_number];
    struct sim_end *peer = end->peer;
    struct sim_fence *fence = &end->fences[queue];
    if (fence->number != number || fence->era != link->era || !is_under_way(fence)) {
        return;
    }
    if (fence->state == SIM_FENCE_OUT) {
        sim_posted_arrive_until(end, &end->lanes[queue], fence->mark);
        fence->mark = peer->posted_count;
        fence->state = SIM_FENCE_BACK;
        schedule(end, queue, fence->back_ns);
        return;
    }
    for (uint32_t i = 0; i < VIA_PORT_QUEUES; i++) {
        sim_posted_arrive_until(peer, &peer->lanes[i], fence->mark);
    }
    fence->state = SIM_FENCE_DONE;
}

static uint64_t ends_ns(const struct sim_end *end, unsigned queue)
{
    const struct sim_fence *fence = &end->fences[queue];
    if (!is_under_way(fence)) {
        return VIA_NEVER_NS;
    }
    return fence->era == end->link->era ? fence->back_ns : 0;
}

uint64_t sim_fence_ends_ns(const struct sim_thread *thread)
{
    const struct sim_host *host = thread->host;
    uint64_t next_ns = VIA_NEVER_NS;
    for (uint32_t i = 0; i < host->ports_count; i++) {
        next_ns = via_min(next_ns, ends_ns(host->ports[i], thread->channel));
        if (thread->channel == 0) {
            next_ns = via_min(next_ns, ends_ns(host->ports[i], VIA_PORT_QUEUE_CONTROL));
        }
    }
    return next_ns;
}

void sim_fence_drop(struct sim_end *end)
{
    for (uint32_t i = 0; i < VIA_PORT_QUEUES; i++) {
        end->fences[i].state = SIM_FENCE_NONE;
    }
}
