/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The published systems, each as a scenario and a model: what they measured beside what the model
 * says. A paper adds itself to sim_papers in paper.c.
 */
#ifndef SIM_PAPER_PAPER_H
#define SIM_PAPER_PAPER_H

#include <stdbool.h>
#include <stdio.h>

#include "base/error.h"
#include "sim/cost/scenario.h"

enum sim_role {
    SIM_JUDGED,    /* the paper has a figure, and the model must meet its bound */
    SIM_FIT,       /* the same, but parameters were fitted on it */
    SIM_PREDICTED, /* the model only: nobody has measured it */
    SIM_QUOTED,    /* the paper only: background that we do not model */
};

struct sim_row {
    const char *series; /* "bandwidth": one plot each; borrowed until the report is done */
    const char *label;  /* "polling": one line of the plot; borrowed, too */
    double x;
    const char *x_unit; /* "B", "hosts" */
    const char *unit;   /* of paper, low, high and model */
    double paper;       /* a range's middle; NAN when there is none */
    double low, high;   /* where the model must lie */
    bool range;         /* low to high is what the paper says, and paper its middle */
    double model;       /* NAN when there is none */
    enum sim_role role;
};

struct sim_report {
    struct sim_row *rows; /* owned */
    size_t count, capacity;
    bool fitting;      /* only SIM_FIT rows are of use: others need not be computed */
    double misfit;     /* of the SIM_FIT rows so far */
    double misfit_max; /* fitting: with more than this nothing is of use any more */
    bool bounded;      /* only rows with a bound are of use */
    bool brief;        /* the same, and of a long curve a few points will do */
};

void sim_report_init(struct sim_report *report);
void sim_report_fini(struct sim_report *report);
void sim_report_add(struct sim_report *report, const struct sim_row *row);
/* The same, low and high being the paper's figure less and more `bound` (0.03 for 3 %). */
void sim_report_within(struct sim_report *report, const struct sim_row *row, double bound);

/* True when a row of that role is of use now: ask before a long computation. */
bool sim_report_wants(const struct sim_report *report, enum sim_role role);
/* Fitting, and this cannot become the best fit: the rest of the rows can be left out. */
bool sim_report_is_hopeless(const struct sim_report *report);

/* Inside its bound, or without one. */
bool sim_row_good(const struct sim_row *row);

struct sim_paper {
    char letter; /* 'A' */
    const char *title;
    const char *scenario; /* file in the folder of scenarios */
    const struct sim_section *const *sections;
    size_t sections_count;
    /* Fills the report, in a fixed order; the same scenario gives the same rows. 0 or -EINVAL with
     * err: what the scenario says cannot be built. */
    int (*run)(const struct sim_scenario *scenario, struct sim_report *report,
               struct via_error *err);
};

extern const struct sim_paper *const sim_papers[]; /* ends with NULL */

/* --- what a paper's table looks like: report.c ------------------------------------------------ */

void sim_report_print(const struct sim_report *report, FILE *out);
void sim_report_csv(const struct sim_report *report, char letter, FILE *out);
/* Rows that miss their bound. */
size_t sim_report_bad(const struct sim_report *report);
/* At most half of the points may have been fitted on. */
bool sim_report_fair(const struct sim_report *report, size_t *ret_fit, size_t *ret_points);

/* --- fitting: fit.c --------------------------------------------------------------------------- */

/*
 * Moves the scenario's [fitted] values, within their ranges, until the misfit of the SIM_FIT rows
 * is least: a pattern search, the same each time, from the values given; a value whose source
 * begins with "from 2 us;" (in the value's unit) begins there. log, if not NULL, gets a line per
 * improvement.
 *
 * A point's misfit is its squared relative error. A range's is the fourth power of the distance
 * from its middle, in halves of its width: anywhere inside is nearly as good, and near its ends it
 * grows steeply.
 */
#define SIM_FIT_FORMAT "%.4g" /* of fitted values, in files and logs */
int sim_fit(const struct sim_paper *paper, struct sim_scenario *scenario, FILE *log,
            struct via_error *err) VIA_MUST_CHECK;

/* --- which parameter moves which figure: sensitivity.c ---------------------------------------- */

/* Prints a table: every value of the scenario but the chosen ones, a tenth more, one at a time. */
int sim_sensitivity(const struct sim_paper *paper, struct sim_scenario *scenario, FILE *out,
                    struct via_error *err) VIA_MUST_CHECK;

#endif
