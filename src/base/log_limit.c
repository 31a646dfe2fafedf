/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "base/log_limit.h"

#include <stdarg.h>
#include <stdio.h>

#define TEXT_BYTES 900

bool via_log_limit_take(struct via_log_limit *limit, uint64_t now_ns)
{
    uint64_t full_ns = via_max(limit->full_ns, now_ns);
    if (full_ns - now_ns > (VIA_LOG_LIMIT_BURST - 1) * VIA_LOG_LIMIT_INTERVAL_NS) {
        limit->suppressed++;
        return false;
    }
    limit->full_ns = full_ns + VIA_LOG_LIMIT_INTERVAL_NS;
    return true;
}

uint64_t via_log_limit_flush(struct via_log_limit *limit, uint64_t now_ns, const char *what)
{
    uint64_t suppressed = limit->suppressed;
    if (suppressed == 0) {
        return VIA_NEVER_NS;
    }
    if (!via_log_limit_take(limit, now_ns)) {
        limit->suppressed = suppressed; /* this call writes no message */
        return limit->full_ns - (VIA_LOG_LIMIT_BURST - 1) * VIA_LOG_LIMIT_INTERVAL_NS;
    }
    limit->suppressed = 0;
    via_log(VIA_LOG_WARN, "%s: %llu more suppressed", what, (unsigned long long)suppressed);
    return VIA_NEVER_NS;
}

void via_log_limit_write(struct via_log_limit *limit, enum via_log_level level, const char *file,
                         int line, const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (limit->suppressed == 0) {
        via_log_write(level, file, line, "%s", text);
    } else {
        via_log_write(level, file, line, "%s (%llu more suppressed)", text,
                      (unsigned long long)limit->suppressed);
        limit->suppressed = 0;
    }
}
