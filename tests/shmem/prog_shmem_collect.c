/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Collectives of every type over the world, over teams of every other PE and over active sets;
 * teams and their contexts; locks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

#define COUNT 6
#define PES_MAX 64

static int me, pes;
/* The team of a test, my number in it, and the PEs of the world that are in it. */
static shmem_team_t team;
static int team_me, team_pes, team_start, team_stride;

static int world_of(int number)
{
    return team_start + team_stride * number;
}

static int value_of(int pe, int i)
{
    return (pe * 5 + i) % 9 + 1;
}

/* --- every type ------------------------------------------------------------------------------ */

#define TEST_MOVES(N, T, A)                                                                       \
    static void moves_##N(void)                                                                   \
    {                                                                                             \
        static T source[COUNT * PES_MAX], dest[2 * COUNT * PES_MAX];                              \
        for (int i = 0; i < COUNT * PES_MAX; i++)                                                 \
            source[i] = (T)value_of(me, i);                                                       \
        memset(dest, 0, sizeof(dest));                                                            \
        shmem_team_sync(team);                                                                    \
        int root = team_pes - 1;                                                                  \
        CHECK(shmem_##N##_broadcast(team, dest, source, COUNT, root) == 0, #N);                   \
        for (int i = 0; i < COUNT; i++)                                                           \
            CHECK(dest[i] == (T)value_of(world_of(root), i), #N " broadcast, element %d", i);     \
        shmem_team_sync(team);                                                                    \
        CHECK(shmem_##N##_fcollect(team, dest, source, COUNT) == 0, #N);                          \
        for (int i = 0; i < COUNT * team_pes; i++)                                                \
            CHECK(dest[i] == (T)value_of(world_of(i / COUNT), i % COUNT), #N " fcollect, %d", i); \
        shmem_team_sync(team);                                                                    \
        /* PE n gives n % COUNT elements. */                                                      \
        CHECK(shmem_##N##_collect(team, dest, source, (size_t)(team_me % COUNT)) == 0, #N);       \
        for (int pe = 0, at = 0; pe < team_pes; at += pe++ % COUNT)                               \
            for (int i = 0; i < pe % COUNT; i++)                                                  \
                CHECK(dest[at + i] == (T)value_of(world_of(pe), i), #N " collect, PE %d", pe);    \
        shmem_team_sync(team);                                                                    \
        CHECK(shmem_##N##_alltoall(team, dest, source, COUNT) == 0, #N);                          \
        for (int i = 0; i < COUNT * team_pes; i++)                                                \
            CHECK(dest[i] == (T)value_of(world_of(i / COUNT), team_me * COUNT + i % COUNT),       \
                  #N " alltoall, %d", i);                                                         \
        shmem_team_sync(team);                                                                    \
        memset(dest, 0, sizeof(dest));                                                            \
        shmem_team_sync(team);                                                                    \
        CHECK(shmem_##N##_alltoalls(team, dest, source, 2, 1, COUNT) == 0, #N);                   \
        for (int i = 0; i < COUNT * team_pes; i++)                                                \
            CHECK(dest[2 * i] == (T)value_of(world_of(i / COUNT), team_me * COUNT + i % COUNT) && \
                      dest[2 * i + 1] == (T)0,                                                    \
                  #N " alltoalls, %d", i);                                                        \
        shmem_team_sync(team);                                                                    \
    }

/* `fold` computes the expected result from `total` and `value`. LAST: the number of participating
 * PEs. */
#define EXPECT_FOLD(T, what, LAST, FOLD, AT)             \
    for (int i = 0; i < COUNT; i++) {                    \
        T total = (T)value_of(world_of(0), i);           \
        for (int pe = 1; pe < (LAST); pe++) {            \
            T value = (T)value_of(world_of(pe), i);      \
            total = (T)(FOLD);                           \
        }                                                \
        CHECK((AT)[i] == total, what ", element %d", i); \
    }
#define REDUCE(N, T, OP, FOLD)                                     \
    for (int in_place = 0; in_place < 2; in_place++) {             \
        T *to = in_place ? source : dest;                          \
        for (int i = 0; i < COUNT; i++)                            \
            source[i] = (T)value_of(me, i);                        \
        CHECK(shmem_##N##_##OP(team, to, source, COUNT) == 0, #N); \
        EXPECT_FOLD(T, #N " " #OP, team_pes, FOLD, to);            \
        shmem_team_sync(team);                                     \
    }
#define TEST_BITS(N, T, A)                      \
    static void bits_##N(void)                  \
    {                                           \
        static T source[COUNT], dest[COUNT];    \
        REDUCE(N, T, and_reduce, total &value)  \
        REDUCE(N, T, or_reduce, total | value)  \
        REDUCE(N, T, xor_reduce, total ^ value) \
    }
#define TEST_ORDER(N, T, A)                                     \
    static void order_##N(void)                                 \
    {                                                           \
        static T source[COUNT], dest[COUNT];                    \
        REDUCE(N, T, max_reduce, total > value ? total : value) \
        REDUCE(N, T, min_reduce, total < value ? total : value) \
    }
#define TEST_RING(N, T, A)                                                   \
    static void ring_##N(void)                                               \
    {                                                                        \
        static T source[COUNT], dest[COUNT];                                 \
        REDUCE(N, T, sum_reduce, total + value)                              \
        REDUCE(N, T, prod_reduce, total *value)                              \
        for (int in_place = 0; in_place < 2; in_place++) {                   \
            T *to = in_place ? source : dest;                                \
            for (int i = 0; i < COUNT; i++)                                  \
                source[i] = (T)value_of(me, i);                              \
            shmem_team_sync(team);                                           \
            CHECK(shmem_##N##_sum_inscan(team, to, source, COUNT) == 0, #N); \
            EXPECT_FOLD(T, #N " inscan", team_me + 1, total + value, to);    \
            for (int i = 0; i < COUNT; i++)                                  \
                source[i] = (T)value_of(me, i);                              \
            shmem_team_sync(team);                                           \
            CHECK(shmem_##N##_sum_exscan(team, to, source, COUNT) == 0, #N); \
            if (team_me > 0) {                                               \
                EXPECT_FOLD(T, #N " exscan", team_me, total + value, to);    \
            } else {                                                         \
                for (int i = 0; i < COUNT; i++)                              \
                    CHECK(to[i] == (T)0, #N " exscan");                      \
            }                                                                \
            shmem_team_sync(team);                                           \
        }                                                                    \
    }
VIADUCT_SHMEM_RMA_TYPES(TEST_MOVES, 0)
VIADUCT_SHMEM_REDUCE_BITS_TYPES(TEST_BITS, 0)
VIADUCT_SHMEM_RMA_TYPES(TEST_ORDER, 0)
VIADUCT_SHMEM_RMA_TYPES(TEST_RING, 0)
VIADUCT_SHMEM_COMPLEX_TYPES(TEST_RING, 0)

static signed char bytes_dest[PES_MAX]; /* plain char is signed on some machines only */

static void no_bytes_yet(void)
{
    shmem_team_sync(team);
    memset(bytes_dest, -1, sizeof(bytes_dest));
    shmem_team_sync(team);
}

static void test_bytes_and_generic(void)
{
    static char source[PES_MAX];
    static long number, sum;
    signed char *dest = bytes_dest;
    int last = team_pes - 1;

    memset(source, me, sizeof(source));
    no_bytes_yet();
    shmem_broadcastmem(team, dest, source, 3, 0);
    CHECK(dest[2] == world_of(0) && dest[3] == -1, "broadcastmem");
    no_bytes_yet();
    shmem_fcollectmem(team, dest, source, 1);
    CHECK(dest[last] == world_of(last), "fcollectmem");
    no_bytes_yet();
    shmem_collectmem(team, dest, source, 1);
    CHECK(dest[0] == world_of(0) && dest[last] == world_of(last), "collectmem");
    no_bytes_yet();
    shmem_alltoallmem(team, dest, source, 1);
    CHECK(dest[last] == world_of(last), "alltoallmem");
    no_bytes_yet();
    shmem_alltoallsmem(team, dest, source, 1, 1, 1);
    CHECK(dest[last] == world_of(last), "alltoallsmem");
    shmem_sync(team);
    number = 2;
    CHECK(shmem_sum_reduce(team, &sum, &number, 1) == 0 && sum == 2 * team_pes, "%ld", sum);
    CHECK(shmem_max_reduce(team, &sum, &number, 1) == 0 && sum == 2, "%ld", sum);
    CHECK(shmem_broadcast(team, &sum, &number, 1, 0) == 0, "broadcast");
    CHECK(shmem_sum_inscan(team, &sum, &number, 1) == 0 && sum == 2 * (team_me + 1), "%ld", sum);
}

/* Long enough for several pieces. Sums of reals must be identical, to the last bit, at all PEs, in
 * any order of additions. */
static void test_long(void)
{
    const size_t count = 20011;
    double *source = shmem_malloc(count * sizeof(double)),
           *dest = shmem_malloc(count * sizeof(double));
    double *theirs = malloc(count * sizeof(double));

    for (size_t i = 0; i < count; i++)
        source[i] = 1.0 / (double)(i + (size_t)me * 3 + 1);
    shmem_barrier_all();
    shmem_double_sum_reduce(SHMEM_TEAM_WORLD, dest, source, count);
    shmem_barrier_all(); /* the contribution of the other PE need not have arrived before */
    shmem_double_get(theirs, dest, count, (me + 1) % pes);
    CHECK(memcmp(theirs, dest, count * sizeof(double)) == 0, "sums differ by PE");
    for (size_t i = 0; i < count; i += 997) {
        double sum = 1.0 / (double)(i + 1);
        for (int pe = 1; pe < pes; pe++)
            sum += 1.0 / (double)(i + (size_t)pe * 3 + 1);
        CHECK(fabs(dest[i] - sum) <= sum * 1e-14, "element %zu", i);
    }
    shmem_free(source);
    shmem_free(dest);
    free(theirs);
}

static void run_team(shmem_team_t handle, int start, int stride)
{
    team = handle;
    team_me = shmem_team_my_pe(team);
    team_pes = shmem_team_n_pes(team);
    team_start = start;
    team_stride = stride;
    CHECK(team_me >= 0 && world_of(team_me) == me, "my number %d", team_me);
#define RUN_MOVES(N, T, A) moves_##N();
#define RUN_BITS(N, T, A) bits_##N();
#define RUN_ORDER(N, T, A) order_##N();
#define RUN_RING(N, T, A) ring_##N();
    VIADUCT_SHMEM_RMA_TYPES(RUN_MOVES, 0)
    VIADUCT_SHMEM_REDUCE_BITS_TYPES(RUN_BITS, 0)
    VIADUCT_SHMEM_RMA_TYPES(RUN_ORDER, 0)
    VIADUCT_SHMEM_RMA_TYPES(RUN_RING, 0)
    VIADUCT_SHMEM_COMPLEX_TYPES(RUN_RING, 0)
    test_bytes_and_generic();
}

/* --- teams ----------------------------------------------------------------------------------- */

static void test_splits(void)
{
    shmem_team_t half, back, none, row, column;
    shmem_team_config_t config = {.num_contexts = 3};
    int size = (pes + 1) / 2;

    CHECK(shmem_team_my_pe(SHMEM_TEAM_WORLD) == me && shmem_team_n_pes(SHMEM_TEAM_WORLD) == pes,
          "world");
    CHECK(shmem_team_my_pe(SHMEM_TEAM_INVALID) == -1 && shmem_team_n_pes(SHMEM_TEAM_INVALID) == -1,
          "none");
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 2, size, &config, SHMEM_TEAM_NUM_CONTEXTS,
                                   &half) == 0,
          "every other PE");
    CHECK((half == SHMEM_TEAM_INVALID) == (me % 2 == 1), "only members have it");
    if (half != SHMEM_TEAM_INVALID) {
        shmem_ctx_t ctx;
        static int got;
        shmem_team_t of_ctx;
        shmem_team_config_t ret_config = {0};
        CHECK(shmem_team_get_config(half, SHMEM_TEAM_NUM_CONTEXTS, &ret_config) == 0 &&
                  ret_config.num_contexts == 3,
              "configuration");
        run_team(half, 0, 2);
        CHECK(shmem_team_translate_pe(half, team_me, SHMEM_TEAM_WORLD) == me, "to the world");
        CHECK(shmem_team_translate_pe(SHMEM_TEAM_WORLD, 1, half) == -1, "not in it");
        CHECK(shmem_team_ptr(half, &got, team_me) == &got, "pointer");
        /* A context of the team counts its PEs. */
        CHECK(shmem_team_create_ctx(half, 0, &ctx) == 0, "context");
        CHECK(shmem_ctx_get_team(ctx, &of_ctx) == 0 && of_ctx == half, "its team");
        shmem_ctx_int_p(ctx, &got, me + 100, (team_me + 1) % team_pes);
        shmem_ctx_quiet(ctx);
        shmem_team_sync(half);
        CHECK(got == world_of((team_me + team_pes - 1) % team_pes) + 100, "%d", got);
        shmem_ctx_destroy(ctx);
        /* Of a team, in the opposite direction. */
        CHECK(shmem_team_split_strided(half, team_pes - 1, -1, team_pes, NULL, 0, &back) == 0,
              "reversed");
        CHECK(shmem_team_my_pe(back) == shmem_team_n_pes(half) - 1 - shmem_team_my_pe(half),
              "reversed");
        CHECK(shmem_team_sync(back) == 0, "reversed");
        shmem_team_destroy(back);
        shmem_team_destroy(half);
    }
    shmem_barrier_all();
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 1, 1, pes, NULL, 0, &none) != 0 &&
              none == SHMEM_TEAM_INVALID,
          "past the end");
    CHECK(shmem_team_split_strided(SHMEM_TEAM_INVALID, 0, 1, 1, NULL, 0, &none) != 0, "of none");

    CHECK(shmem_team_split_2d(SHMEM_TEAM_WORLD, 2, NULL, 0, &row, NULL, 0, &column) == 0, "2d");
    CHECK(shmem_team_my_pe(row) == me % 2 && shmem_team_my_pe(column) == me / 2, "coordinates");
    run_team(row, me / 2 * 2, 1);
    shmem_barrier_all();
    run_team(column, me % 2, 2);
    shmem_team_destroy(row);
    shmem_team_destroy(column);
}

/* Slots are reused: more teams in total than can exist at a time. */
static void test_many_teams(void)
{
    for (int i = 0; i < 200; i++) {
        shmem_team_t one;
        CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, pes, NULL, 0, &one) == 0, "%d", i);
        CHECK(shmem_team_sync(one) == 0, "%d", i);
        shmem_team_destroy(one);
    }
}

/* A new team takes the slot of one that a PE may not have left yet. */
static void test_shrinking_teams(void)
{
    for (int round = 0; round < 100; round++) {
        shmem_team_t all, rest;
        CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, pes, NULL, 0, &all) == 0, "all");
        for (int left = pes; all != SHMEM_TEAM_INVALID && left > 1; left--) {
            CHECK(shmem_team_split_strided(all, 1, 1, left - 1, NULL, 0, &rest) == 0, "%d", left);
            shmem_team_destroy(all);
            all = rest;
        }
        shmem_team_destroy(all);
    }
}

/* --- active sets and locks ------------------------------------------------------------------- */

static long sync_array[SHMEM_SYNC_SIZE];

static void check_sync_array(void)
{
    for (int i = 0; i < SHMEM_SYNC_SIZE; i++)
        CHECK(sync_array[i] == SHMEM_SYNC_VALUE, "pSync is not as it was");
    shmem_barrier_all();
}

#define TO_ALL(N, T, OP, FOLD)                                                            \
    static void to_all_##N##_##OP(void)                                                   \
    {                                                                                     \
        static T source[COUNT], dest[COUNT], work[COUNT + SHMEM_REDUCE_MIN_WRKDATA_SIZE]; \
        for (int i = 0; i < COUNT; i++)                                                   \
            source[i] = (T)value_of(me, i);                                               \
        shmem_barrier_all();                                                              \
        shmem_##N##_##OP##_to_all(dest, source, COUNT, 0, 0, pes, work, sync_array);      \
        EXPECT_FOLD(T, #N " " #OP "_to_all", pes, FOLD, dest);                            \
        shmem_barrier_all();                                                              \
    }
#define TO_ALL_BITS(N, T, A) \
    TO_ALL(N, T, and, total &value) TO_ALL(N, T, or, total | value) TO_ALL(N, T, xor, total ^ value)
#define TO_ALL_ORDER(N, T, A)                        \
    TO_ALL(N, T, max, total > value ? total : value) \
    TO_ALL(N, T, min, total < value ? total : value)
#define TO_ALL_RING(N, T, A) TO_ALL(N, T, sum, total + value) TO_ALL(N, T, prod, total *value)
VIADUCT_SHMEM_TO_ALL_INTEGERS(TO_ALL_BITS, 0)
VIADUCT_SHMEM_TO_ALL_INTEGERS(TO_ALL_ORDER, 0)
VIADUCT_SHMEM_TO_ALL_REALS(TO_ALL_ORDER, 0)
VIADUCT_SHMEM_TO_ALL_INTEGERS(TO_ALL_RING, 0)
VIADUCT_SHMEM_TO_ALL_REALS(TO_ALL_RING, 0)
VIADUCT_SHMEM_COMPLEX_TYPES(TO_ALL_RING, 0)

#define TEST_ACTIVE_SET(S, T)                                                             \
    static void active_set_##S(void)                                                      \
    {                                                                                     \
        static T source[COUNT * PES_MAX], dest[2 * COUNT * PES_MAX];                      \
        for (int i = 0; i < COUNT * PES_MAX; i++)                                         \
            source[i] = (T)value_of(me, i);                                               \
        memset(dest, 0, sizeof(dest));                                                    \
        shmem_barrier_all();                                                              \
        shmem_broadcast##S(dest, source, COUNT, 0, 0, 0, pes, sync_array);                \
        CHECK(dest[1] == (me == 0 ? 0 : (T)value_of(0, 1)), "broadcast");                 \
        check_sync_array();                                                               \
        shmem_fcollect##S(dest, source, COUNT, 0, 0, pes, sync_array);                    \
        CHECK(dest[COUNT * pes - 1] == (T)value_of(pes - 1, COUNT - 1), "fcollect");      \
        check_sync_array();                                                               \
        shmem_collect##S(dest, source, (size_t)me + 1, 0, 0, pes, sync_array);            \
        CHECK(dest[pes * (pes + 1) / 2 - 1] == (T)value_of(pes - 1, pes - 1), "collect"); \
        check_sync_array();                                                               \
        shmem_alltoall##S(dest, source, COUNT, 0, 0, pes, sync_array);                    \
        CHECK(dest[0] == (T)value_of(0, me * COUNT), "alltoall");                         \
        check_sync_array();                                                               \
        shmem_alltoalls##S(dest, source, 2, 1, COUNT, 0, 0, pes, sync_array);             \
        CHECK(dest[2] == (T)value_of(0, me * COUNT + 1), "alltoalls");                    \
        check_sync_array();                                                               \
        if (me % 2 == 0)                                                                  \
            for (int i = 0; i < 100; i++)                                                 \
                shmem_barrier(0, 1, (pes + 1) / 2, sync_array);                           \
        check_sync_array();                                                               \
        for (int i = 0; i < 100; i++)                                                     \
            (shmem_sync)(0, 0, pes, sync_array);                                          \
        check_sync_array();                                                               \
    }
TEST_ACTIVE_SET(32, uint32_t)
TEST_ACTIVE_SET(64, uint64_t)

/* If another PE has set a lock, shmem_set_lock() waits until that PE clears it. */
static void test_lock_is_waited_for(void)
{
    static long lock, arrived;

    if (me == 0)
        shmem_set_lock(&lock);
    shmem_barrier_all();
    if (me == 0) {
        usleep(1500);
        for (int pe = 0; pe < pes; pe++)
            shmem_long_p(&arrived, 1, pe);
        shmem_quiet();
    } else {
        shmem_set_lock(&lock);
        CHECK(arrived == 1, "the lock was not kept");
    }
    shmem_clear_lock(&lock);
    shmem_barrier_all();
}

static void test_locks(void)
{
    static long lock, locks[8], count;

    for (int i = 0; i < 100; i++) {
        shmem_set_lock(&lock);
        shmem_long_p(&count, shmem_long_g(&count, 0) + 1, 0);
        shmem_clear_lock(&lock);
    }
    shmem_barrier_all();
    CHECK(shmem_long_g(&count, 0) == 100L * pes, "%ld", shmem_long_g(&count, 0));
    shmem_barrier_all();
    if (me == 0) {
        for (int i = 0; i < 8; i++)
            CHECK(shmem_test_lock(&locks[i]) == 0, "it is free");
    }
    shmem_barrier_all();
    if (me != 0)
        CHECK(shmem_test_lock(&locks[me % 8]) == 1, "it is not free");
    shmem_barrier_all();
    for (int i = 0; i < 8 && me == 0; i++)
        shmem_clear_lock(&locks[i]);
    shmem_barrier_all();
    if (me == pes - 1) {
        CHECK(shmem_test_lock(&locks[3]) == 0, "it is free again");
        shmem_clear_lock(&locks[3]);
    }
    shmem_barrier_all();
}

int main(void)
{
    shmem_init();
    me = shmem_my_pe();
    pes = shmem_n_pes();
    run_team(SHMEM_TEAM_WORLD, 0, 1);
    shmem_barrier_all();
    int shared = shmem_team_translate_pe(SHMEM_TEAM_SHARED, 0, SHMEM_TEAM_WORLD);
    run_team(SHMEM_TEAM_SHARED, shared, 1);
    shmem_barrier_all();
    test_splits();
    shmem_barrier_all();
    test_many_teams();
    test_shrinking_teams();
    test_long();

    team = SHMEM_TEAM_WORLD;
    team_start = 0;
    team_stride = 1;
#define RUN_BITS_TO_ALL(N, T, A) to_all_##N##_and(), to_all_##N##_or(), to_all_##N##_xor();
#define RUN_ORDER_TO_ALL(N, T, A) to_all_##N##_max(), to_all_##N##_min();
#define RUN_RING_TO_ALL(N, T, A) to_all_##N##_sum(), to_all_##N##_prod();
    VIADUCT_SHMEM_TO_ALL_INTEGERS(RUN_BITS_TO_ALL, 0)
    VIADUCT_SHMEM_TO_ALL_INTEGERS(RUN_ORDER_TO_ALL, 0)
    VIADUCT_SHMEM_TO_ALL_REALS(RUN_ORDER_TO_ALL, 0)
    VIADUCT_SHMEM_TO_ALL_INTEGERS(RUN_RING_TO_ALL, 0)
    VIADUCT_SHMEM_TO_ALL_REALS(RUN_RING_TO_ALL, 0)
    VIADUCT_SHMEM_COMPLEX_TYPES(RUN_RING_TO_ALL, 0)
    active_set_32();
    active_set_64();
    test_lock_is_waited_for();
    test_locks();
    return passed("collect");
}
