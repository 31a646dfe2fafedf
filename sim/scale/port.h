/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Links of sim/scale: writes are visible at once, doorbells come after a while. */
#ifndef SIM_SCALE_PORT_H
#define SIM_SCALE_PORT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/port.h"

struct scale_fabric;
struct scale_link;

/* One end of a link. */
struct scale_end {
    struct via_port port; /* first */
    struct scale_link *link;
    struct scale_end *peer;
    uint32_t fence_eras[VIA_PORT_QUEUES]; /* of the link, when the queue's fence started */
    uint64_t events;
    uint32_t host;
};

/* Rings at that end, some time later. */
void scale_fabric_ring(struct scale_fabric *fabric, struct scale_end *end, unsigned bit);

struct scale_link {
    struct scale_end ends[2];
    struct scale_fabric *fabric;
    uint32_t era; /* counts cuts */
    bool up;
    uint8_t dimension;
    uint32_t scratchpads[VIA_PORT_SCRATCHPADS];
};

/* inbox_bytes at each end. The link is up. */
void scale_link_init(struct scale_link *link, struct scale_fabric *fabric, uint32_t a, uint32_t b,
                     size_t inbox_bytes);
void scale_link_fini(struct scale_link *link);
/* Doorbells under way are lost. */
void scale_link_cut(struct scale_link *link);

#endif
