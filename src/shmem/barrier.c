/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/barrier.h"

#include "base/mutant.h"
#include "shmem/hosts.h"

void via_wait_here(struct via_wait *wait, const _Atomic uint64_t *word, uint64_t value)
{
    struct via_event *event = &via_world.node->event;

    /* Acquire: pairs with the exchange in via_store_and_notify. */
    while (atomic_load_explicit(word, memory_order_acquire) < value) {
        if (via_wait_try(wait))
            continue;
        uint32_t count = via_event_prepare(event);
        if (atomic_load_explicit(word, memory_order_acquire) >= value)
            via_event_cancel(event);
        else
            via_event_sleep(event, count);
    }
}

/* The exchange is sequentially consistent, as via_event_notify requires. */
void via_store_and_notify(_Atomic uint64_t *word, uint64_t value)
{
    atomic_exchange_explicit(word, value, memory_order_seq_cst);
    via_event_notify(&via_world.node->event);
}

/* All PEs of one host, if they are few: each polls all others. */
static void meet_flat(struct viaduct_shmem_team *team)
{
    struct via_node *node = via_world.node;
    struct via_wait wait = VIA_WAIT_INIT;

    team->epoch++;
    via_store_and_notify(via_node_arrived(node, via_world.me->local), team->epoch);
    for (uint32_t i = 0; i < node->locals_count && !VIA_MUTANT(SHMEM_NO_GATHER); i++)
        via_wait_here(&wait, via_node_arrived(node, i), team->epoch);
    via_wait_done(&wait);
}

void via_barrier_world(void)
{
    struct viaduct_shmem_team *team = via_team(SHMEM_TEAM_WORLD);

    if (team->mapped)
        meet_flat(team);
    else
        via_hosts_meet(team, NULL);
}
