/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_BARRIER_H
#define VIA_SHMEM_BARRIER_H

#include "shmem/wait.h"

/*
 * The barrier of all PEs. Within a host it uses the node block: every PE writes its own line and
 * reads the lines of the others. Between hosts the leaders exchange words: hosts.h. With
 * VIADUCT_SHMEM_BARRIER=doorbells each leader instead sends a request to the daemon of its host,
 * and the daemons execute the barrier.
 *
 * After the barrier every PE sees every store that any PE made before it. The barrier does not wait
 * for puts by frames; via_quiet does.
 */
void via_barrier_world(void);

/* Between hosts, with VIADUCT_SHMEM_BARRIER=doorbells. */
void via_barrier_by_doorbells(void);

/*
 * Between PEs of this host. via_store_and_notify sets a word of this PE; all earlier stores are
 * visible before it. The wait is for a word of another PE. One wait state covers all words of a
 * barrier, so a PE that has spun for one peer without success does not spin again for the next.
 */
void via_store_and_notify(_Atomic uint64_t *word, uint64_t value);
void via_wait_here(struct via_wait *wait, const _Atomic uint64_t *word, uint64_t value);

/* Up to VIA_FLAT_PES_MAX PEs poll each other's lines; for more, polling takes longer than
 * rounds. */
#define VIA_FLAT_PES_MAX 16u

#endif
