/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The CPUs of one host and their scheduler: tasks that compute, one run queue, time slices,
 * the cost of wake-ups and task switches, hardware threads that share a core, and interrupts that
 * take time from the running task. More tasks than hardware threads wait for each other; more busy
 * hardware threads than cores slow each other down.
 */
#ifndef SIM_COST_CPU_H
#define SIM_COST_CPU_H

#include "base/list.h"
#include "sim/cost/cost.h"
#include "sim/cost/scenario.h"
#include "sim/cost/spread.h"

#define SIM_LCPUS_MAX 64u

struct sim_cpu_config {
    uint32_t cores_count;
    uint32_t threads_per_core; /* 1 or 2 */
    double smt_speed; /* speed of a hardware thread while the other one of its core is busy, 0..1 */
    uint64_t slice_ps;       /* how long a task runs while others wait */
    uint64_t switch_ps;      /* of a task switch */
    uint64_t wake_ps;        /* from a wake-up until the task may run */
    uint64_t wake_spread_ps; /* mean of an exponential time added to wake_ps */
};

void sim_cpu_config_read(const struct sim_scenario *scenario, const char *section,
                         struct sim_cpu_config *ret_config);

enum sim_task_state {
    SIM_TASK_ASLEEP,
    SIM_TASK_WAKING, /* woken, about to be ready */
    SIM_TASK_READY,  /* waits for a hardware thread */
    SIM_TASK_RUNNING
};

struct sim_lcpu;

struct sim_task {
    struct sim_cpu *cpu;   /* borrowed */
    struct via_list ready; /* in sim_cpu.ready */
    struct sim_lcpu *lcpu; /* its hardware thread, or the last one */
    enum sim_task_state state;
    bool working;     /* there is work left, and then `done` to call */
    uint64_t left_ps; /* work left */
    struct sim_call done;
    uint64_t preempted_count;
};

/* A hardware thread: Linux's logical CPU. */
struct sim_lcpu {
    struct sim_task *task; /* NULL = idle */
    struct sim_cpu *cpu;
    uint32_t index;
    const struct sim_task *last;
    uint64_t since_ps;      /* the task's work is accounted up to this time */
    uint64_t busy_since_ps; /* end of the time slice */
    uint64_t slice_end_ps;
    uint64_t switch_left_ps;
    uint64_t ticket; /* number of the valid event */
};

struct sim_cpu {
    struct sim_cost *cost; /* borrowed */
    struct sim_cpu_config config;
    struct sim_spread wakes;
    uint32_t lcpus_count;
    struct sim_lcpu lcpus[SIM_LCPUS_MAX];
    struct via_list ready; /* struct sim_task */
    uint64_t busy_ps;      /* of all hardware threads, interrupts included */
};

void sim_cpu_init(struct sim_cpu *cpu, struct sim_cost *cost, const struct sim_cpu_config *config,
                  uint64_t seed);
/* Tasks that run on a hardware thread or wait for one. */
unsigned sim_cpu_running_count(const struct sim_cpu *cpu);
/* Time used so far, of all hardware threads. */
uint64_t sim_cpu_busy_ps(struct sim_cpu *cpu);

/* Adds a task, asleep. */
void sim_task_init(struct sim_task *task, struct sim_cpu *cpu);

/*
 * Computes for work_ps, at the full speed of a hardware thread, as soon as the task runs; then
 * calls `done`, and the task keeps its hardware thread: it waits without sleeping until it gets
 * more work or sleeps. A sleeping task becomes ready at once, without the cost of a wake-up.
 */
void sim_task_work(struct sim_task *task, uint64_t work_ps, struct sim_call done);

/* Gives up its hardware thread. No work may be left. */
void sim_task_sleep(struct sim_task *task);

/* Wakes a sleeping task: calls `done` when it is on a hardware thread. */
void sim_task_wake(struct sim_task *task, struct sim_call done);

/*
 * An interrupt: the hardware thread `lcpu` handles it for work_ps before anything else, after
 * earlier interrupts. Then `done` is called.
 */
void sim_cpu_interrupt(struct sim_cpu *cpu, uint32_t lcpu, uint64_t work_ps, struct sim_call done);

#endif
