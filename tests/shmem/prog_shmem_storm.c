/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Random programs of threads and PEs against a sequential model.
 *
 *     oshrun -n N prog_shmem_storm [seed [rounds]]
 *
 * Each thread of each PE has a part of every PE's memory that only it writes, and draws bursts of
 * operations from a seed of its own: puts, updates, signals, by contexts of all kinds. In a burst
 * no two operations access the same cell. A quiet of the contexts ends the burst; the values that
 * the thread then reads, by random calls, must equal its own model. At the end of a round each PE
 * checks the words to which all threads add or xor, and all parts that it holds, by repeating the
 * draws of the others.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define PES_MAX 8
#define THREADS 3
#define CELLS 24 /* operations of a burst */
#define WORDS 6  /* of a cell, and the maximum of an operation */
#define BURSTS 8
#define SHARED 8

struct memory {
    long part[PES_MAX][THREADS][CELLS][WORDS];
    long adds[SHARED], xors[SHARED];
};

static int me, pes;
static unsigned seed = 1, rounds = 6;
static struct memory memory; /* symmetric */
static struct memory expected;
static shmem_ctx_t shared_ctx, serialized_ctx;
static pthread_mutex_t serialized = PTHREAD_MUTEX_INITIALIZER;

struct actor {
    int pe, thread;
    unsigned round;
    uint64_t state;
};

static uint64_t draw(struct actor *actor, uint64_t below)
{
    /* splitmix64 */
    uint64_t z = (actor->state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (z ^ (z >> 31)) % below;
}

static struct actor actor_of(int pe, int thread, unsigned round)
{
    struct actor actor = {pe, thread, round, ((seed * 1000ULL + round) * 100 + pe) * 10 + thread};

    draw(&actor, 1);
    return actor;
}

enum kind { PUT, PUT_NBI, P, IPUT, SET, ADD, PUT_SIGNAL, SHARED_ADD, SHARED_XOR, KINDS };

struct op {
    enum kind kind;
    int target, cell, ctx;
    unsigned count;
    long value;
};

static struct op draw_op(struct actor *actor, int cell)
{
    return (struct op){.kind = (enum kind)draw(actor, KINDS),
                       .target = (int)draw(actor, (uint64_t)pes),
                       .cell = cell,
                       .ctx = (int)draw(actor, 4),
                       .count = 1 + (unsigned)draw(actor, WORDS),
                       .value = (long)draw(actor, 1 << 30)};
}

/* --- the model -------------------------------------------------------------------------------- */

static void apply(struct memory *model, const struct actor *actor, const struct op *op)
{
    long *cell = model->part[actor->pe][actor->thread][op->cell];

    switch (op->kind) {
    case PUT:
    case PUT_NBI:
        for (unsigned i = 0; i < op->count; i++)
            cell[i] = op->value + i;
        break;
    case IPUT:
        for (unsigned i = 0; i < WORDS / 2; i++)
            cell[i * 2] = op->value + i;
        break;
    case P:
    case SET:
        cell[0] = op->value;
        break;
    case ADD:
        cell[0] += op->value;
        break;
    case PUT_SIGNAL:
        for (unsigned i = 0; i < WORDS - 1; i++)
            cell[i] = op->value + i;
        cell[WORDS - 1] += op->count;
        break;
    case SHARED_ADD:
        model->adds[op->value % SHARED] += op->value;
        break;
    default:
        model->xors[op->value % SHARED] ^= op->value;
        break;
    }
}

/* --- the library ------------------------------------------------------------------------------ */

/* values: owned by the caller until quiet. */
static void carry_out(shmem_ctx_t ctx, const struct actor *actor, const struct op *op, long *values)
{
    long *cell = memory.part[actor->pe][actor->thread][op->cell];

    for (unsigned i = 0; i < WORDS; i++)
        values[i] = op->value + i;
    switch (op->kind) {
    case PUT:
        shmem_ctx_long_put(ctx, cell, values, op->count, op->target);
        break;
    case PUT_NBI:
        shmem_ctx_long_put_nbi(ctx, cell, values, op->count, op->target);
        break;
    case IPUT:
        shmem_ctx_long_iput(ctx, cell, values, 2, 1, WORDS / 2, op->target);
        break;
    case P:
        shmem_ctx_long_p(ctx, cell, op->value, op->target);
        break;
    case SET:
        shmem_ctx_long_atomic_set(ctx, cell, op->value, op->target);
        break;
    case ADD:
        shmem_ctx_long_atomic_add(ctx, cell, op->value, op->target);
        break;
    case PUT_SIGNAL:
        shmem_ctx_long_put_signal(ctx, cell, values, WORDS - 1, (uint64_t *)&cell[WORDS - 1],
                                  op->count, SHMEM_SIGNAL_ADD, op->target);
        break;
    case SHARED_ADD:
        if (op->value % 2)
            shmem_ctx_long_atomic_add(ctx, &memory.adds[op->value % SHARED], op->value, op->target);
        else
            shmem_ctx_long_atomic_fetch_add(ctx, &memory.adds[op->value % SHARED], op->value,
                                            op->target);
        break;
    default:
        shmem_ctx_int64_atomic_xor(ctx, (int64_t *)&memory.xors[op->value % SHARED], op->value,
                                   op->target);
        break;
    }
}

static void carry_out_by(shmem_ctx_t own, const struct actor *actor, const struct op *op,
                         long *values)
{
    if (op->ctx == 3)
        pthread_mutex_lock(&serialized);
    carry_out((shmem_ctx_t[]){SHMEM_CTX_DEFAULT, own, shared_ctx, serialized_ctx}[op->ctx], actor,
              op, values);
    if (op->ctx == 3)
        pthread_mutex_unlock(&serialized);
}

static void complete(shmem_ctx_t own)
{
    shmem_quiet();
    shmem_ctx_quiet(own);
    shmem_ctx_quiet(shared_ctx);
    pthread_mutex_lock(&serialized);
    shmem_ctx_quiet(serialized_ctx);
    pthread_mutex_unlock(&serialized);
}

/* The content of this thread's cell at a PE, by one of four calls. */
static void read_cell(shmem_ctx_t own, unsigned way, long *cell, long got[WORDS], int target)
{
    switch (way % 4) {
    case 0:
        shmem_ctx_long_get(own, got, cell, WORDS, target);
        break;
    case 1:
        shmem_ctx_long_get_nbi(own, got, cell, WORDS, target);
        shmem_ctx_quiet(own);
        break;
    case 2:
        shmem_ctx_long_iget(own, got, cell, 1, 1, WORDS, target);
        break;
    default:
        for (unsigned i = 0; i < WORDS; i++)
            got[i] = i % 2 ? shmem_ctx_long_g(own, &cell[i], target)
                           : shmem_ctx_long_atomic_fetch(own, &cell[i], target);
        break;
    }
}

static unsigned round_now;

static void *act(void *argument)
{
    struct actor actor = actor_of(me, (int)(intptr_t)argument, round_now);
    long(*mine)[CELLS][WORDS] = calloc((size_t)pes, sizeof(*mine));
    long values[CELLS][WORDS];
    struct op ops[CELLS];
    shmem_ctx_t own;

    CHECK(mine && shmem_ctx_create(SHMEM_CTX_PRIVATE, &own) == 0, "context");
    for (int pe = 0; pe < pes; pe++)
        shmem_long_get(&mine[pe][0][0], &memory.part[me][actor.thread][0][0], CELLS * WORDS, pe);
    for (unsigned burst = 0; burst < BURSTS; burst++) {
        static _Thread_local struct memory model;
        for (int cell = 0; cell < CELLS; cell++) {
            ops[cell] = draw_op(&actor, cell);
            carry_out_by(own, &actor, &ops[cell], values[cell]);
        }
        complete(own);
        for (int cell = 0; cell < CELLS; cell++) {
            long got[WORDS], *wanted = model.part[me][actor.thread][cell];
            int target = ops[cell].target;
            memcpy(wanted, mine[target][cell], sizeof(got));
            apply(&model, &actor, &ops[cell]);
            read_cell(own, burst + (unsigned)cell, memory.part[me][actor.thread][cell], got,
                      target);
            for (unsigned i = 0; i < WORDS; i++)
                CHECK(got[i] == wanted[i],
                      "seed %u, round %u, thread %d, burst %u, cell %d of PE %d, word %u: %ld, not "
                      "%ld",
                      seed, actor.round, actor.thread, burst, cell, target, i, got[i], wanted[i]);
            memcpy(mine[target][cell], wanted, sizeof(got));
        }
    }
    shmem_ctx_destroy(own);
    free(mine);
    return NULL;
}

/* Predicts what all PEs have put to this one, by repeating their draws. */
static void predict(unsigned round)
{
    for (int pe = 0; pe < pes; pe++)
        for (int thread = 0; thread < THREADS; thread++) {
            struct actor actor = actor_of(pe, thread, round);
            for (int i = 0; i < BURSTS * CELLS; i++) {
                struct op op = draw_op(&actor, i % CELLS);
                if (op.target == me)
                    apply(&expected, &actor, &op);
            }
        }
}

static void do_round(void)
{
    pthread_t threads[THREADS];

    for (intptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, act, (void *)i) == 0, "thread");
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    predict(round_now);
    shmem_barrier_all();
    for (size_t i = 0; i < sizeof(memory) / sizeof(long); i++)
        CHECK(((long *)&memory)[i] == ((long *)&expected)[i],
              "seed %u, round %u: word %zu: %ld, not %ld", seed, round_now, i, ((long *)&memory)[i],
              ((long *)&expected)[i]);
    shmem_barrier_all();
}

int main(int argc, char **argv)
{
    int provided;

    shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided);
    me = shmem_my_pe();
    pes = shmem_n_pes();
    CHECK(provided == SHMEM_THREAD_MULTIPLE && pes <= PES_MAX, "%d PEs", pes);
    if (argc > 1)
        seed = (unsigned)strtoul(argv[1], NULL, 10);
    if (argc > 2)
        rounds = (unsigned)strtoul(argv[2], NULL, 10);
    CHECK(shmem_ctx_create(0, &shared_ctx) == 0, "context");
    CHECK(shmem_ctx_create(SHMEM_CTX_SERIALIZED, &serialized_ctx) == 0, "context");
    for (round_now = 0; round_now < rounds; round_now++)
        do_round();
    if (me == 0)
        printf("seed %u: %u rounds of %d threads\n", seed, rounds, THREADS * pes);
    return passed("storm");
}
