/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Fibers: what a thread of the modelled machine does, written as straight code. A fiber runs until
 * it waits; it goes on when a call made with sim_fiber_call() comes. One thread of this process:
 * nothing runs beside anything, and what runs when follows from the calls alone.
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
    ucontext_t first;       /* it has not begun yet */
    sigjmp_buf own, other;  /* itself, and whoever made it go on */
    ucontext_t other_whole; /* with ThreadSanitizer, instead of these; itself is first then */
    void (*main)(void *arg);
    void *arg;
    void *stack; /* owned */
    bool begun, running, ended;
    /* What the sanitizers want to know of stacks; unused without them. */
    void *own_shadow, *other_shadow;
    const void *other_stack;
    size_t other_stack_bytes;
};

/* Makes it; it begins with the first call of sim_fiber_call(). arg is borrowed. */
void sim_fiber_init(struct sim_fiber *fiber, void (*main)(void *arg), void *arg);
/* Also of one that has not ended: what its stack holds is then forgotten, not unwound. */
void sim_fiber_fini(struct sim_fiber *fiber);

/* A call that makes the fiber go on. At most one may be under way. */
struct sim_call sim_fiber_call(struct sim_fiber *fiber);
/* From within the fiber: until that call comes. */
void sim_fiber_wait(struct sim_fiber *fiber);

#endif
