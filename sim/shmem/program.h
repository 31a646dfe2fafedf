/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A program: steps that all PEs make in the same order, each for the members of a group. The result
 * of each step follows from the seed and the step alone, so checks do not need the library. No two
 * steps use the same memory.
 */
#ifndef SIM_SHMEM_PROGRAM_H
#define SIM_SHMEM_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_job;
struct sim_pe;

#define SIM_STEPS_MAX 1000u
#define SIM_TEAMS_MAX 24u
#define SIM_MEMBERS_MAX 64u
#define SIM_ARENA_BYTES (1u << 20) /* in each region */

enum sim_step_kind {
    SIM_STEP_PUTS, /* each member to each, then a barrier */
    SIM_STEP_GETS, /* a barrier, then each member from each */
    SIM_STEP_SYNC, /* several barriers in a row, nothing between */
    SIM_STEP_BROADCAST,
    SIM_STEP_COLLECT,
    SIM_STEP_FCOLLECT,
    SIM_STEP_ALLTOALL,
    SIM_STEP_ALLTOALLS,
    SIM_STEP_REDUCE,
    SIM_STEP_SCAN,
    SIM_STEP_SIGNALS,  /* put with signal to the next one, all at once */
    SIM_STEP_RELAY,    /* one after the other: data that came with the signal is forwarded */
    SIM_STEP_FLAGS,    /* data, fence, flag */
    SIM_STEP_WAIT_ALL, /* a word of each member at each, waited for as a set */
    SIM_STEP_ATOMICS,
    SIM_STEP_LOCK,
    SIM_STEP_MALLOC,
    SIM_STEP_SPLIT,
    SIM_STEP_SPLIT_2D,
    SIM_STEP_KINDS
};

/* PEs start, start + stride, ... of the world. */
struct sim_members {
    int start, stride, count;
};
static inline int sim_member(const struct sim_members *members, int number)
{
    return members->start + members->stride * number;
}

/* 0 = the world, 1 = those of each host: a different group at every host; steps make the others. */
struct sim_team {
    struct sim_members members;
    bool made; /* the step that makes it is part of the program */
    bool here; /* number 1 */
};

struct sim_step {
    uint8_t kind;    /* enum sim_step_kind */
    bool left_out;   /* by a mask */
    bool active_set; /* not a team: the deprecated calls */
    uint8_t team;    /* if it is no team */
    struct sim_members set;
    uint8_t region;    /* enum via_region */
    uint8_t variant;   /* which calls */
    uint32_t root;     /* a member's number */
    uint32_t elements; /* uint64_t */
    uint32_t repeats;
    uint32_t to_stride, from_stride;
    uint64_t content;                               /* seed */
    uint32_t source_off, dest_off, words_off;       /* in the arena of the region */
    uint32_t source_count, dest_count, words_count; /* uint64_t */
    struct sim_members part;                        /* split: of the team */
    uint8_t new_team;                               /* 0 = none */
    /* State that the simulator sees from outside. */
    uint64_t entered[4]; /* rounds; bit per PE */
    uint64_t malloc_off;
    bool malloc_known;
};

struct sim_program {
    struct sim_team teams[SIM_TEAMS_MAX];
    uint32_t teams_count;
    struct sim_step *steps; /* owned */
    uint32_t steps_count;
    uint32_t arena_used[2];
    uint64_t *seen; /* owned; old values returned by atomics, a bit each, per step */
};

/* A root is drawn for the largest group of a step. */
static inline uint32_t sim_step_root(const struct sim_step *step, const struct sim_members *members)
{
    return step->root % (uint32_t)members->count;
}

/* Source and destination are the same object. */
static inline bool sim_step_is_in_place(const struct sim_step *step)
{
    return (step->kind == SIM_STEP_REDUCE || step->kind == SIM_STEP_SCAN) &&
           (step->variant & 64) != 0;
}

enum sim_reduction { SIM_SUM, SIM_XOR, SIM_MAX, SIM_MIN, SIM_AND, SIM_OR, SIM_REDUCTIONS };

static inline enum sim_reduction sim_step_reduction(const struct sim_step *step)
{
    return (enum sim_reduction)(step->variant % (step->active_set ? SIM_MAX + 1 : SIM_REDUCTIONS));
}

/* --- program.c ------------------------------------------------------------------------------- */

void sim_program_draw(struct sim_job *job);
void sim_program_fini(struct sim_job *job);
/* The members of a step as a PE sees it, and its number among them; -1 = not a member. */
int sim_step_number(const struct sim_job *job, const struct sim_step *step, const struct sim_pe *pe,
                    struct sim_members *ret_members);
const char *sim_step_name(const struct sim_step *step);

/* --- steps.c --------------------------------------------------------------------------------- */

/* Runs all steps, called by the fiber of a PE. */
void sim_program_run(struct sim_pe *pe);
/* Address of a step's object in the PE's own memory. */
uint64_t *sim_step_at(const struct sim_pe *pe, const struct sim_step *step, uint32_t off);

/* --- check.c --------------------------------------------------------------------------------- */

/* Element i that member `number` contributes for member `to` (if that matters). */
uint64_t sim_step_value(const struct sim_step *step, uint32_t number, uint32_t to, uint32_t i);
/* How many elements member `number` contributes to collect. */
uint32_t sim_step_part(const struct sim_step *step, uint32_t number);
/* Checks that the PE's memory has the step's result: at the end of the step, and at the end of the
 * run. */
void sim_step_check(struct sim_pe *pe, const struct sim_step *step);
/* No PE may leave before all have entered. */
void sim_step_enter(struct sim_pe *pe, struct sim_step *step, unsigned round);
void sim_step_leave(struct sim_pe *pe, struct sim_step *step, unsigned round);
/* An atomic has returned this old value of the counter at PE `root`: it may occur only once. */
void sim_step_old_value(struct sim_pe *pe, const struct sim_step *step, uint32_t root,
                        uint64_t old);
/* An error has ended the job: is that allowed? */
void sim_program_fatal(struct sim_pe *pe);
/* After the end: checks all memory of all PEs. */
void sim_program_final(struct sim_job *job);

#endif
