/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_PEER_H
#define VIA_SHMEM_PEER_H

#include "base/error.h"
#include "shmem/world.h"

/*
 * Memory of the other PEs of this host. It is mapped at first use. Otherwise each of P processes
 * would begin with 2 P mappings, and use few of them.
 */

/* The address of that region of the PE in this process, or NULL if only the host's daemon reaches
 * it. Maps it at the first call; ends the program if the kernel refuses. */
char *via_peer_map(enum via_region region, int pe);

static inline char *via_peer_base(enum via_region region, int pe)
{
    char *base = via_hot_peer(region, pe);

    if (via_likely(base))
        return base;
    /* A PE of another host that was reached before: its memory is never mapped here. */
    if (atomic_load_explicit(&via_world.peers[pe].remote[region], memory_order_relaxed))
        return NULL;
    return via_peer_map(region, pe);
}

/* All heaps have grown to `bytes`: extends the mappings of other PEs' heaps to that size. */
void via_peers_grow(uint64_t from, uint64_t bytes);

#endif
