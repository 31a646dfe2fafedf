/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Fibers: the code of a modelled thread, written as straight code. A fiber runs until it waits; it
 * continues when a call made with sim_fiber_call() is due. All fibers share one thread of this
 * process, so their order follows from the calls alone.
 */
#ifndef SIM_COST_FIBER_H
#define SIM_COST_FIBER_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <ucontext.h>

#include "sim/cost/cost.h"

#define SIM_FIBER_STACK_BYTES (256u * 1024)

struct sim_fiber {
    ucontext_t first;      /* it has not begun yet */
    sigjmp_buf own, other; /* its context, and that of its caller */
    ucontext_t
        other_whole; /* with ThreadSanitizer, instead of these: its context is the first one */
    void (*main)(void *arg);
    void *arg;
    void *stack; /* owned */
    bool begun, running, ended;
    /* For the sanitizers, which need to know stacks; otherwise unused. */
    void *own_shadow, *other_shadow;
    const void *other_stack;
    size_t other_stack_bytes;
};

/* Creates a fiber; it starts at the first call made with sim_fiber_call(). arg is borrowed. */
void sim_fiber_init(struct sim_fiber *fiber, void (*main)(void *arg), void *arg);
/* Also for a fiber that has not ended: its stack is then discarded, not unwound. */
void sim_fiber_fini(struct sim_fiber *fiber);

/* A call that continues the fiber. At most one may be under way. */
struct sim_call sim_fiber_call(struct sim_fiber *fiber);
/* Called by the fiber: waits until that call. */
void sim_fiber_wait(struct sim_fiber *fiber);

#endif
