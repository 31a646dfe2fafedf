/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Emulated hosts by the model: a scenario of this machine, and what it says of them. */
#include "sim/machine/command.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "sim/machine/machine.h"
#include "sim/machine/measure.h"
#include "sim/memory.h"

static const char calibrate_usage[] =
    "Usage: viaduct-sim calibrate FILE\n"
    "Measures this machine for a few seconds and writes a scenario for viaduct-sim machine.\n";

static const char machine_usage[] =
    "Usage: viaduct-sim machine FILE [--json]\n"
    "Emulated hosts on the machine that FILE describes (see viaduct-sim calibrate): puts and gets "
    "to\n"
    "a neighbour and through a relay, over 1 and 4 channels, on rings of 3 and 5 hosts.\n";

static int complain(const char *command, const char *text)
{
    fprintf(stderr, "viaduct-sim: %s: %s\n", command, text);
    return 2;
}

/* --- calibrate ------------------------------------------------------------------------------- */

/* 0.7 ms, and that again for each time that the processors double, up to 8. */
static double slice_ms(unsigned cpus)
{
    unsigned doublings = 0;
    while (doublings < 3 && cpus >> (doublings + 1) != 0) {
        doublings++;
    }
    return 0.7 * (1 + doublings);
}

static void write_scenario(const struct sim_measured *m, FILE *out)
{
    const char *here = "[typical] measured here";
    fprintf(out, "# Written by viaduct-sim calibrate; see viaduct-scenario(5).\n\n[cpu]\n");
    fprintf(out, "cores = %u cores [spec] processors online here\n", m->cpus_count);
    fprintf(out, "threads_per_core = 1 threads [chosen] each processor counts as a core\n");
    fprintf(out, "smt_speed = 100 %% [chosen] each processor counts as a core\n");
    fprintf(out, "slice = %.1f ms [spec] Linux 6.12, kernel/sched/fair.c: base slice\n",
            slice_ms(m->cpus_count));
    fprintf(out, "switch = %.1f ns %s: sched_yield\n", m->switch_ns, here);
    fprintf(out, "wake = %.1f ns %s: futex, until the other runs, less the switch\n",
            fmax(m->wake_ns - m->switch_ns, 0), here);
    fprintf(out, "wake_spread = 0 ns [chosen] medians are compared\n\n[memory]\n");
    fprintf(out, "copy = %.1f MB/s %s: out of what another processor writes\n", m->copy_rate / 1e6,
            here);
    fprintf(out, "bus = %.1f MB/s %s: all processors\n", m->bus_rate / 1e6, here);
    fprintf(out, "crossings = 2 times [chosen] as the bus was measured: read and written\n");
    fprintf(out, "piece = 64 KiB [chosen] how finely copies share the bus\n\n[machine]\n");
    fprintf(out, "put = %.1f MB/s %s: into what another processor reads\n", m->put_rate / 1e6,
            here);
    fprintf(out, "near = %.1f MB/s %s: copies with both on one processor\n", m->near_rate / 1e6,
            here);
    fprintf(out, "line = %.1f ns %s: there and back, halved\n", m->line_ns, here);
    fprintf(out, "bell = %.1f ns %s: futex wake, of the caller\n", m->bell_ns, here);
    fprintf(
        out,
        "queue = %.1f ns %s: futex, until the other runs in place of the caller, less the switch\n",
        fmax(m->queue_ns - m->switch_ns, 0), here);
    fprintf(out,
            "kick = %.1f ns %s: futex, until the other runs in place of a third, less the switch\n",
            fmax(m->kick_ns - m->switch_ns, 0), here);
    fprintf(out, "submit = %.1f ns %s: via_node_submit\n", m->submit_ns, here);
    fprintf(out, "turn = %.1f ns %s: via_node_poll that finds nothing\n", m->turn_ns, here);
    fprintf(out, "frame = %.1f ns %s: via_node_poll, each thing found\n", m->frame_ns, here);
    fprintf(out, "spin = 0 us [chosen] as with viaduct up --spin-us 0\n");
    fprintf(out, "client_spin = 0 us [chosen] as with one processor for each program\n");
    fprintf(out, "pinned = 1 yes [chosen] a host and its programs on one processor\n");
    fprintf(out, "window = 64 puts [chosen] of a client under way\n");
    fprintf(out, "seed = 1 seed [chosen] of the wake-up times\n");
}

int sim_calibrate_main(int argc, char **argv)
{
    struct sim_measured measured;
    struct via_error err = {0};
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(calibrate_usage, stdout);
        return 0;
    }
    if (argc != 2 || argv[1][0] == '-') {
        return complain("calibrate", "expected a file to write; see --help");
    }
    if (sim_measure(&measured, &err) != 0) {
        return complain("calibrate", err.text);
    }
    FILE *file = fopen(argv[1], "we");
    if (file == NULL) {
        via_error_set(&err, -errno, "%s: open: %s", argv[1], strerror(errno));
        return complain("calibrate", err.text);
    }
    write_scenario(&measured, file);
    bool bad = ferror(file) != 0;
    if (fclose(file) != 0 || bad) {
        via_error_set(&err, -EIO, "%s: write: %s", argv[1], strerror(errno));
        return complain("calibrate", err.text);
    }
    return 0;
}

/* --- machine --------------------------------------------------------------------------------- */

#define PUT_BYTES (UINT64_C(64) << 10)
#define PUTS_COUNT 2000u
#define GETS_COUNT 200u

/* The cases that tools/sim-truth measures for real, by the same names. */
static const struct {
    const char *name;
    struct sim_machine_run run;
} cases[] = {
    {"put neighbour", {3, 1, 1, 1, false, PUT_BYTES, PUTS_COUNT}},
    {"put relay", {5, 1, 2, 1, false, PUT_BYTES, PUTS_COUNT}},
    {"get neighbour", {5, 1, 1, 1, true, 8, GETS_COUNT}},
    {"get relay", {5, 1, 2, 1, true, 8, GETS_COUNT}},
    {"put 1 channel", {5, 1, 1, 1, false, PUT_BYTES, PUTS_COUNT}},
    {"put 4 channels", {5, 4, 1, 1, false, PUT_BYTES, PUTS_COUNT}},
    {"put all of 3", {3, 1, 1, 3, false, PUT_BYTES, PUTS_COUNT}},
    {"put all of 5", {5, 1, 1, 5, false, PUT_BYTES, PUTS_COUNT}},
};

int sim_machine_main(int argc, char **argv)
{
    bool json = argc == 3 && strcmp(argv[2], "--json") == 0;
    struct via_error err = {0};
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(machine_usage, stdout);
        return 0;
    }
    if ((argc != 2 && !json) || argv[1][0] == '-') {
        return complain("machine", "expected a scenario; see --help");
    }
    struct sim_scenario *scenario = sim_alloc(sizeof(*scenario));
    int rc = sim_scenario_load(argv[1], NULL, sim_machine_sections, sim_machine_sections_count,
                               scenario, &err);
    if (rc != 0) {
        free(scenario);
        return complain("machine", err.text);
    }
    for (size_t i = 0; i < VIA_ARRAY_COUNT(cases) && rc == 0; i++) {
        struct sim_machine_result result;
        rc = sim_machine_run(scenario, &cases[i].run, &result);
        double us = result.op_ps / 1e6;
        if (json) {
            printf("%s\"%s\": %.6g%s", i == 0 ? "{" : "", cases[i].name, us,
                   i + 1 < VIA_ARRAY_COUNT(cases) ? ", " : "}\n");
        } else {
            printf("%-16s %10.3f us %10.1f MB/s\n", cases[i].name, us,
                   (double)cases[i].run.bytes / us);
        }
    }
    free(scenario);
    return rc == 0 ? 0 : complain("machine", strerror(-rc));
}
