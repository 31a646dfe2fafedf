/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TEXT_BYTES 1024

static const char *const level_names[] = {
    [VIA_LOG_ERROR] = "error", [VIA_LOG_WARN] = "warn",   [VIA_LOG_INFO] = "info",
    [VIA_LOG_DEBUG] = "debug", [VIA_LOG_TRACE] = "trace",
};

_Atomic int via_log_threshold = -1;

/* Not atomic, because via_log_set_sink() must not run while another thread logs. */
static via_log_sink *log_sink;
static void *log_ctx;

static _Atomic int log_level = VIA_LOG_INFO;

static void update_threshold(void)
{
    int level = log_sink ? atomic_load_explicit(&log_level, memory_order_relaxed) : -1;

    atomic_store_explicit(&via_log_threshold, level, memory_order_relaxed);
}

void via_log_set_sink(via_log_sink *sink, void *ctx)
{
    log_sink = sink;
    log_ctx = ctx;
    update_threshold();
}

void via_log_set_level(enum via_log_level level)
{
    atomic_store_explicit(&log_level, (int)level, memory_order_relaxed);
    update_threshold();
}

const char *via_log_level_name(enum via_log_level level)
{
    return (size_t)level < VIA_ARRAY_COUNT(level_names) ? level_names[level] : "?";
}

int via_log_level_parse(const char *name)
{
    for (size_t i = 0; i < VIA_ARRAY_COUNT(level_names); i++)
        if (strcmp(name, level_names[i]) == 0)
            return (int)i;
    return -1;
}

void via_log_write(enum via_log_level level, const char *file, int line, const char *format, ...)
{
    char text[TEXT_BYTES];
    struct via_log_message message = {.level = level, .file = file, .line = line, .text = text};
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (log_sink)
        log_sink(log_ctx, &message);
}
