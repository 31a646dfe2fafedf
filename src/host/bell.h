/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_BELL_H
#define VIA_HOST_BELL_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/attach_wire.h"

/*
 * Wakes the transfer thread that sleeps on this bell. The caller has made its work visible; add and
 * load are sequentially consistent, and so are the thread's store of `sleepers` and its load of
 * `count` in the kernel: one of the two sees the other.
 */
static inline void via_bell_ring(struct via_bell *bell)
{
    atomic_fetch_add_explicit(&bell->count, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&bell->sleepers, memory_order_seq_cst) != 0) {
        syscall(SYS_futex, &bell->count, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
}

#endif
