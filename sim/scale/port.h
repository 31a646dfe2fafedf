/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Links of sim/scale: posted writes arrive in order after a while, doorbells behind them. */
#ifndef SIM_SCALE_PORT_H
#define SIM_SCALE_PORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "core/port.h"

struct scale_link;

/* A posted write under way. */
struct scale_flight {
    struct scale_flight *next;
    uint64_t arrive_ns, off;
    size_t bytes;
    unsigned char data[];
};

struct scale_fence {
    uint64_t due_ns;
    uint32_t era; /* of the link, at the start of the write */
    bool under_way;
};

/* One end of a link. */
struct scale_end {
    struct via_port port; /* first */
    struct scale_link *link;
    struct scale_end *peer;
    struct scale_flight *first, *last; /* leaving from here */
    struct via_list arriving;          /* events of the peer's host, while there are some */
    struct scale_fence fences[VIA_PORT_QUEUES];
    uint64_t events;
    uint32_t host;
};

struct scale_fabric;

/* What a port asks of the fabric, besides fabric.h. */
void scale_fabric_ring(struct scale_fabric *fabric, struct scale_end *end,
                       unsigned bit); /* at that end, some time later */
struct via_list *scale_fabric_arriving(struct scale_fabric *fabric,
                                       uint32_t host); /* ends whose writes arrive at it */

struct scale_link {
    struct scale_end ends[2];
    struct scale_fabric *fabric;
    uint32_t index;
    uint32_t era; /* counts cuts */
    bool up;
    uint8_t dimension;
    uint32_t scratchpads[VIA_PORT_SCRATCHPADS];
};

/* inbox_bytes at each end. The link is up. */
void scale_link_init(struct scale_link *link, struct scale_fabric *fabric, uint32_t a, uint32_t b,
                     size_t inbox_bytes);
void scale_link_fini(struct scale_link *link);
/* Writes under way are lost. */
void scale_link_cut(struct scale_link *link);
/* Makes the writes visible that have arrived by now. */
void scale_end_arrive(struct scale_end *end, uint64_t now_ns);

#endif
