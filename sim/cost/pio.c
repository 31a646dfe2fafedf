/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/cost/pio.h"

#include <assert.h>

#include "base/types.h"

void sim_pio_init(struct sim_pio *pio, struct sim_net *net, const struct sim_scenario *scenario)
{
    *pio = (struct sim_pio){
        .net = net,
        .store_ps = sim_scenario_ps(scenario, "pio", "store"),
        .store_bytes = (unsigned)sim_scenario_count(scenario, "pio", "store_bytes"),
        .line_bytes = (unsigned)sim_scenario_count(scenario, "pio", "line"),
        .uncached_store_ps = sim_scenario_ps(scenario, "pio", "uncached_store"),
        .uncached_drain_ps = sim_scenario_ps(scenario, "pio", "uncached_drain"),
    };
    sim_pool_init(&pio->buffers, net->cost, sim_scenario_count(scenario, "pio", "fill_buffers"));
    sim_pool_init(&pio->queue, net->cost, sim_scenario_count(scenario, "pio", "uncached_queue"));
    sim_server_init(&pio->drain, net->cost);
    sim_server_init(&pio->core, net->cost);
}

/* --- write-combined -------------------------------------------------------------------------- */

static void line_sent(void *object, uint64_t last)
{
    struct sim_pio_store *store = object;
    sim_pool_give(&store->pio->buffers, 1);
    if (last) {
        sim_cost_after(store->pio->net->cost, 0, store->stored);
    }
}

/* The contents of a fill buffer leave: a full line as one TLP, of another line each store by
 * itself. */
static void line_leaves(void *object, uint64_t bytes)
{
    struct sim_pio_store *store = object;
    struct sim_pio *pio = store->pio;
    bool last = store->left_bytes == 0;
    uint64_t unit = bytes == pio->line_bytes ? bytes : pio->store_bytes;
    while (bytes > 0) {
        uint64_t piece = via_min(bytes, unit);
        struct sim_post post = {.path = store->path, .bytes = piece};
        bytes -= piece;
        if (bytes == 0) {
            post.sent = (struct sim_call){line_sent, store, last};
            post.arrived = last ? store->arrived : (struct sim_call){0};
        }
        sim_net_post(pio->net, &post);
    }
}

static void fill_line(void *object, uint64_t arg);

static void line_full(void *object, uint64_t bytes)
{
    struct sim_pio_store *store = object;
    line_leaves(store, bytes);
    if (store->left_bytes > 0) {
        sim_pool_take(&store->pio->buffers, 1, (struct sim_call){fill_line, store, 0});
    }
}

/* A buffer is free for this store. */
static void fill_line(void *object, uint64_t arg)
{
    (void)arg;
    struct sim_pio_store *store = object;
    struct sim_pio *pio = store->pio;
    uint64_t bytes = via_min(store->left_bytes, (uint64_t)pio->line_bytes);
    uint64_t stores = (bytes + pio->store_bytes - 1) / pio->store_bytes;
    store->left_bytes -= bytes;
    sim_server_add(&pio->core, stores * pio->store_ps, 0,
                   (struct sim_call){line_full, store, bytes});
}

/* --- uncached -------------------------------------------------------------------------------- */

static void drained(void *object, uint64_t last)
{
    struct sim_pio_store *store = object;
    struct sim_pio *pio = store->pio;
    struct sim_post post = {.path = store->path, .bytes = pio->store_bytes};
    if (last) {
        post.arrived = store->arrived;
    }
    sim_pool_give(&pio->queue, 1);
    sim_net_post(pio->net, &post);
}

static void store_one(void *object, uint64_t arg);

static void queued(void *object, uint64_t arg)
{
    (void)arg;
    struct sim_pio_store *store = object;
    struct sim_pio *pio = store->pio;
    bool last = store->left_bytes == 0;
    sim_server_add(&pio->drain, pio->uncached_drain_ps, 0, (struct sim_call){drained, store, last});
    if (last) {
        sim_cost_after(pio->net->cost, 0, store->stored);
    } else {
        sim_pool_take(&pio->queue, 1, (struct sim_call){store_one, store, 0});
    }
}

/* A place in the queue is free for this store. */
static void store_one(void *object, uint64_t arg)
{
    (void)arg;
    struct sim_pio_store *store = object;
    struct sim_pio *pio = store->pio;
    store->left_bytes -= via_min(store->left_bytes, (uint64_t)pio->store_bytes);
    sim_server_add(&pio->core, pio->uncached_store_ps, 0, (struct sim_call){queued, store, 0});
}

void sim_pio_start(struct sim_pio_store *store)
{
    struct sim_pio *pio = store->pio;
    assert(store->bytes > 0);
    store->left_bytes = store->bytes;
    if (store->combined) {
        sim_pool_take(&pio->buffers, 1, (struct sim_call){fill_line, store, 0});
    } else {
        sim_pool_take(&pio->queue, 1, (struct sim_call){store_one, store, 0});
    }
}
