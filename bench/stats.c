/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "bench/stats.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

uint64_t via_bench_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

double via_bench_median(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), compare);
    return count % 2 != 0 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

unsigned via_bench_cpus(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

int via_bench_pin(unsigned index)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
        return -errno;
    }
    unsigned skip = index % (unsigned)CPU_COUNT(&allowed);
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &allowed) && skip-- == 0) {
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            return sched_setaffinity(0, sizeof(one), &one) == 0 ? 0 : -errno;
        }
    }
    return -ENODEV;
}

const char *via_bench_options(int argc, char **argv, const char *about)
{
    if (argc == 1) {
        return NULL;
    }
    if (argc == 3 && strcmp(argv[1], "--json") == 0) {
        return argv[2];
    }
    int help = argc == 2 && strcmp(argv[1], "--help") == 0;
    fprintf(help ? stdout : stderr, "usage: %s [--json FILE]\n%s\n", argv[0], about);
    exit(help ? 0 : 2);
}
