/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* viaduct tune: measures the best settings for the links of this host, and keeps them in a file.
 * viaduct tune sockets is a script. */
#include <errno.h>
#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/perf.h"
#include "host/tuning.h"
#include "progress/progress.h"
#include "tune/tune.h"

#define FILE_DEFAULT "/var/lib/viaduct/tune.conf"
#define PAIRS_DEFAULT 41u
#define PAIRS_MIN VIA_TUNE_PAIRS_MIN
#define SECONDS_DEFAULT (60 * VIA_SEC_NS)
#define WAIT_NS (10 * VIA_SEC_NS)

static const char help[] =
    "usage: viaduct tune --link LINK [--peer LINK] [OPTION...]\n"
    "       viaduct tune --show|--reset|--check [--file FILE]\n"
    "       viaduct tune sockets [OPTION...] HOST...    (its own --help)\n"
    "\n"
    "Measures on a link how bodies are stored best, from which size on its DMA engine is faster,\n"
    "and how many slots pipes need, each against the present setting, in pairs. A setting that\n"
    "certainly helps by 5 % or more is written to a file for viaductd --tune; others keep their\n"
    "values.\n"
    "No daemon may have the link.\n"
    "\n"
    "  --link LINK   as in viaductd(8)\n"
    "  --peer LINK   its other end, if that is to be in this process; else the other machine runs\n"
    "                viaduct perf pio --serve --link LINK\n"
    "  --file FILE   the settings (default " FILE_DEFAULT ")\n"
    "  --pairs N     of each comparison, 11 to 101 (default 41)\n"
    "  --seconds S   for all comparisons (default 60): what a busy machine does not measure in "
    "that\n"
    "                time keeps its value, and is reported\n"
    "  --dry-run     write nothing\n"
    "  --wait S      for the other end (default 10)\n"
    "  --show        print the settings, and whether they are of this machine\n"
    "  --check       exit 1, with the reason, if they are not\n"
    "  --reset       remove the file\n"
    "  -h, --help    this text\n";

enum { OPT_SHOW = 256, OPT_RESET, OPT_CHECK, OPT_DRY };

static const struct option long_options[] = {
    {"link", required_argument, NULL, 'l'},  {"peer", required_argument, NULL, 'p'},
    {"file", required_argument, NULL, 'f'},  {"pairs", required_argument, NULL, 'n'},
    {"wait", required_argument, NULL, 'w'},  {"seconds", required_argument, NULL, 's'},
    {"dry-run", no_argument, NULL, OPT_DRY}, {"show", no_argument, NULL, OPT_SHOW},
    {"reset", no_argument, NULL, OPT_RESET}, {"check", no_argument, NULL, OPT_CHECK},
    {"help", no_argument, NULL, 'h'},        {NULL, 0, NULL, 0},
};

struct options {
    const char *link, *peer, *path;
    unsigned pairs;
    uint64_t wait_ns, ns_max;
    bool dry;
    int action; /* OPT_SHOW, ...; 0: measure */
};

/* -1: the option was taken; otherwise the exit code. */
static int take_option(const char *name, int opt, struct options *options)
{
    switch (opt) {
    case 'l':
        options->link = optarg;
        return -1;
    case 'p':
        options->peer = optarg;
        return -1;
    case 'f':
        options->path = optarg;
        return -1;
    case 'n':
        return via_cli_number(optarg, PAIRS_MIN, VIA_TUNE_PAIRS_MAX, &options->pairs) == 0
                   ? -1
                   : via_cli_usage(name, "--pairs: '%s': not %u to %u", optarg, PAIRS_MIN,
                                   VIA_TUNE_PAIRS_MAX);
    case 'w':
        return via_perf_seconds(optarg, &options->wait_ns) == 0
                   ? -1
                   : via_cli_usage(name, "--wait: '%s': not a number above 0, up to 3600", optarg);
    case 's':
        return via_perf_seconds(optarg, &options->ns_max) == 0
                   ? -1
                   : via_cli_usage(name, "--seconds: '%s': not a number above 0, up to 3600",
                                   optarg);
    case OPT_DRY:
        options->dry = true;
        return -1;
    case OPT_SHOW:
    case OPT_RESET:
    case OPT_CHECK:
        if (options->action != 0) {
            return via_cli_usage(name, "one of --show, --check and --reset");
        }
        options->action = opt;
        return -1;
    default:
        return via_cli_take_help(name, opt, help);
    }
}

static int take_options(int argc, char **argv, struct options *options)
{
    for (int opt; (opt = getopt_long(argc, argv, "h", long_options, NULL)) != -1;) {
        int code = take_option(argv[0], opt, options);
        if (code >= 0) {
            return code;
        }
    }
    if (optind != argc) {
        return via_cli_usage(argv[0], "'%s': not an option", argv[optind]);
    }
    if ((options->link != NULL) == (options->action != 0)) {
        return via_cli_usage(argv[0], "either --link LINK, or one of --show, --check and --reset");
    }
    return options->peer != NULL && options->link == NULL
               ? via_cli_usage(argv[0], "--peer: needs --link")
               : -1;
}

/* --- the file --- */

static int show_tuning(const struct options *options, struct via_error *err)
{
    static struct via_tuning tuning;
    struct via_error other;
    int rc = via_tuning_load(options->path, &tuning, err);
    if (rc != 0) {
        return rc;
    }
    rc = via_tuning_check_cpu(&tuning, &other);
    if (options->action == OPT_CHECK) {
        return rc == 0 ? 0 : via_error_set(err, rc, "%s: %s", options->path, other.text);
    }
    via_tuning_print(&tuning, stdout);
    printf("# %s\n",
           rc == 0 ? "of this machine; links are compared when they come up" : other.text);
    return 0;
}

static int reset(const struct options *options, struct via_error *err)
{
    if (unlink(options->path) != 0) {
        return via_error_set(err, -errno, "%s: remove: %s", options->path, strerror(errno));
    }
    printf("%s is removed; daemons use their default settings after a restart\n", options->path);
    return 0;
}

/* Checks, before a long measurement, that its result can be saved. */
static int check_file(const struct options *options, struct via_error *err)
{
    static struct via_tuning tuning;
    char path[PATH_MAX];
    if (access(options->path, F_OK) == 0) {
        int rc = via_tuning_load(options->path, &tuning, err);
        if (rc != 0) {
            return rc;
        }
    }
    snprintf(path, sizeof(path), "%s", options->path);
    const char *folder = dirname(path);
    if (strcmp(options->path, FILE_DEFAULT) == 0) {
        (void)mkdir(folder, 0755); /* packages make it, `make install` does not */
    }
    if (access(folder, W_OK) != 0) {
        return via_error_set(err, -errno, "%s: create: %s", options->path, strerror(errno));
    }
    return 0;
}

/* Loads the earlier settings of this machine, except those of this link. */
static int load_old(const struct options *options, struct via_tuning *tuning, struct via_error *err)
{
    struct via_error other;
    if (access(options->path, F_OK) != 0) {
        return 0;
    }
    int rc = via_tuning_load(options->path, tuning, err);
    if (rc == 0 && via_tuning_check_cpu(tuning, &other) != 0) {
        printf("%s: is replaced: %s\n", options->path, other.text);
        *tuning = (struct via_tuning){0};
    }
    return rc;
}

static int merge(const struct options *options, const struct via_tune *tune, const char *hardware,
                 struct via_error *err)
{
    static struct via_tuning tuning;
    int rc = load_old(options, &tuning, err);
    if (rc != 0) {
        return rc;
    }
    unsigned at = 0;
    while (at < tuning.links_count && strcmp(tuning.links[at].link, options->link) != 0) {
        at++;
    }
    if (at == VIA_TUNING_LINKS_MAX) {
        return via_error_set(err, -ENOSPC, "%s: has %u links already", options->path, at);
    }
    /* Settings that this run had no time to measure keep their values. */
    const struct via_tuning_link old = tuning.links[at];
    bool is_same = at < tuning.links_count && strcmp(old.hardware, hardware) == 0;
    tuning.links_count = via_max(tuning.links_count, at + 1);
    tuning.links[at] = (struct via_tuning_link){.dma_bytes_min = tune->dma_bytes_min,
                                                .has_stores = tune->has_stores};
    memcpy(tuning.links[at].stores, tune->stores, sizeof(tune->stores));
    if (is_same && tune->is_partial[VIA_TUNE_DMA] && tune->dma_bytes_min == 0) {
        tuning.links[at].dma_bytes_min = old.dma_bytes_min;
    }
    if (is_same && tune->is_partial[VIA_TUNE_STORES] && !tune->has_stores) {
        memcpy(tuning.links[at].stores, old.stores, sizeof(old.stores));
        tuning.links[at].has_stores = old.has_stores;
    }
    snprintf(tuning.links[at].link, sizeof(tuning.links[at].link), "%s", options->link);
    snprintf(tuning.links[at].hardware, sizeof(tuning.links[at].hardware), "%s", hardware);
    via_tuning_cpu(tuning.cpu);
    bool keeps = tune->slots_why != NULL || (tune->is_partial[VIA_TUNE_PIPES] && tune->slots == 0);
    tuning.slots = keeps ? tuning.slots : tune->slots;
    return via_tuning_save(options->path, &tuning, err);
}

/* --- measuring --- */

static void print_rows(const struct via_tune *tune)
{
    static const char *const verdicts[] = {
        [VIA_TUNE_SAME] = "-", [VIA_TUNE_HELPS] = "helps", [VIA_TUNE_HURTS] = "hurts"};
    printf("%-24s %8s %8s %17s\n", "compared with now", "bytes", "speed x", "95 % interval");
    for (unsigned i = 0; i < tune->rows_count; i++) {
        const struct via_tune_row *row = &tune->rows[i];
        printf("%-24s %8llu %8.2f %7.2f to %6.2f  %s\n", row->what, (unsigned long long)row->bytes,
               row->result.median, row->result.low, row->result.high,
               verdicts[row->result.verdict]);
    }
}

static void print_outcome(const struct via_tune *tune)
{
    if (tune->dma_bytes_min != 0) {
        printf("dma-bytes: %u\n", tune->dma_bytes_min);
    } else {
        printf(
            "dma-bytes: left as it is: no DMA engine, or it does not help at the largest size\n");
    }
    char stores[VIA_STORE_TEXT_BYTES];
    via_store_print(tune->stores, stores);
    printf("store: %s\n", tune->has_stores ? stores : "left as it is: no other helps at any size");
    if (tune->slots_why != NULL) {
        printf("slots: not measured: %s\n", tune->slots_why);
    } else if (tune->slots != 0) {
        printf("slots: %u\n", tune->slots);
    } else {
        printf("slots: left as it is: no other number helps at some size without hurting at "
               "another\n");
    }
}

/* Prints the number of comparisons for which the time was too short. */
static void print_missing(const struct via_tune *tune)
{
    if (tune->cut_short != 0) {
        printf("note: %u comparisons have fewer than %u pairs: the machine is busy, or the link "
               "slow\n",
               tune->cut_short, tune->pairs);
    }
    if (tune->skipped != 0) {
        printf("note: %u comparisons were not made in %llu s, as the machine is busy or the link "
               "slow: their settings keep their values; --seconds gives more time\n",
               tune->skipped, (unsigned long long)(tune->ns_max / VIA_SEC_NS));
    }
}

static int measure_link(const struct options *options, struct via_tune *tune,
                        struct via_pio_measure *measure, char *ret_hardware, struct via_error *err)
{
    struct via_pio_link *link = measure->link;
    link->ends[0].text = options->link;
    link->ends[1].text = options->peer;
    link->ends_count = options->peer != NULL ? 2 : 1;
    int rc = via_pio_link_open(link, options->wait_ns, err);
    rc = rc == 0 ? via_pio_measure_begin(measure, VIA_PIO_ANY_CPU, err) : rc;
    if (rc != 0) {
        return rc;
    }
    const char *limits[VIA_PIO_LIMITS_MAX];
    via_tuning_hardware(link->ends[0].config.driver, link->ends[0].port, ret_hardware);
    via_pio_link_limits(link, limits);
    printf("%s: %s\n", options->link, ret_hardware);
    for (unsigned i = 0; limits[i] != NULL; i++) {
        printf("note: %s\n", limits[i]);
    }
    return via_tune_link(tune, err);
}

static struct via_progress progress;

static void show_step(const struct via_tune *tune)
{
    progress.total = tune->steps_max;
    via_progress_step(&progress, tune->steps_done);
}

static int measure(const struct options *options, struct via_error *err)
{
    static struct via_pio_link link;
    struct via_pio_measure measure = {.link = &link, .threads = 1};
    static struct via_tune tune;
    char hardware[VIA_TUNING_TEXT_BYTES];
    int rc = options->dry ? 0 : check_file(options, err);
    if (rc != 0) {
        return rc;
    }
    tune.measure = &measure;
    tune.pairs = options->pairs;
    tune.ns_max = options->ns_max;
    tune.step = show_step;
    via_progress_begin(&progress, "viaduct tune: comparison", 0);
    rc = measure_link(options, &tune, &measure, hardware, err);
    via_progress_end(&progress);
    via_pio_measure_end(&measure);
    via_pio_link_close(&link);
    if (rc != 0) {
        return rc;
    }
    print_rows(&tune);
    print_outcome(&tune);
    print_missing(&tune);
    if (options->dry) {
        return 0;
    }
    rc = merge(options, &tune, hardware, err);
    if (rc == 0) {
        printf("written to %s, for viaductd --tune and [transport] tune\n", options->path);
    }
    return rc;
}

int via_cli_tune(int argc, char **argv)
{
    struct options options = {.path = FILE_DEFAULT,
                              .pairs = PAIRS_DEFAULT,
                              .wait_ns = WAIT_NS,
                              .ns_max = SECONDS_DEFAULT};
    struct via_error err = {0};
    if (argc > 1 && strcmp(argv[1], "sockets") == 0) {
        return via_cli_script("viaduct tune sockets", "measure-sockets", argc - 2, argv + 2);
    }
    int code = take_options(argc, argv, &options);
    if (code >= 0) {
        return code;
    }
    int rc = options.action == 0           ? measure(&options, &err)
             : options.action == OPT_RESET ? reset(&options, &err)
                                           : show_tuning(&options, &err);
    return rc == 0 ? VIA_CLI_OK : via_cli_fail(argv[0], &err);
}
