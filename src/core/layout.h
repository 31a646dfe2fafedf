/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CORE_LAYOUT_H
#define VIA_CORE_LAYOUT_H

#include <stdatomic.h>
#include <string.h>

#include "base/bits.h"
#include "base/list.h"
#include "base/types.h"
#include "core/node.h"
#include "core/pipe.h"
#include "wire/link_state.h"

/*
 * Layer 1, beside the pipe: what all layers know of a node and of its channels, and where the pipes
 * lie in an inbox. The state of each other layer hangs on a pointer whose type only the header of
 * that layer completes (node.h lists the layers).
 *
 * Owners: a struct via_channel and all that hangs on it belong to its transfer thread, except for
 * atomics; the links, the link states and what is below them in struct via_node belong to the
 * control thread, unless a field says otherwise.
 */

/* Counters have one writer; readers in other threads may be late but never see half a number. */
static inline void via_count(_Atomic uint64_t *counter, uint64_t more)
{
    uint64_t old = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, old + more, memory_order_relaxed);
}

static inline uint64_t via_counted(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

struct via_channel_counters {
    _Atomic uint64_t delivered, duplicate, gap, resent;
    _Atomic uint64_t dropped_stuck, dropped_hops, dropped_session, dropped_unroutable,
        dropped_malformed, dropped_forged;
    _Atomic uint64_t refused_key, refused_range, refused_endpoint;
    _Atomic uint64_t ops_completed, ops_failed;
};

/* The channels' view of a host; a copy of the routes at via_channel.routes_seen. */
struct via_channel_host {
    uint32_t session;
    uint16_t port;    /* VIA_PORT_NONE: unreachable, or myself */
    bool rerouted;    /* by the change of routes that is being taken in */
    uint64_t lost_ns; /* unreachable: since when; 0 = always */
};

struct via_channel {
    struct via_node *node;
    unsigned index;
    _Atomic uint32_t turn;       /* odd while a poll is under way: see segment.c */
    uint32_t routes_seen;        /* via_route_log.version */
    _Atomic uint32_t links_seen; /* via_node.links_version; the control thread reads it */
    uint64_t now_ns;
    unsigned work;                  /* done in this turn */
    struct via_channel_host *hosts; /* hosts_max */
    struct via_way *ways;           /* way.h: ports_count */
    struct via_list watched;        /* way.h: ways that need a poll, by port */
    struct via_flows *flows;        /* flow.h */
    struct via_ops *ops;            /* op.h */
    struct via_barriers *barriers;  /* op.h: channel 0, else NULL */
    struct via_relay *relay;        /* relay.h */
    struct via_channel_counters counters;
} VIA_CACHELINE_ALIGNED;

/* The way to a host, in one word: hops << 16 | port. */
#define VIA_ROUTE_NONE 0xffffffffu

static inline uint32_t via_route_word(uint32_t hops, uint32_t port)
{
    return hops << 16 | port;
}

static inline uint16_t via_route_hops(uint32_t route)
{
    return (uint16_t)(route >> 16);
}

static inline uint16_t via_route_port(uint32_t route)
{
    return (uint16_t)route;
}
_Static_assert((VIA_ROUTE_NONE & 0xffff) == VIA_PORT_NONE, "no route is one through no port");

/*
 * The hosts whose route or session has changed, as far back as there is room: a ring. The control
 * thread writes, any thread reads; `begun` is ahead of `version` while entries are overwritten.
 */
struct via_route_log {
    _Atomic uint32_t begun;
    _Atomic uint32_t version; /* entries ever published */
    _Atomic uint16_t hosts[VIA_ROUTE_CHANGES_MAX];
};
_Static_assert((VIA_ROUTE_CHANGES_MAX & (VIA_ROUTE_CHANGES_MAX - 1)) == 0, "versions wrap");

struct via_node {
    struct via_node_config config;
    struct via_node_env env;
    struct via_pipe_geometry geometry; /* of channel pipes on links with room for all slots */
    size_t inbox_bytes;
    uint32_t flows_each; /* flows_count + 1 */
    uint32_t answers_count;
    uint32_t get_bytes_max; /* of one request */
    bool changed;           /* control thread: env.changed has to be called */

    /* The control thread writes them, channels copy them. */
    struct via_route_log route_log;
    _Atomic uint32_t links_version; /* changes when a link appears, goes up or goes down */
    _Atomic uint32_t *routes;       /* by host: via_route_word(), or VIA_ROUTE_NONE */
    _Atomic uint32_t *sessions;     /* by host: the session last reached, 0 = never */

    struct via_segment_slot *segments; /* segment.h: segments_count */
    struct via_link *links;            /* link.h: ports_count */
    struct via_lsdb *lsdb;             /* lsdb.h */
    struct via_channel *channels;
};

/* Control thread: an entry of the log, and then all entries since the last time. */
void via_route_log_append(struct via_node *node, uint16_t host);
void via_route_log_publish(struct via_node *node);

/*
 * Where pipes lie in an inbox (both ends compute the same): the heartbeat line, then per pipe the
 * line with the credit word of the pipe that goes out, then the memory of the pipe that comes in.
 * Pipe 0 is the control pipe, pipe 1 + k channel k's.
 */
struct via_inbox_place {
    size_t credit_off;
    size_t memory_off;
};

void via_inbox_place(const struct via_pipe_geometry *geometry, unsigned pipe,
                     struct via_inbox_place *ret_place);
/* Of channel pipes with `slots` slots and frames of at most `frame_bytes` bytes. */
void via_geometry_of_channels(uint32_t slots, uint32_t frame_bytes,
                              struct via_pipe_geometry *ret_geometry);
/* The bytes of an inbox with `channels_count` channel pipes of this geometry. */
size_t via_inbox_bytes(const struct via_pipe_geometry *geometry, unsigned channels_count);
/* Where posts of a queue through a port to inbox offset `off` go. */
void via_link_target(struct via_port *port, unsigned queue, size_t off,
                     struct via_pipe_target *ret_target);
void via_node_trace(const struct via_node *node, const char *format, ...) VIA_PRINTF(2, 3);

static inline const struct via_pipe_geometry *via_control_geometry(void)
{
    static const struct via_pipe_geometry geometry = {
        .slots_count = VIA_CONTROL_PIPE_SLOTS,
        .data_bytes = (VIA_CONTROL_PIPE_SLOTS + 1) * VIA_CONTROL_PIPE_BODY_BYTES,
        .body_bytes_max = VIA_CONTROL_PIPE_BODY_BYTES,
    };
    return &geometry;
}

#endif
