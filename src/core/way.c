/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A channel's way through one port: finding the way to a host, and ringing its doorbells. */
#include "core/way.h"

struct via_way *via_way_to(struct via_channel *channel, uint16_t host)
{
    uint16_t port = channel->hosts[host].port;
    if (port == VIA_PORT_NONE || !channel->ways[port].up) {
        return NULL;
    }
    return &channel->ways[port];
}

void via_way_ring(struct via_way *way)
{
    struct via_port *port = way->port;

    if (!port->caps.coherent && (way->sent || way->released)) {
        port->ops->flush(port, way->queue);
    }
    bool bell = way->sent && via_pipe_take_reader_ring(&way->tx);
    unsigned bells = bell ? way->bells : 0;
    if (way->released && via_pipe_take_writer_ring(&way->rx)) {
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
