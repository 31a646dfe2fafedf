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

static void port_write(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                       size_t len)
{
    const struct scale_end *end = of(port);
    (void)queue;
    if (end->link->up && off + len <= port->caps.window_bytes) {
        memcpy(end->peer->port.inbox + off, src, len);
    }
}

static void port_flush(struct via_port *port, unsigned queue)
{
    (void)port;
    (void)queue;
}

static int port_fence_start(struct via_port *port, unsigned queue)
{
    struct scale_end *end = of(port);
    end->fence_eras[queue] = end->link->era;
    return end->link->up ? 0 : -ENOLINK;
}

static int port_fence_poll(struct via_port *port, unsigned queue)
{
    const struct scale_end *end = of(port);
    return end->link->up && end->fence_eras[queue] == end->link->era ? 1 : -ENOLINK;
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
    .body = port_write,
    .commit = port_write,
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
}

void scale_link_init(struct scale_link *link, struct scale_fabric *fabric, uint32_t a, uint32_t b,
                     size_t inbox_bytes)
{
    link->fabric = fabric;
    link->up = true;
    end_init(link, 0, a, inbox_bytes);
    end_init(link, 1, b, inbox_bytes);
}

void scale_link_cut(struct scale_link *link)
{
    link->up = false;
    link->era++;
    memset(link->scratchpads, 0, sizeof(link->scratchpads));
    for (unsigned side = 0; side < 2; side++) {
        link->ends[side].events = VIA_PORT_EVENT_LINK_DOWN;
    }
}

void scale_link_fini(struct scale_link *link)
{
    for (unsigned side = 0; side < 2; side++) {
        free(link->ends[side].port.inbox);
    }
}
