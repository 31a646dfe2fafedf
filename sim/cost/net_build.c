/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Nodes and links of a scenario; tools/sim_scenario.py has checked that they fit together. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "sim/cost/net.h"
#include "sim/memory.h"

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

/* --- from the file --------------------------------------------------------------------------- */

static unsigned end_of_link(const struct sim_net *net, const struct sim_scenario *scenario,
                            const char *section, const char *key)
{
    int node = sim_net_node(net, sim_scenario_word(scenario, section, key));
    assert(node >= 0);
    return (unsigned)node;
}

void sim_net_build(struct sim_net *net, const struct sim_scenario *scenario)
{
    static const char *const kinds[] = {"host", "switch", "device"};
    const char *name;
    char section[64];
    sim_net_set_pcie(net, scenario);
    for (size_t kind = 0; kind < VIA_ARRAY_COUNT(kinds); kind++) {
        for (size_t i = 0; (name = sim_scenario_instance(scenario, kinds[kind], i)) != NULL; i++) {
            section_of(section, sizeof(section), kinds[kind], name);
            sim_net_add_node(net, scenario, section, name);
        }
    }
    for (size_t i = 0; (name = sim_scenario_instance(scenario, "link", i)) != NULL; i++) {
        section_of(section, sizeof(section), "link", name);
        sim_net_add_link(net, scenario, section, name, end_of_link(net, scenario, section, "a"),
                         end_of_link(net, scenario, section, "b"));
    }
}

void sim_net_way(const struct sim_net *net, unsigned from, unsigned to, struct sim_path *ret_path)
{
    int rc = sim_net_path(net, from, to, ret_path);
    assert(rc == 0);
    (void)rc;
}
