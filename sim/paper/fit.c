/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The least misfit by pattern search (Hooke and Jeeves, 1961): it needs no derivatives, which
 * models with queues and polls do not have. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "sim/memory.h"
#include "sim/paper/paper.h"

#define STEP_FIRST 0.25
#define STEP_LAST 0.005
#define ENOUGH 0.99 /* of the least misfit so far: what is not that good is noise */
#define EVALUATIONS_MAX 2000u
#define PARAMETERS_MAX 16u

struct fit {
    const struct sim_paper *paper;
    struct sim_scenario *scenario;
    struct via_error *err;
    unsigned evaluations;
};

/* The misfit; INFINITY when the scenario cannot be run so. Of what is worse than `enough`, only
 * that it is. */
static double evaluate(struct fit *fit, double enough)
{
    struct sim_report report;
    sim_report_init(&report);
    report.fitting = true;
    report.misfit_max = enough;
    fit->evaluations++;
    bool runs = fit->paper->run(fit->scenario, &report, fit->err) == 0;
    double misfit = runs && report.count > 0 ? report.misfit : INFINITY;
    sim_report_fini(&report);
    return misfit;
}

/* Rounded to what is written into files, so that these give the same figures. */
static void set(struct sim_value *value, double number)
{
    const struct sim_key *key = value->key;
    char text[32];
    if (key->dimension == SIM_COUNT || key->dimension == SIM_BYTES) {
        number = round(number);
    }
    snprintf(text, sizeof(text), SIM_FIT_FORMAT, number / value->unit_factor);
    value->number = fmin(fmax(strtod(text, NULL) * value->unit_factor, key->min), key->max);
}

/* One parameter a step up or down, whichever is better; *best is the least misfit so far. */
static bool improve(struct fit *fit, struct sim_value *value, double step, double *best)
{
    double before = value->number;
    bool whole = value->key->dimension == SIM_COUNT || value->key->dimension == SIM_BYTES;
    double by = fmax(before * step, whole ? 1 : value->unit_factor * step * 0.01);
    for (int sign = 1; sign >= -1; sign -= 2) {
        set(value, before + sign * by);
        double enough = *best * ENOUGH;
        double misfit = value->number != before ? evaluate(fit, enough) : INFINITY;
        if (misfit < enough) {
            *best = misfit;
            return true;
        }
        value->number = before;
    }
    return false;
}

/* As far again the way that all have gone since `before`, which is moved up to where they were. */
static bool go_on(struct fit *fit, struct sim_value *const *values, size_t count, double *before,
                  double *best)
{
    double here[PARAMETERS_MAX];
    for (size_t i = 0; i < count; i++) {
        here[i] = values[i]->number;
        set(values[i], here[i] > 0 && before[i] > 0 ? here[i] * (here[i] / before[i]) : here[i]);
    }
    double misfit = evaluate(fit, *best * ENOUGH);
    bool better = misfit < *best * ENOUGH;
    for (size_t i = 0; i < count; i++) {
        before[i] = here[i];
        values[i]->number = better ? values[i]->number : here[i];
    }
    *best = better ? misfit : *best;
    return better;
}

static void log_state(FILE *log, struct sim_value *const *values, size_t count, double best,
                      double step)
{
    if (log == NULL) {
        return;
    }
    fprintf(log, "misfit %.6f, step %5.2f%%:", best, step * 100);
    for (size_t i = 0; i < count; i++) {
        fprintf(log, " %s " SIM_FIT_FORMAT " %s", values[i]->key->name,
                values[i]->number / values[i]->unit_factor, values[i]->unit);
    }
    fputc('\n', log);
    fflush(log);
}

/* Where the search begins: "from 2 us;" at the head of the source, or what the value is. */
static int begin_at(const struct sim_scenario *scenario, struct sim_value *value,
                    struct via_error *err)
{
    const struct sim_part *part = &scenario->parts[value->part];
    double number;
    char unit[sizeof(value->unit)];
    if (strncmp(value->source, "from ", 5) != 0) {
        return 0;
    }
    if (sscanf(value->source + 5, "%lf %15[^; ];", &number, unit) != 2 ||
        strcmp(unit, value->unit) != 0) {
        return via_error_set(
            err, -EINVAL, "%.200s:%u: [%s%s%s] %s: expected \"from NUMBER %s;\" before the source",
            scenario->name, value->line, part->section->name, part->instance[0] != '\0' ? " " : "",
            part->instance, value->key->name, value->unit);
    }
    set(value, number * value->unit_factor);
    return 0;
}

int sim_fit(const struct sim_paper *paper, struct sim_scenario *scenario, FILE *log,
            struct via_error *err)
{
    struct sim_value *values[PARAMETERS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < scenario->values_count && count < PARAMETERS_MAX; i++) {
        if (scenario->values[i].mark == SIM_FITTED && scenario->values[i].unit_factor > 0) {
            values[count++] = &scenario->values[i];
            int rc = begin_at(scenario, &scenario->values[i], err);
            if (rc != 0) {
                return rc;
            }
        }
    }
    struct fit fit = {.paper = paper, .scenario = scenario, .err = err};
    double best = evaluate(&fit, INFINITY);
    if (count == 0 || isinf(best)) {
        return isinf(best) && err->code != 0
                   ? err->code
                   : via_error_set(err, -EINVAL, "%s: fit: no [fitted] value or no point to fit on",
                                   scenario->name);
    }
    double step = STEP_FIRST;
    log_state(log, values, count, best, step);
    while (step > STEP_LAST && fit.evaluations < EVALUATIONS_MAX) {
        double before[PARAMETERS_MAX];
        bool better = false;
        for (size_t i = 0; i < count; i++) {
            before[i] = values[i]->number;
            better |= improve(&fit, values[i], step, &best);
        }
        while (better && go_on(&fit, values, count, before, &best)) {
        }
        if (better) {
            log_state(log, values, count, best, step);
        } else {
            step /= 2;
        }
    }
    return 0;
}
