/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_EDGE_H
#define VIA_SOCKETS_EDGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "core/pipe.h"

/*
 * Defines an edge (EPOLLET) of a connection with pipes, some of whose bytes may still go through
 * the kernel. No I/O.
 *
 * The library records the causes of reported events: records, writers that found no room, ends. All
 * of these only grow; a cause that is new since the last report is an edge. What the kernel reports
 * is an edge, too, also when it repeats its state because its registration was changed. A program
 * gets such an edge too many when a connection gets or leaves pipes, and finds nothing new; no edge
 * is missing (epoll(7)).
 */
#define VIA_EDGE_IN (EPOLLIN | EPOLLRDNORM)
#define VIA_EDGE_OUT (EPOLLOUT | EPOLLWRNORM)
#define VIA_EDGE_URGENT (EPOLLPRI | EPOLLRDBAND)
/* Threads that wait for these events are woken when bytes arrive (sock_def_readable()). */
#define VIA_EDGE_READ (VIA_EDGE_IN | VIA_EDGE_URGENT)

/* What a registration has reported. */
struct via_edge {
    uint32_t sequence; /* the first unreported record */
    uint32_t full;     /* count of writers that found no room */
    uint32_t shuts;    /* count of shutdown() calls on this end, also by other processes */
    uint32_t ends;     /* POLLRDHUP, POLLHUP, POLLERR */
    bool due;          /* report the present state: the program has just registered */
    bool recheck;      /* the kernel has reported something */
};

/* The present state. Records and writers are counted before `bits` are determined: later ones may
 * be missing in `bits`, and are reported next time. */
struct via_edge_now {
    uint32_t events; /* events that the program asked for */
    uint32_t bits;
    uint32_t ends;     /* ends that `bits` contain */
    uint32_t full;     /* count before `bits` were determined */
    uint32_t shuts;    /* count before `bits` were determined */
    uint32_t sequence; /* before `bits` were determined: the first record that had not arrived */
    uint32_t next;     /* now: the first record that has not arrived */
    uint32_t read;     /* the record after the last one that was read */
    bool piped;
    bool reads_kernel; /* bytes may come by the kernel */
};

/* The first record, from the reader's position on, that has not arrived; takes no record. */
uint32_t via_edge_next_record(const struct via_pipe_reader *pipe, uint32_t sequence);

/* Have unreported records been read? Then there is an edge for room. */
bool via_edge_is_missed(const struct via_edge *reported, uint32_t events, uint32_t read);

/* Does `bits` contain anything unreported? */
bool via_edge_is_news(const struct via_edge *reported, const struct via_edge_now *now);

/* Records that `now` has been reported. */
void via_edge_report(struct via_edge *reported, const struct via_edge_now *now);

#endif
