/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Traffic on a fabric, and what is measured of it. Each host keeps so many operations under way, or
 * gets one at random times that make up a rate; where they go is the pattern. The first part of the
 * events is warming up and is not counted.
 */
#ifndef SIM_PLAN_TRAFFIC_H
#define SIM_PLAN_TRAFFIC_H

#include "base/rng.h"
#include "sim/plan/fabric.h"

enum plan_pattern {
    PLAN_NEIGHBOUR, /* to the host with the next id */
    PLAN_ALL,       /* to all others, each as often, in an order of its own */
    PLAN_INCAST,    /* all to host 0 */
    PLAN_BARRIER,   /* SHMEM barriers of all hosts, one after the other */
};

/* -EINVAL */
int plan_pattern_parse(const char *text, enum plan_pattern *ret_pattern) VIA_MUST_CHECK;
const char *plan_pattern_name(enum plan_pattern pattern);

struct plan_run {
    enum plan_pattern pattern;
    uint64_t bytes;      /* of a message */
    double rate;         /* bytes per second that each sender is given to send; 0: all it can */
    unsigned under_way;  /* messages of a sender at once, when it sends all it can */
    uint64_t events_max; /* of which the first third is not measured */
    uint64_t seed;
    bool core;         /* by the nodes of src/core instead of the planner's fabric */
    float *links_busy; /* borrowed; NULL, or receives how busy each direction of each link was */
    /* NULL, or called a hundred times while the events of the run are taken: `done` of them are. */
    void (*step)(void *object, uint64_t done);
    void *object;
};

/* Rounds of a barrier of 1,024 hosts. */
#define PLAN_ROUNDS_MAX 10u

#define PLAN_TIMES_COUNT 8192u

/* Times, each to 1 %. */
struct plan_times {
    uint64_t counts[PLAN_TIMES_COUNT];
    uint64_t total, max_ps;
};

struct plan_measured {
    double offered; /* bytes per second and sender; NAN: all it can */
    double got;     /* bytes per second and sender that arrived */
    double total;   /* of the fabric */
    double seconds; /* of virtual time, measured */
    double drift;   /* by how much its second half brought more than the first; 0.1 for 10 % */
    unsigned senders_count;
    uint64_t messages_count; /* measured; of barriers, hosts times rounds */
    uint64_t events_count;   /* warming up included */
    uint64_t stuck_count;    /* frames dropped because they were stuck */
    uint64_t refused_count;  /* messages that a host could not take because it had too many */
    bool at_rest; /* every message that was under way at first has been replaced twice; a row that
                   * is not shows no latency, because the slow messages have not arrived yet */
    struct plan_times times; /* from submit until delivered; of barriers, from enter to leave */
    struct plan_busy busy[PLAN_RESOURCES];
};

double plan_times_percentile(const struct plan_times *times, double percent); /* ps; NAN: none */
/* The same of what is shown: NAN when the row is not at rest. */
double plan_measured_latency(const struct plan_measured *measured, double percent);

void plan_run(const struct plan_run *run, struct sim_cost *cost, const struct plan_costs *costs,
              const struct plan_shape *shape, struct plan_wiring *wiring,
              struct plan_measured *ret_measured);

#endif
