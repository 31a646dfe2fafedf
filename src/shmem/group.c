/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/group.h"

#include "shmem/barrier.h"

struct via_group via_group_of_team(shmem_team_t handle)
{
    struct viaduct_shmem_team *team = via_team(handle);

    return (struct via_group){
        .start = team->start,
        .stride = team->stride,
        .size = team->size,
        .my_pe = team->my_pe,
        .team = team,
        .words = via_internal()->teams[team->slot].words,
    };
}

struct via_group via_group_of_active_set(const char *call, int start, int log_stride, int size,
                                         long *sync)
{
    int me = via_hot.my_pe;

    if (start < 0 || size < 1 || log_stride < 0 || log_stride > 30 || start >= via_hot.n_pes ||
        (int64_t)start + ((int64_t)(size - 1) << log_stride) >= via_hot.n_pes)
        via_fatal("%s: PE_start %d, logPE_stride %d, PE_size %d: not PEs of 0 to %d", call, start,
                  log_stride, size, via_hot.n_pes - 1);
    /* All PEs are the team of the world, which has better ways, and leaves pSync as it is. But
     * several threads may be in active sets of all PEs at the same time, each with a pSync. */
    if (size == via_hot.n_pes && !via_world.concurrent)
        return via_group_of_team(SHMEM_TEAM_WORLD);
    int stride = 1 << log_stride;
    if (me < start || (me - start) % stride != 0 || (me - start) / stride >= size)
        via_fatal("%s: PE %d is not in the active set of PE_start %d, logPE_stride %d, PE_size %d",
                  call, me, start, log_stride, size);
    return (struct via_group){
        .start = start,
        .stride = stride,
        .size = size,
        .my_pe = (me - start) / stride,
        .words = (_Atomic uint64_t *)(void *)sync,
    };
}

static void wait_for(const _Atomic uint64_t *word, uint64_t value)
{
    struct via_wait wait = VIA_WAIT_INIT;

    /* Acquire: pairs with the release of the put or atomic of the word. */
    while (atomic_load_explicit(word, memory_order_acquire) < value)
        via_wait_step(&wait);
    via_wait_done(&wait);
}

/* Rounds of dissemination: in round r everybody tells the one 2^r further, and hears from the one
 * 2^r before. A team's words only grow, so no round is mistaken for one of the barrier before. */
static void sync_team(const struct via_group *group)
{
    uint64_t epoch = VIA_MUTANT(SHMEM_OLD_ROUND) ? 1 : ++group->team->epoch;

    for (unsigned round = 0; (1 << round) < group->size; round++) {
        int further = VIA_MUTANT(SHMEM_WRONG_MEMBER) ? 1 : 1 << round;
        int to = (group->my_pe + further) % group->size;
        via_put_word(via_group_word(group, to, round), epoch, via_group_pe(group, to));
        wait_for(&group->words[round], epoch);
    }
}

/*
 * With pSync every word has to be zero again at the end, and the next barrier may follow at once.
 * So up and down a tree, where each word has one writer, who does not write it again before its
 * reader, who resets it, has answered.
 */
#define FAN 16
#define RELEASE_WORD FAN
_Static_assert(RELEASE_WORD < VIA_GROUP_ROUNDS_MAX, "below the words that have other uses");

static void hear(_Atomic uint64_t *word)
{
    wait_for(word, 1);
    atomic_store_explicit(word, 0, memory_order_relaxed);
}

static void sync_active_set(const struct via_group *group)
{
    int me = group->my_pe, first_child = me * FAN + 1;
    int children = via_max(0, via_min(FAN, group->size - first_child));

    for (int i = VIA_MUTANT(SHMEM_WRONG_PARENT) ? 1 : 0; i < children; i++)
        hear(&group->words[i]);
    if (me > 0) {
        via_put_word(&group->words[(me - 1) % FAN], 1, via_group_pe(group, (me - 1) / FAN));
        hear(&group->words[RELEASE_WORD]);
    }
    for (int i = 0; i < children; i++)
        via_put_word(&group->words[RELEASE_WORD], 1, via_group_pe(group, first_child + i));
}

/* --- among PEs of one host ---------------------------------------------------------------------
 */

static struct via_sync_line *line_of(const struct via_group *group, int number)
{
    unsigned line = VIA_MUTANT(SHMEM_ONE_LINE) ? 0 : group->team->exchanges % 2;

    return &group->team->mapped[number]->lines[line];
}

#define FAR_NODES_MIN 4u

static bool is_world(const struct via_group *group)
{
    return group->team == via_team(SHMEM_TEAM_WORLD);
}

size_t via_group_exchange_max(const struct via_group *group)
{
    if (!group->team)
        return 0;
    if (group->team->mapped)
        return VIA_SYNC_LINE_BYTES;
    return is_world(group) ? via_barrier_carry_max() : 0;
}

bool via_group_is_far(const struct via_group *group)
{
    return is_world(group) && via_world.job->nodes_count >= FAR_NODES_MIN &&
           via_barrier_goes_round();
}

/* Two lines in turn: nobody can begin the exchange after the next one before all have read what
 * they got by this one. */
static void exchange_here(struct via_group *group, const void *mine, size_t bytes)
{
    uint64_t count = ++group->team->exchanges;
    struct via_sync_line *line = line_of(group, group->my_pe);
    struct via_wait wait = VIA_WAIT_INIT;

    memcpy(line->bytes, mine, bytes);
    via_tell_here(&line->arrived, count);
    for (int i = 0; i < group->size; i++)
        via_wait_here(&wait, &line_of(group, i)->arrived, count);
    via_wait_done(&wait);
}

void via_group_exchange(struct via_group *group, const void *mine, size_t bytes)
{
    if (group->team->mapped)
        exchange_here(group, mine, bytes);
    else
        via_barrier_carry(mine, bytes);
}

const char *via_group_exchanged(const struct via_group *group, int number)
{
    return group->team->mapped ? (const char *)line_of(group, number)->bytes
                               : via_barrier_carried(via_group_pe(group, number));
}

void via_group_sync(struct via_group *group)
{
    /* What follows must not be seen before what was stored until now. */
    via_fence();
    if (!group->team)
        sync_active_set(group);
    else if (is_world(group))
        via_barrier_world();
    else if (group->team->mapped)
        via_group_exchange(group, "", 0);
    else
        sync_team(group);
}
