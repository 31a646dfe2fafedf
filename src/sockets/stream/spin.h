/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_SPIN_H
#define VIA_SOCKETS_SPIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/types.h"

/*
 * How long a thread polls before it sleeps. The time adapts to how soon earlier events came.
 *
 * A wait that ended in sleep proves little: it took as long as a wake-up does, even if the event
 * came at once. So the cost of a wake-up is estimated, too (from the shortest sleeps), and
 * subtracted. If the threads of both ends sleep, each makes the other's waits longer. So a thread
 * that has stopped spinning spins again from time to time, and less often each time that spinning
 * did not help.
 *
 * No I/O: times are arguments, in ticks of any rate.
 */
struct via_spin {
    uint32_t us_ticks;    /* ticks per microsecond */
    uint32_t need_ticks;  /* moving mean of the time until the event; at most the budget */
    uint32_t wake_ticks;  /* cost of sleeping and being woken */
    uint32_t backoff;     /* waits between two attempts to spin again */
    uint32_t explore_in;  /* waits until the next attempt */
    bool exploring;       /* the current wait is such an attempt */
    uint64_t penalty_end; /* do not spin before this time: another thread needed the CPU */
    bool yields; /* yield the CPU at once: the thread that causes the event runs on the same CPU */
};

void via_spin_init(struct via_spin *spin, uint32_t us_ticks);

/* Begins a wait. Returns how long to spin; 0: sleep at once. */
uint64_t via_spin_budget(struct via_spin *spin, uint64_t now_ticks);

void via_spin_learn_slowly(struct via_spin *spin, uint64_t waited_ticks, uint64_t slept_ticks);

/* Three times the cost of a wake-up: enough time for a peer to be woken and to answer. */
#define VIA_SPIN_US_MIN 20u
static inline uint32_t via_spin_full_budget(const struct via_spin *spin)
{
    return via_max(3 * spin->wake_ticks, VIA_SPIN_US_MIN * spin->us_ticks);
}

static inline void via_spin_needed(struct via_spin *spin, uint32_t ticks)
{
    spin->need_ticks = spin->need_ticks - spin->need_ticks / 8 + ticks / 8;
}

/* Ends a wait of waited_ticks, of which the thread slept slept_ticks (0: spinning was enough).
 * Inline, because the caller uses the awaited data only after this. */
static inline void via_spin_learn(struct via_spin *spin, uint64_t waited_ticks,
                                  uint64_t slept_ticks)
{
    if (via_unlikely(slept_ticks != 0) || via_unlikely(spin->exploring)) {
        via_spin_learn_slowly(spin, waited_ticks, slept_ticks);
    } else {
        via_spin_needed(spin,
                        (uint32_t)via_min(waited_ticks, (uint64_t)via_spin_full_budget(spin)));
    }
}

/* Ends a wait with more than one check. came: the event came while another thread had the CPU, so
 * the thread that causes the events runs on this CPU. */
static inline void via_spin_learn_yield(struct via_spin *spin, bool came)
{
    spin->yields = came;
}

/* The thread was off its CPU while it was spinning. */
void via_spin_crowded(struct via_spin *spin, uint64_t now_ticks);

#endif
