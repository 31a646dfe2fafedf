/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Many seeds on several CPUs: a process each, so that a crash or hang is a failure of that seed
 * only. */
#ifndef SIM_JOBS_H
#define SIM_JOBS_H

#include "sim/change.h"
#include "sim/streams.h"
#include "sim/world.h"

struct sim_jobs {
    uint64_t first;
    uint64_t count;
    uint64_t seconds_max; /* of real time, after which no further seed begins; 0 = no limit */
    /* Of processor time: a seed that takes longer has failed, and one that takes none in this time.
     * 0 = more than any seed takes. */
    unsigned hang_s;
    unsigned processes;
    enum sim_graph graph;
    const struct sim_changes *changes; /* changes to each seed's case; NULL = none */
    int plant;
    /* The second part of each seed, connections; NULL = none. */
    void (*sockets)(const struct sim_config *config, int plant, FILE *trace,
                    struct sim_streams_result *ret_result);
    /* The third part of each seed; NULL = none. */
    void (*shmem)(const struct sim_config *config, int plant, FILE *trace,
                  struct sim_result *ret_result);
    bool twice; /* run each seed twice; the digests must be equal */
    /* NULL, or called many times a second with the number of finished seeds. */
    void (*step)(void *object, uint64_t done);
    void *object;
};

struct sim_jobs_result {
    uint64_t done; /* seeds run */
    uint64_t events;
    bool failed;
    uint64_t seed; /* seeds that failed */
    char failure[1024];
    double elapsed_s;
    double longest_s; /* of one seed */
    uint64_t longest_seed;
    struct sim_counts counts; /* of all seeds */
    uint64_t drain_ns_max;
    uint64_t drain_seed;
};

/* 0, or -errno if processes can not be started. */
int sim_jobs_run(const struct sim_jobs *jobs, struct sim_jobs_result *ret_result);

/* Runs one seed in this process. */
void sim_jobs_one(const struct sim_jobs *jobs, uint64_t seed, FILE *trace,
                  struct sim_result *ret_result);

#endif
