/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_TEAM_H
#define VIA_SHMEM_TEAM_H

#include <pthread.h>

#include "base/list.h"
#include "shmem/api.h"
#include "shmem/barrier.h"
#include "shmem/world.h"

/* State of all teams of a PE; private to team.c. */
struct via_teams {
    struct viaduct_shmem_team predefined[2];
    struct via_sync_slot *mapped[2][VIA_FLAT_PES_MAX]; /* arrays of the predefined teams */
    /* Guards the fields below: several threads may make and destroy teams at the same time, with
     * different parents.
     */
    pthread_mutex_t lock;
    /* Slots that no team of this PE uses; those of the predefined teams are never free. */
    uint64_t free_slots;
    struct via_active_set *sets; /* owned by active_team.c; the set of the last call is the first */
    uint64_t free_set_slots;     /* bit i: VIA_TEAMS_MAX + i, for active sets */
    struct via_list all;
    /* Shared contexts, which end at the latest with their team. */
    struct via_list shareable;
    /* The words of a slot are not reset for a new team: this is the largest value in any former
     * team of this PE. */
    uint64_t counted;
};
extern struct via_teams via_teams;

/* The predefined teams, in shmem_init; every team, in the last shmem_finalize. */
void via_team_init(void);
void via_team_fini(void);

/* For an active set: the free ones of the VIA_SETS_MAX slots of this PE as bits, and
 * via_teams.counted; then the team, in a slot that is free at all members. For programs without
 * threads only. */
uint64_t via_team_offer_of_set(uint64_t *ret_counted);
struct viaduct_shmem_team *via_team_of_set(int start, int stride, int size, int my_pe,
                                           unsigned number, uint64_t begin);

/*
 * active_team.c: the team of an active set. Collective at the first call with a set: its members
 * agree through `tree`, which gives all of them the combination of their words
 * (via_active_combine); later calls look the team up. NULL: no slot is free at all members.
 */
typedef uint64_t via_active_tree(void *argument, uint64_t mine);
struct viaduct_shmem_team *via_active_team(int start, int stride, int size, int my_pe,
                                           via_active_tree *tree, void *argument);
uint64_t via_active_combine(uint64_t a, uint64_t b);
void via_active_team_fini(void);

#endif
