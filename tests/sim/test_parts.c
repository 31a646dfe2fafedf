/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The simulator's own parts behave as documented, so that their verdicts are valid. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/types.h"
#include "sim/change.h"
#include "sim/clock.h"
#include "sim/config.h"
#include "sim/jobs.h"
#include "sim/memory.h"
#include "sim/plant.h"

static void events_come_by_time_then_by_request(void **state)
{
    (void)state;
    struct sim_clock clock;
    struct via_rng rng;
    struct sim_event event;
    sim_clock_init(&clock);
    via_rng_init(&rng, 1);
    for (uint32_t i = 0; i < 5000; i++) {
        sim_clock_at(&clock, via_rng_below(&rng, 300), SIM_EVENT_WORK, i, 0, 0);
    }
    uint64_t time_ns = 0;
    uint32_t request = 0;
    unsigned count = 0;
    while (sim_clock_take(&clock, &event)) {
        assert_true(event.queued.time >= time_ns);
        assert_true(event.queued.time > time_ns || count == 0 || event.a > request);
        assert_int_equal(clock.now_ns, event.queued.time);
        time_ns = event.queued.time;
        request = event.a;
        count++;
    }
    assert_int_equal(count, 5000);
    sim_clock_fini(&clock);
}

/* Events that were added, in the order in which they have to come. */
struct sorted {
    struct sim_event *events;
    size_t count;
};

static void insert(struct sorted *sorted, uint64_t time, uint32_t number)
{
    size_t at = sorted->count++;
    for (; at > 0 && sorted->events[at - 1].queued.time > time; at--) {
        sorted->events[at] = sorted->events[at - 1];
    }
    sorted->events[at].queued.time = time;
    sorted->events[at].a = number;
}

/* A time of any magnitude, near the last one or far from it, or one of the times before. */
static uint64_t any_time(struct via_rng *rng, uint64_t now, const struct sorted *sorted)
{
    uint64_t offset = via_rng_next(rng) >> via_rng_below(rng, 64);
    switch (via_rng_below(rng, 8)) {
    case 0:
        return now;
    case 1:
        return UINT64_MAX - (offset >> 32);
    case 2:
        return via_rng_next(rng) >> via_rng_below(rng, 64);
    case 3:
        return sorted->count == 0 ? now
                                  : sorted->events[via_rng_below(rng, sorted->count)].queued.time;
    default:
        return now + via_min(offset >> 24, UINT64_MAX - now);
    }
}

static void take_both(struct sim_queue *queue, struct sorted *sorted, uint64_t *now)
{
    assert_int_equal(sim_queue_next(queue), sorted->events[0].queued.time);
    struct sim_event *event = sim_queue_take(queue);
    assert_non_null(event);
    assert_int_equal(event->queued.time, sorted->events[0].queued.time);
    assert_int_equal(event->a, sorted->events[0].a);
    *now = event->queued.time;
    sim_objects_free(&queue->events, event);
    sorted->count--;
    memmove(sorted->events, sorted->events + 1, sorted->count * sizeof(*sorted->events));
}

static void events_come_as_from_a_sorted_list(void **state)
{
    static struct sim_event events[2000];
    struct sim_queue *queue = malloc(sizeof(*queue));
    (void)state;
    assert_non_null(queue);
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct sorted sorted = {.events = events};
        struct via_rng rng;
        uint64_t now = 0;
        via_rng_init(&rng, seed);
        sim_queue_init(queue, sizeof(struct sim_event));
        uint64_t most = 1 + via_rng_below(&rng, seed % 10 == 0 ? 2000 : 30);
        for (uint32_t i = 0; i < 4000; i++) {
            bool takes = sorted.count == most || via_rng_below(&rng, 2) == 0;
            if (takes && sorted.count > 0) {
                take_both(queue, &sorted, &now);
            } else {
                uint64_t time = any_time(&rng, now, &sorted);
                struct sim_event *event = sim_queue_add(queue, time);
                event->a = i;
                insert(&sorted, via_max(time, now), i);
            }
        }
        while (sorted.count > 0) {
            take_both(queue, &sorted, &now);
        }
        assert_null(sim_queue_take(queue));
        assert_int_equal(sim_queue_next(queue), UINT64_MAX);
        sim_queue_fini(queue);
    }
    free(queue);
}

static int compare_times(const void *a, const void *b)
{
    const struct sim_event *one = a, *other = b;
    return one->queued.time != other->queued.time ? (one->queued.time > other->queued.time ? 1 : -1)
           : one->a > other->a                    ? 1
                                                  : -1;
}

static void many_events_come_as_from_a_sorted_list(void **state)
{
    enum { COUNT = 300000 };
    struct sim_queue *queue = malloc(sizeof(*queue));
    struct sim_event *events = calloc(COUNT, sizeof(*events));
    struct via_rng rng;
    (void)state;
    assert_true(queue != NULL && events != NULL);
    via_rng_init(&rng, 7);
    sim_queue_init(queue, sizeof(struct sim_event));
    for (uint32_t i = 0; i < COUNT; i++) {
        events[i].queued.time = via_rng_below(&rng, i % 2 == 0 ? COUNT : UINT64_C(1) << 40);
        events[i].a = i;
        ((struct sim_event *)sim_queue_add(queue, events[i].queued.time))->a = i;
    }
    qsort(events, COUNT, sizeof(*events), compare_times);
    for (uint32_t i = 0; i < COUNT; i++) {
        struct sim_event *event = sim_queue_take(queue);
        assert_true(event != NULL && event->a == events[i].a);
        sim_objects_free(&queue->events, event);
    }
    assert_null(sim_queue_take(queue));
    sim_queue_fini(queue);
    free(events);
    free(queue);
}

static void the_past_is_now(void **state)
{
    (void)state;
    struct sim_clock clock;
    struct sim_event event;
    sim_clock_init(&clock);
    sim_clock_at(&clock, 100, SIM_EVENT_WORK, 0, 0, 0);
    assert_true(sim_clock_take(&clock, &event));
    sim_clock_at(&clock, 50, SIM_EVENT_WORK, 1, 0, 0);
    assert_true(sim_clock_take(&clock, &event));
    assert_int_equal(event.queued.time, 100);
    assert_false(sim_clock_take(&clock, &event));
    sim_clock_fini(&clock);
}

static void a_time_beyond_the_last_is_the_last(void **state)
{
    (void)state;
    struct sim_clock clock;
    struct sim_event event;
    sim_clock_init(&clock);
    sim_clock_after(&clock, 100, SIM_EVENT_WORK, 0, 0, 0);
    assert_true(sim_clock_take(&clock, &event));
    sim_clock_after(&clock, UINT64_MAX - 50, SIM_EVENT_WORK, 1, 0, 0);
    sim_clock_after(&clock, UINT64_MAX, SIM_EVENT_WORK, 2, 0, 0);
    sim_clock_after(&clock, 5, SIM_EVENT_WORK, 3, 0, 0);
    static const uint32_t numbers[] = {3, 1, 2};
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(numbers); i++) {
        assert_true(sim_clock_take(&clock, &event));
        assert_int_equal(event.a, numbers[i]);
    }
    assert_int_equal(clock.now_ns, UINT64_MAX);
    sim_clock_fini(&clock);
}

static void content_check_finds_the_first_wrong_byte(void **state)
{
    (void)state;
    unsigned char data[1000];
    for (size_t bytes = 0; bytes < sizeof(data); bytes += 7) {
        sim_content_fill(data, bytes, bytes);
        assert_int_equal(sim_content_check(data, bytes, bytes), bytes);
        for (size_t off = 0; off < bytes; off += 31) {
            data[off] ^= 1;
            assert_int_equal(sim_content_check(data, bytes, bytes), off);
            data[off] ^= 1;
        }
    }
}

static void configs_are_valid_and_reach_the_extremes(void **state)
{
    (void)state;
    unsigned smallest = 0;
    unsigned near_wrap = 0;
    unsigned calm = 0;
    unsigned crashes = 0;
    unsigned large = 0;
    unsigned combining = 0;
    unsigned relaxed = 0;
    unsigned rogues = 0;
    unsigned records_wrap = 0;
    unsigned graphs = 0;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        struct sim_config config;
        sim_config_from_seed(&config, seed, SIM_GRAPH_ANY);
        const struct sim_config_faults *faults = &config.faults;
        assert_in_range(config.hosts_count, 2, SIM_HOSTS_MAX);
        large += config.hosts_count > 32;
        combining += config.port.wc_percent != 0;
        relaxed += config.port.relaxed_chance != 0;
        rogues += config.faults.rogues_count != 0;
        records_wrap += config.node.pipe_first != 0;
        graphs |= 1u << config.graph;
        config.node.host = 0;
        config.node.session = 1;
        config.node.ports_count = 7;
        assert_true(via_node_bytes(&config.node) > 0);
        /* A lost wake-up is permanent, except in runs that lose doorbells. */
        assert_int_equal(config.cpu.insurance_ns != 0, config.port.bell_drop_chance != 0);
        smallest += config.node.pipe_slots == 1 && config.node.bypass_count == 1 &&
                    config.node.window_frames == 1;
        near_wrap += config.node.epoch_first >= VIA_EPOCH_MAX - 3;
        calm += faults->cuts_count + faults->freezes_count + faults->crashes_count == 0;
        crashes += faults->crashes_count != 0;
    }
    assert_true(smallest > 5 && near_wrap > 100 && calm > 200 && crashes > 200);
    assert_true(large > 2 && combining > 200 && relaxed > 200 && rogues > 50 && records_wrap > 200);
    assert_int_equal(graphs, (1u << (SIM_GRAPH_CUBE + 1)) - 2); /* all but "any" */
}

static void a_seed_is_one_history(void **state)
{
    (void)state;
    const struct sim_jobs jobs = {.graph = SIM_GRAPH_ANY, .twice = true};
    uint64_t digests[8];
    for (uint64_t seed = 0; seed < 8; seed++) {
        struct sim_result result;
        sim_jobs_one(&jobs, seed, NULL, &result);
        if (result.failed) {
            fail_msg("seed %u: %s", (unsigned)seed, result.failure);
        }
        digests[seed] = result.digest;
        for (uint64_t other = 0; other < seed; other++) {
            assert_true(digests[other] != digests[seed]);
        }
    }
}

static void changes_and_lists_are_read(void **state)
{
    (void)state;
    struct sim_changes changes = {0};
    struct sim_config config;
    char error[256];
    assert_int_equal(sim_changes_parse(&changes, "hosts=3,graph=torus,cuts=0", error, 256), 0);
    assert_int_equal(sim_mask_parse(&changes.faults, "0,2-4"), 0);
    assert_int_equal(sim_mask_parse(&changes.work, "none"), 0);
    sim_config_make(&config, 1, SIM_GRAPH_ANY, &changes);
    assert_int_equal(config.hosts_count, 3);
    assert_int_equal(config.graph, SIM_GRAPH_TORUS);
    assert_int_equal(config.faults.cuts_count, 0);
    assert_true(sim_mask_is_kept(&config.faults_mask, 3));
    assert_false(sim_mask_is_kept(&config.faults_mask, 1));
    assert_false(sim_mask_is_kept(&config.work_mask, 0));
}

static void bad_changes_name_the_key(void **state)
{
    (void)state;
    static const char *const bad[] = {"hosts",        "hosts=",    "hosts=1",     "hosts=65",
                                      "hosts=3x",     "hosts=-3",  "wheels=4",    "graph=spiral",
                                      "slots=3",      "frame=100", "ops-slots=1", "=3",
                                      "hosts=3,cut=1"};
    static const char *const bad_masks[] = {"", "x", "3-", "4-3", "1,,2", "1,", "99999", "-3"};
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(bad); i++) {
        struct sim_changes changes = {0};
        char error[256] = "";
        if (sim_changes_parse(&changes, bad[i], error, sizeof(error)) == 0) {
            fail_msg("'%s' is accepted", bad[i]);
        }
        assert_true(error[0] != '\0');
    }
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(bad_masks); i++) {
        struct sim_mask mask;
        if (sim_mask_parse(&mask, bad_masks[i]) == 0) {
            fail_msg("'%s' is accepted", bad_masks[i]);
        }
    }
}

/* Every value of a key gives a configuration that runs. */
static void the_extremes_of_every_key_run(void **state)
{
    (void)state;
    for (unsigned i = 0; sim_knob_at(i) != NULL; i++) {
        const struct sim_knob *key = sim_knob_at(i);
        const uint64_t values[] = {key->min, key->simplest};
        for (unsigned v = 0; v < VIA_ARRAY_COUNT(values) && values[v] != SIM_NO_SIMPLEST; v++) {
            struct sim_changes changes = {0};
            const struct sim_jobs jobs = {.changes = &changes};
            struct sim_result result;
            changes.changed[i] = true;
            changes.values[i] = values[v];
            sim_jobs_one(&jobs, 3 + i, NULL, &result);
            if (result.failed) {
                fail_msg("%s=%llu: seed %u: %s", key->name, (unsigned long long)values[v], 3 + i,
                         result.failure);
            }
        }
    }
}

static void run_four_seconds(const struct sim_config *config, int plant, FILE *trace,
                             struct sim_streams_result *ret_result)
{
    (void)config, (void)plant, (void)trace;
    for (unsigned i = 0; i < 80; i++) {
        usleep(50000);
    }
    *ret_result = (struct sim_streams_result){0};
}

static void wait_forever(const struct sim_config *config, int plant, FILE *trace,
                         struct sim_streams_result *ret_result)
{
    (void)config, (void)plant, (void)trace, (void)ret_result;
    for (;;) {
        pause();
    }
}

static void compute_forever(const struct sim_config *config, int plant, FILE *trace,
                            struct sim_streams_result *ret_result)
{
    (void)config, (void)plant, (void)trace, (void)ret_result;
    for (;;) {
        atomic_signal_fence(memory_order_seq_cst);
    }
}

/* On a busy machine a seed gets little of a processor, but does not hang. */
static void only_processor_time_is_limited(void **state)
{
    (void)state;
    struct sim_changes changes = {0};
    char error[256];
    assert_int_equal(sim_changes_parse(&changes, "streams=1,pes=0,hosts=2", error, sizeof(error)),
                     0);
    struct sim_jobs jobs = {
        .first = 1, .count = 1, .processes = 1, .hang_s = 2, .changes = &changes};
    struct sim_jobs_result result;

    jobs.sockets = run_four_seconds;
    assert_int_equal(sim_jobs_run(&jobs, &result), 0);
    assert_string_equal(result.failure, "");
    assert_int_equal(result.done, 1);

    jobs.sockets = compute_forever;
    assert_int_equal(sim_jobs_run(&jobs, &result), 0);
    assert_string_equal(result.failure, "no end after 2 s of processor time");

    jobs.sockets = wait_forever;
    assert_int_equal(sim_jobs_run(&jobs, &result), 0);
    assert_string_equal(result.failure, "waits: no processor time taken for 2 s");
}

static void plants_are_found_by_name(void **state)
{
    (void)state;
    for (int plant = 0; plant < SIM_PLANT_CORE_FIRST; plant++) {
        assert_non_null(sim_plant_at(plant));
        assert_int_equal(sim_plant_parse(sim_plant_at(plant)->name), plant);
    }
    assert_int_equal(sim_plant_parse("weeds"), -1);
    /* The product's core has no planted bugs. */
    assert_int_equal(sim_plant_parse("core-no-epoch"), -1);
    assert_null(sim_plant_at(SIM_PLANT_CORE_FIRST));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_come_by_time_then_by_request),
        cmocka_unit_test(events_come_as_from_a_sorted_list),
        cmocka_unit_test(many_events_come_as_from_a_sorted_list),
        cmocka_unit_test(the_past_is_now),
        cmocka_unit_test(a_time_beyond_the_last_is_the_last),
        cmocka_unit_test(content_check_finds_the_first_wrong_byte),
        cmocka_unit_test(configs_are_valid_and_reach_the_extremes),
        cmocka_unit_test(a_seed_is_one_history),
        cmocka_unit_test(changes_and_lists_are_read),
        cmocka_unit_test(bad_changes_name_the_key),
        cmocka_unit_test(the_extremes_of_every_key_run),
        cmocka_unit_test(only_processor_time_is_limited),
        cmocka_unit_test(plants_are_found_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
