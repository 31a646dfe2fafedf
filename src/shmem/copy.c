/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/copy.h"

#include <immintrin.h>
#include <unistd.h>

/* Without a cache that tells its size. */
#define PAST_CACHES_BYTES_DEFAULT (12u << 20)

static bool has_avx;
static size_t past_caches_bytes = PAST_CACHES_BYTES_DEFAULT;

void via_copy_configure(void)
{
    long cache_bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);

    has_avx = __builtin_cpu_supports("avx");
    /* Source and destination share the cache, and others use it as well: with 32 MiB of it these
     * stores are slower up to 8 MiB, and twice as fast from 16 MiB on. */
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

/* Non-temporal stores; `to` is aligned to their 16 bytes. The caller fences. */
static void copy_past_caches(char *to, const char *from, size_t blocks)
{
    for (; blocks > 0; blocks--, to += BLOCK_BYTES, from += BLOCK_BYTES)
        for (unsigned i = 0; i < BLOCK_BYTES; i += 16)
            _mm_stream_si128((__m128i *)(void *)(to + i),
                             _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
}

void via_copy_wide(void *dest, const void *source, size_t bytes)
{
    char *to = dest;
    const char *from = source;

    if (bytes >= past_caches_bytes) {
        size_t head = -(uintptr_t)to & 15;
        via_copy_once(to, from, head);
        to += head;
        from += head;
        bytes -= head;
        copy_past_caches(to, from, bytes / BLOCK_BYTES);
        /* These stores are not ordered with others by themselves. */
        _mm_sfence();
    } else if (has_avx) {
        copy_avx(to, from, bytes / BLOCK_BYTES);
    } else {
        via_copy_once(to, from, bytes);
        return;
    }
    size_t done = bytes / BLOCK_BYTES * BLOCK_BYTES;
    via_copy_once(to + done, from + done, bytes - done);
}
