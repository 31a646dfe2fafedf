/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Topology files: an accepted file is valid, and a refused one gets a reason. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cli/topology.h"
#include "tests/fuzz/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct via_topology topology;
    struct via_error err = {0};
    unsigned ports_count[256] = {0};
    unsigned char known[256] = {0};
    if (via_topology_parse("F", (const char *)data, bytes, &topology, &err) != 0) {
        require(strncmp(err.text, "F:", 2) == 0);
        return 0;
    }
    require(topology.hosts_count >= 1 && topology.hosts_count <= VIA_TOPOLOGY_HOST_MAX);
    require(topology.channels_count <= VIA_TOPOLOGY_CHANNELS_MAX);
    for (unsigned i = 0; i < topology.hosts_count; i++) {
        require(known[topology.hosts[i]]++ == 0);
    }
    require(!known[0] && !known[255]);
    for (unsigned i = 0; i < topology.links_count; i++) {
        const struct via_topology_link *link = &topology.links[i];
        require(link->a < link->b && known[link->a] && known[link->b]);
        require(++ports_count[link->a] <= VIA_TOPOLOGY_PORTS_MAX);
        require(++ports_count[link->b] <= VIA_TOPOLOGY_PORTS_MAX);
    }
    return 0;
}
