/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A program that uses MPI and OpenSHMEM, built with an MPI compiler. prog_hybrid mpi: MPI begins
 * first and ends last; shmem: MPI begins second and ends last; inside: all MPI calls are between
 * shmem_init and shmem_finalize; after: MPI begins when OpenSHMEM has ended; never: MPI is only
 * linked.
 */
#include <mpi.h>
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TURNS 50
#define RANKS_MAX 64

static long value;

#define CHECK(condition)                                                     \
    do {                                                                     \
        if (!(condition)) {                                                  \
            fprintf(stderr, "%d: %s does not hold\n", __LINE__, #condition); \
            exit(1);                                                         \
        }                                                                    \
    } while (0)

/* Puts around a ring of ranks, announced by MPI messages; and a collective of each library. */
static void use_both(void)
{
    int rank, ranks, pe_of[RANKS_MAX], me = shmem_my_pe();

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(shmem_n_pes() == ranks && ranks <= RANKS_MAX);
    MPI_Allgather(&me, 1, MPI_INT, pe_of, 1, MPI_INT, MPI_COMM_WORLD);
    for (long turn = 0; turn < TURNS; turn++) {
        long sum = 0, one = 1;
        shmem_long_p(&value, rank * 1000L + turn, pe_of[(rank + 1) % ranks]);
        shmem_quiet();
        MPI_Barrier(MPI_COMM_WORLD);
        CHECK(value == (rank + ranks - 1) % ranks * 1000L + turn);
        MPI_Allreduce(&one, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        CHECK(sum == ranks);
        shmem_barrier_all();
    }
}

int main(int argc, char **argv)
{
    const char *order = argc > 1 ? argv[1] : "mpi";
    int me;

    if (strcmp(order, "mpi") == 0)
        MPI_Init(&argc, &argv);
    shmem_init();
    me = shmem_my_pe();
    if (strcmp(order, "shmem") == 0 || strcmp(order, "inside") == 0)
        MPI_Init(&argc, &argv);
    if (strcmp(order, "never") != 0 && strcmp(order, "after") != 0)
        use_both();
    shmem_barrier_all();
    if (strcmp(order, "inside") == 0)
        MPI_Finalize();
    shmem_finalize();
    if (strcmp(order, "after") == 0) {
        MPI_Init(&argc, &argv);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (strcmp(order, "never") != 0 && strcmp(order, "inside") != 0)
        MPI_Finalize();
    if (me == 0)
        printf("PASS hybrid %s\n", order);
    return 0;
}
