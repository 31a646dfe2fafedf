/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/process/lock.h"

#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "sockets/process/os.h"

/* The kernel's signal set is one word. The C library's is longer; in a signal context other members
 * follow the kernel's set. */
#define SET_BYTES sizeof(uint64_t)

__thread struct via_lock_thread via_lock_thread __attribute__((tls_model("initial-exec")));
_Atomic bool via_lock_had_cancel;

/* While a signal is deferred: the signal mask before all signals were blocked. */
static __thread uint64_t mask_before __attribute__((tls_model("initial-exec")));

static void set_mask(int how, uint64_t mask)
{
    syscall(SYS_rt_sigprocmask, how, &mask, NULL, SET_BYTES);
}

bool via_lock_defer_signal(int number, siginfo_t *info, void *of_kernel)
{
    ucontext_t *context = of_kernel;
    VIA_KEEP_ERRNO;
    uint64_t handling;
    uint64_t all = VIA_LOCK_SIGNALS;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, &handling, SET_BYTES);
    bool sent =
        syscall(SYS_rt_tgsigqueueinfo, syscall(SYS_getpid), syscall(SYS_gettid), number, info) == 0;
    if (sent) {
        uint64_t mask;
        memcpy(&mask, &context->uc_sigmask, SET_BYTES);
        /* Also if another signal is deferred already. All signals were blocked since, so a handler
         * has returned, and this signal has interrupted what that handler had interrupted. */
        mask_before = mask;
        via_lock_thread.deferred = true;
        mask |= all; /* takes effect when this handler has returned */
        memcpy(&context->uc_sigmask, &mask, SET_BYTES);
    } else {
        set_mask(SIG_SETMASK, handling);
    }
    return sent;
}

void via_lock_deliver_signals(void)
{
    VIA_KEEP_ERRNO;
    via_lock_thread.deferred = false;
    atomic_signal_fence(memory_order_seq_cst);
    set_mask(SIG_SETMASK, mask_before); /* the handlers run here */
}

void via_lock_fork_child_begin(void)
{
    via_lock_enter();
    if (via_lock_thread.deferred) {
        via_lock_deliver_signals(); /* signals that were pending in the parent are not pending here
                                     */
    }
}

void via_lock_fork_child_end(void)
{
    via_lock_thread.held = 1; /* an unlock does not count down for mutexes initialized again */
    via_lock_thread.ranks = 0;
    via_lock_leave();
}
