/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A bank: accounts lie at PE 0, and every PE moves money between two of them at a time. Get and put
 * are two steps, so a lock keeps others out between them. No money may be lost.
 *
 *     oshrun -n 4 ./locks [transfers per PE]
 */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>

#define ACCOUNTS 16
#define START 1000

static long accounts[ACCOUNTS];
/* A lock is a long that every PE has, zero at first; the library decides whose copy counts. */
static long lock;

static void move(int from, int to, long amount)
{
    shmem_set_lock(&lock);
    long left = shmem_g(&accounts[from], 0);
    long there = shmem_g(&accounts[to], 0);
    shmem_p(&accounts[from], left - amount, 0);
    shmem_p(&accounts[to], there + amount, 0);
    /* Completes these puts, then lets the next one in. */
    shmem_clear_lock(&lock);
}

int main(int argc, char **argv)
{
    long transfers = argc > 1 ? atol(argv[1]) : 500;
    long sum = 0;

    shmem_init();
    int me = shmem_my_pe();
    for (int i = 0; i < ACCOUNTS; i++)
        accounts[i] = START;
    shmem_barrier_all();
    for (long i = 0; i < transfers; i++) {
        int from = (int)((i + me) % ACCOUNTS);
        move(from, (from + 1 + (int)(i % (ACCOUNTS - 1))) % ACCOUNTS, i % 10);
    }
    shmem_barrier_all();
    for (int i = 0; i < ACCOUNTS; i++)
        sum += accounts[i];
    if (me == 0)
        printf("%s: %ld transfers, %ld in all accounts\n",
               sum == ACCOUNTS * START ? "PASS" : "FAIL", transfers * shmem_n_pes(), sum);
    shmem_finalize();
    return me == 0 && sum != ACCOUNTS * START;
}
