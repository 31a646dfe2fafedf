/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The expected result of each step, without the library: element by element, one member after
 * another. */
#include <errno.h>
#include <string.h>

#include "sim/shmem/job.h"

/* --- inputs ---------------------------------------------------------------------------------- */

uint64_t sim_step_value(const struct sim_step *step, uint32_t number, uint32_t to, uint32_t i)
{
    uint64_t x = step->content + number * UINT64_C(0x9e3779b97f4a7c15) +
                 to * UINT64_C(0xbf58476d1ce4e5b9) + i * UINT64_C(0x94d049bb133111eb);
    x = (x ^ x >> 31) * UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    if (step->kind == SIM_STEP_REDUCE && step->active_set) {
        return x >> 8; /* signed, and no sum of them overflows */
    }
    return x | 1; /* never equal to the former content */
}

uint32_t sim_step_part(const struct sim_step *step, uint32_t number)
{
    return (uint32_t)((step->content >> 7 ^ number * UINT64_C(0x9e3779b9)) % (step->elements + 1));
}

/* --- results --------------------------------------------------------------------------------- */

static uint64_t combine(enum sim_reduction reduction, uint64_t a, uint64_t b)
{
    switch (reduction) {
    case SIM_SUM:
        return a + b;
    case SIM_XOR:
        return a ^ b;
    case SIM_MAX:
        return a > b ? a : b;
    case SIM_MIN:
        return a < b ? a : b;
    case SIM_AND:
        return a & b;
    default:
        return a | b;
    }
}

static uint64_t reduced(const struct sim_step *step, uint32_t count, uint32_t i)
{
    bool scan = step->kind == SIM_STEP_SCAN;
    uint64_t sum = count == 0 ? 0 : sim_step_value(step, 0, 0, i);
    for (uint32_t k = 1; k < count; k++) {
        sum =
            combine(scan ? SIM_SUM : sim_step_reduction(step), sum, sim_step_value(step, k, 0, i));
    }
    return sum;
}

static uint64_t collected(const struct sim_step *step, uint32_t count, uint32_t i)
{
    for (uint32_t k = 0; k < count; k++) {
        uint32_t part = sim_step_part(step, k);
        if (i < part) {
            return sim_step_value(step, k, 0, i);
        }
        i -= part;
    }
    return 0;
}

/* Element i of the destination at member `me` of `count`. */
static uint64_t expected(const struct sim_step *step, const struct sim_members *members,
                         uint32_t me, uint32_t i)
{
    uint32_t count = (uint32_t)members->count;
    uint32_t n = step->elements;
    uint32_t from = i / n;
    switch (step->kind) {
    case SIM_STEP_PUTS:
    case SIM_STEP_ALLTOALL:
        return from < count ? sim_step_value(step, from, me, i % n) : 0;
    case SIM_STEP_GETS:
    case SIM_STEP_FCOLLECT:
        return from < count ? sim_step_value(step, from, 0, i % n) : 0;
    case SIM_STEP_ALLTOALLS:
        from = i / step->to_stride / n;
        return from < count && i % step->to_stride == 0
                   ? sim_step_value(step, from, me, i / step->to_stride % n)
                   : 0;
    case SIM_STEP_BROADCAST:
        return step->active_set && me == sim_step_root(step, members)
                   ? 0
                   : sim_step_value(step, sim_step_root(step, members), 0, i);
    case SIM_STEP_COLLECT:
        return collected(step, count, i);
    case SIM_STEP_REDUCE:
        return reduced(step, count, i);
    case SIM_STEP_SCAN:
        return reduced(step, me + (step->variant & 1), i);
    case SIM_STEP_SIGNALS:
    case SIM_STEP_FLAGS:
        return sim_step_value(step, (me + count - 1) % count, me, i);
    case SIM_STEP_RELAY:
        return sim_step_value(step, 0, 0, i);
    case SIM_STEP_WAIT_ALL:
        return i < count ? sim_step_value(step, i, me, 0) : 0;
    default:
        return 0;
    }
}

/* Words of the root: all of the counters. */
static uint64_t expected_word(const struct sim_step *step, uint32_t count, unsigned word)
{
    uint64_t sum = 0;
    for (uint32_t k = 0; k < count; k++) {
        for (uint32_t r = 0; r < step->repeats; r++) {
            uint64_t value = sim_step_value(step, k, 0, r);
            sum = word == 1 ? sum + value : word == 2 ? sum ^ value : sum + 1;
        }
    }
    return sum;
}

static void check_words(struct sim_pe *pe, const struct sim_step *step, uint32_t count)
{
    unsigned words = step->kind == SIM_STEP_ATOMICS ? 4 : step->kind == SIM_STEP_LOCK ? 1 : 0;
    const uint64_t *at = sim_step_at(pe, step, step->words_off);
    for (unsigned i = 0; i < words; i++) {
        if (at[i] != expected_word(step, count, i)) {
            sim_fail(pe->job->world,
                     "PE %u, step %u (%s): word %u is %#llx after all updates, expected %#llx",
                     pe->index, (unsigned)(step - pe->job->program.steps), sim_step_name(step), i,
                     (unsigned long long)at[i], (unsigned long long)expected_word(step, count, i));
        }
    }
}

void sim_step_check(struct sim_pe *pe, const struct sim_step *step)
{
    struct sim_job *job = pe->job;
    struct sim_members members;
    int number = sim_step_number(job, step, pe, &members);
    const uint64_t *at = sim_step_at(pe, step, step->dest_off);
    for (uint32_t i = 0; i < step->dest_count; i++) {
        uint64_t right =
            number < 0 || step->left_out ? 0 : expected(step, &members, (uint32_t)number, i);
        if (at[i] != right) {
            sim_fail(job->world,
                     "PE %u, step %u (%s of %d PEs, number %d): element %u of %u is %#llx, "
                     "expected %#llx",
                     pe->index, (unsigned)(step - job->program.steps), sim_step_name(step),
                     members.count, number, i, step->dest_count, (unsigned long long)at[i],
                     (unsigned long long)right);
            return;
        }
    }
    if (number >= 0 && !step->left_out && (uint32_t)number == sim_step_root(step, &members)) {
        check_words(pe, step, (uint32_t)members.count);
    }
}

/* --- order ----------------------------------------------------------------------------------- */

void sim_step_enter(struct sim_pe *pe, struct sim_step *step, unsigned round)
{
    step->entered[round] |= UINT64_C(1) << pe->index;
}

void sim_step_leave(struct sim_pe *pe, struct sim_step *step, unsigned round)
{
    struct sim_members members;
    sim_step_number(pe->job, step, pe, &members);
    for (int i = 0; i < members.count; i++) {
        if ((step->entered[round] >> sim_member(&members, i) & 1) == 0) {
            sim_fail(pe->job->world,
                     "PE %u, step %u (%s of %d PEs): leaves round %u before PE %d has entered it",
                     pe->index, (unsigned)(step - pe->job->program.steps), sim_step_name(step),
                     members.count, round, sim_member(&members, i));
            return;
        }
    }
}

void sim_step_old_value(struct sim_pe *pe, const struct sim_step *step, uint32_t root, uint64_t old)
{
    struct sim_program *program = &pe->job->program;
    size_t number = (size_t)(step - program->steps);
    uint64_t *seen = &program->seen[number * SIM_MEMBERS_MAX + root];
    if (old >= 64 || (*seen >> old & 1) != 0) {
        sim_fail(pe->job->world,
                 "PE %u, step %zu: the old value %llu has been returned before, or never was",
                 pe->index, number, (unsigned long long)old);
        return;
    }
    *seen |= UINT64_C(1) << old;
}

/* --- the end --------------------------------------------------------------------------------- */

/* A crash of a host with PEs ends a job. So does an owner of memory that has dropped an answer
 * because it could reach no host for a second. */
void sim_program_fatal(struct sim_pe *pe)
{
    struct sim_world *world = pe->job->world;
    bool unreachable = strstr(pe->last_words, strerror(EHOSTUNREACH)) != NULL &&
                       !sim_is_calm(world) && world->clock.now_ns >= VIA_SEC_NS;
    if (!pe->job->crashed && !pe->job->ending && !unreachable) {
        sim_fail(world, "PE %u, step %u: the library ends the job: %s", pe->index, pe->step,
                 pe->last_words);
    }
}

/* Behind each object there is a gap. */
static void check_gap(struct sim_pe *pe, const struct sim_step *step, uint32_t off, uint32_t count)
{
    const uint64_t *at = sim_step_at(pe, step, off);
    for (uint32_t i = count; i < count + 8; i++) {
        if (at[i] != 0) {
            sim_fail(pe->job->world, "PE %u, step %u (%s): memory past an object is written to",
                     pe->index, (unsigned)(step - pe->job->program.steps), sim_step_name(step));
        }
    }
}

void sim_program_final(struct sim_job *job)
{
    for (uint32_t i = 0; i < job->pes_count && !job->ending; i++) {
        for (uint32_t s = 0; s < job->program.steps_count; s++) {
            const struct sim_step *step = &job->program.steps[s];
            if (!sim_step_is_in_place(step)) {
                sim_step_check(&job->pes[i], step);
            }
            check_gap(&job->pes[i], step, step->source_off, step->source_count);
            check_gap(&job->pes[i], step, step->dest_off, step->dest_count);
            check_gap(&job->pes[i], step, step->words_off, step->words_count);
        }
    }
}
