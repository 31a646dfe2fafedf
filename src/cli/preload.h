/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CLI_PRELOAD_H
#define VIA_CLI_PRELOAD_H

#include "base/error.h"

#define VIA_PRELOAD_NAME "libviaduct-sockets.so"
#define VIA_PRELOAD_STUB_NAME "libviaduct-preload.so"

/* As shells say it: found but not executable, not found. */
#define VIA_CLI_CAN_NOT_RUN 126
#define VIA_CLI_NOT_FOUND 127

/* The sockets' library in front of what is in LD_PRELOAD already, once. 0 or a negative errno.
 * instead: the end of the error's text, for a command that can do without the library. */
int via_preload_set(const char *instead, struct via_error *err) VIA_MUST_CHECK;

/* Becomes the program. Returns only when that fails: the exit code, and the error is printed. */
int via_preload_exec(const char *name, char **argv);

#endif
