/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_DAEMON_LOG_WRITER_H
#define VIA_DAEMON_LOG_WRITER_H

#include <stddef.h>

#include "base/log.h"

/*
 * The log sink of the daemon: one line for each message, on standard error. A thread writes the
 * lines, so that a pipe without a reader, or a disk that hangs, does not block threads that serve
 * links or processes. Messages for which the ring has no room are lost, and their number is logged.
 *
 * If standard error is the file at `path`, the logs take at most bytes_max: at half of that the
 * file is renamed to `path`.old, which replaces an older one, and a new file begins.
 *
 * One per process. Before via_daemon_log_start(), and if the thread can not be started, the thread
 * that logs writes the message itself.
 */
#define VIA_DAEMON_LOG_BYTES_MIN 65536u
#define VIA_DAEMON_LOG_BYTES (16u << 20)

/* A via_log_sink. */
void via_daemon_log(void *ctx, const struct via_log_message *message);

void via_daemon_log_start(const char *path, size_t bytes_max);

/* [any thread] */
void via_daemon_log_set_bytes(size_t bytes_max);

/* Writes the remaining lines, for one second at most, and ends the thread. */
void via_daemon_log_end(void);

#endif
