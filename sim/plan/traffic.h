/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Traffic on a fabric, and its measurements. Each host keeps a number of operations under way, or
 * gets one at random times at a given rate; the pattern decides the destinations. The first part of
 * the events is a warm-up and is not counted.
 */
#ifndef SIM_PLAN_TRAFFIC_H
#define SIM_PLAN_TRAFFIC_H

#include "base/rng.h"
#include "sim/plan/fabric.h"

enum plan_pattern {
    PLAN_NEIGHBOUR, /* to the host with the next id */
    PLAN_ALL,       /* to all others, equally often, in a random order per host */
    PLAN_INCAST,    /* all to host 0 */
    PLAN_BARRIER,   /* SHMEM barriers of all hosts, one after the other */
};

/* -EINVAL */
int plan_pattern_parse(const char *text, enum plan_pattern *ret_pattern) VIA_MUST_CHECK;

struct plan_run {
    enum plan_pattern pattern;
    uint64_t bytes;      /* of a message */
    double rate;         /* bytes per second that each sender is given to send; 0: full speed */
    unsigned under_way;  /* messages of a sender under way, at full speed */
    uint64_t events_max; /* the first third of them is not measured */
    uint64_t seed;
    bool core; /* use the nodes of src/core instead of the planner's fabric */
    float
        *links_busy; /* borrowed; NULL, or receives the busy share of each direction of each link */
    /* NULL, or called a hundred times during the run, after `done` events. */
    void (*step)(void *object, uint64_t done);
    void *object;
};

/* Rounds of a barrier of 1,024 hosts. */
#define PLAN_ROUNDS_MAX 10u

#define PLAN_TIMES_COUNT 8192u

/* A histogram of times, each to 1 %. */
struct plan_times {
    uint64_t counts[PLAN_TIMES_COUNT];
    uint64_t total, max_ps;
};

struct plan_measured {
    double offered; /* bytes per second and sender; NAN: full speed */
    double got;     /* bytes per second and sender that arrived */
    double total;   /* of the fabric */
    double seconds; /* of virtual time, measured */
    double drift;   /* by how much the second half delivered more than the first; 0.1 for 10 % */
    unsigned senders_count;
    uint64_t messages_count; /* measured ones; of barriers, hosts times rounds */
    uint64_t events_count;   /* warming up included */
    uint64_t stuck_count;    /* frames dropped because they were stuck */
    uint64_t refused_count;  /* messages that a host did not accept because it had too many */
    bool at_rest; /* is at rest: every message that was under way at first has been replaced twice;
                     a row that is not shows no latency, because the slow messages have not arrived
                     yet */
    struct plan_times times; /* from submit until delivered; of barriers, from enter to leave */
    struct plan_busy busy[PLAN_RESOURCES];
};

/* ps; NAN: there was no message, or the row is not at rest. */
double plan_measured_latency(const struct plan_measured *measured, double percent);

void plan_run(const struct plan_run *run, struct sim_cost *cost, const struct plan_costs *costs,
              const struct plan_shape *shape, struct plan_wiring *wiring,
              struct plan_measured *ret_measured);

#endif
