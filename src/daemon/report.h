/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_DAEMON_REPORT_H
#define VIA_DAEMON_REPORT_H

#include <stddef.h>

#include "base/types.h"

/* Several texts for people, a line each. Zero is an empty one. */
#define VIA_DAEMON_REPORT_BYTES 8192u

struct via_daemon_report {
    unsigned lines_count; /* also those for which there was no room */
    unsigned unsaid_count;
    size_t bytes;
    char text[VIA_DAEMON_REPORT_BYTES]; /* each line ends with \n; then 0 */
};

/* Bytes that do not print are shown as '?'. */
void via_daemon_report_add(struct via_daemon_report *report, const char *format, ...)
    VIA_PRINTF(2, 3);

/* Calls `take` with each line, without its end; the last one tells how many there was no room for.
 */
void via_daemon_report_each(const struct via_daemon_report *report,
                            void (*take)(void *ctx, const char *line), void *ctx);

#endif
