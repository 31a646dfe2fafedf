/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Finds settings that help on a link, by measurements in pairs: the present setting and another one
 * alternate, so that the load of the machine affects both alike
 * (docs/adr/0051-settings-that-measurably-help.md).
 */
#ifndef VIA_TUNE_TUNE_H
#define VIA_TUNE_TUNE_H

#include "tune/pio.h"

/* --- deciding (tune_decide.c): pure --- */

#define VIA_TUNE_PAIRS_MAX 101u
#define VIA_TUNE_PAIRS_MIN 11u /* fewer pairs give no decision */

enum via_tune_verdict { VIA_TUNE_SAME, VIA_TUNE_HELPS, VIA_TUNE_HURTS };

struct via_tune_pairs {
    unsigned count;
    double ratio[VIA_TUNE_PAIRS_MAX]; /* speed of the other setting, relative to the present one */
};

struct via_tune_result {
    double median, low, high; /* low to high: 95 % confidence interval of the median */
    enum via_tune_verdict verdict;
};

/* Helps: the median is at least `margin` above 1, and the interval is above 1 + margin / 2. Hurts:
 * the interval is below 1. Sorts the pairs. */
struct via_tune_result via_tune_decide(struct via_tune_pairs *pairs, double margin);
#define VIA_TUNE_MARGIN 0.05

/* The smallest size from which on all sizes help; 0: the largest does not help. */
uint64_t via_tune_threshold(const uint64_t *sizes, const enum via_tune_verdict *verdicts,
                            unsigned count);

/* Measures the gain of another way over the present one at a size; median 0: not known. 0 or
 * negative errno. */
typedef int via_tune_compare(void *ctx, uint64_t bytes, struct via_tune_result *ret_result);

/* The size from which on another way replaces the present one; 0: never. It must help significantly
 * at one size and at all larger sizes measured, and twice at the smallest of these. Halving to one
 * part in 32 then finds the smaller size at which both are equally fast. So the choice is about as
 * fast as the faster of both at each size. It compares at most VIA_TUNE_CROSSOVER_MAX times. */
#define VIA_TUNE_CROSSOVER_MAX 16u
VIA_MUST_CHECK int via_tune_crossover(via_tune_compare *compare, void *ctx, uint64_t bytes_max,
                                      uint64_t *ret_bytes);

/* --- measuring (tune_link.c) --- */

#define VIA_TUNE_ROWS_MAX 256u
struct via_tune_row {
    char what[64];
    uint64_t bytes;
    unsigned pairs;
    struct via_tune_result result;
};

enum via_tune_part { VIA_TUNE_STORES, VIA_TUNE_DMA, VIA_TUNE_PIPES, VIA_TUNE_PARTS };

struct via_tune {
    struct via_pio_measure *measure;
    unsigned pairs;  /* for each comparison */
    uint64_t ns_max; /* time limit for all; 0: none. Stores, DMA and pipes get a third each */
    /* NULL, or called after each comparison, on the caller's thread, to show steps_done of
     * steps_max. */
    void (*step)(const struct via_tune *tune);
    unsigned steps_done, steps_max;
    struct via_tune_row rows[VIA_TUNE_ROWS_MAX];
    unsigned rows_count;
    bool is_partial[VIA_TUNE_PARTS]; /* some comparison of the part was skipped */
    unsigned skipped,
        cut_short; /* comparisons: with too few pairs in the time; with fewer pairs than planned */
    uint64_t begin_ns, until_ns; /* begin of all, time limit of the present part */
    /* The result. */
    uint32_t dma_bytes_min;                            /* 0: DMA does not help */
    const struct via_store *stores[VIA_STORE_CLASSES]; /* NULL: no store helps at this size */
    bool has_stores;
    uint32_t slots;        /* 0: no other number helps */
    const char *slots_why; /* NULL, or why not measured */
};

VIA_MUST_CHECK int via_tune_link(struct via_tune *tune, struct via_error *err);

#endif
