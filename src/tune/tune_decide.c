/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <math.h>
#include <stdlib.h>

#include "tune/tune.h"

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* The interval by order statistics: of n pairs, those of rank n/2 -+ 0.98 sqrt(n), which no
 * outlier moves and which asks for no distribution. */
struct via_tune_result via_tune_decide(struct via_tune_pairs *pairs, double margin)
{
    struct via_tune_result result = {.median = 1, .low = 0, .high = INFINITY};
    unsigned n = pairs->count;
    if (n == 0) {
        return result;
    }
    qsort(pairs->ratio, n, sizeof(pairs->ratio[0]), by_value);
    unsigned away = (unsigned)ceil(0.98 * sqrt(n));
    result.median =
        n % 2 != 0 ? pairs->ratio[n / 2] : (pairs->ratio[n / 2 - 1] + pairs->ratio[n / 2]) / 2;
    if (n / 2 < away + 1) {
        return result; /* too few to tell */
    }
    result.low = pairs->ratio[n / 2 - away];
    result.high = pairs->ratio[(n - 1) / 2 + away];
    if (result.median >= 1 + margin && result.low > 1 + margin / 2) {
        result.verdict = VIA_TUNE_HELPS;
    } else if (result.high < 1) {
        result.verdict = VIA_TUNE_HURTS;
    }
    return result;
}

uint64_t via_tune_threshold(const uint64_t *sizes, const enum via_tune_verdict *verdicts,
                            unsigned count)
{
    uint64_t from = 0;
    while (count-- > 0 && verdicts[count] == VIA_TUNE_HELPS) {
        from = sizes[count];
    }
    return from;
}
