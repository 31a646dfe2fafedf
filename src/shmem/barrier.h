/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_BARRIER_H
#define VIA_SHMEM_BARRIER_H

#include "shmem/wait.h"

/*
 * The barrier of all PEs. Within a host through its node block: every PE writes its own line and
 * reads the others'. Among hosts the leaders meet: hosts.h. With VIADUCT_SHMEM_BARRIER=doorbells
 * the daemons of the hosts meet instead, each asked by its leader.
 *
 * Everything a PE stored before is seen by all afterwards. Puts by frames are not waited for: that
 * is via_quiet's work.
 */
void via_barrier_world(void);

/* Among hosts, with VIADUCT_SHMEM_BARRIER=doorbells. */
void via_barrier_by_doorbells(void);

/*
 * Between any PEs of this host: a word of mine gets a value, and everything I stored before is seen
 * before it; and a word of another PE is waited for until it has one. One wait goes over all the
 * words of a barrier: a PE that has paused in vain for one peer does not begin again.
 */
void via_store_and_notify(_Atomic uint64_t *word, uint64_t value);
void via_wait_here(struct via_wait *wait, const _Atomic uint64_t *word, uint64_t value);

/* So many PEs look at each other's lines; for more that takes longer than rounds. */
#define VIA_FLAT_PES_MAX 16u

#endif
