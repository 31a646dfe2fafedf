/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* How much each parameter moves each figure: one at a time, a tenth more, the rest as it is. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/types.h"
#include "sim/paper/paper.h"

#define STEP 0.1
#define SERIES_MAX 16u
#define ROWS_MAX 512u

/* The figures that have a bound, in the order of the report, which is always the same. */
struct figures {
    size_t series_count, count;
    const char *series[SERIES_MAX];
    double sum[SERIES_MAX];
    size_t points[SERIES_MAX];
    double model[ROWS_MAX];
    size_t series_of[ROWS_MAX];
};

static size_t find_series(struct figures *figures, const char *series)
{
    for (size_t i = 0; i < figures->series_count; i++) {
        if (strcmp(figures->series[i], series) == 0) {
            return i;
        }
    }
    if (figures->series_count < SERIES_MAX) {
        figures->series[figures->series_count++] = series;
    }
    return figures->series_count - 1;
}

static int measure(const struct sim_paper *paper, const struct sim_scenario *scenario,
                   struct figures *ret, struct via_error *err)
{
    struct sim_report report;
    sim_report_init(&report);
    report.brief = true;
    *ret = (struct figures){0};
    int rc = paper->run(scenario, &report, err);
    for (size_t i = 0; rc == 0 && i < report.count && ret->count < ROWS_MAX; i++) {
        const struct sim_row *row = &report.rows[i];
        if (row->role == SIM_JUDGED || row->role == SIM_FIT) {
            size_t series = find_series(ret, row->series);
            ret->series_of[ret->count] = series;
            ret->model[ret->count++] = row->model;
            ret->sum[series] += row->model;
            ret->points[series]++;
        }
    }
    sim_report_fini(&report);
    return rc;
}

/* A tenth more; where that is not allowed, less. False when there is no other value. */
static bool move(struct sim_value *value)
{
    const struct sim_key *key = value->key;
    bool whole = key->dimension == SIM_COUNT || key->dimension == SIM_BYTES;
    double before = value->number;
    double by = whole ? fmax(1, round(before * STEP)) : before * STEP;
    if (value->unit_factor <= 0 || value->mark == SIM_CHOSEN || by <= 0) {
        return false;
    }
    value->number = before + by <= key->max ? before + by : before - by;
    if (value->number < key->min) {
        value->number = before;
    }
    return value->number != before;
}

/* The mean of the relative changes of a series' figures: each counts the same. */
static void print_changes(const struct figures *base, const struct figures *moved, FILE *out)
{
    double change[SERIES_MAX] = {0};
    for (size_t i = 0; i < base->count && i < moved->count; i++) {
        change[base->series_of[i]] += moved->model[i] / base->model[i] - 1;
    }
    for (size_t i = 0; i < base->series_count; i++) {
        fprintf(out, " %+8.1f%%", change[i] / (double)base->points[i] * 100);
    }
    fputc('\n', out);
}

int sim_sensitivity(const struct sim_paper *paper, struct sim_scenario *scenario, FILE *out,
                    struct via_error *err)
{
    struct figures base, moved;
    int rc = measure(paper, scenario, &base, err);
    if (rc != 0) {
        return rc;
    }
    fprintf(out, "\nWhat a tenth more of a parameter does to the figures of:\n");
    for (size_t i = 0; i < base.series_count; i++) {
        fprintf(out, "  [%zu] %s, %.5g in the mean\n", i + 1, base.series[i],
                base.sum[i] / (double)base.points[i]);
    }
    fprintf(out, "\n%-36s %-8s", "", "");
    for (size_t i = 0; i < base.series_count; i++) {
        fprintf(out, "      [%zu]", i + 1);
    }
    fputc('\n', out);
    for (size_t i = 0; i < scenario->values_count; i++) {
        struct sim_value *value = &scenario->values[i];
        const struct sim_part *part = &scenario->parts[value->part];
        double before = value->number;
        char name[96];
        if (!move(value)) {
            continue;
        }
        snprintf(name, sizeof(name), "%s%s%s %s%s", part->section->name,
                 part->instance[0] != '\0' ? " " : "", part->instance, value->key->name,
                 value->number < before ? " (less)" : "");
        fprintf(out, "%-36s %-8s", name, sim_mark_name(value->mark));
        struct via_error refused = {0};
        if (measure(paper, scenario, &moved, &refused) == 0) {
            print_changes(&base, &moved, out);
        } else {
            fputs(" cannot be that\n", out);
        }
        fflush(out);
        value->number = before;
    }
    return 0;
}
