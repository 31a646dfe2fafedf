/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * System E: a core stores into a device's BAR, write-combined or uncached, against the device's DMA
 * engine that reads from the host. Time is measured as there: rdtscp before and after, its own cost
 * subtracted. Lines follow each other without a fence between them: the paper says that pipelining
 * may happen implicitly.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/types.h"
#include "sim/cost/pio.h"
#include "sim/memory.h"
#include "sim/paper/engine.h"
#include "sim/paper/papers.h"

#define SUSTAINED_BYTES (UINT64_C(1) << 18)
#define CROSSOVER_BYTES_MAX UINT64_C(32768)
#define EVENTS_MAX UINT64_C(10000000)

static const struct sim_key method_keys[] = {
    {"timer", SIM_TIME, 0, 1e6, NULL},    /* of rdtscp, subtracted from the result */
    {"describe", SIM_TIME, 0, 1e7, NULL}, /* writing a descriptor into memory */
    {"notice", SIM_TIME, 0, 1e7, NULL},   /* until the change of a polled word is seen */
};
static const struct sim_section method = {"method", false, method_keys,
                                          VIA_ARRAY_COUNT(method_keys)};

static const struct sim_section *const sections[] = {
    &sim_net_sections[0], &sim_net_sections[1], &sim_net_sections[2],
    &sim_net_sections[3], &sim_net_sections[4], &sim_net_sections[5],
    &sim_pio_section,     &sim_dma_section,     &method,
};

enum way { COMBINED, UNCACHED, ENGINE };

struct bench {
    struct sim_engine engine;
    struct sim_pio pio;
    struct sim_pio_store store;
    uint64_t bytes;
};

static int bench_init(struct bench *bench, const struct sim_scenario *scenario,
                      struct via_error *err)
{
    *bench = (struct bench){.bytes = 0};
    int rc = sim_engine_init(&bench->engine, scenario, "xeon", "kintex", "dma kintex",
                             sim_scenario_ps(scenario, "method", "notice"), err);
    if (rc == 0) {
        sim_pio_init(&bench->pio, &bench->engine.net, scenario);
    }
    return rc;
}

static void bench_fini(struct bench *bench)
{
    sim_pio_fini(&bench->pio);
    sim_engine_fini(&bench->engine);
}

/* The descriptor is written: a store rings. */
static void described(void *object, uint64_t arg)
{
    (void)arg;
    struct bench *bench = object;
    bench->store = (struct sim_pio_store){.pio = &bench->pio,
                                          .path = &bench->engine.to_device,
                                          .bytes = bench->pio.store_bytes,
                                          .arrived = sim_engine_rung(&bench->engine)};
    sim_pio_start(&bench->store);
}

/* --- measuring ------------------------------------------------------------------------------- */

/* MB/s of one transfer from idle. */
static double measure(const struct sim_scenario *scenario, enum way way, uint64_t bytes)
{
    struct bench bench;
    struct via_error err = {0};
    if (bench_init(&bench, scenario, &err) != 0) {
        abort(); /* validated before */
    }
    bench.bytes = bytes;
    if (way == ENGINE) {
        sim_engine_prepare(&bench.engine, true, bytes);
        sim_cost_after(&bench.engine.cost, sim_scenario_ps(scenario, "method", "describe"),
                       (struct sim_call){described, &bench, 0});
    } else {
        bench.store = (struct sim_pio_store){.pio = &bench.pio,
                                             .path = &bench.engine.to_device,
                                             .bytes = bytes,
                                             .combined = way == COMBINED,
                                             .stored = sim_engine_done(&bench.engine)};
        sim_pio_start(&bench.store);
    }
    sim_cost_run(&bench.engine.cost, EVENTS_MAX);
    uint64_t elapsed_ps = bench.engine.done_ps;
    bench_fini(&bench);
    return (double)bytes * 1e6 / (double)elapsed_ps;
}

/* Bytes at which DMA is as fast as stores, lines apart. */
static double crossover(const struct sim_scenario *scenario, enum way way)
{
    for (uint64_t bytes = 64; bytes <= CROSSOVER_BYTES_MAX; bytes += 64) {
        if (measure(scenario, ENGINE, bytes) >= measure(scenario, way, bytes)) {
            return (double)bytes;
        }
    }
    return INFINITY;
}

/* The size of the best rate, the largest of those that differ by less than 0.1 %. */
static double best_bytes(const struct sim_scenario *scenario, enum way way)
{
    uint64_t best = 0;
    double best_rate = 0;
    for (uint64_t bytes = 8; bytes <= SUSTAINED_BYTES; bytes *= 2) {
        double rate = measure(scenario, way, bytes);
        best = rate >= best_rate * 0.999 ? bytes : best;
        best_rate = fmax(rate, best_rate);
    }
    return (double)best;
}

/* --- the figures ----------------------------------------------------------------------------- */

static const char sizes[] = "Rate by size";
static const char singles[] = "Limits and thresholds";
static const char *const labels[] = {"write-combined", "uncached", "DMA"};

/* The sizes for which the paper has a rate. "Sustained" is above 64 KB write-combined, above 512 B
 * uncached. */
static const struct {
    enum way way;
    uint64_t bytes;
    double paper;
    enum sim_role role;
    double bound;
} rates[] = {
    {COMBINED, 64, 2490, SIM_HELD, 0.03},
    {COMBINED, 65536, 665, SIM_HELD, 0.05},
    {COMBINED, SUSTAINED_BYTES, 665, SIM_FIT, 0.03},
    {UNCACHED, 32, 1182, SIM_FIT, 0.03},
    {UNCACHED, 512, 60, SIM_HELD, 0.10},
    {UNCACHED, SUSTAINED_BYTES, 60, SIM_FIT, 0.03},
};

static void stated_rates(const struct sim_scenario *scenario, struct sim_report *report)
{
    for (size_t i = 0; i < VIA_ARRAY_COUNT(rates); i++) {
        if (sim_report_is_wanted(report, rates[i].role)) {
            sim_report_within(
                report,
                &(struct sim_row){.series = sizes,
                                  .label = labels[rates[i].way],
                                  .x = (double)rates[i].bytes,
                                  .x_unit = "B",
                                  .unit = "MB/s",
                                  .paper = rates[i].paper,
                                  .model = measure(scenario, rates[i].way, rates[i].bytes),
                                  .role = rates[i].role},
                rates[i].bound);
        }
    }
}

static bool is_stated(enum way way, uint64_t bytes)
{
    for (size_t i = 0; i < VIA_ARRAY_COUNT(rates); i++) {
        if (rates[i].way == way && rates[i].bytes == bytes) {
            return true;
        }
    }
    return false;
}

static void predicted_rates(const struct sim_scenario *scenario, struct sim_report *report,
                            const char *label, enum way way, bool stated)
{
    for (uint64_t bytes = 8; bytes <= SUSTAINED_BYTES; bytes *= 2) {
        if (stated && is_stated(way, bytes)) {
            continue;
        }
        sim_report_add(report, &(struct sim_row){.series = sizes,
                                                 .label = label,
                                                 .x = (double)bytes,
                                                 .x_unit = "B",
                                                 .unit = "MB/s",
                                                 .paper = NAN,
                                                 .model = measure(scenario, way, bytes),
                                                 .role = SIM_PREDICTED});
    }
}

/* All other sizes, DMA, and the authors' proposals: an endpoint that is not the limit, and a link
 * of the next generation. */
static void other_rates(const struct sim_scenario *scenario, struct sim_report *report)
{
    for (enum way way = COMBINED; way <= ENGINE; way++) {
        predicted_rates(scenario, report, labels[way], way, true);
    }
    struct sim_scenario *changed = sim_alloc(sizeof(*changed));
    *changed = *scenario;
    sim_scenario_find(changed, "device kintex", "drain")->number = 0;
    predicted_rates(changed, report, "no drain", COMBINED, false);
    sim_scenario_find(changed, "link slot", "generation")->number = 3;
    predicted_rates(changed, report, "no drain, Gen3", COMBINED, false);
    free(changed);
}

static void add_single(struct sim_report *report, const char *label, const char *unit, double paper,
                       double model, double bound, bool claim)
{
    sim_report_within(report,
                      &(struct sim_row){.series = singles,
                                        .label = label,
                                        .x = NAN,
                                        .x_unit = "",
                                        .unit = unit,
                                        .paper = paper,
                                        .model = model,
                                        .role = SIM_HELD,
                                        .claim = claim},
                      bound);
}

static void thresholds(const struct sim_scenario *scenario, struct sim_report *report)
{
    const struct sim_pcie_link link = {
        .generation = (unsigned)sim_scenario_count(scenario, "link slot", "generation"),
        .lanes = (unsigned)sim_scenario_count(scenario, "link slot", "lanes"),
        .mps_bytes = (unsigned)sim_scenario_count(scenario, "link slot", "mps")};
    unsigned header = (unsigned)sim_scenario_count(scenario, "pcie", "write_header");
    add_single(report, "usable at 64 B", "MB/s", 2880,
               64e6 / (double)sim_pcie_ps(sim_pcie_tlp_bandwidth(&link), 1, 64, header), 0.02,
               true);
    add_single(report, "best write-combined", "B", 64, best_bytes(scenario, COMBINED), 0, false);
    add_single(report, "DMA is faster from", "B", 4096, crossover(scenario, COMBINED), 0.15, true);
}

static int run(const struct sim_scenario *scenario, struct sim_report *report,
               struct via_error *err)
{
    struct bench bench;
    int rc = bench_init(&bench, scenario, err);
    bench_fini(&bench);
    if (rc != 0) {
        return rc;
    }
    stated_rates(scenario, report);
    if (sim_report_is_wanted(report, SIM_PREDICTED)) {
        other_rates(scenario, report);
    }
    if (sim_report_is_wanted(report, SIM_HELD)) {
        thresholds(scenario, report);
    }
    return 0;
}

const struct sim_paper sim_paper_e = {
    .letter = 'E',
    .title = "Write-combined programmed I/O (2015): Xeon E5-2650 v2, Kintex-7, Gen2 x8",
    .scenario = "paper-e.ini",
    .sections = sections,
    .sections_count = VIA_ARRAY_COUNT(sections),
    .run = run,
};
