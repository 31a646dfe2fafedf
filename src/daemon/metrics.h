/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_DAEMON_METRICS_H
#define VIA_DAEMON_METRICS_H

#include "daemon/options.h"

/*
 * Serves metrics of this host over HTTP, if the options request it. The server's thread queries the
 * host over its control socket, as commands do, so a slow client delays no thread of the host.
 * options: borrowed until via_daemon_metrics_close(). Errors of via_metrics_open().
 */
int via_daemon_metrics_open(const struct via_daemon_options *options,
                            struct via_error *err) VIA_MUST_CHECK;

/* From now on the host answers no request, so the server refuses its clients. */
void via_daemon_metrics_end(void);

/* Waits for requests that are being answered. Called after the host is closed, which ends their
 * calls to the host; otherwise the wait takes up to 2 s for each connection. */
void via_daemon_metrics_close(void);

#endif
