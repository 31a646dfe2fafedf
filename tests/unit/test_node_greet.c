/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The greeting of a link: negotiation, refusals and their texts, and the key. */
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
#include "fabric.h"
#include "wire/handshake.h"

static void send_message(struct fabric *fabric, int from, int to, uint64_t cookie)
{
    static const unsigned char data[1024] = {1, 2, 3};
    struct via_op op = {
        .kind = VIA_OP_MESSAGE,
        .destination = (uint16_t)to,
        .source = data,
        .bytes = sizeof(data),
        .cookie = cookie,
    };
    assert_int_equal(via_node_submit(fabric_node(fabric, from), 0, &op), 0);
    fabric->hosts[from].woken[0] = true;
}

/* --- geometry -------------------------------------------------------------------------------- */

static void slots_are_negotiated(void **state)
{
    (void)state;
    for (int direct = 0; direct < 2; direct++) {
        struct fabric *fabric = fabric_pair(direct);
        fabric->hosts[1].config.pipe_slots = 2;
        fabric_start_pair(fabric);
        fabric_settle(fabric);
        for (int h = 0; h < 2; h++) {
            assert_int_equal(fabric_link_status(fabric, h, 0).pipe_slots, 2);
        }
        for (unsigned i = 0; i < 20; i++) {
            send_message(fabric, 0, 1, i);
            send_message(fabric, 1, 0, i);
        }
        assert_true(fabric_drain(fabric, VIA_SEC_NS));
        assert_int_equal(fabric->hosts[0].deliveries_count, 20);
        assert_int_equal(fabric->hosts[1].deliveries_count, 20);
        fabric_free(fabric);
    }
}

/* 8 slots of 1024 bytes are configured. */
static void a_small_window_gets_fewer_slots(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_pair(false);
    struct via_pipe_geometry geometry;
    via_geometry_of_channels(4, 1024, &geometry);
    fabric->links[0].ports[0].port.caps.window_bytes = via_inbox_bytes(&geometry, 1) + 64;
    fabric_start_pair(fabric);
    fabric_settle(fabric);
    assert_int_equal(fabric_link_status(fabric, 0, 0).pipe_slots, 4);
    assert_int_equal(fabric_link_status(fabric, 1, 0).pipe_slots, 4);
    for (unsigned i = 0; i < 20; i++) {
        send_message(fabric, 1, 0, i);
    }
    assert_true(fabric_drain(fabric, VIA_SEC_NS));
    assert_int_equal(fabric->hosts[0].deliveries_count, 20);
    fabric_free(fabric);
}

static void a_refusal_has_bytes(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_pair(false);
    struct via_pipe_geometry geometry;
    via_geometry_of_channels(1, 1024, &geometry);
    uint64_t need = via_inbox_bytes(&geometry, 1);
    fabric->links[0].ports[0].port.caps.window_bytes = need - 1;
    fabric_start_pair(fabric);
    fabric_run(fabric, 300 * VIA_MSEC_NS);
    struct via_link_status status = fabric_link_status(fabric, 0, 0);
    assert_int_equal(status.state, VIA_LINK_BAD_GEOMETRY);
    assert_int_equal(status.refusal.cause, VIA_CAUSE_MY_WINDOW);
    assert_int_equal(status.refusal.mine, need);
    assert_int_equal(status.refusal.peers, need - 1);
    status = fabric_link_status(fabric, 1, 0);
    assert_int_equal(status.state, VIA_LINK_BAD_GEOMETRY);
    assert_int_equal(status.refusal.cause, VIA_CAUSE_PEER_WINDOW);
    assert_int_equal(status.downs_count, 0);
    fabric_free(fabric);
}

/* Values that all hosts of a fabric must share are compared, and the refusal contains both. */
static void fabrics_must_agree(void **state)
{
    (void)state;
    for (int what = 0; what < 4; what++) {
        struct fabric *fabric = fabric_pair(true);
        struct via_node_config *config = &fabric->hosts[1].config;
        static const enum via_link_cause causes[] = {VIA_CAUSE_HOSTS_MAX, VIA_CAUSE_FLOWS,
                                                     VIA_CAUSE_ACK_NS, VIA_CAUSE_PIPE_FIRST};
        config->hosts_max += what == 0 ? 1 : 0;
        config->flows_count += what == 1 ? 1 : 0;
        config->ack_ns_max = what == 2 ? VIA_MSEC_NS : 0;
        config->pipe_first = what == 3 ? 5 : 0;
        fabric_start_pair(fabric);
        fabric_run(fabric, 300 * VIA_MSEC_NS);
        for (int h = 0; h < 2; h++) {
            struct via_link_status status = fabric_link_status(fabric, h, 0);
            assert_int_equal(status.state, VIA_LINK_BAD_FABRIC);
            assert_int_equal(status.refusal.cause, causes[what]);
            assert_int_not_equal(status.refusal.mine, status.refusal.peers);
            assert_int_equal(status.ups_count, 0);
        }
        fabric_crash(fabric, 1);
        *config = fabric->hosts[0].config;
        config->host = 1;
        fabric_start(fabric, 1);
        fabric_settle(fabric);
        fabric_free(fabric);
    }
}

/* --- the key --------------------------------------------------------------------------------- */

static void set_key(struct fabric *fabric, int host, uint64_t key)
{
    fabric->hosts[host].config.keyed = key != 0;
    fabric->hosts[host].key = key;
}

static void the_same_key_opens(void **state)
{
    (void)state;
    struct fabric *fabric = fabric_pair(false);
    set_key(fabric, 0, 42);
    set_key(fabric, 1, 42);
    fabric_start_pair(fabric);
    fabric_settle(fabric);
    fabric_cut(&fabric->links[0]);
    fabric_mend(&fabric->links[0]);
    fabric_settle(fabric);
    fabric_free(fabric);
}

static void another_key_does_not(void **state)
{
    (void)state;
    static const uint64_t keys[][2] = {{42, 43}, {42, 0}, {0, 42}};
    for (unsigned i = 0; i < 3; i++) {
        struct fabric *fabric = fabric_pair(true);
        set_key(fabric, 0, keys[i][0]);
        set_key(fabric, 1, keys[i][1]);
        fabric_start_pair(fabric);
        fabric_run(fabric, 3 * VIA_SEC_NS);
        for (int h = 0; h < 2; h++) {
            struct via_link_status status = fabric_link_status(fabric, h, 0);
            assert_int_equal(status.state, VIA_LINK_BAD_KEY);
            assert_int_equal(status.ups_count, 0);
            /* Either of two hosts with different keys may refuse first; the peer then only receives
             * the refusal. */
            assert_true(status.refusal.cause == VIA_CAUSE_KEYED ||
                        status.refusal.cause == VIA_CAUSE_KEY ||
                        status.refusal.cause == VIA_CAUSE_NONE);
        }
        fabric_crash(fabric, 1);
        set_key(fabric, 1, keys[i][0]);
        fabric_start(fabric, 1);
        fabric_settle(fabric);
        fabric_free(fabric);
    }
}

/* --- a hostile peer --------------------------------------------------------------------------- */

#define LIAR_EPOCH 77u
#define LIAR_SESSION 0x1234567u

/* Side 1 of the link without a node: the test writes its registers and its records. */
struct liar {
    struct fabric *fabric;
    struct via_pipe_writer writer;
    struct via_pipe_reader reader;
    uint32_t data_ends[VIA_CONTROL_PIPE_SLOTS];
    struct via_hello theirs; /* hello of the victim, host 0 */
    struct via_hello mine;   /* a valid one */
};

static void write_registers(struct liar *liar, uint16_t echo, uint8_t state)
{
    struct via_handshake handshake = {
        .magic = VIA_HANDSHAKE_MAGIC,
        .version = VIA_PROTOCOL_VERSION,
        .state = state,
        .host = 1,
        .session = LIAR_SESSION,
        .epoch = LIAR_EPOCH,
        .echo = echo,
    };
    uint32_t *registers = liar->fabric->links[0].scratchpads;
    via_handshake_pack(&handshake, registers + 4);
}

static void beat(struct liar *liar)
{
    static uint64_t count;
    uint32_t r3 = liar->fabric->links[0].scratchpads[3];
    uint64_t word = via_heartbeat_word((uint16_t)(r3 >> 16), ++count);
    memcpy(liar->fabric->links[0].ports[0].port.inbox, &word, sizeof(word));
}

static void run(struct liar *liar, uint64_t ns)
{
    for (uint64_t done = 0; done < ns; done += 10 * VIA_MSEC_NS) {
        beat(liar);
        fabric_run(liar->fabric, 10 * VIA_MSEC_NS);
    }
}

/* Plays the greeting until both control pipes work, and the victim's HELLO has arrived. */
static void liar_greets(struct liar *liar)
{
    struct fabric *fabric = liar->fabric;
    uint32_t *registers = fabric->links[0].scratchpads;
    struct via_inbox_place place;
    struct via_pipe_record record;

    write_registers(liar, 0, VIA_HANDSHAKE_INIT);
    fabric_run(fabric, 60 * VIA_MSEC_NS);
    assert_int_equal(registers[3] & 0xffff, LIAR_EPOCH);
    uint16_t epoch = (uint16_t)(registers[3] >> 16);
    memset(fabric->links[0].ports[1].port.inbox, 0, 4096);
    via_inbox_place(via_control_geometry(), 0, &place);
    struct via_pipe_target target = {.direct =
                                         fabric->links[0].ports[0].port.inbox + place.memory_off};
    via_pipe_writer_init(
        &liar->writer, via_control_geometry(), &target,
        (const _Atomic uint64_t *)(void *)(fabric->links[0].ports[1].port.inbox + place.credit_off),
        liar->data_ends, epoch);
    target.direct = fabric->links[0].ports[0].port.inbox + place.credit_off;
    via_pipe_reader_init(&liar->reader, via_control_geometry(),
                         fabric->links[0].ports[1].port.inbox + place.memory_off, &target,
                         LIAR_EPOCH);
    via_pipe_writer_start_at(&liar->writer, VIA_CONTROL_PIPE_FIRST);
    via_pipe_reader_start_at(&liar->reader, VIA_CONTROL_PIPE_FIRST);
    write_registers(liar, epoch, VIA_HANDSHAKE_UP);
    beat(liar);
    fabric_run(fabric, 30 * VIA_MSEC_NS);
    assert_int_equal(via_pipe_take(&liar->reader, &record), 1);
    assert_int_equal(record.head[0], VIA_GREETING_HELLO);
    assert_int_equal(record.body_bytes, sizeof(liar->theirs));
    memcpy(&liar->theirs, record.body, sizeof(liar->theirs));
    liar->mine = liar->theirs;
    liar->mine.host = 1;
    liar->mine.session = LIAR_SESSION;
    liar->mine.side = 1;
}

static void liar_init(struct liar *liar, uint64_t key)
{
    memset(liar, 0, sizeof(*liar));
    liar->fabric = fabric_pair(true);
    set_key(liar->fabric, 0, key);
    fabric_start(liar->fabric, 0);
    fabric_run(liar->fabric, 30 * VIA_MSEC_NS);
    liar_greets(liar);
}

static void say(struct liar *liar, uint8_t kind, const uint8_t *mac, const void *body, size_t bytes)
{
    struct via_greeting head = {.kind = kind};
    if (mac != NULL) {
        memcpy(head.mac, mac, sizeof(head.mac));
    }
    assert_int_equal(via_pipe_send(&liar->writer, &head, sizeof(head), body, bytes), 0);
    liar->fabric->hosts[0].control_deadline = 0;
    fabric_run(liar->fabric, VIA_MSEC_NS);
}

static struct via_link_status status_of(struct liar *liar)
{
    return fabric_link_status(liar->fabric, 0, 0);
}

static void a_proof_is_wanted(void **state)
{
    (void)state;
    for (int right = 0; right < 2; right++) {
        struct liar liar;
        uint8_t mac[VIA_MAC_BYTES] = {0};
        liar_init(&liar, 42);
        liar.mine.nonce[0] = 9;
        say(&liar, VIA_GREETING_HELLO, NULL, &liar.mine, sizeof(liar.mine));
        struct via_greeting_proof proof = {
            .label = VIA_GREETING_LABEL, .sender = liar.mine, .receiver = liar.theirs};
        fabric_mac(42, &proof, sizeof(proof), mac);
        mac[31] ^= right ? 0 : 1;
        say(&liar, VIA_GREETING_READY, mac, NULL, 0);
        assert_int_equal(status_of(&liar).state, right ? VIA_LINK_UP : VIA_LINK_BAD_KEY);
        fabric_free(liar.fabric);
    }
}

/* The victim's own proof, sent back to the victim, with a HELLO that is as similar to the victim's
 * as possible. */
static void a_reflected_proof_is_not_accepted(void **state)
{
    (void)state;
    struct liar liar;
    struct via_pipe_record record;
    liar_init(&liar, 42);
    say(&liar, VIA_GREETING_HELLO, NULL, &liar.mine, sizeof(liar.mine));
    assert_int_equal(via_pipe_take(&liar.reader, &record), 1);
    assert_int_equal(record.head[0], VIA_GREETING_READY);
    say(&liar, VIA_GREETING_READY, record.head + offsetof(struct via_greeting, mac), NULL, 0);
    assert_int_equal(status_of(&liar).state, VIA_LINK_BAD_KEY);
    fabric_free(liar.fabric);
}

/* A proof of a host with the key is not accepted in the next greeting. */
static void a_replayed_proof_is_not_accepted(void **state)
{
    (void)state;
    struct liar liar;
    uint8_t mac[VIA_MAC_BYTES];
    liar_init(&liar, 42);
    struct via_hello mine = liar.mine;
    struct via_greeting_proof proof = {
        .label = VIA_GREETING_LABEL, .sender = mine, .receiver = liar.theirs};
    fabric_mac(42, &proof, sizeof(proof), mac);
    fabric_cut(&liar.fabric->links[0]);
    fabric_run(liar.fabric, 30 * VIA_MSEC_NS);
    fabric_mend(&liar.fabric->links[0]);
    fabric_run(liar.fabric, 30 * VIA_MSEC_NS);
    liar_greets(&liar);
    say(&liar, VIA_GREETING_HELLO, NULL, &mine, sizeof(mine));
    say(&liar, VIA_GREETING_READY, mac, NULL, 0);
    assert_int_equal(status_of(&liar).state, VIA_LINK_BAD_KEY);
    assert_int_equal(status_of(&liar).ups_count, 0);
    fabric_free(liar.fabric);
}

static void silence_restarts_the_greeting(void **state)
{
    (void)state;
    struct liar liar;
    liar_init(&liar, 0);
    uint32_t r3 = liar.fabric->links[0].scratchpads[3];
    run(&liar, 3 * VIA_SEC_NS);
    assert_int_not_equal(liar.fabric->links[0].scratchpads[3] >> 16, r3 >> 16);
    assert_int_equal(status_of(&liar).ups_count, 0);
    fabric_free(liar.fabric);
}

static void a_broken_rule_restarts_the_greeting(void **state)
{
    (void)state;
    for (int what = 0; what < 8; what++) {
        struct liar liar;
        liar_init(&liar, 0);
        struct via_hello hello = liar.mine;
        uint8_t kind = VIA_GREETING_HELLO;
        size_t bytes = sizeof(hello);
        hello.host = what == 0 ? 2 : hello.host;
        hello.session += what == 1 ? 1 : 0;
        hello.side = what == 2 ? 0 : what == 3 ? 2 : hello.side;
        bytes -= what == 4 ? 8 : 0;
        kind = what == 5 ? VIA_GREETING_READY : what == 6 ? 1 : kind;
        bytes = what == 5 ? 0 : bytes;
        say(&liar, kind, NULL, &hello, bytes);
        if (what == 7) {
            assert_int_equal(status_of(&liar).errors, 0);
            say(&liar, kind, NULL, &hello, bytes); /* twice */
        }
        assert_int_equal(status_of(&liar).errors, 1);
        assert_int_equal(status_of(&liar).ups_count, 0);
        fabric_free(liar.fabric);
    }
}

/* Random numbers in a HELLO: the victim refuses it, or the geometry fits. */
static void any_hello_is_judged(void **state)
{
    (void)state;
    struct via_rng rng;
    struct via_hello mine = {
        .hosts_max = 8,
        .channels_count = 2,
        .flows_count = 4,
        .pipe_slots = 32,
        .frame_bytes = 1024,
        .window_bytes = 1 << 20,
        .inbox_bytes = 1 << 20,
        .ack_ns_max = 1000,
    };
    unsigned fits = 0;
    via_rng_init(&rng, 1);
    for (unsigned i = 0; i < 100000; i++) {
        struct via_hello peer = mine;
        struct via_pipe_geometry geometry;
        struct via_link_refusal refusal = {.cause = VIA_CAUSE_NONE};
        peer.pipe_slots = via_rng_chance(&rng, 1, 4) ? (uint32_t)via_rng_next(&rng)
                                                     : 1u << via_rng_below(&rng, 32);
        peer.window_bytes = via_rng_next(&rng) >> via_rng_below(&rng, 64);
        peer.inbox_bytes = via_rng_next(&rng) >> via_rng_below(&rng, 64);
        enum via_link_state judged = via_greet_compare(&mine, &peer, &geometry, &refusal);
        if (judged == VIA_LINK_HANDSHAKE) {
            fits++;
            assert_int_equal(via_pipe_geometry_check(&geometry), 0);
            assert_true(geometry.slots_count <= mine.pipe_slots);
            assert_true(via_inbox_bytes(&geometry, 2) <= mine.inbox_bytes);
            assert_true(via_inbox_bytes(&geometry, 2) <=
                        via_min(peer.inbox_bytes, peer.window_bytes));
        } else {
            assert_int_equal(judged, VIA_LINK_BAD_GEOMETRY);
            assert_int_not_equal(refusal.cause, VIA_CAUSE_NONE);
        }
    }
    assert_in_range(fits, 10000, 90000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_are_negotiated),
        cmocka_unit_test(a_small_window_gets_fewer_slots),
        cmocka_unit_test(a_refusal_has_bytes),
        cmocka_unit_test(fabrics_must_agree),
        cmocka_unit_test(the_same_key_opens),
        cmocka_unit_test(another_key_does_not),
        cmocka_unit_test(a_proof_is_wanted),
        cmocka_unit_test(a_reflected_proof_is_not_accepted),
        cmocka_unit_test(a_replayed_proof_is_not_accepted),
        cmocka_unit_test(silence_restarts_the_greeting),
        cmocka_unit_test(a_broken_rule_restarts_the_greeting),
        cmocka_unit_test(any_hello_is_judged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
