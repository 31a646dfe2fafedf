/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A plan: what was asked for, what it takes, and what was measured at each load. */
#ifndef SIM_PLAN_REPORT_H
#define SIM_PLAN_REPORT_H

#include <stdio.h>

#include "sim/plan/choice.h"
#include "sim/plan/traffic.h"

#define PLAN_LOADS_MAX 16u

struct plan_row {
    double
        load; /* offered, of what a port carries; of the row that sends all it can: what it got */
    struct plan_measured measured;
};

struct plan_report {
    const struct plan_shape *shape;
    const struct plan_parts *parts;
    const struct plan_wiring *wiring; /* borrowed: what it is made of */
    struct plan_run run;              /* rate and events_max of any row */
    unsigned channels_count;
    unsigned cards_count, cards_per_host, cables_count, cords_per_cable, switches_count;
    unsigned bisection_cables, diameter;
    double port_rate, cable_rate; /* payload, one way */
    double bound;                 /* of what a host sends, by the cables alone; NAN: none */
    float *links_busy;            /* owned by the plan; of the first row if that is saturated, or of
                                   * the last: [2 x link + way], 0 to 1 */
    struct plan_choice choice;
    bool saturated; /* the first row is of hosts that send all they can */
    unsigned rows_count;
    struct plan_row rows[PLAN_LOADS_MAX + 1];
};

/* As JSON: tools/sim-plan makes tables, pages and pictures of that. -1: not written. */
int plan_report_write(const struct plan_report *report, FILE *out) VIA_MUST_CHECK;

#endif
