/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The steps of a program, as an OpenSHMEM program would write them. */
#include <string.h>

#include "shmem/path.h"
#include "sim/shmem/job.h"

/* Up to SINGLE_MAX elements are put one by one. */
#define SINGLE_MAX 12u

/* One step at one of its members. */
struct turn {
    struct sim_pe *pe;
    struct sim_step *step;
    struct sim_members members;
    uint32_t me, count;
    uint64_t *source, *dest, *words;
};

static int pe_of(const struct turn *turn, uint32_t number)
{
    return sim_member(&turn->members, (int)number);
}

static shmem_team_t team_of(const struct turn *turn)
{
    return turn->pe->handles[turn->step->team];
}

uint64_t *sim_step_at(const struct sim_pe *pe, const struct sim_step *step, uint32_t off)
{
    uint64_t begin = step->region == VIA_REGION_HEAP ? pe->arena_off : 0;
    return (uint64_t *)(void *)(pe->base[step->region] + begin + off);
}

static int log_stride(const struct turn *turn)
{
    return __builtin_ctz((unsigned)turn->step->set.stride);
}

/* --- barriers -------------------------------------------------------------------------------- */

static void barrier(struct turn *turn)
{
    const struct sim_step *step = turn->step;
    if (step->active_set) {
        shmem_barrier(step->set.start, log_stride(turn), step->set.count, (long *)turn->words);
    } else if (step->team == 0 && (step->variant & 32) != 0) {
        shmem_barrier_all();
    } else {
        shmem_quiet();
        shmem_team_sync(team_of(turn));
    }
}

static void sync_only(struct turn *turn)
{
    const struct sim_step *step = turn->step;
    if (step->active_set) {
        shmem_sync(step->set.start, log_stride(turn), step->set.count, (long *)turn->words);
    } else if (step->team == 0 && (step->variant & 32) != 0) {
        shmem_sync_all();
    } else {
        shmem_team_sync(team_of(turn));
    }
}

static void do_sync(struct turn *turn)
{
    for (unsigned round = 0; round < turn->step->repeats; round++) {
        sim_step_enter(turn->pe, turn->step, round);
        sync_only(turn);
        sim_step_leave(turn->pe, turn->step, round);
    }
}

/* --- puts and gets --------------------------------------------------------------------------- */

static void put(struct turn *turn, uint64_t *dest, const uint64_t *source, uint32_t to)
{
    uint32_t n = turn->step->elements;
    int pe = pe_of(turn, to);
    unsigned how = turn->step->variant % 4;
    if (n > SINGLE_MAX && how >= 2) {
        how -= 2;
    }
    switch (how) {
    case 0:
        shmem_uint64_put(dest, source, n, pe);
        break;
    case 1:
        shmem_uint64_put_nbi(dest, source, n, pe);
        break;
    case 2:
        for (uint32_t i = 0; i < n; i++) {
            shmem_uint64_p(&dest[i], source[i], pe);
        }
        break;
    default:
        shmem_uint64_iput(dest, source, 1, 1, n, pe);
        break;
    }
}

static void do_puts(struct turn *turn)
{
    uint32_t n = turn->step->elements;
    for (uint32_t k = 0; k < turn->count; k++) {
        uint32_t to = (turn->me + k) % turn->count;
        uint64_t *source = &turn->source[to * n];
        for (uint32_t i = 0; i < n; i++) {
            source[i] = sim_step_value(turn->step, turn->me, to, i);
        }
        put(turn, &turn->dest[turn->me * n], source, to);
    }
    sim_step_enter(turn->pe, turn->step, 0);
    barrier(turn);
    sim_step_leave(turn->pe, turn->step, 0);
}

static void fill_source(struct turn *turn)
{
    for (uint32_t i = 0; i < turn->step->elements; i++) {
        turn->source[i] = sim_step_value(turn->step, turn->me, 0, i);
    }
}

static void do_gets(struct turn *turn)
{
    uint32_t n = turn->step->elements;
    fill_source(turn);
    sync_only(turn);
    for (uint32_t k = 0; k < turn->count; k++) {
        uint32_t from = (turn->me + k) % turn->count;
        uint64_t *dest = &turn->dest[from * n];
        if (turn->step->variant & 1) {
            shmem_uint64_get(dest, turn->source, n, pe_of(turn, from));
        } else if (n <= SINGLE_MAX) {
            shmem_uint64_iget(dest, turn->source, 1, 1, n, pe_of(turn, from));
        } else {
            uint64_t mine[128]; /* not symmetric */
            for (uint32_t at = 0; at < n; at += VIA_ARRAY_COUNT(mine)) {
                uint32_t piece = via_min(n - at, (uint32_t)VIA_ARRAY_COUNT(mine));
                shmem_uint64_get_nbi(mine, &turn->source[at], piece, pe_of(turn, from));
                shmem_quiet();
                memcpy(&dest[at], mine, piece * sizeof(*mine));
            }
        }
    }
}

/* --- collectives ----------------------------------------------------------------------------- */

#define SET(step) (step)->set.start, log_stride(turn), (step)->set.count
#define SYNC (long *)turn->words

static void do_broadcast(struct turn *turn)
{
    const struct sim_step *step = turn->step;
    int root = (int)sim_step_root(step, &turn->members);
    fill_source(turn);
    if (step->active_set) {
        shmem_broadcast64(turn->dest, turn->source, step->elements, root, SET(step), SYNC);
    } else {
        shmem_uint64_broadcast(team_of(turn), turn->dest, turn->source, step->elements, root);
    }
}

static void do_collect(struct turn *turn)
{
    const struct sim_step *step = turn->step;
    bool fixed = step->kind == SIM_STEP_FCOLLECT;
    uint32_t n = fixed ? step->elements : sim_step_part(step, turn->me);
    fill_source(turn);
    if (step->active_set && fixed) {
        shmem_fcollect64(turn->dest, turn->source, n, SET(step), SYNC);
    } else if (step->active_set) {
        shmem_collect64(turn->dest, turn->source, n, SET(step), SYNC);
    } else if (fixed) {
        shmem_uint64_fcollect(team_of(turn), turn->dest, turn->source, n);
    } else {
        shmem_uint64_collect(team_of(turn), turn->dest, turn->source, n);
    }
}

static void do_alltoall(struct turn *turn)
{
    const struct sim_step *step = turn->step;
    bool strided = step->kind == SIM_STEP_ALLTOALLS;
    uint32_t n = step->elements, apart = strided ? step->from_stride : 1;
    for (uint32_t to = 0; to < turn->count; to++) {
        for (uint32_t i = 0; i < n; i++) {
            turn->source[(to * n + i) * apart] = sim_step_value(step, turn->me, to, i);
        }
    }
    if (step->active_set && strided) {
        shmem_alltoalls64(turn->dest, turn->source, step->to_stride, apart, n, SET(step), SYNC);
    } else if (step->active_set) {
        shmem_alltoall64(turn->dest, turn->source, n, SET(step), SYNC);
    } else if (strided) {
        shmem_uint64_alltoalls(team_of(turn), turn->dest, turn->source, step->to_stride, apart, n);
    } else {
        shmem_uint64_alltoall(team_of(turn), turn->dest, turn->source, n);
    }
}

static void reduce_active_set(struct turn *turn, const uint64_t *source)
{
    const struct sim_step *step = turn->step;
    long *to = (long *)turn->dest;
    const long *from = (const long *)source;
    int n = (int)step->elements;
    switch (sim_step_reduction(step)) {
    case SIM_SUM:
        shmem_long_sum_to_all(to, from, n, SET(step), NULL, SYNC);
        break;
    case SIM_XOR:
        shmem_long_xor_to_all(to, from, n, SET(step), NULL, SYNC);
        break;
    default:
        shmem_long_max_to_all(to, from, n, SET(step), NULL, SYNC);
        break;
    }
}

static void reduce_team(shmem_team_t team, enum sim_reduction reduction, uint64_t *to,
                        const uint64_t *from, size_t n)
{
    switch (reduction) {
    case SIM_SUM:
        shmem_uint64_sum_reduce(team, to, from, n);
        break;
    case SIM_XOR:
        shmem_uint64_xor_reduce(team, to, from, n);
        break;
    case SIM_MAX:
        shmem_uint64_max_reduce(team, to, from, n);
        break;
    case SIM_MIN:
        shmem_uint64_min_reduce(team, to, from, n);
        break;
    case SIM_AND:
        shmem_uint64_and_reduce(team, to, from, n);
        break;
    default:
        shmem_uint64_or_reduce(team, to, from, n);
        break;
    }
}

static void do_reduce(struct turn *turn)
{
    const struct sim_step *step = turn->step;
    uint64_t *source = turn->source;
    fill_source(turn);
    if (sim_step_is_in_place(step)) {
        memcpy(turn->dest, source, step->elements * sizeof(*source));
        source = turn->dest;
    }
    if (step->kind == SIM_STEP_SCAN && (step->variant & 1) != 0) {
        shmem_uint64_sum_inscan(team_of(turn), turn->dest, source, step->elements);
    } else if (step->kind == SIM_STEP_SCAN) {
        shmem_uint64_sum_exscan(team_of(turn), turn->dest, source, step->elements);
    } else if (step->active_set) {
        reduce_active_set(turn, source);
    } else {
        reduce_team(team_of(turn), sim_step_reduction(step), turn->dest, source, step->elements);
    }
}

/* --- signals and flags ----------------------------------------------------------------------- */

static void put_with_signal(struct turn *turn, const uint64_t *source, uint32_t to)
{
    const struct sim_step *step = turn->step;
    uint64_t signal = (step->content & 0xffff) + 1;
    int operation = (step->variant & 2) != 0 ? SHMEM_SIGNAL_ADD : SHMEM_SIGNAL_SET;
    int pe = pe_of(turn, to);
    if ((step->variant & 4) != 0) {
        shmem_uint64_put_signal_nbi(turn->dest, source, step->elements, turn->words, signal,
                                    operation, pe);
    } else if ((step->variant & 8) != 0) {
        /* A put and a later signal without data keep their order, with a fence. */
        shmem_uint64_put(turn->dest, source, step->elements, pe);
        shmem_fence();
        if (operation == SHMEM_SIGNAL_ADD) {
            shmem_signal_add(turn->words, signal, pe);
        } else {
            shmem_signal_set(turn->words, signal, pe);
        }
    } else {
        shmem_uint64_put_signal(turn->dest, source, step->elements, turn->words, signal, operation,
                                pe);
    }
}

static void wait_for_signal(struct turn *turn)
{
    shmem_signal_wait_until(turn->words, SHMEM_CMP_EQ, (turn->step->content & 0xffff) + 1);
}

static void do_signals(struct turn *turn)
{
    uint32_t next = (turn->me + 1) % turn->count;
    for (uint32_t i = 0; i < turn->step->elements; i++) {
        turn->source[i] = sim_step_value(turn->step, turn->me, next, i);
    }
    put_with_signal(turn, turn->source, next);
    wait_for_signal(turn);
}

/* Once round the ring: each member forwards the data it has received. */
static void do_relay(struct turn *turn)
{
    uint32_t next = (turn->me + 1) % turn->count;
    if (turn->me == 0) {
        fill_source(turn);
        put_with_signal(turn, turn->source, next);
        wait_for_signal(turn);
        return;
    }
    wait_for_signal(turn);
    memcpy(turn->source, turn->dest, turn->step->elements * sizeof(*turn->source));
    put_with_signal(turn, turn->source, next);
}

static void do_flags(struct turn *turn)
{
    const struct sim_step *step = turn->step;
    uint32_t next = (turn->me + 1) % turn->count;
    for (uint32_t i = 0; i < step->elements; i++) {
        turn->source[i] = sim_step_value(step, turn->me, next, i);
    }
    put(turn, turn->dest, turn->source, next);
    if ((step->variant & 16) != 0) {
        shmem_quiet();
    } else {
        shmem_fence();
    }
    if ((step->variant & 32) != 0) {
        shmem_uint64_atomic_inc(turn->words, pe_of(turn, next));
    } else {
        shmem_uint64_p(turn->words, 1, pe_of(turn, next));
    }
    shmem_uint64_wait_until(turn->words, SHMEM_CMP_EQ, 1);
}

static void do_wait_all(struct turn *turn)
{
    for (uint32_t k = 0; k < turn->count; k++) {
        uint32_t to = (turn->me + k) % turn->count;
        shmem_uint64_p(&turn->dest[turn->me], sim_step_value(turn->step, turn->me, to, 0),
                       pe_of(turn, to));
    }
    shmem_uint64_wait_until_all(turn->dest, turn->count, NULL, SHMEM_CMP_NE, 0);
}

/* --- atomics and locks ----------------------------------------------------------------------- */

/* Adds 1 by compare-and-swap, with retries. */
static void add_by_swaps(uint64_t *word, int pe)
{
    uint64_t old = shmem_uint64_atomic_fetch(word, pe), now;
    while ((now = shmem_uint64_atomic_compare_swap(word, old, old + 1, pe)) != old) {
        old = now;
    }
}

static void do_atomics(struct turn *turn)
{
    const struct sim_step *step = turn->step;
    int root = pe_of(turn, sim_step_root(step, &turn->members));
    uint64_t *words = turn->words;
    for (uint32_t i = 0; i < step->repeats; i++) {
        uint64_t value = sim_step_value(step, turn->me, 0, i);
        sim_step_old_value(turn->pe, step, (uint32_t)root,
                           shmem_uint64_atomic_fetch_inc(&words[0], root));
        shmem_uint64_atomic_add(&words[1], value, root);
        shmem_uint64_atomic_xor(&words[2], value, root);
        add_by_swaps(&words[3], root);
    }
    sync_only(turn);
}

/* The lock protects a plain variable: two holders at a time would lose an addition. */
static void do_lock(struct turn *turn)
{
    const struct sim_step *step = turn->step;
    int root = pe_of(turn, sim_step_root(step, &turn->members));
    long *lock = (long *)&turn->words[8];
    for (uint32_t i = 0; i < step->repeats; i++) {
        if ((step->variant & 1) == 0 || shmem_test_lock(lock) != 0) {
            shmem_set_lock(lock);
        }
        shmem_uint64_p(turn->words, shmem_uint64_g(turn->words, root) + 1, root);
        shmem_clear_lock(lock);
    }
    sync_only(turn);
}

/* --- memory and teams ------------------------------------------------------------------------ */

static void do_malloc(struct turn *turn)
{
    struct sim_step *step = turn->step;
    char *memory = shmem_malloc(step->elements * 8);
    uint64_t off = (uint64_t)(memory - turn->pe->base[VIA_REGION_HEAP]);
    if (step->malloc_known && step->malloc_off != off) {
        sim_fail(turn->pe->job->world, "PE %u, step %u: shmem_malloc gives offset %#llx, not %#llx",
                 turn->pe->index, turn->pe->step, (unsigned long long)off,
                 (unsigned long long)step->malloc_off);
    }
    step->malloc_off = off;
    step->malloc_known = true;
    if ((step->variant & 1) != 0) {
        shmem_free(memory);
    }
}

static void do_split(struct turn *turn)
{
    const struct sim_step *step = turn->step;
    struct sim_job *job = turn->pe->job;
    const struct sim_members *made = &job->program.teams[step->new_team].members;
    int number = -1;
    shmem_team_t *handle = &turn->pe->handles[step->new_team];
    for (int i = 0; i < made->count; i++) {
        number = sim_member(made, i) == (int)turn->pe->index ? i : number;
    }
    shmem_team_split_strided(team_of(turn), step->part.start, step->part.stride, step->part.count,
                             NULL, 0, handle);
    if (shmem_team_my_pe(*handle) != number ||
        (number >= 0 && shmem_team_n_pes(*handle) != made->count)) {
        sim_fail(job->world, "PE %u, step %u: is number %d of %d in the new team, not %d of %d",
                 turn->pe->index, turn->pe->step, shmem_team_my_pe(*handle),
                 shmem_team_n_pes(*handle), number, made->count);
    }
}

/* Rows and columns as teams, a sum along each, and then the teams are destroyed. */
static void do_split_2d(struct turn *turn)
{
    const struct sim_step *step = turn->step;
    uint32_t x_range = 1 + step->repeats % turn->count;
    uint32_t x = turn->me % x_range, y = turn->me / x_range;
    uint64_t sums[2] = {0, 0};
    shmem_team_t row, column;
    if (shmem_team_split_2d(team_of(turn), (int)x_range, NULL, 0, &row, NULL, 0, &column) != 0) {
        return; /* no slots are free; the same at all members */
    }
    turn->words[0] = sim_step_value(step, turn->me, 0, 0);
    for (uint32_t k = 0; k < turn->count; k++) {
        sums[0] += k / x_range == y ? sim_step_value(step, k, 0, 0) : 0;
        sums[1] += k % x_range == x ? sim_step_value(step, k, 0, 0) : 0;
    }
    shmem_uint64_sum_reduce(row, &turn->words[1], &turn->words[0], 1);
    shmem_uint64_sum_reduce(column, &turn->words[2], &turn->words[0], 1);
    if (turn->words[1] != sums[0] || turn->words[2] != sums[1]) {
        sim_fail(turn->pe->job->world,
                 "PE %u, step %u: sums of its row and column are %#llx and %#llx, expected %#llx "
                 "and %#llx",
                 turn->pe->index, turn->pe->step, (unsigned long long)turn->words[1],
                 (unsigned long long)turn->words[2], (unsigned long long)sums[0],
                 (unsigned long long)sums[1]);
    }
    /* A team may be destroyed when no member is in a collective of it any more. */
    shmem_team_sync(team_of(turn));
    shmem_team_destroy(row);
    shmem_team_destroy(column);
}

/* --- the program ----------------------------------------------------------------------------- */

static void (*const actions[SIM_STEP_KINDS])(struct turn *turn) = {
    [SIM_STEP_PUTS] = do_puts,         [SIM_STEP_GETS] = do_gets,
    [SIM_STEP_SYNC] = do_sync,         [SIM_STEP_BROADCAST] = do_broadcast,
    [SIM_STEP_COLLECT] = do_collect,   [SIM_STEP_FCOLLECT] = do_collect,
    [SIM_STEP_ALLTOALL] = do_alltoall, [SIM_STEP_ALLTOALLS] = do_alltoall,
    [SIM_STEP_REDUCE] = do_reduce,     [SIM_STEP_SCAN] = do_reduce,
    [SIM_STEP_SIGNALS] = do_signals,   [SIM_STEP_RELAY] = do_relay,
    [SIM_STEP_FLAGS] = do_flags,       [SIM_STEP_WAIT_ALL] = do_wait_all,
    [SIM_STEP_ATOMICS] = do_atomics,   [SIM_STEP_LOCK] = do_lock,
    [SIM_STEP_MALLOC] = do_malloc,     [SIM_STEP_SPLIT] = do_split,
    [SIM_STEP_SPLIT_2D] = do_split_2d,
};

static void take_step(struct sim_pe *pe, struct sim_step *step)
{
    struct turn turn = {.pe = pe, .step = step};
    int number = sim_step_number(pe->job, step, pe, &turn.members);
    if (number < 0) {
        return;
    }
    turn.me = (uint32_t)number;
    turn.count = (uint32_t)turn.members.count;
    turn.source = sim_step_at(pe, step, step->source_off);
    turn.dest = sim_step_at(pe, step, step->dest_off);
    turn.words = sim_step_at(pe, step, step->words_off);
    pe->doing = sim_step_name(step);
    sim_pe_trace(pe, "%s of %u elements, number %d of %d%s", pe->doing, step->elements, number,
                 turn.members.count, step->active_set ? ", active set" : "");
    actions[step->kind](&turn);
    sim_pe_trace(pe, "%s is over", pe->doing);
    sim_mark(pe->job->world, SIM_MARK_DELIVER, pe->index, pe->step);
    pe->job->world->counts.pe_steps++;
    sim_step_check(pe, step);
}

void sim_program_run(struct sim_pe *pe)
{
    struct sim_program *program = &pe->job->program;
    pe->handles[0] = SHMEM_TEAM_WORLD;
    pe->handles[1] = SHMEM_TEAM_SHARED;
    /* The handles of all segments are known when all have met: the launcher's gate. */
    sim_job_wait_all(pe);
    pe->doing = "allocates";
    char *arena = shmem_malloc(SIM_ARENA_BYTES);
    pe->arena_off = (uint64_t)(arena - pe->base[VIA_REGION_HEAP]);
    for (uint32_t i = 0; i < program->steps_count && !pe->job->world->failed; i++) {
        pe->step = i;
        if (!program->steps[i].left_out) {
            take_step(pe, &program->steps[i]);
        }
    }
    pe->doing = "the last barrier";
    shmem_barrier_all();
    /* As shmem_finalize: the last words of the barrier may be under way still. */
    via_path_quiet();
    pe->doing = "over";
    sim_pe_trace(pe, "is done");
}
