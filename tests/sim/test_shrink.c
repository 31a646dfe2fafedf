/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A shrunk case fails, equals its command line, and is not larger than before. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/types.h"
#include "sim/memory.h"
#include "sim/plant.h"
#include "sim/shrink.h"

#define RUNS_MAX 250u
#define SECONDS_MAX 1000.0 /* no limit: the result is to be the same on any machine */

/* Seeds 1 and 2 have so little work that none of it can be left out. */
static uint64_t first_that_fails(const struct sim_jobs *jobs)
{
    for (uint64_t seed = 3; seed < 300; seed++) {
        struct sim_result result;
        sim_jobs_one(jobs, seed, NULL, &result);
        if (result.failed) {
            return seed;
        }
    }
    fail_msg("no seed fails");
    return 0;
}

/* The options that it is printed as, read as a command line is. */
static void parse_text(char *text, struct sim_changes *ret_changes)
{
    char error[256];
    char *rest = NULL;
    *ret_changes = (struct sim_changes){0};
    for (char *option = strtok_r(text, " ", &rest); option != NULL;
         option = strtok_r(NULL, " ", &rest)) {
        const char *value = strtok_r(NULL, " ", &rest);
        assert_non_null(value);
        if (strcmp(option, "--set") == 0) {
            assert_int_equal(sim_changes_parse(ret_changes, value, error, sizeof(error)), 0);
        } else if (strcmp(option, "--faults") == 0) {
            assert_int_equal(sim_mask_parse(&ret_changes->faults, value), 0);
        } else {
            assert_string_equal(option, "--work");
            assert_int_equal(sim_mask_parse(&ret_changes->work, value), 0);
        }
    }
}

static void check_plant(const char *name)
{
    struct sim_jobs jobs = {.graph = SIM_GRAPH_ANY, .plant = sim_plant_parse(name)};
    struct sim_shrunk *shrunk = sim_alloc(sizeof(*shrunk));
    struct sim_changes changes;
    struct sim_result result;
    char text[2048];
    assert_true(jobs.plant > 0);
    uint64_t seed = first_that_fails(&jobs);
    assert_int_equal(sim_shrink(&jobs, seed, RUNS_MAX, SECONDS_MAX, shrunk), 0);
    assert_true(shrunk->runs <= RUNS_MAX);
    assert_true(shrunk->hosts <= shrunk->hosts_before);
    assert_true(shrunk->faults <= shrunk->faults_before);
    assert_true(shrunk->work <= shrunk->work_before);
    /* It is much smaller, in fact: these bugs need no more than two or three hosts. */
    assert_in_range(shrunk->hosts, 2, 3);
    assert_true(shrunk->work <= via_max(shrunk->work_before / 2, 3u));

    sim_shrunk_text(shrunk, text, sizeof(text));
    parse_text(text, &changes);
    jobs.changes = &changes;
    sim_jobs_one(&jobs, seed, NULL, &result);
    assert_true(result.failed);
    assert_string_equal(result.failure, shrunk->failure);
    free(shrunk);
}

static void a_lost_message_is_shrunk(void **state)
{
    (void)state;
    check_plant("lost-delivery");
}

static void a_forgotten_completion_is_shrunk(void **state)
{
    (void)state;
    check_plant("lost-complete");
}

static void a_write_by_nobody_is_shrunk(void **state)
{
    (void)state;
    check_plant("segment-write");
}

static void what_does_not_fail_is_not_shrunk(void **state)
{
    (void)state;
    const struct sim_jobs jobs = {.graph = SIM_GRAPH_RING};
    struct sim_shrunk *shrunk = sim_alloc(sizeof(*shrunk));
    assert_int_equal(sim_shrink(&jobs, 1, RUNS_MAX, SECONDS_MAX, shrunk), -ENOENT);
    free(shrunk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_message_is_shrunk),
        cmocka_unit_test(a_forgotten_completion_is_shrunk),
        cmocka_unit_test(a_write_by_nobody_is_shrunk),
        cmocka_unit_test(what_does_not_fail_is_not_shrunk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
