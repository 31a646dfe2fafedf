/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Powers of two, and arithmetic of numbers that wrap around. */
#ifndef VIA_BASE_BITS_H
#define VIA_BASE_BITS_H

#include <stdbool.h>
#include <stdint.h>

static inline bool via_is_pow2(uint64_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

/* The logarithm, rounded down. value must not be 0. */
static inline uint32_t via_log2_u32(uint32_t value)
{
    return 31 - (uint32_t)__builtin_clz(value);
}

static inline uint32_t via_log2_u64(uint64_t value)
{
    return 63 - (uint32_t)__builtin_clzll(value);
}

/* The smallest power of two that is not less than the value, which is 1 to 2^31. */
static inline uint32_t via_round_up_pow2_u32(uint32_t value)
{
    return value <= 1 ? 1 : UINT32_C(1) << (via_log2_u32(value - 1) + 1);
}

/* True if sequence number a is before b. The two must be less than half the range apart. */
static inline bool via_seq_is_before_u32(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) < 0;
}

#endif
