/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CORE_RELAY_H
#define VIA_CORE_RELAY_H

#include "core/way.h"

/* Layer 6, beside link.h: frames on their way through this host. */

/* A frame that waits in a relay. */
struct via_bypass_frame {
    struct via_list link; /* via_way.bypass, or via_relay.free */
    uint64_t since_ns;
    uint32_t body_bytes;
    struct via_frame_header header;
    unsigned char *body; /* frame_bytes_max bytes */
};

struct via_relay {
    struct via_list free;
    struct via_bypass_frame *frames; /* ports_count * config.bypass_count */
};

void via_relay_init(struct via_channel *channel);
/* A frame for another host: 0 = taken (sent, waiting or dropped), -EAGAIN = no room, leave it. */
int via_relay_frame(struct via_channel *channel, struct via_way *from,
                    struct via_frame_header *header, const void *body, uint32_t body_bytes);
void via_relay_drain(struct via_channel *channel, struct via_way *way);
/* When via_relay_drain() must be called for this way, while via_way.bypass_used != 0. */
uint64_t via_relay_deadline_ns(const struct via_channel *channel, const struct via_way *way);
/* After a change of routes: bypassed frames whose way has changed move or are dropped. */
void via_relay_reroute(struct via_channel *channel);

#endif
