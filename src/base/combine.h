/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Imitates the write-combining buffers of a CPU, for memory that is not write-combined: an emulated
 * port is then as strict as hardware. Stores wait in ten lines of 64 bytes. A line is written to
 * memory at random, when its place is needed, and by via_combine_drain(), which stands for sfence.
 * Lines are written in random order; the stores to one line arrive in ascending order (Intel SDM
 * volume 1, 10.4.6, and volume 3, 12.3.1).
 *
 * Belongs to one thread.
 */
#ifndef VIA_BASE_COMBINE_H
#define VIA_BASE_COMBINE_H

#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"

#define VIA_COMBINE_LINE_BYTES 64u
#define VIA_COMBINE_LINES 10u /* fill buffers of a core since Nehalem */

struct via_combine_line {
    unsigned char *to; /* aligned to a line */
    uint64_t mask;     /* bit b: byte b was stored to */
    _Alignas(8) unsigned char data[VIA_COMBINE_LINE_BYTES];
};

struct via_combine {
    struct via_rng rng;
    unsigned lines_count; /* the first ones are in use */
    struct via_combine_line lines[VIA_COMBINE_LINES];
};

void via_combine_init(struct via_combine *combine, uint64_t seed);

/* Stores of any alignment. src may be changed after the return. */
void via_combine_store(struct via_combine *combine, void *to, const void *src, size_t bytes);

/* sfence: all earlier stores arrive in memory before any later one. */
void via_combine_drain(struct via_combine *combine);

/* The memory no longer exists (the link is down): discards stores that were not written. */
void via_combine_drop(struct via_combine *combine);

#endif
