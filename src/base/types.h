/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Common to all folders: time, attributes, minimum, maximum and alignment. Time is a uint64_t of
 * nanoseconds since an origin that only the caller knows. It is an argument (now_ns); no function
 * here reads a clock.
 */
#ifndef VIA_BASE_TYPES_H
#define VIA_BASE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VIA_USEC_NS UINT64_C(1000)
#define VIA_MSEC_NS UINT64_C(1000000)
#define VIA_SEC_NS UINT64_C(1000000000)
/* "No deadline": later than any time. */
#define VIA_NEVER_NS UINT64_MAX

/* The sum, or VIA_NEVER_NS if it overflows. */
static inline uint64_t via_time_add(uint64_t at_ns, uint64_t ns)
{
    return ns < VIA_NEVER_NS - at_ns ? at_ns + ns : VIA_NEVER_NS;
}

#define VIA_CACHELINE 64

#define VIA_MUST_CHECK __attribute__((warn_unused_result))
#define VIA_PRINTF(format_index, first_index) \
    __attribute__((format(printf, format_index, first_index)))
#define VIA_CACHELINE_ALIGNED __attribute__((aligned(VIA_CACHELINE)))
#define via_likely(condition) __builtin_expect(!!(condition), 1)
#define via_unlikely(condition) __builtin_expect(!!(condition), 0)

#define VIA_ARRAY_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define via_container_of(pointer, type, member) \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

/* For constants; alignment is a power of two. */
#define VIA_ALIGN_UP(value, alignment) (((value) + ((alignment)-1)) & ~((alignment)-1))

static inline uint64_t via_align_up(uint64_t value, uint64_t alignment)
{
    return (value + (alignment - 1)) & ~(alignment - 1);
}

static inline uint64_t via_align_down(uint64_t value, uint64_t alignment)
{
    return value & ~(alignment - 1);
}

#define VIA_DEFINE_MIN_MAX(suffix, type)                \
    static inline type via_min_##suffix(type a, type b) \
    {                                                   \
        return a < b ? a : b;                           \
    }                                                   \
    static inline type via_max_##suffix(type a, type b) \
    {                                                   \
        return a > b ? a : b;                           \
    }

VIA_DEFINE_MIN_MAX(int, int)
VIA_DEFINE_MIN_MAX(uint, unsigned int)
VIA_DEFINE_MIN_MAX(long, long)
VIA_DEFINE_MIN_MAX(ulong, unsigned long)
VIA_DEFINE_MIN_MAX(llong, long long)
VIA_DEFINE_MIN_MAX(ullong, unsigned long long)

/* In the common type of both arguments, each of which is evaluated once. */
/* clang-format off */
#define VIA_BY_COMMON_TYPE(function, a, b)                                                         \
    _Generic((a) + (b),                                                                            \
        int: function##_int,                                                                       \
        unsigned int: function##_uint,                                                             \
        long: function##_long,                                                                     \
        unsigned long: function##_ulong,                                                           \
        long long: function##_llong,                                                               \
        unsigned long long: function##_ullong)(a, b)
/* clang-format on */
#define via_min(a, b) VIA_BY_COMMON_TYPE(via_min, a, b)
#define via_max(a, b) VIA_BY_COMMON_TYPE(via_max, a, b)

#endif
