/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A plan: the request, the parts it needs, and the results for each load. */
#ifndef SIM_PLAN_REPORT_H
#define SIM_PLAN_REPORT_H

#include <stdio.h>

#include "sim/plan/choice.h"
#include "sim/plan/traffic.h"

#define PLAN_LOADS_MAX 16u

struct plan_row {
    double rate; /* bytes per second that each host is given to send; 0: full speed */
    double load; /* offered load, as a share of a port's capacity; in the saturated row, the
                    achieved one */
    struct plan_measured measured;
};

struct plan_report {
    const struct plan_shape *shape;
    const struct plan_parts *parts;
    const struct plan_wiring *wiring; /* borrowed: the hardware */
    struct plan_run run;              /* the largest rate and events_max of all rows */
    unsigned channels_count;
    unsigned cards_count, cards_per_host, cables_count, cords_per_cable, switches_count;
    unsigned bisection_cables, diameter;
    double port_rate, cable_rate; /* payload, one way */
    double bound;                 /* limit per host by the cables alone; NAN: none */
    float *links_busy; /* owned by the plan; of the first row if it is saturated, or of the last: [2
                          x link + way], 0 to 1 */
    struct plan_choice choice;
    bool saturated; /* in the first row hosts send at full speed */
    unsigned rows_count;
    struct plan_row rows[PLAN_LOADS_MAX + 1];
};

/* Writes it as JSON: tools/sim-plan makes tables, pages and pictures of it. -1: not written. */
int plan_report_write(const struct plan_report *report, FILE *out) VIA_MUST_CHECK;

#endif
