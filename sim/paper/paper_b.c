/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* System B's figures: OpenSHMEM over a ring of hosts without a switch. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/types.h"
#include "sim/memory.h"
#include "sim/paper/papers.h"
#include "sim/paper/ring.h"

#define KIB 1024u
#define MIB (1024u * 1024)

static const unsigned hosts[] = {3, 4, 5};
static const unsigned threads[] = {1, 2, 4, 8};
/* The fit uses three sizes: the smallest, the largest, and one between. */
static const struct {
    uint64_t bytes;
    bool fit;
} sizes[] = {
    {4 * KIB, true},    {8 * KIB, false},   {16 * KIB, false},  {32 * KIB, false}, {64 * KIB, true},
    {128 * KIB, false}, {256 * KIB, false}, {512 * KIB, false}, {MIB, true},
};
#define HOSTS VIA_ARRAY_COUNT(hosts)
#define THREADS VIA_ARRAY_COUNT(threads)
#define SIZES VIA_ARRAY_COUNT(sizes)

static const char *const hosts_names[HOSTS] = {"3 hosts", "4 hosts", "5 hosts"};
static const char *const hosts_steps[HOSTS - 1][THREADS] = {
    {"3-4 hosts, 1 thread", "3-4 hosts, 2 threads", "3-4 hosts, 4 threads", "3-4 hosts, 8 threads"},
    {"4-5 hosts, 1 thread", "4-5 hosts, 2 threads", "4-5 hosts, 4 threads", "4-5 hosts, 8 threads"},
};
static const char *const runs_names[HOSTS][THREADS] = {
    {"3 hosts, 1 thread", "3 hosts, 2 threads", "3 hosts, 4 threads", "3 hosts, 8 threads"},
    {"4 hosts, 1 thread", "4 hosts, 2 threads", "4 hosts, 4 threads", "4 hosts, 8 threads"},
    {"5 hosts, 1 thread", "5 hosts, 2 threads", "5 hosts, 4 threads", "5 hosts, 8 threads"},
};

struct figures {
    const struct sim_scenario *scenario;
    struct sim_report *report;
    struct sim_ring_result runs[HOSTS][THREADS][SIZES];
};

static struct sim_ring_run neighbour_puts(const struct figures *figures, unsigned hosts_count,
                                          unsigned threads_count, uint64_t bytes)
{
    const struct sim_scenario *scenario = figures->scenario;
    const char *puts = figures->report->fitting ? "fit_puts" : "puts";
    return (struct sim_ring_run){
        .hosts_count = hosts_count,
        .threads_count = threads_count,
        .senders_count = hosts_count,
        .window = (unsigned)sim_scenario_count(scenario, "ring", "window"),
        .puts_count = (unsigned)sim_scenario_count(scenario, "ring", puts),
        .bytes = bytes,
    };
}

static enum sim_role role_of(size_t size)
{
    return sizes[size].fit ? SIM_FIT : SIM_HELD;
}

/* With more threads the queues take longer to get round, so the measurement must last longer. */
static void run_long(const struct figures *figures, struct sim_ring_run *run,
                     struct sim_ring_result *ret)
{
    run->puts_count *= figures->report->fitting ? 1 : run->threads_count;
    sim_ring_run(figures->scenario, run, ret);
    sim_report_step(figures->report, run->hosts_count * run->threads_count);
}

static void run_size(struct figures *figures, size_t size)
{
    for (size_t h = 0; h < HOSTS; h++) {
        for (size_t t = 0; t < THREADS; t++) {
            struct sim_ring_run run =
                neighbour_puts(figures, hosts[h], threads[t], sizes[size].bytes);
            run_long(figures, &run, &figures->runs[h][t][size]);
        }
    }
}

/* --- bandwidth: section 5.1, one transfer thread, all hosts put ------------------------------- */

static double mb_per_s(double bytes, double ps)
{
    return bytes / ps * 1e6;
}

static const uint64_t bandwidth_sizes[] = {4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB};

/* Bandwidth at 1 MiB, in MB/s. */
static double add_raw(struct figures *figures)
{
    struct sim_row row = {
        .series = "bandwidth", .label = "DMA alone", .x_unit = "B", .unit = "MB/s"};
    double at_mib = 0;
    for (size_t i = 0; i < VIA_ARRAY_COUNT(bandwidth_sizes); i++) {
        uint64_t bytes = bandwidth_sizes[i];
        row.x = (double)bytes;
        row.role = bytes == MIB ? SIM_FIT : bytes > MIB ? SIM_HELD : SIM_PREDICTED;
        row.paper = bytes >= MIB ? 6000 : NAN;
        row.low = 6000;
        row.high = INFINITY;
        row.claim = bytes > MIB;
        if (sim_report_is_wanted(figures->report, row.role)) {
            row.model = mb_per_s(row.x, sim_ring_raw_ps(figures->scenario, bytes));
            at_mib = bytes == MIB ? row.model : at_mib;
            sim_report_add(figures->report, &row);
        }
    }
    return at_mib;
}

/* Bandwidth of a host at 1 MiB, in MB/s. */
static double put_rate(const struct figures *figures, size_t host)
{
    struct sim_ring_run run = neighbour_puts(figures, hosts[host], 1, MIB);
    struct sim_ring_result result;
    sim_ring_run(figures->scenario, &run, &result);
    return mb_per_s(MIB, result.put_ps);
}

/* The paper's value is for one thread and all hosts; it does not give the number of hosts. */
static void add_bandwidth(struct figures *figures)
{
    double raw = add_raw(figures);
    if (!sim_report_is_wanted(figures->report, SIM_HELD)) {
        return;
    }
    struct sim_row row = {.series = "bandwidth of a put, 1 thread, all hosts putting",
                          .x = MIB,
                          .x_unit = "B",
                          .role = SIM_HELD,
                          .range = true};
    for (size_t h = 0; h < HOSTS; h += HOSTS - 1) {
        double put = put_rate(figures, h);
        row.label = hosts_names[h];
        row.unit = "MB/s";
        row.paper = 4750;
        row.low = 4500;
        row.high = 5000;
        row.model = put;
        sim_report_add(figures->report, &row);
        row.label = h == 0 ? "3 hosts, of raw" : "5 hosts, of raw";
        row.unit = "%";
        row.paper = 82.5;
        row.low = 80;
        row.high = 85;
        row.model = 100 * put / raw;
        sim_report_add(figures->report, &row);
    }
}

/* --- all hosts put to their neighbours ------------------------------------------------------- */

static double percent_more(const struct sim_ring_result *after,
                           const struct sim_ring_result *before)
{
    return (after->latency_ps / before->latency_ps - 1) * 100;
}

/* The curves of the plots. */
static void add_curves(struct figures *figures)
{
    struct sim_row row = {.x_unit = "B", .paper = NAN, .role = SIM_PREDICTED};
    for (size_t i = 0; i < 2 * HOSTS * THREADS * SIZES; i++) {
        size_t h = i / (THREADS * SIZES) % HOSTS, t = i / SIZES % THREADS, s = i % SIZES;
        const struct sim_ring_result *result = &figures->runs[h][t][s];
        bool latency = i < HOSTS * THREADS * SIZES;
        row.series = latency ? "latency" : "throughput of a host";
        row.unit = latency ? "us" : "MB/s";
        row.label = runs_names[h][t];
        row.x = (double)sizes[s].bytes;
        row.model = latency ? result->latency_ps / 1e6 : mb_per_s(row.x, result->put_ps);
        sim_report_add(figures->report, &row);
    }
}

static void add_host_steps(struct figures *figures, size_t first, size_t last)
{
    struct sim_row row = {
        .series = "latency: a host more", .x_unit = "B", .unit = "%", .range = true};
    for (size_t t = 0; t < THREADS; t++) {
        row.low = 22;
        row.high = threads[t] == 1 ? 36 : 34;
        row.paper = (row.low + row.high) / 2;
        for (size_t h = 0; h + 1 < HOSTS; h++) {
            for (size_t s = first; s <= last; s++) {
                row.label = hosts_steps[h][t];
                row.x = (double)sizes[s].bytes;
                row.role = role_of(s);
                if (sim_report_is_wanted(figures->report, row.role)) {
                    row.model = percent_more(&figures->runs[h + 1][t][s], &figures->runs[h][t][s]);
                    sim_report_add(figures->report, &row);
                }
            }
        }
    }
}

/* The gain of 8 threads that still counts as "no better than 4". */
#define NO_BETTER_PERCENT -5

static void add_thread_steps(struct figures *figures, size_t first, size_t last)
{
    static const struct {
        const char *series;
        double low, high;
    } steps[THREADS - 1] = {
        {"latency: 2 threads for 1", -45, -38},
        {"latency: 4 threads for 2", -25, -12},
        {"latency: 8 threads for 4", NO_BETTER_PERCENT, INFINITY},
    };
    struct sim_row row = {.x_unit = "B", .unit = "%", .range = true};
    for (size_t t = 0; t + 1 < THREADS; t++) {
        row.series = steps[t].series;
        row.low = steps[t].low;
        row.high = steps[t].high;
        row.paper = isinf(row.high) ? NAN : (row.low + row.high) / 2;
        for (size_t h = 0; h < HOSTS; h++) {
            for (size_t s = first; s <= last; s++) {
                row.label = hosts_names[h];
                row.x = (double)sizes[s].bytes;
                row.role = isnan(row.paper) ? SIM_HELD : role_of(s);
                if (sim_report_is_wanted(figures->report, row.role)) {
                    row.model = percent_more(&figures->runs[h][t + 1][s], &figures->runs[h][t][s]);
                    sim_report_add(figures->report, &row);
                }
            }
        }
    }
}

/* How much more threads add to the throughput, as a share of the previous one. */
static double gained(const struct figures *figures, size_t host, size_t size, size_t from,
                     size_t to)
{
    const struct sim_ring_result(*runs)[SIZES] = figures->runs[host];
    return runs[from][size].put_ps / runs[to][size].put_ps - 1;
}

/* "Throughput rises strongly from 1 to 2 threads, little after." By its own ranges of latency the
 * first step adds 61 to 82 %, the second 14 to 33 %. */
static void add_throughput_steps(struct figures *figures)
{
    struct sim_row row = {.series = "throughput: what 2 threads add, to what 4 do",
                          .x_unit = "B",
                          .unit = "times",
                          .paper = NAN,
                          .low = 1.8,
                          .high = INFINITY,
                          .role = SIM_HELD};
    for (size_t h = 0; h < HOSTS; h++) {
        for (size_t s = 0; s < SIZES; s++) {
            row.label = hosts_names[h];
            row.x = (double)sizes[s].bytes;
            row.model = gained(figures, h, s, 0, 1) / gained(figures, h, s, 1, 2);
            sim_report_add(figures->report, &row);
        }
    }
}

/* "The gain from threads shrinks as hosts are added": in MB/s, from 1 thread to 4. */
static void add_gain_steps(struct figures *figures)
{
    struct sim_row row = {.series = "throughput gained by 4 threads: a host more",
                          .x_unit = "B",
                          .unit = "times",
                          .paper = NAN,
                          .low = 0,
                          .high = 1,
                          .role = SIM_HELD};
    for (size_t h = 0; h + 1 < HOSTS; h++) {
        for (size_t s = 0; s < SIZES; s++) {
            double before = gained(figures, h, s, 0, 2) / figures->runs[h][0][s].put_ps;
            double after = gained(figures, h + 1, s, 0, 2) / figures->runs[h + 1][0][s].put_ps;
            row.label = h == 0 ? "3-4 hosts" : "4-5 hosts";
            row.x = (double)sizes[s].bytes;
            row.model = after / before;
            sim_report_add(figures->report, &row);
        }
    }
}

/* --- breakdown: one put at a time ------------------------------------------------------------ */

/* "Scratchpads and interrupts are the largest overheads" of those in its breakdown, with next to no
 * data. */
static void add_overheads(struct figures *figures)
{
    struct sim_ring_run run = neighbour_puts(figures, 3, 1, sizes[0].bytes);
    struct sim_ring_result result;
    run.senders_count = 1;
    run.window = 1;
    sim_ring_run(figures->scenario, &run, &result);
    const double *step_ps = result.step_ps;
    double largest = step_ps[SIM_RING_SCRATCHPAD] + step_ps[SIM_RING_DOORBELL] +
                     step_ps[SIM_RING_HANDLER] + step_ps[SIM_RING_SERVICE];
    double next =
        fmax(fmax(step_ps[SIM_RING_TRANSLATE], step_ps[SIM_RING_INTERRUPT]), step_ps[SIM_RING_DMA]);
    const struct sim_row row = {.series = "overheads",
                                .label = "scratchpads and interrupts to the next",
                                .x = (double)sizes[0].bytes,
                                .x_unit = "B",
                                .unit = "times",
                                .paper = NAN,
                                .low = 1,
                                .high = INFINITY,
                                .model = largest / next,
                                .role = SIM_HELD};
    sim_report_add(figures->report, &row);
}

/* --- all of them ----------------------------------------------------------------------------- */

static void fit_sizes(struct figures *figures)
{
    add_bandwidth(figures);
    for (size_t s = 0; s < SIZES; s++) {
        if (sizes[s].fit) {
            run_size(figures, s);
            add_host_steps(figures, s, s);
            add_thread_steps(figures, s, s);
        }
    }
}

static void add_all_sizes(struct figures *figures)
{
    for (size_t s = 0; s < SIZES; s++) {
        if (sim_report_is_wanted(figures->report, role_of(s))) {
            run_size(figures, s);
        }
    }
    add_bandwidth(figures);
    add_host_steps(figures, 0, SIZES - 1);
    add_thread_steps(figures, 0, SIZES - 1);
    add_throughput_steps(figures);
    add_gain_steps(figures);
    add_overheads(figures);
}

/* --- the paper ------------------------------------------------------------------------------- */

static int run_b(const struct sim_scenario *scenario, struct sim_report *report,
                 struct via_error *err)
{
    int rc = sim_ring_net_check(scenario, err);
    if (rc != 0) {
        return rc;
    }
    struct figures *figures = sim_alloc(sizeof(*figures));
    figures->scenario = scenario;
    figures->report = report;
    if (report->fitting) {
        fit_sizes(figures);
    } else {
        add_all_sizes(figures);
    }
    if (sim_report_is_wanted(report, SIM_PREDICTED)) {
        add_curves(figures);
    }
    free(figures);
    return rc;
}

static const struct sim_section *const sections[] = {
    &sim_net_sections[0], &sim_net_sections[1], &sim_net_sections[2],  &sim_net_sections[3],
    &sim_net_sections[4], &sim_net_sections[5], &sim_dma_section,      &sim_cpu_section,
    &sim_memory_section,  &sim_ring_section,    &sim_software_section,
};
_Static_assert(SIM_NET_SECTIONS_COUNT == 6, "all of them are listed");

const struct sim_paper sim_paper_b = {
    .letter = 'B',
    .title = "OpenSHMEM over a switchless PCIe NTB ring (2023)",
    .scenario = "paper-b.ini",
    .sections = sections,
    .sections_count = VIA_ARRAY_COUNT(sections),
    .steps = SIZES * (3 + 4 + 5) * (1 + 2 + 4 + 8), /* hosts, threads */
    .run = run_b,
};
