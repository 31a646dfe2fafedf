/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_DAEMON_METRICS_H
#define VIA_DAEMON_METRICS_H

#include "daemon/options.h"

/*
 * Metrics of this host by HTTP, if the options ask for them. The server's thread asks the host by
 * its control socket, as commands do: a slow client holds up no thread of the host. options are
 * borrowed until via_daemon_metrics_close(). Errors of via_metrics_open().
 */
int via_daemon_metrics_open(const struct via_daemon_options *options,
                            struct via_error *err) VIA_MUST_CHECK;

/* The host answers no request from here on: requests are refused. */
void via_daemon_metrics_end(void);

/* Waits for a request that is being answered: after the host is closed, which ends what that waits
 * for. Else it is 2 s for each connection. */
void via_daemon_metrics_close(void);

#endif
