/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The smallest OpenSHMEM program: every PE prints its number, and tells PE 0, which counts.
 *
 *     oshcc hello.c -o hello && oshrun -n 4 ./hello
 */
#include <shmem.h>
#include <stdio.h>

/* Global variables are symmetric: every PE has one, and all reach each other's. */
static int greeted;

int main(void)
{
    shmem_init();
    int me = shmem_my_pe();
    int pes = shmem_n_pes();

    printf("Hello from PE %d of %d\n", me, pes);
    fflush(stdout);
    shmem_int_atomic_inc(&greeted, 0);
    shmem_barrier_all();

    int failed = me == 0 && greeted != pes;
    if (me == 0)
        printf("%s: %d of %d PEs said hello\n", failed ? "FAIL" : "PASS", greeted, pes);
    shmem_finalize();
    return failed;
}
