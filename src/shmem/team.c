/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* OpenSHMEM 1.6, section 9.4: teams; 9.5: contexts; 9.9: sessions. */
#include "shmem/team.h"

#include <stdlib.h>

#include "shmem/barrier.h"
#include "shmem/group.h"

struct via_teams via_teams;

struct team_entry {
    struct viaduct_shmem_team team;
    struct via_list link;
};

struct viaduct_shmem_team *via_team(shmem_team_t handle)
{
    if (handle == SHMEM_TEAM_WORLD || handle == SHMEM_TEAM_SHARED)
        return &via_teams.predefined[(uintptr_t)handle - (uintptr_t)SHMEM_TEAM_WORLD];
    return handle;
}

static void set_members(struct viaduct_shmem_team *team, int start, int stride, int size, int my_pe,
                        unsigned slot)
{
    int last = start + stride * (size - 1);

    team->start = start;
    team->stride = stride;
    team->size = size;
    team->my_pe = my_pe;
    team->slot = slot;
    /* The PEs of a host are consecutive. */
    team->here = (unsigned)size <= VIA_FLAT_PES_MAX &&
                 via_world.job->pes[start].node == via_world.job->pes[last].node;
}

void via_team_init(void)
{
    uint32_t node = via_world.me->node;
    int first = via_hot.my_pe - (int)via_world.me->local;

    if (via_world.job->pes[first].node != node)
        via_fatal("the PEs of node %u are not consecutive", node);
    /* Their words and so what counts them outlive shmem_finalize. */
    set_members(&via_teams.predefined[0], 0, 1, via_hot.n_pes, via_hot.my_pe, 0);
    set_members(&via_teams.predefined[1], first, 1, (int)via_world.node->locals_count,
                (int)via_world.me->local, 1);
    via_teams.free_slots = ~UINT64_C(3);
    via_list_init(&via_teams.all);
}

static void keep_count(const struct viaduct_shmem_team *team)
{
    via_teams.counted = via_max(via_teams.counted, via_max(team->epoch, team->exchanges));
}

void via_team_fini(void)
{
    struct via_list *link;

    while ((link = via_list_pop_front(&via_teams.all)) != NULL) {
        struct team_entry *entry = via_list_entry(link, struct team_entry, link);
        keep_count(&entry->team);
        free(entry);
    }
}

/* --- making teams ------------------------------------------------------------------------------
 */

/* A part of a parent team, in the parent's numbers. */
struct part {
    int start;
    int stride;
    int size;
};

static bool part_is_valid(const struct viaduct_shmem_team *parent, const struct part *part)
{
    int64_t last = (int64_t)part->start + (int64_t)part->stride * (part->size - 1);

    return part->size >= 1 && part->start >= 0 && part->start < parent->size && last >= 0 &&
           last < parent->size && (part->stride != 0 || part->size == 1);
}

/* My number in the part, or -1. */
static int number_in(const struct part *part, int pe)
{
    int off = pe - part->start;

    if (part->stride == 0 || part->size == 1)
        return off == 0 ? 0 : -1;
    if (off % part->stride != 0)
        return -1;
    int number = off / part->stride;
    return number >= 0 && number < part->size ? number : -1;
}

/* Slots that are free at every PE of the parent, and a number up to which words of none of them
 * count. */
struct agreement {
    uint64_t slots;
    uint64_t counted;
};
_Static_assert(sizeof(struct agreement) ==
                   (VIA_GROUP_WORD_AGREE_ALL - VIA_GROUP_WORD_AGREE_MINE) * sizeof(uint64_t),
               "as many words");

static void agree(void *into, const void *from, size_t elements)
{
    struct agreement *all = into;
    const struct agreement *more = from;

    for (size_t i = 0; i < elements; i++) {
        all[i].slots &= more[i].slots;
        all[i].counted = via_max(all[i].counted, more[i].counted);
    }
}

static struct agreement agree_on_slots(struct viaduct_shmem_team *parent)
{
    struct via_group group = via_group_of_team(parent);
    struct agreement *mine = (void *)&group.words[VIA_GROUP_WORD_AGREE_MINE];
    struct agreement *all = (void *)&group.words[VIA_GROUP_WORD_AGREE_ALL];

    *mine = (struct agreement){via_teams.free_slots, via_teams.counted};
    via_group_reduce("team creation", &group, all, mine, 1, sizeof(*mine), agree);
    return *all;
}

/* The caller synchronizes the parent before anybody uses the team's words. */
static shmem_team_t make_team(const struct viaduct_shmem_team *parent, const struct part *part,
                              unsigned slot, uint64_t begin, const shmem_team_config_t *config,
                              long config_mask)
{
    int number = number_in(part, parent->my_pe);

    if (number < 0)
        return SHMEM_TEAM_INVALID;
    struct team_entry *entry = calloc(1, sizeof(*entry));
    if (!entry)
        via_fatal("team creation: out of memory");
    set_members(&entry->team, parent->start + parent->stride * part->start,
                parent->stride * part->stride, part->size, number, slot);
    if (config && (config_mask & SHMEM_TEAM_NUM_CONTEXTS))
        entry->team.config.num_contexts = config->num_contexts;
    via_list_push_back(&via_teams.all, &entry->link);
    via_teams.free_slots &= ~(UINT64_C(1) << slot);
    /* Words are not set to zero: a member of the team that had the slot before may still be looking
     * at them, in its last barrier. */
    entry->team.epoch = entry->team.exchanges = begin;
    return &entry->team;
}

static void sync_parent(struct viaduct_shmem_team *parent)
{
    struct via_group group = via_group_of_team(parent);

    via_group_barrier(&group);
}

int pshmem_team_split_strided(shmem_team_t parent_team, int start, int stride, int size,
                              const shmem_team_config_t *config, long config_mask,
                              shmem_team_t *new_team)
{
    struct part part = {start, stride, size};

    *new_team = SHMEM_TEAM_INVALID;
    if (parent_team == SHMEM_TEAM_INVALID)
        return -1;
    struct viaduct_shmem_team *parent = via_team(parent_team);
    if (!part_is_valid(parent, &part))
        return -1;
    struct agreement all = agree_on_slots(parent);
    if (all.slots == 0)
        return -1;
    *new_team = make_team(parent, &part, (unsigned)__builtin_ctzll(all.slots), all.counted, config,
                          config_mask);
    sync_parent(parent);
    return 0;
}

int pshmem_team_split_2d(shmem_team_t parent_team, int xrange,
                         const shmem_team_config_t *xaxis_config, long xaxis_mask,
                         shmem_team_t *xaxis_team, const shmem_team_config_t *yaxis_config,
                         long yaxis_mask, shmem_team_t *yaxis_team)
{
    *xaxis_team = *yaxis_team = SHMEM_TEAM_INVALID;
    if (parent_team == SHMEM_TEAM_INVALID || xrange < 1)
        return -1;
    struct viaduct_shmem_team *parent = via_team(parent_team);
    xrange = via_min(xrange, parent->size);
    struct agreement all = agree_on_slots(parent);
    if ((all.slots & (all.slots - 1)) == 0)
        return -1;
    unsigned x_slot = (unsigned)__builtin_ctzll(all.slots);
    unsigned y_slot = (unsigned)__builtin_ctzll(all.slots & (all.slots - 1));
    int x = parent->my_pe % xrange, y = parent->my_pe / xrange;
    struct part row = {y * xrange, 1, via_min(xrange, parent->size - y * xrange)};
    struct part column = {x, xrange, (parent->size - x + xrange - 1) / xrange};
    *xaxis_team = make_team(parent, &row, x_slot, all.counted, xaxis_config, xaxis_mask);
    *yaxis_team = make_team(parent, &column, y_slot, all.counted, yaxis_config, yaxis_mask);
    sync_parent(parent);
    return 0;
}

void pshmem_team_destroy(shmem_team_t team)
{
    if (team == SHMEM_TEAM_INVALID || team == SHMEM_TEAM_WORLD || team == SHMEM_TEAM_SHARED)
        return;
    struct team_entry *entry = via_container_of(team, struct team_entry, team);
    struct via_group group = via_group_of_team(team);
    /* Everybody has taken what its last collective brought, before the slot has another team. */
    via_group_sync(&group);
    keep_count(team);
    via_teams.free_slots |= UINT64_C(1) << team->slot;
    via_list_remove(&entry->link);
    free(entry);
}

/* --- asking teams ------------------------------------------------------------------------------
 */

int pshmem_team_my_pe(shmem_team_t team)
{
    return team == SHMEM_TEAM_INVALID ? -1 : via_team(team)->my_pe;
}

int pshmem_team_n_pes(shmem_team_t team)
{
    return team == SHMEM_TEAM_INVALID ? -1 : via_team(team)->size;
}

int pshmem_team_get_config(shmem_team_t team, long config_mask, shmem_team_config_t *config)
{
    if (team == SHMEM_TEAM_INVALID)
        return -1;
    if (config_mask & SHMEM_TEAM_NUM_CONTEXTS)
        config->num_contexts = via_team(team)->config.num_contexts;
    return 0;
}

int pshmem_team_translate_pe(shmem_team_t src_team, int src_pe, shmem_team_t dest_team)
{
    if (src_team == SHMEM_TEAM_INVALID || dest_team == SHMEM_TEAM_INVALID)
        return -1;
    const struct viaduct_shmem_team *from = via_team(src_team), *to = via_team(dest_team);
    if (src_pe < 0 || src_pe >= from->size)
        return -1;
    struct part part = {to->start, to->stride, to->size};
    return number_in(&part, from->start + from->stride * src_pe);
}

void *pshmem_team_ptr(shmem_team_t team, const void *dest, int pe)
{
    int world_pe = pshmem_team_translate_pe(team, pe, SHMEM_TEAM_WORLD);

    return world_pe < 0 ? NULL : via_path_pointer(dest, world_pe);
}

int pshmem_team_sync(shmem_team_t team)
{
    if (team == SHMEM_TEAM_INVALID)
        return -1;
    struct via_group group = via_group_of_team(team);
    via_group_sync(&group);
    return 0;
}

/* --- contexts ----------------------------------------------------------------------------------
 */

/* Every way completes in order and at once, or by one quiet for all, so that a context is no more
 * than its team's numbers. */
static int create_ctx(struct viaduct_shmem_team *team, long options, shmem_ctx_t *ctx)
{
    *ctx = malloc(sizeof(**ctx));
    if (!*ctx)
        return -1;
    **ctx = (struct viaduct_shmem_ctx){.team = team, .options = options};
    return 0;
}

int pshmem_ctx_create(long options, shmem_ctx_t *ctx)
{
    return create_ctx(NULL, options, ctx);
}

int pshmem_team_create_ctx(shmem_team_t team, long options, shmem_ctx_t *ctx)
{
    *ctx = SHMEM_CTX_INVALID;
    if (team == SHMEM_TEAM_INVALID)
        return -1;
    return create_ctx(team == SHMEM_TEAM_WORLD ? NULL : via_team(team), options, ctx);
}

void pshmem_ctx_destroy(shmem_ctx_t ctx)
{
    if (ctx == SHMEM_CTX_INVALID || ctx == SHMEM_CTX_DEFAULT)
        return;
    via_quiet();
    free(ctx);
}

int pshmem_ctx_get_team(shmem_ctx_t ctx, shmem_team_t *team)
{
    *team = SHMEM_TEAM_INVALID;
    if (ctx == SHMEM_CTX_INVALID)
        return -1;
    if (ctx == SHMEM_CTX_DEFAULT || !ctx->team)
        *team = SHMEM_TEAM_WORLD;
    else
        *team = ctx->team == via_team(SHMEM_TEAM_SHARED) ? SHMEM_TEAM_SHARED : ctx->team;
    return 0;
}

/* Sessions are hints; there is nothing to be gained from them on these ways. */
void pshmem_ctx_session_start(shmem_ctx_t ctx, long options,
                              const shmem_ctx_session_config_t *config, long config_mask)
{
    (void)ctx;
    (void)options;
    (void)config;
    (void)config_mask;
}

void pshmem_ctx_session_stop(shmem_ctx_t ctx)
{
    (void)ctx;
}

VIADUCT_SHMEM_TEAM_ENTRIES(VIA_ALIAS)
VIA_ALIAS(int, shmem_team_sync, (shmem_team_t team))
