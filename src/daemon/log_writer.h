/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_DAEMON_LOG_WRITER_H
#define VIA_DAEMON_LOG_WRITER_H

#include <stddef.h>

#include "base/log.h"

/*
 * Where the daemon's messages go: one line each to standard error. A thread writes them, so that a
 * pipe without a reader, or a disk that hangs, blocks no thread that serves links or processes.
 * Messages for which there is no room are lost, and their count is logged.
 *
 * If standard error is the file at `path` it takes at most bytes_max: at half of that it is renamed
 * to `path`.old, in place of an older one, and a new one is begun.
 *
 * One per process. Before via_daemon_log_start(), and if the thread can not be had, messages are
 * written by the thread that logs.
 */
#define VIA_DAEMON_LOG_BYTES_MIN 65536u
#define VIA_DAEMON_LOG_BYTES (16u << 20)

/* A via_log_sink. */
void via_daemon_log(void *ctx, const struct via_log_message *message);

void via_daemon_log_start(const char *path, size_t bytes_max);

/* From any thread. */
void via_daemon_log_set_bytes(size_t bytes_max);

/* Writes the remaining lines, for a second at most, and ends the thread. */
void via_daemon_log_end(void);

#endif
