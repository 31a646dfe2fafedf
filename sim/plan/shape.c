/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/plan/shape.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/memory.h"

/* --- from text ------------------------------------------------------------------------------- */

/* "8x8" after "torus:"; false when it is not such. */
static bool parse_sizes(const char *text, struct plan_shape *shape)
{
    for (;;) {
        char *end;
        if (*text < '0' || *text > '9' || shape->dimensions_count == PLAN_DIMENSIONS_MAX) {
            return false;
        }
        unsigned long size = strtoul(text, &end, 10);
        if (size < 2 || size > PLAN_HOSTS_MAX) {
            return false;
        }
        shape->sizes[shape->dimensions_count++] = (unsigned)size;
        if (*end == '\0') {
            return shape->dimensions_count >= 2;
        }
        if (*end != 'x') {
            return false;
        }
        text = end + 1;
    }
}

/* The greatest divisor of n that is not above its root of that degree. */
static unsigned near_root(unsigned n, unsigned degree)
{
    unsigned best = 1;
    for (unsigned i = 2; i <= n; i++) {
        unsigned power = 1;
        for (unsigned k = 0; k < degree; k++) {
            power *= i;
        }
        if (power > n) {
            break;
        }
        best = n % i == 0 ? i : best;
    }
    return best;
}

static int factor(struct plan_shape *shape, unsigned dimensions, struct via_error *err)
{
    unsigned left = shape->hosts_count;
    shape->dimensions_count = dimensions;
    for (unsigned d = dimensions; d-- > 0;) {
        shape->sizes[d] = d == 0 ? left : near_root(left, d + 1);
        left /= shape->sizes[d];
        if (shape->sizes[d] < 2) {
            return via_error_set(err, -EINVAL,
                                 "%s: %u hosts are no %u-dimensional torus: no product of numbers "
                                 "above 1 that near each other; say torus:AxB or torus:AxBxC",
                                 shape->name, shape->hosts_count, dimensions);
        }
    }
    return 0;
}

static int parse_torus(const char *text, struct plan_shape *shape, struct via_error *err)
{
    unsigned hosts = 1;
    if (!parse_sizes(text, shape)) {
        return via_error_set(err, -EINVAL, "%s: expected torus:AxB or torus:AxBxC, each 2 to %u",
                             shape->name, PLAN_HOSTS_MAX);
    }
    for (unsigned d = 0; d < shape->dimensions_count; d++) {
        hosts *= shape->sizes[d];
    }
    if (shape->hosts_count != 0 && shape->hosts_count != hosts) {
        return via_error_set(err, -EINVAL, "%s: has %u hosts, not %u", shape->name, hosts,
                             shape->hosts_count);
    }
    shape->hosts_count = hosts;
    return 0;
}

int plan_shape_parse(const char *text, unsigned hosts_count, struct plan_shape *ret,
                     struct via_error *err)
{
    *ret = (struct plan_shape){.hosts_count = hosts_count};
    snprintf(ret->name, sizeof(ret->name), "%s", text);
    bool sized = strncmp(text, "torus:", 6) == 0;
    if (hosts_count == 0 && !sized) {
        return via_error_set(err, -EINVAL, "%s: how many hosts?", text);
    }
    int rc = sized ? parse_torus(text + 6, ret, err) : 0;
    if (rc == 0 && (ret->hosts_count < 2 || ret->hosts_count > PLAN_HOSTS_MAX)) {
        return via_error_set(err, -EINVAL, "%s: %u hosts, but 2 to %u are allowed", text,
                             ret->hosts_count, PLAN_HOSTS_MAX);
    }
    if (rc != 0 || sized) {
        return rc;
    }
    if (strcmp(text, "ring") == 0 || strcmp(text, "chain") == 0) {
        ret->dimensions_count = 1;
        ret->sizes[0] = hosts_count;
        return text[0] == 'c' && hosts_count > 2 ? plan_shape_cut(ret, 0, hosts_count - 1, err) : 0;
    }
    if (strcmp(text, "torus2") == 0 || strcmp(text, "torus3") == 0) {
        return factor(ret, (unsigned)(text[5] - '0'), err);
    }
    ret->kind = PLAN_TREE;
    ret->fat = strcmp(text, "fat-tree") == 0;
    return ret->fat || strcmp(text, "star") == 0
               ? 0
               : via_error_set(err, -EINVAL,
                               "%s: no such topology: expected ring, chain, torus2, torus3, "
                               "torus:AxB, torus:AxBxC, star or fat-tree",
                               text);
}

/* --- trees ----------------------------------------------------------------------------------- */

static unsigned groups(const struct plan_shape *shape, unsigned level)
{
    unsigned members = 1;
    for (unsigned i = 1; i <= level; i++) {
        members *= shape->children[i];
    }
    return (shape->hosts_count + members - 1) / members;
}

int plan_shape_grow(struct plan_shape *shape, unsigned chip_ports, unsigned *ret_room)
{
    assert(shape->kind == PLAN_TREE);
    /* Of a chip with other chips above it: ports that lead down, and uplinks. */
    unsigned down = shape->fat ? chip_ports / 2 : chip_ports - 1;
    unsigned up = shape->fat ? chip_ports / 2 : 1;
    unsigned below = 1; /* hosts below a child of the top */
    *ret_room = 0;
    if (chip_ports < 2 || down == 0) {
        return -ERANGE;
    }
    for (unsigned levels = 1; levels <= PLAN_LEVELS_MAX; levels++) {
        *ret_room = below * chip_ports;
        if (shape->hosts_count <= *ret_room) {
            shape->levels_count = levels;
            for (unsigned i = 1; i <= levels; i++) {
                shape->children[i] = i < levels ? down : (shape->hosts_count + below - 1) / below;
                shape->parents[i] = i == 1 ? 1 : up;
            }
            return 0;
        }
        below *= down;
    }
    return -ERANGE;
}

unsigned plan_shape_copies(const struct plan_shape *shape, unsigned level)
{
    unsigned copies = 1;
    for (unsigned i = 1; i <= level; i++) {
        copies *= shape->parents[i];
    }
    return copies;
}

unsigned plan_shape_switches(const struct plan_shape *shape, unsigned level)
{
    return groups(shape, level) * plan_shape_copies(shape, level);
}

unsigned plan_shape_uplinks(const struct plan_shape *shape, unsigned level)
{
    return level == 0 ? shape->hosts_count
           : level == shape->levels_count
               ? 0
               : plan_shape_switches(shape, level) * shape->parents[level + 1];
}

static unsigned stride_of(const struct plan_shape *shape, unsigned dimension)
{
    unsigned stride = 1;
    for (unsigned d = 0; d < dimension; d++) {
        stride *= shape->sizes[d];
    }
    return stride;
}

/* --- counts ---------------------------------------------------------------------------------- */

unsigned plan_shape_cables(const struct plan_shape *shape)
{
    unsigned cables = 0;
    for (unsigned i = 0; i < shape->levels_count; i++) {
        cables += plan_shape_uplinks(shape, i);
    }
    for (unsigned d = 0; d < shape->dimensions_count; d++) {
        cables += shape->sizes[d] == 2 ? shape->hosts_count / 2 : shape->hosts_count;
    }
    return cables - shape->cuts_count;
}

unsigned plan_shape_degree(const struct plan_shape *shape)
{
    return shape->kind == PLAN_TREE ? 1 : plan_shape_port(shape, shape->dimensions_count, false);
}

/* Over the ways to halve a dimension between hosts `at` - 1 and `at`, and half way round: the
 * maximum number of cuts on one of them. */
static unsigned most_cuts(const struct plan_shape *shape, unsigned d)
{
    unsigned size = shape->sizes[d];
    unsigned most = 0;
    for (unsigned at = 0; at < size; at++) {
        unsigned count = 0;
        for (unsigned i = 0; i < shape->cuts_count; i++) {
            unsigned a = shape->cuts[i].a, b = shape->cuts[i].b;
            if (plan_shape_dimension(shape, a, b) != d) {
                continue;
            }
            unsigned lower = plan_shape_step(shape, a, d, false) == b ? a : b;
            unsigned place = (lower / stride_of(shape, d) + 1) % size;
            count += place == at || place == (at + size / 2) % size;
        }
        most = count > most ? count : most;
    }
    return most;
}

unsigned plan_shape_bisection(const struct plan_shape *shape)
{
    unsigned least = shape->hosts_count; /* no cut has more than all cables of half of the hosts */
    if (shape->kind == PLAN_TREE) {
        for (unsigned i = 0; i < shape->levels_count; i++) {
            unsigned cut = plan_shape_uplinks(shape, i) / 2;
            least = cut < least ? cut : least;
        }
        return least > 0 ? least : 1;
    }
    /* A cut across a dimension cuts each of its rings twice, or a pair once. */
    least = UINT32_MAX;
    for (unsigned d = 0; d < shape->dimensions_count; d++) {
        unsigned rings = shape->hosts_count / shape->sizes[d];
        unsigned cut = (shape->sizes[d] == 2 ? rings : 2 * rings) - most_cuts(shape, d);
        least = cut < least ? cut : least;
    }
    return least;
}

/* `inside` of the hosts send `inside` x the others / (hosts - 1) messages for each one that a host
 * sends; the messages share `cables` cables. */
static double share_of(const struct plan_shape *shape, unsigned inside, double cables)
{
    double hosts = shape->hosts_count;
    return cables * (hosts - 1) / ((double)inside * (hosts - inside));
}

double plan_shape_share(const struct plan_shape *shape)
{
    double least = plan_shape_degree(shape);
    if (shape->kind == PLAN_TREE) {
        double members = 1, ways = 1;
        for (unsigned i = 1; i < shape->levels_count; i++) {
            members *= shape->children[i];
            ways *= shape->parents[i];
            least = fmin(least, share_of(shape, (unsigned)members, ways * shape->parents[i + 1]));
        }
        return least;
    }
    for (unsigned d = 0; d < shape->dimensions_count; d++) {
        unsigned rings = shape->hosts_count / shape->sizes[d];
        unsigned inside = shape->sizes[d] / 2 * rings;
        bool is_chain = shape->dimensions_count == 1 && shape->cuts_count > 0;
        unsigned cables = shape->sizes[d] == 2 || is_chain ? rings : 2 * rings;
        least = fmin(least, share_of(shape, inside, cables));
    }
    return least;
}

/* --- tori ------------------------------------------------------------------------------------ */

unsigned plan_shape_port(const struct plan_shape *shape, unsigned dimension, bool down)
{
    unsigned port = 0;
    for (unsigned d = 0; d < dimension; d++) {
        port += shape->sizes[d] == 2 ? 1 : 2;
    }
    return port + (down && shape->sizes[dimension] > 2 ? 1 : 0);
}

/* Difference of the ids of neighbours. */
unsigned plan_shape_step(const struct plan_shape *shape, unsigned host, unsigned dimension,
                         bool down)
{
    unsigned stride = stride_of(shape, dimension);
    unsigned size = shape->sizes[dimension];
    unsigned at = host / stride % size;
    unsigned next = down ? (at + size - 1) % size : (at + 1) % size;
    return host - at * stride + next * stride;
}

unsigned plan_shape_dimension(const struct plan_shape *shape, unsigned a, unsigned b)
{
    unsigned d = 0;
    assert(a != b && shape->kind == PLAN_TORUS);
    while (a % shape->sizes[d] == b % shape->sizes[d]) {
        a /= shape->sizes[d];
        b /= shape->sizes[d];
        d++;
    }
    return d;
}

/* The host that a port leads to. */
static unsigned behind(const struct plan_shape *shape, unsigned at, unsigned port)
{
    unsigned d = 0;
    while (port >= (shape->sizes[d] == 2 ? 1u : 2u)) {
        port -= shape->sizes[d] == 2 ? 1 : 2;
        d++;
    }
    return plan_shape_step(shape, at, d, port == 1);
}

unsigned plan_shape_way(const struct plan_shape *shape, unsigned at, unsigned to,
                        unsigned *ret_next)
{
    if (shape->ways != NULL) {
        unsigned port = shape->ways[(size_t)at * shape->hosts_count + to];
        *ret_next = behind(shape, at, port);
        return port;
    }
    unsigned d = plan_shape_dimension(shape, at, to);
    unsigned size = shape->sizes[d];
    unsigned stride = stride_of(shape, d);
    unsigned up = (to / stride % size + size - at / stride % size) % size;
    bool down = up > size - up;
    *ret_next = plan_shape_step(shape, at, d, down);
    return plan_shape_port(shape, d, down);
}

unsigned plan_shape_diameter(const struct plan_shape *shape)
{
    unsigned links = shape->kind == PLAN_TREE ? 1 : 0;
    if (shape->ways != NULL) {
        return shape->longest;
    }
    for (unsigned d = 0; d < shape->dimensions_count; d++) {
        links += shape->sizes[d] / 2;
    }
    return links;
}

/* --- links that are cut ----------------------------------------------------------------------- */

void plan_shape_fini(struct plan_shape *shape)
{
    free(shape->ways);
    shape->ways = NULL;
}

bool plan_shape_is_cut(const struct plan_shape *shape, unsigned a, unsigned b)
{
    for (unsigned i = 0; i < shape->cuts_count; i++) {
        if ((shape->cuts[i].a == a && shape->cuts[i].b == b) ||
            (shape->cuts[i].a == b && shape->cuts[i].b == a)) {
            return true;
        }
    }
    return false;
}

static bool are_neighbours(const struct plan_shape *shape, unsigned a, unsigned b)
{
    for (unsigned port = 0; port < plan_shape_degree(shape); port++) {
        if (behind(shape, a, port) == b) {
            return true;
        }
    }
    return false;
}

/* Breadth first from a destination: hosts in the order of their distance, and of equal routes the
 * lowest port, as core routes. Returns the number of hosts that reach it. */
static unsigned ways_to(struct plan_shape *shape, unsigned to, uint16_t *distances, uint16_t *queue)
{
    unsigned hosts = shape->hosts_count;
    unsigned degree = plan_shape_degree(shape);
    unsigned count = 0;
    for (unsigned i = 0; i < hosts; i++) {
        distances[i] = UINT16_MAX;
    }
    distances[to] = 0;
    queue[count++] = (uint16_t)to;
    for (unsigned first = 0; first < count; first++) {
        unsigned at = queue[first];
        for (unsigned port = 0; port < degree; port++) {
            unsigned next = behind(shape, at, port);
            if (!plan_shape_is_cut(shape, at, next) && distances[next] == UINT16_MAX) {
                distances[next] = (uint16_t)(distances[at] + 1);
                queue[count++] = (uint16_t)next;
            }
        }
    }
    for (unsigned i = 0; i < count; i++) {
        unsigned at = queue[i];
        shape->longest = distances[at] > shape->longest ? distances[at] : shape->longest;
        for (unsigned port = 0; at != to && port < degree; port++) {
            unsigned next = behind(shape, at, port);
            if (!plan_shape_is_cut(shape, at, next) && distances[next] + 1 == distances[at]) {
                shape->ways[(size_t)at * hosts + to] = (uint8_t)port;
                break;
            }
        }
    }
    return count;
}

int plan_shape_cut(struct plan_shape *shape, unsigned a, unsigned b, struct via_error *err)
{
    unsigned hosts = shape->hosts_count;
    uint16_t distances[PLAN_HOSTS_MAX], queue[PLAN_HOSTS_MAX];
    if (shape->kind == PLAN_TREE) {
        return via_error_set(err, -EINVAL,
                             "%s: a host has one cable; nothing is left when it is "
                             "cut",
                             shape->name);
    }
    if (a >= hosts || b >= hosts || a == b || !are_neighbours(shape, a, b)) {
        return via_error_set(err, -EINVAL, "%s of %u hosts: no link joins %u and %u", shape->name,
                             hosts, a, b);
    }
    if (plan_shape_is_cut(shape, a, b)) {
        return via_error_set(err, -EINVAL, "%s: %u-%u is cut twice, or not there", shape->name, a,
                             b);
    }
    if (shape->cuts_count == PLAN_CUTS_MAX) {
        return via_error_set(err, -ERANGE, "%s: more than %u links are cut", shape->name,
                             PLAN_CUTS_MAX);
    }
    shape->cuts[shape->cuts_count++] = (struct plan_pair){(uint16_t)a, (uint16_t)b};
    if (shape->ways == NULL) {
        shape->ways = sim_alloc((size_t)hosts * hosts);
    }
    shape->longest = 0;
    for (unsigned to = 0; to < hosts; to++) {
        if (ways_to(shape, to, distances, queue) != hosts) {
            return via_error_set(err, -EHOSTUNREACH,
                                 "%s: without %u-%u not all hosts reach host %u", shape->name, a, b,
                                 to);
        }
    }
    return 0;
}
