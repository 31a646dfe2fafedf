/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SHMEM_STRIDED_H
#define VIA_SHMEM_STRIDED_H

#include <stddef.h>

/*
 * `blocks` blocks of `block_elements` elements of `bytes` bytes; consecutive ones begin dest_stride
 * and source_stride elements apart. Strides may be negative.
 */
void via_strided_put(const char *call, void *dest, const void *source, ptrdiff_t dest_stride,
                     ptrdiff_t source_stride, size_t block_elements, size_t blocks, size_t bytes,
                     int pe);
void via_strided_get(const char *call, void *dest, const void *source, ptrdiff_t dest_stride,
                     ptrdiff_t source_stride, size_t block_elements, size_t blocks, size_t bytes,
                     int pe);

#endif
