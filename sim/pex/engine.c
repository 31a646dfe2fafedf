/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A host's DMA function: the model's, which copies at once when it starts. Here the start reaches
 * the model as other posted writes do, and the copy is made some time after that. Each start is
 * drawn: its channel may hang, until an abort or until the function is reset, or its descriptors
 * may fail. Some engines have the errata of Linux' drivers/dma/plx_dma.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "sim/pex/bus.h"
#include "vfio/plx_dma.h"

#define CHANNEL_BASE VIA_PLX_DMA_REG(0, 0)
#define CHANNEL_BYTES (VIA_PLX_DMA_REG(1, 0) - CHANNEL_BASE)

static struct sim_pex_engine *engine_of(struct via_pci *pci)
{
    return via_container_of(pci, struct sim_pex_engine, device.pci);
}

static struct sim_world *world_of(const struct sim_pex_engine *engine)
{
    return engine->device.side->end->world;
}

static bool chance(const struct sim_pex_engine *engine, uint32_t per_mille)
{
    struct sim_world *world = world_of(engine);
    return per_mille != 0 && !world->healed && via_rng_chance(&world->rng_dma, per_mille, 1000);
}

/* The channel that a register is the control register of; VIA_PLX_DMA_CHANNELS: of none. */
static unsigned channel_controlled(uint64_t off)
{
    unsigned channel = 0;
    while (channel < VIA_PLX_DMA_CHANNELS && off != VIA_PLX_DMA_REG(channel, VIA_PLX_DMA_CONTROL)) {
        channel++;
    }
    return channel;
}

/* --- at the function ------------------------------------------------------------------------- */

static void write_control(struct sim_pex_engine *engine, unsigned channel, uint32_t value,
                          bool fails)
{
    struct sim_pex_side *side = engine->device.side;
    const struct sim_pex_channel *at = &engine->channels[channel];
    struct via_pex_engine_faults faults = {
        .stalls = at->is_stalled,
        .hangs = at->is_hung,
        .stops_silently = engine->stops_silently,
        .late_write_back = engine->writes_back_late,
        .fails = fails,
    };
    via_pex_engine_set_faults(sim_pex_chip(side), sim_pex_function(side), &faults);
    (void)engine->device.function->ops->region_write(engine->device.function, 0,
                                                     VIA_PLX_DMA_REG(channel, VIA_PLX_DMA_CONTROL),
                                                     &value, sizeof(value));
}

static void start_later(struct sim_pex_engine *engine, unsigned channel, uint32_t value)
{
    struct sim_world *world = world_of(engine);
    const struct sim_config_dma *dma = &world->config.dma;
    struct sim_pex_channel *at = &engine->channels[channel];
    at->control = value;
    at->starts_count++;
    sim_clock_after(&world->clock, sim_between(&world->rng_dma, dma->ns_min, dma->ns_max),
                    SIM_EVENT_CHIP, engine->device.side->end->link->index,
                    sim_pex_number(engine->device.side),
                    SIM_PEX_START | channel << 4 | (uint32_t)at->era << 8);
}

void sim_pex_engine_write(struct sim_pex_engine *engine, uint64_t off, const void *data,
                          uint32_t bytes)
{
    unsigned channel = channel_controlled(off);
    uint32_t value = 0;
    if (engine->device.function == NULL) {
        return;
    }
    if (channel == VIA_PLX_DMA_CHANNELS) {
        (void)engine->device.function->ops->region_write(engine->device.function, 0, off, data,
                                                         bytes);
        return;
    }
    memcpy(&value, data, via_min(bytes, (uint32_t)sizeof(value)));
    if ((value & VIA_PLX_DMA_START) != 0) {
        start_later(engine, channel, value);
        return;
    }
    struct sim_pex_channel *at = &engine->channels[channel];
    at->era++; /* an abort, and the set-up of the ring, cancel all starts under way */
    at->starts_count = 0;
    write_control(engine, channel, value, false);
    at->is_stalled &= (value & VIA_PLX_DMA_ABORT) == 0;
}

void sim_pex_engine_start(struct sim_pex_engine *engine, unsigned channel, unsigned era)
{
    struct sim_world *world = world_of(engine);
    const struct sim_config_dma *dma = &world->config.dma;
    struct sim_pex_channel *at = &engine->channels[channel];
    if (engine->device.function == NULL || at->era != era) {
        return;
    }
    at->starts_count--;
    bool was_stuck = at->is_stalled || at->is_hung;
    if (!was_stuck && chance(engine, dma->hang_chance)) {
        at->is_hung = chance(engine, dma->stubborn_chance);
        at->is_stalled = !at->is_hung;
        world->counts.dma_hung++;
    }
    bool fails = chance(engine, dma->fail_chance);
    world->counts.dma_failed += fails && !was_stuck;
    write_control(engine, channel, at->control, fails);
    sim_pex_bus_check(engine->device.side->pex);
    sim_pex_engine_check(engine);
    sim_pex_audit(engine->device.side->end);
    sim_pex_audit(engine->device.side->end->peer);
}

/* --- interrupts ------------------------------------------------------------------------------ */

void sim_pex_engine_check(struct sim_pex_engine *engine)
{
    struct sim_world *world = world_of(engine);
    const struct sim_config_port *port = &world->config.port;
    uint64_t count;
    if (engine->device.function == NULL ||
        read(engine->irq_fd, &count, sizeof(count)) != (ssize_t)sizeof(count) ||
        chance(engine, world->config.dma.lost_chance)) {
        return;
    }
    engine->irqs_coming++;
    sim_clock_after(&world->clock,
                    sim_between(&world->rng_dma, port->bell_ns_min, port->bell_ns_max),
                    SIM_EVENT_CHIP, engine->device.side->end->link->index,
                    sim_pex_number(engine->device.side), SIM_PEX_ENGINE_IRQ);
}

void sim_pex_engine_interrupt(struct sim_pex_engine *engine)
{
    struct sim_pex_side *side = engine->device.side;
    if (engine->driver_fd < 0 || engine->irqs_coming == 0) {
        return;
    }
    engine->irqs_coming--;
    const uint64_t one = 1;
    (void)!write(engine->driver_fd, &one, sizeof(one));
    side->wants_service = true;
    sim_thread_interrupt(&side->end->world->hosts[side->end->host].threads[0]);
}

bool sim_pex_engine_is_ringing(const struct sim_pex_engine *engine)
{
    bool is_busy = false;
    for (unsigned i = 0; i < VIA_PLX_DMA_CHANNELS; i++) {
        is_busy |= engine->channels[i].starts_count != 0;
    }
    /* Such engines do not always interrupt. The node notices the end of a DMA when it polls. */
    return engine->irqs_coming != 0 || is_busy ||
           (engine->device.side->end->dmas_count != 0 &&
            (engine->writes_back_late || world_of(engine)->config.dma.lost_chance != 0));
}

/* --- what the driver calls ------------------------------------------------------------------- */

/* Starts that were posted before the request arrive before it (PCIe base spec 2.4.1), and are
 * cancelled with those under way if the request turns bus mastering off. */
static int engine_config_write(struct via_pci *pci, unsigned off, unsigned len, uint32_t value)
{
    struct sim_pex_engine *engine = engine_of(pci);
    bool masters = off == VIA_PCI_COMMAND && (value & VIA_PCI_COMMAND_MASTER) != 0;
    int rc = sim_pex_bus_ops.config_write(pci, off, len, value);
    for (unsigned i = 0; i < VIA_PLX_DMA_CHANNELS && !masters && !engine->device.side->is_dead;
         i++) {
        engine->channels[i].era++;
        engine->channels[i].starts_count = 0;
    }
    return rc;
}

/* What the engine posted arrives before the answer of the read, write-backs too. */
static int engine_read(struct via_pci *pci, unsigned region, uint64_t off, void *ret_data,
                       size_t len)
{
    const struct sim_pex_engine *engine = engine_of(pci);
    int rc = sim_pex_bus_ops.region_read(pci, region, off, ret_data, len);
    unsigned channel = channel_controlled(off);
    if (channel < VIA_PLX_DMA_CHANNELS && engine->channels[channel].starts_count != 0) {
        uint32_t value;
        memcpy(&value, ret_data, sizeof(value));
        value |= VIA_PLX_DMA_BUSY;
        memcpy(ret_data, &value, sizeof(value));
    }
    return rc;
}

static int engine_write(struct via_pci *pci, unsigned region, uint64_t off, const void *data,
                        size_t len)
{
    struct sim_pex_engine *engine = engine_of(pci);
    if (region == 0 && !engine->device.side->is_dead) {
        sim_pex_bus_post(engine->device.side, SIM_PEX_REGION_ENGINE, off, data, len);
    }
    return 0;
}

static int engine_irq_set(struct via_pci *pci, enum via_pci_irq_kind kind, unsigned count,
                          const int *fds)
{
    struct sim_pex_engine *engine = engine_of(pci);
    engine->driver_fd = count != 0 ? fds[0] : -1;
    return engine->device.function->ops->irq_set(engine->device.function, kind, count,
                                                 &engine->irq_fd);
}

static void engine_close(struct via_pci *pci)
{
    struct sim_pex_engine *engine = engine_of(pci);
    engine->device.function->ops->close(engine->device.function);
    close(engine->irq_fd);
    unsigned eras[VIA_PLX_DMA_CHANNELS];
    for (unsigned i = 0; i < VIA_PLX_DMA_CHANNELS; i++) {
        eras[i] = engine->channels[i].era + 1u;
    }
    *engine = (struct sim_pex_engine){.device.side = engine->device.side};
    for (unsigned i = 0; i < VIA_PLX_DMA_CHANNELS; i++) {
        engine->channels[i].era = eras[i];
    }
}

struct via_pci *sim_pex_engine_open(struct sim_pex_side *side)
{
    static struct via_pci_ops ops; /* those of the bus, but for these */
    ops = sim_pex_bus_ops;
    ops.config_write = engine_config_write;
    ops.region_read = engine_read;
    ops.region_write = engine_write;
    ops.fence = NULL;
    ops.irq_set = engine_irq_set;
    ops.close = engine_close;
    struct sim_pex_engine *engine = &side->engine;
    engine->irq_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    engine->driver_fd = -1;
    engine->stops_silently = side->pex->engine_stops_silently;
    engine->writes_back_late = side->pex->engine_writes_back_late;
    int rc =
        via_pex_attach_engine(sim_pex_chip(side), sim_pex_function(side), &engine->device.function);
    if (rc != 0 || engine->irq_fd < 0) {
        fprintf(stderr, "simulator: DMA function of host %u: %d\n", side->end->host, rc);
        abort();
    }
    engine->device.pci =
        (struct via_pci){.ops = &ops, .requester = engine->device.function->requester};
    return &engine->device.pci;
}
