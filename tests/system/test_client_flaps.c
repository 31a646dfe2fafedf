/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Puts keep their order, and none is lost, while their path changes from stores to frames over a
 * relay and back, each time that a link is cut and mended. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tests/system/host_lab.h"

#define FLAPS 25u
#define SLOTS 64u
#define SLOT_BYTES 256u
#define SLOTS_OFF 4096u
#define BYTES (SLOTS_OFF + SLOTS * SLOT_BYTES)
/* Words at the start of the segment. */
#define COUNTER_OFF 0u
#define SIGNAL_OFF 64u
#define ATOMIC_OFF 128u

struct flaps {
    struct host_lab lab;
    struct via_attach *a; /* at host 0 */
    struct via_attach *b; /* at host 2, a neighbour of 0, and of 1 */
    struct via_segment *segment;
    struct via_remote *remote;
    _Atomic bool over;     /* no more cuts */
    _Atomic bool finished; /* no more puts */
    unsigned wrong_order;
    unsigned wrong_payload;
};

static uint64_t word_at(const struct flaps *flaps, uint64_t off)
{
    unsigned char *base = via_segment_base(flaps->segment);
    return atomic_load_explicit((_Atomic uint64_t *)(void *)(base + off), memory_order_acquire);
}

static uint64_t slot_off(uint64_t number)
{
    return SLOTS_OFF + number % SLOTS * SLOT_BYTES;
}

static void *flap(void *ctx)
{
    struct flaps *flaps = ctx;
    struct via_rng rng;
    via_rng_init(&rng, 1);
    for (unsigned i = 0; i < FLAPS; i++) {
        usleep((useconds_t)via_rng_between(&rng, 1000, 40000));
        host_lab_cut(&flaps->lab, 0, 2, "cut");
        usleep((useconds_t)via_rng_between(&rng, 1000, 40000));
        host_lab_cut(&flaps->lab, 0, 2, "mend");
    }
    flaps->over = true;
    return NULL;
}

/* A reader that sees a number finds the data that were put before it. */
static void *look(void *ctx)
{
    struct flaps *flaps = ctx;
    uint64_t last = 0;
    while (!flaps->finished) {
        uint64_t number = word_at(flaps, COUNTER_OFF);
        flaps->wrong_order += number < last;
        /* The slot may have been overwritten since. */
        flaps->wrong_payload += number != 0 && word_at(flaps, slot_off(number)) < number;
        last = number;
    }
    return NULL;
}

/* Puts by one of the put functions. Returns 0. */
static int put_some(struct flaps *flaps, uint64_t off, const void *src, size_t bytes, unsigned how)
{
    int rc;
    switch (how) {
    case 0:
        return via_remote_put(flaps->remote, off, src, bytes, 0);
    case 1:
        return via_remote_put_signal(flaps->remote, off, src, bytes, SIGNAL_OFF, 1,
                                     VIADUCT_SIGNAL_ADD);
    default:
        while ((rc = via_remote_try_put(flaps->remote, off, src, bytes, 0)) == -EAGAIN) {
            usleep(10);
        }
        return rc;
    }
}

static void puts_keep_their_order_while_the_way_changes(void **state)
{
    (void)state;
    struct flaps flaps = {0};
    pthread_t threads[2];
    uint64_t number = 0;
    uint64_t signals = 0;
    uint64_t atomics = 0;
    unsigned direct = 0;
    unsigned by_frames = 0;
    host_lab_init(&flaps.lab, 3, true, true);
    host_lab_start_all(&flaps.lab);
    flaps.a = host_lab_attach(&flaps.lab, 0);
    flaps.b = host_lab_attach(&flaps.lab, 2);
    assert_int_equal(via_segment_new(flaps.b, BYTES, VIADUCT_SEGMENT_READ | VIADUCT_SEGMENT_WRITE,
                                     &flaps.segment),
                     0);
    assert_int_equal(
        via_remote_open(flaps.a, 2, via_segment_handle(flaps.segment), BYTES, &flaps.remote), 0);
    pthread_create(&threads[0], NULL, flap, &flaps);
    pthread_create(&threads[1], NULL, look, &flaps);
    while (!flaps.over) {
        uint64_t payload[SLOT_BYTES / 8];
        uint64_t old;
        number++;
        for (unsigned i = 0; i < SLOT_BYTES / 8; i++) {
            payload[i] = number;
        }
        assert_int_equal(put_some(&flaps, slot_off(number), payload, SLOT_BYTES, number % 3), 0);
        signals += number % 3 == 1;
        assert_int_equal(via_remote_put(flaps.remote, COUNTER_OFF, &number, 8, 0), 0);
        if (number % 100 == 0) {
            assert_int_equal(
                via_remote_atomic(flaps.remote, ATOMIC_OFF, 8, VIADUCT_ATOMIC_ADD, 1, 0, &old), 0);
            assert_int_equal(old, atomics++);
            assert_int_equal(via_remote_get(flaps.remote, COUNTER_OFF, &old, 8), 0);
            assert_int_equal(old, number);
        }
        if (via_remote_direct(flaps.remote) != NULL) {
            direct++;
        } else {
            by_frames++;
        }
    }
    assert_int_equal(via_attach_quiet(flaps.a), 0);
    flaps.finished = true;
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);

    assert_int_equal(flaps.wrong_order, 0);
    assert_int_equal(flaps.wrong_payload, 0);
    assert_int_equal(word_at(&flaps, COUNTER_OFF), number);
    assert_int_equal(word_at(&flaps, SIGNAL_OFF), signals);
    assert_int_equal(word_at(&flaps, ATOMIC_OFF), atomics);
    assert_true(number > SLOTS);
    for (uint64_t i = number - SLOTS + 1; i <= number; i++) {
        for (unsigned at = 0; at < SLOT_BYTES; at += 8) {
            assert_int_equal(word_at(&flaps, slot_off(i) + at), i);
        }
    }
    /* Both paths must have been used, otherwise the test proves nothing. */
    assert_true(direct > 0 && by_frames > 0);
    via_remote_close(flaps.remote);
    via_attach_close(flaps.a);
    via_attach_close(flaps.b);
    host_lab_fini(&flaps.lab);
}

int main(void)
{
    alarm(800); /* a wait that never ends must fail, too */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(puts_keep_their_order_while_the_way_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
