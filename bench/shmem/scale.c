/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * scale WHAT: figures of teams and of many hosts, for bench_shmem_scale.py. PE 0 prints "name
 * value" lines.
 *
 *     reduce ELEMENTS TIMES      a sum of all PEs by the world, and by a team of all of them
 *     call NAME TIMES ELEMENTS   TIMES calls of a collective, each followed by a barrier
 *     time NAME                  a collective, by the bytes of a PE: "bytes nanoseconds" lines
 *     far                        1,000 gets of a word of PE 1: blocking; non-blocking and a quiet
 *     strided                    256 elements to PE 1, strided and in a row, each with a quiet
 *     memory                     memory of this PE when it has reached each other PE
 *     costs                      the parameters of src/shmem/costs.h, measured by two PEs
 *
 * Times are nanoseconds of the fastest slice of many, so that other programs do not count.
 */
#include <dirent.h>
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ELEMENTS_MAX ((size_t)1 << 20)
#define SLICES 60
#define GETS 1000
#define STRIDED 256

static int me, pes;
static shmem_team_t split;
static size_t elements;
static long *source, *dest;
static long word;
static char *big;

static double now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

typedef void measured(void);

/* The fastest slice, made by PE 0 alone, or by all PEs. */
static double fastest(measured *function, int times, int slices, int together)
{
    double best = 0;

    shmem_barrier_all();
    for (int slice = 0; slice < slices && (me == 0 || together); slice++) {
        double began = now_ns();
        for (int i = 0; i < times; i++)
            function();
        double took = (now_ns() - began) / times;
        best = slice == 0 || took < best ? took : best;
    }
    shmem_barrier_all();
    return best;
}

static void say(const char *name, double value)
{
    if (me == 0)
        printf("%s\t%.6g\n", name, value);
}

/* --- teams ----------------------------------------------------------------------------------- */

static void sum_of_world(void)
{
    shmem_long_sum_reduce(SHMEM_TEAM_WORLD, dest, source, elements);
}

static void sum_of_split(void)
{
    shmem_long_sum_reduce(split, dest, source, elements);
}

/* Measured in turn, so that other load of the machine affects both alike. */
static void reduce(int times)
{
    double world = 0, team = 0;

    shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, pes, NULL, 0, &split);
    for (int turn = 0; turn < 10; turn++) {
        double one = fastest(sum_of_world, times, 5, 1), other = fastest(sum_of_split, times, 5, 1);
        world = turn == 0 || one < world ? one : world;
        team = turn == 0 || other < team ? other : team;
    }
    say("world", world);
    say("split", team);
}

static void collective(const char *name)
{
    if (strcmp(name, "broadcast") == 0)
        shmem_long_broadcast(SHMEM_TEAM_WORLD, dest, source, elements, 0);
    else if (strcmp(name, "collect") == 0)
        shmem_long_collect(SHMEM_TEAM_WORLD, dest, source, elements);
    else if (strcmp(name, "fcollect") == 0)
        shmem_long_fcollect(SHMEM_TEAM_WORLD, dest, source, elements);
    else if (strcmp(name, "alltoall") == 0)
        shmem_long_alltoall(SHMEM_TEAM_WORLD, dest, source, elements);
    else if (strcmp(name, "reduce") == 0)
        sum_of_world();
}

static void call(const char *name, int times)
{
    for (int i = 0; i < times; i++) {
        collective(name);
        shmem_barrier_all();
    }
}

static const char *timed;

static void timed_collective(void)
{
    collective(timed);
}

static void time_by_size(const char *name)
{
    char bytes[32];

    timed = name;
    for (elements = 1; elements * (size_t)pes <= ELEMENTS_MAX && elements <= 32768; elements *= 8) {
        double ns = fastest(timed_collective, elements < 4096 ? 20 : 4, 25, 1);
        snprintf(bytes, sizeof(bytes), "%zu", elements * sizeof(long));
        say(bytes, ns);
    }
}

/* --- two PEs --------------------------------------------------------------------------------- */

static void gets(void)
{
    for (int i = 0; i < GETS; i++)
        shmem_long_get(source + i, dest + i, 1, 1);
}

static void gets_nbi(void)
{
    for (int i = 0; i < GETS; i++)
        shmem_long_get_nbi(source + i, dest + i, 1, 1);
    shmem_quiet();
}

static void put_strided(void)
{
    shmem_long_iput(dest, source, 2, 2, STRIDED, 1);
    shmem_quiet();
}

static void put_in_a_row(void)
{
    shmem_long_put(dest, source, STRIDED, 1);
    shmem_quiet();
}

/* --- costs ----------------------------------------------------------------------------------- */

static void word_there_and_back(void)
{
    static long number;

    number++;
    if (me == 0)
        shmem_long_p(&word, number, 1);
    shmem_long_wait_until(&word, SHMEM_CMP_GE, number);
    if (me == 1)
        shmem_long_p(&word, number, 0);
}

#define SMALL ((size_t)64 << 10)
#define LARGE ((size_t)512 << 10)

static void put_small(void)
{
    shmem_putmem(dest, big, SMALL, 1);
    shmem_quiet();
}

static void put_large(void)
{
    shmem_putmem(dest, big, LARGE, 1);
    shmem_quiet();
}

static void costs(void)
{
    say("word", fastest(word_there_and_back, 50, 5 * SLICES, 1) / 2);
    double small = fastest(put_small, 4, 5 * SLICES, 0),
           large = fastest(put_large, 1, 5 * SLICES, 0);
    say("byte", (large - small) / (double)(LARGE - SMALL));
    elements = SMALL / sizeof(long);
    double short_sum = fastest(sum_of_world, 4, 5 * SLICES, 1);
    elements = LARGE / sizeof(long);
    double long_sum = fastest(sum_of_world, 1, 5 * SLICES, 1);
    say("sum of a byte", (long_sum - short_sum) / (double)(LARGE - SMALL));
}

/* --- memory ---------------------------------------------------------------------------------- */

static long descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    long count = -1; /* the folder's own entries are not counted */

    for (struct dirent *entry; folder && (entry = readdir(folder)) != NULL;)
        count += entry->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return count;
}

static long lines_of(const char *path)
{
    FILE *file = fopen(path, "r");
    long count = 0;

    for (int c; file && (c = getc(file)) != EOF;)
        count += c == '\n';
    if (file)
        fclose(file);
    return count;
}

static long kilobytes(const char *path, const char *key)
{
    FILE *file = fopen(path, "r");
    char line[256];
    long value = 0;

    while (file && fgets(line, sizeof(line), file))
        if (strncmp(line, key, strlen(key)) == 0)
            value = atol(line + strlen(key));
    if (file)
        fclose(file);
    return value;
}

static void memory(void)
{
    for (int pe = 0; pe < pes; pe++) {
        shmem_long_p(&word, 1, pe);
        shmem_long_p(dest, 1, pe);
    }
    shmem_barrier_all();
    say("descriptors", (double)descriptors());
    say("mappings", (double)lines_of("/proc/self/maps"));
    /* A page that several PEs map counts as a part of one. */
    say("memory", (double)kilobytes("/proc/self/smaps_rollup", "Pss:"));
    say("page tables", (double)kilobytes("/proc/self/status", "VmPTE:"));
    shmem_barrier_all();
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    shmem_init();
    me = shmem_my_pe();
    pes = shmem_n_pes();
    source = shmem_malloc(ELEMENTS_MAX * sizeof(long));
    dest = shmem_malloc(ELEMENTS_MAX * sizeof(long));
    big = calloc(1, LARGE);
    elements = 1;
    if (!source || !dest || !big)
        shmem_global_exit(1);
    if (strcmp(what, "reduce") == 0 && argc > 3) {
        elements = strtoul(argv[2], NULL, 10) % (ELEMENTS_MAX + 1);
        reduce(atoi(argv[3]));
    } else if (strcmp(what, "call") == 0 && argc > 4) {
        elements = strtoul(argv[4], NULL, 10) % (ELEMENTS_MAX + 1);
        call(argv[2], atoi(argv[3]));
    } else if (strcmp(what, "time") == 0 && argc > 2) {
        time_by_size(argv[2]);
    } else if (strcmp(what, "far") == 0) {
        say("blocking", fastest(gets, 1, 10, 0));
        say("non-blocking", fastest(gets_nbi, 1, 40, 0));
    } else if (strcmp(what, "strided") == 0) {
        say("strided", fastest(put_strided, 200, 10 * SLICES, 0));
        say("in a row", fastest(put_in_a_row, 500, 10 * SLICES, 0));
    } else if (strcmp(what, "memory") == 0) {
        memory();
    } else if (strcmp(what, "costs") == 0) {
        costs();
    }
    shmem_finalize();
    free(big);
    return 0;
}
