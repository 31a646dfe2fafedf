/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_BENCH_STATS_H
#define VIA_BENCH_STATS_H

#include <stddef.h>
#include <stdint.h>

/* Shared by all benchmarks: a clock, medians, CPUs to pin to. */

uint64_t via_bench_now_ns(void);

/* Median; sorts values in place. count must not be 0. */
double via_bench_median(double *values, size_t count);

/* Pins the calling thread to the index-th CPU it may run on (modulo their number). 0 or -errno. */
int via_bench_pin(unsigned index);

/* CPUs this process may run on. */
unsigned via_bench_cpus(void);

/* Returns FILE of the argument --json FILE; NULL: there are no arguments. --help prints `about` and
 * exits with 0; all other arguments exit with 2. */
const char *via_bench_options(int argc, char **argv, const char *about);

#endif
