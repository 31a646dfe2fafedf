/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_COPY_H
#define VIA_SHMEM_COPY_H

#include "base/copy.h"
#include "base/types.h"

/*
 * Copies into a symmetric object: like via_copy_once, with the widest stores that the CPU has, and
 * with non-temporal stores if the copy would not fit into the caches. All of it is ordered before
 * later stores.
 */
void via_copy_wide(void *dest, const void *source, size_t bytes);

#define VIA_COPY_WIDE_BYTES 128u

static inline void via_copy(void *dest, const void *source, size_t bytes)
{
    if (bytes < VIA_COPY_WIDE_BYTES)
        via_copy_once(dest, source, bytes);
    else
        via_copy_wide(dest, source, bytes);
}

/* Copies elements that are `step` bytes apart on both sides, several with one store. Returns how
 * many it has copied, from the first on; 0 if the CPU or the step does not allow it. */
size_t via_copy_same_stride(char *dest, const char *source, size_t step, size_t element_bytes,
                            size_t elements);

/* Call it before the first copy. */
void via_copy_configure(void);

#endif
