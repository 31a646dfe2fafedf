/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_SIGNALS_H
#define VIA_SOCKETS_SIGNALS_H

#include <stdbool.h>

/*
 * The program's signal handlers are called by the library, which so knows two things: whether the
 * thread holds a mutex of the library (lock.h: the handler is put off until it does not), and
 * whether the handler that ended a sleep was installed with SA_RESTART.
 *
 * Exceptions: handlers of faults (SIGSEGV, SIGABRT ...), which the interrupted instruction causes
 * and which can not wait; and handlers installed by syscall(2) or before the library was loaded.
 */

/* Called before a sleep, and after the sleep ended with EINTR. via_signals_has_handled(): has a
 * handler run? via_signals_has_restart(): must the call be started again? */
void via_signals_mark(void);
bool via_signals_has_handled(void);
bool via_signals_has_restart(void);

#endif
