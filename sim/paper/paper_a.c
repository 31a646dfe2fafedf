/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* System A's figures. stream.c models a write. */
#include <errno.h>
#include <math.h>

#include "base/types.h"
#include "sim/paper/papers.h"
#include "sim/paper/stream.h"

static const struct sim_section *const sections[] = {
    &sim_net_sections[0], &sim_net_sections[1], &sim_net_sections[2],  &sim_net_sections[3],
    &sim_net_sections[4], &sim_net_sections[5], &sim_dma_section,      &sim_cpu_section,
    &sim_memory_section,  &sim_stream_section,  &sim_software_section,
};

/* iperf 2.0.5, MB/s by bytes a write. */
static const struct {
    uint64_t bytes;
    double pcie, tcp;
} column[] = {
    {1, 0.06, 0.07},       {2, 0.13, 0.13},       {4, 0.26, 0.26},       {8, 0.51, 0.53},
    {16, 1.02, 1.06},      {32, 2.09, 2.11},      {64, 4.12, 4.23},      {128, 8.21, 8.46},
    {256, 16.4, 11.2},     {512, 32.9, 11.2},     {1024, 64.7, 11.2},    {2048, 132, 11.2},
    {4096, 230, 11.2},     {8192, 376, 11.2},     {16384, 547, 11.2},    {32768, 734, 11.2},
    {65536, 876, 11.2},    {131072, 971, 11.2},   {262144, 1025, 11.2},  {524288, 1054, 11.2},
    {1048576, 1071, 11.2}, {2097152, 1080, 11.2}, {4194304, 1084, 11.2},
};

#define STEPS 5u /* of a run: sim_paper.steps */

/* The fit uses eight sizes from 64 B on. */
static bool is_fitted(uint64_t bytes)
{
    return bytes == 64 || bytes == 512 || bytes == 4096 || bytes == 16384 || bytes == 65536 ||
           bytes == 262144 || bytes == 1048576 || bytes == 4194304;
}

/* Below 64 B the paper gives two digits or less, and its value for one byte is not on the line of
 * the others. */
static double bound_of(uint64_t bytes)
{
    return bytes >= 8192 ? 0.03 : bytes >= 64 ? 0.07 : 0.15;
}

static void add(struct sim_report *report, const char *series, const char *label, uint64_t bytes,
                double paper, double model, enum sim_role role, double bound)
{
    sim_report_within(report,
                      &(struct sim_row){.series = series,
                                        .label = label,
                                        .x = (double)bytes,
                                        .x_unit = "B",
                                        .unit = "MB/s",
                                        .paper = paper,
                                        .model = model,
                                        .role = role},
                      bound);
}

/* rates: MB/s for the sizes of the column, where they are needed. */
static void pcie_column(const struct sim_scenario *scenario, struct sim_report *report,
                        double *rates)
{
    for (size_t i = 0; i < VIA_ARRAY_COUNT(column); i++) {
        enum sim_role role = is_fitted(column[i].bytes) ? SIM_FIT : SIM_HELD;
        if (sim_report_is_wanted(report, role)) {
            struct sim_stream_result result;
            sim_stream_run(scenario, SIM_STREAM_POLLING, column[i].bytes, &result);
            rates[i] = result.rate / 1e6;
            sim_report_step(report, STEPS);
            add(report, "Bandwidth over PCIe", "polling", column[i].bytes, column[i].pcie, rates[i],
                role, bound_of(column[i].bytes));
        }
    }
}

/* --- a line through the column: size / (t0 + size / B) ---------------------------------------- */

struct line {
    double t0_us, rate; /* MB/s, that is, bytes per microsecond */
};

static double line_at(const struct line *line, double bytes)
{
    return bytes / (line->t0_us + bytes / line->rate);
}

/* Least squares in MB/s, by Gauss and Newton. */
static struct line line_through(const double *rates)
{
    struct line line = {.t0_us = 10, .rate = 1000};
    for (unsigned round = 0; round < 50; round++) {
        double tt = 0, tr = 0, rr = 0, t = 0, r = 0;
        for (size_t i = 0; i < VIA_ARRAY_COUNT(column); i++) {
            double bytes = (double)column[i].bytes;
            double y = line_at(&line, bytes);
            double by_t0 = -y * y / bytes;
            double by_rate = y * y / (line.rate * line.rate);
            double error = rates[i] - y;
            tt += by_t0 * by_t0;
            tr += by_t0 * by_rate;
            rr += by_rate * by_rate;
            t += by_t0 * error;
            r += by_rate * error;
        }
        double determinant = tt * rr - tr * tr;
        line.t0_us += (t * rr - r * tr) / determinant;
        line.rate += (tt * r - tr * t) / determinant;
    }
    return line;
}

/* How far the line lies from its points, in per cent: at the point where the paper's line is
 * farthest, and within the uncertainty of the points. */
static void line_rows(const double *rates, struct sim_report *report)
{
    static const struct {
        uint64_t bytes;
        double paper;
    } points[] = {{64, 6.8}, {1024, 2.6}, {4096, -2.5}};
    const struct line line = line_through(rates);
    struct sim_row row = {.x = NAN, .x_unit = "", .role = SIM_HELD};
    row.series = "Line size/(t0 + size/B) through the column";
    row.label = "t0";
    row.unit = "us";
    row.paper = 14.49;
    row.model = line.t0_us;
    row.claim = true;
    sim_report_within(report, &row, 0.1);
    row.label = "B";
    row.unit = "MB/s";
    row.paper = 1086.7;
    row.model = line.rate;
    sim_report_within(report, &row, 0.1);
    row.claim = false;
    double worst = 0;
    row.series = "How far that line is off";
    row.unit = "%";
    for (size_t i = 0; i < VIA_ARRAY_COUNT(column); i++) {
        double off = 100 * (line_at(&line, (double)column[i].bytes) / rates[i] - 1);
        worst = column[i].bytes >= 8192 ? fmax(worst, fabs(off)) : worst;
        for (size_t k = 0; k < VIA_ARRAY_COUNT(points); k++) {
            if (points[k].bytes == column[i].bytes) {
                row.label = "at a size";
                row.x = (double)points[k].bytes;
                row.x_unit = "B";
                row.paper = points[k].paper;
                row.low = row.paper - 100 * bound_of(column[i].bytes);
                row.high = row.paper + 100 * bound_of(column[i].bytes);
                row.model = off;
                sim_report_add(report, &row);
            }
        }
    }
    row.label = "at most from 8 KiB";
    row.x = 8192;
    row.paper = 1.3;
    row.low = 0;
    row.high = row.paper + 100 * bound_of(8192);
    row.model = worst;
    sim_report_add(report, &row);
}

/* The capacity of fast Ethernet is outside the model. */
static void tcp_column(struct sim_report *report)
{
    for (size_t i = 0; i < VIA_ARRAY_COUNT(column); i++) {
        sim_report_add(report, &(struct sim_row){.series = "Bandwidth over Ethernet",
                                                 .label = "TCP",
                                                 .x = (double)column[i].bytes,
                                                 .x_unit = "B",
                                                 .unit = "MB/s",
                                                 .paper = column[i].tcp,
                                                 .model = NAN,
                                                 .role = SIM_QUOTED});
    }
}

/* The authors' proposal: no process polls for completion, and the receiver reports free buffers, so
 * that there may be two. */
static void doorbell_column(const struct sim_scenario *scenario, struct sim_report *report)
{
    static const char *const labels[] = {"polling", "doorbell"};
    struct sim_stream_result results[VIA_ARRAY_COUNT(column)][2];
    for (size_t i = 0; i < VIA_ARRAY_COUNT(column); i++) {
        sim_stream_run(scenario, SIM_STREAM_POLLING, column[i].bytes, &results[i][0]);
        sim_stream_run(scenario, SIM_STREAM_DOORBELL, column[i].bytes, &results[i][1]);
        sim_report_step(report, 2 * STEPS);
    }
    for (size_t k = 0; k < 4 * VIA_ARRAY_COUNT(column); k++) {
        size_t i = k / 2 % VIA_ARRAY_COUNT(column);
        const struct sim_stream_result *result = &results[i][k % 2];
        bool rate = k < 2 * VIA_ARRAY_COUNT(column);
        sim_report_add(report,
                       &(struct sim_row){.series = rate ? "Polling against doorbell"
                                                        : "Sender's processor time a write",
                                         .label = labels[k % 2],
                                         .x = (double)column[i].bytes,
                                         .x_unit = "B",
                                         .unit = rate ? "MB/s" : "us",
                                         .paper = NAN,
                                         .model = rate ? result->rate / 1e6 : result->cpu_ps / 1e6,
                                         .role = SIM_PREDICTED});
    }
}

/* The table that compares PCIe with Ethernet and InfiniBand. */
static void background(const struct sim_scenario *scenario, struct sim_report *report)
{
    double payload = sim_scenario_number(scenario, "link slot-a", "mps");
    double header = sim_scenario_number(scenario, "pcie", "write_header");
    const struct sim_row rows[] = {
        {.label = "PCIe efficiency",
         .unit = "%",
         .paper = 93,
         .low = 93 * 0.97,
         .high = 93 * 1.03,
         .model = 100 * payload / (payload + header),
         .role = SIM_HELD},
        {.label = "PCIe latency",
         .unit = "us",
         .paper = 1,
         .low = 0.5,
         .high = 1.5,
         .model = sim_stream_latency(scenario) * 1e6,
         .role = SIM_HELD},
        {.label = "Ethernet efficiency",
         .unit = "%",
         .paper = 86,
         .model = NAN,
         .role = SIM_QUOTED},
        {.label = "Ethernet latency", .unit = "us", .paper = 20, .model = NAN, .role = SIM_QUOTED},
        {.label = "InfiniBand effic.", .unit = "%", .paper = 88, .model = NAN, .role = SIM_QUOTED},
        {.label = "InfiniBand latency",
         .unit = "us",
         .paper = 1.5,
         .model = NAN,
         .role = SIM_QUOTED},
    };
    for (size_t i = 0; i < VIA_ARRAY_COUNT(rows); i++) {
        struct sim_row row = rows[i];
        row.series = "Background";
        row.x = NAN;
        row.x_unit = "";
        sim_report_add(report, &row);
    }
}

static int run(const struct sim_scenario *scenario, struct sim_report *report,
               struct via_error *err)
{
    int rc = sim_stream_check(scenario, err);
    if (rc != 0) {
        return rc;
    }
    double rates[VIA_ARRAY_COUNT(column)] = {0};
    pcie_column(scenario, report, rates);
    if (sim_report_is_wanted(report, SIM_HELD)) {
        line_rows(rates, report);
        if (sim_report_is_wanted(report, SIM_PREDICTED)) {
            doorbell_column(scenario, report);
            tcp_column(report);
        }
        background(scenario, report);
    }
    return 0;
}

const struct sim_paper sim_paper_a = {
    .letter = 'A',
    .title =
        "Sockets over a PCIe switch (2019): PEX8749 with NT ports, PEX8732 x8 adapters, i5-3470",
    .scenario = "paper-a.ini",
    .sections = sections,
    .sections_count = VIA_ARRAY_COUNT(sections),
    .steps = 3 * VIA_ARRAY_COUNT(column) * STEPS,
    .run = run,
};
