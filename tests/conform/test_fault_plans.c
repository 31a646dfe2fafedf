/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The faults that the fault port injects, and the contract of ports, which it keeps meanwhile. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "port/emu/emu.h"
#include "port/fault.h"

#define INBOX_BYTES (64u << 10)
#define BIT 3u

struct bench {
    char directory[64];
    struct via_port *emu[2];
    struct via_port *fault; /* around emu[0] */
    struct via_fault_plan plan;
    uint64_t now_ns;
};

static void cut_emu(void *ctx, struct via_port *inner, bool cut)
{
    (void)ctx;
    via_emu_port_cut(inner, cut);
}

static void turn(struct bench *bench, uint64_t ns)
{
    uint64_t deadline_ns;
    bench->now_ns += ns;
    via_fault_port_pump(bench->fault, bench->now_ns, &deadline_ns);
    assert_true(deadline_ns > bench->now_ns);
    for (unsigned i = 0; i < 3; i++) {
        via_emu_port_service(bench->emu[0], bench->now_ns, &deadline_ns);
        via_emu_port_service(bench->emu[1], bench->now_ns, &deadline_ns);
    }
}

static void begin(struct bench *bench)
{
    char path[96];
    struct via_error err;
    snprintf(path, sizeof(path), "%s/link-1-2-0.sock", bench->directory);
    for (unsigned side = 0; side < 2; side++) {
        struct via_emu_options options = {.path = path,
                                          .side = side,
                                          .inbox_bytes = INBOX_BYTES,
                                          .bell_fd = -1,
                                          .direct = true,
                                          .dma_depth = 4};
        if (via_emu_port_open(&options, &bench->emu[side], &err) != 0) {
            fail_msg("%s", err.text);
        }
    }
    assert_int_equal(via_fault_port_open(bench->emu[0], &bench->plan, &bench->fault), 0);
    turn(bench, 1);
    assert_true(bench->fault->ops->link_is_up(bench->fault));
    bench->fault->ops->events(bench->fault, UINT64_MAX);
    bench->emu[1]->ops->events(bench->emu[1], UINT64_MAX);
}

static void end(struct bench *bench)
{
    bench->fault->ops->close(bench->fault);
    bench->emu[1]->ops->close(bench->emu[1]);
    bench->fault = NULL;
}

static int set_up(void **state)
{
    struct bench *bench = calloc(1, sizeof(*bench));
    snprintf(bench->directory, sizeof(bench->directory), "/tmp/via-fault-XXXXXX");
    *state = bench;
    return mkdtemp(bench->directory) != NULL ? 0 : -1;
}

static int tear_down(void **state)
{
    struct bench *bench = *state;
    if (bench->fault != NULL) {
        end(bench);
    }
    int rc = rmdir(bench->directory);
    free(bench);
    return rc;
}

static void put(struct bench *bench, uint64_t off, uint64_t word)
{
    bench->fault->ops->commit(bench->fault, 0, off, &word, sizeof(word));
}

static uint64_t word_at(struct bench *bench, uint64_t off)
{
    uint64_t word;
    memcpy(&word, bench->emu[1]->inbox + off, sizeof(word));
    return word;
}

static int ring(struct bench *bench)
{
    return bench->fault->ops->ring(bench->fault, 0, BIT);
}

static bool rung(struct bench *bench)
{
    return bench->emu[1]->ops->events(bench->emu[1], UINT64_MAX) == VIA_PORT_EVENT_DOORBELL(BIT);
}

static struct via_fault_stats stats(struct bench *bench)
{
    struct via_fault_stats stats;
    via_fault_port_stats(bench->fault, &stats);
    return stats;
}

/* --- held puts --- */

static void held_puts_arrive_late_and_in_order(void **state)
{
    struct bench *bench = *state;
    bench->plan = (struct via_fault_plan){.seed = 1, .delay_chance = 300000, .delay_ns_max = 1000};
    begin(bench);
    assert_false(bench->fault->caps.coherent);
    uint64_t arrived = 0;
    bool late = false;
    for (uint64_t i = 1; i <= 2000; i++) {
        put(bench, 8 * i, i); /* each to its own place, so that a gap is visible */
        put(bench, 0, i);
        uint64_t now = word_at(bench, 0);
        assert_true(now >= arrived && now <= i);
        for (uint64_t j = arrived + 1; j <= now; j++) {
            assert_true(word_at(bench, 8 * j) == j);
        }
        late |= now < i;
        arrived = now;
        if (i % 5 == 0) {
            turn(bench, 300);
        }
    }
    turn(bench, 1000);
    assert_true(late);
    assert_true(word_at(bench, 0) == 2000);
    assert_true(stats(bench).puts == 4000 && stats(bench).puts_held > 100);
    assert_true(stats(bench).puts_lost == 0);
}

static int fence(struct bench *bench)
{
    struct via_port *port = bench->fault;
    int rc = port->ops->fence_start(port, 0);
    if (rc == 0) {
        while ((rc = port->ops->fence_poll(port, 0)) == 0) {
        }
    }
    return rc;
}

static void a_fence_brings_held_puts_home(void **state)
{
    struct bench *bench = *state;
    bench->plan = (struct via_fault_plan){.holds = true};
    begin(bench);
    via_fault_port_act(bench->fault, VIA_FAULT_HOLD, VIA_SEC_NS);
    put(bench, 0, 7);
    turn(bench, 1);
    assert_true(word_at(bench, 0) == 0);
    bench->fault->ops->flush(bench->fault, 0);
    assert_true(word_at(bench, 0) == 0); /* flush is no round trip */
    assert_int_equal(fence(bench), 1);
    assert_true(word_at(bench, 0) == 7);
}

static void a_doorbell_does_not_overtake_what_was_flushed(void **state)
{
    struct bench *bench = *state;
    bench->plan = (struct via_fault_plan){.holds = true};
    begin(bench);
    via_fault_port_act(bench->fault, VIA_FAULT_HOLD, 1000);
    put(bench, 0, 1);
    assert_int_equal(ring(bench), 0);
    assert_true(rung(bench)); /* not flushed: it may come first, and does */
    assert_true(word_at(bench, 0) == 0);

    bench->fault->ops->flush(bench->fault, 0);
    assert_int_equal(ring(bench), 0);
    turn(bench, 500);
    assert_false(rung(bench));
    turn(bench, 500);
    assert_true(rung(bench));
    assert_true(word_at(bench, 0) == 1);
}

static void a_full_hold_delivers_and_continues(void **state)
{
    struct bench *bench = *state;
    unsigned char big[4096];
    bench->plan = (struct via_fault_plan){.holds = true, .held_bytes = 1000};
    begin(bench);
    via_fault_port_act(bench->fault, VIA_FAULT_HOLD, 1000);
    for (uint64_t i = 0; i < 500; i++) {
        put(bench, 8 * i, i + 1);
    }
    memset(big, 9, sizeof(big));
    bench->fault->ops->body(bench->fault, 0, 8192, big, sizeof(big)); /* more than the port holds */
    turn(bench, 1000);
    for (uint64_t i = 0; i < 500; i++) {
        assert_true(word_at(bench, 8 * i) == i + 1);
    }
    assert_memory_equal(bench->emu[1]->inbox + 8192, big, sizeof(big));
}

static void held_puts_are_lost_from_some_point_on_when_the_link_goes(void **state)
{
    struct bench *bench = *state;
    unsigned some = 0;
    for (unsigned seed = 0; seed < 30; seed++) {
        bench->plan = (struct via_fault_plan){.seed = seed, .holds = true, .cut = cut_emu};
        begin(bench);
        via_fault_port_act(bench->fault, VIA_FAULT_HOLD, 1000);
        for (uint64_t i = 0; i < 10; i++) {
            put(bench, 8 * i, i + 1);
        }
        via_fault_port_cut(bench->fault, true);
        uint64_t count = 10 - stats(bench).puts_lost;
        for (uint64_t i = 0; i < 10; i++) {
            assert_true(word_at(bench, 8 * i) == (i < count ? i + 1 : 0));
        }
        some += count != 0 && count != 10;
        via_fault_port_cut(bench->fault, false);
        turn(bench, 2000);
        assert_true(bench->fault->ops->link_is_up(bench->fault));
        assert_true(word_at(bench, 8 * 9) == (count == 10 ? 10 : 0)); /* lost, not late */
        end(bench);
    }
    assert_true(some > 10);
}

/* --- torn puts and cuts --- */

static void a_torn_put_ends_the_link(void **state)
{
    struct bench *bench = *state;
    unsigned torn = 0;
    for (unsigned seed = 0; seed < 40; seed++) {
        unsigned char bytes[300];
        bench->plan = (struct via_fault_plan){.seed = seed, .down_ns_max = 1000, .cut = cut_emu};
        begin(bench);
        memset(bytes, 0x11, sizeof(bytes));
        via_fault_port_act(bench->fault, VIA_FAULT_TEAR_NEXT, 0);
        bench->fault->ops->body(bench->fault, 0, 5, bytes, sizeof(bytes));
        assert_false(bench->fault->ops->link_is_up(bench->fault));
        put(bench, 1024, 1);
        assert_int_equal(ring(bench), -ENOLINK);
        assert_int_equal(fence(bench), -ENOLINK);
        assert_true(bench->fault->ops->events(bench->fault, UINT64_MAX) ==
                    VIA_PORT_EVENT_LINK_DOWN);

        size_t arrived = 0;
        while (arrived < sizeof(bytes) && bench->emu[1]->inbox[5 + arrived] == 0x11) {
            arrived++;
        }
        assert_true(arrived < sizeof(bytes));
        for (size_t i = arrived; i < sizeof(bytes); i++) {
            assert_int_equal(bench->emu[1]->inbox[5 + i], 0);
        }
        torn += arrived != 0;

        turn(bench, 1);
        assert_false(bench->emu[1]->ops->link_is_up(bench->emu[1])); /* for both */
        turn(bench, 1000);
        turn(bench, 1);
        assert_true(bench->fault->ops->link_is_up(bench->fault));
        assert_true(bench->fault->ops->events(bench->fault, UINT64_MAX) == VIA_PORT_EVENT_LINK_UP);
        assert_true(bench->emu[1]->ops->events(bench->emu[1], UINT64_MAX) ==
                    (VIA_PORT_EVENT_LINK_DOWN | VIA_PORT_EVENT_LINK_UP));
        assert_true(word_at(bench, 1024) == 0);
        assert_true(stats(bench).puts_torn == 1 && stats(bench).cuts == 1);
        end(bench);
    }
    assert_true(torn > 30);
}

static void what_is_stored_whole_is_never_torn(void **state)
{
    struct bench *bench = *state;
    for (unsigned seed = 0; seed < 40; seed++) {
        uint64_t line[8] = {1, 1, 1, 1, 1, 1, 1, 1};
        bench->plan = (struct via_fault_plan){.seed = seed};
        begin(bench);
        via_fault_port_act(bench->fault, VIA_FAULT_TEAR_NEXT, 0);
        if (seed % 2 == 0) {
            bench->fault->ops->commit(bench->fault, 0, 64, line, sizeof(line));
        } else {
            put(bench, 120, UINT64_MAX);
        }
        assert_true(word_at(bench, 120) == 0);
        end(bench);
    }
}

static void a_cut_of_one_end_is_seen_by_it_alone(void **state)
{
    struct bench *bench = *state;
    begin(bench);
    struct via_port *fault = bench->fault;
    fault->ops->scratchpad_write(fault, 0, 5);
    bench->emu[1]->ops->scratchpad_write(bench->emu[1], 4, 6);
    via_fault_port_cut(fault, true);
    assert_false(fault->ops->link_is_up(fault));
    assert_true(bench->emu[1]->ops->link_is_up(bench->emu[1]));
    assert_int_equal(fault->ops->scratchpad_read(fault, 4), UINT32_MAX);
    assert_int_equal(bench->emu[1]->ops->scratchpad_read(bench->emu[1], 0), 0);
    put(bench, 0, 1);
    assert_int_equal(bench->emu[1]->ops->ring(bench->emu[1], 0, 1), 0);
    assert_true(fault->ops->events(fault, UINT64_MAX) == VIA_PORT_EVENT_LINK_DOWN);
    via_fault_port_cut(fault, false);
    assert_true(fault->ops->events(fault, UINT64_MAX) == VIA_PORT_EVENT_LINK_UP);
    assert_int_equal(fault->ops->scratchpad_read(fault, 4), 6);
    assert_true(word_at(bench, 0) == 0);
    assert_true(stats(bench).cuts == 1 && stats(bench).mends == 1);
}

/* --- doorbells --- */

static void doorbells_are_dropped_and_doubled(void **state)
{
    struct bench *bench = *state;
    begin(bench);
    via_fault_port_act(bench->fault, VIA_FAULT_DROP_DOORBELL, 0);
    assert_int_equal(ring(bench), 0);
    turn(bench, VIA_SEC_NS);
    assert_false(rung(bench));
    via_fault_port_act(bench->fault, VIA_FAULT_DOUBLE_DOORBELL, 0);
    assert_int_equal(ring(bench), 0);
    assert_true(rung(bench));
    turn(bench, VIA_SEC_NS);
    assert_true(rung(bench));
    turn(bench, VIA_SEC_NS);
    assert_false(rung(bench));
    assert_int_equal(ring(bench), 0);
    assert_true(rung(bench));
    assert_true(stats(bench).doorbells == 3);
    assert_true(stats(bench).doorbells_dropped == 1 && stats(bench).doorbells_doubled == 1);
}

/* --- DMA --- */

static void dma(struct bench *bench, uint64_t off, const uint64_t *words, uint64_t cookie)
{
    assert_int_equal(bench->fault->ops->dma(bench->fault, 2, off, words, 64, cookie), 0);
}

/* Returns the cookie of the ended DMA, or 0. */
static uint64_t dma_taken(struct bench *bench, int *ret_result)
{
    uint64_t cookie = 0;
    return bench->fault->ops->dma_take(bench->fault, 2, &cookie, ret_result, 1) != 0 ? cookie : 0;
}

static uint64_t dma_events(struct bench *bench)
{
    return bench->fault->ops->events(bench->fault, VIA_PORT_EVENT_DMA_DONE_ANY);
}

static void dma_fails_and_hangs(void **state)
{
    struct bench *bench = *state;
    const uint64_t words[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    int result = 1;
    begin(bench);
    dma(bench, 0, words, 11);
    assert_int_equal(dma_taken(bench, &result), 11);
    assert_int_equal(result, 0);
    assert_true(word_at(bench, 56) == 8);
    assert_true(dma_events(bench) == VIA_PORT_EVENT_DMA_DONE(2));

    via_fault_port_act(bench->fault, VIA_FAULT_DMA_FAIL_NEXT, 0);
    dma(bench, 128, words, 12);
    assert_true(dma_events(bench) == VIA_PORT_EVENT_DMA_DONE(2));
    assert_int_equal(dma_taken(bench, &result), 12);
    assert_int_equal(result, -EIO);
    assert_true(word_at(bench, 128 + 56) == 0);

    via_fault_port_act(bench->fault, VIA_FAULT_DMA_HANG_NEXT, 0);
    dma(bench, 256, words, 13);
    turn(bench, VIA_SEC_NS);
    assert_true(dma_events(bench) == 0);
    assert_int_equal(dma_taken(bench, &result), 0);
    dma(bench, 384, words, 14); /* passes it */
    assert_int_equal(dma_taken(bench, &result), 14);
    assert_int_equal(dma_taken(bench, &result), 0);
    bench->fault->ops->dma_abort(bench->fault, 3); /* another thread's */
    assert_int_equal(dma_taken(bench, &result), 0);
    bench->fault->ops->dma_abort(bench->fault, 2);
    assert_true((dma_events(bench) & VIA_PORT_EVENT_DMA_DONE(2)) != 0);
    assert_int_equal(dma_taken(bench, &result), 13);
    assert_int_equal(result, -ECANCELED);
    assert_true(word_at(bench, 256) == 0);
    assert_true(stats(bench).dmas == 4 && stats(bench).dmas_failed == 1 &&
                stats(bench).dmas_hung == 1);
}

/* --- scripts and seeds --- */

static void a_script_is_followed(void **state)
{
    struct bench *bench = *state;
    static const struct via_fault_step steps[] = {
        {100, VIA_FAULT_CUT, 0},  {200, VIA_FAULT_MEND, 0}, {300, VIA_FAULT_HOLD, 50},
        {400, VIA_FAULT_HOLD, 0}, {500, VIA_FAULT_CUT, 0},  {500, VIA_FAULT_MEND, 0},
    };
    bench->plan = (struct via_fault_plan){
        .holds = true, .steps = steps, .steps_count = sizeof(steps) / sizeof(steps[0])};
    begin(bench);
    turn(bench, 98); /* the clock is stopped at 99 */
    assert_true(bench->fault->ops->link_is_up(bench->fault));
    turn(bench, 1);
    assert_false(bench->fault->ops->link_is_up(bench->fault));
    turn(bench, 100);
    assert_true(bench->fault->ops->link_is_up(bench->fault));
    turn(bench, 100);
    put(bench, 0, 1);
    turn(bench, 49);
    assert_true(word_at(bench, 0) == 0);
    turn(bench, 1);
    assert_true(word_at(bench, 0) == 1);
    bench->fault->ops->events(bench->fault, UINT64_MAX);
    turn(bench, 150);
    assert_true(bench->fault->ops->events(bench->fault, UINT64_MAX) ==
                (VIA_PORT_EVENT_LINK_DOWN | VIA_PORT_EVENT_LINK_UP));
}

/* A history of faults: arrivals and counters. */
static void run_seed(struct bench *bench, uint64_t seed, struct via_fault_stats *ret_stats,
                     uint64_t *ret_sum)
{
    bench->now_ns = 0;
    bench->plan = (struct via_fault_plan){.seed = seed,
                                          .delay_chance = 50000,
                                          .tear_chance = 5000,
                                          .cut_chance = 5000,
                                          .drop_chance = 100000,
                                          .double_chance = 100000,
                                          .delay_ns_max = 500,
                                          .down_ns_max = 1000,
                                          .cut = cut_emu};
    begin(bench);
    uint64_t sum = 0;
    for (uint64_t i = 1; i <= 1000; i++) {
        put(bench, 8 * (i % 100), i);
        bench->fault->ops->flush(bench->fault, 0);
        (void)ring(bench);
        turn(bench, 100);
        sum = sum * 31 + word_at(bench, 8 * (i % 100)) + rung(bench);
    }
    *ret_stats = stats(bench);
    *ret_sum = sum;
    end(bench);
}

static void the_same_seed_gives_the_same_faults(void **state)
{
    struct bench *bench = *state;
    struct via_fault_stats first, second, other;
    uint64_t sums[3];
    run_seed(bench, 1, &first, &sums[0]);
    run_seed(bench, 1, &second, &sums[1]);
    run_seed(bench, 2, &other, &sums[2]);
    assert_memory_equal(&first, &second, sizeof(first));
    assert_true(sums[0] == sums[1] && sums[0] != sums[2]);
    assert_true(first.puts_held && first.puts_torn && first.puts_lost && first.cuts &&
                first.mends && first.doorbells_dropped && first.doorbells_doubled);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(held_puts_arrive_late_and_in_order),
        TEST(a_fence_brings_held_puts_home),
        TEST(a_doorbell_does_not_overtake_what_was_flushed),
        TEST(a_full_hold_delivers_and_continues),
        TEST(held_puts_are_lost_from_some_point_on_when_the_link_goes),
        TEST(a_torn_put_ends_the_link),
        TEST(what_is_stored_whole_is_never_torn),
        TEST(a_cut_of_one_end_is_seen_by_it_alone),
        TEST(doorbells_are_dropped_and_doubled),
        TEST(dma_fails_and_hangs),
        TEST(a_script_is_followed),
        TEST(the_same_seed_gives_the_same_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
