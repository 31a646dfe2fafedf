/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_EDGE_H
#define VIA_SOCKETS_EDGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "core/pipe.h"

/*
 * Defines an edge (EPOLLET) of a connection, whether its bytes go by the kernel or by pipe. No I/O.
 *
 * The kernel reports its own edges once, but reports the state again whenever a registration is
 * changed, as happens when a connection gets or leaves pipes. Then the kernel and the pipe both
 * report the same end. So the library records the causes of reported events: records, bytes of the
 * kernel's, writers that found no room, ends. All of these only grow; a cause that is new since the
 * last report is an edge.
 */
#define VIA_EDGE_IN (EPOLLIN | EPOLLRDNORM)
#define VIA_EDGE_OUT (EPOLLOUT | EPOLLWRNORM)
#define VIA_EDGE_URGENT (EPOLLPRI | EPOLLRDBAND)
/* Threads that wait for these events are woken when bytes arrive (sock_def_readable()). */
#define VIA_EDGE_READ (VIA_EDGE_IN | VIA_EDGE_URGENT)

/* After both directions have ended, a reset or the last acknowledgement does not change the result
 * of poll() once the program has read the error, but it is an edge (tcp_done()): the last one. TCP
 * would ignore anything that the peer announces in the pipe when it closes later. */
#define VIA_EDGE_CLOSED (UINT32_C(1) << 16)

/* What a registration has reported. */
struct via_edge {
    uint64_t kernel;   /* bytes that had arrived by the kernel */
    uint32_t sequence; /* the first unreported record */
    uint32_t full;     /* count of writers that found no room */
    uint32_t shuts;    /* count of shutdown() calls on this end, also by other processes */
    uint32_t ends;     /* POLLRDHUP, POLLHUP, POLLERR, VIA_EDGE_CLOSED */
    bool by_kernel;    /* the last report was about the kernel's bytes */
    bool due;          /* report the present state: the program has just registered */
    bool recheck;      /* the kernel has reported something: check whether it is new */
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
    uint32_t read;     /* the record after the last one that was read and had bytes */
    bool piped;
    bool reads_kernel; /* bytes may come by the kernel */
};

/* The first record, from the reader's position on, that has not arrived; takes no record. */
uint32_t via_edge_next_record(const struct via_pipe_reader *pipe, uint32_t sequence);

/* Have unreported records been read? Then there is an edge for room. */
bool via_edge_is_missed(const struct via_edge *told, uint32_t events, uint32_t read);

/* is_news: does `bits` contain anything unreported? has_kernel_question: could it, if more than
 * told->kernel bytes, or an unknown number, have arrived by the kernel? */
bool via_edge_is_news(const struct via_edge *told, const struct via_edge_now *now);
bool via_edge_has_kernel_question(const struct via_edge *told, const struct via_edge_now *now);

/* Records that `now` has been reported. */
void via_edge_report(struct via_edge *told, const struct via_edge_now *now);
/* Counts those of the kernel's bytes as known that are reported, or have been read. */
void via_edge_note_kernel(struct via_edge *told, uint64_t received, uint64_t unread);
/* The connection leaves its pipes; kernel: told->kernel before it was updated. */
void via_edge_leave(struct via_edge *told, uint32_t events, uint32_t read, uint64_t kernel);

#endif
