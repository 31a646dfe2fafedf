/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Hangs in the way that its first argument names. For tests of `viaduct shmem trace`. */
#include <string.h>
#include <unistd.h>

#include "check.h"

static long never[2];
static uint64_t signals[1];
static long lock, other;

static __attribute__((noinline)) void hang_in_barrier(int me)
{
    if (me == shmem_n_pes() - 1)
        for (;;)
            pause();
    shmem_barrier_all();
    never[0] = 1;
}

static __attribute__((noinline)) void hang_in_wait(int me)
{
    never[1] = 3;
    if (me == 0)
        shmem_long_wait_until(&never[1], SHMEM_CMP_GE, 5);
    else if (me == 1)
        shmem_signal_wait_until(signals, SHMEM_CMP_EQ, 1);
    never[0] = 1;
}

static __attribute__((noinline)) void hang_in_lock(void)
{
    shmem_set_lock(&lock);
    for (;;)
        pause();
}

static __attribute__((noinline)) void hang_in_other_lock(int me)
{
    shmem_set_lock(&lock);
    shmem_clear_lock(&lock);
    if (me == 0 && shmem_test_lock(&other) != 0)
        return;
    shmem_barrier_all();
    shmem_set_lock(me == 0 ? &lock : &other);
    for (;;)
        pause();
}

/* A lock at the address of an earlier lock that PE 0 has held, with the same ticket. */
static __attribute__((noinline)) void hang_in_new_lock(int me)
{
    if (me == 0) {
        shmem_set_lock(&lock);
        shmem_clear_lock(&lock);
    }
    shmem_barrier_all();
    lock = 0;
    shmem_barrier_all();
    if (me == 2)
        shmem_set_lock(&lock);
    shmem_barrier_all();
    if (me != 2)
        shmem_set_lock(&lock);
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";

    shmem_init();
    if (strcmp(how, "barrier") == 0)
        hang_in_barrier(shmem_my_pe());
    else if (strcmp(how, "word") == 0)
        hang_in_wait(shmem_my_pe());
    else if (strcmp(how, "lock") == 0)
        hang_in_lock();
    else if (strcmp(how, "lock-left") == 0)
        hang_in_other_lock(shmem_my_pe());
    else if (strcmp(how, "lock-new") == 0)
        hang_in_new_lock(shmem_my_pe());
    shmem_finalize();
    return 0;
}
