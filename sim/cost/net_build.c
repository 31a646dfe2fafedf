/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Nodes and links of a scenario, and the checks that they fit together. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "sim/cost/net.h"
#include "sim/memory.h"

#define GT_MAX 32.0
#define LATENCY_MAX_PS 1e9 /* 1 ms */

static const struct sim_key pcie_keys[] = {
    {"dllp", SIM_WORD, 0, 0, "full none"},
    {"write_header", SIM_BYTES, 16, 32, NULL},
    {"request_header", SIM_BYTES, 16, 32, NULL},
    {"completion_header", SIM_BYTES, 16, 32, NULL},
};

static const struct sim_key host_keys[] = {
    {"write", SIM_TIME, 0, LATENCY_MAX_PS, NULL},
    {"read", SIM_TIME, 0, LATENCY_MAX_PS, NULL},
    {"completion", SIM_BYTES, 64, 4096, NULL},
};

static const struct sim_key switch_keys[] = {
    {"forward", SIM_TIME, 0, LATENCY_MAX_PS, NULL},
    {"nt", SIM_TIME, 0, LATENCY_MAX_PS, NULL},
    {"read", SIM_TIME, 0, LATENCY_MAX_PS, NULL},
    {"lanes", SIM_COUNT, 1, 1024, NULL},
    {"ports", SIM_COUNT, 1, 1024, NULL},
};

static const struct sim_key device_keys[] = {
    {"write", SIM_TIME, 0, LATENCY_MAX_PS, NULL}, {"read", SIM_TIME, 0, LATENCY_MAX_PS, NULL},
    {"completion", SIM_BYTES, 64, 4096, NULL},    {"credits", SIM_COUNT, 0, 4096, NULL},
    {"drain", SIM_TIME, 0, LATENCY_MAX_PS, NULL},
};

static const struct sim_key medium_keys[] = {
    {"delay", SIM_TIME_LENGTH, 3335, 10000, NULL}, /* not faster than light */
    {"converters", SIM_TIME, 0, LATENCY_MAX_PS, NULL},
    {"reach", SIM_LENGTH, 0.01, 10000, NULL},
    {"rate", SIM_RATE, 2.5, 1000, NULL},
};

static const struct sim_key link_keys[] = {
    {"a", SIM_NAME, 0, 0, NULL},
    {"b", SIM_NAME, 0, 0, NULL},
    {"generation", SIM_COUNT, 1, SIM_PCIE_GENERATION_MAX, NULL},
    {"lanes", SIM_COUNT, 1, 16, NULL},
    {"mps", SIM_BYTES, 128, 4096, NULL},
    {"medium", SIM_NAME, 0, 0, NULL},
    {"length", SIM_LENGTH, 0, 10000, NULL},
};

const struct sim_section sim_net_sections[SIM_NET_SECTIONS_COUNT] = {
    {"pcie", false, pcie_keys, VIA_ARRAY_COUNT(pcie_keys)},
    {"host", true, host_keys, VIA_ARRAY_COUNT(host_keys)},
    {"switch", true, switch_keys, VIA_ARRAY_COUNT(switch_keys)},
    {"device", true, device_keys, VIA_ARRAY_COUNT(device_keys)},
    {"medium", true, medium_keys, VIA_ARRAY_COUNT(medium_keys)},
    {"link", true, link_keys, VIA_ARRAY_COUNT(link_keys)},
};

static const double generation_gt[SIM_PCIE_GENERATION_MAX + 1] = {0, 2.5, 5, 8, 16, GT_MAX};

static void section_of(char *ret, size_t bytes, const char *kind, const char *instance)
{
    snprintf(ret, bytes, "%s %s", kind, instance);
}

/* --- by hand --------------------------------------------------------------------------------- */

void sim_net_set_pcie(struct sim_net *net, const struct sim_scenario *scenario)
{
    net->write_header = (unsigned)sim_scenario_count(scenario, "pcie", "write_header");
    net->request_header = (unsigned)sim_scenario_count(scenario, "pcie", "request_header");
    net->completion_header = (unsigned)sim_scenario_count(scenario, "pcie", "completion_header");
    net->dllp = strcmp(sim_scenario_word(scenario, "pcie", "dllp"), "full") == 0;
}

unsigned sim_net_add_node(struct sim_net *net, const struct sim_scenario *scenario,
                          const char *section, const char *name)
{
    assert(net->links_count == 0);
    net->nodes = sim_realloc(net->nodes, (net->nodes_count + 1) * sizeof(*net->nodes));
    struct sim_node *node = &net->nodes[net->nodes_count];
    *node = (struct sim_node){.rcb_bytes = 64};
    snprintf(node->name, sizeof(node->name), "%s", name);
    sim_server_init(&node->drain, net->cost);
    node->read_ps = sim_scenario_ps(scenario, section, "read");
    if (strncmp(section, "switch ", 7) == 0) {
        node->kind = SIM_NODE_SWITCH;
        node->forward_ps = sim_scenario_ps(scenario, section, "forward") +
                           sim_scenario_ps(scenario, section, "nt");
        node->lanes_total = (unsigned)sim_scenario_count(scenario, section, "lanes");
        node->ports_total = (unsigned)sim_scenario_count(scenario, section, "ports");
        return net->nodes_count++;
    }
    node->kind = SIM_NODE_HOST;
    node->write_ps = sim_scenario_ps(scenario, section, "write");
    node->rcb_bytes = (unsigned)sim_scenario_count(scenario, section, "completion");
    if (strncmp(section, "device ", 7) == 0) {
        node->kind = SIM_NODE_DEVICE;
        node->credits = sim_scenario_count(scenario, section, "credits");
        node->drain_ps = sim_scenario_ps(scenario, section, "drain");
    }
    return net->nodes_count++;
}

unsigned sim_net_add_link(struct sim_net *net, const struct sim_scenario *scenario,
                          const char *section, const char *name, unsigned a, unsigned b)
{
    assert(a < net->nodes_count && b < net->nodes_count && a != b);
    char medium[64];
    section_of(medium, sizeof(medium), "medium", sim_scenario_word(scenario, section, "medium"));
    net->links = sim_realloc(net->links, (net->links_count + 1) * sizeof(*net->links));
    struct sim_link *link = &net->links[net->links_count];
    *link = (struct sim_link){
        .a = a,
        .b = b,
        .pcie = {.generation = (unsigned)sim_scenario_count(scenario, section, "generation"),
                 .lanes = (unsigned)sim_scenario_count(scenario, section, "lanes"),
                 .mps_bytes = (unsigned)sim_scenario_count(scenario, section, "mps"),
                 .dllp = net->dllp},
    };
    snprintf(link->name, sizeof(link->name), "%s", name);
    double metres = sim_scenario_number(scenario, section, "length");
    uint64_t lag_ps = (uint64_t)(metres * sim_scenario_number(scenario, medium, "delay") + 0.5) +
                      sim_scenario_ps(scenario, medium, "converters");
    for (unsigned i = 0; i < 2; i++) {
        const struct sim_node *to = &net->nodes[i == 0 ? b : a];
        struct sim_way *way = &link->ways[i];
        sim_server_init(&way->wire, net->cost);
        sim_pool_init(&way->credits, net->cost, to->credits);
        way->limited = to->credits > 0;
        way->bandwidth = sim_pcie_tlp_bandwidth(&link->pcie);
        way->lag_ps = lag_ps;
        way->onward_ps = lag_ps + to->forward_ps;
    }
    return net->links_count++;
}

/* --- from the file, with every reason why it may not fit ------------------------------------- */

/* By enum sim_node_kind. */
static const char *const kinds[] = {"host", "switch", "device"};

static int add_nodes(struct sim_net *net, const struct sim_scenario *scenario,
                     struct via_error *err)
{
    static const char *const first_keys[] = {"write", "forward", "write"};
    for (size_t kind = 0; kind < VIA_ARRAY_COUNT(kinds); kind++) {
        const char *name;
        for (size_t i = 0; (name = sim_scenario_instance(scenario, kinds[kind], i)) != NULL; i++) {
            char section[64];
            section_of(section, sizeof(section), kinds[kind], name);
            if (sim_net_node(net, name) >= 0) {
                return sim_scenario_complain(scenario, section, first_keys[kind], err,
                                             "there is another node '%s'", name);
            }
            sim_net_add_node(net, scenario, section, name);
        }
    }
    return 0;
}

int sim_net_check_link(const struct sim_scenario *scenario, const char *section,
                       struct via_error *err)
{
    char medium[64];
    const char *name = sim_scenario_word(scenario, section, "medium");
    section_of(medium, sizeof(medium), "medium", name);
    if (!sim_scenario_has(scenario, medium)) {
        return sim_scenario_complain(scenario, section, "medium", err, "there is no [%s]", medium);
    }
    double metres = sim_scenario_number(scenario, section, "length");
    double reach = sim_scenario_number(scenario, medium, "reach");
    if (metres > reach) {
        return sim_scenario_complain(scenario, section, "length", err,
                                     "%g m, but %s reaches no farther than %g m", metres, name,
                                     reach);
    }
    uint64_t generation = sim_scenario_count(scenario, section, "generation");
    double rate = sim_scenario_number(scenario, medium, "rate");
    if (generation_gt[generation] > rate) {
        return sim_scenario_complain(scenario, section, "generation", err,
                                     "needs %g GT/s a lane, but %s carries no more than %g",
                                     generation_gt[generation], name, rate);
    }
    uint64_t lanes = sim_scenario_count(scenario, section, "lanes");
    if ((lanes & (lanes - 1)) != 0) {
        return sim_scenario_complain(scenario, section, "lanes", err,
                                     "a link has 1, 2, 4, 8 or 16");
    }
    uint64_t mps = sim_scenario_count(scenario, section, "mps");
    if ((mps & (mps - 1)) != 0) {
        return sim_scenario_complain(scenario, section, "mps", err, "not a power of two");
    }
    return 0;
}

/* The node at one end; -EINVAL if there is none or it has no room for the link. */
static int end_of_link(const struct sim_net *net, const struct sim_scenario *scenario,
                       const char *section, const char *key, struct via_error *err)
{
    const char *name = sim_scenario_word(scenario, section, key);
    int node = sim_net_node(net, name);
    if (node < 0) {
        return sim_scenario_complain(scenario, section, key, err,
                                     "there is no host, switch or device '%s'", name);
    }
    uint64_t lanes = sim_scenario_count(scenario, section, "lanes");
    unsigned ports = 1;
    for (unsigned i = 0; i < net->links_count; i++) {
        const struct sim_link *link = &net->links[i];
        bool ends_here = link->a == (unsigned)node || link->b == (unsigned)node;
        lanes += ends_here ? link->pcie.lanes : 0;
        ports += ends_here ? 1 : 0;
    }
    unsigned total = net->nodes[node].lanes_total;
    unsigned ports_total = net->nodes[node].ports_total;
    if (ports_total != 0 && ports > ports_total) {
        return sim_scenario_complain(scenario, section, key, err,
                                     "%s has %u ports, and this is its link %u", name, ports_total,
                                     ports);
    }
    if (total != 0 && lanes > total) {
        return sim_scenario_complain(scenario, section, key, err,
                                     "%s has %u lanes, and its links want %u", name, total,
                                     (unsigned)lanes);
    }
    return node;
}

static int add_links(struct sim_net *net, const struct sim_scenario *scenario,
                     struct via_error *err)
{
    const char *name;
    for (size_t i = 0; (name = sim_scenario_instance(scenario, "link", i)) != NULL; i++) {
        char section[64];
        section_of(section, sizeof(section), "link", name);
        int rc = sim_net_check_link(scenario, section, err);
        int a = rc == 0 ? end_of_link(net, scenario, section, "a", err) : rc;
        int b = a >= 0 ? end_of_link(net, scenario, section, "b", err) : a;
        if (b < 0) {
            return b;
        }
        if (a == b) {
            return sim_scenario_complain(scenario, section, "b", err, "both ends are '%s'",
                                         net->nodes[b].name);
        }
        sim_net_add_link(net, scenario, section, name, (unsigned)a, (unsigned)b);
    }
    return 0;
}

static bool is_linked(const struct sim_net *net, unsigned node)
{
    for (unsigned i = 0; i < net->links_count; i++) {
        if (net->links[i].a == node || net->links[i].b == node) {
            return true;
        }
    }
    return false;
}

int sim_net_build(struct sim_net *net, const struct sim_scenario *scenario, struct via_error *err)
{
    sim_net_set_pcie(net, scenario);
    int rc = add_nodes(net, scenario, err);
    rc = rc == 0 ? add_links(net, scenario, err) : rc;
    for (unsigned i = 0; rc == 0 && i < net->nodes_count; i++) {
        char section[64];
        section_of(section, sizeof(section), kinds[net->nodes[i].kind], net->nodes[i].name);
        if (!is_linked(net, i)) {
            rc = sim_scenario_complain(scenario, section, "read", err, "no link ends at '%s'",
                                       net->nodes[i].name);
        }
    }
    return rc;
}

int sim_net_way(const struct sim_net *net, const struct sim_scenario *scenario, unsigned from,
                unsigned to, struct sim_path *ret_path, struct via_error *err)
{
    if (sim_net_path(net, from, to, ret_path) == 0) {
        return 0;
    }
    const struct sim_link *last = net->links; /* not NULL: each node has a link */
    for (unsigned i = 0; i < net->links_count; i++) {
        const struct sim_link *link = &net->links[i];
        last = link->a == to || link->b == to ? link : last;
    }
    assert(net->links_count > 0); /* sim_net_build() refuses a net without links */
    char section[64];
    section_of(section, sizeof(section), "link", last->name);
    return sim_scenario_complain(scenario, section, last->a == to ? "a" : "b", err,
                                 "no links lead from '%s' to '%s'", net->nodes[from].name,
                                 net->nodes[to].name);
}
