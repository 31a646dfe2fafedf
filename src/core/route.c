/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Shortest routes, maintained incrementally.
 *
 * An edge exists if both ends announce each other, each with the session that the other end
 * announces for itself. The label of a host is its distance in hops and, among the routes of that
 * length, the lowest rank of a first port (dimensions first, then ports). The label follows from
 * the neighbours' labels alone: it is the lowest of them plus one hop. So a change of edges changes
 * labels from there on and no others.
 *
 * The heap contains the hosts whose label is not the one that follows from their neighbours'
 * labels, ordered by the lower of the old and the new label. The first host gets its new label if
 * that is the lower one. If the new label is the higher one, the host first loses its label, so
 * that neighbours whose labels depended on it search for other routes. (Ramalingam and Reps, "An
 * incremental algorithm for a generalization of the shortest-path problem", 1996.)
 */
#include "base/mutant.h"
#include "core/link.h"

/* Time after which a session is accepted that other hosts dispute. */
#define CONTEST_NS VIA_LINK_STATE_FORGET_NS

#define ONE_HOP via_route_word(1, 0)

/* --- which hosts need a new route --------------------------------------------------------- */

static void touch(struct via_lsdb *lsdb, uint16_t host)
{
    if (lsdb->is_touched[host] == 0) {
        lsdb->is_touched[host] = 1;
        lsdb->touched[lsdb->touched_count++] = host;
    }
}

void via_routes_touch(struct via_node *node, uint16_t host)
{
    touch(node->lsdb, host);
}

/* Finds the entry for `other` among the neighbours of a host. */
static bool find_neighbour(const struct via_lsdb *lsdb, uint16_t host, uint16_t other,
                           struct via_neighbours *ret_it)
{
    via_neighbours_of(lsdb, &lsdb->lsas[host], ret_it);
    via_neighbours_seek(ret_it, other);
    while (via_neighbours_next(ret_it) && ret_it->host <= other) {
        if (ret_it->host == other) {
            return true;
        }
    }
    return false;
}

/* The label of a neighbour whose route leads through a host with this label. */
static uint32_t through(uint32_t label)
{
    return label == VIA_ROUTE_NONE ? VIA_ROUTE_NONE : label + ONE_HOP;
}

/*
 * An edge has appeared or disappeared; called for each of its ends. The end needs another label
 * only if its label came through the edge, or if the edge now gives a lower label. The ends of this
 * host's own links are always examined, because their labels do not follow from the label of
 * `other`.
 */
static void touch_end(struct via_node *node, uint16_t end, uint16_t other, bool edge)
{
    struct via_lsdb *lsdb = node->lsdb;
    uint32_t label = through(lsdb->labels[other]);

    if (other == node->config.host ||
        (edge ? label < lsdb->labels[end]
              : label == lsdb->labels[end] && label != VIA_ROUTE_NONE)) {
        touch(lsdb, end);
    }
}

static void set_edge(struct via_node *node, struct via_neighbours *it, struct via_neighbours *back,
                     bool edge)
{
    via_neighbours_mark_edge(it, edge);
    via_neighbours_mark_edge(back, edge);
    touch_end(node, it->host, back->host, edge);
    touch_end(node, back->host, it->host, edge);
}

/* Removes the edge to the neighbour that the iterator has found. */
static void unlink_one(struct via_node *node, uint16_t host, struct via_neighbours *it)
{
    struct via_neighbours back;
    if (via_neighbours_is_edge(it) && find_neighbour(node->lsdb, it->host, host, &back)) {
        set_edge(node, it, &back, false);
    }
}

static void link_one(struct via_node *node, uint16_t host, struct via_neighbours *it)
{
    struct via_lsdb *lsdb = node->lsdb;
    struct via_neighbours back;
    if (it->session == via_lsa_session(&lsdb->lsas[it->host]) &&
        find_neighbour(lsdb, it->host, host, &back) &&
        back.session == via_lsa_session(&lsdb->lsas[host])) {
        set_edge(node, it, &back, true);
    }
}

/* Calls act() for each neighbour, or for each neighbour in the change. */
static void visit_neighbours(struct via_node *node, uint16_t host,
                             const struct via_lsa_change *change,
                             void (*act)(struct via_node *, uint16_t, struct via_neighbours *))
{
    struct via_neighbours it;
    unsigned next = 0; /* index in the change */

    via_neighbours_of(node->lsdb, &node->lsdb->lsas[host], &it);
    if (change != NULL && change->count != 0) {
        via_neighbours_seek(&it, change->entries[0].host);
    }
    while ((change == NULL || next < change->count) && via_neighbours_next(&it)) {
        while (change != NULL && next < change->count && change->entries[next].host < it.host) {
            next++;
        }
        if (change == NULL || (next < change->count && change->entries[next].host == it.host)) {
            act(node, host, &it);
        }
    }
}

void via_routes_unlink(struct via_node *node, uint16_t host, const struct via_lsa_change *change)
{
    if (change == NULL) {
        touch(node->lsdb, host);
    }
    visit_neighbours(node, host, change, unlink_one);
}

void via_routes_link(struct via_node *node, uint16_t host, const struct via_lsa_change *change)
{
    visit_neighbours(node, host, change, link_one);
}

/* --- labels ---------------------------------------------------------------------------------- */

/* The label of a neighbour: the lowest rank of the links that are up and lead to the session that
 * the neighbour announces. */
static uint32_t local_label(const struct via_node *node, uint16_t host)
{
    uint32_t session = via_lsa_session(&node->lsdb->lsas[host]);
    for (uint16_t p = node->lsdb->local[host]; p != VIA_PORT_NONE;) {
        const struct via_link *link = &node->links[p];
        if (link->peer_seen_session == session) {
            return via_route_word(1, link->lsdb.rank);
        }
        p = link->lsdb.next_parallel;
    }
    return VIA_ROUTE_NONE;
}

/* The label that follows from the present labels of the host's neighbours. */
static uint32_t label_due(const struct via_node *node, uint16_t host)
{
    struct via_lsdb *lsdb = node->lsdb;
    uint32_t lowest = VIA_ROUTE_NONE;
    struct via_neighbours it;

    via_count(&lsdb->routes_examined, 1);
    via_neighbours_of(lsdb, &lsdb->lsas[host], &it);
    while (via_neighbours_next(&it)) {
        if (!via_neighbours_is_edge(&it)) {
            continue;
        }
        uint32_t label = lsdb->labels[it.host];
        if (it.host == node->config.host) {
            label = local_label(node, host);
        } else if (label != VIA_ROUTE_NONE) {
            label += ONE_HOP;
        }
        lowest = via_min(lowest, label);
    }
    return via_route_hops(lowest) <= node->config.hops_max ? lowest : VIA_ROUTE_NONE;
}

/* --- the heap -------------------------------------------------------------------------------- */

static void heap_put(struct via_lsdb *lsdb, unsigned at, uint16_t host)
{
    lsdb->heap[at] = host;
    lsdb->heap_at[host] = (uint16_t)at;
}

static void heap_rise(struct via_lsdb *lsdb, unsigned at)
{
    uint16_t host = lsdb->heap[at];
    while (at != 0 && lsdb->keys[host] < lsdb->keys[lsdb->heap[(at - 1) / 2]]) {
        heap_put(lsdb, at, lsdb->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    heap_put(lsdb, at, host);
}

static void heap_sink(struct via_lsdb *lsdb, unsigned at)
{
    uint16_t host = lsdb->heap[at];
    for (;;) {
        unsigned child = 2 * at + 1;
        if (child >= lsdb->heap_count) {
            break;
        }
        if (child + 1 < lsdb->heap_count &&
            lsdb->keys[lsdb->heap[child + 1]] < lsdb->keys[lsdb->heap[child]]) {
            child++;
        }
        if (lsdb->keys[lsdb->heap[child]] >= lsdb->keys[host]) {
            break;
        }
        heap_put(lsdb, at, lsdb->heap[child]);
        at = child;
    }
    heap_put(lsdb, at, host);
}

static void heap_remove(struct via_lsdb *lsdb, uint16_t host)
{
    unsigned at = lsdb->heap_at[host];
    uint16_t last = lsdb->heap[--lsdb->heap_count];

    lsdb->heap_at[host] = VIA_HOST_NONE;
    if (last != host) {
        heap_put(lsdb, at, last);
        heap_rise(lsdb, at);
        heap_sink(lsdb, lsdb->heap_at[last]);
    }
}

static void heap_set(struct via_lsdb *lsdb, uint16_t host, uint32_t key)
{
    if (lsdb->heap_at[host] == VIA_HOST_NONE) {
        heap_put(lsdb, lsdb->heap_count++, host);
    }
    lsdb->keys[host] = key;
    heap_rise(lsdb, lsdb->heap_at[host]);
    heap_sink(lsdb, lsdb->heap_at[host]);
}

/* Puts the host into the heap, or removes it. */
static void examine(struct via_node *node, uint16_t host)
{
    struct via_lsdb *lsdb = node->lsdb;

    if (host == node->config.host) {
        return;
    }
    uint32_t due = label_due(node, host);
    if (due != lsdb->labels[host]) {
        heap_set(lsdb, host, via_min(due, lsdb->labels[host]));
    } else if (lsdb->heap_at[host] != VIA_HOST_NONE) {
        heap_remove(lsdb, host);
    }
}

/*
 * Called after the label of a host has changed from `was`. Neighbours in the heap may have to leave
 * it. The label of any other neighbour follows from its neighbours, so it changes only if it came
 * through this host, or if this host now gives a lower label. Examining all neighbours instead
 * would examine all neighbours of a star's hub whenever one of them comes up.
 */
static void examine_neighbours(struct via_node *node, uint16_t host, uint32_t was)
{
    struct via_lsdb *lsdb = node->lsdb;
    uint32_t before = through(was), now = through(lsdb->labels[host]);
    struct via_neighbours it;
    via_neighbours_of(lsdb, &lsdb->lsas[host], &it);
    while (via_neighbours_next(&it)) {
        uint32_t label = lsdb->labels[it.host];
        if (via_neighbours_is_edge(&it) &&
            (lsdb->heap_at[it.host] != VIA_HOST_NONE || now < label ||
             (label == before && label != VIA_ROUTE_NONE))) {
            examine(node, it.host);
        }
    }
}

static void fix_label(struct via_node *node, uint16_t host)
{
    struct via_lsdb *lsdb = node->lsdb;
    uint32_t due = label_due(node, host), was = lsdb->labels[host];

    touch(lsdb, host);
    heap_remove(lsdb, host);
    if (due < was) {
        if (VIA_MUTANT(ROUTE_LOOP) && was != VIA_ROUTE_NONE) {
            return;
        }
        lsdb->labels[host] = due;
        examine_neighbours(node, host, was);
    } else {
        lsdb->labels[host] = VIA_ROUTE_NONE;
        examine_neighbours(node, host, was);
        examine(node, host);
    }
}

/* --- disputed sessions ------------------------------------------------------------------------ */

static bool is_reached(const struct via_node *node, uint16_t host)
{
    return host == node->config.host || node->lsdb->labels[host] != VIA_ROUTE_NONE;
}

/* True if a reachable host announces a link to this session of the host. */
static bool is_session_announced(const struct via_node *node, uint16_t host, uint32_t session)
{
    for (uint16_t h = 0; h < node->config.hosts_max; h++) {
        struct via_neighbours it;
        if (is_reached(node, h) && find_neighbour(node->lsdb, h, host, &it) &&
            it.session == session) {
            return true;
        }
    }
    return false;
}

/*
 * True if the announcements make a session of the host reachable that differs from the accepted
 * one, while other hosts still announce links to the accepted one. If the host has restarted, all
 * its neighbours soon announce the new session. Otherwise the new session may be a lie, which the
 * host outnumbers as soon as it receives it. Accepting another session ends the operations to the
 * host, so this host waits for CONTEST_NS.
 */
static bool is_contested(struct via_node *node, uint16_t host, uint64_t now_ns)
{
    struct via_lsdb *lsdb = node->lsdb;
    struct via_lsa *lsa = &lsdb->lsas[host];
    uint32_t believed = atomic_load_explicit(&node->sessions[host], memory_order_relaxed);
    bool contested = host != node->config.host && is_reached(node, host) && believed != 0 &&
                     believed != via_lsa_session(lsa) && is_session_announced(node, host, believed);

    if (contested && lsa->contested_ns == 0) {
        lsa->contested_ns = via_max(now_ns, 1);
        lsdb->contested_count++;
    }
    if (contested && now_ns - lsa->contested_ns < CONTEST_NS) {
        lsdb->contest_ns = via_min(lsdb->contest_ns, lsa->contested_ns + CONTEST_NS);
        return true;
    }
    if (lsa->contested_ns != 0) {
        lsa->contested_ns = 0;
        lsdb->contested_count--;
    }
    return false;
}

/* --- publishing ------------------------------------------------------------------------------ */

static uint32_t route_of(const struct via_node *node, uint16_t host)
{
    uint32_t label = node->lsdb->labels[host];
    if (host == node->config.host || label == VIA_ROUTE_NONE) {
        return host == node->config.host ? 0 : VIA_ROUTE_NONE;
    }
    return via_route_word(via_route_hops(label), node->lsdb->by_rank[(uint16_t)label]);
}

/* Publishes the route and session of a host. Returns whether anything has changed. */
static bool publish(struct via_node *node, uint16_t host, uint64_t now_ns)
{
    uint32_t session = via_lsa_session(&node->lsdb->lsas[host]);
    uint32_t route = route_of(node, host);
    bool changed = false;

    if (is_contested(node, host, now_ns)) {
        route = VIA_ROUTE_NONE;
    }
    /* A session is accepted when its host is reachable, because then a neighbour has completed a
     * handshake with it. */
    if (route != VIA_ROUTE_NONE &&
        session != atomic_load_explicit(&node->sessions[host], memory_order_relaxed)) {
        atomic_store_explicit(&node->sessions[host], session, memory_order_relaxed);
        changed = true;
    }
    if (route != atomic_load_explicit(&node->routes[host], memory_order_relaxed)) {
        /* Pairs with the acquire in take_route(): the session is stored before its route. */
        atomic_store_explicit(&node->routes[host], route, memory_order_release);
        changed = true;
    }
    if (changed) {
        via_route_log_append(node, host);
        via_count(&node->lsdb->routes_changed, 1);
    }
    return changed;
}

static bool publish_touched(struct via_node *node, uint64_t now_ns)
{
    struct via_lsdb *lsdb = node->lsdb;
    bool changed = false;

    /* The announcement of any host may settle a dispute. */
    lsdb->contest_ns = VIA_NEVER_NS;
    for (uint16_t h = 0; lsdb->contested_count != 0 && h < node->config.hosts_max; h++) {
        if (lsdb->lsas[h].contested_ns != 0) {
            touch(lsdb, h);
        }
    }
    for (unsigned i = 0; i < lsdb->touched_count; i++) {
        uint16_t host = lsdb->touched[i];
        lsdb->is_touched[host] = 0;
        changed |= publish(node, host, now_ns);
    }
    lsdb->touched_count = 0;
    return changed;
}

void via_routes_update(struct via_node *node, uint64_t now_ns, uint64_t *ret_deadline_ns)
{
    struct via_lsdb *lsdb = node->lsdb;

    if (lsdb->touched_count == 0 && now_ns < lsdb->contest_ns) {
        *ret_deadline_ns = via_min(*ret_deadline_ns, lsdb->contest_ns);
        return;
    }
    /* The changes below touch more hosts. */
    for (unsigned i = 0, count = lsdb->touched_count; i < count; i++) {
        examine(node, lsdb->touched[i]);
    }
    while (lsdb->heap_count != 0) {
        fix_label(node, lsdb->heap[0]);
    }
    if (publish_touched(node, now_ns)) {
        node->changed = true;
        via_route_log_publish(node);
        for (unsigned k = 0; k < node->config.channels_count; k++) {
            node->env.wake(node->env.ctx, k);
        }
    }
    *ret_deadline_ns = via_min(*ret_deadline_ns, lsdb->contest_ns);
}

/* --- initial state ---------------------------------------------------------------------------- */

void via_routes_init(struct via_node *node)
{
    struct via_lsdb *lsdb = node->lsdb;
    for (unsigned h = 0; h < node->config.hosts_max; h++) {
        lsdb->labels[h] = VIA_ROUTE_NONE;
        lsdb->heap_at[h] = VIA_HOST_NONE;
        atomic_store_explicit(&node->routes[h], VIA_ROUTE_NONE, memory_order_relaxed);
    }
    lsdb->contest_ns = VIA_NEVER_NS;
    lsdb->labels[node->config.host] = 0;
    atomic_store_explicit(&node->sessions[node->config.host], node->config.session,
                          memory_order_relaxed);
    atomic_store_explicit(&node->routes[node->config.host], 0, memory_order_relaxed);
    for (unsigned p = 0; p < node->config.ports_count; p++) {
        via_routes_rank(node, &node->links[p]);
    }
}

/* The rank depends on this port alone, so labels keep their meaning when another port changes its
 * dimension. */
void via_routes_rank(struct via_node *node, struct via_link *link)
{
    unsigned rank = (unsigned)link->dimension * node->config.ports_count + link->index;
    _Static_assert(VIA_DIMENSIONS_MAX * VIA_PORTS_MAX <= 0xffff, "a rank has 16 bits");
    node->lsdb->by_rank[rank] = (uint16_t)link->index;
    link->lsdb.rank = (uint16_t)rank;
}
