/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_SIGNALS_H
#define VIA_SOCKETS_SIGNALS_H

#include <stdbool.h>

/*
 * The program's signal handlers run through the library, which then knows two things: whether the
 * thread holds a mutex of the library (lock.h: the handler is put off until it does not), and
 * whether the handler that ended a sleep was installed with SA_RESTART.
 *
 * Not so the handlers of faults (SIGSEGV, SIGABRT ...), which the interrupted instruction causes,
 * so they can not wait, and those installed by syscall(2) or before the library was loaded.
 */

/* Before a sleep, and after it ended with EINTR: is the call to be started again? */
void via_signals_mark(void);
bool via_signals_has_restart(void);

#endif
