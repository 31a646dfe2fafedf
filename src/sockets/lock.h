/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_LOCK_H
#define VIA_SOCKETS_LOCK_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

/*
 * A mutex under calls that a signal handler may make, such as close() (signal-safety(7)): no signal
 * comes while it is held, or the handler would wait for the call that it has interrupted. Nor is
 * its thread cancelled. Taking it and giving it back costs two system calls: not for paths on which
 * bytes move.
 *
 * Several are given back in the opposite order; what the first has found comes back with it.
 */
struct via_lock {
    pthread_mutex_t mutex;
    sigset_t signals; /* of the holder, before */
    int cancel;
};

#define VIA_LOCK_INIT                      \
    {                                      \
        .mutex = PTHREAD_MUTEX_INITIALIZER \
    }

static inline bool via_lock_try_or_take(struct via_lock *lock, bool waits)
{
    sigset_t all;
    sigset_t signals;
    int cancel;
    sigfillset(&all);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    pthread_sigmask(SIG_SETMASK, &all, &signals);
    if ((waits ? pthread_mutex_lock(&lock->mutex) : pthread_mutex_trylock(&lock->mutex)) != 0) {
        pthread_sigmask(SIG_SETMASK, &signals, NULL);
        pthread_setcancelstate(cancel, NULL);
        return false;
    }
    lock->signals = signals;
    lock->cancel = cancel;
    return true;
}

static inline void via_lock_take(struct via_lock *lock)
{
    (void)via_lock_try_or_take(lock, true);
}

static inline bool via_lock_try(struct via_lock *lock)
{
    return via_lock_try_or_take(lock, false);
}

static inline void via_lock_give(struct via_lock *lock)
{
    sigset_t signals = lock->signals;
    int cancel = lock->cancel;
    pthread_mutex_unlock(&lock->mutex);
    pthread_sigmask(SIG_SETMASK, &signals, NULL);
    pthread_setcancelstate(cancel, NULL);
}

/* In a forked child, when nobody held it there. */
static inline void via_lock_renew(struct via_lock *lock)
{
    pthread_mutex_init(&lock->mutex, NULL);
}

#endif
