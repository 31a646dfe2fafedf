/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Announcements as they are stored: one for each host, with its neighbours in chunks. */
#include <errno.h>

#include "core/lsdb.h"

/* --- chunks ---------------------------------------------------------------------------------- */

size_t via_lsa_chunks_count(unsigned hosts_max, unsigned ports_count)
{
    size_t longest = (hosts_max - 1 + VIA_LSA_CHUNK_NEIGHBOURS - 1) / VIA_LSA_CHUNK_NEIGHBOURS;
    /* A list for each host, one being taken on each link, and one that replaces another. */
    return (hosts_max + ports_count + 1) * longest;
}

void via_lsa_init(struct via_lsdb *lsdb)
{
    lsdb->chunk_free = VIA_LSA_CHUNK_NONE;
}

static uint32_t next_of(const struct via_lsdb *lsdb, uint32_t chunk)
{
    return atomic_load_explicit(&lsdb->chunks[chunk].next, memory_order_relaxed);
}

static void set_next(struct via_lsdb *lsdb, uint32_t chunk, uint32_t next)
{
    atomic_store_explicit(&lsdb->chunks[chunk].next, next, memory_order_relaxed);
}

/* Memory that was never used is not touched: most fabrics need little of it. */
static uint32_t chunk_new(struct via_lsdb *lsdb)
{
    uint32_t chunk = lsdb->chunk_free;
    if (chunk != VIA_LSA_CHUNK_NONE) {
        lsdb->chunk_free = next_of(lsdb, chunk);
    } else {
        chunk = lsdb->chunks_fresh++;
    }
    lsdb->chunks[chunk].edges = 0;
    set_next(lsdb, chunk, VIA_LSA_CHUNK_NONE);
    return chunk;
}

void via_lsa_list_init(struct via_lsa_list *list)
{
    *list = (struct via_lsa_list){.first = VIA_LSA_CHUNK_NONE, .last = VIA_LSA_CHUNK_NONE};
}

void via_lsa_list_append(struct via_lsdb *lsdb, struct via_lsa_list *list, uint16_t host,
                         uint32_t session)
{
    unsigned at = list->count % VIA_LSA_CHUNK_NEIGHBOURS;
    if (at == 0) {
        uint32_t chunk = chunk_new(lsdb);
        if (list->count == 0) {
            list->first = chunk;
        } else {
            set_next(lsdb, list->last, chunk);
        }
        list->last = chunk;
    }
    atomic_store_explicit(&lsdb->chunks[list->last].hosts[at], host, memory_order_relaxed);
    lsdb->chunks[list->last].sessions[at] = session;
    list->count++;
}

void via_lsa_list_free(struct via_lsdb *lsdb, struct via_lsa_list *list)
{
    if (list->count != 0) {
        set_next(lsdb, list->last, lsdb->chunk_free);
        lsdb->chunk_free = list->first;
    }
    via_lsa_list_init(list);
}

void via_neighbours_in(const struct via_lsdb *lsdb, const struct via_lsa_list *list,
                       struct via_neighbours *ret_it)
{
    *ret_it = (struct via_neighbours){.lsdb = lsdb, .chunk = list->first, .count = list->count};
}

void via_neighbours_of(const struct via_lsdb *lsdb, const struct via_lsa *lsa,
                       struct via_neighbours *ret_it)
{
    *ret_it = (struct via_neighbours){
        .lsdb = lsdb,
        .chunk = atomic_load_explicit(&lsa->first, memory_order_relaxed),
        .count = via_lsa_neighbours_count(lsa),
    };
}

/* --- announcements --------------------------------------------------------------------------- */

static uint32_t begin_write(struct via_lsa *lsa)
{
    uint32_t version = atomic_load_explicit(&lsa->version, memory_order_relaxed);
    atomic_store_explicit(&lsa->version, version + 1, memory_order_relaxed);
    /* Pairs with the acquire fence in via_node_neighbours(): a reader of a new field reads the odd
     * version. */
    atomic_thread_fence(memory_order_release);
    return version + 2;
}

void via_lsa_store(struct via_lsdb *lsdb, struct via_lsa *lsa, uint32_t session, uint64_t sequence,
                   struct via_lsa_list *list)
{
    struct via_lsa_list old = {
        .first = atomic_load_explicit(&lsa->first, memory_order_relaxed),
        .last = lsa->last,
        .count = (uint16_t)via_lsa_neighbours_count(lsa),
    };
    uint32_t version = begin_write(lsa);

    lsa->sequence = sequence;
    atomic_store_explicit(&lsa->session, session, memory_order_relaxed);
    atomic_store_explicit(&lsa->first, list->first, memory_order_relaxed);
    atomic_store_explicit(&lsa->neighbours_count, list->count, memory_order_relaxed);
    lsa->last = list->last;
    /* Pairs with the acquire load in via_node_neighbours(). The old chunks are written again only
     * after that. */
    atomic_store_explicit(&lsa->version, version, memory_order_release);
    via_lsa_list_free(lsdb, &old);
    via_lsa_list_init(list);
}

void via_lsa_renumber(struct via_lsa *lsa, uint64_t sequence)
{
    uint32_t version = begin_write(lsa);
    lsa->sequence = sequence;
    atomic_store_explicit(&lsa->version, version, memory_order_release);
}

static int order_of(uint64_t a, uint64_t b)
{
    return a == b ? 0 : a > b ? 1 : -1;
}

int via_lsa_compare(const struct via_lsdb *lsdb, const struct via_lsa *lsa, uint32_t session,
                    uint64_t sequence, const struct via_lsa_list *list)
{
    struct via_neighbours new, old;
    int order = order_of(sequence, lsa->sequence);

    if (order == 0) {
        order = order_of(session, via_lsa_session(lsa));
    }
    if (order == 0) {
        order = order_of(list->count, via_lsa_neighbours_count(lsa));
    }
    via_neighbours_in(lsdb, list, &new);
    via_neighbours_of(lsdb, lsa, &old);
    while (order == 0 && via_neighbours_next(&new) && via_neighbours_next(&old)) {
        order = order_of(new.host, old.host);
        if (order == 0) {
            order = order_of(new.session, old.session);
        }
    }
    return order;
}

/* --- [any] ----------------------------------------------------------------------------------- */

/* What it stores may be of two announcements: the caller looks at the version. A chunk may have
 * come into another list meanwhile, so nothing is taken for granted. */
static void read_hosts(const struct via_lsdb *lsdb, const struct via_lsa *lsa, uint16_t *ret_hosts,
                       unsigned max)
{
    uint32_t chunk = atomic_load_explicit(&lsa->first, memory_order_relaxed);
    for (unsigned i = 0; i < max && chunk < lsdb->chunks_count; i++) {
        const struct via_lsa_chunk *at = &lsdb->chunks[chunk];
        unsigned place = i % VIA_LSA_CHUNK_NEIGHBOURS;
        ret_hosts[i] = atomic_load_explicit(&at->hosts[place], memory_order_relaxed);
        if (place == VIA_LSA_CHUNK_NEIGHBOURS - 1) {
            chunk = atomic_load_explicit(&at->next, memory_order_relaxed);
        }
    }
}

int via_node_neighbours(const struct via_node *node, uint16_t host, uint16_t *ret_hosts,
                        unsigned max)
{
    if (host >= node->config.hosts_max) {
        return -EINVAL;
    }
    const struct via_lsa *lsa = &node->lsdb->lsas[host];
    for (;;) {
        /* Pairs with the release store in via_lsa_store(). */
        uint32_t version = atomic_load_explicit(&lsa->version, memory_order_acquire);
        uint32_t session = via_lsa_session(lsa);
        unsigned count = via_lsa_neighbours_count(lsa);
        read_hosts(node->lsdb, lsa, ret_hosts, via_min(count, max));
        /* Pairs with the release fence in begin_write(). */
        atomic_thread_fence(memory_order_acquire);
        if (version % 2 == 0 &&
            atomic_load_explicit(&lsa->version, memory_order_relaxed) == version) {
            return session == 0 ? -ENOENT : (int)count;
        }
    }
}
