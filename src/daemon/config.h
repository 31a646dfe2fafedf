/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_DAEMON_CONFIG_H
#define VIA_DAEMON_CONFIG_H

#include <stdio.h>

#include "daemon/options.h"
#include "daemon/report.h"

/*
 * The configuration file of a machine's daemon, viaduct-host.conf(5). All errors of a file are
 * reported, each as "FILE:LINE: [SECTION] KEY = VALUE: cause".
 */
#define VIA_DAEMON_CONFIG_BYTES_MAX (1u << 20)

/*
 * Parses a text. name: for the report. 0; or -EINVAL, and the report contains the errors. Accesses
 * no file and no hardware, but queries the system for users and groups. ret_options keeps the
 * fields that only the command line sets, such as `foreground` and `with`.
 */
VIA_MUST_CHECK int via_daemon_config_parse(const char *name, const char *text, size_t bytes,
                                           struct via_daemon_options *ret_options,
                                           struct via_daemon_report *report);

/* The same for a file, and reads the fabric key that the file names, as a check. */
VIA_MUST_CHECK int via_daemon_config_load(const char *path, struct via_daemon_options *ret_options,
                                          struct via_daemon_report *report);

/* Prints the options, with all defaults, as a configuration file. */
void via_daemon_config_print(const struct via_daemon_options *options, FILE *to);

/* Adds a line to the report for each key that differs but can not change while the host runs.
 * Returns the number of these keys. */
unsigned via_daemon_config_compare(const struct via_daemon_options *running,
                                   const struct via_daemon_options *loaded,
                                   struct via_daemon_report *report);

#endif
