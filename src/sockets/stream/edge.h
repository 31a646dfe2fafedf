/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_EDGE_H
#define VIA_SOCKETS_EDGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "core/pipe.h"

/*
 * Determines the edges (EPOLLET) of a connection with pipes, some of whose bytes may still go
 * through the kernel. No I/O.
 *
 * The library counts the causes of events: records, writers that found no room, ends. All counts
 * only grow; a cause that is new since the last report is an edge. What the kernel reports is an
 * edge, too, even if it only repeats its state because its registration was changed. So when a
 * connection gets or leaves pipes, a program may get an edge without a cause, which epoll(7)
 * allows; no edge is missing.
 */
#define VIA_EDGE_IN (EPOLLIN | EPOLLRDNORM)
#define VIA_EDGE_OUT (EPOLLOUT | EPOLLWRNORM)
#define VIA_EDGE_URGENT (EPOLLPRI | EPOLLRDBAND)
/* The kernel wakes threads that wait for these events when bytes arrive (sock_def_readable()). */
#define VIA_EDGE_READ (VIA_EDGE_IN | VIA_EDGE_URGENT)

/* What a registration in an epoll set has reported to the program. */
struct via_edge {
    uint32_t sequence; /* the first unreported record */
    uint32_t full;     /* count of the times that a writer found no room */
    uint32_t shuts;    /* count of shutdown() calls on this end, also by other processes */
    uint32_t ends;     /* POLLRDHUP, POLLHUP, POLLERR */
    bool due; /* report the present state: the program has just made or changed the registration */
    bool recheck; /* the kernel has reported something */
};

/* The present state. The caller reads the counts before it determines `bits`: a later cause may be
 * missing in `bits`, and is reported next time. */
struct via_edge_now {
    uint32_t events; /* events that the program registered for */
    uint32_t bits;
    uint32_t ends;     /* the part of `bits` that is POLLRDHUP, POLLHUP or POLLERR */
    uint32_t full;     /* count before `bits` were determined */
    uint32_t shuts;    /* count before `bits` were determined */
    uint32_t sequence; /* before `bits` were determined: the first record that had not arrived */
    uint32_t next;     /* now: the first record that has not arrived */
    uint32_t read;     /* the first record that was not read */
    bool piped;
    bool reads_kernel; /* bytes may come through the kernel */
};

/* The first record at or after `sequence` that has not arrived. Does not consume records. */
uint32_t via_edge_next_record(const struct via_pipe_reader *pipe, uint32_t sequence);

/* True if the program has read records that were not reported. Then it is owed an edge for room. */
bool via_edge_is_missed(const struct via_edge *reported, uint32_t events, uint32_t read);

/* True if `bits` contain an unreported event. */
bool via_edge_is_news(const struct via_edge *reported, const struct via_edge_now *now);

/* Records that `now` has been reported. */
void via_edge_report(struct via_edge *reported, const struct via_edge_now *now);

#endif
