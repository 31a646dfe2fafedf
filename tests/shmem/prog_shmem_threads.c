/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * SHMEM_THREAD_MULTIPLE: in each test several threads of every PE make OpenSHMEM calls at the same
 * time.
 *
 *     oshrun -n N prog_shmem_threads TEST [turns]
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define THREADS 4
#define PES_MAX 16

static int me, pes;
static long turns;

static void run_threads(void *(*body)(void *))
{
    pthread_t threads[THREADS];

    for (intptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, body, (void *)i) == 0, "thread %d", (int)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    shmem_barrier_all();
}

/* --- quiet, while another thread quiets ------------------------------------------------------- */

static atomic_bool quieter_stops;

static void *quiet_on(void *argument)
{
    while (!atomic_load(&quieter_stops))
        shmem_quiet();
    return argument;
}

/*
 * PE 0 puts a number to the last PE, and after quiet notifies PE 1 by a word that the number has
 * arrived. PE 1 reads the number at the last PE. On hosts 1, 2, 3 of a ring only the put uses
 * frames.
 */
static void test_quiet(void)
{
    static long number, word, answer;
    int last = pes - 1;
    pthread_t quieter;

    if (pes < 2)
        return;
    if (me == 0)
        CHECK(pthread_create(&quieter, NULL, quiet_on, NULL) == 0, "thread");
    for (long turn = 1; turn <= turns && me == 0; turn++) {
        shmem_long_p(&number, turn, last);
        shmem_quiet();
        shmem_long_p(&word, turn, 1);
        shmem_long_wait_until(&answer, SHMEM_CMP_GE, turn);
    }
    for (long turn = 1; turn <= turns && me == 1; turn++) {
        shmem_long_wait_until(&word, SHMEM_CMP_GE, turn);
        long there = shmem_long_g(&number, last);
        CHECK(there == turn, "turn %ld: quiet has returned, and %ld is there", turn, there);
        shmem_long_p(&answer, turn, 0);
    }
    if (me == 0) {
        atomic_store(&quieter_stops, true);
        pthread_join(quieter, NULL);
    }
}

/* --- teams, each thread by a parent of its own ------------------------------------------------ */

static shmem_team_t parents[THREADS];
static long team_source[THREADS], team_sum[THREADS], team_all[THREADS][PES_MAX], team_word[THREADS];

/* Collectives and a context of the team of PEs start, start + stride, ... */
static void use_team(int thread, long turn, shmem_team_t team, int start, int stride, int size)
{
    int my_number = shmem_team_my_pe(team);
    long sum = 0;
    shmem_ctx_t ctx;

    if (team == SHMEM_TEAM_INVALID)
        return;
    CHECK(shmem_team_n_pes(team) == size && start + stride * my_number == me, "%d of %d", my_number,
          shmem_team_n_pes(team));
    for (int i = 0; i < size; i++)
        sum += turn * 100 + start + stride * i;
    team_source[thread] = turn * 100 + me;
    shmem_sum_reduce(team, &team_sum[thread], &team_source[thread], 1);
    CHECK(team_sum[thread] == sum, "thread %d, turn %ld: %ld, not %ld", thread, turn,
          team_sum[thread], sum);
    shmem_collect(team, team_all[thread], &team_source[thread], 1);
    for (int i = 0; i < size; i++)
        CHECK(team_all[thread][i] == turn * 100 + start + stride * i, "thread %d, turn %ld: %ld",
              thread, turn, team_all[thread][i]);
    CHECK(shmem_team_create_ctx(team, 0, &ctx) == 0, "turn %ld", turn);
    shmem_ctx_long_p(ctx, &team_word[thread], turn, (my_number + 1) % size);
    shmem_ctx_quiet(ctx);
    shmem_team_sync(team);
    CHECK(team_word[thread] == turn, "thread %d, turn %ld: %ld", thread, turn, team_word[thread]);
    shmem_team_sync(team);
    shmem_ctx_destroy(ctx);
}

static void *make_teams(void *argument)
{
    int thread = (int)(intptr_t)argument;
    shmem_team_t parent = parents[thread], child, row, column;

    for (long turn = 1; turn <= turns; turn++) {
        int start = (int)(turn % pes), size = (int)(turn * 7 % (pes - start)) + 1;
        CHECK(shmem_team_split_strided(parent, start, 1, size, NULL, 0, &child) == 0, "turn %ld",
              turn);
        use_team(thread, turn, child, start, 1, size);
        if (turn % 2 == 0)
            shmem_team_destroy(child);
        int width = 1 + (int)(turn % 2), height = (pes + width - 1 - me % width) / width;
        CHECK(shmem_team_split_2d(parent, width, NULL, 0, &row, NULL, 0, &column) == 0, "turn %ld",
              turn);
        if (width <= pes) {
            int first = me / width * width, length = pes - first < width ? pes - first : width;
            use_team(thread, turn, row, first, 1, length);
            use_team(thread, turn, column, me % width, width, height);
        }
        shmem_team_destroy(row);
        shmem_team_destroy(column);
        if (turn % 2 == 1)
            shmem_team_destroy(child);
    }
    shmem_team_destroy(parent);
    return NULL;
}

static void test_teams(void)
{
    for (int i = 0; i < THREADS; i++)
        CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, pes, NULL, 0, &parents[i]) == 0,
              "thread %d", i);
    run_threads(make_teams);
    /* No slot is lost: all are free except the two of the predefined teams. */
    shmem_team_t many[100];
    int count = 0;
    while (count < 100 &&
           shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, pes, NULL, 0, &many[count]) == 0)
        count++;
    CHECK(count == 62, "%d", count);
    while (count > 0)
        shmem_team_destroy(many[--count]);
}

/* --- active sets, each thread by pSyncs of its own -------------------------------------------- */

static long sync_words[THREADS][3][SHMEM_SYNC_SIZE];
static long set_source[THREADS][PES_MAX], set_dest[THREADS][PES_MAX];
static long set_work[THREADS][SHMEM_REDUCE_MIN_WRKDATA_SIZE];

static void use_set(int thread, long turn, int size)
{
    long(*sync)[SHMEM_SYNC_SIZE] = sync_words[thread];
    long *source = set_source[thread], *dest = set_dest[thread];

    for (int i = 0; i < size; i++)
        source[i] = turn * 1000 + me * 10 + i;
    shmem_barrier(0, 0, size, sync[0]);
    shmem_long_sum_to_all(dest, source, 1, 0, 0, size, set_work[thread], sync[1]);
    CHECK(dest[0] == size * turn * 1000 + 10 * size * (size - 1) / 2, "thread %d, turn %ld: %ld",
          thread, turn, dest[0]);
    shmem_sync(0, 0, size, sync[0]);
    shmem_fcollect64(dest, source, 1, 0, 0, size, sync[2]);
    for (int i = 0; i < size; i++)
        CHECK(dest[i] == turn * 1000 + i * 10, "thread %d, turn %ld: %ld", thread, turn, dest[i]);
    shmem_barrier(0, 0, size, sync[0]);
    shmem_collect64(dest, source, 1, 0, 0, size, sync[1]);
    for (int i = 0; i < size; i++)
        CHECK(dest[i] == turn * 1000 + i * 10, "thread %d, turn %ld: %ld", thread, turn, dest[i]);
    shmem_barrier(0, 0, size, sync[0]);
    shmem_alltoall64(dest, source, 1, 0, 0, size, sync[2]);
    for (int i = 0; i < size; i++)
        CHECK(dest[i] == turn * 1000 + i * 10 + me, "thread %d, turn %ld: %ld", thread, turn,
              dest[i]);
    shmem_barrier(0, 0, size, sync[0]);
    int root = (int)(turn % size);
    shmem_broadcast64(dest, source, 1, root, 0, 0, size, sync[1]);
    CHECK(me == root || dest[0] == turn * 1000 + root * 10, "thread %d, turn %ld: %ld", thread,
          turn, dest[0]);
    shmem_barrier(0, 0, size, sync[0]);
    /* The first word may be in use again, in a barrier that other PEs have begun. */
    for (int i = 0; i < SHMEM_SYNC_SIZE; i++)
        CHECK(sync[1][i] == SHMEM_SYNC_VALUE && sync[2][i] == SHMEM_SYNC_VALUE,
              "thread %d: pSync[%d] is %ld, %ld", thread, i, sync[1][i], sync[2][i]);
    shmem_barrier(0, 0, size, sync[0]);
}

static void *use_sets(void *argument)
{
    int thread = (int)(intptr_t)argument;

    for (long turn = 1; turn <= turns; turn++) {
        use_set(thread, turn, pes);
        if (pes > 2 && me < pes - 1)
            use_set(thread, turn, pes - 1);
    }
    return NULL;
}

static void test_sets(void)
{
    run_threads(use_sets);
}

/* --- contexts: of all threads, of one at a time, of one --------------------------------------- */

static shmem_ctx_t shared, serialized;
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static long ctx_words[THREADS][3][2], ctx_count;

/* Puts a number, then a flag. The next PE's thread of the same number waits for the flag. */
static void put_in_order(shmem_ctx_t ctx, long words[2], long turn)
{
    int next = (me + 1) % pes;

    shmem_ctx_long_p(ctx, &words[0], turn, next);
    shmem_ctx_fence(ctx);
    shmem_ctx_long_p(ctx, &words[1], turn, next);
    shmem_ctx_long_atomic_inc(ctx, &ctx_count, next);
    shmem_long_wait_until(&words[1], SHMEM_CMP_GE, turn);
    CHECK(words[0] >= turn, "turn %ld: %ld", turn, words[0]);
}

static void *use_contexts(void *argument)
{
    int thread = (int)(intptr_t)argument, next = (me + 1) % pes;
    shmem_ctx_t own;

    for (long turn = 1; turn <= turns; turn++) {
        CHECK(shmem_ctx_create(SHMEM_CTX_PRIVATE, &own) == 0, "thread %d", thread);
        put_in_order(shared, ctx_words[thread][0], turn);
        put_in_order(own, ctx_words[thread][2], turn);
        pthread_mutex_lock(&one_at_a_time);
        shmem_ctx_long_p(serialized, &ctx_words[thread][1][0], turn, next);
        shmem_ctx_quiet(serialized);
        long there = shmem_ctx_long_g(serialized, &ctx_words[thread][1][0], next);
        pthread_mutex_unlock(&one_at_a_time);
        CHECK(there == turn, "thread %d, turn %ld: %ld after quiet", thread, turn, there);
        shmem_ctx_destroy(own);
    }
    return NULL;
}

static void test_contexts(void)
{
    CHECK(shmem_ctx_create(0, &shared) == 0, "context");
    CHECK(shmem_ctx_create(SHMEM_CTX_SERIALIZED, &serialized) == 0, "context");
    run_threads(use_contexts);
    CHECK(ctx_count == 2 * THREADS * turns, "%ld", ctx_count);
    shmem_ctx_destroy(shared);
    shmem_ctx_destroy(serialized);
}

/* --- waits and signals ------------------------------------------------------------------------ */

static uint64_t signals[THREADS];
static long wait_words[THREADS][PES_MAX], signal_data[THREADS][16];

/* Each kind of wait for the numbers of all PEs' threads of this number. */
static void wait_for_all(int thread, long turn)
{
    long *words = wait_words[thread];
    size_t indices[PES_MAX];
    int status[PES_MAX] = {0}, left = pes;

    if (turn % 3 == 0)
        shmem_wait_until_all(words, (size_t)pes, NULL, SHMEM_CMP_GE, turn);
    for (; turn % 3 == 1 && left > 0; left--)
        status[shmem_wait_until_any(words, (size_t)pes, status, SHMEM_CMP_GE, turn)] = 1;
    while (turn % 3 == 2 && left > 0) {
        size_t count =
            shmem_wait_until_some(words, (size_t)pes, indices, status, SHMEM_CMP_GE, turn);
        for (size_t i = 0; i < count; i++)
            status[indices[i]] = 1;
        left -= (int)count;
    }
    for (int i = 0; i < pes; i++)
        CHECK(words[i] >= turn, "thread %d, turn %ld: %ld of PE %d", thread, turn, words[i], i);
}

static void *wait_and_signal(void *argument)
{
    int thread = (int)(intptr_t)argument, next = (me + 1) % pes;

    for (long turn = 1; turn <= turns; turn++) {
        long data[16];
        for (int i = 0; i < 16; i++)
            data[i] = turn * 16 + i;
        shmem_put_signal(signal_data[thread], data, 16, &signals[thread], 1, SHMEM_SIGNAL_ADD,
                         next);
        CHECK(shmem_signal_wait_until(&signals[thread], SHMEM_CMP_GE, (uint64_t)turn) ==
                  (uint64_t)turn,
              "thread %d, turn %ld", thread, turn);
        for (int i = 0; i < 16; i++)
            CHECK(signal_data[thread][i] == turn * 16 + i, "thread %d, turn %ld: %ld", thread, turn,
                  signal_data[thread][i]);
        for (int pe = 0; pe < pes; pe++)
            shmem_long_atomic_set(&wait_words[thread][me], turn, pe);
        wait_for_all(thread, turn);
    }
    return NULL;
}

static void test_waits(void)
{
    run_threads(wait_and_signal);
}

/* --- locks ------------------------------------------------------------------------------------ */

static long locks[2], locked[2];

static void *lock_and_count(void *argument)
{
    int thread = (int)(intptr_t)argument;

    for (long turn = 1; turn <= turns; turn++) {
        int which = (int)(turn + thread) % 2, home = which % pes;
        if (thread == 0)
            while (shmem_test_lock(&locks[which]) != 0)
                usleep(10);
        else
            shmem_set_lock(&locks[which]);
        long count = shmem_long_g(&locked[which], home);
        shmem_long_p(&locked[which], count + 1, home);
        shmem_clear_lock(&locks[which]);
    }
    return NULL;
}

static void test_locks(void)
{
    run_threads(lock_and_count);
    long count = shmem_long_g(&locked[0], 0) + shmem_long_g(&locked[1], 1 % pes);
    CHECK(count == THREADS * pes * turns, "%ld", count);
}

/* --- */

static const struct {
    const char *name;
    void (*run)(void);
    long turns;
} tests[] = {
    {"quiet", test_quiet, 1000},      {"teams", test_teams, 40}, {"sets", test_sets, 40},
    {"contexts", test_contexts, 200}, {"waits", test_waits, 60}, {"locks", test_locks, 60},
};

int main(int argc, char **argv)
{
    int provided;

    shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided);
    CHECK(provided == SHMEM_THREAD_MULTIPLE, "%d", provided);
    me = shmem_my_pe();
    pes = shmem_n_pes();
    CHECK(pes <= PES_MAX, "%d", pes);
    for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++) {
        if (argc > 1 && strcmp(argv[1], tests[i].name) != 0)
            continue;
        turns = argc > 2 ? strtol(argv[2], NULL, 10) : tests[i].turns;
        tests[i].run();
        shmem_barrier_all();
    }
    return passed("threads");
}
