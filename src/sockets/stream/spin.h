/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_SPIN_H
#define VIA_SOCKETS_SPIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/types.h"

/*
 * How long a thread polls before it sleeps: adapted to how soon awaited events have come.
 *
 * A wait that ended in sleep proves little by itself: it took as long as a wake-up does, even if
 * the event came at once. So the cost of a wake-up is estimated too (from the shortest sleeps), and
 * subtracted. Two sides that both sleep for each other keep each other's waits long; therefore a
 * thread that has stopped spinning tries again now and then, the more rarely the more often that
 * was in vain.
 *
 * Pure: times are arguments, in ticks of any rate.
 */
struct via_spin {
    uint32_t us_ticks;    /* ticks per microsecond */
    uint32_t need_ticks;  /* moving mean of the time until the event; at most the budget */
    uint32_t wake_ticks;  /* cost of sleeping and being woken */
    uint32_t backoff;     /* waits between two attempts to spin again */
    uint32_t explore_in;  /* waits until the next */
    bool exploring;       /* the current wait is such an attempt */
    uint64_t penalty_end; /* not before: another thread wanted the CPU */
    bool yields;          /* yield the CPU at once: the awaited thread runs on the same one */
};

void via_spin_init(struct via_spin *spin, uint32_t us_ticks);

/* A wait begins: returns how long to spin, 0 = sleep at once. */
uint64_t via_spin_budget(struct via_spin *spin, uint64_t now_ticks);

void via_spin_learn_slowly(struct via_spin *spin, uint64_t waited_ticks, uint64_t slept_ticks);

/* Three times the cost of a wake-up: enough to see a peer woken and answering. */
#define VIA_SPIN_US_MIN 20u
static inline uint32_t via_spin_full_budget(const struct via_spin *spin)
{
    return via_max(3 * spin->wake_ticks, VIA_SPIN_US_MIN * spin->us_ticks);
}

static inline void via_spin_needed(struct via_spin *spin, uint32_t ticks)
{
    spin->need_ticks = spin->need_ticks - spin->need_ticks / 8 + ticks / 8;
}

/* It has ended after waited_ticks, of which it slept slept_ticks (0: spinning was enough). Inline:
 * the awaited data wait until this is done. */
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

/* A wait with more than one check has ended. came: the event came while another thread had the CPU,
 * so this thread waits for that one. */
static inline void via_spin_made_way(struct via_spin *spin, bool came)
{
    spin->yields = came;
}

/* The thread was off its CPU while it span. */
void via_spin_crowded(struct via_spin *spin, uint64_t now_ticks);

#endif
