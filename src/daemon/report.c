/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "daemon/report.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LINE_BYTES 768u

void via_daemon_report_add(struct via_daemon_report *report, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list args;
    va_start(args, format);
    int written = vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    size_t bytes = via_min((size_t)via_max(written, 0), sizeof(line) - 1);
    report->lines_count++;
    if (report->omitted_count != 0 || report->bytes + bytes + 2 > sizeof(report->text)) {
        report->omitted_count++;
        return;
    }
    for (size_t i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)line[i];
        report->text[report->bytes++] = byte >= ' ' && byte < 0x7f ? (char)byte : '?';
    }
    report->text[report->bytes++] = '\n';
    report->text[report->bytes] = '\0';
}

void via_daemon_report_each(const struct via_daemon_report *report,
                            void (*take)(void *ctx, const char *line), void *ctx)
{
    char line[LINE_BYTES];
    for (const char *at = report->text; *at != '\0';) {
        size_t bytes = strcspn(at, "\n");
        snprintf(line, sizeof(line), "%.*s", (int)bytes, at);
        take(ctx, line);
        at += bytes + 1;
    }
    if (report->omitted_count != 0) {
        snprintf(line, sizeof(line), "and %u more", report->omitted_count);
        take(ctx, line);
    }
}
