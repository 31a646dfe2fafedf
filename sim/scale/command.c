/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* "viaduct-sim scale": time and memory of fabrics of many hosts, as a table. */
#include "sim/scale/command.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "progress/progress.h"
#include "sim/plant.h"
#include "sim/scale/fabric.h"
#include "wire/link_state.h"

#define SIZES_MAX 16u
#define FABRICS_MAX (4 * SIZES_MAX)
/* Limit of neighbours examined for each route that a cut changes, and by each host for each of the
 * two ends. To compute all routes anew takes many more where a cut changes few: a torus, a star. */
#define COST_PER_CHANGE 8u
/* An announcement that a cut makes is one record, however many neighbours the host has. */
#define CUT_ANNOUNCEMENT_BYTES (sizeof(struct via_announcement) + VIA_CONTROL_PIPE_BODY_BYTES)
/* Time limit until each host knows every other. */
#define SETTLE_NS (60 * VIA_SEC_NS)

static const char usage_text[] =
    "Usage: viaduct-sim scale [OPTIONS]\n"
    "Brings up large fabrics of the real core under virtual time, then cuts a link.\n"
    "\n"
    "Options:\n"
    "  --shape SHAPE   ring, chain, torus, star (default: all of them)\n"
    "  --hosts N,...   how many (default: 16,64,256,1024; of a chain 300,1024)\n"
    "  --json FILE     the same as JSON, - for standard output\n"
    "  --help          this text\n"
    "\n"
    "Exit code: 0 when all routes are the shortest, messages arrive and a cut makes no host check\n"
    "or announce more than it changes; 1 when not; 2 for wrong usage.\n";

struct shape {
    const char *name;
    const char *sizes; /* when none are asked for */
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
    {"ring", "16,64,256,1024", build_ring},
    {"chain", "300,1024", build_chain},
    {"torus", "16,64,256,1024", build_torus},
    {"star", "16,64,256,1024", build_star},
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
    return !settled                            ? "not every host knows the ways to all"
           : !scale_fabric_is_shortest(fabric) ? "a route leads away from its host"
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
        return "not every host has gone round the cut";
    }
    if (!scale_fabric_is_shortest(fabric)) {
        return "after the cut a route leads away from its host";
    }
    uint64_t change = row->cut.routes_changed + 2 * row->hosts;
    if (row->cut.routes_examined > COST_PER_CHANGE * change) {
        return "a cut made hosts check more neighbours than it has changed";
    }
    return row->cut.announcement_bytes > row->cut.announcements * CUT_ANNOUNCEMENT_BYTES
               ? "after a cut a host announced more than it has changed"
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

static double ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

static const char head[] =
    "                 | bring-up                             | message       | a cut           "
    "  "
    "                                                   | memory\n"
    "shape hosts links|   virtual  CPU/host  announced: /link | hops  virtual |  virtual  "
    "CPU/host   most  announced    routes     /host   neighbours |    node touched  default   "
    "link\n"
    "                 |        ms        ms    count     KiB |            us |       us        "
    "us     us  KiB, all   changed   at most   checked   |     KiB     KiB      KiB    KiB\n";

static void print_row(FILE *out, const struct row *row)
{
    double hosts = row->hosts, links = row->links;
    fprintf(out,
            "%-5s %5u %5u| %9.3f %9.3f %9.0f %7.1f | %4u %8.0f | %8.0f %9.1f %6.0f %9.0f %9" PRIu64
            " %9" PRIu64 " %12" PRIu64 " | %7.0f %7.0f %8.0f %6.0f\n",
            row->shape->name, row->hosts, row->links, ms(row->up_ns), ms(row->up.cpu_ns) / hosts,
            (double)row->up.announcements / links,
            (double)row->up.announcement_bytes / links / 1024, row->hops,
            (double)row->message_ns / 1e3, (double)row->reroute_ns / 1e3,
            (double)row->cut.cpu_ns / hosts / 1e3, (double)row->cut.cpu_ns_max / 1e3,
            (double)row->cut.announcement_bytes / 1024, row->cut.routes_changed,
            row->cut.routes_changed_max, row->cut.routes_examined, (double)row->sizes.node / 1024,
            (double)row->sizes.touched / 1024, (double)row->sizes.preset / 1024,
            (double)row->sizes.link / 1024);
    if (row->failure != NULL) {
        fprintf(out, "FAILED: %s, %u hosts: %s\n", row->shape->name, row->hosts, row->failure);
    }
    fflush(out);
}

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
        "{s:s, s:i, s:i, s:I, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:s?}", "shape",
        row->shape->name, "hosts", row->hosts, "links", row->links, "up_ns", (json_int_t)row->up_ns,
        "hops", row->hops, "message_ns", (json_int_t)row->message_ns, "reroute_ns",
        (json_int_t)row->reroute_ns, "node_bytes", (json_int_t)row->sizes.node,
        "touched_node_bytes", (json_int_t)row->sizes.touched, "default_node_bytes",
        (json_int_t)row->sizes.preset, "link_bytes", (json_int_t)row->sizes.link, "bring_up",
        counts_json(&row->up), "cut", counts_json(&row->cut), "failure", row->failure);
}

/* --- arguments ------------------------------------------------------------------------------- */

struct options {
    const struct shape *shape; /* NULL = all */
    const char *sizes;         /* NULL = each shape's own */
    const char *json;
};

/* How many; 0: not a list of numbers of hosts. */
static unsigned parse_sizes(const char *text, unsigned ret_sizes[SIZES_MAX])
{
    unsigned count = 0;
    while (count < SIZES_MAX) {
        char *end;
        errno = 0;
        unsigned long value = strtoul(text, &end, 10);
        if (errno != 0 || end == text || *text == '-' || value < 3 || value > VIA_HOSTS_MAX) {
            return 0;
        }
        ret_sizes[count++] = (unsigned)value;
        if (*end == '\0') {
            return count;
        }
        if (*end != ',') {
            return 0;
        }
        text = end + 1;
    }
    return 0;
}

static int bad_usage(const char *what, const char *value)
{
    fprintf(stderr, "viaduct-sim scale: %s '%s'; see viaduct-sim scale --help\n", what, value);
    return 2;
}

static int set_shape(struct options *options, const char *name)
{
    for (size_t i = 0; i < VIA_ARRAY_COUNT(shapes); i++) {
        if (strcmp(shapes[i].name, name) == 0) {
            options->shape = &shapes[i];
            return 0;
        }
    }
    return bad_usage("no such shape:", name);
}

static int set_sizes(struct options *options, const char *text)
{
    unsigned sizes[SIZES_MAX];
    options->sizes = text;
    return parse_sizes(text, sizes) != 0 ? 0 : bad_usage("not numbers from 3 to 1024:", text);
}

/* A bug of the core, in a simulator that has them: viaduct-sim-mutants. */
static int plant(const char *name)
{
    int number = sim_plant_parse(name);
    if (number <= SIM_PLANT_CORE_FIRST) {
        return bad_usage("no such bug of the core can be planted here:", name);
    }
    sim_plant_apply(number);
    return 0;
}

/* 0, or an exit code; -1: the help was asked for. */
static int parse(struct options *options, int argc, char **argv)
{
    static const struct option long_options[] = {
        {"shape", required_argument, NULL, 's'}, {"hosts", required_argument, NULL, 'n'},
        {"plant", required_argument, NULL, 'p'}, {"json", required_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},        {0},
    };
    int rc = 0;
    for (int option; rc == 0 && (option = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        switch (option) {
        case 's':
            rc = set_shape(options, optarg);
            break;
        case 'n':
            rc = set_sizes(options, optarg);
            break;
        case 'p':
            rc = plant(optarg);
            break;
        case 'j':
            options->json = optarg;
            break;
        case 'h':
            return -1;
        default:
            return 2;
        }
    }
    return rc == 0 && optind < argc ? bad_usage("what is", argv[optind]) : rc;
}

_Static_assert(FABRICS_MAX >= VIA_ARRAY_COUNT(shapes) * SIZES_MAX, "room for all shapes");

/* --- the command ----------------------------------------------------------------------------- */

struct fabric {
    const struct shape *shape;
    unsigned hosts;
};

/* The fabrics that are asked for. */
static unsigned list_fabrics(const struct options *options, struct fabric ret_fabrics[FABRICS_MAX],
                             unsigned *ret_hosts)
{
    unsigned count = 0;
    *ret_hosts = 0;
    for (size_t i = 0; i < VIA_ARRAY_COUNT(shapes); i++) {
        unsigned sizes[SIZES_MAX];
        if (options->shape != NULL && options->shape != &shapes[i]) {
            continue;
        }
        unsigned sizes_count =
            parse_sizes(options->sizes != NULL ? options->sizes : shapes[i].sizes, sizes);
        for (unsigned n = 0; n < sizes_count; n++) {
            ret_fabrics[count++] = (struct fabric){&shapes[i], sizes[n]};
            *ret_hosts += sizes[n];
        }
    }
    return count;
}

/* The number of fabrics that have failed. json: an array, to add them to. */
static unsigned measure_all(const struct options *options, FILE *table, json_t *json)
{
    struct fabric fabrics[FABRICS_MAX];
    unsigned failed = 0, done = 0, hosts;
    struct via_progress progress;
    unsigned count = list_fabrics(options, fabrics, &hosts);
    via_progress_begin(&progress, "viaduct sim scale: host", hosts);
    for (unsigned i = 0; i < count; i++) {
        struct row row;
        via_progress_step(&progress, done);
        measure(fabrics[i].shape, fabrics[i].hosts, &row);
        done += fabrics[i].hosts;
        via_progress_end(&progress);
        failed += row.failure != NULL ? 1 : 0;
        print_row(table, &row);
        json_array_append_new(json, row_json(&row));
    }
    return failed;
}

int sim_scale_main(int argc, char **argv)
{
    struct options options = {.json = NULL};
    int rc = parse(&options, argc, argv);
    if (rc != 0) {
        if (rc < 0) {
            fputs(usage_text, stdout);
        }
        return rc < 0 ? 0 : rc;
    }
    bool to_stdout = options.json != NULL && strcmp(options.json, "-") == 0;
    FILE *table = to_stdout ? stderr : stdout;
    FILE *json = options.json == NULL ? NULL : to_stdout ? stdout : fopen(options.json, "we");
    if (options.json != NULL && json == NULL) {
        fprintf(stderr, "viaduct-sim scale: %s: open: %s\n", options.json, strerror(errno));
        return 2;
    }
    fprintf(table,
            "A doorbell takes %u ns, a turn of a host's thread %u ns and %u ns for each "
            "announcement in it;\nCPU is this machine's. One channel, 8 slots, frames of 256 "
            "bytes, one flow;\n\"default\" is host 0's node as a daemon has it.\n",
            SCALE_BELL_NS, SCALE_TURN_NS, SCALE_ANNOUNCED_NS);
    fputs(head, table);
    json_t *root = json_pack("{s:[]}", "fabrics");
    unsigned failed = measure_all(&options, table, json_object_get(root, "fabrics"));
    if (json != NULL && (json_dumpf(root, json, JSON_INDENT(2)) != 0 || fclose(json) != 0)) {
        fprintf(stderr, "viaduct-sim scale: %s: write: %s\n", options.json, strerror(errno));
        rc = 2;
    }
    json_decref(root);
    return failed != 0 ? 1 : rc;
}
