/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_BASE_LOG_LIMIT_H
#define VIA_BASE_LOG_LIMIT_H

#include "base/log.h"

/*
 * A limit for log messages that a peer or a process can cause as often as it likes: a token bucket,
 * one for each source (a user, a link) and kind of message. A fixed number of messages may come at
 * once, then one in each interval. The next message that is let through tells how many were not.
 *
 * A limit belongs to one thread at a time. All zero is a full bucket.
 */
#define VIA_LOG_LIMIT_BURST 10u
#define VIA_LOG_LIMIT_INTERVAL_NS (10 * VIA_SEC_NS)

struct via_log_limit {
    uint64_t full_ns; /* when the bucket is full again */
    uint64_t suppressed;
};

/* Takes a token: may a message of now be logged? false: it is counted as suppressed. */
bool via_log_limit_take(struct via_log_limit *limit, uint64_t now_ns) VIA_MUST_CHECK;

/*
 * When no message has come for a while: logs how many of `what` ("warnings of uid 7") were
 * suppressed, as soon as there is a token. The time to call it again, VIA_NEVER_NS when none is
 * suppressed.
 */
uint64_t via_log_limit_flush(struct via_log_limit *limit, uint64_t now_ns, const char *what);

/* Logs if there is a token; the arguments are evaluated only then. */
#define via_log_limited(limit, now_ns, level, ...)                              \
    do {                                                                        \
        if (via_log_enabled(level) && via_log_limit_take(limit, now_ns))        \
            via_log_limit_write(limit, level, __FILE__, __LINE__, __VA_ARGS__); \
    } while (0)

void via_log_limit_write(struct via_log_limit *limit, enum via_log_level level, const char *file,
                         int line, const char *format, ...) VIA_PRINTF(5, 6);

#endif
