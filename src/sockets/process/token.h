/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_TOKEN_H
#define VIA_SOCKETS_TOKEN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * The token: the right of a thread to use one direction of a connection. It lies in memory that
 * forked processes share, so the holder is a thread id, and a dead thread does not keep it, unless
 * it was in another pid namespace: such a thread may be stopped (a paused container). No
 * thread sleeps in a system call for data while it holds a token.
 *
 * A signal handler may interrupt the holder. If the handler uses the same connection, it can not
 * wait for the token; if it leaves by longjmp(), the token is free, because its holder never
 * returns. The stack shows which case it is: a caller whose frame lies above the one that took the
 * token, on the same stack, has outlived that frame. A handler may run on a stack of its own
 * (sigaltstack(2)).
 *
 * Threads that compete for a token take turns of some hundred microseconds: to write a record costs
 * some ten nanoseconds, but ten times that when its lines come from another CPU, and a thread that
 * polls for the token all the time keeps a CPU from the reader. A thread that has waited gets the
 * token at the next release, if the turn before is over; else it sleeps until then.
 */
struct via_token {
    _Atomic uint32_t holder;   /* thread id; 0 = free */
    _Atomic uint32_t requests; /* VIA_TOKEN_*: what waiting threads do; a hint */
    uint64_t frame;            /* stack frame of the function that took it */
    _Atomic uint64_t turn;     /* ticks when a thread that had waited got it */
};
#define VIA_TOKEN_SPINS 1u  /* a thread polls for the token, and it is that thread's turn */
#define VIA_TOKEN_SLEEPS 2u /* a thread sleeps on `holder` */

/* What the library knows of the program's signal handlers in this thread. A handler that ends by
 * longjmp() does not reset this variable: is_gone() in token.c finds that its frame is gone. */
struct via_token_stack {
    /* The stack of the innermost handler if the kernel does not report that stack while the
     * handler runs (SS_AUTODISARM). */
    uint64_t low;
    uint64_t bytes;   /* 0: none */
    uint64_t handler; /* the frame that has called the outermost handler; 0: none */
};
extern __thread struct via_token_stack via_token_stack __attribute__((tls_model("initial-exec")));

/* Called when a handler begins. context: the handler's third argument; frame: of the function that
 * calls the handler. Returns what the caller stores in via_token_stack when the handler has
 * returned. */
struct via_token_stack via_token_enter_handler(const void *context, const void *frame);
/* True if the caller runs in a handler of the program, of which the library knows (signals.h). */
bool via_token_is_in_handler(void);

/* alone: no other thread or process can request this token, so plain stores suffice. */
int via_token_take_slowly(struct via_token *token, uint64_t frame);
void via_token_give_slowly(struct via_token *token);

/* 0, or -EDEADLK when this thread holds the token in an outer frame (the caller is a signal
 * handler), or holds a mutex and has waited for some milliseconds (lock.h). */
static inline __attribute__((always_inline)) int via_token_take(struct via_token *token, bool alone,
                                                                uint32_t thread)
{
    uint64_t frame = (uint64_t)(uintptr_t)__builtin_frame_address(0);
    uint32_t free = 0;
    if (alone && atomic_load_explicit(&token->holder, memory_order_relaxed) == 0) {
        atomic_store_explicit(&token->holder, thread, memory_order_relaxed);
    } else if (alone || !atomic_compare_exchange_strong_explicit(&token->holder, &free, thread,
                                                                 memory_order_acquire,
                                                                 memory_order_relaxed)) {
        return via_token_take_slowly(token, frame);
    }
    token->frame = frame;
    atomic_signal_fence(memory_order_seq_cst);
    return 0;
}

static inline void via_token_give(struct via_token *token)
{
    atomic_signal_fence(memory_order_seq_cst);
    /* Pairs with the acquires of the threads that take it. */
    atomic_store_explicit(&token->holder, 0, memory_order_release);
    /* No fence before this load, so a request made just now may not be seen. The next release sees
     * it, and a sleeping thread checks again soon. */
    if (__builtin_expect(atomic_load_explicit(&token->requests, memory_order_relaxed) != 0, 0)) {
        via_token_give_slowly(token);
    }
}

#endif
