/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_TEAM_H
#define VIA_SHMEM_TEAM_H

/* The predefined teams, in shmem_init; every team, in the last shmem_finalize. */
void via_team_init(void);
void via_team_fini(void);

#endif
