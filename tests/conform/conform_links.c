/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <string.h>

#include "conform_pair.h"

/* --- scratchpads --- */

static void write_all_scratchpads(struct pair *pair)
{
    for (unsigned i = 0; i < VIA_PORT_SCRATCHPADS; i++) {
        pair_scratchpad_write(pair, i / 4, i, 0xabcd0000u + i);
    }
    pair_travel(pair, 0);
    pair_travel(pair, 1);
    if (pair->place == CONFORM_INLINE) {
        pair_pass_ms(pair, 1);
    }
}

static void scratchpads_are_shared_and_have_one_writer(void **state)
{
    struct pair *pair = *state;
    for (unsigned i = 0; i < VIA_PORT_SCRATCHPADS; i++) {
        assert_int_equal(pair_scratchpad(pair, 0, i), 0);
        assert_int_equal(pair_scratchpad(pair, 1, i), 0);
    }
    write_all_scratchpads(pair);
    for (unsigned i = 0; i < VIA_PORT_SCRATCHPADS; i++) {
        pair_scratchpad_write(pair, 1 - i / 4, i, 0xbad); /* dropped: the other end writes it */
    }
    pair_travel(pair, 0);
    pair_travel(pair, 1);
    if (pair->place == CONFORM_INLINE) {
        pair_pass_ms(pair, 1);
    }
    for (unsigned i = 0; i < VIA_PORT_SCRATCHPADS; i++) {
        assert_int_equal(pair_scratchpad(pair, 0, i), 0xabcd0000u + i);
        assert_int_equal(pair_scratchpad(pair, 1, i), 0xabcd0000u + i);
    }
    assert_int_equal(pair_scratchpad(pair, 0, VIA_PORT_SCRATCHPADS), ALL_ONES);
    pair_scratchpad_write(pair, 0, VIA_PORT_SCRATCHPADS, 1); /* has no target and no effect */
}

/* The value of scratchpad i when the link is up again, after write_all_scratchpads(). */
static uint32_t pad_after(const struct pair *pair, unsigned i)
{
    return pair->kind->scratchpads_survive ? 0xabcd0000u + i : 0;
}

static void scratchpads_are_all_ones_while_down_and_zero_after(void **state)
{
    struct pair *pair = *state;
    for (unsigned cutter = 0; cutter < 2; cutter++) {
        write_all_scratchpads(pair);
        pair_cut(pair, cutter, true);
        pair_wait_down(pair);
        for (unsigned i = 0; i < VIA_PORT_SCRATCHPADS; i++) {
            assert_int_equal(pair_scratchpad(pair, 0, i), ALL_ONES);
            assert_int_equal(pair_scratchpad(pair, 1, i), ALL_ONES);
        }
        write_all_scratchpads(pair); /* vanishes */
        pair_cut(pair, cutter, false);
        pair_wait_up(pair);
        for (unsigned i = 0; i < VIA_PORT_SCRATCHPADS; i++) {
            assert_int_equal(pair_scratchpad(pair, 0, i), pad_after(pair, i));
            assert_int_equal(pair_scratchpad(pair, 1, i), pad_after(pair, i));
        }
    }
}

/* --- up and down --- */

static void each_end_sees_each_edge(void **state)
{
    struct pair *pair = *state;
    for (unsigned side = 0; side < 2; side++) {
        assert_true(pair_events(pair, side, VIA_PORT_EVENT_CONTROL) == VIA_PORT_EVENT_LINK_UP);
    }
    for (unsigned round = 0; round < 4; round++) {
        unsigned cutter = round % 2;
        pair_cut(pair, cutter, true);
        assert_false(pair_is_up(pair, cutter)); /* at once */
        pair_wait_down(pair);
        for (unsigned side = 0; side < 2; side++) {
            WAIT_FOR(pair,
                     pair_events(pair, side, VIA_PORT_EVENT_CONTROL) == VIA_PORT_EVENT_LINK_DOWN);
            assert_true(pair_events(pair, side, UINT64_MAX) == 0);
        }
        pair_pass_ms(pair, 5);
        assert_false(pair_is_up(pair, 0) || pair_is_up(pair, 1)); /* it stays down */
        pair_cut(pair, cutter, false);
        pair_wait_up(pair);
        for (unsigned side = 0; side < 2; side++) {
            assert_true(pair_events(pair, side, VIA_PORT_EVENT_CONTROL) == VIA_PORT_EVENT_LINK_UP);
            assert_true(pair_events(pair, side, UINT64_MAX) == 0);
        }
    }
}

static void a_short_cut_is_an_edge_at_both_ends(void **state)
{
    struct pair *pair = *state;
    for (unsigned round = 0; round < 20; round++) {
        pair_wait_up(pair);
        for (unsigned side = 0; side < 2; side++) {
            pair_events(pair, side, VIA_PORT_EVENT_CONTROL);
        }
        pair_cut(pair, round % 2, true);
        pair_cut(pair, round % 2, false);
        pair_wait_up(pair);
        for (unsigned side = 0; side < 2; side++) {
            assert_true(pair_events(pair, side, VIA_PORT_EVENT_CONTROL) ==
                        (VIA_PORT_EVENT_LINK_DOWN | VIA_PORT_EVENT_LINK_UP));
        }
    }
}

static void nothing_passes_a_link_that_is_down(void **state)
{
    struct pair *pair = *state;
    pair_inbox_fill(pair, 0, 0, 0x77, 4096);
    pair_inbox_fill(pair, 1, 0, 0x77, 4096);
    pair_cut(pair, 0, true);
    pair_wait_down(pair);
    for (unsigned side = 0; side < 2; side++) {
        struct conform_call store = {.verb = CONFORM_WINDOW_STORE, .off = 1024, .value = 0};
        pair_body_fill(pair, side, 0, 1, 1000);
        pair_body_fill(pair, side, 2048, 2, 64);
        pair_body_fill(pair, side, 3072, 3, 8);
        pair_call(pair, side, &store);
        pair_call_value(pair, side, CONFORM_FLUSH, 0);
        assert_int_equal(pair_call_value(pair, side, CONFORM_FENCE_START, 0), -ENOLINK);
        assert_int_equal(pair_call_value(pair, side, CONFORM_RING, 1), -ENOLINK);
    }
    pair_pass_ms(pair, 5);
    for (unsigned side = 0; side < 2; side++) {
        /* The inbox stays readable and unchanged. */
        assert_true(pair_inbox_is(pair, side, 0, 0x77, 4096));
    }
    pair_cut(pair, 0, false);
    pair_wait_up(pair);
    for (unsigned side = 0; side < 2; side++) {
        assert_true(pair_inbox_is(pair, side, 0, 0x77, 4096)); /* discarded, not delayed */
        assert_true(pair_events(pair, side, 0xffff) == 0);
    }
    for (unsigned side = 0; side < 2; side++) {
        pair_body_fill(pair, side, 0, 4, 100);
        pair_settle(pair, side);
        assert_true(pair_inbox_is(pair, 1 - side, 0, 4, 100));
    }
}

static void a_window_that_is_down_reads_all_ones(void **state)
{
    struct pair *pair = *state;
    struct conform_call load = {.verb = CONFORM_WINDOW_LOAD, .off = 1024};
    if (pair->kind->down_reads_anything) {
        skip();
    }
    uint64_t last = pair_caps(pair, 0).caps.window_bytes - 8;
    pair_inbox_fill(pair, 1, 1024, 0x12, 8);
    pair_call(pair, 0, &load);
    if (load.count != 0) {
        return; /* no window to load from: scratchpads have a test of their own */
    }
    assert_true(load.result == 0x1212121212121212);
    pair_cut(pair, 1, true);
    pair_wait_down(pair);
    WAIT_FOR(pair, pair_call(pair, 0, &load) == -1);
    load.off = last;
    assert_true(pair_call(pair, 0, &load) == -1);
    pair_cut(pair, 1, false);
    pair_wait_up(pair);
    load.off = 1024;
    assert_true(pair_call(pair, 0, &load) == 0x1212121212121212);
}

static void either_end_mends(void **state)
{
    struct pair *pair = *state;
    if (pair->kind->cut_is_own) {
        skip();
    }
    pair_cut(pair, 0, true);
    pair_wait_down(pair);
    pair_cut(pair, 1, false);
    pair_wait_up(pair);
}

static void cuts_under_load_do_no_harm(void **state)
{
    struct pair *pair = *state;
    for (unsigned side = 0; side < 2; side++) {
        pair_start(pair, side, 0, CONFORM_HAMMER, 4096, 0);
        pair_start(pair, side, 1, CONFORM_HAMMER, 4096 + CONFORM_WORK_BYTES, 0);
    }
    pair_inbox_fill(pair, 0, 0, 0x77, 4096);
    pair_inbox_fill(pair, 1, 0, 0x77, 4096);
    for (unsigned round = 0; round < 30; round++) {
        pair_cut(pair, round % 2, true);
        pair_wait_down(pair);
        pair_cut(pair, round % 2, false);
        pair_wait_up(pair);
    }
    for (unsigned side = 0; side < 2; side++) {
        for (unsigned i = 0; i < 2; i++) {
            /* On an oversubscribed machine it may not have run at all yet. */
            WAIT_FOR(pair, pair_report(pair, side, i, CONFORM_STATE).steps > 0);
            pair_report(pair, side, i, CONFORM_STOP);
        }
        assert_true(pair_inbox_is(pair, side, 0, 0x77, 4096));
    }
    for (unsigned side = 0; side < 2; side++) {
        pair_body_fill(pair, side, 0, 4, 100);
        pair_settle(pair, side);
        assert_true(pair_inbox_is(pair, 1 - side, 0, 4, 100));
    }
}

/* --- death and return --- */

static void revive(struct pair *pair, unsigned side)
{
    assert_int_equal(conform_agent_start(&pair->agent[side], pair->kind, pair->place, side,
                                         pair->directory, &pair->end[side]),
                     0);
}

static void one_end_dies_and_returns(struct pair *pair, unsigned victim)
{
    unsigned survivor = 1 - victim;
    pair_events(pair, survivor, UINT64_MAX);
    write_all_scratchpads(pair);
    pair_body_fill(pair, victim, 4096, 0x3c, 4096);
    pair_settle(pair, victim);
    /* The end may also die during stores. */
    pair_start(pair, survivor, 0, CONFORM_HAMMER, 16384, 0);
    conform_agent_kill(&pair->agent[victim]);

    WAIT_FOR(pair, !pair_is_up(pair, survivor));
    WAIT_FOR(pair, pair_events(pair, survivor, VIA_PORT_EVENT_CONTROL) == VIA_PORT_EVENT_LINK_DOWN);
    assert_int_equal(pair_call_value(pair, survivor, CONFORM_RING, 0), -ENOLINK);
    assert_int_equal(pair_call_value(pair, survivor, CONFORM_FENCE_START, 0), -ENOLINK);
    assert_int_equal(pair_scratchpad(pair, survivor, 0), ALL_ONES);
    pair_body_fill(pair, survivor, 0, 1, 1000);                   /* vanishes */
    assert_true(pair_inbox_is(pair, survivor, 4096, 0x3c, 4096)); /* its own memory is intact */

    revive(pair, victim);
    pair_wait_up(pair);
    pair_report(pair, survivor, 0, CONFORM_STOP);
    assert_true(pair_events(pair, survivor, VIA_PORT_EVENT_CONTROL) == VIA_PORT_EVENT_LINK_UP);
    assert_true(pair_events(pair, victim, VIA_PORT_EVENT_CONTROL) == VIA_PORT_EVENT_LINK_UP);
    for (unsigned i = 0; i < VIA_PORT_SCRATCHPADS; i++) {
        assert_int_equal(pair_scratchpad(pair, survivor, i), pad_after(pair, i));
        assert_int_equal(pair_scratchpad(pair, victim, i), pad_after(pair, i));
    }
    assert_true(pair_inbox_is(pair, survivor, 4096, 0x3c, 4096));
    assert_true(pair_inbox_is(pair, victim, 0, 0, 4096)); /* new memory, without late writes */
    for (unsigned side = 0; side < 2; side++) {
        pair_body_fill(pair, side, 8192, 9, 100);
        pair_settle(pair, side);
        assert_true(pair_inbox_is(pair, 1 - side, 8192, 9, 100));
        pair_ring(pair, side, 2);
        WAIT_FOR(pair, pair_events(pair, 1 - side, VIA_PORT_EVENT_DOORBELL(2)) != 0);
    }
}

static void a_peer_dies_and_returns(void **state)
{
    struct pair *pair = *state;
    if (pair->place == CONFORM_INLINE) {
        skip(); /* the simulator crashes whole hosts, in its own tests */
    }
    for (unsigned round = 0; round < 4; round++) {
        one_end_dies_and_returns(pair, round % 2);
    }
}

static void a_cut_outlives_one_end(void **state)
{
    struct pair *pair = *state;
    if (pair->place == CONFORM_INLINE) {
        skip();
    }
    for (unsigned victim = 0; victim < 2; victim++) {
        unsigned survivor = 1 - victim;
        pair_cut(pair, survivor, true);
        pair_wait_down(pair);
        conform_agent_kill(&pair->agent[victim]);
        revive(pair, victim);
        pair_pass_ms(pair, 300);
        assert_false(pair_is_up(pair, survivor) || pair_is_up(pair, victim));
        pair_cut(pair, survivor, false);
        pair_wait_up(pair);
    }
}

unsigned conform_tests_of_links(struct CMUnitTest *ret_tests)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scratchpads_are_shared_and_have_one_writer),
        cmocka_unit_test(scratchpads_are_all_ones_while_down_and_zero_after),
        cmocka_unit_test(each_end_sees_each_edge),
        cmocka_unit_test(a_short_cut_is_an_edge_at_both_ends),
        cmocka_unit_test(nothing_passes_a_link_that_is_down),
        cmocka_unit_test(a_window_that_is_down_reads_all_ones),
        cmocka_unit_test(either_end_mends),
        cmocka_unit_test(cuts_under_load_do_no_harm),
        cmocka_unit_test(a_peer_dies_and_returns),
        cmocka_unit_test(a_cut_outlives_one_end),
    };
    memcpy(ret_tests, tests, sizeof(tests));
    return VIA_ARRAY_COUNT(tests);
}
