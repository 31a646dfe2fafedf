/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_SIGNALS_H
#define VIA_SOCKETS_SIGNALS_H

#include <stdbool.h>

/*
 * The library installs run_handler() for the program's signal handlers, and calls these from there.
 * So it can defer a handler while the thread holds a mutex of the library (lock.h), and it finds
 * out whether the handler that ended a sleep was installed with SA_RESTART.
 *
 * Exceptions: handlers of faults (SIGSEGV, SIGABRT, ...), because the interrupted instruction
 * causes these signals and would repeat them; and handlers installed by syscall(2) or before the
 * library was loaded.
 */

/* Called before a sleep, and after the sleep has ended with EINTR. via_signals_has_handled(): true
 * if a handler has run. via_signals_has_restart(): true if the call must be restarted. */
void via_signals_mark(void);
bool via_signals_has_handled(void);
bool via_signals_has_restart(void);

#endif
