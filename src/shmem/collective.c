/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Collectives that move data. Everybody puts what is his to where it belongs, then all wait for
 * each other: the standard lets a PE enter only when everybody's dest may be written, so there is
 * nothing to wait for before.
 */
#include "shmem/barrier.h"
#include "shmem/group.h"
#include "shmem/round.h"
#include "shmem/strided.h"

/* All PEs of a job of several hosts, whose barriers can take few bytes along: they come sooner than
 * by puts. */
static bool goes_with_barrier(const struct via_group *group, size_t bytes)
{
    return group->team && !group->team->mapped && bytes > 0 && bytes <= VIA_SYNC_LINE_BYTES &&
           bytes <= via_group_exchange_max(group);
}

static void put_from_root(const char *call, const struct via_group *group, void *dest,
                          const void *source, size_t bytes, int root)
{
    if (bytes > 0 && via_group_is_far(group)) {
        via_round_cast(call, dest, source, bytes, root);
        return;
    }
    for (int i = 1; i < group->size && group->my_pe == root; i++)
        via_put(call, dest, source, bytes, via_group_pe(group, (root + i) % group->size));
}

void via_group_broadcast(const char *call, struct via_group *group, void *dest, const void *source,
                         size_t bytes, int root, bool root_too)
{
    if (root < 0 || root >= group->size)
        via_fatal("%s: PE_root %d: there are PEs 0 to %d", call, root, group->size - 1);
    if (goes_with_barrier(group, bytes)) {
        static const char nothing[VIA_SYNC_LINE_BYTES];
        via_group_exchange(group, group->my_pe == root ? source : nothing, bytes);
        if (group->my_pe != root || root_too)
            memcpy(dest, via_group_exchanged(group, root), bytes);
        return;
    }
    put_from_root(call, group, dest, source, bytes, root);
    if (group->my_pe == root && root_too)
        memmove(dest, source, bytes);
    via_group_barrier(group);
}

/* To everybody, beginning behind me, so that not all write to the same PE. */
static void put_to_all(const char *call, const struct via_group *group, void *dest,
                       const void *source, size_t bytes)
{
    for (int i = 1; i < group->size; i++)
        via_put(call, dest, source, bytes, via_group_pe(group, (group->my_pe + i) % group->size));
    memmove(dest, source, bytes);
}

void via_group_fcollect(const char *call, struct via_group *group, void *dest, const void *source,
                        size_t bytes)
{
    if (goes_with_barrier(group, bytes)) {
        via_group_exchange(group, source, bytes);
        for (int i = 0; i < group->size; i++)
            memcpy((char *)dest + (size_t)i * bytes, via_group_exchanged(group, i), bytes);
        return;
    }
    char *my_place = (char *)dest + (size_t)group->my_pe * bytes;
    if (bytes > 0 && via_group_is_far(group)) {
        memmove(my_place, source, bytes);
        via_barrier_gather(call, dest, bytes);
        return;
    }
    put_to_all(call, group, my_place, source, bytes);
    via_group_barrier(group);
}

/* Where my part begins is told by the PE before me; plus one, so that it is never the zero of a
 * word that has not been told. */
static uint64_t learn_offset(struct via_group *group, size_t bytes)
{
    _Atomic uint64_t *word = &group->words[VIA_GROUP_WORD_OFFSET];
    uint64_t off = 0;

    if (group->my_pe > 0) {
        struct via_wait wait = VIA_WAIT_INIT;
        while ((off = atomic_load_explicit(word, memory_order_acquire)) == 0)
            via_wait_step(&wait);
        via_wait_done(&wait);
        off--;
        if (!VIA_MUTANT(SHMEM_OLD_OFFSET))
            atomic_store_explicit(word, 0, memory_order_relaxed);
    }
    if (group->my_pe + 1 < group->size)
        via_put_word(via_group_word(group, group->my_pe + 1, VIA_GROUP_WORD_OFFSET),
                     off + bytes + 1, via_group_pe(group, group->my_pe + 1));
    return off;
}

void via_group_collect(const char *call, struct via_group *group, void *dest, const void *source,
                       size_t bytes)
{
    uint64_t off = learn_offset(group, bytes);

    put_to_all(call, group, (char *)dest + off, source, bytes);
    via_group_barrier(group);
}

void via_group_alltoalls(const char *call, struct via_group *group, void *dest, const void *source,
                         ptrdiff_t dest_stride, ptrdiff_t source_stride, size_t elements,
                         size_t bytes)
{
    ptrdiff_t dest_step = dest_stride * (ptrdiff_t)(elements * bytes);
    ptrdiff_t source_step = source_stride * (ptrdiff_t)(elements * bytes);

    for (int i = 0; i < group->size; i++) {
        int number = (group->my_pe + i) % group->size;
        void *to = (char *)dest + group->my_pe * dest_step;
        const void *from = (const char *)source + number * source_step;
        if (dest_stride == 1 && source_stride == 1)
            via_put(call, to, from, elements * bytes, via_group_pe(group, number));
        else
            via_strided_put(call, to, from, dest_stride, source_stride, 1, elements, bytes,
                            via_group_pe(group, number));
    }
    via_group_barrier(group);
}

/* --- the calls on teams ------------------------------------------------------------------------
 */

static int broadcast(const char *call, shmem_team_t team, void *dest, const void *source,
                     size_t bytes, int root)
{
    struct via_group group = via_group_of_team(team);
    via_group_broadcast(call, &group, dest, source, bytes, root, true);
    return 0;
}

static int collect(const char *call, shmem_team_t team, void *dest, const void *source,
                   size_t bytes)
{
    struct via_group group = via_group_of_team(team);
    via_group_collect(call, &group, dest, source, bytes);
    return 0;
}

static int fcollect(const char *call, shmem_team_t team, void *dest, const void *source,
                    size_t bytes)
{
    struct via_group group = via_group_of_team(team);
    via_group_fcollect(call, &group, dest, source, bytes);
    return 0;
}

static int alltoalls(const char *call, shmem_team_t team, void *dest, const void *source,
                     ptrdiff_t dst, ptrdiff_t sst, size_t elements, size_t bytes)
{
    struct via_group group = via_group_of_team(team);
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
