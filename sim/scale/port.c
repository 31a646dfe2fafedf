/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/scale/port.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "sim/memory.h"
#include "sim/scale/fabric.h"

static struct scale_end *of(struct via_port *port)
{
    return (struct scale_end *)(void *)port;
}

static void drop_first(struct scale_end *end)
{
    struct scale_flight *flight = end->first;
    end->first = flight->next;
    free(flight);
    if (end->first == NULL) {
        end->last = NULL;
        via_list_remove(&end->arriving);
    }
}

void scale_end_arrive(struct scale_end *end, uint64_t now_ns)
{
    while (end->first != NULL && end->first->arrive_ns <= now_ns) {
        memcpy(end->peer->port.inbox + end->first->off, end->first->data, end->first->bytes);
        drop_first(end);
    }
}

static void port_body(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                      size_t len)
{
    struct scale_end *end = of(port);
    (void)queue;
    if (!end->link->up || off + len > port->caps.window_bytes) {
        return;
    }
    struct scale_flight *flight = sim_alloc(sizeof(*flight) + len);
    flight->arrive_ns = scale_fabric_now_ns(end->link->fabric) + SCALE_WRITE_NS;
    flight->off = off;
    flight->bytes = len;
    memcpy(flight->data, src, len);
    if (end->last != NULL) {
        end->last->next = flight;
    } else {
        end->first = flight;
        via_list_push_back(scale_fabric_arriving(end->link->fabric, end->peer->host),
                           &end->arriving);
    }
    end->last = flight;
}

static void port_flush(struct via_port *port, unsigned queue)
{
    (void)port;
    (void)queue;
}

static int port_fence_start(struct via_port *port, unsigned queue)
{
    struct scale_end *end = of(port);
    if (!end->link->up) {
        return -ENOLINK;
    }
    end->fences[queue] =
        (struct scale_fence){.under_way = true,
                             .era = end->link->era,
                             .due_ns = scale_fabric_now_ns(end->link->fabric) + SCALE_FENCE_NS};
    return 0;
}

/* Writes posted at this end before the fence started, and at the other end before it arrived there,
 * take less time. */
static int port_fence_poll(struct via_port *port, unsigned queue)
{
    struct scale_end *end = of(port);
    struct scale_fence *fence = &end->fences[queue];
    uint64_t now_ns = scale_fabric_now_ns(end->link->fabric);
    bool lost = !end->link->up || fence->era != end->link->era;
    if (!fence->under_way) {
        return -EINVAL;
    }
    if (!lost && now_ns < fence->due_ns) {
        return 0;
    }
    fence->under_way = false;
    scale_end_arrive(end, now_ns);
    scale_end_arrive(end->peer, now_ns);
    return lost ? -ENOLINK : 1;
}

static int port_ring(struct via_port *port, unsigned queue, unsigned bit)
{
    struct scale_end *end = of(port);
    (void)queue;
    if (!end->link->up) {
        return -ENOLINK;
    }
    scale_fabric_ring(end->link->fabric, end->peer, bit);
    return 0;
}

static uint64_t port_events(struct via_port *port, uint64_t mask)
{
    uint64_t events = of(port)->events & mask;
    of(port)->events &= ~mask;
    return events;
}

static bool port_link_is_up(struct via_port *port)
{
    return of(port)->link->up;
}

static uint32_t port_scratchpad_read(struct via_port *port, unsigned index)
{
    const struct scale_link *link = of(port)->link;
    return link->up && index < VIA_PORT_SCRATCHPADS ? link->scratchpads[index] : UINT32_MAX;
}

static void port_scratchpad_write(struct via_port *port, unsigned index, uint32_t value)
{
    struct scale_link *link = of(port)->link;
    if (link->up && index / (VIA_PORT_SCRATCHPADS / 2) == port->side) {
        link->scratchpads[index] = value;
    }
}

static void port_close(struct via_port *port)
{
    (void)port;
}

static const struct via_port_ops port_ops = {
    .body = port_body,
    .commit = port_body,
    .flush = port_flush,
    .fence_start = port_fence_start,
    .fence_poll = port_fence_poll,
    .ring = port_ring,
    .events = port_events,
    .link_is_up = port_link_is_up,
    .scratchpad_read = port_scratchpad_read,
    .scratchpad_write = port_scratchpad_write,
    .close = port_close,
};

static void end_init(struct scale_link *link, unsigned side, uint32_t host, size_t inbox_bytes)
{
    link->ends[side] = (struct scale_end){
        .port =
            {
                .ops = &port_ops,
                .caps =
                    {
                        .window_bytes = inbox_bytes,
                        .inbox_bytes = inbox_bytes,
                        .store_bytes_max = 64,
                        .writes_ordered = true,
                    },
                .inbox = sim_alloc_lines(inbox_bytes),
                .side = side,
            },
        .link = link,
        .peer = &link->ends[1 - side],
        .events = VIA_PORT_EVENT_LINK_UP,
        .host = host,
    };
    via_list_init(&link->ends[side].arriving);
}

void scale_link_init(struct scale_link *link, struct scale_fabric *fabric, uint32_t a, uint32_t b,
                     size_t inbox_bytes)
{
    link->fabric = fabric;
    link->up = true;
    end_init(link, 0, a, inbox_bytes);
    end_init(link, 1, b, inbox_bytes);
}

static void drop_all(struct scale_end *end)
{
    while (end->first != NULL) {
        drop_first(end);
    }
}

void scale_link_cut(struct scale_link *link)
{
    link->up = false;
    link->era++;
    memset(link->scratchpads, 0, sizeof(link->scratchpads));
    for (unsigned side = 0; side < 2; side++) {
        drop_all(&link->ends[side]);
        link->ends[side].events = VIA_PORT_EVENT_LINK_DOWN;
    }
}

void scale_link_fini(struct scale_link *link)
{
    for (unsigned side = 0; side < 2; side++) {
        drop_all(&link->ends[side]);
        free(link->ends[side].port.inbox);
    }
}
