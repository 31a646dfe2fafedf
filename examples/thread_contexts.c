/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Threads with a context each: a thread's quiet waits for what it has sent itself, and the library
 * need not keep threads apart that do not share a context. The threads of each PE fill parts of the
 * next PE's array. OpenMP has them if the program is compiled by `oshcc -fopenmp`; here they are
 * POSIX threads.
 *
 *     oshrun -n 4 ./thread_contexts [numbers per thread]
 */
#include <pthread.h>
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS 4

static long *array, count;
static int me, pes;

static void *fill(void *argument)
{
    long part = (long)(size_t)argument;
    shmem_ctx_t ctx;
    /* Private: only the thread that makes it uses it. */
    int made = shmem_ctx_create(SHMEM_CTX_PRIVATE, &ctx) == 0;

    if (!made)
        ctx = SHMEM_CTX_DEFAULT; /* there are no more: what all share is right, too */
    for (long i = 0; i < count; i++)
        shmem_ctx_long_p(ctx, &array[part * count + i], me * 1000000L + part * count + i,
                         (me + 1) % pes);
    shmem_ctx_quiet(ctx);
    if (made)
        shmem_ctx_destroy(ctx);
    return NULL;
}

int main(int argc, char **argv)
{
    static long wrong, wrong_everywhere;
    pthread_t threads[THREADS];
    int provided;

    count = argc > 1 ? atol(argv[1]) : 1000;
    if (shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided) != 0 ||
        provided != SHMEM_THREAD_MULTIPLE)
        shmem_global_exit(1);
    me = shmem_my_pe();
    pes = shmem_n_pes();
    array = shmem_calloc((size_t)(THREADS * count) + 1, sizeof(*array));
    if (!array)
        shmem_global_exit(1);
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, fill, (void *)i) != 0)
            shmem_global_exit(1);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    shmem_barrier_all();
    for (long i = 0; i < THREADS * count; i++)
        wrong += array[i] != (me + pes - 1) % pes * 1000000L + i;
    shmem_sum_reduce(SHMEM_TEAM_WORLD, &wrong_everywhere, &wrong, 1);
    if (me == 0)
        printf("%s: %d threads of %d PEs, %ld numbers are wrong\n",
               wrong_everywhere == 0 ? "PASS" : "FAIL", THREADS, pes, wrong_everywhere);
    int failed = wrong_everywhere != 0;
    shmem_free(array);
    shmem_finalize();
    return failed;
}
