/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_COSTS_H
#define VIA_SHMEM_COSTS_H

#include <stdint.h>

#include "base/error.h"

/*
 * Parameters of the cost model of collectives (algorithm.c). _ns: time until a PE sees a word of
 * another PE; _ps: picoseconds per byte. They decide which of two algorithms is better, so only
 * their ratios matter; all members of a team must use the same parameters.
 */
#define VIA_COSTS(X)                                       \
    X(local_ns, "a word of a PE of the same host")         \
    X(near_ns, "a word of a PE of a neighbour host")       \
    X(far_ns, "a word by frames, over two hops")           \
    X(hop_ns, "... and for each further host that relays") \
    X(local_ps, "a byte of a put within a host")           \
    X(near_ps, "a byte of a put to a neighbour host")      \
    X(far_ps, "a byte of a put by frames, over two hops")  \
    X(combine_ps, "a byte of a sum of 8-byte numbers")

struct via_costs {
#define VIA_COSTS_FIELD(NAME, TEXT) uint32_t NAME;
    VIA_COSTS(VIA_COSTS_FIELD)
#undef VIA_COSTS_FIELD
};

/* measured_costs.h */
extern const struct via_costs via_costs_measured;

/* Parses "far_ns=9000,hop_ns=1000": replaces the named ones of the measured parameters. -EINVAL and
 * a text. */
int via_costs_parse(const char *text, struct via_costs *ret_costs, struct via_error *err);

#endif
