/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/cost/cpu.h"

#include <assert.h>
#include <math.h>

void sim_cpu_config_read(const struct sim_scenario *scenario, const char *section,
                         struct sim_cpu_config *ret_config)
{
    *ret_config = (struct sim_cpu_config){
        .cores_count = (uint32_t)sim_scenario_count(scenario, section, "cores"),
        .threads_per_core = (uint32_t)sim_scenario_count(scenario, section, "threads_per_core"),
        .smt_speed = sim_scenario_number(scenario, section, "smt_speed"),
        .slice_ps = sim_scenario_ps(scenario, section, "slice"),
        .switch_ps = sim_scenario_ps(scenario, section, "switch"),
        .wake_ps = sim_scenario_ps(scenario, section, "wake"),
        .wake_spread_ps = sim_scenario_ps(scenario, section, "wake_spread"),
    };
}

void sim_cpu_init(struct sim_cpu *cpu, struct sim_cost *cost, const struct sim_cpu_config *config,
                  uint64_t seed)
{
    *cpu = (struct sim_cpu){.cost = cost, .config = *config};
    cpu->lcpus_count = config->cores_count * config->threads_per_core;
    assert(cpu->lcpus_count >= 1 && cpu->lcpus_count <= SIM_LCPUS_MAX);
    sim_spread_init(&cpu->wakes, seed);
    via_list_init(&cpu->ready);
    for (uint32_t i = 0; i < cpu->lcpus_count; i++) {
        cpu->lcpus[i] = (struct sim_lcpu){.cpu = cpu, .index = i};
    }
}

/* Hardware thread i of n is on core i mod cores: the first `cores` of them share nothing. */
static struct sim_lcpu *sibling(const struct sim_lcpu *lcpu)
{
    struct sim_cpu *cpu = lcpu->cpu;
    uint32_t cores = cpu->config.cores_count;
    return cpu->config.threads_per_core == 1 ? NULL
           : lcpu->index < cores             ? &cpu->lcpus[lcpu->index + cores]
                                             : &cpu->lcpus[lcpu->index - cores];
}

static double speed(const struct sim_lcpu *lcpu)
{
    const struct sim_lcpu *other = sibling(lcpu);
    return other != NULL && other->task != NULL ? lcpu->cpu->config.smt_speed : 1;
}

/* Accounts for the time since the last event, at the speed that held until now. */
static void settle(struct sim_lcpu *lcpu)
{
    struct sim_cpu *cpu = lcpu->cpu;
    struct sim_task *task = lcpu->task;
    uint64_t now = cpu->cost->now_ps;
    if (task != NULL) {
        cpu->busy_ps += now - lcpu->busy_since_ps;
    }
    lcpu->busy_since_ps = now;
    if (now <= lcpu->since_ps) {
        return; /* the interrupt used all of the time */
    }
    uint64_t progress = (uint64_t)((double)(now - lcpu->since_ps) * speed(lcpu));
    lcpu->since_ps = now;
    if (task == NULL) {
        return;
    }
    uint64_t switching = via_min(progress, lcpu->switch_left_ps);
    lcpu->switch_left_ps -= switching;
    if (task->working) {
        task->left_ps -= via_min(progress - switching, task->left_ps);
    }
}

static void tick(void *object, uint64_t ticket);

/* Schedules the next check: when the work is done, or when the time slice is over and another task
 * waits. */
static void arm(struct sim_lcpu *lcpu)
{
    struct sim_cpu *cpu = lcpu->cpu;
    const struct sim_task *task = lcpu->task;
    uint64_t at = UINT64_MAX;
    lcpu->ticket++;
    if (task == NULL) {
        return;
    }
    if (task->working) {
        double left = (double)(lcpu->switch_left_ps + task->left_ps) / speed(lcpu);
        at = via_max(lcpu->since_ps, cpu->cost->now_ps) + (uint64_t)ceil(left);
    }
    if (!via_list_is_empty(&cpu->ready)) {
        at = via_min(at, lcpu->slice_end_ps);
    }
    if (at != UINT64_MAX) {
        sim_cost_at(cpu->cost, at,
                    (struct sim_call){.run = tick, .object = lcpu, .arg = lcpu->ticket});
    }
}

/* Puts a task on a hardware thread, or none. The other hardware thread of the core changes its
 * speed. */
static void occupy(struct sim_lcpu *lcpu, struct sim_task *task)
{
    struct sim_cpu *cpu = lcpu->cpu;
    struct sim_lcpu *other = sibling(lcpu);
    bool changes = (lcpu->task == NULL) != (task == NULL);
    settle(lcpu);
    if (other != NULL && changes) {
        settle(other);
    }
    lcpu->task = task;
    if (task != NULL) {
        task->state = SIM_TASK_RUNNING;
        task->lcpu = lcpu;
        lcpu->slice_end_ps = cpu->cost->now_ps + cpu->config.slice_ps;
        lcpu->switch_left_ps = lcpu->last == task ? 0 : cpu->config.switch_ps;
        lcpu->last = task;
    }
    arm(lcpu);
    if (other != NULL && changes) {
        arm(other);
    }
}

/* The last hardware thread if it is free, shares its core with no task and is not interrupted; else
 * a free core; else any free hardware thread. */
static struct sim_lcpu *find_idle(struct sim_cpu *cpu, const struct sim_task *task)
{
    struct sim_lcpu *found = NULL;
    for (uint32_t i = 0; i < cpu->lcpus_count; i++) {
        uint32_t start = task->lcpu == NULL ? 0 : task->lcpu->index;
        struct sim_lcpu *lcpu = &cpu->lcpus[(start + i) % cpu->lcpus_count];
        const struct sim_lcpu *other = sibling(lcpu);
        bool interrupted = lcpu->since_ps > cpu->cost->now_ps;
        if (lcpu->task == NULL && !interrupted && (other == NULL || other->task == NULL)) {
            return lcpu;
        }
        if (lcpu->task == NULL && (found == NULL || !interrupted)) {
            found = lcpu;
        }
    }
    return found;
}

static void make_ready(struct sim_task *task)
{
    struct sim_cpu *cpu = task->cpu;
    struct sim_lcpu *lcpu = find_idle(cpu, task);
    if (lcpu != NULL) {
        occupy(lcpu, task);
        return;
    }
    task->state = SIM_TASK_READY;
    via_list_push_back(&cpu->ready, &task->ready);
    for (uint32_t i = 0; i < cpu->lcpus_count; i++) {
        settle(&cpu->lcpus[i]);
        arm(&cpu->lcpus[i]); /* from now on its slice counts */
    }
}

/* The first task in the queue; NULL = none. */
static struct sim_task *pop_ready(struct sim_cpu *cpu)
{
    if (via_list_is_empty(&cpu->ready)) {
        return NULL;
    }
    struct sim_task *next = via_list_entry(cpu->ready.next, struct sim_task, ready);
    via_list_remove(&next->ready);
    return next;
}

static void tick(void *object, uint64_t ticket)
{
    struct sim_lcpu *lcpu = object;
    struct sim_cpu *cpu = lcpu->cpu;
    if (ticket != lcpu->ticket) {
        return;
    }
    settle(lcpu);
    struct sim_task *task = lcpu->task;
    /* The clock counts whole picoseconds, so up to one picosecond of the work may remain. */
    if (task->working && lcpu->since_ps <= cpu->cost->now_ps && lcpu->switch_left_ps == 0 &&
        task->left_ps <= 1) {
        task->working = false;
        struct sim_call done = task->done;
        arm(lcpu);
        if (done.run != NULL) {
            done.run(done.object, done.arg);
        }
        return;
    }
    if (cpu->cost->now_ps >= lcpu->slice_end_ps && !via_list_is_empty(&cpu->ready)) {
        struct sim_task *next = pop_ready(cpu);
        task->state = SIM_TASK_READY;
        task->preempted_count++;
        via_list_push_back(&cpu->ready, &task->ready);
        occupy(lcpu, next);
        return;
    }
    arm(lcpu);
}

void sim_task_init(struct sim_task *task, struct sim_cpu *cpu)
{
    *task = (struct sim_task){.cpu = cpu, .state = SIM_TASK_ASLEEP};
    via_list_init(&task->ready);
}

void sim_task_work(struct sim_task *task, uint64_t work_ps, struct sim_call done)
{
    assert(!task->working && task->state != SIM_TASK_WAKING);
    if (task->state == SIM_TASK_RUNNING) {
        settle(task->lcpu);
    }
    task->working = true;
    task->left_ps = work_ps;
    task->done = done;
    if (task->state == SIM_TASK_RUNNING) {
        arm(task->lcpu);
    } else if (task->state == SIM_TASK_ASLEEP) {
        make_ready(task);
    }
}

/* A core has become free: one of two tasks that share another core moves there. */
static void balance(struct sim_lcpu *lcpu)
{
    struct sim_cpu *cpu = lcpu->cpu;
    const struct sim_lcpu *other = sibling(lcpu);
    if (lcpu->task != NULL || other == NULL || other->task != NULL) {
        return;
    }
    for (uint32_t i = cpu->config.cores_count; i < cpu->lcpus_count; i++) {
        struct sim_lcpu *from = &cpu->lcpus[i];
        struct sim_task *task = from->task;
        if (task != NULL && sibling(from)->task != NULL) {
            occupy(from, NULL);
            occupy(lcpu, task);
            return;
        }
    }
}

void sim_task_sleep(struct sim_task *task)
{
    assert(!task->working);
    if (task->state == SIM_TASK_RUNNING) {
        struct sim_lcpu *lcpu = task->lcpu;
        task->state = SIM_TASK_ASLEEP;
        occupy(lcpu, pop_ready(task->cpu));
        balance(lcpu);
    } else {
        assert(task->state == SIM_TASK_READY);
        via_list_remove(&task->ready);
        task->state = SIM_TASK_ASLEEP;
    }
}

static void woken(void *object, uint64_t arg)
{
    struct sim_task *task = object;
    (void)arg;
    assert(task->state == SIM_TASK_WAKING);
    make_ready(task);
}

void sim_task_wake(struct sim_task *task, struct sim_call done)
{
    struct sim_cpu *cpu = task->cpu;
    assert(task->state == SIM_TASK_ASLEEP);
    task->state = SIM_TASK_WAKING;
    task->working = true;
    task->left_ps = 0;
    task->done = done;
    double spread_ps = sim_spread_draw(&cpu->wakes) * (double)cpu->config.wake_spread_ps;
    uint64_t delay = cpu->config.wake_ps + (uint64_t)spread_ps;
    sim_cost_after(cpu->cost, delay, (struct sim_call){.run = woken, .object = task});
}

/* Schedulers subtract the time of interrupts from a CPU's capacity, so a task does not stay on an
 * interrupted CPU while another core is free. */
static void evade(struct sim_lcpu *lcpu)
{
    struct sim_task *task = lcpu->task;
    struct sim_lcpu *idle = task == NULL ? NULL : find_idle(lcpu->cpu, task);
    const struct sim_lcpu *other = idle == NULL ? NULL : sibling(idle);
    if (idle != NULL && (other == NULL || other->task == NULL)) {
        occupy(lcpu, NULL);
        occupy(idle, task);
    }
}

void sim_cpu_interrupt(struct sim_cpu *cpu, uint32_t index, uint64_t work_ps, struct sim_call done)
{
    assert(index < cpu->lcpus_count);
    struct sim_lcpu *lcpu = &cpu->lcpus[index];
    settle(lcpu);
    evade(lcpu);
    lcpu->since_ps = via_max(lcpu->since_ps, cpu->cost->now_ps) + work_ps;
    if (lcpu->task == NULL) {
        cpu->busy_ps += work_ps;
    }
    sim_cost_at(cpu->cost, lcpu->since_ps, done);
    arm(lcpu);
}

unsigned sim_cpu_running_count(const struct sim_cpu *cpu)
{
    unsigned count = 0;
    for (uint32_t i = 0; i < cpu->lcpus_count; i++) {
        count += cpu->lcpus[i].task != NULL ? 1 : 0;
    }
    for (const struct via_list *at = cpu->ready.next; at != &cpu->ready; at = at->next) {
        count++;
    }
    return count;
}

uint64_t sim_cpu_busy_ps(struct sim_cpu *cpu)
{
    for (uint32_t i = 0; i < cpu->lcpus_count; i++) {
        settle(&cpu->lcpus[i]);
        arm(&cpu->lcpus[i]);
    }
    return cpu->busy_ps;
}
