/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_TORUS_H
#define VIA_SHMEM_TORUS_H

/*
 * Hosts 0 to rows * columns - 1 as a torus of two dimensions: host number row * columns + column is
 * a neighbour of the one before and the next one in its row and in its column, round both.
 */

/* The lengths that rows of so many hosts can have, ascending; 0 behind the last one. */
unsigned via_torus_columns(unsigned hosts, unsigned index);

/* Numbers of all hosts in an order in which each is a neighbour of the next, and the last of the
 * first; columns and rows at least 2. */
void via_torus_ring(unsigned columns, unsigned rows, int *ret_ring);

/* The next hosts of a message that goes both ways round a ring of `count` hosts: as seen from the
 * one `distance` behind its source, whether the next one and the one before are to have it. */
struct via_torus_ways {
    int next, before;
};

static inline struct via_torus_ways via_torus_ways(unsigned count, unsigned distance)
{
    unsigned last = count / 2; /* that the message reaches forwards */

    return (struct via_torus_ways){
        .next = distance < last,
        .before = distance == 0 ? last + 1 < count : distance > last + 1,
    };
}

#endif
