/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The program of viaduct-perf-shmem, a PE on each host of a ring: prints lines of
 * "test <tab> path <tab> bytes <tab> value <tab> unit". An OpenSHMEM program like any other.
 *
 *     oshrun -n N --hosts ... perf_pe put|steps|together|turn|barrier seconds size...
 */
#include <shmem.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS 5
#define SIZES_MAX 32

static int me, pes;
static double seconds;
static size_t sizes[SIZES_MAX];
static int sizes_count;
static char *block, *source, *copy;
static long *flags; /* two lines */

static double now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

static void print_row(const char *test, const char *path, size_t bytes, double value,
                      const char *unit)
{
    if (me == 0)
        printf("%s\t%s\t%zu\t%.6g\t%s\n", test, path, bytes, value, unit);
    fflush(stdout);
}

/* --- measuring ------------------------------------------------------------------------------- */

/* Makes an operation `count` times, with `bytes` and PE `to`. */
typedef void measured(size_t bytes, int to, long count);

/* Nanoseconds of one operation: the median of rounds that take `seconds` together. Only PE 0 makes
 * it. */
static double time_alone(measured *function, size_t bytes, int to)
{
    double rounds[ROUNDS] = {0};
    long count = 1;

    shmem_barrier_all();
    for (double took = 0; me == 0 && took < seconds * 1e9 / ROUNDS / 4; count *= 2) {
        double began = now_ns();
        function(bytes, to, count);
        took = now_ns() - began;
    }
    for (int round = 0; me == 0 && round < ROUNDS; round++) {
        double began = now_ns();
        function(bytes, to, count);
        rounds[round] = (now_ns() - began) / (double)count;
    }
    shmem_barrier_all();
    qsort(rounds, ROUNDS, sizeof(rounds[0]), compare);
    return rounds[ROUNDS / 2];
}

/* The same with all PEs, each with the PE `distance` further; the slowest PE counts. */
static double time_together(measured *function, size_t bytes, int distance, long count)
{
    static double mine, slowest;
    double rounds[ROUNDS];

    for (int round = 0; round < ROUNDS; round++) {
        shmem_barrier_all();
        double began = now_ns();
        function(bytes, (me + distance) % pes, count);
        mine = (now_ns() - began) / (double)count;
        shmem_double_max_reduce(SHMEM_TEAM_WORLD, &slowest, &mine, 1);
        rounds[round] = slowest;
    }
    qsort(rounds, ROUNDS, sizeof(rounds[0]), compare);
    return rounds[ROUNDS / 2];
}

static void bare_copy(size_t bytes, int to, long count)
{
    (void)to;
    for (long i = 0; i < count; i++) {
        memcpy(copy, source, bytes);
        __asm__ volatile("" ::: "memory");
    }
}

static void put_stream(size_t bytes, int to, long count)
{
    for (long i = 0; i < count; i++)
        shmem_putmem(block, source, bytes, to);
    shmem_quiet();
}

static void put_and_quiet(size_t bytes, int to, long count)
{
    for (long i = 0; i < count; i++) {
        shmem_putmem(block, source, bytes, to);
        shmem_quiet();
    }
}

static void get(size_t bytes, int to, long count)
{
    for (long i = 0; i < count; i++)
        shmem_getmem(source, block, bytes, to);
}

static void quiet_alone(size_t bytes, int to, long count)
{
    (void)bytes;
    (void)to;
    for (long i = 0; i < count; i++)
        shmem_quiet();
}

/* --- tests ----------------------------------------------------------------------------------- */

/* PE 1 is a neighbour; PE 2, where there are four hosts or more, is two hops away. */
static const struct path {
    const char *name;
    int to, pes_min;
} paths[] = {{"neighbour", 1, 2}, {"two hops", 2, 4}};
#define PATHS 2

static void test_put(void)
{
    for (int i = 0; i < sizes_count; i++) {
        double bytes = (double)sizes[i];
        print_row("raw", "memcpy", sizes[i], bytes / time_alone(bare_copy, sizes[i], 0) * 1e3,
                  "MB/s");
        for (int path = 0; path < PATHS && pes >= paths[path].pes_min; path++) {
            print_row("put", paths[path].name, sizes[i],
                      bytes / time_alone(put_stream, sizes[i], paths[path].to) * 1e3, "MB/s");
            print_row("get", paths[path].name, sizes[i],
                      bytes / time_alone(get, sizes[i], paths[path].to) * 1e3, "MB/s");
        }
    }
}

/* A turn-around: PE 0 puts a block and a flag behind it, and PE `to` answers by a flag. */
static double measure_turn(size_t bytes, int to, long count)
{
    static long number;
    double rounds[ROUNDS];

    for (int round = 0; round < ROUNDS; round++) {
        shmem_barrier_all();
        double began = now_ns();
        for (long i = 1; i <= count && (me == 0 || me == to); i++) {
            if (me == 0) {
                shmem_putmem(block, source, bytes, to);
                shmem_fence();
                shmem_long_p(&flags[0], number + i, to);
                shmem_long_wait_until(&flags[8], SHMEM_CMP_GE, number + i);
            } else {
                shmem_long_wait_until(&flags[0], SHMEM_CMP_GE, number + i);
                shmem_long_p(&flags[8], number + i, 0);
            }
        }
        number += count;
        rounds[round] = (now_ns() - began) / (double)count;
        shmem_barrier_all();
    }
    qsort(rounds, ROUNDS, sizeof(rounds[0]), compare);
    return rounds[ROUNDS / 2];
}

/* As many turn-arounds as fit in the time, according to the first ones; the same number at all
 * PEs. */
static long turns_in_time(size_t bytes, int to)
{
    static long count;

    count = (long)(seconds * 1e9 / ROUNDS / measure_turn(bytes, to, 20)) + 1;
    shmem_barrier_all();
    long agreed = shmem_long_g(&count, 0);
    shmem_barrier_all();
    return agreed;
}

static void test_turn(void)
{
    for (int path = 0; path < PATHS && pes >= paths[path].pes_min; path++)
        for (int i = 0; i < sizes_count; i++) {
            long count = turns_in_time(sizes[i], paths[path].to);
            print_row("turn-around", paths[path].name, sizes[i],
                      measure_turn(sizes[i], paths[path].to, count) / 1e3, "us");
        }
}

/* The steps of a put whose arrival is waited for: the call until the source may be changed, and the
 * wait until the put has arrived; then the notice, which is half of a turn-around of 8 bytes. */
static void test_steps(void)
{
    for (int path = 0; path < PATHS && pes >= paths[path].pes_min; path++) {
        int to = paths[path].to;
        print_row("step: notice", paths[path].name, 8,
                  measure_turn(8, to, turns_in_time(8, to)) / 2e3, "us");
        print_row("step: quiet, nothing under way", paths[path].name, 0,
                  time_alone(quiet_alone, 0, to) / 1e3, "us");
        for (int i = 0; i < sizes_count; i++) {
            double calls[101], waits[101];
            shmem_barrier_all();
            for (int n = 0; n < 101 && me == 0; n++) {
                double began = now_ns();
                shmem_putmem(block, source, sizes[i], to);
                double called = now_ns();
                shmem_quiet();
                calls[n] = called - began;
                waits[n] = now_ns() - called;
            }
            shmem_barrier_all();
            if (me != 0)
                continue;
            qsort(calls, 101, sizeof(calls[0]), compare);
            qsort(waits, 101, sizeof(waits[0]), compare);
            print_row("step: call", paths[path].name, sizes[i], calls[50] / 1e3, "us");
            print_row("step: until it has arrived", paths[path].name, sizes[i], waits[50] / 1e3,
                      "us");
        }
    }
}

/* All hosts put at once: each to the next host, and each to the one two further. */
static void test_together(void)
{
    for (int i = 0; i < sizes_count; i++) {
        for (int path = 0; path < PATHS && pes >= paths[path].pes_min; path++) {
            /* All PEs know the time of the slowest PE, so all make the same number of
             * operations. */
            double guess = time_together(put_and_quiet, sizes[i], paths[path].to, 5);
            long count = (long)(seconds * 1e9 / ROUNDS / (guess + 1)) + 1;
            print_row("all put at once", paths[path].name, sizes[i],
                      time_together(put_and_quiet, sizes[i], paths[path].to,
                                    count > 2000 ? 2000 : count) /
                          1e3,
                      "us");
        }
    }
}

static void barriers(size_t bytes, int to, long count)
{
    (void)bytes;
    (void)to;
    for (long i = 0; i < count; i++)
        shmem_barrier_all();
}

/* Barriers by windows or by doorbells, as the job's environment says. */
static void test_barrier(void)
{
    const char *way = getenv("VIADUCT_SHMEM_BARRIER");
    double guess = time_together(barriers, 0, 0, 50);
    long count = (long)(seconds * 1e9 / ROUNDS / (guess + 1)) + 1;

    print_row("barrier", way ? way : "windows", 0, time_together(barriers, 0, 0, count) / 1e3,
              "us");
}

int main(int argc, char **argv)
{
    size_t bytes_max = 8;

    if (argc < 4) {
        fputs("usage: perf_pe put|steps|together|turn|barrier seconds size...\n", stderr);
        return 2;
    }
    seconds = strtod(argv[2], NULL);
    for (int i = 3; i < argc && sizes_count < SIZES_MAX; i++) {
        sizes[sizes_count] = strtoul(argv[i], NULL, 10);
        bytes_max = sizes[sizes_count] > bytes_max ? sizes[sizes_count] : bytes_max;
        sizes_count++;
    }
    shmem_init();
    me = shmem_my_pe();
    pes = shmem_n_pes();
    block = shmem_malloc(bytes_max);
    flags = shmem_calloc(16, sizeof(long));
    source = malloc(bytes_max);
    copy = malloc(bytes_max);
    if (!block || !flags || !source || !copy) {
        fprintf(stderr, "perf_pe: no memory for blocks of %zu bytes\n", bytes_max);
        shmem_global_exit(1);
    }
    memset(block, 1, bytes_max);
    memset(source, 2, bytes_max);
    memset(copy, 3, bytes_max);
    shmem_barrier_all();
    if (strcmp(argv[1], "put") == 0)
        test_put();
    else if (strcmp(argv[1], "steps") == 0)
        test_steps();
    else if (strcmp(argv[1], "together") == 0)
        test_together();
    else if (strcmp(argv[1], "barrier") == 0)
        test_barrier();
    else
        test_turn();
    shmem_finalize();
    return 0;
}
