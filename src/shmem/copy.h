/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_COPY_H
#define VIA_SHMEM_COPY_H

#include "base/copy.h"
#include "base/types.h"

/*
 * Into a symmetric object: as via_copy_once, by the widest stores the CPU has; past the caches for
 * what would not fit into them. All of it is ordered before what is stored afterwards.
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

/* Elements that are `step` bytes apart on both sides, by stores of several at once: how many have
 * been copied, from the first on; 0 where the CPU or the step does not allow that. */
size_t via_copy_same_stride(char *dest, const char *source, size_t step, size_t element_bytes,
                            size_t elements);

/* Before the first copy. */
void via_copy_configure(void);

#endif
