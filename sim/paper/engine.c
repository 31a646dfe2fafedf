/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/paper/engine.h"

#include <errno.h>

#include "base/types.h"

/* Both ways, and none from the device to itself. */
static int find_ways(struct sim_engine *engine, unsigned host, unsigned device,
                     struct via_error *err)
{
    const struct sim_net *net = &engine->net;
    int rc = sim_net_way(net, engine->scenario, host, device, &engine->to_device, err);
    if (rc == 0) {
        rc = sim_net_way(net, engine->scenario, device, host, &engine->to_host, err);
    }
    return rc == 0 ? sim_net_way(net, engine->scenario, device, device, &engine->nowhere, err) : rc;
}

int sim_engine_init(struct sim_engine *engine, const struct sim_scenario *scenario,
                    const char *host, const char *device, const char *dma, uint64_t notice_ps,
                    struct via_error *err)
{
    *engine = (struct sim_engine){.scenario = scenario, .notice_ps = notice_ps};
    sim_cost_init(&engine->cost);
    sim_net_init(&engine->net, &engine->cost);
    int rc = sim_net_build(&engine->net, scenario, err);
    if (rc != 0) {
        return rc;
    }
    int from = sim_net_node(&engine->net, host);
    int to = sim_net_node(&engine->net, device);
    if (from < 0 || to < 0 || !sim_scenario_has(scenario, dma)) {
        return via_error_set(err, -EINVAL, "%.200s: expected [host %s], [device %s] and [%s]",
                             scenario->name, host, device, dma);
    }
    rc = find_ways(engine, (unsigned)from, (unsigned)to, err);
    if (rc == 0) {
        sim_dma_init(&engine->dma, &engine->net, scenario, dma);
    }
    return rc;
}

void sim_engine_fini(struct sim_engine *engine)
{
    sim_dma_fini(&engine->dma);
    sim_net_fini(&engine->net);
    sim_cost_fini(&engine->cost);
}

static void done(void *object, uint64_t arg)
{
    (void)arg;
    struct sim_engine *engine = object;
    engine->done_ps = engine->cost.now_ps;
}

static void written_back(void *object, uint64_t arg)
{
    (void)arg;
    struct sim_engine *engine = object;
    sim_cost_after(&engine->cost, engine->notice_ps, sim_engine_done(engine));
}

static void transferred(void *object, uint64_t arg)
{
    (void)arg;
    struct sim_engine *engine = object;
    sim_net_post(&engine->net, &(struct sim_post){.path = &engine->to_host,
                                                  .bytes = 4,
                                                  .arrived = {written_back, engine, 0}});
}

static void rung(void *object, uint64_t arg)
{
    (void)arg;
    struct sim_engine *engine = object;
    sim_dma_start(&engine->dma, 0, &engine->transfer);
}

void sim_engine_prepare(struct sim_engine *engine, bool to_device, uint64_t bytes)
{
    engine->transfer = (struct sim_dma_transfer){
        .to_source = to_device ? &engine->to_host : &engine->nowhere,
        .from_source = to_device ? &engine->to_device : &engine->nowhere,
        .to_target = to_device ? &engine->nowhere : &engine->to_host,
        .to_descriptor = &engine->to_host,
        .from_descriptor = &engine->to_device,
        .bytes = bytes,
        .done = {transferred, engine, 0},
    };
}

struct sim_call sim_engine_rung(struct sim_engine *engine)
{
    return (struct sim_call){rung, engine, 0};
}

struct sim_call sim_engine_done(struct sim_engine *engine)
{
    return (struct sim_call){done, engine, 0};
}
