/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_BARRIER_H
#define VIA_SHMEM_BARRIER_H

#include "shmem/wait.h"

/*
 * The barrier of all PEs. Within a host through its node block: every PE writes its own line and
 * reads the others'. Among hosts the leaders (the first PE of each) tell their neighbours, by words
 * that are put like any other data, so it works over every path and while links are cut and mended.
 * Hosts are neighbours in the order in which the job names them. With
 * VIADUCT_SHMEM_BARRIER=doorbells the daemons of the hosts meet instead, each asked by its leader.
 *
 * Everything a PE stored before is seen by all afterwards. Puts by frames are not waited for: that
 * is via_quiet's work.
 */
void via_barrier_world(void);

/* What a PE knows of its barriers; their own. */
struct via_barriers {
    /* How many it has begun. Counts on over shmem_finalize and another shmem_init, as words do. */
    uint64_t epoch;
    size_t carried_stride; /* of the places in what the last one carried */
    uint64_t cast_pieces;  /* that all via_round_cast together have passed */
};
extern struct via_barriers via_barriers;

/* Among hosts, with VIADUCT_SHMEM_BARRIER=doorbells. */
void via_barrier_by_doorbells(void);

/*
 * The same, and it carries up to via_barrier_carry_max() bytes of each PE to all: among hosts, from
 * neighbour to neighbour. What PE `pe` gave can be read in place until the next barrier. The
 * maximum is 0 when barriers do not go this way.
 */
size_t via_barrier_carry_max(void);
void via_barrier_carry(const void *mine, size_t bytes);
const void *via_barrier_carried(int pe);

/* Whether barriers go from neighbour to neighbour; then this does, too: */
bool via_barrier_goes_round(void);

/* A symmetric array with `bytes` of each PE, of which each has filled its own: on return all are
 * filled. */
void via_barrier_gather(const char *call, void *array, size_t bytes);

/*
 * The same between any PEs of this host: a word of mine gets a value, and everything I stored
 * before is seen before it; and a word of another PE is waited for until it has one. One wait goes
 * over all the words of a barrier: who has paused in vain for one PE does not begin again.
 */
void via_tell_here(_Atomic uint64_t *word, uint64_t value);
void via_wait_here(struct via_wait *wait, const _Atomic uint64_t *word, uint64_t value);

/* So many PEs look at each other's lines; for more that takes longer than rounds. */
#define VIA_FLAT_PES_MAX 16u

#endif
