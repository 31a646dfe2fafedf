/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_STEWARD_H
#define VIA_SOCKETS_STEWARD_H

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "sockets/conn/conn.h"

/*
 * Requests of a peer that goes back to the kernel to this end (demote.h), while the program does
 * something else: sleeps, waits for other descriptors, works. The peer calls (bell.h), and the
 * thread that handles the call sends the unread bytes again:
 *
 * - a thread that waits for descriptors, whichever, in a call that this library sees. A program of
 *   one thread stays one: what it does is as fast as before, and sandboxes see no system call that
 *   is new to them but ppoll() and epoll_wait(). Where it waits for something else the call waits
 *   for the next one on a connection.
 * - in a program of several threads, which may sleep where the library does not see it, one more
 *   thread: the steward. It starts when the first of them writes to a pipe, and sleeps.
 */

/* This process has had pipes. */
extern _Atomic bool via_steward_had_pipes;
/* The thread runs, or can not be made. */
extern _Atomic bool via_steward_runs;

/* True if a thread that sleeps for something else has to handle calls. */
static inline bool via_steward_is_wanted(void)
{
    return via_unlikely(atomic_load_explicit(&via_steward_had_pipes, memory_order_relaxed)) &&
           !atomic_load_explicit(&via_steward_runs, memory_order_relaxed) && !via_conn_is_none();
}

/* Connections will be made. The thread must be able to find out when it is the last one, and a
 * program that has changed its root may have no /proc. */
extern _Atomic bool via_steward_is_prepared;
void via_steward_prepare_slowly(void);

static inline void via_steward_prepare(void)
{
    if (via_unlikely(!atomic_load_explicit(&via_steward_is_prepared, memory_order_relaxed))) {
        via_steward_prepare_slowly();
    }
}

/* Starts the thread: one of several threads is about to leave bytes in a pipe. */
void via_steward_start_slowly(void);

static inline void via_steward_start(bool alone)
{
    if (!alone && via_unlikely(!atomic_load_explicit(&via_steward_runs, memory_order_relaxed))) {
        via_steward_start_slowly();
    }
}

/* In a program of several threads, after a non-blocking send has found no room although there was
 * something to read: the steward watches stalls (stall.h) for threads that sleep already. */
void via_steward_watch_stalls(void);

/* Does what peers have called for. Keeps errno. No token is held. */
void via_steward_serve_all(void);
/* A call has come, possibly the process's own: handles it. */
void via_steward_take_calls(void);
/* How long to sleep at most before the next check; VIA_NEVER_NS: until a call. */
uint64_t via_steward_sleep_ns_max(void);

/*
 * Sleeps as ppoll() with that deadline does (VIA_NEVER_NS: none; 0: not at all), and handles calls.
 * fds must have room for one more.
 */
int via_steward_sleep(struct pollfd *fds, unsigned count, uint64_t deadline_ns,
                      const sigset_t *mask);

/*
 * Fd is about to be closed with bytes that must be sent again, or by its last holder with frames
 * under way to another host; or it is shut down with either (io_shut.c). A descriptor of the
 * library keeps the connection until those have been sent. False: there is no room for more. Frames
 * may take long, and the program may be busy, so any program gets the thread for them. The tx token
 * may be held.
 */
bool via_steward_keep_conn(struct via_conn *conn, int fd);
/* The process ends: waits for kept connections, as long as the kernel accepts any bytes. */
void via_steward_end(void);

void via_steward_forked(void);

#endif
