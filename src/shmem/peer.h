/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_PEER_H
#define VIA_SHMEM_PEER_H

#include "base/error.h"
#include "shmem/world.h"

/*
 * Memory of the other PEs of this host. It is mapped when it is first used: a job of P PEs would
 * otherwise begin with 2 P mappings in each of P processes, of which most programs use few.
 */

/* Where this process has that region of the PE, or NULL where only the host's daemon reaches it.
 * Maps it at the first call; ends the program when the kernel refuses. */
char *via_peer_map(enum via_region region, int pe);

static inline char *via_peer_base(enum via_region region, int pe)
{
    char *base = via_hot_peer(region, pe);

    if (via_likely(base))
        return base;
    /* A PE of another host that has been reached before: it never has memory here. */
    if (atomic_load_explicit(&via_world.peers[pe].remote[region], memory_order_relaxed))
        return NULL;
    return via_peer_map(region, pe);
}

/* Heaps have grown, all to `bytes`: the heaps of other PEs that are mapped here are mapped up to
 * there. */
void via_peers_grow(uint64_t from, uint64_t bytes);

#endif
