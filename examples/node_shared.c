/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * PEs that share memory use it: SHMEM_TEAM_SHARED has the PEs whose memory loads and stores reach,
 * and shmem_ptr says where. Each PE adds up the numbers of its team's PEs in place, without a copy;
 * one PE of each team brings the sums to PE 0.
 *
 *     oshrun -n 4 ./node_shared [numbers per PE]
 */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>

static long total; /* at PE 0 */

int main(int argc, char **argv)
{
    long count = argc > 1 ? atol(argv[1]) : 10000, sum = 0;

    shmem_init();
    int me = shmem_my_pe(), pes = shmem_n_pes();
    int shared_me = shmem_team_my_pe(SHMEM_TEAM_SHARED);
    int shared_pes = shmem_team_n_pes(SHMEM_TEAM_SHARED);
    long *numbers = shmem_malloc((size_t)count * sizeof(*numbers));
    if (!numbers)
        shmem_global_exit(1);
    for (long i = 0; i < count; i++)
        numbers[i] = me + i;
    shmem_barrier_all();

    for (int pe = 0; pe < shared_pes && shared_me == 0; pe++) {
        int world_pe = shmem_team_translate_pe(SHMEM_TEAM_SHARED, pe, SHMEM_TEAM_WORLD);
        const long *theirs = shmem_ptr(numbers, world_pe);
        if (!theirs)
            shmem_global_exit(1);
        for (long i = 0; i < count; i++)
            sum += theirs[i];
    }
    if (shared_me == 0)
        shmem_atomic_add(&total, sum, 0);
    shmem_barrier_all();

    long wanted = count * (count - 1) / 2 * pes + count * ((long)pes * (pes - 1) / 2);
    if (me == 0)
        printf("%s: %d PEs, %d of them share memory with PE 0, the sum is %ld\n",
               total == wanted ? "PASS" : "FAIL", pes, shared_pes, total);
    int failed = me == 0 && total != wanted;
    shmem_free(numbers);
    shmem_finalize();
    return failed;
}
