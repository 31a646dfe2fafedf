/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Non-blocking operations: many are under way at a time, one quiet waits for all, and operations
 * beyond the available room wait.
 *
 *     oshrun -n N prog_shmem_overlap [faster]
 *
 * With "faster" PE 0 checks that they take a fraction of the time of blocking operations.
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

/* Gets elements and blocks of another PE, close to each other and far apart, with positive and
 * negative strides. */
static void test_strides(long turn)
{
    static const struct {
        ptrdiff_t dest, source; /* strides */
        size_t block, count;
        long first; /* of numbers[] */
    } cases[] = {
        {1, 1, 1, 700, 3},      {3, 2, 1, 900, 0},      {1, 5, 3, 700, 11},
        {2, -2, 1, 1000, 4000}, {-1, -4, 2, 600, 3000}, {1, 300, 1, 13, 100},
        {2, -300, 2, 12, 4000}, {1, 1, 1, 1, 4095},     {2, 2, 1, 777, 1},
        {3, 3, 1, 601, 2},      {4, 4, 1, 15, 3},
    };
    long *got = malloc(2 * WORDS * sizeof(long));
    int from = (me + 1 + (int)turn % pes) % pes;

    CHECK(got, "memory");
    shmem_barrier_all();
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        memset(got, 0xff, 2 * WORDS * sizeof(long));
        long *dest = got + WORDS;
        if (cases[c].block == 1)
            shmem_long_iget(dest, numbers + cases[c].first, cases[c].dest, cases[c].source,
                            cases[c].count, from);
        else
            shmem_long_ibget(dest, numbers + cases[c].first, cases[c].dest * 3, cases[c].source,
                             cases[c].block, cases[c].count, from);
        ptrdiff_t step = cases[c].block == 1 ? cases[c].dest : cases[c].dest * 3;
        for (size_t i = 0; i < cases[c].count * cases[c].block; i++) {
            ptrdiff_t block = (ptrdiff_t)(i / cases[c].block);
            ptrdiff_t in_it = (ptrdiff_t)(i % cases[c].block);
            long *here = dest + block * step + in_it;
            long wanted = number_of(from, cases[c].first + block * cases[c].source + in_it, turn);
            CHECK(*here == wanted, "case %zu, element %zu: %ld, not %ld", c, i, *here, wanted);
            *here = -1;
        }
        for (long i = 0; i < 2 * WORDS; i++)
            CHECK(got[i] == -1, "case %zu: word %ld has become %ld", c, i - WORDS, got[i]);
    }
    free(got);
    shmem_barrier_all();
}

/* The same cases with puts, into this PE's part of the other PE's memory. */
static void test_strided_puts(long turn)
{
    enum { PART = 2000 };
    static const struct {
        ptrdiff_t dest, source; /* strides */
        size_t block, count;
        long first; /* of the part */
    } cases[] = {
        {2, 2, 1, 256, 0},      {1, 3, 1, 700, 3},     {-2, 1, 1, 900, 1999}, {7, 3, 2, 280, 1},
        {-5, -4, 3, 300, 1500}, {200, 150, 150, 9, 0}, {1500, 1, 1, 2, 10},   {3, 3, 1, 601, 2},
        {4, 4, 1, 399, 1},      {4, 4, 2, 401, 0},     {4, 4, 3, 301, 7},     {5, 5, 1, 300, 0},
        {2, 2, 1, 15, 4},
    };
    static long written[16 * PART], from_here[3 * WORDS];
    int to = (me + 1 + (int)turn % pes) % pes, from = (me + 2 * pes - 1 - (int)turn % pes) % pes;

    for (long i = 0; i < 3 * WORDS; i++)
        from_here[i] = number_of(me, i, turn);
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        const long *source = from_here + WORDS;
        long *dest = written + (size_t)me * PART + cases[c].first;
        memset(written, 0xff, sizeof(written));
        shmem_barrier_all();
        if (cases[c].block == 1)
            shmem_long_iput(dest, source, cases[c].dest, cases[c].source, cases[c].count, to);
        else
            shmem_long_ibput(dest, source, cases[c].dest, cases[c].source, cases[c].block,
                             cases[c].count, to);
        shmem_barrier_all();
        long *here = written + (size_t)from * PART + cases[c].first;
        for (size_t i = 0; i < cases[c].count * cases[c].block; i++) {
            ptrdiff_t block = (ptrdiff_t)(i / cases[c].block);
            ptrdiff_t in_it = (ptrdiff_t)(i % cases[c].block);
            long *word = here + block * cases[c].dest + in_it;
            long wanted = number_of(from, WORDS + block * cases[c].source + in_it, turn);
            CHECK(*word == wanted, "case %zu, element %zu: %ld, not %ld", c, i, *word, wanted);
            *word = -1;
        }
        for (long i = 0; i < 16 * PART; i++)
            CHECK(written[i] == -1, "case %zu: word %ld has become %ld", c, i, written[i]);
        shmem_barrier_all();
    }
}

/* Fetched values that arrive later: each number occurs once, at any PE. */
static void test_fetches(long turn)
{
    enum { TAKEN = 500 };
    static int taken[TAKEN * 16];
    static unsigned fetched_narrow[2 * TAKEN];
    static unsigned narrow;
    static double real;
    long fetched[TAKEN], swapped = 0, seen = 0;
    double fetched_real = 0;

    memset(taken, 0, sizeof(taken));
    memset(fetched_narrow, 0xff, sizeof(fetched_narrow));
    counters[60] = 0;
    counters[61] = 7;
    narrow = 0;
    real = 2.5;
    shmem_barrier_all();
    for (int i = 0; i < TAKEN; i++) {
        shmem_long_atomic_fetch_add_nbi(&fetched[i], &counters[60], 1, pes - 1);
        shmem_uint_atomic_fetch_inc_nbi(&fetched_narrow[2 * i], &narrow, pes - 1);
    }
    if (me == 0) {
        shmem_long_atomic_compare_swap_nbi(&swapped, &counters[61], 7, 8 + turn, pes - 1);
        shmem_long_atomic_fetch_nbi(&seen, &counters[61], pes - 1);
        shmem_double_atomic_fetch_nbi(&fetched_real, &real, pes - 1);
    }
    shmem_quiet();
    CHECK(me != 0 || (swapped == 7 && seen == 8 + turn && fetched_real == 2.5), "%ld, %ld, %g",
          swapped, seen, fetched_real);
    for (int i = 0; i < TAKEN; i++) {
        CHECK(fetched[i] >= 0 && fetched[i] < TAKEN * (long)pes, "%ld", fetched[i]);
        shmem_int_atomic_inc(&taken[fetched[i]], 0);
        CHECK(fetched_narrow[2 * i] < (unsigned)(TAKEN * pes) && fetched_narrow[2 * i + 1] == ~0u,
              "%u, %u", fetched_narrow[2 * i], fetched_narrow[2 * i + 1]);
    }
    shmem_barrier_all();
    for (int i = 0; i < TAKEN * pes && me == 0; i++)
        CHECK(taken[i] == 1, "number %d was taken %d times", i, taken[i]);
    shmem_barrier_all();
}

/* Updates by all PEs at all PEs, mixed with puts. The last operation of each PE is a set, ordered
 * after the others.
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

/* The best of several attempts, because the machine may have other load. */
static void test_faster(void)
{
    double gets = 0, adds = 0, fetches = 0;

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
        for (int i = 0; i < 300; i++)
            shmem_long_atomic_fetch_inc_nbi(&into_static[i], &counters[0], pes - 1);
        shmem_quiet();
        double fetched_later = now_s();
        double ratio = (waited - begin) / (overlapped - waited);
        gets = ratio > gets ? ratio : gets;
        ratio = (fetched - overlapped) / (updated - fetched);
        adds = ratio > adds ? ratio : adds;
        ratio = (fetched - overlapped) / (fetched_later - updated);
        fetches = ratio > fetches ? ratio : fetches;
    }
    if (me == 0) {
        printf("gets %.1f, updates %.1f, fetching ones %.1f times as fast\n", gets, adds, fetches);
        CHECK(gets > 5 && adds > 5 && fetches > 5, "gets %.1f, updates %.1f, fetching ones %.1f",
              gets, adds, fetches);
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
        test_strides(turn);
        test_strided_puts(turn);
        test_fetches(turn);
        test_updates(turn);
    }
    if (argc > 1 && strcmp(argv[1], "faster") == 0)
        test_faster();
    return passed("overlap");
}
