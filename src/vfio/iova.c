/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "vfio/iova.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

void via_iova_init(struct via_iova *iova)
{
    iova->count = iova->avoided_count = 0;
}

int via_iova_avoid(struct via_iova *iova, uint64_t first, uint64_t last)
{
    uint64_t at = via_max(first, VIA_IOVA_FIRST);
    uint64_t end = via_min(last, VIA_IOVA_END - 1) + 1;
    if (at >= end) {
        return 0; /* outside the range of via_iova_take() */
    }
    for (unsigned i = 0; i < iova->avoided_count; i++) {
        const struct via_iova_range *range = &iova->avoided[i];
        if (range->at <= at && end <= range->at + range->bytes) {
            return 0;
        }
    }
    if (iova->avoided_count == VIA_IOVA_AVOIDED_MAX) {
        return -ENOSPC;
    }
    iova->avoided[iova->avoided_count++] = (struct via_iova_range){.at = at, .bytes = end - at};
    return 0;
}

static void insert(struct via_iova *iova, unsigned i, uint64_t at, uint64_t bytes)
{
    memmove(&iova->range[i + 1], &iova->range[i], (iova->count - i) * sizeof(iova->range[0]));
    iova->range[i] = (struct via_iova_range){.at = at, .bytes = bytes};
    iova->count++;
}

/* The lowest aligned address from `at` on whose range overlaps no excluded one. */
static uint64_t behind_avoided(const struct via_iova *iova, uint64_t at, uint64_t bytes,
                               uint64_t alignment)
{
    for (unsigned i = 0; i < iova->avoided_count; i++) {
        const struct via_iova_range *range = &iova->avoided[i];
        if (range->at < at + bytes && at < range->at + range->bytes) {
            at = via_align_up(range->at + range->bytes, alignment);
            i = UINT_MAX; /* start again: the new range may overlap any of them */
        }
    }
    return at;
}

int via_iova_take(struct via_iova *iova, uint64_t bytes, uint64_t alignment, uint64_t *ret_at)
{
    if (bytes == 0 || bytes > VIA_IOVA_END || alignment == 0 ||
        (alignment & (alignment - 1)) != 0 || alignment > VIA_IOVA_END) {
        return -EINVAL;
    }
    if (iova->count == VIA_IOVA_RANGES_MAX) {
        return -ENOSPC;
    }
    uint64_t at = behind_avoided(iova, via_align_up(VIA_IOVA_FIRST, alignment), bytes, alignment);
    unsigned i = 0;
    for (; i < iova->count && iova->range[i].at < at + bytes; i++) {
        uint64_t end = iova->range[i].at + iova->range[i].bytes;
        if (end > VIA_IOVA_END) {
            return -ENOSPC; /* a range of via_iova_take_at() */
        }
        at = via_max(at, via_align_up(end, alignment));
        at = behind_avoided(iova, at, bytes, alignment);
    }
    if (at + bytes > VIA_IOVA_END) {
        return -ENOSPC;
    }
    insert(iova, i, at, bytes);
    *ret_at = at;
    return 0;
}

int via_iova_take_at(struct via_iova *iova, uint64_t at, uint64_t bytes)
{
    unsigned i = 0;
    if (bytes == 0 || at > UINT64_MAX - bytes) {
        return -EINVAL;
    }
    while (i < iova->count && iova->range[i].at < at) {
        i++;
    }
    if (iova->count == VIA_IOVA_RANGES_MAX ||
        (i > 0 && at - iova->range[i - 1].at < iova->range[i - 1].bytes) ||
        (i < iova->count && iova->range[i].at - at < bytes)) {
        return -ENOSPC;
    }
    insert(iova, i, at, bytes);
    return 0;
}

int via_iova_give_back(struct via_iova *iova, uint64_t at)
{
    for (unsigned i = 0; i < iova->count; i++) {
        if (iova->range[i].at == at) {
            iova->count--;
            memmove(&iova->range[i], &iova->range[i + 1],
                    (iova->count - i) * sizeof(iova->range[0]));
            return 0;
        }
    }
    return -ENOENT;
}
