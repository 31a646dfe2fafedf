/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_GROUP_H
#define VIA_SHMEM_GROUP_H

#include "base/mutant.h"
#include "shmem/api.h"
#include "shmem/path.h"

/*
 * The PEs that take part in a collective: those of a team, or a deprecated active set. What they
 * synchronize by is symmetric memory: a team's slot, where words count up for ever, or the caller's
 * pSync, where every word has to come back to zero.
 */
struct via_group {
    int start;
    int stride;
    int size;
    int my_pe;
    struct viaduct_shmem_team *team; /* NULL: an active set */
    _Atomic uint64_t *words;         /* mine: VIA_SYNC_WORDS of the slot, or pSync */
};

/* The words of a group: a barrier has one per round, and these have uses of their own. */
#define VIA_GROUP_ROUNDS_MAX 32u
#define VIA_GROUP_WORD_OFFSET 32u /* collect: where my part begins */

struct via_group via_group_of_team(shmem_team_t team);
/* call: for errors. */
struct via_group via_group_of_active_set(const char *call, int start, int log_stride, int size,
                                         long *sync);

static inline int via_group_pe(const struct via_group *group, int number)
{
    return group->start + group->stride * number;
}

/* A word of another member, as my address of it. */
static inline _Atomic uint64_t *via_group_word(const struct via_group *group, int number,
                                               unsigned word)
{
    return group->team ? &via_internal()->teams[via_team_slot(group->team, number)].words[word]
                       : &group->words[word];
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
 * Few bytes of everybody to everybody, and a barrier with it: among PEs of one host that are not
 * many, and among all PEs. What member i gave can be read in place until the next exchange of the
 * group.
 */
size_t via_group_exchange_max(const struct via_group *group); /* bytes; 0 = not at all */
void via_group_exchange(struct via_group *group, const void *mine, size_t bytes);
const char *via_group_exchanged(const struct via_group *group, int number);

/* All PEs of a job of so many hosts that some are not neighbours, and whose barriers go round: what
 * neighbours pass on comes sooner than by frames, for which daemons have to wake up. */
bool via_group_is_far(const struct via_group *group);

/* --- collectives of bytes: collective.c --------------------------------------------------------
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

/* --- and of numbers: reduce.c ------------------------------------------------------------------
 */

/* into[i] = into[i] op from[i] */
typedef void via_reduce_kernel(void *into, const void *from, size_t elements);

void via_group_reduce(const char *call, struct via_group *group, void *dest, const void *source,
                      size_t elements, size_t bytes, via_reduce_kernel *kernel);
void via_group_scan(const char *call, struct via_group *group, void *dest, const void *source,
                    size_t elements, size_t bytes, via_reduce_kernel *kernel, bool inclusive);

#endif
