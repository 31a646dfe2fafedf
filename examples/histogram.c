/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A histogram that is spread over the PEs: bin b is on PE b mod N. Every PE draws numbers and adds
 * one to the bin of each, wherever it is, with an atomic that asks for no answer. At the end the
 * bins have to hold as many numbers as were drawn, and each as many as one PE alone counts.
 *
 *     oshrun -n 4 ./histogram [numbers per PE] [bins]
 */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>

#define NUMBERS_DEFAULT 100000
#define BINS_DEFAULT 1000

/* A generator whose numbers can be drawn again: splitmix64. */
static uint64_t draw(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* The product of two draws: low bins are fuller than high ones. */
static size_t draw_bin(uint64_t *state, size_t bins)
{
    uint64_t a = draw(state) >> 32;
    uint64_t b = draw(state) >> 32;

    return (size_t)((a * b >> 32) * bins >> 32);
}

static size_t argument(int argc, char **argv, int index, size_t otherwise)
{
    return argc > index ? strtoul(argv[index], NULL, 10) : otherwise;
}

/* One PE counts the numbers that all PEs have drawn, and compares. */
static size_t count_wrong(const unsigned long *mine, size_t numbers, size_t bins)
{
    size_t wrong = 0;
    int pes = shmem_n_pes();
    unsigned long *expected = calloc(bins, sizeof(*expected));

    if (!expected) {
        fprintf(stderr, "FAIL: no memory to compare with\n");
        shmem_global_exit(1);
    }
    for (int pe = 0; pe < pes; pe++) {
        uint64_t state = (uint64_t)pe;
        for (size_t i = 0; i < numbers; i++)
            expected[draw_bin(&state, bins)]++;
    }
    for (size_t bin = 0; bin < bins; bin++) {
        unsigned long got = shmem_g(&mine[bin / (size_t)pes], (int)(bin % (size_t)pes));
        wrong += got != expected[bin];
    }
    free(expected);
    return wrong;
}

int main(int argc, char **argv)
{
    size_t numbers = argument(argc, argv, 1, NUMBERS_DEFAULT);
    size_t bins = argument(argc, argv, 2, BINS_DEFAULT);

    shmem_init();
    int me = shmem_my_pe();
    int pes = shmem_n_pes();

    unsigned long *mine = shmem_calloc(bins / (size_t)pes + 1, sizeof(*mine));
    if (!mine) {
        fprintf(stderr, "FAIL: no symmetric memory for %zu bins\n", bins);
        shmem_global_exit(1);
    }

    uint64_t state = (uint64_t)me;
    for (size_t i = 0; i < numbers; i++) {
        size_t bin = draw_bin(&state, bins);
        shmem_atomic_inc(&mine[bin / (size_t)pes], (int)(bin % (size_t)pes));
    }
    /* Completes the atomics of all PEs. */
    shmem_barrier_all();

    int failed = 0;
    if (me == 0) {
        size_t wrong = count_wrong(mine, numbers, bins);
        failed = wrong > 0;
        printf("%s: %zu numbers in %zu bins on %d PEs, %zu bins are wrong\n",
               failed ? "FAIL" : "PASS", numbers * (size_t)pes, bins, pes, wrong);
    }
    shmem_free(mine);
    shmem_finalize();
    return failed;
}
