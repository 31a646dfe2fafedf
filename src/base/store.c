/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "base/store.h"

#include <stdio.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "base/types.h"

/* Prevents the compiler from combining or omitting the stores. */
#define KEEP() __asm__ volatile("" ::: "memory")

#define COPY(name, attribute, type, load, store)                                           \
    attribute static void name(unsigned char *to, const unsigned char *from, size_t bytes) \
    {                                                                                      \
        for (size_t at = 0; at < bytes; at += sizeof(type)) {                              \
            store((void *)(to + at), load((const void *)(from + at)));                     \
            KEEP();                                                                        \
        }                                                                                  \
    }

typedef uint32_t any32 __attribute__((aligned(1), may_alias));
typedef uint64_t any64 __attribute__((aligned(1), may_alias));

static uint32_t load4(const any32 *from)
{
    return *from;
}
static uint64_t load8(const any64 *from)
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

COPY(copy16, , __m128i, _mm_loadu_si128, _mm_store_si128)
COPY(copy32, AVX, __m256i, _mm256_loadu_si256, _mm256_store_si256)
COPY(copy64, AVX512, __m512i, _mm512_loadu_si512, _mm512_store_si512)
COPY(copy8nt, , uint64_t, load8, NT8)
COPY(copy16nt, , __m128i, _mm_loadu_si128, _mm_stream_si128)
COPY(copy32nt, AVX, __m256i, _mm256_loadu_si256, _mm256_stream_si256)
COPY(copy64nt, AVX512, __m512i, _mm512_loadu_si512, _mm512_stream_si512)

DIRECT static void copy64direct(unsigned char *to, const unsigned char *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 64) {
        _movdir64b(to + at, from + at);
    }
}

/* True if the kernel saves these registers for each thread (Intel SDM volume 1, 13.3: XCR0). */
static bool has_state(unsigned bits)
{
    unsigned a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c >> 27 & 1) == 0) {
        return false;
    }
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return (a & bits) == bits;
}

/* CPUID leaf 1: ECX bit 28. */
static bool has_avx(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c >> 28 & 1) != 0 && has_state(0x06);
}

/* CPUID leaf 7: EBX bit 16. */
static bool has_avx512(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b >> 16 & 1) != 0 && has_state(0xe6);
}

/* Intel SDM volume 2, CPUID leaf 7: ECX bit 28. */
static bool has_movdir64b(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (c >> 28 & 1) != 0;
}
#endif

const struct via_store via_stores[] = {
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
const unsigned via_stores_count = VIA_ARRAY_COUNT(via_stores);
_Static_assert(VIA_ARRAY_COUNT(via_stores) <= VIA_STORES_MAX, "room in the table of ways");

const struct via_store *via_store_find(const char *name)
{
    for (unsigned i = 0; i < via_stores_count; i++) {
        if (strcmp(via_stores[i].name, name) == 0 && via_store_is_there(&via_stores[i])) {
            return &via_stores[i];
        }
    }
    return NULL;
}

void via_store_fence(void)
{
#ifdef __x86_64__
    _mm_sfence();
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* --- by size --- */

void via_store_print(const struct via_store *const stores[VIA_STORE_CLASSES],
                     char ret_text[VIA_STORE_TEXT_BYTES])
{
    size_t used = 0;
    const struct via_store *before = NULL;
    ret_text[0] = '\0';
    for (unsigned i = 0; i < VIA_STORE_CLASSES && used < VIA_STORE_TEXT_BYTES; i++) {
        if (stores[i] != before) {
            used += (size_t)snprintf(ret_text + used, VIA_STORE_TEXT_BYTES - used, "%s%s from %u",
                                     used != 0 ? ", " : "",
                                     stores[i] != NULL ? stores[i]->name : "-", 1u << i);
            before = stores[i];
        }
    }
    if (used == 0) {
        snprintf(ret_text, VIA_STORE_TEXT_BYTES, "-");
    }
}
