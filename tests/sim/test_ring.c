/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The ring of system B: the mechanisms behind its figures, at a few points. All figures: viaduct
 * sim paper B. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/types.h"
#include "sim/memory.h"
#include "sim/paper/ring.h"
#include "tests/sim/scenario_file.h"

#define KIB 1024u

static struct sim_scenario *scenario;

static int load(void **state)
{
    (void)state;
    scenario = sim_alloc(sizeof(*scenario));
    return scenario_add_file(scenario, "ring", "paper-b.ini", NULL);
}

static int unload(void **state)
{
    (void)state;
    free(scenario);
    return 0;
}

static struct sim_ring_run run_of(unsigned hosts, unsigned threads, uint64_t bytes)
{
    return (struct sim_ring_run){.hosts_count = hosts,
                                 .threads_count = threads,
                                 .senders_count = hosts,
                                 .window = 16,
                                 .puts_count = 100,
                                 .bytes = bytes};
}

static double latency_us(unsigned hosts, unsigned threads, uint64_t bytes)
{
    struct sim_ring_run run = run_of(hosts, threads, bytes);
    struct sim_ring_result result;
    sim_ring_run(scenario, &run, &result);
    assert_true(result.latency_ps > 0 && result.put_ps > 0);
    /* Little's law: about how many puts are under way. */
    double under_way = result.latency_ps / result.put_ps;
    assert_in_range((uint64_t)under_way, run.window * 3 / 4, run.window * 5 / 4);
    return result.latency_ps / 1e6;
}

/* The published ranges, slightly wider, because a hundred puts are few. */
static void assert_step(const char *what, double before, double after, double low, double high)
{
    double percent = (after / before - 1) * 100;
    if (percent < low || percent > high) {
        fail_msg("%s: %.1f us, then %.1f us: %+.1f %%, expected %g to %g", what, before, after,
                 percent, low, high);
    }
}

static void threads_help_until_there_are_four(void **state)
{
    static const uint64_t sizes[] = {4 * KIB, 256 * KIB};
    (void)state;
    for (size_t i = 0; i < VIA_ARRAY_COUNT(sizes); i++) {
        double one = latency_us(4, 1, sizes[i]);
        double two = latency_us(4, 2, sizes[i]);
        double four = latency_us(4, 4, sizes[i]);
        double eight = latency_us(4, 8, sizes[i]);
        assert_step("1 to 2 threads", one, two, -48, -35);
        assert_step("2 to 4 threads", two, four, -29, -8);
        assert_step("4 to 8 threads", four, eight, -8, 40);
    }
}

static void a_host_more_costs_a_third_and_a_quarter(void **state)
{
    (void)state;
    double three = latency_us(3, 1, 64 * KIB);
    double four = latency_us(4, 1, 64 * KIB);
    double five = latency_us(5, 1, 64 * KIB);
    assert_step("3 to 4 hosts", three, four, 22, 38);
    assert_step("4 to 5 hosts", four, five, 20, 34);
}

/* The reason for the model of the acknowledgement: an empty one does not reproduce the measurement.
 */
static void an_empty_acknowledgement_would_cost_less(void **state)
{
    struct sim_value *value = sim_scenario_find(scenario, "ring", "acknowledgement");
    (void)state;
    snprintf(value->text, sizeof(value->text), "empty");
    double three = latency_us(3, 1, 1024 * KIB);
    double four = latency_us(4, 1, 1024 * KIB);
    snprintf(value->text, sizeof(value->text), "whole");
    assert_step("3 to 4 hosts", three, four, 0, 18);
}

/* The number of cores causes the knee: with two cores it is at two threads. */
static void the_knee_moves_with_its_causes(void **state)
{
    struct sim_value *cores = sim_scenario_find(scenario, "cpu", "cores");
    (void)state;
    double cores_before = cores->number;
    cores->number = 2;
    double two = latency_us(4, 2, 4 * KIB);
    double four = latency_us(4, 4, 4 * KIB);
    cores->number = cores_before;
    assert_step("2 to 4 threads, two cores", two, four, -6, 30);
}

static void the_same_scenario_is_the_same_history(void **state)
{
    struct sim_ring_run run = run_of(3, 4, 16 * KIB);
    struct sim_ring_result first, second;
    (void)state;
    sim_ring_run(scenario, &run, &first);
    sim_ring_run(scenario, &run, &second);
    assert_int_equal(first.events_count, second.events_count);
    assert_true(first.latency_ps == second.latency_ps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_help_until_there_are_four),
        cmocka_unit_test(a_host_more_costs_a_third_and_a_quarter),
        cmocka_unit_test(an_empty_acknowledgement_would_cost_less),
        cmocka_unit_test(the_knee_moves_with_its_causes),
        cmocka_unit_test(the_same_scenario_is_the_same_history),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
