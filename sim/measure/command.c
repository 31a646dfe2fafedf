/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* "viaduct-sim measure": predicts the performance of a chain of hosts, switches, cables and
 * engines. */
#include "sim/measure/command.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "sim/cost/cpu.h"
#include "sim/cost/dma.h"
#include "sim/cost/pio.h"
#include "sim/memory.h"
#include "sim/paper/share.h"

#define EVENTS_MAX UINT64_C(50000000)
#define WORD_BYTES 8u
/* Stores that start a transfer by block registers: source and destination, each in two halves,
 * size, start. */
#define DMA_STORES 6u

static const char usage_text[] =
    "Usage: viaduct-sim measure FILE [--pingpong] [--read] [--pio] [--uncached] [--dma] [OPTIONS]\n"
    "What the hosts, switches and cables of a scenario would do, by the parts of the cost model.\n"
    "\n"
    "  --pingpong   a word stored into the other host's memory, until a poll there sees it\n"
    "  --read       a word loaded from the other host's memory\n"
    "  --pio        write-combined stores into the other host's memory, by size\n"
    "  --uncached   uncached stores, by size\n"
    "  --dma        the engine [dma NODE] moves memory to the other host's, by size\n"
    "               without any of them: all that the scenario allows\n"
    "  --from NODE  (default: the first host)\n"
    "  --to NODE    (default: the second host, or the first device)\n"
    "  --parts FILE parts that the scenario names, instead of those that were installed\n"
    "  --help       this text\n"
    "\n"
    "\"left\" is when the last store has left the core's buffers, \"seen\" when the last byte can "
    "be "
    "seen.\n"
    "Rates are from idle until then, in MB/s of 10^6 bytes.\n";

static const struct sim_section *const sections[] = {
    &sim_net_sections[0], &sim_net_sections[1], &sim_net_sections[2],
    &sim_net_sections[3], &sim_net_sections[4], &sim_net_sections[5],
    &sim_pio_section,     &sim_dma_section,     &sim_software_section,
};

enum kind { PINGPONG, READ, PIO, UNCACHED, DMA, KINDS };

struct options {
    const char *file, *from, *to, *parts;
    bool wants[KINDS];
};

struct bench {
    const struct sim_scenario *scenario;
    struct sim_cost cost;
    struct sim_net net;
    struct sim_path there, back;
    struct sim_path engine_to_source, source_to_engine,
        engine_to_target; /* engine: may be absent */
    char engine[48];      /* section; "": none */
    uint64_t done_ps, left_ps;
};

/* Durations of one message, from an idle fabric. */
struct took {
    uint64_t left_ps; /* of stores: until the last has left the core's buffers */
    uint64_t ps;
};

static int fail(const struct via_error *err)
{
    fprintf(stderr, "viaduct-sim: measure: %s\n", via_error_describe(err));
    return 2;
}

static int bad_usage(const char *what, const char *value)
{
    fprintf(stderr, "viaduct-sim: measure: %s '%s'; see viaduct-sim measure --help\n", what, value);
    return 2;
}

/* --- the scenario ---------------------------------------------------------------------------- */

/* The node of that name; without a name the index-th host, then the first device. */
static int find_node(const struct bench *bench, const char *name, size_t index,
                     struct via_error *err)
{
    const struct sim_scenario *scenario = bench->scenario;
    const char *chosen = name != NULL ? name : sim_scenario_instance(scenario, "host", index);
    if (chosen == NULL && index == 1) {
        chosen = sim_scenario_instance(scenario, "device", 0);
    }
    int node = chosen != NULL ? sim_net_node(&bench->net, chosen) : -ENOENT;
    return node >= 0 ? node
                     : via_error_set(err, -EINVAL, "%.200s: there is no %s '%.40s'", scenario->name,
                                     index == 0 ? "host to measure from" : "host or device to",
                                     chosen != NULL ? chosen : "");
}

static int find_engine(struct bench *bench, unsigned from, unsigned to, struct via_error *err)
{
    const struct sim_scenario *scenario = bench->scenario;
    const char *name = sim_scenario_instance(scenario, "dma", 0);
    if (name == NULL) {
        return 0;
    }
    snprintf(bench->engine, sizeof(bench->engine), "dma %s", name);
    int node = sim_net_node(&bench->net, name);
    if (node < 0) {
        return sim_scenario_complain(scenario, bench->engine, "channels", err,
                                     "an engine is in a node, and there is no '%s'", name);
    }
    unsigned at = (unsigned)node;
    const struct sim_net *net = &bench->net;
    int rc = sim_net_way(net, scenario, at, from, &bench->engine_to_source, err);
    rc = rc == 0 ? sim_net_way(net, scenario, from, at, &bench->source_to_engine, err) : rc;
    return rc == 0 ? sim_net_way(net, scenario, at, to, &bench->engine_to_target, err) : rc;
}

static int bench_init(struct bench *bench, const struct sim_scenario *scenario,
                      const struct options *options, struct via_error *err)
{
    *bench = (struct bench){.scenario = scenario};
    sim_cost_init(&bench->cost);
    sim_net_init(&bench->net, &bench->cost);
    int rc = sim_net_build(&bench->net, scenario, err);
    int from = rc == 0 ? find_node(bench, options->from, 0, err) : rc;
    int to = from >= 0 ? find_node(bench, options->to, 1, err) : from;
    if (to < 0) {
        return to;
    }
    if (from == to) {
        return via_error_set(err, -EINVAL, "%.200s: from '%.40s' to itself", scenario->name,
                             bench->net.nodes[from].name);
    }
    rc = sim_net_way(&bench->net, scenario, (unsigned)from, (unsigned)to, &bench->there, err);
    rc = rc == 0
             ? sim_net_way(&bench->net, scenario, (unsigned)to, (unsigned)from, &bench->back, err)
             : rc;
    return rc == 0 ? find_engine(bench, (unsigned)from, (unsigned)to, err) : rc;
}

static void bench_fini(struct bench *bench)
{
    sim_net_fini(&bench->net);
    sim_cost_fini(&bench->cost);
}

/* --- measuring: each from an idle fabric ------------------------------------------------------ */

static void done(void *object, uint64_t arg)
{
    (void)arg;
    struct bench *bench = object;
    bench->done_ps = bench->cost.now_ps;
}

static uint64_t software(const struct bench *bench, const char *key)
{
    return sim_scenario_ps(bench->scenario, "software", key);
}

static void left(void *object, uint64_t arg)
{
    (void)arg;
    struct bench *bench = object;
    bench->left_ps = bench->cost.now_ps;
}

static uint64_t pio_ps(struct bench *bench, uint64_t bytes, bool combined)
{
    struct sim_pio pio;
    sim_pio_init(&pio, &bench->net, bench->scenario);
    struct sim_pio_store store = {.pio = &pio,
                                  .path = &bench->there,
                                  .bytes = bytes,
                                  .combined = combined,
                                  .stored = {left, bench, 0},
                                  .arrived = {done, bench, 0}};
    sim_pio_start(&store);
    sim_cost_run(&bench->cost, EVENTS_MAX);
    sim_pio_fini(&pio);
    return bench->done_ps;
}

static uint64_t read_ps(struct bench *bench)
{
    sim_net_read(&bench->net, &bench->there, &bench->back, WORD_BYTES,
                 (struct sim_call){done, bench, 0});
    sim_cost_run(&bench->cost, EVENTS_MAX);
    return bench->done_ps + software(bench, "register_read");
}

/* The engine is started by stores, and its completion polled in a register. */
static uint64_t dma_ps(struct bench *bench, uint64_t bytes)
{
    struct sim_dma dma;
    const struct sim_dma_transfer transfer = {.to_source = &bench->engine_to_source,
                                              .from_source = &bench->source_to_engine,
                                              .to_target = &bench->engine_to_target,
                                              .bytes = bytes,
                                              .done = {done, bench, 0}};
    sim_dma_init(&dma, &bench->net, bench->scenario, bench->engine);
    sim_dma_start(&dma, 0, &transfer);
    sim_cost_run(&bench->cost, EVENTS_MAX);
    uint64_t moved_ps = bench->done_ps;
    sim_net_read(&bench->net, &bench->source_to_engine, &bench->engine_to_source, 4,
                 (struct sim_call){done, bench, 0});
    sim_cost_run(&bench->cost, EVENTS_MAX);
    sim_dma_fini(&dma);
    return moved_ps + DMA_STORES * software(bench, "register_store") + (bench->done_ps - moved_ps) +
           software(bench, "register_read");
}

static int measure(const struct sim_scenario *scenario, const struct options *options,
                   enum kind kind, uint64_t bytes, struct took *ret_took, struct via_error *err)
{
    struct bench bench;
    int rc = bench_init(&bench, scenario, options, err);
    if (rc == 0) {
        ret_took->ps = kind == READ  ? read_ps(&bench)
                       : kind == DMA ? dma_ps(&bench, bytes)
                                     : pio_ps(&bench, bytes, kind != UNCACHED);
        ret_took->left_ps = bench.left_ps;
    }
    bench_fini(&bench);
    return rc;
}

/* Where the sizes of a table begin and end, each twice the one before. */
static const struct {
    const char *title;
    uint64_t bytes_min, bytes_max;
} tables[KINDS] = {
    [PIO] = {"write-combined stores", 64, UINT64_C(4) << 20},
    [UNCACHED] = {"uncached stores", 8, UINT64_C(64) << 10},
    [DMA] = {"DMA, one channel, one transfer at a time", 512, UINT64_C(4) << 20},
};

static int print_sizes(const struct sim_scenario *scenario, const struct options *options,
                       enum kind kind, struct via_error *err)
{
    bool stores = kind != DMA;
    printf("%s\n%12s %12s %12s%s\n", tables[kind].title, "bytes", stores ? "seen, us" : "us",
           "MB/s", stores ? "     left, us" : "");
    int rc = 0;
    for (uint64_t bytes = tables[kind].bytes_min; rc == 0 && bytes <= tables[kind].bytes_max;
         bytes *= 2) {
        struct took took;
        rc = measure(scenario, options, kind, bytes, &took, err);
        if (rc == 0) {
            printf("%12llu %12.3f %12.1f", (unsigned long long)bytes, (double)took.ps / 1e6,
                   (double)bytes * 1e6 / (double)took.ps);
            stores ? printf(" %12.3f\n", (double)took.left_ps / 1e6) : putchar('\n');
        }
    }
    return rc;
}

static int print_word(const struct sim_scenario *scenario, const struct options *options,
                      enum kind kind, struct via_error *err)
{
    struct took took;
    int rc = measure(scenario, options, kind, WORD_BYTES, &took, err);
    if (rc == 0 && kind == PINGPONG) {
        printf("one way    %9.3f us: a stored word until it is seen\nround trip %9.3f us\n",
               (double)took.ps / 1e6, (double)took.ps / 5e5);
    } else if (rc == 0) {
        printf("read       %9.3f us: a loaded word\n", (double)took.ps / 1e6);
    }
    return rc;
}

static int run(struct options *options)
{
    struct via_error err = {0};
    char path[PATH_MAX];
    struct sim_scenario *scenario = sim_alloc(sizeof(*scenario));
    sim_share_path(path, sizeof(path), "scenarios/parts.ini");
    int rc = sim_scenario_load(options->file, options->parts != NULL ? options->parts : path,
                               sections, VIA_ARRAY_COUNT(sections), scenario, &err);
    bool any = false;
    for (unsigned i = 0; i < KINDS; i++) {
        any = any || options->wants[i];
    }
    bool has_engine = rc == 0 && sim_scenario_instance(scenario, "dma", 0) != NULL;
    if (rc == 0 && options->wants[DMA] && !has_engine) {
        rc = via_error_set(&err, -EINVAL, "%.200s: --dma needs an engine, [dma NODE]",
                           options->file);
    }
    for (unsigned i = 0; rc == 0 && i < KINDS; i++) {
        if (options->wants[i] || (!any && (i != DMA || has_engine))) {
            rc = i <= READ ? print_word(scenario, options, (enum kind)i, &err)
                           : print_sizes(scenario, options, (enum kind)i, &err);
        }
    }
    free(scenario);
    return rc == 0 ? 0 : fail(&err);
}

int sim_measure_main(int argc, char **argv)
{
    static const struct option longs[] = {
        {"pingpong", no_argument, NULL, PINGPONG}, {"read", no_argument, NULL, READ},
        {"pio", no_argument, NULL, PIO},           {"uncached", no_argument, NULL, UNCACHED},
        {"dma", no_argument, NULL, DMA},           {"from", required_argument, NULL, 'f'},
        {"to", required_argument, NULL, 't'},      {"parts", required_argument, NULL, 'p'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0},
    };
    struct options options = {0};
    optind = 0;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":", longs, NULL)) != -1;) {
        if (option < KINDS) {
            options.wants[option] = true;
        } else if (option == 'f') {
            options.from = optarg;
        } else if (option == 't') {
            options.to = optarg;
        } else if (option == 'p') {
            options.parts = optarg;
        } else if (option == 'h') {
            fputs(usage_text, stdout);
            return 0;
        } else {
            return bad_usage(option == ':' ? "needs a value:" : "unknown option", argv[optind - 1]);
        }
    }
    if (argc - optind != 1) {
        return argc == optind ? bad_usage("which one?", "FILE")
                              : bad_usage("one scenario at a time:", argv[optind + 1]);
    }
    options.file = argv[optind];
    return run(&options);
}
