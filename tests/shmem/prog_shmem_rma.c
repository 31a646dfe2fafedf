/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Every call of remote memory access, for every type and size, with and without a context, on the
 * heap and on static variables: each PE writes to the next and reads from it. */
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define COUNT 40
#define N 5

static int me, next, before;
static shmem_ctx_t ctx;
static uint64_t *signals;

/* Fits the narrowest type. */
static int value_of(int pe, int i)
{
    return (pe * 29 + i * 3 + 1) % 100;
}

/* One type's arrays, static and on the heap, are tested by the same function. This PE sends the
 * elements 0 to N - 1 of `sent`; data arrive from the previous PE. */
#define FILL(T)                       \
    shmem_barrier_all();              \
    for (int i = 0; i < COUNT; i++) { \
        sent[i] = (T)value_of(me, i); \
        got[i] = (T)127;              \
        local[i] = (T)127;            \
    }                                 \
    *signals = 1000;                  \
    shmem_barrier_all()

/* Element `at(i)` of what arrived is element `from(i)` of PE `pe`, and all others are untouched. */
#define EXPECT(array, T, what, pe, count, block, to_step, from_step)                \
    do {                                                                            \
        T expected[COUNT];                                                          \
        for (int i = 0; i < COUNT; i++)                                             \
            expected[i] = (T)127;                                                   \
        for (int b = 0; b < (count); b++)                                           \
            for (int i = 0; i < (block); i++)                                       \
                expected[b * (to_step) + i] = (T)value_of(pe, b * (from_step) + i); \
        for (int i = 0; i < COUNT; i++)                                             \
            CHECK(array[i] == expected[i], "%s, element %d", what, i);              \
    } while (0)

#define PUT_CASE(T, what, count, block, to_step, from_step, call) \
    FILL(T);                                                      \
    call;                                                         \
    shmem_barrier_all();                                          \
    EXPECT(got, T, what, before, count, block, to_step, from_step)
#define GET_CASE(T, what, count, block, to_step, from_step, call) \
    FILL(T);                                                      \
    call;                                                         \
    shmem_quiet();                                                \
    EXPECT(local, T, what, next, count, block, to_step, from_step)
/* The signal arrives after the data, so the wait is enough. */
#define SIGNAL_CASE(T, what, op, expected, call)              \
    FILL(T);                                                  \
    call;                                                     \
    shmem_uint64_wait_until(signals, SHMEM_CMP_EQ, expected); \
    EXPECT(got, T, what, before, N, 1, 1, 1);                 \
    CHECK(shmem_signal_fetch(signals) == (expected), "%s", what)

#define BOTH_PUTS(T, NAME, count, block, to_step, from_step, ...)                    \
    PUT_CASE(T, #NAME, count, block, to_step, from_step, shmem_##NAME(__VA_ARGS__)); \
    PUT_CASE(T, "ctx " #NAME, count, block, to_step, from_step, shmem_ctx_##NAME(ctx, __VA_ARGS__))
#define BOTH_GETS(T, NAME, count, block, to_step, from_step, ...)                    \
    GET_CASE(T, #NAME, count, block, to_step, from_step, shmem_##NAME(__VA_ARGS__)); \
    GET_CASE(T, "ctx " #NAME, count, block, to_step, from_step, shmem_ctx_##NAME(ctx, __VA_ARGS__))
#define BOTH_SIGNALS(T, NAME)                                                                      \
    SIGNAL_CASE(T, #NAME, SET, 7, shmem_##NAME(got, sent, N, signals, 7, SHMEM_SIGNAL_SET, next)); \
    SIGNAL_CASE(T, #NAME, ADD, 1007,                                                               \
                shmem_##NAME(got, sent, N, signals, 7, SHMEM_SIGNAL_ADD, next));                   \
    SIGNAL_CASE(T, "ctx " #NAME, SET, 9,                                                           \
                shmem_ctx_##NAME(ctx, got, sent, N, signals, 9, SHMEM_SIGNAL_SET, next));          \
    SIGNAL_CASE(T, "ctx " #NAME, ADD, 1009,                                                        \
                shmem_ctx_##NAME(ctx, got, sent, N, signals, 9, SHMEM_SIGNAL_ADD, next))

#define BLOCK_CASES(T, PUT, GET, count)                          \
    BOTH_PUTS(T, PUT, N, 1, 1, 1, got, sent, count, next);       \
    BOTH_PUTS(T, PUT##_nbi, N, 1, 1, 1, got, sent, count, next); \
    BOTH_GETS(T, GET, N, 1, 1, 1, local, sent, count, next);     \
    BOTH_GETS(T, GET##_nbi, N, 1, 1, 1, local, sent, count, next)
#define STRIDE_CASES(T, IPUT, IGET, IBPUT, IBGET)                 \
    BOTH_PUTS(T, IPUT, N, 1, 3, 2, got, sent, 3, 2, N, next);     \
    BOTH_GETS(T, IGET, N, 1, 2, 3, local, sent, 2, 3, N, next);   \
    BOTH_PUTS(T, IBPUT, 4, 3, 7, 4, got, sent, 7, 4, 3, 4, next); \
    BOTH_GETS(T, IBGET, 4, 3, 4, 7, local, sent, 4, 7, 3, 4, next)

#define TEST_TYPE(NAME, T, A)                                                                      \
    static T NAME##_got[COUNT], NAME##_sent[COUNT];                                                \
    static void test_##NAME##_in(T *got, T *sent)                                                  \
    {                                                                                              \
        T local[COUNT];                                                                            \
        PUT_CASE(T, #NAME "_p", 1, 1, 1, 1, shmem_##NAME##_p(got, sent[0], next));                 \
        PUT_CASE(T, "ctx " #NAME "_p", 1, 1, 1, 1, shmem_ctx_##NAME##_p(ctx, got, sent[0], next)); \
        GET_CASE(T, #NAME "_g", 1, 1, 1, 1, local[0] = shmem_##NAME##_g(sent, next));              \
        GET_CASE(T, "ctx " #NAME "_g", 1, 1, 1, 1,                                                 \
                 local[0] = shmem_ctx_##NAME##_g(ctx, sent, next));                                \
        BLOCK_CASES(T, NAME##_put, NAME##_get, N);                                                 \
        STRIDE_CASES(T, NAME##_iput, NAME##_iget, NAME##_ibput, NAME##_ibget);                     \
        BOTH_SIGNALS(T, NAME##_put_signal);                                                        \
        BOTH_SIGNALS(T, NAME##_put_signal_nbi);                                                    \
    }                                                                                              \
    static void test_##NAME(void)                                                                  \
    {                                                                                              \
        T *heap = shmem_malloc(2 * COUNT * sizeof(T));                                             \
        CHECK(heap, "no memory");                                                                  \
        test_##NAME##_in(heap, heap + COUNT);                                                      \
        test_##NAME##_in(NAME##_got, NAME##_sent);                                                 \
        shmem_free(heap);                                                                          \
    }
VIADUCT_SHMEM_RMA_TYPES(TEST_TYPE, 0)

/* The same by C11's generic selection. */
#define TEST_GENERIC(NAME, T, A)                                                                  \
    static void generic_##NAME(void)                                                              \
    {                                                                                             \
        T *got = NAME##_got, *sent = NAME##_sent, local[COUNT];                                   \
        const T *read_only = sent;                                                                \
        PUT_CASE(T, "p", 1, 1, 1, 1, shmem_p(got, sent[0], next));                                \
        PUT_CASE(T, "ctx p", 1, 1, 1, 1, shmem_p(ctx, got, sent[0], next));                       \
        GET_CASE(T, "g", 1, 1, 1, 1, local[0] = shmem_g(read_only, next));                        \
        GET_CASE(T, "ctx g", 1, 1, 1, 1, local[0] = shmem_g(ctx, sent, next));                    \
        PUT_CASE(T, "put", N, 1, 1, 1, shmem_put(got, read_only, N, next));                       \
        PUT_CASE(T, "ctx put", N, 1, 1, 1, shmem_put(SHMEM_CTX_DEFAULT, got, sent, N, next));     \
        GET_CASE(T, "get", N, 1, 1, 1, shmem_get(local, read_only, N, next));                     \
        GET_CASE(T, "ctx get_nbi", N, 1, 1, 1, shmem_get_nbi(ctx, local, sent, N, next));         \
        PUT_CASE(T, "put_nbi", N, 1, 1, 1, shmem_put_nbi(got, sent, N, next));                    \
        PUT_CASE(T, "iput", N, 1, 3, 2, shmem_iput(ctx, got, sent, 3, 2, N, next));               \
        GET_CASE(T, "iget", N, 1, 2, 3, shmem_iget(local, sent, 2, 3, N, next));                  \
        PUT_CASE(T, "ibput", 4, 3, 7, 4, shmem_ibput(got, sent, 7, 4, 3, 4, next));               \
        GET_CASE(T, "ibget", 4, 3, 4, 7, shmem_ibget(ctx, local, sent, 4, 7, 3, 4, next));        \
        SIGNAL_CASE(T, "put_signal", SET, 7,                                                      \
                    shmem_put_signal(got, sent, N, signals, 7, SHMEM_SIGNAL_SET, next));          \
        SIGNAL_CASE(T, "put_signal_nbi", ADD, 1007,                                               \
                    shmem_put_signal_nbi(ctx, got, sent, N, signals, 7, SHMEM_SIGNAL_ADD, next)); \
    }
/* Not by the table, because the generic selection itself uses the table, and a macro does not
 * expand in itself. */
#define GENERIC_TYPES(X)          \
    X(float, float, 0)            \
    X(double, double, 0)          \
    X(longdouble, long double, 0) \
    X(char, char, 0)              \
    X(schar, signed char, 0)      \
    X(short, short, 0)            \
    X(int, int, 0)                \
    X(long, long, 0)              \
    X(longlong, long long, 0)     \
    X(uchar, unsigned char, 0)    \
    X(ushort, unsigned short, 0)  \
    X(uint, unsigned int, 0)      \
    X(ulong, unsigned long, 0)    \
    X(ulonglong, unsigned long long, 0)
GENERIC_TYPES(TEST_GENERIC)

/* --- by size --- */

struct bytes16 {
    uint64_t low, high;
};

#define TEST_SIZE(BITS, T)                                                                 \
    static void test_size_##BITS(void)                                                     \
    {                                                                                      \
        T *got = shmem_malloc(COUNT * sizeof(T)), *sent = shmem_malloc(COUNT * sizeof(T)); \
        T local[COUNT];                                                                    \
        BLOCK_CASES(T, put##BITS, get##BITS, N);                                           \
        STRIDE_CASES(T, iput##BITS, iget##BITS, ibput##BITS, ibget##BITS);                 \
        BOTH_SIGNALS(T, put##BITS##_signal);                                               \
        BOTH_SIGNALS(T, put##BITS##_signal_nbi);                                           \
        shmem_free(got);                                                                   \
        shmem_free(sent);                                                                  \
    }
TEST_SIZE(8, uint8_t)
TEST_SIZE(16, uint16_t)
TEST_SIZE(32, uint32_t)
TEST_SIZE(64, uint64_t)
TEST_SIZE(128, unsigned __int128)

static void test_mem(void)
{
    uint8_t *got = shmem_malloc(COUNT), *sent = shmem_malloc(COUNT);
    uint8_t local[COUNT];

    BLOCK_CASES(uint8_t, putmem, getmem, N);
    BOTH_SIGNALS(uint8_t, putmem_signal);
    BOTH_SIGNALS(uint8_t, putmem_signal_nbi);
    shmem_free(got);
    shmem_free(sent);
}

/* --- independent of types --- */

/* All lengths around those at which the method of copying changes, at odd addresses. Bytes next to
 * the destination must not change. */
static void test_lengths(void)
{
    static const size_t lengths[] = {0,    1,    7,    8,    9,     15,    16,      17,     31,
                                     63,   64,   65,   127,  128,   129,   1023,    1024,   1025,
                                     4095, 4097, 8191, 8193, 65535, 65537, 1048575, 1048579};
    const size_t room = (size_t)2 << 20;
    unsigned char *got = shmem_malloc(room), *sent = shmem_malloc(room), *local = malloc(room);

    for (size_t i = 0; i < room; i++)
        sent[i] = (unsigned char)(i * 7 + (i >> 8) + (size_t)me);
    for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
        size_t bytes = lengths[l];
        for (size_t off = 1; off < 64; off += 21) {
            memset(got, 0xee, bytes + 128);
            memset(local, 0xee, bytes + 128);
            shmem_barrier_all();
            shmem_putmem(got + off, sent + 3, bytes, next);
            shmem_getmem(local + off, sent + 3, bytes, next);
            shmem_barrier_all();
            for (size_t i = 0; i < bytes; i++) {
                unsigned char pattern = (unsigned char)((i + 3) * 7 + ((i + 3) >> 8));
                CHECK(got[off + i] == (unsigned char)(pattern + before), "put of %zu", bytes);
                CHECK(local[off + i] == (unsigned char)(pattern + next), "get of %zu", bytes);
            }
            CHECK(got[off - 1] == 0xee && got[off + bytes] == 0xee, "put of %zu", bytes);
            CHECK(local[off - 1] == 0xee && local[off + bytes] == 0xee, "get of %zu", bytes);
            shmem_barrier_all();
        }
    }
    shmem_free(got);
    shmem_free(sent);
    free(local);
}

/* Strides may be negative. */
static void test_negative_strides(void)
{
    static int got[COUNT], sent[COUNT];

    for (int i = 0; i < COUNT; i++) {
        sent[i] = value_of(me, i);
        got[i] = -1;
    }
    shmem_barrier_all();
    shmem_int_iput(got + 10, sent, -2, 1, N, next);
    shmem_barrier_all();
    for (int i = 0; i < N; i++)
        CHECK(got[10 - 2 * i] == value_of(before, i), "element %d", i);
    shmem_barrier_all();
}

/*
 * A word that a PE has seen and reset stays reset, because a put writes each byte once. Two PEs
 * send a block to each other in turn, and each resets the middle word when it has seen it. If an
 * old number appears again, a put wrote the word twice. memcpy soon fails this test.
 */
#define TURNS 4000
static void test_written_once(void)
{
    uint64_t *block = shmem_calloc(16, sizeof(*block));
    uint64_t numbers[16];
    int other = me ^ 1;

    for (size_t words = 1; words <= 9; words++) {
        uint64_t *watched = &block[words / 2];
        shmem_barrier_all();
        for (uint64_t turn = 1; turn <= TURNS && me < 2 && shmem_n_pes() > 1; turn++) {
            for (size_t i = 0; i < words; i++)
                numbers[i] = turn;
            if (me == 0)
                shmem_put64(block, numbers, words, other);
            shmem_uint64_wait_until(watched, SHMEM_CMP_NE, 0);
            CHECK(*watched == turn, "block of %zu words: %d came again", words, (int)*watched);
            *(volatile uint64_t *)watched = 0;
            if (me == 1)
                shmem_put64(block, numbers, words, other);
        }
        shmem_barrier_all();
        memset(block, 0, 16 * sizeof(*block));
    }
    shmem_free(block);
}

int main(void)
{
    shmem_init();
    me = shmem_my_pe();
    next = (me + 1) % shmem_n_pes();
    before = (me + shmem_n_pes() - 1) % shmem_n_pes();
    CHECK(shmem_ctx_create(0, &ctx) == 0, "no context");
    signals = shmem_malloc(sizeof(*signals));

#define RUN_TYPE(NAME, T, A) test_##NAME();
#define RUN_GENERIC(NAME, T, A) generic_##NAME();
    VIADUCT_SHMEM_RMA_TYPES(RUN_TYPE, 0)
    GENERIC_TYPES(RUN_GENERIC)
    test_size_8();
    test_size_16();
    test_size_32();
    test_size_64();
    test_size_128();
    test_mem();
    test_lengths();
    test_negative_strides();
    test_written_once();
    shmem_ctx_destroy(ctx);
    return passed("rma");
}
