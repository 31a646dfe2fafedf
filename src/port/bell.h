/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_PORT_BELL_H
#define VIA_PORT_BELL_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/types.h"

/*
 * A line of the bell page of a host. Each transfer thread has one. Processes of the host and
 * emulated ports of its neighbours use it to wake that thread.
 *
 * To wake:  count += 1; if sleepers != 0, FUTEX_WAKE (shared) on count.
 * To sleep: load count (acquire); poll everything; sleepers += 1; FUTEX_WAIT on count for the value
 *           loaded; sleepers -= 1.
 */
struct via_bell {
    _Atomic uint32_t count;
    _Atomic uint32_t sleepers;
    uint32_t reserved[14];
};
_Static_assert(sizeof(struct via_bell) == VIA_CACHELINE, "one line per transfer thread");

/* Lines in a bell page. */
#define VIA_BELL_LINES_MAX 64u

/*
 * Wakes the thread that sleeps on this bell. The caller has published its work before. Both
 * additions and the load are sequentially consistent, and the kernel executes a full barrier before
 * it compares `count`. So the waker loads the sleeper's increment, or the sleeper's FUTEX_WAIT sees
 * the new count, or both.
 */
static inline void via_bell_ring(struct via_bell *bell)
{
    atomic_fetch_add_explicit(&bell->count, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&bell->sleepers, memory_order_seq_cst) != 0) {
        syscall(SYS_futex, &bell->count, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    }
}

#endif
