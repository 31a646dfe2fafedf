/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_DAEMON_MEASURE_H
#define VIA_DAEMON_MEASURE_H

#include "daemon/options.h"

/*
 * Measures TCP connections to neighbours over networks automatically, each when its link is idle,
 * and keeps the decisions in the state directory. `viaduct tune sockets`, a child of the daemon on
 * either machine, does the work: one measurement at a time, for some seconds, with a limit on
 * bytes. ADR 54.
 *
 * One per process. Opened before the host runs.
 */
VIA_MUST_CHECK int via_measure_open(struct via_host *host, const struct via_daemon_options *options,
                                    struct via_error *err);
/* Ends the children, and writes pending decisions. */
void via_measure_close(void);

#endif
