/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Waits until a fabric is complete: each link is up, and each host has a route to all hosts that
 * links connect it with. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cli/daemon.h"
#include "cli/request.h"
#include "progress/progress.h"

#define ANSWER_MS 5000u
#define RETRY_US 5000u

/* Host ids that the topology connects have the same number here. */
struct islands {
    uint8_t of[VIA_TOPOLOGY_HOST_MAX + 1];
};

static void find_islands(const struct via_topology *topology, struct islands *islands)
{
    for (unsigned id = 0; id <= VIA_TOPOLOGY_HOST_MAX; id++) {
        islands->of[id] = (uint8_t)id;
    }
    for (unsigned i = 0; i < topology->links_count; i++) {
        uint8_t kept = islands->of[topology->links[i].a];
        uint8_t gone = islands->of[topology->links[i].b];
        for (unsigned id = 0; id <= VIA_TOPOLOGY_HOST_MAX; id++) {
            islands->of[id] = islands->of[id] == gone ? kept : islands->of[id];
        }
    }
}

/* 0; -EAGAIN: not yet; -EPROTO: the link can not come up. */
static int check_links(const struct via_topology *topology, unsigned host, const json_t *status,
                       struct via_error *err)
{
    for (unsigned i = 0; i < topology->links_count; i++) {
        const struct via_topology_link *link = &topology->links[i];
        if (link->a != host && link->b != host) {
            continue;
        }
        unsigned peer = link->a == host ? link->b : link->a;
        json_t *entry = via_answer_link(status, peer, link->number);
        const char *state = entry != NULL ? via_answer_text(entry, "state") : "missing";
        if (strcmp(state, "up") == 0) {
            continue;
        }
        const char *why = via_answer_text(entry, "error");
        return via_error_set(err, strncmp(state, "bad", 3) == 0 ? -EPROTO : -EAGAIN,
                             "host %u: link to host %u: it does not come up, it is '%s'%s%s", host,
                             peer, state, why[0] != '\0' ? ": " : "", why);
    }
    return 0;
}

/* True if the host's directory has an entry of the other host, and the host has pipes to it. */
static bool has_route(const json_t *status, unsigned other)
{
    json_t *entry;
    size_t i;
    json_array_foreach(json_object_get(status, "routes"), i, entry)
    {
        if (via_answer_u64(entry, "host") == other) {
            return !json_is_false(json_object_get(entry, "in_directory")) &&
                   !json_is_false(json_object_get(entry, "pipes"));
        }
    }
    return false;
}

static int check_routes(const struct via_topology *topology, const struct islands *islands,
                        unsigned host, const json_t *status, struct via_error *err)
{
    for (unsigned i = 0; i < topology->hosts_count; i++) {
        unsigned other = topology->hosts[i];
        if (other != host && islands->of[other] == islands->of[host] &&
            via_answer_hops(status, other) < 0) {
            return via_error_set(err, -EAGAIN, "host %u: route to host %u: there is none yet", host,
                                 other);
        }
        if (other != host && islands->of[other] == islands->of[host] && !has_route(status, other)) {
            return via_error_set(err, -EAGAIN,
                                 "host %u: directory: the entry of host %u has not arrived yet",
                                 host, other);
        }
    }
    return 0;
}

static int check_host(const struct via_fabric *fabric, const struct islands *islands, unsigned host,
                      struct via_error *err)
{
    json_t *status = NULL;
    int rc = via_fabric_request(fabric, host, "status", ANSWER_MS, &status, err);
    if (rc == 0) {
        rc = check_links(&fabric->topology, host, status, err);
    }
    if (rc == 0) {
        rc = check_routes(&fabric->topology, islands, host, status, err);
    }
    json_decref(status);
    return rc;
}

static int wait_for_hosts(const struct via_fabric *fabric, const struct islands *islands,
                          uint64_t deadline_ns, struct via_progress *progress, unsigned *ret_host,
                          struct via_error *err)
{
    const struct via_topology *topology = &fabric->topology;
    /* A host that was complete once is not queried again, because its links change only by a
     * cut. */
    for (unsigned i = 0; i < topology->hosts_count;) {
        int rc = check_host(fabric, islands, topology->hosts[i], err);
        if (rc == 0) {
            via_progress_step(progress, ++i);
            continue;
        }
        if (via_daemon_interrupted) {
            return via_error_set(err, -EINTR, "interrupted");
        }
        *ret_host = topology->hosts[i];
        /* On a busy machine a daemon may be slow to answer. */
        if (rc != -EAGAIN && rc != -ETIMEDOUT) {
            return rc;
        }
        if (via_process_now_ns() >= deadline_ns) {
            return -ETIMEDOUT;
        }
        usleep(RETRY_US);
    }
    return 0;
}

int via_daemon_wait_links(const struct via_fabric *fabric, uint64_t deadline_ns, unsigned *ret_host,
                          struct via_error *err)
{
    struct islands islands;
    struct via_progress progress;
    find_islands(&fabric->topology, &islands);
    via_progress_begin(&progress, "viaduct up: links of host", fabric->topology.hosts_count);
    int rc = wait_for_hosts(fabric, &islands, deadline_ns, &progress, ret_host, err);
    via_progress_end(&progress);
    return rc;
}
