/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The pipe alone: one writer, one reader, in one thread. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "core/pipe.h"

struct pair {
    struct via_pipe_geometry geometry;
    unsigned char *memory;
    size_t bytes;
    _Atomic uint64_t credit;
    uint32_t data_ends[64];
    struct via_pipe_writer writer;
    struct via_pipe_reader reader;
};

#define QUEUE 3u

static void memory_body(void *ctx, unsigned queue, uint64_t off, const void *src, size_t len)
{
    struct pair *pair = ctx;
    assert_int_equal(queue, QUEUE);
    assert_true(off + len <= pair->bytes);
    memcpy(pair->memory + off, src, len);
}

static void memory_commit(void *ctx, unsigned queue, uint64_t off, const void *src, size_t len)
{
    assert_true(len == 8 || len == 64);
    assert_int_equal(off % len, 0);
    memory_body(ctx, queue, off, src, len);
}

static void credit_commit(void *ctx, unsigned queue, uint64_t off, const void *src, size_t len)
{
    struct pair *pair = ctx;
    uint64_t word;
    assert_int_equal(queue, QUEUE);
    assert_int_equal(off, 0);
    assert_int_equal(len, sizeof(word));
    memcpy(&word, src, sizeof(word));
    atomic_store(&pair->credit, word);
}

static struct via_pipe_target target_of(struct pair *pair, bool direct, bool credit)
{
    if (direct) {
        return (struct via_pipe_target){
            .direct = credit ? (unsigned char *)&pair->credit : pair->memory,
        };
    }
    return (struct via_pipe_target){.body = credit ? NULL : memory_body,
                                    .commit = credit ? credit_commit : memory_commit,
                                    .ctx = pair,
                                    .queue = QUEUE};
}

static void pair_start(struct pair *pair, bool direct, uint16_t epoch)
{
    struct via_pipe_target out = target_of(pair, direct, false);
    struct via_pipe_target back = target_of(pair, direct, true);
    via_pipe_writer_init(&pair->writer, &pair->geometry, &out, &pair->credit, pair->data_ends,
                         epoch);
    via_pipe_reader_init(&pair->reader, &pair->geometry, pair->memory, &back, epoch);
}

static struct pair *pair_new(uint32_t slots, uint32_t data, uint32_t body, bool direct)
{
    struct pair *pair = calloc(1, sizeof(*pair));
    assert_non_null(pair);
    pair->geometry = (struct via_pipe_geometry){slots, data, body};
    assert_int_equal(via_pipe_geometry_check(&pair->geometry), 0);
    assert_true(slots <= 64);
    pair->bytes = via_pipe_memory_bytes(&pair->geometry);
    pair->memory = aligned_alloc(64, pair->bytes);
    assert_non_null(pair->memory);
    memset(pair->memory, 0, pair->bytes);
    pair_start(pair, direct, 7);
    return pair;
}

static void pair_free(struct pair *pair)
{
    free(pair->memory);
    free(pair);
}

static void fill(unsigned char *body, size_t bytes, uint32_t number)
{
    for (size_t i = 0; i < bytes; i++) {
        body[i] = (unsigned char)(number * 31 + i);
    }
}

static void expect(const struct via_pipe_record *record, uint32_t number, size_t bytes)
{
    unsigned char body[4096];
    uint32_t head;
    memcpy(&head, record->head, sizeof(head));
    assert_int_equal(head, number);
    assert_int_equal(record->body_bytes, bytes);
    fill(body, bytes, number);
    if (bytes != 0) {
        assert_memory_equal(record->body, body, bytes);
    } else {
        assert_null(record->body);
    }
}

static void geometry_is_checked(void **state)
{
    (void)state;
    const struct via_pipe_geometry good[] = {{1, 0, 0}, {8, 128, 64}, {1u << 20, 0, 0}};
    const struct via_pipe_geometry bad[] = {
        {0, 0, 0},   {3, 0, 0},    {1u << 21, 0, 0}, {8, 64, 64},          {8, 0, 64},
        {8, 128, 0}, {8, 130, 64}, {8, 256, 100},    {8, 1u << 20, 65536},
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(via_pipe_geometry_check(&good[i]), 0);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(via_pipe_geometry_check(&bad[i]), -EINVAL);
    }
}

/* Random sizes, random batches, many rounds of both rings. */
static void wraps(uint32_t slots, uint32_t data, uint32_t body_max, bool direct)
{
    struct pair *pair = pair_new(slots, data, body_max, direct);
    struct via_rng rng;
    uint32_t sent = 0, taken = 0, held = 0;
    size_t sizes[64] = {0};
    unsigned char body[4096];

    via_rng_init(&rng, slots * 1000003u + data + direct);
    while (taken < 5000) {
        size_t bytes = via_rng_chance(&rng, 1, 3) ? 0 : via_rng_between(&rng, 1, body_max);
        if (body_max == 0) {
            bytes = 0;
        }
        if (via_rng_chance(&rng, 1, 2)) {
            fill(body, bytes, sent);
            bool fits = via_pipe_writer_has_place(&pair->writer, bytes);
            int rc = via_pipe_send(&pair->writer, &sent, sizeof(sent), body, bytes);
            assert_int_equal(rc, fits ? 0 : -EAGAIN);
            if (rc == 0) {
                sizes[sent % 64] = bytes;
                sent++;
            }
        } else if (via_rng_chance(&rng, 2, 3)) {
            struct via_pipe_record record;
            int rc = via_pipe_take(&pair->reader, &record);
            assert_int_equal(rc, taken != sent);
            if (rc == 1) {
                expect(&record, taken, sizes[taken % 64]);
                taken++;
                held++;
            }
        } else {
            uint32_t give = (uint32_t)via_rng_below(&rng, held + 1);
            via_pipe_release(&pair->reader, give);
            held -= give;
            if (via_rng_chance(&rng, 1, 4)) {
                via_pipe_post_credit(&pair->reader);
            }
        }
        assert_true(via_pipe_writer_outstanding(&pair->writer) <= slots);
    }
    pair_free(pair);
}

static void rings_wrap(void **state)
{
    (void)state;
    for (int direct = 0; direct < 2; direct++) {
        wraps(1, 0, 0, direct);
        wraps(1, 128, 64, direct);
        wraps(2, 192, 64, direct);
        wraps(8, 4096, 1024, direct);
        wraps(64, 2048, 1024, direct);
    }
}

/* The node relies on this: with one body more than slots, a record needs only a free slot. */
static void a_free_slot_is_enough(void **state)
{
    (void)state;
    for (uint32_t slots = 1; slots <= 16; slots *= 2) {
        struct pair *pair = pair_new(slots, (slots + 1) * 256, 256, true);
        struct via_rng rng;
        unsigned char body[256] = {0};
        uint32_t held = 0;

        via_rng_init(&rng, slots);
        for (unsigned i = 0; i < 20000; i++) {
            struct via_pipe_record record;
            if (via_pipe_writer_room(&pair->writer) > 0 && via_rng_chance(&rng, 2, 3)) {
                size_t bytes = via_rng_between(&rng, 0, 256);
                assert_int_equal(via_pipe_send(&pair->writer, &i, 4, body, bytes), 0);
            } else if (via_pipe_take(&pair->reader, &record) == 1) {
                held++;
            } else if (held > 0) {
                via_pipe_release(&pair->reader, 1);
                via_pipe_post_credit(&pair->reader);
                held--;
            }
        }
        pair_free(pair);
    }
}

static void capacity_one_alternates(void **state)
{
    (void)state;
    struct pair *pair = pair_new(1, 0, 0, true);
    for (uint32_t i = 0; i < 10; i++) {
        struct via_pipe_record record;
        assert_int_equal(via_pipe_writer_room(&pair->writer), 1);
        assert_int_equal(via_pipe_send(&pair->writer, &i, 4, NULL, 0), 0);
        assert_int_equal(via_pipe_send(&pair->writer, &i, 4, NULL, 0), -EAGAIN);
        assert_int_equal(via_pipe_take(&pair->reader, &record), 1);
        expect(&record, i, 0);
        assert_int_equal(via_pipe_take(&pair->reader, &record), 0);
        assert_int_equal(via_pipe_writer_room(&pair->writer), 0);
        via_pipe_release(&pair->reader, 1);
    }
    pair_free(pair);
}

/* A thread that may not use the writer asks: the writer takes the credit later. */
static void asking_for_a_release_changes_nothing(void **state)
{
    (void)state;
    struct pair *pair = pair_new(4, 0, 0, true);
    struct via_pipe_record record;
    uint32_t before = pair->writer.sequence;
    assert_false(via_pipe_writer_is_released(&pair->writer, before + 1));
    assert_int_equal(via_pipe_send(&pair->writer, "x", 1, NULL, 0), 0);
    assert_int_equal(via_pipe_take(&pair->reader, &record), 1);
    assert_false(via_pipe_writer_is_released(&pair->writer, before + 1));
    via_pipe_release(&pair->reader, 1);
    via_pipe_post_credit(&pair->reader);
    assert_true(via_pipe_writer_is_released(&pair->writer, before + 1));
    assert_false(via_pipe_writer_is_released(&pair->writer, before + 2));
    assert_int_equal(via_pipe_writer_outstanding(&pair->writer), 1);
    assert_int_equal(via_pipe_writer_room(&pair->writer), 4);
    assert_int_equal(via_pipe_writer_outstanding(&pair->writer), 0);
    pair_free(pair);
}

static void peek_then_advance_is_take(void **state)
{
    (void)state;
    struct pair *pair = pair_new(4, 320, 64, true);
    struct via_pipe_record record;
    unsigned char body[64];
    for (uint32_t i = 0; i < 40; i++) {
        fill(body, 50, i);
        assert_int_equal(via_pipe_send(&pair->writer, &i, 4, body, 50), 0);
        assert_int_equal(via_pipe_peek(&pair->reader, &record), 1);
        expect(&record, i, 50);
        assert_int_equal(via_pipe_peek(&pair->reader, &record), 1);
        expect(&record, i, 50);
        via_pipe_advance(&pair->reader, &record);
        assert_int_equal(via_pipe_peek(&pair->reader, &record), 0);
        via_pipe_release(&pair->reader, 1);
    }
    pair_free(pair);
}

static void bytes_under_way_are_counted(void **state)
{
    (void)state;
    struct pair *pair = pair_new(8, 512, 64, true);
    struct via_pipe_record record;
    unsigned char body[64] = {0};
    for (uint32_t i = 0; i < 30; i++) {
        uint32_t under_way = 64 * (i % 3);
        assert_int_equal(via_pipe_writer_data_bytes(&pair->writer), under_way);
        assert_int_equal(via_pipe_send(&pair->writer, &i, 4, body, 50), 0);
        assert_int_equal(via_pipe_take(&pair->reader, &record), 1);
        assert_int_equal(via_pipe_writer_data_bytes(&pair->writer), under_way + 64);
        if (i % 3 == 2) {
            via_pipe_release(&pair->reader, 3);
            via_pipe_post_credit(&pair->reader);
        }
    }
    pair_free(pair);
}

static void reserve_and_commit_build_in_place(void **state)
{
    (void)state;
    struct pair *pair = pair_new(2, 192, 64, true);
    struct via_pipe_record record;
    for (uint32_t i = 0; i < 20; i++) {
        void *body;
        assert_int_equal(via_pipe_reserve(&pair->writer, 60, &body), 0);
        assert_int_equal(via_pipe_reserve(&pair->writer, 40, &body), 0); /* costs nothing */
        fill(body, 40, i);
        assert_int_equal(via_pipe_take(&pair->reader, &record), 0);
        assert_int_equal(via_pipe_commit(&pair->writer, &i, 4, 40), 0);
        assert_int_equal(via_pipe_take(&pair->reader, &record), 1);
        expect(&record, i, 40);
        via_pipe_release(&pair->reader, 1);
    }
    void *body;
    assert_int_equal(via_pipe_reserve(&pair->writer, 65, &body), -EMSGSIZE);
    pair_start(pair, false, 8);
    assert_int_equal(via_pipe_reserve(&pair->writer, 8, &body), -ENOTSUP);
    pair_free(pair);
}

/* Writes a body like a DMA engine: directly to its place. */
static void bring(struct pair *pair, uint64_t off, uint32_t number, size_t bytes)
{
    assert_true(off + bytes <= pair->bytes);
    fill(pair->memory + off, bytes, number);
}

static void deferred_records_are_seen_when_published(struct pair *pair)
{
    const size_t sizes[] = {100, 0, 64};
    uint64_t offs[3];
    struct via_pipe_record record;

    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(via_pipe_defer(&pair->writer, sizes[i], &offs[i]), 0);
    }
    assert_int_equal(via_pipe_writer_outstanding(&pair->writer), 3);
    assert_int_equal(via_pipe_writer_room(&pair->writer), 1);
    bring(pair, offs[2], 2, sizes[2]); /* the last one arrives first */
    assert_false(via_pipe_is_ready(&pair->reader));
    unsigned char body[100];
    fill(body, sizeof(body), 0);
    via_pipe_put_body(&pair->writer, offs[0], body, sizeof(body));
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(via_pipe_take(&pair->reader, &record), 0);
        via_pipe_publish(&pair->writer, &i, sizeof(i), sizes[i]);
        assert_int_equal(via_pipe_take(&pair->reader, &record), 1);
        expect(&record, i, sizes[i]);
    }
    via_pipe_release(&pair->reader, 3);
    via_pipe_post_credit(&pair->reader);
    assert_int_equal(via_pipe_writer_room(&pair->writer), 4);
}

static void records_can_be_deferred(void **state)
{
    (void)state;
    for (int direct = 0; direct < 2; direct++) {
        struct pair *pair = pair_new(4, 512, 128, direct != 0);
        for (unsigned round = 0; round < 5; round++) { /* around the ring */
            deferred_records_are_seen_when_published(pair);
        }
        pair_free(pair);
    }
}

/* The reader has taken all records that it can see: a wake-up for a deferred record would find
 * nothing, and use up the generation that the published record needs. */
static void deferred_records_are_not_rung_for(void **state)
{
    (void)state;
    struct pair *pair = pair_new(4, 0, 0, false);
    uint64_t off;
    uint32_t head = 0;
    via_pipe_arm(&pair->reader);
    assert_int_equal(via_pipe_defer(&pair->writer, 0, &off), 0);
    assert_false(via_pipe_take_reader_ring(&pair->writer));
    via_pipe_publish(&pair->writer, &head, sizeof(head), 0);
    assert_true(via_pipe_take_reader_ring(&pair->writer));
    pair_free(pair);
}

/* Credit must not be given for a place to which an engine may still write. */
static void credit_for_deferred_records_breaks_the_pipe(void **state)
{
    (void)state;
    struct pair *pair = pair_new(4, 0, 0, false);
    uint64_t off;
    assert_int_equal(via_pipe_send(&pair->writer, "", 1, NULL, 0), 0);
    assert_int_equal(via_pipe_defer(&pair->writer, 0, &off), 0);
    atomic_store(&pair->credit, via_credit_word(7, 0, 1));
    assert_int_equal(via_pipe_writer_room(&pair->writer), 3);
    atomic_store(&pair->credit, via_credit_word(7, 0, 2));
    assert_int_equal(via_pipe_writer_room(&pair->writer), 0);
    assert_true(pair->writer.broken);
    assert_int_equal(via_pipe_defer(&pair->writer, 0, &off), -EPROTO);
    pair_free(pair);
}

static void credits_go_back_by_quarters(void **state)
{
    (void)state;
    struct pair *pair = pair_new(8, 0, 0, true);
    struct via_pipe_record record;
    uint32_t head = 0;
    for (int i = 0; i < 8; i++) {
        assert_int_equal(via_pipe_send(&pair->writer, &head, 4, NULL, 0), 0);
        assert_int_equal(via_pipe_take(&pair->reader, &record), 1);
    }
    via_pipe_release(&pair->reader, 1);
    assert_int_equal(via_pipe_writer_room(&pair->writer), 0);
    via_pipe_release(&pair->reader, 1);
    assert_int_equal(via_pipe_writer_room(&pair->writer), 2);
    via_pipe_release(&pair->reader, 1);
    assert_int_equal(via_pipe_writer_room(&pair->writer), 2);
    via_pipe_post_credit(&pair->reader);
    assert_int_equal(via_pipe_writer_room(&pair->writer), 3);
    pair_free(pair);
}

static void an_armed_reader_is_rung_once(void **state)
{
    (void)state;
    struct pair *pair = pair_new(8, 0, 0, true);
    struct via_pipe_record record;
    uint32_t head = 0;

    /* Generations wrap past 0, which means awake. */
    pair->reader.arm_next = UINT16_MAX - 2;
    for (int i = 0; i < 8; i++) {
        assert_int_equal(via_pipe_send(&pair->writer, &head, 4, NULL, 0), 0);
        assert_false(via_pipe_take_reader_ring(&pair->writer)); /* no thread sleeps */
        assert_int_equal(via_pipe_take(&pair->reader, &record), 1);
        via_pipe_release(&pair->reader, 1);
        via_pipe_arm(&pair->reader);
        via_pipe_arm(&pair->reader);
        assert_false(via_pipe_is_ready(&pair->reader));
        assert_int_not_equal(pair->reader.arm, 0);

        assert_int_equal(via_pipe_send(&pair->writer, &head, 4, NULL, 0), 0);
        assert_true(via_pipe_take_reader_ring(&pair->writer));
        assert_false(via_pipe_take_reader_ring(&pair->writer));
        assert_true(via_pipe_is_ready(&pair->reader));
        assert_int_equal(via_pipe_take(&pair->reader, &record), 1);
        via_pipe_release(&pair->reader, 1);
    }
    pair_free(pair);
}

/* The writer writes a record, and rings if `rings`. The reader takes the record. */
static void one_record(struct pair *pair, bool rings)
{
    struct via_pipe_record record;
    uint32_t head = 0;
    assert_int_equal(via_pipe_send(&pair->writer, &head, 4, NULL, 0), 0);
    if (rings) {
        assert_true(via_pipe_take_reader_ring(&pair->writer));
    }
    assert_int_equal(via_pipe_take(&pair->reader, &record), 1);
}

/* The writer checks for a sleeper only after its record was taken and the reader sleeps again. */
static void a_writer_that_checks_late_does_not_use_up_the_next_ring(void **state)
{
    (void)state;
    struct pair *pair = pair_new(8, 0, 0, true);

    for (int i = 0; i < 20; i++) {
        one_record(pair, false);
        via_pipe_release(&pair->reader, 1);
        via_pipe_arm(&pair->reader);
        assert_false(via_pipe_is_ready(&pair->reader));
        assert_false(via_pipe_take_reader_ring(&pair->writer));
        via_pipe_arm(&pair->reader); /* the reader is woken nevertheless, and sleeps again */

        one_record(pair, true);
        via_pipe_release(&pair->reader, 1);
    }
    pair_free(pair);
}

/* The same if the reader has taken records and not released them. */
static void a_late_ring_is_harmless_while_records_are_held(void **state)
{
    (void)state;
    struct pair *pair = pair_new(64, 0, 0, true);

    for (int i = 0; i < 20; i++) {
        one_record(pair, false);
        via_pipe_arm(&pair->reader);
        (void)via_pipe_take_reader_ring(&pair->writer); /* the writer can not know this */
        via_pipe_arm(&pair->reader); /* the reader is woken, finds nothing, and sleeps again */

        one_record(pair, true);
    }
    pair_free(pair);
}

/* ... and has released them, with or without a separate credit, before it gets that wake-up. */
static void a_late_ring_is_harmless_when_records_were_held(void **state)
{
    (void)state;
    struct pair *pair = pair_new(64, 0, 0, true);

    for (int i = 0; i < 20; i++) {
        one_record(pair, false);
        via_pipe_arm(&pair->reader);
        assert_true(via_pipe_take_reader_ring(&pair->writer)); /* for the record that was taken */
        via_pipe_release(&pair->reader, 1);
        if (i % 2 != 0) {
            via_pipe_post_credit(&pair->reader);
        }
        via_pipe_arm(&pair->reader);
        assert_false(via_pipe_is_ready(&pair->reader));

        one_record(pair, true);
        via_pipe_release(&pair->reader, 1);
    }
    pair_free(pair);
}

static void a_waiting_writer_is_rung_once(void **state)
{
    (void)state;
    struct pair *pair = pair_new(8, 0, 0, true);
    struct via_pipe_record record;
    uint32_t head = 0;

    pair->writer.want_next = UINT16_MAX - 1;
    for (int lap = 0; lap < 5; lap++) {
        while (via_pipe_send(&pair->writer, &head, 4, NULL, 0) == 0) {
        }
        via_pipe_request_room(&pair->writer);
        via_pipe_request_room(&pair->writer);
        assert_int_equal(via_pipe_writer_room(&pair->writer), 0);
        assert_false(via_pipe_take_writer_ring(&pair->reader)); /* nothing released */
        assert_int_equal(via_pipe_take(&pair->reader, &record), 1);
        via_pipe_release(&pair->reader, 1);
        assert_true(via_pipe_take_writer_ring(&pair->reader));
        assert_false(via_pipe_take_writer_ring(&pair->reader));
        assert_false(via_pipe_want_is_old(&pair->writer));
        assert_int_equal(via_pipe_writer_room(&pair->writer), 1); /* published with it */
        assert_true(via_pipe_want_is_old(&pair->writer));
        via_pipe_request_room(&pair->writer);
        assert_false(via_pipe_want_is_old(&pair->writer));
        assert_false(via_pipe_take_writer_ring(&pair->reader)); /* not twice for one record */
    }
    pair_free(pair);
}

static void records_of_another_epoch_are_void(void **state)
{
    (void)state;
    struct pair *pair = pair_new(4, 0, 0, true);
    struct via_pipe_record record;
    uint32_t head = 5;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(via_pipe_send(&pair->writer, &head, 4, NULL, 0), 0);
    }
    struct via_pipe_writer old = pair->writer;
    pair_start(pair, true, 8);
    assert_false(via_pipe_is_ready(&pair->reader));
    assert_int_equal(via_pipe_take(&pair->reader, &record), 0);
    assert_int_equal(via_pipe_writer_room(&pair->writer), 4);

    /* Credits of the old epoch do not count in the new one. */
    atomic_store(&pair->credit, via_credit_word(7, 3, 2));
    assert_int_equal(via_pipe_send(&pair->writer, &head, 4, NULL, 0), 0);
    assert_int_equal(via_pipe_writer_room(&pair->writer), 3);
    assert_false(via_pipe_take_reader_ring(&pair->writer));
    (void)old;
    assert_int_equal(via_epoch_next(VIA_EPOCH_MAX), VIA_EPOCH_MIN);
    assert_int_equal(via_epoch_next(1), 2);
    pair_free(pair);
}

static void hostile_lengths_are_refused(void **state)
{
    (void)state;
    struct pair *pair = pair_new(4, 320, 64, true);
    struct via_pipe_record record;
    struct via_record_line *line = (struct via_record_line *)(void *)(pair->memory + 64);

    line->word = via_record_word(7, 65, 0);
    assert_int_equal(via_pipe_take(&pair->reader, &record), -EPROTO);
    assert_int_equal(via_pipe_peek(&pair->reader, &record), -EPROTO);
    line->word = via_record_word(7, 0xffff, 0);
    assert_int_equal(via_pipe_take(&pair->reader, &record), -EPROTO);
    line->word = UINT64_MAX; /* a dead link */
    assert_int_equal(via_pipe_take(&pair->reader, &record), 0);
    line->word = via_record_word(7, 64, 1); /* another sequence number */
    assert_int_equal(via_pipe_take(&pair->reader, &record), 0);
    line->word = via_record_word(7, 64, 0);
    assert_int_equal(via_pipe_take(&pair->reader, &record), 1);
    assert_ptr_equal(record.body, pair->memory + 64 + 4 * 64);
    pair_free(pair);
}

static void hostile_credits_break_the_pipe(void **state)
{
    (void)state;
    struct pair *pair = pair_new(4, 0, 0, true);
    uint32_t head = 0;
    assert_int_equal(via_pipe_send(&pair->writer, &head, 4, NULL, 0), 0);
    atomic_store(&pair->credit, via_credit_word(7, 0, 2)); /* more than the sent records */
    assert_int_equal(via_pipe_writer_room(&pair->writer), 0);
    assert_true(pair->writer.broken);
    assert_int_equal(via_pipe_send(&pair->writer, &head, 4, NULL, 0), -EPROTO);

    pair_start(pair, true, 8);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(via_pipe_send(&pair->writer, &head, 4, NULL, 0), 0);
    }
    atomic_store(&pair->credit, via_credit_word(8, 0, 3));
    assert_int_equal(via_pipe_writer_room(&pair->writer), 3);
    atomic_store(&pair->credit, via_credit_word(8, 0, 1)); /* credit that decreases */
    assert_int_equal(via_pipe_writer_room(&pair->writer), 0);
    assert_true(pair->writer.broken);
    pair_free(pair);
}

static void bad_calls_are_refused(void **state)
{
    (void)state;
    struct pair *pair = pair_new(4, 320, 64, true);
    unsigned char big[65] = {0};
    assert_int_equal(via_pipe_send(&pair->writer, big, 57, NULL, 0), -EINVAL);
    assert_int_equal(via_pipe_send(&pair->writer, big, 56, big, 65), -EMSGSIZE);
    assert_int_equal(via_pipe_send(&pair->writer, big, 56, big, 64), 0);
    pair_free(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(geometry_is_checked),
        cmocka_unit_test(rings_wrap),
        cmocka_unit_test(a_free_slot_is_enough),
        cmocka_unit_test(capacity_one_alternates),
        cmocka_unit_test(asking_for_a_release_changes_nothing),
        cmocka_unit_test(peek_then_advance_is_take),
        cmocka_unit_test(bytes_under_way_are_counted),
        cmocka_unit_test(reserve_and_commit_build_in_place),
        cmocka_unit_test(records_can_be_deferred),
        cmocka_unit_test(deferred_records_are_not_rung_for),
        cmocka_unit_test(credit_for_deferred_records_breaks_the_pipe),
        cmocka_unit_test(credits_go_back_by_quarters),
        cmocka_unit_test(an_armed_reader_is_rung_once),
        cmocka_unit_test(a_writer_that_checks_late_does_not_use_up_the_next_ring),
        cmocka_unit_test(a_late_ring_is_harmless_while_records_are_held),
        cmocka_unit_test(a_late_ring_is_harmless_when_records_were_held),
        cmocka_unit_test(a_waiting_writer_is_rung_once),
        cmocka_unit_test(records_of_another_epoch_are_void),
        cmocka_unit_test(hostile_lengths_are_refused),
        cmocka_unit_test(hostile_credits_break_the_pipe),
        cmocka_unit_test(bad_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
