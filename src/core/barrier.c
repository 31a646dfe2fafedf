/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Barriers. Channel 0.
 *
 * The root is the member with the lowest id. Every other member sends it an arrival with a number
 * of its own (the round); when all are there, and the root itself, the root sends each its number
 * back. So nobody has to agree on a count: an arrival of the next round that comes early just waits
 * for its root. A member that ends its wait early (another member has restarted, or it was given
 * up) withdraws its arrival, so that no later barrier counts it.
 *
 * All frames travel in the reserved flow, where they never queue behind data.
 */
#include <errno.h>

#include "core/op.h"

void via_barrier_init(struct via_channel *channel)
{
    via_list_init(&channel->barriers->waiting);
    channel->barriers->round = 0;
    channel->barriers->releases_due = 0;
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

/* --- groups, at the root --------------------------------------------------------------------- */

static struct via_barrier_group *group_find(const struct via_channel *channel, uint32_t number)
{
    for (unsigned g = 0; g < VIA_BARRIER_GROUPS; g++) {
        if (channel->barriers->groups[g].used && channel->barriers->groups[g].group == number) {
            return &channel->barriers->groups[g];
        }
    }
    return NULL;
}

static struct via_barrier_group *group_free(const struct via_channel *channel)
{
    for (unsigned g = 0; g < VIA_BARRIER_GROUPS; g++) {
        if (!channel->barriers->groups[g].used) {
            return &channel->barriers->groups[g];
        }
    }
    return NULL;
}

/* Those that are not in use hold no number of any host. */
static struct via_barrier_group *group_get(const struct via_channel *channel, uint32_t number)
{
    struct via_barrier_group *group = group_find(channel, number);
    if (group == NULL) {
        group = group_free(channel);
        if (group != NULL) {
            group->used = true;
            group->group = number;
            group->release_from = 0;
        }
    }
    return group;
}

static void group_free_if_over(struct via_barrier_group *group)
{
    if (group->op == NULL && group->arrived_count == 0 && group->release_count == 0) {
        group->used = false;
    }
}

static void set_arrival(struct via_barrier_group *group, uint16_t host, uint32_t round)
{
    bool was = group->arrivals[host] != 0;
    bool is = round != 0;

    group->arrivals[host] = round;
    if (was == is) {
        return;
    }
    group->arrived_count += is ? 1u : UINT32_MAX;
    if (group->op != NULL && is_member(&group->op->op, host)) {
        group->missing += is ? UINT32_MAX : 1u;
    }
}

static void set_release(struct via_channel *channel, struct via_barrier_group *group, uint16_t host,
                        uint32_t round)
{
    uint32_t change = (uint32_t)(round != 0) - (uint32_t)(group->releases[host] != 0);

    group->releases[host] = round;
    group->release_count += change;
    channel->barriers->releases_due += change;
}

static void release_if_complete(struct via_channel *channel, struct via_barrier_group *group)
{
    struct via_op_slot *op = group->op;

    if (op == NULL || group->missing != 0) {
        return;
    }
    group->op = NULL;
    for (uint32_t i = 0; i < op->op.members_count; i++) {
        uint16_t host = op->op.members[i];
        if (host != channel->node->config.host) {
            set_release(channel, group, host, group->arrivals[host]);
            set_arrival(group, host, 0);
        }
    }
    via_op_finish(channel, op, 0, 0);
    group_free_if_over(group);
}

/* --- submission ------------------------------------------------------------------------------ */

int via_barrier_check(const struct via_channel *channel, const struct via_op *op)
{
    uint16_t me = channel->node->config.host;

    if (channel->barriers == NULL || op->members == NULL || op->members_count == 0 ||
        op->members_count > channel->node->config.hosts_max) {
        return -EINVAL;
    }
    for (uint32_t i = 0; i < op->members_count; i++) {
        if (op->members[i] >= channel->node->config.hosts_max) {
            return -EHOSTUNREACH;
        }
        if (i > 0 && op->members[i] <= op->members[i - 1]) {
            return -EINVAL;
        }
    }
    if (!is_member(op, me)) {
        return -EINVAL;
    }
    via_list_foreach(it, &channel->barriers->waiting) {
        if (via_list_entry(it, struct via_op_slot, waits)->op.group == op->group) {
            return -EINVAL;
        }
    }
    if (op->members[0] == me && group_find(channel, op->group) == NULL &&
        group_free(channel) == NULL) {
        return -EAGAIN;
    }
    return 0;
}

static struct via_tx_flow *flow_to(struct via_channel *channel, uint16_t host)
{
    return via_channel_tx(channel, host, channel->node->config.flows_count);
}

static void start_as_root(struct via_channel *channel, struct via_op_slot *op)
{
    struct via_barrier_group *group = group_get(channel, op->op.group);

    group->op = op;
    group->missing = 0;
    for (uint32_t i = 0; i < op->op.members_count; i++) {
        uint16_t host = op->op.members[i];
        if (host != channel->node->config.host && group->arrivals[host] == 0) {
            group->missing++;
        }
    }
    release_if_complete(channel, group);
}

void via_barrier_start(struct via_channel *channel, struct via_op_slot *op)
{
    uint16_t root = op->op.members[0];

    op->round = ++channel->barriers->round;
    if (op->round == 0) {
        op->round = ++channel->barriers->round;
    }
    op->op.destination = root;
    via_list_push_back(&channel->barriers->waiting, &op->waits);
    if (root == channel->node->config.host) {
        start_as_root(channel, op);
    } else {
        via_tx_append(channel, flow_to(channel, root), &op->tx);
    }
}

/* --- frames ---------------------------------------------------------------------------------- */

int via_barrier_arrive(struct via_channel *channel, const struct via_frame_header *header)
{
    struct via_frame_barrier args;

    memcpy(&args, header->args, sizeof(args));
    if (args.round == 0 || args.action > VIA_BARRIER_WITHDRAW) {
        return -EPROTO;
    }
    struct via_barrier_group *group = args.action == VIA_BARRIER_WITHDRAW
                                          ? group_find(channel, args.group)
                                          : group_get(channel, args.group);
    if (group == NULL) {
        return args.action == VIA_BARRIER_WITHDRAW ? 0 : -ENOSPC;
    }
    if (args.action == VIA_BARRIER_PLAIN) {
        set_arrival(group, header->source, args.round);
        release_if_complete(channel, group);
    } else if (group->arrivals[header->source] == args.round) {
        set_arrival(group, header->source, 0);
        group_free_if_over(group);
    }
    return 0;
}

void via_barrier_release(struct via_channel *channel, const struct via_frame_header *header)
{
    struct via_frame_barrier args;

    memcpy(&args, header->args, sizeof(args));
    via_list_foreach(it, &channel->barriers->waiting) {
        struct via_op_slot *op = via_list_entry(it, struct via_op_slot, waits);
        if (op->op.group == args.group && op->round == args.round && op->tx.assigned &&
            op->op.destination == header->source) {
            via_op_finish(channel, op, 0, 0);
            return;
        }
    }
}

/* --- releases -------------------------------------------------------------------------------- */

bool via_barrier_is_due(const struct via_channel *channel)
{
    return channel->barriers->releases_due != 0 && via_op_answer_available(channel);
}

static void release_some(struct via_channel *channel, struct via_barrier_group *group)
{
    unsigned hosts_max = channel->node->config.hosts_max;

    while (group->release_count != 0 && via_op_answer_available(channel)) {
        uint16_t host = (uint16_t)(group->release_from++ % hosts_max);
        if (group->releases[host] == 0) {
            continue;
        }
        struct via_op what = {
            .kind = VIA_OP_BARRIER_RELEASE,
            .destination = host,
            .group = group->group,
        };
        struct via_op_slot *op = via_op_answer_new(channel, &what);
        op->round = group->releases[host];
        set_release(channel, group, host, 0);
        via_tx_append(channel, flow_to(channel, host), &op->tx);
    }
    group_free_if_over(group);
}

void via_barrier_pump(struct via_channel *channel)
{
    for (unsigned g = 0; g < VIA_BARRIER_GROUPS && via_barrier_is_due(channel); g++) {
        if (channel->barriers->groups[g].used && channel->barriers->groups[g].release_count != 0) {
            release_some(channel, &channel->barriers->groups[g]);
            channel->work++;
        }
    }
}

/* --- early ends ------------------------------------------------------------------------------ */

/* The same slot once more, now for the frame that takes the arrival back. */
static void withdraw(struct via_channel *channel, struct via_op_slot *op)
{
    op->op.kind = VIA_OP_BARRIER_WITHDRAW;
    op->withdraw = false;
    op->tx.assigned = false;
    op->tx.acked = false;
    op->tx.skip = false;
    op->tx.frames_count = 1;
    via_tx_append(channel, flow_to(channel, op->op.destination), &op->tx);
}

void via_barrier_acked(struct via_channel *channel, struct via_op_slot *op)
{
    bool again = op->withdraw;
    bool reported = op->reported;

    /* It has no place in the flow's order any more: its end is the release. */
    op->reported = reported && !again; /* or the slot would be freed */
    via_tx_remove(channel, &op->tx);
    if (again) {
        op->reported = reported;
        withdraw(channel, op);
    }
}

void via_barrier_abandon(struct via_channel *channel, struct via_op_slot *op, int status)
{
    bool root = op->op.destination == channel->node->config.host;

    via_op_finish(channel, op, status, 0);
    if (root) {
        struct via_barrier_group *group = group_find(channel, op->op.group);
        group->op = NULL;
        group_free_if_over(group);
    } else if (op->tx.flow == NULL) {
        withdraw(channel, op); /* the arrival is at the root */
    } else if (op->tx.assigned) {
        op->withdraw = true;
        via_tx_count(&op->tx); /* its end matters still */
    } else {
        via_op_skip(channel, op);
    }
}

void via_barrier_host_reset(struct via_channel *channel, uint16_t host)
{
    for (unsigned g = 0; g < VIA_BARRIER_GROUPS; g++) {
        struct via_barrier_group *group = &channel->barriers->groups[g];
        if (group->used) {
            set_arrival(group, host, 0);
            set_release(channel, group, host, 0);
            group_free_if_over(group);
        }
    }
    via_list_foreach_safe(it, &channel->barriers->waiting) {
        struct via_op_slot *op = via_list_entry(it, struct via_op_slot, waits);
        if (is_member(&op->op, host)) {
            via_barrier_abandon(channel, op, -ECONNRESET);
        }
    }
}
