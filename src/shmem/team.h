/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_TEAM_H
#define VIA_SHMEM_TEAM_H

#include <pthread.h>

#include "base/list.h"
#include "shmem/api.h"
#include "shmem/barrier.h"
#include "shmem/world.h"

/* What a PE knows of its teams; team.c's own. */
struct via_teams {
    struct viaduct_shmem_team predefined[2];
    struct via_sync_slot *mapped[2][VIA_FLAT_PES_MAX]; /* of the predefined teams */
    /* Guards what follows: several threads may make and destroy teams, each of a parent of its own.
     */
    pthread_mutex_t lock;
    /* Slots that teams of this PE do not use; those of the predefined teams are never free. */
    uint64_t free_slots;
    struct via_list all;
    /* Contexts that several threads may use, which end with their team at the latest. */
    struct via_list shareable;
    /* The words of a slot count on from team to team: no team of mine that is gone has counted
     * further. */
    uint64_t counted;
};
extern struct via_teams via_teams;

/* The predefined teams, in shmem_init; every team, in the last shmem_finalize. */
void via_team_init(void);
void via_team_fini(void);

#endif
