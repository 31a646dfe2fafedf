/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Active sets as teams: a team knows its hosts, so its collectives use leaders, trees and rings. A
 * set becomes a team at its first call and stays one until shmem_finalize. All members also
 * remember the sets that got no slot: they synchronize by pSync, as do all sets in programs with
 * SHMEM_THREAD_MULTIPLE, where two threads may be in one set at the same time (ADR 34).
 */
#include <stdlib.h>

#include "shmem/team.h"

struct via_active_set {
    struct via_active_set *next;
    int start, stride, size;
    struct viaduct_shmem_team *team; /* NULL: the set has no slot */
};

/* The word that each member contributes to the agreement. It is never zero: bit 0 is 1; then come
 * the slots that are free, one bit each, and via_teams.counted. */
#define SLOTS_SHIFT 1u
#define COUNTED_SHIFT (SLOTS_SHIFT + VIA_SETS_MAX)
#define SLOTS_MASK (((UINT64_C(1) << VIA_SETS_MAX) - 1) << SLOTS_SHIFT | 1)

uint64_t via_active_combine(uint64_t a, uint64_t b)
{
    return via_max(a >> COUNTED_SHIFT, b >> COUNTED_SHIFT) << COUNTED_SHIFT | (a & b & SLOTS_MASK);
}

static struct via_active_set *find(int start, int stride, int size)
{
    struct via_active_set **link = &via_teams.sets, *set;

    for (; (set = *link) != NULL; link = &set->next) {
        if (set->start != start || set->stride != stride || set->size != size)
            continue;
        *link = set->next;
        set->next = via_teams.sets;
        return via_teams.sets = set;
    }
    return NULL;
}

struct viaduct_shmem_team *via_active_team(int start, int stride, int size, int my_pe,
                                           via_active_tree *tree, void *argument)
{
    struct via_active_set *set = find(start, stride, size);
    uint64_t counted;

    if (set)
        return set->team;
    set = malloc(sizeof(*set));
    if (!set)
        via_fatal("active set of %d PEs: out of memory", size);
    uint64_t slots = via_team_offer_of_set(&counted);
    uint64_t all = tree(argument, counted << COUNTED_SHIFT | slots << SLOTS_SHIFT | 1);
    *set = (struct via_active_set){
        .next = via_teams.sets, .start = start, .stride = stride, .size = size};
    slots = (all & SLOTS_MASK) >> SLOTS_SHIFT;
    if (slots)
        set->team = via_team_of_set(start, stride, size, my_pe, (unsigned)__builtin_ctzll(slots),
                                    all >> COUNTED_SHIFT);
    via_teams.sets = set;
    return set->team;
}

void via_active_team_fini(void)
{
    struct via_active_set *set;

    while ((set = via_teams.sets) != NULL) {
        via_teams.sets = set->next;
        free(set);
    }
}
