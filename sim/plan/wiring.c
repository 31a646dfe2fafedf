/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/plan/wiring.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "sim/memory.h"

#define SECTION_BYTES 48

static void section_of(char ret[SECTION_BYTES], const char *kind, const char *name)
{
    snprintf(ret, SECTION_BYTES, "%s %.31s", kind, name);
}

/* --- wiring ---------------------------------------------------------------------------------- */

struct builder {
    struct plan_wiring *wiring;
    const struct sim_scenario *parts;
    char host[SECTION_BYTES], card_chip[SECTION_BYTES], slot[SECTION_BYTES], cable[SECTION_BYTES],
        chip[SECTION_BYTES];
    unsigned first_card;   /* node; hosts are from 0 */
    unsigned first_switch; /* node */
};

static void add_nodes(struct builder *builder)
{
    struct plan_wiring *wiring = builder->wiring;
    const struct plan_shape *shape = wiring->shape;
    char name[48];
    for (unsigned i = 0; i < shape->hosts_count; i++) {
        snprintf(name, sizeof(name), "host %u", i);
        sim_net_add_node(&wiring->net, builder->parts, builder->host, name);
    }
    builder->first_card = wiring->net.nodes_count;
    for (unsigned i = 0; i < shape->hosts_count * wiring->cards_per_host; i++) {
        snprintf(name, sizeof(name), "card %u of host %u", i % wiring->cards_per_host,
                 i / wiring->cards_per_host);
        sim_net_add_node(&wiring->net, builder->parts, builder->card_chip, name);
    }
    builder->first_switch = wiring->net.nodes_count;
    for (unsigned level = 1; level <= shape->levels_count; level++) {
        for (unsigned i = 0; i < plan_shape_switches(shape, level); i++) {
            snprintf(name, sizeof(name), "switch %u.%u", level, i);
            sim_net_add_node(&wiring->net, builder->parts, builder->chip, name);
        }
    }
}

static unsigned add_link(const struct builder *builder, const char *section, const char *what,
                         unsigned a, unsigned b)
{
    const struct sim_node *nodes = builder->wiring->net.nodes;
    char name[96];
    snprintf(name, sizeof(name), "%s %.24s - %.24s", what, nodes[a].name, nodes[b].name);
    name[31] = '\0';
    return sim_net_add_link(&builder->wiring->net, builder->parts, section, name, a, b);
}

/* The chip behind a port of a host. */
static unsigned chip_of(const struct builder *builder, unsigned host, unsigned port)
{
    const struct plan_wiring *wiring = builder->wiring;
    return builder->first_card + host * wiring->cards_per_host + port / wiring->cables_per_card;
}

static void cable_torus(struct builder *builder)
{
    struct plan_wiring *wiring = builder->wiring;
    const struct plan_shape *shape = wiring->shape;
    wiring->cables =
        sim_alloc(shape->hosts_count * shape->dimensions_count * sizeof(*wiring->cables));
    for (unsigned i = 0; i < shape->hosts_count; i++) {
        for (unsigned d = 0; d < shape->dimensions_count; d++) {
            unsigned next = plan_shape_step(shape, i, d, false);
            unsigned *cable = &wiring->cables[i * shape->dimensions_count + d];
            if (shape->sizes[d] == 2 && next < i) {
                *cable = wiring->cables[next * shape->dimensions_count + d]; /* there is one */
            } else {
                *cable = add_link(builder, builder->cable, "cable",
                                  chip_of(builder, i, plan_shape_port(shape, d, false)),
                                  chip_of(builder, next, plan_shape_port(shape, d, true)));
            }
        }
    }
}

/* Switch i of a level is copy i mod copies of group i / copies; its c-th uplink leads to the copy
 * of the next level that has c behind its own digits. */
static void cable_tree(struct builder *builder)
{
    struct plan_wiring *wiring = builder->wiring;
    const struct plan_shape *shape = wiring->shape;
    unsigned below = 0; /* first node of the level below */
    unsigned above = builder->first_switch;
    for (unsigned level = 0; level < shape->levels_count; level++) {
        unsigned count = plan_shape_uplinks(shape, level);
        unsigned parents = shape->parents[level + 1];
        unsigned copies = plan_shape_copies(shape, level);
        wiring->ups[level] = sim_alloc(count * sizeof(*wiring->ups[level]));
        for (unsigned i = 0; i < count; i++) {
            unsigned lower = i / parents;
            unsigned group = lower / copies / shape->children[level + 1];
            unsigned upper = group * copies * parents + lower % copies * parents + i % parents;
            wiring->ups[level][i] =
                add_link(builder, builder->cable, "cable",
                         level == 0 ? chip_of(builder, lower, 0) : below + lower, above + upper);
        }
        below = above;
        above += plan_shape_switches(shape, level + 1);
    }
}

static void build(struct builder *builder)
{
    struct plan_wiring *wiring = builder->wiring;
    const struct plan_shape *shape = wiring->shape;
    sim_net_set_pcie(&wiring->net, builder->parts);
    add_nodes(builder);
    unsigned cards = shape->hosts_count * wiring->cards_per_host;
    wiring->slots = sim_alloc(cards * sizeof(*wiring->slots));
    for (unsigned i = 0; i < cards; i++) {
        wiring->slots[i] = add_link(builder, builder->slot, "slot", i / wiring->cards_per_host,
                                    builder->first_card + i);
    }
    if (shape->kind == PLAN_TORUS) {
        cable_torus(builder);
    } else {
        cable_tree(builder);
    }
}

void plan_wiring_init(struct plan_wiring *wiring, const struct plan_shape *shape,
                      struct sim_cost *cost, const struct sim_scenario *parts,
                      const struct plan_parts *names)
{
    struct builder builder = {.wiring = wiring, .parts = parts};
    char card[SECTION_BYTES];
    *wiring = (struct plan_wiring){.shape = shape};
    sim_net_init(&wiring->net, cost);
    section_of(card, "card", names->card);
    section_of(builder.host, "host", sim_scenario_instance(parts, "host", 0));
    section_of(builder.card_chip, "switch", sim_scenario_word(parts, card, "chip"));
    section_of(builder.slot, "slot", sim_scenario_word(parts, card, "slot"));
    section_of(builder.cable, "cable", names->cable);
    section_of(builder.chip, "switch", names->chip);
    wiring->cables_per_card = (unsigned)sim_scenario_count(parts, card, "cables");
    wiring->cards_per_host =
        (plan_shape_degree(shape) + wiring->cables_per_card - 1) / wiring->cables_per_card;
    build(&builder);
}

void plan_wiring_fini(struct plan_wiring *wiring)
{
    sim_net_fini(&wiring->net);
    free(wiring->slots);
    free(wiring->cables);
    for (unsigned i = 0; i < PLAN_LEVELS_MAX; i++) {
        free(wiring->ups[i]);
    }
    *wiring = (struct plan_wiring){.shape = wiring->shape};
}

unsigned plan_wiring_end(const struct plan_wiring *wiring, unsigned link, bool far)
{
    unsigned hosts = wiring->shape->hosts_count;
    unsigned cards = hosts * wiring->cards_per_host;
    unsigned node = far ? wiring->net.links[link].b : wiring->net.links[link].a;
    return node < hosts           ? node
           : node < hosts + cards ? (node - hosts) / wiring->cards_per_host
                                  : node - cards;
}

/* --- paths ----------------------------------------------------------------------------------- */

static void add_hop(const struct plan_wiring *wiring, struct sim_path *path, unsigned link,
                    bool backwards)
{
    assert(path->hops_count < SIM_HOPS_MAX);
    path->hops[path->hops_count].link = (uint16_t)link;
    path->hops[path->hops_count++].way = backwards ? 1 : 0;
    path->mps_bytes = via_min(path->mps_bytes, wiring->net.links[link].pcie.mps_bytes);
}

static unsigned slot_of(const struct plan_wiring *wiring, unsigned host, unsigned port)
{
    return wiring->slots[host * wiring->cards_per_host + port / wiring->cables_per_card];
}

static void torus_path(const struct plan_wiring *wiring, unsigned from, unsigned to,
                       struct sim_path *path)
{
    const struct plan_shape *shape = wiring->shape;
    for (unsigned d = 0; d < shape->dimensions_count; d++) {
        for (int down = 0; down < 2; down++) {
            if (plan_shape_step(shape, from, d, down) == to) {
                unsigned lower = down ? to : from;
                unsigned cable = wiring->cables[lower * shape->dimensions_count + d];
                /* Of a pair's only cable the lower id is end a. */
                bool backwards = shape->sizes[d] == 2 ? from > to : down;
                add_hop(wiring, path, slot_of(wiring, from, plan_shape_port(shape, d, down)),
                        false);
                add_hop(wiring, path, cable, backwards);
                add_hop(wiring, path, slot_of(wiring, to, plan_shape_port(shape, d, !down)), true);
                return;
            }
        }
    }
    assert(!"hosts that are neighbours");
}

/* Up as far as needed, by links that depend on the destination, then down to it. */
static void tree_path(const struct plan_wiring *wiring, unsigned from, unsigned to,
                      struct sim_path *path)
{
    const struct plan_shape *shape = wiring->shape;
    unsigned up[PLAN_LEVELS_MAX], down[PLAN_LEVELS_MAX];
    unsigned levels = 0, copy = 0, members = 1, copies = 1;
    unsigned below = 1; /* members of a child: the child's index selects the uplink, so that the
                           hosts of a switch are reached over different links */
    do {
        unsigned parents = shape->parents[levels + 1];
        unsigned choice = to / below % parents;
        up[levels] = wiring->ups[levels][((from / members) * copies + copy) * parents + choice];
        down[levels] = wiring->ups[levels][((to / members) * copies + copy) * parents + choice];
        copy = copy * parents + choice;
        copies *= parents;
        below = members;
        members *= shape->children[++levels];
    } while (from / members != to / members);
    add_hop(wiring, path, slot_of(wiring, from, 0), false);
    for (unsigned i = 0; i < levels; i++) {
        add_hop(wiring, path, up[i], false);
    }
    for (unsigned i = levels; i-- > 0;) {
        add_hop(wiring, path, down[i], true);
    }
    add_hop(wiring, path, slot_of(wiring, to, 0), true);
}

void plan_wiring_path(const struct plan_wiring *wiring, unsigned from, unsigned to,
                      struct sim_path *ret_path)
{
    assert(from != to);
    /* Stores leave a core as TLPs of a fill buffer each, whatever MPS is. */
    *ret_path = (struct sim_path){.from = from, .to = to, .mps_bytes = PLAN_STORE_BYTES};
    if (wiring->shape->kind == PLAN_TORUS) {
        torus_path(wiring, from, to, ret_path);
    } else {
        tree_path(wiring, from, to, ret_path);
    }
}

static double rate(const struct plan_wiring *wiring, unsigned link, uint64_t body_bytes,
                   uint64_t record_bytes, unsigned mps_bytes)
{
    uint64_t bytes = body_bytes + record_bytes;
    uint64_t ps = sim_pcie_ps(wiring->net.links[link].ways[0].bandwidth,
                              sim_pcie_tlps(bytes, mps_bytes), bytes, wiring->net.write_header);
    return (double)body_bytes * (double)SIM_SEC_PS / (double)ps;
}

double plan_wiring_cable_rate(const struct plan_wiring *wiring, uint64_t body_bytes,
                              uint64_t record_bytes)
{
    unsigned cable = wiring->shape->kind == PLAN_TORUS ? wiring->cables[0] : wiring->ups[0][0];
    return rate(wiring, cable, body_bytes, record_bytes, PLAN_STORE_BYTES);
}

double plan_wiring_rate(const struct plan_wiring *wiring, const struct sim_path *path,
                        uint64_t body_bytes, uint64_t record_bytes, unsigned mps_bytes)
{
    double least = 0;
    for (unsigned i = 0; i < path->hops_count; i++) {
        double one = rate(wiring, path->hops[i].link, body_bytes, record_bytes, mps_bytes);
        least = i == 0 || one < least ? one : least;
    }
    return least;
}

double plan_wiring_port_rate(const struct plan_wiring *wiring, uint64_t body_bytes,
                             uint64_t record_bytes)
{
    struct sim_path path;
    plan_wiring_path(wiring, 0, 1, &path);
    return plan_wiring_rate(wiring, &path, body_bytes, record_bytes, path.mps_bytes);
}
