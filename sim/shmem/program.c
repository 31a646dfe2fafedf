/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Drawing a program. */
#include "sim/shmem/program.h"

#include <stdlib.h>
#include <string.h>

#include "sim/memory.h"
#include "sim/shmem/job.h"

#define STEP_GAP_BYTES 64u /* stays zero, so that a write past an object is found */

const char *sim_step_name(const struct sim_step *step)
{
    static const char *const names[SIM_STEP_KINDS] = {
        "puts",      "gets",   "sync",   "broadcast", "collect", "fcollect", "alltoall",
        "alltoalls", "reduce", "scan",   "signals",   "relay",   "flags",    "wait-all",
        "atomics",   "lock",   "malloc", "split",     "split-2d"};
    return names[step->kind];
}

int sim_step_number(const struct sim_job *job, const struct sim_step *step, const struct sim_pe *pe,
                    struct sim_members *ret_members)
{
    struct sim_members members = step->set;
    if (!step->active_set) {
        members = job->program.teams[step->team].members;
        if (job->program.teams[step->team].here) {
            members = (struct sim_members){(int)(pe->index - pe->local), 1,
                                           (int)job->nodes[pe->node]->locals_count};
        }
    }
    *ret_members = members;
    for (int i = 0; i < members.count; i++) {
        if (sim_member(&members, i) == (int)pe->index) {
            return i;
        }
    }
    return -1;
}

/* --- drawing --------------------------------------------------------------------------------- */

static uint32_t elements(struct sim_job *job)
{
    uint32_t top = job->config->elements_max;
    while (top > 1 && via_rng_chance(&job->rng, 1, 2)) {
        top /= 2;
    }
    return sim_job_between(job, 1, top);
}

static uint32_t group_max(const struct sim_job *job, const struct sim_step *step)
{
    if (step->active_set) {
        return (uint32_t)step->set.count;
    }
    const struct sim_team *team = &job->program.teams[step->team];
    uint32_t most = (uint32_t)team->members.count;
    for (uint32_t i = 0; i < job->nodes_count && team->here; i++) {
        most = via_max(most, job->nodes[i]->locals_count);
    }
    return most;
}

static void draw_group(struct sim_job *job, struct sim_step *step)
{
    static const bool has_active_set[SIM_STEP_KINDS] = {
        [SIM_STEP_PUTS] = true,      [SIM_STEP_SYNC] = true,     [SIM_STEP_BROADCAST] = true,
        [SIM_STEP_COLLECT] = true,   [SIM_STEP_FCOLLECT] = true, [SIM_STEP_ALLTOALL] = true,
        [SIM_STEP_ALLTOALLS] = true, [SIM_STEP_REDUCE] = true};
    const struct sim_program *program = &job->program;
    int pes = (int)job->pes_count;
    if (has_active_set[step->kind] && via_rng_chance(&job->rng, 1, 4)) {
        int start = (int)sim_job_between(job, 0, job->pes_count - 1);
        int log_stride = (int)sim_job_between(job, 0, 2);
        int most = (pes - 1 - start) / (1 << log_stride) + 1;
        step->active_set = true;
        step->set = (struct sim_members){start, 1 << log_stride,
                                         (int)sim_job_between(job, 1, (uint32_t)most)};
        return;
    }
    step->team = (uint8_t)(via_rng_chance(&job->rng, 1, 3)
                               ? 0
                               : sim_job_between(job, 0, program->teams_count - 1));
    if (step->kind == SIM_STEP_MALLOC) {
        step->team = 0;
    }
}

static void draw_split(struct sim_job *job, struct sim_step *step)
{
    struct sim_program *program = &job->program;
    struct sim_members of = program->teams[step->team].members;
    if (program->teams_count + 1 > SIM_TEAMS_MAX || program->teams[step->team].here) {
        step->kind = SIM_STEP_SYNC;
        return;
    }
    int start = (int)sim_job_between(job, 0, (uint32_t)of.count - 1);
    bool down = start > 0 && via_rng_chance(&job->rng, 1, 4);
    int room = down ? start : of.count - 1 - start;
    int stride = (int)sim_job_between(job, 1, (uint32_t)via_max(1, via_min(room, 3)));
    int count = (int)sim_job_between(job, 1, (uint32_t)(room / stride + 1));
    step->part = (struct sim_members){start, down ? -stride : stride, count};
    step->new_team = (uint8_t)program->teams_count++;
    program->teams[step->new_team] = (struct sim_team){
        .members = {sim_member(&of, start), of.stride * step->part.stride, count}, .made = true};
}

/* Elements that a step moves in all: with small frames that takes many frames. */
#define WORDS_MAX 6000u
#define SINGLES_MAX 600u /* each by itself */

static uint32_t bounded(const struct sim_job *job, const struct sim_step *step, uint32_t count)
{
    bool all_to_all = step->kind == SIM_STEP_PUTS || step->kind == SIM_STEP_ALLTOALL ||
                      step->kind == SIM_STEP_ALLTOALLS || step->kind == SIM_STEP_FCOLLECT ||
                      step->kind == SIM_STEP_COLLECT || step->kind == SIM_STEP_GETS;
    uint32_t most = step->kind == SIM_STEP_ALLTOALLS ? SINGLES_MAX : WORDS_MAX;
    if (job->world->config.node.frame_bytes_max <= 256) {
        most /= 4;
    }
    most /= all_to_all ? count * count : count;
    return via_max(1u, via_min(step->elements, most));
}

static void draw_words(struct sim_job *job, struct sim_step *step)
{
    uint32_t count = group_max(job, step);
    uint32_t n = step->elements = bounded(job, step, count);
    step->root = sim_job_between(job, 0, count - 1);
    step->source_count = n;
    step->dest_count = n;
    step->words_count = 64; /* as pSync, or signals, flags, counters */
    step->repeats = via_max(1u, via_min(step->repeats, 64 / count));
    switch (step->kind) {
    case SIM_STEP_PUTS:
        step->source_count = step->dest_count = n * count;
        break;
    case SIM_STEP_GETS:
    case SIM_STEP_COLLECT:
    case SIM_STEP_FCOLLECT:
        step->dest_count = n * count;
        break;
    case SIM_STEP_ALLTOALL:
        step->source_count = step->dest_count = n * count;
        break;
    case SIM_STEP_ALLTOALLS:
        step->source_count = n * count * step->from_stride;
        step->dest_count = n * count * step->to_stride;
        break;
    case SIM_STEP_SYNC:
    case SIM_STEP_ATOMICS:
    case SIM_STEP_LOCK:
    case SIM_STEP_WAIT_ALL:
        step->source_count = step->dest_count = count;
        break;
    default:
        break;
    }
}

/* In the arena, each object behind a gap; false when it is full. */
static bool place(struct sim_program *program, struct sim_step *step)
{
    uint32_t *used = &program->arena_used[step->region];
    uint32_t at = *used;
    const uint32_t counts[] = {step->source_count, step->dest_count, step->words_count};
    uint32_t *offs[] = {&step->source_off, &step->dest_off, &step->words_off};
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(counts); i++) {
        *offs[i] = at;
        at += (counts[i] * 8 + STEP_GAP_BYTES + 63) & ~63u;
    }
    if (at > SIM_ARENA_BYTES) {
        return false;
    }
    *used = at;
    return true;
}

static bool draw_step(struct sim_job *job, struct sim_step *step)
{
    step->kind = (uint8_t)sim_job_between(job, 0, SIM_STEP_KINDS - 1);
    step->content = via_rng_next(&job->rng);
    step->variant = (uint8_t)sim_job_between(job, 0, 255);
    step->region = (uint8_t)sim_job_between(job, 0, VIA_REGIONS - 1);
    step->elements = elements(job);
    step->repeats = sim_job_between(job, 1, 4);
    step->to_stride = sim_job_between(job, 1, 3);
    step->from_stride = sim_job_between(job, 1, 3);
    draw_group(job, step);
    if (step->kind == SIM_STEP_SPLIT) {
        draw_split(job, step);
    }
    if (step->kind == SIM_STEP_REDUCE && via_rng_chance(&job->rng, 1, 2)) {
        step->elements = sim_job_between(job, 1, 6); /* few are exchanged by another algorithm */
    }
    draw_words(job, step);
    return place(&job->program, step);
}

/* Drops the steps that depend on a step that was dropped. */
static void drop_dependent_steps(struct sim_job *job)
{
    struct sim_program *program = &job->program;
    for (uint32_t i = 0; i < program->steps_count; i++) {
        struct sim_step *step = &program->steps[i];
        bool kept = sim_mask_is_kept(&job->world->config.work_mask, i);
        step->left_out = !kept || (!step->active_set && !program->teams[step->team].made);
        if (step->left_out && step->new_team != 0) {
            program->teams[step->new_team].made = false;
        }
    }
}

void sim_program_draw(struct sim_job *job)
{
    struct sim_program *program = &job->program;
    uint32_t steps = via_min(job->config->steps, SIM_STEPS_MAX);
    program->steps = sim_alloc(steps * sizeof(*program->steps));
    program->teams[0] = (struct sim_team){.members = {0, 1, (int)job->pes_count}, .made = true};
    program->teams[1] = (struct sim_team){.members = {0, 1, 1}, .made = true, .here = true};
    program->teams_count = 2;
    while (program->steps_count < steps && draw_step(job, &program->steps[program->steps_count])) {
        program->steps_count++;
    }
    program->seen = sim_alloc(steps * SIM_MEMBERS_MAX * sizeof(uint64_t));
    job->world->work_bursts = program->steps_count;
    drop_dependent_steps(job);
}

void sim_program_fini(struct sim_job *job)
{
    free(job->program.steps);
    free(job->program.seen);
}
