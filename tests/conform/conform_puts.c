/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <string.h>

#include "conform_pair.h"

/* --- bring-up and posted writes --- */

static void both_ends_come_up_and_fit(void **state)
{
    struct pair *pair = *state;
    struct conform_caps ends[2] = {pair_caps(pair, 0), pair_caps(pair, 1)};
    for (unsigned side = 0; side < 2; side++) {
        assert_int_equal(ends[side].side, side);
        assert_int_equal(ends[side].inbox_address % 64, 0);
        assert_true(ends[side].caps.inbox_bytes >= CONFORM_INBOX_BYTES);
        assert_int_equal(ends[side].caps.window_bytes, ends[1 - side].caps.inbox_bytes);
        assert_true(ends[side].caps.store_bytes_max == 8 || ends[side].caps.store_bytes_max == 64);
        /* The event is reported once. */
        assert_true(pair_events(pair, side, VIA_PORT_EVENT_CONTROL) == VIA_PORT_EVENT_LINK_UP);
        assert_true(pair_events(pair, side, VIA_PORT_EVENT_CONTROL) == 0);
    }
}

static void bodies_arrive_and_nothing_else_changes(void **state)
{
    struct pair *pair = *state;
    static const size_t sizes[] = {1, 7, 8, 9, 56, 63, 64, 65, 127, 200, 1024, 3000};
    static const size_t shifts[] = {0, 1, 8, 60, 64};

    for (unsigned side = 0; side < 2; side++) {
        for (unsigned i = 0; i < VIA_ARRAY_COUNT(sizes); i++) {
            for (unsigned j = 0; j < VIA_ARRAY_COUNT(shifts); j++) {
                uint64_t off = 8192 + shifts[j];
                int value = (int)(1 + i * 5 + j);
                pair_inbox_fill(pair, 1 - side, 8192 - 64, 0xa5, 4096);
                pair_body_fill(pair, side, off, value, sizes[i]);
                pair_settle(pair, side);
                assert_true(pair_inbox_is(pair, 1 - side, off, value, sizes[i]));
                assert_true(pair_inbox_is(pair, 1 - side, 8192 - 64, 0xa5, 64 + shifts[j]));
                assert_true(pair_inbox_is(pair, 1 - side, off + sizes[i], 0xa5, 64));
            }
        }
    }
}

static void bodies_reach_the_first_and_the_last_byte(void **state)
{
    struct pair *pair = *state;
    uint64_t end = pair_caps(pair, 0).caps.window_bytes;
    pair_body_fill(pair, 0, 0, 0x11, 1);
    pair_body_fill(pair, 0, end - 1, 0x22, 1);
    pair_body_fill(pair, 0, end - 128, 0x33, 64);
    pair_body_fill(pair, 0, end, 0x44, 0); /* 0 bytes at the end are in bounds */
    pair_settle(pair, 0);
    assert_true(pair_inbox_is(pair, 1, 0, 0x11, 1));
    assert_true(pair_inbox_is(pair, 1, end - 1, 0x22, 1));
    assert_true(pair_inbox_is(pair, 1, end - 128, 0x33, 64));
    assert_int_equal(pair_call_value(pair, 0, CONFORM_PUTS_OUT_OF_BOUNDS, 0), 0);
}

static void a_write_out_of_bounds_is_dropped_and_counted(void **state)
{
    struct pair *pair = *state;
    uint64_t window = pair_caps(pair, 0).caps.window_bytes;
    const uint64_t offs[] = {window - 1,    window - 63,     window,
                             window + 4096, UINT64_MAX - 63, UINT64_MAX};
    pair_inbox_fill(pair, 1, window - 128, 0x5a, 128);
    pair_inbox_fill(pair, 1, 0, 0x5a, 128);
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(offs); i++) {
        struct conform_call call = {
            .verb = CONFORM_BODY_ANY, .off = offs[i], .bytes = 64, .value = 1, .count = 64};
        pair_call(pair, 0, &call);
        assert_int_equal(pair_call_value(pair, 0, CONFORM_PUTS_OUT_OF_BOUNDS, 0), 2 * i + 1);
        call.verb = CONFORM_COMMIT_ANY;
        call.off &= ~UINT64_C(63);
        call.off += call.off < window ? window : 0;
        pair_call(pair, 0, &call);
        assert_int_equal(pair_call_value(pair, 0, CONFORM_PUTS_OUT_OF_BOUNDS, 0), 2 * i + 2);
    }
    pair_settle(pair, 0);
    assert_true(pair_inbox_is(pair, 1, window - 128, 0x5a, 128)); /* not even the part that fits */
    assert_true(pair_inbox_is(pair, 1, 0, 0x5a, 128));
}

static void a_commit_is_a_word_or_a_line(void **state)
{
    struct pair *pair = *state;
    static const struct {
        uint64_t off, bytes;
    } wrong[] = {{4096, 0},   {4096, 1}, {4096, 16}, {4096, 56}, {4096, 72},
                 {4096, 128}, {4097, 8}, {4100, 8},  {4104, 64}};
    pair_inbox_fill(pair, 1, 4096, 0x5a, 256);
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(wrong); i++) {
        struct conform_call call = {.verb = CONFORM_COMMIT_ANY,
                                    .off = wrong[i].off,
                                    .bytes = wrong[i].bytes,
                                    .value = 1,
                                    .count = 128};
        pair_call(pair, 0, &call);
        assert_int_equal(pair_call_value(pair, 0, CONFORM_PUTS_OUT_OF_BOUNDS, 0), i + 1);
    }
    pair_settle(pair, 0);
    assert_true(pair_inbox_is(pair, 1, 4096, 0x5a, 256));
}

static void a_commit_is_seen_after_what_was_posted_before(void **state)
{
    struct pair *pair = *state;
    pair_watch(pair, 0, CONFORM_WRITE_ORDER, 1, CONFORM_WATCH_ORDER);
    pair_watch(pair, 1, CONFORM_WRITE_ORDER, 0, CONFORM_WATCH_ORDER);
}

static void the_last_word_of_a_line_is_seen_last(void **state)
{
    struct pair *pair = *state;
    pair_watch(pair, 0, CONFORM_WRITE_LINES, 1, CONFORM_WATCH_LINES);
    pair_watch(pair, 1, CONFORM_WRITE_LINES, 0, CONFORM_WATCH_LINES);
}

static void eight_bytes_are_seen_whole(void **state)
{
    struct pair *pair = *state;
    pair_watch(pair, 0, CONFORM_WRITE_WORDS, 1, CONFORM_WATCH_WORDS);
    pair_watch(pair, 1, CONFORM_WRITE_WORDS, 0, CONFORM_WATCH_WORDS);
}

static void two_queues_post_at_the_same_time(void **state)
{
    struct pair *pair = *state;
    for (unsigned i = 0; i < 2; i++) {
        pair_start(pair, 1, i, CONFORM_WATCH_ORDER, 4096 + i * CONFORM_WORK_BYTES, 0);
        pair_start(pair, 0, i, CONFORM_WRITE_ORDER, 4096 + i * CONFORM_WORK_BYTES, 0);
    }
    for (unsigned i = 0; i < 2; i++) {
        pair_wait_steps(pair, 1, i, ROUNDS / 4);
    }
    for (unsigned i = 0; i < 2; i++) {
        pair_report(pair, 0, i, CONFORM_STOP);
        struct conform_report seen = pair_report(pair, 1, i, CONFORM_STOP);
        if (seen.violations != 0) {
            fail_msg("thread %u: %s", i, seen.what);
        }
    }
}

static void direct_stores_arrive_as_posted_ones_do(void **state)
{
    struct pair *pair = *state;
    struct conform_call call = {
        .verb = CONFORM_WINDOW_STORE, .off = 512, .value = UINT64_C(0x0102030405060708)};
    uint64_t word;
    pair_call(pair, 0, &call);
    if (call.count != 0) {
        assert_false(pair_caps(pair, 0).has_window);
        return;
    }
    pair_call_value(pair, 0, CONFORM_FLUSH, 0);
    pair_settle(pair, 0);
    pair_inbox_read(pair, 1, 512, &word, sizeof(word));
    assert_true(word == UINT64_C(0x0102030405060708));
}

/* Core omits flushes and fences on a port that promises to be coherent. */
static void a_coherent_port_needs_no_flush(void **state)
{
    struct pair *pair = *state;
    for (unsigned side = 0; side < 2; side++) {
        if (!pair_caps(pair, side).caps.coherent) {
            continue;
        }
        for (unsigned round = 1; round <= 20; round++) {
            uint64_t word = 0;
            pair_body_fill(pair, side, 1024, (int)round, 200);
            assert_true(pair_inbox_is(pair, 1 - side, 1024, (int)round, 200));
            pair_commit_word(pair, side, 2048, round);
            pair_inbox_read(pair, 1 - side, 2048, &word, sizeof(word));
            assert_true(word == round);
        }
    }
}

static void a_port_that_orders_writes_orders_bodies(void **state)
{
    struct pair *pair = *state;
    for (unsigned side = 0; side < 2; side++) {
        if (pair_caps(pair, side).caps.writes_ordered) {
            pair_watch(pair, side, CONFORM_WRITE_BODIES, 1 - side, CONFORM_WATCH_BODIES);
        }
    }
}

unsigned conform_tests_of_puts(struct CMUnitTest *ret_tests)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ends_come_up_and_fit),
        cmocka_unit_test(bodies_arrive_and_nothing_else_changes),
        cmocka_unit_test(bodies_reach_the_first_and_the_last_byte),
        cmocka_unit_test(a_write_out_of_bounds_is_dropped_and_counted),
        cmocka_unit_test(a_commit_is_a_word_or_a_line),
        cmocka_unit_test(a_commit_is_seen_after_what_was_posted_before),
        cmocka_unit_test(the_last_word_of_a_line_is_seen_last),
        cmocka_unit_test(eight_bytes_are_seen_whole),
        cmocka_unit_test(two_queues_post_at_the_same_time),
        cmocka_unit_test(direct_stores_arrive_as_posted_ones_do),
        cmocka_unit_test(a_coherent_port_needs_no_flush),
        cmocka_unit_test(a_port_that_orders_writes_orders_bodies),
    };
    memcpy(ret_tests, tests, sizeof(tests));
    return VIA_ARRAY_COUNT(tests);
}
