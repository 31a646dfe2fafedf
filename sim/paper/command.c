/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* "viaduct-sim paper": which papers, what to do with them, and files to write. */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "sim/memory.h"
#include "sim/paper/command.h"
#include "sim/paper/paper.h"
#include "sim/paper/share.h"

static const char usage_text[] =
    "Usage: viaduct-sim paper A|B|C|D|E|all [OPTIONS]\n"
    "Runs the cost model on a published system and prints its figures beside the model's.\n"
    "\n"
    "Options:\n"
    "  --csv DIR        write paper-X.csv there\n"
    "  --plot DIR       write a picture per figure there, by matplotlib\n"
    "  --parameters     print every parameter with its mark and source, too\n"
    "  --scenarios DIR  take paper-X.ini from there\n"
    "  --scenario FILE  take this file (of one paper)\n"
    "  --bounded        only the figures that must keep a bound, which takes less time\n"
    "  --fit FILE       fit the [fitted] parameters (of one paper), write the scenario to FILE\n"
    "  --sensitivity    print instead what a tenth more of each parameter does to the figures\n"
    "  --help           this text\n"
    "\n"
    "Exit code: 0 when every figure is within its bound, 1 when one is not, 2 for wrong usage and\n"
    "scenarios that are wrong.\n";

struct options {
    const char *csv, *plot, *scenarios, *scenario, *fit;
    bool parameters, sensitivity, bounded;
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

static void scenario_path(char *ret, size_t bytes, const struct options *options,
                          const struct sim_paper *paper)
{
    char folder[PATH_MAX];
    sim_share_path(folder, sizeof(folder), "scenarios");
    if (options->scenario != NULL) {
        snprintf(ret, bytes, "%s", options->scenario);
    } else {
        snprintf(ret, bytes, "%s/%s", options->scenarios != NULL ? options->scenarios : folder,
                 paper->scenario);
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

/* The same file with the numbers of [fitted] values that were found. */
static int write_fit(const char *from, const char *to, const struct sim_scenario *scenario)
{
    FILE *in = fopen(from, "re");
    if (in == NULL) {
        return fail_errno(from, "open");
    }
    FILE *out = fopen(to, "we");
    if (out == NULL) {
        fclose(in);
        return fail_errno(to, "open");
    }
    char text[512];
    for (unsigned line = 1; fgets(text, sizeof(text), in) != NULL; line++) {
        for (size_t i = 0; i < scenario->values_count; i++) {
            const struct sim_value *value = &scenario->values[i];
            if (value->line == line && value->mark == SIM_FITTED && value->unit_factor > 0) {
                snprintf(text, sizeof(text), "%s = " SIM_FIT_FORMAT " %s [fitted] %s\n",
                         value->key->name, value->number / value->unit_factor, value->unit,
                         value->source);
            }
        }
        fputs(text, out);
    }
    fclose(in);
    bool bad = ferror(out) != 0;
    return fclose(out) != 0 || bad ? fail_errno(to, "write") : 0;
}

/* --- a paper --------------------------------------------------------------------------------- */

static int judge(const struct sim_report *report, const struct sim_paper *paper)
{
    size_t fit, points;
    size_t bad = sim_report_bad(report);
    bool fair = sim_report_fair(report, &fit, &points);
    printf("%c: %zu figures, %zu of them fitted on, %zu judged; %zu outside their bound\n",
           paper->letter, points, fit, points - fit, bad);
    if (!fair) {
        printf("%c: more than half of the figures were fitted on\n", paper->letter);
    }
    return bad == 0 && fair ? 0 : 1;
}

static int run_paper(const struct options *options, const struct sim_paper *paper,
                     struct sim_scenario *scenario)
{
    struct via_error err = {0};
    char path[PATH_MAX + 64];
    scenario_path(path, sizeof(path), options, paper);
    if (sim_scenario_load(path, paper->sections, paper->sections_count, scenario, &err) != 0) {
        return fail(&err);
    }
    if (options->fit != NULL && sim_fit(paper, scenario, stderr, &err) != 0) {
        return fail(&err);
    }
    printf("%c. %s\n", paper->letter, paper->title);
    if (options->parameters) {
        printf("\n%s\n", path);
        sim_scenario_print(scenario, stdout);
    }
    if (options->sensitivity) {
        return sim_sensitivity(paper, scenario, stdout, &err) != 0 ? fail(&err) : 0;
    }
    struct sim_report report;
    sim_report_init(&report);
    report.bounded = options->bounded;
    int rc = paper->run(scenario, &report, &err);
    if (rc != 0) {
        rc = fail(&err);
    } else {
        sim_report_print(&report, stdout);
        rc = judge(&report, paper);
        const char *csv = options->csv != NULL ? options->csv : options->plot;
        int written = csv != NULL ? write_csv(csv, paper, &report) : 0;
        if (written == 0 && options->plot != NULL) {
            written = plot(csv, options->plot, paper);
        }
        if (written == 0 && options->fit != NULL) {
            written = write_fit(path, options->fit, scenario);
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

/* The worst of all exit codes. */
static int run_papers(const struct options *options, const char *which)
{
    struct sim_scenario *scenario = sim_alloc(sizeof(*scenario));
    bool all = strcmp(which, "all") == 0;
    int worst = 0;
    unsigned found = 0;
    for (size_t i = 0; sim_papers[i] != NULL; i++) {
        bool named = toupper((unsigned char)which[0]) == sim_papers[i]->letter && which[1] == '\0';
        if (all || named) {
            int rc = run_paper(options, sim_papers[i], scenario);
            worst = rc > worst ? rc : worst;
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
        {"scenario", required_argument, NULL, 's'}, {"fit", required_argument, NULL, 'f'},
        {"sensitivity", no_argument, NULL, 'x'},    {"bounded", no_argument, NULL, 'b'},
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
        case 'f':
            options.fit = optarg;
            break;
        case 'x':
            options.sensitivity = true;
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
    if ((options.scenario != NULL || options.fit != NULL) && strcmp(argv[optind], "all") == 0) {
        return bad_usage("of one paper only, not of all:",
                         options.fit != NULL ? "--fit" : "--scenario");
    }
    return run_papers(&options, argv[optind]);
}
