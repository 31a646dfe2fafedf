/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * What an edge is, whichever way a connection's bytes go. The kernel tells its own once, but tells
 * the state again whenever a registration is changed, as it is when pipes come or go; and then two
 * know of the same end, the kernel and the pipe. So what has been told is remembered by what the
 * state was due to: records, bytes of the kernel's, writers that found no room, ends.
 */
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>

#include "base/bits.h"
#include "sockets/epoll_internal.h"
#include "sockets/io_internal.h"
#include "sockets/real.h"

_Static_assert((VIA_EP_CLOSED & VIA_POLL_GONE) == 0, "a bit of no event");

#define IN_EVENTS (EPOLLIN | EPOLLRDNORM)
#define OUT_EVENTS (EPOLLOUT | EPOLLWRNORM)
#define URGENT_EVENTS (EPOLLPRI | EPOLLRDBAND)

/* By which the kernel is asked. Of a connection without pipes the number may be closed by which it
 * goes on telling of it, and be another's. */
static int number(const struct via_ep_entry *entry)
{
    int fd = via_ep_fd(entry);
    return fd != entry->fd || via_fd_peek(fd) == &entry->conn->file ? fd : via_conn_fd(entry->conn);
}

static bool reads_kernel(const struct via_ep_entry *entry)
{
    const struct via_side *side = entry->conn->side;
    return !entry->piped || side->rx.span != VIA_SPAN_PIPE ||
           via_side_is_in(side, VIA_PHASES_FOLLOW);
}

/* As many as have come, a FIN counted as one. When the kernel does not tell, all are new. */
static bool is_kernel_news(const struct via_ep_entry *entry)
{
    uint64_t bytes;
    return via_kernel_received(number(entry), &bytes) != 0 || bytes != entry->seen_kernel;
}

/* Who waits for these is woken when bytes come (sock_def_readable()). */
#define READ_EVENTS (IN_EVENTS | URGENT_EVENTS)

/* The first record after those that were told of that has not come. */
static uint32_t next_to_come(const struct via_ep_entry *entry)
{
    const struct via_pipe_reader *pipe = &entry->conn->side->rx.pipe;
    uint32_t sequence = entry->seen_sequence;
    if (!entry->piped || (entry->events & EPOLLET) == 0) {
        return sequence;
    }
    if (via_seq_before_u32(sequence, pipe->sequence)) {
        sequence = pipe->sequence; /* taken before it was told */
    }
    while (via_pipe_ready_at(pipe, sequence)) {
        sequence++;
    }
    return sequence;
}

struct via_ep_before via_ep_before(const struct via_ep_entry *entry)
{
    return (struct via_ep_before){
        .full = atomic_load_explicit(&entry->conn->side->tx_full, memory_order_relaxed),
        .sequence = next_to_come(entry)};
}

/* Up to which record these bits tell. Who is told that there is something to read reads it all;
 * who is told anything else while a record comes has not been told of that. */
static uint32_t told_to(const struct via_ep_entry *entry, uint32_t bits,
                        const struct via_ep_before *before)
{
    return (bits & IN_EVENTS) != 0 ? next_to_come(entry) : before->sequence;
}

static bool was_read_untold(const struct via_ep_entry *entry)
{
    return via_seq_before_u32(entry->seen_sequence,
                              via_stream_rx_after_bytes(&entry->conn->side->rx));
}

bool via_ep_missed(const struct via_ep_entry *entry)
{
    return (entry->events & EPOLLET) != 0 && (entry->events & READ_EVENTS) != 0 &&
           was_read_untold(entry);
}

/* Records that came after those that were told of, taken or not; as many bytes as wanted. */
static bool is_pipe_news(const struct via_ep_entry *entry, uint32_t bits,
                         const struct via_ep_before *before)
{
    bool few = entry->conn->side->rcvlowat > 1 && (bits & IN_EVENTS) == 0;
    return entry->piped && (entry->events & READ_EVENTS) != 0 &&
           (entry->seen_gone & VIA_EP_CLOSED) == 0 &&
           (via_ep_missed(entry) || (!few && told_to(entry, bits, before) != entry->seen_sequence));
}

static bool is_closed(const struct via_ep_entry *entry)
{
    uint8_t state = 0; /* the first member of struct tcp_info */
    socklen_t bytes = sizeof(state);
    return VIA_REAL(getsockopt)(number(entry), IPPROTO_TCP, TCP_INFO, &state, &bytes) == 0 &&
           state == TCP_CLOSE;
}

/* Ends that these bits tell, wanted or not: who asks for bytes alone is told of the kernel's end as
 * of bytes when no record says it, as when a child was the last that held the other end. */
uint32_t via_ep_ends(const struct via_ep_entry *entry, uint32_t bits)
{
    const struct via_side *side = entry->conn->side;
    uint32_t seen = atomic_load_explicit(&side->shadow, memory_order_relaxed);
    uint32_t ends =
        (bits & VIA_POLL_GONE) | (seen & POLLERR) | ((bits & POLLHUP) != 0 ? POLLRDHUP : 0);
    if ((bits & IN_EVENTS) != 0 && entry->piped && side->rx.span == VIA_SPAN_PIPE &&
        !side->rx.ended && !via_pipe_ready(&side->rx.pipe)) {
        ends |= seen & POLLRDHUP;
    }
    if ((bits & POLLHUP) != 0 && via_conn_is_local(entry->conn) && is_closed(entry)) {
        ends |= VIA_EP_CLOSED;
    }
    return ends;
}

bool via_ep_is_news(const struct via_ep_entry *entry, uint32_t bits,
                    const struct via_ep_before *before)
{
    return bits != 0 &&
           (entry->edge || is_pipe_news(entry, bits, before) ||
            ((bits & OUT_EVENTS) != 0 && before->full != entry->seen_full) ||
            (via_ep_ends(entry, bits) & ~entry->seen_gone) != 0 ||
            (entry->look && (entry->seen_gone & VIA_EP_CLOSED) == 0 &&
             ((bits & URGENT_EVENTS) != 0 || ((entry->events & READ_EVENTS) != 0 &&
                                              reads_kernel(entry) && is_kernel_news(entry)))));
}

/* Of the bytes that have come those are known that it is told of, or that have been read. */
static void note_kernel(struct via_ep_entry *entry, uint32_t bits, uint64_t received)
{
    int unread = 0;
    if ((bits & IN_EVENTS) == 0 && VIA_REAL(ioctl)(number(entry), SIOCINQ, &unread) != 0) {
        return;
    }
    entry->seen_kernel =
        via_max(entry->seen_kernel, received - via_min(received, (uint64_t)unread));
}

void via_ep_told(struct via_ep_entry *entry, uint32_t bits, const struct via_ep_before *before)
{
    uint64_t bytes;
    entry->edge = false;
    entry->look = false;
    entry->seen_sequence = told_to(entry, bits, before);
    if ((bits & OUT_EVENTS) != 0) {
        entry->seen_full = before->full;
    }
    entry->seen_gone |= via_ep_ends(entry, bits);
    entry->told_kernel = reads_kernel(entry);
    if (entry->told_kernel && via_kernel_received(number(entry), &bytes) == 0) {
        note_kernel(entry, bits, bytes);
    }
}

void via_ep_left(struct via_ep_entry *entry)
{
    uint64_t bytes, seen = entry->seen_kernel;
    if (via_kernel_received(number(entry), &bytes) == 0) {
        note_kernel(entry, 0, bytes);
    }
    if (was_read_untold(entry) ||
        ((entry->events & READ_EVENTS) != 0 && entry->told_kernel && entry->seen_kernel != seen)) {
        entry->edge = true; /* it was not told of them, and they have been read, or come again */
    }
}
