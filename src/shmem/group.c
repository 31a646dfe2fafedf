/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/group.h"

#include <inttypes.h>

#include "shmem/barrier.h"
#include "shmem/team.h"

struct via_group via_group_of_team(const char *call, shmem_team_t handle)
{
    struct viaduct_shmem_team *team = via_team(handle);

    via_require_initialized(call);

    return (struct via_group){
        .start = team->start,
        .stride = team->stride,
        .size = team->size,
        .my_pe = team->my_pe,
        .team = team,
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

/*
 * A call with pSync must leave every word zero at the end, and the next barrier may follow at once.
 * So signals go up a tree and down again. Each word has one writer. Its reader first resets the
 * word and then answers; the writer writes the word again only after that answer.
 */
#define FAN 16
#define RELEASE_WORD FAN
_Static_assert(RELEASE_WORD < VIA_GROUP_ROUNDS_MAX, "below the words that have other uses");

static uint64_t take_word(_Atomic uint64_t *word)
{
    wait_for(word, 1);
    uint64_t value = atomic_load_explicit(word, memory_order_relaxed);
    atomic_store_explicit(word, 0, memory_order_relaxed);
    return value;
}

/* Only this PE's parent writes it, after this PE has reported its arrival. */
static void check_sync(const struct via_group *group)
{
    uint64_t value = atomic_load_explicit(&group->words[RELEASE_WORD], memory_order_relaxed);

    if (via_unlikely(value != SHMEM_SYNC_VALUE))
        via_fatal("%s: pSync[%d] is %" PRId64 " at the beginning, not SHMEM_SYNC_VALUE: it was not "
                  "initialized, or is used by two calls at the same time",
                  group->call, RELEASE_WORD, (int64_t)value);
}

/* `mine` is not zero; the result combines the words of all members. */
static uint64_t combine_by_tree(void *argument, uint64_t mine)
{
    const struct via_group *group = argument;
    int me = group->my_pe, first_child = me * FAN + 1;
    int children = via_max(0, via_min(FAN, group->size - first_child));

    check_sync(group);
    for (int i = VIA_MUTANT(SHMEM_WRONG_PARENT) ? 1 : 0; i < children; i++)
        mine = via_active_combine(mine, take_word(&group->words[i]));
    if (me > 0) {
        via_put_word(&group->words[(me - 1) % FAN], mine, via_group_pe(group, (me - 1) / FAN));
        mine = take_word(&group->words[RELEASE_WORD]);
    }
    for (int i = 0; i < children; i++)
        via_put_word(&group->words[RELEASE_WORD], mine, via_group_pe(group, first_child + i));
    return mine;
}

struct via_group via_group_of_active_set(const char *call, int start, int log_stride, int size,
                                         long *sync)
{
    int me = via_hot.my_pe;

    via_require_initialized(call);
    if (start < 0 || size < 1 || log_stride < 0 || log_stride > 30 || start >= via_hot.n_pes ||
        (int64_t)start + ((int64_t)(size - 1) << log_stride) >= via_hot.n_pes)
        via_fatal("%s: PE_start %d, logPE_stride %d, PE_size %d: not PEs of 0 to %d", call, start,
                  log_stride, size, via_hot.n_pes - 1);
    /* All PEs are the team of the world, and other sets get a team of their own: teams have faster
     * algorithms and do not use pSync. But several threads may be in one set at the same time, each
     * with its own pSync. */
    if (size == via_hot.n_pes && !via_world.concurrent)
        return via_group_of_team(call, SHMEM_TEAM_WORLD);
    int stride = 1 << log_stride;
    if (me < start || (me - start) % stride != 0 || (me - start) / stride >= size)
        via_fatal("%s: PE %d is not in the active set of PE_start %d, logPE_stride %d, PE_size %d",
                  call, me, start, log_stride, size);
    struct via_group group = {
        .start = start,
        .stride = stride,
        .size = size,
        .my_pe = (me - start) / stride,
        .words = (_Atomic uint64_t *)(void *)sync,
        .call = call,
    };
    if (!via_world.concurrent)
        group.team = via_active_team(start, stride, size, group.my_pe, combine_by_tree, &group);
    return group;
}

/* --- among PEs of one host ------------------------------------------------------------------- */

static struct via_sync_line *line_of(const struct via_group *group, int number)
{
    unsigned line = VIA_MUTANT(SHMEM_ONE_LINE) ? 0 : group->team->exchanges % 2;

    return &group->team->mapped[number]->lines[line];
}

/* Two lines alternate: a PE can begin the exchange after the next one only when all have read the
 * results of this one. */
static void exchange_here(struct via_group *group, const void *mine, size_t bytes)
{
    uint64_t count = ++group->team->exchanges;
    struct via_sync_line *line = line_of(group, group->my_pe);
    struct via_wait wait = VIA_WAIT_INIT;

    memcpy(line->bytes, mine, bytes);
    via_store_and_notify(&line->arrived, count);
    for (int i = 0; i < group->size; i++)
        via_wait_here(&wait, &line_of(group, i)->arrived, count);
    via_wait_done(&wait);
}

/* One cache line each, if there is room. */
static size_t exchange_stride(const struct via_group *group, size_t bytes)
{
    size_t apart = via_align_up(bytes, 64);

    return apart * (size_t)group->size <= VIA_BOX_BYTES ? apart : via_align_up(bytes, 8);
}

static void exchange_over_hosts(struct via_group *group, const void *mine, size_t bytes)
{
    struct viaduct_shmem_team *team = group->team;
    size_t stride = exchange_stride(group, bytes);
    struct via_load load = {.stride = stride};

    via_hosts_of(team);
    memcpy(via_hosts_next_box(team) + (size_t)group->my_pe * stride, mine, bytes);
    via_hosts_meet(team, &load);
    team->exchanged_stride = stride;
}

void via_group_exchange(struct via_group *group, const void *mine, size_t bytes)
{
    if (group->team->mapped)
        exchange_here(group, mine, bytes);
    else
        exchange_over_hosts(group, mine, bytes);
}

const char *via_group_exchanged(const struct via_group *group, int number)
{
    if (group->team->mapped)
        return (const char *)line_of(group, number)->bytes;
    return via_hosts_box(group->team) + (size_t)number * group->team->exchanged_stride;
}

void via_group_sync(struct via_group *group)
{
    /* Later stores must not be visible before earlier ones. */
    via_fence();
    if (!group->team)
        combine_by_tree(group, 1);
    else if (group->team == via_team(SHMEM_TEAM_WORLD))
        via_barrier_world();
    else if (group->team->mapped)
        exchange_here(group, "", 0);
    else
        via_hosts_meet(group->team, NULL);
}

/* --- choosing and running an algorithm ------------------------------------------------------- */

static via_algorithm_run *const runs[VIA_ALGORITHMS] = {
    [VIA_BROADCAST_EXCHANGE] = via_broadcast_exchange,
    [VIA_BROADCAST_DIRECT] = via_broadcast_direct,
    [VIA_BROADCAST_TREE] = via_broadcast_tree,
    [VIA_BROADCAST_CHAIN] = via_broadcast_chain,
    [VIA_BROADCAST_TORUS] = via_broadcast_torus,
    [VIA_COLLECT_CHAIN] = via_collect_chain,
    [VIA_COLLECT_DIRECT] = via_collect_direct,
    [VIA_COLLECT_LEADERS] = via_collect_leaders,
    [VIA_FCOLLECT_EXCHANGE] = via_fcollect_exchange,
    [VIA_FCOLLECT_DIRECT] = via_fcollect_direct,
    [VIA_FCOLLECT_LEADERS] = via_fcollect_leaders,
    [VIA_ALLTOALL_DIRECT] = via_alltoall_direct,
    [VIA_ALLTOALL_EXCHANGE] = via_alltoall_exchange,
    [VIA_REDUCE_EXCHANGE] = via_reduce_exchange,
    [VIA_REDUCE_SHARES] = via_reduce_shares,
    [VIA_REDUCE_LEADERS] = via_reduce_leaders,
    [VIA_REDUCE_RING] = via_reduce_ring,
    [VIA_REDUCE_TORUS] = via_reduce_torus,
    [VIA_REDUCE_HALVING] = via_reduce_halving,
    [VIA_SCAN_EXCHANGE] = via_scan_exchange,
    [VIA_SCAN_DIRECT] = via_scan_direct,
    [VIA_SCAN_LEADERS] = via_scan_leaders,
};

static struct via_choice choose(enum via_collective collective, const struct via_group *group,
                                size_t bytes, size_t element_bytes)
{
    struct via_algorithm_case call = {
        .costs = &via_world.job->costs,
        .pes = (unsigned)group->size,
        .hosts = 1,
        .locals_max = (unsigned)group->size,
        .is_active_set = true,
    };

    if (group->team)
        call = via_hosts_of(group->team)->shape;
    call.bytes = bytes;
    call.element_bytes = element_bytes;
    return (struct via_choice){
        .bytes = bytes,
        .element_bytes = element_bytes,
        .number = via_algorithm_choose(collective, &call, via_world.job->algorithms),
    };
}

void via_group_run(enum via_collective collective, const struct via_task *task)
{
    /* Members may have parts of different sizes, but must choose the same algorithm. */
    size_t bytes = collective == VIA_COLLECTIVE_COLLECT ? 0 : task->bytes;
    struct viaduct_shmem_team *team = task->group->team;
    struct via_choice none, *choice = &none;

    if (via_likely(team))
        choice = &team->choices[collective][(unsigned)__builtin_clzll(bytes | 1) % VIA_CHOICES];
    if (via_unlikely(!team || choice->bytes != bytes ||
                     choice->element_bytes != task->element_bytes))
        *choice = choose(collective, task->group, bytes, task->element_bytes);
    runs[choice->number](task);
}
