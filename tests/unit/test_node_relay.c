/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* More than two hosts: relays, cuts under load, restarts, and rings with one buffer of everything.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/rng.h"
#include "base/types.h"
#include "core/way.h"
#include "fabric.h"

#define MESSAGES_MAX 600

/* The messages of each host to each other host, and how many have been sent and delivered. */
struct load {
    struct fabric *fabric;
    struct via_rng rng;
    unsigned char *bodies; /* bodies of the largest message's size */
    struct {
        uint32_t number[MESSAGES_MAX];
        unsigned sent, taken;
    } pairs[FABRIC_HOSTS_MAX][FABRIC_HOSTS_MAX];
    unsigned each;
};

static struct load *load_new(struct fabric *fabric, unsigned each)
{
    struct load *load = calloc(1, sizeof(*load));
    assert_non_null(load);
    load->fabric = fabric;
    load->each = each;
    load->bodies = malloc(MESSAGES_MAX + fabric->config.frame_bytes_max);
    for (unsigned i = 0; i < MESSAGES_MAX + fabric->config.frame_bytes_max; i++) {
        load->bodies[i] = (unsigned char)(i * 13 + (i >> 8) * 7);
    }
    via_rng_init(&load->rng, 42);
    return load;
}

static void load_free(struct load *load)
{
    free(load->bodies);
    free(load);
}

static uint32_t bytes_of(const struct load *load, unsigned from, unsigned to, unsigned n)
{
    return (from * 131 + to * 17 + n * 97) % (load->fabric->config.frame_bytes_max + 1);
}

/* Submits as many messages as fit; true when all are submitted. */
static bool load_more(struct load *load)
{
    struct fabric *fabric = load->fabric;
    bool all = true;
    for (unsigned a = 0; a < fabric->hosts_count; a++) {
        for (unsigned b = 0; b < fabric->hosts_count; b++) {
            unsigned *sent = &load->pairs[a][b].sent;
            while (a != b && *sent < load->each) {
                struct via_op op = {
                    .kind = VIA_OP_MESSAGE,
                    .destination = (uint16_t)b,
                    .flow = *sent % 2,
                    .endpoint = *sent,
                    .source = load->bodies + *sent,
                    .bytes = bytes_of(load, a, b, *sent),
                    .cookie = (uint64_t)b << 32 | *sent,
                };
                int rc = via_node_submit(fabric_node(fabric, (int)a), 0, &op);
                if (rc != 0) {
                    assert_int_equal(rc, -EAGAIN);
                    break;
                }
                fabric->hosts[a].woken[0] = true;
                ++*sent;
            }
            all = all && (a == b || *sent == load->each);
        }
    }
    return all;
}

/* Every message was delivered once, complete, in the order of its flow. */
static void load_check(struct load *load)
{
    struct fabric *fabric = load->fabric;
    unsigned next[FABRIC_HOSTS_MAX][FABRIC_HOSTS_MAX][2] = {0};
    for (unsigned b = 0; b < fabric->hosts_count; b++) {
        const struct fabric_host *host = &fabric->hosts[b];
        assert_int_equal(host->deliveries_count, load->each * (fabric->hosts_count - 1));
        for (unsigned i = 0; i < host->deliveries_count; i++) {
            const struct fabric_delivery *d = &host->deliveries[i];
            unsigned *expected = &next[d->source][b][d->flow];
            assert_int_equal(d->endpoint, *expected * 2 + d->flow);
            ++*expected;
            assert_int_equal(d->bytes, bytes_of(load, d->source, b, d->endpoint));
            assert_true(d->hash ==
                        via_hash64(VIA_HASH64_INIT, load->bodies + d->endpoint, d->bytes));
        }
    }
    for (unsigned a = 0; a < fabric->hosts_count; a++) {
        const struct fabric_host *host = &fabric->hosts[a];
        assert_int_equal(host->completions_count, load->each * (fabric->hosts_count - 1));
        for (unsigned i = 0; i < host->completions_count; i++) {
            assert_int_equal(host->completions[i].status, 0);
        }
    }
}

static void load_run(struct load *load, uint64_t limit_ns)
{
    struct fabric *fabric = load->fabric;
    uint64_t end = fabric->now_ns + limit_ns;
    while (!load_more(load) && fabric->now_ns < end) {
        fabric_run(fabric, 10 * VIA_USEC_NS);
    }
    assert_true(fabric_drain(fabric, end - fabric->now_ns));
}

static void the_way_is_the_shortest(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new(true);
    struct via_route_status route;
    fabric_ring(fabric, 6);
    fabric_settle(fabric);
    /* Links are made 0-1, 1-2, ... 5-0: port 0 of host 0 leads to 1, port 1 to 5. */
    static const struct {
        unsigned port, hops;
    } expected[] = {{0, 0}, {0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 1}};
    for (uint16_t h = 0; h < 6; h++) {
        assert_int_equal(via_node_route_status(fabric_node(fabric, 0), h, &route), 0);
        assert_int_equal(route.port, expected[h].port);
        assert_int_equal(route.hops, expected[h].hops);
        assert_int_equal(route.session, fabric->hosts[h].config.session);
    }
    fabric_cut(&fabric->links[0]);
    fabric_run(fabric, VIA_MSEC_NS);
    for (uint16_t h = 1; h < 6; h++) {
        assert_int_equal(via_node_route_status(fabric_node(fabric, 0), h, &route), 0);
        assert_int_equal(route.port, 1);
        assert_int_equal(route.hops, 6 - h);
    }
    assert_int_equal(via_node_route_status(fabric_node(fabric, 0), 7, &route), 0);
    assert_int_equal(route.port, VIA_PORT_NONE);
    assert_int_equal(route.session, 0);
    assert_int_equal(via_node_route_status(fabric_node(fabric, 0), 8, &route), -EINVAL);
    fabric_free(fabric);
}

/* A square of hosts, 0-1 and 2-3 in one dimension, 0-2 and 1-3 in the other: two routes to the far
 * corner. */
static struct fabric *fabric_square(const uint8_t dimensions[2])
{
    struct fabric *fabric = fabric_new(true);
    static const int ends[4][2] = {{0, 1}, {0, 2}, {1, 3}, {2, 3}};
    fabric->config.pipe_slots = 1;
    fabric->config.bypass_count = 1;
    for (unsigned i = 0; i < 4; i++) {
        fabric_add_host(fabric);
    }
    for (unsigned i = 0; i < 4; i++) {
        unsigned upright = i == 1 || i == 2;
        for (unsigned side = 0; side < 2; side++) {
            struct fabric_host *host = &fabric->hosts[ends[i][side]];
            host->ports[host->ports_count].dimension = dimensions[upright];
        }
        fabric_connect(fabric, ends[i][0], ends[i][1]);
    }
    for (int i = 0; i < 4; i++) {
        fabric_start(fabric, i);
    }
    fabric_settle(fabric);
    return fabric;
}

static void of_equal_ways_the_one_in_the_lowest_dimension(void **state)
{
    (void)state;
    static const struct {
        uint8_t dimensions[2];
        unsigned port;
    } cases[] = {{{0, 0}, 0}, {{0, 1}, 0}, {{1, 0}, 1}};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(cases); i++) {
        struct fabric *fabric = fabric_square(cases[i].dimensions);
        struct via_route_status route;
        assert_int_equal(via_node_route_status(fabric_node(fabric, 0), 3, &route), 0);
        assert_int_equal(route.port, cases[i].port);
        assert_int_equal(route.hops, 2);
        fabric_free(fabric);
    }
}

/* The far corner receives nothing, so frames stay in buffers. Beyond host 1 there are one slot and
 * one bypass buffer: frames that turn leave one of them free, frames that go straight do not. */
static void a_frame_that_turns_leaves_a_bubble(void **state)
{
    (void)state;
    for (uint8_t upright = 0; upright < 2; upright++) {
        struct fabric *fabric = fabric_square((const uint8_t[2]){0, upright});
        struct via_op op = {.kind = VIA_OP_MESSAGE, .destination = 3};
        fabric->hosts[3].frozen = true;
        for (op.cookie = 1; op.cookie <= 3; op.cookie++) {
            fabric_submit(fabric, 0, &op);
        }
        fabric_run(fabric, 2 * VIA_MSEC_NS);
        const struct via_channel *relay = &fabric_node(fabric, 1)->channels[0];
        assert_int_equal(relay->ways[1].bypass_used, upright == 0 ? 1 : 0);
        assert_true(relay->ways[0].blocked);
        /* The frame continues when there is room. */
        fabric->hosts[3].frozen = false;
        assert_true(fabric_drain(fabric, 5 * VIA_MSEC_NS));
        assert_int_equal(fabric->hosts[3].deliveries_count, 3);
        assert_int_equal(fabric_counters(fabric, 1).frames_dropped_stuck, 0);
        fabric_free(fabric);
    }
}

static void a_chain_relays(void **state)
{
    (void)state;
    for (int direct = 0; direct < 2; direct++) {
        struct fabric *fabric = fabric_new(direct);
        fabric_chain(fabric, 3);
        fabric_settle(fabric);
        struct load *load = load_new(fabric, 300);
        load_run(load, 5 * VIA_SEC_NS);
        load_check(load);
        struct via_link_status left = fabric_link_status(fabric, 1, 0);
        assert_true(left.relayed_frames >= 300);
        for (int h = 0; h < 3; h++) {
            struct via_node_counters counters = fabric_counters(fabric, h);
            assert_int_equal(counters.frames_resent, 0);
            assert_int_equal(counters.frames_dropped_stuck, 0);
        }
        load_free(load);
        fabric_free(fabric);
    }
}

static void puts_gets_and_atomics_over_relays(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new(true);
    uint64_t handle;
    unsigned char *memory = aligned_alloc(64, 256 * 1024), *data = malloc(200000),
                  *back = malloc(200000);
    fabric_chain(fabric, 4);
    fabric_settle(fabric);
    for (unsigned i = 0; i < 200000; i++) {
        data[i] = (unsigned char)(i * 11 + i / 255);
    }
    memset(memory, 0, 256 * 1024);
    assert_int_equal(via_node_segment_add(fabric_node(fabric, 3), memory, 256 * 1024,
                                          VIA_SEGMENT_READ | VIA_SEGMENT_WRITE, 99, &handle),
                     0);
    struct via_op op = {.kind = VIA_OP_PUT_SIGNAL, .destination = 3, .segment = handle};
    op.source = data;
    op.bytes = 200000;
    op.signal_offset = 255 * 1024;
    op.signal_value = 1;
    op.cookie = 1;
    fabric_submit(fabric, 0, &op);
    op = (struct via_op){.kind = VIA_OP_GET, .destination = 3, .segment = handle, .cookie = 2};
    op.result = back;
    op.bytes = 200000;
    fabric_submit(fabric, 0, &op);
    op = (struct via_op){.kind = VIA_OP_ATOMIC, .destination = 3, .segment = handle, .cookie = 3};
    op.offset = 255 * 1024;
    op.atomic = VIA_ATOMIC_ADD;
    op.operand = 4;
    fabric_submit(fabric, 0, &op);
    assert_true(fabric_drain(fabric, VIA_SEC_NS));
    assert_int_equal(fabric_completion(fabric, 0, 1)->status, 0);
    assert_int_equal(fabric_completion(fabric, 0, 2)->status, 0);
    assert_int_equal(fabric_completion(fabric, 0, 3)->value, 1);
    assert_memory_equal(memory, data, 200000);
    assert_memory_equal(back, data, 200000);
    assert_int_equal(memory[255 * 1024], 5);
    fabric_free(fabric);
    free(memory);
    free(data);
    free(back);
}

/* One slot, one bypass buffer, window 1 to many, all hosts to all others. */
static void all_send_with_one_of_everything(void **state)
{
    (void)state;
    for (unsigned hosts = 3; hosts <= 8; hosts++) {
        for (unsigned window = 1; window <= 8; window *= 8) {
            struct fabric *fabric = fabric_new(hosts % 2 == 0);
            fabric->config.pipe_slots = 1;
            fabric->config.bypass_count = 1;
            fabric->config.window_frames = window;
            fabric->config.batch_frames = window == 1 ? 1 : 4;
            fabric->config.ops_count = 2 + hosts;
            fabric->config.frame_bytes_max = 64;
            fabric_ring(fabric, hosts);
            fabric_settle(fabric);
            struct load *load = load_new(fabric, 60);
            load_run(load, 20 * VIA_SEC_NS);
            load_check(load);
            for (unsigned h = 0; h < hosts; h++) {
                /* The bubble rule keeps the ring moving, not the age limit of frames. */
                assert_int_equal(fabric_counters(fabric, (int)h).frames_dropped_stuck, 0);
            }
            load_free(load);
            fabric_free(fabric);
        }
    }
}

/* The bubble rule: a new frame leaves one buffer free, in the out pipe or a bypass buffer, and does
 * not overtake relayed frames. */
static void a_new_frame_leaves_a_bubble(void **state)
{
    (void)state;
    for (uint32_t slots = 1; slots <= 4; slots *= 2) {
        for (unsigned bypass = 1; bypass <= 2; bypass++) {
            struct fabric *fabric = fabric_new(true);
            fabric->config.pipe_slots = slots;
            fabric->config.bypass_count = bypass;
            fabric_chain(fabric, 2);
            fabric_settle(fabric);
            struct via_channel *channel = &fabric_node(fabric, 0)->channels[0];
            struct via_way *way = &channel->ways[0];
            const struct via_pipe_writer idle = way->tx;
            for (uint32_t used = 0; used <= slots; used++) {
                for (unsigned waiting = 0; waiting <= bypass; waiting++) {
                    uint32_t room = slots - used;
                    way->tx.sequence = way->tx.released + used;
                    way->bypass_used = waiting;
                    assert_int_equal(via_way_has_room(way), room >= 1);
                    bool may = via_way_is_inject_allowed(way);
                    assert_int_equal(may, room >= 1 && waiting == 0);
                    assert_true(!may || room + bypass - waiting >= 2);
                    /* Frames that turn may wait in a bypass buffer, too. */
                    assert_int_equal(via_way_is_turn_allowed(channel, way),
                                     room + bypass - waiting >= 2);
                }
            }
            way->tx = idle;
            way->bypass_used = 0;
            fabric_free(fabric);
        }
    }
}

/* The hardest ring: every host sends in the same direction, over the longest distance, with a
 * window larger than all buffers together, and hosts pause at random. */
static void a_crowded_ring_never_stops(void **state)
{
    (void)state;
    for (unsigned hosts = 3; hosts <= 7; hosts += 2) {
        struct fabric *fabric = fabric_new(hosts % 4 == 3);
        struct via_rng rng;
        unsigned submitted[FABRIC_HOSTS_MAX] = {0};
        fabric->config.pipe_slots = 1;
        fabric->config.bypass_count = 1;
        fabric->config.window_frames = 64;
        fabric->config.ops_count = 64;
        fabric->config.frame_bytes_max = 64;
        fabric_ring(fabric, hosts);
        fabric_settle(fabric);
        via_rng_init(&rng, hosts);
        for (unsigned step = 0; step < 20000; step++) {
            for (unsigned h = 0; h < hosts; h++) {
                struct via_op op = {.kind = VIA_OP_MESSAGE,
                                    .destination = (uint16_t)((h + hosts / 2) % hosts)};
                fabric->hosts[h].frozen = via_rng_chance(&rng, 1, 2);
                fabric->hosts[h].deliveries_count = 0;
                fabric->hosts[h].completions_count = 0;
                if (via_node_submit(fabric_node(fabric, (int)h), 0, &op) == 0) {
                    submitted[h]++;
                    fabric->hosts[h].woken[0] = true;
                }
            }
            fabric_run(fabric, 10 * VIA_USEC_NS);
        }
        for (unsigned h = 0; h < hosts; h++) {
            fabric->hosts[h].frozen = false;
        }
        assert_true(fabric_drain(fabric, VIA_SEC_NS));
        for (unsigned h = 0; h < hosts; h++) {
            struct via_node_counters counters = fabric_counters(fabric, (int)h);
            assert_int_equal(counters.frames_dropped_stuck, 0);
            assert_int_equal(counters.ops_completed, submitted[h]);
            assert_true(submitted[h] > 1000);
        }
        fabric_free(fabric);
    }
}

/* A graph with many cycles: the bubble rule may not cover all of them; then frames are dropped
 * because of their age. */
static void a_mesh_with_one_of_everything(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new(true);
    fabric->config.pipe_slots = 1;
    fabric->config.bypass_count = 1;
    fabric->config.frame_bytes_max = 64;
    for (unsigned i = 0; i < 8; i++) {
        fabric_add_host(fabric);
    }
    for (int i = 0; i < 8; i++) {
        fabric_connect(fabric, i, (i + 1) % 8);
        if (i < 4) {
            fabric_connect(fabric, i, i + 4);
        }
    }
    for (int i = 0; i < 8; i++) {
        fabric_start(fabric, i);
    }
    fabric_settle(fabric);
    struct load *load = load_new(fabric, 50);
    load_run(load, 20 * VIA_SEC_NS);
    load_check(load);
    load_free(load);
    fabric_free(fabric);
}

static void nothing_is_lost_when_links_flap(void **state)
{
    (void)state;
    for (int direct = 0; direct < 2; direct++) {
        struct fabric *fabric = fabric_new(direct);
        fabric->config.pipe_slots = 4;
        fabric_ring(fabric, 4);
        fabric_settle(fabric);
        struct load *load = load_new(fabric, 200);
        for (unsigned i = 0; i < 12; i++) {
            unsigned l = (unsigned)via_rng_below(&load->rng, 4);
            load_more(load);
            fabric_run(fabric, via_rng_between(&load->rng, 1, 100) * 10 * VIA_USEC_NS);
            fabric_cut(&fabric->links[l]);
            fabric_run(fabric, via_rng_between(&load->rng, 1, 3000) * 10 * VIA_USEC_NS);
            fabric_mend(&fabric->links[l]);
        }
        load_run(load, 20 * VIA_SEC_NS);
        load_check(load);
        load_free(load);
        fabric_free(fabric);
    }
}

static void a_cut_costs_little_time(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new(true);
    fabric_ring(fabric, 4);
    fabric_settle(fabric);
    uint64_t number = 1;
    struct via_op op = {
        .kind = VIA_OP_MESSAGE, .destination = 1, .source = &number, .bytes = 8, .cookie = 1};
    fabric_cut(&fabric->links[0]);
    fabric_submit(fabric, 0, &op);
    assert_true(fabric_drain(fabric, 5 * VIA_MSEC_NS));
    /* A host several hops away, so the source notices only by a time-out: hosts 0 to 2 over host
     * 1. */
    fabric_mend(&fabric->links[0]);
    fabric_settle(fabric);
    fabric_run(fabric, 100 * VIA_MSEC_NS);
    op.destination = 2;
    op.cookie = 2;
    fabric_submit(fabric, 0, &op);
    fabric_cut(&fabric->links[1]);
    assert_true(fabric_drain(fabric, 20 * VIA_MSEC_NS));
    fabric_free(fabric);
}

static void a_relay_dies_with_frames_aboard(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new(true);
    fabric->config.bypass_count = 4;
    fabric->config.pipe_slots = 2;
    fabric_ring(fabric, 4);
    fabric_settle(fabric);
    static uint64_t numbers[100];
    for (uint64_t i = 0; i < 100; i++) {
        numbers[i] = i;
        struct via_op op = {.kind = VIA_OP_MESSAGE,
                            .destination = 2,
                            .source = &numbers[i],
                            .bytes = 8,
                            .cookie = i};
        fabric_submit(fabric, 0, &op);
    }
    fabric_run(fabric, 50 * VIA_USEC_NS);
    assert_true(fabric->hosts[2].deliveries_count < 100);
    fabric_crash(fabric, 1);
    assert_true(fabric_drain(fabric, VIA_SEC_NS));
    assert_int_equal(fabric->hosts[2].deliveries_count, 100);
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(fabric->hosts[2].deliveries[i].first, i);
    }
    fabric_free(fabric);
}

/* Answers that can not be delivered occupy internal operations, but not forever while other hosts
 * wait. */
static void lost_requesters_do_not_starve_others(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new(true);
    uint64_t handle;
    _Alignas(64) static uint64_t words[8];
    memset(words, 0, sizeof(words));
    fabric_chain(fabric, 4);
    fabric_crash(fabric, 1);
    fabric->hosts[1].config.ops_count = 2; /* answers at a time */
    fabric_start(fabric, 1);
    fabric_settle(fabric);
    assert_int_equal(via_node_segment_add(fabric_node(fabric, 1), words, sizeof(words),
                                          VIA_SEGMENT_READ | VIA_SEGMENT_WRITE, 5, &handle),
                     0);
    struct via_op op = {.kind = VIA_OP_ATOMIC,
                        .destination = 1,
                        .segment = handle,
                        .atomic = VIA_ATOMIC_ADD,
                        .operand = 1};
    for (op.cookie = 1; op.cookie <= 4; op.cookie++) {
        fabric_submit(fabric, 0, &op);
    }
    fabric_run(fabric, 10 * VIA_USEC_NS);
    assert_int_equal(words[0], 1); /* its share */
    fabric_cut(&fabric->links[0]);
    fabric_submit(fabric, 3, &op);
    fabric_run(fabric, 30 * VIA_USEC_NS);
    assert_int_equal(words[0], 2);
    fabric_cut(&fabric->links[2]);
    fabric_submit(fabric, 2, &op);
    fabric_run(fabric, 500 * VIA_MSEC_NS);
    assert_null(fabric_completion(fabric, 2, 5));
    fabric_run(fabric, VIA_SEC_NS);
    assert_int_equal(fabric_completion(fabric, 2, 5)->status, 0);
    assert_int_equal(words[0], 3);

    /* The lost host becomes reachable again, and gets the results of its requests. */
    assert_int_equal(fabric->hosts[0].completions_count, 0);
    fabric_mend(&fabric->links[0]);
    fabric_mend(&fabric->links[2]);
    assert_true(fabric_drain(fabric, VIA_SEC_NS));
    for (unsigned i = 1; i <= 4; i++) {
        assert_int_equal(fabric_completion(fabric, 0, i)->status, -EHOSTUNREACH);
    }
    assert_int_equal(words[0], 3);
    for (op.cookie = 10; op.cookie < 30; op.cookie++) {
        fabric_submit(fabric, 0, &op);
    }
    assert_true(fabric_drain(fabric, VIA_SEC_NS));
    assert_int_equal(fabric_completion(fabric, 0, 29)->value, 22);
    fabric_free(fabric);
}

/* --- restarts -------------------------------------------------------------------------------- */

static void a_restarted_destination_is_reported(void **state)
{
    (void)state;
    for (unsigned hosts = 2; hosts <= 4; hosts++) {
        struct fabric *fabric = fabric_new(true);
        int last = (int)hosts - 1;
        unsigned char *result = calloc(1, 100000);
        fabric_chain(fabric, hosts);
        fabric_settle(fabric);
        static const uint64_t number = 3;
        struct via_op op = {
            .kind = VIA_OP_MESSAGE, .destination = (uint16_t)last, .source = &number, .bytes = 8};
        /* Keeps messages under way for a long time. */
        fabric->hosts[last].deliver_answer = -EAGAIN;
        for (unsigned i = 0; i < 5; i++) {
            op.cookie = i;
            op.flow = i % 3;
            fabric_submit(fabric, 0, &op);
        }
        fabric_run(fabric, 10 * VIA_MSEC_NS);
        fabric_crash(fabric, last);
        fabric_run(fabric, 500 * VIA_MSEC_NS);
        assert_int_equal(fabric->hosts[0].completions_count, 0); /* the host may come back */
        fabric->hosts[last].deliver_answer = 0;
        fabric_start(fabric, last);
        fabric_settle(fabric);
        assert_true(fabric_drain(fabric, VIA_SEC_NS));
        for (unsigned i = 0; i < 5; i++) {
            assert_int_equal(fabric_completion(fabric, 0, i)->status, -ECONNRESET);
        }
        assert_int_equal(fabric->hosts[last].deliveries_count, 0);

        /* Messages arrive in both directions. */
        for (unsigned i = 0; i < 100; i++) {
            op.cookie = 100 + i;
            op.destination = (uint16_t)last;
            fabric_submit(fabric, 0, &op);
            op.destination = 0;
            fabric_submit(fabric, last, &op);
        }
        assert_true(fabric_drain(fabric, VIA_SEC_NS));
        assert_int_equal(fabric->hosts[last].deliveries_count, 100);
        assert_int_equal(fabric->hosts[0].deliveries_count, 100);
        for (unsigned i = 0; i < 100; i++) {
            assert_int_equal(fabric_completion(fabric, 0, 100 + i)->status, 0);
            assert_int_equal(fabric_completion(fabric, last, 100 + i)->status, 0);
        }
        free(result);
        fabric_free(fabric);
    }
}

static void a_restarted_source_starts_new_flows(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new(true);
    fabric_chain(fabric, 3);
    fabric_settle(fabric);
    uint64_t number = 0;
    for (unsigned life = 0; life < 5; life++) {
        for (unsigned i = 0; i < 40; i++) {
            struct via_op op = {.kind = VIA_OP_MESSAGE,
                                .destination = 2,
                                .source = &number,
                                .bytes = 8,
                                .cookie = life * 100 + i};
            fabric_submit(fabric, 0, &op);
        }
        assert_true(fabric_drain(fabric, VIA_SEC_NS));
        assert_int_equal(fabric->hosts[2].deliveries_count, (life + 1) * 40);
        fabric_crash(fabric, 0);
        if (life % 2 == 0) {
            fabric_run(fabric, 300 * VIA_MSEC_NS);
        }
        fabric_start(fabric, 0);
        fabric_settle(fabric);
    }
    fabric_free(fabric);
}

static void a_lone_life_is_outnumbered_by_its_past(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new(true);
    fabric_chain(fabric, 3);
    fabric_settle(fabric);
    /* The host's announcement gets a high number. */
    for (unsigned i = 0; i < 10; i++) {
        fabric_cut(&fabric->links[1]);
        fabric_run(fabric, VIA_MSEC_NS);
        fabric_mend(&fabric->links[1]);
        fabric_settle(fabric);
    }
    /* The host restarts beside a neighbour that has forgotten it; then a host that remembers it
     * joins. */
    fabric_cut(&fabric->links[0]);
    fabric_crash(fabric, 1);
    fabric_crash(fabric, 2);
    fabric_start(fabric, 1);
    fabric_start(fabric, 2);
    fabric_run(fabric, 200 * VIA_MSEC_NS);
    struct via_op op = {.kind = VIA_OP_MESSAGE, .destination = 2, .cookie = 1};
    fabric_submit(fabric, 1, &op);
    assert_true(fabric_drain(fabric, VIA_SEC_NS));
    fabric->hosts[2].deliver_answer = -EAGAIN;
    op.cookie = 2;
    fabric_submit(fabric, 1, &op);
    fabric_run(fabric, 20 * VIA_MSEC_NS);
    fabric_mend(&fabric->links[0]);
    fabric_settle(fabric);
    /* No host has mistaken an old session for a restart. */
    assert_null(fabric_completion(fabric, 1, 2));
    fabric->hosts[2].deliver_answer = 0;
    via_node_resume(fabric_node(fabric, 2), 0, 1, 0);
    fabric->hosts[2].woken[0] = true;
    assert_true(fabric_drain(fabric, VIA_SEC_NS));
    assert_int_equal(fabric_completion(fabric, 1, 2)->status, 0);
    fabric_free(fabric);
}

static void channels_do_not_mix(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new(true);
    fabric->config.channels_count = 14;
    fabric->config.frame_bytes_max = 64;
    fabric_chain(fabric, 3);
    fabric_settle(fabric);
    for (uint64_t i = 0; i < 140; i++) {
        struct via_op op = {
            .kind = VIA_OP_MESSAGE, .destination = 2, .endpoint = (uint32_t)i, .cookie = i};
        unsigned channel = (unsigned)i % 14;
        assert_int_equal(via_node_submit(fabric_node(fabric, 0), channel, &op), 0);
        fabric->hosts[0].woken[channel] = true;
        assert_int_equal(via_node_pending(fabric_node(fabric, 0), channel), i / 14 + 1);
    }
    assert_true(fabric_drain(fabric, VIA_SEC_NS));
    assert_int_equal(fabric->hosts[2].deliveries_count, 140);
    for (unsigned i = 0; i < 140; i++) {
        const struct fabric_delivery *d = &fabric->hosts[2].deliveries[i];
        assert_int_equal(d->endpoint % 14, d->channel);
    }
    fabric_free(fabric);
}

/* When all messages have arrived, threads sleep: only heartbeats wake them. */
static void an_idle_fabric_sleeps(void **state)
{
    (void)state;
    for (int direct = 0; direct < 2; direct++) {
        struct fabric *fabric = fabric_new(direct);
        fabric_ring(fabric, 4);
        fabric_settle(fabric);
        struct load *load = load_new(fabric, 20);
        load_run(load, 5 * VIA_SEC_NS);
        fabric_run(fabric, 300 * VIA_MSEC_NS);
        uint64_t rings = 0, after = 0;
        for (unsigned l = 0; l < 4; l++) {
            rings += fabric->links[l].rings[0];
        }
        for (unsigned h = 0; h < 4; h++) {
            assert_true(fabric->hosts[h].asleep[0]);
            assert_true(fabric->hosts[h].poll_deadline[0] == VIA_NEVER_NS);
        }
        fabric_run(fabric, VIA_SEC_NS);
        for (unsigned l = 0; l < 4; l++) {
            after += fabric->links[l].rings[0];
        }
        assert_int_equal(rings, after);
        load_free(load);
        fabric_free(fabric);
    }
}

/* Frames arrive at hosts hops_max away; hosts farther away are not shown as reachable. */
static void a_host_beyond_hops_max_is_unreachable(void **state)
{
    (void)state;
    struct via_route_status route;
    struct fabric *fabric = fabric_new(true);
    fabric->config.hops_max = 3;
    fabric_chain(fabric, 6);
    fabric_run(fabric, 500 * VIA_MSEC_NS);
    for (uint16_t h = 1; h < 6; h++) {
        assert_int_equal(via_node_route_status(fabric_node(fabric, 0), h, &route), 0);
        assert_int_equal(route.hops, h <= 3 ? h : UINT16_MAX);
        assert_int_equal(route.port, h <= 3 ? 0 : VIA_PORT_NONE);
    }
    struct via_op op = {.kind = VIA_OP_MESSAGE, .destination = 3, .cookie = 1};
    fabric_submit(fabric, 0, &op);
    assert_true(fabric_drain(fabric, VIA_SEC_NS));
    assert_int_equal(fabric_completion(fabric, 0, 1)->status, 0);
    assert_int_equal(fabric->hosts[3].deliveries_count, 1);
    fabric_free(fabric);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_beyond_hops_max_is_unreachable),
        cmocka_unit_test(the_way_is_the_shortest),
        cmocka_unit_test(of_equal_ways_the_one_in_the_lowest_dimension),
        cmocka_unit_test(a_frame_that_turns_leaves_a_bubble),
        cmocka_unit_test(a_chain_relays),
        cmocka_unit_test(puts_gets_and_atomics_over_relays),
        cmocka_unit_test(all_send_with_one_of_everything),
        cmocka_unit_test(a_new_frame_leaves_a_bubble),
        cmocka_unit_test(a_crowded_ring_never_stops),
        cmocka_unit_test(a_mesh_with_one_of_everything),
        cmocka_unit_test(nothing_is_lost_when_links_flap),
        cmocka_unit_test(a_cut_costs_little_time),
        cmocka_unit_test(a_relay_dies_with_frames_aboard),
        cmocka_unit_test(lost_requesters_do_not_starve_others),
        cmocka_unit_test(a_restarted_destination_is_reported),
        cmocka_unit_test(a_restarted_source_starts_new_flows),
        cmocka_unit_test(a_lone_life_is_outnumbered_by_its_past),
        cmocka_unit_test(channels_do_not_mix),
        cmocka_unit_test(an_idle_fabric_sleeps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
