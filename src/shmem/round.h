/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_ROUND_H
#define VIA_SHMEM_ROUND_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Round the hosts of a job, both ways, from neighbour to neighbour: everything goes through the
 * windows of neighbours, so no daemon has to wake up and none has to relay. The leaders of the
 * hosts (the first PE of each) do it. Hosts are neighbours in the order in which the job names
 * them; where they are not, frames carry the same words.
 */

/* On so many hosts: half as many rounds, each of a store or two. With more, fewer rounds of frames
 * win. */
#define VIA_ROUND_NODES_MAX 16u

/* An array at the leader of each host, symmetric, with a place of `stride` bytes for each PE: who
 * has filled those of his host gets those of all. NULL: nothing is taken along. */
struct via_round_load {
    char *base;
    size_t stride;
};

/*
 * All leaders, each with the same epoch, which grows from round to round. On return all have come,
 * and their hosts' places are filled here.
 */
void via_round_go(uint64_t epoch, const struct via_round_load *load);

/*
 * `bytes` at the root to `dest` of every PE but the root, by a chain of hosts each way. All PEs of
 * the job call it; on return the caller's dest is not filled yet, a barrier has to follow.
 */
void via_round_cast(const char *call, void *dest, const void *source, size_t bytes, int root);

/* The first PE of a host. */
int via_round_leader(uint32_t node);

/* Waits until a word of mine, which only grows, has reached a value. */
void via_round_hear(const _Atomic uint64_t *word, uint64_t value);

#endif
