/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The cost model as a calculator (sim/paper/command.h): requests, and kinds of scenarios. */
#ifndef SIM_PAPER_MODEL_H
#define SIM_PAPER_MODEL_H

#include "progress/progress.h"
#include "sim/cost/scenario.h"
#include "sim/paper/idle.h"

#define SIM_MODEL_NUMBERS_MAX 6u

struct sim_model_plan;

struct sim_model {
    unsigned kind; /* bit of the scenario's kind; 0: no scenario is loaded */
    struct sim_scenario scenario;
    char from[32], to[32]; /* nodes that idle.c measures between */
    struct via_progress progress;
    char title[64];
    struct sim_idle idle;        /* of the request that is answered */
    struct sim_model_plan *plan; /* owned by sim/plan/requests.c */
};

struct sim_model_request {
    const char *name;
    unsigned kinds; /* of the scenario that is loaded; 0: none need be */
    unsigned words; /* after the name; then numbers, each from its minimum to its maximum */
    /* Prints the answer without its newline, or sets err. */
    int (*answer)(struct sim_model *model, char **words, const uint64_t *n, struct via_error *err);
    unsigned numbers;
    struct sim_model_limits {
        uint64_t min, max;
    } limits[SIM_MODEL_NUMBERS_MAX];
};

/* Kind of scenarios whose requests are those of struct sim_model_more. */
#define SIM_MODEL_PLAN 64u

struct sim_model_more {
    const struct sim_model_request *requests;
    size_t requests_count;
    void (*end)(struct sim_model *model); /* frees what the requests have allocated */
};

#endif
