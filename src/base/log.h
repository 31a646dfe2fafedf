/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Log messages. Libraries do not print: without a sink no message is formatted, and a message below
 * the level costs one predictable branch.
 */
#ifndef VIA_BASE_LOG_H
#define VIA_BASE_LOG_H

#include <stdatomic.h>

#include "base/types.h"

enum via_log_level {
    VIA_LOG_ERROR, /* something is broken until a person repairs it */
    VIA_LOG_WARN,  /* something went wrong and was handled */
    VIA_LOG_INFO,  /* events of a healthy fabric that an operator needs */
    VIA_LOG_DEBUG, /* decisions */
    VIA_LOG_TRACE, /* every frame */
};

struct via_log_message {
    enum via_log_level level;
    const char *file; /* relative to src/ of the source tree, or as given to the compiler */
    int line;
    const char *text; /* no newline; valid during the call */
};

/* Any thread calls it, also several at once. It must not log. */
typedef void via_log_sink(void *ctx, const struct via_log_message *message);

/*
 * Sets the sink of the process. Call it before the first thread that logs starts, or after the last
 * one has ended. sink and ctx are borrowed; NULL removes the sink.
 */
void via_log_set_sink(via_log_sink *sink, void *ctx);

/* [any thread] VIA_LOG_INFO before the first call. */
void via_log_set_level(enum via_log_level level);

/* For example "warn". */
const char *via_log_level_name(enum via_log_level level);

/* The level of this name, or -1. */
int via_log_level_parse(const char *name);

/* The most detailed level that reaches a sink, -1 for none. Only via_log loads it. */
extern _Atomic int via_log_threshold;

#define via_log_enabled(level) \
    via_unlikely((int)(level) <= atomic_load_explicit(&via_log_threshold, memory_order_relaxed))

/* Evaluates its arguments only if the level is enabled. */
#define via_log(level, ...)                                        \
    do {                                                           \
        if (via_log_enabled(level))                                \
            via_log_write(level, __FILE__, __LINE__, __VA_ARGS__); \
    } while (0)

void via_log_write(enum via_log_level level, const char *file, int line, const char *format, ...)
    VIA_PRINTF(4, 5);

#endif
