/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * prog_shmem_algorithms SEED TEAMS: random teams; in each team every collective of every type and
 * operation, compared with the result that each PE computes itself. Every type holds every result
 * exactly, so the order of the operations does not matter. VIADUCT_SHMEM_ALGORITHMS selects the
 * algorithm.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define PES_MAX 64
#define COUNT_MAX 4000
#define ELEMENT_BYTES_MAX 16

static uint64_t state;
static shmem_team_t team;
static int size, me;
static int count, root;
static int in_place;
static char *source, *dest;

/* The same at all PEs. */
static int draw(int below)
{
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (int)((state >> 33) % (uint64_t)below);
}

static int value_of(int member, int i)
{
    return (member * 7 + i) % 4;
}

static int factor_of(int member, int i)
{
    return member < 6 ? 1 + (member + i) % 2 : 1;
}

#define REDUCE(N, T, CALL, MEMBERS, VALUE, FOLD)                                                 \
    do {                                                                                         \
        T *from = (T *)(void *)source, *to = in_place ? from : (T *)(void *)dest;                \
        for (int i = 0; i < count; i++)                                                          \
            from[i] = (T)VALUE(me, i);                                                           \
        shmem_team_sync(team);                                                                   \
        CHECK(shmem_##N##_##CALL(team, to, from, (size_t)count) == 0, #N);                       \
        for (int i = 0; i < count; i++) {                                                        \
            T total = (T)((MEMBERS) > 0 ? VALUE(0, i) : 0);                                      \
            for (int m = 1; m < (MEMBERS); m++) {                                                \
                T value = (T)VALUE(m, i);                                                        \
                total = (T)(FOLD);                                                               \
            }                                                                                    \
            CHECK(to[i] == total, #N " " #CALL ": element %d of %d, %d members, in place %d", i, \
                  count, size, in_place);                                                        \
        }                                                                                        \
    } while (0);

#define BITS(N, T, A)                                      \
    REDUCE(N, T, and_reduce, size, value_of, total &value) \
    REDUCE(N, T, or_reduce, size, value_of, total | value) \
    REDUCE(N, T, xor_reduce, size, value_of, total ^ value)
#define ORDER(N, T, A)                                                      \
    REDUCE(N, T, max_reduce, size, value_of, total > value ? total : value) \
    REDUCE(N, T, min_reduce, size, value_of, total < value ? total : value)
#define RING(N, T, A)                                         \
    REDUCE(N, T, sum_reduce, size, value_of, total + value)   \
    REDUCE(N, T, prod_reduce, size, factor_of, total *value)  \
    REDUCE(N, T, sum_inscan, me + 1, value_of, total + value) \
    REDUCE(N, T, sum_exscan, me, value_of, total + value)

static void reductions(void)
{
    VIADUCT_SHMEM_REDUCE_BITS_TYPES(BITS, 0)
    VIADUCT_SHMEM_RMA_TYPES(ORDER, 0)
    VIADUCT_SHMEM_RMA_TYPES(RING, 0)
    VIADUCT_SHMEM_COMPLEX_TYPES(RING, 0)
}

/* The number of elements that a member contributes to a collect. */
static int part_of(int member)
{
    return (member + count) % 4;
}

#define MOVES(N, T, A)                                                                       \
    do {                                                                                     \
        T *from = (T *)(void *)source, *to = (T *)(void *)dest;                              \
        for (int i = 0; i < few * size; i++)                                                 \
            from[i] = (T)(value_of(me, i) + 1);                                              \
        shmem_team_sync(team);                                                               \
        shmem_##N##_broadcast(team, to, from, (size_t)few, root);                            \
        for (int i = 0; i < few; i++)                                                        \
            CHECK(to[i] == (T)(value_of(root, i) + 1), #N " broadcast: %d of %d", i, few);   \
        shmem_team_sync(team);                                                               \
        shmem_##N##_fcollect(team, to, from, (size_t)few);                                   \
        for (int m = 0, at = 0; m < size; m++)                                               \
            for (int i = 0; i < few; i++, at++)                                              \
                CHECK(to[at] == (T)(value_of(m, i) + 1), #N " fcollect: %d of %d", i, few);  \
        shmem_team_sync(team);                                                               \
        shmem_##N##_collect(team, to, from, (size_t)part_of(me));                            \
        for (int m = 0, at = 0; m < size; m++)                                               \
            for (int i = 0; i < part_of(m); i++, at++)                                       \
                CHECK(to[at] == (T)(value_of(m, i) + 1), #N " collect: %d of %d", i, m);     \
        shmem_team_sync(team);                                                               \
        shmem_##N##_alltoall(team, to, from, (size_t)few);                                   \
        for (int m = 0, at = 0; m < size; m++)                                               \
            for (int i = 0; i < few; i++, at++)                                              \
                CHECK(to[at] == (T)(value_of(m, me * few + i) + 1), #N " alltoall: %d", at); \
    } while (0);

static void moves(void)
{
    int few = count * size <= COUNT_MAX ? count : COUNT_MAX / size;

    VIADUCT_SHMEM_RMA_TYPES(MOVES, 0)
}

/* The world, or a strided part of it in either direction. */
static void draw_team(int pes)
{
    int first = draw(pes), stride = 1 + draw(3), most, backwards = draw(4) == 0;

    most = (backwards ? first : pes - 1 - first) / stride + 1;
    int members = most - draw(most > 2 ? most / 2 : 1);
    if (draw(3) == 0)
        first = 0, stride = 1, members = pes, backwards = 0;
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, first, backwards ? -stride : stride, members,
                                   NULL, 0, &team) == 0,
          "split");
    count = (const int[]){1, 3, 14, 15, 130, 1025, COUNT_MAX}[draw(draw(4) == 0 ? 7 : 5)];
    in_place = draw(2);
    root = draw(members);
    size = members;
}

int main(int argc, char **argv)
{
    int teams = argc > 2 ? atoi(argv[2]) : 1;

    state = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    shmem_init();
    CHECK(shmem_n_pes() <= PES_MAX, "at most %d PEs", PES_MAX);
    source = shmem_malloc((size_t)(COUNT_MAX + PES_MAX) * ELEMENT_BYTES_MAX);
    dest = shmem_malloc((size_t)(COUNT_MAX + PES_MAX) * ELEMENT_BYTES_MAX);
    for (int i = 0; i < teams; i++) {
        draw_team(shmem_n_pes());
        if (team == SHMEM_TEAM_INVALID)
            continue;
        me = shmem_team_my_pe(team);
        reductions();
        shmem_team_sync(team);
        moves();
        shmem_team_destroy(team);
    }
    return passed("algorithms");
}
