/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A fabric of up to VIA_HOSTS_MAX hosts: nodes of the real core, one thread each, on links whose
 * writes are visible at once; doorbells and turns of threads take time. No faults but cuts, and no
 * checkers but those of routes: sim/world.h has the others, with fewer hosts.
 */
#ifndef SIM_SCALE_FABRIC_H
#define SIM_SCALE_FABRIC_H

#include <stdbool.h>
#include <stdint.h>

#include "core/node.h"

/* Durations: a pair of adapters and one switch chip (sim/scenarios/parts.ini). */
#define SCALE_BELL_NS 3000u     /* a doorbell, until the thread runs */
#define SCALE_TURN_NS 1000u     /* a turn of a thread */
#define SCALE_ANNOUNCED_NS 300u /* ... and for each announcement that it handles */

#define SCALE_UNREACHABLE UINT16_MAX

struct scale_fabric;

/* A fabric without links. */
struct scale_fabric *scale_fabric_new(unsigned hosts_count);
void scale_fabric_free(struct scale_fabric *fabric);

/* A link between two hosts, before scale_fabric_start(); both assign it to this dimension of a
 * torus, 0 in other fabrics. */
void scale_fabric_link(struct scale_fabric *fabric, unsigned a, unsigned b, unsigned dimension);
unsigned scale_fabric_links(const struct scale_fabric *fabric);

/* All hosts start at the same time. */
void scale_fabric_start(struct scale_fabric *fabric);
void scale_fabric_cut(struct scale_fabric *fabric, unsigned link);

/* Runs until every host knows the shortest path to every other, with the current links, or time is
 * up. True: they do. */
bool scale_fabric_settle(struct scale_fabric *fabric, uint64_t limit_ns);

/* Sends a message from one host to another, until its acknowledgement; *ret_ns is the time to
 * delivery. */
bool scale_fabric_send(struct scale_fabric *fabric, unsigned from, unsigned to, uint64_t limit_ns,
                       uint64_t *ret_ns);

/* Does the port of every route lead to a host that is closer? Checks all pairs. */
bool scale_fabric_is_shortest(const struct scale_fabric *fabric);

uint64_t scale_fabric_now_ns(const struct scale_fabric *fabric);
/* Hops over the current links; SCALE_UNREACHABLE. */
unsigned scale_fabric_hops(const struct scale_fabric *fabric, unsigned from, unsigned to);

/* Counts since the start, or the last scale_fabric_count(). */
struct scale_counts {
    uint64_t cpu_ns,
        cpu_ns_max; /* CPU time of this machine in the core: all hosts, and the one with most */
    uint64_t announcements, announcement_bytes;
    uint64_t routes_changed, routes_changed_max; /* all hosts, and the one with most */
    uint64_t routes_examined;
    uint64_t turns;
};
void scale_fabric_count(struct scale_fabric *fabric, struct scale_counts *ret_counts);

/* Averages, in bytes. */
struct scale_sizes {
    uint64_t node, touched; /* of a node, and of its touched pages */
    uint64_t link;          /* of the memory at both ends of a link */
    uint64_t preset;        /* of the first host's node as a daemon would configure it */
};
void scale_fabric_sizes(const struct scale_fabric *fabric, struct scale_sizes *ret_sizes);

#endif
