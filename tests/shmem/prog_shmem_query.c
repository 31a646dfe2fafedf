/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Queries, sessions, order by context and by PE, and signals without data. */
#include <string.h>

#include "check.h"

static int me, pes, next;
static long words[2];
static uint64_t signal_word;

static void test_queries(void)
{
    int major = 0, minor = 0, level = -1;
    char name[SHMEM_MAX_NAME_LEN];

    shmem_info_get_version(&major, &minor);
    CHECK(major == SHMEM_MAJOR_VERSION && minor == SHMEM_MINOR_VERSION, "%d.%d", major, minor);
    memset(name, 'x', sizeof(name));
    shmem_info_get_name(name);
    CHECK(strcmp(name, SHMEM_VENDOR_STRING) == 0, "%.*s", SHMEM_MAX_NAME_LEN, name);
    shmem_query_thread(&level);
    CHECK(level >= SHMEM_THREAD_SINGLE && level <= SHMEM_THREAD_MULTIPLE, "%d", level);
    CHECK(_my_pe() == me && _num_pes() == pes, "PE %d of %d", _my_pe(), _num_pes());
    /* A program may make this call with or without a tool. */
    shmem_pcontrol(0);
    shmem_pcontrol(2, "more", 1);
}

/* Each call orders earlier puts of its context. */
static void test_order(shmem_ctx_t ctx)
{
    int targets[] = {next, me, next};

    for (long round = 1; round <= 100; round++) {
        words[0] = words[1] = 0;
        shmem_barrier_all();
        shmem_ctx_long_p(ctx, &words[0], round, next);
        switch (round % 3) {
        case 0:
            shmem_ctx_fence(ctx);
            break;
        case 1:
            shmem_ctx_pe_quiet(ctx, targets, 3);
            break;
        default:
            shmem_ctx_quiet(ctx);
            shmem_pe_quiet(targets, 1);
            shmem_pe_quiet(NULL, 0);
            break;
        }
        shmem_ctx_long_p(ctx, &words[1], round, next);
        shmem_long_wait_until(&words[1], SHMEM_CMP_EQ, round);
        CHECK(words[0] == round, "round %ld: %ld", round, words[0]);
        shmem_ctx_quiet(ctx);
        shmem_barrier_all();
    }
}

/* A session is a hint: puts in it arrive as usual. */
static void test_session(shmem_ctx_t ctx)
{
    shmem_ctx_session_config_t config = {.total_ops = 10};

    words[0] = 0;
    shmem_barrier_all();
    shmem_ctx_session_start(ctx, SHMEM_CTX_SESSION_BATCH, &config, SHMEM_CTX_SESSION_TOTAL_OPS);
    for (long i = 1; i <= 10; i++)
        shmem_ctx_long_atomic_add(ctx, &words[0], i, next);
    shmem_ctx_session_stop(ctx);
    shmem_ctx_quiet(ctx);
    shmem_barrier_all();
    CHECK(words[0] == 55, "%ld", words[0]);
}

static void test_signals(void)
{
    shmem_signal_set(&signal_word, 10, next);
    CHECK(shmem_signal_wait_until(&signal_word, SHMEM_CMP_GE, 10) == 10, "set");
    shmem_barrier_all();
    for (int pe = 0; pe < pes; pe++)
        shmem_signal_add(&signal_word, 1, pe);
    CHECK(shmem_signal_wait_until(&signal_word, SHMEM_CMP_EQ, 10 + (uint64_t)pes) ==
              10 + (uint64_t)pes,
          "add");
    shmem_barrier_all();
    shmem_ctx_signal_add(SHMEM_CTX_DEFAULT, &signal_word, UINT64_MAX, next);
    shmem_barrier_all();
    CHECK(shmem_signal_fetch(&signal_word) == 9 + (uint64_t)pes, "add of minus one");
}

int main(void)
{
    shmem_ctx_t ctx;

    shmem_init();
    me = shmem_my_pe();
    pes = shmem_n_pes();
    next = (me + 1) % pes;
    test_queries();
    CHECK(shmem_ctx_create(SHMEM_CTX_SERIALIZED, &ctx) == 0, "context");
    test_order(SHMEM_CTX_DEFAULT);
    test_order(ctx);
    test_session(ctx);
    shmem_ctx_destroy(ctx);
    test_signals();
    return passed("query");
}
