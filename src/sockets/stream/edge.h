/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_EDGE_H
#define VIA_SOCKETS_EDGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "core/pipe.h"

/*
 * What an edge is (EPOLLET), whichever way a connection's bytes go. No I/O.
 *
 * The kernel tells its own edges once, but tells the state again whenever a registration is
 * changed, as it is when pipes come or go; and then two know of the same end, the kernel and the
 * pipe. So what has been told is remembered by what the state was due to: records, bytes of the
 * kernel's, writers that found no room, ends. All of these only grow; what is new since the last
 * report is an edge.
 */
#define VIA_EDGE_IN (EPOLLIN | EPOLLRDNORM)
#define VIA_EDGE_OUT (EPOLLOUT | EPOLLWRNORM)
#define VIA_EDGE_URGENT (EPOLLPRI | EPOLLRDBAND)
/* Waiters for these are woken when bytes come (sock_def_readable()). */
#define VIA_EDGE_READ (VIA_EDGE_IN | VIA_EDGE_URGENT)

/* After both directions have ended a reset, or the last acknowledgement, changes nothing that
 * poll() tells once the error has been taken, but is an edge (tcp_done()): the last. What the
 * other end says in the pipe when it closes later, TCP would not take any more. */
#define VIA_EDGE_CLOSED (UINT32_C(1) << 16)

/* What a registration has been told. */
struct via_edge {
    uint64_t kernel;   /* bytes that had come by the kernel */
    uint32_t sequence; /* the first record that was not told */
    uint32_t full;     /* writers that found no room */
    uint32_t ends;     /* POLLRDHUP, POLLHUP, POLLERR, VIA_EDGE_CLOSED */
    bool by_kernel;    /* the last report was of the kernel's bytes */
    bool due;          /* report what there is: the program has just asked for it */
    bool recheck;      /* the kernel has said something: is it new? */
};

/* What there is. Records and writers are counted before `bits` are found out: what comes meanwhile
 * may not be among these, and is told with the next ones. */
struct via_edge_now {
    uint32_t events; /* as the program wants */
    uint32_t bits;
    uint32_t ends;     /* of these bits */
    uint32_t full;     /* before */
    uint32_t sequence; /* before: the first record that was not there yet */
    uint32_t next;     /* ... now */
    uint32_t read;     /* the record after the last one that was read and had bytes */
    bool piped;
    bool few;          /* SO_RCVLOWAT: fewer bytes than wanted are none */
    bool reads_kernel; /* bytes may come that way */
};

/* The first record from here on, and not taken, that has not come. */
uint32_t via_edge_next_record(const struct via_pipe_reader *pipe, uint32_t sequence);

/* Have records been read that were not told? Then it is an edge that there is room. */
bool via_edge_is_missed(const struct via_edge *told, uint32_t events, uint32_t read);

/* Is there anything in bits that was not told? ... or could be, if more has come by the kernel than
 * told->kernel bytes, or an unknown number? */
bool via_edge_is_news(const struct via_edge *told, const struct via_edge_now *now);
bool via_edge_has_kernel_question(const struct via_edge *told, const struct via_edge_now *now);

/* It is told now. */
void via_edge_report(struct via_edge *told, const struct via_edge_now *now);
/* Of the bytes that have come by the kernel those are known that are told, or have been read. */
void via_edge_note_kernel(struct via_edge *told, uint64_t received, uint64_t unread);
/* The connection leaves its pipes; kernel: told->kernel before it was brought up to date. */
void via_edge_leave(struct via_edge *told, uint32_t events, uint32_t read, uint64_t kernel);

#endif
