/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The stored announcements: one of each host, with its neighbours in chunks. */
#include <errno.h>

#include "core/lsdb.h"

/* --- chunks ---------------------------------------------------------------------------------- */

size_t via_lsa_chunks_count(unsigned hosts_max, unsigned ports_count)
{
    size_t longest = (hosts_max - 1 + VIA_LSA_CHUNK_NEIGHBOURS - 1) / VIA_LSA_CHUNK_NEIGHBOURS;
    /* A list for each host, an incomplete one for each link, and one that replaces another. */
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

/* Chunks that were never used are not written, because most fabrics need few of them. */
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

/* --- changes --------------------------------------------------------------------------------- */

static uint64_t rotl(uint64_t x, unsigned bits)
{
    return x << bits | x >> (64 - bits);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotl(v[1], 13) ^ v[0];
    v[3] = rotl(v[3], 16) ^ v[2];
    v[0] = rotl(v[0], 32) + v[3];
    v[2] += v[1];
    v[1] = rotl(v[1], 17) ^ v[2];
    v[3] = rotl(v[3], 21) ^ v[0];
    v[2] = rotl(v[2], 32);
}

/* SipHash-2-4 (Aumasson and Bernstein, 2012) with session and sequence number as the key. So no
 * host can search for another list of neighbours with the same digest before the number is used. */
static uint64_t digest_of(struct via_neighbours it, uint32_t session, uint64_t sequence)
{
    uint64_t v[4] = {
        session ^ UINT64_C(0x736f6d6570736575), sequence ^ UINT64_C(0x646f72616e646f6d),
        session ^ UINT64_C(0x6c7967656e657261), sequence ^ UINT64_C(0x7465646279746573)};
    uint64_t bytes = (uint64_t)it.count * sizeof(uint64_t);
    for (bool more = true; more;) {
        more = via_neighbours_next(&it);
        uint64_t word = more ? (uint64_t)it.session << 32 | it.host : bytes << 56;
        v[3] ^= word;
        sip_round(v);
        sip_round(v);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    for (unsigned i = 0; i < 4; i++) {
        sip_round(v);
    }
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static uint64_t digest_of_list(const struct via_lsdb *lsdb, const struct via_lsa_list *list,
                               uint32_t session, uint64_t sequence)
{
    struct via_neighbours it;
    via_neighbours_in(lsdb, list, &it);
    return digest_of(it, session, sequence);
}

uint64_t via_lsa_digest(const struct via_lsdb *lsdb, const struct via_lsa *lsa)
{
    struct via_neighbours it;
    via_neighbours_of(lsdb, lsa, &it);
    return digest_of(it, via_lsa_session(lsa), lsa->sequence);
}

bool via_lsa_find_changes(const struct via_lsdb *lsdb, const struct via_lsa *lsa, uint64_t sequence,
                          const struct via_lsa_list *list, struct via_lsa_change *ret_change)
{
    struct via_neighbours old, new;
    via_neighbours_of(lsdb, lsa, &old);
    via_neighbours_in(lsdb, list, &new);
    bool is_old = via_neighbours_next(&old), is_new = via_neighbours_next(&new);

    ret_change->count = 0;
    while (is_old || is_new) {
        bool gone = is_old && (!is_new || old.host < new.host);
        bool both = is_old && is_new && old.host == new.host;
        if (!both || old.session != new.session) {
            if (ret_change->count == VIA_LINK_STATE_CHANGE_NEIGHBOURS) {
                return false;
            }
            ret_change->entries[ret_change->count++] = (struct via_announcement_neighbour){
                .host = gone ? old.host : new.host, .session = gone ? 0 : new.session};
        }
        is_old = gone || both ? via_neighbours_next(&old) : is_old;
        is_new = gone ? is_new : via_neighbours_next(&new);
    }
    ret_change->digest = digest_of_list(lsdb, list, via_lsa_session(lsa), sequence);
    return true;
}

static void apply(struct via_lsdb *lsdb, const struct via_lsa *lsa,
                  const struct via_lsa_change *change, struct via_lsa_list *list)
{
    struct via_neighbours old;
    via_neighbours_of(lsdb, lsa, &old);
    via_lsa_list_init(list);
    bool is_old = via_neighbours_next(&old);

    for (unsigned i = 0; i <= change->count; i++) {
        const struct via_announcement_neighbour *entry =
            i < change->count ? &change->entries[i] : NULL;
        while (is_old && (entry == NULL || old.host < entry->host)) {
            via_lsa_list_append(lsdb, list, old.host, old.session);
            is_old = via_neighbours_next(&old);
        }
        if (entry != NULL && is_old && old.host == entry->host) {
            is_old = via_neighbours_next(&old);
        }
        if (entry != NULL && entry->session != 0) {
            via_lsa_list_append(lsdb, list, entry->host, entry->session);
        }
    }
}

bool via_lsa_apply(struct via_lsdb *lsdb, const struct via_lsa *lsa, uint64_t sequence,
                   const struct via_lsa_change *change, struct via_lsa_list *ret_list)
{
    apply(lsdb, lsa, change, ret_list);
    if (digest_of_list(lsdb, ret_list, via_lsa_session(lsa), sequence) == change->digest) {
        return true;
    }
    via_lsa_list_free(lsdb, ret_list);
    return false;
}

uint64_t via_lsa_digest_after(struct via_lsdb *lsdb, const struct via_lsa *lsa, uint64_t sequence,
                              const struct via_lsa_change *change)
{
    struct via_lsa_list list;
    apply(lsdb, lsa, change, &list);
    uint64_t digest = digest_of_list(lsdb, &list, via_lsa_session(lsa), sequence);
    via_lsa_list_free(lsdb, &list);
    return digest;
}

/* --- announcements --------------------------------------------------------------------------- */

/* Copies the edge bits of the neighbours that both lists contain. */
static void keep_edges(const struct via_lsdb *lsdb, const struct via_lsa *lsa,
                       const struct via_lsa_list *list)
{
    struct via_neighbours old, new;
    via_neighbours_of(lsdb, lsa, &old);
    via_neighbours_in(lsdb, list, &new);
    bool is_old = via_neighbours_next(&old);
    while (is_old && via_neighbours_next(&new)) {
        while (is_old && old.host < new.host) {
            is_old = via_neighbours_next(&old);
        }
        if (is_old && old.host == new.host &&via_neighbours_is_edge(&old)) {
            via_neighbours_mark_edge(&new, true);
        }
    }
}

static uint32_t begin_write(struct via_lsa *lsa)
{
    uint32_t version = atomic_load_explicit(&lsa->version, memory_order_relaxed);
    atomic_store_explicit(&lsa->version, version + 1, memory_order_relaxed);
    /* Pairs with the acquire fence in via_node_neighbours(): a reader that loads a new field also
     * loads the odd version. */
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
    keep_edges(lsdb, lsa, list);
    uint32_t version = begin_write(lsa);

    lsa->sequence = sequence;
    lsa->base = 0;
    atomic_store_explicit(&lsa->session, session, memory_order_relaxed);
    atomic_store_explicit(&lsa->first, list->first, memory_order_relaxed);
    atomic_store_explicit(&lsa->neighbours_count, list->count, memory_order_relaxed);
    lsa->last = list->last;
    /* Pairs with the acquire load in via_node_neighbours(). The old chunks are overwritten only
     * after this store. */
    atomic_store_explicit(&lsa->version, version, memory_order_release);
    via_lsa_list_free(lsdb, &old);
    via_lsa_list_init(list);
}

void via_lsa_renumber(struct via_lsa *lsa, uint64_t sequence)
{
    uint32_t version = begin_write(lsa);
    lsa->sequence = sequence;
    lsa->base = 0;
    atomic_store_explicit(&lsa->version, version, memory_order_release);
}

void via_lsa_forget_number(struct via_lsa *lsa, uint64_t now_ns)
{
    for (unsigned i = VIA_LSA_FORGOTTEN - 1; i != 0; i--) {
        lsa->forgotten[i] = lsa->forgotten[i - 1];
        lsa->forgotten_ns[i] = lsa->forgotten_ns[i - 1];
    }
    lsa->forgotten[0] = lsa->sequence;
    lsa->forgotten_ns[0] = now_ns;
    via_lsa_renumber(lsa, 1);
}

bool via_lsa_is_ignored(const struct via_lsa *lsa, uint64_t sequence, uint64_t now_ns)
{
    for (unsigned i = 0; via_lsa_is_high(sequence) && i < VIA_LSA_FORGOTTEN; i++) {
        if (sequence == lsa->forgotten[i] && now_ns < lsa->forgotten_ns[i] + VIA_LSA_IGNORED_NS) {
            return true;
        }
    }
    return false;
}

/* --- two hosts with one id ------------------------------------------------------------------- */

/* Returns of a session within this time of each other belong to one dispute: hosts with one id
 * answer each other once per heartbeat. */
static uint64_t dispute_ns(const struct via_node *node)
{
    return via_max(2 * VIA_SEC_NS, 8 * node->config.heartbeat_ns);
}

/* One return may be the late announcement of an earlier session, so a dispute needs this number of
 * returns. */
#define DISPUTE_RETURNS 3u

void via_lsa_mark_session(const struct via_node *node, struct via_lsa *lsa, uint32_t came,
                          uint32_t gone, uint64_t now_ns)
{
    if (came == lsa->replaced_session) {
        uint64_t before_ns = atomic_load_explicit(&lsa->returned_ns, memory_order_relaxed);
        bool goes_on = before_ns != 0 && now_ns - before_ns < dispute_ns(node);
        uint32_t count =
            goes_on ? atomic_load_explicit(&lsa->returns_count, memory_order_relaxed) : 0;
        atomic_store_explicit(&lsa->returns_count, via_min(count + 1, DISPUTE_RETURNS),
                              memory_order_relaxed);
        atomic_store_explicit(&lsa->returned_ns, now_ns, memory_order_relaxed);
    }
    lsa->replaced_session = gone;
}

bool via_node_is_id_shared(const struct via_node *node, uint16_t host, uint64_t now_ns)
{
    if (host >= node->config.hosts_max) {
        return false;
    }
    const struct via_lsa *lsa = &node->lsdb->lsas[host];
    return atomic_load_explicit(&lsa->returns_count, memory_order_relaxed) == DISPUTE_RETURNS &&
           now_ns <
               atomic_load_explicit(&lsa->returned_ns, memory_order_relaxed) + dispute_ns(node);
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

/* Reads the neighbours of a host. The result may mix two announcements, which the caller detects by
 * the version. A chunk may have become part of another list meanwhile, so every index is
 * checked. */
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
