/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <string.h>

#include "cli/topology.h"

/* The most links a host of this shape has. */
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
        (struct via_topology_link){.a = (uint8_t)a, .b = (uint8_t)b};
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
        ret->hosts[ret->hosts_count++] = (uint8_t)id;
    }
    add_links(ret, shape, count);
    return 0;
}
