/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_HOST_SPIN_H
#define VIA_HOST_HOST_SPIN_H

#include <stdbool.h>
#include <stdint.h>

/* How long a thread polls for work before it sleeps. Polling pays when work comes within the cost
 * of a sleep and a wake-up, and a CPU is idle; so the budget follows the measured waits, and is 0
 * on a busy machine.
 *
 * Pure: time and the state of the machine are arguments.
 */
struct via_host_spin {
    uint64_t budget_ns;
    uint64_t budget_ns_max;
    unsigned short_waits; /* in a row, that ended within budget_ns_max but not by polling */
};

void via_host_spin_init(struct via_host_spin *spin, uint64_t budget_ns_max);

/* A wait has ended after wait_ns, by polling or after a sleep. */
void via_host_spin_learn(struct via_host_spin *spin, uint64_t wait_ns, bool found);

/* CPUs this process may use: affinity mask and cgroup quota. At least 1. */
unsigned via_host_spin_cpus(void);

/* True if this machine has more runnable threads than CPUs. fd: an open /proc/loadavg,
 * or -1 (then false). */
bool via_host_spin_is_crowded(int loadavg_fd, unsigned cpus);

#endif
