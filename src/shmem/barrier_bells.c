/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Barriers among hosts that the daemons carry out. */
#include <errno.h>

#include "shmem/barrier.h"
#include "shmem/path.h"

/* The hosts of the job in ascending order, as via_barrier requires. */
static unsigned sort_hosts(uint16_t hosts[])
{
    const struct via_job *job = via_world.job;
    unsigned count = 0;

    for (uint32_t pe = 0; pe < job->pes_count; pe++) {
        uint16_t host = (uint16_t)via_world.peers[pe].host;
        unsigned at = count;
        if (pe > 0 && via_world.peers[pe].node == via_world.peers[pe - 1].node)
            continue;
        for (; at > 0 && hosts[at - 1] > host; at--)
            hosts[at] = hosts[at - 1];
        hosts[at] = host;
        count++;
    }
    return count;
}

/*
 * The daemons meet (docs/protocol.md, 14): arrivals go along the links to the host with the lowest
 * id, and at each hop the host rings the doorbell barrier-start of the next one; releases come back
 * the same way, by barrier-end. Doorbells may be lost and merge, frames do not; and each job has a
 * group number of its own, so that several share the two bits.
 */
void via_barrier_by_doorbells(void)
{
    static uint16_t hosts[VIA_JOB_PES_MAX];
    static unsigned count;
    uint64_t id = via_world.job->id;
    struct via_wait wait = VIA_WAIT_INIT;
    int result;

    if (count == 0)
        count = sort_hosts(hosts);
    /* -ENOSPC: the root has no room, because this host waits in many barriers there. -ETIMEDOUT:
     * some PE has not arrived for a long time, because it computes; if it has died, the launcher
     * ends the job. In neither case has the barrier taken place. */
    while ((result = via_barrier(via_world.attach, (uint32_t)(id ^ id >> 32), hosts, count)) ==
               -ENOSPC ||
           result == -ETIMEDOUT)
        via_wait_step(&wait);
    via_wait_done(&wait);
    if (result < 0)
        via_fatal_cut_off("barrier: %s", via_error_text());
}
