/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Every wait and test, for every type: with a condition that is true from the start, and with one
 * that the previous PE makes true while this PE waits. */
#include <string.h>

#include "check.h"

#define COUNT 8

static int me, next;

/* Variable i of 0 .. COUNT - 1 holds i + 1, except for those with another value below. */
#define TEST_TYPE(N, T, A)                                                                        \
    static T N##_vars[COUNT];                                                                     \
    static void reset_##N(void)                                                                   \
    {                                                                                             \
        shmem_barrier_all();                                                                      \
        for (int i = 0; i < COUNT; i++)                                                           \
            N##_vars[i] = 0;                                                                      \
        shmem_barrier_all();                                                                      \
    }                                                                                             \
    static void compare_##N(void)                                                                 \
    {                                                                                             \
        T *var = N##_vars;                                                                        \
        *var = 5;                                                                                 \
        CHECK(shmem_##N##_test(var, SHMEM_CMP_EQ, 5) && !shmem_##N##_test(var, SHMEM_CMP_EQ, 6),  \
              #N);                                                                                \
        CHECK(shmem_##N##_test(var, SHMEM_CMP_NE, 6) && !shmem_##N##_test(var, SHMEM_CMP_NE, 5),  \
              #N);                                                                                \
        CHECK(shmem_##N##_test(var, SHMEM_CMP_GT, 4) && !shmem_##N##_test(var, SHMEM_CMP_GT, 5),  \
              #N);                                                                                \
        CHECK(shmem_##N##_test(var, SHMEM_CMP_GE, 5) && !shmem_##N##_test(var, SHMEM_CMP_GE, 6),  \
              #N);                                                                                \
        CHECK(shmem_##N##_test(var, SHMEM_CMP_LT, 6) && !shmem_##N##_test(var, SHMEM_CMP_LT, 5),  \
              #N);                                                                                \
        CHECK(shmem_##N##_test(var, SHMEM_CMP_LE, 5) && !shmem_##N##_test(var, SHMEM_CMP_LE, 4),  \
              #N);                                                                                \
        *var = (T)-1;                                                                             \
        CHECK(shmem_##N##_test(var, SHMEM_CMP_LT, 0) == ((T)-1 < (T)1), #N);                      \
        shmem_##N##_wait_until(var, SHMEM_CMP_EQ, (T)-1);                                         \
        shmem_##N##_wait(var, 3);                                                                 \
    }                                                                                             \
    static void one_##N(void)                                                                     \
    {                                                                                             \
        reset_##N();                                                                              \
        late();                                                                                   \
        shmem_putmem(&N##_vars[1], &(T){4}, sizeof(T), next);                                     \
        shmem_##N##_wait_until(&N##_vars[1], SHMEM_CMP_EQ, 4);                                    \
        CHECK(N##_vars[1] == 4, #N);                                                              \
        late();                                                                                   \
        shmem_putmem(&N##_vars[2], &(T){4}, sizeof(T), next);                                     \
        shmem_##N##_wait(&N##_vars[2], 0);                                                        \
        CHECK(N##_vars[2] == 4, #N);                                                              \
    }                                                                                             \
    static void send_all_##N(void)                                                                \
    {                                                                                             \
        for (int i = 0; i < COUNT; i++) {                                                         \
            T value = (T)(i + 1);                                                                 \
            shmem_putmem(&N##_vars[i], &value, sizeof(T), next);                                  \
        }                                                                                         \
    }                                                                                             \
    static void all_##N(void)                                                                     \
    {                                                                                             \
        reset_##N();                                                                              \
        late();                                                                                   \
        send_all_##N();                                                                           \
        shmem_##N##_wait_until_all(N##_vars, COUNT, NULL, SHMEM_CMP_GT, 0);                       \
        for (int i = 0; i < COUNT; i++)                                                           \
            CHECK(N##_vars[i] == (T)(i + 1), #N);                                                 \
    }                                                                                             \
    static void sets_##N(void)                                                                    \
    {                                                                                             \
        int status[COUNT] = {0}, seen[COUNT] = {0};                                               \
        size_t indices[COUNT], found = 0, count, index;                                           \
        T *vars = N##_vars;                                                                       \
        reset_##N();                                                                              \
        CHECK(shmem_##N##_test_any(vars, COUNT, NULL, SHMEM_CMP_NE, 0) == SIZE_MAX, #N);          \
        CHECK(shmem_##N##_test_some(vars, COUNT, indices, NULL, SHMEM_CMP_NE, 0) == 0, #N);       \
        CHECK(!shmem_##N##_test_all(vars, COUNT, NULL, SHMEM_CMP_NE, 0), #N);                     \
        CHECK(shmem_##N##_wait_until_any(vars, 0, NULL, SHMEM_CMP_NE, 0) == SIZE_MAX, #N);        \
        CHECK(shmem_##N##_wait_until_some(vars, 0, indices, NULL, SHMEM_CMP_NE, 0) == 0, #N);     \
        shmem_##N##_wait_until_all(vars, 0, NULL, SHMEM_CMP_NE, 0);                               \
        shmem_barrier_all();                                                                      \
        late();                                                                                   \
        send_all_##N();                                                                           \
        while (found < COUNT / 2) {                                                               \
            index = shmem_##N##_wait_until_any(vars, COUNT, status, SHMEM_CMP_NE, 0);             \
            CHECK(index < COUNT && !status[index] && vars[index] == (T)(index + 1), #N);          \
            status[index] = 1;                                                                    \
            found++;                                                                              \
        }                                                                                         \
        while (found < COUNT) {                                                                   \
            count = shmem_##N##_wait_until_some(vars, COUNT, indices, status, SHMEM_CMP_NE, 0);   \
            CHECK(count > 0 && count <= COUNT - found, #N);                                       \
            for (size_t i = 0; i < count; i++) {                                                  \
                CHECK(!status[indices[i]], #N);                                                   \
                status[indices[i]] = 1;                                                           \
            }                                                                                     \
            found += count;                                                                       \
        }                                                                                         \
        CHECK(shmem_##N##_wait_until_any(vars, COUNT, status, SHMEM_CMP_NE, 0) == SIZE_MAX, #N);  \
        shmem_##N##_wait_until_all(vars, COUNT, NULL, SHMEM_CMP_GT, 0);                           \
        CHECK(shmem_##N##_test_all(vars, COUNT, NULL, SHMEM_CMP_GT, 0), #N);                      \
        CHECK(shmem_##N##_test_some(vars, COUNT, indices, NULL, SHMEM_CMP_GT, 3) == COUNT - 3,    \
              #N);                                                                                \
        /* Each condition that holds is found at some time. */                                    \
        for (int i = 0; i < 8 * COUNT; i++)                                                       \
            seen[shmem_##N##_test_any(vars, COUNT, NULL, SHMEM_CMP_GE, 1)]++;                     \
        for (int i = 0; i < COUNT; i++)                                                           \
            CHECK(seen[i] > 0, #N);                                                               \
    }                                                                                             \
    static void vectors_##N(void)                                                                 \
    {                                                                                             \
        int status[COUNT] = {0};                                                                  \
        size_t indices[COUNT];                                                                    \
        T values[COUNT], *vars = N##_vars;                                                        \
        for (int i = 0; i < COUNT; i++)                                                           \
            values[i] = (T)(i + 1);                                                               \
        reset_##N();                                                                              \
        CHECK(shmem_##N##_test_any_vector(vars, COUNT, NULL, SHMEM_CMP_EQ, values) == SIZE_MAX,   \
              #N);                                                                                \
        shmem_barrier_all();                                                                      \
        late();                                                                                   \
        send_all_##N();                                                                           \
        shmem_##N##_wait_until_all_vector(vars, COUNT, NULL, SHMEM_CMP_EQ, values);               \
        CHECK(shmem_##N##_test_all_vector(vars, COUNT, NULL, SHMEM_CMP_EQ, values), #N);          \
        values[3] = 77;                                                                           \
        status[0] = 1;                                                                            \
        CHECK(!shmem_##N##_test_all_vector(vars, COUNT, NULL, SHMEM_CMP_EQ, values), #N);         \
        CHECK(shmem_##N##_test_some_vector(vars, COUNT, indices, status, SHMEM_CMP_EQ, values) == \
                  COUNT - 2,                                                                      \
              #N);                                                                                \
        CHECK(shmem_##N##_wait_until_some_vector(vars, COUNT, indices, status, SHMEM_CMP_NE,      \
                                                 values) == 1 &&                                  \
                  indices[0] == 3,                                                                \
              #N);                                                                                \
        CHECK(shmem_##N##_wait_until_any_vector(vars, COUNT, status, SHMEM_CMP_NE, values) == 3,  \
              #N);                                                                                \
        CHECK(shmem_##N##_test_any_vector(vars, COUNT, status, SHMEM_CMP_NE, values) == 3, #N);   \
    }
VIADUCT_SHMEM_WAIT_TYPES(TEST_TYPE, 0)

/* A server that polls many arrays in turn finally serves each word of each array. */
static void test_fairness(void)
{
    static long words[40][2];
    int seen[40][2] = {{0}};

    for (int i = 0; i < 40; i++)
        words[i][0] = words[i][1] = 1;
    for (int arrays = 2; arrays <= 40; arrays += 19) {
        memset(seen, 0, sizeof(seen));
        for (int turn = 0; turn < 200; turn++)
            for (int i = 0; i < arrays; i++)
                seen[i][shmem_long_test_any(words[i], 2, NULL, SHMEM_CMP_NE, 0)]++;
        for (int i = 0; i < arrays; i++)
            CHECK(seen[i][0] > 20 && seen[i][1] > 20, "array %d of %d: %d, %d of 200", i, arrays,
                  seen[i][0], seen[i][1]);
    }
}

/* C11's generic selection, the calls for long without a type name, and signals. */
static void test_others(void)
{
    static long number;
    static uint64_t signal;
    uint64_t got;

    shmem_barrier_all();
    shmem_p(&number, 3L, next);
    shmem_wait_until(&number, SHMEM_CMP_EQ, 3L);
    CHECK(shmem_test(&number, SHMEM_CMP_EQ, 3L), "generic");
    shmem_barrier_all();
    late();
    shmem_p(&number, 4L, next);
    (shmem_wait_until)(&number, SHMEM_CMP_GE, 4);
    CHECK(number == 4, "%ld", number);
    shmem_barrier_all();
    late();
    shmem_p(&number, 3L, next);
    shmem_wait(&number, 4);
    CHECK(number == 3, "%ld", number);
    shmem_wait_until_all(&number, 1, NULL, SHMEM_CMP_EQ, 3L);
    CHECK(shmem_test_any(&number, 1, NULL, SHMEM_CMP_EQ, 3L) == 0, "generic");
    CHECK(shmem_wait_until_any_vector(&number, 1, NULL, SHMEM_CMP_EQ, &(long){3}) == 0, "generic");

    shmem_barrier_all();
    shmem_signal_set(&signal, 5, next);
    got = shmem_signal_wait_until(&signal, SHMEM_CMP_EQ, 5);
    CHECK(got == 5, "%lu", (unsigned long)got);
    shmem_barrier_all();
    shmem_signal_add(SHMEM_CTX_DEFAULT, &signal, 2, next);
    got = shmem_signal_wait_until(&signal, SHMEM_CMP_GE, 7);
    CHECK(got == 7 && shmem_signal_fetch(&signal) == 7, "%lu", (unsigned long)got);
    shmem_barrier_all();
    shmem_ctx_signal_set(SHMEM_CTX_DEFAULT, &signal, 1, next);
    shmem_signal_wait_until(&signal, SHMEM_CMP_EQ, 1);
    shmem_barrier_all();
    shmem_ctx_signal_add(SHMEM_CTX_DEFAULT, &signal, 1, next);
    shmem_signal_wait_until(&signal, SHMEM_CMP_EQ, 2);
}

int main(void)
{
    shmem_init();
    me = shmem_my_pe();
    next = (me + 1) % shmem_n_pes();

#define RUN(N, T, A) \
    compare_##N();   \
    one_##N();       \
    all_##N();       \
    sets_##N();      \
    vectors_##N();
    VIADUCT_SHMEM_WAIT_TYPES(RUN, 0)
    test_fairness();
    test_others();
    return passed("wait");
}
