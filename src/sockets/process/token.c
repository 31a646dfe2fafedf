/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/process/token.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/pause.h"
#include "sockets/process/lock.h"
#include "sockets/process/os.h"

/* A check moves the cache line away from the holder's CPU. So a waiter checks less and less often,
 * and the holder does much work between two checks. */
#define PAUSES_MAX 64u
#define POLLS_REQUEST 4u /* checks before the waiter requests the token, if it may */
#define POLLS 12u
#define TURN_US 250u
/* How many pauses the releasing thread waits for a spinning waiter to take the token. */
#define PAUSES_GIVE 100u
/* Limit of a sleep: a wake-up may be lost, and a holder may be killed. */
#define SLEEP_NS VIA_MSEC_NS
/* Number of sleeps after which a thread that holds a mutex gives up: a signal handler that has
 * interrupted the token's holder may wait for that mutex. */
#define SLEEPS_LOCKED 2u
/* A waiter checks whether the holder is dead after its first sleep, and then after each
 * SLEEPS_CHECK sleeps. */
#define SLEEPS_CHECK 8u

/* linux/signal.h */
#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1u << 31)
#endif

struct waiting {
    unsigned polls;
    unsigned pauses;
    unsigned sleeps;
    bool waited;
};

/* The time left of the present turn; 0: the turn is over. */
static uint64_t turn_left_ns(const struct via_token *token)
{
    uint64_t ticks = via_os_us_to_ticks(TURN_US);
    uint64_t gone = via_os_ticks() - atomic_load_explicit(&token->turn, memory_order_relaxed);
    return gone < ticks ? (ticks - gone) * TURN_US * 1000 / ticks : 0;
}

/* Waits while another thread holds the token: a short time, then longer. */
static void wait_more(struct via_token *token, uint32_t holder, struct waiting *waiting)
{
    uint64_t left_ns = 0;
    waiting->waited = true;
    if (waiting->polls >= POLLS_REQUEST) {
        left_ns = turn_left_ns(token);
    }
    if (left_ns != 0) {
        /* Without a request no thread wakes this one. */
        via_os_futex_wait(&token->holder, holder, left_ns);
        waiting->polls = POLLS_REQUEST;
        waiting->pauses = 1;
        return;
    }
    if (waiting->polls < POLLS) {
        if (waiting->polls >= POLLS_REQUEST &&
            atomic_load_explicit(&token->requests, memory_order_relaxed) == 0) {
            atomic_fetch_or_explicit(&token->requests, VIA_TOKEN_SPINS, memory_order_relaxed);
        }
        for (unsigned i = 0; i < waiting->pauses; i++) {
            via_cpu_pause();
        }
        waiting->polls++;
        waiting->pauses = via_min(2 * waiting->pauses, PAUSES_MAX);
        return;
    }
    waiting->sleeps++;
    atomic_fetch_or_explicit(&token->requests, VIA_TOKEN_SLEEPS, memory_order_relaxed);
    via_os_futex_wait(&token->holder, holder, SLEEP_NS);
    if (waiting->sleeps % SLEEPS_CHECK == 1 && via_os_is_thread_dead(holder)) {
        /* The holder's process was killed in the middle. It may leave a half-written record, but
         * the peer sees only whole records, and a killed process ends its stream anyway. */
        atomic_compare_exchange_strong_explicit(&token->holder, &holder, 0, memory_order_acquire,
                                                memory_order_relaxed);
    }
}

__thread struct via_token_stack via_token_stack __attribute__((tls_model("initial-exec")));

/* True if the frame `before` does not exist any more (longjmp): `frame` is the caller's. The stack
 * grows down, and a handler's stack may be above or below the thread's. */
static bool is_gone(uint64_t before, uint64_t frame)
{
    stack_t other;
    struct via_token_stack stacks[] = {via_token_stack, {.bytes = 0}};
    if (syscall(SYS_sigaltstack, NULL, &other) == 0 && (other.ss_flags & SS_DISABLE) == 0) {
        stacks[1] = (struct via_token_stack){.low = (uint64_t)(uintptr_t)other.ss_sp,
                                             .bytes = other.ss_size};
    }
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(stacks); i++) {
        bool there = before - stacks[i].low < stacks[i].bytes;
        bool here = frame - stacks[i].low < stacks[i].bytes;
        if (there != here) {
            return there; /* a handler does not outlast the frame that it has interrupted */
        }
    }
    return frame >= before;
}

bool via_token_is_in_handler(void)
{
    uint64_t frame = (uint64_t)(uintptr_t)__builtin_frame_address(0);
    return via_token_stack.handler != 0 && !is_gone(via_token_stack.handler, frame);
}

struct via_token_stack via_token_enter_handler(const void *of_kernel, const void *frame)
{
    const ucontext_t *context = of_kernel;
    const stack_t *stack = &context->uc_stack;
    struct via_token_stack before = via_token_stack;
    if (((unsigned)stack->ss_flags & SS_AUTODISARM) != 0) {
        via_token_stack.low = (uint64_t)(uintptr_t)stack->ss_sp;
        via_token_stack.bytes = stack->ss_size;
    }
    if (!via_token_is_in_handler()) {
        via_token_stack.handler = (uint64_t)(uintptr_t)frame;
    }
    return before;
}

int via_token_take_slowly(struct via_token *token, uint64_t frame)
{
    uint32_t me = via_os_thread();
    VIA_KEEP_ERRNO;
    struct waiting waiting = {.pauses = 1};

    for (;;) {
        uint32_t holder = atomic_load_explicit(&token->holder, memory_order_relaxed);
        if (holder == me) {
            if (!is_gone(token->frame, frame)) {
                return -EDEADLK;
            }
            break;
        }
        if (holder != 0) {
            if (via_lock_is_held() && waiting.sleeps == SLEEPS_LOCKED) {
                return -EDEADLK;
            }
            wait_more(token, holder, &waiting);
            continue;
        }
        /* Pairs with the release in via_token_give(). */
        if (atomic_compare_exchange_weak_explicit(&token->holder, &holder, me, memory_order_acquire,
                                                  memory_order_relaxed)) {
            break;
        }
    }
    token->frame = frame;
    if (waiting.waited) {
        atomic_store_explicit(&token->turn, via_os_ticks(), memory_order_relaxed);
        if (atomic_load_explicit(&token->requests, memory_order_relaxed) == VIA_TOKEN_SPINS) {
            atomic_store_explicit(&token->requests, 0,
                                  memory_order_relaxed); /* waiting threads repeat their requests */
        }
    }
    atomic_signal_fence(memory_order_seq_cst);
    return 0;
}

void via_token_give_slowly(struct via_token *token)
{
    VIA_KEEP_ERRNO;
    uint32_t requests = atomic_exchange_explicit(&token->requests, 0, memory_order_relaxed);
    if ((requests & VIA_TOKEN_SLEEPS) != 0) {
        via_os_futex_wake(&token->holder);
    }
    if ((requests & VIA_TOKEN_SPINS) != 0) {
        for (unsigned i = 0;
             i < PAUSES_GIVE && atomic_load_explicit(&token->holder, memory_order_relaxed) == 0;
             i++) {
            via_cpu_pause();
        }
    }
}
