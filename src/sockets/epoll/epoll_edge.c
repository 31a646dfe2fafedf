/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The edges (edge.h) of a set's entries: the state of their connections. */
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>

#include "sockets/epoll/epoll_internal.h"
#include "sockets/io/io_internal.h"
#include "sockets/process/real.h"

_Static_assert((VIA_EDGE_CLOSED & VIA_POLL_GONE) == 0, "a bit of no event");

static bool is_kernel_read(const struct via_ep_entry *entry)
{
    const struct via_side *side = entry->conn->side;
    return !entry->piped || side->rx.span != VIA_SPAN_PIPE ||
           via_side_is_in(side, VIA_PHASES_FOLLOW);
}

static uint32_t next_expected(const struct via_ep_entry *entry)
{
    bool counts = entry->piped && (entry->events & EPOLLET) != 0;
    return counts ? via_edge_next_record(&entry->conn->side->rx.pipe, entry->told.sequence)
                  : entry->told.sequence;
}

struct via_ep_before via_ep_before(const struct via_ep_entry *entry)
{
    return (struct via_ep_before){
        .full = atomic_load_explicit(&entry->conn->side->tx_full, memory_order_relaxed),
        .shuts = atomic_load_explicit(&entry->conn->side->shuts, memory_order_relaxed),
        .sequence = next_expected(entry)};
}

bool via_ep_is_missed(const struct via_ep_entry *entry)
{
    return via_edge_is_missed(&entry->told, entry->events,
                              via_stream_rx_after_bytes(&entry->conn->side->rx));
}

static bool is_closed(const struct via_ep_entry *entry)
{
    uint8_t state = 0; /* the first member of struct tcp_info */
    socklen_t bytes = sizeof(state);
    return VIA_REAL(getsockopt)(via_ep_number(entry), IPPROTO_TCP, TCP_INFO, &state, &bytes) == 0 &&
           state == TCP_CLOSE;
}

/* The ends in these bits, whether the program asked for them or not. A program that asks only for
 * bytes gets the kernel's end as bytes if no record announces the end, as when a child was the last
 * holder of the other end. */
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
    if ((bits & POLLHUP) != 0 && via_conn_is_local(entry->conn) && is_closed(entry)) {
        ends |= VIA_EDGE_CLOSED;
    }
    return ends;
}

struct via_edge_now via_ep_now(const struct via_ep_entry *entry, uint32_t bits,
                               const struct via_ep_before *before)
{
    const struct via_side *side = entry->conn->side;
    return (struct via_edge_now){.events = entry->events,
                                 .bits = bits,
                                 .ends = ends_of(entry, bits),
                                 .full = before->full,
                                 .shuts = before->shuts,
                                 .sequence = before->sequence,
                                 .next = next_expected(entry),
                                 .read = via_stream_rx_after_bytes(&side->rx),
                                 .piped = entry->piped,
                                 .reads_kernel = is_kernel_read(entry)};
}

/* True if the kernel has received bytes that are not reported yet; a FIN counts as one. If the
 * kernel does not tell how many, all bytes are new. */
static bool is_kernel_news(const struct via_ep_entry *entry)
{
    uint64_t bytes;
    return via_kernel_received(via_ep_number(entry), &bytes) != 0 || bytes != entry->told.kernel;
}

bool via_ep_is_news(const struct via_ep_entry *entry, const struct via_edge_now *now)
{
    return via_edge_is_news(&entry->told, now) ||
           (via_edge_has_kernel_question(&entry->told, now) && is_kernel_news(entry));
}

static void note_kernel_read(struct via_ep_entry *entry, uint32_t bits)
{
    uint64_t bytes;
    int unread = 0;
    int fd = via_ep_number(entry);
    if (via_kernel_received(fd, &bytes) == 0 &&
        ((bits & VIA_EDGE_IN) != 0 || VIA_REAL(ioctl)(fd, SIOCINQ, &unread) == 0)) {
        via_edge_note_kernel(&entry->told, bytes, (uint64_t)unread);
    }
}

void via_ep_note_reported(struct via_ep_entry *entry, const struct via_edge_now *now)
{
    via_edge_report(&entry->told, now);
    if (now->reads_kernel) {
        note_kernel_read(entry, now->bits);
    }
}

void via_ep_note_left(struct via_ep_entry *entry)
{
    uint64_t kernel = entry->told.kernel;
    note_kernel_read(entry, 0);
    via_edge_leave(&entry->told, entry->events, via_stream_rx_after_bytes(&entry->conn->side->rx),
                   kernel);
}
