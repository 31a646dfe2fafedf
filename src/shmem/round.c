/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/round.h"

#include "shmem/barrier.h"
#include "shmem/path.h"
#include "shmem/wait.h"

#define WORD_LEFT 0
#define WORD_RIGHT 1
#define WORD_CAST 2
/* So that hosts pass on the first pieces while the next ones come. */
#define CAST_PIECE_BYTES ((size_t)64 << 10)

int via_round_leader(uint32_t node)
{
    int pe = 0;

    while (via_world.peers[pe].node != node)
        pe++;
    return pe;
}

void via_round_hear(const _Atomic uint64_t *word, uint64_t value)
{
    struct via_wait wait = VIA_WAIT_INIT;

    /* Pairs with the release of via_put_word, or of the daemon that stores for it. */
    while (atomic_load_explicit(word, memory_order_acquire) < value)
        via_wait_step(&wait);
    via_wait_done(&wait);
}

/* The PEs of a host follow each other: the first, and the one behind the last. */
static void pes_of(uint32_t node, int *ret_first, int *ret_end)
{
    int end = *ret_first = via_round_leader(node);

    while (end < via_hot.n_pes && via_world.peers[end].node == node)
        end++;
    *ret_end = end;
}

static void pass(const struct via_round_load *load, uint32_t node, int to)
{
    int first, end;

    if (!load)
        return;
    pes_of(node, &first, &end);
    char *from = load->base + (size_t)first * load->stride;
    via_put("barrier", from, from, (size_t)(end - first) * load->stride, to);
}

/*
 * After round r every host has heard of those up to r hops away, and has what they bring. The words
 * count on, as each has one writer.
 */
void via_round_go(uint64_t epoch, const struct via_round_load *load)
{
    _Atomic uint64_t *from = via_internal()->nodes.words;
    uint32_t nodes = via_world.job->nodes_count, mine = via_world.me->node;
    int left = via_round_leader((mine + nodes - 1) % nodes);
    int right = via_round_leader((mine + 1) % nodes);

    for (uint32_t round = 1; round <= nodes / 2; round++) {
        uint64_t value = epoch * VIA_ROUND_NODES_MAX + round;
        pass(load, (mine + nodes - (round - 1)) % nodes, right);
        via_put_word(&from[WORD_LEFT], value, right);
        if (left != right) {
            pass(load, (mine + round - 1) % nodes, left);
            via_put_word(&from[WORD_RIGHT], value, left);
        }
        via_round_hear(&from[WORD_LEFT], value);
        if (left != right)
            via_round_hear(&from[WORD_RIGHT], value);
    }
}

/* --- from one to all -------------------------------------------------------------------------- */

/* The next hosts of the chain, as seen from a host `distance` to the right of the root's. */
static unsigned next_hosts(uint32_t distance, uint32_t nodes, uint32_t mine, int to[2])
{
    uint32_t rightmost = nodes / 2;
    unsigned count = 0;

    if (distance < rightmost)
        to[count++] = via_round_leader((mine + 1) % nodes);
    if (distance == 0 ? rightmost + 1 < nodes : distance > rightmost + 1)
        to[count++] = via_round_leader((mine + nodes - 1) % nodes);
    return count;
}

void via_round_cast(const char *call, void *dest, const void *source, size_t bytes, int root)
{
    uint32_t nodes = via_world.job->nodes_count, mine = via_world.me->node;
    uint32_t distance = (mine + nodes - via_world.peers[root].node) % nodes;
    uint64_t pieces = (bytes + CAST_PIECE_BYTES - 1) / CAST_PIECE_BYTES;
    _Atomic uint64_t *word = &via_internal()->nodes.words[WORD_CAST];
    int me = via_hot.my_pe, first, end, to[2];
    bool passes = me == (distance == 0 ? root : via_round_leader(mine));
    unsigned hosts = passes ? next_hosts(distance, nodes, mine, to) : 0;

    pes_of(mine, &first, &end);
    for (uint64_t piece = 0; piece < pieces && passes; piece++) {
        size_t at = piece * CAST_PIECE_BYTES;
        size_t length = via_min(CAST_PIECE_BYTES, bytes - at);
        const char *from = (const char *)(me == root ? source : dest) + at;
        uint64_t value = via_barriers.cast_pieces + piece + 1;
        if (me != root)
            via_round_hear(word, value);
        for (unsigned i = 0; i < hosts; i++) {
            via_put(call, (char *)dest + at, from, length, to[i]);
            via_put_word(word, value, to[i]);
        }
        for (int pe = first; pe < end; pe++)
            if (pe != me)
                via_put(call, (char *)dest + at, from, length, pe);
    }
    via_barriers.cast_pieces += pieces;
}
