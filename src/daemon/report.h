/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_DAEMON_REPORT_H
#define VIA_DAEMON_REPORT_H

#include <stddef.h>

#include "base/types.h"

/* Lines of text for people. All zeros is an empty report. */
#define VIA_DAEMON_REPORT_BYTES 8192u

struct via_daemon_report {
    unsigned lines_count; /* includes lines for which there was no room */
    unsigned omitted_count;
    size_t bytes;
    char text[VIA_DAEMON_REPORT_BYTES]; /* each line ends with \n; then 0 */
};

/* Bytes that are not printable become '?'. */
void via_daemon_report_add(struct via_daemon_report *report, const char *format, ...)
    VIA_PRINTF(2, 3);

/* Calls `take` with each line, without its newline. If there was no room for some lines, a last
 * line reports their number. */
void via_daemon_report_each(const struct via_daemon_report *report,
                            void (*take)(void *ctx, const char *line), void *ctx);

#endif
