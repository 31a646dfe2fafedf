/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/host_spin.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/types.h"

/* With a shorter budget a poll takes less time than the loop around it. */
#define BUDGET_NS_MIN (1 * VIA_USEC_NS)
/* One short wait may be chance. A request-reply exchange makes several in a row. */
#define SHORT_WAITS_MIN 3u

void via_host_spin_init(struct via_host_spin *spin, uint64_t budget_ns_max)
{
    *spin = (struct via_host_spin){.budget_ns_max = budget_ns_max};
}

void via_host_spin_learn(struct via_host_spin *spin, uint64_t wait_ns, bool found)
{
    if (wait_ns > spin->budget_ns_max) {
        /* Even the longest budget would not have covered this wait: polling only cost time. */
        spin->short_waits = 0;
        spin->budget_ns /= 2;
        if (spin->budget_ns < BUDGET_NS_MIN) {
            spin->budget_ns = 0;
        }
        return;
    }
    if (!found && ++spin->short_waits < SHORT_WAITS_MIN) {
        return;
    }
    if (spin->budget_ns_max < BUDGET_NS_MIN) {
        return;
    }
    /* The budget with which polling would have found the work, with some slack. It decreases slowly
     * when work arrives earlier. */
    uint64_t enough = via_max(wait_ns + wait_ns / 2, 2 * BUDGET_NS_MIN);
    if (enough < spin->budget_ns) {
        enough = spin->budget_ns - (spin->budget_ns - enough) / 16;
    }
    spin->budget_ns = via_min(enough, spin->budget_ns_max);
    spin->short_waits = 0;
}

/* Reads a small file; "" on failure. */
static void read_text(const char *path, char *ret_text, size_t bytes)
{
    ret_text[0] = '\0';
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return;
    }
    size_t n = fread(ret_text, 1, bytes - 1, file);
    ret_text[n] = '\0';
    fclose(file);
}

/* The CPUs of a quota in us of each period, rounded up; 0: no limit. */
static unsigned quota_cpus(long long quota, long long period)
{
    return quota > 0 && period > 0 ? (unsigned)((quota + period - 1) / period) : 0;
}

/* The quota of the cgroup that this process finds as its root, of version 2 or 1. A lower quota of
 * a parent is not detected: the thread then polls a little too long, and the budget adapts. */
static unsigned cgroup_cpus(void)
{
    char text[64];
    long long quota;
    long long period;
    read_text("/sys/fs/cgroup/cpu.max", text, sizeof(text));
    if (sscanf(text, "%lld %lld", &quota, &period) == 2) {
        return quota_cpus(quota, period);
    }
    read_text("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", text, sizeof(text));
    quota = atoll(text);
    read_text("/sys/fs/cgroup/cpu/cpu.cfs_period_us", text, sizeof(text));
    period = atoll(text);
    return quota_cpus(quota, period);
}

unsigned via_host_spin_cpus(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set)
                                                             : (int)sysconf(_SC_NPROCESSORS_ONLN);
    unsigned cpus = count > 0 ? (unsigned)count : 1;
    unsigned limit = cgroup_cpus();
    return limit != 0 ? via_min(cpus, limit) : cpus;
}

bool via_host_spin_is_crowded(int loadavg_fd, unsigned cpus)
{
    char text[64];
    ssize_t n = loadavg_fd >= 0 ? pread(loadavg_fd, text, sizeof(text) - 1, 0) : -1;
    if (n <= 0) {
        return false;
    }
    text[n] = '\0';
    /* "0.20 0.18 0.12 1/80 11206": runnable threads before the slash (proc(5)). */
    unsigned running;
    return sscanf(text, "%*s %*s %*s %u/", &running) == 1 && running > cpus;
}
