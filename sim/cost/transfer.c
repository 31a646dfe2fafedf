/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/cost/transfer.h"

#include "base/types.h"

static uint64_t now_ns(const struct sim_transfer *transfer)
{
    return transfer->cpu->cost->now_ps / SIM_NS_PS;
}

static bool is_crowded(void *ctx)
{
    const struct sim_transfer *transfer = ctx;
    return sim_cpu_running_count(transfer->cpu) > transfer->cpu->lcpus_count;
}

/* --- being woken ------------------------------------------------------------------------------ */

void sim_transfer_show(struct sim_transfer *transfer)
{
    transfer->seen_count++;
    if (transfer->is_polling) {
        transfer->is_polling = false;
        transfer->ticket++;
        sim_cost_after(transfer->cpu->cost, 0, sim_fiber_call(&transfer->actor.fiber));
    }
}

void sim_transfer_ring(struct sim_transfer *transfer)
{
    sim_transfer_show(transfer);
    sim_actor_wake(&transfer->actor);
}

static void time_is_over(void *object, uint64_t ticket)
{
    struct sim_transfer *transfer = object;
    if (ticket != transfer->ticket) {
        return;
    }
    if (transfer->is_polling) {
        sim_transfer_show(transfer);
    } else {
        sim_actor_wake(&transfer->actor);
    }
}

static void end_at(struct sim_transfer *transfer, uint64_t deadline_ns)
{
    if (deadline_ns < UINT64_MAX / SIM_NS_PS) {
        struct sim_cost *cost = transfer->cpu->cost;
        sim_cost_at(cost, via_max(deadline_ns * SIM_NS_PS, cost->now_ps),
                    (struct sim_call){time_is_over, transfer, transfer->ticket});
    }
}

/* --- waiting ---------------------------------------------------------------------------------- */

/* Turns that find nothing are left out: they take the processor and end when something comes. */
static void skip_idle_turns(struct sim_transfer *transfer, uint64_t seen_count,
                            uint64_t deadline_ns)
{
    if (transfer->seen_count == seen_count && !*transfer->stopping) {
        transfer->is_polling = true;
        end_at(transfer, via_min(deadline_ns, transfer->wait.poll_until_ns));
        sim_actor_stall(&transfer->actor);
    }
}

static void sleep_until(struct sim_transfer *transfer, uint64_t deadline_ns)
{
    transfer->ticket++;
    end_at(transfer, deadline_ns);
    sim_actor_sleep(&transfer->actor);
    transfer->ticket++;
}

static enum via_host_wait_step arm(struct sim_transfer *transfer, uint64_t *deadline_ns)
{
    enum via_arm armed = via_node_arm(transfer->node, transfer->channel);
    if (transfer->ops->has_commands(transfer) || *transfer->stopping) {
        armed = VIA_ARM_BUSY;
    }
    return via_host_wait_armed(&transfer->wait, now_ns(transfer), armed, deadline_ns);
}

static unsigned run_turn(struct sim_transfer *transfer, uint64_t *deadline_ns)
{
    uint64_t control_ns = VIA_NEVER_NS;
    if (transfer->channel == 0) {
        via_node_control(transfer->node, now_ns(transfer), &control_ns);
    }
    unsigned work = transfer->ops->begin(transfer);
    work += via_node_poll(transfer->node, transfer->channel, now_ns(transfer), deadline_ns);
    transfer->ops->polled(transfer, work);
    *deadline_ns = via_min(*deadline_ns, control_ns);
    return work;
}

/* As run() of host/host_transfer.c. */
static void transfer_main(void *arg)
{
    struct sim_transfer *transfer = arg;
    while (!*transfer->stopping) {
        uint64_t seen_count = transfer->seen_count;
        uint64_t begun_ns = now_ns(transfer);
        uint64_t deadline_ns = VIA_NEVER_NS;
        transfer->actor.woken = false; /* the bell is recorded: this turn comes after it */
        unsigned work = run_turn(transfer, &deadline_ns);
        enum via_host_wait_step step =
            via_host_wait_turned(&transfer->wait, begun_ns, work, deadline_ns);
        if (step == VIA_HOST_WAIT_ARM && transfer->seen_count == seen_count) {
            step = arm(transfer, &deadline_ns);
        }
        switch (step) {
        case VIA_HOST_WAIT_TURN:
        case VIA_HOST_WAIT_ARM: /* there is work */
            break;
        case VIA_HOST_WAIT_POLL:
            skip_idle_turns(transfer, seen_count, deadline_ns);
            break;
        case VIA_HOST_WAIT_FENCE:
            sim_actor_sleep(&transfer->actor);
            break;
        case VIA_HOST_WAIT_ASK:
        case VIA_HOST_WAIT_SLEEP:
            if (step == VIA_HOST_WAIT_ASK) {
                sim_transfer_ring(transfer->first);
            }
            sleep_until(transfer, deadline_ns);
            via_host_wait_slept(&transfer->wait, now_ns(transfer));
            break;
        }
    }
    sim_task_sleep(&transfer->actor.task);
}

void sim_transfer_start(struct sim_transfer *transfer, struct sim_cpu *cpu, uint64_t spin_ps)
{
    transfer->cpu = cpu;
    via_host_wait_init(&transfer->wait, spin_ps / SIM_NS_PS, is_crowded, transfer);
    sim_actor_start(&transfer->actor, cpu, transfer_main, transfer);
}
