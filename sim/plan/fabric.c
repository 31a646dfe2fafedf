/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/plan/fabric.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "sim/memory.h"
#include "sim/plan/pipe.h"

static uint64_t time_of(const struct sim_scenario *parts, const char *key)
{
    return sim_scenario_ps(parts, "viaduct", key);
}

static unsigned count_of(const struct sim_scenario *parts, const char *key)
{
    return (unsigned)sim_scenario_count(parts, "viaduct", key);
}

void plan_costs_read(struct plan_costs *costs, const struct sim_scenario *parts)
{
    *costs = (struct plan_costs){
        .copy_rate = sim_scenario_number(parts, "memory", "copy"),
        .bus_rate = sim_scenario_number(parts, "memory", "bus"),
        .store_rate = sim_scenario_number(parts, "pio", "store_bytes") /
                      sim_scenario_number(parts, "pio", "store") * (double)SIM_SEC_PS,
        .fill_bytes = sim_scenario_count(parts, "pio", "fill_buffers") *
                      sim_scenario_count(parts, "pio", "line"),
        .submit_ps = time_of(parts, "submit"),
        .turn_ps = time_of(parts, "turn"),
        .frame_ps = time_of(parts, "frame"),
        .fence_ps = sim_scenario_ps(parts, "software", "fence"),
        .ring_ps = sim_scenario_ps(parts, "software", "register_store"),
        .handler_ps = sim_scenario_ps(parts, "software", "handler"),
        .spin_ps = time_of(parts, "spin"),
        .stuck_ps = time_of(parts, "stuck"),
        .retry_ps = time_of(parts, "retry"),
        .channels_count = count_of(parts, "channels"),
        .pipe_slots = count_of(parts, "pipe_slots"),
        .bypass_count = count_of(parts, "bypass"),
        .window_frames = count_of(parts, "window"),
        .batch_frames = count_of(parts, "batch"),
        .frame_bytes = sim_scenario_count(parts, "viaduct", "body"),
    };
    sim_cpu_config_read(parts, "cpu", &costs->cpu);
}

/* --- making ---------------------------------------------------------------------------------- */

static void make_hosts(struct plan_fabric *fabric, uint64_t seed)
{
    unsigned channels = fabric->costs.channels_count;
    fabric->cpus = sim_alloc(fabric->hosts_count * sizeof(*fabric->cpus));
    fabric->buses = sim_alloc(fabric->hosts_count * sizeof(*fabric->buses));
    fabric->hosts = sim_alloc(fabric->hosts_count * sizeof(*fabric->hosts));
    fabric->threads = sim_alloc(fabric->hosts_count * channels * sizeof(*fabric->threads));
    for (unsigned i = 0; i < fabric->hosts_count; i++) {
        sim_cpu_init(&fabric->cpus[i], fabric->cost, &fabric->costs.cpu, seed + i);
        sim_server_init(&fabric->buses[i], fabric->cost);
        struct plan_host *host = &fabric->hosts[i];
        *host = (struct plan_host){.fabric = fabric,
                                   .cpu = &fabric->cpus[i],
                                   .bus = &fabric->buses[i],
                                   .index = (uint16_t)i,
                                   .threads = &fabric->threads[(size_t)i * channels]};
        unsigned neighbour = i + 1 < fabric->hosts_count ? i + 1 : i - 1;
        if (fabric->shape->kind == PLAN_TORUS) {
            plan_shape_way(fabric->shape, i, neighbour, &neighbour);
        }
        plan_wiring_path(fabric->wiring, i, neighbour, &host->there);
        plan_wiring_path(fabric->wiring, neighbour, i, &host->back);
        for (unsigned k = 0; k < channels; k++) {
            plan_thread_init(&host->threads[k], host, k);
        }
    }
}

struct plan_fabric *plan_fabric_new(struct sim_cost *cost, const struct plan_costs *costs,
                                    const struct plan_shape *shape, struct plan_wiring *wiring,
                                    const struct plan_events *events, uint64_t seed)
{
    struct plan_fabric *fabric = sim_alloc(sizeof(*fabric));
    unsigned buckets = 64;
    *fabric = (struct plan_fabric){
        .cost = cost,
        .costs = *costs,
        .shape = shape,
        .wiring = wiring,
        .events = *events,
        .hosts_count = shape->hosts_count,
        .all_pipes = {.bytes = sizeof(struct plan_pipe)},
        .all_frames = {.bytes = sizeof(struct plan_frame)},
        .all_ops = {.bytes = sizeof(struct plan_op)},
    };
    while (buckets < shape->hosts_count * costs->channels_count * 4) {
        buckets *= 2;
    }
    fabric->pipes_mask = buckets - 1;
    fabric->pipes = sim_alloc(buckets * sizeof(struct plan_pipe *));
    make_hosts(fabric, seed);
    fabric->marked_buses = sim_alloc(fabric->hosts_count * sizeof(uint64_t));
    fabric->marked_links = sim_alloc(2 * wiring->net.links_count * sizeof(uint64_t));
    if (shape->kind == PLAN_TORUS) {
        sim_cost_after(cost, costs->stuck_ps, (struct sim_call){plan_fabric_sweep, fabric, 0});
    }
    return fabric;
}

void plan_fabric_free(struct plan_fabric *fabric)
{
    sim_objects_fini(&fabric->all_pipes);
    sim_objects_fini(&fabric->all_frames);
    sim_objects_fini(&fabric->all_ops);
    free(fabric->cpus);
    free(fabric->buses);
    free(fabric->hosts);
    free(fabric->threads);
    free(fabric->pipes);
    free(fabric->marked_links);
    free(fabric->marked_buses);
    free(fabric);
}

void plan_fabric_submit(struct plan_fabric *fabric, unsigned source, unsigned destination,
                        unsigned channel, uint64_t bytes, uint8_t tag)
{
    struct plan_op *op = sim_objects_new(&fabric->all_ops);
    uint64_t frames = (bytes + fabric->costs.frame_bytes - 1) / fabric->costs.frame_bytes;
    *op = (struct plan_op){
        .born_ps = fabric->cost->now_ps,
        .bytes = bytes,
        .unsent_bytes = bytes,
        .frames_left = (uint32_t)via_max(frames, UINT64_C(1)),
        .frames_unsent = (uint32_t)via_max(frames, UINT64_C(1)),
        .source = (uint16_t)source,
        .destination = (uint16_t)destination,
        .channel = (uint8_t)channel,
        .tag = tag,
        .queued = true,
    };
    plan_thread_submit(&fabric->hosts[source].threads[channel], op);
}

void plan_fabric_store(struct plan_fabric *fabric, unsigned source, unsigned neighbour,
                       struct sim_call seen)
{
    const struct plan_pipe *pipe = plan_pipe_towards(fabric, source, neighbour, 0);
    sim_net_post(&fabric->wiring->net,
                 &(struct sim_post){.path = &pipe->there, .bytes = 8, .arrived = seen});
}

uint64_t plan_fabric_stuck(const struct plan_fabric *fabric)
{
    return fabric->stuck_count;
}

/* --- utilisation ----------------------------------------------------------------------------- */

static struct sim_server *wire(const struct plan_fabric *fabric, size_t i)
{
    return &fabric->wiring->net.links[i / 2].ways[i % 2].wire;
}

static size_t wires_count(const struct plan_fabric *fabric)
{
    return 2 * (size_t)fabric->wiring->net.links_count;
}

/* Up to now: a server has also accounted for the work it still has to do. */
static uint64_t busy_of(const struct sim_server *server, uint64_t now_ps)
{
    uint64_t ahead = server->free_ps > now_ps ? server->free_ps - now_ps : 0;
    return server->busy_ps - via_min(ahead, server->busy_ps);
}

static size_t threads_count(const struct plan_fabric *fabric)
{
    return (size_t)fabric->hosts_count * fabric->costs.channels_count;
}

void plan_fabric_mark(struct plan_fabric *fabric)
{
    uint64_t now_ps = fabric->cost->now_ps;
    fabric->marked_ps = now_ps;
    for (size_t i = 0; i < wires_count(fabric); i++) {
        fabric->marked_links[i] = busy_of(wire(fabric, i), now_ps);
    }
    for (unsigned i = 0; i < fabric->hosts_count; i++) {
        fabric->marked_buses[i] = busy_of(&fabric->buses[i], now_ps);
    }
    for (size_t i = 0; i < threads_count(fabric); i++) {
        struct plan_thread *thread = &fabric->threads[i];
        thread->marked_busy_ps = thread->busy_ps;
        thread->marked_stalled_ps = thread->stalled_ps;
    }
}

void plan_fabric_links(const struct plan_fabric *fabric, float *ret_shares)
{
    uint64_t now_ps = fabric->cost->now_ps;
    double elapsed = (double)via_max(now_ps - fabric->marked_ps, UINT64_C(1));
    for (size_t i = 0; i < wires_count(fabric); i++) {
        uint64_t busy = busy_of(wire(fabric, i), now_ps) - fabric->marked_links[i];
        ret_shares[i] = (float)fmin((double)busy / elapsed, 1);
    }
}

static void busiest_link(const struct plan_fabric *fabric, double elapsed,
                         struct plan_busy *ret_busy)
{
    for (size_t i = 0; i < wires_count(fabric); i++) {
        uint64_t busy = busy_of(wire(fabric, i), fabric->cost->now_ps) - fabric->marked_links[i];
        if ((double)busy / elapsed > ret_busy->share) {
            const struct sim_net *net = &fabric->wiring->net;
            const struct sim_link *link = &net->links[i / 2];
            ret_busy->share = (double)busy / elapsed;
            snprintf(ret_busy->name, sizeof(ret_busy->name), "%s > %s",
                     net->nodes[i % 2 == 0 ? link->a : link->b].name,
                     net->nodes[i % 2 == 0 ? link->b : link->a].name);
        }
    }
}

static void busiest_thread(const struct plan_fabric *fabric, double elapsed,
                           struct plan_busy *ret_busy)
{
    for (size_t i = 0; i < threads_count(fabric); i++) {
        const struct plan_thread *thread = &fabric->threads[i];
        double busy = (double)(thread->busy_ps - thread->marked_busy_ps) / elapsed;
        if (busy > ret_busy->share) {
            double stalled = (double)(thread->stalled_ps - thread->marked_stalled_ps) / elapsed;
            ret_busy->share = busy;
            ret_busy->work = busy - stalled;
            snprintf(ret_busy->name, sizeof(ret_busy->name), "transfer thread %u of host %u",
                     thread->channel, thread->host->index);
        }
    }
}

static void busiest_memory(const struct plan_fabric *fabric, double elapsed,
                           struct plan_busy *ret_busy)
{
    for (unsigned i = 0; i < fabric->hosts_count; i++) {
        uint64_t busy = busy_of(&fabric->buses[i], fabric->cost->now_ps) - fabric->marked_buses[i];
        if ((double)busy / elapsed > ret_busy->share) {
            ret_busy->share = (double)busy / elapsed;
            snprintf(ret_busy->name, sizeof(ret_busy->name), "memory of host %u", i);
        }
    }
}

void plan_fabric_busiest(const struct plan_fabric *fabric, enum plan_resource resource,
                         struct plan_busy *ret_busy)
{
    double elapsed = (double)(fabric->cost->now_ps - fabric->marked_ps);
    *ret_busy = (struct plan_busy){0};
    if (elapsed <= 0) {
        return;
    }
    if (resource == PLAN_LINK) {
        busiest_link(fabric, elapsed, ret_busy);
    } else if (resource == PLAN_THREAD) {
        busiest_thread(fabric, elapsed, ret_busy);
    } else {
        busiest_memory(fabric, elapsed, ret_busy);
    }
    /* A job counts when it has ended, so one may have begun before the mark. */
    ret_busy->share = fmin(ret_busy->share, 1);
    ret_busy->work = fmin(ret_busy->work, ret_busy->share);
}
