/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Least squares by pattern search (Hooke and Jeeves, 1961): it needs no derivatives, which models
 * with queues and polls do not have. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/types.h"
#include "sim/memory.h"
#include "sim/paper/paper.h"

#define STEP_FIRST 0.25
#define STEP_LAST 0.0005
#define EVALUATIONS_MAX 2000u
#define PARAMETERS_MAX 16u

struct fit {
    const struct sim_paper *paper;
    struct sim_scenario *scenario;
    struct via_error *err;
    unsigned evaluations;
};

/* The sum; INFINITY when the scenario cannot be run so. */
static double evaluate(struct fit *fit)
{
    struct sim_report report;
    sim_report_init(&report);
    report.fitting = true;
    fit->evaluations++;
    double sum = 0;
    size_t points = 0;
    if (fit->paper->run(fit->scenario, &report, fit->err) != 0) {
        sum = INFINITY;
    }
    for (size_t i = 0; i < report.count; i++) {
        const struct sim_row *row = &report.rows[i];
        if (row->role == SIM_FIT) {
            double error = row->model / row->paper - 1;
            sum += error * error;
            points++;
        }
    }
    sim_report_fini(&report);
    return points > 0 ? sum : INFINITY;
}

static void set(struct sim_value *value, double number)
{
    const struct sim_key *key = value->key;
    if (key->dimension == SIM_COUNT || key->dimension == SIM_BYTES) {
        number = round(number);
    }
    value->number = fmin(fmax(number, key->min), key->max);
}

/* One parameter a step up or down, whichever is better; *best is the least sum so far. */
static bool improve(struct fit *fit, struct sim_value *value, double step, double *best)
{
    double before = value->number;
    bool whole = value->key->dimension == SIM_COUNT || value->key->dimension == SIM_BYTES;
    double by = fmax(before * step, whole ? 1 : value->unit_factor * step * 0.01);
    for (int sign = 1; sign >= -1; sign -= 2) {
        set(value, before + sign * by);
        double sum = value->number != before ? evaluate(fit) : INFINITY;
        if (sum < *best) {
            *best = sum;
            return true;
        }
        value->number = before;
    }
    return false;
}

static void log_state(FILE *log, struct sim_value *const *values, size_t count, double best,
                      double step)
{
    if (log == NULL) {
        return;
    }
    fprintf(log, "sum %.6f, step %5.2f%%:", best, step * 100);
    for (size_t i = 0; i < count; i++) {
        fprintf(log, " %s %.5g %s", values[i]->key->name,
                values[i]->number / values[i]->unit_factor, values[i]->unit);
    }
    fputc('\n', log);
}

int sim_fit(const struct sim_paper *paper, struct sim_scenario *scenario, FILE *log,
            struct via_error *err)
{
    struct sim_value *values[PARAMETERS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < scenario->values_count && count < PARAMETERS_MAX; i++) {
        if (scenario->values[i].mark == SIM_FITTED && scenario->values[i].unit_factor > 0) {
            values[count++] = &scenario->values[i];
        }
    }
    struct fit fit = {.paper = paper, .scenario = scenario, .err = err};
    double best = evaluate(&fit);
    if (count == 0 || isinf(best)) {
        return isinf(best) && err->code != 0
                   ? err->code
                   : via_error_set(err, -EINVAL, "%s: fit: no [fitted] value or no point to fit on",
                                   scenario->name);
    }
    double step = STEP_FIRST;
    log_state(log, values, count, best, step);
    while (step > STEP_LAST && fit.evaluations < EVALUATIONS_MAX) {
        bool better = false;
        for (size_t i = 0; i < count; i++) {
            better |= improve(&fit, values[i], step, &best);
        }
        if (better) {
            log_state(log, values, count, best, step);
        } else {
            step /= 2;
        }
    }
    return 0;
}
