/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_EDGE_H
#define VIA_SOCKETS_EDGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "core/pipe.h"

/*
 * The definition of an edge (EPOLLET), whatever carries a connection's bytes. No I/O.
 *
 * The kernel reports its own edges once, but reports the state again whenever a registration is
 * changed, as it is when pipes come or go; and then both the kernel and the pipe know of the same
 * end. So the library records the causes of reported events: records, bytes of the kernel's,
 * writers that found no room, ends. All of these only grow; a cause that is new since the last
 * report is an edge.
 */
#define VIA_EDGE_IN (EPOLLIN | EPOLLRDNORM)
#define VIA_EDGE_OUT (EPOLLOUT | EPOLLWRNORM)
#define VIA_EDGE_URGENT (EPOLLPRI | EPOLLRDBAND)
/* Waiters for these are woken when bytes come (sock_def_readable()). */
#define VIA_EDGE_READ (VIA_EDGE_IN | VIA_EDGE_URGENT)

/* After both directions have ended, a reset or the last acknowledgement changes nothing in the
 * result of poll() once the error has been taken, but it is an edge (tcp_done()): the last one. TCP
 * would ignore anything that the other end announces in the pipe when it closes later. */
#define VIA_EDGE_CLOSED (UINT32_C(1) << 16)

/* The reported events of a registration. */
struct via_edge {
    uint64_t kernel;   /* bytes that had come by the kernel */
    uint32_t sequence; /* the first unreported record */
    uint32_t full;     /* writers that found no room */
    uint32_t shuts;    /* calls of shutdown() on this end, of other processes, too */
    uint32_t ends;     /* POLLRDHUP, POLLHUP, POLLERR, VIA_EDGE_CLOSED */
    bool by_kernel;    /* the last report was of the kernel's bytes */
    bool due;          /* report what there is: the program has just asked for it */
    bool recheck;      /* the kernel has said something: is it new? */
};

/* The present state. Records and writers are counted before `bits` are determined: later ones may
 * be missing in these, and are reported with the next ones. */
struct via_edge_now {
    uint32_t events; /* as the program wants */
    uint32_t bits;
    uint32_t ends;     /* of these bits */
    uint32_t full;     /* before */
    uint32_t shuts;    /* before */
    uint32_t sequence; /* before: the first record that was not there yet */
    uint32_t next;     /* ... now */
    uint32_t read;     /* the record after the last one that was read and had bytes */
    bool piped;
    bool reads_kernel; /* bytes may come that way */
};

/* The first record from here on, not taken, that has not come. */
uint32_t via_edge_next_record(const struct via_pipe_reader *pipe, uint32_t sequence);

/* Have unreported records been read? Then there is an edge for room. */
bool via_edge_is_missed(const struct via_edge *told, uint32_t events, uint32_t read);

/* Does `bits` contain anything unreported? ... or could it, if more than told->kernel bytes, or an
 * unknown number, have come by the kernel? */
bool via_edge_is_news(const struct via_edge *told, const struct via_edge_now *now);
bool via_edge_has_kernel_question(const struct via_edge *told, const struct via_edge_now *now);

/* It is reported now. */
void via_edge_report(struct via_edge *told, const struct via_edge_now *now);
/* Of the bytes that have come by the kernel, those count as known that are reported, or have been
 * read. */
void via_edge_note_kernel(struct via_edge *told, uint64_t received, uint64_t unread);
/* The connection leaves its pipes; kernel: told->kernel before it was updated. */
void via_edge_leave(struct via_edge *told, uint32_t events, uint32_t read, uint64_t kernel);

#endif
