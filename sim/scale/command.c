/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* "viaduct-sim scale-json": time and memory of a fabric of many hosts. */
#include "sim/scale/command.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "sim/plant.h"
#include "sim/scale/fabric.h"
#include "wire/link_state.h"

/* Limit of neighbours examined for each route that a cut changes, and by each host for each of the
 * two ends. A computation of all routes examines many more where a cut changes few: a torus, a
 * star. */
#define COST_PER_CHANGE 8u
/* An announcement that a cut makes is one record, however many neighbours the host has. */
#define CUT_ANNOUNCEMENT_BYTES (sizeof(struct via_announcement) + VIA_CONTROL_PIPE_BODY_BYTES)
/* Time limit until each host knows every other. */
#define SETTLE_NS (60 * VIA_SEC_NS)

struct shape {
    const char *name;
    /* Its links; and the link to cut. */
    unsigned (*build)(struct scale_fabric *fabric, unsigned hosts);
};

static unsigned build_ring(struct scale_fabric *fabric, unsigned hosts)
{
    for (unsigned h = 0; h < hosts; h++) {
        scale_fabric_link(fabric, h, (h + 1) % hosts, 0);
    }
    return 0;
}

static unsigned build_chain(struct scale_fabric *fabric, unsigned hosts)
{
    for (unsigned h = 0; h + 1 < hosts; h++) {
        scale_fabric_link(fabric, h, h + 1, 0);
    }
    return hosts / 2 - 1;
}

/* Two dimensions, as near to a square as that number of hosts allows. */
static unsigned build_torus(struct scale_fabric *fabric, unsigned hosts)
{
    unsigned width = 1;
    for (unsigned w = 1; w * w <= hosts; w++) {
        width = hosts % w == 0 ? w : width;
    }
    unsigned height = hosts / width;
    for (unsigned h = 0; h < hosts; h++) {
        unsigned x = h % width, y = h / width;
        if (width > 1) {
            scale_fabric_link(fabric, h, y * width + (x + 1) % width, 0);
        }
        if (height > 1) {
            scale_fabric_link(fabric, h, (y + 1) % height * width + x, 1);
        }
    }
    return 0;
}

/* Host 0 has a port to each of the others. */
static unsigned build_star(struct scale_fabric *fabric, unsigned hosts)
{
    for (unsigned h = 1; h < hosts; h++) {
        scale_fabric_link(fabric, 0, h, 0);
    }
    return hosts - 2;
}

static const struct shape shapes[] = {
    {"ring", build_ring},
    {"chain", build_chain},
    {"torus", build_torus},
    {"star", build_star},
};

struct row {
    const struct shape *shape;
    unsigned hosts, links;
    uint64_t up_ns; /* until all routes are right */
    struct scale_counts up;
    unsigned hops; /* that the message goes */
    uint64_t message_ns;
    uint64_t reroute_ns;
    struct scale_counts cut;
    struct scale_sizes sizes;
    const char *failure; /* NULL = none */
};

/* --- one fabric ------------------------------------------------------------------------------ */

static unsigned farthest(const struct scale_fabric *fabric, unsigned from, unsigned hosts)
{
    unsigned best = from;
    for (unsigned to = 0; to < hosts; to++) {
        if (scale_fabric_hops(fabric, from, to) > scale_fabric_hops(fabric, from, best)) {
            best = to;
        }
    }
    return best;
}

static const char *bring_up(struct scale_fabric *fabric, struct row *row)
{
    uint64_t begun_ns = scale_fabric_now_ns(fabric);
    scale_fabric_start(fabric);
    bool settled = scale_fabric_settle(fabric, SETTLE_NS);
    row->up_ns = scale_fabric_now_ns(fabric) - begun_ns;
    scale_fabric_count(fabric, &row->up);
    return !settled                            ? "a host has no shortest route to another host"
           : !scale_fabric_is_shortest(fabric) ? "the port of a route leads away from its host"
                                               : NULL;
}

static const char *send(struct scale_fabric *fabric, struct row *row)
{
    unsigned from = row->hosts - 1; /* the star's hub is closer to all others */
    unsigned to = farthest(fabric, from, row->hosts);
    struct scale_counts ignored;
    row->hops = scale_fabric_hops(fabric, from, to);
    bool arrived = scale_fabric_send(fabric, from, to, SETTLE_NS, &row->message_ns);
    scale_fabric_count(fabric, &ignored);
    return arrived ? NULL : "a message to the farthest host did not arrive";
}

static const char *cut(struct scale_fabric *fabric, unsigned link, struct row *row)
{
    uint64_t begun_ns = scale_fabric_now_ns(fabric);
    scale_fabric_cut(fabric, link);
    bool settled = scale_fabric_settle(fabric, SETTLE_NS);
    row->reroute_ns = scale_fabric_now_ns(fabric) - begun_ns;
    scale_fabric_count(fabric, &row->cut);
    if (!settled) {
        return "after the cut a host has no shortest route to another host";
    }
    if (!scale_fabric_is_shortest(fabric)) {
        return "after the cut the port of a route leads away from its host";
    }
    uint64_t change = row->cut.routes_changed + 2 * row->hosts;
    if (row->cut.routes_examined > COST_PER_CHANGE * change) {
        return "after the cut hosts examined too many neighbours for the routes that changed";
    }
    return row->cut.announcement_bytes > row->cut.announcements * CUT_ANNOUNCEMENT_BYTES
               ? "after the cut a host announced more than its change"
               : NULL;
}

static void measure(const struct shape *shape, unsigned hosts, struct row *ret_row)
{
    struct scale_fabric *fabric = scale_fabric_new(hosts);
    unsigned link = shape->build(fabric, hosts);
    struct row row = {.shape = shape, .hosts = hosts, .links = scale_fabric_links(fabric)};
    row.failure = bring_up(fabric, &row);
    row.failure = row.failure != NULL ? row.failure : send(fabric, &row);
    row.failure = row.failure != NULL ? row.failure : cut(fabric, link, &row);
    scale_fabric_sizes(fabric, &row.sizes);
    scale_fabric_free(fabric);
    *ret_row = row;
}

/* --- output ---------------------------------------------------------------------------------- */

static json_t *counts_json(const struct scale_counts *counts)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "cpu_ns",
                     (json_int_t)counts->cpu_ns, "cpu_ns_max", (json_int_t)counts->cpu_ns_max,
                     "announcements", (json_int_t)counts->announcements, "announcement_bytes",
                     (json_int_t)counts->announcement_bytes, "routes_changed",
                     (json_int_t)counts->routes_changed, "routes_changed_max",
                     (json_int_t)counts->routes_changed_max, "routes_examined",
                     (json_int_t)counts->routes_examined, "turns", (json_int_t)counts->turns);
}

static json_t *row_json(const struct row *row)
{
    return json_pack(
        "{s:s, s:i, s:i, s:I, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:s?, s:{s:i, s:i, "
        "s:i}}",
        "shape", row->shape->name, "hosts", row->hosts, "links", row->links, "up_ns",
        (json_int_t)row->up_ns, "hops", row->hops, "message_ns", (json_int_t)row->message_ns,
        "reroute_ns", (json_int_t)row->reroute_ns, "node_bytes", (json_int_t)row->sizes.node,
        "touched_node_bytes", (json_int_t)row->sizes.touched, "default_node_bytes",
        (json_int_t)row->sizes.preset, "link_bytes", (json_int_t)row->sizes.link, "bring_up",
        counts_json(&row->up), "cut", counts_json(&row->cut), "failure", row->failure, "times_ns",
        "bell", SCALE_BELL_NS, "turn", SCALE_TURN_NS, "announced", SCALE_ANNOUNCED_NS);
}

/* --- the command ----------------------------------------------------------------------------- */

int sim_scale_main(int argc, char **argv)
{
    const struct shape *shape = NULL;
    struct row row;
    unsigned hosts = argc >= 3 ? (unsigned)atoi(argv[2]) : 0;
    int plant = argc == 4 ? sim_plant_parse(argv[3]) : 0;
    for (size_t i = 0; i < VIA_ARRAY_COUNT(shapes) && argc >= 3; i++) {
        shape = strcmp(shapes[i].name, argv[1]) == 0 ? &shapes[i] : shape;
    }
    /* A bug of the core, in a simulator that has them: viaduct-sim-mutants. */
    bool is_plant = argc == 3 || plant > SIM_PLANT_CORE_FIRST;
    if (argc < 3 || argc > 4 || shape == NULL || hosts < 3 || hosts > VIA_HOSTS_MAX || !is_plant) {
        fprintf(stderr,
                "viaduct-sim: scale-json: expected ring, chain, torus or star, 3 to %u "
                "hosts, and a bug of the core to plant, or none\n",
                VIA_HOSTS_MAX);
        return 2;
    }
    if (plant > 0) {
        sim_plant_apply(plant);
    }
    measure(shape, hosts, &row);
    json_t *json = row_json(&row);
    bool is_written = json_dumpf(json, stdout, JSON_COMPACT) == 0 && fflush(stdout) == 0;
    json_decref(json);
    return !is_written ? 2 : row.failure != NULL;
}
