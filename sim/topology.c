/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <string.h>

#include "sim/world.h"

static void connect(struct sim_world *world, uint32_t a, uint32_t b)
{
    bool fits = world->links_count < SIM_LINKS_MAX && world->hosts[a].ports_count < SIM_PORTS_MAX &&
                world->hosts[b].ports_count < SIM_PORTS_MAX;
    if (!fits || a == b) {
        return;
    }
    struct sim_link *link = &world->links[world->links_count];
    link->index = world->links_count++;
    sim_link_init(world, link, a, b);
}

/* Which end is side 0 is drawn too: nothing may depend on it. */
static void connect_either_way(struct sim_world *world, uint32_t a, uint32_t b)
{
    if (via_rng_chance(&world->rng_fault, 1, 2)) {
        connect(world, a, b);
    } else {
        connect(world, b, a);
    }
}

static void build_random(struct sim_world *world)
{
    uint32_t hosts = world->hosts_count;
    for (uint32_t i = 1; i < hosts; i++) {
        connect_either_way(world, sim_between(&world->rng_fault, 0, i - 1), i);
    }
    for (uint32_t i = 0; i < world->config.extra_links; i++) {
        connect_either_way(world, sim_between(&world->rng_fault, 0, hosts - 1),
                           sim_between(&world->rng_fault, 0, hosts - 1));
    }
}

static void connect_dimension(struct sim_world *world, uint32_t a, uint32_t b, uint8_t dimension)
{
    uint32_t links_count = world->links_count;
    connect_either_way(world, a, b);
    if (world->links_count > links_count) {
        world->hosts[a].port_configs[world->hosts[a].ports_count - 1].dimension = dimension;
        world->hosts[b].port_configs[world->hosts[b].ports_count - 1].dimension = dimension;
    }
}

/* Rows and columns as near to each other as they divide; a row of three or more is closed. The
 * ports of the two dimensions are mixed, and in another order at each host. */
static void build_torus(struct sim_world *world)
{
    uint32_t hosts = world->hosts_count;
    uint32_t rows = 1;
    for (uint32_t n = 2; n * n <= hosts; n++) {
        rows = hosts % n == 0 ? n : rows;
    }
    uint32_t columns = hosts / rows;
    for (uint32_t i = 0; i < hosts; i++) {
        uint32_t row = i / columns;
        uint32_t column = i % columns;
        if (columns > 2 || column == 0) {
            connect_dimension(world, i, row * columns + (column + 1) % columns, 0);
        }
        if (rows > 2 || (rows == 2 && row == 0)) {
            connect_dimension(world, i, (row + 1) % rows * columns + column, 1);
        }
    }
}

static void build_tree(struct sim_world *world)
{
    for (uint32_t i = 1; i < world->hosts_count; i++) {
        connect_either_way(world, (i - 1) / 4, i);
    }
}

static void build_cube(struct sim_world *world)
{
    for (uint32_t i = 0; i < world->hosts_count; i++) {
        for (uint32_t bit = 1; bit < SIM_HOSTS_MAX; bit *= 2) {
            if ((i & bit) == 0 && (i | bit) < world->hosts_count) {
                connect_either_way(world, i, i | bit);
            }
        }
    }
}

void sim_topology_build(struct sim_world *world)
{
    uint32_t hosts = world->hosts_count;
    switch (world->config.graph) {
    case SIM_GRAPH_RING:
        /* Two hosts make a ring with one cable or with two. */
        for (uint32_t i = 0; i < (hosts == 2 ? 1 + world->config.extra_links % 2 : hosts); i++) {
            connect_either_way(world, i, (i + 1) % hosts);
        }
        break;
    case SIM_GRAPH_CHAIN:
        for (uint32_t i = 1; i < hosts; i++) {
            connect_either_way(world, i - 1, i);
        }
        break;
    case SIM_GRAPH_STAR:
        for (uint32_t i = 1; i < hosts; i++) {
            connect_either_way(world, 0, i);
        }
        break;
    case SIM_GRAPH_MESH:
        for (uint32_t i = 1; i < hosts; i++) {
            for (uint32_t j = 0; j < i; j++) {
                connect_either_way(world, j, i);
            }
        }
        break;
    case SIM_GRAPH_TORUS:
        build_torus(world);
        break;
    case SIM_GRAPH_TREE:
        build_tree(world);
        break;
    case SIM_GRAPH_CUBE:
        build_cube(world);
        break;
    case SIM_GRAPH_ANY:
    case SIM_GRAPH_RANDOM:
        build_random(world);
        break;
    }
}

uint32_t sim_topology_hops(const struct sim_world *world, uint32_t from, uint32_t to)
{
    uint32_t hops[SIM_HOSTS_MAX];
    memset(hops, 0xff, sizeof(hops));
    hops[from] = 0;
    for (uint32_t round = 0; round < world->hosts_count && hops[to] == UINT32_MAX; round++) {
        for (uint32_t i = 0; i < world->links_count; i++) {
            const struct sim_link *link = &world->links[i];
            uint32_t a = link->end[0].host;
            uint32_t b = link->end[1].host;
            if (!link->up || !world->hosts[a].alive || !world->hosts[b].alive) {
                continue;
            }
            if (hops[a] == round && hops[b] > round + 1) {
                hops[b] = round + 1;
            }
            if (hops[b] == round && hops[a] > round + 1) {
                hops[a] = round + 1;
            }
        }
    }
    return hops[to];
}
