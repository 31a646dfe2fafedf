/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "base/combine.h"

#include <string.h>

#include "base/types.h"

/* One store in EARLY_ONE_IN writes a line out early, as interrupts and other traffic do. */
#define EARLY_ONE_IN 8u
/* One drain in INTERRUPTED_ONE_IN pauses for some microseconds between two lines, so that another
 * CPU finds only a part of the stores. */
#define INTERRUPTED_ONE_IN 16u
#define INTERRUPTED_LOOPS 5000u

void via_combine_init(struct via_combine *combine, uint64_t seed)
{
    combine->lines_count = 0;
    via_rng_init(&combine->rng, seed);
}

static void write_word(unsigned char *to, const unsigned char *data)
{
    uint64_t word;
    memcpy(&word, data, sizeof(word));
    /* Release: the line is written in ascending order. Pairs with the acquire of a reader that
     * polls its last word. */
    __atomic_store_n((uint64_t *)(void *)to, word, __ATOMIC_RELEASE);
}

static void write_line(const struct via_combine_line *line)
{
    for (unsigned at = 0; at < VIA_COMBINE_LINE_BYTES; at += 8) {
        unsigned bits = (unsigned)(line->mask >> at & 0xff);
        if (bits == 0xff) {
            write_word(line->to + at, line->data + at);
            continue;
        }
        for (unsigned i = 0; i < 8; i++) {
            if ((bits >> i & 1) != 0) {
                __atomic_store_n(line->to + at + i, line->data[at + i], __ATOMIC_RELEASE);
            }
        }
    }
}

static void drive_out_one(struct via_combine *combine)
{
    unsigned index = (unsigned)via_rng_below(&combine->rng, combine->lines_count);
    write_line(&combine->lines[index]);
    combine->lines[index] = combine->lines[--combine->lines_count];
}

static struct via_combine_line *line_of(struct via_combine *combine, unsigned char *to)
{
    for (unsigned i = 0; i < combine->lines_count; i++) {
        if (combine->lines[i].to == to) {
            return &combine->lines[i];
        }
    }
    if (combine->lines_count == VIA_COMBINE_LINES) {
        drive_out_one(combine);
    }
    struct via_combine_line *line = &combine->lines[combine->lines_count++];
    line->to = to;
    line->mask = 0;
    return line;
}

void via_combine_store(struct via_combine *combine, void *to, const void *src, size_t bytes)
{
    unsigned char *place = to;
    const unsigned char *from = src;
    while (bytes != 0) {
        size_t at = (uintptr_t)place % VIA_COMBINE_LINE_BYTES;
        size_t part = via_min(bytes, VIA_COMBINE_LINE_BYTES - at);
        struct via_combine_line *line = line_of(combine, place - at);
        memcpy(line->data + at, from, part);
        line->mask |= (part == VIA_COMBINE_LINE_BYTES ? UINT64_MAX : (UINT64_C(1) << part) - 1)
                      << at;
        if (via_rng_chance(&combine->rng, 1, EARLY_ONE_IN)) {
            drive_out_one(combine);
        }
        place += part;
        from += part;
        bytes -= part;
    }
}

static void be_interrupted(void)
{
    for (volatile unsigned i = 0; i < INTERRUPTED_LOOPS; i++) {
    }
}

void via_combine_drain(struct via_combine *combine)
{
    bool interrupted =
        combine->lines_count > 1 && via_rng_chance(&combine->rng, 1, INTERRUPTED_ONE_IN);
    while (combine->lines_count != 0) {
        drive_out_one(combine);
        if (interrupted) {
            be_interrupted();
            interrupted = false;
        }
    }
}

void via_combine_drop(struct via_combine *combine)
{
    combine->lines_count = 0;
}
