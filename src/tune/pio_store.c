/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Stores of each width, and the clock. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "base/types.h"
#include "tune/pio.h"

#define CALIBRATE_NS (10 * VIA_MSEC_NS)
#define COST_RUNS 1001u

/* The compiler neither joins the stores nor leaves any out. */
#define KEEP() __asm__ volatile("" ::: "memory")

#define COPY(name, attribute, type, load, store)                                           \
    attribute static void name(unsigned char *to, const unsigned char *from, size_t bytes) \
    {                                                                                      \
        for (size_t at = 0; at < bytes; at += sizeof(type)) {                              \
            store((void *)(to + at), load((const void *)(from + at)));                     \
            KEEP();                                                                        \
        }                                                                                  \
    }

static uint32_t load4(const uint32_t *from)
{
    return *from;
}
static uint64_t load8(const uint64_t *from)
{
    return *from;
}
static void store4(volatile uint32_t *to, uint32_t value)
{
    *to = value;
}
static void store8(volatile uint64_t *to, uint64_t value)
{
    *to = value;
}
COPY(copy4, , uint32_t, load4, store4)
COPY(copy8, , uint64_t, load8, store8)

#ifdef __x86_64__
#define NT8(to, value) _mm_stream_si64(to, (long long)(value))
#define AVX __attribute__((target("avx")))
#define AVX512 __attribute__((target("avx512f")))
#define DIRECT __attribute__((target("movdir64b")))

COPY(copy16, , __m128i, _mm_load_si128, _mm_store_si128)
COPY(copy32, AVX, __m256i, _mm256_load_si256, _mm256_store_si256)
COPY(copy64, AVX512, __m512i, _mm512_load_si512, _mm512_store_si512)
COPY(copy8nt, , uint64_t, load8, NT8)
COPY(copy16nt, , __m128i, _mm_load_si128, _mm_stream_si128)
COPY(copy32nt, AVX, __m256i, _mm256_load_si256, _mm256_stream_si256)
COPY(copy64nt, AVX512, __m512i, _mm512_load_si512, _mm512_stream_si512)

DIRECT static void copy64direct(unsigned char *to, const unsigned char *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 64) {
        _movdir64b(to + at, from + at);
    }
}

static bool has_avx(void)
{
    return __builtin_cpu_supports("avx") != 0;
}

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") != 0;
}

/* Intel SDM volume 2, CPUID leaf 7: ECX bit 28. */
static bool has_movdir64b(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (c >> 28 & 1) != 0;
}
#endif

const struct via_pio_store via_pio_stores[] = {
    {"4", 4, false, NULL, copy4},
    {"8", 8, false, NULL, copy8},
#ifdef __x86_64__
    {"16", 16, false, NULL, copy16},
    {"32", 32, false, has_avx, copy32},
    {"64", 64, false, has_avx512, copy64},
    {"8nt", 8, true, NULL, copy8nt},
    {"16nt", 16, true, NULL, copy16nt},
    {"32nt", 32, true, has_avx, copy32nt},
    {"64nt", 64, true, has_avx512, copy64nt},
    {"64dir", 64, true, has_movdir64b, copy64direct},
#endif
};
const unsigned via_pio_stores_count = VIA_ARRAY_COUNT(via_pio_stores);
_Static_assert(VIA_ARRAY_COUNT(via_pio_stores) <= VIA_PIO_STORES_MAX, "room in the table of ways");

void via_pio_store_fence(void)
{
#ifdef __x86_64__
    _mm_sfence();
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* --- the clock --- */

uint64_t via_pio_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * VIA_SEC_NS + (uint64_t)now.tv_nsec;
}

uint64_t via_pio_clock_ticks(const struct via_pio_clock *clock)
{
#ifdef __x86_64__
    if (clock->is_tsc) {
        unsigned cpu;
        uint64_t ticks = __rdtscp(&cpu); /* after all that was begun before it */
        _mm_lfence();                    /* and before what follows */
        return ticks;
    }
#else
    (void)clock;
#endif
    return via_pio_now_ns();
}

static int by_value(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

/* Intel SDM volume 2, CPUID leaf 80000007: EDX bit 8, the counter runs at one speed in all states.
 */
static bool has_steady_tsc(void)
{
#ifdef __x86_64__
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d >> 8 & 1) != 0 &&
           __get_cpuid(0x80000001, &a, &b, &c, &d) != 0 && (d >> 27 & 1) != 0; /* rdtscp */
#else
    return false;
#endif
}

void via_pio_clock_init(struct via_pio_clock *ret_clock)
{
    static uint64_t costs[COST_RUNS];
    *ret_clock = (struct via_pio_clock){.ns_per_tick = 1, .is_tsc = has_steady_tsc()};
    if (ret_clock->is_tsc) {
        uint64_t begin_ns = via_pio_now_ns(), begin = via_pio_clock_ticks(ret_clock), end_ns;
        do {
            end_ns = via_pio_now_ns();
        } while (end_ns - begin_ns < CALIBRATE_NS);
        uint64_t ticks = via_pio_clock_ticks(ret_clock) - begin;
        ret_clock->ns_per_tick = (double)(end_ns - begin_ns) / (double)via_max(ticks, UINT64_C(1));
    }
    for (unsigned i = 0; i < COST_RUNS; i++) {
        uint64_t begin = via_pio_clock_ticks(ret_clock);
        costs[i] = via_pio_clock_ticks(ret_clock) - begin;
    }
    qsort(costs, COST_RUNS, sizeof(costs[0]), by_value);
    ret_clock->cost_ticks = costs[COST_RUNS / 2];
}

double via_pio_clock_ns(const struct via_pio_clock *clock, uint64_t from, uint64_t to)
{
    uint64_t ticks = to - from;
    return ticks > clock->cost_ticks ? (double)(ticks - clock->cost_ticks) * clock->ns_per_tick : 0;
}
