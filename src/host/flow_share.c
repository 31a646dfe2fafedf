/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/flow_share.h"

#include "base/bits.h"
#include "base/types.h"

/* The first bit of the non-empty set at or after bit `from`, cyclically. */
static uint32_t first_from(uint32_t set, uint32_t from)
{
    uint32_t above = set & ~((UINT32_C(1) << from) - 1);
    return (uint32_t)__builtin_ctz(above != 0 ? above : set);
}

/* Bit number n of the non-empty set, cyclically. */
static uint32_t nth_of(uint32_t set, uint32_t n)
{
    for (n %= (uint32_t)__builtin_popcount(set); n != 0; n--) {
        set &= set - 1;
    }
    return (uint32_t)__builtin_ctz(set);
}

static uint32_t choose(struct via_flow_share *share, uint32_t *taken, uint32_t preferred,
                       uint32_t flows_count)
{
    uint32_t all = (UINT32_C(1) << flows_count) - 1;
    uint32_t free = all & ~*taken;
    if (__builtin_popcount(share->owned) < __builtin_popcount(free)) {
        uint32_t flow = first_from(free, preferred);
        share->owned |= UINT32_C(1) << flow;
        *taken |= UINT32_C(1) << flow;
        return flow;
    }
    return share->owned != 0 ? nth_of(share->owned, share->doubled_count++) : preferred;
}

uint16_t via_flow_share_begin(struct via_flow_share *share, uint32_t *taken, uint32_t preferred,
                              uint32_t flows_count)
{
    share->under_way_count++;
    if (share->flow_of[preferred] == 0) {
        share->flow_of[preferred] = (uint8_t)(1 + choose(share, taken, preferred, flows_count));
    }
    return share->flow_of[preferred];
}

void via_flow_share_end(struct via_flow_share *share, uint32_t *taken)
{
    if (--share->under_way_count == 0) {
        *taken &= ~share->owned;
        *share = (struct via_flow_share){.owned = 0};
    }
}
