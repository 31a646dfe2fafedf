/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* System A's figures. What happens in a write: stream.c. */
#include <errno.h>
#include <math.h>

#include "base/types.h"
#include "sim/paper/papers.h"
#include "sim/paper/stream.h"

static const struct sim_section *const sections[] = {
    &sim_net_sections[0], &sim_net_sections[1], &sim_net_sections[2],  &sim_net_sections[3],
    &sim_net_sections[4], &sim_net_sections[5], &sim_dma_section,      &sim_cpu_section,
    &sim_memory_section,  &sim_stream_section,  &sim_ethernet_section,
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

/* Every fourth size from 64 B on, and two of Ethernet's, which has one parameter. */
static bool is_fitted(uint64_t bytes)
{
    return bytes == 64 || bytes == 512 || bytes == 4096 || bytes == 16384 || bytes == 65536 ||
           bytes == 262144 || bytes == 1048576 || bytes == 4194304;
}

static bool is_fitted_tcp(uint64_t bytes)
{
    return bytes == 16 || bytes == 64;
}

/* Below 64 B the paper has two digits and less, and its one byte is off the line of the others. */
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

static void pcie_column(const struct sim_scenario *scenario, struct sim_report *report)
{
    for (size_t i = 0; i < VIA_ARRAY_COUNT(column); i++) {
        enum sim_role role = is_fitted(column[i].bytes) ? SIM_FIT : SIM_JUDGED;
        if (sim_report_wants(report, role)) {
            struct sim_stream_result result;
            sim_stream_run(scenario, SIM_STREAM_POLLING, column[i].bytes, &result);
            add(report, "Bandwidth over PCIe", "polling", column[i].bytes, column[i].pcie,
                result.rate / 1e6, role, bound_of(column[i].bytes));
        }
    }
}

static void tcp_column(const struct sim_scenario *scenario, struct sim_report *report)
{
    for (size_t i = 0; i < VIA_ARRAY_COUNT(column); i++) {
        enum sim_role role = is_fitted_tcp(column[i].bytes) ? SIM_FIT : SIM_JUDGED;
        if (sim_report_wants(report, role)) {
            add(report, "Bandwidth over Ethernet", "TCP", column[i].bytes, column[i].tcp,
                sim_ethernet_run(scenario, column[i].bytes) / 1e6, role,
                fmax(0.07, bound_of(column[i].bytes)));
        }
    }
}

/* What its authors hoped for: nobody polls for completion, and the receiver says when a buffer is
 * free, so that there may be two. */
static void doorbell_column(const struct sim_scenario *scenario, struct sim_report *report)
{
    static const char *const labels[] = {"polling", "doorbell"};
    struct sim_stream_result results[VIA_ARRAY_COUNT(column)][2];
    for (size_t i = 0; i < VIA_ARRAY_COUNT(column); i++) {
        sim_stream_run(scenario, SIM_STREAM_POLLING, column[i].bytes, &results[i][0]);
        sim_stream_run(scenario, SIM_STREAM_DOORBELL, column[i].bytes, &results[i][1]);
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
         .role = SIM_JUDGED},
        {.label = "PCIe latency",
         .unit = "us",
         .paper = 1,
         .low = 0.5,
         .high = 1.5,
         .model = sim_stream_latency(scenario) * 1e6,
         .role = SIM_JUDGED},
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
    pcie_column(scenario, report);
    tcp_column(scenario, report);
    if (sim_report_wants(report, SIM_JUDGED)) {
        doorbell_column(scenario, report);
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
    .run = run,
};
