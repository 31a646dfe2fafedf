/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_CANCEL_H
#define VIA_SOCKETS_CANCEL_H

#include <pthread.h>

#include "sockets/process/lock.h"

/*
 * pthread_cancel(). The C library acts on a cancellation in calls that may sleep. This library
 * makes most of these while it holds resources for the program's call: a connection, a token,
 * bells. So it defers cancellation, and allows it around the one sleep that replaces the kernel's,
 * with cleanup handlers for the resources held there.
 *
 *     struct via_cancel before;
 *     via_cancel_off(&before);
 *     pthread_cleanup_push(give_up, what);
 *     via_cancel_allow();    in the function that sleeps
 *     ...
 *     via_cancel_defer();
 *     pthread_cleanup_pop(0);
 *     via_cancel_back(&before);
 */
struct via_cancel {
    int state;
    int outer;
};

/* The program's cancellation state, plus 1; 0: cancellation is not deferred. */
extern __thread int via_cancel_kept __attribute__((tls_model("initial-exec")));

static inline void via_cancel_off(struct via_cancel *ret_before)
{
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &ret_before->state);
    ret_before->outer = via_cancel_kept;
    if (via_cancel_kept == 0 || ret_before->state == PTHREAD_CANCEL_ENABLE) {
        /* Else an outer call of the library defers it already. */
        via_cancel_kept = ret_before->state + 1;
    }
}

static inline void via_cancel_back(const struct via_cancel *before)
{
    via_cancel_kept = before->outer;
    pthread_setcancelstate(before->state, NULL);
}

/* Like via_cancel_off(), and no sleep allows cancellation: in calls that are not cancellation
 * points, and where there are no cleanup handlers. */
static inline void via_cancel_never(struct via_cancel *ret_before)
{
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &ret_before->state);
    ret_before->outer = via_cancel_kept;
    via_cancel_kept = PTHREAD_CANCEL_DISABLE + 1;
}

/* Defers cancellation from here to the end of the block. */
#define VIA_CANCEL_NEVER                                                           \
    struct via_cancel via_cancel_before __attribute__((cleanup(via_cancel_back))); \
    via_cancel_never(&via_cancel_before)

/* Called first in each hook of a cancellation point: a request made before the call takes effect
 * even if the call need not wait (POSIX.1, 2.9.5.2). */
static inline void via_cancel_point(void)
{
    if (via_lock_may_be_cancelled()) {
        pthread_testcancel();
    }
}

/* Around a sleep; no effect if cancellation is not deferred. */
static inline void via_cancel_allow(void)
{
    if (via_cancel_kept != 0) {
        pthread_setcancelstate(via_cancel_kept - 1, NULL);
    }
}

static inline void via_cancel_defer(void)
{
    if (via_cancel_kept != 0) {
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    }
}

#endif
