/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/plan/shape.h"

#include <assert.h>
#include <stdlib.h>

#include "sim/memory.h"

/* --- trees ----------------------------------------------------------------------------------- */

static unsigned groups(const struct plan_shape *shape, unsigned level)
{
    unsigned members = 1;
    for (unsigned i = 1; i <= level; i++) {
        members *= shape->children[i];
    }
    return (shape->hosts_count + members - 1) / members;
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

unsigned plan_shape_degree(const struct plan_shape *shape)
{
    return shape->kind == PLAN_TREE ? 1 : plan_shape_port(shape, shape->dimensions_count, false);
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

/* Breadth first from a destination: hosts in the order of their distance, and of equal routes the
 * lowest port, as core routes. */
static void ways_to(struct plan_shape *shape, unsigned to, uint16_t *distances, uint16_t *queue)
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
    assert(count == hosts); /* the script has checked it */
}

void plan_shape_route(struct plan_shape *shape)
{
    unsigned hosts = shape->hosts_count;
    uint16_t distances[PLAN_HOSTS_MAX], queue[PLAN_HOSTS_MAX];
    if (shape->cuts_count == 0) {
        return;
    }
    shape->ways = sim_alloc((size_t)hosts * hosts);
    for (unsigned to = 0; to < hosts; to++) {
        ways_to(shape, to, distances, queue);
    }
}
