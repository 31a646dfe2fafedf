/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_GROUP_H
#define VIA_SHMEM_GROUP_H

#include "base/mutant.h"
#include "shmem/hosts.h"
#include "shmem/path.h"

/*
 * The PEs that take part in a collective: those of a team, or a deprecated active set. What they
 * synchronize by is symmetric memory: a team's slot, where words count up for ever (hosts.h), or
 * the caller's pSync, where every word has to come back to zero.
 */
struct via_group {
    int start;
    int stride;
    int size;
    int my_pe;
    struct viaduct_shmem_team *team; /* NULL: an active set that is none (active_team.c) */
    _Atomic uint64_t *words;         /* of an active set: pSync */
    const char *call;                /* for errors */
};

/* The words of a pSync: a barrier has one per child and one more, and this has a use of its own. */
#define VIA_GROUP_ROUNDS_MAX 32u
#define VIA_GROUP_WORD_OFFSET 32u /* collect: where my part begins */

/* call: for errors. */
struct via_group via_group_of_team(const char *call, shmem_team_t team);
struct via_group via_group_of_active_set(const char *call, int start, int log_stride, int size,
                                         long *sync);

static inline int via_group_pe(const struct via_group *group, int number)
{
    return group->start + group->stride * number;
}

/* All have arrived, and what each stored before is seen by all. */
void via_group_sync(struct via_group *group);

/* The same, and puts by frames have arrived as well. */
static inline void via_group_barrier(struct via_group *group)
{
    if (!VIA_MUTANT(SHMEM_NO_QUIET))
        via_quiet();
    via_group_sync(group);
}

/*
 * Few bytes of everybody to everybody, and a barrier with it; of teams. What member i gave can be
 * read in place until the next collective of the team. At most shape.exchange_max bytes, which are
 * 8 at least.
 */
void via_group_exchange(struct via_group *group, const void *mine, size_t bytes);
const char *via_group_exchanged(const struct via_group *group, int number);

/* into[i] = into[i] op from[i] */
typedef void via_reduce_kernel(void *into, const void *from, size_t elements);

/* A collective call, with what its kind needs. */
struct via_task {
    const char *call; /* for errors */
    struct via_group *group;
    void *dest;
    const void *source;
    size_t bytes; /* of each member; collect: of mine */
    int root;
    bool root_too; /* broadcast: dest of the root, too */
    size_t elements, element_bytes;
    via_reduce_kernel *kernel;
    bool inclusive; /* scan */
};

/* By the table: chooses, and runs. */
void via_group_run(enum via_collective collective, const struct via_task *task);

/* --- collective.c ------------------------------------------------------------------------------
 */

void via_group_broadcast(const char *call, struct via_group *group, void *dest, const void *source,
                         size_t bytes, int root, bool root_too);
/* bytes may differ by PE. */
void via_group_collect(const char *call, struct via_group *group, void *dest, const void *source,
                       size_t bytes);
void via_group_fcollect(const char *call, struct via_group *group, void *dest, const void *source,
                        size_t bytes);
void via_group_alltoalls(const char *call, struct via_group *group, void *dest, const void *source,
                         ptrdiff_t dest_stride, ptrdiff_t source_stride, size_t elements,
                         size_t bytes);

/* --- what the table's lines name ----------------------------------------------------------------
 */

typedef void via_algorithm_run(const struct via_task *task);

via_algorithm_run via_broadcast_exchange, via_broadcast_direct, via_broadcast_tree,
    via_broadcast_chain, via_broadcast_torus;
via_algorithm_run via_collect_chain, via_collect_direct, via_collect_leaders;
via_algorithm_run via_fcollect_exchange, via_fcollect_direct, via_fcollect_leaders;
via_algorithm_run via_reduce_exchange, via_reduce_shares, via_reduce_leaders, via_reduce_ring,
    via_reduce_torus, via_reduce_halving;
via_algorithm_run via_alltoall_direct, via_alltoall_exchange;
via_algorithm_run via_scan_exchange, via_scan_direct, via_scan_leaders;

/* --- reduce_run.c -------------------------------------------------------------------------------
 */

/* A piece that stays in the first-level cache while every PE's part is added to it. */
#define VIA_REDUCE_PIECE_BYTES 8192u

/* into op= what members `from` to `to` - 1 have at element `at`, at most a piece. */
void via_reduce_members(const struct via_task *task, void *into, size_t at, size_t count, int from,
                        int to);
/* dest of a leader = what its host has, and of other members = that of their leader. */
void via_reduce_host(const struct via_task *task, const struct via_hosts *hosts);
void via_reduce_spread(const struct via_task *task, const struct via_hosts *hosts);

#endif
