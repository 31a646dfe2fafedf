/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Makes the mistake that its first argument names. For tests of VIADUCT_SHMEM_CHECK. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static long table[8], other[8], flag, data[4];
static long work[8], sync_words[SHMEM_SYNC_SIZE];

/* --- memory ----------------------------------------------------------------------------------- */

static void write_to_stack(int me)
{
    int local = 0;

    if (me == 0)
        shmem_int_p(&local, 1, 0);
}

static void write_to_malloc(int me)
{
    char *mine = malloc(64);

    if (me == 0)
        shmem_putmem(mine, table, 8, 0);
    free(mine);
}

static void write_past_static(int me)
{
    if (me == 0)
        shmem_long_put(table + 4, other, 5, 1);
}

static void read_past_static(int me)
{
    if (me == 0)
        shmem_long_get(other, table + 6, 3, 1);
}

static void source_past_static(int me)
{
    if (me == 0)
        shmem_long_put(table, other + 7, 2, 1);
}

static void stride_past_static(int me)
{
    if (me == 0)
        shmem_long_iput(table, other, 3, 1, 4, 1);
}

static void write_past_heap(int me)
{
    char *block = shmem_malloc(100);

    if (me == 0)
        shmem_putmem(block + 1, table, 64, 1);
    if (me == 0)
        shmem_putmem(block + 90, table, 11, 1);
    shmem_free(block);
}

static void atomic_past_heap(int me)
{
    char *block = shmem_malloc(12);

    if (me == 0)
        shmem_long_atomic_inc((long *)(void *)(block + 8), 1);
    shmem_free(block);
}

static void write_to_freed(int me)
{
    char *block = shmem_malloc(100), *kept = shmem_malloc(100);

    shmem_free(block);
    if (me == 0)
        shmem_putmem(block + 2, table, 8, 1);
    shmem_free(kept);
}

static void free_static(int me)
{
    (void)me;
    shmem_free(table);
}

static void wait_on_stack(int me)
{
    long local = 1;

    (void)me;
    shmem_long_wait_until(&local, SHMEM_CMP_EQ, 1);
}

static void lock_on_stack(int me)
{
    long local = 0;

    if (me == 0)
        shmem_set_lock(&local);
}

static void signal_on_stack(int me)
{
    uint64_t local = 0;

    if (me == 0)
        shmem_long_put_signal(table, other, 8, &local, 1, SHMEM_SIGNAL_SET, 0);
}

/* --- PEs -------------------------------------------------------------------------------------- */

static void no_such_pe(int me)
{
    if (me == 0)
        shmem_long_p(table, 1, shmem_n_pes());
}

static void negative_pe(int me)
{
    if (me == 0)
        shmem_long_get(other, table, 1, -1);
}

static void no_such_pe_of_team(int me)
{
    shmem_team_t team;
    shmem_ctx_t ctx;

    shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, 1, NULL, 0, &team);
    if (me == 0 && shmem_team_create_ctx(team, 0, &ctx) == 0)
        shmem_ctx_long_p(ctx, table, 1, 1);
}

/* PEs that are not in the team get no handle. */
static void invalid_team(int me)
{
    shmem_team_t team;

    shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, 1, NULL, 0, &team);
    if (me == 1)
        shmem_long_sum_reduce(team, table, other, 1);
}

static void invalid_ctx(int me)
{
    shmem_ctx_t ctx = SHMEM_CTX_INVALID;

    shmem_ctx_quiet(ctx);
    shmem_ctx_destroy(ctx);
    if (me == 1)
        shmem_ctx_long_p(ctx, table, 1, 0);
}

static void no_such_root(int me)
{
    (void)me;
    shmem_long_broadcast(SHMEM_TEAM_WORLD, table, other, 8, 7);
}

static void no_such_active_set(int me)
{
    (void)me;
    shmem_long_sum_to_all(table, other, 1, 0, 0, 9, work, sync_words);
}

/* --- collectives ------------------------------------------------------------------------------ */

static void another_call(int me)
{
    if (me == 0)
        shmem_barrier_all();
    else
        shmem_sync_all();
}

static void another_size(int me)
{
    shmem_malloc(me == 0 ? 100 : 200);
}

static void another_count(int me)
{
    shmem_long_sum_reduce(SHMEM_TEAM_WORLD, table, other, me == 0 ? 2 : 3);
}

static void another_root(int me)
{
    shmem_long_broadcast(SHMEM_TEAM_WORLD, table, other, 8, me == 0 ? 0 : 1);
}

static void another_dest(int me)
{
    shmem_long_fcollect(SHMEM_TEAM_WORLD, me == 0 ? table : data, other, 1);
}

static void collective_past_static(int me)
{
    (void)me;
    shmem_long_fcollect(SHMEM_TEAM_WORLD, data, other, 8);
}

static void work_on_stack(int me)
{
    long local[SHMEM_SYNC_SIZE] = {0};

    (void)me;
    shmem_barrier(0, 0, shmem_n_pes(), local);
}

/* --- order ------------------------------------------------------------------------------------ */

static void flag_without_fence(int me)
{
    if (me == 1) {
        shmem_long_wait_until(&flag, SHMEM_CMP_EQ, 1);
        shmem_long_wait_until(&flag, SHMEM_CMP_EQ, 2);
    }
    if (me == 0) {
        shmem_long_put(data, other, 4, 1);
        shmem_fence();
        shmem_long_p(&flag, 1, 1);
        /* PE 1 waits on the word, or has done so; this gives it time. */
        sleep(1);
        shmem_long_put(data, other, 4, 1);
        shmem_long_p(&flag, 2, 1);
    }
}

static const struct {
    const char *name;
    void (*make)(int me);
} mistakes[] = {
    {"stack", write_to_stack},      {"malloc", write_to_malloc},
    {"static", write_past_static},  {"read", read_past_static},
    {"source", source_past_static}, {"stride", stride_past_static},
    {"heap", write_past_heap},      {"atomic", atomic_past_heap},
    {"freed", write_to_freed},      {"free", free_static},
    {"wait", wait_on_stack},        {"lock", lock_on_stack},
    {"signal", signal_on_stack},    {"pe", no_such_pe},
    {"negative", negative_pe},      {"team-pe", no_such_pe_of_team},
    {"root", no_such_root},         {"active-set", no_such_active_set},
    {"call", another_call},         {"size", another_size},
    {"count", another_count},       {"other-root", another_root},
    {"dest", another_dest},         {"collective", collective_past_static},
    {"work", work_on_stack},        {"flag", flag_without_fence},
    {"team-invalid", invalid_team}, {"ctx-invalid", invalid_ctx},
};

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";

    if (strcmp(name, "early") == 0)
        return shmem_n_pes() > 1;
    shmem_init();
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++)
        if (strcmp(mistakes[i].name, name) == 0)
            mistakes[i].make(shmem_my_pe());
    if (strcmp(name, "twice") == 0)
        for (int i = 0; i < 5; i++)
            write_past_static(shmem_my_pe());
    shmem_finalize();
    if (strcmp(name, "late") == 0)
        return shmem_my_pe() < 0;
    return 0;
}
