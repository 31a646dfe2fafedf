/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/perf.h"

#define SECONDS_DEFAULT 0.5
#define SECONDS_MAX 3600.0

static const char help[] =
    "usage: viaduct perf pingpong|put|get|barrier [OPTION...]\n"
    "       viaduct perf shmem [OPTION...]\n"
    "       viaduct perf device [OPTION...]\n"
    "       viaduct perf pio [OPTION...]\n"
    "\n"
    "Measures the client library between two hosts of a fabric:\n"
    "  pingpong   a put each way, waited for in memory; beside it a bare cache line each way\n"
    "  put        puts one after another, then until all have arrived; beside it memcpy\n"
    "  get        gets one after another; beside it memcpy\n"
    "  barrier    barriers of all hosts\n"
    "  shmem      OpenSHMEM, on rings of its own; has options of its own (shmem --help)\n"
    "  device     a BAR, a drive or a file, without a fabric (device --help)\n"
    "  pio        stores into a link's window by width, beside DMA (pio --help)\n"
    "\n"
    "  --from A          host of the process that measures (default: the first)\n"
    "  --to B            host of the other one (default: the first other)\n"
    "  --hosts A,B,...   barrier: these hosts (default: all)\n"
    "  --sizes N,...     bytes, with K, M or G for powers of 1024 (default 8; put, get: 8,64K,1M)\n"
    "  --channels K,...  channels to use; put and get in turn (default: the host's choice)\n"
    "  --spread N        put, get: one after another through N bytes, which are then not in a "
    "cache\n"
    "  --no-memcpy       put, get: nothing beside it, for when several are measured at once\n"
    "  --seconds S       to measure each size (default 0.5)\n"
    "  --iterations N    operations of each size, instead\n"
    "  --json            the same for programs\n"
    "  --fabric NAME     name of the fabric (default $VIADUCT_FABRIC or 'default')\n"
    "  -h, --help        this text\n";

static const struct option long_options[] = {
    {"from", required_argument, NULL, 'F'},
    {"to", required_argument, NULL, 'T'},
    {"hosts", required_argument, NULL, 'H'},
    {"sizes", required_argument, NULL, 's'},
    {"channels", required_argument, NULL, 'c'},
    {"spread", required_argument, NULL, 'S'},
    {"seconds", required_argument, NULL, 't'},
    {"iterations", required_argument, NULL, 'n'},
    {"no-memcpy", no_argument, NULL, 'm'},
    {"json", no_argument, NULL, 'j'},
    {"fabric", required_argument, NULL, 'f'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static const char *const test_names[] = {
    [VIA_PERF_PINGPONG] = "pingpong",
    [VIA_PERF_PUT] = "put",
    [VIA_PERF_GET] = "get",
    [VIA_PERF_BARRIER] = "barrier",
};

struct options {
    const char *fabric;
    bool json;
};

/* --- words of the command line --------------------------------------------------------------- */

int via_perf_size(const char *text, uint64_t *ret_bytes)
{
    static const char units[] = "KMG";
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || errno != 0 || number == 0 || number > VIA_PERF_SIZE_MAX) {
        return -EINVAL;
    }
    const char *unit = *end != '\0' ? strchr(units, *end) : NULL;
    if (unit != NULL) {
        number <<= 10 * (unit - units + 1);
        end++;
    }
    if (*end != '\0' || number > VIA_PERF_SIZE_MAX) {
        return -EINVAL;
    }
    *ret_bytes = number;
    return 0;
}

typedef int take_word(struct via_perf *perf, const char *word);

static int take_size(struct via_perf *perf, const char *word)
{
    if (perf->sizes_count == VIA_PERF_SIZES_MAX) {
        return -EINVAL;
    }
    return via_perf_size(word, &perf->sizes[perf->sizes_count++]);
}

static int take_channel(struct via_perf *perf, const char *word)
{
    unsigned channel;
    if (perf->channels_count == VIA_PERF_CHANNELS_MAX ||
        via_cli_number(word, 0, VIA_PERF_CHANNELS_MAX - 1, &channel) != 0) {
        return -EINVAL;
    }
    perf->channels[perf->channels_count++] = (int)channel;
    return 0;
}

static int take_host(struct via_perf *perf, const char *word)
{
    unsigned host;
    if (perf->hosts_count == VIA_ARRAY_COUNT(perf->hosts) ||
        via_cli_number(word, VIA_TOPOLOGY_HOST_MIN, VIA_TOPOLOGY_HOST_MAX, &host) != 0) {
        return -EINVAL;
    }
    perf->hosts[perf->hosts_count++] = (uint16_t)host;
    return 0;
}

/* Takes each word of "a,b,c", and modifies text. NULL, or the invalid word. */
static const char *take_list(struct via_perf *perf, char *text, take_word *take)
{
    while (text != NULL) {
        char *comma = strchr(text, ',');
        if (comma != NULL) {
            *comma = '\0';
        }
        if (take(perf, text) != 0) {
            return text;
        }
        text = comma != NULL ? comma + 1 : NULL;
    }
    return NULL;
}

int via_perf_seconds(const char *text, uint64_t *ret_ns)
{
    char *end;
    double seconds = strtod(text, &end);
    if (*text == '\0' || *end != '\0' || !(seconds > 0) || seconds > SECONDS_MAX) {
        return -EINVAL;
    }
    *ret_ns = (uint64_t)(seconds * (double)VIA_SEC_NS);
    return 0;
}

static int complain(const char *name, const char *option, const char *word, const char *what)
{
    return via_cli_usage(name, "--%s: '%s': %s", option, word, what);
}

/* -1: the option was taken; otherwise the exit code. */
static int take_option(const char *name, int opt, struct via_perf *perf, struct options *options)
{
    const char *wrong;
    unsigned number;
    switch (opt) {
    case 'F':
    case 'T':
        if (via_cli_number(optarg, VIA_TOPOLOGY_HOST_MIN, VIA_TOPOLOGY_HOST_MAX,
                           opt == 'F' ? &perf->from : &perf->to) != 0) {
            return complain(name, opt == 'F' ? "from" : "to", optarg, "not the id of a host");
        }
        return -1;
    case 'H':
        wrong = take_list(perf, optarg, take_host);
        return wrong == NULL ? -1 : complain(name, "hosts", wrong, "not the id of a host");
    case 's':
        wrong = take_list(perf, optarg, take_size);
        return wrong == NULL ? -1
                             : complain(name, "sizes", wrong, "not 1 to 1G bytes, or one too many");
    case 'c':
        wrong = take_list(perf, optarg, take_channel);
        return wrong == NULL ? -1
                             : complain(name, "channels", wrong, "not the number of a channel");
    case 'S':
        return via_perf_size(optarg, &perf->spread) == 0
                   ? -1
                   : complain(name, "spread", optarg, "not 1 to 1G bytes");
    case 'm':
        perf->alone = true;
        return -1;
    case 't':
        return via_perf_seconds(optarg, &perf->span_ns) == 0
                   ? -1
                   : complain(name, "seconds", optarg, "not a number above 0, up to 3600");
    case 'n':
        if (via_cli_number(optarg, 1, 1000000000, &number) != 0) {
            return complain(name, "iterations", optarg, "not a number from 1 to 1000000000");
        }
        perf->iterations = number;
        return -1;
    case 'j':
        options->json = true;
        return -1;
    case 'f':
        options->fabric = optarg;
        return -1;
    default:
        return via_cli_take_help(name, opt, help);
    }
}

static int take_test(int argc, char **argv, struct via_perf *perf)
{
    if (optind >= argc) {
        return via_cli_usage(argv[0], "which test? pingpong, put, get, barrier or shmem");
    }
    const char *word = argv[optind];
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(test_names); i++) {
        if (strcmp(word, test_names[i]) == 0) {
            perf->test = (enum via_perf_test)i;
            return optind + 1 == argc
                       ? -1
                       : via_cli_usage(argv[0], "'%s': one test at a time", argv[optind + 1]);
        }
    }
    return via_cli_usage(argv[0], "'%s': unknown test: pingpong, put, get, barrier or shmem", word);
}

static int compare_hosts(const void *a, const void *b)
{
    return (int)*(const uint16_t *)a - (int)*(const uint16_t *)b;
}

/* Sets defaults, and refuses options that exclude each other. */
static int complete(const char *name, struct via_perf *perf)
{
    if (perf->sizes_count == 0) {
        bool moves = perf->test == VIA_PERF_PUT || perf->test == VIA_PERF_GET;
        perf->sizes[perf->sizes_count++] = 8;
        if (moves) {
            perf->sizes[perf->sizes_count++] = 64 << 10;
            perf->sizes[perf->sizes_count++] = 1 << 20;
        }
    }
    if (perf->test == VIA_PERF_BARRIER) {
        perf->sizes[0] = 0;
        perf->sizes_count = 1;
    }
    for (unsigned i = 0; i < perf->sizes_count && perf->test == VIA_PERF_PINGPONG; i++) {
        if (perf->sizes[i] % 8 != 0) {
            return via_cli_usage(name, "--sizes: %llu: a ping is a multiple of 8 bytes",
                                 (unsigned long long)perf->sizes[i]);
        }
    }
    if (perf->hosts_count != 0 && perf->test != VIA_PERF_BARRIER) {
        return via_cli_usage(name, "--hosts is for barrier; %s has --from and --to",
                             test_names[perf->test]);
    }
    if (perf->spread != 0 && perf->test != VIA_PERF_PUT && perf->test != VIA_PERF_GET) {
        return via_cli_usage(name, "--spread is for put and get");
    }
    if (perf->alone && perf->test != VIA_PERF_PUT && perf->test != VIA_PERF_GET) {
        return via_cli_usage(name, "--no-memcpy is for put and get");
    }
    if (perf->channels_count == 0) {
        perf->channels[perf->channels_count++] = -1;
    }
    return -1;
}

/* --- hosts ----------------------------------------------------------------------------------- */

static int check_host(const struct via_fabric *fabric, unsigned host, struct via_error *err)
{
    if (via_fabric_find(fabric, host) < 0) {
        return via_error_set(err, -ENOENT, "host %u: no such host in this fabric", host);
    }
    return 0;
}

static int choose_two(struct via_perf *perf, struct via_error *err)
{
    const struct via_topology *topology = &perf->fabric.topology;
    for (unsigned i = 0; i < topology->hosts_count; i++) {
        unsigned host = topology->hosts[i];
        if (perf->from == 0 && host != perf->to) {
            perf->from = host;
        } else if (perf->to == 0 && host != perf->from) {
            perf->to = host;
        }
    }
    if (perf->to == 0) {
        perf->to = perf->from; /* a fabric of one host: measures between two of its processes */
    }
    int rc = check_host(&perf->fabric, perf->from, err);
    return rc == 0 ? check_host(&perf->fabric, perf->to, err) : rc;
}

static int choose_members(struct via_perf *perf, struct via_error *err)
{
    const struct via_topology *topology = &perf->fabric.topology;
    if (perf->hosts_count == 0) {
        for (unsigned i = 0; i < topology->hosts_count; i++) {
            perf->hosts[perf->hosts_count++] = (uint16_t)topology->hosts[i];
        }
    }
    qsort(perf->hosts, perf->hosts_count, sizeof(perf->hosts[0]), compare_hosts);
    bool mine = false;
    for (unsigned i = 0; i < perf->hosts_count; i++) {
        int rc = check_host(&perf->fabric, perf->hosts[i], err);
        if (rc != 0) {
            return rc;
        }
        if (i != 0 && perf->hosts[i] == perf->hosts[i - 1]) {
            return via_error_set(err, -EINVAL, "host %u: is in --hosts twice", perf->hosts[i]);
        }
        mine |= perf->hosts[i] == perf->from;
    }
    if (!mine) {
        perf->from = perf->hosts[0];
    }
    perf->to = perf->hosts[perf->hosts_count - 1];
    return 0;
}

/* --- the report ------------------------------------------------------------------------------ */

static double gb_per_second(uint64_t bytes, double ns)
{
    return ns > 0 ? (double)bytes / ns : 0;
}

static const char *size_text(char text[24], uint64_t bytes)
{
    static const char units[] = " KMG";
    unsigned unit = 0;
    while (bytes % 1024 == 0 && bytes != 0 && unit + 1 < sizeof(units) - 1) {
        bytes /= 1024;
        unit++;
    }
    if (unit == 0) {
        snprintf(text, 24, "%llu", (unsigned long long)bytes);
    } else {
        snprintf(text, 24, "%llu%c", (unsigned long long)bytes, units[unit]);
    }
    return text;
}

static void print_latencies(const struct via_perf *perf, const struct via_perf_row *rows)
{
    printf("%-8s %-8s %10s %10s %10s %12s %8s\n", "bytes", "path", "us", "min", "max", "bare line",
           "times");
    for (unsigned i = 0; i < perf->sizes_count; i++) {
        const struct via_perf_row *row = &rows[i];
        char size[24];
        printf("%-8s %-8s %10.3f %10.3f %10.3f %12.3f %8.2f\n", size_text(size, row->bytes),
               row->direct ? "direct" : "frames", row->ns / 1e3, row->ns_min / 1e3,
               row->ns_max / 1e3, row->yardstick_ns / 1e3, row->ns / row->yardstick_ns);
    }
}

static void print_rates(const struct via_perf *perf, const struct via_perf_row *rows)
{
    printf("%-8s %-8s %12s %12s %12s %9s\n", "bytes", "path", "us each", "GB/s", "memcpy", "ratio");
    for (unsigned i = 0; i < perf->sizes_count; i++) {
        const struct via_perf_row *row = &rows[i];
        char size[24];
        printf("%-8s %-8s %12.3f %12.3f", size_text(size, row->bytes),
               row->direct ? "direct" : "frames", row->ns / 1e3,
               gb_per_second(row->bytes, row->ns));
        if (perf->alone) {
            printf(" %12s %9s\n", "-", "-");
        } else {
            printf(" %12.3f %8.1f%%\n", gb_per_second(row->bytes, row->yardstick_ns),
                   100 * row->ratio);
        }
    }
}

static void print_table(const struct via_perf *perf, const struct via_perf_row *rows)
{
    if (perf->test == VIA_PERF_BARRIER) {
        printf("barrier of %u hosts: %.3f us (min %.3f, max %.3f)\n", perf->hosts_count,
               rows[0].ns / 1e3, rows[0].ns_min / 1e3, rows[0].ns_max / 1e3);
        return;
    }
    printf("%s, host %u to host %u, %d hop%s\n", test_names[perf->test], perf->from, perf->to,
           rows[0].hops, rows[0].hops == 1 ? "" : "s");
    if (perf->test == VIA_PERF_PINGPONG) {
        print_latencies(perf, rows);
    } else {
        print_rates(perf, rows);
    }
}

static json_t *row_json(const struct via_perf *perf, const struct via_perf_row *row)
{
    json_t *object = json_pack("{s:I, s:I, s:f, s:f, s:f}", "rounds", (json_int_t)row->rounds,
                               "operations", (json_int_t)row->operations, "ns", row->ns, "ns_min",
                               row->ns_min, "ns_max", row->ns_max);
    if (perf->test == VIA_PERF_BARRIER) {
        return object;
    }
    json_object_set_new(object, "bytes", json_integer((json_int_t)row->bytes));
    json_object_set_new(object, "path", json_string(row->direct ? "direct" : "frames"));
    json_object_set_new(object, "hops", json_integer(row->hops));
    if (perf->test == VIA_PERF_PINGPONG) {
        json_object_set_new(object, "bare_ns", json_real(row->yardstick_ns));
        json_object_set_new(object, "times", json_real(row->ns / row->yardstick_ns));
        return object;
    }
    json_object_set_new(object, "bytes_per_second",
                        json_real(1e9 * gb_per_second(row->bytes, row->ns)));
    if (perf->alone) {
        return object;
    }
    json_object_set_new(object, "memcpy_bytes_per_second",
                        json_real(1e9 * gb_per_second(row->bytes, row->yardstick_ns)));
    json_object_set_new(object, "ratio", json_real(row->ratio));
    return object;
}

static void print_json(const struct via_perf *perf, const struct via_perf_row *rows)
{
    json_t *root = json_pack("{s:s, s:s, s:i}", "fabric", perf->fabric.name, "test",
                             test_names[perf->test], "from", (int)perf->from);
    json_t *list = json_array();
    if (perf->test == VIA_PERF_BARRIER) {
        json_t *hosts = json_array();
        for (unsigned i = 0; i < perf->hosts_count; i++) {
            json_array_append_new(hosts, json_integer(perf->hosts[i]));
        }
        json_object_set_new(root, "hosts", hosts);
    } else {
        json_object_set_new(root, "to", json_integer((json_int_t)perf->to));
    }
    for (unsigned i = 0; i < perf->sizes_count; i++) {
        json_array_append_new(list, row_json(perf, &rows[i]));
    }
    json_object_set_new(root, "rows", list);
    json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(root);
}

/* -1: continue; otherwise the exit code. */
static int take_options(int argc, char **argv, struct via_perf *perf, struct options *options)
{
    int opt;
    while ((opt = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
        int code = take_option(argv[0], opt, perf, options);
        if (code >= 0) {
            return code;
        }
    }
    int code = take_test(argc, argv, perf);
    return code >= 0 ? code : complete(argv[0], perf);
}

int via_cli_perf(int argc, char **argv)
{
    static struct via_perf perf; /* static, because its fabric is large */
    static struct via_perf_row rows[VIA_PERF_SIZES_MAX];
    struct options options = {0};
    struct via_error err;
    via_error_clear(&err);
    if (argc > 1 && strcmp(argv[1], "shmem") == 0) {
        return via_perf_shmem(argv[0], argv + 1);
    }
    if (argc > 1 && strcmp(argv[1], "device") == 0) {
        static char name[] = "viaduct perf device";
        argv[1] = name;
        return via_perf_device(argc - 1, argv + 1);
    }
    if (argc > 1 && strcmp(argv[1], "pio") == 0) {
        static char name[] = "viaduct perf pio";
        argv[1] = name;
        return via_perf_pio(argc - 1, argv + 1);
    }
    perf.span_ns = (uint64_t)(SECONDS_DEFAULT * (double)VIA_SEC_NS);
    int code = take_options(argc, argv, &perf, &options);
    if (code >= 0) {
        return code;
    }
    int rc = via_fabric_open(&perf.fabric, options.fabric, &err);
    if (rc == 0 && perf.fabric.local >= 0) {
        rc = via_error_set(
            &err, -EOPNOTSUPP,
            "host %d: measure: its peers are on other machines; perf measures between hosts "
            "of one machine ('viaduct up')",
            perf.fabric.local);
    }
    if (rc == 0) {
        rc = perf.test == VIA_PERF_BARRIER ? choose_members(&perf, &err) : choose_two(&perf, &err);
    }
    if (rc == 0) {
        rc = via_perf_measure(&perf, rows, &err);
    }
    if (rc != 0) {
        return via_cli_fail(argv[0], &err);
    }
    if (options.json) {
        print_json(&perf, rows);
    } else {
        print_table(&perf, rows);
    }
    return VIA_CLI_OK;
}
