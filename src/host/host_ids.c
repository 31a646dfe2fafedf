/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/host_ids.h"

#include "host/host_private.h"

#define CHECK_NS (VIA_SEC_NS / 4)

_Static_assert(VIA_HOSTS_MAX % 64 == 0, "the bitmap has a bit for each host");

static void log_sharing(struct via_host *host, uint16_t id, bool shared)
{
    if (!shared) {
        via_host_log(host, VIA_HOST_WARNS_DIRECTORY, id, VIA_LOG_INFO,
                     "host %u: one host of the fabric has the id %u now", host->config.host, id);
    } else if (id == host->config.host) {
        via_host_warn(host, VIA_HOST_WARNS_DIRECTORY, id,
                      "host %u: another host of the fabric announces this host's id: give one of "
                      "the two another id",
                      id);
    } else {
        via_host_warn(host, VIA_HOST_WARNS_DIRECTORY, id,
                      "host %u: two hosts of the fabric announce the id %u, and may not be "
                      "reached: give one of the two another id",
                      host->config.host, id);
    }
}

bool via_host_ids_is_shared(const struct via_host *host, uint16_t id)
{
    return (host->ids.shared[id / 64] >> (id % 64) & 1) != 0;
}

void via_host_ids_tick(struct via_host *host)
{
    struct via_host_ids *ids = &host->ids;
    if (host->now_ns < ids->next_ns) {
        return;
    }
    ids->next_ns = host->now_ns + CHECK_NS;
    for (uint16_t id = 0; id < host->config.hosts_max; id++) {
        bool shared = via_node_is_id_shared(host->node, id, host->now_ns);
        if (shared != via_host_ids_is_shared(host, id)) {
            ids->shared[id / 64] ^= UINT64_C(1) << (id % 64);
            log_sharing(host, id, shared);
        }
    }
}
