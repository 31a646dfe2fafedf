/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The control pipe of a link, and the clearing of inboxes. Control thread. */
#include "core/link.h"

static struct via_port *port_of(const struct via_link *link)
{
    return atomic_load_explicit(&link->port, memory_order_relaxed);
}

/* Publishes the word that via_node_arm(0) compares with the next slot, because it must not use the
 * control thread's reader. */
static void show_next(struct via_link *link)
{
    const struct via_pipe_reader *reader = &link->control_rx;
    atomic_store_explicit(&link->control_word, via_record_word(reader->epoch, 0, reader->sequence),
                          memory_order_relaxed);
}

void via_control_pipe_open(struct via_link *link)
{
    struct via_port *port = port_of(link);
    struct via_inbox_place place;
    struct via_pipe_target target;

    via_inbox_place(via_control_geometry(), 0, &place);
    via_link_target(port, VIA_PORT_QUEUE_CONTROL, place.memory_off, &target);
    via_pipe_writer_init(&link->control_tx, via_control_geometry(), &target,
                         (const _Atomic uint64_t *)(const void *)(port->inbox + place.credit_off),
                         link->control_data_ends, link->tx_epoch);
    via_link_target(port, VIA_PORT_QUEUE_CONTROL, place.credit_off, &target);
    via_pipe_reader_init(&link->control_rx, via_control_geometry(), port->inbox + place.memory_off,
                         &target, link->rx_epoch);
    via_pipe_writer_start_at(&link->control_tx, VIA_CONTROL_PIPE_FIRST);
    via_pipe_reader_start_at(&link->control_rx, VIA_CONTROL_PIPE_FIRST);
    link->control_arm = VIA_ARM_PHASE_IDLE;
    show_next(link);
}

void via_control_pipe_close(struct via_link *link)
{
    atomic_store_explicit(&link->control_word, 0, memory_order_relaxed);
}

void via_control_pipe_sent(struct via_link *link)
{
    struct via_port *port = port_of(link);
    port->ops->flush(port, VIA_PORT_QUEUE_CONTROL);
    if (via_pipe_take_reader_ring(&link->control_tx)) {
        (void)port->ops->ring(port, VIA_PORT_QUEUE_CONTROL, 0);
    }
}

void via_control_pipe_taken(struct via_link *link)
{
    struct via_port *port = port_of(link);
    show_next(link);
    if (via_pipe_take_writer_ring(&link->control_rx)) {
        port->ops->flush(port, VIA_PORT_QUEUE_CONTROL);
        (void)port->ops->ring(port, VIA_PORT_QUEUE_CONTROL, 0);
    }
}

static void clear_word(struct via_port *port, size_t off)
{
    atomic_store_explicit((_Atomic uint64_t *)(void *)(port->inbox + off), 0, memory_order_relaxed);
}

void via_inbox_clear(struct via_port *port, const struct via_pipe_geometry *geometry, unsigned pipe)
{
    const struct via_pipe_geometry *own = pipe == 0 ? via_control_geometry() : geometry;
    struct via_inbox_place place;

    via_inbox_place(geometry, pipe, &place);
    clear_word(port, place.credit_off);
    clear_word(port, place.memory_off); /* the want word */
    for (uint32_t i = 0; i < own->slots_count; i++) {
        clear_word(port, place.memory_off + (size_t)(i + 1) * VIA_RECORD_LINE_BYTES +
                             offsetof(struct via_record_line, word));
    }
}
