/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_WAIT_H
#define VIA_SOCKETS_WAIT_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "sockets/conn/bell.h"

/*
 * A thread that waits first spins, for as long as that has paid off recently, and then sleeps in
 * the kernel.
 */

/* --- spinning -------------------------------------------------------------------------------- */

/* One wait of the calling thread, with an adaptive spinning time (spin.h). */
struct via_wait {
    uint64_t begin_ticks;
    uint64_t end_ticks; /* of spinning */
    uint64_t last_ticks;
    uint64_t yield_ticks;
    uint64_t slept_ticks;
    uint64_t polled_ticks;  /* when the kernel's socket was last polled */
    struct via_wait *outer; /* the interrupted wait, if a signal handler runs this one */
    uint32_t polls;
    bool was_off;      /* another thread has just had the CPU for longer than GAP_US */
    uint32_t taken_at; /* number of the check after which another thread had the CPU, 0: none */
};

void via_wait_begin(struct via_wait *wait);
/* The program's setting for the calling thread: 1: spin, 0: do not spin, -1: follow the rules
 * file. */
void via_wait_set_spin(int spins);
/* Called after a check that found nothing: true if the caller should check again, false if it
 * should sleep. */
bool via_wait_spin(struct via_wait *wait);
/* While spinning: true from time to time, when the caller should poll the kernel's socket. Only the
 * kernel knows that a peer has died. */
bool via_wait_take_poll_due(struct via_wait *wait);
/* Ends the wait, and adds its duration to the estimate of how long spinning pays (spin.h). */
void via_wait_end(const struct via_wait *wait);

/* Called around a sleep that is part of the wait. */
void via_wait_sleeps(struct via_wait *wait);
void via_wait_slept(struct via_wait *wait);

/* --- sleeping -------------------------------------------------------------------------------- */

/*
 * Sleeps until one of the descriptors has an event, one of the bells rings or deadline_ns passes
 * (VIA_NEVER_NS: no deadline; 0: do not sleep). fds must have room for one more entry at
 * fds[count]. Returns how many of the count have events, 0 for a bell or the deadline, or a
 * negative errno, such as -EINTR. A ring before the call wakes the thread, too, unless an earlier
 * sleep has consumed it.
 */
int via_sleep(struct pollfd *fds, unsigned count, uint64_t bells, uint64_t deadline_ns,
              const sigset_t *mask);

/*
 * The same for a connection that a thread waits for again and again, with one system call instead
 * of two: its descriptor stays registered with the bells. Only for the end of the peer's direction
 * (POLLRDHUP, POLLHUP, POLLERR), which is reported once to each thread. conn: the connection's
 * serial number, because fd may have referred to another one. most_ns limits the sleep, rounded
 * down to milliseconds; VIA_NEVER_NS: no limit. Returns 0 and the kernel's events of the
 * connection; -EINTR; or -EAGAIN: call via_sleep().
 */
int via_sleep_watching(int fd, uint64_t conn, uint64_t bells, uint64_t most_ns,
                       uint32_t *ret_events);

/* How long a thread may sleep at most, be its deadline later or not: some connections of this
 * process have to be checked. */
uint64_t via_sleep_ns_max(void);

void via_wait_forked(void);

#endif
