/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/stream/spin.h"

#define WAKE_US_MIN 4u
#define WAKE_US_MAX 40u
#define BACKOFF_MIN 32u
#define BACKOFF_MAX 4096u
#define PENALTY_US 20000u

void via_spin_init(struct via_spin *spin, uint32_t us_ticks)
{
    *spin = (struct via_spin){
        .us_ticks = us_ticks,
        .wake_ticks = 10 * us_ticks,
        .backoff = BACKOFF_MIN,
        .explore_in = BACKOFF_MIN,
    };
}

uint64_t via_spin_budget(struct via_spin *spin, uint64_t now_ticks)
{
    uint32_t full = via_spin_full_budget(spin);
    spin->exploring = false;
    if (now_ticks < spin->penalty_end) {
        return 0;
    }
    if (spin->need_ticks < full - full / 3) {
        return full;
    }
    if (spin->explore_in > 0) {
        spin->explore_in--;
        return 0;
    }
    spin->exploring = true;
    return full;
}

/* The shortest sleeps show the cost of a wake-up; longer ones raise the estimate slowly. */
static void learn_wake(struct via_spin *spin, uint64_t slept_ticks)
{
    if (slept_ticks < spin->wake_ticks) {
        spin->wake_ticks -= (spin->wake_ticks - (uint32_t)slept_ticks) / 4;
    } else {
        spin->wake_ticks += spin->wake_ticks / 64 + 1;
    }
    spin->wake_ticks = via_min(spin->wake_ticks, WAKE_US_MAX * spin->us_ticks);
    spin->wake_ticks = via_max(spin->wake_ticks, WAKE_US_MIN * spin->us_ticks);
}

void via_spin_learn_slowly(struct via_spin *spin, uint64_t waited_ticks, uint64_t slept_ticks)
{
    uint64_t need = waited_ticks;
    if (slept_ticks != 0) {
        learn_wake(spin, slept_ticks);
        need -= via_min(need, (uint64_t)via_min((uint64_t)spin->wake_ticks, slept_ticks));
    }
    uint32_t capped = (uint32_t)via_min(need, (uint64_t)via_spin_full_budget(spin));
    if (spin->exploring) {
        spin->exploring = false;
        if (slept_ticks == 0) {
            spin->need_ticks = capped;
            spin->backoff = BACKOFF_MIN;
        } else {
            spin->backoff = via_min(2 * spin->backoff, BACKOFF_MAX);
        }
        spin->explore_in = spin->backoff;
        return;
    }
    via_spin_needed(spin, capped);
}

void via_spin_crowded(struct via_spin *spin, uint64_t now_ticks)
{
    spin->penalty_end = now_ticks + (uint64_t)PENALTY_US * spin->us_ticks;
}
