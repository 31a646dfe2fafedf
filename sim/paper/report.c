/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Rows of a paper, and the tables made of them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "progress/progress.h"
#include "sim/memory.h"
#include "sim/paper/paper.h"

static const char *const role_names[] = {"held out", "fitted", "predicted", "quoted"};

void sim_report_init(struct sim_report *report)
{
    *report = (struct sim_report){0};
}

void sim_report_fini(struct sim_report *report)
{
    free(report->rows);
    report->rows = NULL;
}

void sim_report_step(struct sim_report *report, unsigned steps)
{
    report->steps += steps;
    if (report->progress != NULL) {
        via_progress_step(report->progress, report->steps_before + report->steps);
    }
}

static bool has_bound(const struct sim_row *row)
{
    return row->role == SIM_HELD || row->role == SIM_FIT;
}

void sim_report_add(struct sim_report *report, const struct sim_row *row)
{
    if (report->bounded && !has_bound(row)) {
        return;
    }
    if (report->count == report->capacity) {
        report->capacity = via_max(report->capacity * 2, (size_t)64);
        report->rows = sim_realloc(report->rows, report->capacity * sizeof(*report->rows));
    }
    report->rows[report->count++] = *row;
}

void sim_report_within(struct sim_report *report, const struct sim_row *row, double bound)
{
    struct sim_row bounded = *row;
    bounded.low = row->paper * (1 - bound);
    bounded.high = row->paper * (1 + bound);
    sim_report_add(report, &bounded);
}

bool sim_report_is_wanted(const struct sim_report *report, enum sim_role role)
{
    return role == SIM_FIT || (!report->fitting && (!report->bounded || role == SIM_HELD));
}

bool sim_row_is_fitting(const struct sim_row *row)
{
    return !has_bound(row) || (row->model >= row->low && row->model <= row->high);
}

struct sim_report_counts sim_report_count(const struct sim_report *report)
{
    struct sim_report_counts counts = {0};
    for (size_t i = 0; i < report->count; i++) {
        const struct sim_row *row = &report->rows[i];
        size_t outside = sim_row_is_fitting(row) ? 0 : 1;
        counts.fitted += row->role == SIM_FIT ? 1 : 0;
        counts.fitted_outside += row->role == SIM_FIT ? outside : 0;
        counts.held += row->role == SIM_HELD ? 1 : 0;
        counts.held_outside += row->role == SIM_HELD ? outside : 0;
        counts.claims += row->claim ? 1 : 0;
        counts.broken += row->claim ? outside : 0;
    }
    return counts;
}

static void number(char *text, size_t bytes, double value)
{
    if (isnan(value)) {
        snprintf(text, bytes, "-");
    } else {
        snprintf(text, bytes,
                 fabs(value) >= 1000  ? "%.0f"
                 : fabs(value) >= 100 ? "%.1f"
                                      : "%.4g",
                 value);
    }
}

static void bound_text(char *text, size_t bytes, const struct sim_row *row)
{
    char low[32], high[32];
    number(low, sizeof(low), row->low);
    number(high, sizeof(high), row->high);
    if (!has_bound(row)) {
        text[0] = '\0';
    } else if (isinf(row->high)) {
        snprintf(text, bytes, ">= %s", low);
    } else if (isinf(row->low)) {
        snprintf(text, bytes, "<= %s", high);
    } else {
        snprintf(text, bytes, "%s..%s", low, high);
    }
}

static double error_percent(const struct sim_row *row)
{
    return isnan(row->paper) || isnan(row->model) || row->paper == 0
               ? NAN
               : (row->model / row->paper - 1) * 100;
}

static void print_row(const struct sim_row *row, FILE *out)
{
    char x[32], paper[32], model[32], error[32] = "", bound[72];
    number(x, sizeof(x), row->x);
    number(paper, sizeof(paper), row->paper);
    number(model, sizeof(model), row->model);
    bound_text(bound, sizeof(bound), row);
    if (!isnan(error_percent(row))) {
        snprintf(error, sizeof(error), "%+.2f%%", error_percent(row));
    }
    fprintf(out, "%-20s %10s %-7s %9s %9s %-6s %8s  %-16s %-9s%s\n", row->label, x, row->x_unit,
            paper, model, row->unit, error, bound, role_names[row->role],
            sim_row_is_fitting(row) ? (row->claim ? " claim" : "")
            : row->claim            ? " CLAIM BROKEN"
                                    : " does not fit");
}

/* One line for each series with figures outside their bounds, the first of them as an example. */
void sim_report_print_misfits(const struct sim_report *report, FILE *out)
{
    for (size_t first = 0, end; first < report->count; first = end) {
        const struct sim_row *example = NULL;
        size_t misfits = 0;
        for (end = first; end < report->count &&
                          strcmp(report->rows[end].series, report->rows[first].series) == 0;
             end++) {
            if (!sim_row_is_fitting(&report->rows[end])) {
                example = example == NULL ? &report->rows[end] : example;
                misfits++;
            }
        }
        if (misfits > 0) {
            char model[32], bound[72];
            number(model, sizeof(model), example->model);
            bound_text(bound, sizeof(bound), example);
            fprintf(out, "  does not fit: %s: %zu of %zu; %s: %s %s, not %s\n", example->series,
                    misfits, end - first, example->label, model, example->unit, bound);
        }
    }
}

void sim_report_print(const struct sim_report *report, FILE *out)
{
    const char *series = "";
    for (size_t i = 0; i < report->count; i++) {
        const struct sim_row *row = &report->rows[i];
        if (strcmp(row->series, series) != 0) {
            series = row->series;
            fprintf(out, "\n%s\n%-20s %10s %-7s %9s %9s %-6s %8s  %-16s\n", series, "", "", "",
                    "paper", "model", "", "error", "bound");
        }
        print_row(row, out);
    }
    fputc('\n', out);
}

static void csv_number(double value, FILE *out)
{
    if (isnan(value)) {
        fputc(',', out);
    } else {
        fprintf(out, "%.9g,", value);
    }
}

void sim_report_csv(const struct sim_report *report, char letter, FILE *out)
{
    fputs("system,series,label,x_unit,unit,role,fits,claim,range,x,paper,low,high,model,error_"
          "percent\n",
          out);
    for (size_t i = 0; i < report->count; i++) {
        const struct sim_row *row = &report->rows[i];
        bool range = row->range || (has_bound(row) && isnan(row->paper));
        fprintf(out, "%c,\"%s\",\"%s\",%s,%s,%s,%s,%s,%s,", letter, row->series, row->label,
                row->x_unit, row->unit, role_names[row->role],
                sim_row_is_fitting(row) ? "yes" : "no", row->claim ? "yes" : "no",
                range ? "yes" : "no");
        csv_number(row->x, out);
        csv_number(row->paper, out);
        csv_number(has_bound(row) ? row->low : NAN, out);
        csv_number(has_bound(row) ? row->high : NAN, out);
        csv_number(row->model, out);
        double error = error_percent(row);
        fprintf(out, isnan(error) ? "\n" : "%.4f\n", error);
    }
}
