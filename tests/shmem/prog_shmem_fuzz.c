/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Random transfers and atomics against a sequential model of the memory of all PEs: heap and static
 * variables, through the default context, others, and contexts of random teams.
 *
 *     oshrun -n N prog_shmem_fuzz [seed [rounds]]
 *
 * All PEs draw the same operations and apply all of them to the model; each PE carries out its own.
 * In a round, a PE writes only to its own part of each PE's memory, and to words to which all PEs
 * only add, or only xor, so that the model knows the result. If an operation accesses the same
 * memory as an earlier one, a fence or a quiet orders it after the earlier one, as the standard
 * requires.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define PES_MAX 8
#define PART_BYTES 4096  /* of each writer, at each PE */
#define SHARED_BYTES 128 /* words to which all PEs add, then words to which all PEs xor */
#define ALL_BYTES (PES_MAX * PART_BYTES + SHARED_BYTES)
#define OPS 60   /* of each PE and round */
#define PLACES 2 /* heap, static variables */
#define SINCE_MAX 64

enum kind {
    PUT,
    PUT_NBI,
    IPUT,
    IBPUT,
    P,
    PUT_SIGNAL,
    SET,
    ADD,
    INC,
    XOR_NO_FETCH,
    SHARED_ADD,
    SHARED_XOR,
    WRITES, /* the kinds before this one only write */
    GET = WRITES,
    GET_NBI,
    IGET,
    G,
    FETCH_ADD,
    SWAP,
    COMPARE_SWAP,
    FETCH_AND,
    FETCH_OR,
    FETCH32,
    KINDS,
};

struct op {
    enum kind kind;
    int origin, target, place, ctx;
    size_t off, bytes; /* bytes that it accesses, from the first to the last */
    size_t count, stride;
    uint64_t value, signal_off;
};

static int me, pes;
static unsigned seed = 1, rounds = 20;
static uint64_t state;
static unsigned char statics[ALL_BYTES] __attribute__((aligned(64)));
static unsigned char *places[PLACES];
static unsigned char model[PLACES][PES_MAX][ALL_BYTES];

/* The default context, one of the world, and one of a random team. */
#define CONTEXTS 3
static shmem_ctx_t contexts[CONTEXTS];
static shmem_team_t team = SHMEM_TEAM_INVALID;
static int team_start, team_stride, team_size;

static uint64_t draw(uint64_t below)
{
    /* splitmix64 */
    uint64_t z = (state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (z ^ (z >> 31)) % below;
}

/* --- drawing ---------------------------------------------------------------------------------- */

/* The number of a PE in the team, or -1. */
static int in_team(int pe)
{
    int off = pe - team_start;
    return off >= 0 && off % team_stride == 0 && off / team_stride < team_size ? off / team_stride
                                                                               : -1;
}

static size_t long_or_short(void)
{
    return draw(8) == 0 ? 1 + draw(PART_BYTES / 2) : 1 + draw(64);
}

static struct op draw_op(int origin)
{
    struct op op = {.kind = (enum kind)draw(KINDS),
                    .origin = origin,
                    .target = (int)draw((uint64_t)pes),
                    .place = (int)draw(PLACES),
                    .ctx = (int)draw(CONTEXTS),
                    .value = draw(UINT64_MAX)};
    size_t part = (size_t)origin * PART_BYTES;

    if (op.ctx == 2 && (in_team(origin) < 0 || in_team(op.target) < 0))
        op.ctx = 0;
    op.count = 1;
    switch (op.kind) {
    case PUT:
    case PUT_NBI:
    case GET:
    case GET_NBI:
    case PUT_SIGNAL:
        op.count = op.bytes = long_or_short();
        op.off = part + 8 + draw(PART_BYTES - op.bytes - 7);
        if (op.kind == PUT_SIGNAL) /* the first word of a part is its signal */
            op.signal_off = part;
        break;
    case IPUT:
    case IGET:
        op.count = 1 + draw(12);
        op.stride = 1 + draw(5);
        op.bytes = ((op.count - 1) * op.stride + 1) * sizeof(int32_t);
        op.off = part + 8 + draw((PART_BYTES - op.bytes) / 8) / 4 * 4;
        break;
    case IBPUT: /* blocks of three shorts */
        op.count = 1 + draw(10);
        op.stride = 3 + draw(5);
        op.bytes = ((op.count - 1) * op.stride + 3) * sizeof(int16_t);
        op.off = part + 8 + draw((PART_BYTES - op.bytes) / 8) / 2 * 2;
        break;
    case SHARED_ADD:
        op.bytes = 8;
        op.off = (size_t)PES_MAX * PART_BYTES + 8 * draw(SHARED_BYTES / 16);
        break;
    case SHARED_XOR:
        op.bytes = 8;
        op.off = (size_t)PES_MAX * PART_BYTES + SHARED_BYTES / 2 + 8 * draw(SHARED_BYTES / 16);
        break;
    case FETCH32:
        op.bytes = 4;
        op.off = part + 4 * (2 + draw(PART_BYTES / 4 - 2));
        break;
    default:
        op.bytes = 8;
        op.off = part + 8 * (1 + draw(PART_BYTES / 8 - 1));
        break;
    }
    return op;
}

/* --- the model -------------------------------------------------------------------------------- */

static unsigned char source_byte(const struct op *op, size_t i)
{
    return (unsigned char)((op->value >> (i % 8 * 8)) + i / 8);
}

static uint64_t update(unsigned char *at, size_t bytes, uint64_t operand, enum kind kind)
{
    uint64_t old = 0, new;

    memcpy(&old, at, bytes);
    new = old;
    switch (kind) {
    case P:
    case SET:
    case SWAP:
        new = operand;
        break;
    case ADD:
    case FETCH_ADD:
    case SHARED_ADD:
    case FETCH32:
        new = old + operand;
        break;
    case INC:
        new = old + 1;
        break;
    case XOR_NO_FETCH:
    case SHARED_XOR:
        new = old ^ operand;
        break;
    case FETCH_AND:
        new = old &operand;
        break;
    case FETCH_OR:
        new = old | operand;
        break;
    default:
        break;
    }
    memcpy(at, &new, bytes);
    return old;
}

/* The value with which a compare-and-swap compares: correct every second time. */
static uint64_t condition(const struct op *op, uint64_t now)
{
    return op->value % 2 == 0 ? now : now + 1;
}

/* Applies the operation to the model; `fetched` gets the bytes that it fetches. */
static void apply(const struct op *op, unsigned char *fetched)
{
    unsigned char *at = &model[op->place][op->target][op->off];
    size_t element = op->kind == IBPUT ? 2 : 4, block = op->kind == IBPUT ? 3 : 1;
    uint64_t old;

    switch (op->kind) {
    case PUT:
    case PUT_NBI:
    case PUT_SIGNAL:
        for (size_t i = 0; i < op->bytes; i++)
            at[i] = source_byte(op, i);
        if (op->kind == PUT_SIGNAL)
            update(&model[op->place][op->target][op->signal_off], 8, op->value, ADD);
        break;
    case IPUT:
    case IBPUT:
        for (size_t i = 0; i < op->count * block * element; i++)
            at[i / (block * element) * op->stride * element + i % (block * element)] =
                source_byte(op, i);
        break;
    case GET:
    case GET_NBI:
        memcpy(fetched, at, op->bytes);
        break;
    case IGET:
        for (size_t i = 0; i < op->count; i++)
            memcpy(fetched + i * 4, at + i * op->stride * 4, 4);
        break;
    case COMPARE_SWAP:
        memcpy(&old, at, 8);
        memcpy(fetched, &old, 8);
        if (condition(op, old) == old)
            memcpy(at, &op->value, 8);
        break;
    default:
        old = update(at, op->bytes, op->value, op->kind);
        memcpy(fetched, &old, op->bytes);
        break;
    }
}

/* --- the library ------------------------------------------------------------------------------ */

static void carry_out(const struct op *op, const unsigned char *expected)
{
    static unsigned char source[PART_BYTES], got[PART_BYTES];
    shmem_ctx_t ctx = contexts[op->ctx];
    int pe = op->ctx == 2 ? in_team(op->target) : op->target;
    void *at = places[op->place] + op->off;
    uint64_t now, *word = at, fetched = 0;
    ptrdiff_t stride = (ptrdiff_t)op->stride;
    size_t got_bytes = 0;

    for (size_t i = 0; i < sizeof(source); i++)
        source[i] = source_byte(op, i);
    switch (op->kind) {
    case PUT:
        shmem_ctx_putmem(ctx, at, source, op->bytes, pe);
        break;
    case PUT_NBI:
        shmem_ctx_putmem_nbi(ctx, at, source, op->bytes, pe);
        shmem_ctx_quiet(ctx); /* the source buffer is reused */
        break;
    case IPUT:
        shmem_ctx_iput32(ctx, at, source, stride, 1, op->count, pe);
        break;
    case IBPUT:
        shmem_ctx_ibput16(ctx, at, source, stride, 3, 3, op->count, pe);
        break;
    case P:
        shmem_ctx_uint64_p(ctx, word, op->value, pe);
        break;
    case PUT_SIGNAL:
        shmem_ctx_putmem_signal(ctx, at, source, op->bytes,
                                (uint64_t *)(void *)(places[op->place] + op->signal_off), op->value,
                                SHMEM_SIGNAL_ADD, pe);
        break;
    case SET:
        shmem_ctx_uint64_atomic_set(ctx, word, op->value, pe);
        break;
    case ADD:
    case SHARED_ADD:
        shmem_ctx_uint64_atomic_add(ctx, word, op->value, pe);
        break;
    case INC:
        shmem_ctx_uint64_atomic_inc(ctx, word, pe);
        break;
    case XOR_NO_FETCH:
    case SHARED_XOR:
        shmem_ctx_uint64_atomic_xor(ctx, word, op->value, pe);
        break;
    case GET:
        shmem_ctx_getmem(ctx, got, at, got_bytes = op->bytes, pe);
        break;
    case GET_NBI:
        shmem_ctx_getmem_nbi(ctx, got, at, got_bytes = op->bytes, pe);
        shmem_ctx_quiet(ctx);
        break;
    case IGET:
        shmem_ctx_iget32(ctx, got, at, 1, stride, op->count, pe);
        got_bytes = op->count * 4;
        break;
    case G:
        fetched = shmem_ctx_uint64_g(ctx, word, pe);
        got_bytes = 8;
        break;
    case FETCH_ADD:
        fetched = shmem_ctx_uint64_atomic_fetch_add(ctx, word, op->value, pe);
        got_bytes = 8;
        break;
    case SWAP:
        fetched = shmem_ctx_uint64_atomic_swap(ctx, word, op->value, pe);
        got_bytes = 8;
        break;
    case COMPARE_SWAP:
        memcpy(&now, expected, 8);
        fetched =
            shmem_ctx_uint64_atomic_compare_swap(ctx, word, condition(op, now), op->value, pe);
        got_bytes = 8;
        break;
    case FETCH_AND:
        fetched = shmem_ctx_uint64_atomic_fetch_and(ctx, word, op->value, pe);
        got_bytes = 8;
        break;
    case FETCH_OR:
        fetched = shmem_ctx_uint64_atomic_fetch_or(ctx, word, op->value, pe);
        got_bytes = 8;
        break;
    case FETCH32:
        fetched = shmem_ctx_uint32_atomic_fetch_add(ctx, at, (uint32_t)op->value, pe);
        got_bytes = 4;
        break;
    default:
        break;
    }
    if (op->kind >= G)
        memcpy(got, &fetched, got_bytes);
    for (size_t i = 0; i < got_bytes; i++)
        CHECK(got[i] == expected[i],
              "seed %u: kind %d at byte %zu of place %d at PE %d, context %d: byte %zu", seed,
              (int)op->kind, op->off, op->place, op->target, op->ctx, i);
}

/* --- order ------------------------------------------------------------------------------------ */

static struct op since[SINCE_MAX]; /* this PE's operations since the last quiet */
static unsigned since_count;

static bool touch(const struct op *a, const struct op *b)
{
    return a->target == b->target && a->place == b->place && a->off < b->off + b->bytes &&
           b->off < a->off + a->bytes;
}

static void quiet_all(void)
{
    for (int i = 0; i < CONTEXTS; i++)
        if (contexts[i] != SHMEM_CTX_INVALID)
            shmem_ctx_quiet(contexts[i]);
    since_count = 0;
}

static bool is_shared(const struct op *op)
{
    return op->kind == SHARED_ADD || op->kind == SHARED_XOR;
}

/* A write after writes of the same context needs a fence; any other operation needs a quiet. */
static void order(const struct op *op)
{
    bool fence = false, quiet = since_count == SINCE_MAX;

    for (unsigned i = 0; i < since_count && !is_shared(op); i++) {
        if (!touch(&since[i], op))
            continue;
        if (op->kind < WRITES && since[i].ctx == op->ctx)
            fence = true;
        else
            quiet = true;
    }
    if (quiet)
        quiet_all();
    else if (fence)
        shmem_ctx_fence(contexts[op->ctx]);
    if (op->kind < WRITES && !is_shared(op))
        since[since_count++] = *op;
}

/* --- rounds ----------------------------------------------------------------------------------- */

static void new_team(void)
{
    if (contexts[2] != SHMEM_CTX_INVALID)
        shmem_ctx_destroy(contexts[2]);
    contexts[2] = SHMEM_CTX_INVALID;
    shmem_team_destroy(team);
    team_start = (int)draw((uint64_t)pes);
    team_stride = 1 + (int)draw(3);
    team_size = 1 + (int)draw((uint64_t)((pes - 1 - team_start) / team_stride + 1));
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, team_start, team_stride, team_size, NULL, 0,
                                   &team) == 0,
          "seed %u: team %d, %d, %d", seed, team_start, team_stride, team_size);
    CHECK((team != SHMEM_TEAM_INVALID) == (in_team(me) >= 0), "seed %u: member", seed);
    if (team != SHMEM_TEAM_INVALID)
        CHECK(shmem_team_create_ctx(team, 0, &contexts[2]) == 0, "seed %u: context", seed);
}

/* Checks a sum over the team, from the model of all PEs. */
static void check_team_sum(void)
{
    static uint64_t sums[4];
    uint64_t expected[4] = {0};
    size_t off = (size_t)PES_MAX * PART_BYTES;

    for (int i = 0; i < team_size; i++)
        for (int word = 0; word < 4; word++) {
            uint64_t value;
            memcpy(&value, &model[0][team_start + i * team_stride][off + 8 * (size_t)word], 8);
            expected[word] += value;
        }
    if (team == SHMEM_TEAM_INVALID)
        return;
    shmem_uint64_sum_reduce(team, sums, (uint64_t *)(void *)(places[0] + off), 4);
    CHECK(memcmp(sums, expected, sizeof(sums)) == 0, "seed %u: sum over the team", seed);
}

static void check_mine(unsigned round)
{
    for (int place = 0; place < PLACES; place++)
        for (size_t i = 0; i < ALL_BYTES; i++)
            CHECK(places[place][i] == model[place][me][i],
                  "seed %u, round %u: place %d, byte %zu: %u, not %u", seed, round, place, i,
                  places[place][i], model[place][me][i]);
}

int main(int argc, char **argv)
{
    static unsigned char fetched[PART_BYTES];

    shmem_init();
    me = shmem_my_pe();
    pes = shmem_n_pes();
    CHECK(pes <= PES_MAX, "at most %d PEs", PES_MAX);
    seed = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : seed;
    rounds = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : rounds;
    state = seed;
    places[0] = shmem_calloc(1, ALL_BYTES);
    places[1] = statics;
    contexts[0] = SHMEM_CTX_DEFAULT;
    contexts[2] = SHMEM_CTX_INVALID;
    CHECK(shmem_ctx_create(0, &contexts[1]) == 0, "context");

    for (unsigned round = 0; round < rounds; round++) {
        if (round % 4 == 0)
            new_team();
        for (int i = 0; i < OPS * pes; i++) {
            struct op op = draw_op(i % pes);
            apply(&op, fetched);
            if (op.origin != me)
                continue;
            order(&op);
            carry_out(&op, fetched);
        }
        quiet_all();
        shmem_barrier_all();
        check_mine(round);
        check_team_sum();
        shmem_barrier_all();
    }
    shmem_ctx_destroy(contexts[1]);
    return passed("fuzz");
}
