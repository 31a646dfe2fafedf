/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/paper/ring_net.h"

#include <assert.h>
#include <stdio.h>

#include "base/types.h"

static unsigned add_node(struct sim_ring_net *ring, const struct sim_scenario *scenario,
                         const char *section, const char *kind, unsigned index)
{
    char name[32];
    snprintf(name, sizeof(name), "%s-%u", kind, index);
    return sim_net_add_node(&ring->net, scenario, section, name);
}

static void add_link(struct sim_ring_net *ring, const struct sim_scenario *scenario,
                     const char *section, unsigned a, unsigned b)
{
    char name[32];
    snprintf(name, sizeof(name), "link-%u", ring->net.links_count);
    sim_net_add_link(&ring->net, scenario, section, name, a, b);
}

void sim_ring_net_init(struct sim_ring_net *ring, struct sim_cost *cost,
                       const struct sim_scenario *scenario, unsigned hosts_count)
{
    assert(hosts_count >= 2 && hosts_count <= SIM_RING_HOSTS_MAX);
    *ring = (struct sim_ring_net){.hosts_count = hosts_count};
    sim_net_init(&ring->net, cost);
    sim_net_set_pcie(&ring->net, scenario);
    for (unsigned i = 0; i < hosts_count; i++) {
        struct sim_ring_place *place = &ring->places[i];
        place->host = add_node(ring, scenario, "host pc", "host", i);
        place->right_chip = add_node(ring, scenario, "switch pex8749", "right", i);
        place->left_chip = add_node(ring, scenario, "switch pex8733", "left", i);
    }
    for (unsigned i = 0; i < hosts_count; i++) {
        const struct sim_ring_place *place = &ring->places[i];
        const struct sim_ring_place *right = &ring->places[(i + 1) % hosts_count];
        add_link(ring, scenario, "link slot", place->host, place->right_chip);
        add_link(ring, scenario, "link slot", place->host, place->left_chip);
        add_link(ring, scenario, "link cable", place->right_chip, right->left_chip);
    }
    for (unsigned i = 0; i < hosts_count; i++) {
        struct sim_ring_place *place = &ring->places[i];
        const struct sim_ring_place *right = &ring->places[(i + 1) % hosts_count];
        sim_net_way(&ring->net, place->host, place->right_chip, &place->to_chip);
        sim_net_way(&ring->net, place->right_chip, place->host, &place->from_chip);
        sim_net_way(&ring->net, place->right_chip, right->host, &place->chip_to_right);
        sim_net_way(&ring->net, right->host, place->right_chip, &place->right_to_chip);
    }
}

void sim_ring_net_fini(struct sim_ring_net *ring)
{
    sim_net_fini(&ring->net);
}

uint64_t sim_ring_net_read_ps(struct sim_ring_net *ring)
{
    const struct sim_ring_place *place = &ring->places[0];
    uint64_t ended;
    sim_net_read(&ring->net, &place->right_to_chip, &place->chip_to_right, 4,
                 sim_cost_ending(&ended));
    return sim_cost_wait(ring->net.cost, &ended);
}
