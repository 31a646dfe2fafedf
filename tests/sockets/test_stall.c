/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Both ends send and neither reads, so an end returns to the kernel. The simulator covers more
 * histories. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/types.h"
#include "sockets/stream/stream_stall.h"

#define SLOTS 8u
#define LONG_NS VIA_STREAM_STALL_NS

/* A direction: its writer at one end, its reader at the other. */
struct direction {
    struct via_pipe_geometry geometry;
    unsigned char *memory;
    _Atomic uint64_t credit;
    uint32_t data_ends[SLOTS];
    struct via_stream_tx tx;
    struct via_stream_rx rx;
};

/* [0] is written by the end under test, [1] by its peer. */
struct pair {
    struct direction ways[2];
    struct via_stream_stall stall;
};

static int setup(void **state)
{
    struct pair *pair = calloc(1, sizeof(*pair));
    for (unsigned i = 0; i < 2; i++) {
        struct direction *d = &pair->ways[i];
        struct via_pipe_target back = {.direct = (unsigned char *)&d->credit};
        d->geometry = (struct via_pipe_geometry){SLOTS, 1024, 512};
        d->memory = aligned_alloc(64, via_pipe_memory_bytes(&d->geometry));
        memset(d->memory, 0, via_pipe_memory_bytes(&d->geometry));
        struct via_pipe_target out = {.direct = d->memory};
        via_pipe_writer_init(&d->tx.pipe, &d->geometry, &out, &d->credit, d->data_ends, 1);
        via_pipe_reader_init(&d->rx.pipe, &d->geometry, d->memory, &back, 1);
        via_stream_tx_init(&d->tx);
        via_stream_rx_init(&d->rx);
    }
    *state = pair;
    return 0;
}

static int teardown(void **state)
{
    struct pair *pair = *state;
    free(pair->ways[0].memory);
    free(pair->ways[1].memory);
    free(pair);
    return 0;
}

/* Writes to the pipe until there is no room, and requests a wake-up for room. */
static void fill(struct direction *d)
{
    char data[4] = "byte";
    struct iovec iov = {data, sizeof(data)};
    struct via_iov cursor;
    if (d->tx.span == VIA_SPAN_KERNEL) {
        assert_int_equal(via_stream_tx_switch(&d->tx, 0), 0);
        assert_int_equal(via_stream_rx_next(&d->rx), VIA_NEXT_KERNEL_UNTIL);
        assert_int_equal(via_stream_rx_kernel_total(&d->rx, 0), 0);
    }
    do {
        assert_int_equal(via_iov_init(&cursor, &iov, 1), 0);
    } while (via_stream_tx_write(&d->tx, &cursor) > 0);
    via_pipe_request_room(&d->tx.pipe);
}

static void read_one(struct direction *d)
{
    char data[4];
    struct iovec iov = {data, sizeof(data)};
    struct via_iov cursor;
    assert_int_equal(via_iov_init(&cursor, &iov, 1), 0);
    assert_int_equal(via_stream_rx_read(&d->rx, &cursor), 4);
}

static bool is_due(struct pair *pair, bool kernel_unread, uint64_t now_ns)
{
    struct via_stream_rx *rx = &pair->ways[1].rx;
    assert_true(via_stream_stall_is_full(&pair->ways[0].tx));
    via_stream_rx_next(rx);
    via_stream_stall_give_back(rx);
    return via_stream_stall_is_due(&pair->stall, &pair->ways[0].tx, rx, kernel_unread, now_ns);
}

static void both_wait_for_long(void **state)
{
    struct pair *pair = *state;
    fill(&pair->ways[0]);
    fill(&pair->ways[1]);
    assert_false(is_due(pair, false, 1));
    assert_false(is_due(pair, false, LONG_NS));
    assert_true(is_due(pair, false, LONG_NS + 1));
}

static void progress_restarts_the_time(void **state)
{
    struct pair *pair = *state;
    fill(&pair->ways[0]);
    fill(&pair->ways[1]);
    assert_false(is_due(pair, false, 1));
    read_one(&pair->ways[1]);
    fill(&pair->ways[1]);
    assert_false(is_due(pair, false, LONG_NS + 1)); /* the read wakes the writer */
    fill(&pair->ways[1]);
    assert_false(is_due(pair, false, LONG_NS + 2));
    assert_true(is_due(pair, false, 2 * LONG_NS + 2));
}

static void a_peer_that_only_takes_its_time(void **state)
{
    struct pair *pair = *state;
    fill(&pair->ways[0]);
    assert_false(is_due(pair, false, 1));
    assert_false(is_due(pair, false, 9 * LONG_NS));
}

/* The peer has spilled, and waits for room in the kernel's buffer. */
static void a_peer_that_writes_by_the_kernel(void **state)
{
    struct pair *pair = *state;
    fill(&pair->ways[0]);
    fill(&pair->ways[1]);
    assert_int_equal(via_stream_tx_demote_again(&pair->ways[1].tx, 0, false), 0);
    read_one(&pair->ways[1]);
    read_one(&pair->ways[1]);
    /* The peer was woken for these bytes, and does not request another wake-up. */
    assert_false(is_due(pair, false, 1));
    assert_false(is_due(pair, true, 2));
    assert_false(is_due(pair, false, LONG_NS + 2));
    assert_false(is_due(pair, true, LONG_NS + 3));
    assert_true(is_due(pair, true, 2 * LONG_NS + 3));
}

/* A peer that has not seen the beginning of the pipe span would take the kernel's bytes for those
 * before the pipe span. */
static void a_peer_that_has_not_seen_the_beginning(void **state)
{
    struct pair *pair = *state;
    struct direction *d = &pair->ways[0];
    fill(&pair->ways[1]);
    assert_int_equal(via_stream_tx_switch(&d->tx, 0), 0);
    fill(d);
    assert_false(is_due(pair, false, 1));
    assert_false(is_due(pair, false, 9 * LONG_NS));
    assert_int_equal(via_stream_rx_next(&d->rx), VIA_NEXT_KERNEL_UNTIL);
    assert_false(is_due(pair, false, 9 * LONG_NS)); /* a record was released: armed again */
    assert_true(is_due(pair, false, 10 * LONG_NS));
}

static void until_the_pipe_is_read(void **state)
{
    struct pair *pair = *state;
    struct direction *d = &pair->ways[0];
    fill(d);
    assert_true(via_stream_stall_is_over(&pair->stall, &d->tx));
    assert_false(via_stream_stall_must_stay(&pair->stall, &d->tx));
    assert_int_equal(via_stream_tx_demote_again(&d->tx, 0, false), 0);
    pair->stall.spills = true;
    while (via_stream_rx_next(&d->rx) == VIA_NEXT_DATA) {
        assert_false(via_stream_stall_is_over(&pair->stall, &d->tx));
        assert_true(via_stream_stall_must_stay(&pair->stall, &d->tx));
        read_one(d);
    }
    /* The reader need not sleep: the stall has ended. */
    assert_true(via_stream_stall_is_over(&pair->stall, &d->tx));
    assert_false(via_stream_stall_must_stay(&pair->stall, &d->tx));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(both_wait_for_long),
        TEST(progress_restarts_the_time),
        TEST(a_peer_that_only_takes_its_time),
        TEST(a_peer_that_writes_by_the_kernel),
        TEST(a_peer_that_has_not_seen_the_beginning),
        TEST(until_the_pipe_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
