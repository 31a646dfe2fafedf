/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <string.h>

#include "conform_pair.h"

/* --- doorbells --- */

static void each_doorbell_is_its_own_event(void **state)
{
    struct pair *pair = *state;
    for (unsigned side = 0; side < 2; side++) {
        for (unsigned bit = 0; bit < VIA_PORT_DOORBELLS; bit++) {
            pair_ring(pair, side, bit);
            assert_true(pair_events(pair, side, 0xffff) == 0); /* not at the end that rings */
            assert_true(pair_events(pair, 1 - side, 0xffff) == VIA_PORT_EVENT_DOORBELL(bit));
            assert_true(pair_events(pair, 1 - side, 0xffff) == 0); /* read and cleared */
        }
        assert_true(pair_call_value(pair, side, CONFORM_RING, VIA_PORT_DOORBELLS) != 0);
    }
}

static void events_outside_the_mask_stay(void **state)
{
    struct pair *pair = *state;
    pair_ring(pair, 0, 3);
    pair_ring(pair, 0, 5);
    pair_ring(pair, 0, 15);
    assert_true(pair_events(pair, 1, VIA_PORT_EVENT_DOORBELL(4)) == 0);
    assert_true(pair_events(pair, 1, VIA_PORT_EVENT_DOORBELL(5)) == VIA_PORT_EVENT_DOORBELL(5));
    assert_true(pair_events(pair, 1, 0xffff) ==
                (VIA_PORT_EVENT_DOORBELL(3) | VIA_PORT_EVENT_DOORBELL(15)));
    assert_true(pair_events(pair, 1, UINT64_MAX & ~VIA_PORT_EVENT_CONTROL) == 0);
    /* The edge of the bring-up has been pending since then. */
    assert_true(pair_events(pair, 1, VIA_PORT_EVENT_CONTROL) == VIA_PORT_EVENT_LINK_UP);
}

static void doorbells_coalesce_and_fire_at_the_edge(void **state)
{
    struct pair *pair = *state;
    for (unsigned bit = 0; bit < VIA_PORT_DOORBELLS; bit++) {
        unsigned line = via_emu_bell_line(bit, CONFORM_BELL_LINES);
        int64_t before = pair_call_value(pair, 1, CONFORM_BELL_COUNT, line);
        for (unsigned i = 0; i < 20; i++) {
            pair_ring(pair, 0, bit);
        }
        if (pair_caps(pair, 1).has_bell) {
            assert_int_equal(pair_call_value(pair, 1, CONFORM_BELL_COUNT, line), before + 1);
        }
        assert_true(pair_events(pair, 1, 0xffff) == VIA_PORT_EVENT_DOORBELL(bit));
        assert_true(pair_events(pair, 1, 0xffff) == 0);
        pair_ring(pair, 0, bit);
        if (pair_caps(pair, 1).has_bell) {
            assert_int_equal(pair_call_value(pair, 1, CONFORM_BELL_COUNT, line), before + 2);
        }
        assert_true(pair_events(pair, 1, 0xffff) == VIA_PORT_EVENT_DOORBELL(bit));
    }
}

/* In each round the sleeper must be woken, or the ringer would wait forever. */
static void ring_rounds(struct pair *pair, unsigned workers, uint64_t rounds)
{
    static const unsigned bits[] = {1, 6}; /* of different lines: different threads */
    for (unsigned i = 0; i < workers; i++) {
        pair_start(pair, 1, i, CONFORM_SLEEPER, 4096 + i * CONFORM_WORK_BYTES, bits[i]);
        pair_start(pair, 0, i, CONFORM_RINGER, 4096 + i * CONFORM_WORK_BYTES, bits[i]);
    }
    for (unsigned i = 0; i < workers; i++) {
        WAIT_FOR(pair, pair_report(pair, 1, i, CONFORM_STATE).steps >= rounds ||
                           pair_report(pair, 1, i, CONFORM_STATE).violations != 0);
    }
    for (unsigned i = 0; i < workers; i++) {
        struct conform_report rang = pair_report(pair, 0, i, CONFORM_STOP);
        struct conform_report slept = pair_report(pair, 1, i, CONFORM_STOP);
        if (slept.violations != 0 || rang.violations != 0) {
            fail_msg("thread %u: %s%s", i, rang.what, slept.what);
        }
        assert_true(slept.steps <= rang.steps); /* no doorbell without a ring */
    }
}

static void a_doorbell_wakes_a_sleeping_thread(void **state)
{
    ring_rounds(*state, 1, ROUNDS);
}

static void threads_with_disjoint_masks_do_not_disturb_each_other(void **state)
{
    ring_rounds(*state, 2, ROUNDS / 2);
}

static void check_that_lines_wake(struct pair *pair, unsigned queue, unsigned bell)
{
    for (unsigned i = 1; i <= 20; i++) {
        struct conform_call line = {
            .verb = CONFORM_COMMIT, .value = queue, .off = 4096, .bytes = VIA_CACHELINE};
        int64_t before = pair_call_value(pair, 1, CONFORM_BELL_COUNT, bell);
        pair_commit_word(pair, 0, 8192, i);
        pair_settle(pair, 0);
        assert_int_equal(pair_call_value(pair, 1, CONFORM_BELL_COUNT, bell), before);
        memset(line.data, (int)i, VIA_CACHELINE);
        pair_call(pair, 0, &line);
        pair_call_value(pair, 0, CONFORM_FLUSH, queue);
        WAIT_FOR(pair, pair_call_value(pair, 1, CONFORM_BELL_COUNT, bell) != before);
        assert_true(pair_inbox_is(pair, 1, 4096, (int)i, VIA_CACHELINE));
        assert_true(pair_events(pair, 1, 0xffff) == 0);
    }
}

/* With a port that promises this (caps.lines_wake) no writer rings. A word wakes no thread. */
static void a_line_wakes_the_thread_of_its_queue(void **state)
{
    struct pair *pair = *state;
    struct conform_caps caps = pair_caps(pair, 1);
    assert_int_equal(caps.caps.lines_wake, pair_caps(pair, 0).caps.lines_wake);
    if (caps.caps.lines_wake && caps.has_bell) {
        check_that_lines_wake(pair, 0, 0);
        check_that_lines_wake(pair, VIA_PORT_QUEUE_CONTROL, CONFORM_BELL_CONTROL);
    }
}

unsigned conform_tests_of_doorbells(struct CMUnitTest *ret_tests)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_doorbell_is_its_own_event),
        cmocka_unit_test(events_outside_the_mask_stay),
        cmocka_unit_test(doorbells_coalesce_and_fire_at_the_edge),
        cmocka_unit_test(a_doorbell_wakes_a_sleeping_thread),
        cmocka_unit_test(threads_with_disjoint_masks_do_not_disturb_each_other),
        cmocka_unit_test(a_line_wakes_the_thread_of_its_queue),
    };
    memcpy(ret_tests, tests, sizeof(tests));
    return VIA_ARRAY_COUNT(tests);
}
