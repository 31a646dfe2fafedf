/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* FNV-1a, 64 bits, incremental. For tables, and for checks of our own data: an adversary can make
 * collisions. */
#ifndef VIA_BASE_HASH_H
#define VIA_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define VIA_HASH64_INIT UINT64_C(0xcbf29ce484222325)

/* h: VIA_HASH64_INIT, or the result for the data before. */
static inline uint64_t via_hash64(uint64_t h, const void *data, size_t len)
{
    const unsigned char *byte = data;

    for (size_t i = 0; i < len; i++)
        h = (h ^ byte[i]) * UINT64_C(0x100000001b3);
    return h;
}

#endif
