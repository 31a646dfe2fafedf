/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <math.h>
#include <stdlib.h>

#include "tune/tune.h"

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* The interval by order statistics: the values of rank n/2 -+ 0.98 sqrt(n) of n pairs. It is robust
 * against outliers, and independent of the distribution. */
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
        return result; /* too few for a decision */
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

static const uint64_t crossover_sizes[] = {256, 1024, 2048, 4096, 8192, 16384, 32768, 65472};
#define CROSSOVER_SIZES VIA_ARRAY_COUNT(crossover_sizes)
#define STEP_BYTES UINT64_C(64) /* a cache line; smaller steps make no difference */
#define STEP_PART 32u

/* Bisects: at `high` the other way is not slower, at `low` it is. */
static int halve(via_tune_compare *compare, void *ctx, uint64_t low, uint64_t high,
                 uint64_t *ret_bytes)
{
    int rc = 0;
    while (rc == 0 && high - low > via_max(STEP_BYTES, low / STEP_PART)) {
        struct via_tune_result result;
        uint64_t middle = via_align_up(low + (high - low) / 2, STEP_BYTES);
        if (middle >= high) {
            break;
        }
        rc = compare(ctx, middle, &result);
        if (rc == 0 && result.median >= 1) {
            high = middle;
        } else {
            low = middle;
        }
    }
    *ret_bytes = high;
    return rc;
}

int via_tune_crossover(via_tune_compare *compare, void *ctx, uint64_t bytes_max,
                       uint64_t *ret_bytes)
{
    struct via_tune_result results[CROSSOVER_SIZES], again;
    enum via_tune_verdict verdicts[CROSSOVER_SIZES];
    unsigned count = 0, at = 0;
    *ret_bytes = 0;
    for (; count < CROSSOVER_SIZES && crossover_sizes[count] <= bytes_max; count++) {
        int rc = compare(ctx, crossover_sizes[count], &results[count]);
        if (rc != 0) {
            return rc;
        }
        verdicts[count] = results[count].verdict;
    }
    uint64_t from = via_tune_threshold(crossover_sizes, verdicts, count);
    if (from == 0) {
        return 0;
    }
    int rc = compare(ctx, from, &again);
    if (rc != 0 || again.verdict != VIA_TUNE_HELPS) {
        return rc;
    }
    while (crossover_sizes[at] != from) {
        at++;
    }
    while (at > 0 && results[at - 1].median >= 1) {
        at--;
    }
    return halve(compare, ctx, at > 0 ? crossover_sizes[at - 1] : 0, crossover_sizes[at],
                 ret_bytes);
}
