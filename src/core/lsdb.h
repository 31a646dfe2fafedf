/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CORE_LSDB_H
#define VIA_CORE_LSDB_H

#include "base/list.h"
#include "core/layout.h"

/*
 * Layer 6: the announcements of all hosts (lsa.c), their distribution (lsdb.c), and the routes that
 * follow from them (route.c). Control thread, except where a comment says otherwise.
 */

struct via_link; /* link.h */

#define VIA_HOST_NONE 0xffffu

/* --- lsa.c: the announcements of the hosts ---------------------------------------------------- */

/*
 * Neighbours are kept in chunks, so a host with few of them needs little memory in any fabric. All
 * announcements share one array of chunks, which is large enough for a fabric in which every host
 * is a neighbour of every other.
 */
#define VIA_LSA_CHUNK_NEIGHBOURS 8u
#define VIA_LSA_CHUNK_NONE UINT32_MAX

struct via_lsa_chunk {
    _Atomic uint32_t next; /* index; VIA_LSA_CHUNK_NONE */
    /* bit i: edge to neighbour i, which announces this host, too (set by route.c) */
    uint8_t edges;
    _Atomic uint16_t hosts[VIA_LSA_CHUNK_NEIGHBOURS];
    uint32_t sessions[VIA_LSA_CHUNK_NEIGHBOURS];
};

/* In ascending order of hosts. */
struct via_lsa_list {
    uint32_t first, last; /* chunks */
    uint16_t count;       /* neighbours */
};

/* The difference of an announcement from the one before it, if one record can contain it. */
struct via_lsa_change {
    uint64_t digest; /* of the neighbours, after the change */
    unsigned count;
    /* Ascending by host. Session 0: removed from the neighbours. */
    struct via_announcement_neighbour entries[VIA_LINK_STATE_CHANGE_NEIGHBOURS];
};

/* Time for which a forgotten number is not accepted again: otherwise two hosts that forget it at
 * different times would send it to each other forever. */
#define VIA_LSA_IGNORED_NS (4 * VIA_LINK_STATE_FORGET_NS)
/* Before the next number is forgotten at least VIA_LINK_STATE_FORGET_NS pass, so this array is
 * large enough. */
#define VIA_LSA_FORGOTTEN 4u
_Static_assert(VIA_LSA_IGNORED_NS <= VIA_LINK_STATE_FORGET_NS * VIA_LSA_FORGOTTEN,
               "all numbers that are not believed are remembered");

/* version is a sequence lock for via_node_neighbours(): odd while the control thread writes. */
struct via_lsa {
    _Atomic uint32_t version;
    _Atomic uint32_t session; /* 0: no announcement so far */
    uint64_t sequence;
    uint64_t
        base; /* sequence number of the announcement to which via_lsdb.changes applies; 0: none */
    _Atomic uint32_t first; /* chunk */
    _Atomic uint16_t neighbours_count;
    uint32_t last;                            /* chunk */
    uint64_t forget_ns;                       /* when a high sequence number is forgotten */
    uint64_t forgotten[VIA_LSA_FORGOTTEN];    /* such numbers, the latest first; 0: none */
    uint64_t forgotten_ns[VIA_LSA_FORGOTTEN]; /* when each was forgotten */
    /* the host itself has sent this announcement over its own link to this host */
    bool by_itself;
    /* since when other hosts dispute the session; 0: they do not (route.c) */
    uint64_t contested_ns;
    /* Sessions are random, so a replaced session returns only if two hosts announce the same id in
     * turns. */
    uint32_t replaced_session;
    /* number of returns of replaced sessions, each soon after the one before */
    _Atomic uint32_t returns_count;
    _Atomic uint64_t returned_ns; /* time of the last return */
};

/* An iterator over the neighbours of an announcement. */
struct via_neighbours {
    const struct via_lsdb *lsdb;
    uint32_t chunk;
    unsigned at;    /* index in the chunk, of the next neighbour */
    unsigned count; /* number of remaining neighbours */
    /* The neighbour that via_neighbours_next() has found. */
    struct via_lsa_chunk *found;
    unsigned found_at;
    uint16_t host;
    uint32_t session;
};

/* --- the database ---------------------------------------------------------------------------- */

/* The part of a link that lsdb.c keeps. */
struct via_lsdb_link {
    uint64_t *dirty;     /* bitmap of hosts whose announcement this peer lacks */
    uint64_t *whole;     /* those of them of which the peer also lacks the announcement before */
    unsigned dirty_from; /* where the next search for a dirty host starts */
    unsigned dirty_count;

    /* While up: links towards the same host, from the lowest rank up, and all links. */
    uint16_t rank;          /* of the port: dimension * ports_count + number */
    uint16_t peer;          /* VIA_HOST_NONE: not up */
    uint16_t next_parallel; /* index; VIA_PORT_NONE */
    uint64_t up_serial;     /* greater for a link that came up later */
    struct via_list up;     /* via_lsdb.up */
    /* serial number of the last announcement that its host sends to this peer itself */
    uint64_t forwarded_serial;

    /* An announcement that was sent in part. */
    uint16_t sending; /* host; VIA_HOST_NONE */
    uint32_t sending_version;
    struct via_neighbours sending_rest;

    /* An announcement that has arrived in part. */
    bool is_taking;
    struct via_announcement taking;
    struct via_lsa_list taken;
};

struct via_lsdb {
    struct via_lsa *lsas; /* by host */
    struct via_lsa_chunk *chunks;
    uint32_t chunks_count, chunks_fresh; /* number of chunks that were ever used */
    uint32_t chunk_free;                 /* first of the freed chunks */
    struct via_lsa_change *changes;      /* by host; not zeroed, see via_lsa.base */

    struct via_list up; /* via_lsdb_link.up, by rank */
    uint64_t up_serial;
    uint64_t forwarded_serial; /* serial number of the last announcement that was forwarded */
    /* by host: the first of the links that are up and lead to it; VIA_PORT_NONE: none */
    uint16_t *local;
    uint16_t *by_rank; /* port of each rank; ranks without a port are unused */

    bool own_dirty;  /* this host's neighbours may have changed */
    bool own_forced; /* announce again even if they have not changed */
    /* Pauses after a long announcement of this host: the next one not before own_soon_ns, and not
     * before own_next_ns unless all neighbours have received this one. */
    uint64_t own_soon_ns, own_next_ns;
    uint64_t forget_ns; /* not later than the earliest via_lsa.forget_ns; VIA_NEVER_NS */
    /* The numbers of this host's announcement, which competes with those of its earlier sessions
     * and with false ones. */
    uint64_t own_sequence_ns; /* time when it last had to outnumber another one */
    bool own_outnumbered;
    uint64_t own_low;     /* this host's last number that was not high */
    uint64_t own_high;    /* this host's greatest high number */
    uint64_t own_high_ns; /* time to return to low numbers; VIA_NEVER_NS: none */

    /* Routes (route.c). A label is hops << 16 | rank of the port; VIA_ROUTE_NONE: no route. */
    uint32_t *labels; /* by host */
    /* hosts whose label may be wrong, by the lower of the present and the right label; scratch
     * memory of via_routes_update() */
    uint16_t *heap;
    uint16_t *heap_at; /* by host: index in heap; VIA_HOST_NONE: not in it */
    uint32_t *keys;    /* by host in heap: the lower label */
    uint16_t *touched; /* hosts whose edges, label or session have changed since the last update */
    uint8_t *is_touched; /* by host */
    unsigned heap_count, touched_count, contested_count;
    uint64_t contest_ns; /* when the next disputed session is accepted; VIA_NEVER_NS */

    _Atomic uint64_t announcements_sent, announcements_received, announcement_bytes_sent;
    _Atomic uint64_t routes_changed, routes_examined;
};

/* --- lsa.c ----------------------------------------------------------------------------------- */

/* Number of chunks for the announcements of all hosts, and for an incomplete one on each link. */
size_t via_lsa_chunks_count(unsigned hosts_max, unsigned ports_count);
void via_lsa_init(struct via_lsdb *lsdb);

void via_lsa_list_init(struct via_lsa_list *list);
/* The caller has checked the order. A free chunk always exists: see via_lsa_chunks_count(). */
void via_lsa_list_append(struct via_lsdb *lsdb, struct via_lsa_list *list, uint16_t host,
                         uint32_t session);
void via_lsa_list_free(struct via_lsdb *lsdb, struct via_lsa_list *list);

/*
 * Computes the difference between a list and the stored announcement, which has the same session.
 * False: one record can not contain it.
 */
bool via_lsa_find_changes(const struct via_lsdb *lsdb, const struct via_lsa *lsa, uint64_t sequence,
                          const struct via_lsa_list *list, struct via_lsa_change *ret_change);
/* Applies a change to the stored announcement and makes the resulting list. False: the change does
 * not belong to the stored announcement, or is false; no list is made. */
bool via_lsa_apply(struct via_lsdb *lsdb, const struct via_lsa *lsa, uint64_t sequence,
                   const struct via_lsa_change *change, struct via_lsa_list *ret_list);
/* The digest that makes a change valid. For tests. */
uint64_t via_lsa_digest_after(struct via_lsdb *lsdb, const struct via_lsa *lsa, uint64_t sequence,
                              const struct via_lsa_change *change);
/* The digest of the stored announcement, for comparison with another one of its session and number.
 * Finding other neighbours with the same digest takes about 2^63 attempts. */
uint64_t via_lsa_digest(const struct via_lsdb *lsdb, const struct via_lsa *lsa);

/* Takes the list over, and frees the old one. Edge bits of neighbours that are in both stay set. */
void via_lsa_store(struct via_lsdb *lsdb, struct via_lsa *lsa, uint32_t session, uint64_t sequence,
                   struct via_lsa_list *list);
/* Stores another number for the same announcement. */
void via_lsa_renumber(struct via_lsa *lsa, uint64_t sequence);
static inline bool via_lsa_is_high(uint64_t sequence)
{
    return sequence >= VIA_LINK_STATE_SEQUENCE_HIGH;
}
/* Replaces the stored number by 1, and refuses the old one for VIA_LSA_IGNORED_NS. */
void via_lsa_forget_number(struct via_lsa *lsa, uint64_t now_ns);
/* True for a false announcement that was forgotten, or a copy of it. It is ignored and not
 * answered: otherwise this host and the peer would answer each other until the peer has forgotten
 * the number, too. */
bool via_lsa_is_ignored(const struct via_lsa *lsa, uint64_t sequence, uint64_t now_ns);
/* Records that an announcement with session `came` has replaced one with session `gone`. The host
 * itself calls it for announcements of other hosts with its id, with `came` as `gone`, too. */
void via_lsa_mark_session(const struct via_node *node, struct via_lsa *lsa, uint32_t came,
                          uint32_t gone, uint64_t now_ns);
/*
 * Greater than 0: the announcement is newer than the stored one. Between sessions with equal
 * sequence numbers any order is sufficient, if all hosts use the same: the live session outnumbers
 * the other as soon as it receives that announcement. The same applies to two announcements of one
 * session, of which one must be false.
 */
int via_lsa_compare(const struct via_lsdb *lsdb, const struct via_lsa *lsa, uint32_t session,
                    uint64_t sequence, const struct via_lsa_list *list);

void via_neighbours_of(const struct via_lsdb *lsdb, const struct via_lsa *lsa,
                       struct via_neighbours *ret_it);
void via_neighbours_in(const struct via_lsdb *lsdb, const struct via_lsa_list *list,
                       struct via_neighbours *ret_it);

static inline bool via_neighbours_next(struct via_neighbours *it)
{
    if (it->count == 0) {
        return false;
    }
    struct via_lsa_chunk *chunk = &it->lsdb->chunks[it->chunk];
    it->found = chunk;
    it->found_at = it->at;
    it->host = atomic_load_explicit(&chunk->hosts[it->at], memory_order_relaxed);
    it->session = chunk->sessions[it->at];
    it->count--;
    if (++it->at == VIA_LSA_CHUNK_NEIGHBOURS) {
        it->at = 0;
        it->chunk = atomic_load_explicit(&chunk->next, memory_order_relaxed);
    }
    return true;
}

/* Skips chunks that end before this host. */
static inline void via_neighbours_seek(struct via_neighbours *it, uint16_t host)
{
    while (it->at == 0 && it->count > VIA_LSA_CHUNK_NEIGHBOURS) {
        const struct via_lsa_chunk *chunk = &it->lsdb->chunks[it->chunk];
        if (atomic_load_explicit(&chunk->hosts[VIA_LSA_CHUNK_NEIGHBOURS - 1],
                                 memory_order_relaxed) >= host) {
            return;
        }
        it->chunk = atomic_load_explicit(&chunk->next, memory_order_relaxed);
        it->count -= VIA_LSA_CHUNK_NEIGHBOURS;
    }
}

/* Sets or clears the edge bit of the neighbour that the iterator has found. */
static inline void via_neighbours_mark_edge(struct via_neighbours *it, bool edge)
{
    uint8_t bit = (uint8_t)(1u << it->found_at);
    it->found->edges = (uint8_t)(edge ? it->found->edges | bit : it->found->edges & ~bit);
}

static inline bool via_neighbours_is_edge(const struct via_neighbours *it)
{
    return (it->found->edges >> it->found_at & 1) != 0;
}

static inline uint32_t via_lsa_session(const struct via_lsa *lsa)
{
    return atomic_load_explicit(&lsa->session, memory_order_relaxed);
}

static inline unsigned via_lsa_neighbours_count(const struct via_lsa *lsa)
{
    return atomic_load_explicit(&lsa->neighbours_count, memory_order_relaxed);
}

/* --- route.c --------------------------------------------------------------------------------- */

void via_routes_init(struct via_node *node);
/* Called after a change of via_link.dimension, while the link is not up. */
void via_routes_rank(struct via_node *node, struct via_link *link);
/* A link to the host has come up or gone down. */
void via_routes_touch(struct via_node *node, uint16_t host);
/* Called before and after another announcement of the host is stored: removes its edges, and adds
 * them. change NULL: for all neighbours, else for those in the change. */
void via_routes_unlink(struct via_node *node, uint16_t host, const struct via_lsa_change *change);
void via_routes_link(struct via_node *node, uint16_t host, const struct via_lsa_change *change);
/*
 * Brings routes up to date with all unlink and link calls since the last update, and publishes
 * those that have changed. The cost is proportional to the changed routes and the edges of their
 * hosts, not to the number of hosts. Lowers *ret_deadline_ns.
 */
void via_routes_update(struct via_node *node, uint64_t now_ns, uint64_t *ret_deadline_ns);

/* --- lsdb.c ---------------------------------------------------------------------------------- */

void via_lsdb_init(struct via_node *node);
void via_lsdb_link_up(struct via_node *node, struct via_link *link);
void via_lsdb_link_down(struct via_node *node, struct via_link *link);
/* Takes announcements from a link's control pipe. -EPROTO: the peer violated the protocol. */
int via_lsdb_receive(struct via_node *node, struct via_link *link, uint64_t now_ns);
/* Takes a complete, well-formed announcement that has arrived on the link, and takes the list over.
 * change: its difference from the stored one; NULL: unknown. Public for tests. */
void via_lsdb_take(struct via_node *node, struct via_link *link,
                   const struct via_announcement *head, struct via_lsa_list *list,
                   const struct via_lsa_change *change, uint64_t now_ns);
/* Called after all links were polled: updates this host's announcement and the routes. Lowers
 * *ret_deadline_ns. */
void via_lsdb_update(struct via_node *node, uint64_t now_ns, uint64_t *ret_deadline_ns);
void via_lsdb_send(struct via_node *node, struct via_link *link);
/* True if via_lsdb_send() has announcements that it could not send for lack of room. */
static inline bool via_lsdb_has_to_send(const struct via_lsdb_link *link)
{
    return link->dirty_count != 0 || link->sending != VIA_HOST_NONE;
}

#endif
