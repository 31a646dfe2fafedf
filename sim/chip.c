/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The operations of core/port.h of an end whose port is a driver's: checked as on other links, then
 * the driver's. */
#include <errno.h>

#include "sim/world.h"

const struct sim_chip_ops *sim_chips[SIM_LIKES];

static struct sim_end *end_of(struct via_port *port)
{
    return via_container_of(port, struct sim_end, port);
}

static struct via_port *driver_of(struct via_port *port)
{
    struct sim_end *end = end_of(port);
    return end->world->chips->driver(end);
}

/* A thread runs: writes of the peer that are under way may arrive. */
static struct via_port *enter(struct via_port *port, unsigned queue)
{
    struct sim_end *end = end_of(port);
    (void)sim_link_lane(end, queue);
    end->world->chips->enter(end);
    return driver_of(port);
}

static void chip_body(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                      size_t len)
{
    struct via_port *driver = enter(port, queue);
    if (sim_link_put(end_of(port), off, src, len)) {
        sim_trace_put(end_of(port), off, src, len);
        driver->ops->body(driver, queue, off, src, len);
    }
}

static void chip_commit(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                        size_t len)
{
    struct via_port *driver = enter(port, queue);
    if (!sim_link_put(end_of(port), off, src, len)) {
        return;
    }
    if (driver->ops->link_is_up(driver)) {
        sim_trace_put(end_of(port), off, src, len);
        sim_credit_put(end_of(port), off, src, len);
    }
    driver->ops->commit(driver, queue, off, src, len);
}

static void chip_flush(struct via_port *port, unsigned queue)
{
    struct via_port *driver = enter(port, queue);
    driver->ops->flush(driver, queue);
}

static int chip_fence_start(struct via_port *port, unsigned queue)
{
    struct via_port *driver = enter(port, queue);
    end_of(port)->world->counts.fences++;
    return driver->ops->fence_start(driver, queue);
}

static int chip_fence_poll(struct via_port *port, unsigned queue)
{
    struct sim_end *end = end_of(port);
    struct via_port *driver = enter(port, queue);
    int rc = driver->ops->fence_poll(driver, queue);
    if (rc == -ENOLINK) {
        end->world->chips->fence_failed(end);
    }
    return rc;
}

static int chip_dma(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                    size_t len, uint64_t cookie)
{
    struct sim_end *end = end_of(port);
    struct via_port *driver = enter(port, queue);
    if (!sim_link_put(end, off, src, len)) {
        return -EINVAL;
    }
    int rc = driver->ops->dma(driver, queue, off, src, len, cookie);
    end->dmas_refused += rc == -EIO || rc == -ENOTSUP;
    const struct sim_chip_ops *chips = end->world->chips;
    bool is_useless = chips->is_engine_useless != NULL && chips->is_engine_useless(end);
    if (rc == -ENOTSUP && !is_useless && sim_is_calm(end->world) &&
        end->world->counts.dma_failed == 0) {
        sim_fail(end->world, "host %u port %u: the driver does not use an engine that works",
                 end->host, end->index);
    }
    end->world->counts.dmas += rc == 0;
    end->dmas_count += rc == 0;
    sim_trace(end->world, "  %u.%u: DMA of %zu bytes at %#llx by queue %u: %d", end->host,
              end->index, len, (unsigned long long)off, queue, rc);
    return rc;
}

static unsigned chip_dma_take(struct via_port *port, unsigned queue, uint64_t *ret_cookies,
                              int *ret_results, unsigned max)
{
    struct sim_end *end = end_of(port);
    struct via_port *driver = enter(port, queue);
    unsigned count = driver->ops->dma_take(driver, queue, ret_cookies, ret_results, max);
    for (unsigned i = 0; i < count; i++) {
        end->dmas_good += ret_results[i] == 0;
        end->dmas_refused += ret_results[i] == -EIO;
        sim_trace(end->world, "  %u.%u: DMA of queue %u ended: %d", end->host, end->index, queue,
                  ret_results[i]);
    }
    end->dmas_count -= count;
    return count;
}

static void chip_dma_abort(struct via_port *port, unsigned queue)
{
    struct via_port *driver = enter(port, queue);
    sim_trace(end_of(port)->world, "  %u.%u: DMA of queue %u is aborted", end_of(port)->host,
              end_of(port)->index, queue);
    driver->ops->dma_abort(driver, queue);
}

static int chip_ring(struct via_port *port, unsigned queue, unsigned bit)
{
    struct via_port *driver = enter(port, queue);
    struct sim_end *end = end_of(port);
    if (!sim_link_is_bell_leaving(end, bit)) {
        return -EINVAL;
    }
    sim_trace(end->world, "  %u.%u: rings bell %u of host %u", end->host, end->index, bit,
              end->peer->host);
    return driver->ops->ring(driver, queue, bit);
}

static uint64_t chip_events(struct via_port *port, uint64_t mask)
{
    struct via_port *driver = driver_of(port);
    return driver->ops->events(driver, mask);
}

static void chip_rest(struct via_port *port, unsigned queue)
{
    struct via_port *driver = driver_of(port);
    if (driver->ops->rest != NULL) {
        driver->ops->rest(driver, queue);
    }
}

static bool chip_link_is_up(struct via_port *port)
{
    struct via_port *driver = driver_of(port);
    return driver->ops->link_is_up(driver);
}

static uint32_t chip_scratchpad_read(struct via_port *port, unsigned index)
{
    struct via_port *driver = driver_of(port);
    return driver->ops->scratchpad_read(driver, index);
}

static void chip_scratchpad_write(struct via_port *port, unsigned index, uint32_t value)
{
    struct via_port *driver = driver_of(port);
    driver->ops->scratchpad_write(driver, index, value);
}

static void chip_close(struct via_port *port)
{
    sim_fail(end_of(port)->world, "host %u port %u: closed by the node, whose it is not",
             end_of(port)->host, end_of(port)->index);
}

void sim_chip_attach(struct sim_end *end, const struct via_port *driver)
{
    static const struct via_port_ops ops = {
        .body = chip_body,
        .commit = chip_commit,
        .flush = chip_flush,
        .fence_start = chip_fence_start,
        .fence_poll = chip_fence_poll,
        .ring = chip_ring,
        .dma = chip_dma,
        .dma_take = chip_dma_take,
        .dma_abort = chip_dma_abort,
        .events = chip_events,
        .rest = chip_rest,
        .link_is_up = chip_link_is_up,
        .scratchpad_read = chip_scratchpad_read,
        .scratchpad_write = chip_scratchpad_write,
        .close = chip_close,
    };
    end->port = (struct via_port){
        .ops = &ops, .caps = driver->caps, .inbox = driver->inbox, .side = driver->side};
    end->inbox = driver->inbox;
    end->dmas_count = 0;
}

const char *sim_ofi_count_name(enum sim_ofi_count count)
{
    static const char *const names[SIM_OFI_COUNTS] = {
        [SIM_OFI_CONNECTS] = "connections",
        [SIM_OFI_RESETS] = "resets",
        [SIM_OFI_DEATHS] = "silent deaths",
        [SIM_OFI_PARTITIONS] = "partitions",
        [SIM_OFI_CUTS] = "cuts by operators",
        [SIM_OFI_MESSAGES] = "messages",
        [SIM_OFI_WRITES] = "writes",
        [SIM_OFI_TWICE] = "parts sent twice",
        [SIM_OFI_PASSES] = "operations passed",
        [SIM_OFI_DISORDER] = "completions passed",
        [SIM_OFI_DUPLICATES] = "completions given twice",
        [SIM_OFI_FULL] = "full queues",
        [SIM_OFI_UNREADY] = "messages without a receive",
        [SIM_OFI_ERRORS] = "errors",
        [SIM_OFI_PAUSES] = "waits for room",
    };
    return names[count];
}
