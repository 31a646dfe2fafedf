/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* prog_shmem_rounds COLLECTIVE COUNT: COUNT calls of the collective; set-...: over the active set
 * of all PEs except the last. VIADUCT_SHMEM_STATS contains the number of rounds. */
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define ELEMENTS 256

static long source[ELEMENTS], dest[64 * ELEMENTS];
static long sync_words[SHMEM_SYNC_SIZE], work[ELEMENTS + SHMEM_REDUCE_MIN_WRKDATA_SIZE];

static void call_of_set(const char *name, size_t elements)
{
    int size = shmem_n_pes() - 1;

    if (shmem_my_pe() == size)
        return;
    if (strcmp(name, "barrier") == 0)
        shmem_barrier(0, 0, size, sync_words);
    else if (strcmp(name, "broadcast") == 0)
        shmem_broadcast64(dest, source, elements, 0, 0, 0, size, sync_words);
    else if (strcmp(name, "fcollect") == 0)
        shmem_fcollect64(dest, source, elements, 0, 0, size, sync_words);
    else if (strcmp(name, "reduce") == 0)
        shmem_long_sum_to_all(dest, source, (int)elements, 0, 0, size, work, sync_words);
}

static void call(const char *name, size_t elements)
{
    if (strncmp(name, "set-", 4) == 0)
        call_of_set(name + 4, elements);
    else if (strcmp(name, "barrier") == 0)
        shmem_barrier_all();
    else if (strcmp(name, "broadcast") == 0)
        shmem_long_broadcast(SHMEM_TEAM_WORLD, dest, source, elements, 0);
    else if (strcmp(name, "collect") == 0)
        shmem_long_collect(SHMEM_TEAM_WORLD, dest, source, elements);
    else if (strcmp(name, "fcollect") == 0)
        shmem_long_fcollect(SHMEM_TEAM_WORLD, dest, source, elements);
    else if (strcmp(name, "reduce") == 0)
        shmem_long_sum_reduce(SHMEM_TEAM_WORLD, dest, source, elements);
    else if (strcmp(name, "alltoall") == 0)
        shmem_long_alltoall(SHMEM_TEAM_WORLD, dest, source, 1);
}

int main(int argc, char **argv)
{
    int count = argc > 2 ? atoi(argv[2]) : 1;

    shmem_init();
    CHECK(argc > 2 && shmem_n_pes() <= 64, "usage");
    for (int i = 0; i < count; i++) {
        call(argv[1], i % 2 ? ELEMENTS : 1);
        shmem_barrier_all();
    }
    return passed("rounds");
}
