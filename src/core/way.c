/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A channel's way through one port: room in its out pipe, and bells.
 *
 * Bubble rule: a frame that starts here (data, acknowledgement) may leave only if a buffer stays
 * free behind it, in the out pipe or among the bypass buffers of that way; a relayed frame needs
 * just one, unless it turns from one dimension of a torus into the next: for the ring it comes into
 * it is a new one. So on every ring of relays at least one buffer is free at any time, and the
 * frames in the ring can always move on (docs/adr/0002-bubble-with-bypass.md). Other cycles are
 * broken by age: a frame that has waited stuck_ns is dropped, its source sends it again.
 */
#include "core/way.h"
#include "base/mutant.h"

struct via_way *via_way_to(struct via_channel *channel, uint16_t host)
{
    uint16_t port = channel->hosts[host].port;
    if (port == VIA_PORT_NONE || !channel->ways[port].up) {
        return NULL;
    }
    return &channel->ways[port];
}

/* The credits already seen are looked at first: fresh ones cost a cache miss. */
static bool room_is(struct via_way *way, uint32_t least)
{
    struct via_pipe_writer *tx = &way->tx;
    uint32_t known = tx->geometry.slots_count - via_pipe_writer_outstanding(tx);
    return (known >= least && !tx->broken) || via_pipe_writer_room(tx) >= least;
}

bool via_way_has_room(struct via_way *way)
{
    return room_is(way, 1);
}

static uint32_t bypass_free_count(const struct via_channel *channel, const struct via_way *way)
{
    return channel->node->config.bypass_count - way->bypass_used;
}

bool via_way_may_inject(struct via_channel *channel, struct via_way *way)
{
    bool bypass_free = VIA_MUTANT(NO_BUBBLE) || bypass_free_count(channel, way) > 0;
    return room_is(way, bypass_free ? 1 : 2);
}

bool via_way_may_turn(const struct via_channel *channel, struct via_way *way)
{
    uint32_t bypass = bypass_free_count(channel, way);
    return VIA_MUTANT(NO_TURN_BUBBLE) || bypass >= 2 || room_is(way, 2 - bypass);
}

void via_way_ring(struct via_way *way)
{
    struct via_port *port = way->port;

    if (!port->caps.coherent && (way->sent || way->released)) {
        port->ops->flush(port, way->queue);
    }
    bool bell = way->sent && via_pipe_must_ring(&way->tx);
    unsigned bells = bell ? way->bells : 0;
    if (way->released && via_pipe_must_ring_writer(&way->rx)) {
        bell = true;
    }
    way->sent = false;
    way->released = false;
    way->bells = 0;
    way->unrung_bytes = 0;
    if (!bell) {
        return;
    }
    port->ops->flush(port, way->queue);
    (void)port->ops->ring(port, way->queue, way->queue);
    for (unsigned bit = VIA_PORT_DATA_DOORBELLS; bit < VIA_PORT_DOORBELLS; bit++) {
        if ((bells >> bit & 1) != 0) {
            (void)port->ops->ring(port, way->queue, bit);
        }
    }
}
