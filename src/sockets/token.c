/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/token.h"

#include <errno.h>
#include <signal.h>

#include "sockets/os.h"

/* Looking takes the line away from who holds it, so a waiter looks ever more seldom: the holder
 * does a lot before it loses it. */
#define PAUSES_MAX 64u
#define LOOKS 16u
#define LOOK_NS (20 * VIA_MSEC_NS)

static bool is_dead(uint32_t thread)
{
    return kill((pid_t)thread, 0) != 0 && errno == ESRCH;
}

int via_token_take_slowly(struct via_token *token, uint64_t frame)
{
    uint32_t me = via_os_thread();
    int saved = errno;
    unsigned looks = 0;
    unsigned pauses = 1;

    for (;;) {
        uint32_t seen = atomic_load_explicit(&token->holder, memory_order_relaxed);
        uint32_t holder = seen & ~VIA_TOKEN_WAITERS;
        if (holder == me) {
            /* The stack grows down: a holder's frame below mine is gone (longjmp). */
            if (frame < token->frame) {
                errno = saved;
                return -EDEADLK;
            }
            token->frame = frame;
            break;
        }
        if (holder == 0) {
            /* Pairs with the release in via_token_give(). Waiters are assumed: who waited can not
             * know whether others still do. */
            if (atomic_compare_exchange_weak_explicit(&token->holder, &seen, me | VIA_TOKEN_WAITERS,
                                                      memory_order_acquire, memory_order_relaxed)) {
                token->frame = frame;
                break;
            }
            continue;
        }
        if (looks++ < LOOKS) {
            for (unsigned i = 0; i < pauses; i++) {
                via_os_pause();
            }
            pauses = via_min(2 * pauses, PAUSES_MAX);
            continue;
        }
        if ((seen & VIA_TOKEN_WAITERS) == 0 &&
            !atomic_compare_exchange_weak_explicit(&token->holder, &seen, seen | VIA_TOKEN_WAITERS,
                                                   memory_order_relaxed, memory_order_relaxed)) {
            continue;
        }
        uint32_t waited_for = holder | VIA_TOKEN_WAITERS;
        via_os_futex_wait(&token->holder, waited_for, LOOK_NS);
        if (is_dead(holder)) {
            /* Its process was killed in the middle; what it left may be half a record's state, but
             * the peer sees records whole, and a killed process is an end of its stream anyway. */
            atomic_compare_exchange_strong_explicit(&token->holder, &waited_for, 0,
                                                    memory_order_acquire, memory_order_relaxed);
        }
    }
    atomic_signal_fence(memory_order_seq_cst);
    errno = saved;
    return 0;
}

void via_token_give_slowly(struct via_token *token)
{
    int saved = errno;
    via_os_futex_wake(&token->holder, 1);
    errno = saved;
}
