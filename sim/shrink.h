/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Shrinking: from a failing seed to a failing case that is easier to think about: fewer hosts,
 * faults and operations, and every unneeded feature switched off. The case need not fail in the
 * same way; any failure is worth knowing.
 */
#ifndef SIM_SHRINK_H
#define SIM_SHRINK_H

#include "sim/jobs.h"

struct sim_shrunk {
    struct sim_changes changes; /* changes with which the seed fails */
    char failure[1024];
    uint32_t hosts, hosts_before;
    uint32_t faults, faults_before;        /* faults that happen, of those the case draws */
    uint32_t work, work_before;            /* the same for bursts */
    uint32_t faults_planned, work_planned; /* including those that the changes leave out */
    unsigned runs;
};

/*
 * jobs: graph, plant and changes as they were when the seed failed. runs_max and seconds_max limit
 * the search; each try is a run in a process of its own. 0; -ENOENT if the seed does not fail;
 * -errno if processes can not be started.
 */
int sim_shrink(const struct sim_jobs *jobs, uint64_t seed, unsigned runs_max, double seconds_max,
               struct sim_shrunk *ret_shrunk);

/* The command line options that make the case from its seed; each begins with a blank. */
void sim_shrunk_text(const struct sim_shrunk *shrunk, char *text, size_t bytes);

#endif
