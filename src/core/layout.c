/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The place of pipes in an inbox, and the targets of posts. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "core/layout.h"
#include "core/port_target.h"

void via_geometry_of_channels(uint32_t slots, uint32_t frame_bytes,
                              struct via_pipe_geometry *ret_geometry)
{
    /* One body more than slots: then the bytes that stay unused at the end of the ring never
     * prevent the use of a free slot, and only slots can run out. */
    *ret_geometry = (struct via_pipe_geometry){
        .slots_count = slots,
        .data_bytes = (slots + 1) * frame_bytes,
        .body_bytes_max = frame_bytes,
    };
}

void via_inbox_place(const struct via_pipe_geometry *geometry, unsigned pipe,
                     struct via_inbox_place *ret_place)
{
    size_t off = VIA_RECORD_LINE_BYTES; /* the cell of heartbeats */
    if (pipe > 0) {
        off += VIA_RECORD_LINE_BYTES + via_pipe_memory_bytes(via_control_geometry());
        off += (pipe - 1) * (VIA_RECORD_LINE_BYTES + via_pipe_memory_bytes(geometry));
    }
    ret_place->credit_off = off;
    ret_place->memory_off = off + VIA_RECORD_LINE_BYTES;
}

size_t via_inbox_bytes(const struct via_pipe_geometry *geometry, unsigned channels_count)
{
    struct via_inbox_place place;

    via_inbox_place(geometry, 1u + channels_count, &place); /* the end of the last pipe */
    return place.credit_off;
}

void via_link_target(struct via_port *port, unsigned queue, size_t off,
                     struct via_pipe_target *ret_target)
{
    *ret_target = via_port_target(port, queue, off);
    if (port->window != NULL && port->caps.coherent) {
        ret_target->direct = port->window + off;
    }
}

void via_node_trace(const struct via_node *node, const char *format, ...)
{
    char text[160];
    va_list args;

    if (node->env.trace == NULL) {
        return;
    }
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    node->env.trace(node->env.ctx, text);
}

/* --- the log of routes ----------------------------------------------------------------------- */

void via_route_log_append(struct via_node *node, uint16_t host)
{
    struct via_route_log *log = &node->route_log;
    uint32_t begun = atomic_load_explicit(&log->begun, memory_order_relaxed);

    atomic_store_explicit(&log->begun, begun + 1, memory_order_relaxed);
    /* Pairs with the acquire fence in via_node_route_changes(): a reader that loads the new entry
     * also loads the incremented `begun`. */
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&log->hosts[begun % VIA_ROUTE_CHANGES_MAX], host, memory_order_relaxed);
}

void via_route_log_publish(struct via_node *node)
{
    struct via_route_log *log = &node->route_log;
    uint32_t begun = atomic_load_explicit(&log->begun, memory_order_relaxed);
    /* Pairs with the acquire in via_node_route_changes(): entries, routes and sessions are stored
     * before. */
    atomic_store_explicit(&log->version, begun, memory_order_release);
}

int via_node_route_changes(const struct via_node *node, uint32_t *seen,
                           uint16_t ret_hosts[VIA_ROUTE_CHANGES_MAX])
{
    const struct via_route_log *log = &node->route_log;
    /* Pairs with the release in via_route_log_publish(). */
    uint32_t version = atomic_load_explicit(&log->version, memory_order_acquire);
    uint32_t from = *seen;
    uint32_t count = version - from;

    *seen = version;
    if (count > VIA_ROUTE_CHANGES_MAX) {
        return -EOVERFLOW;
    }
    for (uint32_t i = 0; i < count; i++) {
        ret_hosts[i] = atomic_load_explicit(&log->hosts[(from + i) % VIA_ROUTE_CHANGES_MAX],
                                            memory_order_relaxed);
    }
    /* Pairs with the release fence in via_route_log_append(). */
    atomic_thread_fence(memory_order_acquire);
    uint32_t begun = atomic_load_explicit(&log->begun, memory_order_relaxed);
    return begun - from > VIA_ROUTE_CHANGES_MAX ? -EOVERFLOW : (int)count;
}
