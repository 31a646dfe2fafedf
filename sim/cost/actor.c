/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/cost/actor.h"

#include "base/types.h"

void sim_actor_start(struct sim_actor *actor, struct sim_cpu *cpu, void (*main)(void *arg),
                     void *arg)
{
    *actor = (struct sim_actor){.asleep = false};
    sim_fiber_init(&actor->fiber, main, arg);
    sim_task_init(&actor->task, cpu);
    sim_task_work(&actor->task, 0, sim_fiber_call(&actor->fiber));
}

void sim_actor_fini(struct sim_actor *actor)
{
    sim_fiber_fini(&actor->fiber);
}

void sim_actor_wake(struct sim_actor *actor)
{
    if (actor->asleep) {
        actor->asleep = false;
        sim_task_wake(&actor->task, sim_fiber_call(&actor->fiber));
    } else {
        actor->woken = true;
    }
}

void sim_actor_work(struct sim_actor *actor, uint64_t work_ps)
{
    sim_task_work(&actor->task, work_ps, sim_fiber_call(&actor->fiber));
    sim_fiber_wait(&actor->fiber);
}

void sim_actor_sleep(struct sim_actor *actor)
{
    if (actor->woken) {
        actor->woken = false;
        return;
    }
    actor->asleep = true;
    sim_task_sleep(&actor->task);
    sim_fiber_wait(&actor->fiber);
}

void sim_actor_stall(struct sim_actor *actor)
{
    sim_fiber_wait(&actor->fiber);
    /* What arrived while the actor had no CPU is noticed when it runs again. */
    sim_actor_work(actor, 0);
}

void sim_actor_stall_until(struct sim_actor *actor, uint64_t time_ps)
{
    if (time_ps > actor->task.cpu->cost->now_ps) {
        sim_cost_at(actor->task.cpu->cost, time_ps, sim_fiber_call(&actor->fiber));
        sim_actor_stall(actor);
    }
}

static void granted(void *object, uint64_t arg)
{
    struct sim_actor *actor = object;
    (void)arg;
    actor->granted = true;
    sim_actor_wake(actor);
}

void sim_actor_take(struct sim_actor *actor, struct sim_pool *pool)
{
    if (sim_pool_try(pool, 1)) {
        return;
    }
    actor->granted = false;
    sim_pool_take(pool, 1, (struct sim_call){.run = granted, .object = actor});
    while (!actor->granted) {
        sim_actor_sleep(actor);
    }
}

void sim_actor_spin_take(struct sim_actor *actor, struct sim_pool *pool)
{
    if (!sim_pool_try(pool, 1)) {
        sim_pool_take(pool, 1, sim_fiber_call(&actor->fiber));
        sim_actor_stall(actor);
    }
}

/* --- memory ---------------------------------------------------------------------------------- */

void sim_memory_init(struct sim_memory *memory, struct sim_cost *cost,
                     const struct sim_scenario *scenario)
{
    *memory = (struct sim_memory){
        .copy_rate = sim_scenario_number(scenario, "memory", "copy"),
        .bus_rate = sim_scenario_number(scenario, "memory", "bus"),
        .crossings = sim_scenario_number(scenario, "memory", "crossings"),
        .piece_bytes = sim_scenario_count(scenario, "memory", "piece"),
    };
    sim_server_init(&memory->bus, cost);
}

void sim_memory_traffic(struct sim_memory *memory, uint64_t bytes)
{
    const struct sim_call none = {0};
    sim_server_add(&memory->bus, (uint64_t)sim_ps_of(bytes, memory->bus_rate), 0, none);
}

void sim_actor_copy(struct sim_actor *actor, struct sim_memory *memory, uint64_t bytes)
{
    const struct sim_call none = {0};
    for (uint64_t left = bytes; left > 0;) {
        uint64_t piece = via_min(left, memory->piece_bytes);
        uint64_t crossing_ps =
            (uint64_t)(memory->crossings * (double)(uint64_t)sim_ps_of(piece, memory->bus_rate));
        uint64_t bus_ps = sim_server_add(&memory->bus, crossing_ps, 0, none);
        sim_actor_work(actor, (uint64_t)sim_ps_of(piece, memory->copy_rate));
        sim_actor_stall_until(actor, bus_ps);
        left -= piece;
    }
}
