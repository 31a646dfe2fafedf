/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/plan/choice.h"

#include <math.h>
#include <stdio.h>

#include "base/types.h"
#include "sim/cost/dma.h"

/* Stores that start an engine in block mode: two addresses of two words each, a size, the start
 * bit. */
#define START_STORES 6u

/* A run ends with its last event, so no callback is needed. */
static void do_nothing(void *object, uint64_t arg)
{
    (void)object;
    (void)arg;
}

static unsigned least_mps(const struct sim_net *net, const struct sim_path *path)
{
    unsigned mps = 4096;
    for (unsigned i = 0; i < path->hops_count; i++) {
        mps = via_min(mps, net->links[path->hops[i].link].pcie.mps_bytes);
    }
    return mps;
}

/* Time from the start of a run until nothing is under way any more. */
static double run(struct sim_net *net, uint64_t from_ps)
{
    sim_cost_run(net->cost, UINT64_MAX);
    return (double)(net->cost->now_ps - from_ps);
}

static double by_stores(struct sim_net *net, const struct sim_path *path,
                        const struct plan_costs *costs, uint64_t bytes)
{
    uint64_t from_ps = net->cost->now_ps;
    sim_net_post(net, &(struct sim_post){.path = path,
                                         .bytes = bytes + PLAN_RECORD_BYTES,
                                         .arrived = {do_nothing, net->cost, 0}});
    return fmax(run(net, from_ps), sim_ps_of(bytes, costs->store_rate)) + (double)costs->fence_ps;
}

/* Time of a body by the engine: staged, started, delivered; then the record. */
static double by_engine(struct sim_net *net, const struct sim_path *path,
                        const struct sim_scenario *parts, const char *section,
                        const struct plan_costs *costs, uint64_t bytes)
{
    struct sim_dma dma;
    struct sim_path slot, back, to_target;
    sim_net_part(net, path, 0, 1, &slot);
    sim_net_part(net, path, 1, path->hops_count, &to_target);
    slot.mps_bytes = least_mps(net, &slot);
    back = slot;
    back.from = slot.to;
    back.to = slot.from;
    back.hops[0].way = !slot.hops[0].way;
    to_target.mps_bytes = least_mps(net, &to_target);
    sim_dma_init(&dma, net, parts, section);
    const struct sim_dma_transfer transfer = {.to_source = &back,
                                              .from_source = &slot,
                                              .to_target = &to_target,
                                              .bytes = bytes,
                                              .done = {do_nothing, net->cost, 0}};
    uint64_t from_ps = net->cost->now_ps;
    sim_dma_start(&dma, 0, &transfer);
    double ps = run(net, from_ps);
    sim_dma_fini(&dma);
    return ps + sim_ps_of(bytes, costs->copy_rate) + (double)(START_STORES * costs->ring_ps) +
           by_stores(net, path, costs, 0);
}

/* Rate of all channels together, through the narrowest link of the path. */
static double engine_rate(const struct plan_wiring *wiring, const struct sim_path *path,
                          const struct sim_scenario *parts, const char *section, uint64_t bytes)
{
    double requests =
        (double)sim_scenario_count(parts, section, "mrrs") /
        (double)via_max(sim_scenario_ps(parts, section, "request_interval"), UINT64_C(1)) *
        (double)SIM_SEC_PS * (double)sim_scenario_count(parts, section, "channels");
    return fmin(requests, plan_wiring_rate(wiring, path, bytes, PLAN_RECORD_BYTES,
                                           least_mps(&wiring->net, path)));
}

bool plan_choice_make(struct plan_wiring *wiring, const struct plan_costs *costs,
                      const struct sim_scenario *parts, uint64_t body_bytes,
                      struct plan_choice *ret)
{
    const char *name = sim_scenario_instance(parts, "dma", 0);
    struct sim_path path;
    char section[48];
    *ret = (struct plan_choice){0};
    if (name == NULL) {
        return false;
    }
    snprintf(section, sizeof(section), "dma %s", name);
    plan_wiring_path(wiring, 0, 1, &path);
    ret->stores_ps = by_stores(&wiring->net, &path, costs, body_bytes);
    ret->engine_ps = by_engine(&wiring->net, &path, parts, section, costs, body_bytes);
    /* Stores beyond the fill buffers keep the thread busy as long as the link takes. */
    ret->stores_busy_ps = fmax(
        sim_ps_of(body_bytes, costs->store_rate),
        body_bytes <= costs->fill_bytes
            ? 0
            : sim_ps_of(body_bytes, plan_wiring_port_rate(wiring, body_bytes, PLAN_RECORD_BYTES)));
    ret->engine_busy_ps =
        sim_ps_of(body_bytes, costs->copy_rate) + (double)(START_STORES * costs->ring_ps);
    ret->engine_rate = engine_rate(wiring, &path, parts, section, body_bytes);
    for (uint64_t bytes = 64; bytes <= costs->frame_bytes && ret->quicker_bytes == 0; bytes *= 2) {
        if (by_engine(&wiring->net, &path, parts, section, costs, bytes) <
            by_stores(&wiring->net, &path, costs, bytes)) {
            ret->quicker_bytes = bytes;
        }
    }
    return true;
}
