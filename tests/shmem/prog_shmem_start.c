/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Memory of another PE is mapped at its first use: one mapping per PE, for any number of threads
 * and any first call.
 *
 *     oshrun -n N prog_shmem_start [same-host]
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

#define THREADS 4
#define THREADED_PES_MAX 32

static long mine[1 + THREADS];
static long *heap;
static int me, pes;

/* Lines of /proc/self/maps with this name. */
static int count_maps(const char *name)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    int count = 0;

    CHECK(maps, "/proc/self/maps");
    while (fgets(line, sizeof(line), maps))
        count += strstr(line, name) != NULL;
    fclose(maps);
    return count;
}

static void expect_maps(int heaps, int data, const char *when)
{
    int got_heaps = count_maps("memfd:viaduct-heap"), got_data = count_maps("memfd:viaduct-data");

    CHECK(got_heaps == heaps && got_data == data, "%s: %d heaps and %d data, not %d and %d", when,
          got_heaps, got_data, heaps, data);
}

/* Programs that a PE starts do not inherit the job's descriptors. */
static void test_descriptors(void)
{
    char path[64], name[256];

    for (int fd = 3; fd < 1024; fd++) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        ssize_t bytes = readlink(path, name, sizeof(name) - 1);
        if (bytes < 0 || !memmem(name, (size_t)bytes, "memfd:viaduct", 13))
            continue;
        CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC, "descriptor %d is inherited", fd);
    }
}

/* All threads access all PEs for the first time at once, in different orders. */
static void *use_all(void *argument)
{
    long number = (long)(intptr_t)argument;

    for (int i = 0; i < pes; i++) {
        int pe = (int)(number % 2 ? i : pes - 1 - i);
        shmem_long_atomic_add(&mine[1 + number], 1, pe);
        shmem_long_atomic_add(&heap[1 + number], 1, pe);
    }
    shmem_quiet();
    return NULL;
}

static void test_threads(void)
{
    pthread_t threads[THREADS];

    for (long i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, use_all, (void *)(intptr_t)i) == 0, "thread");
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    shmem_barrier_all();
    for (int i = 0; i < THREADS; i++)
        CHECK(mine[1 + i] == pes && heap[1 + i] == pes, "thread %d: %ld, %ld", i, mine[1 + i],
              heap[1 + i]);
}

int main(int argc, char **argv)
{
    int provided;
    bool same_host = argc > 1 && strcmp(argv[1], "same-host") == 0;

    shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided);
    me = shmem_my_pe();
    pes = shmem_n_pes();
    heap = shmem_calloc(1 + THREADS, sizeof(*heap));
    test_descriptors();
    bool many = same_host && pes > 16; /* fewer than that meet in each other's heaps */
    if (many)
        expect_maps(1, 1, "at the start");
    shmem_long_p(&mine[0], me, (me + 1) % pes);
    shmem_long_p(&heap[0], me, (me + 1) % pes);
    if (many)
        expect_maps(2, 2, "after a put");
    if (many)
        CHECK(shmem_ptr(heap, (me + 2) % pes) && shmem_ptr(mine, (me + 2) % pes), "shmem_ptr");
    if (many)
        expect_maps(3, 3, "after shmem_ptr");
    shmem_barrier_all();
    CHECK(mine[0] == (me + pes - 1) % pes && heap[0] == mine[0], "%ld, %ld", mine[0], heap[0]);
    if (pes <= THREADED_PES_MAX)
        test_threads();
    if (many && pes <= THREADED_PES_MAX)
        expect_maps(pes, pes, "after all");
    shmem_free(heap);
    return passed("start");
}
