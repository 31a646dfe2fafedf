/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A block of numbers goes round the ring of PEs, one PE further in each round, until each is back
 * where it began: put, then a flag behind it, as one call.
 *
 *     oshrun -n 4 ring_shift [numbers per PE]
 */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>

#define NUMBERS_DEFAULT 100000

static long number_of(int pe, size_t i)
{
    return (long)pe * 1000003 + (long)i;
}

static size_t count_wrong(const long *block, int pe, size_t numbers)
{
    size_t wrong = 0;

    for (size_t i = 0; i < numbers; i++)
        wrong += block[i] != number_of(pe, i);
    return wrong;
}

int main(int argc, char **argv)
{
    size_t numbers = argc > 1 ? strtoul(argv[1], NULL, 10) : NUMBERS_DEFAULT;

    shmem_init();
    int me = shmem_my_pe();
    int pes = shmem_n_pes();
    int next = (me + 1) % pes;

    /* Two blocks: one is sent while the other is being filled. */
    long *blocks[2] = {shmem_malloc(numbers * sizeof(long)), shmem_malloc(numbers * sizeof(long))};
    uint64_t *arrived = shmem_calloc(1, sizeof(uint64_t));
    int *wrong_pes = shmem_calloc(1, sizeof(int));
    if (!blocks[0] || !blocks[1] || !arrived || !wrong_pes) {
        fprintf(stderr, "FAIL: no symmetric memory for %zu numbers\n", numbers);
        shmem_global_exit(1);
    }

    for (size_t i = 0; i < numbers; i++)
        blocks[0][i] = number_of(me, i);
    shmem_barrier_all();

    size_t wrong = 0;
    for (int round = 1; round <= pes; round++) {
        long *mine = blocks[(round + 1) % 2];
        long *theirs = blocks[round % 2];
        shmem_put_signal(theirs, mine, numbers, arrived, 1, SHMEM_SIGNAL_ADD, next);
        shmem_signal_wait_until(arrived, SHMEM_CMP_GE, (uint64_t)round);
        wrong += count_wrong(theirs, (me - round + pes) % pes, numbers);
        /* No PE overwrites a block that another PE still reads. */
        shmem_barrier_all();
    }

    if (wrong > 0) {
        printf("PE %d: %zu numbers are wrong\n", me, wrong);
        shmem_int_atomic_inc(wrong_pes, 0);
    }
    shmem_barrier_all();
    int failed = me == 0 && *wrong_pes > 0;
    if (me == 0)
        printf("%s: %zu numbers once round a ring of %d PEs\n", failed ? "FAIL" : "PASS", numbers,
               pes);
    shmem_finalize();
    return failed;
}
