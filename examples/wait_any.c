/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Work in the order in which it comes: PE 0 has a place for a result of each other PE, and takes up
 * whichever is there, instead of waiting for them in turn.
 *
 *     oshrun -n 4 ./wait_any [results per PE]
 */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>

#define PES_MAX 1024

static uint64_t results[PES_MAX]; /* at PE 0: the newest of each PE */
static uint64_t signals[PES_MAX]; /* at PE 0: its number */
static uint64_t taken[PES_MAX];   /* at each PE, in [0]: how many of its results have been taken */

static void produce(int me, uint64_t count)
{
    for (uint64_t i = 1; i <= count; i++) {
        uint64_t result = (uint64_t)me * i;
        /* There is one place: the result before this one has to be out of it. */
        shmem_wait_until(&taken[0], SHMEM_CMP_GE, i - 1);
        shmem_put_signal(&results[me], &result, 1, &signals[me], i, SHMEM_SIGNAL_SET, 0);
    }
}

static uint64_t consume(int pes, uint64_t count)
{
    static uint64_t seen[PES_MAX];
    static int done[PES_MAX]; /* status: not to be looked at any more */
    uint64_t sum = 0;

    done[0] = 1;
    for (uint64_t left = count * (uint64_t)(pes - 1); left > 0; left--) {
        /* Each is waited for by the number after the last that was seen. */
        static uint64_t wanted[PES_MAX];
        for (int pe = 0; pe < pes; pe++)
            wanted[pe] = seen[pe] + 1;
        size_t pe = shmem_wait_until_any_vector(signals, (size_t)pes, done, SHMEM_CMP_EQ, wanted);
        sum += results[pe];
        seen[pe]++;
        done[pe] = seen[pe] == count;
        shmem_p(&taken[0], seen[pe], (int)pe);
    }
    return sum;
}

int main(int argc, char **argv)
{
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000;
    int failed = 0;

    shmem_init();
    int me = shmem_my_pe(), pes = shmem_n_pes();
    if (pes > PES_MAX)
        shmem_global_exit(1);
    if (me != 0) {
        produce(me, count);
    } else {
        uint64_t sum = consume(pes, count), wanted = 0;
        for (int pe = 1; pe < pes; pe++)
            wanted += (uint64_t)pe * count * (count + 1) / 2;
        failed = sum != wanted;
        printf("%s: %llu results of %d PEs, their sum is %llu\n", failed ? "FAIL" : "PASS",
               (unsigned long long)(count * (uint64_t)(pes - 1)), pes - 1, (unsigned long long)sum);
    }
    shmem_finalize();
    return failed;
}
