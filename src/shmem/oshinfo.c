/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The command oshinfo: shows the library's version, the resources that it may use here, and the
 * environment variables that apply to it. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VIADUCT_SHMEM_NO_GENERIC
#include <shmem.h>

#include "shmem/algorithm.h"
#include "shmem/barrier.h"
#include "shmem/launch.h"
#include "shmem/torus.h"
#include "shmem/variables.h"
#include "shmem/world.h"

#define EXIT_CODE_USAGE 2
#define PMIX_LIBRARY "libpmix.so.2"

static const char usage_text[] =
    "usage: oshinfo [--json]\n"
    "       oshinfo --algorithms [--pes N] [--hosts N] [--shape ring|torus|mesh|other]\n"
    "Shows the version of this OpenSHMEM, its limits, the memory, transports and launchers that "
    "it\n"
    "can use on this machine, and the environment variables that it knows, with their values.\n"
    "\n"
    "  --json            as one JSON object\n"
    "  --algorithms      of collectives: the table, and which one a team of --pes PEs on\n"
    "                    --hosts hosts uses by the bytes of a PE (8 PEs on 4 hosts in a ring)\n"
    "  --help, --version\n";

/* --- collecting ------------------------------------------------------------------------------ */

static json_t *make_limits(void)
{
    return json_pack("{s:i, s:i, s:I, s:I}", "pes_max", (int)VIA_JOB_PES_MAX, "teams_max",
                     (int)VIA_TEAMS_MAX, "alignment_bytes_max", (json_int_t)VIA_HEAP_ALIGN,
                     "heap_bytes_max", (json_int_t)VIA_JOB_HEAP_BYTES_MAX);
}

/* The first line of a kernel file; "unknown" if there is none. */
static const char *first_line(const char *path, char text[128])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, 127);

    if (fd >= 0)
        close(fd);
    if (got <= 0)
        return "unknown";
    text[got] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return text;
}

/* From a job of one PE, made as oshrun would make it. */
static json_t *make_memory(void)
{
    struct via_job_spec spec = {.pes_count = 1, .nodes_count = 1, .cores = via_wait_cores()};
    struct via_job_files files;
    struct via_error err = {0};
    char pages[128], huge_bytes[128];
    const char *folder = "/sys/kernel/mm/transparent_hugepage";
    char path[128];

    snprintf(path, sizeof(path), "%s/shmem_enabled", folder);
    const char *enabled = first_line(path, pages);
    snprintf(path, sizeof(path), "%s/hpage_pmd_size", folder);
    json_t *memory = json_pack("{s:I, s:i, s:s, s:s}", "machine_bytes",
                               (json_int_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE), "cores",
                               (int)spec.cores, "huge_pages_of_shared_memory", enabled,
                               "huge_page_bytes", first_line(path, huge_bytes));
    int result = via_job_heap_bytes(&spec.heap_bytes, &err);
    if (result == 0)
        result = via_job_create(&spec, &files, &err);
    if (result < 0) {
        json_object_set_new(memory, "error", json_string(via_error_describe(&err)));
        return memory;
    }
    json_object_set_new(memory, "heap_bytes", json_integer((json_int_t)files.job->heap_bytes));
    json_object_set_new(memory, "heap_bytes_grows_to",
                        json_integer((json_int_t)files.job->heap_bytes_max));
    via_job_close(&files);
    return memory;
}

static json_t *make_fabric(void)
{
    static struct via_launch_place place;
    static const struct via_launch_options options = {.pes_count = VIA_JOB_PES_MAX, .spread = true};
    struct via_error err = {0};
    json_t *hosts = json_array();

    if (via_launch_place(&options, &place, &err) < 0)
        return json_pack("{s:o, s:s}", "hosts", hosts, "none", via_error_describe(&err));
    for (uint32_t i = 0; i < place.nodes_count; i++)
        json_array_append_new(hosts, json_integer(place.host_of[i]));
    return json_pack("{s:o, s:s}", "hosts", hosts, "rundir", place.rundir.text);
}

static json_t *make_transports(void)
{
    return json_pack("{s:s, s:s, s:s}", "direct", "PEs of one host: loads and stores", "window",
                     "a neighbour host: loads and stores in its window", "frames",
                     "other hosts: by the daemons, over relays");
}

static json_t *make_launchers(void)
{
    const char *pmix = "not built in";

#ifdef VIA_HAVE_PMIX
    void *library = dlopen(PMIX_LIBRARY, RTLD_LAZY | RTLD_LOCAL);
    pmix = library ? "yes" : "built in, but " PMIX_LIBRARY " is not installed";
#endif
    return json_pack("{s:s, s:s, s:s}", "oshrun", "yes", "PMI-1", "yes", "PMIx", pmix);
}

static json_t *make_variables(void)
{
    json_t *all = json_array();

    for (size_t i = 0; i < via_variables_count; i++) {
        const struct via_variable *variable = &via_variables[i];
        const char *value = via_variable_value(variable);
        struct via_error err = {0};
        json_t *one = json_pack("{s:s, s:s, s:s?, s:s?, s:s?}", "name", variable->name, "text",
                                variable->text, "value", value, "default", variable->fallback,
                                "old_name", variable->old_name);
        /* A value need not be valid UTF-8, but JSON must be. */
        if (!one)
            one = json_pack("{s:s, s:s, s:s}", "name", variable->name, "text", variable->text,
                            "wrong", "not UTF-8");
        else if (value && variable->check && variable->check(value, &err) < 0)
            json_object_set_new(one, "wrong", json_string(via_error_describe(&err)));
        json_array_append_new(all, one);
    }
    return all;
}

static json_t *make_info(void)
{
    char standard[16];

    snprintf(standard, sizeof(standard), "%d.%d", SHMEM_MAJOR_VERSION, SHMEM_MINOR_VERSION);
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "name",
                     SHMEM_VENDOR_STRING, "version", VIADUCT_VERSION, "standard", standard,
                     "thread_level", "SHMEM_THREAD_MULTIPLE", "limits", make_limits(), "memory",
                     make_memory(), "transports", make_transports(), "fabric", make_fabric(),
                     "launchers", make_launchers(), "variables", make_variables());
}

/* --- printing -------------------------------------------------------------------------------- */

static void print_value(const json_t *value)
{
    size_t i;
    json_t *item;

    if (json_is_string(value)) {
        printf("%s", json_string_value(value));
    } else if (json_is_integer(value)) {
        printf("%" JSON_INTEGER_FORMAT, json_integer_value(value));
    } else if (json_is_array(value)) {
        json_array_foreach(value, i, item)
            printf("%s%" JSON_INTEGER_FORMAT, i > 0 ? ", " : "", json_integer_value(item));
    }
}

static void print_section(const char *title, json_t *section)
{
    const char *key;
    json_t *value;

    printf("%s:\n", title);
    json_object_foreach(section, key, value)
    {
        if (json_is_array(value) && json_array_size(value) == 0)
            continue;
        printf("  %-28s ", key);
        print_value(value);
        printf("\n");
    }
}

static void print_variables(const json_t *variables)
{
    size_t i;
    json_t *one;

    printf("environment:\n");
    json_array_foreach(variables, i, one)
    {
        const char *value = json_string_value(json_object_get(one, "value"));
        const char *fallback = json_string_value(json_object_get(one, "default"));
        const char *wrong = json_string_value(json_object_get(one, "wrong"));
        printf("  %-28s ", json_string_value(json_object_get(one, "name")));
        if (value)
            printf("= \"%s\"", value);
        else
            printf("not set%s%s", fallback ? ": " : "", fallback ? fallback : "");
        if (wrong)
            printf(" -- WRONG: %s", wrong);
        printf("\n  %-28s   %s\n", "", json_string_value(json_object_get(one, "text")));
    }
}

static void print_text(const json_t *info)
{
    static const char *const sections[] = {"limits", "memory", "transports", "fabric", "launchers"};

    printf("%s %s, OpenSHMEM %s, %s\n", json_string_value(json_object_get(info, "name")),
           json_string_value(json_object_get(info, "version")),
           json_string_value(json_object_get(info, "standard")),
           json_string_value(json_object_get(info, "thread_level")));
    for (size_t i = 0; i < VIA_ARRAY_COUNT(sections); i++)
        print_section(sections[i], json_object_get(info, sections[i]));
    print_variables(json_object_get(info, "variables"));
}

/* --- algorithms ------------------------------------------------------------------------------- */

struct options {
    bool as_json, algorithms;
    unsigned pes, hosts;
    const char *shape;
};

static uint64_t forced_algorithms(void)
{
    const char *text = getenv("VIADUCT_SHMEM_ALGORITHMS");
    struct via_error err;
    uint64_t forced = 0;

    if (text && via_algorithms_parse(text, &forced, &err) < 0)
        fprintf(stderr, "oshinfo: VIADUCT_SHMEM_ALGORITHMS: %s\n", via_error_describe(&err));
    return forced;
}

/* The row length of the torus that is nearest to a square; 0 = there is none. */
static unsigned square_row(unsigned hosts)
{
    unsigned row = 0, columns;

    for (unsigned i = 0; (columns = via_torus_columns(hosts, i)) > 0; i++)
        if (row == 0 || columns * columns <= hosts)
            row = columns;
    return row;
}

/* The case as hosts.c computes it for a real team. */
static struct via_algorithm_case make_case(const struct options *options)
{
    bool flat = options->hosts == 1 && options->pes <= VIA_FLAT_PES_MAX;

    return (struct via_algorithm_case){
        .pes = options->pes,
        .hosts = options->hosts,
        .locals_max = (options->pes + options->hosts - 1) / options->hosts,
        .is_ring = strcmp(options->shape, "other") != 0,
        .is_mesh = strcmp(options->shape, "mesh") == 0,
        .row = strcmp(options->shape, "torus") == 0 ? square_row(options->hosts) : 0,
        .exchange_max = flat ? VIA_SYNC_LINE_BYTES : VIA_BOX_BYTES / options->pes / 8 * 8,
        .partial_max = VIA_BOX_BYTES / options->hosts / 8 * 8,
        .element_bytes = 8,
    };
}

static struct via_costs costs_in_force(void)
{
    const char *text = getenv("VIADUCT_SHMEM_COSTS");
    struct via_costs costs = via_costs_measured;
    struct via_error err;

    if (text && via_costs_parse(text, &costs, &err) < 0)
        fprintf(stderr, "oshinfo: VIADUCT_SHMEM_COSTS: %s\n", via_error_describe(&err));
    return costs;
}

static void print_costs(const struct via_costs *costs)
{
    printf("costs:\n");
#define PRINT(NAME, TEXT) printf("  %-10s %-14" PRIu32 " %s\n", #NAME, costs->NAME, TEXT);
    VIA_COSTS(PRINT)
#undef PRINT
}

static void print_choices(enum via_collective collective, struct via_algorithm_case call)
{
    enum via_algorithm_number last = VIA_ALGORITHMS;
    uint64_t forced = forced_algorithms();

    printf("  %-10s", via_collective_name(collective));
    for (call.bytes = collective == VIA_COLLECTIVE_HOSTS ? 0 : 8; call.bytes <= (size_t)64 << 20;
         call.bytes = via_max((size_t)8, call.bytes * 2)) {
        enum via_algorithm_number number = via_algorithm_choose(collective, &call, forced);
        if (number == last)
            continue;
        if (last != VIA_ALGORITHMS)
            printf("; from %zu B", call.bytes);
        printf(" %s (%.1f us)", via_algorithms[number].name,
               (double)via_algorithms[number].cost_ns(&call) / 1000);
        last = number;
        if (collective == VIA_COLLECTIVE_COLLECT)
            break; /* members may have different sizes */
    }
    printf("\n");
}

static int show_algorithms(const struct options *options)
{
    struct via_costs costs = costs_in_force();
    struct via_algorithm_case call = make_case(options);

    call.costs = &costs;
    printf("algorithms:\n");
    for (int i = 0; i < VIA_ALGORITHMS; i++)
        printf("  %-10s %-14s %s\n", via_collective_name(via_algorithms[i].collective),
               via_algorithms[i].name, via_algorithms[i].text);
    print_costs(&costs);
    printf("a team of %u PEs on %u hosts (%s):\n", options->pes, options->hosts, options->shape);
    for (int i = 0; i < VIA_COLLECTIVES; i++)
        print_choices((enum via_collective)i, call);
    return 0;
}

/* --- the command ------------------------------------------------------------------------------ */

static int show(bool as_json)
{
    json_t *info = make_info();

    if (!info) {
        fprintf(stderr, "oshinfo: out of memory\n");
        return 1;
    }
    if (as_json) {
        json_dumpf(info, stdout, JSON_INDENT(2));
        printf("\n");
    } else {
        print_text(info);
    }
    json_decref(info);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    fprintf(stderr, "oshinfo: standard output: write: %s\n", strerror(errno));
    return 1;
}

static bool parse_count(const char *text, unsigned *ret_count)
{
    char *end;
    unsigned long count = strtoul(text, &end, 10);

    *ret_count = (unsigned)via_min(count, 1ul << 30);
    return end != text && *end == '\0' && count >= 1 && count <= VIA_JOB_PES_MAX;
}

static int complain(const char *word, const char *text)
{
    fprintf(stderr, "oshinfo: %s: %s (oshinfo --help)\n", word, text);
    return EXIT_CODE_USAGE;
}

static int parse_option(int option, const char *value, const char *word, struct options *options)
{
    switch (option) {
    case 'j':
        options->as_json = true;
        return 0;
    case 'a':
        options->algorithms = true;
        return 0;
    case 'p':
        return parse_count(value, &options->pes) ? 0 : complain(value, "not a number of PEs");
    case 'n':
        return parse_count(value, &options->hosts) ? 0 : complain(value, "not a number of hosts");
    case 's':
        options->shape = value;
        if (strcmp(value, "ring") == 0 || strcmp(value, "torus") == 0 ||
            strcmp(value, "mesh") == 0 || strcmp(value, "other") == 0)
            return 0;
        return complain(value, "not a shape; expected ring, torus, mesh or other");
    default:
        return complain(word, "unknown option");
    }
}

int main(int argc, char **argv)
{
    static const struct option known[] = {
        {"json", no_argument, NULL, 'j'},        {"algorithms", no_argument, NULL, 'a'},
        {"pes", required_argument, NULL, 'p'},   {"hosts", required_argument, NULL, 'n'},
        {"shape", required_argument, NULL, 's'}, {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},     {0},
    };
    struct options options = {.pes = 8, .hosts = 4, .shape = "ring"};
    int option, result;

    opterr = 0;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 'h') {
            fputs(usage_text, stdout);
            return 0;
        }
        if (option == 'V') {
            puts("oshinfo (Viaduct) " VIADUCT_VERSION);
            return 0;
        }
        result = parse_option(option, optarg, argv[optind - 1], &options);
        if (result != 0)
            return result;
    }
    if (optind < argc)
        return complain(argv[optind], "takes no argument");
    if (options.hosts > options.pes)
        return complain("--hosts", "more than PEs");
    if (strcmp(options.shape, "torus") == 0 && square_row(options.hosts) == 0)
        return complain("--shape torus", "this number of hosts has no rows of at least two");
    return options.algorithms ? show_algorithms(&options) : show(options.as_json);
}
