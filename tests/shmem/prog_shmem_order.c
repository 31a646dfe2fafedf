/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Order: data, then fence or quiet, then a flag, to every PE, over every path. Some blocks are long
 * enough that each way of copying is used. A reader that has seen the flag finds the whole block.
 */
#include <stdlib.h>

#include "check.h"

#define ROUNDS 60
#define WORDS_MAX 40000

static int me, pes;
static long *block;  /* WORDS_MAX for each sender */
static long *flag;   /* one for each sender */
static long *answer; /* one for each reader */

static size_t words_of(int round)
{
    static const size_t lengths[] = {1, 2, 3, 7, 8, 63, 129, 1000, 5000, WORDS_MAX};
    return lengths[(size_t)round % (sizeof(lengths) / sizeof(lengths[0]))];
}

static void send(int round, int to, long *source)
{
    size_t words = words_of(round);

    for (size_t i = 0; i < words; i++)
        source[i] = round * 1000000L + me * 1000 + (long)(i % 997);
    switch (round % 4) {
    case 0:
        shmem_long_put(block + (size_t)me * WORDS_MAX, source, words, to);
        shmem_fence();
        shmem_long_p(&flag[me], round, to);
        break;
    case 1:
        shmem_long_put_nbi(block + (size_t)me * WORDS_MAX, source, words, to);
        shmem_quiet();
        shmem_long_p(&flag[me], round, to);
        break;
    case 2:
        shmem_long_put_signal(block + (size_t)me * WORDS_MAX, source, words,
                              (uint64_t *)(void *)&flag[me], (uint64_t)round, SHMEM_SIGNAL_SET, to);
        break;
    default:
        shmem_long_put(block + (size_t)me * WORDS_MAX, source, words, to);
        shmem_fence();
        /* Atomics are ordered like puts. */
        shmem_long_atomic_set(&flag[me], round, to);
        break;
    }
}

static void receive(int round, int from)
{
    size_t words = words_of(round);
    const long *got = block + (size_t)from * WORDS_MAX;

    shmem_long_wait_until(&flag[from], SHMEM_CMP_GE, round);
    for (size_t i = 0; i < words; i++)
        CHECK(got[i] == round * 1000000L + from * 1000 + (long)(i % 997),
              "round %d from PE %d, word %zu of %zu", round, from, i, words);
    shmem_long_p(&answer[me], round, from);
}

/* Quiet makes a put visible to all PEs: a third PE that gets a notification finds the data. */
static void test_third(void)
{
    static long data, arrived;

    for (long round = 1; round <= 50 && pes >= 3; round++) {
        if (me == 0) {
            shmem_long_p(&data, round, 1);
            shmem_quiet();
            shmem_long_p(&arrived, round, 2);
        } else if (me == 2) {
            shmem_long_wait_until(&arrived, SHMEM_CMP_GE, round);
            long seen = shmem_long_g(&data, 1);
            CHECK(seen == round, "PE 2 sees %ld in round %ld", seen, round);
        }
        shmem_barrier_all();
    }
}

/* A barrier completes all operations, and no PE leaves before all have entered. */
static void test_barriers(void)
{
    long *all = shmem_calloc((size_t)pes, sizeof(long));

    for (long round = 1; round <= 300; round++) {
        for (int pe = 0; pe < pes; pe++)
            shmem_long_put(&all[me], &round, 1, pe);
        if (round % 2)
            shmem_barrier_all();
        else {
            shmem_quiet();
            shmem_sync_all();
        }
        for (int pe = 0; pe < pes; pe++)
            CHECK(all[pe] == round, "round %ld: PE %d: %ld", round, pe, all[pe]);
        shmem_barrier_all();
    }
    shmem_free(all);
}

/* A PE that has left one of them sees that all others have entered, and sees their earlier stores.
 */
static void test_meetings(void)
{
    static long came[6], sync_array[SHMEM_SYNC_SIZE];
    int next = (me + 1) % pes;

    for (int kind = 0; kind < 6; kind++) {
        shmem_barrier_all();
        late();
        shmem_long_p(&came[kind], 1, next);
        if (kind >= 3)
            shmem_quiet();
        switch (kind) {
        case 0:
            shmem_barrier_all();
            break;
        case 1:
            shmem_barrier(0, 0, pes, sync_array);
            break;
        case 2:
            shmem_quiet();
            shmem_sync(SHMEM_TEAM_WORLD);
            break;
        case 3:
            shmem_sync_all();
            break;
        case 4:
            shmem_team_sync(SHMEM_TEAM_WORLD);
            break;
        default:
            (shmem_sync)(0, 0, pes, sync_array);
            break;
        }
        CHECK(came[kind] == 1, "meeting %d", kind);
    }
    shmem_barrier_all();
}

int main(void)
{
    shmem_init();
    me = shmem_my_pe();
    pes = shmem_n_pes();
    block = shmem_malloc((size_t)pes * WORDS_MAX * sizeof(long));
    flag = shmem_calloc((size_t)pes, sizeof(long));
    answer = shmem_calloc((size_t)pes, sizeof(long));
    long *source = malloc(WORDS_MAX * sizeof(long));
    CHECK(block && flag && answer && source, "memory");

    for (int round = 1; round <= ROUNDS; round++) {
        for (int i = 0; i < pes; i++)
            send(round, (me + i) % pes, source);
        for (int i = 0; i < pes; i++)
            receive(round, (me + pes - i) % pes);
        for (int i = 0; i < pes; i++)
            shmem_long_wait_until(&answer[i], SHMEM_CMP_GE, round);
    }
    test_third();
    test_barriers();
    test_meetings();
    return passed("order");
}
