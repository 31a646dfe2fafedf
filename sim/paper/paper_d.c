/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* System D's figures: the Sockets Direct Protocol, buffered and without copies. */
#include <math.h>

#include "base/types.h"
#include "sim/paper/papers.h"
#include "sim/paper/sdp.h"

static const unsigned connections[] = {1, 2, 3, 4, 5, 6, 7, 8};
#define CONNECTIONS VIA_ARRAY_COUNT(connections)
#define STEPS 6u                    /* of two runs: sim_paper.steps */
#define STATED_AT (CONNECTIONS - 1) /* eight connections */

static double cpu(const struct sim_sdp_result *result)
{
    return (result->sender_cpu_percent + result->receiver_cpu_percent) / 2;
}

static void add_bandwidth(struct sim_report *report, const char *label,
                          const struct sim_sdp_result *results, double paper, enum sim_role role)
{
    for (size_t i = 0; i < CONNECTIONS; i++) {
        bool stated = i == STATED_AT;
        struct sim_row row = {
            .series = "bandwidth",
            .label = label,
            .x = connections[i],
            .x_unit = "conn.",
            .unit = "MB/s",
            .paper = stated ? paper : NAN,
            .model = results[i].bytes_per_s / 1e6,
            .role = stated ? role : SIM_PREDICTED,
        };
        if (sim_report_is_wanted(report, row.role)) {
            sim_report_within(report, &row, 0.05);
        }
    }
}

static void add_cpu(struct sim_report *report, const char *label,
                    const struct sim_sdp_result *results)
{
    for (size_t i = 0; i < CONNECTIONS; i++) {
        const struct sim_row row = {
            .series = "CPU of a host",
            .label = label,
            .x = connections[i],
            .x_unit = "conn.",
            .unit = "%",
            .paper = NAN,
            .model = cpu(&results[i]),
            .role = SIM_PREDICTED,
        };
        sim_report_add(report, &row);
    }
}

static int run_d(const struct sim_scenario *scenario, struct sim_report *report,
                 struct via_error *err)
{
    struct sim_sdp_result buffered[CONNECTIONS] = {0}, zero_copy[CONNECTIONS] = {0};
    (void)err;
    for (size_t i = 0; i < CONNECTIONS; i++) {
        if (i == STATED_AT || sim_report_is_wanted(report, SIM_PREDICTED)) {
            sim_sdp_run(scenario, connections[i], false, &buffered[i]);
        }
        if (sim_report_is_wanted(report, SIM_HELD)) {
            sim_sdp_run(scenario, connections[i], true, &zero_copy[i]);
            sim_report_step(report, STEPS);
        }
    }
    add_bandwidth(report, "buffered", buffered, 630, SIM_FIT);
    add_bandwidth(report, "zero copy", zero_copy, 1360, SIM_HELD);
    const struct sim_row gain = {
        .series = "bandwidth, zero copy against buffered",
        .label = "more by",
        .x = connections[STATED_AT],
        .x_unit = "conn.",
        .unit = "times",
        .paper = 1360.0 / 630,
        .model = zero_copy[STATED_AT].bytes_per_s / buffered[STATED_AT].bytes_per_s,
        .role = SIM_HELD,
        .claim = true,
    };
    if (sim_report_is_wanted(report, SIM_HELD)) {
        sim_report_within(report, &gain, 0.2);
    }
    if (sim_report_is_wanted(report, SIM_HELD)) {
        /* "About tenfold". */
        const struct sim_row row = {
            .series = "CPU, buffered against zero copy",
            .label = "less by",
            .x = connections[STATED_AT],
            .x_unit = "conn.",
            .unit = "times",
            .paper = 10,
            .low = 8,
            .high = 12,
            .model = cpu(&buffered[STATED_AT]) / cpu(&zero_copy[STATED_AT]),
            .role = SIM_HELD,
        };
        sim_report_add(report, &row);
        add_cpu(report, "buffered", buffered);
        add_cpu(report, "zero copy", zero_copy);
    }
    return 0;
}

static const struct sim_section *const sections[] = {&sim_cpu_section, &sim_memory_section,
                                                     &sim_sdp_section};

const struct sim_paper sim_paper_d = {
    .letter = 'D',
    .title = "Zero-copy Sockets Direct Protocol (2005)",
    .scenario = "paper-d.ini",
    .sections = sections,
    .sections_count = VIA_ARRAY_COUNT(sections),
    .steps = CONNECTIONS * STEPS,
    .run = run_d,
};
