/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Barriers: groups of hosts that meet, several rounds each. No member leaves a round before all
 * have entered it. When a member crashes or is unreachable, the others give the group up, as
 * programs do, and another group takes its place. A member whose barrier timed out enters the same
 * round again.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sim/memory.h"
#include "sim/world.h"

/* Two users have the same numbers. */
uint64_t sim_barrier_group(uint64_t number)
{
    return VIA_BARRIER_GROUP(number % 2, 1000 + number / 2);
}

static uint64_t soon(struct sim_world *world)
{
    return via_rng_below(&world->rng_work,
                         world->healed ? VIA_MSEC_NS : world->config.active_ns / 8);
}

static void plan_entry(struct sim_world *world, const struct sim_group *group, uint32_t member)
{
    sim_clock_after(&world->clock, soon(world), SIM_EVENT_BARRIER, group->number, member, 0);
}

static int by_id(const void *a, const void *b, void *object)
{
    const struct sim_world *world = object;
    return world->hosts[*(const uint32_t *)a].id - world->hosts[*(const uint32_t *)b].id;
}

static void sort_ids(struct sim_world *world, struct sim_group *group)
{
    qsort_r(group->hosts, group->members_count, sizeof(group->hosts[0]), by_id, world);
    for (uint32_t i = 0; i < group->members_count; i++) {
        group->ids[i] = world->hosts[group->hosts[i]].id;
    }
}

static void group_new(struct sim_world *world)
{
    if (world->groups_count == VIA_ARRAY_COUNT(world->groups)) {
        return;
    }
    struct sim_group *group = &world->groups[world->groups_count];
    *group = (struct sim_group){
        .number = world->groups_count++,
        .rounds = world->config.work.barrier_rounds,
    };
    uint64_t all = UINT64_MAX >> (64 - world->hosts_count);
    uint64_t chosen = via_rng_between(&world->rng_work, 1, all);
    if (via_rng_chance(&world->rng_work, 1, 2)) {
        chosen = all;
    }
    for (uint32_t i = 0; i < world->hosts_count; i++) {
        if (chosen >> i & 1) {
            group->hosts[group->members_count++] = i;
        }
    }
    sort_ids(world, group);
    for (uint32_t m = 0; m < group->members_count; m++) {
        plan_entry(world, group, m);
    }
}

void sim_barrier_plan(struct sim_world *world)
{
    for (uint32_t i = 0; i < world->config.work.barrier_groups; i++) {
        group_new(world);
    }
}

void sim_barrier_wanted(struct sim_world *world, uint32_t number, uint32_t member)
{
    struct sim_group *group = &world->groups[number];
    struct sim_host *host = &world->hosts[group->hosts[member]];
    if (!group->retired && !host->alive) {
        /* The host is down: it has not started yet, or its death is noticed soon. Try again
         * later. */
        plan_entry(world, group, member);
    } else if (!group->retired) {
        host->threads[0].barriers_wanted |= UINT64_C(1) << number;
        sim_thread_wake(&host->threads[0], 0);
    }
}

static uint32_t member_of(const struct sim_group *group, uint32_t host)
{
    uint32_t member = 0;
    while (group->hosts[member] != host) {
        member++;
    }
    return member;
}

/* True if the thread has seen the current life of every member's host. If it still knows only a
 * former life, the barrier ends with the error for a restart. */
static bool is_all_known(const struct sim_thread *thread, const struct sim_group *group)
{
    for (uint32_t m = 0; m < group->members_count; m++) {
        if (!sim_thread_has_seen(thread, group->hosts[m])) {
            return false;
        }
    }
    return true;
}

static bool enter(struct sim_thread *thread, struct sim_group *group)
{
    struct sim_world *world = thread->host->world;
    uint32_t member = member_of(group, thread->host->index);
    struct sim_op *op = sim_op_new(world);
    op->kind = VIA_OP_BARRIER;
    op->source = thread->host->index;
    op->source_life = thread->host->life.number;
    op->owner = SIM_OWNERS + group->number;
    op->group = group->number;
    op->member = member;
    op->round = group->entered[member] + 1;
    const struct via_op node_op = {
        .kind = VIA_OP_BARRIER,
        .group = sim_barrier_group(group->number),
        .members = group->ids,
        .members_count = group->members_count,
        .cookie = sim_op_cookie(op),
    };
    op->stale_route = !is_all_known(thread, group);
    if (!sim_op_submit(thread, op, &node_op)) {
        return false;
    }
    sim_limit_submitted(world, op);
    group->entered[member]++;
    return true;
}

void sim_barrier_turn(struct sim_thread *thread)
{
    struct sim_world *world = thread->host->world;
    for (uint32_t i = 0; i < world->groups_count && !world->failed; i++) {
        uint64_t bit = UINT64_C(1) << i;
        if (thread->barriers_wanted & bit && enter(thread, &world->groups[i])) {
            thread->barriers_wanted &= ~bit;
        }
        if (thread->barriers_given_up & bit) {
            thread->barriers_given_up &= ~bit;
            thread->barriers_wanted &= ~bit;
            sim_op_cancel(thread, SIM_OWNERS + i);
        }
    }
}

static bool has_restarted(const struct sim_world *world, const struct sim_group *group,
                          const struct sim_op *op)
{
    for (uint32_t m = 0; m < group->members_count; m++) {
        const struct sim_host *host = &world->hosts[group->hosts[m]];
        if (!host->alive || host->life.start_ns >= op->submit_ns) {
            return true;
        }
    }
    return false;
}

static void retire(struct sim_world *world, struct sim_group *group)
{
    group->retired = true;
    for (uint32_t m = 0; m < group->members_count; m++) {
        struct sim_host *host = &world->hosts[group->hosts[m]];
        if (host->alive) {
            host->threads[0].barriers_given_up |= UINT64_C(1) << group->number;
            sim_thread_wake(&host->threads[0], via_rng_below(&world->rng_work, 20 * VIA_MSEC_NS));
        }
    }
    group_new(world);
}

static bool is_status_allowed(const struct sim_world *world, const struct sim_group *group,
                              const struct sim_op *op, int status)
{
    switch (status) {
    case -ECONNRESET:
        return group->retired || op->stale_route || has_restarted(world, group, op);
    case -EHOSTUNREACH:
        return world->config.node.give_up_ns != 0 && sim_is_delay_allowed(world);
    case -ETIMEDOUT:
        return sim_limit_is_over(world, op);
    case -ECANCELED:
        return op->cancelled;
    default:
        return status == 0;
    }
}

void sim_barrier_completed(struct sim_world *world, struct sim_op *op, int status)
{
    struct sim_group *group = &world->groups[op->group];
    op->state = SIM_OP_DONE;
    op->status = status;
    if (!is_status_allowed(world, group, op, status)) {
        sim_fail(world, "%s: ends with %d", sim_op_name(op), status);
    }
    if (status == -ETIMEDOUT && !group->retired) {
        /* The barrier has not taken place, so the member enters the same one again. */
        group->entered[op->member]--;
        plan_entry(world, group, op->member);
        return;
    }
    group->left[op->member]++;
    if (status != 0) {
        if (!group->retired) {
            retire(world, group);
        }
        return;
    }
    for (uint32_t m = 0; m < group->members_count; m++) {
        if (group->entered[m] < op->round) {
            sim_fail(world, "%s: ends before member %u has entered", sim_op_name(op), m);
        }
    }
    if (group->left[op->member] < group->rounds && !group->retired) {
        plan_entry(world, group, op->member);
    }
}

void sim_barrier_crashed(struct sim_host *host)
{
    struct sim_world *world = host->world;
    uint32_t groups = world->groups_count;
    for (uint32_t i = 0; i < groups; i++) {
        struct sim_group *group = &world->groups[i];
        bool done = true;
        bool member = false;
        for (uint32_t m = 0; m < group->members_count; m++) {
            member = member || group->hosts[m] == host->index;
            done = done && group->left[m] == group->rounds;
        }
        if (member && !done && !group->retired) {
            retire(world, group);
        }
    }
}

bool sim_barrier_is_done(const struct sim_world *world)
{
    for (uint32_t i = 0; i < world->groups_count; i++) {
        const struct sim_group *group = &world->groups[i];
        for (uint32_t m = 0; m < group->members_count && !group->retired; m++) {
            if (group->left[m] < group->rounds) {
                return false;
            }
        }
    }
    return true;
}
