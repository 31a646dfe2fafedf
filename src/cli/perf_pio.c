/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* viaduct perf pio: stores by width, write-combined and uncached, compared with DMA, by size. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "cli/card.h"
#include "cli/cli.h"
#include "cli/perf.h"
#include "cli/perf_chart.h"
#include "progress/progress.h"
#include "tune/pio.h"

#define SECONDS_DEFAULT 0.02
#define WAIT_NS (10 * VIA_SEC_NS)
#define FIGURES_MAX (VIA_PIO_WAYS_MAX * VIA_PERF_SIZES_MAX)

static const char help[] =
    "usage: viaduct perf pio [--link LINK [--link LINK]] [OPTION...]\n"
    "       viaduct perf pio --device D [--bar N] [OPTION...]\n"
    "       viaduct perf pio --serve --link LINK\n"
    "\n"
    "What stores of a CPU into a link's window cost by their width, write-combined and not, "
    "beside\n"
    "the port's own copies, its DMA engine and memcpy: one message at a time, until it has\n"
    "arrived, and without a pause. No daemon may have the link.\n"
    "\n"
    "  --link LINK      as in viaductd(8); the first one is measured, a second one is its other "
    "end\n"
    "                   (default: both ends of an emulated link)\n"
    "  --wait S         for the other end (default 10)\n"
    "  --serve          be the other end of a link, until a signal\n"
    "  --device D       0000:03:00.0 (bound to vfio-pci): a BAR. WHAT IS THERE IS LOST\n"
    "  --bar N          0 to 5 (default 2)\n"
    "  --sizes N,...    bytes, with K or M for powers of 1024, up to 1M\n"
    "                   (default 8,64,256,1K,4K,16K,64K,256K,1M)\n"
    "  --threads N      without a pause: by N threads at once, 1 to 8 (default 1)\n"
    "  --cpu N          the CPU of the first thread (default: where it runs)\n"
    "  --seconds S      of each figure (default 0.02)\n"
    "  --json           the same for programs\n"
    "  --csv FILE       the rows, too\n"
    "  --plot FILE      a picture of the rates with the sizes from which one way is faster (SVG)\n"
    "  -h, --help       this text\n";

static const struct option long_options[] = {
    {"link", required_argument, NULL, 'l'},   {"serve", no_argument, NULL, 'v'},
    {"device", required_argument, NULL, 'd'}, {"bar", required_argument, NULL, 'b'},
    {"sizes", required_argument, NULL, 's'},  {"threads", required_argument, NULL, 't'},
    {"cpu", required_argument, NULL, 'c'},    {"seconds", required_argument, NULL, 'S'},
    {"json", no_argument, NULL, 'j'},         {"csv", required_argument, NULL, 'C'},
    {"plot", required_argument, NULL, 'p'},   {"wait", required_argument, NULL, 'w'},
    {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0},
};

struct pio {
    struct via_pio_link link;
    struct via_pio_measure measure;
    const char *device, *csv_path, *plot_path;
    unsigned bar, cpu;
    uint64_t wait_ns;
    bool serves, is_json;
    uint64_t sizes[VIA_PERF_SIZES_MAX];
    unsigned sizes_count;
    struct via_pio_way ways[VIA_PIO_WAYS_MAX];
    unsigned ways_count;
    struct via_pio_figure figures[FIGURES_MAX];
    unsigned figures_count;
};

static _Atomic bool stopped;

static void on_signal(int number)
{
    (void)number;
    atomic_store_explicit(&stopped, true, memory_order_relaxed);
}

/* --- options --- */

static const char *take_sizes(struct pio *pio, char *text)
{
    pio->sizes_count = 0;
    while (text != NULL) {
        char *word = strsep(&text, ",");
        if (pio->sizes_count == VIA_PERF_SIZES_MAX ||
            via_perf_size(word, &pio->sizes[pio->sizes_count]) != 0 ||
            pio->sizes[pio->sizes_count] > VIA_PIO_SIZE_MAX ||
            pio->sizes[pio->sizes_count] % 4 != 0) {
            return word;
        }
        pio->sizes_count++;
    }
    return NULL;
}

/* -1: the option was taken; otherwise the exit code. */
static int take_option(const char *name, int opt, struct pio *pio)
{
    const char *wrong;
    switch (opt) {
    case 'l':
        if (pio->link.ends_count == 2) {
            return via_cli_usage(name, "--link: '%s': a link has two ends", optarg);
        }
        pio->link.ends[pio->link.ends_count++].text = optarg;
        return -1;
    case 'w':
        return via_perf_seconds(optarg, &pio->wait_ns) == 0
                   ? -1
                   : via_cli_usage(name, "--wait: '%s': not a number above 0, up to 3600", optarg);
    case 'v':
        pio->serves = true;
        return -1;
    case 'd':
        pio->device = optarg;
        return -1;
    case 'b':
        return via_cli_number(optarg, 0, 5, &pio->bar) == 0
                   ? -1
                   : via_cli_usage(name, "--bar: '%s': not 0 to 5", optarg);
    case 's':
        wrong = take_sizes(pio, optarg);
        return wrong == NULL
                   ? -1
                   : via_cli_usage(name,
                                   "--sizes: '%s': not a multiple of 4 from 4 to 1M bytes, or one "
                                   "too many",
                                   wrong);
    case 't':
        return via_cli_number(optarg, 1, VIA_PIO_THREADS_MAX, &pio->measure.threads) == 0
                   ? -1
                   : via_cli_usage(name, "--threads: '%s': not 1 to %u", optarg,
                                   VIA_PIO_THREADS_MAX);
    case 'c':
        return via_cli_number(optarg, 0, CPU_SETSIZE - 1, &pio->cpu) == 0
                   ? -1
                   : via_cli_usage(name, "--cpu: '%s': not a number of a CPU", optarg);
    case 'S':
        return via_perf_seconds(optarg, &pio->measure.span_ns) == 0
                   ? -1
                   : via_cli_usage(name, "--seconds: '%s': not a number above 0, up to 3600",
                                   optarg);
    case 'j':
        pio->is_json = true;
        return -1;
    case 'C':
        pio->csv_path = optarg;
        return -1;
    case 'p':
        pio->plot_path = optarg;
        return -1;
    default:
        return via_cli_take_help(name, opt, help);
    }
}

static int take_options(int argc, char **argv, struct pio *pio)
{
    char sizes[] = "8,64,256,1K,4K,16K,64K,256K,1M";
    (void)take_sizes(pio, sizes);
    pio->measure.span_ns = (uint64_t)(SECONDS_DEFAULT * (double)VIA_SEC_NS);
    pio->measure.threads = 1;
    pio->cpu = VIA_PIO_HERE;
    pio->bar = 2;
    pio->wait_ns = WAIT_NS;
    for (int opt; (opt = getopt_long(argc, argv, "h", long_options, NULL)) != -1;) {
        int code = take_option(argv[0], opt, pio);
        if (code >= 0) {
            return code;
        }
    }
    if (optind != argc) {
        return via_cli_usage(argv[0], "'%s': not an option", argv[optind]);
    }
    if (pio->device != NULL && (pio->link.ends_count != 0 || pio->serves)) {
        return via_cli_usage(argv[0], "either --device or --link");
    }
    if (pio->serves && pio->link.ends_count != 1) {
        return via_cli_usage(argv[0], "--serve: one --link is needed");
    }
    return -1;
}

/* --- measuring --- */

static int measure_all(struct pio *pio, struct via_error *err)
{
    int rc = 0;
    struct via_progress progress;
    pio->ways_count = via_pio_measure_ways(&pio->measure, pio->ways);
    via_progress_begin(&progress, "viaduct perf pio: figure", pio->sizes_count * pio->ways_count);
    for (unsigned i = 0; i < pio->sizes_count && rc >= 0; i++) {
        for (unsigned k = 0; k < pio->ways_count && rc >= 0; k++) {
            rc = via_pio_measure_one(&pio->measure, &pio->ways[k], pio->sizes[i],
                                     &pio->figures[pio->figures_count], err);
            pio->figures_count += rc > 0;
            via_progress_step(&progress, i * pio->ways_count + k + 1);
        }
    }
    via_progress_end(&progress);
    return rc < 0 ? rc : 0;
}

static bool is_same(const struct via_pio_way *a, const struct via_pio_way *b)
{
    return a->kind == b->kind && a->view == b->view && a->store == b->store;
}

static const struct via_pio_figure *figure_at(const struct pio *pio, const struct via_pio_way *way,
                                              uint64_t bytes)
{
    for (unsigned i = 0; i < pio->figures_count; i++) {
        if (pio->figures[i].bytes == bytes && is_same(&pio->figures[i].way, way)) {
            return &pio->figures[i];
        }
    }
    return NULL;
}

/* The classes of ways into the window: the CPU's stores, those of one kind of mapping, or the
 * engine. */
enum class { CPU, UNCACHED, COMBINED, ENGINE };

static bool is_of(const struct pio *pio, const struct via_pio_way *way, enum class class)
{
    if (class == ENGINE || class == CPU) {
        return class == ENGINE ? way->kind == VIA_PIO_DMA
                               : way->kind == VIA_PIO_STORE || way->kind == VIA_PIO_PORT;
    }
    return way->kind == VIA_PIO_STORE &&
           pio->link.views[way->view].caching ==
               (class == COMBINED ? VIA_PORT_COMBINING : VIA_PORT_UNCACHED);
}

/* The fastest way of a class, for one message or for a sustained stream. */
static const struct via_pio_figure *best_of(const struct pio *pio, enum class class, uint64_t bytes,
                                            bool sustained)
{
    const struct via_pio_figure *best = NULL;
    for (unsigned i = 0; i < pio->figures_count; i++) {
        const struct via_pio_figure *it = &pio->figures[i];
        if (it->bytes == bytes && is_of(pio, &it->way, class) &&
            (best == NULL || (sustained ? it->bytes_per_sec > best->bytes_per_sec
                                        : it->median_ns < best->median_ns))) {
            best = it;
        }
    }
    return best;
}

/* The smallest measured size from which on the second class is faster at all measured sizes; 0: it
 * is slower at the largest size. */
static uint64_t crossover(const struct pio *pio, enum class first, enum class second,
                          bool sustained)
{
    uint64_t from = 0;
    for (unsigned i = pio->sizes_count; i-- > 0;) {
        const struct via_pio_figure *one = best_of(pio, first, pio->sizes[i], sustained);
        const struct via_pio_figure *other = best_of(pio, second, pio->sizes[i], sustained);
        if (one == NULL || other == NULL ||
            (sustained ? other->bytes_per_sec <= one->bytes_per_sec
                       : other->median_ns >= one->median_ns)) {
            break;
        }
        from = pio->sizes[i];
    }
    return from;
}

static bool has_dma(const struct pio *pio)
{
    return pio->link.has_dma;
}

/* --- the table --- */

static void print_size(uint64_t bytes)
{
    if (bytes >= 1024 && bytes % 1024 == 0) {
        printf(bytes % (1u << 20) == 0 ? "%lluM" : "%lluK",
               (unsigned long long)(bytes % (1u << 20) == 0 ? bytes >> 20 : bytes >> 10));
    } else {
        printf("%llu", (unsigned long long)bytes);
    }
}

enum column { SINGLE, ARRIVAL, RATE, COLUMNS };

static void print_table(const struct pio *pio, enum column column)
{
    static const char *const titles[COLUMNS] = {
        [SINGLE] = "one message, until its stores have left or the engine is done: median, ns",
        [ARRIVAL] = "one message, until it is proven to have arrived: median, ns",
        [RATE] = "without a pause: MB/s",
    };
    printf("\n%s\n%8s", titles[column], "bytes");
    for (unsigned k = 0; k < pio->ways_count; k++) {
        char name[32];
        via_pio_way_name(&pio->link, &pio->ways[k], name, sizeof(name));
        printf(" %9s", name);
    }
    putchar('\n');
    for (unsigned i = 0; i < pio->sizes_count; i++) {
        char text[24];
        bool is_k = pio->sizes[i] >= 1024 && pio->sizes[i] % 1024 == 0;
        snprintf(text, sizeof(text), "%llu%s",
                 (unsigned long long)(is_k ? pio->sizes[i] >> 10 : pio->sizes[i]), is_k ? "K" : "");
        printf("%8s", text);
        for (unsigned k = 0; k < pio->ways_count; k++) {
            const struct via_pio_figure *it = figure_at(pio, &pio->ways[k], pio->sizes[i]);
            double value = it == NULL          ? 0
                           : column == SINGLE  ? it->median_ns
                           : column == ARRIVAL ? it->arrival_ns
                                               : it->bytes_per_sec / 1e6;
            if (value > 0) {
                printf(" %9.*f", value < 100 ? 1 : 0, value);
            } else {
                printf(" %9s", "-");
            }
        }
        putchar('\n');
    }
}

static void print_crossover(const struct pio *pio, bool sustained)
{
    uint64_t from = crossover(pio, CPU, ENGINE, sustained);
    printf("%s: DMA is ", sustained ? "without a pause" : "one message");
    if (from != 0) {
        printf("faster than every way of the CPU from ");
        print_size(from);
        printf(" bytes on\n");
    } else {
        printf("not faster up to ");
        print_size(pio->sizes[pio->sizes_count - 1]);
        printf(" bytes\n");
    }
}

static void print_text(const struct pio *pio, const char *found, const char *const *limits)
{
    printf("%s%s%s\n", via_pio_link_name(&pio->link), found[0] != '\0' ? ": " : "", found);
    printf("CPU %u, %u thread%s; %s, whose cost of %.1f ns is taken off\n", pio->measure.cpu,
           pio->measure.threads, pio->measure.threads != 1 ? "s" : "",
           pio->measure.clock.is_tsc ? "time stamp counter" : "the system's clock",
           (double)pio->measure.clock.cost_ticks * pio->measure.clock.ns_per_tick);
    for (unsigned i = 0; limits[i] != NULL; i++) {
        printf("note: %s\n", limits[i]);
    }
    printf("columns: wc write-combined, uc uncached, mem memory; bytes of one store, nt "
           "non-temporal, dir movdir64b\n");
    for (enum column column = SINGLE; column < COLUMNS; column++) {
        print_table(pio, column);
    }
    if (has_dma(pio)) {
        putchar('\n');
        print_crossover(pio, false);
        print_crossover(pio, true);
    }
}

/* --- for programs --- */

static json_t *figure_json(const struct pio *pio, const struct via_pio_figure *it)
{
    static const char *const kinds[] = {[VIA_PIO_STORE] = "store",
                                        [VIA_PIO_PORT] = "port",
                                        [VIA_PIO_DMA] = "dma",
                                        [VIA_PIO_MEMCPY] = "memcpy"};
    json_t *row = json_pack("{s:s, s:I, s:i, s:i, s:f, s:f, s:f}", "way", kinds[it->way.kind],
                            "bytes", (json_int_t)it->bytes, "runs", (int)it->runs, "runs_kept",
                            (int)it->runs_kept, "mean_ns", it->mean_ns, "median_ns", it->median_ns,
                            "bytes_per_second", it->bytes_per_sec);
    if (it->way.kind != VIA_PIO_MEMCPY) {
        json_object_set_new(row, "arrival_ns", json_real(it->arrival_ns));
    }
    if (it->way.kind == VIA_PIO_STORE) {
        const struct via_store *store = &via_stores[it->way.store];
        json_object_set_new(
            row, "caching",
            json_string(via_pio_caching_name(pio->link.views[it->way.view].caching)));
        json_object_set_new(row, "store", json_string(store->name));
        json_object_set_new(row, "store_bytes", json_integer(store->bytes));
        json_object_set_new(row, "nontemporal", json_boolean(store->is_nontemporal));
    }
    return row;
}

static json_t *best_json(const struct pio *pio, bool sustained)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < pio->sizes_count; i++) {
        const struct via_pio_figure *best = best_of(pio, CPU, pio->sizes[i], sustained);
        char name[32];
        if (best != NULL) {
            via_pio_way_name(&pio->link, &best->way, name, sizeof(name));
            json_array_append_new(
                list, json_pack("{s:I, s:s}", "bytes", (json_int_t)pio->sizes[i], "way", name));
        }
    }
    return list;
}

static void print_json(const struct pio *pio, const char *found, const char *const *limits)
{
    json_t *root =
        json_pack("{s:s, s:s, s:I, s:i, s:i, s:b, s:f, s:o, s:o, s:o}", "link",
                  via_pio_link_name(&pio->link), "found", found, "window_bytes",
                  (json_int_t)pio->link.window_bytes, "cpu", (int)pio->measure.cpu, "threads",
                  (int)pio->measure.threads, "tsc", (int)pio->measure.clock.is_tsc, "clock_cost_ns",
                  (double)pio->measure.clock.cost_ticks * pio->measure.clock.ns_per_tick, "limits",
                  json_array(), "rows", json_array(), "crossover", json_null());
    for (unsigned i = 0; limits[i] != NULL; i++) {
        json_array_append_new(json_object_get(root, "limits"), json_string(limits[i]));
    }
    for (unsigned i = 0; i < pio->figures_count; i++) {
        json_array_append_new(json_object_get(root, "rows"), figure_json(pio, &pio->figures[i]));
    }
    json_object_set_new(root, "best",
                        json_pack("{s:o, s:o}", "single", best_json(pio, false), "sustained",
                                  best_json(pio, true)));
    if (has_dma(pio)) {
        uint64_t single = crossover(pio, CPU, ENGINE, false),
                 sustained = crossover(pio, CPU, ENGINE, true);
        json_object_set_new(
            root, "crossover",
            json_pack("{s:o, s:o}", "single_bytes",
                      single != 0 ? json_integer((json_int_t)single) : json_null(),
                      "sustained_bytes",
                      sustained != 0 ? json_integer((json_int_t)sustained) : json_null()));
    }
    json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(root);
}

static int write_csv(const struct pio *pio, struct via_error *err)
{
    FILE *csv = fopen(pio->csv_path, "we");
    if (csv == NULL) {
        return via_error_set(err, -errno, "%s: open: %s", pio->csv_path, strerror(errno));
    }
    fprintf(csv, "way,bytes,runs,runs_kept,mean_ns,median_ns,arrival_ns,bytes_per_second\n");
    for (unsigned i = 0; i < pio->figures_count; i++) {
        const struct via_pio_figure *it = &pio->figures[i];
        char name[32];
        via_pio_way_name(&pio->link, &it->way, name, sizeof(name));
        fprintf(csv, "%s,%llu,%u,%u,%.2f,%.2f,%.2f,%.0f\n", name, (unsigned long long)it->bytes,
                it->runs, it->runs_kept, it->mean_ns, it->median_ns, it->arrival_ns,
                it->bytes_per_sec);
    }
    return fclose(csv) == 0
               ? 0
               : via_error_set(err, -errno, "%s: write: %s", pio->csv_path, strerror(errno));
}

/* --- the chart --- */

static void add_curves(const struct pio *pio, bool sustained, struct via_chart_panel *panel)
{
    for (unsigned k = 0; k < pio->ways_count; k++) {
        for (unsigned i = 0; i < pio->sizes_count; i++) {
            const struct via_pio_figure *it = figure_at(pio, &pio->ways[k], pio->sizes[i]);
            double rate = it == NULL  ? 0
                          : sustained ? it->bytes_per_sec / 1e6
                                      : (double)it->bytes * 1e3 / it->median_ns;
            if (rate > 0 && isfinite(rate)) {
                panel->points[k][panel->points_count[k]++] =
                    (struct via_chart_point){.bytes = pio->sizes[i], .rate = rate};
            }
        }
    }
}

static void add_note(const struct pio *pio, enum class first, enum class second, bool sustained,
                     struct via_chart_panel *panel)
{
    static const char *const names[] = {[CPU] = "the CPU",
                                        [UNCACHED] = "uncached stores",
                                        [COMBINED] = "write-combined stores",
                                        [ENGINE] = "DMA"};
    uint64_t from = crossover(pio, first, second, sustained);
    if (from != 0) {
        panel->notes_bytes[panel->notes_count] = from;
        snprintf(panel->notes[panel->notes_count++], sizeof(panel->notes[0]),
                 "%s above %s from %llu B", names[second], names[first], (unsigned long long)from);
    }
}

_Static_assert(VIA_PIO_WAYS_MAX <= VIA_CHART_CURVES_MAX &&
                   VIA_PERF_SIZES_MAX <= VIA_CHART_POINTS_MAX,
               "all that is measured is drawn");

static int write_plot(const struct pio *pio, struct via_error *err)
{
    static struct via_chart_panel panels[2] = {
        {.title = "One message, until its stores have left or the engine is done: MB/s by bytes"},
        {.title = "Without a pause: MB/s by bytes"}};
    static char labels[VIA_CHART_CURVES_MAX][32];
    FILE *out = fopen(pio->plot_path, "we");
    if (out == NULL) {
        return via_error_set(err, -errno, "%s: open: %s", pio->plot_path, strerror(errno));
    }
    for (unsigned k = 0; k < pio->ways_count; k++) {
        via_pio_way_name(&pio->link, &pio->ways[k], labels[k], sizeof(labels[k]));
    }
    for (unsigned p = 0; p < VIA_ARRAY_COUNT(panels); p++) {
        add_curves(pio, p == 1, &panels[p]);
        add_note(pio, CPU, ENGINE, p == 1, &panels[p]);
        add_note(pio, UNCACHED, COMBINED, p == 1, &panels[p]);
    }
    via_chart_draw(panels, VIA_ARRAY_COUNT(panels), labels, pio->ways_count, out);
    return fclose(out) == 0
               ? 0
               : via_error_set(err, -errno, "%s: write: %s", pio->plot_path, strerror(errno));
}

static int open_link(struct pio *pio, struct via_error *err)
{
    struct via_pci *pci;
    if (pio->device == NULL) {
        return via_pio_link_open(&pio->link, pio->wait_ns, err);
    }
    int rc = via_cli_card_open(pio->device, NULL, &pci, err);
    return rc == 0 ? via_pio_link_open_bar(&pio->link, pio->device, pci, pio->bar, err) : rc;
}

static int measure_and_print(struct pio *pio, struct via_error *err)
{
    char found[256];
    const char *limits[VIA_PIO_LIMITS_MAX];
    int rc = open_link(pio, err);
    rc = rc == 0 ? via_pio_measure_begin(&pio->measure, pio->cpu, err) : rc;
    rc = rc == 0 ? measure_all(pio, err) : rc;
    rc = rc == 0 && pio->csv_path != NULL ? write_csv(pio, err) : rc;
    rc = rc == 0 && pio->plot_path != NULL ? write_plot(pio, err) : rc;
    if (rc != 0) {
        return rc;
    }
    via_pio_link_describe(&pio->link, found, sizeof(found));
    via_pio_link_limits(&pio->link, limits);
    (pio->is_json ? print_json : print_text)(pio, found, limits);
    return 0;
}

static int serve(struct pio *pio, struct via_error *err)
{
    struct sigaction stop = {.sa_handler = on_signal};
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
    return via_pio_link_serve(&pio->link, &stopped, err);
}

int via_perf_pio(int argc, char **argv)
{
    static struct pio pio; /* static, because its tables are large */
    struct via_error err = {0};
    int code = take_options(argc, argv, &pio);
    if (code >= 0) {
        return code;
    }
    pio.measure.link = &pio.link;
    int rc = pio.serves ? serve(&pio, &err) : measure_and_print(&pio, &err);
    via_pio_measure_end(&pio.measure);
    via_pio_link_close(&pio.link);
    return rc == 0 ? VIA_CLI_OK : via_cli_fail(argv[0], &err);
}
