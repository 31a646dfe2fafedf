/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Allocator of IO virtual addresses for one address space. It takes no locks. */
#ifndef VIA_VFIO_IOVA_H
#define VIA_VFIO_IOVA_H

#include <stdint.h>

#include "base/types.h"

/* Above 4 GiB, so that a truncated 32-bit address is never valid; below the 48 bits of a PEX 87xx
 * DMA descriptor and the 39 bits that old VT-d units translate. */
#define VIA_IOVA_FIRST (UINT64_C(1) << 32)
#define VIA_IOVA_END (UINT64_C(1) << 39)
/* QEMU maps memory behind an emulated IOMMU page by page: this suffices for 16 MiB. */
#define VIA_IOVA_RANGES_MAX 4096u
/* The bridges between a function and its root complex have three windows each. */
#define VIA_IOVA_AVOIDED_MAX 32u

struct via_iova_range {
    uint64_t at;
    uint64_t bytes;
};

struct via_iova {
    unsigned count;
    struct via_iova_range range[VIA_IOVA_RANGES_MAX]; /* ascending, disjoint */
    unsigned avoided_count;
    struct via_iova_range avoided[VIA_IOVA_AVOIDED_MAX];
};

void via_iova_init(struct via_iova *iova);
/* Excludes the addresses from first to last from via_iova_take(); via_iova_take_at() may still take
 * them. A range inside an excluded one needs no entry. -ENOSPC: the table is full. */
VIA_MUST_CHECK int via_iova_avoid(struct via_iova *iova, uint64_t first, uint64_t last);
/* Allocates the lowest free range. bytes: not 0. alignment: a power of two. -ENOSPC, -EINVAL. */
VIA_MUST_CHECK int via_iova_take(struct via_iova *iova, uint64_t bytes, uint64_t alignment,
                                 uint64_t *ret_at);
/* Allocates this range. -EINVAL: empty or out of bounds. -ENOSPC: it overlaps an allocated range,
 * or the table is full. */
VIA_MUST_CHECK int via_iova_take_at(struct via_iova *iova, uint64_t at, uint64_t bytes);
/* Frees a range. -ENOENT: no allocated range starts there. */
VIA_MUST_CHECK int via_iova_give_back(struct via_iova *iova, uint64_t at);

#endif
