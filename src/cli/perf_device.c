/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* viaduct perf device: rates of transfers to a device and back, by size, and comparisons. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/card.h"
#include "cli/cli.h"
#include "cli/perf.h"
#include "cli/perf_series.h"
#include "cli/perf_target.h"
#include "progress/progress.h"

#define ROUNDS 31u
/* for one row and target; after this time fewer rounds suffice */
#define SPAN_NS (200 * VIA_MSEC_NS)
#define TARGETS_MAX 8u
#define BAR_DEFAULT 2u
#define BAR_MAX 5u
#define NUMBER_BYTES 16u /* for " #2" */

static const char help[] =
    "usage: viaduct perf device TARGET... [--write] [--sizes N,...] [--csv FILE] [--plot FILE]\n"
    "       viaduct perf device --compare [LABEL=]FILE... [--csv FILE] [--plot FILE]\n"
    "\n"
    "Bytes from a device to this host and from this host to the device, by size: median and\n"
    "quartiles of single transfers. Several targets take turns round by round and are compared "
    "with\n"
    "the first one. --compare does so with files that --csv has written: a local slot and a\n"
    "remote one, copper and optics. Files with one LABEL are runs of the same thing.\n"
    "\n"
    "targets:\n"
    "  --device D [--bar N]   0000:03:00.0 (bound to vfio-pci) or vfio-user:PATH: loads and "
    "stores\n"
    "                         in a BAR, 0 to 5 (default 2), write-combined if it can be had; a\n"
    "                         vfio-user server is reached by messages\n"
    "  --file PATH            a drive or a file, past the page cache (O_DIRECT) if its file "
    "system\n"
    "                         can\n"
    "  --engine D             the DMA function of a PEX 87xx, named as D above: from memory to "
    "the\n"
    "                         switch and back to memory (\"loop\")\n"
    "  --gpu N                a GPU, by the CUDA driver library of this machine\n"
    "\n"
    "  --write                also writes to a device or file: WHAT IS THERE IS LOST\n"
    "  --sizes N,...          bytes, with K, M or G (default 4,16,64,... to 4M)\n"
    "  --cuda-library FILE    instead of libcuda.so.1\n"
    "  --csv FILE             the rows (of --compare: the ratios) for programs\n"
    "  --plot FILE            a picture with intervals (SVG)\n"
    "  -h, --help             this text\n";

enum { OPT_CUDA = 256 };

static const struct option long_options[] = {
    {"device", required_argument, NULL, 'd'},
    {"bar", required_argument, NULL, 'b'},
    {"file", required_argument, NULL, 'f'},
    {"engine", required_argument, NULL, 'e'},
    {"gpu", required_argument, NULL, 'g'},
    {"write", no_argument, NULL, 'w'},
    {"sizes", required_argument, NULL, 's'},
    {"cuda-library", required_argument, NULL, OPT_CUDA},
    {"csv", required_argument, NULL, 'c'},
    {"plot", required_argument, NULL, 'p'},
    {"compare", no_argument, NULL, 'x'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

struct wanted {
    char kind; /* the option's letter */
    const char *text;
    unsigned bar;
};

struct measuring {
    const char *name; /* for messages */
    struct wanted wanted[TARGETS_MAX];
    struct via_perf_target *targets[TARGETS_MAX];
    struct via_perf_series *series[TARGETS_MAX];
    unsigned count;
    unsigned bar; /* for devices without their own */
    size_t sizes[VIA_PERF_SIZES_MAX];
    unsigned sizes_count;
    const char *csv_path, *plot_path, *cuda_library;
    bool writes, compares;
    struct via_perf_set *set;
    FILE *csv, *plot;
};

/* --- targets --- */

static int open_target(struct measuring *all, unsigned index, struct via_error *err)
{
    const struct wanted *wanted = &all->wanted[index];
    struct via_perf_target **target = &all->targets[index];
    struct via_perf_target_options options = {
        .bar = wanted->bar, .writes = all->writes, .cuda_library = all->cuda_library};
    for (unsigned i = 0; i < all->sizes_count; i++) {
        options.bytes_max = via_max(options.bytes_max, all->sizes[i]);
    }
    int rc = wanted->kind == 'd'   ? via_perf_target_bar(wanted->text, &options, target, err)
             : wanted->kind == 'f' ? via_perf_target_file(wanted->text, &options, target, err)
             : wanted->kind == 'e' ? via_perf_target_engine(wanted->text, &options, target, err)
                                   : via_perf_target_gpu(wanted->text, &options, target, err);
    if (rc != 0) {
        return rc;
    }
    char label[VIA_PERF_LABEL_BYTES];
    if (all->count > 1) { /* the same target given twice shows how much its own runs differ */
        char *name = (*target)->name;
        size_t length = via_min(strlen(name), sizeof((*target)->name) - NUMBER_BYTES);
        snprintf(name + length, NUMBER_BYTES, " #%u", index + 1);
    }
    snprintf(label, sizeof(label), "%.60s (%.60s)", (*target)->name, (*target)->way);
    rc = via_perf_set_add(all->set, label, &all->series[index]);
    return rc == 0 ? 0 : via_error_set(err, rc, "%s: %s", label, strerror(-rc));
}

static void close_targets(struct measuring *all)
{
    for (unsigned i = 0; i < all->count; i++) {
        if (all->targets[i] != NULL) {
            all->targets[i]->ops->close(all->targets[i]);
        }
    }
}

/* --- rows --- */

static bool is_taking_part(const struct measuring *all, unsigned index,
                           enum via_perf_direction direction, size_t bytes)
{
    const struct via_perf_target *target = all->targets[index];
    return via_perf_target_is_able(target, direction, bytes) &&
           (all->writes || !target->keeps_data || direction != VIA_PERF_TO_DEVICE);
}

static int explain(struct via_error *err, int rc, const struct via_perf_target *target,
                   enum via_perf_direction direction, size_t bytes)
{
    if (err->text[0] == '\0') {
        via_error_set(err, rc, "%s", strerror(-rc));
    }
    via_error_prefix(err, "%s: %s, %zu bytes: ", target->name, via_perf_direction_name(direction),
                     bytes);
    return rc;
}

/* The targets take turns, so that load of the machine affects all of them. */
static int run_rounds(struct measuring *all, enum via_perf_direction direction, size_t bytes,
                      uint64_t ns[TARGETS_MAX][ROUNDS], unsigned *ret_rounds, struct via_error *err)
{
    uint64_t begin_ns = via_perf_target_now_ns();
    unsigned round = 0;
    /* The first round warms up, and the next one overwrites its times. */
    for (bool is_warm = false;
         round < ROUNDS && (round < VIA_PERF_ROUNDS_MIN ||
                            via_perf_target_now_ns() - begin_ns < all->count * SPAN_NS);
         round += is_warm, is_warm = true) {
        for (unsigned i = 0; i < all->count; i++) {
            struct via_perf_target *target = all->targets[i];
            if (!is_taking_part(all, i, direction, bytes)) {
                continue;
            }
            uint64_t start_ns = via_perf_target_now_ns();
            int rc = target->ops->transfer(target, direction, bytes, err);
            ns[i][round] = via_perf_target_now_ns() - start_ns;
            if (rc != 0) {
                return explain(err, rc, target, direction, bytes);
            }
        }
    }
    *ret_rounds = round;
    return 0;
}

static void print_row(const struct measuring *all, unsigned index,
                      const struct via_perf_point *point)
{
    if (all->count > 1) {
        printf("%-3u", index + 1);
    }
    printf("%-10s %10llu %12.3f %12.3f %12.3f %12.1f\n", via_perf_direction_name(point->direction),
           (unsigned long long)point->bytes, point->median_ns / 1e3, point->quartile1_ns / 1e3,
           point->quartile3_ns / 1e3, 1e3 * (double)point->bytes / point->median_ns);
}

static int measure_size(struct measuring *all, enum via_perf_direction direction, size_t bytes,
                        struct via_error *err)
{
    static uint64_t ns[TARGETS_MAX][ROUNDS];
    unsigned rounds = 0;
    int rc = run_rounds(all, direction, bytes, ns, &rounds, err);
    for (unsigned i = 0; rc == 0 && i < all->count; i++) {
        struct via_perf_target *target = all->targets[i];
        struct via_perf_point point = {.direction = direction, .bytes = bytes};
        if (!is_taking_part(all, i, direction, bytes)) {
            continue;
        }
        if (target->ops->check != NULL) {
            rc = target->ops->check(target, direction, bytes, err);
            if (rc != 0) {
                return explain(err, rc, target, direction, bytes);
            }
        }
        via_perf_point_make(ns[i], rounds, &point);
        rc = via_perf_series_add(all->series[i], &point);
        if (rc != 0) {
            return via_error_set(err, rc, "%zu bytes: %s", bytes,
                                 rc == -EEXIST ? "twice in --sizes" : strerror(-rc));
        }
        print_row(all, i, &point);
    }
    return rc;
}

static bool is_any(const struct measuring *all, enum via_perf_direction direction, size_t bytes)
{
    for (unsigned i = 0; i < all->count; i++) {
        if (is_taking_part(all, i, direction, bytes)) {
            return true;
        }
    }
    return false;
}

/* Checks that each target supports at least one size. */
static int check_sizes(const struct measuring *all, struct via_error *err)
{
    for (unsigned i = 0; i < all->count; i++) {
        const struct via_perf_target *target = all->targets[i];
        bool any = false;
        for (unsigned k = 0; k < all->sizes_count; k++) {
            for (unsigned direction = 0; direction < VIA_PERF_DIRECTIONS; direction++) {
                any |= is_taking_part(all, i, (enum via_perf_direction)direction, all->sizes[k]);
            }
        }
        if (!any) {
            return via_error_set(
                err, -EINVAL,
                "%s: measure: it has %llu bytes and takes multiples of %u: none of "
                "the sizes",
                target->name, (unsigned long long)target->bytes, target->size_min);
        }
    }
    return 0;
}

static void print_head(const struct measuring *all)
{
    for (unsigned i = 0; i < all->count; i++) {
        if (all->count > 1) {
            printf("%u = %s\n", i + 1, all->series[i]->label);
        } else {
            printf("by %s\n", all->targets[i]->way);
        }
    }
    printf("%*s%-10s %10s %12s %12s %12s %12s\n", all->count > 1 ? 3 : 0, "", "", "bytes", "us",
           "1st quart.", "3rd quart.", "MB/s");
}

/* Number of rows in all directions. A file has no loop, and a device that must not be written has
 * one direction only. */
static unsigned count_sizes(const struct measuring *all)
{
    unsigned count = 0;
    for (unsigned direction = 0; direction < VIA_PERF_DIRECTIONS; direction++) {
        for (unsigned k = 0; k < all->sizes_count; k++) {
            count += is_any(all, (enum via_perf_direction)direction, all->sizes[k]) ? 1 : 0;
        }
    }
    return count;
}

static int measure_all(struct measuring *all, struct via_error *err)
{
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < all->count; i++) {
        rc = open_target(all, i, err);
    }
    rc = rc == 0 ? check_sizes(all, err) : rc;
    if (rc != 0) {
        return rc;
    }
    struct via_progress progress;
    via_progress_begin(&progress, "viaduct perf device: size", count_sizes(all));
    uint64_t done = 0;
    print_head(all);
    for (unsigned direction = 0; direction < VIA_PERF_DIRECTIONS; direction++) {
        for (unsigned k = 0; rc == 0 && k < all->sizes_count; k++) {
            if (is_any(all, (enum via_perf_direction)direction, all->sizes[k])) {
                rc = measure_size(all, (enum via_perf_direction)direction, all->sizes[k], err);
                via_progress_step(&progress, ++done);
            }
        }
    }
    via_progress_end(&progress);
    return rc;
}

/* --- output --- */

static int open_output(const char *path, FILE **ret_file, struct via_error *err)
{
    *ret_file = path != NULL ? fopen(path, "we") : NULL;
    return path == NULL || *ret_file != NULL
               ? 0
               : via_error_set(err, -errno, "%s: open: %s", path, strerror(errno));
}

static int close_output(const char *path, FILE *file, int rc, struct via_error *err)
{
    bool failed = file != NULL && ferror(file) != 0;
    if (file != NULL && (fclose(file) != 0 || failed) && rc == 0) {
        return via_error_set(err, -EIO, "%s: write: %s", path, strerror(errno));
    }
    return rc;
}

static void write_rows(const struct measuring *all)
{
    via_perf_series_write_head(all->csv);
    for (unsigned i = 0; i < all->count; i++) {
        for (unsigned k = 0; k < all->series[i]->points_count; k++) {
            via_perf_series_write(all->csv, all->targets[i]->way, all->targets[i]->name,
                                  &all->series[i]->points[k]);
        }
    }
}

static int measure(struct measuring *all, struct via_error *err)
{
    int rc = measure_all(all, err);
    if (rc == 0 && all->csv != NULL) {
        write_rows(all);
    }
    if (rc == 0 && all->count > 1) {
        printf("\n");
        (void)via_perf_set_compare(all->set, stdout, NULL);
    }
    close_targets(all);
    return rc;
}

static int read_series(struct measuring *all, char *word, struct via_error *err)
{
    char *equals = strchr(word, '=');
    const char *path = equals != NULL ? equals + 1 : word;
    const char *label = equals != NULL && equals != word ? word : NULL;
    unsigned char *text;
    size_t bytes;
    int rc = via_cli_card_read(path, VIA_PERF_SERIES_BYTES_MAX, &text, &bytes, err);
    if (rc != 0) {
        return rc;
    }
    if (equals != NULL) {
        *equals = '\0';
    }
    rc = via_perf_set_read(all->set, path, label, (const char *)text, bytes, err);
    free(text);
    return rc;
}

static int compare(struct measuring *all, char **words, int count, struct via_error *err)
{
    int rc = 0;
    for (int i = 0; rc == 0 && i < count; i++) {
        rc = read_series(all, words[i], err);
    }
    if (rc == 0) {
        via_perf_set_merge(all->set);
    }
    if (rc == 0 && all->set->series_count < 2) {
        rc = via_error_set(err, -EINVAL,
                           "compare: one target or label in all, at least two are needed");
    }
    if (rc == 0 && via_perf_set_compare(all->set, stdout, all->csv) == 0) {
        rc = via_error_set(err, -EINVAL,
                           "compare: no direction and size that the first target has "
                           "in common with another one");
    }
    return rc;
}

static int run(struct measuring *all, char **words, int count)
{
    struct via_error err = {0};
    int rc = open_output(all->csv_path, &all->csv, &err);
    rc = rc == 0 ? open_output(all->plot_path, &all->plot, &err) : rc;
    if (rc == 0) {
        rc = all->compares ? compare(all, words, count, &err) : measure(all, &err);
    }
    if (rc == 0 && all->plot != NULL) {
        via_perf_set_draw(all->set, all->plot);
    }
    rc = close_output(all->csv_path, all->csv, rc, &err);
    rc = close_output(all->plot_path, all->plot, rc, &err);
    return rc == 0 ? VIA_CLI_OK : via_cli_fail(all->name, &err);
}

/* --- the command line --- */

static int take_sizes(struct measuring *all, char *text)
{
    char *rest = NULL;
    all->sizes_count = 0;
    for (char *word = strtok_r(text, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
        uint64_t bytes;
        if (via_perf_size(word, &bytes) != 0) {
            return via_cli_usage(all->name, "--sizes: '%s': not 1 to 1G bytes", word);
        }
        if (all->sizes_count == VIA_PERF_SIZES_MAX) {
            return via_cli_usage(all->name, "--sizes: more than %u", VIA_PERF_SIZES_MAX);
        }
        all->sizes[all->sizes_count++] = (size_t)bytes;
    }
    return all->sizes_count != 0 ? -1 : via_cli_usage(all->name, "--sizes: none");
}

static int take_bar(struct measuring *all, const char *text)
{
    unsigned bar;
    if (via_cli_number(text, 0, BAR_MAX, &bar) != 0) {
        return via_cli_usage(all->name, "--bar: '%s': not 0 to %u", text, BAR_MAX);
    }
    if (all->count == 0) {
        all->bar = bar;
    } else if (all->wanted[all->count - 1].kind == 'd') {
        all->wanted[all->count - 1].bar = bar;
    } else {
        return via_cli_usage(all->name, "--bar %u: it follows its --device", bar);
    }
    return -1;
}

/* -1: the option was taken; otherwise the exit code. */
static int take_option(struct measuring *all, int opt)
{
    switch (opt) {
    case 'd':
    case 'f':
    case 'e':
    case 'g':
        if (all->count == TARGETS_MAX) {
            return via_cli_usage(all->name, "more than %u targets", TARGETS_MAX);
        }
        all->wanted[all->count++] =
            (struct wanted){.kind = (char)opt, .text = optarg, .bar = all->bar};
        return -1;
    case 'b':
        return take_bar(all, optarg);
    case 's':
        return take_sizes(all, optarg);
    case 'w':
        all->writes = true;
        return -1;
    case 'c':
        all->csv_path = optarg;
        return -1;
    case 'p':
        all->plot_path = optarg;
        return -1;
    case 'x':
        all->compares = true;
        return -1;
    case OPT_CUDA:
        all->cuda_library = optarg;
        return -1;
    default:
        return via_cli_take_help(all->name, opt, help);
    }
}

int via_perf_device(int argc, char **argv)
{
    static struct via_perf_set set;
    struct measuring all = {.name = argv[0], .set = &set, .bar = BAR_DEFAULT};
    for (size_t bytes = 4; bytes <= 4u << 20; bytes *= 4) {
        all.sizes[all.sizes_count++] = bytes;
    }
    for (int c; (c = getopt_long(argc, argv, "h", long_options, NULL)) != -1;) {
        int code = take_option(&all, c);
        if (code >= 0) {
            return code;
        }
    }
    if (all.compares) {
        if (all.count != 0 || optind == argc) {
            return via_cli_usage(all.name, all.count != 0 ? "--compare takes files, not targets"
                                                          : "--compare: no file");
        }
        return run(&all, argv + optind, argc - optind);
    }
    if (optind != argc || all.count == 0) {
        return via_cli_usage(all.name, optind != argc
                                           ? "one argument too many"
                                           : "no target: --device, --file, --engine or --gpu");
    }
    return run(&all, NULL, 0);
}
