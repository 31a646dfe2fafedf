/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/topology.h"

/* Maximum of the links of one host of this shape. */
static unsigned ports_needed(enum via_topology_shape shape, unsigned count)
{
    switch (shape) {
    case VIA_TOPOLOGY_STAR:
    case VIA_TOPOLOGY_MESH:
        return count - 1;
    default:
        return via_min(count - 1, 2u);
    }
}

static void add_link(struct via_topology *topology, unsigned a, unsigned b)
{
    topology->links[topology->links_count++] =
        (struct via_topology_link){.a = (uint16_t)a, .b = (uint16_t)b};
}

static void add_links(struct via_topology *topology, enum via_topology_shape shape, unsigned count)
{
    switch (shape) {
    case VIA_TOPOLOGY_RING:
    case VIA_TOPOLOGY_CHAIN:
        for (unsigned a = 1; a < count; a++) {
            add_link(topology, a, a + 1);
        }
        if (shape == VIA_TOPOLOGY_RING && count > 2) {
            add_link(topology, 1, count);
        }
        break;
    case VIA_TOPOLOGY_STAR:
        for (unsigned b = 2; b <= count; b++) {
            add_link(topology, 1, b);
        }
        break;
    case VIA_TOPOLOGY_MESH:
        for (unsigned a = 1; a < count; a++) {
            for (unsigned b = a + 1; b <= count; b++) {
                add_link(topology, a, b);
            }
        }
        break;
    }
}

int via_topology_make(enum via_topology_shape shape, unsigned count, struct via_topology *ret,
                      struct via_error *err)
{
    if (count < 1 || count > VIA_TOPOLOGY_HOST_MAX) {
        return via_error_set(err, -EINVAL, "%u hosts, but ids go from %u to %u", count,
                             VIA_TOPOLOGY_HOST_MIN, VIA_TOPOLOGY_HOST_MAX);
    }
    if (ports_needed(shape, count) > VIA_TOPOLOGY_PORTS_MAX) {
        return via_error_set(err, -EINVAL,
                             "host 1 would have %u links, a host has at most %u ports", count - 1,
                             VIA_TOPOLOGY_PORTS_MAX);
    }
    memset(ret, 0, sizeof(*ret));
    for (unsigned id = 1; id <= count; id++) {
        ret->hosts[ret->hosts_count++] = (uint16_t)id;
    }
    add_links(ret, shape, count);
    return 0;
}

/* --- torus ----------------------------------------------------------------------------------- */

struct torus {
    unsigned sizes[VIA_TOPOLOGY_DIMENSIONS_MAX];
    unsigned count; /* of dimensions */
};

/* Parses digits, 'x', digits ...; a number too large for any host id becomes 255. */
static int take_sizes(const char *text, struct torus *torus, struct via_error *err)
{
    const char *at = text;
    for (;;) {
        unsigned size = 0;
        const char *begin = at;
        for (; *at >= '0' && *at <= '9'; at++) {
            size = via_min(size * 10 + (unsigned)(*at - '0'), VIA_TOPOLOGY_HOST_MAX + 1);
        }
        if (at == begin || (*at != 'x' && *at != '\0') ||
            torus->count == VIA_TOPOLOGY_DIMENSIONS_MAX) {
            return via_error_set(err, -EINVAL,
                                 "expected hosts along two or three dimensions, such as 4x3");
        }
        if (size < 2) {
            return via_error_set(err, -EINVAL, "a dimension has at least 2 hosts");
        }
        torus->sizes[torus->count++] = size;
        if (*at++ == '\0') {
            break;
        }
    }
    return torus->count >= 2
               ? 0
               : via_error_set(err, -EINVAL, "one dimension is a ring: --ring %u", torus->sizes[0]);
}

/* The next host along a dimension; 0: that link exists already. */
static unsigned next_along(const struct torus *torus, unsigned dimension, unsigned stride,
                           unsigned host)
{
    unsigned size = torus->sizes[dimension];
    unsigned at = (host - 1) / stride % size;
    if (at + 1 < size) {
        return host + stride;
    }
    return size > 2 ? host - at * stride : 0;
}

int via_topology_make_torus(const char *sizes, struct via_topology *ret, struct via_error *err)
{
    struct torus torus = {.count = 0};
    unsigned hosts = 1;
    int rc = take_sizes(sizes, &torus, err);
    if (rc != 0) {
        return rc;
    }
    for (unsigned i = 0; i < torus.count; i++) {
        hosts *= torus.sizes[i];
    }
    if (hosts > VIA_TOPOLOGY_HOST_MAX) {
        return via_error_set(err, -EINVAL, "%u hosts or more, but ids go from %u to %u",
                             VIA_TOPOLOGY_HOST_MAX + 1, VIA_TOPOLOGY_HOST_MIN,
                             VIA_TOPOLOGY_HOST_MAX);
    }
    memset(ret, 0, sizeof(*ret));
    for (unsigned id = 1; id <= hosts; id++) {
        ret->hosts[ret->hosts_count++] = (uint16_t)id;
    }
    for (unsigned dimension = 0, stride = 1; dimension < torus.count; dimension++) {
        for (unsigned id = 1; id <= hosts; id++) {
            unsigned next = next_along(&torus, dimension, stride, id);
            if (next != 0) {
                add_link(ret, via_min(id, next), via_max(id, next));
                ret->links[ret->links_count - 1].dimension = (uint8_t)dimension;
            }
        }
        stride *= torus.sizes[dimension];
    }
    return 0;
}
