/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_HOST_IDS_H
#define VIA_HOST_HOST_IDS_H

#include <stdbool.h>
#include <stdint.h>

#include "host/host.h"

struct via_host;

/* Ids that two hosts of the fabric have, as their announcements show. The greeting of
 * a link detects the same id at two neighbours of one host; this check detects it anywhere. Control
 * thread. */
struct via_host_ids {
    uint64_t next_ns;                    /* of the next check */
    uint64_t shared[VIA_HOSTS_MAX / 64]; /* bitmap, as last logged */
};

/* Logs when an id is shared, and when it is not any more. Sets no deadline: such
 * hosts keep the control thread awake. */
void via_host_ids_tick(struct via_host *host);
bool via_host_ids_is_shared(const struct via_host *host, uint16_t id);

#endif
