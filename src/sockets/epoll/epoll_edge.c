/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Collects the state of an entry's connection, from which edge.h determines edges. */
#include <poll.h>

#include "sockets/epoll/epoll_internal.h"
#include "sockets/io/io_internal.h"

static bool is_kernel_read(const struct via_ep_entry *entry)
{
    const struct via_side *side = entry->conn->side;
    return !entry->piped || side->rx.span != VIA_SPAN_PIPE ||
           via_side_is_in(side, VIA_PHASES_FOLLOW);
}

static uint32_t next_expected(const struct via_ep_entry *entry)
{
    bool counts = entry->piped && (entry->events & EPOLLET) != 0;
    return counts ? via_edge_next_record(&entry->conn->side->rx.pipe, entry->reported.sequence)
                  : entry->reported.sequence;
}

struct via_edge_now via_ep_begin_edge(const struct via_ep_entry *entry)
{
    const struct via_side *side = entry->conn->side;
    return (struct via_edge_now){.events = entry->events,
                                 .full = atomic_load_explicit(&side->tx_full, memory_order_relaxed),
                                 .shuts = atomic_load_explicit(&side->shuts, memory_order_relaxed),
                                 .sequence = next_expected(entry)};
}

bool via_ep_is_missed(const struct via_ep_entry *entry)
{
    return via_edge_is_missed(&entry->reported, entry->events, via_ep_sequence(entry));
}

/* The ends of directions in these bits, also those that the program did not register for. If no
 * record announces an end (a forked child was the peer's last holder), a program that registered
 * only for bytes gets the kernel's end as EPOLLIN. */
static uint32_t ends_of(const struct via_ep_entry *entry, uint32_t bits)
{
    const struct via_side *side = entry->conn->side;
    uint32_t seen = atomic_load_explicit(&side->shadow, memory_order_relaxed);
    uint32_t ends =
        (bits & VIA_POLL_GONE) | (seen & POLLERR) | ((bits & POLLHUP) != 0 ? POLLRDHUP : 0);
    if ((bits & VIA_EDGE_IN) != 0 && entry->piped && side->rx.span == VIA_SPAN_PIPE &&
        !side->rx.ended && !via_pipe_is_ready(&side->rx.pipe)) {
        ends |= seen & POLLRDHUP;
    }
    return ends;
}

void via_ep_end_edge(const struct via_ep_entry *entry, struct via_edge_now *now, uint32_t bits)
{
    now->bits = bits;
    now->ends = ends_of(entry, bits);
    now->next = next_expected(entry);
    now->read = via_ep_sequence(entry);
    now->piped = entry->piped;
    now->reads_kernel = is_kernel_read(entry);
}
