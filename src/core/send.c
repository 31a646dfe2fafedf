/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Sends a frame: its body by PIO, or by the port's DMA engine. */
#include <assert.h>

#include "core/way.h"

void via_way_send(struct via_way *way, const struct via_frame_header *header, const void *body,
                  size_t body_bytes)
{
    if (via_unlikely(body_bytes >= way->dma_from)) {
        via_dma_send(way, header, body, body_bytes);
        return;
    }
    int rc = via_pipe_send(&way->tx, header, sizeof(*header), body, body_bytes);
    /* a free slot always has room in the data ring: see via_geometry_of_channels() */
    assert(rc == 0);
    (void)rc;
    via_way_sent(way, header->kind, body_bytes);
}
