/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/pex/bus.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sim/memory.h"

#define HEADER_BYTES 24u /* of a memory write of 64 bits: framing, sequence, header, LCRC */

struct sim_pex_write {
    struct sim_pex_write *next;
    uint64_t off, arrive_ns;
    uint32_t bytes;
    unsigned region;
    unsigned char data[];
};

static struct via_pci *function_of(struct via_pci *pci)
{
    return via_container_of(pci, struct sim_pex_device, pci)->function;
}

static struct sim_pex_side *side_of(struct via_pci *pci)
{
    return via_container_of(pci, struct sim_pex_device, pci)->side;
}

static struct sim_pex_side *peer_of(const struct sim_pex_side *side)
{
    return &side->pex->sides[side == &side->pex->sides[0]];
}

/* --- posted writes --------------------------------------------------------------------------- */

static void request_event(struct sim_pex_side *side)
{
    if (side->head != NULL && (side->due_ns == 0 || side->head->arrive_ns < side->due_ns)) {
        side->due_ns = side->head->arrive_ns;
        sim_clock_at(&side->end->world->clock, side->due_ns, SIM_EVENT_CHIP, side->end->link->index,
                     sim_pex_number(side), SIM_PEX_WRITES);
    }
}

static void post(struct sim_pex_side *side, unsigned region, uint64_t off, const void *data,
                 uint32_t bytes)
{
    struct sim_world *world = side->end->world;
    const struct sim_config_port *port = &world->config.port;
    struct sim_pex_write *write = sim_alloc(sizeof(*write) + bytes);
    uint64_t wire_ns = ((uint64_t)bytes + HEADER_BYTES) * VIA_USEC_NS / side->pex->bytes_per_us;
    side->free_ns = via_max(side->free_ns, world->clock.now_ns) + wire_ns;
    *write = (struct sim_pex_write){
        .off = off,
        .bytes = bytes,
        .region = region,
        .arrive_ns =
            side->free_ns + sim_between(&world->rng_port, port->put_ns_min, port->put_ns_max),
    };
    memcpy(write->data, data, bytes);
    if (side->tail != NULL) {
        write->arrive_ns = via_max(write->arrive_ns, side->tail->arrive_ns);
        side->tail->next = write;
    } else {
        side->head = write;
    }
    side->tail = write;
    side->writes_count++;
    request_event(side);
}

static struct sim_pex_write *pop(struct sim_pex_side *side)
{
    struct sim_pex_write *write = side->head;
    side->head = write->next;
    side->tail = side->head != NULL ? side->tail : NULL;
    side->writes_count--;
    return write;
}

void sim_pex_audit(const struct sim_end *end)
{
    struct sim_world *world = end->world;
    struct sim_host *host = &world->hosts[end->host];
    for (uint32_t k = 0; k < world->config.node.channels_count && !world->auditing; k++) {
        sim_thread_audit_soon(&host->threads[k]);
    }
}

static void arrive(struct sim_pex_side *side, const struct sim_pex_write *write)
{
    if (write->region == SIM_PEX_REGION_ENGINE) {
        sim_pex_engine_write(&side->engine, write->off, write->data, write->bytes);
    } else if (side->device.function != NULL) {
        (void)side->device.function->ops->region_write(side->device.function, write->region,
                                                       write->off, write->data, write->bytes);
    }
}

static void notice_arrival(struct sim_pex_side *side)
{
    sim_pex_bus_check(side->pex);
    sim_pex_engine_check(&side->engine);
    sim_pex_audit(side->end->peer);
}

void sim_pex_bus_arrive(struct sim_pex_side *side, uint32_t count)
{
    bool any = side->head != NULL && count != 0;
    for (; side->head != NULL && count != 0; count--) {
        struct sim_pex_write *write = pop(side);
        arrive(side, write);
        free(write);
    }
    if (any) {
        notice_arrival(side);
    }
}

void sim_pex_bus_cut(struct sim_pex_side *side)
{
    while (side->head != NULL) {
        struct sim_pex_write *write = pop(side);
        if (write->region == SIM_PEX_REGION_ENGINE) {
            arrive(side, write);
        }
        free(write);
    }
    notice_arrival(side);
}

void sim_pex_bus_due(struct sim_pex_side *side)
{
    uint32_t count = 0;
    side->due_ns = 0;
    for (const struct sim_pex_write *write = side->head;
         write != NULL && write->arrive_ns <= side->end->world->clock.now_ns; write = write->next) {
        count++;
    }
    sim_pex_bus_arrive(side, count);
    request_event(side);
}

void sim_pex_bus_drop(struct sim_pex_side *side)
{
    while (side->head != NULL) {
        free(pop(side));
    }
}

/* --- interrupts ------------------------------------------------------------------------------ */

void sim_pex_bus_check(struct sim_pex *pex)
{
    for (unsigned i = 0; i < 2; i++) {
        struct sim_pex_side *side = &pex->sides[i];
        struct via_pex_stats stats;
        via_pex_stats(sim_pex_chip(side), &stats);
        uint64_t interrupts = stats.interrupts[sim_pex_function(side)];
        struct sim_world *world = side->end->world;
        const struct sim_config_port *port = &world->config.port;
        if (interrupts == side->irqs_seen) {
            continue;
        }
        side->irqs_seen = interrupts;
        if (!world->healed && via_rng_chance(&world->rng_port, port->bell_drop_chance, 1000)) {
            continue;
        }
        uint64_t after = sim_between(&world->rng_port, port->bell_ns_min, port->bell_ns_max);
        if (!world->healed && via_rng_chance(&world->rng_port, port->bell_late_chance, 1000)) {
            after += sim_between(&world->rng_port, 0, port->bell_late_ns_max);
        }
        side->irqs_coming++;
        sim_clock_after(&world->clock, after, SIM_EVENT_CHIP, side->end->link->index, i,
                        SIM_PEX_IRQ);
    }
}

/* --- calls of the driver --------------------------------------------------------------------- */

/* A read's round trip. Earlier posted writes of this host arrive before its answer; if the answer
 * comes from the peer's memory, the peer's posted writes do, too. */
static void read_across(struct sim_pex_side *side, bool from_peer)
{
    struct sim_world *world = side->end->world;
    const struct sim_config_port *port = &world->config.port;
    sim_pex_bus_arrive(side, UINT32_MAX);
    if (from_peer) {
        sim_pex_bus_arrive(peer_of(side), UINT32_MAX);
    }
    if (world->current != NULL && !world->auditing) {
        world->current->spent_ns +=
            (from_peer ? 2 : 1) *
            (uint64_t)sim_between(&world->rng_port, port->put_ns_min, port->put_ns_max);
    }
}

/* True if the completion of a read does not come in time, and the root complex makes one up. */
static bool is_timed_out(struct sim_pex_side *side)
{
    struct sim_world *world = side->end->world;
    if (world->healed || world->auditing || side->port == NULL ||
        world->config.port.ones_chance == 0 ||
        !via_rng_chance(&world->rng_port, world->config.port.ones_chance, 10000)) {
        return false;
    }
    world->counts.ones++;
    return true;
}

static int bus_config_read(struct via_pci *pci, unsigned off, unsigned len, uint32_t *ret_value)
{
    struct sim_pex_side *side = side_of(pci);
    *ret_value = UINT32_MAX;
    if (side->is_dead) {
        return 0;
    }
    read_across(side, false);
    return function_of(pci)->ops->config_read(function_of(pci), off, len, ret_value);
}

static int bus_config_write(struct via_pci *pci, unsigned off, unsigned len, uint32_t value)
{
    struct sim_pex_side *side = side_of(pci);
    if (side->is_dead) {
        return 0;
    }
    read_across(side, false); /* not posted: it is answered */
    int rc = function_of(pci)->ops->config_write(function_of(pci), off, len, value);
    sim_pex_bus_check(side->pex);
    return rc;
}

static int bus_region(struct via_pci *pci, unsigned region, struct via_pci_region *ret_region)
{
    return function_of(pci)->ops->region(function_of(pci), region, ret_region);
}

static int bus_region_read(struct via_pci *pci, unsigned region, uint64_t off, void *ret_data,
                           size_t len)
{
    struct sim_pex_side *side = side_of(pci);
    memset(ret_data, 0xff, len);
    if (side->is_dead) {
        return 0;
    }
    read_across(side, region != 0);
    if (is_timed_out(side)) {
        return 0;
    }
    int rc = function_of(pci)->ops->region_read(function_of(pci), region, off, ret_data, len);
    sim_pex_bus_check(side->pex);
    return rc;
}

void sim_pex_bus_post(struct sim_pex_side *side, unsigned region, uint64_t off, const void *data,
                      size_t len)
{
    const unsigned char *bytes = data;
    while (len != 0) {
        uint32_t room = side->pex->payload_bytes - (uint32_t)(off % side->pex->payload_bytes);
        uint32_t part = (uint32_t)via_min(len, (size_t)room);
        post(side, region, off, bytes, part);
        off += part;
        bytes += part;
        len -= part;
    }
}

static int bus_region_write(struct via_pci *pci, unsigned region, uint64_t off, const void *data,
                            size_t len)
{
    struct sim_pex_side *side = side_of(pci);
    bool is_window = region != 0 && off >= side->pex->registers_bytes;
    if (!side->is_dead && is_window && side->pex->buffers_count != 0) {
        sim_pex_combine(side, region, off, data, len);
    } else if (!side->is_dead) {
        sim_pex_bus_post(side, region, off, data, len);
    }
    return 0;
}

static void bus_fence(struct via_pci *pci)
{
    sim_pex_combine_fence(side_of(pci));
}

static int bus_map(struct via_pci *pci, unsigned region, uint64_t off, uint64_t bytes,
                   bool combining, struct via_pci_mapping *ret_mapping)
{
    (void)pci, (void)region, (void)off, (void)bytes, (void)combining, (void)ret_mapping;
    return -ENOTSUP; /* stores into memory can not be delayed */
}

static void bus_unmap(struct via_pci *pci, struct via_pci_mapping *mapping)
{
    (void)pci, (void)mapping;
}

static unsigned bus_irqs(struct via_pci *pci, enum via_pci_irq_kind kind)
{
    return function_of(pci)->ops->irqs(function_of(pci), kind);
}

static int bus_irq_set(struct via_pci *pci, enum via_pci_irq_kind kind, unsigned count,
                       const int *fds)
{
    struct sim_pex_side *side = side_of(pci);
    if (side->is_dead) {
        return 0; /* close() does it */
    }
    read_across(side, false);
    int rc = function_of(pci)->ops->irq_set(function_of(pci), kind, count, fds);
    sim_pex_bus_check(side->pex);
    return rc;
}

static int bus_irq_unmask(struct via_pci *pci)
{
    struct sim_pex_side *side = side_of(pci);
    int rc = side->is_dead ? 0 : function_of(pci)->ops->irq_unmask(function_of(pci));
    sim_pex_bus_check(side->pex);
    return rc;
}

static int bus_dma_map(struct via_pci *pci, const struct via_pci_memory *memory, uint64_t alignment,
                       uint64_t *ret_iova)
{
    struct via_pci *function = function_of(pci);
    return function->ops->dma_map(function, memory, alignment, ret_iova);
}

static int bus_dma_unmap(struct via_pci *pci, uint64_t iova)
{
    struct sim_pex_side *side = side_of(pci);
    return side->is_dead ? 0 : function_of(pci)->ops->dma_unmap(function_of(pci), iova);
}

static int bus_reset(struct via_pci *pci)
{
    (void)pci;
    return -ENOTSUP;
}

static bool bus_is_gone(struct via_pci *pci)
{
    struct via_pci *function = function_of(pci);
    return function->ops->gone(function);
}

static const char *bus_describe(struct via_pci *pci)
{
    (void)pci;
    return "simulated";
}

static void bus_close(struct via_pci *pci)
{
    struct sim_pex_side *side = side_of(pci);
    sim_pex_bus_arrive(side, UINT32_MAX);
    function_of(pci)->ops->close(function_of(pci));
    side->device.function = NULL;
}

const struct via_pci_ops sim_pex_bus_ops = {
    .config_read = bus_config_read,
    .config_write = bus_config_write,
    .region = bus_region,
    .region_read = bus_region_read,
    .region_write = bus_region_write,
    .fence = bus_fence,
    .map = bus_map,
    .unmap = bus_unmap,
    .irqs = bus_irqs,
    .irq_set = bus_irq_set,
    .irq_unmask = bus_irq_unmask,
    .dma_map = bus_dma_map,
    .dma_unmap = bus_dma_unmap,
    .reset = bus_reset,
    .gone = bus_is_gone,
    .describe = bus_describe,
    .close = bus_close,
};
