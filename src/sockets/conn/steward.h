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
 * How a process answers a peer that leaves the pipes (demote.h) while the program makes no call on
 * the connection: it sleeps, waits for other descriptors, or computes. The peer calls (bell.h), and
 * the thread that handles the call resends the unread bytes:
 *
 * - In any program: a thread that waits for descriptors in a call that this library sees. So a
 *   program of one thread gets no second one: it stays as fast as before, and a sandbox sees no new
 *   system calls of it except ppoll() and epoll_wait(). While it waits in another call, the peer's
 *   call waits until its next call on a connection.
 * - In a program of several threads, which may all sleep where the library does not see it: one
 *   more thread, the steward. It is started when one of the threads first writes to a pipe.
 *
 * pthread_create() allocates memory and takes locks of the C library. So no signal handler starts
 * the steward: the handler may have interrupted malloc(). A later call outside of handlers does. A
 * child that a process of several threads has made by _Fork() or clone() never starts it: another
 * thread may have held those locks, which only fork() takes and resets (glibc: __libc_fork(),
 * posix/fork.c). Until then the threads of such processes answer like those of other programs.
 */

/* This process has or had connections with pipes. */
extern _Atomic bool via_steward_had_pipes;
/* The steward runs, or could not be made. */
extern _Atomic bool via_steward_runs;
/* A signal handler has needed the steward: the next call outside of handlers starts it. */
extern _Atomic bool via_steward_is_due;

/* True if a thread that sleeps for other descriptors has to handle calls. */
static inline bool via_steward_is_wanted(void)
{
    return via_unlikely(atomic_load_explicit(&via_steward_had_pipes, memory_order_relaxed)) &&
           !atomic_load_explicit(&via_steward_runs, memory_order_relaxed) && !via_conn_is_none();
}

/* Called before the first connection is made. The steward must be able to find out when it is the
 * last thread, and a program that calls chroot() may have no /proc afterwards. */
extern _Atomic bool via_steward_is_prepared;
void via_steward_prepare_slowly(void);

static inline void via_steward_prepare(void)
{
    if (via_unlikely(!atomic_load_explicit(&via_steward_is_prepared, memory_order_relaxed))) {
        via_steward_prepare_slowly();
    }
}

/* Starts the steward, or makes it due: one of several threads is about to leave bytes in a pipe, or
 * the process has kept a connection (alone = false). */
void via_steward_start_slowly(void);

static inline void via_steward_start(bool alone)
{
    if ((!alone && via_unlikely(!atomic_load_explicit(&via_steward_runs, memory_order_relaxed))) ||
        via_unlikely(atomic_load_explicit(&via_steward_is_due, memory_order_relaxed))) {
        via_steward_start_slowly();
    }
}

/* Called in a child that a process of several threads has made without the C library's fork(). */
void via_steward_forbid(void);

/* Handles the calls of all peers. Keeps errno. No token is held. */
void via_steward_serve_all(void);
/* Handles a call that has arrived: of a peer, or of this process itself (bell.h). */
void via_steward_take_calls(void);
/* How long to sleep at most before the next check; VIA_NEVER_NS: until a call arrives. */
uint64_t via_steward_sleep_ns_max(void);

/*
 * Sleeps as ppoll() with that deadline does (VIA_NEVER_NS: none; 0: does not sleep), and handles
 * calls. fds must have room for one more entry.
 */
int via_steward_sleep(struct pollfd *fds, unsigned count, uint64_t deadline_ns,
                      const sigset_t *mask);

/*
 * Called when fd is about to be closed with bytes that must be resent, or by its last holder with
 * frames under way to another host; or is shut down with either (io_shut.c). The library keeps a
 * duplicate of the descriptor, and with it the connection, until those are sent. False: there is no
 * room for more. Frames may take long, and the program may be busy, so a program of one thread gets
 * the steward, too. The tx token may be held.
 */
bool via_steward_keep_conn(struct via_conn *conn, int fd);
/* Called when the process exits: waits for kept connections, as long as the kernel accepts
 * bytes. */
void via_steward_end(void);

void via_steward_forked(void);

#endif
