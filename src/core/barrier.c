/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Barriers. Channel 0.
 *
 * The root is the member with the lowest id. Every other member sends it an arrival with a number
 * of its own (the round). When all members have arrived, and the root has entered, the root answers
 * each arrival with its number. So the members need not agree on a count: an early arrival for the
 * next barrier waits for the root. A member that ends its wait early (another member has restarted,
 * or the operation was given up) withdraws its arrival, so that no later barrier counts it.
 *
 * The root keeps a bounded number of arrivals of each host, so no host can use up the places of
 * another.
 *
 * Three limits end a wait. If a member's host is unreachable for give_up_ns, the wait ends for all.
 * If a reachable member does not enter for wait_ns_max, the wait ends, too; then a member first
 * requests permission to leave from the root, because only the root knows the result: either the
 * barrier is complete for all members, or it is not, and the member may enter it again. The root
 * itself drops arrivals that are older than their hosts' limits allow, and reports that to the
 * hosts.
 *
 * All frames travel in the reserved flow, in which they never queue behind data.
 */
#include <errno.h>

#include "base/mutant.h"
#include "core/op.h"

void via_barrier_init(struct via_channel *channel)
{
    struct via_barriers *barriers = channel->barriers;

    via_list_init(&barriers->waiting);
    via_list_init(&barriers->withdrawing);
    via_list_init(&barriers->due);
    for (unsigned h = 0; h < channel->node->config.hosts_max; h++) {
        via_list_init(&barriers->hosts[h].due);
    }
    barriers->round = 0;
    barriers->waits_timer_ns = VIA_NEVER_NS;
    barriers->arrivals_timer_ns = VIA_NEVER_NS;
}

static bool is_member(const struct via_op *op, uint16_t host)
{
    uint32_t low = 0, high = op->members_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (op->members[middle] == host) {
            return true;
        }
        if (op->members[middle] < host) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return false;
}

static bool is_root(const struct via_channel *channel, const struct via_op_slot *op)
{
    return op->op.destination == channel->node->config.host;
}

static struct via_tx_flow *flow_to(struct via_channel *channel, uint16_t host)
{
    return via_channel_tx(channel, host, channel->node->config.flows_count);
}

/* Age at which the root drops an arrival that its member did not withdraw: longer than the member
 * may wait. */
static uint64_t arrival_ns_max(const struct via_channel *channel)
{
    return via_time_add(channel->node->config.wait_ns_max, channel->node->config.wait_ns_max);
}

static bool is_unreachable(const struct via_channel *channel, uint16_t host)
{
    return channel->hosts[host].port == VIA_PORT_NONE && host != channel->node->config.host;
}

/* --- arrivals, at the root ------------------------------------------------------------------- */

static struct via_barrier_arrival *arrival_find(const struct via_channel *channel, uint16_t host,
                                                uint64_t group)
{
    const struct via_barrier_host *at = &channel->barriers->hosts[host];

    for (unsigned i = 0; i < at->count; i++) {
        if (!at->arrivals[i].due && at->arrivals[i].group == group) {
            return &at->arrivals[i];
        }
    }
    return NULL;
}

/* The barrier of this group whose root is this host and which this host has entered; or NULL. */
static struct via_op_slot *find_entered(const struct via_channel *channel, uint64_t group)
{
    via_list_foreach(it, &channel->barriers->waiting) {
        struct via_op_slot *op = via_list_entry(it, struct via_op_slot, waits);
        if (op->op.group == group && is_root(channel, op)) {
            return op;
        }
    }
    return NULL;
}

static uint32_t clock_ms(const struct via_channel *channel)
{
    return (uint32_t)(channel->now_ns / VIA_MSEC_NS);
}

/* The member must receive the result of its arrival. status 0: all members have arrived. */
static void set_due(struct via_channel *channel, uint16_t host, struct via_barrier_arrival *arrival,
                    int status)
{
    struct via_barrier_host *at = &channel->barriers->hosts[host];

    arrival->due = true;
    arrival->status = (int16_t)status;
    at->due_count++;
    if (!via_list_is_linked(&at->due)) {
        via_list_push_back(&channel->barriers->due, &at->due);
    }
}

static void arrival_remove(struct via_barrier_host *at, struct via_barrier_arrival *arrival)
{
    at->due_count -= arrival->due ? 1 : 0;
    *arrival = at->arrivals[--at->count];
    if (at->due_count == 0) {
        via_list_remove(&at->due);
    }
}

/* An arrival stops waiting before its barrier is complete. */
static void uncount(const struct via_channel *channel, uint16_t host, uint64_t group)
{
    struct via_op_slot *op = find_entered(channel, group);
    if (op != NULL && is_member(&op->op, host)) {
        op->missing++;
    }
}

/* The barrier of a root has ended: all members that have arrived get the result. */
static void release_members(struct via_channel *channel, const struct via_op *op, int status)
{
    for (uint32_t i = 1; i < op->members_count; i++) {
        struct via_barrier_arrival *arrival = arrival_find(channel, op->members[i], op->group);
        if (arrival != NULL) {
            set_due(channel, op->members[i], arrival, status);
        }
    }
}

static void release_if_complete(struct via_channel *channel, struct via_op_slot *op)
{
    if (op->missing == 0) {
        release_members(channel, &op->op, 0);
        via_op_finish(channel, op, 0, 0);
    }
}

/* --- submission ------------------------------------------------------------------------------ */

int via_barrier_check(const struct via_channel *channel, const struct via_op *op)
{
    uint16_t hosts_max = channel->node->config.hosts_max;

    if (channel->barriers == NULL || op->members == NULL || op->members_count == 0 ||
        op->members_count > hosts_max) {
        return -EINVAL;
    }
    for (uint32_t i = 0; i < op->members_count; i++) {
        if (op->members[i] >= hosts_max) {
            return -EHOSTUNREACH;
        }
        if (i > 0 && op->members[i] <= op->members[i - 1]) {
            return -EINVAL;
        }
    }
    if (!is_member(op, channel->node->config.host)) {
        return -EINVAL;
    }
    via_list_foreach(it, &channel->barriers->waiting) {
        if (via_list_entry(it, struct via_op_slot, waits)->op.group == op->group) {
            return -EINVAL;
        }
    }
    return 0;
}

static void start_as_root(struct via_channel *channel, struct via_op_slot *op)
{
    for (uint32_t i = 1; i < op->op.members_count; i++) {
        if (arrival_find(channel, op->op.members[i], op->op.group) == NULL) {
            op->missing++;
        }
    }
    release_if_complete(channel, op);
}

void via_barrier_start(struct via_channel *channel, struct via_op_slot *op)
{
    struct via_barriers *barriers = channel->barriers;

    op->round = ++barriers->round;
    if (op->round == 0) {
        op->round = ++barriers->round;
    }
    op->op.destination = op->op.members[0];
    op->leaving = false;
    op->missing = 0;
    op->since_ns = 0;
    via_list_push_back(&barriers->waiting, &op->waits);
    barriers->waits_timer_ns = 0; /* the timer sets it, because the time is not known here */
    if (is_root(channel, op)) {
        start_as_root(channel, op);
    } else {
        via_tx_append(channel, flow_to(channel, op->op.destination), &op->tx);
    }
}

/* --- frames ---------------------------------------------------------------------------------- */

static int arrive(struct via_channel *channel, uint16_t host, const struct via_frame_barrier *args)
{
    struct via_barriers *barriers = channel->barriers;
    struct via_barrier_host *at = &barriers->hosts[host];
    struct via_barrier_arrival *arrival = arrival_find(channel, host, args->group);
    bool is_new = arrival == NULL;

    if (is_new) {
        if (at->count == VIA_BARRIER_ARRIVALS_MAX) {
            return -ENOSPC;
        }
        arrival = &at->arrivals[at->count++];
    }
    *arrival = (struct via_barrier_arrival){
        .group = args->group, .round = args->round, .since_ms = clock_ms(channel)};
    barriers->arrivals_timer_ns = via_min(barriers->arrivals_timer_ns,
                                          via_time_add(channel->now_ns, arrival_ns_max(channel)));
    struct via_op_slot *op = is_new ? find_entered(channel, args->group) : NULL;
    if (op != NULL && is_member(&op->op, host)) {
        op->missing--;
        release_if_complete(channel, op);
    }
    return 0;
}

/* If the arrival does not exist, its result is already under way to the member. */
static void take_back(struct via_channel *channel, uint16_t host,
                      const struct via_frame_barrier *args)
{
    struct via_barrier_arrival *arrival = arrival_find(channel, host, args->group);

    if (arrival == NULL || arrival->round != args->round) {
        return;
    }
    uncount(channel, host, args->group);
    if (args->action == VIA_BARRIER_LEAVE) {
        set_due(channel, host, arrival, -ETIMEDOUT);
    } else {
        arrival_remove(&channel->barriers->hosts[host], arrival);
    }
}

int via_barrier_arrive(struct via_channel *channel, const struct via_frame_header *header)
{
    struct via_frame_barrier args;

    memcpy(&args, header->args, sizeof(args));
    if (args.round == 0 || args.action > VIA_BARRIER_LEAVE) {
        return -EPROTO;
    }
    if (args.action == VIA_BARRIER_PLAIN) {
        return arrive(channel, header->source, &args);
    }
    take_back(channel, header->source, &args);
    return 0;
}

/* Finishes an arrival with its result, which may arrive before the root's acknowledgement. */
static void finish_arrival(struct via_channel *channel, struct via_op_slot *op, int status)
{
    via_op_finish(channel, op, status, 0);
    if (op->tx.flow != NULL && !op->tx.assigned) {
        via_op_skip(channel, op); /* the request to leave, which was not sent yet */
    }
}

void via_barrier_release(struct via_channel *channel, const struct via_frame_header *header)
{
    struct via_frame_barrier args;

    memcpy(&args, header->args, sizeof(args));
    int status = args.status <= 0 && args.status >= -4095 ? args.status : -EPROTO;
    via_list_foreach(it, &channel->barriers->waiting) {
        struct via_op_slot *op = via_list_entry(it, struct via_op_slot, waits);
        if (op->op.group == args.group && op->round == args.round &&
            (op->tx.assigned || op->leaving) && op->op.destination == header->source) {
            finish_arrival(channel, op, status);
            return;
        }
    }
}

/* --- answers to arrivals --------------------------------------------------------------------- */

static uint16_t number_of(const struct via_channel *channel, const struct via_barrier_host *at)
{
    return (uint16_t)(at - channel->barriers->hosts);
}

static bool is_answer_possible(struct via_channel *channel, const struct via_barrier_host *at)
{
    uint16_t host = number_of(channel, at);
    return via_way_to(channel, host) != NULL && via_op_answer_room(channel, host) == 0;
}

bool via_barrier_is_due(struct via_channel *channel)
{
    via_list_foreach(it, &channel->barriers->due) {
        if (is_answer_possible(channel, via_list_entry(it, struct via_barrier_host, due))) {
            return true;
        }
    }
    return false;
}

static void send_release(struct via_channel *channel, struct via_barrier_host *at,
                         struct via_barrier_arrival *arrival)
{
    struct via_op what = {
        .kind = VIA_OP_BARRIER_RELEASE,
        .destination = number_of(channel, at),
        .group = arrival->group,
        .operand = (uint64_t)(int64_t)arrival->status,
    };
    struct via_op_slot *op = via_op_answer_new(channel, &what);

    op->round = arrival->round;
    arrival_remove(at, arrival);
    via_tx_append(channel, flow_to(channel, what.destination), &op->tx);
    channel->work++;
}

void via_barrier_pump(struct via_channel *channel)
{
    via_list_foreach_safe(it, &channel->barriers->due) {
        struct via_barrier_host *at = via_list_entry(it, struct via_barrier_host, due);
        for (unsigned i = at->count; i-- > 0 && is_answer_possible(channel, at);) {
            if (at->arrivals[i].due) {
                send_release(channel, at, &at->arrivals[i]);
            }
        }
        if (is_unreachable(channel, number_of(channel, at))) {
            via_list_remove(&at->due); /* via_barrier_host_rerouted() adds it again */
        }
    }
}

/* --- places at the root ---------------------------------------------------------------------- */

static bool is_of(const struct via_op *op, uint32_t user)
{
    return op->group >> 32 == user;
}

uint32_t via_node_barriers(const struct via_node *node, uint32_t user, uint16_t root)
{
    const struct via_barriers *barriers = node->channels[0].barriers;
    uint32_t count = 0;

    via_list_foreach(it, &barriers->waiting) {
        count += is_of(&via_list_entry(it, struct via_op_slot, waits)->op, user) ? 1 : 0;
    }
    /* Withdrawals to an unreachable root stay. They do not count for another root. */
    via_list_foreach(it, &barriers->withdrawing) {
        const struct via_op *op = &via_list_entry(it, struct via_op_slot, waits)->op;
        count += op->destination == root && is_of(op, user) ? 1 : 0;
    }
    return count;
}

static uint32_t count_at(const struct via_list *list, uint16_t root)
{
    uint32_t count = 0;

    via_list_foreach(it, list) {
        count += via_list_entry(it, struct via_op_slot, waits)->op.destination == root ? 1 : 0;
    }
    return count;
}

bool via_node_is_barrier_allowed(const struct via_node *node, uint32_t user, uint16_t root)
{
    const struct via_barriers *barriers = node->channels[0].barriers;
    uint32_t taken = count_at(&barriers->waiting, root) + count_at(&barriers->withdrawing, root);

    return via_node_barriers(node, user, root) + taken < VIA_BARRIER_ARRIVALS_MAX;
}

/* --- ends before completion ------------------------------------------------------------------- */

/* Reuses the slot for the frame that takes the arrival back. */
static void send_again(struct via_channel *channel, struct via_op_slot *op, unsigned kind)
{
    op->op.kind = (uint8_t)kind;
    op->withdraw = false;
    op->tx.assigned = false;
    op->tx.acked = false;
    op->tx.skip = false;
    op->tx.frames_count = 1;
    via_tx_append(channel, flow_to(channel, op->op.destination), &op->tx);
}

void via_barrier_acked(struct via_channel *channel, struct via_op_slot *op)
{
    bool is_arrival = op->op.kind == VIA_OP_BARRIER;
    bool withdraw = is_arrival && op->withdraw;
    bool leave = is_arrival && op->leaving && !op->finished;
    bool reported = op->reported;

    /* The slot leaves the order of the flow: its operation ends with the release. */
    op->reported = reported && !withdraw; /* otherwise via_tx_remove() would free the slot */
    via_tx_remove(channel, &op->tx);
    if (withdraw || leave) {
        op->reported = reported;
        send_again(channel, op, withdraw ? VIA_OP_BARRIER_WITHDRAW : VIA_OP_BARRIER_LEAVE);
    }
}

/* The arrival is under way to the root or has reached it: it occupies a place until the root has
 * dropped it. */
static void withdraw(struct via_channel *channel, struct via_op_slot *op)
{
    via_list_push_back(&channel->barriers->withdrawing, &op->waits);
    if (op->tx.flow == NULL) {
        send_again(channel, op, VIA_OP_BARRIER_WITHDRAW);
        return;
    }
    op->withdraw = op->op.kind == VIA_OP_BARRIER; /* a LEAVE withdraws the arrival, too */
    via_tx_count(&op->tx);                        /* its acknowledgement still matters */
}

void via_barrier_abandon(struct via_channel *channel, struct via_op_slot *op, int status)
{
    bool is_leave = op->op.kind == VIA_OP_BARRIER_LEAVE;

    via_op_finish(channel, op, status, 0);
    if (is_root(channel, op)) {
        if (status == -ECONNRESET || status == -EHOSTUNREACH) {
            release_members(channel, &op->op, status); /* the barrier has failed for all members */
        }
    } else if (is_leave && op->tx.flow == NULL) {
        return; /* the root has acknowledged LEAVE, so it has dropped the arrival */
    } else if (is_leave || op->tx.flow == NULL || op->tx.assigned) {
        withdraw(channel, op);
    } else {
        via_op_skip(channel, op);
    }
}

static void end_waits_for(struct via_channel *channel, uint16_t host, int status)
{
    via_list_foreach_safe(it, &channel->barriers->waiting) {
        struct via_op_slot *op = via_list_entry(it, struct via_op_slot, waits);
        if (is_member(&op->op, host)) {
            via_barrier_abandon(channel, op, status);
        }
    }
}

void via_barrier_host_reset(struct via_channel *channel, uint16_t host)
{
    struct via_barrier_host *at = &channel->barriers->hosts[host];

    for (unsigned i = 0; i < at->count; i++) {
        if (!at->arrivals[i].due) {
            uncount(channel, host, at->arrivals[i].group);
        }
    }
    at->count = 0;
    at->due_count = 0;
    via_list_remove(&at->due);
    end_waits_for(channel, host, -ECONNRESET);
}

void via_barrier_stuck(struct via_channel *channel, struct via_tx_flow *flow)
{
    via_list_foreach_safe(it, &channel->barriers->waiting) {
        struct via_op_slot *op = via_list_entry(it, struct via_op_slot, waits);
        if (op->tx.flow == flow) {
            via_barrier_abandon(channel, op, -EHOSTUNREACH);
        }
    }
}

/* --- time ------------------------------------------------------------------------------------ */

/* The time at which the wait ends, and its status. */
static uint64_t end_of(const struct via_channel *channel, const struct via_op_slot *op,
                       int *ret_status)
{
    const struct via_node_config *config = &channel->node->config;
    uint64_t first_ns = via_time_add(op->since_ns, config->give_up_ns);
    uint64_t end_ns = via_time_add(op->since_ns, config->wait_ns_max);
    uint64_t lost_ns = op->leaving ? first_ns : VIA_NEVER_NS;
    bool lost = op->leaving;

    if (channel->now_ns < via_min(first_ns, end_ns)) {
        return via_min(first_ns, end_ns); /* no wait ends before the earlier limit */
    }
    for (uint32_t i = 0; i < op->op.members_count; i++) {
        uint16_t host = op->op.members[i];
        if (is_unreachable(channel, host)) {
            uint64_t since_ns = via_max(op->since_ns, channel->hosts[host].lost_ns);
            lost_ns = via_min(lost_ns, via_time_add(since_ns, config->give_up_ns));
            lost = true;
        }
    }
    /* A missing member ends the wait with -ETIMEDOUT only if all members are reachable. */
    *ret_status = lost ? -EHOSTUNREACH : -ETIMEDOUT;
    return lost ? lost_ns : end_ns;
}

/* The time of the wait is over, but the barrier may just have completed: only the root knows. */
static void leave(struct via_channel *channel, struct via_op_slot *op)
{
    if (is_root(channel, op) || (op->tx.flow != NULL && !op->tx.assigned) ||
        VIA_MUTANT(LEAVE_UNASKED)) {
        via_barrier_abandon(channel, op, -ETIMEDOUT);
        return;
    }
    op->leaving = true;
    op->since_ns = channel->now_ns;
    if (op->tx.flow == NULL) {
        send_again(channel, op, VIA_OP_BARRIER_LEAVE);
    }
}

static void check_waits(struct via_channel *channel)
{
    uint64_t *timer_ns = &channel->barriers->waits_timer_ns;

    *timer_ns = VIA_NEVER_NS;
    via_list_foreach_safe(it, &channel->barriers->waiting) {
        struct via_op_slot *op = via_list_entry(it, struct via_op_slot, waits);
        int status;
        op->since_ns = op->since_ns == 0 ? channel->now_ns : op->since_ns;
        uint64_t end_ns = end_of(channel, op, &status);
        if (channel->now_ns < end_ns) {
            *timer_ns = via_min(*timer_ns, end_ns);
            continue;
        }
        if (VIA_MUTANT(ENDLESS)) {
            continue;
        }
        channel->work++;
        if (status == -ETIMEDOUT) {
            leave(channel, op);
            *timer_ns = channel->now_ns; /* check the wait again in this turn */
        } else {
            via_barrier_abandon(channel, op, status);
        }
    }
}

/* Drops arrivals of a host that is unreachable, or that has left them behind. */
static void check_host(struct via_channel *channel, uint16_t host)
{
    struct via_barriers *barriers = channel->barriers;
    struct via_barrier_host *at = &barriers->hosts[host];
    uint64_t lost_ns =
        is_unreachable(channel, host)
            ? via_time_add(channel->hosts[host].lost_ns, channel->node->config.give_up_ns)
            : VIA_NEVER_NS;

    for (unsigned i = 0; i < at->count; i++) {
        struct via_barrier_arrival *arrival = &at->arrivals[i];
        uint64_t age_ns = (uint64_t)(clock_ms(channel) - arrival->since_ms) * VIA_MSEC_NS;
        uint64_t old_ns = via_time_add(channel->now_ns - age_ns, arrival_ns_max(channel));
        uint64_t end_ns = via_min(lost_ns, old_ns);
        if (arrival->due) {
            continue;
        }
        if (channel->now_ns < end_ns) {
            barriers->arrivals_timer_ns = via_min(barriers->arrivals_timer_ns, end_ns);
            continue;
        }
        uncount(channel, host, arrival->group);
        set_due(channel, host, arrival, lost_ns <= old_ns ? -EHOSTUNREACH : -ETIMEDOUT);
        channel->work++;
    }
}

void via_barrier_timers(struct via_channel *channel)
{
    if (channel->now_ns >= channel->barriers->waits_timer_ns) {
        check_waits(channel);
    }
    if (channel->now_ns >= channel->barriers->arrivals_timer_ns) {
        channel->barriers->arrivals_timer_ns = VIA_NEVER_NS;
        for (unsigned h = 0; h < channel->node->config.hosts_max; h++) {
            check_host(channel, (uint16_t)h);
        }
    }
}

uint64_t via_barrier_deadline_ns(const struct via_channel *channel)
{
    return via_min(channel->barriers->waits_timer_ns, channel->barriers->arrivals_timer_ns);
}

void via_barrier_rerouted(struct via_channel *channel)
{
    if (!via_list_is_empty(&channel->barriers->waiting)) {
        channel->barriers->waits_timer_ns = channel->now_ns; /* other limits may apply now */
    }
}

void via_barrier_host_rerouted(struct via_channel *channel, uint16_t host)
{
    struct via_barriers *barriers = channel->barriers;
    struct via_barrier_host *at = &barriers->hosts[host];

    if (at->count != 0) {
        uint64_t lost_ns = via_time_add(channel->now_ns, channel->node->config.give_up_ns);
        barriers->arrivals_timer_ns = via_min(barriers->arrivals_timer_ns, lost_ns);
    }
    if (at->due_count != 0 && !via_list_is_linked(&at->due)) {
        via_list_push_back(&barriers->due, &at->due);
    }
}
