/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/barrier.h"

#include "shmem/path.h"

/* On so many hosts words go from neighbour to neighbour: half as many rounds, each of a store or
 * two. With more, fewer rounds of frames win. */
#define NEIGHBOURS_MAX 16u
#define WORD_LEFT 0
#define WORD_RIGHT 1

/* Counts on over shmem_finalize and another shmem_init, as the words do. */
static uint64_t epoch;

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

static int leader_of(uint32_t node)
{
    int pe = 0;

    while (via_world.peers[pe].node != node)
        pe++;
    return pe;
}

static void hear(const _Atomic uint64_t *word, uint64_t value)
{
    struct via_wait wait = VIA_WAIT_INIT;

    /* Pairs with the release of via_put_word, or of the daemon that stores for it. */
    while (atomic_load_explicit(word, memory_order_acquire) < value)
        via_wait_step(&wait);
    via_wait_done(&wait);
}

/*
 * Both ways round the ring: after round r every host has heard of those up to r hops away. All
 * words go through the windows of neighbours, so that no daemon has to wake up; they count on, as
 * each has one writer.
 */
static void both_ways_round(uint32_t nodes, uint32_t mine)
{
    _Atomic uint64_t *from = via_internal()->nodes.words;
    int left = leader_of((mine + nodes - 1) % nodes), right = leader_of((mine + 1) % nodes);

    for (uint64_t round = 1; round <= nodes / 2; round++) {
        uint64_t value = epoch * NEIGHBOURS_MAX + round;
        via_put_word(&from[WORD_LEFT], value, right);
        if (left != right)
            via_put_word(&from[WORD_RIGHT], value, left);
        hear(&from[WORD_LEFT], value);
        if (left != right)
            hear(&from[WORD_RIGHT], value);
    }
}

/* In round r everybody tells the one 2^r further. */
static void dissemination(uint32_t nodes, uint32_t mine)
{
    _Atomic uint64_t *words = via_internal()->nodes.words;

    for (unsigned round = 0; (UINT32_C(1) << round) < nodes; round++) {
        uint32_t to = (mine + (UINT32_C(1) << round)) % nodes;
        via_put_word(&words[round], epoch, leader_of(to));
        hear(&words[round], epoch);
    }
}

static void among_hosts(void)
{
    uint32_t nodes = via_world.job->nodes_count, mine = via_world.me->node;

    if (nodes <= NEIGHBOURS_MAX)
        both_ways_round(nodes, mine);
    else
        dissemination(nodes, mine);
}

void via_barrier_world(void)
{
    struct via_node *node = via_world.node;
    uint32_t me = via_world.me->local, locals = node->locals_count;
    bool flat = via_world.job->nodes_count == 1 && locals <= VIA_FLAT_PES_MAX;
    struct via_wait wait = VIA_WAIT_INIT;

    epoch++;
    via_tell_here(&node->lines[me].arrived, epoch);
    if (!flat && me != 0) {
        via_wait_here(&wait, &node->released, epoch);
    } else {
        for (uint32_t i = 0; i < locals; i++)
            via_wait_here(&wait, &node->lines[i].arrived, epoch);
    }
    via_wait_done(&wait);
    if (flat || me != 0)
        return;
    among_hosts();
    via_tell_here(&node->released, epoch);
}
