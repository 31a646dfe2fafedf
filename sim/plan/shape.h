/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The shapes that a fabric can be planned in, and what follows from a shape alone: who is whose
 * neighbour, which way a frame takes, how many links there are, and the bisection.
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

#include "base/error.h"

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
    bool fat;              /* tree: as many ways up as down, instead of a hub */
    unsigned levels_count; /* tree, of switches */
    unsigned children[PLAN_LEVELS_MAX + 1], parents[PLAN_LEVELS_MAX + 1]; /* from 1 */
    unsigned cuts_count; /* links that are not there; tori only */
    struct plan_pair {
        uint16_t a, b;
    } cuts[PLAN_CUTS_MAX];
    uint8_t *ways;    /* owned; with cuts: [at x hosts + to], the port */
    unsigned longest; /* with cuts: links of the longest way */
};

/*
 * ring, chain, torus2, torus3, torus:AxB, torus:AxBxC, star, fat-tree. A chain is a ring that is
 * cut. Ended by plan_shape_fini, also after failure. hosts_count 0: not said, which only
 * torus:... allows. A tree's levels are set later. -EINVAL with what is wrong.
 */
int plan_shape_parse(const char *text, unsigned hosts_count, struct plan_shape *ret,
                     struct via_error *err) VIA_MUST_CHECK;

void plan_shape_fini(struct plan_shape *shape);

/* The link between two hosts is cut, and frames go by the ways that are left. -EINVAL: there is
 * none, or it is cut; -ERANGE: too many are; -EHOSTUNREACH: then hosts cannot reach each other. */
int plan_shape_cut(struct plan_shape *shape, unsigned a, unsigned b,
                   struct via_error *err) VIA_MUST_CHECK;
bool plan_shape_is_cut(const struct plan_shape *shape, unsigned a, unsigned b);

/* Levels of a tree of chips that have room for so many links each; -ERANGE when there is no room
 * for all hosts, *ret_room being for how many there is. */
int plan_shape_grow(struct plan_shape *shape, unsigned chip_ports,
                    unsigned *ret_room) VIA_MUST_CHECK;

/* Switches of a level, and links from it to the next. */
unsigned plan_shape_switches(const struct plan_shape *shape, unsigned level);
unsigned plan_shape_uplinks(const struct plan_shape *shape, unsigned level);
/* All cables; those of hosts included. */
unsigned plan_shape_cables(const struct plan_shape *shape);
/* Cables at a host. */
unsigned plan_shape_degree(const struct plan_shape *shape);

/* Cables that join two halves of the hosts, cut where they are fewest. */
unsigned plan_shape_bisection(const struct plan_shape *shape);

/*
 * The closed-form bound: when every host sends to all others alike, so many cables' worth at most
 * reach each of them, because what crosses a cut of the fabric has to fit the cables of the cut.
 * Of tori, cuts across a dimension, as if none of the links were cut (of a chain, as it is); of
 * trees, all that leaves the hosts below a switch.
 */
double plan_shape_share(const struct plan_shape *shape);

/* --- tori ------------------------------------------------------------------------------------ */

/* A host's ports are numbered dimension by dimension, up before down; a dimension of two hosts has
 * one cable and so one port. */
unsigned plan_shape_port(const struct plan_shape *shape, unsigned dimension, bool down);
/* The host one further in that direction. */
unsigned plan_shape_step(const struct plan_shape *shape, unsigned host, unsigned dimension,
                         bool down);
/* The port by which a frame for `to` leaves `at`: on a shortest way, of several the lowest port, as
 * core routes; and where that leads. at != to. */
unsigned plan_shape_way(const struct plan_shape *shape, unsigned at, unsigned to,
                        unsigned *ret_next);
/* The first dimension in which two hosts differ: the one that neighbours are in. */
unsigned plan_shape_dimension(const struct plan_shape *shape, unsigned a, unsigned b);
/* Links of the longest way. 1 for trees. */
unsigned plan_shape_diameter(const struct plan_shape *shape);

#endif
