/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * No operation is outstanding for longer than its limits allow, faults or not. The time of a
 * barrier runs from its submission, that of any other operation from when it is the first of its
 * flow; progress extends the time, so the bound is not sharp.
 */
#include "sim/world.h"

/* Operations with longer limits are checked at the end of the run. */
#define LIMIT_NS_MAX (20 * VIA_SEC_NS)
#define SLACK_NS (500 * VIA_MSEC_NS)
/* How often an operation may make progress before it stops. */
#define RESUMES 3u

/* 0: the operation has no limit, or one that the run would not reach. */
static uint64_t bound_ns(const struct sim_world *world, const struct sim_op *op)
{
    const struct via_node_config *node = &world->config.node;
    uint64_t limit_ns = node->give_up_ns + node->wait_ns_max * 5 / 4;
    if (node->give_up_ns == 0 || node->wait_ns_max == 0 || node->give_up_ns > LIMIT_NS_MAX ||
        node->wait_ns_max > LIMIT_NS_MAX) {
        return 0;
    }
    return limit_ns * (op->flow == NULL ? 2 : RESUMES) + SLACK_NS + world->config.cpu.stall_ns_max +
           world->config.cpu.insurance_ns * 4;
}

struct sim_op *sim_flow_first(const struct sim_flow *flow)
{
    via_list_foreach(member, &flow->pending) {
        struct sim_op *op = via_list_entry(member, struct sim_op, pending);
        if (op->state == SIM_OP_PENDING) {
            return op;
        }
    }
    return NULL;
}

static void watch(struct sim_world *world, const struct sim_op *op, uint64_t from_ns)
{
    uint64_t bound = bound_ns(world, op);
    if (bound != 0) {
        sim_clock_at(&world->clock, from_ns + bound, SIM_EVENT_LIMIT, op->index, 0, 0);
    }
}

void sim_limit_submitted(struct sim_world *world, const struct sim_op *op)
{
    if (op->flow == NULL || sim_flow_first(op->flow) == op) {
        watch(world, op, world->clock.now_ns);
    }
}

void sim_limit_ended(struct sim_world *world, const struct sim_op *op)
{
    const struct sim_op *next = op->flow == NULL ? NULL : sim_flow_first(op->flow);
    if (next != NULL) {
        watch(world, next, world->clock.now_ns);
    }
}

bool sim_limit_is_over(const struct sim_world *world, const struct sim_op *op)
{
    return world->config.node.wait_ns_max != 0 &&
           world->clock.now_ns - op->submit_ns >= world->config.node.wait_ns_max;
}

bool sim_limit_is_short(const struct sim_world *world)
{
    uint64_t heartbeat_ns = world->config.node.heartbeat_ns;
    return world->config.node.wait_ns_max <
           (heartbeat_ns != 0 ? heartbeat_ns : 20 * VIA_MSEC_NS) * 20;
}

void sim_limit_check(struct sim_world *world, uint32_t index)
{
    const struct sim_op *op = world->ops[index];
    const struct sim_host *host = &world->hosts[op->source];
    if (op->state != SIM_OP_PENDING || !host->alive) {
        return;
    }
    if (host->thaw_ns != 0 && host->thaw_ns + bound_ns(world, op) > world->clock.now_ns) {
        watch(world, op, host->thaw_ns); /* a thread that is not scheduled ends no operation */
        return;
    }
    sim_fail(world, "%s: has not ended %u ms after it was the first", sim_op_name(op),
             (unsigned)(bound_ns(world, op) / VIA_MSEC_NS));
}
