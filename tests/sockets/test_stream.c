/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The stream state machine alone, with a queue in place of the kernel connection. */
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
#include "sockets/stream/receipt.h"
#include "sockets/stream/stream.h"
#include "sockets/stream/stream_quick.h"

#define SLOTS_MAX 64u
#define STREAM_BYTES (1u << 18)

/* One direction with both ends, and the kernel connection between them. */
struct direction {
    struct via_pipe_geometry geometry;
    unsigned char *memory;
    _Atomic uint64_t credit;
    uint32_t data_ends[SLOTS_MAX];
    struct via_stream_tx tx;
    struct via_stream_rx rx;
    unsigned char *kernel; /* all bytes that were sent through the kernel */
    size_t kernel_sent;
    size_t kernel_read;
    struct via_rng rng; /* with quick: chooses the path */
    bool quick;
    bool switched;
};

static void start(struct direction *d, uint32_t slots, uint32_t data_bytes, uint32_t body_bytes)
{
    *d = (struct direction){.geometry = {slots, data_bytes, body_bytes}};
    assert_int_equal(via_pipe_geometry_check(&d->geometry), 0);
    assert_int_equal(posix_memalign((void **)&d->memory, 64, via_pipe_memory_bytes(&d->geometry)),
                     0);
    memset(d->memory, 0, via_pipe_memory_bytes(&d->geometry));
    d->kernel = malloc(STREAM_BYTES);
    assert_non_null(d->kernel);
    struct via_pipe_target out = {.direct = d->memory};
    struct via_pipe_target back = {.direct = (unsigned char *)&d->credit};
    via_pipe_writer_init(&d->tx.pipe, &d->geometry, &out, &d->credit, d->data_ends, 1);
    via_pipe_reader_init(&d->rx.pipe, &d->geometry, d->memory, &back, 1);
    via_stream_tx_init(&d->tx);
    via_stream_rx_init(&d->rx);
}

/* Starts with a record number shortly before `sequence` wraps, so that numbers wrap soon. */
static void start_at(struct direction *d, uint32_t sequence)
{
    via_pipe_writer_start_at(&d->tx.pipe, sequence);
    via_pipe_reader_start_at(&d->rx.pipe, sequence);
}

static void stop(struct direction *d)
{
    free(d->memory);
    free(d->kernel);
}

static void kernel_send(struct direction *d, const void *data, size_t bytes)
{
    memcpy(d->kernel + d->kernel_sent, data, bytes);
    d->kernel_sent += bytes;
}

static size_t kernel_recv(struct direction *d, void *data, size_t max)
{
    size_t bytes = via_min(d->kernel_sent - d->kernel_read, max);
    memcpy(data, d->kernel + d->kernel_read, bytes);
    d->kernel_read += bytes;
    return bytes;
}

static ssize_t write_some(struct direction *d, const void *data, size_t bytes)
{
    struct iovec iov = {(void *)(uintptr_t)data, bytes};
    struct via_iov cursor;
    assert_int_equal(via_iov_init(&cursor, &iov, 1), 0);
    return via_stream_tx_write(&d->tx, &cursor);
}

/* Reads the next bytes as a reader does, from the kernel or the pipe. 0: none now; *ret_end at the
 * end. */
static size_t read_some(struct direction *d, void *data, size_t max, bool *ret_end)
{
    struct iovec iov = {data, max};
    struct via_iov cursor;
    assert_int_equal(via_iov_init(&cursor, &iov, 1), 0);
    *ret_end = false;
    int next = via_stream_rx_next(&d->rx);
    switch (next) {
    case VIA_NEXT_KERNEL:
        return kernel_recv(d, data, max);
    case VIA_NEXT_KERNEL_UNTIL:
        if (!d->rx.kernel_known) {
            assert_int_equal(via_stream_rx_kernel_total(&d->rx, d->kernel_read), 0);
            return read_some(d, data, max, ret_end);
        }
        size_t n = kernel_recv(d, data, via_min(max, (size_t)via_stream_rx_kernel_left(&d->rx)));
        via_stream_rx_kernel_read(&d->rx, n);
        return n;
    case VIA_NEXT_DATA:
        return (size_t)via_stream_rx_read(&d->rx, &cursor);
    case VIA_NEXT_FIN:
        *ret_end = true;
        return 0;
    default:
        assert_int_equal(next, VIA_NEXT_EMPTY);
        return 0;
    }
}

/* Byte `at` of every stream in these tests. */
static unsigned char pattern(uint64_t at)
{
    return (unsigned char)(at * 167 + (at >> 8) * 13 + 5);
}

static void fill(unsigned char *data, uint64_t at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        data[i] = pattern(at + i);
    }
}

static void check(const unsigned char *data, uint64_t at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] != pattern(at + i)) {
            fail_msg("byte %llu is %u, not %u", (unsigned long long)(at + i), data[i],
                     pattern(at + i));
        }
    }
}

/* --- spans ----------------------------------------------------------------------------------- */

static void bytes_before_the_switch_are_read_from_the_kernel_first(void **state)
{
    (void)state;
    struct direction d;
    char data[64];
    bool end;
    start(&d, 8, 1024, 256);
    kernel_send(&d, "abc", 3);
    assert_int_equal(read_some(&d, data, 2, &end), 2);
    assert_int_equal(via_stream_tx_switch(&d.tx, 3), 0);
    assert_int_equal(write_some(&d, "def", 3), 3);
    assert_int_equal(via_stream_rx_next(&d.rx), VIA_NEXT_KERNEL_UNTIL);
    assert_int_equal(read_some(&d, data, sizeof(data), &end), 1);
    assert_int_equal(data[0], 'c');
    assert_int_equal(read_some(&d, data, sizeof(data), &end), 3);
    assert_memory_equal(data, "def", 3);
    stop(&d);
}

static void a_reader_that_has_more_than_was_sent_notices(void **state)
{
    (void)state;
    struct direction d;
    start(&d, 8, 1024, 256);
    assert_int_equal(via_stream_tx_switch(&d.tx, 3), 0);
    assert_int_equal(via_stream_rx_next(&d.rx), VIA_NEXT_KERNEL_UNTIL);
    assert_int_equal(via_stream_rx_kernel_total(&d.rx, 4), -EPROTO);
    assert_int_equal(via_stream_rx_next(&d.rx), VIA_NEXT_KERNEL_UNTIL);
    assert_true(d.rx.broken);
    stop(&d);
}

static void the_kernel_is_used_again_only_when_the_switch_was_seen(void **state)
{
    (void)state;
    struct direction d;
    char data[8];
    bool end;
    start(&d, 8, 1024, 256);
    assert_int_equal(via_stream_tx_switch(&d.tx, 0), 0);
    assert_int_equal(write_some(&d, "ab", 2), 2);
    assert_int_equal(via_stream_tx_demote_again(&d.tx, 0, false), 0);
    assert_false(via_stream_tx_is_demoted(&d.tx));
    assert_int_equal(read_some(&d, data, 1, &end), 1);
    assert_true(via_stream_tx_is_demoted(&d.tx));
    kernel_send(&d, "cd", 2);
    assert_int_equal(read_some(&d, data, sizeof(data), &end), 1);
    assert_int_equal(data[0], 'b');
    assert_int_equal(read_some(&d, data, sizeof(data), &end), 2);
    assert_memory_equal(data, "cd", 2);
    stop(&d);
}

static void fin_has_room_in_a_full_pipe(void **state)
{
    (void)state;
    struct direction d;
    char data[64];
    bool end = false;
    size_t total = 0;
    size_t n;
    start(&d, 8, 1024, 256);
    assert_int_equal(via_stream_tx_switch(&d.tx, 0), 0);
    ssize_t written = 0;
    while (write_some(&d, "x", 1) == 1) {
        written++;
    }
    assert_int_equal(write_some(&d, "x", 1), -EAGAIN);
    assert_false(via_stream_tx_is_writable(&d.tx));
    assert_int_equal(via_stream_tx_fin(&d.tx, VIA_STREAM_FIN_CLOSED), 0);
    assert_int_equal(via_stream_tx_fin(&d.tx, 0), -EALREADY);
    assert_int_equal(write_some(&d, "x", 1), -EPIPE);
    /* The position of the kernel span is not known yet. */
    assert_true(via_stream_rx_is_ending(&d.rx) == false);
    do {
        n = read_some(&d, data, 1, &end);
        total += n;
    } while (n != 0);
    assert_true(end);
    assert_int_equal(total, written);
    assert_int_equal(d.rx.fin_flags, VIA_STREAM_FIN_CLOSED);
    stop(&d);
}

static void peeking_takes_nothing(void **state)
{
    (void)state;
    struct direction d;
    char data[600];
    char body[300];
    bool end;
    start(&d, 8, 1024, 256);
    memset(body, 'b', sizeof(body));
    assert_int_equal(via_stream_tx_switch(&d.tx, 0), 0);
    assert_int_equal(write_some(&d, "head", 4), 4);
    assert_int_equal(write_some(&d, body, 200), 200);
    assert_int_equal(read_some(&d, data, 1, &end), 1);
    for (int i = 0; i < 3; i++) {
        struct iovec iov[2] = {{data, 2}, {data + 2, sizeof(data) - 2}};
        struct via_iov cursor;
        bool kernel;
        assert_int_equal(via_iov_init(&cursor, iov, 2), 0);
        assert_int_equal(via_stream_rx_peek(&d.rx, &cursor, &kernel), 203);
        assert_false(kernel);
        assert_memory_equal(data, "eadbbb", 6);
        assert_int_equal(via_stream_rx_bytes(&d.rx, SIZE_MAX), 203);
        assert_true(via_stream_rx_bytes(&d.rx, 2) >= 2);
    }
    assert_int_equal(read_some(&d, data, sizeof(data), &end), 203);
    stop(&d);
}

static void the_end_is_seen_behind_unread_data(void **state)
{
    (void)state;
    struct direction d;
    char data[8];
    bool end;
    start(&d, 8, 1024, 256);
    assert_int_equal(via_stream_tx_switch(&d.tx, 0), 0);
    assert_int_equal(read_some(&d, data, sizeof(data), &end), 0);
    assert_int_equal(write_some(&d, "ab", 2), 2);
    assert_false(via_stream_rx_is_ending(&d.rx));
    assert_int_equal(via_stream_tx_fin(&d.tx, 0), 0);
    assert_true(via_stream_rx_is_ending(&d.rx));
    assert_int_equal(via_stream_rx_next(&d.rx), VIA_NEXT_DATA);
    stop(&d);
}

static void a_writer_that_waits_is_rung_for_what_arming_gives_back(void **state)
{
    (void)state;
    struct direction d;
    char data[2000];
    bool end;
    memset(data, 'd', sizeof(data));
    start(&d, 16, 3520, 1728); /* room for two large records and a bit */
    assert_int_equal(via_stream_tx_switch(&d.tx, 0), 0);
    assert_int_equal(read_some(&d, data, sizeof(data), &end), 0);
    /* Less than the reader releases at once, but enough that a large record does not fit. */
    assert_int_equal(write_some(&d, data, 1152), 1152);
    assert_int_equal(read_some(&d, data, sizeof(data), &end), 1152);
    (void)via_stream_rx_take_writer_ring(&d.rx);
    assert_int_equal(write_some(&d, data, 799), 799);
    assert_int_equal(read_some(&d, data, sizeof(data), &end), 799);
    assert_false(via_stream_rx_take_writer_ring(&d.rx));
    assert_int_equal(write_some(&d, data, 1728), -EAGAIN);
    via_pipe_request_room(&d.tx.pipe);
    assert_int_equal(write_some(&d, data, 1728), -EAGAIN);
    via_stream_rx_arm(&d.rx);
    assert_true(via_stream_rx_take_writer_ring(&d.rx));
    assert_int_equal(write_some(&d, data, 1728), 1728);
    stop(&d);
}

/* --- random histories ------------------------------------------------------------------------ */

/* As send(): by the inline path if possible. */
static ssize_t send_some(struct direction *d, const void *data, size_t bytes)
{
    if (d->quick && via_rng_below(&d->rng, 4) != 0 &&
        via_stream_tx_write_quick(&d->tx, data, bytes)) {
        return (ssize_t)bytes;
    }
    return write_some(d, data, bytes);
}

/* As recv(): by the inline path if possible. */
static size_t recv_some(struct direction *d, unsigned char *data, size_t max, bool *ret_end)
{
    size_t n = 0;
    *ret_end = false;
    if (d->quick && via_rng_below(&d->rng, 4) != 0) {
        n = via_stream_rx_quick(&d->rx, data, max, via_rng_below(&d->rng, 4) == 0);
    }
    return n != 0 ? n : read_some(d, data, max, ret_end);
}

static void write_step(struct direction *d, struct via_rng *rng, uint64_t *position)
{
    unsigned char data[2048];
    size_t bytes = 1 + via_rng_below(rng, via_rng_below(rng, 4) == 0 ? sizeof(data) : 60);
    bytes = via_min(bytes, (size_t)(STREAM_BYTES - *position));
    fill(data, *position, bytes);
    if (d->tx.span == VIA_SPAN_PIPE) {
        d->tx.past_caches = via_rng_below(rng, 2) == 0;
        ssize_t n = send_some(d, data, bytes);
        if (n != -EAGAIN) {
            assert_true(n > 0);
            *position += (uint64_t)n;
        }
        if (via_rng_below(rng, 200) == 0) {
            assert_int_equal(via_stream_tx_demote_again(&d->tx, 0, false), 0);
        }
    } else if (d->switched && !via_stream_tx_is_demoted(&d->tx)) {
        return; /* the writer may not use the kernel yet */
    } else if (via_rng_below(rng, 20) == 0) {
        int rc = via_stream_tx_switch(&d->tx, d->kernel_sent);
        assert_true(rc == 0 || rc == -EAGAIN);
        d->switched |= rc == 0;
    } else {
        kernel_send(d, data, bytes);
        *position += bytes;
    }
}

/* quick: uses the inline paths at random, at both ends, independently of each other. */
static void try_histories(uint64_t seeds, bool quick)
{
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        struct via_rng rng;
        struct direction d;
        uint64_t sent = 0;
        uint64_t received = 0;
        bool end = false;
        via_rng_init(&rng, seed);
        uint32_t slots = 4u << via_rng_below(&rng, 4);
        uint32_t body = 64u * (1 + (uint32_t)via_rng_below(&rng, 8));
        start(&d, slots, 2 * body + 64u * (uint32_t)via_rng_below(&rng, 30), body);
        d.quick = quick;
        d.rng = rng;
        start_at(&d, (uint32_t)0 - 50);
        while (received < STREAM_BYTES && !end) {
            unsigned char data[3000];
            if (sent < STREAM_BYTES && via_rng_below(&rng, 2) == 0) {
                write_step(&d, &rng, &sent);
            } else {
                size_t max = 1 + via_rng_below(&rng, sizeof(data));
                size_t n = recv_some(&d, data, max, &end);
                check(data, received, n);
                received += n;
            }
            assert_true(received <= sent);
        }
        assert_int_equal(received, STREAM_BYTES);
        assert_int_equal(via_stream_tx_fin(&d.tx, 0), 0);
        stop(&d);
    }
}

static void any_history_gives_the_bytes_in_order(void **state)
{
    (void)state;
    try_histories(300, false);
}

static void so_does_any_history_by_the_short_ways(void **state)
{
    (void)state;
    try_histories(300, true);
}

/* --- the inline paths ------------------------------------------------------------------------ */

static void switch_to_pipe(struct direction *d)
{
    assert_int_equal(via_stream_tx_switch(&d->tx, 0), 0);
    assert_int_equal(via_stream_rx_next(&d->rx), VIA_NEXT_KERNEL_UNTIL);
    assert_int_equal(via_stream_rx_kernel_total(&d->rx, 0), 0);
}

static void start_in_pipe(struct direction *d)
{
    start(d, 16, 1024, 256);
    switch_to_pipe(d);
}

static void a_message_of_any_size_comes_whole(void **state)
{
    (void)state;
    struct direction d;
    unsigned char data[256], got[257];
    start_in_pipe(&d);
    for (size_t bytes = 1; bytes <= sizeof(data); bytes++) {
        fill(data, bytes, bytes);
        memset(got, 0xee, sizeof(got));
        assert_false(via_stream_rx_has_quick(&d.rx));
        assert_true(via_stream_tx_write_quick(&d.tx, data, bytes));
        assert_true(via_stream_rx_has_quick(&d.rx));
        /* A record is not read in part. */
        assert_int_equal(via_stream_rx_quick(&d.rx, got, bytes - 1, false), 0);
        assert_int_equal(via_stream_rx_quick(&d.rx, got, bytes, false), bytes);
        assert_memory_equal(got, data, bytes);
        assert_int_equal(got[bytes], 0xee);
        assert_int_equal(via_stream_rx_quick(&d.rx, got, sizeof(got), false), 0);
        via_pipe_writer_room(&d.tx.pipe); /* takes in the credit */
    }
    assert_false(via_stream_tx_write_quick(&d.tx, data, 0));
    assert_false(via_stream_tx_write_quick(&d.tx, data, 257)); /* longer than a record */
    stop(&d);
}

static void all_that_is_wanted_or_nothing(void **state)
{
    (void)state;
    struct direction d;
    unsigned char got[200];
    start_in_pipe(&d);
    assert_true(via_stream_tx_write_quick(&d.tx, "abc", 3));
    assert_int_equal(via_stream_rx_quick(&d.rx, got, 4, true), 0);
    assert_true(via_stream_tx_write_quick(&d.tx, "de", 2));
    assert_int_equal(via_stream_rx_quick(&d.rx, got, 4, true), 0); /* and not a part of a record */
    assert_int_equal(via_stream_rx_quick(&d.rx, got, 5, true), 5);
    assert_memory_equal(got, "abcde", 5);
    stop(&d);
}

static void slots_for_the_end_are_left_free(void **state)
{
    (void)state;
    struct direction d;
    bool end;
    unsigned char got[64];
    start_in_pipe(&d);
    unsigned sent = 0;
    while (via_stream_tx_write_quick(&d.tx, "x", 1)) {
        sent++;
    }
    assert_int_equal(sent, 16 - 1 - 2); /* SWITCH takes one slot, if its credit has not been read */
    assert_int_equal(via_stream_tx_demote_again(&d.tx, 0, false), 0);
    /* Credit is returned by the quarter of the ring. */
    assert_int_equal(via_stream_rx_quick(&d.rx, got, sizeof(got), false), 5);
    assert_int_equal(read_some(&d, got, sizeof(got), &end), sent - 5);
    assert_int_equal(via_stream_rx_next(&d.rx), VIA_NEXT_KERNEL);
    assert_false(via_stream_tx_write_quick(&d.tx, "x", 1)); /* not outside of a pipe span either */
    stop(&d);
}

/* With many slots, so that credit is returned only because of bodies. */
static void room_for_bodies_returns_by_the_quarter(void **state)
{
    (void)state;
    struct direction d;
    unsigned char data[256] = {0};
    start(&d, 64, 1024, 256);
    assert_int_equal(via_stream_tx_switch(&d.tx, 0), 0);
    assert_int_equal(via_stream_rx_next(&d.rx), VIA_NEXT_KERNEL_UNTIL);
    assert_int_equal(via_stream_rx_kernel_total(&d.rx, 0), 0);
    for (int i = 0; i < 4; i++) {
        assert_true(via_stream_tx_write_quick(&d.tx, data, 256));
    }
    assert_false(via_stream_tx_write_quick(&d.tx, data, 256));
    assert_int_equal(via_stream_rx_quick(&d.rx, data, 256, false), 256);
    assert_true(d.rx.posted);
    assert_true(via_pipe_writer_has_place(&d.tx.pipe, 256)); /* takes in the credit */
    assert_true(via_stream_tx_write_quick(&d.tx, data, 256));
    stop(&d);
}

/* Both ends may send as much as the pipe holds before either receives. So the inline path must not
 * delay the credit of the last read longer than the other path, nor the reverse. */
static void room_returns_at_the_same_records(void **state)
{
    (void)state;
    static const size_t reads[] = {1, 2, 1}; /* number of records; two of them are a quarter */
    uint32_t kept[2];
    for (unsigned quick = 0; quick < 2; quick++) {
        struct direction d;
        unsigned char data[256] = {0};
        unsigned char got[2 * sizeof(data)];
        start(&d, 64, 8 * sizeof(data), sizeof(data));
        switch_to_pipe(&d);
        for (unsigned i = 0; i < 4; i++) {
            assert_true(via_stream_tx_write_quick(&d.tx, data, sizeof(data)));
        }
        for (unsigned i = 0; i < VIA_ARRAY_COUNT(reads); i++) {
            for (size_t left = reads[i] * sizeof(data), n; left != 0; left -= n) {
                struct iovec iov = {got, left};
                struct via_iov cursor;
                assert_int_equal(via_iov_init(&cursor, &iov, 1), 0);
                n = quick ? via_stream_rx_quick(&d.rx, got, left, false)
                          : (size_t)via_stream_rx_read(&d.rx, &cursor);
                assert_in_range(n, 1, left);
            }
        }
        kept[quick] = d.rx.pipe.released - d.rx.pipe.posted;
        stop(&d);
    }
    assert_int_equal(kept[0], 0);
    assert_int_equal(kept[1], kept[0]);
}

/* --- hostile writers ------------------------------------------------------------------------- */

static void send_raw(struct direction *d, const struct via_stream_head *head, const void *body,
                     size_t body_bytes)
{
    assert_int_equal(via_pipe_send(&d->tx.pipe, head, sizeof(*head), body, body_bytes), 0);
}

static void expect_broken(struct direction *d)
{
    int next = via_stream_rx_next(&d->rx);
    assert_int_equal(next, -EPROTO);
    assert_int_equal(via_stream_rx_next(&d->rx), -EPROTO);
    stop(d);
}

static void records_that_make_no_sense_break_the_stream(void **state)
{
    (void)state;
    struct direction d;
    char body[64] = {0};
    struct via_stream_head head;

    head = (struct via_stream_head){.kind = VIA_STREAM_DATA, .inline_bytes = 1};
    start(&d, 8, 1024, 256); /* data before SWITCH */
    send_raw(&d, &head, NULL, 0);
    expect_broken(&d);

    head = (struct via_stream_head){.kind = VIA_STREAM_DATA, .inline_bytes = 49};
    start(&d, 8, 1024, 256); /* more inline bytes than the head holds */
    assert_int_equal(via_stream_tx_switch(&d.tx, 0), 0);
    assert_int_equal(via_stream_rx_next(&d.rx), VIA_NEXT_KERNEL_UNTIL);
    assert_int_equal(via_stream_rx_kernel_total(&d.rx, 0), 0);
    send_raw(&d, &head, NULL, 0);
    expect_broken(&d);

    head = (struct via_stream_head){.kind = VIA_STREAM_SWITCH};
    start(&d, 8, 1024, 256); /* control with a body */
    send_raw(&d, &head, body, sizeof(body));
    expect_broken(&d);

    head = (struct via_stream_head){.kind = VIA_STREAM_FIN};
    start(&d, 8, 1024, 256); /* FIN in a kernel span */
    send_raw(&d, &head, NULL, 0);
    expect_broken(&d);

    head = (struct via_stream_head){.kind = 77};
    start(&d, 8, 1024, 256); /* no such kind */
    send_raw(&d, &head, NULL, 0);
    expect_broken(&d);

    start(&d, 8, 1024, 256); /* FIN at another byte than this */
    assert_int_equal(via_stream_tx_switch(&d.tx, 0), 0);
    assert_int_equal(via_stream_rx_next(&d.rx), VIA_NEXT_KERNEL_UNTIL);
    assert_int_equal(via_stream_rx_kernel_total(&d.rx, 0), 0);
    head = (struct via_stream_head){.kind = VIA_STREAM_FIN, .u = {.count = 1}};
    send_raw(&d, &head, NULL, 0);
    expect_broken(&d);
}

static void empty_records_do_not_keep_a_reader_forever(void **state)
{
    (void)state;
    struct direction d;
    struct via_stream_head head = {.kind = VIA_STREAM_DATA};
    start(&d, 8, 1024, 256);
    assert_int_equal(via_stream_tx_switch(&d.tx, 0), 0);
    assert_int_equal(via_stream_rx_next(&d.rx), VIA_NEXT_KERNEL_UNTIL);
    assert_int_equal(via_stream_rx_kernel_total(&d.rx, 0), 0);
    for (int i = 0; i < 6; i++) {
        send_raw(&d, &head, NULL, 0);
    }
    assert_int_equal(via_stream_rx_next(&d.rx), VIA_NEXT_EMPTY);
    stop(&d);
}

static void the_short_way_leaves_what_is_odd_alone(void **state)
{
    (void)state;
    static const struct via_stream_head heads[] = {
        {.kind = VIA_STREAM_DATA, .inline_bytes = 0},
        {.kind = VIA_STREAM_DATA, .inline_bytes = VIA_STREAM_INLINE_BYTES_MAX + 1},
        {.kind = VIA_STREAM_DATA, .inline_bytes = 255},
        {.kind = VIA_STREAM_SWITCH, .inline_bytes = 8},
        {.kind = VIA_STREAM_FIN, .inline_bytes = 8},
        {.kind = VIA_STREAM_AVAIL, .inline_bytes = 8},
        {.kind = 0, .inline_bytes = 8},
        {.kind = 77, .inline_bytes = 8},
    };
    unsigned char got[4096];
    for (size_t i = 0; i < sizeof(heads) / sizeof(*heads); i++) {
        struct direction d;
        start_in_pipe(&d);
        send_raw(&d, &heads[i], NULL, 0);
        uint32_t before = d.rx.pipe.sequence;
        assert_false(via_stream_rx_has_quick(&d.rx));
        assert_int_equal(via_stream_rx_quick(&d.rx, got, sizeof(got), false), 0);
        assert_int_equal(d.rx.pipe.sequence, before);
        stop(&d);
    }
}

/* Writes one byte by either path. True if the record contains its time of writing. *ret_others: the
 * record has the flag for writes to other connections. */
static bool written(struct direction *d, bool quick, uint64_t *ret_ticks, bool *ret_others)
{
    uint32_t sequence = d->tx.pipe.sequence;
    char byte = 'w';
    struct iovec iov = {.iov_base = &byte, .iov_len = 1};
    struct via_iov from = {.iov = &iov, .count = 1, .left = 1};
    *ret_others = false;
    if (quick) {
        assert_true(via_stream_tx_write_quick(&d->tx, "w", 1));
    } else {
        assert_int_equal(via_stream_tx_write(&d->tx, &from), 1);
    }
    return via_stream_rx_read_time(&d->rx, sequence, via_os_ticks(), ret_ticks, ret_others);
}

static void a_query_returns_when_bytes_were_written_and_whether_other_bytes_were(void **state)
{
    (void)state;
    for (int quick = 0; quick < 2; quick++) {
        struct direction a;
        struct direction b;
        _Atomic uint64_t set = 0;
        uint64_t ticks[4];
        bool others;
        start_in_pipe(&a);
        start_in_pipe(&b);
        a.tx.times = &set;
        b.tx.times = &set;
        assert_false(written(&a, quick, ticks, &others)); /* no reader has requested times */
        atomic_store(&set, 77);
        uint64_t before = via_os_ticks();
        assert_true(written(&a, quick, &ticks[0], &others));
        assert_true(written(&a, quick, &ticks[1], &others));
        assert_false(others);
        assert_true(written(&b, quick, &ticks[2], &others));
        assert_true(others);
        assert_true(written(&a, quick, &ticks[3], &others));
        assert_true(others);
        /* In units of 16. */
        assert_true(ticks[0] + 16 > before && ticks[3] <= via_os_ticks());
        for (int i = 1; i < 4; i++) {
            assert_true(ticks[i] >= ticks[i - 1]);
        }
        atomic_store(&set, 78); /* another set of the same reader */
        assert_true(written(&a, quick, &ticks[0], &others));
        assert_true(written(&a, quick, &ticks[0], &others));
        assert_false(others);
        stop(&a);
        stop(&b);
    }
}

/* A hostile writer may announce any time: the result is a time close to the present. */
static void any_announced_time_is_a_valid_time(void **state)
{
    (void)state;
    struct direction d;
    struct via_stream_head head = {.kind = VIA_STREAM_DATA, .inline_bytes = 1};
    uint64_t ticks = 0;
    bool others = false;
    start_in_pipe(&d);
    memset(head.written, 0xff, sizeof(head.written));
    uint32_t sequence = d.tx.pipe.sequence;
    send_raw(&d, &head, NULL, 0);
    for (unsigned shift = 0; shift < 64; shift++) {
        uint64_t now = UINT64_C(1) << shift;
        assert_true(via_stream_rx_read_time(&d.rx, sequence, now, &ticks, &others));
        assert_true(now - ticks + (UINT64_C(1) << 43) <= UINT64_C(1) << 44);
        assert_false(others);
    }
    stop(&d);
}

static void a_body_longer_than_any_is_not_read(void **state)
{
    (void)state;
    struct direction d;
    unsigned char got[4096];
    start_in_pipe(&d);
    struct via_stream_head *head = via_pipe_line(&d.tx.pipe);
    *head = (struct via_stream_head){.kind = VIA_STREAM_DATA};
    via_pipe_commit_line(&d.tx.pipe, d.geometry.body_bytes_max + 1, 0);
    assert_false(via_stream_rx_has_quick(&d.rx));
    assert_int_equal(via_stream_rx_quick(&d.rx, got, sizeof(got), false), 0);
    expect_broken(&d);
}

/* A receipt in the head of a record tells the peer how many records have arrived; the bytes of the
 * stream are unchanged. */
static void receipts_are_found_in_data_alone(void **state)
{
    (void)state;
    struct direction d;
    char data[8];
    uint32_t received = 0;
    start(&d, 8, 4096, 512);
    start_at(&d, UINT32_MAX);
    assert_int_equal(via_receipt_find(&d.rx.pipe, UINT32_MAX, &received), 0);
    assert_int_equal(via_stream_tx_switch(&d.tx, 0), 0);
    unsigned char *head = d.memory + VIA_RECORD_LINE_BYTES * (1 + (UINT32_MAX % 8));
    via_receipt_add(head, 7); /* no DATA */
    assert_int_equal(via_receipt_find(&d.rx.pipe, UINT32_MAX, &received), -ENODATA);
    assert_true(via_stream_tx_write_quick(&d.tx, "12345678", 8));
    assert_int_equal(via_receipt_find(&d.rx.pipe, 0, &received), -ENODATA);
    head = d.memory + VIA_RECORD_LINE_BYTES;
    via_receipt_add(head, 0xfffffffe);
    assert_int_equal(via_receipt_find(&d.rx.pipe, 0, &received), 1);
    assert_int_equal(received, 0xfffffffe);
    assert_int_equal(via_receipt_find(&d.rx.pipe, 1, &received), 0);
    assert_int_equal(via_receipt_find(&d.rx.pipe, (uint32_t)-8, &received), 0);
    struct iovec iov = {.iov_base = data, .iov_len = sizeof(data)};
    struct via_iov to;
    via_iov_init(&to, &iov, 1);
    assert_int_equal(via_stream_rx_next(&d.rx), VIA_NEXT_KERNEL_UNTIL);
    assert_int_equal(via_stream_rx_kernel_total(&d.rx, 0), 0);
    assert_int_equal(via_stream_rx_next(&d.rx), VIA_NEXT_DATA);
    assert_int_equal(via_stream_rx_read(&d.rx, &to), 8);
    assert_memory_equal(data, "12345678", 8);
    stop(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(receipts_are_found_in_data_alone),
        cmocka_unit_test(bytes_before_the_switch_are_read_from_the_kernel_first),
        cmocka_unit_test(a_reader_that_has_more_than_was_sent_notices),
        cmocka_unit_test(the_kernel_is_used_again_only_when_the_switch_was_seen),
        cmocka_unit_test(fin_has_room_in_a_full_pipe),
        cmocka_unit_test(peeking_takes_nothing),
        cmocka_unit_test(the_end_is_seen_behind_unread_data),
        cmocka_unit_test(a_writer_that_waits_is_rung_for_what_arming_gives_back),
        cmocka_unit_test(any_history_gives_the_bytes_in_order),
        cmocka_unit_test(room_returns_at_the_same_records),
        cmocka_unit_test(so_does_any_history_by_the_short_ways),
        cmocka_unit_test(a_message_of_any_size_comes_whole),
        cmocka_unit_test(all_that_is_wanted_or_nothing),
        cmocka_unit_test(slots_for_the_end_are_left_free),
        cmocka_unit_test(room_for_bodies_returns_by_the_quarter),
        cmocka_unit_test(records_that_make_no_sense_break_the_stream),
        cmocka_unit_test(empty_records_do_not_keep_a_reader_forever),
        cmocka_unit_test(the_short_way_leaves_what_is_odd_alone),
        cmocka_unit_test(a_body_longer_than_any_is_not_read),
        cmocka_unit_test(a_query_returns_when_bytes_were_written_and_whether_other_bytes_were),
        cmocka_unit_test(any_announced_time_is_a_valid_time),
    };
    return cmocka_run_group_tests_name("stream", tests, NULL, NULL);
}
