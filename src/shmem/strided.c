/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/strided.h"

#include <stdbool.h>

#include "shmem/path.h"

/* Inlined with a constant size, memcpy is one load and one store. */
static inline __attribute__((always_inline)) void copy_blocks(char *dest, const char *source,
                                                              ptrdiff_t dest_step,
                                                              ptrdiff_t source_step, size_t bytes,
                                                              size_t blocks)
{
    for (size_t i = 0; i < blocks; i++) {
        memcpy(dest, source, bytes);
        dest += dest_step;
        source += source_step;
    }
}

static void copy(char *dest, const char *source, ptrdiff_t dest_step, ptrdiff_t source_step,
                 size_t bytes, size_t blocks)
{
    switch (bytes) {
    case 1:
        copy_blocks(dest, source, dest_step, source_step, 1, blocks);
        break;
    case 2:
        copy_blocks(dest, source, dest_step, source_step, 2, blocks);
        break;
    case 4:
        copy_blocks(dest, source, dest_step, source_step, 4, blocks);
        break;
    case 8:
        copy_blocks(dest, source, dest_step, source_step, 8, blocks);
        break;
    case 16:
        copy_blocks(dest, source, dest_step, source_step, 16, blocks);
        break;
    default:
        for (size_t i = 0; i < blocks; i++)
            via_copy(dest + dest_step * (ptrdiff_t)i, source + source_step * (ptrdiff_t)i, bytes);
        break;
    }
}

/* All blocks lie between the first and the last, whatever the sign of the stride; so one look at
 * both ends is enough. */
static bool direct_both(const void *first, ptrdiff_t last_off, int pe, char **ret_direct)
{
    char *direct = via_direct(first, pe);
    const char *last = via_direct((const char *)first + last_off, pe);

    *ret_direct = direct;
    return direct && last && last - direct == last_off;
}

void via_strided_put(const char *call, void *dest, const void *source, ptrdiff_t dest_stride,
                     ptrdiff_t source_stride, size_t block_elements, size_t blocks, size_t bytes,
                     int pe)
{
    ptrdiff_t dest_step = dest_stride * (ptrdiff_t)bytes;
    ptrdiff_t source_step = source_stride * (ptrdiff_t)bytes;
    size_t block_bytes = block_elements * bytes;
    char *direct;

    if (blocks == 0 || block_bytes == 0)
        return;
    if (direct_both(dest, dest_step * (ptrdiff_t)(blocks - 1), pe, &direct)) {
        copy(direct, source, dest_step, source_step, block_bytes, blocks);
        return;
    }
    for (size_t i = 0; i < blocks; i++)
        via_path_put(call, (char *)dest + dest_step * (ptrdiff_t)i,
                     (const char *)source + source_step * (ptrdiff_t)i, block_bytes, pe);
}

void via_strided_get(const char *call, void *dest, const void *source, ptrdiff_t dest_stride,
                     ptrdiff_t source_stride, size_t block_elements, size_t blocks, size_t bytes,
                     int pe)
{
    ptrdiff_t dest_step = dest_stride * (ptrdiff_t)bytes;
    ptrdiff_t source_step = source_stride * (ptrdiff_t)bytes;
    size_t block_bytes = block_elements * bytes;
    char *direct;

    if (blocks == 0 || block_bytes == 0)
        return;
    if (direct_both(source, source_step * (ptrdiff_t)(blocks - 1), pe, &direct)) {
        copy(dest, direct, dest_step, source_step, block_bytes, blocks);
        return;
    }
    /* All at once where they take a round trip each. */
    for (size_t i = 0; i < blocks; i++)
        via_path_get_nbi(call, (char *)dest + dest_step * (ptrdiff_t)i,
                         (const char *)source + source_step * (ptrdiff_t)i, block_bytes, pe);
    if (via_has_frames())
        via_path_quiet();
}
