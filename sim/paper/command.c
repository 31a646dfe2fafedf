/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* "viaduct-sim paper": options, the chosen papers, and output files. */
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "progress/progress.h"
#include "sim/memory.h"
#include "sim/paper/command.h"
#include "sim/paper/paper.h"
#include "sim/paper/share.h"

static const char usage_text[] =
    "Usage: viaduct-sim paper A|B|C|D|E|all [OPTIONS]\n"
    "Runs the cost model on a published system and prints its figures beside the model's.\n"
    "\n"
    "Options:\n"
    "  --csv DIR        write paper-X.csv there; '-' is standard output, and nothing else\n"
    "  --plot DIR       write a picture per figure there, by matplotlib\n"
    "  --parameters     print every parameter with its mark and source, too\n"
    "  --scenarios DIR  take paper-X.ini from there\n"
    "  --scenario FILE  take this file (of one paper)\n"
    "  --bounded        only the figures that must keep a bound, which takes less time\n"
    "  --fitted         only the figures that parameters are fitted on\n"
    "  --set 'SECTION KEY=NUMBER'  another value, in the unit of the file; any number of times\n"
    "  --help           this text\n"
    "\n"
    "Exit code: 0, 1 when a claim is broken, 2 for wrong usage and scenarios that are wrong.\n"
    "A figure that does not fit is shown as such and breaks nothing.\n";

#define SETS_MAX 64u

struct options {
    const char *csv, *plot, *scenarios, *scenario;
    const char *sets[SETS_MAX];
    unsigned sets_count;
    bool parameters, bounded, fitted;
};

static int fail(const struct via_error *err)
{
    fprintf(stderr, "viaduct-sim: %s\n", via_error_describe(err));
    return 2;
}

static int fail_errno(const char *path, const char *what)
{
    fprintf(stderr, "viaduct-sim: %s: %s: %s\n", path, what, strerror(errno));
    return 2;
}

static void scenario_path(char *ret, size_t bytes, const struct options *options, const char *name)
{
    char folder[PATH_MAX];
    sim_share_path(folder, sizeof(folder), "scenarios");
    if (options->scenario != NULL) {
        snprintf(ret, bytes, "%s", options->scenario);
    } else {
        snprintf(ret, bytes, "%s/%s", options->scenarios != NULL ? options->scenarios : folder,
                 name);
    }
}

/* --- files ----------------------------------------------------------------------------------- */

static void csv_path(char *ret, size_t bytes, const char *folder, const struct sim_paper *paper)
{
    snprintf(ret, bytes, "%s/paper-%c.csv", folder, tolower((unsigned char)paper->letter));
}

static int write_csv(const char *folder, const struct sim_paper *paper,
                     const struct sim_report *report)
{
    char path[PATH_MAX];
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        return fail_errno(folder, "mkdir");
    }
    csv_path(path, sizeof(path), folder, paper);
    FILE *file = fopen(path, "we");
    if (file == NULL) {
        return fail_errno(path, "open");
    }
    sim_report_csv(report, paper->letter, file);
    bool bad = ferror(file) != 0;
    if (fclose(file) != 0 || bad) {
        return fail_errno(path, "write");
    }
    return 0;
}

static int plot(const char *csv_folder, const char *folder, const struct sim_paper *paper)
{
    char csv[PATH_MAX];
    struct via_error err = {0};
    csv_path(csv, sizeof(csv), csv_folder, paper);
    return sim_share_plot(csv, folder, &err) == 0 ? 0 : fail(&err);
}

/* --- a paper --------------------------------------------------------------------------------- */

/* Fails only if a claim is broken: a figure that does not fit is shown, and is no failure. */
static int summarize(const struct sim_report *report, const struct sim_paper *paper)
{
    struct sim_report_counts counts = sim_report_count(report);
    printf("%c: fitted on %zu figures, %zu outside; held out %zu, %zu outside; %zu claims, %zu "
           "broken\n",
           paper->letter, counts.fitted, counts.fitted_outside, counts.held, counts.held_outside,
           counts.claims, counts.broken);
    return counts.broken == 0 ? 0 : 1;
}

/* "SECTION KEY=NUMBER", in the unit of the file. */
static int set_value(struct sim_scenario *scenario, const char *text, struct via_error *err)
{
    for (size_t i = 0; i < scenario->values_count; i++) {
        struct sim_value *value = &scenario->values[i];
        const struct sim_part *part = &scenario->parts[value->part];
        char name[128];
        char *end;
        int bytes =
            snprintf(name, sizeof(name), "%s%s%s %s=", part->section->name,
                     part->instance[0] != '\0' ? " " : "", part->instance, value->key->name);
        if (strncmp(text, name, (size_t)bytes) == 0 && value->unit_factor > 0) {
            double number = strtod(text + bytes, &end) * value->unit_factor;
            if (end == text + bytes || *end != '\0' || !(number >= value->key->min) ||
                !(number <= value->key->max)) {
                return via_error_set(err, -EINVAL, "--set %s: not a number that is allowed", text);
            }
            bool whole = value->key->dimension == SIM_COUNT || value->key->dimension == SIM_BYTES;
            value->number = whole ? round(number) : number;
            return 0;
        }
    }
    return via_error_set(err, -EINVAL, "--set %s: %.200s has no such number", text, scenario->name);
}

/* After the figures that do not fit: the fitted parameters, with the ranges of papers that
 * contradict each other. */
static void print_fitted(const struct sim_scenario *scenario)
{
    for (size_t i = 0; i < scenario->values_count; i++) {
        const struct sim_value *value = &scenario->values[i];
        const struct sim_part *part = &scenario->parts[value->part];
        if (value->mark == SIM_FITTED && value->unit_factor > 0) {
            printf("  fitted: %s%s%s %s = %.4g %s: %s\n", part->section->name,
                   part->instance[0] != '\0' ? " " : "", part->instance, value->key->name,
                   value->number / value->unit_factor, value->unit, value->source);
        }
    }
}

static int run_paper(const struct options *options, const struct sim_paper *paper,
                     struct sim_scenario *scenario, struct via_progress *progress,
                     uint64_t steps_before)
{
    struct via_error err = {0};
    char path[PATH_MAX + 64];
    char parts[PATH_MAX + 64];
    scenario_path(path, sizeof(path), options, paper->scenario);
    if (options->scenario != NULL) {
        scenario_path(parts, sizeof(parts), &(struct options){.scenarios = options->scenarios},
                      "parts.ini");
    } else {
        scenario_path(parts, sizeof(parts), options, "parts.ini");
    }
    if (sim_scenario_load(path, parts, paper->sections, paper->sections_count, scenario, &err) !=
        0) {
        return fail(&err);
    }
    for (unsigned i = 0; i < options->sets_count; i++) {
        if (set_value(scenario, options->sets[i], &err) != 0) {
            return fail(&err);
        }
    }
    struct sim_report report;
    sim_report_init(&report);
    report.bounded = options->bounded;
    report.fitting = options->fitted;
    report.progress = progress;
    report.steps_before = steps_before;
    int rc = paper->run(scenario, &report, &err);
    assert(rc != 0 || report.bounded || report.fitting || report.steps == paper->steps);
    via_progress_end(progress);
    if (rc != 0) {
        rc = fail(&err);
    } else if (options->csv != NULL && strcmp(options->csv, "-") == 0) {
        sim_report_csv(&report, paper->letter, stdout);
    } else {
        printf("%c. %s\n", paper->letter, paper->title);
        sim_report_print_misfits(&report, stdout);
        print_fitted(scenario);
        if (options->parameters) {
            printf("\n%s\n", path);
            sim_scenario_print(scenario, stdout);
        }
        sim_report_print(&report, stdout);
        rc = summarize(&report, paper);
        const char *csv = options->csv != NULL ? options->csv : options->plot;
        int written = csv != NULL ? write_csv(csv, paper, &report) : 0;
        if (written == 0 && options->plot != NULL) {
            written = plot(csv, options->plot, paper);
        }
        rc = written != 0 ? written : rc;
    }
    sim_report_fini(&report);
    return rc;
}

static int bad_usage(const char *what, const char *value)
{
    fprintf(stderr, "viaduct-sim: paper: %s '%s'; see viaduct-sim paper --help\n", what, value);
    return 2;
}

static bool is_named(const struct sim_paper *paper, const char *which)
{
    return toupper((unsigned char)which[0]) == paper->letter && which[1] == '\0';
}

/* The worst of all exit codes. */
static int run_papers(const struct options *options, const char *which)
{
    struct sim_scenario *scenario = sim_alloc(sizeof(*scenario));
    bool all = strcmp(which, "all") == 0;
    int worst = 0;
    unsigned found = 0;
    uint64_t total = 0, done = 0;
    struct via_progress progress;
    for (size_t i = 0; sim_papers[i] != NULL; i++) {
        total += all || is_named(sim_papers[i], which) ? sim_papers[i]->steps : 0;
    }
    via_progress_begin(&progress, "viaduct sim paper: step", total);
    for (size_t i = 0; sim_papers[i] != NULL; i++) {
        if (all || is_named(sim_papers[i], which)) {
            int rc = run_paper(options, sim_papers[i], scenario, &progress, done);
            worst = rc > worst ? rc : worst;
            done += sim_papers[i]->steps;
            found++;
        }
    }
    free(scenario);
    return found > 0 ? worst : bad_usage("no such paper:", which);
}

int sim_paper_main(int argc, char **argv)
{
    static const struct option longs[] = {
        {"csv", required_argument, NULL, 'c'},      {"plot", required_argument, NULL, 'p'},
        {"parameters", no_argument, NULL, 'v'},     {"scenarios", required_argument, NULL, 'd'},
        {"scenario", required_argument, NULL, 's'}, {"set", required_argument, NULL, 'e'},
        {"fitted", no_argument, NULL, 'f'},         {"bounded", no_argument, NULL, 'b'},
        {"help", no_argument, NULL, 'h'},           {NULL, 0, NULL, 0},
    };
    struct options options = {0};
    optind = 0;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":", longs, NULL)) != -1;) {
        switch (option) {
        case 'c':
            options.csv = optarg;
            break;
        case 'p':
            options.plot = optarg;
            break;
        case 'v':
            options.parameters = true;
            break;
        case 'd':
            options.scenarios = optarg;
            break;
        case 's':
            options.scenario = optarg;
            break;
        case 'e':
            if (options.sets_count == SETS_MAX) {
                return bad_usage("--set: too many, with", optarg);
            }
            options.sets[options.sets_count++] = optarg;
            break;
        case 'f':
            options.fitted = true;
            break;
        case 'b':
            options.bounded = true;
            break;
        case 'h':
            fputs(usage_text, stdout);
            return 0;
        default:
            return bad_usage(option == ':' ? "needs a value:" : "unknown option", argv[optind - 1]);
        }
    }
    if (argc - optind != 1) {
        return argc == optind ? bad_usage("which one?", "A, B, C, D, E or all")
                              : bad_usage("one paper at a time, or all:", argv[optind + 1]);
    }
    if ((options.scenario != NULL || options.sets_count > 0) && strcmp(argv[optind], "all") == 0) {
        return bad_usage("of one paper only, not of all:",
                         options.sets_count > 0 ? "--set" : "--scenario");
    }
    return run_papers(&options, argv[optind]);
}
