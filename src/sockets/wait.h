/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_WAIT_H
#define VIA_SOCKETS_WAIT_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/types.h"

/*
 * Waiting: first spinning, as long as that has paid off lately, then sleeping in the kernel.
 */

/* --- spinning ----------------------------------------------------------------------------------
 */

/*
 * A thread's spin budget learns from how long it had to wait: it is about what a wait takes when
 * that is short, and nothing when waits are long or when others want the CPU (the thread was off it
 * while it span).
 */
struct via_spin {
    uint64_t begin_ticks;
    uint64_t end_ticks;
    uint64_t last_ticks;
};

void via_spin_begin(struct via_spin *spin);
/* Looked and saw nothing: look again? */
bool via_spin_again(struct via_spin *spin);
/* The wait is over, whether by spinning or after sleep. */
void via_spin_learn(const struct via_spin *spin);

/* --- sleeping ----------------------------------------------------------------------------------
 */

/*
 * Sleeps until one of the descriptors has an event, a bell of this process is rung or deadline_ns
 * passes (VIA_NEVER_NS: no deadline; 0: do not sleep). fds must have room for one more at
 * fds[count]. Returns how many of the count have events, 0 for a bell or the deadline, -EINTR.
 * A ring that came before the call and was not slept for wakes too.
 */
int via_sleep(struct pollfd *fds, unsigned count, uint64_t deadline_ns, const sigset_t *mask);

/* A call that Linux restarts after a signal whose handler has SA_RESTART was interrupted: start
 * again? Without knowing which signal it was: only when all handlers say so. */
bool via_sleep_restarts(void);

void via_wait_forked(void);

#endif
