/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Collectives that move data. The standard lets a PE enter only when the dest of every PE may be
 * written, so no wait comes before the transfer.
 */
#include <stdlib.h>

#include "shmem/group.h"
#include "shmem/strided.h"
#include "shmem/torus.h"

/* --- broadcast ------------------------------------------------------------------------------- */

void via_broadcast_exchange(const struct via_task *task)
{
    struct via_group *group = task->group;
    static const char nothing[VIA_BOX_BYTES];
    bool is_root = group->my_pe == task->root;

    via_group_exchange(group, is_root ? task->source : nothing, task->bytes);
    if (!is_root || task->root_too)
        memcpy(task->dest, via_group_exchanged(group, task->root), task->bytes);
}

static void fill_root(const struct via_task *task)
{
    if (task->group->my_pe == task->root && task->root_too)
        memmove(task->dest, task->source, task->bytes);
}

void via_broadcast_direct(const struct via_task *task)
{
    struct via_group *group = task->group;

    for (int i = 1; i < group->size && group->my_pe == task->root; i++)
        via_put(task->call, task->dest, task->source, task->bytes,
                via_group_pe(group, (task->root + i) % group->size));
    fill_root(task);
    via_group_barrier(group);
}

static unsigned host_of(const struct via_hosts *hosts, int number)
{
    unsigned host = 0;

    while (hosts->first[host + 1] <= number)
        host++;
    return host;
}

/* True if this PE sends or forwards the bytes to other hosts: it is the leader of its host, or the
 * root, which takes the leader's part on its own host. */
static bool is_on_way(const struct via_task *task, const struct via_hosts *hosts)
{
    bool is_root_here = host_of(hosts, task->root) == hosts->mine;

    return task->group->my_pe == (is_root_here ? task->root : hosts->first[hosts->mine]);
}

static void put_to_locals(const struct via_task *task, const struct via_hosts *hosts, size_t at,
                          const char *from, size_t bytes)
{
    struct via_group *group = task->group;

    for (int i = hosts->first[hosts->mine]; i < hosts->first[hosts->mine + 1]; i++)
        if (i != group->my_pe)
            via_put(task->call, (char *)task->dest + at, from, bytes, via_group_pe(group, i));
}

static void put_and_notify(const struct via_task *task, size_t at, const char *from, size_t bytes,
                           int to, unsigned word, uint64_t value)
{
    struct viaduct_shmem_team *team = task->group->team;

    via_put(task->call, (char *)task->dest + at, from, bytes, via_team_pe(team, to));
    via_put_word(via_hosts_word(team, to, word), value, via_team_pe(team, to));
}

/* In round r the 2^r hosts that begin with the root's have the bytes, and each puts them to the
 * host 2^r places further. */
static void send_down_tree(const struct via_task *task, const struct via_hosts *hosts,
                           uint64_t value)
{
    unsigned distance = (hosts->mine + hosts->count - host_of(hosts, task->root)) % hosts->count;
    unsigned round = 0;
    const char *from = task->source;

    if (distance > 0) {
        round = 31 - (unsigned)__builtin_clz(distance);
        via_hosts_await(task->group->team, VIA_WORD_TREE + round, value);
        round++;
        from = task->dest;
    }
    for (; distance + (1u << round) < hosts->count; round++)
        put_and_notify(task, 0, from, task->bytes, via_hosts_leader(hosts, 1u << round),
                       VIA_WORD_TREE + round, value);
    put_to_locals(task, hosts, 0, from, task->bytes);
}

void via_broadcast_tree(const struct via_task *task)
{
    struct viaduct_shmem_team *team = task->group->team;
    const struct via_hosts *hosts = via_hosts_of(team);

    team->pieces++;
    if (is_on_way(task, hosts))
        send_down_tree(task, hosts, team->pieces);
    fill_root(task);
    /* The words have already announced that all puts are complete. */
    via_group_sync(task->group);
}

/* In pieces, so that hosts forward the first pieces while the next ones arrive. */
#define CHAIN_PIECE_BYTES ((size_t)64 << 10)

/* The leaders that get a piece next, by member number. */
struct next_hosts {
    unsigned count;
    int to[4];
};

static void add_next(struct next_hosts *next, int number)
{
    next->to[next->count++] = number;
}

static unsigned place_of(const struct via_hosts *hosts, unsigned host)
{
    unsigned place = 0;

    while (hosts->ring[place] != (int)host)
        place++;
    return place;
}

/* The next hops in both directions round the ring. */
static struct next_hosts next_in_ring(const struct via_hosts *hosts, unsigned root)
{
    unsigned count = hosts->count;
    struct via_torus_ways ways =
        via_torus_ways(count, (hosts->place + count - place_of(hosts, root)) % count);
    struct next_hosts next = {0};

    if (ways.next)
        add_next(&next, via_hosts_ring_leader(hosts, 1));
    if (ways.before)
        add_next(&next, via_hosts_ring_leader(hosts, count - 1));
    return next;
}

/* Adds the next hops in both directions round a row or a column of `count` hosts, `step` apart,
 * from its place `root`. */
static void add_ways(const struct via_hosts *hosts, unsigned count, unsigned place, unsigned step,
                     unsigned root, struct next_hosts *next)
{
    struct via_torus_ways ways = via_torus_ways(count, (place + count - root) % count);
    unsigned first = hosts->mine - place * step;

    if (ways.next)
        add_next(next, hosts->first[first + (place + 1) % count * step]);
    if (ways.before)
        add_next(next, hosts->first[first + (place + count - 1) % count * step]);
}

/* The next hops along the root's column, and from each host of that column along its row. */
static struct next_hosts next_in_torus(const struct via_hosts *hosts, unsigned root)
{
    unsigned columns = hosts->shape.row, column = hosts->mine % columns;
    struct next_hosts next = {0};

    if (column == root % columns)
        add_ways(hosts, hosts->count / columns, hosts->mine / columns, columns, root / columns,
                 &next);
    add_ways(hosts, columns, column, 1, root % columns, &next);
    return next;
}

static void pass_pieces(const struct via_task *task, const struct via_hosts *hosts, uint64_t pieces,
                        const struct next_hosts *next)
{
    struct viaduct_shmem_team *team = task->group->team;
    bool is_root = task->group->my_pe == task->root;

    for (uint64_t piece = 0; piece < pieces; piece++) {
        size_t at = piece * CHAIN_PIECE_BYTES;
        size_t bytes = via_min(CHAIN_PIECE_BYTES, task->bytes - at);
        const char *from = (const char *)(is_root ? task->source : task->dest) + at;
        uint64_t value = team->pieces + piece + 1;
        if (!is_root)
            via_hosts_await(team, VIA_WORD_CHAIN, value);
        for (unsigned i = 0; i < next->count; i++)
            put_and_notify(task, at, from, bytes, next->to[i], VIA_WORD_CHAIN, value);
        put_to_locals(task, hosts, at, from, bytes);
    }
}

static void broadcast_in_pieces(const struct via_task *task, bool is_torus)
{
    struct viaduct_shmem_team *team = task->group->team;
    const struct via_hosts *hosts = via_hosts_of(team);
    uint64_t pieces = (task->bytes + CHAIN_PIECE_BYTES - 1) / CHAIN_PIECE_BYTES;
    unsigned root = host_of(hosts, task->root);

    if (is_on_way(task, hosts)) {
        struct next_hosts next = is_torus ? next_in_torus(hosts, root) : next_in_ring(hosts, root);
        pass_pieces(task, hosts, pieces, &next);
    }
    team->pieces += pieces;
    fill_root(task);
    /* The words have already announced that all puts are complete. */
    via_group_sync(task->group);
}

void via_broadcast_chain(const struct via_task *task)
{
    broadcast_in_pieces(task, false);
}

void via_broadcast_torus(const struct via_task *task)
{
    broadcast_in_pieces(task, true);
}

void via_group_broadcast(const char *call, struct via_group *group, void *dest, const void *source,
                         size_t bytes, int root, bool root_too)
{
    const struct via_task task = {.call = call,
                                  .group = group,
                                  .dest = dest,
                                  .source = source,
                                  .bytes = bytes,
                                  .element_bytes = 1,
                                  .root = root,
                                  .root_too = root_too};

    if (root < 0 || root >= group->size)
        via_fatal("%s: PE_root %d: there are PEs 0 to %d", call, root, group->size - 1);
    via_group_run(VIA_COLLECTIVE_BROADCAST, &task);
}

/* --- collect and fcollect -------------------------------------------------------------------- */

/* Puts the part to all members, beginning with the next one, so that not all members write to the
 * same PE. */
static void put_to_all(const struct via_task *task, size_t off)
{
    struct via_group *group = task->group;
    char *dest = (char *)task->dest + off;

    for (int i = 1; i < group->size; i++)
        via_put(task->call, dest, task->source, task->bytes,
                via_group_pe(group, (group->my_pe + i) % group->size));
    memmove(dest, task->source, task->bytes);
    via_group_barrier(group);
}

/* Each PE puts its part to its host's leader; leaders forward the parts they have; then each PE
 * gets all parts from its leader. */
static void collect_by_leaders(const struct via_task *task, const struct via_load *load, size_t off,
                               size_t bytes)
{
    struct viaduct_shmem_team *team = task->group->team;
    const struct via_hosts *hosts = via_hosts_of(team);
    int leader = via_team_pe(team, hosts->first[hosts->mine]);
    bool is_leader = via_hosts_is_leader(team);
    char *my_place = (char *)task->dest + off;

    if (is_leader)
        memmove(my_place, task->source, task->bytes);
    else
        via_put(task->call, my_place, task->source, task->bytes, leader);
    via_hosts_meet(team, load);
    if (!is_leader)
        via_get(task->call, task->dest, task->dest, bytes, leader);
    /* A leader may return only when the other members of its host have copied dest, because its
     * program may then reuse dest. */
    if (hosts->shape.locals_max > 1)
        via_hosts_meet_locals(team);
}

void via_fcollect_exchange(const struct via_task *task)
{
    via_group_exchange(task->group, task->source, task->bytes);
    for (int i = 0; i < task->group->size; i++)
        memcpy((char *)task->dest + (size_t)i * task->bytes, via_group_exchanged(task->group, i),
               task->bytes);
}

void via_fcollect_direct(const struct via_task *task)
{
    put_to_all(task, (size_t)task->group->my_pe * task->bytes);
}

void via_fcollect_leaders(const struct via_task *task)
{
    const struct via_load load = {.base = task->dest, .stride = task->bytes};

    collect_by_leaders(task, &load, (size_t)task->group->my_pe * task->bytes,
                       (size_t)task->group->size * task->bytes);
}

/* Runs a collective in which each member contributes `bytes` bytes, of any type. */
static void run_on_bytes(enum via_collective collective, const char *call, struct via_group *group,
                         void *dest, const void *source, size_t bytes)
{
    const struct via_task task = {.call = call,
                                  .group = group,
                                  .dest = dest,
                                  .source = source,
                                  .bytes = bytes,
                                  .element_bytes = 1};

    via_group_run(collective, &task);
}

void via_group_fcollect(const char *call, struct via_group *group, void *dest, const void *source,
                        size_t bytes)
{
    run_on_bytes(VIA_COLLECTIVE_FCOLLECT, call, group, dest, source, bytes);
}

/* Gets the offset of this PE's part from the previous PE. The word contains the offset plus one,
 * because a word that was not written yet is zero. */
static uint64_t learn_offset(const struct via_group *group, size_t bytes)
{
    _Atomic uint64_t *word = &group->words[VIA_GROUP_WORD_OFFSET];
    uint64_t off = 0;

    if (group->my_pe > 0) {
        struct via_wait wait = VIA_WAIT_INIT;
        while ((off = atomic_load_explicit(word, memory_order_acquire)) == 0)
            via_wait_step(&wait);
        via_wait_done(&wait);
        off--;
        atomic_store_explicit(word, 0, memory_order_relaxed);
    }
    if (group->my_pe + 1 < group->size)
        via_put_word(word, off + bytes + 1, via_group_pe(group, group->my_pe + 1));
    return off;
}

void via_collect_chain(const struct via_task *task)
{
    put_to_all(task, learn_offset(task->group, task->bytes));
}

/* Computes where the part of member `number` begins from the sizes of all members. */
static size_t offset_of(const struct via_group *group, size_t off, int from, int number)
{
    uint64_t bytes;

    for (int i = from; i < number; i++) {
        memcpy(&bytes, via_group_exchanged(group, i), sizeof(bytes));
        off += bytes;
    }
    return off;
}

void via_collect_direct(const struct via_task *task)
{
    uint64_t bytes = task->bytes;

    via_group_exchange(task->group, &bytes, sizeof(bytes));
    put_to_all(task, offset_of(task->group, 0, 0, task->group->my_pe));
}

void via_collect_leaders(const struct via_task *task)
{
    struct via_group *group = task->group;
    const struct via_hosts *hosts = via_hosts_of(group->team);
    size_t *offs = malloc((hosts->count + 1) * sizeof(*offs));
    uint64_t bytes = task->bytes;

    if (!offs)
        via_fatal("%s: out of memory", task->call);
    via_group_exchange(group, &bytes, sizeof(bytes));
    offs[0] = 0;
    for (unsigned h = 0; h < hosts->count; h++)
        offs[h + 1] = offset_of(group, offs[h], hosts->first[h], hosts->first[h + 1]);
    size_t off = offset_of(group, offs[hosts->mine], hosts->first[hosts->mine], group->my_pe);
    const struct via_load load = {.base = task->dest, .offs = offs};
    collect_by_leaders(task, &load, off, offs[hosts->count]);
    free(offs);
}

void via_group_collect(const char *call, struct via_group *group, void *dest, const void *source,
                       size_t bytes)
{
    run_on_bytes(VIA_COLLECTIVE_COLLECT, call, group, dest, source, bytes);
}

/* --- alltoall -------------------------------------------------------------------------------- */

void via_alltoall_direct(const struct via_task *task)
{
    struct via_group *group = task->group;
    char *to = (char *)task->dest + (size_t)group->my_pe * task->bytes;

    for (int i = 0; i < group->size; i++) {
        int number = (group->my_pe + i) % group->size;
        via_put(task->call, to, (const char *)task->source + (size_t)number * task->bytes,
                task->bytes, via_group_pe(group, number));
    }
    via_group_barrier(group);
}

/* Each PE copies from an exchange, so no PE writes into another PE's dest. */
void via_alltoall_exchange(const struct via_task *task)
{
    struct via_group *group = task->group;
    size_t mine = (size_t)group->my_pe * task->bytes;

    via_group_exchange(group, task->source, task->bytes * (size_t)group->size);
    for (int i = 0; i < group->size; i++)
        memcpy((char *)task->dest + (size_t)i * task->bytes, via_group_exchanged(group, i) + mine,
               task->bytes);
}

void via_group_alltoalls(const char *call, struct via_group *group, void *dest, const void *source,
                         ptrdiff_t dest_stride, ptrdiff_t source_stride, size_t elements,
                         size_t bytes)
{
    if (dest_stride == 1 && source_stride == 1) {
        run_on_bytes(VIA_COLLECTIVE_ALLTOALL, call, group, dest, source, elements * bytes);
        return;
    }
    ptrdiff_t dest_step = dest_stride * (ptrdiff_t)(elements * bytes);
    ptrdiff_t source_step = source_stride * (ptrdiff_t)(elements * bytes);

    for (int i = 0; i < group->size; i++) {
        int number = (group->my_pe + i) % group->size;
        void *to = (char *)dest + group->my_pe * dest_step;
        const void *from = (const char *)source + number * source_step;
        via_strided_put(call, to, from, dest_stride, source_stride, 1, elements, bytes,
                        via_group_pe(group, number));
    }
    via_group_barrier(group);
}

/* --- the calls on teams ---------------------------------------------------------------------- */

static int broadcast(const char *call, shmem_team_t team, void *dest, const void *source,
                     size_t bytes, int root)
{
    struct via_group group = via_group_of_team(call, team);
    via_group_broadcast(call, &group, dest, source, bytes, root, true);
    return 0;
}

static int collect(const char *call, shmem_team_t team, void *dest, const void *source,
                   size_t bytes)
{
    struct via_group group = via_group_of_team(call, team);
    via_group_collect(call, &group, dest, source, bytes);
    return 0;
}

static int fcollect(const char *call, shmem_team_t team, void *dest, const void *source,
                    size_t bytes)
{
    struct via_group group = via_group_of_team(call, team);
    via_group_fcollect(call, &group, dest, source, bytes);
    return 0;
}

static int alltoalls(const char *call, shmem_team_t team, void *dest, const void *source,
                     ptrdiff_t dst, ptrdiff_t sst, size_t elements, size_t bytes)
{
    struct via_group group = via_group_of_team(call, team);
    via_group_alltoalls(call, &group, dest, source, dst, sst, elements, bytes);
    return 0;
}

/* clang-format off */
#define VIA_DEFINE_COLLECTIVES(BROADCAST, COLLECT, FCOLLECT, ALLTOALL, ALLTOALLS, T, BYTES)               \
    int BROADCAST(shmem_team_t team, T *dest, const T *source, size_t nelems, int PE_root)                \
    {                                                                                                     \
        return broadcast(VIA_CALL, team, dest, source, nelems * (BYTES), PE_root);                        \
    }                                                                                                     \
    int COLLECT(shmem_team_t team, T *dest, const T *source, size_t nelems)                               \
    {                                                                                                     \
        return collect(VIA_CALL, team, dest, source, nelems * (BYTES));                                   \
    }                                                                                                     \
    int FCOLLECT(shmem_team_t team, T *dest, const T *source, size_t nelems)                              \
    {                                                                                                     \
        return fcollect(VIA_CALL, team, dest, source, nelems * (BYTES));                                  \
    }                                                                                                     \
    int ALLTOALL(shmem_team_t team, T *dest, const T *source, size_t nelems)                              \
    {                                                                                                     \
        return alltoalls(VIA_CALL, team, dest, source, 1, 1, nelems, BYTES);                              \
    }                                                                                                     \
    int ALLTOALLS(shmem_team_t team, T *dest, const T *source, ptrdiff_t dst, ptrdiff_t sst,              \
                  size_t nelems)                                                                          \
    {                                                                                                     \
        return alltoalls(VIA_CALL, team, dest, source, dst, sst, nelems, BYTES);                          \
    }
#define VIA_DEFINE_TYPE(N, T, A)                                                                          \
    VIA_DEFINE_COLLECTIVES(pshmem_##N##_broadcast, pshmem_##N##_collect, pshmem_##N##_fcollect,           \
                           pshmem_##N##_alltoall, pshmem_##N##_alltoalls, T, sizeof(T))

VIADUCT_SHMEM_RMA_TYPES(VIA_DEFINE_TYPE, 0)
VIA_DEFINE_COLLECTIVES(pshmem_broadcastmem, pshmem_collectmem, pshmem_fcollectmem, pshmem_alltoallmem,
                       pshmem_alltoallsmem, void, 1)

VIADUCT_SHMEM_RMA_TYPES(VIADUCT_SHMEM_COLLECTIVE_ENTRIES, VIA_ALIAS)
VIA_ALIAS(int, shmem_broadcastmem, (shmem_team_t team, void *dest, const void *source, size_t nelems, int PE_root))
VIA_ALIAS(int, shmem_collectmem, (shmem_team_t team, void *dest, const void *source, size_t nelems))
VIA_ALIAS(int, shmem_fcollectmem, (shmem_team_t team, void *dest, const void *source, size_t nelems))
VIA_ALIAS(int, shmem_alltoallmem, (shmem_team_t team, void *dest, const void *source, size_t nelems))
VIA_ALIAS(int, shmem_alltoallsmem, (shmem_team_t team, void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst,
                                    size_t nelems))
/* clang-format on */
