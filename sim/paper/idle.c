/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/paper/idle.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/types.h"

#define EVENTS_MAX UINT64_C(50000000)
#define WORD_BYTES 8u
#define REGISTER_BYTES 4u

static unsigned find_node(const struct sim_idle *idle, const char *name)
{
    int node = sim_net_node(&idle->net, name);
    assert(node >= 0);
    return (unsigned)node;
}

void sim_idle_init(struct sim_idle *idle, const struct sim_scenario *scenario, const char *from,
                   const char *to)
{
    *idle = (struct sim_idle){.scenario = scenario};
    sim_cost_init(&idle->cost);
    sim_net_init(&idle->net, &idle->cost);
    sim_net_build(&idle->net, scenario);
    idle->from = find_node(idle, from);
    idle->to = find_node(idle, to);
    sim_net_way(&idle->net, idle->from, idle->to, &idle->there);
    sim_net_way(&idle->net, idle->to, idle->from, &idle->back);
}

void sim_idle_fini(struct sim_idle *idle)
{
    sim_dma_fini(&idle->dma);
    sim_net_fini(&idle->net);
    sim_cost_fini(&idle->cost);
}

static void left(void *object, uint64_t arg)
{
    (void)arg;
    struct sim_idle *idle = object;
    idle->left_ps = idle->cost.now_ps;
}

static void done(void *object, uint64_t arg)
{
    (void)arg;
    struct sim_idle *idle = object;
    idle->done_ps = idle->cost.now_ps;
}

void sim_idle_store(struct sim_idle *idle, bool combined, uint64_t bytes, uint64_t *ret_left_ps,
                    uint64_t *ret_seen_ps)
{
    sim_pio_init(&idle->pio, &idle->net, idle->scenario);
    idle->store = (struct sim_pio_store){.pio = &idle->pio,
                                         .path = &idle->there,
                                         .bytes = bytes,
                                         .combined = combined,
                                         .stored = {left, idle, 0},
                                         .arrived = {done, idle, 0}};
    sim_pio_start(&idle->store);
    sim_cost_run(&idle->cost, EVENTS_MAX);
    *ret_left_ps = idle->left_ps;
    *ret_seen_ps = idle->done_ps;
}

static uint64_t load(struct sim_idle *idle, const struct sim_path *there,
                     const struct sim_path *back, uint64_t bytes)
{
    uint64_t from_ps = idle->done_ps;
    sim_net_read(&idle->net, there, back, bytes, (struct sim_call){done, idle, 0});
    sim_cost_run(&idle->cost, EVENTS_MAX);
    return idle->done_ps - from_ps;
}

uint64_t sim_idle_read(struct sim_idle *idle)
{
    return load(idle, &idle->there, &idle->back, WORD_BYTES);
}

void sim_idle_dma(struct sim_idle *idle, const char *node, uint64_t bytes, uint64_t *ret_moved_ps,
                  uint64_t *ret_polled_ps)
{
    const struct sim_net *net = &idle->net;
    char section[48];
    snprintf(section, sizeof(section), "dma %.40s", node);
    unsigned engine = find_node(idle, node);
    sim_net_way(net, engine, idle->from, &idle->from_engine);
    sim_net_way(net, idle->from, engine, &idle->to_engine);
    sim_net_way(net, engine, idle->to, &idle->to_target);
    idle->transfer = (struct sim_dma_transfer){.to_source = &idle->from_engine,
                                               .from_source = &idle->to_engine,
                                               .to_target = &idle->to_target,
                                               .bytes = bytes,
                                               .done = {done, idle, 0}};
    sim_dma_init(&idle->dma, &idle->net, idle->scenario, section);
    sim_dma_start(&idle->dma, 0, &idle->transfer);
    sim_cost_run(&idle->cost, EVENTS_MAX);
    *ret_moved_ps = idle->done_ps;
    *ret_polled_ps = load(idle, &idle->to_engine, &idle->from_engine, REGISTER_BYTES);
}

/* --- a device's engine ------------------------------------------------------------------------ */

static void written_back(void *object, uint64_t arg)
{
    (void)arg;
    struct sim_idle *idle = object;
    sim_cost_after(&idle->cost, idle->notice_ps, (struct sim_call){done, idle, 0});
}

static void transferred(void *object, uint64_t arg)
{
    (void)arg;
    struct sim_idle *idle = object;
    sim_net_post(&idle->net, &(struct sim_post){.path = &idle->back,
                                                .bytes = REGISTER_BYTES,
                                                .arrived = {written_back, idle, 0}});
}

static void rung(void *object, uint64_t arg)
{
    (void)arg;
    struct sim_idle *idle = object;
    sim_dma_start(&idle->dma, 0, &idle->transfer);
}

static void ring(void *object, uint64_t stored)
{
    struct sim_idle *idle = object;
    const struct sim_call then = {rung, idle, 0};
    if (!stored) {
        sim_net_post(
            &idle->net,
            &(struct sim_post){.path = &idle->there, .bytes = REGISTER_BYTES, .arrived = then});
        return;
    }
    sim_pio_init(&idle->pio, &idle->net, idle->scenario);
    idle->store = (struct sim_pio_store){
        .pio = &idle->pio, .path = &idle->there, .bytes = idle->pio.store_bytes, .arrived = then};
    sim_pio_start(&idle->store);
}

uint64_t sim_idle_engine(struct sim_idle *idle, const struct sim_idle_engine *run)
{
    char section[48];
    snprintf(section, sizeof(section), "dma %.40s", run->name);
    sim_net_way(&idle->net, idle->to, idle->to, &idle->nowhere);
    idle->notice_ps = run->notice_ps;
    idle->transfer = (struct sim_dma_transfer){
        .to_source = run->to_device ? &idle->back : &idle->nowhere,
        .from_source = run->to_device ? &idle->there : &idle->nowhere,
        .to_target = run->to_device ? &idle->nowhere : &idle->back,
        .to_descriptor = &idle->back,
        .from_descriptor = &idle->there,
        .bytes = run->bytes,
        .done = {transferred, idle, 0},
    };
    sim_dma_init(&idle->dma, &idle->net, idle->scenario, section);
    sim_cost_after(&idle->cost, run->before_ps, (struct sim_call){ring, idle, run->stored});
    sim_cost_run(&idle->cost, EVENTS_MAX);
    return idle->done_ps;
}
