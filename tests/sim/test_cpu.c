/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The processors of the cost model, their scheduler, and actors on them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/types.h"
#include "sim/cost/actor.h"

#define US SIM_USEC_PS
#define TASKS_MAX 16

struct bench {
    struct sim_cost cost;
    struct sim_cpu cpu;
    struct sim_task tasks[TASKS_MAX];
    uint64_t ended_ps[TASKS_MAX];
    struct stop {
        struct bench *bench;
        unsigned task;
    } stops[TASKS_MAX];
};

static const struct sim_cpu_config plain = {.cores_count = 1,
                                            .threads_per_core = 1,
                                            .smt_speed = 1,
                                            .slice_ps = 100 * US,
                                            .switch_ps = 0,
                                            .wake_ps = 0,
                                            .wake_spread_ps = 0};

static void bench_init(struct bench *bench, const struct sim_cpu_config *config)
{
    *bench = (struct bench){0};
    sim_cost_init(&bench->cost);
    sim_cpu_init(&bench->cpu, &bench->cost, config, 1);
    for (unsigned i = 0; i < TASKS_MAX; i++) {
        sim_task_init(&bench->tasks[i], &bench->cpu);
        bench->stops[i] = (struct stop){bench, i};
    }
}

static void ended(void *object, uint64_t arg)
{
    struct stop *stop = object;
    stop->bench->ended_ps[stop->task] = stop->bench->cost.now_ps;
    if (arg == 0) {
        sim_task_sleep(&stop->bench->tasks[stop->task]);
    }
}

/* keep: the actor stays on its hardware thread when its work is complete. */
static void give_work(struct bench *bench, unsigned task, uint64_t work_ps, bool keep)
{
    sim_task_work(&bench->tasks[task], work_ps,
                  (struct sim_call){ended, &bench->stops[task], keep});
}

static void bench_run(struct bench *bench)
{
    assert_true(sim_cost_run(&bench->cost, 1000000));
}

static void bench_fini(struct bench *bench)
{
    sim_cost_fini(&bench->cost);
}

static void alone_it_takes_what_it_is_given(void **state)
{
    struct bench bench;
    (void)state;
    bench_init(&bench, &plain);
    give_work(&bench, 0, 250 * US, false);
    bench_run(&bench);
    assert_int_equal(bench.ended_ps[0], 250 * US);
    assert_int_equal(sim_cpu_busy_ps(&bench.cpu), 250 * US);
    bench_fini(&bench);
}

static void two_share_by_slices(void **state)
{
    struct bench bench;
    (void)state;
    bench_init(&bench, &plain);
    give_work(&bench, 0, 200 * US, false);
    give_work(&bench, 1, 150 * US, false);
    bench_run(&bench);
    /* 0: 0-100, 200-300; 1: 100-200, 300-350. */
    assert_int_equal(bench.ended_ps[0], 300 * US);
    assert_int_equal(bench.ended_ps[1], 350 * US);
    assert_int_equal(bench.tasks[0].preempted_count, 1);
    bench_fini(&bench);
}

static void a_change_of_tasks_costs(void **state)
{
    struct bench bench;
    struct sim_cpu_config config = plain;
    (void)state;
    config.switch_ps = 5 * US;
    bench_init(&bench, &config);
    give_work(&bench, 0, 100 * US, false);
    give_work(&bench, 1, 10 * US, false);
    bench_run(&bench);
    /* The slice counts the change: 95 of 100 are done when it is over. */
    assert_int_equal(bench.ended_ps[1], 115 * US);
    assert_int_equal(bench.ended_ps[0], 125 * US);
    bench_fini(&bench);
}

static uint64_t all_done_ps(const struct sim_cpu_config *config, unsigned tasks)
{
    struct bench bench;
    uint64_t last_ps = 0;
    bench_init(&bench, config);
    for (unsigned i = 0; i < tasks; i++) {
        give_work(&bench, i, 1000 * US, false);
    }
    bench_run(&bench);
    for (unsigned i = 0; i < tasks; i++) {
        last_ps = via_max(last_ps, bench.ended_ps[i]);
    }
    bench_fini(&bench);
    return last_ps;
}

static void more_tasks_than_cores_hurt(void **state)
{
    struct sim_cpu_config config = plain;
    (void)state;
    config.cores_count = 4;
    config.switch_ps = 2 * US;
    uint64_t four = all_done_ps(&config, 4);
    uint64_t eight = all_done_ps(&config, 8);
    assert_int_equal(four, 1002 * US);
    /* Twice the work, and a change for every slice. */
    assert_true(eight >= 2 * four + 30 * US);
}

static void hardware_threads_of_a_core_slow_each_other(void **state)
{
    struct bench bench;
    struct sim_cpu_config config = plain;
    (void)state;
    config.threads_per_core = 2;
    config.smt_speed = 0.6;
    bench_init(&bench, &config);
    give_work(&bench, 0, 60 * US, false);
    give_work(&bench, 1, 120 * US, false);
    bench_run(&bench);
    /* Both at 0.6 for 100; then one is alone with the 60 it has left. */
    assert_in_range(bench.ended_ps[0], 100 * US, 100 * US + 100);
    assert_in_range(bench.ended_ps[1], 160 * US, 160 * US + 100);
    bench_fini(&bench);
}

static void free_cores_come_before_shared_ones(void **state)
{
    struct sim_cpu_config config = plain;
    (void)state;
    config.cores_count = 4;
    config.threads_per_core = 2;
    config.smt_speed = 0.5;
    assert_int_equal(all_done_ps(&config, 4), 1000 * US);
    /* The fifth shares a core until others have ended; then it has a core of its own. */
    assert_in_range(all_done_ps(&config, 5), 1500 * US - 10, 1500 * US + 10);
}

static void an_interrupt_takes_the_time_of_what_runs(void **state)
{
    struct bench bench;
    (void)state;
    bench_init(&bench, &plain);
    give_work(&bench, 0, 50 * US, false);
    sim_cpu_interrupt(&bench.cpu, 0, 7 * US, (struct sim_call){ended, &bench.stops[1], 1});
    sim_cpu_interrupt(&bench.cpu, 0, 3 * US, (struct sim_call){ended, &bench.stops[2], 1});
    bench_run(&bench);
    assert_int_equal(bench.ended_ps[1], 7 * US);
    assert_int_equal(bench.ended_ps[2], 10 * US);
    assert_int_equal(bench.ended_ps[0], 60 * US);
    bench_fini(&bench);
}

static void a_wake_up_costs_and_so_does_waiting_for_a_processor(void **state)
{
    struct bench bench;
    struct sim_cpu_config config = plain;
    (void)state;
    config.wake_ps = 3 * US;
    config.switch_ps = US;
    bench_init(&bench, &config);
    sim_task_wake(&bench.tasks[0], (struct sim_call){ended, &bench.stops[0], 0});
    bench_run(&bench);
    assert_int_equal(bench.ended_ps[0], 4 * US);
    give_work(&bench, 1, 30 * US, false);
    sim_task_wake(&bench.tasks[2], (struct sim_call){ended, &bench.stops[2], 0});
    bench_run(&bench);
    assert_int_equal(bench.ended_ps[1], 35 * US);
    assert_int_equal(bench.ended_ps[2], 36 * US);
    bench_fini(&bench);
}

static void a_thread_that_polls_keeps_others_off_the_cpu(void **state)
{
    struct bench bench;
    (void)state;
    bench_init(&bench, &plain);
    give_work(&bench, 0, 10 * US, true);
    give_work(&bench, 1, 10 * US, false);
    bench_run(&bench);
    assert_int_equal(bench.ended_ps[0], 10 * US);
    assert_int_equal(bench.ended_ps[1], 110 * US);
    bench_fini(&bench);
}

/* --- actors ---------------------------------------------------------------------------------- */

struct room {
    struct sim_cost cost;
    struct sim_cpu cpu;
    struct sim_memory memory;
    struct sim_pool key;
    struct sim_actor actors[4];
    unsigned begun;
    uint64_t ended_ps[4];
    uint64_t copy_bytes;
};

static void room_init(struct room *room, const struct sim_cpu_config *config)
{
    *room = (struct room){0};
    sim_cost_init(&room->cost);
    sim_cpu_init(&room->cpu, &room->cost, config, 1);
    sim_pool_init(&room->key, &room->cost, 1);
    room->memory =
        (struct sim_memory){.copy_rate = 1e9, .bus_rate = 4e9, .crossings = 2, .piece_bytes = 4096};
    sim_server_init(&room->memory.bus, &room->cost);
}

static void room_run(struct room *room, unsigned actors, void (*main)(void *arg))
{
    for (unsigned i = 0; i < actors; i++) {
        sim_actor_start(&room->actors[i], &room->cpu, main, room);
    }
    assert_true(sim_cost_run(&room->cost, 1000000));
    assert_int_equal(room->begun, actors);
    for (unsigned i = 0; i < actors; i++) {
        sim_actor_fini(&room->actors[i]);
    }
    sim_cost_fini(&room->cost);
}

static void with_the_key(void *arg)
{
    struct room *room = arg;
    unsigned me = room->begun++;
    sim_actor_take(&room->actors[me], &room->key);
    sim_actor_work(&room->actors[me], 10 * US);
    sim_pool_give(&room->key, 1);
    room->ended_ps[me] = room->cost.now_ps;
    sim_actor_sleep(&room->actors[me]);
}

static void a_lock_serves_in_order_and_waiters_sleep(void **state)
{
    struct room room;
    struct sim_cpu_config config = plain;
    (void)state;
    config.cores_count = 4;
    config.wake_ps = 2 * US;
    room_init(&room, &config);
    room_run(&room, 3, with_the_key);
    /* Each hand-over costs a wake-up. */
    assert_int_equal(room.ended_ps[0], 10 * US);
    assert_int_equal(room.ended_ps[1], 22 * US);
    assert_int_equal(room.ended_ps[2], 34 * US);
    assert_int_equal(sim_cpu_busy_ps(&room.cpu), 30 * US);
}

static void copy(void *arg)
{
    struct room *room = arg;
    unsigned me = room->begun++;
    sim_actor_copy(&room->actors[me], &room->memory, room->copy_bytes);
    room->ended_ps[me] = room->cost.now_ps;
    sim_actor_sleep(&room->actors[me]);
}

static void copies_share_the_bus(void **state)
{
    static const unsigned counts[] = {1, 2, 4};
    uint64_t took_ps[VIA_ARRAY_COUNT(counts)];
    struct sim_cpu_config config = plain;
    (void)state;
    config.cores_count = 4;
    for (size_t i = 0; i < VIA_ARRAY_COUNT(counts); i++) {
        struct room room;
        room_init(&room, &config);
        room.copy_bytes = 1000000;
        room_run(&room, counts[i], copy);
        took_ps[i] = room.ended_ps[0];
    }
    /* The bus carries two copies at full rate: 4 GB/s, and each byte crosses it twice. */
    assert_in_range(took_ps[0], 999 * US, 1001 * US);
    assert_in_range(took_ps[1], 999 * US, 1010 * US);
    assert_in_range(took_ps[2], 1980 * US, 2010 * US);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone_it_takes_what_it_is_given),
        cmocka_unit_test(two_share_by_slices),
        cmocka_unit_test(a_change_of_tasks_costs),
        cmocka_unit_test(more_tasks_than_cores_hurt),
        cmocka_unit_test(hardware_threads_of_a_core_slow_each_other),
        cmocka_unit_test(free_cores_come_before_shared_ones),
        cmocka_unit_test(an_interrupt_takes_the_time_of_what_runs),
        cmocka_unit_test(a_wake_up_costs_and_so_does_waiting_for_a_processor),
        cmocka_unit_test(a_thread_that_polls_keeps_others_off_the_cpu),
        cmocka_unit_test(a_lock_serves_in_order_and_waiters_sleep),
        cmocka_unit_test(copies_share_the_bus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
