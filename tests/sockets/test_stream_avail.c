/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Zero-copy in a stream: when which end may access the writer's memory, and peers that lie. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/types.h"
#include "sockets/stream/stream.h"
#include "sockets/stream/zcopy_rule.h"

#define SLOTS 8u

/* One direction; the kernel has carried no bytes. */
struct direction {
    struct via_pipe_geometry geometry;
    unsigned char *memory;
    _Atomic uint64_t credit;
    uint32_t data_ends[SLOTS];
    struct via_avail_words at_writer; /* written by the reader */
    struct via_avail_words at_reader;
    struct via_stream_tx tx;
    struct via_stream_rx rx;
};

static void start(struct direction *d)
{
    *d = (struct direction){.geometry = {SLOTS, 1024, 256}};
    assert_int_equal(posix_memalign((void **)&d->memory, 64, via_pipe_memory_bytes(&d->geometry)),
                     0);
    memset(d->memory, 0, via_pipe_memory_bytes(&d->geometry));
    struct via_pipe_target out = {.direct = d->memory};
    struct via_pipe_target back = {.direct = (unsigned char *)&d->credit};
    via_pipe_writer_init(&d->tx.pipe, &d->geometry, &out, &d->credit, d->data_ends, 1);
    via_pipe_reader_init(&d->rx.pipe, &d->geometry, d->memory, &back, 1);
    via_stream_tx_init(&d->tx);
    via_stream_rx_init(&d->rx);
    via_stream_tx_allow_avail(&d->tx, &d->at_writer, &d->at_reader);
    via_stream_rx_allow_avail(&d->rx, &d->at_reader, &d->at_writer);
    assert_int_equal(via_stream_tx_switch(&d->tx, 0), 0);
    assert_int_equal(via_stream_rx_next(&d->rx), VIA_NEXT_KERNEL_UNTIL);
    assert_int_equal(via_stream_rx_kernel_total(&d->rx, 0), 0);
    via_stream_rx_sink(&d->rx, 4096);
}

static void stop(struct direction *d)
{
    free(d->memory);
}

static ssize_t write_some(struct direction *d, const void *data, size_t bytes)
{
    struct iovec iov = {(void *)(uintptr_t)data, bytes};
    struct via_iov cursor;
    assert_int_equal(via_iov_init(&cursor, &iov, 1), 0);
    return via_stream_tx_write(&d->tx, &cursor);
}

static ssize_t read_some(struct direction *d, void *data, size_t max)
{
    struct iovec iov = {data, max};
    struct via_iov cursor;
    assert_int_equal(via_iov_init(&cursor, &iov, 1), 0);
    return via_stream_rx_read(&d->rx, &cursor);
}

/* The reader's action for VIA_NEXT_AVAIL; the memory belongs to this process. */
static void fetch(struct direction *d, void *data, size_t bytes)
{
    assert_int_equal(via_stream_rx_next(&d->rx), VIA_NEXT_AVAIL);
    assert_int_equal(via_stream_rx_claim(&d->rx), 0);
    memcpy(data, (const char *)(uintptr_t)d->rx.avail.address + d->rx.avail.done, bytes);
    via_stream_rx_pulled(&d->rx, bytes);
}

static void offer(struct direction *d, const char *text)
{
    assert_int_equal(via_stream_tx_avail(&d->tx, (uintptr_t)text, strlen(text)), 0);
}

static void assert_avail(struct direction *d, int state, uint64_t done)
{
    uint64_t seen;
    assert_int_equal(via_stream_tx_avail_state(&d->tx, &seen), state);
    assert_int_equal(seen, done);
}

static void assert_reads(struct direction *d, const char *text)
{
    char data[64];
    assert_int_equal(read_some(d, data, sizeof(data)), strlen(text));
    assert_memory_equal(data, text, strlen(text));
}

/* --- normal transfers ------------------------------------------------------------------------ */

static void bytes_are_fetched_where_they_belong_in_the_stream(void **state)
{
    (void)state;
    struct direction d;
    char data[16];
    start(&d);
    assert_int_equal(via_stream_tx_sink(&d.tx), 4096);
    assert_int_equal(write_some(&d, "ab", 2), 2);
    offer(&d, "cdefgh");
    assert_int_equal(write_some(&d, "ij", 2), 2);
    assert_avail(&d, VIA_AVAIL_OPEN, 0);
    assert_reads(&d, "ab");
    fetch(&d, data, 4);
    assert_avail(&d, VIA_AVAIL_OPEN, 4);
    fetch(&d, data + 4, 2);
    assert_memory_equal(data, "cdefgh", 6);
    assert_avail(&d, VIA_AVAIL_ENDED, 6);
    via_stream_tx_avail_end(&d.tx);
    assert_reads(&d, "ij");
    assert_int_equal(via_stream_tx_fin(&d.tx, 0), 0);
    assert_int_equal(via_stream_rx_next(&d.rx), VIA_NEXT_FIN);
    stop(&d);
}

static void bytes_that_the_reader_refuses_follow_as_data(void **state)
{
    (void)state;
    struct direction d;
    char data[16];
    start(&d);
    offer(&d, "abcdef");
    fetch(&d, data, 2);
    via_stream_rx_refuse(&d.rx);
    assert_int_equal(via_stream_rx_next(&d.rx), VIA_NEXT_EMPTY);
    assert_avail(&d, VIA_AVAIL_ENDED, 2);
    via_stream_tx_avail_end(&d.tx);
    assert_int_equal(write_some(&d, "cdef", 4), 4);
    assert_reads(&d, "cdef");
    stop(&d);
}

static void revoked_bytes_are_not_fetched(void **state)
{
    (void)state;
    struct direction d;
    start(&d);
    offer(&d, "abcdef");
    via_stream_tx_avail_revoke(&d.tx);
    assert_avail(&d, VIA_AVAIL_ENDED, 0);
    via_stream_tx_avail_end(&d.tx);
    assert_int_equal(write_some(&d, "abc", 3), 3);
    assert_reads(&d, "abc");
    stop(&d);
}

/* The reader has seen the AVAIL, and claims it too late. */
static void a_claim_after_the_revocation_fails(void **state)
{
    (void)state;
    struct direction d;
    start(&d);
    offer(&d, "abcdef");
    assert_int_equal(via_stream_rx_next(&d.rx), VIA_NEXT_AVAIL);
    via_stream_tx_avail_revoke(&d.tx);
    assert_avail(&d, VIA_AVAIL_ENDED, 0);
    assert_int_equal(via_stream_rx_claim(&d.rx), -ECANCELED);
    assert_avail(&d, VIA_AVAIL_ENDED, 0);
    assert_int_equal(via_stream_rx_next(&d.rx), VIA_NEXT_EMPTY);
    stop(&d);
}

static void a_claim_before_the_revocation_is_waited_for(void **state)
{
    (void)state;
    struct direction d;
    start(&d);
    offer(&d, "abcdef");
    assert_int_equal(via_stream_rx_next(&d.rx), VIA_NEXT_AVAIL);
    assert_int_equal(via_stream_rx_claim(&d.rx), 0);
    via_stream_tx_avail_revoke(&d.tx);
    assert_avail(&d, VIA_AVAIL_CLAIMED, 0);
    via_stream_rx_pulled(&d.rx, 3);
    assert_avail(&d, VIA_AVAIL_ENDED, 3);
    assert_int_equal(via_stream_rx_next(&d.rx), VIA_NEXT_EMPTY);
    stop(&d);
}

static void one_is_open_at_a_time(void **state)
{
    (void)state;
    struct direction d;
    start(&d);
    offer(&d, "abcdef");
    assert_int_equal(via_stream_tx_avail(&d.tx, 1, 1), -EBUSY);
    via_stream_tx_avail_revoke(&d.tx);
    via_stream_tx_avail_end(&d.tx);
    offer(&d, "gh");
    char data[2];
    fetch(&d, data, 2); /* the first AVAIL is void, the second is valid */
    assert_memory_equal(data, "gh", 2);
    assert_avail(&d, VIA_AVAIL_ENDED, 2);
    stop(&d);
}

static void numbers_wrap(void **state)
{
    (void)state;
    struct direction d;
    start(&d);
    for (int lap = 0; lap < 2; lap++) {
        d.tx.avail.id = lap == 0 ? VIA_AVAIL_ID_MASK - 9 : VIA_AVAIL_ID_MASK / 2 - 9;
        for (int i = 0; i < 20; i++) {
            char data[8];
            offer(&d, "abcd");
            if (i % 3 != 0) {
                fetch(&d, data, i % 3 == 1 ? 4 : 1);
            }
            via_stream_tx_avail_revoke(&d.tx);
            assert_avail(&d, VIA_AVAIL_ENDED, i % 3 == 0 ? 0 : i % 3 == 1 ? 4 : 1);
            via_stream_tx_avail_end(&d.tx);
            if (i % 2 == 0) {
                assert_int_equal(via_stream_rx_next(&d.rx), VIA_NEXT_EMPTY);
            }
        }
        assert_int_equal(via_stream_rx_next(&d.rx), VIA_NEXT_EMPTY);
    }
    stop(&d);
}

static void looking_ahead_counts_and_changes_nothing(void **state)
{
    (void)state;
    struct direction d;
    char data[16];
    struct iovec iov = {data, sizeof(data)};
    struct via_iov cursor;
    bool kernel;
    start(&d);
    assert_int_equal(write_some(&d, "ab", 2), 2);
    offer(&d, "cdef");
    assert_int_equal(write_some(&d, "gh", 2), 2);
    assert_int_equal(via_stream_tx_fin(&d.tx, 0), 0);
    assert_int_equal(via_stream_rx_bytes(&d.rx, 100), 8);
    assert_true(via_stream_rx_is_ending(&d.rx));
    assert_int_equal(via_iov_init(&cursor, &iov, 1), 0);
    assert_int_equal(via_stream_rx_peek(&d.rx, &cursor, &kernel),
                     2); /* the bytes that are in the pipe */
    assert_avail(&d, VIA_AVAIL_OPEN, 0);
    assert_reads(&d, "ab");
    assert_int_equal(via_stream_rx_next(&d.rx), VIA_NEXT_AVAIL);
    assert_int_equal(via_stream_rx_bytes(&d.rx, 100), 6);
    /* Learns by a claim that no byte is left. */
    assert_int_equal(via_stream_rx_claim(&d.rx), 0);
    via_stream_rx_pulled(&d.rx, 0);
    assert_avail(&d, VIA_AVAIL_OPEN, 0);
    fetch(&d, data, 1);
    via_stream_tx_avail_revoke(&d.tx);
    assert_int_equal(via_stream_rx_bytes(&d.rx, 100), 2);
    assert_reads(&d, "gh");
    stop(&d);
}

static void no_words_no_zero_copy(void **state)
{
    (void)state;
    struct direction d;
    start(&d);
    via_stream_tx_allow_avail(&d.tx, NULL, NULL);
    via_stream_rx_allow_avail(&d.rx, NULL, NULL);
    via_stream_rx_sink(&d.rx, 4096);
    assert_int_equal(via_stream_tx_sink(&d.tx), 0);
    stop(&d);
}

/* --- peers that lie -------------------------------------------------------------------------- */

static void send_head(struct direction *d, uint64_t bytes, uint64_t id, size_t body)
{
    static const unsigned char nothing[64];
    struct via_stream_head head = {.kind = VIA_STREAM_AVAIL};
    head.u.avail.address = 1;
    head.u.avail.bytes = bytes;
    head.u.avail.id = id;
    assert_int_equal(via_pipe_send(&d->tx.pipe, &head, sizeof(head), nothing, body), 0);
}

static void records_that_make_no_sense_break_the_stream(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes, id;
        size_t body;
    } bad[] = {{0, 1, 0},
               {VIA_AVAIL_BYTES_MAX + 1, 1, 0},
               {UINT64_MAX, 1, 0},
               {1, 1 << 24, 0},
               {1, 1, 64}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct direction d;
        start(&d);
        send_head(&d, bad[i].bytes, bad[i].id, bad[i].body);
        assert_int_equal(via_stream_rx_next(&d.rx), -EPROTO);
        assert_int_equal(via_stream_rx_next(&d.rx), -EPROTO);
        stop(&d);
    }
}

static void an_unrequested_avail_breaks_the_stream(void **state)
{
    (void)state;
    struct direction d;
    start(&d);
    d.rx.avail.wanted = false;
    send_head(&d, 1, 1, 0);
    assert_int_equal(via_stream_rx_next(&d.rx), -EPROTO);
    stop(&d);
}

static void a_reader_that_claims_more_than_there_is_breaks_the_stream(void **state)
{
    (void)state;
    struct direction d;
    uint64_t done;
    start(&d);
    offer(&d, "abcd");
    d.at_writer.pulled = via_pulled_word(d.tx.avail.id, VIA_PULL_OPEN, 5);
    assert_int_equal(via_stream_tx_avail_state(&d.tx, &done), -EPROTO);
    assert_int_equal(write_some(&d, "x", 1), -EPROTO);
    stop(&d);
}

static void a_reader_that_takes_back_breaks_the_stream(void **state)
{
    (void)state;
    struct direction d;
    uint64_t done;
    start(&d);
    offer(&d, "abcd");
    d.at_writer.pulled = via_pulled_word(d.tx.avail.id, VIA_PULL_OPEN, 3);
    assert_avail(&d, VIA_AVAIL_OPEN, 3);
    d.at_writer.pulled = via_pulled_word(d.tx.avail.id, VIA_PULL_OPEN, 2);
    assert_int_equal(via_stream_tx_avail_state(&d.tx, &done), -EPROTO);
    stop(&d);
}

static void words_with_other_numbers_have_no_effect(void **state)
{
    (void)state;
    struct direction d;
    start(&d);
    offer(&d, "abcd");
    d.at_writer.pulled = via_pulled_word(d.tx.avail.id + 1, VIA_PULL_CLAIMED, 4);
    assert_avail(&d, VIA_AVAIL_OPEN, 0);
    via_stream_tx_avail_revoke(&d.tx);
    assert_avail(&d, VIA_AVAIL_ENDED, 0);
    stop(&d);
}

/* --- two threads ----------------------------------------------------------------------------- */

#define ROUNDS 3000
#define MESSAGE 512u

static unsigned char pattern(uint64_t at)
{
    return (unsigned char)((at * 167 + (at >> 8) * 13) % 255);
}

/* Announces memory, revokes it at random times, and overwrites it as soon as this is allowed. */
static void *offer_and_overwrite(void *argument)
{
    struct direction *d = argument;
    static unsigned char data[MESSAGE];
    struct via_rng rng;
    via_rng_init(&rng, 1);
    uint64_t at = 0;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t done = 0;
        for (size_t i = 0; i < MESSAGE; i++) {
            data[i] = pattern(at + i);
        }
        while (via_stream_tx_avail(&d->tx, (uintptr_t)data, MESSAGE) != 0) {
            sched_yield();
        }
        unsigned looks = (unsigned)via_rng_below(&rng, 6);
        int state;
        while ((state = via_stream_tx_avail_state(&d->tx, &done)) != VIA_AVAIL_ENDED) {
            assert_true(state > 0);
            if (looks-- == 0) {
                via_stream_tx_avail_revoke(&d->tx);
            }
            sched_yield();
        }
        memset(data, 255, (size_t)done);
        via_stream_tx_avail_end(&d->tx);
        while (done < MESSAGE) {
            ssize_t n = write_some(d, data + done, MESSAGE - (size_t)done);
            assert_true(n > 0 || n == -EAGAIN);
            if (n > 0) {
                memset(data + done, 255, (size_t)n);
                done += (uint64_t)n;
            } else {
                sched_yield();
            }
        }
        at += MESSAGE;
    }
    assert_int_equal(via_stream_tx_fin(&d->tx, 0), 0);
    return NULL;
}

static void assert_pattern(const unsigned char *data, uint64_t at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] != pattern(at + i)) {
            fail_msg("byte %llu is %u, not %u", (unsigned long long)(at + i), data[i],
                     pattern(at + i));
        }
    }
}

static void memory_is_never_read_after_it_was_given_back(void **state)
{
    (void)state;
    struct direction d;
    pthread_t thread;
    struct via_rng rng;
    unsigned char data[MESSAGE];
    uint64_t at = 0;
    uint64_t fetched = 0;
    start(&d);
    via_rng_init(&rng, 2);
    assert_int_equal(pthread_create(&thread, NULL, offer_and_overwrite, &d), 0);
    for (;;) {
        int next = via_stream_rx_next(&d.rx);
        if (next == VIA_NEXT_FIN) {
            break;
        }
        ssize_t n = 0;
        if (next == VIA_NEXT_AVAIL && via_stream_rx_claim(&d.rx) == 0) {
            n = (ssize_t)via_min(1 + via_rng_below(&rng, MESSAGE),
                                 d.rx.avail.bytes - d.rx.avail.done);
            memcpy(data, (unsigned char *)(uintptr_t)d.rx.avail.address + d.rx.avail.done,
                   (size_t)n);
            via_stream_rx_pulled(&d.rx, (uint64_t)n);
            if (d.rx.avail.held && via_rng_below(&rng, 8) == 0) {
                via_stream_rx_refuse(&d.rx);
            }
            fetched += (uint64_t)n;
        } else if (next == VIA_NEXT_DATA) {
            n = read_some(&d, data, sizeof(data));
        } else {
            sched_yield();
        }
        assert_true(n >= 0);
        assert_pattern(data, at, (size_t)n);
        at += (uint64_t)n;
    }
    pthread_join(thread, NULL);
    assert_int_equal(at, (uint64_t)ROUNDS * MESSAGE);
    assert_true(fetched > 0 && fetched < at); /* both fetches and copies happened */
    stop(&d);
}

/* --- the size from which zero-copy is used --------------------------------------------------- */

/* The choice for sends of the smallest size. */
static struct via_zcopy_choice at_first(void)
{
    struct via_zcopy_choice choices[VIA_ZCOPY_SIZES];
    via_zcopy_begin(choices);
    return choices[0];
}

/* Makes `count` sends; copying and fetching take `copy` and `fetch` ns per KiB. Returns the number
 * that was fetched. */
static unsigned sends(struct via_zcopy_choice *choice, unsigned count, uint64_t copy,
                      uint64_t fetch)
{
    unsigned fetched = 0;
    for (unsigned i = 0; i < count; i++) {
        bool fetches = via_zcopy_choose(choice);
        via_zcopy_learn(choice, fetches, 64 * 1024, 64 * (fetches ? fetch : copy));
        fetched += fetches ? 1 : 0;
    }
    return fetched;
}

/* Until the first decision. */
#define FIRST_OF(part) (2 * VIA_ZCOPY_DECIDES * VIA_ZCOPY_BLOCK(part))
#define FIRST FIRST_OF(VIA_ZCOPY_PART)

static void the_faster_way_is_found_and_kept_watching(void **state)
{
    (void)state;
    struct via_zcopy_choice choice = at_first();
    assert_int_equal(sends(&choice, FIRST, 200, 150), FIRST / 2);
    unsigned most = 4 * VIA_ZCOPY_SELDOM;
    assert_in_range(sends(&choice, most, 200, 150), most - most / 20, most - 1);
    /* Fetching becomes slow. */
    assert_in_range(sends(&choice, most, 200, 300), 1, most / 2);
    /* Copying becomes slow, too. */
    assert_in_range(sends(&choice, most, 900, 300), most / 2, most);
    /* When both are about as fast, the method stays for a while; in the end it is copying. */
    sends(&choice, most, 301, 300);
    assert_in_range(sends(&choice, most, 301, 300), most - most / 20, most - 1);
    sends(&choice, most, 300, 301);
    assert_in_range(sends(&choice, most, 300, 299), 1, most / 20);
}

/* Trials of a much slower method are expensive, so they are rare. */
static void a_much_slower_method_is_rarely_tried(void **state)
{
    (void)state;
    struct via_zcopy_choice choice = at_first();
    unsigned most = 8 * VIA_ZCOPY_SELDOM;
    sends(&choice, most, 100, 250);
    assert_in_range(sends(&choice, most, 100, 250), 1, most / 150);
    /* When the other method becomes faster, the choice changes. */
    assert_in_range(sends(&choice, most, 100, 50), most / 2, most);
}

/* Sometimes the other process gets no CPU for some milliseconds. */
static void an_interruption_changes_nothing(void **state)
{
    (void)state;
    for (unsigned at = 0; at < FIRST; at++) {
        struct via_zcopy_choice choice = at_first();
        sends(&choice, at, 100, 150);
        sends(&choice, 1, 50000, 50000);
        sends(&choice, FIRST - at, 100, 150);
        assert_true(choice.compared >= VIA_ZCOPY_DECIDES && !choice.fetches);
        unsigned fetched = 0;
        for (unsigned i = 0; i < 200; i++) {
            fetched += sends(&choice, 97, 100, 150);
            fetched += sends(&choice, 1, 50000, 50000);
        }
        assert_in_range(fetched, 1, 98 * 200 / 20);
    }
}

/* For some time all sends take twice as long, then as long as before: a trial at the moment of such
 * a change does not measure the method. */
static void slow_moments_are_no_way_s_fault(void **state)
{
    (void)state;
    for (unsigned length = 100; length < 3000; length += 97) {
        struct via_zcopy_choice choice = at_first();
        unsigned fetched = 0;
        sends(&choice, FIRST, 100, 130);
        for (unsigned i = 0; i < 40; i++) {
            fetched += sends(&choice, length, 100, 130);
            fetched += sends(&choice, length, 200, 260);
        }
        assert_in_range(fetched, 1, 2 * 40 * length / 5);
    }
}

static void the_first_of_a_block_does_not_count(void **state)
{
    (void)state;
    struct via_zcopy_choice choice = at_first();
    for (unsigned i = 0; i < FIRST; i++) {
        bool fetches = via_zcopy_choose(&choice);
        bool first = i % VIA_ZCOPY_BLOCK(VIA_ZCOPY_PART) < VIA_ZCOPY_SKIP(VIA_ZCOPY_PART);
        via_zcopy_learn(&choice, fetches, 65536, first ? (fetches ? 900000 : 1) : 20000);
        assert_int_equal(choice.compared == VIA_ZCOPY_DECIDES, i == FIRST - 1);
    }
    for (unsigned i = 0; i < VIA_ZCOPY_DECIDES; i++) {
        assert_int_equal(choice.ratios[i], VIA_ZCOPY_SAME);
    }
}

/* Some fetches end early and give no measurement. */
static void sends_without_a_measurement_delay_no_decision(void **state)
{
    (void)state;
    struct via_zcopy_choice choice = at_first();
    for (unsigned i = 0; i < 20 * FIRST; i++) {
        bool fetches = via_zcopy_choose(&choice);
        if (i % 7 != 0) {
            via_zcopy_learn(&choice, fetches, 65536, fetches ? 10000 : 20000);
        }
    }
    assert_true(choice.compared >= VIA_ZCOPY_DECIDES && choice.fetches);
    /* Every fetch fails from now on: the attempts to fetch must end. */
    unsigned fetched = 0;
    choice = at_first();
    for (unsigned i = 0; i < 1000; i++) {
        bool fetches = via_zcopy_choose(&choice);
        fetched += fetches ? 1 : 0;
        if (!fetches) {
            via_zcopy_learn(&choice, false, 65536, 20000);
        }
    }
    assert_in_range(fetched, 1, 700);
}

static void sizes_from_which_it_pays(void **state)
{
    (void)state;
    struct via_zcopy_choice choices[VIA_ZCOPY_SIZES];
    via_zcopy_begin(choices);
    assert_int_equal(via_zcopy_size(VIA_ZCOPY_LEAST), 0);
    assert_int_equal(via_zcopy_size(2 * VIA_ZCOPY_LEAST - 1), 0);
    assert_int_equal(via_zcopy_size(1u << 20), 4);
    assert_int_equal(via_zcopy_size(SIZE_MAX), VIA_ZCOPY_SIZES - 1);
    /* Each size has a choice of its own. */
    sends(&choices[4], FIRST_OF(choices[4].part), 200, 150);
    sends(&choices[0], FIRST, 150, 200);
    assert_true(choices[4].fetches && !choices[0].fetches && choices[5].compared == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_fetched_where_they_belong_in_the_stream),
        cmocka_unit_test(bytes_that_the_reader_refuses_follow_as_data),
        cmocka_unit_test(revoked_bytes_are_not_fetched),
        cmocka_unit_test(a_claim_after_the_revocation_fails),
        cmocka_unit_test(a_claim_before_the_revocation_is_waited_for),
        cmocka_unit_test(one_is_open_at_a_time),
        cmocka_unit_test(numbers_wrap),
        cmocka_unit_test(looking_ahead_counts_and_changes_nothing),
        cmocka_unit_test(no_words_no_zero_copy),
        cmocka_unit_test(records_that_make_no_sense_break_the_stream),
        cmocka_unit_test(an_unrequested_avail_breaks_the_stream),
        cmocka_unit_test(a_reader_that_claims_more_than_there_is_breaks_the_stream),
        cmocka_unit_test(a_reader_that_takes_back_breaks_the_stream),
        cmocka_unit_test(words_with_other_numbers_have_no_effect),
        cmocka_unit_test(memory_is_never_read_after_it_was_given_back),
        cmocka_unit_test(the_faster_way_is_found_and_kept_watching),
        cmocka_unit_test(a_much_slower_method_is_rarely_tried),
        cmocka_unit_test(an_interruption_changes_nothing),
        cmocka_unit_test(slow_moments_are_no_way_s_fault),
        cmocka_unit_test(the_first_of_a_block_does_not_count),
        cmocka_unit_test(sends_without_a_measurement_delay_no_decision),
        cmocka_unit_test(sizes_from_which_it_pays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
