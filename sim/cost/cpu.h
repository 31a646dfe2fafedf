/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The processors of one host and their scheduler: tasks that want to compute, one run queue, time
 * slices, what a wake-up and a change of tasks cost, hardware threads that share a core, and
 * interrupts that take the time of whatever runs. More tasks than hardware threads wait for each
 * other; more busy hardware threads than cores slow each other down.
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
    double smt_speed;          /* of a hardware thread while the other of its core is busy, 0..1 */
    uint64_t slice_ps;         /* how long a task runs on while others wait */
    uint64_t switch_ps;        /* one task off, another one on */
    uint64_t wake_ps;          /* from a wake-up until the task may be put on */
    uint64_t wake_spread_ps;   /* mean of an exponential time on top of that */
};

/* Parameters of a scenario file, section "cpu" or "cpu <name>". */
extern const struct sim_section sim_cpu_section;
extern const struct sim_section sim_cpu_named_section;
/* [software]: what the kernel and a core's accesses to registers cost, on every host. */
extern const struct sim_section sim_software_section;
void sim_cpu_config_read(const struct sim_scenario *scenario, const char *section,
                         struct sim_cpu_config *ret_config);

enum sim_task_state {
    SIM_TASK_ASLEEP,
    SIM_TASK_WAKING, /* asleep, but about to be ready */
    SIM_TASK_READY,  /* waits for a hardware thread */
    SIM_TASK_RUNNING
};

struct sim_lcpu;

struct sim_task {
    struct sim_cpu *cpu;   /* borrowed */
    struct via_list ready; /* in sim_cpu.ready */
    struct sim_lcpu *lcpu; /* it runs on, or ran on last */
    enum sim_task_state state;
    bool working;     /* there is work to be done, then `done` to be called */
    uint64_t left_ps; /* of it */
    struct sim_call done;
    uint64_t ran_ps; /* hardware thread time used, also by waiting without sleeping */
    uint64_t preempted_count;
};

/* A hardware thread: Linux's logical CPU. */
struct sim_lcpu {
    struct sim_cpu *cpu;
    uint32_t index;
    struct sim_task *task; /* NULL = idle */
    const struct sim_task *last;
    uint64_t since_ps;      /* the task's work is accounted for up to here */
    uint64_t busy_since_ps; /* its time is */
    uint64_t slice_end_ps;
    uint64_t switch_left_ps;
    uint64_t ticket; /* of the event that counts */
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
/* Tasks that are on a hardware thread or wait for one. */
unsigned sim_cpu_running_count(const struct sim_cpu *cpu);
/* Time used so far, of all hardware threads. */
uint64_t sim_cpu_busy_ps(struct sim_cpu *cpu);

/* A task begins asleep. */
void sim_task_init(struct sim_task *task, struct sim_cpu *cpu);

/*
 * work_ps of computing, at full speed of a hardware thread, as soon as the task is on one; then
 * `done` is called, and the task stays there: it waits without sleeping until it is given more work
 * or sleeps. A task that sleeps is made ready at once, without the cost of a wake-up.
 */
void sim_task_work(struct sim_task *task, uint64_t work_ps, struct sim_call done);

/* Gives its hardware thread up. Nothing may be left to be done. */
void sim_task_sleep(struct sim_task *task);

/* Wakes a task that sleeps: `done` is called when it is on a hardware thread. */
void sim_task_wake(struct sim_task *task, struct sim_call done);

/*
 * An interrupt: the hardware thread `lcpu` does work_ps of it before anything else, after the
 * interrupts it has already. `done` is called then.
 */
void sim_cpu_interrupt(struct sim_cpu *cpu, uint32_t lcpu, uint64_t work_ps, struct sim_call done);

#endif
