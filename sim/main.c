/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* viaduct-sim: histories of whole fabrics, by seed. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "progress/progress.h"
#include "sim/jobs.h"
#include "sim/memory.h"
#include "sim/ofi/ofi.h"
#include "sim/paper/command.h"
#include "sim/pex/pex.h"
#include "sim/plan/requests.h"
#include "sim/scale/command.h"
#include "sim/script/script.h"
#include "sim/shmem/shmem.h"
#include "sim/sockets/sockets.h"

static const char usage_text[] =
    "Usage: viaduct-sim COMMAND [OPTIONS]\n"
    "Runs whole fabrics of the real core under virtual time, with faults; a seed is a history.\n"
    "\n"
    "Commands:\n"
    "  seed N          run one seed and print the result; if it fails, the end of its history\n"
    "  run             run many seeds; stop at the first one that fails, and shrink it\n"
    "  shrink N        search for a smaller case of a seed that fails; see shrink --help\n"
    "  plants          list the bugs that can be planted\n"
    "  keys            list the values that --set can change\n"
    "  measure FILE    times of any hosts, switches, cables and engines, by the cost model\n"
    "  parts           make parts of a scenario from viaduct perf and lspci; see parts --help\n"
    "  plan            predict parts, bandwidth and latency: the same as viaduct plan\n"
    "  plan-json       the same as JSON on standard output\n"
    "  scale           large fabrics: bring-up, a cut, memory; see viaduct-sim scale --help\n"
    "  scale-json      one such fabric as JSON, without Python: scale-json ring 64\n"
    "  paper X         published systems by the cost model; see viaduct-sim paper --help\n"
    "  model           the cost model, by requests on standard input: for measure, paper, plan\n"
    "\n"
    "Options:\n"
    "  --first N       first seed (run; default 1)\n"
    "  --count N       number of seeds (run; default 1000)\n"
    "  --jobs N        processes (run; default: one per core)\n"
    "  --seconds N     begin no seed after N seconds (run; default: no limit)\n"
    "  --graph G       ring, chain, star, mesh, random, torus, tree, cube, any (default: drawn\n"
    "                  by the seed)\n"
    "  --ring          the same as --graph ring\n"
    "  --twice         run every seed twice; both must have the same digest\n"
    "  --plant PLANT   plant a bug\n"
    "  --set K=V,...   change values that a seed draws; see keys\n"
    "  --faults LIST   only these of the planned faults (\"0,3-5\", \"none\")\n"
    "  --work LIST     only these of the planned bursts of work\n"
    "  --trace         print the whole history (seed)\n"
    "  --no-shrink     print a seed that fails without shrinking it (run)\n"
    "  --quiet         no progress line (run), no end of the history (seed)\n"
    "  --help          this text\n"
    "\n"
    "Exit code: 0 on success, 1 if a seed failed, 2 for wrong usage.\n";

#define GIVEN_MAX 64u

struct options {
    struct sim_jobs jobs;
    struct sim_changes changes;
    bool trace, quiet, no_shrink;
    char *given[GIVEN_MAX]; /* options that are part of a case, as they were given */
    unsigned given_count;
};

/* How much of a failed seed's history is printed. */
#define TAIL_BYTES 8192

static int bad_usage(const char *what, const char *value)
{
    fprintf(stderr, "viaduct-sim: %s '%s'; see viaduct-sim --help\n", what, value);
    return 2;
}

static bool parse_number(const char *text, uint64_t *ret_value)
{
    char *end;
    errno = 0;
    *ret_value = strtoull(text, &end, 0);
    return errno == 0 && end != text && *end == '\0' && text[0] != '-';
}

/* --- output ---------------------------------------------------------------------------------- */

/* Prints a case that fails, and the command that reproduces it. */
static void print_failure(const struct options *options, uint64_t seed, const char *failure)
{
    struct sim_config config;
    char text[4096];
    sim_config_make(&config, seed, options->jobs.graph, options->jobs.changes);
    sim_config_text(&config, text, sizeof(text));
    printf("FAILED: %s\n%s\nreproduce: viaduct-sim seed %" PRIu64, failure, text, seed);
    for (unsigned i = 0; i < options->given_count; i++) {
        printf(" %s", options->given[i]);
    }
    printf("\n");
    fflush(stdout);
}

/* Searches for a smaller case, by tools/sim-shrink; its command is the last line of output. Not
 * with viaduct-sim-mutants, which has no scripts beside it. */
static void shrink(const struct options *options, uint64_t seed)
{
#ifdef VIA_MUTANTS
    (void)options, (void)seed;
#else
    char name[] = "shrink", number[24];
    char *words[2 + GIVEN_MAX] = {name, number};
    snprintf(number, sizeof(number), "%" PRIu64, seed);
    memcpy(&words[2], options->given, options->given_count * sizeof(words[0]));
    pid_t pid = fork();
    if (pid == 0) {
        exit(sim_script_main((int)(2 + options->given_count), words));
    }
    (void)waitpid(pid, NULL, 0);
#endif
}

static void print_counts(const struct sim_counts *counts)
{
    printf("operations: %" PRIu64 " messages, %" PRIu64 " puts, %" PRIu64 " puts with signal, "
           "%" PRIu64 " gets, %" PRIu64 " atomics, %" PRIu64 " barriers, %" PRIu64
           " strided puts\n",
           counts->ops[VIA_OP_MESSAGE], counts->ops[VIA_OP_PUT], counts->ops[VIA_OP_PUT_SIGNAL],
           counts->ops[VIA_OP_GET], counts->ops[VIA_OP_ATOMIC], counts->ops[VIA_OP_BARRIER],
           counts->ops[VIA_OP_PUT_STRIDED]);
    printf("streams: %" PRIu64 " bytes, %" PRIu64 " stalls, %" PRIu64 " killed, %" PRIu64
           " in exec; OpenSHMEM: %" PRIu64 " PEs, %" PRIu64 " steps, %" PRIu64 " turns, %" PRIu64
           " commands to hosts; %" PRIu64 " jobs ended by a fault\n",
           counts->stream_bytes, counts->stream_spills, counts->stream_kills, counts->stream_execs,
           counts->pes, counts->pe_steps, counts->pe_turns, counts->pe_frames, counts->pe_ends);
    printf("ended: %" PRIu64 " ok, %" PRIu64 " refused as they must, %" PRIu64
           " by a restart, %" PRIu64 " cancelled or other\n",
           counts->statuses_ok, counts->statuses_refused, counts->statuses_reset,
           counts->statuses_other);
    printf("forced by hardware: %" PRIu64 " write-combining buffers drained, %" PRIu64
           " writes overtaken, %" PRIu64 " torn, %" PRIu64 " reads of all-ones; %" PRIu64
           " hosts wrote garbage (%" PRIu64 " frames forged, %" PRIu64
           " false announcements of others, %" PRIu64 " false greetings), %" PRIu64
           " frames died in relays\n",
           counts->drains, counts->overtakes, counts->torn, counts->ones, counts->rogues,
           counts->forged, counts->lies, counts->greetings, counts->aboard);
    printf("rogues wrote:");
    for (int kind = 0; kind < SIM_ROGUE_KINDS; kind++) {
        printf("%s %" PRIu64 " %s", kind == 0 ? "" : ",", counts->rogue[kind],
               sim_rogue_kind_name((enum sim_rogue_kind)kind));
    }
    printf("\n");
    printf("DMA: %" PRIu64 " started, %" PRIu64 " failed, %" PRIu64 " hung, %" PRIu64
           " torn by the end of a link\n",
           counts->dmas, counts->dma_failed, counts->dma_hung, counts->dma_torn);
    printf("libfabric:");
    for (unsigned i = 0; i < SIM_OFI_COUNTS; i++) {
        printf("%s %" PRIu64 " %s", i == 0 ? "" : ",", counts->ofi[i],
               sim_ofi_count_name((enum sim_ofi_count)i));
    }
    printf("\n");
    printf("hardware: %" PRIu64 " posted writes, %" PRIu64 " doorbells, %" PRIu64
           " fences, %" PRIu64 " turns, %" PRIu64 " sleeps audited; faults: %" PRIu64
           " cuts, %" PRIu64 " freezes, %" PRIu64 " crashes\n",
           counts->puts, counts->bells, counts->fences, counts->turns, counts->audits, counts->cuts,
           counts->freezes, counts->crashes);
}

static void show_step(void *object, uint64_t done)
{
    via_progress_step(object, done);
}

/* --- commands -------------------------------------------------------------------------------- */

/* The end of a history that was written to a file. */
static void print_tail(FILE *history)
{
    char tail[TAIL_BYTES + 1];
    long end = ftell(history);
    long start = end > TAIL_BYTES ? end - TAIL_BYTES : 0;
    if (end < 0 || fseek(history, start, SEEK_SET) != 0) {
        return;
    }
    size_t bytes = fread(tail, 1, TAIL_BYTES, history);
    tail[bytes] = '\0';
    const char *line = start == 0 ? tail : strchr(tail, '\n');
    printf("--- the end of its history (--trace prints all of it) ---\n%s---\n",
           line == NULL ? tail : line + (start != 0));
}

static int command_seed(struct options *options, uint64_t seed)
{
    struct sim_config config;
    struct sim_result result;
    char text[4096];
    FILE *history = options->trace ? stdout : options->quiet ? NULL : tmpfile();
    sim_config_make(&config, seed, options->jobs.graph, options->jobs.changes);
    sim_config_text(&config, text, sizeof(text));
    printf("seed %" PRIu64 ": %s\n", seed, text);
    fflush(stdout);
    sim_jobs_one(&options->jobs, seed, history, &result);
    if (history != NULL && history != stdout) {
        if (result.failed) {
            print_tail(history);
        }
        fclose(history);
    }
    print_counts(&result.counts);
    printf("%" PRIu64 " events in %" PRIu64 " ms of virtual time, drained in %.3f ms, digest "
           "%016" PRIx64 "\nplanned: %" PRIu32 " faults, %" PRIu32 " bursts of work\n",
           result.events, result.virtual_ns / VIA_MSEC_NS, (double)result.drain_ns / 1e6,
           result.digest, result.faults_planned, result.work_bursts);
    if (result.failed) {
        print_failure(options, seed, result.failure);
        return 1;
    }
    printf("ok\n");
    return 0;
}

/* CPU time of the workers, which have ended. Unlike elapsed time it hardly grows on a busy
 * machine. */
static double cpu_s(void)
{
    struct rusage used = {0};
    (void)getrusage(RUSAGE_CHILDREN, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static int command_run(struct options *options)
{
    struct sim_jobs_result result;
    struct via_progress progress;
    via_progress_begin(&progress, "viaduct sim run: seed", options->jobs.count);
    options->jobs.step = options->quiet ? NULL : show_step;
    options->jobs.object = &progress;
    int rc = sim_jobs_run(&options->jobs, &result);
    via_progress_end(&progress);
    if (rc != 0) {
        fprintf(stderr, "viaduct-sim: starting %u processes: %s\n", options->jobs.processes,
                strerror(-rc));
        return 2;
    }
    printf("%" PRIu64 " seeds from %" PRIu64 " (%s) in %.1f s: %.1f ms each, %.0f events/s, %.2f "
           "million events per second of processor time; "
           "longest %.0f ms (seed %" PRIu64 "), slowest to drain %.0f ms (seed %" PRIu64 ")\n",
           result.done, options->jobs.first, sim_graph_names[options->jobs.graph], result.elapsed_s,
           result.elapsed_s * 1000 / (double)via_max(result.done, UINT64_C(1)),
           (double)result.events / result.elapsed_s, (double)result.events / 1e6 / cpu_s(),
           result.longest_s * 1000, result.longest_seed, (double)result.drain_ns_max / 1e6,
           result.drain_seed);
    print_counts(&result.counts);
    if (result.failed) {
        print_failure(options, result.seed, result.failure);
        if (!options->no_shrink) {
            shrink(options, result.seed);
        }
        return 1;
    }
    printf("ok\n");
    return 0;
}

static int command_plants(struct options *options)
{
    (void)options;
    for (int plant = 1;; plant++) {
        const struct sim_plant_name *name = sim_plant_at(plant);
        if (name == NULL) {
            return 0;
        }
        if (name->name != NULL) {
            printf("%-24s %s\n", name->name, name->text);
        }
    }
}

static int command_keys(struct options *options)
{
    (void)options;
    for (unsigned i = 0; sim_knob_at(i) != NULL; i++) {
        const struct sim_knob *key = sim_knob_at(i);
        bool is_named = key->names != NULL;
        printf("%-16s", key->name);
        for (uint64_t value = key->min; is_named && value <= key->max; value++) {
            printf(" %s", key->names[value]);
        }
        if (!is_named) {
            printf(" %" PRIu64 " to %" PRIu64, key->min, key->max);
        }
        if (key->simplest != SIM_NO_SIMPLEST && is_named) {
            printf(", simplest %s", key->names[key->simplest]);
        } else if (key->simplest != SIM_NO_SIMPLEST) {
            printf(", simplest %" PRIu64, key->simplest);
        }
        printf("\n");
    }
    return 0;
}

/* --- arguments ------------------------------------------------------------------------------- */

static const struct option long_options[] = {
    {"first", required_argument, NULL, 'f'}, {"count", required_argument, NULL, 'c'},
    {"jobs", required_argument, NULL, 'j'},  {"seconds", required_argument, NULL, 'S'},
    {"graph", required_argument, NULL, 'g'}, {"ring", no_argument, NULL, 'r'},
    {"twice", no_argument, NULL, 't'},       {"plant", required_argument, NULL, 'p'},
    {"set", required_argument, NULL, 's'},   {"faults", required_argument, NULL, 'F'},
    {"work", required_argument, NULL, 'w'},  {"trace", no_argument, NULL, 'T'},
    {"no-shrink", no_argument, NULL, 'N'},   {"quiet", no_argument, NULL, 'q'},
    {"help", no_argument, NULL, 'h'},        {0},
};

static int set_number(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value)
{
    if (!parse_number(text, ret_value) || *ret_value < min || *ret_value > max) {
        return bad_usage("not a number in range:", text);
    }
    return 0;
}

static int set_changes(struct options *options, const char *text)
{
    char error[256];
    if (sim_changes_parse(&options->changes, text, error, sizeof(error)) != 0) {
        fprintf(stderr, "viaduct-sim: --set: %s; see viaduct-sim keys\n", error);
        return 2;
    }
    return 0;
}

static int set_mask(struct sim_mask *mask, const char *text)
{
    return sim_mask_parse(mask, text) == 0 ? 0 : bad_usage("not a list like 0,3-5:", text);
}

static int set_option(struct options *options, int option)
{
    uint64_t number;
    int rc = 0;
    switch (option) {
    case 's':
        return set_changes(options, optarg);
    case 'F':
        return set_mask(&options->changes.faults, optarg);
    case 'w':
        return set_mask(&options->changes.work, optarg);
    case 'N':
        options->no_shrink = true;
        return 0;
    case 'f':
        return set_number(optarg, 0, UINT64_MAX, &options->jobs.first);
    case 'c':
        return set_number(optarg, 1, UINT64_MAX, &options->jobs.count);
    case 'j':
        rc = set_number(optarg, 1, 64, &number);
        options->jobs.processes = rc == 0 ? (unsigned)number : 1;
        return rc;
    case 'S':
        return set_number(optarg, 1, UINT64_MAX, &options->jobs.seconds_max);
    case 'g':
        rc = sim_name_find(sim_graph_names, SIM_GRAPH_CUBE + 1, optarg);
        options->jobs.graph = (enum sim_graph)rc;
        return rc < 0 ? bad_usage("no such graph:", optarg) : 0;
    case 'r':
        options->jobs.graph = SIM_GRAPH_RING;
        return 0;
    case 't':
        options->jobs.twice = true;
        return 0;
    case 'p':
        options->jobs.plant = sim_plant_parse(optarg);
        return options->jobs.plant < 0 ? bad_usage("no such plant:", optarg) : 0;
    case 'T':
        options->trace = true;
        return 0;
    case 'q':
        options->quiet = true;
        return 0;
    default:
        return 2; /* getopt has printed the reason */
    }
}

/* Notes the words of the option that getopt has just returned, if it is a part of a case. */
static int note_given(struct options *options, int option, char **argv)
{
    /* graph, ring, twice, plant, set, faults, work */
    bool is_part = strchr("grtpsFw", option) != NULL;
    int words = optarg != NULL && optarg == argv[optind - 1] ? 2 : 1;
    if (is_part && options->given_count + 2 > GIVEN_MAX) {
        return bad_usage("too many options:", argv[optind - words]);
    }
    for (; is_part && words > 0; words--) {
        options->given[options->given_count++] = argv[optind - words];
    }
    return 0;
}

static int run_command(struct options *options, int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(struct options *options);
    } commands[] = {{"run", command_run}, {"plants", command_plants}, {"keys", command_keys}};
    uint64_t seed;
    bool is_seed = strcmp(argv[0], "seed") == 0;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(commands); i++) {
        if (argc == 1 && strcmp(argv[0], commands[i].name) == 0) {
            return commands[i].run(options);
        }
    }
    if (!is_seed || argc != 2) {
        return bad_usage(is_seed ? "which one, and only one:"
                                 : "no such command, or no argument of it:",
                         argv[argc - 1]);
    }
    return parse_number(argv[1], &seed) ? command_seed(options, seed)
                                        : bad_usage("not a seed:", argv[1]);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "scale-json") == 0) {
        return sim_scale_main(argc - 1, argv + 1);
    }
    sim_ofi_use();
#ifndef VIA_MUTANTS
    sim_pex_use();
    if (argc == 2 && strcmp(argv[1], "model") == 0) {
        return sim_model_main(&sim_plan_more);
    }
    if (argc > 1 && sim_script_is_one(argv[1])) {
        return sim_script_main(argc - 1, argv + 1);
    }
#endif
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct options options = {
        .jobs = {.first = 1,
                 .count = 1000,
                 .processes = cores < 1 ? 1 : (unsigned)cores,
                 .sockets = sim_sockets_run,
                 .shmem = sim_shmem_run},
    };
    options.jobs.changes = &options.changes;
    for (;;) {
        int option = getopt_long(argc, argv, "h", long_options, NULL);
        if (option == -1) {
            break;
        }
        if (option == 'h') {
            fputs(usage_text, stdout);
            return 0;
        }
        int rc = set_option(&options, option);
        rc = rc == 0 ? note_given(&options, option, argv) : rc;
        if (rc != 0) {
            return rc;
        }
    }
    if (optind == argc) {
        fputs(usage_text, stderr);
        return 2;
    }
    return run_command(&options, argc - optind, argv + optind);
}
