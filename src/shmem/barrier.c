/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/barrier.h"

#include <string.h>

#include "base/mutant.h"
#include "shmem/path.h"
#include "shmem/round.h"

struct via_barriers via_barriers;

void via_wait_here(struct via_wait *wait, const _Atomic uint64_t *word, uint64_t value)
{
    struct via_event *event = &via_world.node->event;

    /* Acquire: pairs with the exchange in via_tell_here. */
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
void via_tell_here(_Atomic uint64_t *word, uint64_t value)
{
    atomic_exchange_explicit(word, value, memory_order_seq_cst);
    via_event_notify(&via_world.node->event);
}

/* In round r everybody tells the one 2^r further. */
static void dissemination(uint32_t nodes, uint32_t mine)
{
    _Atomic uint64_t *words = via_internal()->nodes.words;

    for (unsigned round = 0; (UINT32_C(1) << round) < nodes; round++) {
        uint32_t to = (mine + (UINT32_C(1) << round)) % nodes;
        via_put_word(&words[round], via_barriers.epoch, via_round_leader(to));
        via_round_hear(&words[round], via_barriers.epoch);
    }
}

static void among_hosts(const struct via_round_load *load)
{
    uint32_t nodes = via_world.job->nodes_count;

    if (nodes > 1 && via_world.job->barrier == VIA_JOB_BARRIER_DOORBELLS)
        via_barrier_by_doorbells();
    else if (nodes <= VIA_ROUND_NODES_MAX)
        via_round_go(via_barriers.epoch, load);
    else
        dissemination(nodes, via_world.me->node);
}

static void meet(const struct via_round_load *load)
{
    struct via_node *node = via_world.node;
    uint32_t me = via_world.me->local, locals = node->locals_count;
    bool flat = via_world.job->nodes_count == 1 && locals <= VIA_FLAT_PES_MAX;
    struct via_wait wait = VIA_WAIT_INIT;

    via_barriers.epoch++;
    via_tell_here(via_node_arrived(node, me), via_barriers.epoch);
    if (!flat && me != 0) {
        via_wait_here(&wait, &node->released, via_barriers.epoch);
    } else {
        for (uint32_t i = 0; i < locals && !VIA_MUTANT(SHMEM_NO_GATHER); i++)
            via_wait_here(&wait, via_node_arrived(node, i), via_barriers.epoch);
    }
    via_wait_done(&wait);
    if (flat || me != 0)
        return;
    among_hosts(load);
    via_tell_here(&node->released, via_barriers.epoch);
}

void via_barrier_world(void)
{
    meet(NULL);
}

/* --- barriers that take something along --------------------------------------------------------
 */

bool via_barrier_goes_round(void)
{
    const struct via_job *job = via_world.job;

    return job->nodes_count > 1 && job->nodes_count <= VIA_ROUND_NODES_MAX &&
           job->barrier == VIA_JOB_BARRIER_WINDOWS;
}

/* Two sets of places in turn: who fills one again has passed the barrier after the one that filled
 * it, and so all have read it. Those of this host are at its leader. */
static char *places_at(int leader, uint64_t at_epoch)
{
    char *heap = via_world.peers[leader].base[VIA_REGION_HEAP];

    return (char *)((struct via_internal *)(void *)heap)->carry[at_epoch % 2];
}

size_t via_barrier_carry_max(void)
{
    return via_barrier_goes_round() ? VIA_CARRY_BYTES / (size_t)via_hot.n_pes / 64 * 64 : 0;
}

void via_barrier_carry(const void *mine, size_t bytes)
{
    size_t stride = via_align_up(bytes, 64);
    char *places = places_at(via_round_leader(via_world.me->node), via_barriers.epoch + 1);
    /* The leader's own address, which is symmetric; the others do not use it. */
    struct via_round_load load = {.base = places, .stride = stride};

    memcpy(places + (size_t)via_hot.my_pe * stride, mine, bytes);
    meet(&load);
    via_barriers.carried_stride = stride;
}

const void *via_barrier_carried(int pe)
{
    return places_at(via_round_leader(via_world.me->node), via_barriers.epoch) +
           (size_t)pe * via_barriers.carried_stride;
}

void via_barrier_gather(const char *call, void *array, size_t bytes)
{
    int me = via_hot.my_pe, leader = via_round_leader(via_world.me->node);
    char *my_place = (char *)array + (size_t)me * bytes;
    struct via_round_load load = {.base = array, .stride = bytes};

    if (me != leader)
        via_put(call, my_place, my_place, bytes, leader);
    meet(&load);
    if (me != leader)
        via_get(call, array, array, (size_t)via_hot.n_pes * bytes, leader);
    /* A leader's array is its program's again when the others of its host have it. */
    if (via_hot.n_pes > (int)via_world.job->nodes_count)
        meet(NULL);
}
