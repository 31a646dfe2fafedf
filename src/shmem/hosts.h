/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_HOSTS_H
#define VIA_SHMEM_HOSTS_H

#include "shmem/api.h"
#include "shmem/world.h"

/*
 * The hosts of a team. The PEs of a host have consecutive ranks in the world, so the members of a
 * team on one host are consecutive in the team; the first of them is the host's leader. Members of
 * a host synchronize in its memory. Leaders synchronize by words that they put to each other like
 * any other data, so this works over every path, and while links fail and recover; between
 * neighbours no daemon has to wake up.
 *
 * Every function here is collective: all members of the team call it, in the same order.
 */

/* The words of a team's slot. Each word has one writer during the life of a team and only counts
 * up; its owner waits for each value that is written before it leaves the collective. */
enum via_hosts_word {
    VIA_WORD_ROUND = 0,        /* 10: dissemination among leaders */
    VIA_WORD_SHAPE_ROUND = 12, /* 10: the same, when the team learns its shape */
    VIA_WORD_SHAPE = 24,       /* the result of the shape rounds */
    VIA_WORD_RELEASED,         /* at the leader; read by the members of its host */
    VIA_WORD_LEFT,             /* ring: written by the previous leader, and by the next one */
    VIA_WORD_RIGHT,
    VIA_WORD_CHAIN,     /* broadcast */
    VIA_WORD_SHARE,     /* reduction in a ring: number of received shares */
    VIA_WORD_READY,     /* the same: the next leader's dest may be written */
    VIA_WORD_TREE = 33, /* 10: broadcast */
    VIA_WORD_HALF = 43, /* 10: reduction by halves: the partner's dest may be read */
    VIA_WORD_BACK = 53, /* 10: the same, on the way back */
    /* Torus: meetings and shares of this leader's row, and of its column. */
    VIA_WORD_ROW_LEFT = 63,
    VIA_WORD_ROW_RIGHT,
    VIA_WORD_COLUMN_LEFT,
    VIA_WORD_COLUMN_RIGHT,
    VIA_WORD_ROW_SHARE,
    VIA_WORD_ROW_READY,
    VIA_WORD_COLUMN_SHARE,
    VIA_WORD_COLUMN_READY,
    VIA_WORDS,
};
_Static_assert(VIA_WORDS <= VIA_SYNC_WORDS, "a slot has them all");

/*
 * The blocks that leaders forward: one block of each host, at the same place in every leader's
 * memory. Each leader has the block of its own host filled in and gets those of all other hosts.
 * Block h begins at offs[h]; without offs at h * stride (is_by_host), or at the number of the
 * host's first member * stride.
 */
struct via_load {
    char *base; /* symmetric; NULL: the team's box of this meeting */
    size_t stride;
    const size_t *offs; /* hosts + 1, or NULL */
    bool is_by_host;
};

/* The team's hosts and shape, computed at the first call. */
struct via_hosts *via_hosts_of(struct viaduct_shmem_team *team);

/* A meeting in three steps. via_hosts_gather returns true at a leader, after all members of its
 * host have arrived. Only leaders then call via_hosts_pass, with the blocks to forward or NULL. */
bool via_hosts_gather(struct viaduct_shmem_team *team);
void via_hosts_pass(struct viaduct_shmem_team *team, const struct via_load *load);
void via_hosts_release(struct viaduct_shmem_team *team);

static inline void via_hosts_meet(struct viaduct_shmem_team *team, const struct via_load *load)
{
    if (via_hosts_gather(team))
        via_hosts_pass(team, load);
    via_hosts_release(team);
}

/* A meeting of the members of each host, without other hosts; boxes do not alternate. */
static inline void via_hosts_meet_locals(struct viaduct_shmem_team *team)
{
    team->epoch++;
    via_hosts_gather(team);
    via_hosts_release(team);
}

/*
 * The box of the meeting that has begun, or else of the last one. Two boxes alternate: a member
 * that fills a box again has passed the meeting after the one that filled it before, so all members
 * have read it. VIA_BOX_BYTES at this host's leader.
 */
char *via_hosts_box(const struct viaduct_shmem_team *team);
/* The box of the next meeting. */
char *via_hosts_next_box(const struct viaduct_shmem_team *team);

/* A word of member `number`, at its address in this process; and a wait for a word of this PE. */
static inline _Atomic uint64_t *via_hosts_word(const struct viaduct_shmem_team *team, int number,
                                               unsigned word)
{
    return &via_internal()->teams[via_team_slot(team, number)].words[word];
}
void via_hosts_await(const struct viaduct_shmem_team *team, unsigned word, uint64_t value);

static inline int via_team_pe(const struct viaduct_shmem_team *team, int number)
{
    return team->start + team->stride * number;
}

/* The member number of the leader that is `further` hosts behind mine. */
static inline int via_hosts_leader(const struct via_hosts *hosts, unsigned further)
{
    return hosts->first[(hosts->mine + further) % hosts->count];
}

/* The same, in the order of the ring. */
static inline int via_hosts_ring_leader(const struct via_hosts *hosts, unsigned further)
{
    return hosts->first[hosts->ring[(hosts->place + further) % hosts->count]];
}

static inline bool via_hosts_is_leader(const struct viaduct_shmem_team *team)
{
    return team->hosts.first[team->hosts.mine] == team->my_pe;
}

static inline int via_hosts_locals(const struct via_hosts *hosts)
{
    return hosts->first[hosts->mine + 1] - hosts->first[hosts->mine];
}

#endif
