/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_LOCK_H
#define VIA_SOCKETS_LOCK_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/types.h"

/*
 * The library's mutexes. close(), send() and other calls may be made by a signal handler at any
 * point (signal-safety(7)), so no handler of the program may run while its thread holds a mutex: it
 * would deadlock. To block signals costs two system calls for each mutex. Instead a word of the
 * thread counts the mutexes that it holds, and signals.c defers a handler until the count is 0. The
 * thread is not cancelled meanwhile either: the mutex would be held forever.
 */
struct via_lock_thread {
    uint32_t held;
    int cancel_state; /* the state before the first mutex */
    bool put_off;     /* a signal is pending, and all are blocked: signals.c */
};
extern __thread struct via_lock_thread via_lock_thread __attribute__((tls_model("initial-exec")));

#define VIA_LOCK_SIGNAL(number) (UINT64_C(1) << ((number)-1))
/* The signals that are deferred: all but the faults, which the interrupted instruction causes, and
 * the C library's own two, for pthread_cancel() and setuid(). */
#define VIA_LOCK_FAULTS                                                             \
    (VIA_LOCK_SIGNAL(SIGSEGV) | VIA_LOCK_SIGNAL(SIGBUS) | VIA_LOCK_SIGNAL(SIGFPE) | \
     VIA_LOCK_SIGNAL(SIGILL) | VIA_LOCK_SIGNAL(SIGTRAP) | VIA_LOCK_SIGNAL(SIGSYS) | \
     VIA_LOCK_SIGNAL(SIGABRT))
#define VIA_LOCK_SIGNALS (~(VIA_LOCK_FAULTS | VIA_LOCK_SIGNAL(32) | VIA_LOCK_SIGNAL(33)))

/* Called in a handler: makes its signal pending once more, with all signals blocked from here on.
 * False: that is impossible. */
bool via_lock_put_off(int number, siginfo_t *info, void *context);
/* Unblocks and delivers the deferred signals. */
void via_lock_deliver_signals(void);

/* Called in a forked child, first and last: deferred signals are the parent's. */
void via_lock_fork_child_begin(void);
void via_lock_fork_child_end(void);

/* For code without a mutex during which no handler may run. */
static inline void via_lock_enter(void)
{
    via_lock_thread.held++;
    atomic_signal_fence(memory_order_seq_cst);
    if (via_lock_thread.held == 1) {
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &via_lock_thread.cancel_state);
    }
}

static inline void via_lock_leave(void)
{
    if (via_lock_thread.held == 1) {
        pthread_setcancelstate(via_lock_thread.cancel_state, NULL);
    }
    atomic_signal_fence(memory_order_seq_cst);
    via_lock_thread.held--;
    atomic_signal_fence(memory_order_seq_cst);
    if (via_unlikely(via_lock_thread.put_off) && via_lock_thread.held == 0) {
        via_lock_deliver_signals();
    }
}

static inline void via_lock(pthread_mutex_t *mutex)
{
    via_lock_enter();
    pthread_mutex_lock(mutex);
}

static inline bool via_try_lock(pthread_mutex_t *mutex)
{
    via_lock_enter();
    bool locked = pthread_mutex_trylock(mutex) == 0;
    if (!locked) {
        via_lock_leave();
    }
    return locked;
}

static inline void via_unlock(pthread_mutex_t *mutex)
{
    pthread_mutex_unlock(mutex);
    via_lock_leave();
}

#endif
