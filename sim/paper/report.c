/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Rows of a paper, and the tables made of them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "sim/memory.h"
#include "sim/paper/paper.h"

static const char *const role_names[] = {"judged", "fitted", "predicted", "quoted"};

void sim_report_init(struct sim_report *report)
{
    *report = (struct sim_report){.misfit_max = INFINITY};
}

void sim_report_fini(struct sim_report *report)
{
    free(report->rows);
    report->rows = NULL;
}

static bool has_bound(const struct sim_row *row)
{
    return row->role == SIM_JUDGED || row->role == SIM_FIT;
}

static double misfit(const struct sim_row *row)
{
    double error = row->range ? (row->model - row->paper) / ((row->high - row->low) / 2)
                              : row->model / row->paper - 1;
    return row->range ? error * error * error * error : error * error;
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
    report->misfit += row->role == SIM_FIT ? misfit(row) : 0;
}

void sim_report_within(struct sim_report *report, const struct sim_row *row, double bound)
{
    struct sim_row bounded = *row;
    bounded.low = row->paper * (1 - bound);
    bounded.high = row->paper * (1 + bound);
    sim_report_add(report, &bounded);
}

bool sim_report_wants(const struct sim_report *report, enum sim_role role)
{
    bool bounded = report->bounded || report->brief;
    return role == SIM_FIT || (!report->fitting && (!bounded || role == SIM_JUDGED));
}

bool sim_report_is_hopeless(const struct sim_report *report)
{
    return report->fitting && report->misfit > report->misfit_max;
}

bool sim_row_good(const struct sim_row *row)
{
    return !has_bound(row) || (row->model >= row->low && row->model <= row->high);
}

size_t sim_report_bad(const struct sim_report *report)
{
    size_t bad = 0;
    for (size_t i = 0; i < report->count; i++) {
        bad += sim_row_good(&report->rows[i]) ? 0 : 1;
    }
    return bad;
}

bool sim_report_fair(const struct sim_report *report, size_t *ret_fit, size_t *ret_points)
{
    *ret_fit = 0;
    *ret_points = 0;
    for (size_t i = 0; i < report->count; i++) {
        *ret_fit += report->rows[i].role == SIM_FIT ? 1 : 0;
        *ret_points += has_bound(&report->rows[i]) ? 1 : 0;
    }
    return *ret_fit * 2 <= *ret_points;
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
            sim_row_good(row) ? "" : " OUTSIDE");
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
    fputs("system,series,label,x_unit,unit,role,good,range,x,paper,low,high,model,error_percent\n",
          out);
    for (size_t i = 0; i < report->count; i++) {
        const struct sim_row *row = &report->rows[i];
        bool range = row->range || (has_bound(row) && isnan(row->paper));
        fprintf(out, "%c,\"%s\",\"%s\",%s,%s,%s,%s,%s,", letter, row->series, row->label,
                row->x_unit, row->unit, role_names[row->role], sim_row_good(row) ? "yes" : "no",
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
