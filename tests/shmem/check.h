/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Checks in programs that tests run under oshrun: a failed check ends the job. */
#ifndef VIA_TESTS_SHMEM_CHECK_H
#define VIA_TESTS_SHMEM_CHECK_H

#include <shmem.h>
#include <stdio.h>
#include <unistd.h>

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: PE %d: %s does not hold: ", __FILE__, __LINE__, shmem_my_pe(), \
                    #condition);                                                                   \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fprintf(stderr, "\n");                                                                 \
            shmem_global_exit(1);                                                                  \
        }                                                                                          \
    } while (0)

/* Odd PEs enter late, so that other PEs have to wait. */
static inline void late(void)
{
    if (shmem_my_pe() % 2 == 1)
        usleep(1500);
}

/* PE 0 prints this at the end, so that a program that ends early does not pass. */
static inline int passed(const char *name)
{
    shmem_barrier_all();
    if (shmem_my_pe() == 0)
        printf("PASS %s\n", name);
    shmem_finalize();
    return 0;
}

#endif
