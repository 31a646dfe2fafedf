/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_ALGORITHM_H
#define VIA_SHMEM_ALGORITHM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "shmem/costs.h"

/*
 * The algorithms of collectives, as a table: name, cases the algorithm applies to, cost. All
 * members of a team choose from the same numbers, so all choose the same algorithm without
 * exchanging anything. Choosing needs neither symmetric memory nor a PE, so oshinfo can show the
 * same table. group.c runs the chosen algorithm.
 */
enum via_collective {
    VIA_COLLECTIVE_HOSTS, /* leaders of hosts meet, and may forward blocks of bytes */
    VIA_COLLECTIVE_BROADCAST,
    VIA_COLLECTIVE_COLLECT,
    VIA_COLLECTIVE_FCOLLECT,
    VIA_COLLECTIVE_ALLTOALL,
    VIA_COLLECTIVE_REDUCE,
    VIA_COLLECTIVE_SCAN,
    VIA_COLLECTIVES,
};

/* The table's indices. */
enum via_algorithm_number {
    VIA_HOSTS_RING,
    VIA_HOSTS_DISSEMINATION,
    VIA_HOSTS_TORUS,
    VIA_BROADCAST_EXCHANGE,
    VIA_BROADCAST_DIRECT,
    VIA_BROADCAST_TREE,
    VIA_BROADCAST_CHAIN,
    VIA_BROADCAST_TORUS,
    VIA_COLLECT_CHAIN,
    VIA_COLLECT_DIRECT,
    VIA_COLLECT_LEADERS,
    VIA_FCOLLECT_EXCHANGE,
    VIA_FCOLLECT_DIRECT,
    VIA_FCOLLECT_LEADERS,
    VIA_ALLTOALL_DIRECT,
    VIA_ALLTOALL_EXCHANGE,
    VIA_REDUCE_EXCHANGE,
    VIA_REDUCE_SHARES,
    VIA_REDUCE_LEADERS,
    VIA_REDUCE_RING,
    VIA_REDUCE_TORUS,
    VIA_REDUCE_HALVING,
    VIA_SCAN_EXCHANGE,
    VIA_SCAN_DIRECT,
    VIA_SCAN_LEADERS,
    VIA_ALGORITHMS,
};

/* Everything about a call on a team that the choice depends on. */
struct via_algorithm_case {
    const struct via_costs *costs;
    unsigned pes;
    unsigned hosts;
    unsigned locals_max; /* most members of the team on one host */
    bool is_active_set;  /* only a pSync: no exchanges and leaders */
    bool is_ring;        /* there is an order in which each host is a neighbour of the next one */
    bool is_mesh;        /* each host is a neighbour of each other host: as with a switch */
    /* Torus of two dimensions: hosts 0 to row - 1 are a ring of neighbours, and so are the next row
     * hosts; hosts 0, row, 2 row ... are a ring, too. 0: no torus. */
    unsigned row;
    size_t exchange_max; /* bytes of each member that one exchange takes; 0 = none */
    size_t partial_max;  /* bytes of each host that one round of leaders takes */
    size_t bytes; /* of each member; 0 if members may have different ones; alltoall: of each pair */
    size_t element_bytes; /* of a reduction; else 1 */
};

struct via_algorithm {
    const char *name;
    enum via_collective collective;
    const char *text;
    bool (*applies)(const struct via_algorithm_case *call);
    uint64_t (*cost_ns)(const struct via_algorithm_case *call);
};

extern const struct via_algorithm via_algorithms[VIA_ALGORITHMS];

const char *via_collective_name(enum via_collective collective);

/*
 * The cheapest algorithm that applies; or the one that `forced` names for this collective, if that
 * one applies. forced: from via_algorithms_parse.
 */
enum via_algorithm_number via_algorithm_choose(enum via_collective collective,
                                               const struct via_algorithm_case *call,
                                               uint64_t forced);

/* Parses "reduce=ring,broadcast=tree" into one word. -EINVAL and a text. */
int via_algorithms_parse(const char *text, uint64_t *ret_forced, struct via_error *err);

#endif
