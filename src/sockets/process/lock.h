/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_LOCK_H
#define VIA_SOCKETS_LOCK_H

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/single_threaded.h>

#include "base/types.h"

/*
 * The library's mutexes. A signal handler may call close(), send() and others at any point
 * (signal-safety(7)), so no handler of the program may run while its thread holds a mutex: it would
 * deadlock. Blocking signals would cost two system calls for each mutex. Instead a word of the
 * thread counts the mutexes that it holds, and signals.c defers a handler until the count is 0. The
 * thread is not cancelled meanwhile either: it would never unlock the mutex.
 */
struct via_lock_thread {
    uint32_t held;    /* mutexes held; and VIA_LOCK_CALL for a call that no handler may interrupt */
    uint32_t ranks;   /* a bit for the rank of each held mutex, in builds with VIA_LOCK_CHECKS */
    int cancel_state; /* the state before the first mutex; VIA_LOCK_SAME: it was not changed */
    bool deferred;    /* a signal was deferred, and all are blocked: lock.c */
};
extern __thread struct via_lock_thread via_lock_thread __attribute__((tls_model("initial-exec")));

/*
 * The order of mutexes: a thread waits only for a mutex of a later rank than all those that it
 * holds. Exception: a thread that holds LINKS may wait for further mutexes of SET. Debug builds
 * assert this.
 *
 * Tokens (token.h) are taken in the order writing, reading. A thread that holds a token waits for
 * none of LINKS, SET and CONNS, except in a signal handler that has interrupted it. So a thread
 * that holds a mutex may wait for a token only for a limited time.
 */
enum via_lock_rank {
    VIA_RANK_LINKS, /* which connection is in which epoll set */
    VIA_RANK_SET,   /* one epoll set */
    VIA_RANK_CONNS, /* the list of connections */
    VIA_RANK_STEWARD,
    VIA_RANK_FABRIC,
    VIA_RANK_MEETING, /* an acceptor's fetch of its peer's bell */
    VIA_RANK_BELLS,
    VIA_RANK_MIRRORS, /* memory that other hosts write to, and the sides that use it */
    VIA_RANK_LAST,    /* no two of this rank at a time */
    VIA_RANK_HIDDEN,
    VIA_RANK_POOLS,
};

struct via_mutex {
    pthread_mutex_t mutex;
    enum via_lock_rank rank;
};
#define VIA_MUTEX_INIT(of_rank)            \
    {                                      \
        PTHREAD_MUTEX_INITIALIZER, of_rank \
    }

#define VIA_LOCK_SIGNAL(number) (UINT64_C(1) << ((number)-1))
/* The signals that are deferred: all but the faults, which the interrupted instruction causes, and
 * the C library's own two, for pthread_cancel() and setuid(). */
#define VIA_LOCK_FAULTS                                                             \
    (VIA_LOCK_SIGNAL(SIGSEGV) | VIA_LOCK_SIGNAL(SIGBUS) | VIA_LOCK_SIGNAL(SIGFPE) | \
     VIA_LOCK_SIGNAL(SIGILL) | VIA_LOCK_SIGNAL(SIGTRAP) | VIA_LOCK_SIGNAL(SIGSYS) | \
     VIA_LOCK_SIGNAL(SIGABRT))
#define VIA_LOCK_SIGNALS (~(VIA_LOCK_FAULTS | VIA_LOCK_SIGNAL(32) | VIA_LOCK_SIGNAL(33)))

/* Called in a handler: defers the signal. Makes it pending once more, with all signals blocked from
 * now on. False: that is impossible. */
bool via_lock_defer_signal(int number, siginfo_t *info, void *context);
/* Unblocks and delivers the deferred signals. */
void via_lock_deliver_signals(void);

/* Called in a forked child, first and last. The signals deferred at the fork are the parent's. */
void via_lock_fork_child_begin(void);
void via_lock_fork_child_end(void);

#define VIA_LOCK_CALL 0x10000u
#define VIA_LOCK_SAME (-1)

/* The program has called pthread_cancel(). */
extern _Atomic bool via_lock_had_cancel;

/* False: no other thread can cancel this one, and it has not cancelled itself. A signal handler
 * that does is deferred while the thread holds a mutex. */
static inline bool via_lock_may_be_cancelled(void)
{
    return via_unlikely(!__libc_single_threaded) ||
           via_unlikely(atomic_load_explicit(&via_lock_had_cancel, memory_order_relaxed));
}

/* Disables cancellation while a mutex is held. pthread_setcancelstate() executes a locked
 * instruction. A process of one thread needs no such call: redis-benchmark makes five epoll_ctl()
 * calls for each request. */
static inline void via_lock_raise(uint32_t by)
{
    via_lock_thread.held += by;
    atomic_signal_fence(memory_order_seq_cst);
    if (via_lock_thread.held != by) {
        return;
    }
    via_lock_thread.cancel_state = VIA_LOCK_SAME;
    if (via_lock_may_be_cancelled()) {
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &via_lock_thread.cancel_state);
    }
}

static inline void via_lock_lower(uint32_t by)
{
    if (via_lock_thread.held == by && via_lock_thread.cancel_state != VIA_LOCK_SAME) {
        pthread_setcancelstate(via_lock_thread.cancel_state, NULL);
    }
    atomic_signal_fence(memory_order_seq_cst);
    via_lock_thread.held -= by;
    atomic_signal_fence(memory_order_seq_cst);
    if (via_unlikely(via_lock_thread.deferred) && via_lock_thread.held == 0) {
        via_lock_deliver_signals();
    }
}

/* For code that holds no mutex, but during which no handler may run either. */
static inline void via_lock_enter(void)
{
    via_lock_raise(1);
}

static inline void via_lock_leave(void)
{
    via_lock_lower(1);
}

static inline bool via_lock_is_held(void)
{
    return (via_lock_thread.held & (VIA_LOCK_CALL - 1)) != 0;
}

static inline bool via_lock_is_in_order(enum via_lock_rank rank)
{
    uint32_t ranks = via_lock_thread.ranks;
    bool set = rank == VIA_RANK_SET && (ranks & 1u << VIA_RANK_LINKS) != 0;
    return (ranks >> rank) == 0 || (set && (ranks >> rank) == 1);
}

#ifdef VIA_LOCK_CHECKS
#define VIA_LOCK_WAITS(rank) assert(via_lock_is_in_order(rank))
#define VIA_LOCK_TAKEN(rank) ((void)(via_lock_thread.ranks |= 1u << (rank)))
#define VIA_LOCK_GIVEN(rank) ((void)(via_lock_thread.ranks &= ~(1u << (rank))))
#else
#define VIA_LOCK_WAITS(rank) ((void)0)
#define VIA_LOCK_TAKEN(rank) ((void)0)
#define VIA_LOCK_GIVEN(rank) ((void)0)
#endif

static inline void via_lock(struct via_mutex *mutex)
{
    via_lock_enter();
    VIA_LOCK_WAITS(mutex->rank);
    pthread_mutex_lock(&mutex->mutex);
    VIA_LOCK_TAKEN(mutex->rank);
}

static inline bool via_try_lock(struct via_mutex *mutex)
{
    via_lock_enter();
    bool locked = pthread_mutex_trylock(&mutex->mutex) == 0;
    if (locked) {
        VIA_LOCK_TAKEN(mutex->rank);
    } else {
        via_lock_leave();
    }
    return locked;
}

static inline void via_unlock(struct via_mutex *mutex)
{
    VIA_LOCK_GIVEN(mutex->rank);
    pthread_mutex_unlock(&mutex->mutex);
    via_lock_leave();
}

/* Called in a forked child: another thread of the parent may have held the mutex. */
static inline void via_lock_reset(struct via_mutex *mutex)
{
    pthread_mutex_init(&mutex->mutex, NULL);
}

#endif
