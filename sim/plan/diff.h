/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* What is other in one plan than in another one, of files that --json has written. */
#ifndef SIM_PLAN_DIFF_H
#define SIM_PLAN_DIFF_H

#include <stdio.h>

#include "sim/plan/json.h"

#define PLAN_DIFF_ROWS_MAX 32u

/* Of a plan, what is compared. Numbers that a plan does not know are NAN. */
struct plan_summary {
    const char *topology, *pattern, *card, *cable, *chip, *board, *engine; /* of the JSON text */
    double hosts, bytes, channels, cards, cables, cords, switches, lanes, longest;
    double bisection, port, bound;
    unsigned rows_count;
    struct plan_summary_row {
        double load, offered, host, p50, p99;
        const char *limit;
    } rows[PLAN_DIFF_ROWS_MAX];
};

/* -EINVAL with "name: cause" when it is no plan. The summary borrows the JSON. */
int plan_summary_read(const char *name, const struct plan_json *json, struct plan_summary *ret,
                      struct via_error *err) VIA_MUST_CHECK;

/* A table of both, with the change in percent. */
void plan_diff_print(const struct plan_summary *old, const struct plan_summary *now, FILE *out);

/* The same of two files. 0, or -errno and the cause. */
int plan_diff_files(const char *old, const char *now, FILE *out,
                    struct via_error *err) VIA_MUST_CHECK;

#endif
