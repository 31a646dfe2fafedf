/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CORE_LSDB_H
#define VIA_CORE_LSDB_H

#include "base/list.h"
#include "core/layout.h"

/*
 * Layer 6: the announcements of all hosts (lsa.c), how hosts tell each other (lsdb.c), and the
 * routes that follow (route.c). Control thread, except for what says otherwise.
 */

struct via_link; /* link.h */

#define VIA_HOST_NONE 0xffffu

/* --- lsa.c: what a host has announced -------------------------------------------------------- */

/*
 * Neighbours are kept in chunks, so a host with few of them needs little memory in any fabric. All
 * announcements share one array of chunks, which is large enough for a fabric in which every host
 * is a neighbour of every other.
 */
#define VIA_LSA_CHUNK_NEIGHBOURS 8u
#define VIA_LSA_CHUNK_NONE UINT32_MAX

struct via_lsa_chunk {
    _Atomic uint32_t next; /* index; VIA_LSA_CHUNK_NONE */
    uint8_t edges;         /* bit i: neighbour i announces this host, too, as route.c has found */
    _Atomic uint16_t hosts[VIA_LSA_CHUNK_NEIGHBOURS];
    uint32_t sessions[VIA_LSA_CHUNK_NEIGHBOURS];
};

/* Ascending by host. */
struct via_lsa_list {
    uint32_t first, last; /* chunks */
    uint16_t count;       /* neighbours */
};

/* How an announcement differs from the one before it: what one record holds. */
struct via_lsa_change {
    uint64_t digest; /* of the neighbours, after the change */
    unsigned count;
    /* Ascending by host; session 0: no neighbour any more. */
    struct via_announcement_neighbour entries[VIA_LINK_STATE_CHANGE_NEIGHBOURS];
};

/* Time for which a forgotten number is not accepted again: otherwise two hosts that forget it at
 * different times would send it to each other forever. */
#define VIA_LSA_DISBELIEF_NS (4 * VIA_LINK_STATE_FORGET_NS)
/* At least VIA_LINK_STATE_FORGET_NS pass before the next number is forgotten. */
#define VIA_LSA_FORGOTTEN 4u
_Static_assert(VIA_LSA_DISBELIEF_NS <= VIA_LINK_STATE_FORGET_NS * VIA_LSA_FORGOTTEN,
               "all numbers that are not believed are remembered");

/* version is a sequence lock for via_node_neighbours(): odd while the control thread writes. */
struct via_lsa {
    _Atomic uint32_t version;
    _Atomic uint32_t session; /* 0 = never seen */
    uint64_t sequence;
    uint64_t
        base; /* the announcement before, of which via_lsdb.changes is the difference; 0 = none */
    _Atomic uint32_t first; /* chunk */
    _Atomic uint16_t neighbours_count;
    uint32_t last;                            /* chunk */
    uint64_t forget_ns;                       /* when a high sequence number is forgotten */
    uint64_t forgotten[VIA_LSA_FORGOTTEN];    /* such numbers, the last first; 0 = none */
    uint64_t forgotten_ns[VIA_LSA_FORGOTTEN]; /* when each was forgotten */
    bool by_itself;        /* the host has sent this itself, over its own link to this host */
    uint64_t contested_ns; /* since when the session is disputed; 0 = it is (route.c) */
    /* Sessions are random, so one that was replaced comes back only if two hosts announce the same
     * id by turns. */
    uint32_t replaced_session;
    _Atomic uint32_t returns_count; /* of replaced sessions, each soon after the one before */
    _Atomic uint64_t returned_ns;   /* the last time */
};

/* One neighbour after the other. */
struct via_neighbours {
    const struct via_lsdb *lsdb;
    uint32_t chunk;
    unsigned at;    /* in the chunk, of the neighbour that comes next */
    unsigned count; /* that are still to come */
    /* The one that via_neighbours_next() has found. */
    struct via_lsa_chunk *found;
    unsigned found_at;
    uint16_t host;
    uint32_t session;
};

/* --- the database ---------------------------------------------------------------------------- */

/* The part of a link that lsdb.c keeps. */
struct via_lsdb_link {
    uint64_t *dirty;     /* bitmap of hosts whose announcement this peer has not got */
    uint64_t *whole;     /* those of them of which it has not got the announcement before, either */
    unsigned dirty_from; /* where the next search for a dirty host starts */
    unsigned dirty_count;

    /* While up: links towards the same host, from the lowest rank up, and all links. */
    uint16_t rank;          /* of the port: dimension * ports_count + number */
    uint16_t peer;          /* VIA_HOST_NONE = not up */
    uint16_t next_parallel; /* index; VIA_PORT_NONE */
    uint64_t up_serial;     /* greater for a link that came up later */
    struct via_list up;     /* via_lsdb.up */
    uint64_t told_serial;   /* of the last announcement that its host sends to the peer itself */

    /* An announcement of which some records were sent. */
    uint16_t sending; /* host; VIA_HOST_NONE */
    uint32_t sending_version;
    struct via_neighbours sending_rest;

    /* An announcement of which some records have come. */
    bool is_taking;
    struct via_announcement taking;
    struct via_lsa_list taken;
};

struct via_lsdb {
    struct via_lsa *lsas; /* by host */
    struct via_lsa_chunk *chunks;
    uint32_t chunks_count, chunks_fresh; /* how many of them were ever used */
    uint32_t chunk_free;                 /* first of those that are free again */
    struct via_lsa_change *changes;      /* by host; not zeroed, see via_lsa.base */

    struct via_list up; /* via_lsdb_link.up, by rank */
    uint64_t up_serial;
    uint64_t told_serial; /* of the last announcement that was sent on */
    uint16_t *local;      /* by host: the first of the links that are up and lead there; none:
                             VIA_PORT_NONE */
    uint16_t *by_rank;    /* ports; ranks of no port are not used */

    bool own_dirty;  /* my neighbours may have changed */
    bool own_forced; /* announce again, even if they have not */
    /* A long announcement is not repeated for each link: the next not before own_soon_ns, and not
     * before own_next_ns unless all neighbours have been sent this one. */
    uint64_t own_soon_ns, own_next_ns;
    uint64_t forget_ns; /* not later than the earliest via_lsa.forget_ns; VIA_NEVER_NS */
    /* My announcement, as it meets those of my earlier lives and false ones. */
    uint64_t own_sequence_ns; /* when it last had to outnumber another */
    bool own_outnumbered;
    uint64_t own_low;     /* the last number of mine that was not high */
    uint64_t own_high;    /* the greatest number of mine that was high */
    uint64_t own_high_ns; /* when to go back to low numbers; VIA_NEVER_NS */

    /* Routes (route.c). A label is hops << 16 | rank of the port; VIA_ROUTE_NONE: no way. */
    uint32_t *labels;  /* by host */
    uint16_t *heap;    /* hosts whose label may be wrong, by the lower of it and what it should be;
                          scratch of via_routes_update() */
    uint16_t *heap_at; /* by host: place in heap; VIA_HOST_NONE = not there */
    uint32_t *keys;    /* by host in heap */
    uint16_t *touched; /* hosts whose edges, label or session have changed since the last update */
    uint8_t *is_touched; /* by host */
    unsigned heap_count, touched_count, contested_count;
    uint64_t contest_ns; /* when the next disputed session is accepted; VIA_NEVER_NS */

    _Atomic uint64_t announcements_sent, announcements_received, announcement_bytes_sent;
    _Atomic uint64_t routes_changed, routes_examined;
};

/* --- lsa.c ----------------------------------------------------------------------------------- */

/* Chunks for announcements of all hosts, and for those that are half-taken on each link. */
size_t via_lsa_chunks_count(unsigned hosts_max, unsigned ports_count);
void via_lsa_init(struct via_lsdb *lsdb);

void via_lsa_list_init(struct via_lsa_list *list);
/* The caller has checked the order. There is always a free chunk: see via_lsa_chunks_count(). */
void via_lsa_list_append(struct via_lsdb *lsdb, struct via_lsa_list *list, uint16_t host,
                         uint32_t session);
void via_lsa_list_free(struct via_lsdb *lsdb, struct via_lsa_list *list);

/*
 * The difference between a list and the stored one, which has the same session and sequence number
 * base. False: by more than a record holds.
 */
bool via_lsa_find_changes(const struct via_lsdb *lsdb, const struct via_lsa *lsa, uint64_t sequence,
                          const struct via_lsa_list *list, struct via_lsa_change *ret_change);
/* Makes the list that a change makes of what is stored. False: the change is of something else, or
 * false; there is no list then. */
bool via_lsa_apply(struct via_lsdb *lsdb, const struct via_lsa *lsa, uint64_t sequence,
                   const struct via_lsa_change *change, struct via_lsa_list *ret_list);
/* The digest that makes a change valid; for tests. */
uint64_t via_lsa_digest_after(struct via_lsdb *lsdb, const struct via_lsa *lsa, uint64_t sequence,
                              const struct via_lsa_change *change);
/* Of the announcement that is stored: tells whether another one of its session and number is the
 * same. Not to be found for other neighbours by less than 2^63 attempts. */
uint64_t via_lsa_digest(const struct via_lsdb *lsdb, const struct via_lsa *lsa);

/* Takes the list over, and frees the old one. Neighbours in both that were marked as edges stay
 * so. */
void via_lsa_store(struct via_lsdb *lsdb, struct via_lsa *lsa, uint32_t session, uint64_t sequence,
                   struct via_lsa_list *list);
/* Another number for the same words. */
void via_lsa_renumber(struct via_lsa *lsa, uint64_t sequence);
static inline bool via_lsa_is_high(uint64_t sequence)
{
    return sequence >= VIA_LINK_STATE_SEQUENCE_HIGH;
}
/* The stored number is replaced by 1, and not accepted again for VIA_LSA_DISBELIEF_NS. */
void via_lsa_forget_number(struct via_lsa *lsa, uint64_t now_ns);
/* A false announcement, or the rest of one: to be ignored, not answered, or the peer and I
 * would go on answering each other until it has forgotten the number, too. */
bool via_lsa_is_disbelieved(const struct via_lsa *lsa, uint64_t sequence, uint64_t now_ns);
/* An announcement with session `came` outnumbers one with session `gone`. The host itself calls it
 * for announcements of other hosts with its id, with came as gone, too. */
void via_lsa_mark_session(const struct via_node *node, struct via_lsa *lsa, uint32_t came,
                          uint32_t gone, uint64_t now_ns);
/*
 * Greater than 0: the announcement is newer than the stored one. Any order does between lives of
 * equal sequence, if all hosts use the same: the living one outnumbers the other as soon as it
 * receives it. The same for two announcements of one life, of which one must be false.
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

/* Passes over chunks that end before this host. */
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

/* Of the neighbour that the iterator has found. */
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
/* After via_link.dimension has changed, while the link is not up. */
void via_routes_rank(struct via_node *node, struct via_link *link);
/* A link towards the host has gone. */
void via_routes_touch(struct via_node *node, uint16_t host);
/* Before and after another announcement of the host is stored: its edges go and come. By the change
 * alone, or, with NULL, all. */
void via_routes_unlink(struct via_node *node, uint16_t host, const struct via_lsa_change *change);
void via_routes_link(struct via_node *node, uint16_t host, const struct via_lsa_change *change);
/*
 * Brings routes up to date with what was unlinked and linked since the last call, and publishes
 * those that have changed. Costs as much as the routes that change and their hosts' edges, however
 * many hosts there are. Lowers *ret_deadline_ns.
 */
void via_routes_update(struct via_node *node, uint64_t now_ns, uint64_t *ret_deadline_ns);

/* --- lsdb.c ---------------------------------------------------------------------------------- */

void via_lsdb_init(struct via_node *node);
void via_lsdb_link_up(struct via_node *node, struct via_link *link);
void via_lsdb_link_down(struct via_node *node, struct via_link *link);
/* Takes announcements from a link's control pipe. -EPROTO when the peer broke the rules. */
int via_lsdb_receive(struct via_node *node, struct via_link *link, uint64_t now_ns);
/* A whole announcement, which is well-formed and came through the link. Takes the list over.
 * change: its difference from the stored one; NULL = it was not told. Public for tests. */
void via_lsdb_take(struct via_node *node, struct via_link *link,
                   const struct via_announcement *head, struct via_lsa_list *list,
                   const struct via_lsa_change *change, uint64_t now_ns);
/* After all links were polled: own announcement, routes. Lowers *ret_deadline_ns. */
void via_lsdb_update(struct via_node *node, uint64_t now_ns, uint64_t *ret_deadline_ns);
void via_lsdb_send(struct via_node *node, struct via_link *link);
/* Is there something that via_lsdb_send() has not sent for want of room? */
static inline bool via_lsdb_has_to_send(const struct via_lsdb_link *link)
{
    return link->dirty_count != 0 || link->sending != VIA_HOST_NONE;
}

#endif
