/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * System C: copies between a host's memory and a device, which is in a slot of the host or in an
 * expansion box behind two adapter cards and a cable. The device's engine copies: the host rings,
 * the engine fetches its command and moves the data, then writes a word that the host polls.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "sim/paper/engine.h"
#include "sim/paper/papers.h"

#define EVENTS_MAX UINT64_C(10000000)

static const struct sim_key copy_keys[] = {
    {"launch", SIM_TIME, 0, 1e9, NULL}, /* from the call until the doorbell is stored */
    {"notice", SIM_TIME, 0, 1e9, NULL}, /* from the word in memory until the call returns */
};
static const struct sim_section copy = {"copy", false, copy_keys, VIA_ARRAY_COUNT(copy_keys)};

static const struct sim_section *const sections[] = {
    &sim_net_sections[0], &sim_net_sections[1], &sim_net_sections[2], &sim_net_sections[3],
    &sim_net_sections[4], &sim_net_sections[5], &sim_dma_section,     &copy,
};

/* --- one copy -------------------------------------------------------------------------------- */

static int engine_init(struct sim_engine *engine, const struct sim_scenario *scenario,
                       const char *device, struct via_error *err)
{
    return sim_engine_init(engine, scenario, "host", device, "dma gpu",
                           sim_scenario_ps(scenario, "copy", "notice"), err);
}

static void launched(void *object, uint64_t arg)
{
    (void)arg;
    struct sim_engine *engine = object;
    sim_net_post(&engine->net, &(struct sim_post){.path = &engine->to_device,
                                                  .bytes = 4,
                                                  .arrived = sim_engine_rung(engine)});
}

/* Bandwidth of one call that copies that many bytes, in MB/s. */
static double measure(const struct sim_scenario *scenario, const char *device, bool to_device,
                      uint64_t bytes)
{
    struct sim_engine engine;
    struct via_error err = {0};
    if (engine_init(&engine, scenario, device, &err) != 0) {
        abort(); /* validated before */
    }
    sim_engine_prepare(&engine, to_device, bytes);
    sim_cost_after(&engine.cost, sim_scenario_ps(scenario, "copy", "launch"),
                   (struct sim_call){launched, &engine, 0});
    sim_cost_run(&engine.cost, EVENTS_MAX);
    sim_engine_fini(&engine);
    return (double)bytes * 1e6 / (double)engine.done_ps;
}

/* --- the figures ----------------------------------------------------------------------------- */

#define SIZES_COUNT 14u
static const uint64_t sizes[SIZES_COUNT] = {1000,   4000,   10000,  20000,  50000,
                                            100000, 200000, 300000, 400000, 500000,
                                            600000, 800000, 900000, 1000000};

static const char *const devices[] = {"local", "optical-x16", "copper-x16", "optical-x8",
                                      "copper-x8"};
enum { LOCAL, OPTICAL_X16, COPPER_X16, OPTICAL_X8, COPPER_X8, DEVICES_COUNT };

struct curves {
    double rate[2][DEVICES_COUNT][SIZES_COUNT]; /* [1]: to the device */
};

static double at(const struct curves *curves, bool to_device, unsigned device, uint64_t bytes)
{
    for (unsigned i = 0; i < SIZES_COUNT; i++) {
        if (sizes[i] == bytes) {
            return curves->rate[to_device][device][i];
        }
    }
    abort();
}

/* The x16 card against the slot: 98.5 % at 0.9 to 1 MB; up to 400 kB the slot's advantage is larger
 * than that. */
static void card_against_slot(const struct curves *curves, struct sim_report *report)
{
    static const char series[] = "x16 card against local slot";
    static const uint64_t points[] = {100000, 200000, 400000, 900000, 1000000};
    for (int to_device = 1; to_device >= 0; to_device--) {
        for (size_t i = 0; i < VIA_ARRAY_COUNT(points); i++) {
            bool end = points[i] >= 900000;
            sim_report_add(report,
                           &(struct sim_row){
                               .series = series,
                               .label = to_device ? "host to device" : "device to host",
                               .x = (double)points[i] / 1000,
                               .x_unit = "kB",
                               .unit = "%",
                               .paper = end ? 98.5 : NAN,
                               .low = end ? 97.8 : 0,
                               .high = end ? 99.2 : 98.1,
                               .model = 100 * at(curves, to_device, OPTICAL_X16, points[i]) /
                                        at(curves, to_device, LOCAL, points[i]),
                               .role = SIM_HELD,
                           });
        }
    }
}

/* "The same at every size": the size where they differ most. */
static void optical_against_copper(const struct curves *curves, struct sim_report *report)
{
    static const char series[] = "Optical card against copper card";
    static const struct {
        unsigned optical, copper;
        const char *labels[2];
    } pairs[] = {
        {OPTICAL_X16, COPPER_X16, {"x16, device to host", "x16, host to device"}},
        {OPTICAL_X8, COPPER_X8, {"x8, device to host", "x8, host to device"}},
    };
    for (size_t pair = 0; pair < VIA_ARRAY_COUNT(pairs); pair++) {
        for (int to_device = 1; to_device >= 0; to_device--) {
            double worst = 1;
            unsigned where = 0;
            for (unsigned i = 0; i < SIZES_COUNT; i++) {
                double ratio = curves->rate[to_device][pairs[pair].optical][i] /
                               curves->rate[to_device][pairs[pair].copper][i];
                where = fabs(ratio - 1) > fabs(worst - 1) ? i : where;
                worst = fabs(ratio - 1) > fabs(worst - 1) ? ratio : worst;
            }
            sim_report_within(report,
                              &(struct sim_row){.series = series,
                                                .label = pairs[pair].labels[to_device],
                                                .x = (double)sizes[where] / 1000,
                                                .x_unit = "kB",
                                                .unit = "%",
                                                .paper = 100,
                                                .model = 100 * worst,
                                                .role = SIM_HELD},
                              0.01);
        }
    }
}

static void curves_themselves(const struct curves *curves, struct sim_report *report)
{
    for (int to_device = 1; to_device >= 0; to_device--) {
        for (unsigned i = 0; i < SIZES_COUNT; i++) {
            for (unsigned device = 0; device < DEVICES_COUNT; device++) {
                sim_report_add(report,
                               &(struct sim_row){
                                   .series = to_device ? "Host to device" : "Device to host",
                                   .label = devices[device],
                                   .x = (double)sizes[i] / 1000,
                                   .x_unit = "kB",
                                   .unit = "MB/s",
                                   .paper = NAN,
                                   .model = curves->rate[to_device][device][i],
                                   .role = SIM_PREDICTED,
                               });
            }
        }
    }
}

static int run(const struct sim_scenario *scenario, struct sim_report *report,
               struct via_error *err)
{
    struct curves curves;
    for (unsigned device = 0; device < DEVICES_COUNT; device++) {
        struct sim_engine engine;
        int rc = engine_init(&engine, scenario, devices[device], err);
        sim_engine_fini(&engine);
        if (rc != 0) {
            return rc;
        }
        for (unsigned i = 0; i < SIZES_COUNT; i++) {
            curves.rate[0][device][i] = measure(scenario, devices[device], false, sizes[i]);
            curves.rate[1][device][i] = measure(scenario, devices[device], true, sizes[i]);
        }
    }
    card_against_slot(&curves, report);
    optical_against_copper(&curves, report);
    curves_themselves(&curves, report);
    return 0;
}

const struct sim_paper sim_paper_c = {
    .letter = 'C',
    .title =
        "Adapter cards with on-board optics (2018): a device in a slot and in an expansion box",
    .scenario = "paper-c.ini",
    .sections = sections,
    .sections_count = VIA_ARRAY_COUNT(sections),
    .run = run,
};
