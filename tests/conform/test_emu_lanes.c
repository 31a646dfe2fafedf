/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Lanes of the emulated port: which writes may arrive when, and hostile contents of a lane. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/types.h"
#include "port/emu/lane.h"

#define INBOX_BYTES 65536u
#define ROUND 7u
/* Longer than any test: writes arrive only at polls and pushes. */
#define NEVER_NS (UINT64_C(1) << 60)

struct fixture {
    struct via_emu_lane *lane;
    struct via_emu_lane_writer writer;
    struct via_emu_lane_target target;
    struct via_rng rng;
    unsigned char *inbox;
};

static void set_up(struct fixture *fixture, uint64_t seed)
{
    fixture->lane = aligned_alloc(64, sizeof(*fixture->lane));
    memset(fixture->lane, 0, sizeof(*fixture->lane));
    fixture->inbox = aligned_alloc(64, INBOX_BYTES);
    memset(fixture->inbox, 0, INBOX_BYTES);
    fixture->target = (struct via_emu_lane_target){
        .memory = fixture->inbox, .bytes = INBOX_BYTES, .round = ROUND};
    via_emu_lane_writer_init(&fixture->writer, fixture->lane, seed);
    via_rng_init(&fixture->rng, seed + 1);
}

static void tear_down(struct fixture *fixture)
{
    free(fixture->lane);
    free(fixture->inbox);
}

static void arrive(struct fixture *fixture, enum via_emu_lane_extent extent)
{
    assert_int_equal(
        via_emu_lane_arrive(fixture->lane, &fixture->target, extent, &fixture->rng, 0, NEVER_NS),
        0);
}

static void post_body(struct fixture *fixture, uint64_t off, const void *src, size_t len)
{
    for (size_t done = 0; done < len;) {
        done += via_emu_lane_post_body(&fixture->writer, ROUND, off + done,
                                       (const unsigned char *)src + done, len - done);
        if (done < len) {
            arrive(fixture, VIA_EMU_LANE_ALL);
        }
    }
}

static void post_word(struct fixture *fixture, uint64_t off, uint64_t word)
{
    if (!via_emu_lane_post_word(&fixture->writer, ROUND, off, word)) {
        arrive(fixture, VIA_EMU_LANE_ALL);
        assert_true(via_emu_lane_post_word(&fixture->writer, ROUND, off, word));
    }
}

static uint64_t word_at(const struct fixture *fixture, uint64_t off)
{
    return atomic_load_explicit((const _Atomic uint64_t *)(const void *)(fixture->inbox + off),
                                memory_order_acquire);
}

static void fill(unsigned char *bytes, size_t len, struct via_rng *rng)
{
    for (size_t i = 0; i < len; i++) {
        bytes[i] = (unsigned char)via_rng_next(rng);
    }
}

/* --- guarantees --- */

static void what_is_flushed_arrives_whole(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct fixture fixture;
        struct via_rng rng;
        unsigned char *expected = calloc(1, INBOX_BYTES);
        unsigned char *body = malloc(INBOX_BYTES);
        set_up(&fixture, seed);
        via_rng_init(&rng, seed);
        for (unsigned round = 0; round < 40; round++) {
            size_t len = via_rng_between(&rng, 1, round % 8 == 0 ? 40000 : 300);
            uint64_t off = via_rng_below(&rng, INBOX_BYTES - len);
            uint64_t word = via_rng_next(&rng);
            fill(body, len, &rng);
            /* Overlapping bodies have no order, so the second one waits until the first has
             * arrived. */
            post_body(&fixture, off, body, len);
            memcpy(expected + off, body, len);
            arrive(&fixture, VIA_EMU_LANE_SOME);
            post_word(&fixture, round * 64, word);
            memcpy(expected + (size_t)round * 64, &word, sizeof(word));
            via_emu_lane_flush(&fixture.writer, 0);
            arrive(&fixture, VIA_EMU_LANE_FLUSHED);
            assert_true(via_emu_lane_is_empty(fixture.lane));
            assert_memory_equal(fixture.inbox, expected, INBOX_BYTES);
        }
        free(expected);
        free(body);
        tear_down(&fixture);
    }
}

static void a_word_comes_after_all_before_it(void **state)
{
    unsigned char body[200];
    uint64_t early = 0;
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct fixture fixture;
        set_up(&fixture, seed);
        for (uint64_t round = 1; round <= 60; round++) {
            memset(body, (int)round, sizeof(body));
            post_body(&fixture, round * 256, body, sizeof(body));
            post_word(&fixture, 0, round);
            if (round % 3 == 0) {
                via_emu_lane_flush(&fixture.writer, 0);
            }
            arrive(&fixture, VIA_EMU_LANE_SOME);
            uint64_t seen = word_at(&fixture, 0);
            for (uint64_t i = 1; i <= seen; i++) {
                memset(body, (int)i, sizeof(body));
                assert_memory_equal(fixture.inbox + i * 256, body, sizeof(body));
            }
            early += seen != round;
        }
        tear_down(&fixture);
    }
    assert_true(early > 1000); /* otherwise no write was late, and the test proves nothing */
}

static void an_old_flushed_write_arrives_at_a_poll(void **state)
{
    struct fixture fixture;
    (void)state;
    set_up(&fixture, 1);
    for (uint64_t round = 1; round <= 100; round++) {
        post_word(&fixture, 0, round);
        via_emu_lane_flush(&fixture.writer, 1000);
        assert_int_equal(via_emu_lane_arrive(fixture.lane, &fixture.target, VIA_EMU_LANE_SOME,
                                             &fixture.rng, 1500, 500),
                         0);
        assert_int_equal(word_at(&fixture, 0), round);
    }
    tear_down(&fixture);
}

static void writes_of_another_round_vanish(void **state)
{
    struct fixture fixture;
    uint64_t body[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    (void)state;
    set_up(&fixture, 1);
    post_body(&fixture, 0, body, sizeof(body));
    post_word(&fixture, 64, 9);
    fixture.target.round = ROUND + 1;
    post_body(&fixture, 128, body, sizeof(body));
    via_emu_lane_flush(&fixture.writer, 0);
    arrive(&fixture, VIA_EMU_LANE_FLUSHED);
    for (uint64_t off = 0; off < 256; off += 8) {
        assert_int_equal(word_at(&fixture, off), 0);
    }
    assert_true(via_emu_lane_is_empty(fixture.lane));
    tear_down(&fixture);
}

static void a_full_lane_takes_a_part_of_a_body(void **state)
{
    struct fixture fixture;
    unsigned char *body = malloc(INBOX_BYTES);
    (void)state;
    memset(body, 0x5a, INBOX_BYTES);
    set_up(&fixture, 1);
    size_t done = via_emu_lane_post_body(&fixture.writer, ROUND, 0, body, INBOX_BYTES);
    assert_in_range(done, 1, VIA_EMU_LANE_DATA_BYTES);
    while (via_emu_lane_post_word(&fixture.writer, ROUND, 0, 0)) {
    }
    assert_int_equal(via_emu_lane_post_body(&fixture.writer, ROUND, 0, body, 1), 0);
    arrive(&fixture, VIA_EMU_LANE_ALL);
    assert_true(via_emu_lane_is_empty(fixture.lane));
    assert_true(via_emu_lane_post_word(&fixture.writer, ROUND, 0, 0));
    free(body);
    tear_down(&fixture);
}

/* --- what is not guaranteed ------------------------------------------------------------------ */

/* The number of seeds, of 100, in which `shows` finds its effect. */
static unsigned count_seeds(bool (*shows)(struct fixture *fixture))
{
    unsigned count = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct fixture fixture;
        set_up(&fixture, seed);
        count += shows(&fixture) ? 1 : 0;
        tear_down(&fixture);
    }
    return count;
}

static bool unflushed_stays(struct fixture *fixture)
{
    post_word(fixture, 0, 1);
    for (unsigned look = 0; look < 5; look++) {
        arrive(fixture, VIA_EMU_LANE_SOME);
    }
    return word_at(fixture, 0) == 0;
}

static bool unflushed_arrives(struct fixture *fixture)
{
    return !unflushed_stays(fixture);
}

static bool flushed_is_late(struct fixture *fixture)
{
    post_word(fixture, 0, 1);
    via_emu_lane_flush(&fixture->writer, 0);
    arrive(fixture, VIA_EMU_LANE_SOME);
    return word_at(fixture, 0) == 0;
}

static bool a_body_overtakes_a_body(struct fixture *fixture)
{
    uint64_t one = 1;
    post_body(fixture, 0, &one, sizeof(one));
    post_body(fixture, 64, &one, sizeof(one));
    via_emu_lane_flush(&fixture->writer, 0);
    arrive(fixture, VIA_EMU_LANE_SOME);
    return word_at(fixture, 0) == 0 && word_at(fixture, 64) == 1;
}

static bool a_body_overtakes_a_word(struct fixture *fixture)
{
    uint64_t one = 1;
    post_word(fixture, 0, 1);
    post_body(fixture, 64, &one, sizeof(one));
    via_emu_lane_flush(&fixture->writer, 0);
    arrive(fixture, VIA_EMU_LANE_SOME);
    return word_at(fixture, 0) == 0 && word_at(fixture, 64) == 1;
}

static bool a_body_arrives_in_part(struct fixture *fixture)
{
    unsigned char body[256];
    unsigned there = 0;
    memset(body, 1, sizeof(body));
    post_body(fixture, 0, body, sizeof(body));
    via_emu_lane_flush(&fixture->writer, 0);
    arrive(fixture, VIA_EMU_LANE_SOME);
    for (unsigned i = 0; i < sizeof(body); i++) {
        there += fixture->inbox[i];
    }
    return there != 0 && there != sizeof(body);
}

static void the_lane_keeps_no_more_than_it_must(void **state)
{
    (void)state;
    assert_in_range(count_seeds(unflushed_stays), 10, 95);
    assert_in_range(count_seeds(unflushed_arrives), 5, 90);
    assert_in_range(count_seeds(flushed_is_late), 10, 90);
    assert_in_range(count_seeds(a_body_overtakes_a_body), 3, 90);
    assert_in_range(count_seeds(a_body_overtakes_a_word), 3, 90);
    assert_in_range(count_seeds(a_body_arrives_in_part), 2, 90);
}

/* --- hostile ends, and two at once --- */

static void random_bytes_in_a_lane_have_no_effect(void **state)
{
    unsigned refused = 0;
    (void)state;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct fixture fixture;
        struct via_rng rng;
        uint64_t body[32];
        set_up(&fixture, seed);
        via_rng_init(&rng, seed);
        fill((unsigned char *)body, sizeof(body), &rng);
        for (unsigned i = 0; i < 50; i++) {
            post_body(&fixture, i * 256, body, sizeof(body));
            post_word(&fixture, i * 64, i);
        }
        via_emu_lane_flush(&fixture.writer, 0);
        for (uint64_t n = via_rng_between(&rng, 1, 8); n != 0; n--) {
            size_t at = seed % 4 == 0 ? via_rng_below(&rng, 128)
                                      : 128 + via_rng_below(&rng, 50 * (288 + 32));
            ((unsigned char *)fixture.lane)[at] = (unsigned char)via_rng_next(&rng);
        }
        int rc = via_emu_lane_arrive(fixture.lane, &fixture.target, VIA_EMU_LANE_ALL, &fixture.rng,
                                     0, NEVER_NS);
        assert_true(rc == 0 || rc == -EPROTO || rc == -EAGAIN);
        refused += rc == -EPROTO;
        (void)!via_emu_lane_post_body(&fixture.writer, ROUND, 0, body, sizeof(body));
        tear_down(&fixture);
    }
    assert_true(refused > 300);
}

static void a_lock_that_is_held_is_not_waited_for(void **state)
{
    struct fixture fixture;
    (void)state;
    set_up(&fixture, 1);
    post_word(&fixture, 0, 1);
    atomic_store(&fixture.lane->lock, 1);
    assert_int_equal(via_emu_lane_arrive(fixture.lane, &fixture.target, VIA_EMU_LANE_ALL,
                                         &fixture.rng, 0, NEVER_NS),
                     -EAGAIN);
    assert_int_equal(word_at(&fixture, 0), 0);
    tear_down(&fixture);
}

#define RUSH_ROUNDS 20000u
/* More bodies than a lane holds: bodies under way may pass each other, even to the same place. */
#define RUSH_PLACES 512u
_Static_assert(RUSH_PLACES * 3 * sizeof(struct via_emu_flight) > VIA_EMU_LANE_DATA_BYTES &&
                   64 + RUSH_PLACES * 64 <= INBOX_BYTES,
               "a round is a header, its body and a word");

/* The receiver polls continuously, while the sender makes room for its own entries. */
static void *look_on(void *arg)
{
    struct fixture *fixture = arg;
    struct via_rng rng;
    uint64_t seen = 0;
    uint64_t torn = 0;
    via_rng_init(&rng, 99);
    while (seen < RUSH_ROUNDS) {
        int rc = via_emu_lane_arrive(fixture->lane, &fixture->target, VIA_EMU_LANE_SOME, &rng, 0,
                                     NEVER_NS);
        seen = word_at(fixture, 0);
        torn += rc != 0 && rc != -EAGAIN;
        torn += word_at(fixture, 64 + seen % RUSH_PLACES * 64) < seen;
    }
    return (void *)(uintptr_t)torn;
}

static void both_ends_may_let_writes_arrive(void **state)
{
    struct fixture fixture;
    pthread_t thread;
    void *torn;
    (void)state;
    set_up(&fixture, 1);
    assert_int_equal(pthread_create(&thread, NULL, look_on, &fixture), 0);
    for (uint64_t round = 1; round <= RUSH_ROUNDS; round++) {
        size_t done = 0;
        while ((done += via_emu_lane_post_body(
                    &fixture.writer, ROUND, 64 + round % RUSH_PLACES * 64 + done,
                    (unsigned char *)&round + done, sizeof(round) - done)) < sizeof(round) ||
               !via_emu_lane_post_word(&fixture.writer, ROUND, 0, round)) {
            int rc = via_emu_lane_arrive(fixture.lane, &fixture.target, VIA_EMU_LANE_ALL,
                                         &fixture.rng, 0, NEVER_NS);
            assert_true(rc == 0 || rc == -EAGAIN);
        }
        via_emu_lane_flush(&fixture.writer, 0);
    }
    pthread_join(thread, &torn);
    assert_null(torn);
    tear_down(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_flushed_arrives_whole),
        cmocka_unit_test(a_word_comes_after_all_before_it),
        cmocka_unit_test(an_old_flushed_write_arrives_at_a_poll),
        cmocka_unit_test(writes_of_another_round_vanish),
        cmocka_unit_test(a_full_lane_takes_a_part_of_a_body),
        cmocka_unit_test(the_lane_keeps_no_more_than_it_must),
        cmocka_unit_test(random_bytes_in_a_lane_have_no_effect),
        cmocka_unit_test(a_lock_that_is_held_is_not_waited_for),
        cmocka_unit_test(both_ends_may_let_writes_arrive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
