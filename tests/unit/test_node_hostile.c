/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A peer that completes bring-up like any other, and then sends arbitrary data. Host 0's memory
 * must stay intact (checked by the address sanitizer), and host 0 must serve a well-behaved peer
 * afterwards.
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
#include "core/flow.h"
#include "fabric.h"
#include "hostile_peer.h"

#define SEGMENT_BYTES 4096u

struct scene {
    struct fabric *fabric;
    struct via_rng rng;
    struct hostile_peer peer; /* host 1's end of the link */
    unsigned char *segment;
    uint64_t handle;
};

static void scene_init(struct scene *s, uint64_t seed)
{
    memset(s, 0, sizeof(*s));
    via_rng_init(&s->rng, seed);
    s->fabric = fabric_new(true);
    /* Because the hostile peer sends no heartbeats. */
    s->fabric->config.dead_ns = 1000 * VIA_SEC_NS;
    s->fabric->config.frame_bytes_max = 256;
    fabric_chain(s->fabric, 2);
    fabric_settle(s->fabric);
    s->segment = malloc(SEGMENT_BYTES); /* of that size, for the sanitizer */
    memset(s->segment, 0, SEGMENT_BYTES);
    assert_int_equal(via_node_segment_add(fabric_node(s->fabric, 0), s->segment, SEGMENT_BYTES,
                                          VIA_SEGMENT_READ | VIA_SEGMENT_WRITE,
                                          via_rng_next(&s->rng) | 1, &s->handle),
                     0);
    hostile_peer_become(&s->peer, s->fabric, 1);
}

static void scene_fini(struct scene *s)
{
    fabric_free(s->fabric);
    free(s->segment);
}

/* A random number, often close to a limit. */
static uint64_t edgy(struct scene *s)
{
    static const uint64_t edges[] = {0,
                                     1,
                                     7,
                                     8,
                                     63,
                                     64,
                                     255,
                                     256,
                                     4088,
                                     4095,
                                     4096,
                                     4097,
                                     0xffff,
                                     0x7fffffff,
                                     1u << 31,
                                     UINT32_MAX,
                                     UINT64_C(1) << 63,
                                     UINT64_MAX - 7,
                                     UINT64_MAX};
    if (via_rng_chance(&s->rng, 1, 8)) {
        return via_rng_next(&s->rng);
    }
    return edges[via_rng_below(&s->rng, sizeof(edges) / sizeof(edges[0]))];
}

static void random_args(struct scene *s, struct via_frame_header *header)
{
    uint64_t args[4];
    for (unsigned i = 0; i < 4; i++) {
        args[i] = edgy(s);
    }
    if (via_rng_chance(&s->rng, 3, 4)) {
        args[0] = s->handle; /* sometimes a cookie that may belong to another operation */
    } else if (via_rng_chance(&s->rng, 1, 2)) {
        args[0] = via_rng_below(&s->rng, 64) | via_rng_below(&s->rng, 4) << 20;
    }
    memcpy(header->args, args, sizeof(args));
}

static void random_frame(struct scene *s)
{
    const struct fabric_host *host = &s->fabric->hosts[0];
    unsigned char body[256];
    struct via_frame_header header = {
        .kind = (uint8_t)via_rng_below(&s->rng, 14),
        .flags = (uint8_t)via_rng_next(&s->rng),
        .inline_bytes = via_rng_chance(&s->rng, 1, 4) ? (uint8_t)edgy(s) : 0,
        .hops_left = (uint16_t)via_rng_below(&s->rng, 3),
        .source = 1,
        .destination = 0,
        .source_session = s->fabric->hosts[1].config.session,
        .destination_session = host->config.session,
        .flow = (uint16_t)via_rng_below(&s->rng, 5),
    };
    const struct via_rx_flow *flow = via_channel_rx(&host->node->channels[0], 1, header.flow % 4);
    header.sequence = flow->expected;
    if (via_rng_chance(&s->rng, 1, 16)) {
        header.sequence += (uint32_t)edgy(s);
    }
    if (flow->refused && via_rng_chance(&s->rng, 3, 4)) {
        header.kind = VIA_FRAME_SKIP; /* otherwise the flow would not continue */
    }
    if (via_rng_chance(&s->rng, 1, 16)) {
        header.source = (uint16_t)edgy(s);
    }
    if (via_rng_chance(&s->rng, 1, 16)) {
        header.destination = (uint16_t)edgy(s);
    }
    if (via_rng_chance(&s->rng, 1, 32)) {
        header.source_session = (uint32_t)edgy(s);
    }
    random_args(s, &header);
    memset(body, (int)via_rng_next(&s->rng), sizeof(body));
    size_t bytes = via_rng_chance(&s->rng, 1, 2) ? 16 : via_rng_below(&s->rng, sizeof(body) + 1);
    (void)via_pipe_send(&s->peer.channel.writer, &header, sizeof(header), body, bytes);
}

/* Host 0 has operations under way, to which the peer can send false answers. */
static void some_operation(struct scene *s)
{
    static unsigned char result[2048];
    static const uint8_t kinds[] = {VIA_OP_MESSAGE, VIA_OP_PUT, VIA_OP_GET, VIA_OP_ATOMIC};
    struct via_op op = {
        .kind = kinds[via_rng_below(&s->rng, 4)],
        .atomic = VIA_ATOMIC_ADD,
        .destination = 1,
        .flow = (uint16_t)via_rng_below(&s->rng, 3),
        .segment = edgy(s),
        .source = result,
        .result = result,
        .bytes = via_rng_below(&s->rng, 257),
    };
    (void)via_node_submit(fabric_node(s->fabric, 0), 0, &op);
}

static void anything_may_come(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct scene s;
        scene_init(&s, seed);
        for (unsigned i = 0; i < 3000; i++) {
            struct via_pipe_record record;
            random_frame(&s);
            if (via_rng_chance(&s.rng, 1, 8)) {
                some_operation(&s);
            }
            s.fabric->hosts[0].woken[0] = true;
            s.fabric->hosts[0].completions_count = 0;
            s.fabric->hosts[0].deliveries_count = 0;
            s.fabric->hosts[0].deliver_answer = via_rng_chance(&s.rng, 1, 8) ? -EAGAIN : 0;
            fabric_run(s.fabric, 10 * VIA_USEC_NS);
            while (via_pipe_take(&s.peer.channel.reader, &record) == 1) {
                via_pipe_release(&s.peer.channel.reader, 1);
            }
        }
        struct via_node_counters counters = fabric_counters(s.fabric, 0);
        assert_true(counters.frames_dropped_malformed > 100);
        assert_true(counters.frames_delivered > 100);
        assert_true(counters.refused_key > 10);
        assert_true(counters.refused_range > 10);

        /* A well-behaved peer replaces it, and host 0 serves this peer. */
        s.fabric->hosts[0].deliver_answer = 0;
        fabric_start(s.fabric, 1);
        fabric_settle(s.fabric);
        assert_true(fabric_drain(s.fabric, VIA_SEC_NS));
        s.fabric->hosts[0].completions_count = 0;
        s.fabric->hosts[0].deliveries_count = 0;
        for (unsigned i = 0; i < 20; i++) {
            struct via_op op = {.kind = VIA_OP_MESSAGE, .destination = 1, .cookie = i};
            fabric_submit(s.fabric, 0, &op);
            op.destination = 0;
            fabric_submit(s.fabric, 1, &op);
        }
        assert_true(fabric_drain(s.fabric, VIA_SEC_NS));
        assert_int_equal(s.fabric->hosts[0].deliveries_count, 20);
        assert_int_equal(s.fabric->hosts[1].deliveries_count, 20);
        assert_int_equal(fabric_completion(s.fabric, 0, 19)->status, 0);
        scene_fini(&s);
    }
}

static void run_until_down(struct scene *s)
{
    s->fabric->hosts[0].woken[0] = true;
    fabric_run(s->fabric, 25 * VIA_MSEC_NS);
    struct via_link_status status = fabric_link_status(s->fabric, 0, 0);
    assert_int_equal(status.downs_count, 1);
    assert_int_equal(status.errors, 1);
    fabric_start(s->fabric, 1);
    fabric_settle(s->fabric);
}

static void words_that_break_the_rules_end_the_link(void **state)
{
    (void)state;
    struct scene s;
    struct via_inbox_place place;

    /* A body longer than the maximum. */
    scene_init(&s, 1);
    via_inbox_place(&fabric_node(s.fabric, 0)->geometry, 1, &place);
    unsigned char *inbox = s.fabric->links[0].ports[0].port.inbox;
    uint32_t slots = s.fabric->config.pipe_slots;
    uint32_t next = fabric_node(s.fabric, 0)->channels[0].ways[0].rx.sequence;
    uint64_t word = via_record_word(s.peer.channel.writer.epoch, 257, next);
    memcpy(inbox + place.memory_off + 64 + (next % slots) * 64 + 56, &word, 8);
    run_until_down(&s);
    scene_fini(&s);

    /* Credit for records that were never sent. */
    scene_init(&s, 2);
    inbox = s.fabric->links[0].ports[0].port.inbox;
    word = via_credit_word(s.peer.channel.reader.epoch, 0, 1000000);
    memcpy(inbox + place.credit_off, &word, 8);
    struct via_op op = {.kind = VIA_OP_MESSAGE, .destination = 1};
    for (unsigned i = 0; i < 3 * slots; i++) {
        (void)via_node_submit(fabric_node(s.fabric, 0), 0, &op);
    }
    run_until_down(&s);
    assert_true(fabric_drain(s.fabric, VIA_SEC_NS));
    scene_fini(&s);
}

/* False acknowledgements: for frames that were not sent, and refusals with an unknown status. */
static void lies_about_progress_are_not_believed(void **state)
{
    (void)state;
    struct scene s;
    uint64_t number = 1;
    scene_init(&s, 3);
    struct via_op op = {
        .kind = VIA_OP_MESSAGE, .destination = 1, .source = &number, .bytes = 8, .cookie = 1};
    fabric_submit(s.fabric, 0, &op);
    fabric_run(s.fabric, 20 * VIA_USEC_NS);
    struct via_tx_flow *flow = via_channel_tx(&fabric_node(s.fabric, 0)->channels[0], 1, 0);
    struct via_frame_header header = {
        .kind = VIA_FRAME_ACK,
        .source = 1,
        .source_session = s.fabric->hosts[1].config.session,
        .destination_session = s.fabric->hosts[0].config.session,
    };
    struct via_frame_ack ack = {.next = flow->sent_max + 1, .state = VIA_ACK_OK};
    memcpy(header.args, &ack, sizeof(ack));
    assert_int_equal(via_pipe_send(&s.peer.channel.writer, &header, sizeof(header), NULL, 0), 0);
    s.fabric->hosts[0].woken[0] = true;
    fabric_run(s.fabric, 20 * VIA_USEC_NS);
    assert_null(fabric_completion(s.fabric, 0, 1));
    assert_int_equal(fabric_counters(s.fabric, 0).frames_dropped_malformed, 1);

    ack = (struct via_frame_ack){.next = flow->acked, .state = VIA_ACK_REFUSED, .status = 12345};
    memcpy(header.args, &ack, sizeof(ack));
    assert_int_equal(via_pipe_send(&s.peer.channel.writer, &header, sizeof(header), NULL, 0), 0);
    s.fabric->hosts[0].woken[0] = true;
    fabric_run(s.fabric, 20 * VIA_USEC_NS);
    assert_int_equal(fabric_completion(s.fabric, 0, 1)->status, -EPROTO);
    scene_fini(&s);
}

/* No host has ever received an announcement of host 5, so its session is "none"; a frame with that
 * session has no valid source. */
static void frames_without_a_valid_source_are_dropped(void **state)
{
    (void)state;
    struct scene s;
    scene_init(&s, 4);
    for (int start = 0; start < 2; start++) {
        struct via_frame_header header = {
            .kind = VIA_FRAME_MESSAGE,
            .flags = start ? VIA_FRAME_FLAG_START : 0,
            .source = 5,
            .destination_session = s.fabric->hosts[0].config.session,
        };
        assert_int_equal(via_pipe_send(&s.peer.channel.writer, &header, sizeof(header), NULL, 0),
                         0);
        s.fabric->hosts[0].woken[0] = true;
        fabric_run(s.fabric, 20 * VIA_USEC_NS);
    }
    assert_int_equal(s.fabric->hosts[0].deliveries_count, 0);
    assert_int_equal(fabric_counters(s.fabric, 0).frames_dropped_session, 2);
    scene_fini(&s);
}

/* If a destination reports repeatedly that it has lost its state of a flow, the source finally
 * accepts this. */
static void a_forgotten_flow_ends_and_starts_again(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new(true);
    fabric_chain(fabric, 2);
    fabric_settle(fabric);
    struct via_op op = {.kind = VIA_OP_MESSAGE, .destination = 1, .cookie = 1};
    fabric_submit(fabric, 0, &op);
    assert_true(fabric_drain(fabric, VIA_SEC_NS));
    struct via_channel *channel = &fabric_node(fabric, 1)->channels[0];
    via_rx_reset(channel, via_channel_rx(channel, 0, 0));
    op.cookie = 2;
    fabric_submit(fabric, 0, &op);
    assert_true(fabric_drain(fabric, VIA_SEC_NS));
    assert_int_equal(fabric_completion(fabric, 0, 2)->status, -ECONNRESET);
    op.cookie = 3;
    fabric_submit(fabric, 0, &op);
    assert_true(fabric_drain(fabric, VIA_SEC_NS));
    assert_int_equal(fabric_completion(fabric, 0, 3)->status, 0);
    assert_int_equal(fabric->hosts[1].deliveries_count, 2);
    fabric_free(fabric);
}

/* --- answers and names ----------------------------------------------------------------------- */

/* A frame from the hostile host 0 of a chain, as the next of its flow. */
static void send_as(struct hostile_peer *peer, struct fabric *fabric, uint16_t source,
                    struct via_frame_header *header, const void *body, size_t body_bytes)
{
    header->source = source;
    header->source_session = fabric->hosts[source].config.session;
    header->destination_session = fabric->hosts[header->destination].config.session;
    header->hops_left = 8;
    assert_int_equal(
        via_pipe_send(&peer->channel.writer, header, sizeof(*header), body, body_bytes), 0);
    fabric->hosts[1].woken[0] = true;
}

static void release_all(struct hostile_peer *peer)
{
    struct via_pipe_record record;
    while (via_pipe_take(&peer->channel.reader, &record) == 1) {
        via_pipe_release(&peer->channel.reader, 1);
    }
}

static void request_atomic_as(struct hostile_peer *peer, struct fabric *fabric, uint16_t source,
                              uint64_t handle, uint16_t flow, uint32_t number)
{
    const struct via_frame_atomic_operands operands = {.operand = 1};
    const struct via_frame_atomic args = {
        .segment = handle, .cookie = number, .operation = VIA_ATOMIC_ADD};
    struct via_frame_header header = {
        .kind = VIA_FRAME_ATOMIC,
        .flags = VIA_FRAME_FLAG_ACK_NOW | (number == 0 ? VIA_FRAME_FLAG_START : 0),
        .destination = 1,
        .flow = flow,
        .sequence = number,
    };
    memcpy(header.args, &args, sizeof(args));
    send_as(peer, fabric, source, &header, &operands, sizeof(operands));
    fabric_run(fabric, 20 * VIA_USEC_NS);
    release_all(peer);
}

static void request_atomic(struct hostile_peer *peer, struct fabric *fabric, uint64_t handle,
                           uint16_t flow, uint32_t number)
{
    request_atomic_as(peer, fabric, 0, handle, flow, number);
}

static void acknowledge(struct hostile_peer *peer, struct fabric *fabric, uint16_t flow,
                        uint32_t next)
{
    struct via_frame_ack ack = {.next = next, .state = VIA_ACK_OK};
    struct via_frame_header header = {.kind = VIA_FRAME_ACK, .destination = 1, .flow = flow};
    memcpy(header.args, &ack, sizeof(ack));
    send_as(peer, fabric, 0, &header, NULL, 0);
}

/* In all its flows, host 0 sends more requests than there are places for answers, and acknowledges
 * one answer in 100 ms. */
static void a_slow_acknowledger_leaves_answers_for_others(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new(true);
    struct hostile_peer peer;
    uint64_t handle;
    _Alignas(64) static uint64_t words[8];
    memset(words, 0, sizeof(words));
    fabric->config.dead_ns = 1000 * VIA_SEC_NS;
    fabric->config.ops_count = 8;
    fabric_chain(fabric, 3);
    fabric_settle(fabric);
    assert_int_equal(via_node_segment_add(fabric_node(fabric, 1), words, sizeof(words),
                                          VIA_SEGMENT_READ | VIA_SEGMENT_WRITE, 5, &handle),
                     0);
    hostile_peer_become(&peer, fabric, 0);
    for (uint32_t i = 0; i < 16; i++) {
        for (uint16_t flow = 0; flow < 3; flow++) {
            request_atomic(&peer, fabric, handle, flow, i);
        }
    }
    assert_in_range(words[0], 1, 4); /* half of them */
    struct via_tx_flow *answers = via_channel_tx(&fabric_node(fabric, 1)->channels[0], 0, 3);
    for (unsigned i = 0; i < 20; i++) {
        struct via_op op = {.kind = VIA_OP_ATOMIC,
                            .destination = 1,
                            .segment = handle,
                            .offset = 8,
                            .atomic = VIA_ATOMIC_ADD,
                            .operand = 1,
                            .cookie = i};
        fabric_submit(fabric, 2, &op);
        fabric_run(fabric, VIA_MSEC_NS);
        assert_non_null(fabric_completion(fabric, 2, i));
        assert_int_equal(fabric_completion(fabric, 2, i)->value, i);
        acknowledge(&peer, fabric, 3, answers->acked + 1);
        fabric_run(fabric, 99 * VIA_MSEC_NS);
        release_all(&peer);
    }
    fabric_free(fabric);
}

static void connect_all_to(struct fabric *fabric, int centre, int hosts_count)
{
    for (int h = 0; h < hosts_count; h++) {
        fabric_add_host(fabric);
    }
    for (int h = 0; h < hosts_count; h++) {
        if (h != centre) {
            fabric_connect(fabric, centre, h);
        }
    }
    for (int h = 0; h < hosts_count; h++) {
        fabric_start(fabric, h);
    }
    fabric_settle(fabric);
}

/* Each host takes half of the remaining answers, and acknowledges none: the last one takes the
 * rest.
 */
static void silent_askers_leave_answers_for_others(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new(true);
    static const uint16_t hostile[] = {0, 3, 4};
    struct hostile_peer peers[VIA_ARRAY_COUNT(hostile)];
    uint64_t handle;
    _Alignas(64) static uint64_t words[8];
    memset(words, 0, sizeof(words));
    fabric->config.dead_ns = 1000 * VIA_SEC_NS;
    fabric->config.ops_count = 4;
    connect_all_to(fabric, 1, 5);
    assert_int_equal(via_node_segment_add(fabric_node(fabric, 1), words, sizeof(words),
                                          VIA_SEGMENT_READ | VIA_SEGMENT_WRITE, 5, &handle),
                     0);
    for (size_t p = 0; p < VIA_ARRAY_COUNT(hostile); p++) {
        hostile_peer_become(&peers[p], fabric, hostile[p]);
    }
    for (size_t p = 0; p < VIA_ARRAY_COUNT(hostile); p++) {
        for (uint32_t i = 0; i < 16; i++) {
            request_atomic_as(&peers[p], fabric, hostile[p], handle, 0, i);
        }
    }
    struct via_op op = {.kind = VIA_OP_ATOMIC,
                        .destination = 1,
                        .segment = handle,
                        .offset = 8,
                        .atomic = VIA_ATOMIC_ADD,
                        .operand = 1,
                        .cookie = 1};
    fabric_submit(fabric, 2, &op);
    fabric_run(fabric, 500 * VIA_MSEC_NS);
    assert_null(fabric_completion(fabric, 2, 1)); /* there is no answer for it yet */
    for (unsigned i = 0; i < 20; i++) {
        fabric_run(fabric, 100 * VIA_MSEC_NS);
        for (size_t p = 0; p < VIA_ARRAY_COUNT(hostile); p++) {
            release_all(&peers[p]);
        }
    }
    assert_non_null(fabric_completion(fabric, 2, 1));
    assert_int_equal(fabric_completion(fabric, 2, 1)->status, 0);
    fabric_free(fabric);
}

/* The host acknowledges a get repeatedly, and never answers. */
static void a_get_that_is_never_answered_ends(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new(true);
    struct hostile_peer peer;
    uint64_t result = 0;
    fabric->config.dead_ns = 1000 * VIA_SEC_NS;
    fabric->config.give_up_ns = 200 * VIA_MSEC_NS;
    fabric->config.wait_ns_max = 400 * VIA_MSEC_NS;
    fabric_chain(fabric, 2);
    fabric_settle(fabric);
    hostile_peer_become(&peer, fabric, 0);
    struct via_op op = {
        .kind = VIA_OP_GET, .destination = 0, .result = &result, .bytes = 8, .cookie = 1};
    fabric_submit(fabric, 1, &op);
    const struct via_tx_flow *flow = via_channel_tx(&fabric_node(fabric, 1)->channels[0], 0, 0);
    for (unsigned i = 0; i < 60; i++) {
        fabric_run(fabric, 10 * VIA_MSEC_NS);
        assert_true(i > 36 || fabric_completion(fabric, 1, 1) == NULL);
        acknowledge(&peer, fabric, 0, flow->sent_max);
        release_all(&peer);
    }
    assert_int_equal(fabric_completion(fabric, 1, 1)->status, -ETIMEDOUT);
    fabric_free(fabric);
}

/* Sequence numbers that jump, in the liar's own flows: flows of other hosts are not affected. */
static void numbers_that_lie_harm_their_own_flows(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new(true);
    struct hostile_peer peer;
    struct via_rng rng;
    static uint64_t numbers[200];
    via_rng_init(&rng, 5);
    fabric->config.dead_ns = 1000 * VIA_SEC_NS;
    fabric_chain(fabric, 3);
    fabric_settle(fabric);
    hostile_peer_become(&peer, fabric, 0);
    for (uint64_t i = 0; i < VIA_ARRAY_COUNT(numbers); i++) {
        struct via_frame_header header = {
            .kind = via_rng_chance(&rng, 1, 2) ? VIA_FRAME_SKIP : VIA_FRAME_PUT,
            .flags = via_rng_chance(&rng, 1, 2) ? VIA_FRAME_FLAG_START : VIA_FRAME_FLAG_ACK_NOW,
            .destination = (uint16_t)via_rng_between(&rng, 1, 2),
            .flow = (uint16_t)via_rng_below(&rng, 4),
            .sequence = (uint32_t)via_rng_next(&rng),
        };
        send_as(&peer, fabric, 0, &header, NULL, 0);
        numbers[i] = i;
        struct via_op op = {.kind = VIA_OP_MESSAGE,
                            .destination = 1,
                            .source = &numbers[i],
                            .bytes = 8,
                            .cookie = i};
        fabric_submit(fabric, 2, &op);
        fabric_run(fabric, 50 * VIA_USEC_NS);
        release_all(&peer);
    }
    assert_true(fabric_drain(fabric, VIA_SEC_NS));
    assert_int_equal(fabric->hosts[1].deliveries_count, VIA_ARRAY_COUNT(numbers));
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(numbers); i++) {
        assert_int_equal(fabric->hosts[1].deliveries[i].first, i);
        assert_int_equal(fabric_completion(fabric, 2, i)->status, 0);
    }
    fabric_free(fabric);
}

/* A host does not forward frames that a neighbour sends in this host's own name. */
static void no_other_host_speaks_in_this_hosts_name(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new(true);
    struct hostile_peer peer;
    fabric->config.dead_ns = 1000 * VIA_SEC_NS;
    fabric_chain(fabric, 3);
    fabric_settle(fabric);
    hostile_peer_become(&peer, fabric, 0);
    struct via_frame_header header = {
        .kind = VIA_FRAME_MESSAGE, .flags = VIA_FRAME_FLAG_START, .destination = 2};
    send_as(&peer, fabric, 1, &header, NULL, 0);
    fabric_run(fabric, VIA_MSEC_NS);
    assert_int_equal(fabric->hosts[2].deliveries_count, 0);
    assert_int_equal(fabric_counters(fabric, 1).frames_dropped_forged, 1);
    fabric_free(fabric);
}

/* Sends a message to host 1 over its link to host 0, in the name of another host. Returns how many
 * messages host 1 has delivered then. */
static unsigned speak_as(struct hostile_peer *peer, struct fabric *fabric, uint16_t source)
{
    struct via_frame_header header = {
        .kind = VIA_FRAME_MESSAGE, .flags = VIA_FRAME_FLAG_START, .destination = 1};
    send_as(peer, fabric, source, &header, NULL, 0);
    fabric_run(fabric, VIA_MSEC_NS);
    return fabric->hosts[1].deliveries_count;
}

/*
 * A host with a direct link to a second host accepts no frames in the second host's name from a
 * third. To all other hosts the third host can send such frames (docs/security.md).
 */
static void a_neighbour_speaks_for_itself_only(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_new(true);
    struct hostile_peer peer;
    fabric->config.dead_ns = 1000 * VIA_SEC_NS;
    fabric_chain(fabric, 4);
    fabric_settle(fabric);
    hostile_peer_become(&peer, fabric, 0);
    assert_int_equal(speak_as(&peer, fabric, 2), 0);
    assert_int_equal(fabric_counters(fabric, 1).frames_dropped_forged, 1);
    assert_int_equal(speak_as(&peer, fabric, 3), 1);
    assert_int_equal(fabric->hosts[1].deliveries[0].source, 3);
    assert_int_equal(fabric_counters(fabric, 1).frames_dropped_forged, 1);

    /* A message of host 2 itself is delivered, before and after. */
    const uint64_t number = 7;
    struct via_op op = {.kind = VIA_OP_MESSAGE, .destination = 1, .source = &number, .bytes = 8};
    fabric_submit(fabric, 2, &op);
    fabric_run(fabric, VIA_MSEC_NS);
    assert_int_equal(fabric->hosts[1].deliveries_count, 2);
    assert_int_equal(fabric->hosts[1].deliveries[1].source, 2);
    fabric_free(fabric);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(anything_may_come),
        cmocka_unit_test(words_that_break_the_rules_end_the_link),
        cmocka_unit_test(lies_about_progress_are_not_believed),
        cmocka_unit_test(frames_without_a_valid_source_are_dropped),
        cmocka_unit_test(a_forgotten_flow_ends_and_starts_again),
        cmocka_unit_test(a_slow_acknowledger_leaves_answers_for_others),
        cmocka_unit_test(silent_askers_leave_answers_for_others),
        cmocka_unit_test(a_get_that_is_never_answered_ends),
        cmocka_unit_test(numbers_that_lie_harm_their_own_flows),
        cmocka_unit_test(no_other_host_speaks_in_this_hosts_name),
        cmocka_unit_test(a_neighbour_speaks_for_itself_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
