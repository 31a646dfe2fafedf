/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Copying to memory that other threads poll. memcpy may write a byte twice: for most lengths it
 * stores the first and the last words of a block, and these overlap. A reader that polls a word
 * might then load it and reset it, and the second store would bring the old value back. Here each
 * byte is written once, in ascending order, and no aligned word of up to 8 bytes is written in two
 * parts.
 */
#ifndef VIA_BASE_COPY_H
#define VIA_BASE_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Of any alignment, and for memory of any type. */
typedef uint64_t via_copy_block __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint64_t via_copy_word64 __attribute__((aligned(1), may_alias));
typedef uint32_t via_copy_word32 __attribute__((aligned(1), may_alias));
typedef uint16_t via_copy_word16 __attribute__((aligned(1), may_alias));

/* Without the barrier the compiler combines the stores, or replaces the loop by memcpy. */
#define VIA_COPY_STEP(type)                        \
    do {                                           \
        *(type *)(void *)to = *(const type *)from; \
        __asm__ volatile("" ::: "memory");         \
        to += sizeof(type);                        \
        from = (const type *)from + 1;             \
    } while (0)

/*
 * dest and src must not overlap. Programs that write to the same memory at the same time must order
 * their writes themselves, as in their own memory. ThreadSanitizer must not report such a race as
 * one of Viaduct.
 */
__attribute__((no_sanitize("thread"))) static inline void via_copy_once(void *dest, const void *src,
                                                                        size_t bytes)
{
    char *to = dest;
    const void *from = src;

    for (; bytes >= 4 * sizeof(via_copy_block); bytes -= 4 * sizeof(via_copy_block)) {
        VIA_COPY_STEP(via_copy_block);
        VIA_COPY_STEP(via_copy_block);
        VIA_COPY_STEP(via_copy_block);
        VIA_COPY_STEP(via_copy_block);
    }
    for (; bytes >= sizeof(via_copy_block); bytes -= sizeof(via_copy_block))
        VIA_COPY_STEP(via_copy_block);
    if (bytes & 8)
        VIA_COPY_STEP(via_copy_word64);
    if (bytes & 4)
        VIA_COPY_STEP(via_copy_word32);
    if (bytes & 2)
        VIA_COPY_STEP(via_copy_word16);
    if (bytes & 1)
        VIA_COPY_STEP(char);
}

/*
 * memcpy from or to memory of a process. The process orders its other accesses by means that
 * ThreadSanitizer can not observe here.
 */
static inline void via_copy_foreign(void *dest, const void *src, size_t bytes)
{
#ifdef __SANITIZE_THREAD__
    via_copy_once(dest, src, bytes);
#else
    memcpy(dest, src, bytes);
#endif
}

/*
 * memcpy to memory that another CPU used last and reads next. Ordinary stores fetch each line from
 * the cache of that CPU, which fetches it back when it reads. If the CPUs are far from each other
 * that takes longer than the path through memory, which these stores take. The copy is ordered
 * before all later stores.
 */
static inline void via_copy_past_caches(void *dest, const void *src, size_t bytes)
{
#ifdef __SSE2__
    unsigned char *to = dest;
    const unsigned char *from = src;
    /* lines must be whole, or the CPU writes each part of a line separately */
    size_t head = -(uintptr_t)to & 63u;
    if (bytes >= head + 64) {
        memcpy(to, from, head);
        for (to += head, from += head, bytes -= head; bytes >= 64; bytes -= 64) {
            /* Not a loop: its rate would depend on where the linker places it. */
            __m128i *line = (__m128i *)(void *)to;
            __m128i first = _mm_loadu_si128((const __m128i *)(const void *)from);
            __m128i second = _mm_loadu_si128((const __m128i *)(const void *)(from + 16));
            __m128i third = _mm_loadu_si128((const __m128i *)(const void *)(from + 32));
            __m128i fourth = _mm_loadu_si128((const __m128i *)(const void *)(from + 48));
            _mm_stream_si128(line, first);
            _mm_stream_si128(line + 1, second);
            _mm_stream_si128(line + 2, third);
            _mm_stream_si128(line + 3, fourth);
            to += 64;
            from += 64;
        }
        _mm_sfence();
    }
    memcpy(to, from, bytes);
#else
    memcpy(dest, src, bytes);
#endif
}

#endif
