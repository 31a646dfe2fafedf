/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_DAEMON_DECISIONS_H
#define VIA_DAEMON_DECISIONS_H

#include <stddef.h>

#include "base/error.h"
#include "host/host.h"
#include "host/host_measured.h"

/*
 * The file that keeps the measurements of TCP connections to other hosts (host/host_measured.h)
 * over a restart of the daemon. It is in the state directory, and has a section [host ID] for each
 * host.
 */
#define VIA_DECISIONS_FILE "sockets.conf"
#define VIA_DECISIONS_BYTES_MAX (1u << 20)

/* Calls `take` for each decision of the text, if the whole text is valid. Otherwise -EINVAL with
 * the first invalid line, without any call. */
VIA_MUST_CHECK int via_decisions_parse(const char *name, const char *text, size_t bytes,
                                       void (*take)(void *ctx, uint16_t host,
                                                    const struct via_measured *measured),
                                       void *ctx, struct via_error *err);

/* The text of the file, for via_decisions_write(). The caller frees it. NULL: out of memory. */
char *via_decisions_text(const struct via_host *host);

/* Restores the decisions of the file in the host. 0 also if there is no file. */
VIA_MUST_CHECK int via_decisions_load(const char *folder, struct via_host *host,
                                      struct via_error *err);

/* Makes the folder, if its parent exists, and replaces the file atomically. */
VIA_MUST_CHECK int via_decisions_write(const char *folder, const char *text, struct via_error *err);

#endif
