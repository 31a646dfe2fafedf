/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Where messages go. Libraries do not print: without a sink nothing is even formatted, and a
 * message that is not wanted costs one predictable branch.
 */
#ifndef VIA_BASE_LOG_H
#define VIA_BASE_LOG_H

#include <stdatomic.h>

#include "base/types.h"

enum via_log_level {
    VIA_LOG_ERROR, /* something is broken and stays so without help */
    VIA_LOG_WARN,  /* something went wrong and was dealt with */
    VIA_LOG_INFO,  /* what an operator wants to know of a healthy fabric */
    VIA_LOG_DEBUG, /* decisions */
    VIA_LOG_TRACE, /* every frame */
};

struct via_log_message {
    enum via_log_level level;
    const char *file; /* relative to the source tree's src/, or as the compiler was given it */
    int line;
    const char *text; /* no newline; valid during the call */
};

/* Called by any thread, several at once; must not log. */
typedef void via_log_sink(void *ctx, const struct via_log_message *message);

/*
 * Process-wide. Call before the first thread that logs starts, or after the last has ended. sink is
 * borrowed with its ctx; NULL takes it away again.
 */
void via_log_set_sink(via_log_sink *sink, void *ctx);

/* At any time, from any thread. VIA_LOG_INFO until then. */
void via_log_set_level(enum via_log_level level);

/* "warn" */
const char *via_log_level_name(enum via_log_level level);

/* -1 for a name that is none. */
int via_log_level_parse(const char *name);

/* The most detailed level that a sink listens to, -1 for none. Read by via_log only. */
extern _Atomic int via_log_threshold;

#define via_log_enabled(level) \
    via_unlikely((int)(level) <= atomic_load_explicit(&via_log_threshold, memory_order_relaxed))

/* The arguments are evaluated only if the message is wanted. */
#define via_log(level, ...)                                        \
    do {                                                           \
        if (via_log_enabled(level))                                \
            via_log_write(level, __FILE__, __LINE__, __VA_ARGS__); \
    } while (0)

void via_log_write(enum via_log_level level, const char *file, int line, const char *format, ...)
    VIA_PRINTF(4, 5);

#endif
