/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_BASE_LOG_LIMIT_H
#define VIA_BASE_LOG_LIMIT_H

#include "base/log.h"

/*
 * A limit for log messages that a peer or a process can cause at any rate: a token bucket, one for
 * each source (a user, a link) and kind of message. VIA_LOG_LIMIT_BURST messages may come at once,
 * then one in each interval. The next message that passes includes the number of suppressed ones.
 *
 * A limit belongs to one thread at a time. All zeros is a full bucket.
 */
#define VIA_LOG_LIMIT_BURST 10u
#define VIA_LOG_LIMIT_INTERVAL_NS (10 * VIA_SEC_NS)

struct via_log_limit {
    uint64_t full_ns; /* when the bucket is full again */
    uint64_t suppressed;
};

/* Takes a token. True: a message may be logged now. False: it is counted as suppressed. */
bool via_log_limit_take(struct via_log_limit *limit, uint64_t now_ns) VIA_MUST_CHECK;

/*
 * For the time after the last message: logs the number of suppressed `what` ("warnings of uid 7")
 * as soon as there is a token. Returns when to call it again; VIA_NEVER_NS: none is suppressed.
 */
uint64_t via_log_limit_flush(struct via_log_limit *limit, uint64_t now_ns, const char *what);

/* Logs if there is a token. Evaluates its arguments only then. */
#define via_log_limited(limit, now_ns, level, ...)                              \
    do {                                                                        \
        if (via_log_enabled(level) && via_log_limit_take(limit, now_ns))        \
            via_log_limit_write(limit, level, __FILE__, __LINE__, __VA_ARGS__); \
    } while (0)

void via_log_limit_write(struct via_log_limit *limit, enum via_log_level level, const char *file,
                         int line, const char *format, ...) VIA_PRINTF(5, 6);

#endif
