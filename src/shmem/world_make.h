/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_WORLD_MAKE_H
#define VIA_SHMEM_WORLD_MAKE_H

#include "base/error.h"

/* The steps of shmem_init, in this order; a gate lies between attach and map_data. */
int via_world_find_job(struct via_error *err) VIA_MUST_CHECK;
int via_world_make_peers(struct via_error *err) VIA_MUST_CHECK;
int via_world_map_heaps(struct via_error *err) VIA_MUST_CHECK;
int via_world_share_data(struct via_error *err) VIA_MUST_CHECK;
int via_world_attach(struct via_error *err) VIA_MUST_CHECK;
int via_world_map_data(struct via_error *err) VIA_MUST_CHECK;
void via_world_open_hot(void);

/* The end of the last shmem_finalize. */
void via_world_release(void);

#endif
