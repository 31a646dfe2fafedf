/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CLI_REMOTE_H
#define VIA_CLI_REMOTE_H

#include "cli/fabric.h"

/*
 * Programs on other machines. An agent, such as ssh, is asked to run `viaduct run --remote` there,
 * which runs the program and sees that it ends with the connection of the agent.
 */

/* Becomes the agent. agent: its words, separated by blanks; NULL = $VIADUCT_AGENT or ssh. Returns
 * the exit code when that fails. */
int via_remote_run(const char *name, const struct via_fabric *fabric, unsigned host,
                   const char *agent, bool sockets, char **argv);

/* At the other end: the program as a child. Returns its exit code, 128 + n after a signal n. When
 * its output has no reader any more, the program gets SIGHUP, and after some seconds SIGKILL. */
int via_remote_end(const char *name, char **argv);

#endif
