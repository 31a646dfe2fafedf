/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The simulator's port for the suite: a world of two hosts without nodes and one link, in which
 * only the ends act. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "port_conform.h"
#include "sim/engine.h"
#include "sim/world.h"

static struct sim_world *world; /* made by the first end to open, ended by the last to close */
static unsigned ends_open;
static uint64_t puts_out_of_bounds[2];

/* The simulator would report this call as an error of the node, but the suite makes it on purpose.
 */
static void forgive(unsigned side)
{
    if (!world->failed) {
        return;
    }
    if (strstr(world->failure, "outside the window") != NULL ||
        strstr(world->failure, "no word and no line") != NULL) {
        puts_out_of_bounds[side]++;
    } else if (strstr(world->failure, "scratchpad") == NULL &&
               strstr(world->failure, "doorbell") == NULL) {
        abort();
    }
    world->failed = false;
    world->failure[0] = '\0';
}

static void sim_pass_time(struct conform_end *ends, uint64_t ns)
{
    struct sim_link *link = &world->links[0];
    struct sim_event event;
    (void)ends;
    sim_clock_after(&world->clock, ns, SIM_EVENT_STOP, 0, 0, 0);
    while (sim_clock_take(&world->clock, &event) && event.kind != SIM_EVENT_STOP) {
        switch (event.kind) {
        case SIM_EVENT_PUTS:
            sim_link_puts(link, event.b, event.c);
            break;
        case SIM_EVENT_DRAIN:
            sim_link_drain(link, event.b, event.c);
            break;
        case SIM_EVENT_SHOW:
            sim_link_show(link, event.b, event.c);
            break;
        case SIM_EVENT_NOTICE:
            sim_link_notice(link, event.b, event.c != 0);
            break;
        case SIM_EVENT_FENCE:
            sim_link_fence(link, event.b & 0xff, event.b >> 8, event.c);
            break;
        case SIM_EVENT_DMA:
            sim_link_dma(link, event.b, event.c);
            break;
        case SIM_EVENT_DMA_SHOW:
            sim_link_dma_show(link, event.b, event.c);
            break;
        case SIM_EVENT_BELL:
            sim_link_bell(link, event.b & 0xff, event.b >> 8, event.c);
            break;
        default:
            break;
        }
    }
}

static void make_world(uint32_t direct_percent, uint32_t wc_percent, uint32_t dma_percent)
{
    world = calloc(1, sizeof(*world));
    world->config.node.channels_count = 1 + CONFORM_WORKERS_MAX;
    world->config.port = (struct sim_config_port){
        .direct_percent = direct_percent,
        .put_ns_min = 200,
        .put_ns_max = 2000,
        .bell_ns_min = 500,
        .bell_ns_max = 3000,
        .linger_chance = 100,
        .linger_ns_max = 20000,
        .show_chance = 200,
        .pump_chance = 300,
        .wc_percent = wc_percent,
        .wc_buffers = 4,
        .wc_drain_ns_max = 20000,
    };
    world->config.dma = (struct sim_config_dma){
        .percent = dma_percent,
        .depth = 4,
        .ns_min = 200,
        .ns_max = 30000,
        .busy_chance = 100,
        .show_chance = 300,
        .trail_chance = 500,
        .abort_ns_max = 100000,
    };
    struct via_rng *rngs[] = {&world->rng_port, &world->rng_cpu, &world->rng_work,
                              &world->rng_fault, &world->rng_dma};
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(rngs); i++) {
        via_rng_init(rngs[i], i);
    }
    sim_clock_init(&world->clock);
    world->hosts_count = 2;
    for (uint32_t i = 0; i < 2; i++) {
        world->hosts[i].world = world;
        world->hosts[i].index = i;
        for (uint32_t k = 0; k < VIA_CHANNELS_MAX; k++) {
            world->hosts[i].threads[k].host = &world->hosts[i];
            world->hosts[i].threads[k].channel = (uint8_t)k;
        }
    }
    sim_link_init(world, &world->links[0], 0, 1);
    sim_link_open(world, &world->links[0], CONFORM_INBOX_BYTES);
    /* A link of the simulator is up from the start; here it comes up. */
    world->links[0].up = false;
    sim_link_set(&world->links[0], true);
    sim_pass_time(NULL, 0); /* both ends get the event */
}

static int open_sim(struct conform_end *end, uint32_t direct_percent, uint32_t wc_percent,
                    uint32_t dma_percent)
{
    if (ends_open++ == 0) {
        make_world(direct_percent, wc_percent, dma_percent);
    }
    end->port = &world->links[0].end[end->side].port;
    return 0;
}

#define OPEN(name, direct_percent, wc_percent, dma_percent)            \
    static int name(struct conform_end *end, const char *directory)    \
    {                                                                  \
        (void)directory;                                               \
        return open_sim(end, direct_percent, wc_percent, dma_percent); \
    }
OPEN(open_posted, 0, 0, 0)
OPEN(open_combining, 0, 100, 0)
OPEN(open_direct, 100, 0, 0)
OPEN(open_posted_dma, 0, 0, 100)
OPEN(open_combining_dma, 0, 100, 100)
OPEN(open_direct_dma, 100, 0, 100)

static void sim_enter(struct conform_end *end, unsigned thread)
{
    forgive(end->side);
    world->current = &world->hosts[end->side].threads[thread];
}

static void sim_cut(struct conform_end *end, bool cut)
{
    (void)end;
    sim_link_set(&world->links[0], !cut);
    sim_pass_time(NULL, 0);
}

static uint64_t sim_puts_out_of_bounds(struct conform_end *end)
{
    return puts_out_of_bounds[end->side];
}

static void sim_close(struct conform_end *end)
{
    forgive(end->side);
    puts_out_of_bounds[end->side] = 0;
    sim_engine_drop(&world->links[0].end[end->side]);
    if (--ends_open == 0) {
        sim_link_fini(&world->links[0]);
        sim_clock_fini(&world->clock);
        free(world);
    }
}

#define SIM_KIND(symbol, text, opens, engine)         \
    const struct conform_kind symbol = {              \
        .name = text,                                 \
        .only_dma = engine,                           \
        .down_reads_anything = true,                  \
        .open = opens,                                \
        .enter = sim_enter,                           \
        .cut = sim_cut,                               \
        .puts_out_of_bounds = sim_puts_out_of_bounds, \
        .close = sim_close,                           \
        .pass_time = sim_pass_time,                   \
    }

SIM_KIND(conform_sim_posted, "simulated", open_posted, false);
SIM_KIND(conform_sim_combining, "simulated write-combining", open_combining, false);
SIM_KIND(conform_sim_direct, "simulated direct", open_direct, false);
SIM_KIND(conform_sim_dma, "simulated with DMA", open_posted_dma, true);
SIM_KIND(conform_sim_combining_dma, "simulated write-combining with DMA", open_combining_dma, true);
SIM_KIND(conform_sim_direct_dma, "simulated direct with DMA", open_direct_dma, true);
