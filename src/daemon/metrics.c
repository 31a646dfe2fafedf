/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "daemon/metrics.h"

#include <errno.h>
#include <stdatomic.h>

#include "base/log.h"
#include "host/control.h"
#include "metrics/server.h"
#include "metrics/text.h"

#define ANSWER_MS 2000

static struct via_metrics_server *server;
static _Atomic bool ending; /* the host answers no request any more */

static int collect(void *ctx, char **ret_text, size_t *ret_bytes)
{
    const struct via_daemon_options *options = ctx;
    struct via_metrics_host host = {.host = options->host.host};
    struct via_error err = {0};
    json_t *answer = NULL;
    if (atomic_load_explicit(&ending, memory_order_relaxed)) {
        return -ECANCELED;
    }
    json_t *request = json_pack("{s:s}", "cmd", "status");
    if (request == NULL) {
        return -ENOMEM;
    }
    int rc = via_control_call(options->rundir.text, host.host, request, &answer, &err, ANSWER_MS);
    json_decref(request);
    if (rc == 0) {
        host.status = answer;
        rc = via_metrics_write(&host, 1, ret_text, ret_bytes);
        json_decref(answer);
    } else if (!atomic_load_explicit(&ending, memory_order_relaxed)) {
        via_log(VIA_LOG_WARN, "metrics: %s", err.text);
    }
    return rc;
}

int via_daemon_metrics_open(const struct via_daemon_options *options, struct via_error *err)
{
    if (options->metrics == NULL) {
        return 0;
    }
    return via_metrics_open(options->metrics, collect, (void *)(uintptr_t)options, &server, err);
}

void via_daemon_metrics_end(void)
{
    atomic_store_explicit(&ending, true, memory_order_relaxed);
}

void via_daemon_metrics_close(void)
{
    via_metrics_close(server);
    server = NULL;
}
