/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <string.h>

#include "conform_pair.h"

#define OTHER_QUEUE 3u
#define DATA_OFF 4096u
#define ARMED_OFF 8192u
#define RECORD_OFF 8256u

static int64_t start(struct pair *pair, unsigned side, unsigned queue)
{
    return pair_call_value(pair, side, CONFORM_FENCE_START, queue);
}

static int64_t poll(struct pair *pair, unsigned side, unsigned queue)
{
    return pair_call_value(pair, side, CONFORM_FENCE_POLL, queue);
}

static uint64_t word_at(struct pair *pair, unsigned side, uint64_t off)
{
    uint64_t word;
    pair_inbox_read(pair, side, off, &word, sizeof(word));
    return word;
}

static void a_fence_proves_arrival(void **state)
{
    struct pair *pair = *state;
    for (unsigned i = 1; i <= 50; i++) {
        pair_body_fill(pair, 0, DATA_OFF, (int)i, 3000);
        if (i % 2 == 0) { /* writes that were not flushed arrive as well */
            pair_call_value(pair, 0, CONFORM_FLUSH, 0);
        }
        assert_int_equal(start(pair, 0, 0), 0);
        assert_int_equal(pair_fence_end(pair, 0, 0), 0);
        assert_true(pair_inbox_is(pair, 1, DATA_OFF, (int)i, 3000));
    }
}

static void a_fence_brings_what_the_peer_flushed(void **state)
{
    struct pair *pair = *state;
    for (unsigned i = 1; i <= 200; i++) {
        pair_body_fill(pair, 1, DATA_OFF, (int)i & 0xff, 1000);
        pair_commit_word(pair, 1, RECORD_OFF, i);
        pair_call_value(pair, 1, CONFORM_FLUSH, 0);
        assert_int_equal(pair_fence(pair, 0), 0);
        assert_true(word_at(pair, 0, RECORD_OFF) == i);
        assert_true(pair_inbox_is(pair, 0, DATA_OFF, (int)i & 0xff, 1000));
    }
}

/*
 * Safe sleeping: side 0 announces that it is going to sleep, fences, and checks for a record; side
 * 1 writes a record, flushes, and checks for the announcement. One of them sees the other, whenever
 * the record is written.
 */
static void a_sleeper_is_always_woken(void **state)
{
    struct pair *pair = *state;
    for (unsigned i = 1; i <= 300; i++) {
        unsigned polls = i % 20;
        pair_commit_word(pair, 0, ARMED_OFF, i);
        assert_int_equal(start(pair, 0, 0), 0);
        bool completed = false;
        for (unsigned k = 0; k < polls && !completed; k++) {
            completed = poll(pair, 0, 0) == 1;
            if (pair->place == CONFORM_INLINE) {
                pair->kind->pass_time(pair->end, 200);
            }
        }
        pair_commit_word(pair, 1, RECORD_OFF, i);
        pair_call_value(pair, 1, CONFORM_FLUSH, 0);
        pair_take_writes(pair, 1);
        bool rings = word_at(pair, 1, ARMED_OFF) == i;
        if (!completed) {
            assert_int_equal(pair_fence_end(pair, 0, 0), 0);
            assert_true(rings || word_at(pair, 0, RECORD_OFF) == i);
        } else {
            assert_true(rings);
        }
    }
}

static void another_start_abandons_the_fence_under_way(void **state)
{
    struct pair *pair = *state;
    for (unsigned i = 1; i <= 50; i++) {
        assert_int_equal(start(pair, 0, 0), 0);
        pair_body_fill(pair, 0, DATA_OFF, (int)i, 3000);
        pair_commit_word(pair, 1, RECORD_OFF, i);
        pair_call_value(pair, 1, CONFORM_FLUSH, 0);
        assert_int_equal(start(pair, 0, 0), 0);
        assert_int_equal(pair_fence_end(pair, 0, 0), 0);
        assert_true(pair_inbox_is(pair, 1, DATA_OFF, (int)i, 3000));
        assert_true(word_at(pair, 0, RECORD_OFF) == i);
        assert_int_equal(poll(pair, 0, 0), -EINVAL); /* there was one */
    }
}

static void a_fence_is_reported_once(void **state)
{
    struct pair *pair = *state;
    assert_int_equal(poll(pair, 0, 0), -EINVAL);
    assert_int_equal(pair_fence(pair, 0), 0);
    assert_int_equal(poll(pair, 0, 0), -EINVAL);
}

static void each_queue_has_its_own_fence(void **state)
{
    struct pair *pair = *state;
    if (pair->place == CONFORM_INLINE) {
        skip(); /* one thread uses one queue: the simulator ensures this */
    }
    assert_int_equal(start(pair, 0, 0), 0);
    assert_int_equal(poll(pair, 0, OTHER_QUEUE), -EINVAL);
    assert_int_equal(start(pair, 0, OTHER_QUEUE), 0);
    assert_int_equal(start(pair, 1, 0), 0);
    assert_int_equal(pair_fence_end(pair, 0, OTHER_QUEUE), 0);
    assert_int_equal(pair_fence_end(pair, 0, 0), 0);
    assert_int_equal(pair_fence_end(pair, 1, 0), 0);
}

static void the_end_of_the_link_ends_a_fence(void **state)
{
    struct pair *pair = *state;
    for (unsigned round = 0; round < 8; round++) {
        unsigned cutter = round % 2;
        bool polls_while_down = round % 4 < 2;
        for (unsigned side = 0; side < 2; side++) {
            assert_int_equal(start(pair, side, 0), 0);
        }
        pair_cut(pair, cutter, true);
        pair_wait_down(pair);
        for (unsigned side = 0; side < 2 && polls_while_down; side++) {
            assert_int_equal(poll(pair, side, 0), -ENOLINK);
            assert_int_equal(poll(pair, side, 0), -EINVAL);
            assert_int_equal(start(pair, side, 0), -ENOLINK);
            assert_int_equal(poll(pair, side, 0), -EINVAL);
        }
        pair_cut(pair, cutter, false);
        pair_wait_up(pair);
        for (unsigned side = 0; side < 2; side++) {
            assert_int_equal(poll(pair, side, 0), polls_while_down ? -EINVAL : -ENOLINK);
            assert_int_equal(pair_fence(pair, side), 0);
        }
    }
}

/* With a port that promises this (caps.fence_wakes) the thread sleeps, and does not poll. */
static void the_end_of_a_fence_wakes_its_thread(void **state)
{
    static const struct {
        unsigned queue, bell;
    } threads[] = {
        {OTHER_QUEUE, OTHER_QUEUE % CONFORM_BELL_LINES},
        {VIA_PORT_QUEUE_CONTROL, CONFORM_BELL_CONTROL},
    };
    struct pair *pair = *state;
    struct conform_caps caps = pair_caps(pair, 0);
    bool promised = caps.caps.fence_wakes && caps.has_bell;
    for (unsigned i = 0; promised && i < 40; i++) {
        unsigned queue = threads[i % 2].queue;
        unsigned bell = threads[i % 2].bell;
        int64_t before = pair_call_value(pair, 0, CONFORM_BELL_COUNT, bell);
        assert_int_equal(start(pair, 0, queue), 0);
        WAIT_FOR(pair, pair_call_value(pair, 0, CONFORM_BELL_COUNT, bell) != before);
        assert_int_equal(poll(pair, 0, queue), 1);
    }
}

unsigned conform_tests_of_fences(struct CMUnitTest *ret_tests)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fence_proves_arrival),
        cmocka_unit_test(a_fence_brings_what_the_peer_flushed),
        cmocka_unit_test(a_sleeper_is_always_woken),
        cmocka_unit_test(another_start_abandons_the_fence_under_way),
        cmocka_unit_test(a_fence_is_reported_once),
        cmocka_unit_test(each_queue_has_its_own_fence),
        cmocka_unit_test(the_end_of_the_link_ends_a_fence),
        cmocka_unit_test(the_end_of_a_fence_wakes_its_thread),
    };
    memcpy(ret_tests, tests, sizeof(tests));
    return VIA_ARRAY_COUNT(tests);
}
