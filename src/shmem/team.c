/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* OpenSHMEM 1.6, section 9.4: teams; 9.5: contexts; 9.9: sessions. */
#include "shmem/team.h"

#include <stdlib.h>

#include "shmem/group.h"
#include "shmem/peer.h"

struct via_teams via_teams = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct team_entry {
    struct viaduct_shmem_team team;
    struct via_list link;
    struct via_sync_slot *mapped[VIA_FLAT_PES_MAX];
    unsigned char slots[]; /* of each member; none for an active set: all have one */
};

static struct team_entry *new_entry(int slots)
{
    struct team_entry *entry = calloc(1, sizeof(*entry) + (size_t)slots);

    if (!entry)
        via_fatal("team creation: out of memory");
    return entry;
}

struct viaduct_shmem_team *via_team(shmem_team_t handle)
{
    if (handle == SHMEM_TEAM_WORLD || handle == SHMEM_TEAM_SHARED)
        return &via_teams.predefined[(uintptr_t)handle - (uintptr_t)SHMEM_TEAM_WORLD];
    return handle;
}

/* The slots of the members must already be set. `mapped` has VIA_FLAT_PES_MAX places, and lives as
 * long as the team. */
static void set_members(struct viaduct_shmem_team *team, int start, int stride, int size, int my_pe,
                        struct via_sync_slot *mapped[])
{
    int last = start + stride * (size - 1);

    team->start = start;
    team->stride = stride;
    team->size = size;
    team->my_pe = my_pe;
    /* The PEs of a host are consecutive. */
    if ((unsigned)size > VIA_FLAT_PES_MAX ||
        via_world.job->pes[start].node != via_world.job->pes[last].node ||
        via_world.job->pes[start].node != via_world.me->node)
        return;
    team->mapped = mapped;
    for (int i = 0; i < size; i++) {
        char *heap = via_peer_base(VIA_REGION_HEAP, start + stride * i);
        mapped[i] = &((struct via_internal *)(void *)heap)->teams[via_team_slot(team, i)];
    }
}

void via_team_init(void)
{
    uint32_t node = via_world.me->node;
    int first = via_hot.my_pe - (int)via_world.me->local;

    if (via_world.job->pes[first].node != node)
        via_fatal("the PEs of node %u are not consecutive", node);
    /* The words, and so their counters, outlive shmem_finalize. */
    for (unsigned i = 0; i < 2; i++)
        via_teams.predefined[i].slot = i;
    set_members(&via_teams.predefined[0], 0, 1, via_hot.n_pes, via_hot.my_pe, via_teams.mapped[0]);
    set_members(&via_teams.predefined[1], first, 1, (int)via_world.node->locals_count,
                (int)via_world.me->local, via_teams.mapped[1]);
    via_teams.free_slots = ~UINT64_C(3);
    via_teams.free_set_slots = (UINT64_C(1) << VIA_SETS_MAX) - 1;
    via_list_init(&via_teams.all);
    via_list_init(&via_teams.shareable);
}

static void keep_count(const struct viaduct_shmem_team *team)
{
    uint64_t most = via_max(team->pieces, via_max(team->epoch, team->exchanges));

    via_teams.counted = via_max(via_teams.counted, most);
}

/* [locked] Ends the shared contexts of a team, or of all teams. */
static void free_contexts(const struct viaduct_shmem_team *team, bool all)
{
    struct via_list *link = via_teams.shareable.next, *next;

    for (; link != &via_teams.shareable; link = next) {
        struct viaduct_shmem_ctx *ctx = via_list_entry(link, struct viaduct_shmem_ctx, link);
        next = link->next;
        if (!all && ctx->team != team)
            continue;
        via_list_remove(link);
        free(ctx);
    }
}

void via_team_fini(void)
{
    struct via_list *link;

    free_contexts(NULL, true);
    via_active_team_fini();
    while ((link = via_list_pop_front(&via_teams.all)) != NULL) {
        struct team_entry *entry = via_list_entry(link, struct team_entry, link);
        keep_count(&entry->team);
        free(entry->team.hosts.first);
        free(entry);
    }
    for (unsigned i = 0; i < 2; i++) {
        free(via_teams.predefined[i].hosts.first);
        via_teams.predefined[i].hosts.first = NULL;
        memset(via_teams.predefined[i].choices, 0, sizeof(via_teams.predefined[i].choices));
    }
}

/* --- making teams ---------------------------------------------------------------------------- */

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

/*
 * Each member of the parent contributes a card: the slots that it has for the new teams, and a
 * number that no word of its free slots exceeds. Every member reserves its slots before it
 * exchanges cards. So threads that make teams of different parents never get the same slot, even if
 * other PEs make the teams in another order.
 */
#define CARD_SLOT_BITS 8u
#define CARD_SLOTS 2u
#define CARD_SLOT_NONE 0u /* no free slot: the world's slot is never free */
#define CARD_SLOT_UNUSED 0xffu

static uint64_t card_of(const unsigned slots[CARD_SLOTS], uint64_t counted)
{
    return counted << CARD_SLOTS * CARD_SLOT_BITS | slots[1] << CARD_SLOT_BITS | slots[0];
}

static unsigned slot_on_card(uint64_t card, unsigned which)
{
    return (unsigned)(card >> which * CARD_SLOT_BITS) & 0xff;
}

static uint64_t counted_on_card(uint64_t card)
{
    return card >> CARD_SLOTS * CARD_SLOT_BITS;
}

/* Reserves as many slots as are wanted, or none. */
static uint64_t take_slots(unsigned wanted)
{
    unsigned slots[CARD_SLOTS] = {CARD_SLOT_UNUSED, CARD_SLOT_UNUSED};

    pthread_mutex_lock(&via_teams.lock);
    uint64_t left = via_teams.free_slots;
    for (unsigned i = 0; i < wanted; i++, left &= left - 1)
        slots[i] = left ? (unsigned)__builtin_ctzll(left) : CARD_SLOT_NONE;
    for (unsigned i = 0; i < wanted; i++)
        if (slots[wanted - 1] == CARD_SLOT_NONE)
            slots[i] = CARD_SLOT_NONE;
        else
            via_teams.free_slots &= ~(UINT64_C(1) << slots[i]);
    uint64_t card = card_of(slots, via_teams.counted);
    pthread_mutex_unlock(&via_teams.lock);
    return card;
}

static void give_slots(uint64_t card)
{
    pthread_mutex_lock(&via_teams.lock);
    for (unsigned i = 0; i < CARD_SLOTS; i++)
        if (slot_on_card(card, i) != CARD_SLOT_NONE && slot_on_card(card, i) != CARD_SLOT_UNUSED)
            via_teams.free_slots |= UINT64_C(1) << slot_on_card(card, i);
    pthread_mutex_unlock(&via_teams.lock);
}

/* The cards of all members. Owned by the caller. */
static uint64_t *exchange_cards(struct viaduct_shmem_team *parent, uint64_t mine)
{
    struct via_group group = via_group_of_team("team creation", parent);
    uint64_t *cards = calloc((size_t)parent->size, sizeof(*cards));

    if (!cards)
        via_fatal("team creation: out of memory");
    via_group_exchange(&group, &mine, sizeof(mine));
    for (int i = 0; i < parent->size; i++)
        memcpy(&cards[i], via_group_exchanged(&group, i), sizeof(*cards));
    return cards;
}

/* Computes where the words of the new teams begin to count. False if a PE has no free slot. */
static bool agree(const struct viaduct_shmem_team *parent, const uint64_t cards[],
                  uint64_t *ret_begin)
{
    *ret_begin = 0;
    for (int i = 0; i < parent->size; i++) {
        if (slot_on_card(cards[i], 0) == CARD_SLOT_NONE)
            return false;
        *ret_begin = via_max(*ret_begin, counted_on_card(cards[i]));
    }
    return true;
}

/* The slots of the entry must already be set. */
static void begin_team(struct team_entry *entry, int start, int stride, int size, int my_pe,
                       uint64_t begin)
{
    set_members(&entry->team, start, stride, size, my_pe, entry->mapped);
    /* Words are not reset to zero: a member of the slot's former team may still poll them, in its
     * last barrier. */
    entry->team.epoch = entry->team.exchanges = entry->team.pieces = begin;
    pthread_mutex_lock(&via_teams.lock);
    via_list_push_back(&via_teams.all, &entry->link);
    pthread_mutex_unlock(&via_teams.lock);
}

/* which: index of the team's slot on each card. */
static shmem_team_t make_team(const struct viaduct_shmem_team *parent, const struct part *part,
                              const uint64_t cards[], unsigned which, uint64_t begin,
                              const shmem_team_config_t *config, long config_mask)
{
    int number = number_in(part, parent->my_pe);

    if (number < 0)
        return SHMEM_TEAM_INVALID;
    struct team_entry *entry = new_entry(part->size);
    for (int i = 0; i < part->size; i++)
        entry->slots[i] = (unsigned char)slot_on_card(cards[part->start + part->stride * i], which);
    entry->team.slots = entry->slots;
    entry->team.slot = entry->slots[number];
    if (config && (config_mask & SHMEM_TEAM_NUM_CONTEXTS))
        entry->team.config.num_contexts = config->num_contexts;
    begin_team(entry, parent->start + parent->stride * part->start, parent->stride * part->stride,
               part->size, number, begin);
    return &entry->team;
}

/* --- of active sets: active_team.c ----------------------------------------------------------- */

uint64_t via_team_offer_of_set(uint64_t *ret_counted)
{
    pthread_mutex_lock(&via_teams.lock);
    uint64_t free_slots = via_teams.free_set_slots;
    *ret_counted = via_teams.counted;
    pthread_mutex_unlock(&via_teams.lock);
    return free_slots;
}

struct viaduct_shmem_team *via_team_of_set(int start, int stride, int size, int my_pe,
                                           unsigned number, uint64_t begin)
{
    struct team_entry *entry = new_entry(0);

    via_teams.free_set_slots &= ~(UINT64_C(1) << number);
    entry->team.slot = VIA_TEAMS_MAX + number;
    begin_team(entry, start, stride, size, my_pe, begin);
    return &entry->team;
}

int pshmem_team_split_strided(shmem_team_t parent_team, int start, int stride, int size,
                              const shmem_team_config_t *config, long config_mask,
                              shmem_team_t *new_team)
{
    struct part part = {start, stride, size};
    uint64_t begin;

    via_require_initialized(VIA_CALL);
    *new_team = SHMEM_TEAM_INVALID;
    if (parent_team == SHMEM_TEAM_INVALID)
        return -1;
    struct viaduct_shmem_team *parent = via_team(parent_team);
    if (!part_is_valid(parent, &part))
        return -1;
    uint64_t mine = take_slots(number_in(&part, parent->my_pe) >= 0 ? 1 : 0);
    uint64_t *cards = exchange_cards(parent, mine);
    bool agreed = agree(parent, cards, &begin);
    if (agreed)
        *new_team = make_team(parent, &part, cards, 0, begin, config, config_mask);
    else
        give_slots(mine);
    free(cards);
    return agreed ? 0 : -1;
}

int pshmem_team_split_2d(shmem_team_t parent_team, int xrange,
                         const shmem_team_config_t *xaxis_config, long xaxis_mask,
                         shmem_team_t *xaxis_team, const shmem_team_config_t *yaxis_config,
                         long yaxis_mask, shmem_team_t *yaxis_team)
{
    uint64_t begin;

    via_require_initialized(VIA_CALL);
    *xaxis_team = *yaxis_team = SHMEM_TEAM_INVALID;
    if (parent_team == SHMEM_TEAM_INVALID || xrange < 1)
        return -1;
    struct viaduct_shmem_team *parent = via_team(parent_team);
    xrange = via_min(xrange, parent->size);
    uint64_t mine = take_slots(2);
    uint64_t *cards = exchange_cards(parent, mine);
    bool agreed = agree(parent, cards, &begin);
    int x = parent->my_pe % xrange, y = parent->my_pe / xrange;
    struct part row = {y * xrange, 1, via_min(xrange, parent->size - y * xrange)};
    struct part column = {x, xrange, (parent->size - x + xrange - 1) / xrange};
    if (agreed) {
        *xaxis_team = make_team(parent, &row, cards, 0, begin, xaxis_config, xaxis_mask);
        *yaxis_team = make_team(parent, &column, cards, 1, begin, yaxis_config, yaxis_mask);
    } else {
        give_slots(mine);
    }
    free(cards);
    return agreed ? 0 : -1;
}

void pshmem_team_destroy(shmem_team_t team)
{
    if (team == SHMEM_TEAM_INVALID || team == SHMEM_TEAM_WORLD || team == SHMEM_TEAM_SHARED)
        return;
    struct team_entry *entry = via_container_of(team, struct team_entry, team);
    struct via_group group = via_group_of_team(VIA_CALL, team);
    /* After this, all members have read the results of the last collective, so another team may get
     * the slot. */
    via_group_sync(&group);
    /* Completes the operations of its contexts, too. */
    via_quiet();
    pthread_mutex_lock(&via_teams.lock);
    free_contexts(team, false);
    keep_count(team);
    via_teams.free_slots |= UINT64_C(1) << team->slot;
    via_list_remove(&entry->link);
    pthread_mutex_unlock(&via_teams.lock);
    free(entry->team.hosts.first);
    free(entry);
}

/* --- queries --------------------------------------------------------------------------------- */

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
    struct via_group group = via_group_of_team(VIA_CALL, team);
    via_group_sync(&group);
    return 0;
}

/* --- contexts -------------------------------------------------------------------------------- */

/* Every path completes operations in order and at once, or by one quiet for all contexts, so a
 * context is only its team's numbering of PEs. */
static int create_ctx(struct viaduct_shmem_team *team, long options, shmem_ctx_t *ctx)
{
    *ctx = malloc(sizeof(**ctx));
    if (!*ctx)
        return -1;
    **ctx = (struct viaduct_shmem_ctx){.team = team, .options = options};
    if (options & SHMEM_CTX_PRIVATE)
        return 0;
    pthread_mutex_lock(&via_teams.lock);
    via_list_push_back(&via_teams.shareable, &(*ctx)->link);
    pthread_mutex_unlock(&via_teams.lock);
    return 0;
}

int pshmem_ctx_create(long options, shmem_ctx_t *ctx)
{
    via_require_initialized(VIA_CALL);
    return create_ctx(NULL, options, ctx);
}

int pshmem_team_create_ctx(shmem_team_t team, long options, shmem_ctx_t *ctx)
{
    via_require_initialized(VIA_CALL);
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
    if (!(ctx->options & SHMEM_CTX_PRIVATE)) {
        pthread_mutex_lock(&via_teams.lock);
        via_list_remove(&ctx->link);
        pthread_mutex_unlock(&via_teams.lock);
    }
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

/* Sessions are hints; these paths gain nothing from them. */
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
