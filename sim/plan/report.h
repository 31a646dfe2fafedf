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
    unsigned notes_count;
    char notes[4][160];
};

void plan_report_note(struct plan_report *report, const char *format, ...) VIA_PRINTF(2, 3);
/* What sets the limit in a row: "link a > b, 99 % busy". */
void plan_report_limit(const struct plan_measured *measured, char *ret, size_t bytes);

void plan_report_print(const struct plan_report *report, FILE *out);
void plan_report_csv(const struct plan_report *report, FILE *out);
void plan_report_json(const struct plan_report *report, FILE *out);
/* One page without anything beside it: bill, pictures of the fabric and of latency by load. */
void plan_report_html(const struct plan_report *report, FILE *out);
/* "4 KiB", "12.30 us". */
void plan_report_bytes(char *ret, size_t bytes, uint64_t value);
void plan_report_time(char *ret, size_t bytes, double ps);
/* Series as those of papers, for the script that draws them. */
void plan_report_series(const struct plan_report *report, FILE *out);

#endif
