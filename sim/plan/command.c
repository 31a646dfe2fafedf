/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* "viaduct-sim plan-json": reads the options that describe the fabric, plans, prints JSON. */
#include "sim/plan/command.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "host/host_spin.h"
#include "progress/progress.h"
#include "sim/cost/dma.h"
#include "sim/cost/pio.h"
#include "sim/memory.h"
#include "sim/plan/nodes.h"
#include "sim/plan/report.h"
#include "sim/script/script.h"

#define DEFAULT_SIZE 32768u
/* Enough for fabrics to reach their steady state before measuring begins. */
#define EVENTS_BASE UINT64_C(200000)
#define EVENTS_PER_HOST UINT64_C(10000)
#define EVENTS_DEFAULT_MAX UINT64_C(12000000)
#define EVENTS_MIN UINT64_C(1000)
#define EVENTS_MAX UINT64_C(100000000000)

struct options {
    unsigned hosts_count, channels_count;
    const char *topology, *parts;
    struct plan_parts names;
    struct plan_run run;
    double loads[PLAN_LOADS_MAX];
    unsigned loads_count;
    struct plan_pair cuts[PLAN_CUTS_MAX];
    unsigned cuts_count;
    bool list, saturated;
};

static const struct sim_section *const sections[] = {
    &sim_net_sections[0],      &sim_net_sections[1],   &sim_net_sections[2],
    &sim_net_sections[4],      &sim_plan_card_section, &sim_plan_slot_section,
    &sim_plan_cable_section,   &sim_cpu_section,       &sim_plan_memory_section,
    &sim_plan_viaduct_section, &sim_pio_section,       &sim_software_section,
    &sim_net_sections[3],      &sim_dma_section,       &sim_plan_board_section,
};

static int fail(const struct via_error *err)
{
    fprintf(stderr, "viaduct-sim: plan: %s\n", via_error_describe(err));
    return 2;
}

static int bad_usage(const char *what, const char *value)
{
    fprintf(stderr, "viaduct-sim: plan: %s '%s'; see viaduct plan --help\n", what, value);
    return 2;
}

/* --- a run at each load ----------------------------------------------------------------------- */

/* Each row begins with an empty fabric, so rows can run beside each other; not those of --core,
 * whose threads are fibers. More would need more memory than a plan is to have. */
#define ROWS_AT_ONCE 3u

struct plan {
    const struct options *options;
    const struct sim_scenario *scenario;
    struct plan_shape shape;
    struct plan_costs costs;
    struct sim_cost stock_cost;
    struct plan_wiring stock; /* resources used; each row has its own */
    struct plan_report report;
    pthread_mutex_t lock;              /* of what follows */
    unsigned next, end;                /* rows that no thread has begun */
    uint64_t done[PLAN_LOADS_MAX + 1]; /* events of each row */
    struct via_progress progress;      /* in events */
    int rc;
    struct via_error *err; /* of the first row that failed */
};

struct row_run {
    struct plan *plan;
    unsigned index;
};

static void show_step(void *object, uint64_t done)
{
    const struct row_run *row = object;
    struct plan *plan = row->plan;
    uint64_t sum = 0;
    pthread_mutex_lock(&plan->lock);
    plan->done[row->index] = done;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(plan->done); i++) {
        sum += plan->done[i];
    }
    via_progress_step(&plan->progress, sum);
    pthread_mutex_unlock(&plan->lock);
}

/* The pictures are of the first row if hosts send at full speed in it, or of the last. */
static int run_row(struct plan *plan, unsigned index, struct via_error *err)
{
    const struct options *options = plan->options;
    struct plan_report *report = &plan->report;
    struct plan_row *row = &report->rows[index];
    struct row_run object = {.plan = plan, .index = index};
    struct plan_shape shape = plan->shape; /* a tree's is completed by each wiring */
    struct sim_cost cost;
    struct plan_wiring wiring;
    sim_cost_init(&cost);
    int rc = plan_wiring_init(&wiring, &shape, &cost, plan->scenario, &options->names, err);
    if (rc == 0) {
        struct plan_run run = options->run;
        run.rate = row->rate;
        run.links_busy = index + 1 == via_max(options->loads_count, 1u) ? report->links_busy : NULL;
        run.step = show_step;
        run.object = &object;
        plan_run(&run, &cost, &plan->costs, &shape, &wiring, &row->measured);
        row->load = (row->rate > 0 ? row->rate : row->measured.got) / report->port_rate;
    }
    plan_wiring_fini(&wiring);
    sim_cost_fini(&cost);
    return rc;
}

static void *run_next_rows(void *object)
{
    struct plan *plan = object;
    struct via_error err = {0};
    pthread_mutex_lock(&plan->lock);
    while (plan->rc == 0 && plan->next < plan->end) {
        unsigned index = plan->next++;
        pthread_mutex_unlock(&plan->lock);
        int rc = run_row(plan, index, &err);
        pthread_mutex_lock(&plan->lock);
        if (rc != 0 && plan->rc == 0) {
            plan->rc = rc;
            *plan->err = err;
        }
    }
    pthread_mutex_unlock(&plan->lock);
    return NULL;
}

/* Runs a number of further rows at these rates: by this thread, and others if they can start. */
static int add_rows(struct plan *plan, const double *rates, unsigned count, double factor)
{
    struct plan_report *report = &plan->report;
    pthread_t threads[ROWS_AT_ONCE];
    unsigned most = plan->options->run.core ? 1 : via_min(via_host_spin_cpus(), ROWS_AT_ONCE);
    unsigned started = 0;
    for (unsigned i = 0; i < count; i++) {
        report->rows[report->rows_count + i].rate = rates[i] * factor;
    }
    plan->next = report->rows_count;
    plan->end = report->rows_count += count;
    while (started + 1 < via_min(most, count) &&
           pthread_create(&threads[started], NULL, run_next_rows, plan) == 0) {
        started++;
    }
    run_next_rows(plan);
    for (unsigned i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
    return plan->rc;
}

/* For the highest rate, if no --load is given. */
static const double shares[] = {0.2, 0.4, 0.6, 0.8, 0.95};

static unsigned rows_of(const struct options *options)
{
    bool only_one = options->saturated || options->run.pattern == PLAN_BARRIER;
    return options->loads_count > 0 ? options->loads_count
                                    : 1 + (only_one ? 0 : (unsigned)VIA_ARRAY_COUNT(shares));
}

static int run_rows(struct plan *plan)
{
    static const double full_speed[] = {0};
    const struct options *options = plan->options;
    struct plan_report *report = &plan->report;
    if (options->loads_count > 0) {
        return add_rows(plan, options->loads, options->loads_count, report->port_rate);
    }
    int rc = add_rows(plan, full_speed, 1, 1);
    report->saturated = options->run.pattern != PLAN_BARRIER;
    double most = rc == 0 ? report->rows[0].measured.got : 0;
    return report->saturated && !options->saturated && most > 0
               ? add_rows(plan, shares, VIA_ARRAY_COUNT(shares), most)
               : rc;
}

/* The limit of any traffic of that pattern, independent of what the hosts do. */
static double bound_of(const struct plan *plan)
{
    const struct plan_report *report = &plan->report;
    const struct plan_shape *shape = &plan->shape;
    switch (plan->options->run.pattern) {
    case PLAN_NEIGHBOUR:
        return report->port_rate; /* all of it leaves by one port */
    case PLAN_ALL:
        return plan_shape_share(shape) * report->cable_rate;
    case PLAN_INCAST:
        return plan_shape_degree(shape) * report->port_rate / (shape->hosts_count - 1);
    default:
        return NAN;
    }
}

/* The hardware of the fabric. */
static int take_stock(struct plan *plan, struct via_error *err)
{
    struct plan_report *report = &plan->report;
    struct plan_wiring *wiring = &plan->stock;
    sim_cost_init(&plan->stock_cost);
    int rc = plan_wiring_init(wiring, &plan->shape, &plan->stock_cost, plan->scenario,
                              &plan->options->names, err);
    if (rc != 0) {
        return rc;
    }
    uint64_t body =
        via_min(via_max(plan->options->run.bytes, UINT64_C(1)), plan->costs.frame_bytes);
    report->wiring = wiring;
    report->links_busy = sim_alloc(2 * wiring->net.links_count * sizeof(*report->links_busy));
    report->cards_per_host = wiring->cards_per_host;
    report->cards_count = wiring->cards_per_host * plan->shape.hosts_count;
    report->cables_count = plan_shape_cables(&plan->shape);
    report->cords_per_cable = wiring->cords_per_cable;
    for (unsigned level = 1; level <= plan->shape.levels_count; level++) {
        report->switches_count += plan_shape_switches(&plan->shape, level);
    }
    report->bisection_cables = plan_shape_bisection(&plan->shape);
    report->diameter = plan_shape_diameter(&plan->shape);
    report->port_rate = plan_wiring_port_rate(wiring, body, PLAN_RECORD_BYTES);
    report->cable_rate = plan_wiring_cable_rate(wiring, body, PLAN_RECORD_BYTES);
    report->bound = bound_of(plan);
    plan_choice_make(wiring, &plan->costs, plan->scenario, body, &report->choice);
    return 0;
}

static void put_stock_away(struct plan *plan)
{
    free(plan->report.links_busy);
    plan_wiring_fini(&plan->stock);
    sim_cost_fini(&plan->stock_cost);
}

static int make_plan(struct plan *plan, struct via_error *err)
{
    const struct options *options = plan->options;
    plan_costs_read(&plan->costs, plan->scenario);
    if (options->channels_count > 0) {
        plan->costs.channels_count = options->channels_count;
    }
    if (options->run.core &&
        (plan->shape.hosts_count > PLAN_NODES_MAX || options->run.pattern == PLAN_BARRIER ||
         options->run.bytes > plan->costs.frame_bytes)) {
        return via_error_set(err, -EINVAL,
                             "--core: up to %u hosts, messages of up to %llu bytes, no barriers",
                             PLAN_NODES_MAX, (unsigned long long)plan->costs.frame_bytes);
    }
    plan->report = (struct plan_report){.shape = &plan->shape,
                                        .parts = &options->names,
                                        .run = options->run,
                                        .channels_count = plan->costs.channels_count};
    int rc = take_stock(plan, err);
    pthread_mutex_init(&plan->lock, NULL);
    plan->err = err;
    via_progress_begin(&plan->progress, "viaduct plan: event",
                       rows_of(plan->options) * plan->options->run.events_max);
    rc = rc == 0 ? run_rows(plan) : rc;
    via_progress_end(&plan->progress);
    pthread_mutex_destroy(&plan->lock);
    if (rc == 0) {
        rc = plan_report_write(&plan->report, stdout) == 0
                 ? 0
                 : via_error_set(err, -EIO, "standard output: write: %s", strerror(errno));
    }
    put_stock_away(plan);
    return rc;
}

static int run(struct options *options)
{
    struct via_error err = {0};
    char path[PATH_MAX];
    struct sim_scenario *scenario = sim_alloc(sizeof(*scenario));
    struct plan *plan = sim_alloc(sizeof(*plan));
    plan->options = options;
    plan->scenario = scenario;
    sim_share_path(path, sizeof(path), "scenarios/parts.ini");
    int rc = sim_scenario_load(options->parts != NULL ? options->parts : path, NULL, sections,
                               VIA_ARRAY_COUNT(sections), scenario, &err);
    if (rc == 0 && options->list) {
        sim_scenario_print(scenario, stdout);
    } else if (rc == 0) {
        rc = plan_shape_parse(options->topology, options->hosts_count, &plan->shape, &err);
        for (unsigned i = 0; rc == 0 && i < options->cuts_count; i++) {
            rc = plan_shape_cut(&plan->shape, options->cuts[i].a, options->cuts[i].b, &err);
        }
        if (options->run.events_max == 0) {
            uint64_t links = via_max(plan_shape_diameter(&plan->shape), 8u);
            options->run.events_max =
                via_min(EVENTS_BASE + plan->shape.hosts_count * EVENTS_PER_HOST * links / 8,
                        EVENTS_DEFAULT_MAX);
        }
        rc = rc == 0 ? make_plan(plan, &err) : via_error_prefix(&err, "--topology ");
    }
    plan_shape_fini(&plan->shape);
    free(plan);
    free(scenario);
    return rc == 0 ? 0 : fail(&err);
}

/* --- arguments ------------------------------------------------------------------------------- */

static bool parse_whole(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value,
                        char **ret_end)
{
    errno = 0;
    *ret_value = strtoull(text, ret_end, 10);
    return text[0] >= '0' && text[0] <= '9' && errno == 0 && *ret_value >= min && *ret_value <= max;
}

static bool parse_count(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value)
{
    char *end;
    return parse_whole(text, min, max, ret_value, &end) && *end == '\0';
}

static bool parse_size(const char *text, uint64_t *ret_bytes)
{
    static const struct {
        const char *name;
        uint64_t factor;
    } units[] = {{"", 1}, {"B", 1}, {"KiB", 1024}, {"MiB", 1048576}};
    char *end;
    if (!parse_whole(text, 1, 1 << 30, ret_bytes, &end)) {
        return false;
    }
    for (size_t i = 0; i < VIA_ARRAY_COUNT(units); i++) {
        if (strcmp(end, units[i].name) == 0) {
            *ret_bytes *= units[i].factor;
            return *ret_bytes <= 1 << 30;
        }
    }
    return false;
}

static bool parse_loads(const char *text, struct options *options)
{
    for (options->loads_count = 0; options->loads_count < PLAN_LOADS_MAX;) {
        char *end;
        double load = strtod(text, &end);
        if (end == text || !(load > 0 && load <= 1000)) {
            return false;
        }
        options->loads[options->loads_count++] = load / 100;
        if (*end == '\0') {
            return true;
        }
        if (*end != ',') {
            return false;
        }
        text = end + 1;
    }
    return false;
}

/* 0, or an error that begins with what. */
static int expect(bool is_valid, const char *what)
{
    return is_valid ? 0 : bad_usage(what, optarg);
}

static int set_count(unsigned *count, uint64_t min, uint64_t max, const char *what)
{
    uint64_t value;
    bool is_valid = parse_count(optarg, min, max, &value);
    *count = is_valid ? (unsigned)value : *count;
    return expect(is_valid, what);
}

static int set_name(char name[32], const char *what)
{
    int bytes = snprintf(name, 32, "%s", optarg);
    return expect(bytes < 32, what);
}

/* "3-4" */
static int add_cut(struct options *options)
{
    uint64_t a, b;
    char *end;
    if (!parse_whole(optarg, 0, PLAN_HOSTS_MAX - 1, &a, &end) || *end != '-' ||
        !parse_count(end + 1, 0, PLAN_HOSTS_MAX - 1, &b)) {
        return bad_usage("--cut: expected two hosts, as in 3-4, not", optarg);
    }
    if (options->cuts_count == PLAN_CUTS_MAX) {
        return bad_usage("--cut: more than 16 links; the last is", optarg);
    }
    options->cuts[options->cuts_count++] = (struct plan_pair){(uint16_t)a, (uint16_t)b};
    return 0;
}

static int set_traffic(struct options *options, int option)
{
    struct plan_run *run = &options->run;
    switch (option) {
    case 'p':
        return expect(plan_pattern_parse(optarg, &run->pattern) == 0,
                      "--pattern: expected neighbour, all-to-all, incast or barrier, not");
    case 's':
        return expect(parse_size(optarg, &run->bytes),
                      "--size: expected 1 B to 1 GiB, as in 64, 4KiB, 1MiB, not");
    case 'l':
        return expect(parse_loads(optarg, options),
                      "--load: expected up to 16 percents, as in 10,50,90, not");
    case 'r':
        return expect(parse_count(optarg, 0, INT64_MAX, &run->seed), "--seed: not a number:");
    case 'e':
        return expect(parse_count(optarg, EVENTS_MIN, EVENTS_MAX, &run->events_max),
                      "--events: not a number from 1000 on:");
    case 'u':
        return set_count(&run->under_way, 1, 256, "--under-way: not a number from 1 to 256:");
    case 'k':
        return set_count(&options->channels_count, 1, PLAN_CHANNELS_MAX,
                         "--channels: not a number from 1 to 14:");
    default: /* 'n' */
        return set_count(&options->hosts_count, 2, PLAN_HOSTS_MAX,
                         "--hosts: not a number from 2 to 1024:");
    }
}

static int set_option(struct options *options, int option)
{
    switch (option) {
    case 't':
        options->topology = optarg;
        return 0;
    case 'x':
        return add_cut(options);
    case 'S':
        options->saturated = true;
        return 0;
    case 'C':
        options->run.core = true;
        return 0;
    case 'c':
        return set_name(options->names.card, "--card: too long:");
    case 'b':
        return set_name(options->names.cable, "--cable: too long:");
    case 'w':
        return set_name(options->names.chip, "--switch: too long:");
    case 'f':
        options->parts = optarg;
        return 0;
    case 'L':
        options->list = true;
        return 0;
    case 'B':
        return set_name(options->names.board, "--board: too long:");
    default:
        return set_traffic(options, option);
    }
}

int sim_plan_main(int argc, char **argv)
{
    static const struct option longs[] = {
        {"hosts", required_argument, NULL, 'n'},
        {"topology", required_argument, NULL, 't'},
        {"cut", required_argument, NULL, 'x'},
        {"core", no_argument, NULL, 'C'},
        {"saturated", no_argument, NULL, 'S'},
        {"card", required_argument, NULL, 'c'},
        {"cable", required_argument, NULL, 'b'},
        {"switch", required_argument, NULL, 'w'},
        {"channels", required_argument, NULL, 'k'},
        {"parts", required_argument, NULL, 'f'},
        {"list", no_argument, NULL, 'L'},
        {"pattern", required_argument, NULL, 'p'},
        {"size", required_argument, NULL, 's'},
        {"load", required_argument, NULL, 'l'},
        {"seed", required_argument, NULL, 'r'},
        {"under-way", required_argument, NULL, 'u'},
        {"events", required_argument, NULL, 'e'},
        {"board", required_argument, NULL, 'B'},
        {NULL, 0, NULL, 0},
    };
    struct options options = {
        .topology = "ring",
        .names = {.card = "gen3-x8", .cable = "copper-x8", .chip = "pex8796"},
        .run = {.pattern = PLAN_NEIGHBOUR, .bytes = DEFAULT_SIZE, .under_way = 16, .seed = 1},
    };
    optind = 0;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":", longs, NULL)) != -1;) {
        if (option == '?' || option == ':') {
            return bad_usage(option == ':' ? "needs a value:" : "unknown option", argv[optind - 1]);
        }
        int rc = set_option(&options, option);
        if (rc != 0) {
            return rc;
        }
    }
    if (optind < argc) {
        return bad_usage("takes options only, not", argv[optind]);
    }
    return run(&options);
}
