/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/hooks/signals.h"

#include <signal.h>
#include <stdint.h>

#include "sockets/hooks/hooks.h"
#include "sockets/meet/policy.h"
#include "sockets/process/lock.h"
#include "sockets/process/os.h"
#include "sockets/process/real.h"
#include "sockets/process/token.h"

typedef void handler(int number, siginfo_t *info, void *context);

/* The program's action for a signal whose handler in the kernel is run_handler(). */
struct action {
    _Atomic(handler *) handler;
    _Atomic int flags; /* of the program's flags, SA_SIGINFO and SA_RESETHAND */
};

static struct action actions[_NSIG];
/* Signals whose handlers have begun since via_signals_mark(). */
static __thread uint64_t begun __attribute__((tls_model("initial-exec")));

/* --- the program's handlers ------------------------------------------------------------------ */

/* Resets the action, as the kernel does for SA_RESETHAND before the handler runs. */
static void reset(int number)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    VIA_KEEP_ERRNO;
    VIA_REAL(sigaction)(number, &action, NULL);
}

static void run_handler(int number, siginfo_t *info, void *context)
{
    if (via_unlikely(via_lock_thread.held != 0) && via_lock_defer_signal(number, info, context)) {
        return;
    }
    struct action *action = &actions[number];
    handler *of_program = atomic_load_explicit(&action->handler, memory_order_acquire);
    if ((atomic_load_explicit(&action->flags, memory_order_relaxed) & (int)SA_RESETHAND) != 0) {
        reset(number);
    }
    begun |= VIA_LOCK_SIGNAL(number);
    uint64_t of_interrupted = begun;
    struct via_token_stack before = via_token_enter_handler(context, __builtin_frame_address(0));
    of_program(number, info, context); /* a handler without SA_SIGINFO reads only the number */
    via_token_stack = before;
    begun = of_interrupted;
}

static bool is_ours(const struct sigaction *action)
{
    return (action->sa_flags & SA_SIGINFO) != 0 && action->sa_sigaction == run_handler;
}

static bool is_function(const struct sigaction *action)
{
    return action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN &&
           action->sa_handler != SIG_ERR;
}

static bool is_to_be_wrapped(const struct sigaction *action)
{
    return via_policy.on && is_function(action) && !is_ours(action) && !via_hooks_is_guest();
}

/* Signals whose handlers run_handler() replaces. A process that is confined keeps those that it has
 * replaced before. */
static bool is_wrapped(int number)
{
    return number > 0 && number < _NSIG && (VIA_LOCK_SIGNALS & VIA_LOCK_SIGNAL(number)) != 0;
}

/* Converts the kernel's action to the one that the program has set. */
static void unwrap(struct sigaction *action, handler *function, int flags)
{
    if (is_ours(action)) {
        action->sa_sigaction = function;
        action->sa_flags = (int)((unsigned)action->sa_flags & ~(unsigned)SA_SIGINFO) | flags;
    }
}

/* Converts the program's action to the kernel's; keeps the flags that are not set in the kernel. */
static void wrap(int number, struct sigaction *action)
{
    const int own = (int)((unsigned)SA_SIGINFO | (unsigned)SA_RESETHAND);
    atomic_store_explicit(&actions[number].flags, action->sa_flags & own, memory_order_relaxed);
    /* Pairs with the acquire in run_handler(). */
    atomic_store_explicit(&actions[number].handler, action->sa_sigaction, memory_order_release);
    action->sa_sigaction = run_handler;
    action->sa_flags = (int)((unsigned)action->sa_flags & ~(unsigned)SA_RESETHAND) | SA_SIGINFO;
}

VIA_HOOK int sigaction(int number, const struct sigaction *action, struct sigaction *ret_old)
{
    via_hooks_init();
    if (!is_wrapped(number)) {
        return VIA_REAL(sigaction)(number, action, ret_old);
    }
    handler *function = atomic_load_explicit(&actions[number].handler, memory_order_relaxed);
    int flags = atomic_load_explicit(&actions[number].flags, memory_order_relaxed);
    struct sigaction wrapped;
    if (action != NULL && is_to_be_wrapped(action)) {
        wrapped = *action;
        wrap(number, &wrapped);
        action = &wrapped;
    }
    int rc = VIA_REAL(sigaction)(number, action, ret_old);
    if (rc == 0 && ret_old != NULL) {
        unwrap(ret_old, function, flags);
    }
    return rc;
}

VIA_HOOK_AS(sigaction)
int __sigaction(int number, const struct sigaction *action, struct sigaction *ret_old) __THROW;

/* For older functions: the C library chooses the flags, then the handler is replaced. */
static sighandler_t install(sighandler_t (*real)(int, sighandler_t), int number,
                            sighandler_t function)
{
    if (!is_wrapped(number)) {
        return real(number, function);
    }
    struct action *action = &actions[number];
    handler *before = atomic_load_explicit(&action->handler, memory_order_relaxed);
    struct sigaction now;
    sighandler_t old = real(number, function);
    if (via_policy.on && old != SIG_ERR && VIA_REAL(sigaction)(number, NULL, &now) == 0 &&
        is_to_be_wrapped(&now)) {
        wrap(number, &now);
        VIA_REAL(sigaction)(number, &now, NULL);
    }
    struct sigaction shown = {.sa_flags = SA_SIGINFO};
    shown.sa_handler = old;
    unwrap(&shown, before, 0);
    return shown.sa_handler;
}

sighandler_t bsd_signal(int number, sighandler_t function);
/* clang-format off */
#define VIA_SIGNALS_HOOK(name)                                                                     \
    VIA_HOOK sighandler_t name(int number, sighandler_t function)                                  \
    {                                                                                              \
        via_hooks_init();                                                                          \
        return install(VIA_REAL(name), number, function);                                          \
    }
/* clang-format on */
VIA_SIGNALS_HOOK(signal)
VIA_SIGNALS_HOOK(bsd_signal)
VIA_SIGNALS_HOOK(ssignal)
VIA_SIGNALS_HOOK(sysv_signal)
VIA_SIGNALS_HOOK(__sysv_signal)
VIA_SIGNALS_HOOK(sigset)

/* --- sleeps that were interrupted ------------------------------------------------------------ */

void via_signals_mark(void)
{
    begun = 0;
}

bool via_signals_has_handled(void)
{
    return begun != 0;
}

/* True if the signal restarts calls. Read from the kernel, because siginterrupt(3) changes the
 * flags. */
static bool is_restarting(int number, bool ours)
{
    struct sigaction action;
    if (VIA_REAL(sigaction)(number, NULL, &action) != 0 || !is_function(&action)) {
        return true;
    }
    return is_ours(&action) != ours || (action.sa_flags & SA_RESTART) != 0;
}

bool via_signals_has_restart(void)
{
    /* If run_handler() has not run, either a handler that the library does not know has run, or
     * none. */
    uint64_t which = begun != 0 ? begun : VIA_LOCK_SIGNALS;
    for (; which != 0; which &= which - 1) {
        int number = __builtin_ctzll(which) + 1;
        if (!is_restarting(number, begun != 0)) {
            return false;
        }
    }
    return true;
}

/* --- cancellation ---------------------------------------------------------------------------- */

VIA_HOOK int pthread_cancel(pthread_t thread)
{
    atomic_store_explicit(&via_lock_had_cancel, true, memory_order_relaxed);
    return VIA_REAL(pthread_cancel)(thread);
}
