/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_TORUS_H
#define VIA_SHMEM_TORUS_H

/*
 * Hosts 0 to rows * columns - 1 as a torus of two dimensions: host row * columns + column is a
 * neighbour of the previous and the next host of its row and of its column, with wrap-around.
 */

/* The possible row lengths for `hosts` hosts, ascending; 0 behind the last one. */
unsigned via_torus_columns(unsigned hosts, unsigned index);

/* An order of all hosts in which each is a neighbour of the next, and the last of the first;
 * columns and rows are at least 2. */
void via_torus_ring(unsigned columns, unsigned rows, int *ret_ring);

/* The next hops of a message that goes both ways round a ring of `count` hosts: for the host
 * `distance` behind the source, whether it sends the message to the next host, and to the previous
 * one. */
struct via_torus_ways {
    int next, before;
};

static inline struct via_torus_ways via_torus_ways(unsigned count, unsigned distance)
{
    unsigned last = count / 2; /* hosts that the message reaches forwards */

    return (struct via_torus_ways){
        .next = distance < last,
        .before = distance == 0 ? last + 1 < count : distance > last + 1,
    };
}

#endif
