/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * What "viaduct-sim model" answers for tools/sim-plan: a fabric of parts, and a run on it. The
 * script (tools/sim_fabric.py) reads the options, checks that the parts fit, counts them, and
 * starts a run for each load.
 */
#include "sim/plan/requests.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "sim/memory.h"
#include "sim/paper/model.h"
#include "sim/plan/choice.h"
#include "sim/plan/nodes.h"
#include "sim/plan/traffic.h"

#define BYTES_MAX (UINT64_C(1) << 30)
#define EVENTS_MAX UINT64_C(100000000000)

struct sim_model_plan {
    struct plan_shape shape;
    struct plan_parts parts;
    struct plan_costs costs;
};

/* --- a fabric --------------------------------------------------------------------------------- */

/* Reads "8,8": from 0 to max numbers, each from min on. */
static int read_list(char *text, unsigned min, unsigned max, unsigned *ret, unsigned *ret_count,
                     struct via_error *err)
{
    char *word;
    *ret_count = 0;
    while (text != NULL && text[0] != '\0') {
        char *end;
        word = strsep(&text, ",");
        unsigned long number = strtoul(word, &end, 10);
        if (end == word || *end != '\0' || number < min || number >= PLAN_HOSTS_MAX * 2 ||
            *ret_count == max) {
            return via_error_set(err, -EINVAL, "%s: not in such a list", word);
        }
        ret[(*ret_count)++] = (unsigned)number;
    }
    return 0;
}

/* "torus" and its sizes, or "tree" and the switches' children and parents, level by level. */
static int read_shape(struct plan_shape *shape, char **words, struct via_error *err)
{
    unsigned cuts[2 * PLAN_CUTS_MAX], cuts_count, parents_count;
    int rc;
    snprintf(shape->name, sizeof(shape->name), "%s", words[0]);
    if (strcmp(words[1], "tree") == 0) {
        shape->kind = PLAN_TREE;
        rc =
            read_list(words[2], 1, PLAN_LEVELS_MAX, &shape->children[1], &shape->levels_count, err);
        rc = rc == 0
                 ? read_list(words[3], 1, PLAN_LEVELS_MAX, &shape->parents[1], &parents_count, err)
                 : rc;
    } else {
        rc = read_list(words[2], 2, PLAN_DIMENSIONS_MAX, shape->sizes, &shape->dimensions_count,
                       err);
    }
    rc = rc == 0 ? read_list(words[4], 0, VIA_ARRAY_COUNT(cuts), cuts, &cuts_count, err) : rc;
    for (unsigned i = 0; rc == 0 && i + 1 < cuts_count; i += 2) {
        shape->cuts[shape->cuts_count++] =
            (struct plan_pair){(uint16_t)cuts[i], (uint16_t)cuts[i + 1]};
    }
    if (rc == 0) {
        plan_shape_route(shape);
    }
    return rc;
}

/*
 * Name and shape, cuts, card, cable, switch; hosts, channels, bytes of a message: links of the
 * longest route, bytes per second of a port and of a cable; if there is an engine, the figures of
 * plan_choice_make().
 */
static int fabric(struct sim_model *model, char **words, const uint64_t *n, struct via_error *err)
{
    model->plan = model->plan != NULL ? model->plan : sim_alloc(sizeof(*model->plan));
    struct sim_model_plan *plan = model->plan;
    struct sim_cost cost;
    struct plan_wiring wiring;
    plan_shape_fini(&plan->shape);
    plan->shape = (struct plan_shape){.hosts_count = (unsigned)n[0]};
    snprintf(plan->parts.card, sizeof(plan->parts.card), "%s", words[5]);
    snprintf(plan->parts.cable, sizeof(plan->parts.cable), "%s", words[6]);
    snprintf(plan->parts.chip, sizeof(plan->parts.chip), "%s", words[7]);
    plan_costs_read(&plan->costs, &model->scenario);
    plan->costs.channels_count = (unsigned)n[1];
    int rc = read_shape(&plan->shape, words, err);
    if (rc != 0) {
        return rc;
    }
    sim_cost_init(&cost);
    plan_wiring_init(&wiring, &plan->shape, &cost, &model->scenario, &plan->parts);
    uint64_t body = via_min(n[2], plan->costs.frame_bytes);
    struct plan_choice choice;
    printf("%u %.17g %.17g", plan_shape_diameter(&plan->shape),
           plan_wiring_port_rate(&wiring, body, PLAN_RECORD_BYTES),
           plan_wiring_cable_rate(&wiring, body, PLAN_RECORD_BYTES));
    if (plan_choice_make(&wiring, &plan->costs, &model->scenario, body, &choice)) {
        printf(" %.17g %.17g %.17g %.17g %.17g %.17g", (double)choice.quicker_bytes,
               choice.stores_ps, choice.engine_ps, choice.stores_busy_ps, choice.engine_busy_ps,
               choice.engine_rate);
    }
    plan_wiring_fini(&wiring);
    sim_cost_fini(&cost);
    return 0;
}

/* --- a run ------------------------------------------------------------------------------------ */

static void print_step(void *object, uint64_t done)
{
    (void)object;
    printf("%% %llu\n", (unsigned long long)done);
    fflush(stdout);
}

/* Node, node, busy share there and back, of each. */
static void print_cables(const struct plan_wiring *wiring, const float *links_busy)
{
    for (unsigned i = 0; i < wiring->net.links_count; i++) {
        unsigned a = plan_wiring_end(wiring, i, false);
        unsigned b = plan_wiring_end(wiring, i, true);
        if (a != b) {
            printf(" %u %u %.17g %.17g", a, b, (double)links_busy[2 * i],
                   (double)links_busy[2 * i + 1]);
        }
    }
}

static void print_measured(const struct plan_measured *measured)
{
    printf("%.17g %.17g %.17g %.17g %.17g %.17g %.17g %.17g %.17g %d %llu %llu %llu %llu",
           measured->offered, measured->got, measured->total, measured->seconds, measured->drift,
           plan_measured_latency(measured, 50), plan_measured_latency(measured, 90),
           plan_measured_latency(measured, 99),
           measured->at_rest ? (double)measured->times.max_ps : NAN, measured->at_rest,
           (unsigned long long)measured->messages_count,
           (unsigned long long)measured->refused_count, (unsigned long long)measured->stuck_count,
           (unsigned long long)measured->events_count);
    for (unsigned i = 0; i < PLAN_RESOURCES; i++) {
        printf(" %.17g %.17g", measured->busy[i].share, measured->busy[i].work);
    }
}

/*
 * Pattern, bytes per second of each sender (0: full speed); bytes of a message, messages under way,
 * events, seed, 1 for --core, 1 for the cables: print_measured(), print_cables(), and after tabs
 * the busiest resources. Before the answer there are lines of "%" and the number of events so far.
 */
static int run(struct sim_model *model, char **words, const uint64_t *n, struct via_error *err)
{
    struct plan_run run = {.bytes = n[0],
                           .rate = strtod(words[1], NULL),
                           .under_way = (unsigned)n[1],
                           .events_max = n[2],
                           .seed = n[3],
                           .core = n[4] != 0,
                           .step = print_step};
    struct sim_model_plan *plan = model->plan;
    struct sim_cost cost;
    struct plan_wiring wiring;
    if (plan == NULL || plan_pattern_parse(words[0], &run.pattern) != 0) {
        return via_error_set(err, -EINVAL, "%s: of which fabric, or which pattern?", words[0]);
    }
    sim_cost_init(&cost);
    plan_wiring_init(&wiring, &plan->shape, &cost, &model->scenario, &plan->parts);
    struct plan_measured *measured = sim_alloc(sizeof(*measured));
    float *links_busy = sim_alloc(2 * wiring.net.links_count * sizeof(*links_busy));
    run.links_busy = links_busy;
    plan_run(&run, &cost, &plan->costs, &plan->shape, &wiring, measured);
    print_measured(measured);
    if (n[5] != 0) {
        print_cables(&wiring, links_busy);
    }
    for (unsigned i = 0; i < PLAN_RESOURCES; i++) {
        printf("\t%s", measured->busy[i].name);
    }
    free(links_busy);
    free(measured);
    plan_wiring_fini(&wiring);
    sim_cost_fini(&cost);
    return 0;
}

static const struct sim_model_request requests[] = {
    {"fabric",
     SIM_MODEL_PLAN,
     8,
     fabric,
     3,
     {{2, PLAN_HOSTS_MAX}, {1, PLAN_CHANNELS_MAX}, {1, BYTES_MAX}}},
    {"run",
     SIM_MODEL_PLAN,
     2,
     run,
     6,
     {{1, BYTES_MAX}, {1, 256}, {1, EVENTS_MAX}, {0, INT64_MAX}, {0, 1}, {0, 1}}},
};

static void end(struct sim_model *model)
{
    if (model->plan != NULL) {
        plan_shape_fini(&model->plan->shape);
        free(model->plan);
    }
}

const struct sim_model_more sim_plan_more = {
    .requests = requests,
    .requests_count = VIA_ARRAY_COUNT(requests),
    .end = end,
};
