/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Sorting keys that are spread over the PEs, as in the "integer sort" of the NAS benchmarks: PE p
 * gets the keys of the p-th part of the range. Each PE counts how many of its keys go where, takes
 * room in the others' arrays by a fetch-and-add, puts its keys there, and sorts what it has got.
 * Checked: every PE's keys are in its range and in order, and count and sum are those of before.
 *
 *     oshrun -n 4 ./integer_sort [keys per PE]
 */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_DEFAULT 200000
#define KEY_MAX 0x7fffffffu

/* Symmetric: the keys that have been announced to me, and what collectives work with. */
static unsigned long received;
static unsigned long totals[2], totals_before[2];

static uint64_t draw(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static int pe_of_key(unsigned key, int pes)
{
    return (int)((uint64_t)key * (uint64_t)pes / ((uint64_t)KEY_MAX + 1));
}

static int compare(const void *a, const void *b)
{
    unsigned left = *(const unsigned *)a;
    unsigned right = *(const unsigned *)b;

    return (left > right) - (left < right);
}

/* Number and sum of the keys of all PEs. */
static void add_up(const unsigned *keys, size_t count, unsigned long result[2])
{
    totals[0] = count;
    totals[1] = 0;
    for (size_t i = 0; i < count; i++)
        totals[1] += keys[i];
    shmem_sum_reduce(SHMEM_TEAM_WORLD, result, totals, 2);
}

/* The keys, PE by PE of where they go; counts[pe] of them. */
static void group_by_pe(const unsigned *keys, size_t count, int pes, unsigned *grouped,
                        size_t *counts)
{
    size_t *next = calloc((size_t)pes + 1, sizeof(*next));

    if (!next) {
        fprintf(stderr, "FAIL: no memory\n");
        shmem_global_exit(1);
    }
    memset(counts, 0, (size_t)pes * sizeof(*counts));
    for (size_t i = 0; i < count; i++)
        counts[pe_of_key(keys[i], pes)]++;
    for (int pe = 0; pe < pes; pe++)
        next[pe + 1] = next[pe] + counts[pe];
    for (size_t i = 0; i < count; i++)
        grouped[next[pe_of_key(keys[i], pes)]++] = keys[i];
    free(next);
}

static size_t count_wrong(const unsigned *keys, size_t count, int me, int pes)
{
    size_t wrong = 0;

    for (size_t i = 0; i < count; i++)
        wrong += pe_of_key(keys[i], pes) != me || (i > 0 && keys[i - 1] > keys[i]);
    return wrong;
}

int main(int argc, char **argv)
{
    size_t count = argc > 1 ? strtoul(argv[1], NULL, 10) : KEYS_DEFAULT;

    shmem_init();
    int me = shmem_my_pe();
    int pes = shmem_n_pes();

    /* Room for all keys, should they all be of one PE's range: memory is taken when it is used. */
    size_t room = count * (size_t)pes + 1;
    unsigned *sorted = shmem_malloc(room * sizeof(*sorted));
    unsigned *keys = calloc(count + 1, sizeof(*keys));
    unsigned *grouped = calloc(count + 1, sizeof(*grouped));
    size_t *counts = malloc((size_t)pes * sizeof(*counts));
    if (!sorted || !keys || !grouped || !counts) {
        fprintf(stderr, "FAIL: no memory for %zu keys\n", room);
        shmem_global_exit(1);
    }

    uint64_t state = (uint64_t)me + 1;
    for (size_t i = 0; i < count; i++)
        keys[i] = (unsigned)(draw(&state) & KEY_MAX);
    add_up(keys, count, totals_before);

    group_by_pe(keys, count, pes, grouped, counts);
    const unsigned *from = grouped;
    for (int pe = 0; pe < pes; pe++) {
        if (counts[pe] > 0) {
            size_t at = shmem_atomic_fetch_add(&received, counts[pe], pe);
            shmem_put_nbi(sorted + at, from, counts[pe], pe);
        }
        from += counts[pe];
    }
    /* My keys are there, and so are those of all PEs. */
    shmem_barrier_all();
    qsort(sorted, received, sizeof(*sorted), compare);

    static unsigned long totals_after[2];
    static unsigned long wrong, wrong_all;
    wrong = count_wrong(sorted, received, me, pes);
    add_up(sorted, received, totals_after);
    shmem_sum_reduce(SHMEM_TEAM_WORLD, &wrong_all, &wrong, 1);

    int failed = wrong_all > 0 || memcmp(totals_before, totals_after, sizeof(totals_after)) != 0;
    if (me == 0)
        printf("%s: %lu keys sorted by %d PEs, %lu out of place, sum %lu (before: %lu)\n",
               failed ? "FAIL" : "PASS", totals_after[0], pes, wrong_all, totals_after[1],
               totals_before[1]);
    shmem_free(sorted);
    free(keys);
    free(grouped);
    free(counts);
    shmem_finalize();
    return failed;
}
