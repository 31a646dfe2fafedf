/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Incrementally updated routes, compared with routes that are computed from scratch after each
 * change; the cost of a change; the notified channels. The node has no fabric: the test generates
 * announcements and links.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/types.h"
#include "core/link.h"

#define HOSTS_MAX 1024u
#define PORTS 6u

struct scene {
    struct via_node *node;
    void *memory;
    struct via_rng rng;
    uint64_t now_ns;
    uint16_t hosts;
    /* Not 0: edges join hosts whose numbers differ by no more than this, so paths are long. */
    uint16_t reach;
    uint64_t sequence;
    uint32_t sessions[HOSTS_MAX]; /* sessions of the hosts */
    uint8_t (
        *edges)[HOSTS_MAX]; /* whether the first announces the second; the last row is this host */
    unsigned wakes;
};

static int deliver(void *ctx, const struct via_delivery *delivery)
{
    (void)ctx;
    (void)delivery;
    return 0;
}

static void complete(void *ctx, unsigned channel, uint64_t cookie, int status, uint64_t value)
{
    (void)ctx;
    (void)channel;
    (void)cookie;
    (void)status;
    (void)value;
}

static void notify(void *ctx, unsigned channel, uint64_t handle)
{
    (void)ctx;
    (void)channel;
    (void)handle;
}

static void wake(void *ctx, unsigned channel)
{
    struct scene *s = ctx;
    (void)channel;
    s->wakes++;
}

static uint32_t below(struct scene *s, uint32_t limit)
{
    return (uint32_t)via_rng_below(&s->rng, limit);
}

static void scene_init(struct scene *s, uint16_t hosts, uint16_t host, uint16_t hops_max,
                       uint64_t seed)
{
    struct via_node_port_config ports[PORTS] = {{0}};
    struct via_node_config config;
    struct via_node_env env = {
        .ctx = s, .deliver = deliver, .complete = complete, .notify = notify, .wake = wake};

    memset(s, 0, sizeof(*s));
    via_rng_init(&s->rng, seed);
    s->hosts = hosts;
    s->now_ns = VIA_SEC_NS;
    s->edges = calloc(hosts, sizeof(*s->edges));
    assert_non_null(s->edges);
    for (uint16_t h = 0; h < hosts; h++) {
        s->sessions[h] = 1000u + h;
    }
    for (unsigned p = 0; p < PORTS; p++) {
        ports[p].dimension = (uint8_t)below(s, 3);
    }
    via_node_config_init(&config);
    config.host = host;
    config.hosts_max = hosts;
    config.hops_max = hops_max;
    config.session = s->sessions[config.host];
    config.ports_count = PORTS;
    config.ports = ports;
    config.pipe_slots = 1;
    config.frame_bytes_max = 64;
    config.flows_count = 1;
    config.ops_count = 2;
    config.segments_count = 1;
    size_t bytes = via_node_bytes(&config);
    s->memory = aligned_alloc(64, via_align_up(bytes, 64));
    assert_non_null(s->memory);
    assert_int_equal(via_node_init(&s->node, s->memory, &config, &env), 0);
}

static void scene_fini(struct scene *s)
{
    free(s->memory);
    free(s->edges);
}

static uint16_t me(const struct scene *s)
{
    return s->node->config.host;
}

static void update(struct scene *s)
{
    uint64_t deadline_ns = VIA_NEVER_NS;
    via_lsdb_update(s->node, s->now_ns, &deadline_ns);
}

/* The host announces its neighbours, sometimes with an earlier session of one of them. */
static void announce(struct scene *s, uint16_t host, bool some_stale)
{
    struct via_lsa_list list;
    struct via_announcement head = {
        .host = host, .session = s->sessions[host], .sequence = ++s->sequence};
    via_lsa_list_init(&list);
    for (uint16_t h = 0; h < s->hosts; h++) {
        bool stale = some_stale && via_rng_chance(&s->rng, 1, 30);
        if (s->edges[host][h] != 0) {
            via_lsa_list_append(s->node->lsdb, &list, h, stale ? 7 : s->sessions[h]);
        }
    }
    head.neighbours_count = list.count;
    via_lsdb_take(s->node, &s->node->links[0], &head, &list, NULL, s->now_ns);
}

static void set_link(struct scene *s, unsigned port, bool up, uint16_t peer, uint32_t session)
{
    struct via_link *link = &s->node->links[port];
    if (up == (link->phase == VIA_PHASE_UP)) {
        return;
    }
    if (up) {
        link->phase = VIA_PHASE_UP;
        link->peer_seen_session = session;
        atomic_store(&link->peer, peer);
        via_lsdb_link_up(s->node, link);
    } else {
        link->phase = VIA_PHASE_DOWN;
        via_lsdb_link_down(s->node, link);
    }
}

/* --- computed from scratch ------------------------------------------------------------------- */

static bool announces(const struct scene *s, uint16_t host, uint16_t other)
{
    struct via_neighbours it;
    via_neighbours_of(s->node->lsdb, &s->node->lsdb->lsas[host], &it);
    while (via_neighbours_next(&it)) {
        if (it.host == other) {
            return it.session == via_lsa_session(&s->node->lsdb->lsas[other]);
        }
    }
    return false;
}

/* Breadth-first search: from the ports, in order of dimensions and then of numbers, then from the
 * hosts in the order in which they were reached. */
static void compute(const struct scene *s, uint32_t *ret_routes)
{
    uint16_t queue[HOSTS_MAX];
    unsigned count = 0;

    for (uint16_t h = 0; h < s->hosts; h++) {
        ret_routes[h] = h == me(s) ? 0 : VIA_ROUTE_NONE;
    }
    for (unsigned i = 0; i < VIA_DIMENSIONS_MAX * PORTS; i++) {
        unsigned port = i % PORTS;
        const struct via_link *link = &s->node->links[port];
        uint16_t peer = atomic_load(&link->peer);
        if (link->dimension == i / PORTS && link->phase == VIA_PHASE_UP &&
            ret_routes[peer] == VIA_ROUTE_NONE &&
            link->peer_seen_session == via_lsa_session(&s->node->lsdb->lsas[peer]) &&
            announces(s, me(s), peer) && announces(s, peer, me(s))) {
            ret_routes[peer] = via_route_word(1, port);
            queue[count++] = peer;
        }
    }
    for (unsigned taken = 0; taken < count; taken++) {
        uint32_t hops = via_route_hops(ret_routes[queue[taken]]) + 1u;
        for (uint16_t h = 0; h < s->hosts && hops <= s->node->config.hops_max; h++) {
            if (ret_routes[h] == VIA_ROUTE_NONE && announces(s, queue[taken], h) &&
                announces(s, h, queue[taken])) {
                ret_routes[h] = via_route_word(hops, via_route_port(ret_routes[queue[taken]]));
                queue[count++] = h;
            }
        }
    }
}

static void assert_routes_are_right(const struct scene *s, uint64_t seed, unsigned step)
{
    uint32_t routes[HOSTS_MAX];
    compute(s, routes);
    for (uint16_t h = 0; h < s->hosts; h++) {
        uint32_t route = atomic_load(&s->node->routes[h]);
        if (route != routes[h]) {
            fail_msg("seed %llu, step %u: host %u by port %u in %u hops, should be %u in %u",
                     (unsigned long long)seed, step, h, via_route_port(route),
                     via_route_hops(route), via_route_port(routes[h]), via_route_hops(routes[h]));
        }
        if (route != VIA_ROUTE_NONE && h != me(s)) {
            assert_int_equal(atomic_load(&s->node->sessions[h]),
                             via_lsa_session(&s->node->lsdb->lsas[h]));
        }
    }
    assert_int_equal(s->node->lsdb->heap_count, 0);
}

/* --- any changes ------------------------------------------------------------------------------*/

static uint16_t any_other(struct scene *s)
{
    return (uint16_t)((me(s) + 1 + below(s, s->hosts - 1u)) % s->hosts);
}

static void change_edge(struct scene *s)
{
    uint16_t a = any_other(s);
    uint16_t b =
        (uint16_t)(s->reach != 0 ? (a + 1u + below(s, s->reach)) % s->hosts : below(s, s->hosts));
    if (a == b) {
        return;
    }
    uint8_t there = s->edges[a][b] == 0;
    s->edges[a][b] = there;
    announce(s, a, true);
    if (b != me(s) && via_rng_chance(&s->rng, 7, 8)) {
        s->edges[b][a] = there;
        announce(s, b, true);
    }
}

static void change_link(struct scene *s)
{
    unsigned port = below(s, PORTS);
    uint16_t peer = any_other(s);
    bool up = s->node->links[port].phase != VIA_PHASE_UP;
    uint32_t session = via_rng_chance(&s->rng, 1, 16) ? 7 : s->sessions[peer];
    if (!up) {
        peer = atomic_load(&s->node->links[port].peer);
    }
    set_link(s, port, up, peer, session);
    s->edges[peer][me(s)] = up;
    if (via_rng_chance(&s->rng, 7, 8)) {
        announce(s, peer, false);
    }
}

static void change_life(struct scene *s)
{
    uint16_t host = any_other(s);
    s->sessions[host] += HOSTS_MAX;
    announce(s, host, false);
}

static void change(struct scene *s)
{
    uint32_t what = below(s, 100);
    if (what < 75) {
        change_edge(s);
    } else if (what < 95) {
        change_link(s);
    } else {
        change_life(s);
    }
}

/* Two of three hosts announce each other. */
static void fill(struct scene *s)
{
    for (uint16_t a = 0; a < s->hosts; a++) {
        for (uint16_t b = 0; b < s->hosts; b++) {
            s->edges[a][b] = a != b && a != me(s) && b != me(s) && (a + b) % 3 != 0;
        }
        if (a != me(s)) {
            announce(s, a, false);
        }
    }
}

static void any_changes_lead_to_the_routes_of_a_full_computation(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct scene s;
        uint16_t hosts = (uint16_t)(2 + seed);
        scene_init(&s, hosts, (uint16_t)(seed % hosts), seed % 4 == 0 ? 6 : 0, seed);
        s.reach = seed % 3 == 0 ? 0 : (uint16_t)(seed % 3);
        if (seed % 6 == 0) {
            fill(&s); /* announcements are long, so hosts process only their changes */
        }
        for (unsigned step = 0; step < 300; step++) {
            for (unsigned i = via_rng_chance(&s.rng, 1, 4) ? below(&s, 20) : 1; i > 0; i--) {
                change(&s);
            }
            update(&s);
            if (s.node->lsdb->contested_count != 0) {
                s.now_ns += 2 * VIA_SEC_NS;
                update(&s);
            }
            assert_routes_are_right(&s, seed, step);
        }
        scene_fini(&s);
    }
}

/* --- what a change costs ----------------------------------------------------------------------*/

static void chain(struct scene *s)
{
    for (uint16_t h = 0; h < s->hosts; h++) {
        if (h > 0) {
            s->edges[h][h - 1] = 1;
        }
        if (h + 1 < s->hosts) {
            s->edges[h][h + 1] = 1;
        }
    }
    for (uint16_t h = 0; h < s->hosts; h++) {
        if (h != me(s)) {
            announce(s, h, false);
        }
    }
    uint16_t port = 0;
    for (uint16_t h = 0; h < s->hosts; h++) {
        if (s->edges[me(s)][h] != 0) {
            set_link(s, port++, true, h, s->sessions[h]);
        }
    }
    update(s);
    assert_routes_are_right(s, 0, 0);
}

/* In a chain of a thousand hosts, a host near the far end is cut off, and comes back. */
static void a_change_costs_what_it_changes(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, 1000, 300, 0, 1);
    chain(&s);
    bool low = me(&s) < 500;
    for (unsigned cut_off = 1; cut_off <= 64; cut_off *= 4) {
        uint16_t a = (uint16_t)(low ? 1000 - cut_off : cut_off - 1);
        uint16_t b = (uint16_t)(low ? a - 1 : a + 1);
        for (uint8_t there = 0; there < 2; there++) {
            uint64_t examined = s.node->lsdb->routes_examined;
            uint64_t changed = s.node->lsdb->routes_changed;
            s.edges[a][b] = s.edges[b][a] = there;
            announce(&s, a, false);
            announce(&s, b, false);
            update(&s);
            assert_routes_are_right(&s, cut_off, there);
            assert_int_equal(s.node->lsdb->routes_changed - changed, cut_off);
            assert_in_range(s.node->lsdb->routes_examined - examined, cut_off, 8 * cut_off + 16);
        }
    }
    scene_fini(&s);
}

/* Host 0 is the hub of a star, this host one of its neighbours, and all others come up one by one:
 * for each, only its own label is searched and corrected, not that of the hub. */
static void a_host_that_comes_up_at_a_hub_makes_no_host_search_the_hub(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, 200, 1, 0, 1);
    for (uint16_t h = 1; h < s.hosts; h++) {
        s.edges[0][h] = s.edges[h][0] = 1;
    }
    announce(&s, 0, false);
    set_link(&s, 0, true, 0, s.sessions[0]);
    update(&s);
    for (uint16_t h = 2; h < s.hosts; h++) {
        uint64_t before = s.node->lsdb->routes_examined;
        announce(&s, h, false);
        update(&s);
        assert_in_range(s.node->lsdb->routes_examined - before, 1, 2);
    }
    assert_routes_are_right(&s, 0, 0);
    scene_fini(&s);
}

static void without_a_change_no_channel_is_notified(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, 20, 7, 0, 2);
    chain(&s);
    unsigned wakes = s.wakes;
    for (uint16_t h = 0; h < 20; h++) {
        if (h != me(&s)) {
            announce(&s, h, false);
            update(&s);
        }
    }
    assert_int_equal(s.wakes, wakes);
    scene_fini(&s);
}

/* --- notifications --------------------------------------------------------------------------- */

/* A reader that follows the notifications has all routes, at any reading rate. */
static void changes_can_be_followed(void **state)
{
    (void)state;
    struct scene s;
    uint32_t known[HOSTS_MAX], seen = 0;
    unsigned overflows = 0;
    scene_init(&s, 200, 150, 0, 3);
    memset(known, 0xff, sizeof(known));
    known[me(&s)] = 0;
    for (unsigned step = 0; step < 2000; step++) {
        uint16_t hosts[VIA_ROUTE_CHANGES_MAX];
        for (unsigned i = below(&s, 4); i > 0; i--) {
            change(&s);
        }
        s.now_ns += 2 * VIA_SEC_NS;
        update(&s);
        if (via_rng_chance(&s.rng, 1, 4)) {
            int count = via_node_route_changes(s.node, &seen, hosts);
            assert_true(count >= 0 || count == -EOVERFLOW);
            overflows += count < 0;
            for (uint16_t h = 0; count < 0 && h < s.hosts; h++) {
                known[h] = atomic_load(&s.node->routes[h]);
            }
            for (int i = 0; i < count; i++) {
                known[hosts[i]] = atomic_load(&s.node->routes[hosts[i]]);
            }
            for (uint16_t h = 0; h < s.hosts; h++) {
                assert_int_equal(known[h], atomic_load(&s.node->routes[h]));
            }
            assert_int_equal(via_node_route_changes(s.node, &seen, hosts), 0);
        }
    }
    assert_true(overflows > 0 && overflows < 400);
    scene_fini(&s);
}

/* --- another session that a neighbour contradicts ---------------------------------------------*/

static struct via_route_status route_to(const struct scene *s, uint16_t host)
{
    struct via_route_status route;
    assert_int_equal(via_node_route_status(s->node, host, &route), 0);
    return route;
}

/* Host 0 is a neighbour on one side of this host, hosts 2, 3, ... follow on the other; the last but
 * one is the victim. */
static void scene_contest(struct scene *s)
{
    scene_init(s, 6, 1, 0, 4);
    chain(s);
    assert_int_equal(route_to(s, 4).hops, 3);
}

static void a_life_that_neighbours_contradict_is_not_believed(void **state)
{
    (void)state;
    struct scene s;
    scene_contest(&s);
    uint32_t living = s.sessions[4];

    /* Host 0 announces a link to another session of host 4, and host 4 seems to agree. */
    s.sessions[4] = 666;
    s.edges[0][4] = 1;
    announce(&s, 0, false);
    s.edges[4][0] = 1;
    s.edges[4][3] = s.edges[4][5] = 0;
    announce(&s, 4, false);
    update(&s);
    assert_int_equal(route_to(&s, 4).port, VIA_PORT_NONE);
    assert_int_equal(route_to(&s, 4).session, living);

    /* The victim announces a higher number. */
    s.sessions[4] = living;
    s.edges[4][0] = 0;
    s.edges[4][3] = s.edges[4][5] = 1;
    announce(&s, 4, false);
    update(&s);
    assert_int_equal(route_to(&s, 4).hops, 3);
    assert_int_equal(route_to(&s, 4).session, living);
    assert_int_equal(s.node->lsdb->contested_count, 0);
    scene_fini(&s);
}

static void a_session_without_contradiction_is_accepted(void **state)
{
    (void)state;
    for (int by_time = 0; by_time < 2; by_time++) {
        struct scene s;
        scene_contest(&s);
        /* Host 4 has restarted, and has a link to host 3 again, but not to host 5. */
        s.sessions[4] = 4444;
        announce(&s, 3, false);
        s.edges[4][5] = 0;
        announce(&s, 4, false);
        update(&s);
        /* Only host 4 leads to host 5. */
        assert_int_equal(route_to(&s, 4).session, 4444);
        assert_int_equal(route_to(&s, 4).hops, 3);

        /* Now host 2 has a link to the earlier session, and keeps it for a while. */
        s.edges[2][4] = 1;
        announce(&s, 2, false);
        update(&s);
        assert_int_equal(route_to(&s, 4).session, 4444);
        s.sessions[4] = 5555;
        announce(&s, 3, false);
        announce(&s, 4, false);
        update(&s);
        assert_int_equal(route_to(&s, 4).port, VIA_PORT_NONE);
        assert_int_equal(route_to(&s, 4).session, 4444);
        if (by_time) {
            s.now_ns += VIA_LINK_STATE_FORGET_NS;
        } else {
            s.edges[2][4] = 0;
            announce(&s, 2, false);
        }
        update(&s);
        assert_int_equal(route_to(&s, 4).session, 5555);
        assert_int_equal(route_to(&s, 4).hops, 3);
        assert_int_equal(s.node->lsdb->contested_count, 0);
        scene_fini(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_changes_lead_to_the_routes_of_a_full_computation),
        cmocka_unit_test(a_change_costs_what_it_changes),
        cmocka_unit_test(a_host_that_comes_up_at_a_hub_makes_no_host_search_the_hub),
        cmocka_unit_test(without_a_change_no_channel_is_notified),
        cmocka_unit_test(changes_can_be_followed),
        cmocka_unit_test(a_life_that_neighbours_contradict_is_not_believed),
        cmocka_unit_test(a_session_without_contradiction_is_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
