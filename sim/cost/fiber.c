/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A fiber begins by setcontext() on its stack; from then on it and its caller switch by
 * siglongjmp() without the signal mask: swapcontext() makes two system calls each time, and models
 * switch hundreds of thousands of times a second. The C library's check that a jump goes up the
 * stack knows only one stack.
 */
#undef _FORTIFY_SOURCE
#include "sim/cost/fiber.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "sim/memory.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

/* The sanitizers track stacks, so each switch is reported to them
 * (sanitizer/common_interface_defs.h, tsan_interface.h). Inline: the event that ThreadSanitizer
 * gets at the end of a function must belong to the fiber that began the function. */
__attribute__((always_inline)) static inline void leaving(void **shadow, const void *stack,
                                                          size_t bytes, void *tsan_fiber)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(shadow, stack, bytes);
#endif
#ifdef __SANITIZE_THREAD__
    __tsan_switch_to_fiber(tsan_fiber, 0);
#endif
    (void)shadow;
    (void)stack;
    (void)bytes;
    (void)tsan_fiber;
}

static void arrived(void *shadow, const void **ret_stack, size_t *ret_bytes)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(shadow, ret_stack, ret_bytes);
#endif
    (void)shadow;
    (void)ret_stack;
    (void)ret_bytes;
}

#ifdef __SANITIZE_THREAD__
#define OWN_TSAN(fiber) ((fiber)->own_shadow)
#define OTHER_TSAN(fiber) ((fiber)->other_shadow)
#else
#define OWN_TSAN(fiber) NULL
#define OTHER_TSAN(fiber) NULL
#endif

/* ThreadSanitizer keeps the jump targets of each fiber, and does not support a jump from one fiber
 * to another. */
__attribute__((always_inline)) static inline void go_back(struct sim_fiber *fiber)
{
#ifdef __SANITIZE_THREAD__
    setcontext(&fiber->other_whole);
    abort();
#else
    siglongjmp(fiber->other, 1);
#endif
}

/* makecontext() passes ints: the pointer comes in two. */
static void entry(unsigned low, unsigned high)
{
    struct sim_fiber *fiber = (struct sim_fiber *)(uintptr_t)((uint64_t)high << 32 | low);
    arrived(NULL, &fiber->other_stack, &fiber->other_stack_bytes);
    fiber->main(fiber->arg);
    fiber->ended = true;
    fiber->running = false;
    /* No shadow stack to keep: this stack is not used again. */
    leaving(NULL, fiber->other_stack, fiber->other_stack_bytes, OTHER_TSAN(fiber));
    go_back(fiber);
}

void sim_fiber_init(struct sim_fiber *fiber, void (*main)(void *arg), void *arg)
{
    *fiber = (struct sim_fiber){.main = main, .arg = arg};
    fiber->stack = sim_map(SIM_FIBER_STACK_BYTES);
    if (getcontext(&fiber->first) != 0) {
        abort();
    }
    fiber->first.uc_stack.ss_sp = fiber->stack;
    fiber->first.uc_stack.ss_size = SIM_FIBER_STACK_BYTES;
    fiber->first.uc_link = NULL;
#ifdef __SANITIZE_THREAD__
    fiber->own_shadow = __tsan_create_fiber(0);
#endif
    uint64_t self = (uintptr_t)fiber;
    makecontext(&fiber->first, (void (*)(void))(uintptr_t)entry, 2, (unsigned)self,
                (unsigned)(self >> 32));
}

void sim_fiber_fini(struct sim_fiber *fiber)
{
    assert(!fiber->running);
#ifdef __SANITIZE_THREAD__
    __tsan_destroy_fiber(fiber->own_shadow);
#endif
    munmap(fiber->stack, SIM_FIBER_STACK_BYTES);
    fiber->stack = NULL;
}

static void resume(void *object, uint64_t arg)
{
    struct sim_fiber *fiber = object;
    (void)arg;
    assert(!fiber->running && !fiber->ended);
    fiber->running = true;
#ifdef __SANITIZE_THREAD__
    fiber->other_shadow = __tsan_get_current_fiber();
#endif
    leaving(&fiber->other_shadow, fiber->stack, SIM_FIBER_STACK_BYTES, OWN_TSAN(fiber));
#ifdef __SANITIZE_THREAD__
    swapcontext(&fiber->other_whole, &fiber->first);
#else
    if (sigsetjmp(fiber->other, 0) == 0) {
        if (fiber->begun) {
            siglongjmp(fiber->own, 1);
        }
        fiber->begun = true;
        setcontext(&fiber->first);
    }
#endif
    arrived(fiber->other_shadow, NULL, NULL);
}

struct sim_call sim_fiber_call(struct sim_fiber *fiber)
{
    return (struct sim_call){.run = resume, .object = fiber};
}

void sim_fiber_wait(struct sim_fiber *fiber)
{
    assert(fiber->running);
    fiber->running = false;
    leaving(&fiber->own_shadow, fiber->other_stack, fiber->other_stack_bytes, OTHER_TSAN(fiber));
#ifdef __SANITIZE_THREAD__
    swapcontext(&fiber->first, &fiber->other_whole);
#else
    if (sigsetjmp(fiber->own, 0) == 0) {
        go_back(fiber);
    }
#endif
    arrived(fiber->own_shadow, &fiber->other_stack, &fiber->other_stack_bytes);
}
