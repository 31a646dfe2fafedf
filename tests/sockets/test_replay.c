/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A reader leaves the pipe in mid-stream, and gets every byte through the kernel connection. */
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
#include "core/pipe_inline.h"
#include "sockets/stream/stream_replay.h"

#define SLOTS_COUNT 16u
#define STREAM_BYTES 65536u

/* One direction. `kernel` contains all bytes that the kernel carried, in order. */
struct direction {
    struct via_pipe_geometry geometry;
    unsigned char memory[64 + 64 * SLOTS_COUNT + 4096] __attribute__((aligned(64)));
    _Atomic uint64_t credit;
    uint32_t data_ends[SLOTS_COUNT];
    struct via_stream_tx tx;
    struct via_stream_rx rx;
    unsigned char kernel[STREAM_BYTES];
    size_t kernel_sent, kernel_read;
    uint64_t written, read; /* positions in the stream */
};

static struct direction *start(void)
{
    static struct direction d;
    memset(&d, 0, sizeof(d));
    d.geometry = (struct via_pipe_geometry){SLOTS_COUNT, 4096, 1024};
    assert_true(via_pipe_memory_bytes(&d.geometry) <= sizeof(d.memory));
    struct via_pipe_target out = {.direct = d.memory};
    struct via_pipe_target back = {.direct = (unsigned char *)&d.credit};
    via_pipe_writer_init(&d.tx.pipe, &d.geometry, &out, &d.credit, d.data_ends, 1);
    via_pipe_reader_init(&d.rx.pipe, &d.geometry, d.memory, &back, 1);
    via_stream_tx_init(&d.tx);
    via_stream_rx_init(&d.rx);
    return &d;
}

static unsigned char pattern(uint64_t at)
{
    return (unsigned char)(at * 31 + at / 251);
}

static void write_kernel(struct direction *d, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        d->kernel[d->kernel_sent++] = pattern(d->written++);
    }
}

static void write_pipe(struct direction *d, size_t bytes)
{
    unsigned char data[2048];
    for (size_t i = 0; i < bytes; i++) {
        data[i] = pattern(d->written + i);
    }
    struct iovec iov = {data, bytes};
    struct via_iov cursor;
    assert_int_equal(via_iov_init(&cursor, &iov, 1), 0);
    ssize_t n = via_stream_tx_write(&d->tx, &cursor);
    assert_true(n > 0 || n == -EAGAIN);
    d->written += n > 0 ? (uint64_t)n : 0;
}

static void check(struct direction *d, const unsigned char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        assert_int_equal(data[i], pattern(d->read++));
    }
}

static void read_kernel(struct direction *d, size_t max)
{
    size_t bytes = via_min(max, d->kernel_sent - d->kernel_read);
    check(d, d->kernel + d->kernel_read, bytes);
    d->kernel_read += bytes;
}

static void read_some(struct direction *d, size_t max)
{
    unsigned char data[2048];
    struct iovec iov = {data, max};
    struct via_iov cursor;
    assert_int_equal(via_iov_init(&cursor, &iov, 1), 0);
    int next = via_stream_rx_next(&d->rx);
    if (next == VIA_NEXT_KERNEL_UNTIL && !d->rx.kernel_known) {
        assert_int_equal(via_stream_rx_kernel_total(&d->rx, d->kernel_read), 0);
    } else if (next == VIA_NEXT_KERNEL_UNTIL) {
        size_t before = d->kernel_read;
        read_kernel(d, via_min(max, (size_t)via_stream_rx_kernel_left(&d->rx)));
        via_stream_rx_kernel_read(&d->rx, d->kernel_read - before);
    } else if (next == VIA_NEXT_AGAIN) {
        size_t bytes = via_min((size_t)d->rx.again, d->kernel_sent - d->kernel_read);
        d->kernel_read += bytes;
        d->rx.again -= bytes;
    } else if (next == VIA_NEXT_KERNEL) {
        read_kernel(d, max);
    } else {
        ssize_t n = via_stream_rx_read(&d->rx, &cursor);
        assert_true(n >= 0);
        check(d, data, (size_t)n);
    }
}

/* Repeats bytes in pieces, like a kernel whose buffer is nearly full. */
static void replay(struct direction *d, uint32_t released, uint32_t skip, struct via_rng *rng)
{
    struct via_stream_replay of;
    const void *data;
    size_t bytes;
    via_stream_tx_note_left(&d->tx, released);
    via_stream_replay_begin(&of, &d->tx, skip);
    assert_int_equal(d->tx.span, VIA_SPAN_KERNEL);
    while ((bytes = via_stream_replay_next(&of, &data)) != 0) {
        bytes = 1 + (size_t)(via_rng_next(rng) % bytes);
        assert_true(d->kernel_sent + bytes <= sizeof(d->kernel));
        memcpy(d->kernel + d->kernel_sent, data, bytes);
        d->kernel_sent += bytes;
        via_stream_replay_sent(&of, bytes);
    }
    assert_int_equal(via_stream_replay_next(&of, &data), 0);
}

static void one_history(uint64_t seed)
{
    struct direction *d = start();
    struct via_rng rng;
    via_rng_init(&rng, seed);
    write_kernel(d, (size_t)(via_rng_next(&rng) % 300));
    read_kernel(d, (size_t)(via_rng_next(&rng) % 300));
    if (via_rng_next(&rng) % 8 != 0) {
        assert_int_equal(via_stream_tx_switch(&d->tx, d->kernel_sent), 0);
    }
    for (uint64_t steps = via_rng_next(&rng) % 200; steps > 0; steps--) {
        size_t bytes = 1 + (size_t)(via_rng_next(&rng) % (via_rng_next(&rng) % 2 == 0 ? 60 : 1500));
        if (via_rng_next(&rng) % 2 == 0) {
            read_some(d, bytes);
        } else if (d->tx.span == VIA_SPAN_PIPE) {
            write_pipe(d, bytes);
        } else {
            write_kernel(d, bytes);
        }
    }
    uint64_t credit = d->credit;
    uint32_t skip = via_stream_rx_leave(&d->rx);
    if (via_rng_next(&rng) % 2 == 0) {
        /* The last credit arrives after the announcement that the reader has left. */
        d->credit = credit;
    }
    for (uint64_t late = via_rng_next(&rng) % 3; late > 0 && d->tx.span == VIA_SPAN_PIPE; late--) {
        write_pipe(d, 100); /* the writer has not received it yet */
    }
    replay(d, d->rx.pipe.released, skip, &rng);
    write_kernel(d, 100);
    read_kernel(d, SIZE_MAX);
    assert_int_equal(d->read, d->written);
    assert_int_equal(via_stream_rx_next(&d->rx), VIA_NEXT_KERNEL);
    assert_false(via_pipe_is_ready(&d->rx.pipe));
}

static void every_byte_once(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        one_history(seed);
    }
}

/* --- the writer leaves ----------------------------------------------------------------------- */

/* Repeats bytes without credit, as many as fit into `room`. */
static void writer_leaves(struct direction *d, size_t room)
{
    struct via_stream_replay of;
    const void *data;
    size_t bytes;
    via_stream_replay_begin(&of, &d->tx, 0);
    d->tx.span = VIA_SPAN_PIPE;
    while ((bytes = via_stream_replay_next(&of, &data)) != 0 && of.sent < room) {
        bytes = via_min(bytes, room - (size_t)of.sent);
        assert_true(d->kernel_sent + bytes <= sizeof(d->kernel));
        memcpy(d->kernel + d->kernel_sent, data, bytes);
        d->kernel_sent += bytes;
        via_stream_replay_sent(&of, bytes);
    }
    assert_int_equal(via_stream_tx_demote_again(&d->tx, of.sent, bytes == 0), 0);
}

static void one_history_of_a_writer(uint64_t seed)
{
    struct direction *d = start();
    struct via_rng rng;
    via_rng_init(&rng, seed);
    write_kernel(d, (size_t)(via_rng_next(&rng) % 300));
    assert_int_equal(via_stream_tx_switch(&d->tx, d->kernel_sent), 0);
    via_stream_rx_next(&d->rx); /* the reader has seen where the pipe span begins */
    assert_true(via_stream_tx_has_begun(&d->tx));
    for (uint64_t steps = via_rng_next(&rng) % 100; steps > 0; steps--) {
        size_t bytes = 1 + (size_t)(via_rng_next(&rng) % (via_rng_next(&rng) % 2 == 0 ? 60 : 1500));
        if (via_rng_next(&rng) % 2 == 0) {
            read_some(d, bytes);
        } else {
            write_pipe(d, bytes);
        }
    }
    writer_leaves(d, via_rng_next(&rng) % 4 == 0 ? 200 : SIZE_MAX);
    write_kernel(d, 100);
    for (uint64_t steps = via_rng_next(&rng) % 8; steps > 0; steps--) {
        read_some(d, 1 + (size_t)(via_rng_next(&rng) % 300));
    }
    bool skips = via_rng_next(&rng) % 2 == 0 && via_stream_rx_skip(&d->rx);
    if (skips) {
        d->kernel_read += (size_t)d->rx.again; /* from now on any holder may read from the kernel */
        read_kernel(d, SIZE_MAX);
    }
    for (unsigned steps = 0; steps < 10000 && d->read < d->written; steps++) {
        read_some(d, 2048);
    }
    assert_int_equal(d->read, d->written);
    assert_int_equal(d->kernel_read, d->kernel_sent);
}

static void repeated_bytes_are_read_once(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        one_history_of_a_writer(seed);
    }
}

/* A hostile writer: the kernel can not repeat bytes that were never in the pipe, nor fewer bytes
 * than announced. */
static void a_lying_writer_is_found_out(void **state)
{
    (void)state;
    struct direction *d = start();
    assert_int_equal(via_stream_tx_switch(&d->tx, 0), 0);
    write_pipe(d, 50);
    assert_int_equal(via_stream_tx_demote_again(&d->tx, 51, true), 0);
    assert_false(via_stream_rx_skip(&d->rx));
    assert_int_equal(via_stream_rx_next(&d->rx), VIA_NEXT_KERNEL_UNTIL);
    assert_int_equal(via_stream_rx_kernel_total(&d->rx, 0), 0);
    read_some(d, 50);
    assert_int_equal(via_stream_rx_next(&d->rx), -EPROTO);
    d = start();
    assert_int_equal(via_stream_tx_switch(&d->tx, 0), 0);
    write_pipe(d, 50);
    read_some(d, 1);
    read_some(d, 10);
    assert_int_equal(via_stream_tx_demote_again(&d->tx, 39, true), 0);
    assert_false(via_stream_rx_skip(&d->rx)); /* 40 bytes are unread */
    read_some(d, 100);
    assert_int_equal(via_stream_rx_next(&d->rx), VIA_NEXT_AGAIN);
    assert_int_equal(d->rx.again, 39);
}

/* The reader leaves before it has seen that the pipe is used; the writer has ended, and repeats
 * nothing. */
static void bytes_after_a_switch_are_not_lost(void **state)
{
    (void)state;
    for (unsigned kernel_bytes = 0; kernel_bytes < 2; kernel_bytes++) {
        struct direction *d = start();
        struct via_stream_rx left = d->rx;
        via_stream_rx_leave(&d->rx);
        assert_false(via_stream_rx_has_left_bytes(&left));
        write_kernel(d, kernel_bytes);
        assert_int_equal(via_stream_tx_switch(&d->tx, kernel_bytes), 0);
        write_pipe(d, 100);
        assert_int_equal(via_stream_tx_fin(&d->tx, 0), 0);
        assert_true(via_stream_rx_has_left_bytes(&left));
        d->rx = left;
        for (int i = 0; i < 10; i++) {
            read_some(d, 200);
        }
        assert_int_equal(d->read, 100 + kernel_bytes);
        assert_int_equal(via_stream_rx_next(&d->rx), VIA_NEXT_FIN);
    }
}

/* For any claim of the reader, the writer sends only bytes that were written, and the replay ends.
 */
static void a_lying_reader_gets_its_own_loss(void **state)
{
    (void)state;
    struct via_rng rng;
    via_rng_init(&rng, 1);
    static const uint32_t skips[] = {1, 60, 1024, UINT32_MAX};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(skips); i++) {
        struct direction *d = start();
        assert_int_equal(via_stream_tx_switch(&d->tx, 0), 0);
        write_pipe(d, 50);
        write_pipe(d, 900);
        replay(d, skips[i], skips[i], &rng);
        assert_true(d->kernel_sent <= 950);
        d = start();
        assert_int_equal(via_stream_tx_switch(&d->tx, 0), 0);
        write_pipe(d, 50);
        write_pipe(d, 900);
        memset(d->memory + 64, (int)(0x11 * i), 64 * SLOTS_COUNT); /* its memory is its own */
        replay(d, skips[i], skips[i], &rng);
        assert_true(d->kernel_sent <= 950);
    }
}

/* A reader that has left accepts no further record, not even one with its old epoch. */
static void a_reader_that_left_takes_nothing_more(void **state)
{
    (void)state;
    for (unsigned epoch = 0; epoch <= UINT16_MAX; epoch += epoch == 2 ? UINT16_MAX - 2 : 1) {
        struct direction *d = start();
        assert_int_equal(via_stream_tx_switch(&d->tx, 0), 0);
        via_stream_rx_leave(&d->rx);
        for (unsigned i = 0; i < SLOTS_COUNT; i++) {
            uint64_t word = via_record_word((uint16_t)epoch, 0, i);
            memcpy(d->memory + VIA_PIPE_SLOTS_OFF + (size_t)i * VIA_RECORD_LINE_BYTES +
                       offsetof(struct via_record_line, word),
                   &word, sizeof(word));
        }
        assert_false(via_pipe_is_ready(&d->rx.pipe));
        struct via_pipe_at at = via_pipe_at_next(&d->rx.pipe);
        uint32_t body_bytes;
        assert_null(via_pipe_line_at(&d->rx.pipe, &at, &body_bytes));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_once),
        cmocka_unit_test(bytes_after_a_switch_are_not_lost),
        cmocka_unit_test(repeated_bytes_are_read_once),
        cmocka_unit_test(a_lying_writer_is_found_out),
        cmocka_unit_test(a_lying_reader_gets_its_own_loss),
        cmocka_unit_test(a_reader_that_left_takes_nothing_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
