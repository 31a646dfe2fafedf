/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Edges of a registration: reported once, reported again, and events during the report. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "sockets/stream/edge.h"
#include "sockets/stream/stream.h"

#define ET_IN (EPOLLIN | EPOLLET)
#define ET_BOTH (EPOLLIN | EPOLLOUT | EPOLLET)

/* A connection with pipes: records 0 to `come` have arrived, and those up to `read` are read. */
static struct via_edge_now piped(uint32_t events, uint32_t bits, uint32_t come, uint32_t read)
{
    return (struct via_edge_now){.events = events,
                                 .bits = bits,
                                 .sequence = come,
                                 .next = come,
                                 .read = read,
                                 .piped = true};
}

static void reported_once(struct via_edge *edge, const struct via_edge_now *now)
{
    assert_true(via_edge_is_news(edge, now));
    via_edge_report(edge, now);
    assert_false(via_edge_is_news(edge, now));
}

static void a_record_is_reported_once(void **state)
{
    (void)state;
    struct via_edge edge = {.sequence = 5};
    struct via_edge_now now = piped(ET_IN, 0, 5, 5);
    assert_false(via_edge_is_news(&edge, &now));
    now = piped(ET_IN, EPOLLIN, 6, 5);
    reported_once(&edge, &now);
    /* The record stays unread, which is no edge; another record is an edge. */
    now = piped(ET_IN, EPOLLIN, 7, 5);
    reported_once(&edge, &now);
}

static void a_record_during_another_report_is_reported_next(void **state)
{
    (void)state;
    struct via_edge edge = {.sequence = 5};
    struct via_edge_now now = piped(ET_BOTH, EPOLLOUT, 5, 5);
    now.full = 1;
    now.next = 6; /* arrived after the event bits were determined */
    reported_once(&edge, &now);
    assert_int_equal(edge.sequence, 5);
    now = piped(ET_BOTH, EPOLLIN | EPOLLOUT, 6, 5);
    now.full = 1;
    reported_once(&edge, &now);
}

static void a_reader_reads_all_that_it_finds(void **state)
{
    (void)state;
    struct via_edge edge = {.sequence = 5};
    struct via_edge_now now = piped(ET_IN, EPOLLIN, 6, 5);
    /* Two more records arrived while the event bits were determined: a reader that reads all bytes
     * finds them. */
    now.next = 8;
    reported_once(&edge, &now);
    assert_int_equal(edge.sequence, 8);
}

static void room_is_reported_after_each_writer_without_room(void **state)
{
    (void)state;
    struct via_edge edge = {.full = 3};
    struct via_edge_now now = piped(ET_BOTH, EPOLLOUT, 0, 0);
    now.full = 3;
    assert_false(via_edge_is_news(&edge, &now));
    now.full = 4;
    reported_once(&edge, &now);
    /* The caller's array is full: the event is not reported, and stays pending. */
    now.full = 5;
    now.bits = 0;
    assert_false(via_edge_is_news(&edge, &now));
    via_edge_report(&edge, &now);
    now.bits = EPOLLOUT;
    reported_once(&edge, &now);
}

static void records_read_unreported_are_an_edge_for_room(void **state)
{
    (void)state;
    struct via_edge edge = {.sequence = 5};
    struct via_edge_now now = piped(ET_BOTH, EPOLLOUT, 6, 6); /* another thread has read it */
    assert_true(via_edge_is_missed(&edge, now.events, now.read));
    reported_once(&edge, &now);
    assert_false(via_edge_is_missed(&edge, now.events, now.read));
    assert_false(via_edge_is_missed(&(struct via_edge){.sequence = 5}, EPOLLOUT | EPOLLET, 6));
    assert_false(via_edge_is_missed(&(struct via_edge){.sequence = 5}, EPOLLIN, 6));
}

static void numbers_of_records_wrap(void **state)
{
    (void)state;
    struct via_edge edge = {.sequence = UINT32_MAX};
    struct via_edge_now now = piped(ET_IN, EPOLLIN, 0, UINT32_MAX);
    reported_once(&edge, &now);
    assert_false(via_edge_is_missed(&(struct via_edge){.sequence = 1}, ET_IN, UINT32_MAX));
}

static void an_end_is_reported_once(void **state)
{
    (void)state;
    struct via_edge edge = {.sequence = 5};
    struct via_edge_now now = piped(ET_IN, EPOLLIN | EPOLLRDHUP, 5, 5);
    now.ends = EPOLLRDHUP;
    reported_once(&edge, &now);
    now.bits |= EPOLLHUP;
    now.ends |= EPOLLHUP;
    reported_once(&edge, &now);
    edge.due = true; /* but the program asks for it */
    assert_true(via_edge_is_news(&edge, &now));
}

/* A shutdown by any process that holds the end is an edge, regardless of earlier reports to its
 * set. */
static void each_shutdown_is_an_edge(void **state)
{
    (void)state;
    struct via_edge edge = {.sequence = 5};
    struct via_edge_now now = piped(ET_BOTH, EPOLLOUT, 5, 5);
    assert_false(via_edge_is_news(&edge, &now));
    now.shuts = 1;
    reported_once(&edge, &now);
    now.shuts = 2;
    now.bits = 0;
    assert_false(via_edge_is_news(&edge, &now));
}

static void a_report_of_the_kernel_is_an_edge_if_bytes_may_come_there(void **state)
{
    (void)state;
    struct via_edge edge = {.sequence = 0};
    struct via_edge_now now = {.events = ET_IN, .bits = EPOLLIN, .reads_kernel = true};
    assert_false(via_edge_is_news(&edge, &now));
    edge.recheck = true;
    reported_once(&edge, &now);
    edge.recheck = true;
    now.events = EPOLLOUT | EPOLLET;
    assert_false(via_edge_is_news(&edge, &now));
    now = (struct via_edge_now){.events = ET_IN, .bits = EPOLLIN};
    assert_false(via_edge_is_news(&edge, &now));
    now = (struct via_edge_now){.events = EPOLLPRI | EPOLLET, .bits = EPOLLPRI};
    reported_once(&edge, &now);
}

/* --- any order of events: no edge is missing ------------------------------------------------- */

struct world {
    struct via_edge edge;
    uint32_t come, read, full, ends;
    bool reads_kernel;                         /* the kernel may carry bytes */
    uint32_t unreported_come, unreported_full; /* since the last report */
    bool unreported_kernel;
};

static void happens(struct world *w, struct via_rng *rng)
{
    switch (via_rng_between(rng, 0, 5)) {
    case 0:
        w->come++;
        w->unreported_come++;
        break;
    case 1:
        w->read += w->read != w->come ? 1 : 0;
        break;
    case 2:
        w->full++;
        w->unreported_full++;
        break;
    case 3: /* the kernel reports bytes */
        w->edge.recheck = w->unreported_kernel = true;
        break;
    case 4:
        w->reads_kernel ^= via_rng_chance(rng, 1, 4);
        break;
    default:
        w->ends |= via_rng_chance(rng, 1, 50) ? EPOLLRDHUP : 0;
        break;
    }
}

static void no_edge_is_missing(void **state)
{
    (void)state;
    struct via_rng rng;
    via_rng_init(&rng, 1);
    for (unsigned round = 0; round < 200; round++) {
        struct world w = {.come = UINT32_MAX - 20, .read = UINT32_MAX - 20};
        w.edge.sequence = w.come;
        for (unsigned i = 0; i < 200; i++) {
            happens(&w, &rng);
            uint32_t bits = EPOLLOUT | w.ends | (w.come != w.read ? EPOLLIN : 0);
            struct via_edge_now now = piped(ET_BOTH, bits, w.come, w.read);
            now.full = w.full;
            now.ends = w.ends;
            now.reads_kernel = w.reads_kernel;
            bool ends = (w.ends & ~w.edge.ends) != 0;
            bool kernel = w.unreported_kernel && w.reads_kernel;
            bool due = w.unreported_come != 0 || w.unreported_full != 0 || ends || kernel;
            assert_int_equal(via_edge_is_news(&w.edge, &now), due);
            if (via_rng_chance(&rng, 1, 3)) {
                via_edge_report(&w.edge, &now);
                w.unreported_come = w.unreported_full = 0;
                w.unreported_kernel = false;
            }
        }
    }
}

/* --- records in a pipe ----------------------------------------------------------------------- */

static void records_are_counted_where_they_lie(void **state)
{
    (void)state;
    static unsigned char memory[64 + 64 * 16 + 4096] __attribute__((aligned(64)));
    static uint32_t data_ends[16];
    static _Atomic uint64_t credit;
    static struct via_stream_tx tx;
    static struct via_stream_rx rx;
    struct via_pipe_geometry geometry = {16, 4096, 1024};
    struct via_pipe_target out = {.direct = memory};
    struct via_pipe_target back = {.direct = (unsigned char *)&credit};
    via_pipe_writer_init(&tx.pipe, &geometry, &out, &credit, data_ends, 1);
    via_pipe_reader_init(&rx.pipe, &geometry, memory, &back, 1);
    via_stream_tx_init(&tx);
    via_stream_rx_init(&rx);
    uint32_t first = rx.pipe.sequence;
    assert_int_equal(via_edge_next_record(&rx.pipe, first), first);
    assert_int_equal(via_stream_tx_switch(&tx, 0), 0);
    assert_int_equal(via_edge_next_record(&rx.pipe, first), first + 1);
    assert_int_equal(via_edge_next_record(&rx.pipe, first - 5), first + 1);
    assert_int_equal(via_edge_next_record(&rx.pipe, first + 1), first + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_is_reported_once),
        cmocka_unit_test(a_record_during_another_report_is_reported_next),
        cmocka_unit_test(a_reader_reads_all_that_it_finds),
        cmocka_unit_test(room_is_reported_after_each_writer_without_room),
        cmocka_unit_test(records_read_unreported_are_an_edge_for_room),
        cmocka_unit_test(numbers_of_records_wrap),
        cmocka_unit_test(an_end_is_reported_once),
        cmocka_unit_test(each_shutdown_is_an_edge),
        cmocka_unit_test(a_report_of_the_kernel_is_an_edge_if_bytes_may_come_there),
        cmocka_unit_test(no_edge_is_missing),
        cmocka_unit_test(records_are_counted_where_they_lie),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
