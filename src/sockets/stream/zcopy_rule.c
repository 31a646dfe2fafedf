/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/stream/zcopy_rule.h"

#include <stdlib.h>
#include <string.h>

unsigned via_zcopy_size(size_t bytes)
{
    unsigned size = 0;
    while (size + 1 < VIA_ZCOPY_SIZES && bytes >> (size + 1) >= VIA_ZCOPY_LEAST) {
        size++;
    }
    return size;
}

/* Switches to the other method, or back to the majority's. */
static void switch_way(struct via_zcopy_choice *choice)
{
    choice->other = !choice->other;
    choice->sends = 0;
    choice->block[choice->other] = (struct via_zcopy_block){.parts = 0};
}

/* After how many sends the method changes, at the latest. Some sends do not count, because they
 * ended early or another thread measured at the same time: they may delay a comparison, but only up
 * to this limit. */
static uint32_t sends_max(const struct via_zcopy_choice *choice)
{
    if (choice->other) {
        return 2 * VIA_ZCOPY_BLOCK(choice->part);
    }
    return choice->block[0].parts >= VIA_ZCOPY_PARTS ? choice->until : 2 * choice->until;
}

bool via_zcopy_choose(struct via_zcopy_choice *choice)
{
    if (choice->sends >= sends_max(choice)) {
        switch_way(choice);
    }
    choice->sends++;
    return choice->fetches != choice->other;
}

bool via_zcopy_is_measured(const struct via_zcopy_choice *choice)
{
    uint32_t skip = VIA_ZCOPY_SKIP(choice->part);
    if (!choice->other) {
        skip += choice->until -
                /* Only the last ones before the change of the method count. */
                VIA_ZCOPY_BLOCK(choice->part);
    }
    return choice->sends > skip;
}

/* Adds a send to the part in progress. True: the part is complete. */
static bool add_send(struct via_zcopy_block *block, uint32_t part, size_t bytes, uint64_t time)
{
    block->time += time > UINT32_MAX ? UINT32_MAX : time;
    block->bytes += bytes;
    if (++block->sends < part) {
        return false;
    }
    uint64_t cost = block->time * 1000 / block->bytes + 1;
    block->costs[block->parts++ % VIA_ZCOPY_PARTS] =
        (uint32_t)(cost > INT32_MAX ? INT32_MAX : cost);
    block->sends = 0;
    block->time = 0;
    block->bytes = 0;
    return true;
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The sum of the parts' costs without the fastest and the slowest part: other threads may have had
 * the CPU during a part, for a thousand times as long as a send takes. */
static uint64_t typical_cost(const struct via_zcopy_block *block)
{
    uint32_t costs[VIA_ZCOPY_PARTS];
    uint64_t sum = 0;
    memcpy(costs, block->costs, sizeof(costs));
    qsort(costs, VIA_ZCOPY_PARTS, sizeof(*costs), by_size);
    for (unsigned i = 1; i < VIA_ZCOPY_PARTS - 1; i++) {
        sum += costs[i];
    }
    return sum;
}

static uint32_t median_ratio(const struct via_zcopy_choice *choice)
{
    uint32_t sorted[VIA_ZCOPY_REMEMBERS];
    unsigned count =
        choice->compared < VIA_ZCOPY_REMEMBERS ? choice->compared : VIA_ZCOPY_REMEMBERS;
    for (unsigned i = 0; i < count; i++) {
        sorted[i] = choice->ratios[i];
    }
    qsort(sorted, count, sizeof(*sorted), by_size);
    return sorted[count / 2];
}

/* A change from copying to fetching must be a gain of a sixteenth; a change back needs only that
 * copying is not slower. */
static bool is_fetch_better(const struct via_zcopy_choice *choice, uint32_t ratio)
{
    return ratio < (choice->fetches ? VIA_ZCOPY_SAME : VIA_ZCOPY_SAME - VIA_ZCOPY_SAME / 16);
}

/* Evaluates a comparison: chooses the method, and when to compare next. */
static void decide(struct via_zcopy_choice *choice, uint32_t ratio)
{
    choice->ratios[choice->compared++ % VIA_ZCOPY_REMEMBERS] = (uint16_t)ratio;
    if (choice->compared < VIA_ZCOPY_DECIDES) {
        choice->until = VIA_ZCOPY_BLOCK(choice->part);
        return;
    }
    uint32_t median = median_ratio(choice);
    bool fetches = is_fetch_better(choice, median);
    bool clear = median < VIA_ZCOPY_SAME * 3 / 4 || median > VIA_ZCOPY_SAME * 5 / 4;
    uint32_t most = clear ? VIA_ZCOPY_SELDOM : VIA_ZCOPY_OFTEN;
    if (fetches != choice->fetches || is_fetch_better(choice, ratio) != fetches) {
        choice->until = VIA_ZCOPY_AGAIN;
    } else {
        choice->until = choice->until >= most / 2 ? most : 2 * choice->until;
    }
    choice->fetches = fetches;
}

void via_zcopy_learn(struct via_zcopy_choice *choice, bool fetched, size_t bytes, uint64_t time)
{
    bool other = fetched != choice->fetches;
    struct via_zcopy_block *blocks = choice->block;
    if (other != choice->other || !via_zcopy_is_measured(choice) ||
        !add_send(&blocks[other], choice->part, bytes, time) || !other ||
        blocks[1].parts < VIA_ZCOPY_PARTS) {
        return;
    }
    bool whole = blocks[0].parts >= VIA_ZCOPY_PARTS;
    uint64_t fetch = typical_cost(&blocks[!choice->fetches]);
    uint64_t copy = typical_cost(&blocks[choice->fetches]);
    switch_way(choice);
    if (whole) {
        uint64_t ratio = fetch * VIA_ZCOPY_SAME / copy;
        decide(choice, ratio > UINT16_MAX ? UINT16_MAX : (uint32_t)ratio);
    }
}

void via_zcopy_begin(struct via_zcopy_choice choices[VIA_ZCOPY_SIZES])
{
    for (unsigned i = 0; i < VIA_ZCOPY_SIZES; i++) {
        uint32_t part = VIA_ZCOPY_PART >> i / 2;
        choices[i] = (struct via_zcopy_choice){.part = part, .until = VIA_ZCOPY_BLOCK(part)};
    }
}
