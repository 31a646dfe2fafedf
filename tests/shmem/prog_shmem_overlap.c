/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Operations that need not be complete when they return: many of them are under way at a time, one
 * quiet waits for all, and more than there is room for are held back without harm.
 *
 *     oshrun -n N prog_shmem_overlap [faster]
 *
 * With "faster" PE 0 checks that they take a fraction of the time of those that wait for an answer
 * each.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"

#define WORDS 4096
#define TURNS 2

static int me, pes;
static long numbers[WORDS], counters[64], into_static[WORDS];

static long number_of(int pe, long i, long turn)
{
    return pe * 1000003L + i * 7 + turn;
}

/* All at once from all PEs: single words, long blocks, into private and symmetric memory. */
static void test_gets(long turn, long *into_heap)
{
    long *private = malloc(WORDS * sizeof(long));
    long strided[64];
    int from = (me + 1 + (int)turn % pes) % pes;

    CHECK(private, "memory");
    for (long i = 0; i < WORDS; i++)
        numbers[i] = number_of(me, i, turn);
    memset(private, 0xff, WORDS * sizeof(long));
    shmem_barrier_all();
    for (long i = 0; i < WORDS; i++)
        shmem_long_get_nbi(&into_static[i], &numbers[i], 1, from);
    for (long i = 0; i < WORDS; i += 1 + i / 2)
        shmem_long_get_nbi(&private[i], &numbers[i],
                           (size_t)(1 + i / 2 > WORDS - i ? WORDS - i : 1 + i / 2), from);
    shmem_getmem_nbi(into_heap, numbers, sizeof(numbers), from);
    shmem_long_iget(strided, numbers, 1, WORDS / 64, 64, from);
    for (long i = 0; i < 64; i++)
        CHECK(strided[i] == number_of(from, i * (WORDS / 64), turn), "%ld: %ld", i, strided[i]);
    shmem_quiet();
    for (long i = 0; i < WORDS; i++) {
        long wanted = number_of(from, i, turn);
        CHECK(into_static[i] == wanted && private[i] == wanted && into_heap[i] == wanted,
              "word %ld of PE %d, turn %ld: %ld, %ld, %ld, not %ld", i, from, turn, into_static[i],
              private[i], into_heap[i], wanted);
    }
    free(private);
    shmem_barrier_all();
}

/* Updates by all to all, and puts among them; the last of each PE is a set that comes behind them.
 */
static void test_updates(long turn)
{
    static long last[16][2];

    memset(counters, 0, sizeof(counters));
    shmem_barrier_all();
    for (int i = 0; i < 1000; i++)
        for (int pe = 0; pe < pes; pe++) {
            shmem_long_atomic_inc(&counters[0], pe);
            shmem_long_atomic_add(&counters[1], i, pe);
            shmem_int64_atomic_xor((int64_t *)&counters[2], INT64_C(1) << i % 60, pe);
            shmem_long_atomic_set(&counters[3 + me], turn * 1000 + i, pe);
            shmem_long_p(&last[me][0], turn * 1000 + i, pe);
        }
    for (int pe = 0; pe < pes; pe++) {
        shmem_fence();
        shmem_long_atomic_set(&last[me][1], turn, pe);
    }
    for (int pe = 0; pe < pes; pe++) {
        shmem_long_wait_until(&last[pe][1], SHMEM_CMP_EQ, turn);
        CHECK(last[pe][0] == turn * 1000 + 999, "from PE %d: %ld", pe, last[pe][0]);
    }
    shmem_barrier_all();
    CHECK(counters[0] == 1000L * pes, "%ld", counters[0]);
    CHECK(counters[1] == 499500L * pes, "%ld", counters[1]);
    CHECK(counters[2] == (pes % 2 ? (1L << 40) - 1 : 0), "%lx", (unsigned long)counters[2]);
    for (int pe = 0; pe < pes; pe++)
        CHECK(counters[3 + pe] == turn * 1000 + 999, "from PE %d: %ld", pe, counters[3 + pe]);
    shmem_barrier_all();
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The best of some tries, as others use the machine as well. */
static void test_faster(void)
{
    double gets = 0, adds = 0;

    for (int turn = 0; turn < 5 && me == 0; turn++) {
        double begin = now_s();
        for (int i = 0; i < 300; i++)
            shmem_long_get(&into_static[i], &numbers[i], 1, pes - 1);
        double waited = now_s();
        for (int i = 0; i < 300; i++)
            shmem_long_get_nbi(&into_static[i], &numbers[i], 1, pes - 1);
        shmem_quiet();
        double overlapped = now_s();
        for (int i = 0; i < 300; i++)
            shmem_long_atomic_fetch_inc(&counters[0], pes - 1);
        double fetched = now_s();
        for (int i = 0; i < 300; i++)
            shmem_long_atomic_inc(&counters[0], pes - 1);
        shmem_quiet();
        double updated = now_s();
        double ratio = (waited - begin) / (overlapped - waited);
        gets = ratio > gets ? ratio : gets;
        ratio = (fetched - overlapped) / (updated - fetched);
        adds = ratio > adds ? ratio : adds;
    }
    if (me == 0) {
        printf("gets %.1f, updates %.1f times as fast\n", gets, adds);
        CHECK(gets > 3 && adds > 3, "gets %.1f, updates %.1f times as fast", gets, adds);
    }
}

int main(int argc, char **argv)
{
    shmem_init();
    me = shmem_my_pe();
    pes = shmem_n_pes();
    CHECK(pes <= 16, "%d", pes);
    long *into_heap = shmem_malloc(WORDS * sizeof(long));
    for (long turn = 1; turn <= TURNS; turn++) {
        test_gets(turn, into_heap);
        test_updates(turn);
    }
    if (argc > 1 && strcmp(argv[1], "faster") == 0)
        test_faster();
    return passed("overlap");
}
