/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Emulated hosts under virtual time: what must follow from copies, processors and wake-ups. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/types.h"
#include "sim/machine/machine.h"
#include "sim/machine/measure.h"
#include "sim/memory.h"

#define BYTES 65536u
#define COPY_PS (BYTES * 100u) /* at 10 GB/s */

/* Copies at 10 GB/s, wake-ups of 20 us; all else is next to nothing. */
static struct sim_scenario *scenario_of(unsigned cores)
{
    static const char format[] =
        "[cpu]\ncores = %u cores [chosen] x\nthreads_per_core = 1 threads [chosen] x\n"
        "smt_speed = 100 %% [chosen] x\nslice = 3 ms [chosen] x\nswitch = 0 ns [chosen] x\n"
        "wake = 20 us [chosen] x\nwake_spread = 0 ns [chosen] x\n"
        "[memory]\ncopy = 10 GB/s [chosen] x\nbus = 1000 GB/s [chosen] x\n"
        "crossings = 2 times [chosen] x\npiece = 64 KiB [chosen] x\n"
        "[machine]\nput = 10 GB/s [chosen] x\nnear = 10 GB/s [chosen] x\nline = 10 ns [chosen] "
        "x\nbell = 10 ns [chosen] x\nqueue = 10 ns [chosen] x\nkick = 10 ns [chosen] x\nsubmit = "
        "10 ns [chosen] x\n"
        "turn = 10 ns [chosen] x\nframe = 10 ns [chosen] x\n"
        "spin = 50 us [chosen] x\nclient_spin = 50 us [chosen] x\npinned = 0 no [chosen] x\nwindow "
        "= 64 puts [chosen] "
        "x\nseed = 1 seed [chosen] x\n";
    char text[2048];
    struct via_error err = {0};
    struct sim_scenario *scenario = sim_alloc(sizeof(*scenario));
    int bytes = snprintf(text, sizeof(text), format, cores);
    int rc = sim_scenario_parse("S", text, (size_t)bytes, sim_machine_sections,
                                sim_machine_sections_count, scenario, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
    return scenario;
}

static double op_ps(unsigned cores, const struct sim_machine_run *run)
{
    struct sim_scenario *scenario = scenario_of(cores);
    struct sim_machine_result first, second;
    assert_int_equal(sim_machine_run(scenario, run, &first), 0);
    assert_int_equal(sim_machine_run(scenario, run, &second), 0);
    /* A scenario is one history. */
    assert_true(first.op_ps == second.op_ps && first.events_count == second.events_count);
    free(scenario);
    return first.op_ps;
}

static const struct sim_machine_run neighbour = {5, 1, 1, 1, false, BYTES, 100};
static const struct sim_machine_run relay = {5, 1, 2, 1, false, BYTES, 300};

static void assert_about(double value, double expected)
{
    if (value < expected * 0.9 || value > expected * 1.25) {
        fail_msg("%.3f us, expected about %.3f us", value / 1e6, expected / 1e6);
    }
}

/* Source and target copy at the same time, and so does a relay. */
static void with_processors_enough_hops_overlap(void **state)
{
    (void)state;
    assert_about(op_ps(8, &neighbour), COPY_PS);
    assert_about(op_ps(8, &relay), COPY_PS);
}

/* Two copies on one processor, three with a relay; on two processors half of that. */
static void with_fewer_they_share(void **state)
{
    (void)state;
    assert_about(op_ps(1, &neighbour), 2 * COPY_PS);
    assert_about(op_ps(1, &relay), 3 * COPY_PS);
    assert_about(op_ps(2, &neighbour), COPY_PS);
    assert_about(op_ps(2, &relay), 1.5 * COPY_PS);
}

/* Five put at once: ten copies for each round of puts. */
static void all_at_once_share_too(void **state)
{
    (void)state;
    /* So many that it does not matter which host is up, or done, before the others. */
    const struct sim_machine_run run = {5, 1, 1, 5, false, BYTES, 600};
    assert_about(op_ps(2, &run), 5 * COPY_PS);
}

/* With a processor for each thread a get needs no wake-up, or the first one only. */
static void who_looks_need_not_be_woken(void **state)
{
    (void)state;
    const struct sim_machine_run get = {5, 1, 1, 1, true, 8, 100};
    assert_true(op_ps(16, &get) < 5e6);
}

/* What is measured is of the right kind; how fast this machine is, is not judged. */
static void a_machine_can_be_measured(void **state)
{
    (void)state;
    struct sim_measured measured;
    struct via_error err = {0};
    int rc = sim_measure(&measured, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
    assert_true(measured.cpus_count >= 1 && measured.copy_rate > 1e6 && measured.bus_rate > 1e6);
    assert_true(measured.line_ns > 0 && measured.bell_ns > 0);
    assert_true(measured.wake_ns > 0 && measured.switch_ns > 0);
    assert_true(measured.submit_ns > 0 && measured.turn_ns > 0 && measured.frame_ns > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_processors_enough_hops_overlap),
        cmocka_unit_test(with_fewer_they_share),
        cmocka_unit_test(all_at_once_share_too),
        cmocka_unit_test(who_looks_need_not_be_woken),
        cmocka_unit_test(a_machine_can_be_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
