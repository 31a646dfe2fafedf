/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_WORLD_MAKE_H
#define VIA_SHMEM_WORLD_MAKE_H

#include "base/error.h"
#include "shmem/job.h"

/* The steps of shmem_init, in this order; a gate lies between attach and compare_programs. */
int via_world_find_job(struct via_error *err) VIA_MUST_CHECK;
int via_world_make_peers(struct via_error *err) VIA_MUST_CHECK;
int via_world_map_heaps(struct via_error *err) VIA_MUST_CHECK;
int via_world_share_data(struct via_error *err) VIA_MUST_CHECK;
int via_world_attach(struct via_error *err) VIA_MUST_CHECK;
void via_world_compare_programs(void);
void via_world_open_hot(void);

/* Registers a region of this PE with the host's daemon, for PEs of other hosts: once, and again
 * after growing. */
int via_world_offer(enum via_region region, int fd, size_t bytes,
                    struct via_error *err) VIA_MUST_CHECK;

/* The end of the last shmem_finalize. */
void via_world_release(void);

#endif
