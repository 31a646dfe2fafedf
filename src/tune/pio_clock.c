/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <x86intrin.h>
#endif

#include "base/types.h"
#include "tune/pio.h"

#define CALIBRATE_NS (10 * VIA_MSEC_NS)
#define COST_RUNS 1001u

/* --- the clock --- */

uint64_t via_pio_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * VIA_SEC_NS + (uint64_t)now.tv_nsec;
}

uint64_t via_pio_clock_ticks(const struct via_pio_clock *clock)
{
#ifdef __x86_64__
    if (clock->is_tsc) {
        unsigned cpu;
        uint64_t ticks = __rdtscp(&cpu); /* waits for all earlier instructions */
        _mm_lfence();                    /* later instructions wait for it */
        return ticks;
    }
#else
    (void)clock;
#endif
    return via_pio_now_ns();
}

static int by_value(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

/* Intel SDM volume 2, CPUID leaf 80000007: EDX bit 8, the counter has a constant rate in all power
 * states.
 */
static bool has_steady_tsc(void)
{
#ifdef __x86_64__
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d >> 8 & 1) != 0 &&
           __get_cpuid(0x80000001, &a, &b, &c, &d) != 0 && (d >> 27 & 1) != 0; /* rdtscp */
#else
    return false;
#endif
}

void via_pio_clock_init(struct via_pio_clock *ret_clock)
{
    static uint64_t costs[COST_RUNS];
    *ret_clock = (struct via_pio_clock){.ns_per_tick = 1, .is_tsc = has_steady_tsc()};
    if (ret_clock->is_tsc) {
        uint64_t begin_ns = via_pio_now_ns(), begin = via_pio_clock_ticks(ret_clock), end_ns;
        do {
            end_ns = via_pio_now_ns();
        } while (end_ns - begin_ns < CALIBRATE_NS);
        uint64_t ticks = via_pio_clock_ticks(ret_clock) - begin;
        ret_clock->ns_per_tick = (double)(end_ns - begin_ns) / (double)via_max(ticks, UINT64_C(1));
    }
    for (unsigned i = 0; i < COST_RUNS; i++) {
        uint64_t begin = via_pio_clock_ticks(ret_clock);
        costs[i] = via_pio_clock_ticks(ret_clock) - begin;
    }
    qsort(costs, COST_RUNS, sizeof(costs[0]), by_value);
    ret_clock->cost_ticks = costs[COST_RUNS / 2];
}

double via_pio_clock_ns(const struct via_pio_clock *clock, uint64_t from, uint64_t to)
{
    uint64_t ticks = to - from;
    return ticks > clock->cost_ticks ? (double)(ticks - clock->cost_ticks) * clock->ns_per_tick : 0;
}
