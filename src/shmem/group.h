/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_GROUP_H
#define VIA_SHMEM_GROUP_H

#include "base/mutant.h"
#include "shmem/hosts.h"
#include "shmem/path.h"

/*
 * The PEs that take part in a collective: those of a team, or of a deprecated active set. They
 * synchronize in symmetric memory: in a team's slot, whose words only count up (hosts.h), or in the
 * caller's pSync, whose words must all be zero again at the end.
 */
struct via_group {
    int start;
    int stride;
    int size;
    int my_pe;
    struct viaduct_shmem_team *team; /* NULL: an active set without a team (active_team.c) */
    _Atomic uint64_t *words;         /* of an active set: pSync */
    const char *call;                /* for errors */
};

/* The words of a pSync: a barrier uses one per child and one more; the word below has its own
 * use. */
#define VIA_GROUP_ROUNDS_MAX 32u
#define VIA_GROUP_WORD_OFFSET 32u /* collect: offset of this PE's part */

/* call: for error messages. */
struct via_group via_group_of_team(const char *call, shmem_team_t team);
struct via_group via_group_of_active_set(const char *call, int start, int log_stride, int size,
                                         long *sync);

static inline int via_group_pe(const struct via_group *group, int number)
{
    return group->start + group->stride * number;
}

/* Returns when all members have arrived; the stores that each made before are then visible to
 * all. */
void via_group_sync(struct via_group *group);

/* The same; puts by frames have arrived, too. */
static inline void via_group_barrier(struct via_group *group)
{
    if (!VIA_MUTANT(SHMEM_NO_QUIET))
        via_quiet();
    via_group_sync(group);
}

/*
 * All-to-all exchange of few bytes on a team, with a barrier. The bytes of member i can be read in
 * place until the next collective of the team. At most shape.exchange_max bytes, which is at least
 * 8.
 */
void via_group_exchange(struct via_group *group, const void *mine, size_t bytes);
const char *via_group_exchanged(const struct via_group *group, int number);

/* into[i] = into[i] op from[i] */
typedef void via_reduce_kernel(void *into, const void *from, size_t elements);

/* A collective call, with the arguments of its kind. */
struct via_task {
    const char *call; /* for errors */
    struct via_group *group;
    void *dest;
    const void *source;
    size_t bytes; /* of each member; collect: of this PE */
    int root;
    bool root_too; /* broadcast: the root's dest is written, too */
    size_t elements, element_bytes;
    via_reduce_kernel *kernel;
    bool inclusive; /* scan */
};

/* Chooses an algorithm from the table, and runs it. */
void via_group_run(enum via_collective collective, const struct via_task *task);

/* --- collective.c ---------------------------------------------------------------------------- */

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

/* --- the functions that the table names ------------------------------------------------------ */

typedef void via_algorithm_run(const struct via_task *task);

via_algorithm_run via_broadcast_exchange, via_broadcast_direct, via_broadcast_tree,
    via_broadcast_chain, via_broadcast_torus;
via_algorithm_run via_collect_chain, via_collect_direct, via_collect_leaders;
via_algorithm_run via_fcollect_exchange, via_fcollect_direct, via_fcollect_leaders;
via_algorithm_run via_reduce_exchange, via_reduce_shares, via_reduce_leaders, via_reduce_ring,
    via_reduce_torus, via_reduce_halving;
via_algorithm_run via_alltoall_direct, via_alltoall_exchange;
via_algorithm_run via_scan_exchange, via_scan_direct, via_scan_leaders;

/* --- reduce_run.c ---------------------------------------------------------------------------- */

/* A piece that stays in the first-level cache while the parts of all PEs are added to it. */
#define VIA_REDUCE_PIECE_BYTES 8192u

/* into op= elements `at` and following of members `from` to `to` - 1, at most a piece. */
void via_reduce_members(const struct via_task *task, void *into, size_t at, size_t count, int from,
                        int to);
/* Combines within a host: dest of the leader = the result of its host; dest of other members = dest
 * of their leader. */
void via_reduce_host(const struct via_task *task, const struct via_hosts *hosts);
void via_reduce_spread(const struct via_task *task, const struct via_hosts *hosts);

#endif
