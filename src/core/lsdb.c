/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Link states and routes. Control thread.
 *
 * Every host floods an announcement of its neighbours; each host keeps the newest of every other
 * and computes shortest ways by hops. Nothing waits in queues: per link there is one bit per host,
 * "the peer has not got this one", so a slow link gets the newest and nothing is ever dropped.
 */
#include <errno.h>

#include "base/mutant.h"
#include "core/link.h"

#define RECORDS_PER_TURN 64
/* A number that was forgotten is not believed again for so long: else two hosts that forget it at
 * different times would remind each other of it for ever. */
#define DISBELIEF_NS (4 * VIA_LINK_STATE_FORGET_NS)

/* --- who has to be told ---------------------------------------------------------------------- */

static bool is_dirty(const struct via_link *link, uint16_t host)
{
    return (link->dirty[host / 64] >> (host % 64) & 1) != 0;
}

static void set_dirty(struct via_link *link, uint16_t host)
{
    if (!is_dirty(link, host)) {
        link->dirty[host / 64] |= UINT64_C(1) << (host % 64);
        link->dirty_count++;
    }
}

static void clear_dirty(struct via_link *link, uint16_t host)
{
    if (is_dirty(link, host)) {
        link->dirty[host / 64] &= ~(UINT64_C(1) << (host % 64));
        link->dirty_count--;
    }
}

/* The next one in turn; there is one. */
static uint16_t next_dirty(struct via_link *link, unsigned hosts_max)
{
    unsigned host = link->dirty_from;
    for (unsigned i = 0; i < hosts_max; i++, host++) {
        if (host >= hosts_max) {
            host = 0;
        }
        if (is_dirty(link, (uint16_t)host)) {
            break;
        }
    }
    link->dirty_from = host + 1;
    return (uint16_t)host;
}

static void tell_all_but(struct via_node *node, const struct via_link *but, uint16_t host)
{
    for (unsigned p = 0; p < node->config.ports_count; p++) {
        struct via_link *link = &node->links[p];
        if (link != but && link->phase == VIA_PHASE_UP) {
            set_dirty(link, host);
        }
    }
}

/* --- the database ---------------------------------------------------------------------------- */

static uint32_t session_of(const struct via_lsa *lsa)
{
    return atomic_load_explicit(&lsa->session, memory_order_relaxed);
}

static unsigned neighbours_of(const struct via_lsa *lsa)
{
    return atomic_load_explicit(&lsa->neighbours_count, memory_order_relaxed);
}

static uint16_t neighbour_at(const struct via_lsa *lsa, unsigned i)
{
    return atomic_load_explicit(&lsa->neighbours[i], memory_order_relaxed);
}

static bool is_high(uint64_t sequence)
{
    return sequence >= VIA_LINK_STATE_SEQUENCE_HIGH;
}

static void store(struct via_lsa *lsa, const struct via_announcement *head,
                  const struct via_announcement_neighbour *neighbours)
{
    uint32_t version = atomic_load_explicit(&lsa->version, memory_order_relaxed);

    atomic_store_explicit(&lsa->version, version + 1, memory_order_relaxed);
    /* Pairs with the acquire fence in via_node_neighbours(): who sees a new field sees the odd
     * version. */
    atomic_thread_fence(memory_order_release);
    lsa->sequence = head->sequence;
    atomic_store_explicit(&lsa->session, head->session, memory_order_relaxed);
    atomic_store_explicit(&lsa->neighbours_count, head->neighbours_count, memory_order_relaxed);
    for (unsigned i = 0; i < head->neighbours_count; i++) {
        atomic_store_explicit(&lsa->neighbours[i], neighbours[i].host, memory_order_relaxed);
        lsa->neighbour_sessions[i] = neighbours[i].session;
    }
    /* Pairs with the acquire load in via_node_neighbours(). */
    atomic_store_explicit(&lsa->version, version + 2, memory_order_release);
}

int via_node_neighbours(const struct via_node *node, uint16_t host, uint16_t *ret_hosts,
                        unsigned max)
{
    if (host >= node->config.hosts_max) {
        return -EINVAL;
    }
    const struct via_lsa *lsa = &node->lsdb->lsas[host];
    for (;;) {
        /* Pairs with the release store at the end of store(). */
        uint32_t version = atomic_load_explicit(&lsa->version, memory_order_acquire);
        uint32_t session = session_of(lsa);
        unsigned count = via_min(neighbours_of(lsa), VIA_LINK_STATE_NEIGHBOURS_MAX);
        for (unsigned i = 0; i < count && i < max; i++) {
            ret_hosts[i] = neighbour_at(lsa, i);
        }
        /* Pairs with the release fence in store(). */
        atomic_thread_fence(memory_order_acquire);
        if (version % 2 == 0 &&
            atomic_load_explicit(&lsa->version, memory_order_relaxed) == version) {
            return session == 0 ? -ENOENT : (int)count;
        }
    }
}

/* Less than VIA_LINK_STATE_SEQUENCE_MAX, always: neighbours would call it malformed. */
static uint64_t next_own_sequence(struct via_node *node, uint64_t now_ns)
{
    uint64_t sequence = node->lsdb->lsas[node->config.host].sequence + 1;

    if (is_high(sequence)) {
        sequence =
            via_max(sequence, node->lsdb->own_high + 1); /* the others may have forgotten that */
    }
    if (sequence >= VIA_LINK_STATE_SEQUENCE_MAX && !VIA_MUTANT(LAST_NUMBER)) {
        sequence = node->lsdb->own_low + 1; /* newer as soon as the last number is forgotten */
    }
    if (is_high(sequence)) {
        node->lsdb->own_high = sequence;
        node->lsdb->own_high_ns = now_ns + VIA_LINK_STATE_FORGET_NS / 2 * 3;
    } else {
        node->lsdb->own_low = sequence;
    }
    return sequence;
}

/* My announcement, from the links that are up. */
static void announce(struct via_node *node, uint64_t now_ns)
{
    struct via_lsa *own = &node->lsdb->lsas[node->config.host];
    struct via_announcement_neighbour neighbours[VIA_LINK_STATE_NEIGHBOURS_MAX];
    struct via_announcement head = {
        .kind = VIA_LINK_STATE_KIND,
        .host = node->config.host,
        .session = node->config.session,
        .sequence = next_own_sequence(node, now_ns),
    };
    for (unsigned p = 0; p < node->config.ports_count; p++) {
        struct via_link *link = &node->links[p];
        if (link->phase == VIA_PHASE_UP) {
            neighbours[head.neighbours_count++] = (struct via_announcement_neighbour){
                .host = atomic_load_explicit(&link->peer, memory_order_relaxed),
                .session = link->peer_seen_session,
            };
        }
    }
    store(own, &head, neighbours);
    tell_all_but(node, NULL, node->config.host);
    node->lsdb->routes_dirty = true;
}

void via_lsdb_init(struct via_node *node)
{
    for (unsigned h = 0; h < node->config.hosts_max; h++) {
        atomic_store_explicit(&node->routes[h], VIA_ROUTE_NONE, memory_order_relaxed);
    }
    atomic_store_explicit(&node->sessions[node->config.host], node->config.session,
                          memory_order_relaxed);
    atomic_store_explicit(&node->routes[node->config.host], 0, memory_order_relaxed);
    /* Newer than all announcements of my earlier lives, wherever they still lie: else hosts that
     * know of this life could go back to an earlier one, until I have outnumbered it. */
    if (!is_high(node->config.born + 1) && !VIA_MUTANT(UNBORN)) {
        node->lsdb->lsas[node->config.host].sequence = node->config.born;
    }
    node->lsdb->own_high_ns = VIA_NEVER_NS;
    node->lsdb->forget_ns = VIA_NEVER_NS;
    node->lsdb->own_dirty = true;
}

void via_lsdb_link_up(struct via_node *node, struct via_link *link)
{
    for (unsigned h = 0; h < node->config.hosts_max; h++) {
        clear_dirty(link, (uint16_t)h);
        if (session_of(&node->lsdb->lsas[h]) != 0) {
            set_dirty(link, (uint16_t)h);
        }
    }
    node->lsdb->own_dirty = true;
}

/* --- what comes in --------------------------------------------------------------------------- */

/* A private copy of an announcement; false when it breaks the rules. */
static bool parse(const struct via_node *node, const struct via_pipe_record *record,
                  struct via_announcement *ret_head,
                  struct via_announcement_neighbour ret_neighbours[VIA_LINK_STATE_NEIGHBOURS_MAX])
{
    memcpy(ret_head, record->head, sizeof(*ret_head));
    if (ret_head->kind != VIA_LINK_STATE_KIND || ret_head->host >= node->config.hosts_max ||
        ret_head->session == 0 || ret_head->sequence == 0 ||
        ret_head->sequence >= VIA_LINK_STATE_SEQUENCE_MAX ||
        ret_head->neighbours_count > VIA_LINK_STATE_NEIGHBOURS_MAX ||
        record->body_bytes !=
            ret_head->neighbours_count * sizeof(struct via_announcement_neighbour)) {
        return false;
    }
    if (record->body_bytes != 0) {
        memcpy(ret_neighbours, record->body, record->body_bytes);
    }
    for (unsigned i = 0; i < ret_head->neighbours_count; i++) {
        if (ret_neighbours[i].host >= node->config.hosts_max ||
            ret_neighbours[i].host == ret_head->host || ret_neighbours[i].session == 0) {
            return false;
        }
    }
    return true;
}

/*
 * Greater than 0: the announcement is newer than what is stored. Any order does between lives of
 * equal sequence, if all hosts use the same: the living one outnumbers the other as soon as it
 * hears of it. The same for two announcements of one life, of which one must be false.
 */
static int compare(const struct via_announcement *head,
                   const struct via_announcement_neighbour *neighbours, const struct via_lsa *lsa)
{
    if (head->sequence != lsa->sequence) {
        return head->sequence > lsa->sequence ? 1 : -1;
    }
    if (head->session != session_of(lsa)) {
        return head->session > session_of(lsa) ? 1 : -1;
    }
    if (head->neighbours_count != neighbours_of(lsa)) {
        return head->neighbours_count > neighbours_of(lsa) ? 1 : -1;
    }
    for (unsigned i = 0; i < head->neighbours_count; i++) {
        if (neighbours[i].host != neighbour_at(lsa, i)) {
            return neighbours[i].host > neighbour_at(lsa, i) ? 1 : -1;
        }
        if (neighbours[i].session != lsa->neighbour_sessions[i]) {
            return neighbours[i].session > lsa->neighbour_sessions[i] ? 1 : -1;
        }
    }
    return 0;
}

/* An announcement about me: an earlier life's, or a false one, or my own words. */
static void take_own(struct via_node *node, struct via_link *link,
                     const struct via_announcement *head,
                     const struct via_announcement_neighbour *neighbours)
{
    struct via_lsa *own = &node->lsdb->lsas[node->config.host];
    int order = compare(head, neighbours, own);

    if (head->sequence < own->sequence) {
        set_dirty(link, head->host);
    } else if (order == 0) {
        clear_dirty(link, head->host);
    } else if (head->sequence < VIA_LINK_STATE_SEQUENCE_MAX - 1 || VIA_MUTANT(LAST_NUMBER)) {
        own->sequence = head->sequence;
        node->lsdb->own_outnumbered = true;
    }
    /* Else it is the last number. The peer says so when it has forgotten it. */
}

/* A false announcement, or what is left of one: to be ignored, not answered, or the peer and I
 * would go on answering each other until it has forgotten the number, too. */
static bool is_disbelieved(const struct via_lsa *lsa, uint64_t sequence, uint64_t now_ns)
{
    return sequence == lsa->forgotten && now_ns < lsa->forget_ns + DISBELIEF_NS;
}

static void take(struct via_node *node, struct via_link *link, const struct via_announcement *head,
                 const struct via_announcement_neighbour *neighbours, uint64_t now_ns)
{
    if (head->host == node->config.host) {
        take_own(node, link, head, neighbours);
        return;
    }
    struct via_lsa *lsa = &node->lsdb->lsas[head->host];
    int order = compare(head, neighbours, lsa);
    if (is_high(head->sequence) && is_disbelieved(lsa, head->sequence, now_ns)) {
        return;
    }
    if (order < 0) {
        set_dirty(link, head->host);
        return;
    }
    clear_dirty(link, head->host);
    if (order > 0) {
        store(lsa, head, neighbours);
        if (is_high(head->sequence)) {
            lsa->forgotten = 0;
            lsa->forget_ns = now_ns + VIA_LINK_STATE_FORGET_NS;
            node->lsdb->forget_ns = via_min(node->lsdb->forget_ns, lsa->forget_ns);
        }
        tell_all_but(node, link, head->host);
        node->lsdb->routes_dirty = true;
        node->changed = true;
    }
}

int via_lsdb_receive(struct via_node *node, struct via_link *link, uint64_t now_ns)
{
    struct via_pipe_reader *reader = &link->control_rx;

    for (unsigned taken = 0; taken < RECORDS_PER_TURN; taken++) {
        struct via_pipe_record record;
        struct via_announcement head;
        struct via_announcement_neighbour neighbours[VIA_LINK_STATE_NEIGHBOURS_MAX];
        int rc = via_pipe_take(reader, &record);
        if (rc == 0) {
            break;
        }
        if (rc < 0 || !parse(node, &record, &head, neighbours)) {
            return -EPROTO;
        }
        via_pipe_release(reader, 1);
        take(node, link, &head, neighbours, now_ns);
    }
    via_control_pipe_taken(link);
    return 0;
}

/* --- what goes out --------------------------------------------------------------------------- */

static void send_one(const struct via_node *node, struct via_link *link, uint16_t host)
{
    const struct via_lsa *lsa = &node->lsdb->lsas[host];
    struct via_announcement_neighbour neighbours[VIA_LINK_STATE_NEIGHBOURS_MAX];
    struct via_announcement head = {
        .kind = VIA_LINK_STATE_KIND,
        .neighbours_count = (uint8_t)neighbours_of(lsa),
        .host = host,
        .session = session_of(lsa),
        .sequence = lsa->sequence,
    };
    for (unsigned i = 0; i < head.neighbours_count; i++) {
        neighbours[i] = (struct via_announcement_neighbour){
            .host = neighbour_at(lsa, i),
            .session = lsa->neighbour_sessions[i],
        };
    }
    /* Room was checked; a broken pipe is noticed by the next look at the link. */
    (void)via_pipe_send(&link->control_tx, &head, sizeof(head), neighbours,
                        head.neighbours_count * sizeof(neighbours[0]));
    clear_dirty(link, host);
}

void via_lsdb_send(struct via_node *node, struct via_link *link)
{
    bool sent = false;

    while (link->dirty_count != 0 && via_pipe_writer_room(&link->control_tx) != 0) {
        send_one(node, link, next_dirty(link, node->config.hosts_max));
        sent = true;
    }
    if (sent) {
        via_control_pipe_sent(link);
    }
}

/* --- routes ---------------------------------------------------------------------------------- */

static bool announces(const struct via_lsa *lsa, uint16_t host, uint32_t session)
{
    for (unsigned i = 0; i < neighbours_of(lsa); i++) {
        if (neighbour_at(lsa, i) == host && lsa->neighbour_sessions[i] == session) {
            return true;
        }
    }
    return false;
}

/* Both ends announce the edge, each the life that the other one announces for itself. */
static bool is_edge(const struct via_node *node, uint16_t a, uint16_t b)
{
    const struct via_lsa *lsa_a = &node->lsdb->lsas[a];
    const struct via_lsa *lsa_b = &node->lsdb->lsas[b];
    return session_of(lsa_a) != 0 && session_of(lsa_b) != 0 &&
           announces(lsa_a, b, session_of(lsa_b)) && announces(lsa_b, a, session_of(lsa_a));
}

/* Adds a host that was reached for the first time, if frames get that far. */
static void reach(struct via_node *node, uint16_t host, uint32_t hops, uint32_t port,
                  unsigned *count)
{
    if (node->lsdb->route_scratch[host] == VIA_ROUTE_NONE && hops <= node->config.hops_max) {
        node->lsdb->route_scratch[host] = via_route_word(hops, port);
        node->lsdb->queue[(*count)++] = host;
    }
}

/* The neighbours that links of a dimension lead to, in order of ports. */
static void reach_neighbours(struct via_node *node, unsigned dimension, unsigned *count)
{
    uint16_t me = node->config.host;
    for (unsigned p = 0; p < node->config.ports_count; p++) {
        const struct via_link *link = &node->links[p];
        uint16_t peer = atomic_load_explicit(&link->peer, memory_order_relaxed);
        if (node->config.dimensions[p] == dimension && link->phase == VIA_PHASE_UP &&
            link->peer_seen_session == session_of(&node->lsdb->lsas[peer]) &&
            is_edge(node, me, peer)) {
            reach(node, peer, 1, p, count);
        }
    }
}

/* Shortest ways by hops; equal ones by the lowest dimension, then by the lowest port: hosts enter
 * the queue in that order at one hop, and so at every number of hops. */
static void compute_routes(struct via_node *node)
{
    uint16_t me = node->config.host;
    unsigned count = 0;

    for (unsigned h = 0; h < node->config.hosts_max; h++) {
        node->lsdb->route_scratch[h] = VIA_ROUTE_NONE;
    }
    node->lsdb->route_scratch[me] = 0;
    for (unsigned d = 0; d < VIA_DIMENSIONS_MAX; d++) {
        reach_neighbours(node, d, &count);
    }
    for (unsigned taken = 0; taken < count;) {
        /* First in, first out: the mutant makes ways that are not shortest, and so meet in loops.
         */
        uint16_t host = node->lsdb->queue[VIA_MUTANT(ROUTE_LOOP) ? --count : taken++];
        uint32_t route = node->lsdb->route_scratch[host];
        const struct via_lsa *lsa = &node->lsdb->lsas[host];
        for (unsigned n = 0; n < neighbours_of(lsa); n++) {
            uint16_t next = neighbour_at(lsa, n);
            if (is_edge(node, host, next)) {
                reach(node, next, via_route_hops(route) + 1u, via_route_port(route), &count);
            }
        }
    }
}

static void publish_routes(struct via_node *node)
{
    bool changed = false;

    for (unsigned h = 0; h < node->config.hosts_max; h++) {
        uint32_t route = node->lsdb->route_scratch[h];
        uint32_t session = session_of(&node->lsdb->lsas[h]);
        /* A session counts once its host can be reached: that is, once a neighbour has shaken
         * hands with it. */
        if (route != VIA_ROUTE_NONE &&
            session != atomic_load_explicit(&node->sessions[h], memory_order_relaxed)) {
            atomic_store_explicit(&node->sessions[h], session, memory_order_relaxed);
            changed = true;
        }
        if (route != atomic_load_explicit(&node->routes[h], memory_order_relaxed)) {
            /* Pairs with the acquire in take_routes(): no way without the session at its end. */
            atomic_store_explicit(&node->routes[h], route, memory_order_release);
            changed = true;
        }
    }
    if (!changed) {
        return;
    }
    node->changed = true;
    uint32_t version = atomic_load_explicit(&node->routes_version, memory_order_relaxed);
    /* Pairs with the acquire in take_routes(): the routes and sessions. */
    atomic_store_explicit(&node->routes_version, version + 1, memory_order_release);
    for (unsigned k = 0; k < node->config.channels_count; k++) {
        node->env.wake(node->env.ctx, k);
    }
}

/* --- high numbers ---------------------------------------------------------------------------- */

/* What an announcement says stays, its number does not: see VIA_LINK_STATE_SEQUENCE_HIGH. */
static void forget_high_numbers(struct via_node *node, uint64_t now_ns)
{
    if (now_ns < node->lsdb->forget_ns) {
        return;
    }
    node->lsdb->forget_ns = VIA_NEVER_NS;
    for (unsigned h = 0; h < node->config.hosts_max; h++) {
        struct via_lsa *lsa = &node->lsdb->lsas[h];
        if (h == node->config.host || !is_high(lsa->sequence)) {
            continue;
        }
        if (now_ns >= lsa->forget_ns) {
            lsa->forgotten = lsa->sequence;
            lsa->sequence = 1;
            tell_all_but(node, NULL, (uint16_t)h); /* those that have a newer one answer */
        } else {
            node->lsdb->forget_ns = via_min(node->lsdb->forget_ns, lsa->forget_ns);
        }
    }
}

/* Does my announcement have to be made again, though my neighbours have not changed? */
static void update_own(struct via_node *node, uint64_t now_ns, uint64_t *ret_deadline_ns)
{
    if (node->lsdb->own_outnumbered) {
        /* Two living hosts with one id would outnumber each other at full speed. */
        uint64_t next = node->lsdb->own_sequence_ns + node->config.heartbeat_ns;
        if (node->lsdb->own_sequence_ns == 0 || now_ns >= next) {
            node->lsdb->own_outnumbered = false;
            node->lsdb->own_dirty = true;
            node->lsdb->own_sequence_ns = now_ns;
        } else {
            *ret_deadline_ns = via_min(*ret_deadline_ns, next);
        }
    }
    if (now_ns >= node->lsdb->own_high_ns) {
        node->lsdb->own_high_ns = VIA_NEVER_NS;
        node->lsdb->lsas[node->config.host].sequence = node->lsdb->own_low;
        node->lsdb->own_dirty = true;
    }
}

void via_lsdb_update(struct via_node *node, uint64_t now_ns, uint64_t *ret_deadline_ns)
{
    forget_high_numbers(node, now_ns);
    update_own(node, now_ns, ret_deadline_ns);
    if (node->lsdb->own_dirty) {
        node->lsdb->own_dirty = false;
        announce(node, now_ns);
    }
    if (node->lsdb->routes_dirty) {
        node->lsdb->routes_dirty = false;
        compute_routes(node);
        publish_routes(node);
    }
    *ret_deadline_ns =
        via_min(*ret_deadline_ns, via_min(node->lsdb->forget_ns, node->lsdb->own_high_ns));
}
