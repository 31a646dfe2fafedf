/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* IO virtual addresses: which are in use. One address space of a function; no locks inside. */
#ifndef VIA_VFIO_IOVA_H
#define VIA_VFIO_IOVA_H

#include <stdint.h>

#include "base/types.h"

/* Above 4 GiB, so that a 32-bit address is never one by mistake; below the 48 bits that a DMA
 * descriptor of a PEX 87xx holds and the 39 that an old VT-d unit translates. */
#define VIA_IOVA_FIRST (UINT64_C(1) << 32)
#define VIA_IOVA_END (UINT64_C(1) << 39)
/* QEMU maps what stands behind an emulated IOMMU by pages: 16 MiB of them. */
#define VIA_IOVA_RANGES_MAX 4096u
/* The bridges between a function and its root complex have three windows each. */
#define VIA_IOVA_AVOIDED_MAX 32u

struct via_iova_range {
    uint64_t at;
    uint64_t bytes;
};

struct via_iova {
    unsigned count;
    struct via_iova_range range[VIA_IOVA_RANGES_MAX]; /* ascending, apart */
    unsigned avoided_count;
    struct via_iova_range avoided[VIA_IOVA_AVOIDED_MAX];
};

void via_iova_init(struct via_iova *iova);
/* via_iova_take() returns no address from first to last; via_iova_take_at() may take them. A range
 * that is avoided already takes no place. -ENOSPC: no more ranges can be kept. */
VIA_MUST_CHECK int via_iova_avoid(struct via_iova *iova, uint64_t first, uint64_t last);
/* Takes the lowest free place. bytes: not 0. alignment: a power of two. -ENOSPC, -EINVAL. */
VIA_MUST_CHECK int via_iova_take(struct via_iova *iova, uint64_t bytes, uint64_t alignment,
                                 uint64_t *ret_at);
/* Takes this place. -EINVAL: empty or beyond all addresses. -ENOSPC: it is taken in part. */
VIA_MUST_CHECK int via_iova_take_at(struct via_iova *iova, uint64_t at, uint64_t bytes);
/* -ENOENT: no range starts there. */
VIA_MUST_CHECK int via_iova_give_back(struct via_iova *iova, uint64_t at);

#endif
