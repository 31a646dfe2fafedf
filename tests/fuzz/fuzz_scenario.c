/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Scenario files: accepted values are in range, and a refused file gets a reason. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "sim/cost/dma.h"
#include "sim/cost/net.h"
#include "sim/cost/pio.h"
#include "tests/fuzz/input.h"

static const struct sim_section *const sections[] = {
    &sim_net_sections[0], &sim_net_sections[1], &sim_net_sections[2], &sim_net_sections[3],
    &sim_net_sections[4], &sim_net_sections[5], &sim_pio_section,     &sim_dma_section,
};

static void check_values(const struct sim_scenario *scenario)
{
    for (size_t i = 0; i < scenario->values_count; i++) {
        const struct sim_value *value = &scenario->values[i];
        require(value->part < scenario->parts_count && value->line > 0);
        require(value->source[0] != '\0');
        if (value->unit_factor > 0) {
            require(value->number >= value->key->min && value->number <= value->key->max);
            require(value->unit[0] != '\0');
        } else {
            require(value->text[0] != '\0');
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct sim_scenario scenario;
    struct via_error err = {0};
    struct sim_cost cost;
    struct sim_net net;
    if (sim_scenario_parse("F", (const char *)data, bytes, sections, VIA_ARRAY_COUNT(sections),
                           &scenario, &err) != 0) {
        require(strncmp(err.text, "F:", 2) == 0);
        return 0;
    }
    check_values(&scenario);
    sim_cost_init(&cost);
    sim_net_init(&net, &cost);
    if (sim_net_build(&net, &scenario, &err) != 0) {
        require(strncmp(err.text, "F:", 2) == 0);
    }
    for (unsigned i = 0; i < net.links_count; i++) {
        require(net.links[i].a < net.nodes_count && net.links[i].b < net.nodes_count);
        require(sim_pcie_tlp_bandwidth(&net.links[i].pcie) > 0);
    }
    sim_net_fini(&net);
    sim_cost_fini(&cost);
    return 0;
}
