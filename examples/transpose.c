/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A matrix is spread by rows, its transpose wanted by rows as well: alltoall moves the blocks, and
 * a scan says at which row each PE begins, when PEs have different numbers of rows of a list.
 *
 *     oshrun -n 4 ./transpose [rows per PE]
 */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>

/* PE `me` has rows of its own of a list: how many before them? */
static int scan_is_right(int me)
{
    static long mine, before;

    mine = me % 3 + 1;
    shmem_sum_exscan(SHMEM_TEAM_WORLD, &before, &mine, 1);
    long wanted = 0;
    for (int pe = 0; pe < me; pe++)
        wanted += pe % 3 + 1;
    return me == 0 || before == wanted; /* that of the first is not defined */
}

int main(int argc, char **argv)
{
    long rows = argc > 1 ? atol(argv[1]) : 16, wrong = 0;

    shmem_init();
    int me = shmem_my_pe(), pes = shmem_n_pes();
    size_t block = (size_t)(rows * rows), all = block * (size_t)pes;
    /* Block `pe` of what is sent goes to that PE; of what comes, block `pe` is from it. */
    long *sent = shmem_malloc(all * sizeof(*sent));
    long *came = shmem_malloc(all * sizeof(*came));
    static long wrong_here, wrong_everywhere;
    if (!sent || !came)
        shmem_global_exit(1);

    /* Element (i, j) is i * n + j, and lies transposed within its block already. */
    long n = rows * pes;
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < n; j++)
            sent[(size_t)(j / rows) * block + (size_t)(j % rows * rows + i)] =
                (me * rows + i) * n + j;
    shmem_alltoall(SHMEM_TEAM_WORLD, came, sent, block);
    /* Row i of the transpose is column me * rows + i of the matrix. */
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < n; j++)
            wrong += came[(size_t)(j / rows) * block + (size_t)(i * rows + j % rows)] !=
                     j * n + me * rows + i;
    wrong_here = wrong + !scan_is_right(me);
    shmem_sum_reduce(SHMEM_TEAM_WORLD, &wrong_everywhere, &wrong_here, 1);
    if (me == 0)
        printf("%s: %ld x %ld on %d PEs, %ld elements are wrong\n",
               wrong_everywhere == 0 ? "PASS" : "FAIL", n, n, pes, wrong_everywhere);
    int failed = wrong_everywhere != 0;
    shmem_free(came);
    shmem_free(sent);
    shmem_finalize();
    return failed;
}
