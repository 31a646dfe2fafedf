/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Log messages that users and peers can cause at any rate. */
#include <stdio.h>

#include "host/host_private.h"

static struct via_log_limit *limit_of(struct via_host *host, enum via_host_warning kind,
                                      uint32_t source)
{
    return &host->warnings[kind][source % VIA_HOST_WARNING_SOURCES];
}

struct via_log_limit *via_host_warning_take(struct via_host *host, enum via_host_warning kind,
                                            uint32_t source)
{
    struct via_log_limit *limit = limit_of(host, kind, source);
    if (via_log_limit_take(limit, host->now_ns)) {
        return limit;
    }
    host->warnings_suppressed = true;
    return NULL;
}

/* Logs the number of suppressed messages once no further message was suppressed. */
uint64_t via_host_warnings_tick(struct via_host *host)
{
    static const char *const names[VIA_HOST_WARNING_KINDS] = {
        [VIA_HOST_WARNS_REFUSED] = "refused users",
        [VIA_HOST_WARNS_VERSION] = "processes of another version",
        [VIA_HOST_WARNS_ATTACH] = "processes that can not attach",
        [VIA_HOST_WARNS_QUOTA] = "quotas",
        [VIA_HOST_WARNS_MEMORY] = "memory of processes",
        [VIA_HOST_WARNS_DETACHED] = "detached processes",
        [VIA_HOST_WARNS_CONTROL] = "refused control requests",
        [VIA_HOST_WARNS_DIRECTORY] = "directory entries",
        [VIA_HOST_WARNS_REMOTE] = "requests of other hosts",
        [VIA_HOST_WARNS_FULL] = "refused connections",
        [VIA_HOST_WARNS_MAP] = "refused mappings",
        [VIA_HOST_WARNS_LINK] = "links",
    };
    if (!host->warnings_suppressed) {
        return VIA_NEVER_NS;
    }
    if (host->now_ns < host->warnings_deadline_ns) {
        return host->warnings_deadline_ns;
    }
    uint64_t deadline_ns = VIA_NEVER_NS;
    for (unsigned kind = 0; kind < VIA_HOST_WARNING_KINDS; kind++) {
        for (unsigned i = 0; i < VIA_HOST_WARNING_SOURCES; i++) {
            char what[80];
            struct via_log_limit *limit = &host->warnings[kind][i];
            bool was_suppressed = limit->suppressed != 0;
            snprintf(what, sizeof(what), "host %u: messages about %s", host->config.host,
                     names[kind]);
            deadline_ns = via_min(deadline_ns, via_log_limit_flush(limit, host->now_ns, what));
            if (kind == VIA_HOST_WARNS_LINK && was_suppressed && limit->suppressed == 0) {
                via_host_cables_log_states(host, i);
            }
        }
    }
    host->warnings_suppressed = deadline_ns != VIA_NEVER_NS;
    host->warnings_deadline_ns = host->warnings_suppressed ? deadline_ns : 0;
    return deadline_ns;
}
