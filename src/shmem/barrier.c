/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/barrier.h"

#include "shmem/path.h"

/* So many PEs look at each other's lines; more let one of them look. */
#define FLAT_LOCALS_MAX 16u

/* Counts on over shmem_finalize and another shmem_init, as the words do. */
static uint64_t epoch;

/* Until a word that somebody of this host writes, and notifies of, has come to `value`. One wait
 * goes over all the words of a barrier: who has paused in vain for one PE does not begin again. */
static void wait_here(struct via_wait *wait, const _Atomic uint64_t *word, uint64_t value)
{
    struct via_event *event = &via_world.node->event;

    /* Acquire: pairs with the exchange in tell_here. */
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

/* The exchange is the full fence that via_event_notify asks for, and that shmem_quiet promises. */
static void tell_here(_Atomic uint64_t *word, uint64_t value)
{
    atomic_exchange_explicit(word, value, memory_order_seq_cst);
    via_event_notify(&via_world.node->event);
}

static int leader_of(uint32_t node)
{
    int pe = 0;

    while (via_world.peers[pe].node != node)
        pe++;
    return pe;
}

static void among_hosts(void)
{
    uint32_t nodes = via_world.job->nodes_count, mine = via_world.me->node;
    _Atomic uint64_t *words = via_internal()->nodes.words;

    for (unsigned round = 0; (UINT32_C(1) << round) < nodes; round++) {
        uint32_t to = (mine + (UINT32_C(1) << round)) % nodes;
        via_put_word(&words[round], epoch, leader_of(to));
        struct via_wait wait = VIA_WAIT_INIT;
        /* Pairs with the release of via_put_word, or of the daemon that stores for it. */
        while (atomic_load_explicit(&words[round], memory_order_acquire) < epoch)
            via_wait_step(&wait);
        via_wait_done(&wait);
    }
}

void via_barrier_world(void)
{
    struct via_node *node = via_world.node;
    uint32_t me = via_world.me->local, locals = node->locals_count;
    bool flat = via_world.job->nodes_count == 1 && locals <= FLAT_LOCALS_MAX;
    struct via_wait wait = VIA_WAIT_INIT;

    epoch++;
    tell_here(&node->lines[me].arrived, epoch);
    if (!flat && me != 0) {
        wait_here(&wait, &node->released, epoch);
    } else {
        for (uint32_t i = 0; i < locals; i++)
            wait_here(&wait, &node->lines[i].arrived, epoch);
    }
    via_wait_done(&wait);
    if (flat || me != 0)
        return;
    among_hosts();
    tell_here(&node->released, epoch);
}
