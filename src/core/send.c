/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A frame leaves: its body by PIO, or by the port's engine. */
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
    assert(rc == 0); /* a free slot always has its room in the data ring: see pipe_geometry() */
    (void)rc;
    via_way_sent(way, header->kind, body_bytes);
}
