/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Links whose ends are src/port/pex, each on a function of the register model, under virtual time.
 * A bus connects a driver and its function (bus.c). Faults are those of the simulator: a cable that
 * is pulled, a process that is killed, reads that bring all-ones, interrupts that get lost.
 */
#include "sim/pex/pex.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "sim/memory.h"
#include "sim/pex/bus.h"

#define BAR_BYTES_MIN (UINT64_C(1) << 20)
#define POLL_IRQ_NS (20 * VIA_MSEC_NS) /* of the driver, with interrupts */
#define POLL_NS (1 * VIA_MSEC_NS)      /* and without */
#define REQUESTER_REFUSED 0x7700u      /* bus and device that no driver enters */

static struct sim_pex_side *side_of(const struct sim_end *end)
{
    struct sim_pex *pex = end->link->chip;
    return &pex->sides[end - end->link->end];
}

static struct sim_host *host_of(const struct sim_pex_side *side)
{
    return &side->end->world->hosts[side->end->host];
}

/* Called while a thread works: delivers some of the writes that are under way to it. */
static void pex_enter(struct sim_end *end)
{
    struct sim_world *world = end->world;
    if (via_rng_chance(&world->rng_port, world->config.port.pump_chance, 1000)) {
        sim_pex_bus_arrive(side_of(end->peer), sim_between(&world->rng_port, 1, 4));
    }
}

static struct via_port *pex_driver(struct sim_end *end)
{
    return side_of(end)->port;
}

/* The driver may have woken its control thread by the descriptor that it sleeps on. */
static void pex_fence_failed(struct sim_end *end)
{
    side_of(end)->wants_service = true;
    sim_thread_interrupt(&host_of(side_of(end))->threads[0]);
}

/* --- lives of the ends ------------------------------------------------------------------------ */

static void on_wake(void *ctx, unsigned thread)
{
    struct sim_pex_side *side = ctx;
    sim_thread_interrupt(&host_of(side)->threads[thread]);
}

static uint64_t on_now(void *ctx)
{
    return sim_host_now(host_of(ctx));
}

static void open_port(struct sim_pex_side *side)
{
    struct sim_end *end = side->end;
    struct sim_pex *pex = side->pex;
    struct via_error err = {0};
    side->host = (struct via_driver_host){
        .host = host_of(side)->id,
        .inbox_bytes = pex->config.window_bytes_max - VIA_PEX_PAGE_BYTES,
        .threads_count = end->world->config.node.channels_count,
        .wake = on_wake,
        .now_ns = on_now,
        .dma = pex->has_engines,
        .ctx = side,
        .peer = VIA_DRIVER_PEER_LEARNED,
    };
    struct via_pex_config config = pex->config;
    config.b2b_end = config.b2b && side == &pex->sides[1];
    /* The link side's function is behind the cable: a process that opens it waits for the cable. */
    via_pex_set_link(pex->model, true);
    int rc = via_pex_attach(sim_pex_chip(side), sim_pex_function(side), &side->device.function);
    if (rc == 0) {
        side->is_dead = false;
        side->device.pci = (struct via_pci){.ops = &sim_pex_bus_ops,
                                            .requester = side->device.function->requester};
        struct via_pci *engine = pex->has_engines ? sim_pex_engine_open(side) : NULL;
        rc = via_pex_port_open(&config, &side->device.pci, engine,
                               sim_between(&pex->rng, 1, UINT32_MAX - 1), &side->host, &side->port,
                               &err);
    }
    via_pex_set_link(pex->model, end->link->up);
    if (rc != 0) {
        fprintf(stderr, "simulator: open port %u of host %u: %d %s\n", end->index, end->host, rc,
                err.text);
        abort();
    }
    side->wants_service = true;
    side->service_ns = 0;
    sim_chip_attach(end, side->port);
}

static void close_port(struct sim_pex_side *side)
{
    if (side->port != NULL) {
        side->port->ops->close(side->port);
        side->port = NULL;
    }
    sim_pex_bus_check(side->pex);
}

/* The kernel cleans up after a process; the process's posted writes come before the kernel's. */
static void pex_crashed(struct sim_end *end)
{
    struct sim_pex_side *side = side_of(end);
    sim_pex_bus_arrive(side, UINT32_MAX);
    side->is_dead = via_rng_chance(&side->pex->rng, 3, 4);
    memset(side->buffers, 0, sizeof(side->buffers));
    close_port(side);
    sim_pex_bus_arrive(side, UINT32_MAX);
    side->irqs_coming = 0;
}

static int pex_register(struct sim_end *end, void *memory, size_t bytes)
{
    struct sim_pex_side *side = side_of(end);
    struct via_error err = {0};
    if (!side->pex->has_engines) {
        return 0;
    }
    int rc = via_pex_driver.memory_register(side->port, memory, bytes, &err);
    end->port.caps = side->port->caps;
    return rc;
}

static bool pex_is_engine_useless(const struct sim_end *end)
{
    return side_of(end)->pex->engine_is_refused;
}

static void pex_reopen(struct sim_end *end)
{
    open_port(side_of(end));
}

/* --- the link -------------------------------------------------------------------------------- */

static void draw(struct sim_pex *pex, uint64_t inbox_bytes)
{
    static const uint32_t payloads[] = {8, 64, 64, 256};
    static const uint32_t rates[] = {2000, 4000, 7877, 15754}; /* MB/s: Gen2 x4 to Gen3 x16 */
    static const enum via_pci_irq_kind irqs[] = {VIA_PCI_IRQ_KINDS, VIA_PCI_MSI, VIA_PCI_MSI,
                                                 VIA_PCI_INTX};
    struct via_pex_switches *switches = &pex->options.switches;
    struct via_pex_config *config = &pex->config;
    uint64_t bytes = via_align_up(inbox_bytes, (uint64_t)VIA_PEX_PAGE_BYTES) + VIA_PEX_PAGE_BYTES;
    pex->payload_bytes = payloads[sim_between(&pex->rng, 0, 3)];
    pex->bytes_per_us = rates[sim_between(&pex->rng, 0, 3)];
    pex->options = via_pex_options_default;
    uint64_t bar_bytes = BAR_BYTES_MIN;
    while (bar_bytes < bytes) {
        bar_bytes *= 2;
    }
    pex->options.bar_bytes[0][0] = bar_bytes << sim_between(&pex->rng, 0, 1);
    pex->options.bar_bytes[1][0] = bar_bytes << sim_between(&pex->rng, 0, 1);
    pex->options.nt = sim_between(&pex->rng, 0, 1);
    switches->alut_needs_bit_31 = via_rng_chance(&pex->rng, 1, 2);
    switches->alut_enable_at_bar = via_rng_chance(&pex->rng, 1, 2);
    switches->lut_at_db4 = via_rng_chance(&pex->rng, 1, 2);
    switches->dl_down_keeps_alut = via_rng_chance(&pex->rng, 1, 2);
    switches->unmask_fires_msi = via_rng_chance(&pex->rng, 1, 2);
    switches->shadows_bars = true;
    *config = (struct via_pex_config){.target = "simulated",
                                      .bar = 2,
                                      .window_bytes_max = bytes,
                                      .alut = via_rng_chance(&pex->rng, 1, 4),
                                      .alut_at_peer = switches->alut_enable_at_bar,
                                      .lut_at_db4 = switches->lut_at_db4,
                                      .irq = irqs[sim_between(&pex->rng, 0, 3)],
                                      .polls = via_rng_chance(&pex->rng, 1, 8)};
    if (config->polls) {
        config->irq = VIA_PCI_IRQ_KINDS;
    }
}

/* From a separate stream: a seed keeps its history if nothing is combined. Small packets make such
 * a history long: half of the links of every fourth seed. */
static void draw_buffers(struct sim_pex *pex, const struct sim_config *config, uint32_t link)
{
    struct via_rng rng;
    via_rng_init(&rng, config->seed ^ UINT64_C(0x636f6d62));
    bool any = via_rng_chance(&rng, 1, 4);
    via_rng_init(&rng, config->seed ^ UINT64_C(0x636f6d62) ^ (uint64_t)(link + 1) << 32);
    pex->buffers_count =
        any && via_rng_chance(&rng, 1, 2) ? sim_between(&rng, 1, SIM_WC_BUFFERS_MAX) : 0;
}

/* Every eighth link is of two chips back to back. From a separate stream, too. */
static void draw_pair(struct sim_pex *pex, const struct sim_config *config, uint32_t link)
{
    struct via_rng rng;
    via_rng_init(&rng, config->seed ^ UINT64_C(0x70616972) ^ (uint64_t)(link + 1) << 32);
    if (!via_rng_chance(&rng, 1, 8)) {
        return;
    }
    uint64_t bytes = 2 * BAR_BYTES_MIN;
    while (bytes / 2 < pex->config.window_bytes_max) {
        bytes *= 2;
    }
    pex->options.bar_bytes[0][0] = pex->options.bar_bytes[1][0] = bytes;
    pex->registers_bytes = bytes / 2;
    pex->config.b2b = true;
}

/* Of links that the fabric has drawn one for. Half of the engines do what they should. */
static void draw_engines(struct sim_pex *pex, const struct sim_config *config,
                         const struct sim_link *link)
{
    struct via_rng rng;
    via_rng_init(&rng, config->seed ^ UINT64_C(0x656e67) ^ (uint64_t)(link->index + 1) << 32);
    pex->has_engines = link->end[0].port.caps.dma_depth != 0;
    pex->engine_stops_silently = via_rng_chance(&rng, 1, 4);
    pex->engine_writes_back_late = via_rng_chance(&rng, 1, 4);
    pex->engine_is_refused = via_rng_chance(&rng, 1, 8);
}

static void pex_open(struct sim_link *link, size_t inbox_bytes)
{
    struct sim_pex *pex = sim_alloc(sizeof(*pex));
    struct via_error err = {0};
    struct sim_world *world = link->end[0].world;
    link->chip = pex;
    via_rng_init(&pex->rng, world->config.seed ^ UINT64_C(0x706578) ^ (uint64_t)link->index << 32);
    draw(pex, inbox_bytes);
    draw_buffers(pex, &world->config, link->index);
    draw_pair(pex, &world->config, link->index);
    draw_engines(pex, &world->config, link);
    if ((pex->config.b2b ? via_pex_new_pair : via_pex_new)(&pex->options, &pex->model, &err) != 0) {
        fprintf(stderr, "simulator: register model: %s\n", err.text);
        abort();
    }
    sim_trace(world,
              "link %u: %s%s%s, NT%u, %u bytes a packet, %u MB/s, %u buffers, switches "
              "%d%d%d%d%d%s%s%s%s",
              link->index, pex->config.b2b ? "back to back, " : "",
              pex->config.alut ? "A-LUT, " : "",
              pex->config.polls                 ? "no interrupts"
              : pex->config.irq == VIA_PCI_INTX ? "INTx"
                                                : "MSI",
              pex->options.nt, pex->payload_bytes, pex->bytes_per_us, pex->buffers_count,
              pex->options.switches.alut_needs_bit_31, pex->options.switches.alut_enable_at_bar,
              pex->options.switches.lut_at_db4, pex->options.switches.dl_down_keeps_alut,
              pex->options.switches.unmask_fires_msi, pex->has_engines ? ", DMA" : "",
              pex->has_engines && pex->engine_stops_silently ? ", it stops silently" : "",
              pex->has_engines && pex->engine_writes_back_late ? ", it writes back late" : "",
              pex->has_engines && pex->engine_is_refused ? ", its requests are refused" : "");
    for (unsigned i = 0; i < 2; i++) {
        struct sim_pex_side *side = &pex->sides[i];
        *side = (struct sim_pex_side){
            .device.side = side, .pex = pex, .end = &link->end[i], .engine.device.side = side};
        if (pex->engine_is_refused) {
            via_pex_engine_set_requester(sim_pex_chip(side), sim_pex_function(side),
                                         REQUESTER_REFUSED);
        }
    }
    for (unsigned i = 0; i < 2; i++) {
        open_port(&pex->sides[i]);
    }
}

static void pex_fini(struct sim_link *link)
{
    struct sim_pex *pex = link->chip;
    for (unsigned i = 0; i < 2; i++) {
        close_port(&pex->sides[i]);
        sim_pex_bus_drop(&pex->sides[i]);
    }
    via_pex_free(pex->model);
    free(pex);
    link->chip = NULL;
}

/* The writes under way are cut at some point. The chip is in the machine of the virtual side, whose
 * register writes still reach it; with two chips each host has one. */
static void pex_set(struct sim_link *link, bool up)
{
    struct sim_pex *pex = link->chip;
    struct sim_world *world = link->end[0].world;
    for (unsigned i = 0; i < 2 && !up; i++) {
        sim_pex_bus_arrive(&pex->sides[i],
                           sim_between(&world->rng_fault, 0, sim_pex_bus_count(&pex->sides[i])));
    }
    via_pex_set_link(pex->model, up);
    if (!up) {
        pex->sides[0].has_lost_bells = pex->sides[1].has_lost_bells = true;
        world->counts.torn += sim_pex_bus_count(&pex->sides[0]) != 0;
        world->counts.torn += sim_pex_bus_count(&pex->sides[1]) != 0;
        sim_pex_bus_arrive(&pex->sides[VIA_PEX_VIRTUAL], UINT32_MAX);
        if (pex->config.b2b) {
            sim_pex_bus_arrive(&pex->sides[1], UINT32_MAX);
        }
        sim_pex_bus_cut(&pex->sides[1]);
    }
    sim_pex_bus_check(pex);
}

/* --- turns ----------------------------------------------------------------------------------- */

static int pex_service(struct sim_end *end, uint64_t now_ns, uint64_t *deadline_ns)
{
    struct sim_pex_side *side = side_of(end);
    int rc = 0;
    if (side->wants_service || now_ns >= side->service_ns) {
        side->wants_service = false;
        rc = via_pex_driver.service(side->port, now_ns, &side->service_ns);
        sim_pex_bus_check(side->pex);
        side->has_lost_bells &= rc == 0 || !side->port->ops->link_is_up(side->port);
        if (rc != 0) {
            sim_trace(end->world, "  %u.%u: the driver says that its link is %s", end->host,
                      end->index, side->port->ops->link_is_up(side->port) ? "up" : "down");
        }
    }
    *deadline_ns = via_min(*deadline_ns, side->service_ns);
    return rc;
}

static void pex_event(struct sim_link *link, uint32_t end, uint32_t what)
{
    struct sim_pex *pex = link->chip;
    struct sim_pex_side *side = &pex->sides[end];
    if (what == SIM_PEX_WRITES) {
        sim_pex_bus_due(side);
    } else if ((what & 0xf) == SIM_PEX_START) {
        sim_pex_engine_start(&side->engine, what >> 4 & 0xf, what >> 8);
    } else if (what == SIM_PEX_ENGINE_IRQ) {
        sim_pex_engine_interrupt(&side->engine);
    } else if (side->port != NULL && side->irqs_coming != 0) {
        side->irqs_coming--;
        side->wants_service = true;
        sim_thread_interrupt(&host_of(side)->threads[0]);
    }
}

/* Where reads return all-ones, those of the doorbells do: the driver's next poll gets them.
 * Doorbells that were rung when a cable was pulled are lost, and the driver's threads check again
 * when the driver has noticed. */
static bool pex_is_ringing(struct sim_end *end)
{
    struct sim_pex_side *side = side_of(end);
    return end->world->config.port.ones_chance != 0 || side->has_lost_bells ||
           side->irqs_coming != 0 || side->wants_service || side->pex->config.polls ||
           sim_pex_bus_count(side_of(end->peer)) != 0 || sim_pex_bus_count(side) != 0 ||
           !side->port->ops->link_is_up(side->port) ||
           (side->pex->has_engines && sim_pex_engine_is_ringing(&side->engine));
}

static uint64_t pex_poll_ns(const struct sim_end *end)
{
    return side_of(end)->pex->config.polls ? POLL_NS : POLL_IRQ_NS;
}

void sim_pex_use(void)
{
    static const struct sim_chip_ops ops = {
        .enter = pex_enter,
        .driver = pex_driver,
        .fence_failed = pex_fence_failed,
        .open = pex_open,
        .fini = pex_fini,
        .set = pex_set,
        .crashed = pex_crashed,
        .reopen = pex_reopen,
        .memory_register = pex_register,
        .is_engine_useless = pex_is_engine_useless,
        .service = pex_service,
        .event = pex_event,
        .is_ringing = pex_is_ringing,
        .poll_ns = pex_poll_ns,
    };
    sim_chips[SIM_LIKE_PEX_DRIVER] = &ops;
}
