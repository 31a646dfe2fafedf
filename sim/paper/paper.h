/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The published systems, each as a scenario and a model, with their measurements beside the model's
 * results. A paper is registered in sim_papers in paper.c.
 */
#ifndef SIM_PAPER_PAPER_H
#define SIM_PAPER_PAPER_H

#include <stdbool.h>
#include <stdio.h>

#include "base/error.h"
#include "sim/cost/scenario.h"

enum sim_role {
    SIM_HELD,      /* the paper has a figure, and no parameter was fitted to it */
    SIM_FIT,       /* the same, but parameters were fitted to it */
    SIM_PREDICTED, /* model only: no measurement exists */
    SIM_QUOTED,    /* paper only: background that the model does not cover */
};

struct sim_row {
    const char *series; /* "bandwidth": one plot each; borrowed until the report is written */
    const char *label;  /* "polling": one line of the plot; borrowed, too */
    double x;
    const char *x_unit; /* "B", "hosts" */
    const char *unit;   /* of paper, low, high and model */
    double paper;       /* a range's middle; NAN when there is none */
    double low, high;   /* where the model fits the paper */
    bool range;         /* low to high is what the paper says, and paper its middle */
    double model;       /* NAN if there is none */
    enum sim_role role;
    bool claim; /* claimed in docs/costs.md: broken if the model is outside low to high */
};

struct via_progress;

struct sim_report {
    struct sim_row *rows; /* owned */
    size_t count, capacity;
    struct via_progress *progress; /* borrowed; NULL = none is shown */
    uint64_t steps_before;         /* of the papers before */
    uint64_t steps;
    bool fitting; /* only SIM_FIT rows are needed: others need not be computed */
    bool bounded; /* only rows with a bound are needed */
};

void sim_report_init(struct sim_report *report);
void sim_report_fini(struct sim_report *report);
/* A computation is done that counts for so many steps of sim_paper.steps. */
void sim_report_step(struct sim_report *report, unsigned steps);
void sim_report_add(struct sim_report *report, const struct sim_row *row);
/* The same; low and high are the paper's figure minus and plus `bound` (0.03 for 3 %). */
void sim_report_within(struct sim_report *report, const struct sim_row *row, double bound);

/* Is a row of that role needed now? Ask before a long computation. */
bool sim_report_is_wanted(const struct sim_report *report, enum sim_role role);
/* Is the row inside its bound, or without one? */
bool sim_row_is_fitting(const struct sim_row *row);

struct sim_paper {
    char letter; /* 'A' */
    const char *title;
    const char *scenario; /* file in the folder of scenarios */
    const struct sim_section *const *sections;
    size_t sections_count;
    unsigned steps; /* of all computations, one each 3 ms or so; 0 = next to no time */
    /* Fills the report, in a fixed order; the same scenario gives the same rows. 0, or -EINVAL with
     * err if the scenario can not be built. */
    int (*run)(const struct sim_scenario *scenario, struct sim_report *report,
               struct via_error *err);
};

extern const struct sim_paper *const sim_papers[]; /* ends with NULL */

/* --- what a paper's table looks like: report.c ------------------------------------------------ */

/* Prints a line for each series with figures outside their bounds; then every figure. */
void sim_report_print_misfits(const struct sim_report *report, FILE *out);
void sim_report_print(const struct sim_report *report, FILE *out);
void sim_report_csv(const struct sim_report *report, char letter, FILE *out);
struct sim_report_counts {
    size_t fitted, fitted_outside, held, held_outside, claims, broken;
};
struct sim_report_counts sim_report_count(const struct sim_report *report);

#endif
