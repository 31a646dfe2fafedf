/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_BASE_SIGNALS_H
#define VIA_BASE_SIGNALS_H

#include <pthread.h>
#include <signal.h>

/*
 * Blocks signals in the calling thread for a thread that it creates next and that inherits the
 * mask, because signals belong to the program's own threads. Signals that an access of the thread
 * itself raises stay unblocked: if such a signal is blocked, the kernel ends the process and calls
 * no handler (linux, kernel/signal.c, force_sig_info_to_task()), and vfio/guard.c handles
 * SIGBUS.
 */
static inline void via_signals_block(sigset_t *ret_before)
{
    static const int raised[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t mask;
    sigfillset(&mask);
    for (unsigned i = 0; i < sizeof(raised) / sizeof(raised[0]); i++) {
        sigdelset(&mask, raised[i]);
    }
    pthread_sigmask(SIG_SETMASK, &mask, ret_before);
}

#endif
