/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/cost/poller.h"

static void resume(struct sim_poller *poller)
{
    poller->spinning = false;
    poller->ticket++;
    sim_cost_after(poller->cost, 0, sim_fiber_call(&poller->actor.fiber));
}

void sim_poller_arrived(struct sim_poller *poller)
{
    poller->arrivals++;
    if (poller->spinning) {
        resume(poller);
    }
}

void sim_poller_poke(struct sim_poller *poller)
{
    poller->arrivals++;
    if (poller->spinning) {
        resume(poller);
    } else {
        sim_actor_wake(&poller->actor);
    }
}

void sim_poller_fenced(struct sim_poller *poller)
{
    if (poller->fencing) {
        poller->fencing = false;
        sim_cost_after(poller->cost, 0, sim_fiber_call(&poller->actor.fiber));
    }
}

static void spin_over(void *object, uint64_t ticket)
{
    struct sim_poller *poller = object;
    if (poller->spinning && ticket == poller->ticket) {
        resume(poller);
    }
}

bool sim_poller_spin(struct sim_poller *poller, uint64_t until_ps)
{
    uint64_t arrivals = poller->arrivals;
    poller->spinning = true;
    sim_cost_at(poller->cost, until_ps, (struct sim_call){spin_over, poller, poller->ticket});
    sim_actor_stall(&poller->actor);
    return poller->arrivals != arrivals;
}

void sim_poller_wait_for_fence(struct sim_poller *poller)
{
    poller->fencing = true;
    sim_actor_stall(&poller->actor);
}
