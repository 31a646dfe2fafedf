/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Every atomic operation for every type; then all PEs update one word at once. */
#include "check.h"

static int me, next, pes;
static shmem_ctx_t ctx;

#define STEP(T, what, start, after, old, call)                 \
    do {                                                       \
        shmem_barrier_all();                                   \
        *word = (T)(start);                                    \
        shmem_barrier_all();                                   \
        T got = (T)((old) == 0 ? 0 : 99);                      \
        (void)got;                                             \
        call;                                                  \
        shmem_barrier_all();                                   \
        CHECK(*word == (T)(after), "%s: what is there", what); \
        CHECK(got == (T)(old), "%s: what was there", what);    \
    } while (0)

/* A call with and without a context. KIND: the use of the result. */
#define FETCHING(T, start, after, old, NAME, ...)                       \
    STEP(T, #NAME, start, after, old, got = shmem_##NAME(__VA_ARGS__)); \
    STEP(T, "ctx " #NAME, start, after, old, got = shmem_ctx_##NAME(ctx, __VA_ARGS__))
#define SILENT(T, start, after, NAME, ...)                      \
    STEP(T, #NAME, start, after, 0, shmem_##NAME(__VA_ARGS__)); \
    STEP(T, "ctx " #NAME, start, after, 0, shmem_ctx_##NAME(ctx, __VA_ARGS__))
#define NBI(T, start, after, old, NAME, ...)                                           \
    STEP(T, #NAME, start, after, old, shmem_##NAME(&got, __VA_ARGS__); shmem_quiet()); \
    STEP(T, "ctx " #NAME, start, after, old, shmem_ctx_##NAME(ctx, &got, __VA_ARGS__); \
         shmem_ctx_quiet(ctx))

#define TEST_EXTENDED(N, T, A)                                                 \
    static void extended_##N##_in(T *word)                                     \
    {                                                                          \
        FETCHING(T, 7, 7, 7, N##_atomic_fetch, word, next);                    \
        FETCHING(T, 7, 9, 7, N##_atomic_swap, word, 9, next);                  \
        SILENT(T, 7, 9, N##_atomic_set, word, 9, next);                        \
        NBI(T, 7, 7, 7, N##_atomic_fetch_nbi, word, next);                     \
        NBI(T, 7, 9, 7, N##_atomic_swap_nbi, word, 9, next);                   \
        STEP(T, #N "_fetch", 7, 7, 7, got = shmem_##N##_fetch(word, next));    \
        STEP(T, #N "_swap", 7, 9, 7, got = shmem_##N##_swap(word, 9, next));   \
        STEP(T, #N "_set", 7, 9, 0, shmem_##N##_set(word, 9, next));           \
        STEP(T, #N " generic fetch", 7, 7, 7, got = N##_generic_fetch(word));  \
        STEP(T, #N " generic swap", 7, 9, 7, got = N##_generic_swap(word, 9)); \
    }
#define TEST_STANDARD(N, T, A)                                                    \
    static void standard_##N##_in(T *word)                                        \
    {                                                                             \
        FETCHING(T, 7, 9, 7, N##_atomic_compare_swap, word, 7, 9, next);          \
        FETCHING(T, 7, 7, 7, N##_atomic_compare_swap, word, 6, 9, next);          \
        FETCHING(T, -1, 0, -1, N##_atomic_fetch_inc, word, next);                 \
        FETCHING(T, 7, 12, 7, N##_atomic_fetch_add, word, 5, next);               \
        FETCHING(T, 7, 2, 7, N##_atomic_fetch_add, word, (T)-5, next);            \
        SILENT(T, 7, 8, N##_atomic_inc, word, next);                              \
        SILENT(T, 7, 12, N##_atomic_add, word, 5, next);                          \
        NBI(T, 7, 9, 7, N##_atomic_compare_swap_nbi, word, 7, 9, next);           \
        NBI(T, 7, 8, 7, N##_atomic_fetch_inc_nbi, word, next);                    \
        NBI(T, 7, 12, 7, N##_atomic_fetch_add_nbi, word, 5, next);                \
        STEP(T, #N "_cswap", 7, 9, 7, got = shmem_##N##_cswap(word, 7, 9, next)); \
        STEP(T, #N "_finc", 7, 8, 7, got = shmem_##N##_finc(word, next));         \
        STEP(T, #N "_inc", 7, 8, 0, shmem_##N##_inc(word, next));                 \
        STEP(T, #N "_fadd", 7, 12, 7, got = shmem_##N##_fadd(word, 5, next));     \
        STEP(T, #N "_add", 7, 12, 0, shmem_##N##_add(word, 5, next));             \
    }
#define TEST_BITWISE(N, T, A)                                         \
    static void bitwise_##N##_in(T *word)                             \
    {                                                                 \
        FETCHING(T, 12, 8, 12, N##_atomic_fetch_and, word, 10, next); \
        FETCHING(T, 12, 14, 12, N##_atomic_fetch_or, word, 10, next); \
        FETCHING(T, 12, 6, 12, N##_atomic_fetch_xor, word, 10, next); \
        SILENT(T, 12, 8, N##_atomic_and, word, 10, next);             \
        SILENT(T, 12, 14, N##_atomic_or, word, 10, next);             \
        SILENT(T, 12, 6, N##_atomic_xor, word, 10, next);             \
        NBI(T, 12, 8, 12, N##_atomic_fetch_and_nbi, word, 10, next);  \
        NBI(T, 12, 14, 12, N##_atomic_fetch_or_nbi, word, 10, next);  \
        NBI(T, 12, 6, 12, N##_atomic_fetch_xor_nbi, word, 10, next);  \
    }

/* C11's generic selection, outside of the expansion of the table's own macro. */
#define GENERIC(N, T)                                                \
    static T N##_generic_fetch(const T *word)                        \
    {                                                                \
        T with = shmem_atomic_fetch(ctx, word, next);                \
        return with == shmem_atomic_fetch(word, next) ? with : (T)0; \
    }                                                                \
    static T N##_generic_swap(T *word, T value)                      \
    {                                                                \
        T old = shmem_atomic_swap(word, value, next);                \
        shmem_atomic_set(ctx, word, value, next);                    \
        return old;                                                  \
    }
GENERIC(int, int)
GENERIC(long, long)
GENERIC(longlong, long long)
GENERIC(uint, unsigned int)
GENERIC(ulong, unsigned long)
GENERIC(ulonglong, unsigned long long)
GENERIC(int32, int32_t)
GENERIC(int64, int64_t)
GENERIC(uint32, uint32_t)
GENERIC(uint64, uint64_t)
GENERIC(size, size_t)
GENERIC(ptrdiff, ptrdiff_t)
GENERIC(float, float)
GENERIC(double, double)

VIADUCT_SHMEM_AMO_TYPES(TEST_EXTENDED, 0)
VIADUCT_SHMEM_AMO_REAL(TEST_EXTENDED, 0)
VIADUCT_SHMEM_AMO_TYPES(TEST_STANDARD, 0)
VIADUCT_SHMEM_BITWISE_TYPES(TEST_BITWISE, 0)

/* The generic calls that are not used above. */
static void test_generic(void)
{
    static long value;
    static unsigned bits;
    long *word = &value;

    STEP(long, "compare_swap", 7, 9, 7, got = shmem_atomic_compare_swap(word, 7L, 9L, next));
    STEP(long, "fetch_inc", 7, 8, 7, got = shmem_atomic_fetch_inc(ctx, word, next));
    STEP(long, "inc", 7, 8, 0, shmem_atomic_inc(word, next));
    STEP(long, "fetch_add", 7, 12, 7, got = shmem_atomic_fetch_add(word, 5L, next));
    STEP(long, "add", 7, 12, 0, shmem_atomic_add(ctx, word, 5L, next));
    STEP(long, "fetch_nbi", 7, 7, 7, shmem_atomic_fetch_nbi(&got, word, next); shmem_quiet());
    STEP(long, "cswap", 7, 9, 7, got = shmem_cswap(word, 7L, 9L, next));
    STEP(long, "finc", 7, 8, 7, got = shmem_finc(word, next));
    STEP(long, "fadd", 7, 9, 7, got = shmem_fadd(word, 2L, next));
    STEP(long, "swap", 7, 9, 7, got = shmem_swap(word, 9L, next));
    STEP(long, "set", 7, 9, 0, shmem_set(word, 9L, next));
    unsigned *flags = &bits;
    shmem_barrier_all();
    *flags = 12;
    shmem_barrier_all();
    unsigned old = shmem_atomic_fetch_xor(flags, 10u, next);
    CHECK(old == 12, "%u", old);
    shmem_barrier_all();
    shmem_atomic_and(ctx, flags, 3u, next);
    shmem_barrier_all();
    CHECK(*flags == 2, "%u", *flags);
    shmem_barrier_all();
}

/* No update is lost when all PEs update one word of PE 0; and a lock made of compare-and-swap
 * excludes other PEs. */
#define ROUNDS 2000
static void test_contended(void)
{
    static long sum, inside, count;
    static uint32_t narrow[2];
    static double real;

    for (int i = 0; i < ROUNDS; i++) {
        shmem_long_atomic_add(&sum, me + 1, 0);
        shmem_uint32_atomic_inc(&narrow[1], 0);
        if (i % 64 == 0) {
            while (shmem_long_atomic_compare_swap(&inside, 0, me + 1, 0) != 0)
                ;
            /* Not atomic: the lock must protect it. */
            shmem_long_p(&count, shmem_long_g(&count, 0) + 1, 0);
            shmem_quiet();
            CHECK(shmem_long_atomic_swap(&inside, 0, 0) == me + 1, "another PE entered");
        }
    }
    double mine = me;
    for (int i = 0; i < 100; i++)
        mine = shmem_double_atomic_swap(&real, mine, 0);
    shmem_barrier_all();
    if (me == 0) {
        CHECK(sum == (long)ROUNDS * pes * (pes + 1) / 2, "%ld", sum);
        CHECK(narrow[1] == (uint32_t)(ROUNDS * pes) && narrow[0] == 0, "%u", narrow[1]);
        CHECK(count == (long)((ROUNDS + 63) / 64) * pes, "%ld", count);
        CHECK(real >= 0 && real < pes && real == (double)(int)real, "%f", real);
    }
    CHECK(mine >= 0 && mine < pes && mine == (double)(int)mine, "%f", mine);
}

int main(void)
{
    shmem_init();
    me = shmem_my_pe();
    pes = shmem_n_pes();
    next = (me + 1) % pes;
    CHECK(shmem_ctx_create(SHMEM_CTX_SERIALIZED, &ctx) == 0, "no context");

#define ON_HEAP(KIND, N, T)                \
    {                                      \
        static T word;                     \
        T *heap = shmem_malloc(sizeof(T)); \
        KIND##_##N##_in(&word);            \
        KIND##_##N##_in(heap);             \
        shmem_free(heap);                  \
    }
#define RUN_EXTENDED(N, T, A) ON_HEAP(extended, N, T)
#define RUN_STANDARD(N, T, A) ON_HEAP(standard, N, T)
#define RUN_BITWISE(N, T, A) ON_HEAP(bitwise, N, T)
    VIADUCT_SHMEM_AMO_TYPES(RUN_EXTENDED, 0)
    VIADUCT_SHMEM_AMO_REAL(RUN_EXTENDED, 0)
    VIADUCT_SHMEM_AMO_TYPES(RUN_STANDARD, 0)
    VIADUCT_SHMEM_BITWISE_TYPES(RUN_BITWISE, 0)
    test_generic();
    test_contended();
    shmem_ctx_destroy(ctx);
    return passed("amo");
}
