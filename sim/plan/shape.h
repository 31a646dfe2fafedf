/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The shapes that a fabric can be planned in, and the properties of a shape alone: neighbours,
 * routes, number of links, and the bisection.
 *
 * Direct: tori of one (a ring) to three dimensions; hosts relay. Switched: trees of switch chips
 * below which the hosts are, every pair of hosts being neighbours: extended generalised fat trees
 * (Ohring et al., IPPS 1995), in which a node of level i has children[i] below and parents[i + 1]
 * above. A single switch, a hub of switches and a fat tree are all that.
 */
#ifndef SIM_PLAN_SHAPE_H
#define SIM_PLAN_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

#define PLAN_HOSTS_MAX 1024u
#define PLAN_DIMENSIONS_MAX 3u
#define PLAN_LEVELS_MAX 4u
#define PLAN_PORTS_MAX (2 * PLAN_DIMENSIONS_MAX)
#define PLAN_CUTS_MAX 16u

enum plan_kind { PLAN_TORUS, PLAN_TREE };

struct plan_shape {
    char name[32]; /* "ring", "torus:8x8", "star", "fat-tree" */
    enum plan_kind kind;
    unsigned hosts_count;
    unsigned dimensions_count; /* torus */
    unsigned sizes[PLAN_DIMENSIONS_MAX];
    unsigned levels_count;                                                /* tree, of switches */
    unsigned children[PLAN_LEVELS_MAX + 1], parents[PLAN_LEVELS_MAX + 1]; /* from 1 */
    unsigned cuts_count; /* links that are absent; tori only */
    struct plan_pair {
        uint16_t a, b;
    } cuts[PLAN_CUTS_MAX];
    uint8_t *ways;    /* owned; with cuts: [at x hosts + to], the port of the route */
    unsigned longest; /* with cuts: links of the longest route */
};

/* Ends a shape that had links cut. */
void plan_shape_fini(struct plan_shape *shape);

/* Finds the routes that remain, if links are cut. Each host must have one to every other. */
void plan_shape_route(struct plan_shape *shape);
bool plan_shape_is_cut(const struct plan_shape *shape, unsigned a, unsigned b);

/* Copies of a group's switch at a level; switches of the level, and uplinks of each. */
unsigned plan_shape_copies(const struct plan_shape *shape, unsigned level);
unsigned plan_shape_switches(const struct plan_shape *shape, unsigned level);
unsigned plan_shape_uplinks(const struct plan_shape *shape, unsigned level);
/* Cables at a host. */
unsigned plan_shape_degree(const struct plan_shape *shape);

/* --- tori ------------------------------------------------------------------------------------ */

/* A host's ports are numbered dimension by dimension, up before down; a dimension of two hosts has
 * one cable and so one port. */
unsigned plan_shape_port(const struct plan_shape *shape, unsigned dimension, bool down);
/* The next host in that direction. */
unsigned plan_shape_step(const struct plan_shape *shape, unsigned host, unsigned dimension,
                         bool down);
/* The port by which a frame for `to` leaves `at`: on a shortest route, the lowest port of several,
 * as core routes; and the host that it leads to. at != to. */
unsigned plan_shape_way(const struct plan_shape *shape, unsigned at, unsigned to,
                        unsigned *ret_next);
/* The first dimension in which two hosts differ: for neighbours, the one of their link. */
unsigned plan_shape_dimension(const struct plan_shape *shape, unsigned a, unsigned b);
/* Links of the longest route. 1 for trees. */
unsigned plan_shape_diameter(const struct plan_shape *shape);

#endif
