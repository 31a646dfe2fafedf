/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_METRICS_TEXT_H
#define VIA_METRICS_TEXT_H

#include <jansson.h>
#include <stddef.h>

#include "base/types.h"

/*
 * The status of hosts as Prometheus text, format 0.0.4. Pure: no I/O, no clock.
 */
struct via_metrics_host {
    unsigned host;
    const json_t *status; /* its answer to "status" (docs/host.md, 7); NULL: no answer */
};

/*
 * All metrics of these hosts. 0 and *ret_text, which the caller frees; *ret_bytes does not count
 * its terminating zero. -ENOMEM.
 */
int via_metrics_write(const struct via_metrics_host *hosts, size_t count, char **ret_text,
                      size_t *ret_bytes) VIA_MUST_CHECK;

#endif
