/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The contract of core/port.h for DMA. Queue 0, which in the suite is thread 0 of an end. */
#include <errno.h>
#include <string.h>

#include "conform_pair.h"

#define BLOCK_OFF 16384u
#define FLAG_OFF 8192u

static void needs_an_engine(struct pair *pair)
{
    if (pair_caps(pair, 0).caps.dma_depth == 0) {
        skip();
    }
}

static int64_t dma_fill(struct pair *pair, unsigned side, uint64_t off, int value, size_t len,
                        uint64_t cookie)
{
    struct conform_call call = {.verb = CONFORM_DMA, .off = off, .bytes = len, .value = cookie};
    memset(call.data, value, via_min(len, sizeof(call.data)));
    return pair_call(pair, side, &call);
}

/* True when a cookie was taken. */
static bool dma_take(struct pair *pair, unsigned side, uint64_t *ret_cookie, int *ret_result)
{
    struct conform_call call = {.verb = CONFORM_DMA_TAKE};
    int64_t count = pair_call(pair, side, &call);
    assert_true(count == 0 || count == 1);
    *ret_cookie = call.value;
    *ret_result = (int)(int64_t)call.count;
    return count == 1;
}

/* Starts the DMA as soon as the engine has room. */
static void dma_start(struct pair *pair, unsigned side, uint64_t off, int value, size_t len,
                      uint64_t cookie)
{
    int64_t rc;
    WAIT_FOR(pair, (rc = dma_fill(pair, side, off, value, len, cookie)) != -EAGAIN);
    assert_int_equal(rc, 0);
}

static int dma_wait(struct pair *pair, unsigned side, uint64_t cookie)
{
    uint64_t taken;
    int result;
    WAIT_FOR(pair, dma_take(pair, side, &taken, &result));
    assert_true(taken == cookie);
    return result;
}

static void a_port_without_dma_reports_it(void **state)
{
    struct pair *pair = *state;
    for (unsigned side = 0; side < 2; side++) {
        if (pair_caps(pair, side).caps.dma_depth != 0) {
            skip();
        }
        uint64_t cookie;
        int result;
        assert_int_equal(dma_fill(pair, side, 0, 1, 64, 1), -ENOTSUP);
        assert_false(dma_take(pair, side, &cookie, &result));
        pair_call_value(pair, side, CONFORM_DMA_ABORT, 0);
    }
}

static void dma_arrives_and_nothing_else_changes(void **state)
{
    struct pair *pair = *state;
    static const size_t sizes[] = {1, 7, 8, 63, 64, 65, 200, 1024, 3000};
    static const size_t shifts[] = {0, 1, 8, 60, 64};
    uint64_t cookie = 0;

    needs_an_engine(pair);
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(sizes); i++) {
        for (unsigned j = 0; j < VIA_ARRAY_COUNT(shifts); j++) {
            unsigned side = (i + j) % 2;
            uint64_t off = BLOCK_OFF + shifts[j];
            int value = (int)(1 + i * 5 + j);
            pair_inbox_fill(pair, 1 - side, BLOCK_OFF - 64, 0xa5, 4096);
            dma_start(pair, side, off, value, sizes[i], ++cookie);
            assert_int_equal(dma_wait(pair, side, cookie), 0);
            pair_settle(pair, side);
            assert_true(pair_inbox_is(pair, 1 - side, off, value, sizes[i]));
            assert_true(pair_inbox_is(pair, 1 - side, BLOCK_OFF - 64, 0xa5, 64 + shifts[j]));
            assert_true(pair_inbox_is(pair, 1 - side, off + sizes[i], 0xa5, 64));
        }
    }
}

static void dma_that_is_done_comes_before_later_commits(void **state)
{
    struct pair *pair = *state;
    needs_an_engine(pair);
    for (uint64_t round = 1; round <= 100; round++) {
        dma_start(pair, 0, BLOCK_OFF, (int)(round & 0xff), 3000, round);
        assert_int_equal(dma_wait(pair, 0, round), 0);
        pair_commit_word(pair, 0, FLAG_OFF, round);
        pair_call_value(pair, 0, CONFORM_FLUSH, 0);
        uint64_t seen = 0;
        WAIT_FOR(pair, (pair_take_writes(pair, 1),
                        pair_inbox_read(pair, 1, FLAG_OFF, &seen, sizeof(seen)), seen == round));
        assert_true(pair_inbox_is(pair, 1, BLOCK_OFF, (int)(round & 0xff), 3000));
    }
}

/* Takes all DMAs that were started, each once. */
static void take_all(struct pair *pair, unsigned side, uint64_t first, uint64_t count,
                     int result_allowed)
{
    bool seen[256] = {false};
    for (uint64_t i = 0; i < count; i++) {
        uint64_t cookie;
        int result;
        WAIT_FOR(pair, dma_take(pair, side, &cookie, &result));
        assert_true(cookie - first < count && !seen[cookie - first]);
        seen[cookie - first] = true;
        assert_true(result == 0 || result == result_allowed);
    }
    pair_pass_ms(pair, 1);
    uint64_t cookie;
    int result;
    assert_false(dma_take(pair, side, &cookie, &result));
}

/* Starts DMAs until the engine accepts no more. Returns their number. */
static uint64_t fill_up(struct pair *pair, unsigned side, uint64_t first)
{
    uint64_t count = 0;
    int64_t rc;
    while ((rc = dma_fill(pair, side, BLOCK_OFF + count * 256, (int)(1 + count % 200), 256,
                          first + count)) == 0) {
        count++;
        assert_true(count <= pair_caps(pair, side).caps.dma_depth);
    }
    assert_int_equal(rc, -EAGAIN);
    return count;
}

static void a_full_engine_reports_it(void **state)
{
    struct pair *pair = *state;
    needs_an_engine(pair);
    for (uint64_t round = 0; round < 20; round++) {
        uint64_t count = fill_up(pair, 0, 1000 * round + 1);
        take_all(pair, 0, 1000 * round + 1, count, 0);
        pair_settle(pair, 0);
        for (uint64_t i = 0; i < count; i++) {
            assert_true(pair_inbox_is(pair, 1, BLOCK_OFF + i * 256, (int)(1 + i % 200), 256));
        }
        pair_inbox_fill(pair, 1, BLOCK_OFF, 0, 4096);
    }
    WAIT_FOR(pair, fill_up(pair, 0, 1) != 0); /* the port is closed with that under way */
}

static void dma_out_of_bounds_is_refused(void **state)
{
    struct pair *pair = *state;
    needs_an_engine(pair);
    uint64_t window = pair_caps(pair, 0).caps.window_bytes;
    const uint64_t offs[] = {window - 63, window, window + 4096, UINT64_MAX - 63, UINT64_MAX};
    pair_inbox_fill(pair, 1, window - 128, 0x5a, 128);
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(offs); i++) {
        assert_int_equal(dma_fill(pair, 0, offs[i], 1, 64, 1 + i), -EINVAL);
    }
    assert_int_equal(dma_fill(pair, 0, 0, 1, 0, 1), -EINVAL);
    pair_settle(pair, 0);
    assert_true(pair_inbox_is(pair, 1, window - 128, 0x5a, 128));
    dma_start(pair, 0, window - 64, 7, 64, 9);
    assert_int_equal(dma_wait(pair, 0, 9), 0);
    pair_settle(pair, 0);
    assert_true(pair_inbox_is(pair, 1, window - 64, 7, 64));
}

static void an_aborted_dma_returns_its_cookie(void **state)
{
    struct pair *pair = *state;
    needs_an_engine(pair);
    for (uint64_t round = 0; round < 20; round++) {
        uint64_t count = fill_up(pair, 0, 1000 * round + 1);
        pair_call_value(pair, 0, CONFORM_DMA_ABORT, 0);
        pair_call_value(pair, 0, CONFORM_DMA_ABORT, 0);
        take_all(pair, 0, 1000 * round + 1, count, -ECANCELED);
        pair_settle(pair, 0);
        /* From now on the DMA has no effect. */
        pair_inbox_fill(pair, 1, BLOCK_OFF, 0xa5, 4096);
        pair_pass_ms(pair, 1);
        assert_true(pair_inbox_is(pair, 1, BLOCK_OFF, 0xa5, 4096));
    }
    pair_call_value(pair, 0, CONFORM_DMA_ABORT, 0); /* an abort without a DMA */
    dma_start(pair, 0, BLOCK_OFF, 3, 1000, 1);
    assert_int_equal(dma_wait(pair, 0, 1), 0);
}

static void dma_ends_with_its_link(void **state)
{
    struct pair *pair = *state;
    needs_an_engine(pair);
    for (uint64_t round = 0; round < 5; round++) {
        uint64_t count = fill_up(pair, 0, 1000 * round + 1);
        pair_cut(pair, 0, true);
        pair_wait_down(pair);
        assert_int_equal(dma_fill(pair, 0, FLAG_OFF, 1, 64, 999), -ENOLINK);
        pair_call_value(pair, 0, CONFORM_DMA_ABORT, 0);
        bool seen[256] = {false};
        for (uint64_t i = 0; i < count; i++) {
            uint64_t cookie;
            int result;
            WAIT_FOR(pair, dma_take(pair, 0, &cookie, &result));
            uint64_t index = cookie - (1000 * round + 1);
            assert_true(index < count && !seen[index]);
            seen[index] = true;
            assert_true(result == 0 || result == -ENOLINK || result == -ECANCELED);
        }
        pair_cut(pair, 0, false);
        pair_wait_up(pair);
        dma_start(pair, 0, BLOCK_OFF, (int)(20 + round), 1000, 7);
        assert_int_equal(dma_wait(pair, 0, 7), 0);
        pair_settle(pair, 0);
        assert_true(pair_inbox_is(pair, 1, BLOCK_OFF, (int)(20 + round), 1000));
    }
}

static void dma_that_is_done_is_an_event(void **state)
{
    struct pair *pair = *state;
    needs_an_engine(pair);
    (void)pair_events(pair, 0, VIA_PORT_EVENT_DMA_DONE_ANY);
    dma_start(pair, 0, BLOCK_OFF, 1, 64, 1);
    assert_true(pair_events(pair, 0, VIA_PORT_EVENT_DMA_DONE(1)) == 0);
    WAIT_FOR(pair, pair_events(pair, 0, VIA_PORT_EVENT_DMA_DONE_ANY) == VIA_PORT_EVENT_DMA_DONE(0));
    assert_int_equal(dma_wait(pair, 0, 1), 0);
    assert_true(pair_events(pair, 0, VIA_PORT_EVENT_DMA_DONE_ANY) == 0);
}

unsigned conform_tests_of_dma(struct CMUnitTest *ret_tests)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_port_without_dma_reports_it),
        cmocka_unit_test(dma_arrives_and_nothing_else_changes),
        cmocka_unit_test(dma_that_is_done_comes_before_later_commits),
        cmocka_unit_test(a_full_engine_reports_it),
        cmocka_unit_test(dma_out_of_bounds_is_refused),
        cmocka_unit_test(an_aborted_dma_returns_its_cookie),
        cmocka_unit_test(dma_ends_with_its_link),
        cmocka_unit_test(dma_that_is_done_is_an_event),
    };
    memcpy(ret_tests, tests, sizeof(tests));
    return VIA_ARRAY_COUNT(tests);
}
