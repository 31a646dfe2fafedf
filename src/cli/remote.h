/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CLI_REMOTE_H
#define VIA_CLI_REMOTE_H

#include "cli/fabric.h"

/*
 * Programs on other machines. An agent such as ssh runs `viaduct run --remote` there, which runs
 * the program and makes sure that the program ends with the connection of the agent.
 */

/* Replaces this process by the agent. agent: its words, separated by blanks; NULL: $VIADUCT_AGENT
 * or ssh. Returns the exit code only on failure. */
int via_remote_run(const char *name, const struct via_fabric *fabric, unsigned host,
                   const char *agent, bool sockets, char **argv);

/* At the other end: runs the program as a child. Returns its exit code, or 128 + n after a signal
 * n. When nothing reads its output any more, the program gets SIGHUP, and after some seconds
 * SIGKILL. */
int via_remote_end(const char *name, char **argv);

#endif
