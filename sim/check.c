/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Judges the nodes' reports: a node does not know what the other side did, but the simulator does.
 * A message arrives once and in order, an operation ends once, with a true status.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/link.h"
#include "sim/memory.h"
#include "sim/world.h"

static const char *kind_name(unsigned kind)
{
    static const char *const names[] = {"?",   "message", "put",     "put with signal",
                                        "get", "atomic",  "barrier", "strided put"};
    return names[kind < VIA_ARRAY_COUNT(names) ? kind : 0];
}

const char *sim_op_name(const struct sim_op *op)
{
    static char text[160];
    if (op->flow == NULL) {
        snprintf(text, sizeof(text), "barrier %u round %u, member %u", op->group, op->round,
                 op->member);
        return text;
    }
    snprintf(text, sizeof(text), "%s %u of flow %u (host %u.%u to %u.%u, channel %u, flow %u)",
             kind_name(op->kind), op->number, op->flow->index, op->flow->source, op->source_life,
             op->flow->destination, op->destination_life, op->flow->channel, op->flow->flow);
    return text;
}

void sim_op_free_buffer(struct sim_op *op)
{
    free(op->buffer);
    op->buffer = NULL;
}

/* --- deliveries ------------------------------------------------------------------------------ */

static struct sim_op *find_message(struct sim_flow *flow, uint32_t number)
{
    via_list_foreach(member, &flow->pending) {
        struct sim_op *op = via_list_entry(member, struct sim_op, pending);
        if (op->number == number && op->kind == VIA_OP_MESSAGE) {
            return op;
        }
    }
    return NULL;
}

static struct sim_op *identify(struct sim_host *host, const struct via_delivery *delivery)
{
    struct sim_world *world = host->world;
    uint32_t source = sim_host_of_id(world, delivery->source);
    if (source == UINT32_MAX || delivery->flow >= world->config.node.flows_count ||
        delivery->channel >= world->config.node.channels_count) {
        sim_fail(world, "host %u: a message from host id %u, channel %u, flow %u", host->index,
                 delivery->source, delivery->channel, delivery->flow);
        return NULL;
    }
    struct sim_flow *flow =
        sim_flow_at(world, source, host->index, delivery->channel, delivery->flow);
    uint32_t number = delivery->source_endpoint;
    if (number <= flow->last_delivered) {
        sim_fail(world, "host %u: message %u of flow %u (from host %u) comes after message %u",
                 host->index, number, flow->index, source, flow->last_delivered);
        return NULL;
    }
    struct sim_op *op = find_message(flow, number);
    if (op == NULL) {
        sim_fail(world, "host %u: message %u of flow %u (from host %u) was never sent, or is over",
                 host->index, number, flow->index, source);
    }
    return op;
}

/* A rogue overwrites the frames that it has forged with noise, too. So only those of its messages
 * are judged that its host sent as a node. */
static bool is_forged(const struct sim_host *host, const struct via_delivery *delivery)
{
    if (host->world->counts.rogues == 0) {
        return false;
    }
    if (sim_rogue_is_forged(delivery)) {
        return true;
    }
    if (!sim_rogue_has_sent(host, delivery)) {
        return false;
    }
    struct sim_flow *flow = sim_flow_at(host->world, host->world->host_by_id[delivery->source],
                                        host->index, delivery->channel, delivery->flow);
    return delivery->source_endpoint <= flow->last_delivered ||
           find_message(flow, delivery->source_endpoint) == NULL;
}

static bool is_whole(struct sim_host *host, const struct sim_op *op,
                     const struct via_delivery *delivery)
{
    if (delivery->bytes != op->bytes || delivery->endpoint != op->endpoint) {
        sim_fail(host->world, "%s: arrives with %u bytes of %llu, for endpoint %u", sim_op_name(op),
                 delivery->bytes, (unsigned long long)op->bytes, delivery->endpoint);
        return false;
    }
    size_t same = sim_content_check(delivery->data, op->bytes, op->content);
    if (same != op->bytes) {
        sim_fail(host->world, "%s: byte %zu of %llu is not what was sent", sim_op_name(op), same,
                 (unsigned long long)op->bytes);
        return false;
    }
    return true;
}

/* Consumers answer -EAGAIN at random, but never after the faults are over. */
static bool is_busy(struct sim_host *host, struct sim_flow *flow)
{
    struct sim_world *world = host->world;
    const struct sim_config_work *work = &world->config.work;
    if (!flow->busy && !world->healed &&
        via_rng_chance(&world->rng_work, work->busy_chance, 1000)) {
        flow->busy = true;
        sim_clock_after(&world->clock, via_rng_below(&world->rng_work, work->busy_ns_max),
                        SIM_EVENT_RESUME, host->index, flow->index, host->life.number);
    }
    return flow->busy;
}

int sim_check_deliver(struct sim_host *host, const struct via_delivery *delivery)
{
    struct sim_world *world = host->world;
    if (is_forged(host, delivery)) {
        sim_trace(world, "  host %u: a forged message of %u bytes", host->index, delivery->bytes);
        return delivery->bytes % 2 == 0 ? 0 : -ENOENT;
    }
    struct sim_op *op = identify(host, delivery);
    if (op == NULL || !is_whole(host, op, delivery)) {
        return 0;
    }
    if (op->wrong == SIM_WRONG_ENDPOINT) {
        return -ENOENT;
    }
    if (is_busy(host, op->flow)) {
        sim_trace(world, "%s: not now", sim_op_name(op));
        return -EAGAIN;
    }
    op->delivered = true;
    op->flow->last_delivered = op->number;
    world->counts.deliveries++;
    sim_mark(world, SIM_MARK_DELIVER, op->index, op->number);
    sim_trace(world, "%s: delivered", sim_op_name(op));
    return 0;
}

void sim_check_notify(struct sim_host *host, uint64_t handle)
{
    if (handle != host->life.mail) {
        sim_fail(host->world, "host %u: notified of a put into segment %#llx, which had none",
                 host->index, (unsigned long long)handle);
        return;
    }
    host->life.notifies++;
}

/* --- announcements --------------------------------------------------------------------------- */

/* Announcements of a life are newer than those of earlier lives: a host that knows the current life
 * of another host does not go back to an earlier one. Rogues may lie about that. */
void sim_check_announced(struct sim_host *host)
{
    struct sim_world *world = host->world;
    for (uint32_t i = 0;
         world->counts.crashes != 0 && world->counts.rogues == 0 && i < world->hosts_count; i++) {
        const struct sim_host *peer = &world->hosts[i];
        uint32_t session = via_lsa_session(&host->node->lsdb->lsas[peer->id]);
        if (session != host->announced[i] && host->announced[i] == peer->life.session) {
            sim_fail(world,
                     "host %u: goes back to session %#x of host %u, which now has session %#x",
                     host->index, session, i, host->announced[i]);
        }
        host->announced[i] = session;
    }
}

/* --- completions ----------------------------------------------------------------------------- */

static bool has_destination_changed(const struct sim_op *op)
{
    const struct sim_host *host = &op->flow->world->hosts[op->flow->destination];
    return !host->alive || host->life.number != op->destination_life;
}

static int expected_status(const struct sim_op *op)
{
    switch (op->wrong) {
    case SIM_WRONG_KEY:
    case SIM_WRONG_ACCESS:
        return -EACCES;
    case SIM_WRONG_RANGE:
        return -ERANGE;
    case SIM_WRONG_ENDPOINT:
        return -ENOENT;
    default:
        return 0;
    }
}

static bool draft_is_gone(const struct sim_op *op)
{
    return has_destination_changed(op) || op->dead_handle ||
           op->flow->world->hosts[op->flow->destination].life.draft_removed;
}

bool sim_is_calm(const struct sim_world *world)
{
    const struct sim_counts *counts = &world->counts;
    return counts->cuts + counts->freezes + counts->crashes + counts->ones + counts->dma_hung == 0;
}

bool sim_is_delay_allowed(const struct sim_world *world)
{
    /* Dropped doorbells delay a message, too: each hop may wait until its thread's sleep ends
     * (insurance_ns). */
    return !sim_is_calm(world) || world->config.port.bell_drop_chance != 0;
}

static bool is_status_allowed(const struct sim_op *op, int status)
{
    if (sim_rogue_has_run_since(&op->flow->world->hosts[op->flow->destination],
                                op->destination_life)) {
        return true;
    }
    if (op->wrong == SIM_WRONG_DRAFT && (status == 0 || status == -EACCES)) {
        return status == 0 ? !op->draft_removed : draft_is_gone(op);
    }
    if (status == expected_status(op)) {
        /* An effect from before the destination's crash counts. region.c checks memory. */
        return status != 0 || op->kind != VIA_OP_MESSAGE || op->delivered;
    }
    if (status == -ECANCELED) {
        return op->cancelled;
    }
    if (status == -EHOSTUNREACH && op->flow->world->config.node.give_up_ns != 0) {
        return sim_is_delay_allowed(op->flow->world);
    }
    if (status == -ETIMEDOUT) {
        return sim_limit_is_over(op->flow->world, op) &&
               (sim_is_delay_allowed(op->flow->world) || sim_limit_is_short(op->flow->world) ||
                op->flow->world->config.work.busy_chance != 0);
    }
    if (status == -EHOSTUNREACH && (op->kind == VIA_OP_GET || op->kind == VIA_OP_ATOMIC)) {
        /* The owner of the memory could reach no host with its answers for a second. */
        return !sim_is_calm(op->flow->world) && op->flow->world->clock.now_ns >= VIA_SEC_NS;
    }
    if (status == -ECONNRESET) {
        return has_destination_changed(op) || op->stale_route;
    }
    if (status == -EACCES) {
        /* The handle is of the destination's former life. */
        return op->kind != VIA_OP_MESSAGE && (has_destination_changed(op) || op->dead_handle);
    }
    return false;
}

static void count_status(struct sim_world *world, const struct sim_op *op, int status)
{
    struct sim_life *life = &world->hosts[op->flow->destination].life;
    bool same = !has_destination_changed(op);
    if (status == 0) {
        world->counts.statuses_ok++;
    } else if (status == expected_status(op)) {
        world->counts.statuses_refused++;
        life->refused_key += same && status == -EACCES;
        life->refused_range += same && status == -ERANGE;
        life->refused_endpoint += same && status == -ENOENT;
    } else if (status == -ECONNRESET) {
        world->counts.statuses_reset++;
    } else {
        world->counts.statuses_other++;
    }
}

/* Operations before it in its flow that have ended can not happen any more. */
static void settle(struct sim_op *op)
{
    bool before = via_list_is_linked(&op->pending);
    via_list_foreach_safe(member, &op->flow->pending) {
        struct sim_op *other = via_list_entry(member, struct sim_op, pending);
        if (before && other->state != SIM_OP_PENDING) {
            via_list_remove(member);
        }
        before = before && other != op;
    }
}

static void op_completed(struct sim_world *world, struct sim_op *op, int status, uint64_t value)
{
    bool in_order = op->cancelled || sim_flow_first(op->flow) == op;
    bool is_allowed = is_status_allowed(op, status);
    if (!is_allowed) {
        sim_fail(world, "%s: ends with %d (%s), expected %d%s", sim_op_name(op), status,
                 strerror(-status), expected_status(op),
                 status == 0 && !op->delivered ? "; it was not delivered" : "");
    }
    if (!in_order) {
        sim_fail(world, "%s: ends before an earlier operation of its flow", sim_op_name(op));
    }
    if (op->cancelled && sim_flow_first(op->flow) != op) {
        /* Cancelled while it waited for earlier operations to end: the order of later effects is
         * unknown. */
        op->flow->out_of_order = true;
        op->flow->known64 = op->flow->known32 = false;
    }
    op->state = SIM_OP_DONE;
    op->status = status;
    count_status(world, op, status);
    if (status == 0) {
        sim_region_completed(op, value);
        settle(op);
    } else if (status == expected_status(op)) {
        via_list_remove(&op->pending);
    } else {
        sim_region_unknown(op); /* stays in the list: it may still happen */
    }
}

static struct sim_op *find_op(struct sim_host *host, unsigned channel, uint64_t cookie)
{
    struct sim_world *world = host->world;
    uint32_t index = (uint32_t)cookie;
    struct sim_op *op = index < world->ops_count ? world->ops[index] : NULL;
    if (op == NULL || cookie >> 32 != op->owner) {
        sim_fail(world, "host %u: cookie %#llx ends, which was never submitted", host->index,
                 (unsigned long long)cookie);
        return NULL;
    }
    if (op->state != SIM_OP_PENDING) {
        sim_fail(world, "%s: ends %s", sim_op_name(op),
                 op->state == SIM_OP_DONE ? "twice" : "without being accepted");
        return NULL;
    }
    if (op->source != host->index || op->source_life != host->life.number ||
        op->channel != channel) {
        sim_fail(world, "%s: ends at host %u, channel %u", sim_op_name(op), host->index, channel);
        return NULL;
    }
    return op;
}

void sim_check_complete(struct sim_host *host, unsigned channel, uint64_t cookie, int status,
                        uint64_t value)
{
    struct sim_world *world = host->world;
    struct sim_op *op = find_op(host, channel, cookie);
    if (op == NULL) {
        return;
    }
    sim_mark(world, SIM_MARK_COMPLETE, op->index, (uint64_t)(int64_t)status ^ value << 16);
    sim_trace(world, "%s: ends with %d, value %#llx", sim_op_name(op), status,
              (unsigned long long)value);
    world->ops_pending--;
    if (op->flow == NULL) {
        sim_barrier_completed(world, op, status);
    } else {
        op_completed(world, op, status, value);
    }
    sim_limit_ended(world, op);
    /* From now on the node must not touch it: ASan reports an access. */
    sim_op_free_buffer(op);
    sim_final_progress(world);
}

void sim_check_orphan(struct sim_world *world, struct sim_op *op)
{
    op->state = SIM_OP_ORPHAN;
    sim_op_free_buffer(op);
    world->ops_pending--;
    if (op->flow != NULL) {
        sim_region_unknown(op);
    }
}
