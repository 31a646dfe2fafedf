/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CLI_PRELOAD_H
#define VIA_CLI_PRELOAD_H

#include "base/error.h"

#define VIA_PRELOAD_NAME "libviaduct-sockets.so"
#define VIA_PRELOAD_STUB_NAME "libviaduct-preload.so"

/* The exit codes of shells for "found but not executable" and "not found". */
#define VIA_CLI_CAN_NOT_RUN 126
#define VIA_CLI_NOT_FOUND 127

/* Adds the sockets library to LD_PRELOAD, in front of its present content, once. 0 or a negative
 * errno. instead: the end of the error text, for a command that also works without the library. */
int via_preload_set(const char *instead, struct via_error *err) VIA_MUST_CHECK;

/* Replaces this process by the program. Returns the exit code only on failure, after printing the
 * error. */
int via_preload_exec(const char *name, char **argv);

#endif
