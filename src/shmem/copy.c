/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/copy.h"

#ifdef __x86_64__

#include <cpuid.h>
#include <immintrin.h>
#include <unistd.h>

/* Used if the cache does not report its size. */
#define PAST_CACHES_BYTES_DEFAULT (12u << 20)

/* From this size on the CPU's own string copy is the fastest, if the CPU has a fast one: it does
 * not read lines that it overwrites whole, and its loads do not stall on earlier stores whose
 * addresses differ by a multiple of 4 KiB (4K aliasing). */
#define STRING_BYTES 8192u
#define LINE_BYTES 64u

static bool has_avx, has_avx512;
static bool has_fast_strings;
static size_t past_caches_bytes = PAST_CACHES_BYTES_DEFAULT;

/* "Enhanced REP MOVSB", Intel SDM volume 2, CPUID leaf 7. */
static bool cpu_has_fast_strings(void)
{
    unsigned a, b, c, d;

    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && b & (1u << 9);
}

void via_copy_configure(void)
{
    long cache_bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);

    has_avx = __builtin_cpu_supports("avx");
    has_avx512 = __builtin_cpu_supports("avx512f");
    has_fast_strings = cpu_has_fast_strings();
    /* Source and destination share the cache with other users: with a cache of 32 MiB these stores
     * are slower up to 8 MiB, and twice as fast from 16 MiB on. */
    if (cache_bytes > 0)
        past_caches_bytes = (size_t)cache_bytes / 8 * 3;
}

#define BLOCK_BYTES 128u

static __attribute__((target("avx"))) void copy_avx(char *to, const char *from, size_t blocks)
{
    for (; blocks > 0; blocks--, to += BLOCK_BYTES, from += BLOCK_BYTES) {
        __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)from);
        __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(from + 32));
        __m256i c = _mm256_loadu_si256((const __m256i *)(const void *)(from + 64));
        __m256i d = _mm256_loadu_si256((const __m256i *)(const void *)(from + 96));
        _mm256_storeu_si256((__m256i *)(void *)to, a);
        _mm256_storeu_si256((__m256i *)(void *)(to + 32), b);
        _mm256_storeu_si256((__m256i *)(void *)(to + 64), c);
        _mm256_storeu_si256((__m256i *)(void *)(to + 96), d);
    }
}

/* Copies whole lines, so that no word is written in two parts; `to` is aligned to a line. */
static void copy_string(char *to, const char *from, size_t bytes)
{
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

/* Non-temporal stores; `to` is aligned to their 16 bytes. The caller fences. */
static void copy_past_caches(char *to, const char *from, size_t blocks)
{
    for (; blocks > 0; blocks--, to += BLOCK_BYTES, from += BLOCK_BYTES)
        for (unsigned i = 0; i < BLOCK_BYTES; i += 16)
            _mm_stream_si128((__m128i *)(void *)(to + i),
                             _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
}

/* Copies whole blocks, after it has aligned the destination to a line if there are many; returns
 * the number of bytes copied. */
static size_t copy_blocks(char *to, const char *from, size_t bytes)
{
    size_t blocks = bytes / BLOCK_BYTES;

    if (bytes >= past_caches_bytes) {
        copy_past_caches(to, from, blocks);
        /* These stores are not ordered with others without a fence. */
        _mm_sfence();
    } else if (has_fast_strings && bytes >= STRING_BYTES) {
        copy_string(to, from, blocks * BLOCK_BYTES);
    } else if (has_avx) {
        copy_avx(to, from, blocks);
    } else {
        return 0;
    }
    return blocks * BLOCK_BYTES;
}

void via_copy_wide(void *dest, const void *source, size_t bytes)
{
    size_t head = bytes >= STRING_BYTES ? -(uintptr_t)dest & (LINE_BYTES - 1) : 0;
    char *to = (char *)dest + head;
    const char *from = (const char *)source + head;

    via_copy_once(dest, source, head);
    bytes -= head;
    size_t done = copy_blocks(to, from, bytes);
    via_copy_once(to + done, from + done, bytes - done);
}

/* --- strided --------------------------------------------------------------------------------- */

#define VECTOR_BYTES 64u
#define LANE_BYTES 4u
/* With fewer elements, single copies are as fast. */
#define MASKED_ELEMENTS_MIN 16u

/* One load and one store for all elements of a vector; the bytes between the elements are neither
 * read nor written. Each lane is 4 bytes. */
static __attribute__((target("avx512f"))) void copy_masked(char *to, const char *from, size_t step,
                                                           uint16_t lanes, size_t vectors)
{
    for (; vectors > 0; vectors--, to += step, from += step)
        _mm512_mask_storeu_epi32(to, lanes, _mm512_maskz_loadu_epi32(lanes, from));
}

size_t via_copy_same_stride(char *dest, const char *source, size_t step, size_t element_bytes,
                            size_t elements)
{
    size_t each = step > 0 ? VECTOR_BYTES / step : 0;
    unsigned lanes = 0;

    if (!has_avx512 || elements < MASKED_ELEMENTS_MIN || each < 2 || step < element_bytes ||
        step % LANE_BYTES != 0 || element_bytes % LANE_BYTES != 0)
        return 0;
    for (size_t at = 0; at < each * step; at += step)
        lanes |= ((1u << element_bytes / LANE_BYTES) - 1) << at / LANE_BYTES;
    copy_masked(dest, source, each * step, (uint16_t)lanes, elements / each);
    return elements / each * each;
}

#else

size_t via_copy_same_stride(char *dest, const char *source, size_t step, size_t element_bytes,
                            size_t elements)
{
    (void)dest;
    (void)source;
    (void)step;
    (void)element_bytes;
    (void)elements;
    return 0;
}

/* Stores of 16 bytes, which compilers support on every machine: aarch64 has no wider stores that
 * would differ from those of the C library. The release fence orders later stores after them. */
void via_copy_configure(void)
{
}

void via_copy_wide(void *dest, const void *source, size_t bytes)
{
    via_copy_once(dest, source, bytes);
}

#endif
