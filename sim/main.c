/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* viaduct-sim: histories of whole fabrics, by seed. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "progress/progress.h"
#include "sim/jobs.h"
#include "sim/memory.h"
#include "sim/ofi/ofi.h"
#include "sim/paper/command.h"
#include "sim/pex/pex.h"
#include "sim/plan/command.h"
#include "sim/scale/command.h"
#include "sim/script/script.h"
#include "sim/shmem/shmem.h"
#include "sim/shrink.h"
#include "sim/sockets/sockets.h"

static const char usage_text[] =
    "Usage: viaduct-sim COMMAND [OPTIONS]\n"
    "Runs whole fabrics of the real core under virtual time, with faults; a seed is a history.\n"
    "\n"
    "Commands:\n"
    "  seed N          run one seed and say how it went; when it fails, how its history ends\n"
    "  run             run many seeds, stop at the first that fails and shrink it\n"
    "  shrink N        look for a smaller case of a seed that fails\n"
    "  digest N        run a seed twice; both must have the same digest\n"
    "  replay FILE     run the seeds of a file: one \"N [GRAPH] [KEY=VALUE,...]\" per line\n"
    "  catch PLANT     run seeds with a planted bug until one fails; that is success\n"
    "  plants          list the bugs that can be planted\n"
    "  keys            list what --set can change\n"
    "  measure FILE    any hosts, switches, cables and engines, by the cost model\n"
    "  parts           parts of a scenario from viaduct perf and lspci; parts --help\n"
    "  plan            what a fabric would do: the same as viaduct plan\n"
    "  plan-json       the same as JSON on standard output, without Python\n"
    "  scale           large fabrics: bring-up, a cut, memory; see viaduct-sim scale --help\n"
    "  paper X         published systems by the cost model; see viaduct-sim paper --help\n"
    "  model           the cost model, asked on standard input: for measure and paper\n"
    "\n"
    "Options:\n"
    "  --first N       first seed (run, catch; default 1)\n"
    "  --count N       how many seeds (run; default 1000. catch: at most; default 500)\n"
    "  --jobs N        processes (run, catch; default: one per core)\n"
    "  --seconds N     begin no seed after N seconds (run, catch; default: no limit)\n"
    "  --graph G       ring, chain, star, mesh, random, torus, tree, cube, any (default: drawn\n"
    "                  by the seed)\n"
    "  --ring          the same as --graph ring\n"
    "  --twice         run every seed twice and compare digests (run)\n"
    "  --plant PLANT   plant a bug (seed, run)\n"
    "  --set K=V,...   change what seeds draw; see keys\n"
    "  --faults LIST   only these of the planned faults (\"0,3-5\", \"none\")\n"
    "  --work LIST     only these of the planned bursts of work\n"
    "  --trace         print all that happens (seed)\n"
    "  --no-shrink     print a seed that fails as it is (run)\n"
    "  --quiet         no progress line\n"
    "  --help          this text\n"
    "\n"
    "Exit code: 0 when all is right, 1 when a seed failed (or a planted bug was not caught), 2 "
    "for\n"
    "wrong usage.\n";

struct options {
    struct sim_jobs jobs;
    const char *graph;
    const char *plant;
    struct sim_changes changes;
    bool trace, quiet, count_given, no_shrink;
};

/* Limit of runs in the search for a smaller case. */
#define SHRINK_RUNS_MAX 1500u
#define SHRINK_SECONDS_MAX 60.0
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

/* Completes a command line with the graph and the plant that the user gave. */
static void print_given(const struct options *options, enum sim_graph graph)
{
    if (graph != SIM_GRAPH_ANY) {
        printf(" --graph %s", sim_graph_name(graph));
    }
    if (options->plant != NULL) {
        printf(" --plant %s", options->plant);
    }
}

/* changes: options of the command line, each with a blank before it. */
static void print_command(const struct options *options, uint64_t seed, enum sim_graph graph,
                          const char *changes)
{
    printf("reproduce: viaduct-sim seed %" PRIu64 "%s", seed, changes);
    print_given(options, graph);
    printf("\n");
}

static void print_failure(const struct options *options, uint64_t seed, enum sim_graph graph,
                          const char *failure)
{
    struct sim_config config;
    char text[4096];
    char changes[2048];
    sim_config_make(&config, seed, graph, options->jobs.changes);
    sim_config_text(&config, text, sizeof(text));
    printf("FAILED: %s\n%s\n", failure, text);
    sim_changes_text(&options->changes, SIM_MASK_BITS, SIM_MASK_BITS, changes, sizeof(changes));
    print_command(options, seed, graph, changes);
}

/* Searches for a smaller case; its command is the last line of output. */
static int shrink(const struct options *options, uint64_t seed, enum sim_graph graph)
{
    struct sim_shrunk *shrunk = sim_alloc(sizeof(*shrunk));
    struct sim_jobs jobs = options->jobs;
    char changes[2048];
    jobs.graph = graph;
    int rc = sim_shrink(&jobs, seed, SHRINK_RUNS_MAX, SHRINK_SECONDS_MAX, shrunk);
    if (rc == -ENOENT) {
        printf("seed %" PRIu64 " alone does not fail: nothing to shrink\n", seed);
    } else if (rc != 0) {
        fprintf(stderr, "viaduct-sim: shrinking: starting a process: %s\n", strerror(-rc));
    } else {
        sim_shrunk_text(shrunk, changes, sizeof(changes));
        printf("shrunk in %u runs to %u of %u hosts, %u of %u faults, %u of %u bursts of work:\n"
               "FAILED: %s\n",
               shrunk->runs, shrunk->hosts, shrunk->hosts_before, shrunk->faults,
               shrunk->faults_before, shrunk->work, shrunk->work_before, shrunk->failure);
        print_command(options, seed, graph, changes);
    }
    free(shrunk);
    return rc;
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
    printf("--- how its history ends (all of it: --trace) ---\n%s---\n",
           line == NULL ? tail : line + (start != 0));
}

static int command_seed(struct options *options, uint64_t seed)
{
    struct sim_config config;
    struct sim_result result;
    char text[4096];
    FILE *history = options->trace ? stdout : tmpfile();
    sim_config_make(&config, seed, options->jobs.graph, options->jobs.changes);
    sim_config_text(&config, text, sizeof(text));
    printf("seed %" PRIu64 ": %s\n", seed, text);
    sim_jobs_one(&options->jobs, seed, history, &result);
    if (history != NULL && history != stdout) {
        if (result.failed) {
            print_tail(history);
        }
        fclose(history);
    }
    print_counts(&result.counts);
    printf("%" PRIu64 " events in %" PRIu64 " ms of virtual time, drained in %.3f ms, digest "
           "%016" PRIx64 "\n",
           result.events, result.virtual_ns / VIA_MSEC_NS, (double)result.drain_ns / 1e6,
           result.digest);
    if (result.failed) {
        print_failure(options, seed, options->jobs.graph, result.failure);
        return 1;
    }
    printf("ok\n");
    return 0;
}

static int command_shrink(struct options *options, uint64_t seed)
{
    int rc = shrink(options, seed, options->jobs.graph);
    return rc == 0 ? 1 : rc == -ENOENT ? 0 : 2;
}

static int command_digest(struct options *options, uint64_t seed)
{
    struct sim_result result;
    options->jobs.twice = true;
    sim_jobs_one(&options->jobs, seed, NULL, &result);
    if (result.failed) {
        print_failure(options, seed, options->jobs.graph, result.failure);
        return 1;
    }
    printf("seed %" PRIu64 ": digest %016" PRIx64 " twice\n", seed, result.digest);
    return 0;
}

static int run_jobs(const struct options *options, struct sim_jobs_result *ret_result)
{
    int rc = sim_jobs_run(&options->jobs, ret_result);
    if (rc != 0) {
        fprintf(stderr, "viaduct-sim: starting %u processes: %s\n", options->jobs.processes,
                strerror(-rc));
        return 2;
    }
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
    int rc = run_jobs(options, &result);
    via_progress_end(&progress);
    if (rc != 0) {
        return rc;
    }
    printf("%" PRIu64 " seeds from %" PRIu64 " (%s) in %.1f s: %.1f ms each, %.0f events/s, %.2f "
           "million events per second of processor time; "
           "longest %.0f ms (seed %" PRIu64 "), slowest to drain %.0f ms (seed %" PRIu64 ")\n",
           result.done, options->jobs.first, sim_graph_name(options->jobs.graph), result.elapsed_s,
           result.elapsed_s * 1000 / (double)via_max(result.done, UINT64_C(1)),
           (double)result.events / result.elapsed_s, (double)result.events / 1e6 / cpu_s(),
           result.longest_s * 1000, result.longest_seed, (double)result.drain_ns_max / 1e6,
           result.drain_seed);
    print_counts(&result.counts);
    if (result.failed) {
        print_failure(options, result.seed, options->jobs.graph, result.failure);
        fflush(stdout);
        if (!options->no_shrink) {
            (void)shrink(options, result.seed, options->jobs.graph);
        }
        return 1;
    }
    printf("ok\n");
    return 0;
}

static int command_catch(struct options *options, const char *plant)
{
    struct sim_jobs_result result;
    options->plant = plant;
    options->jobs.plant = sim_plant_parse(plant);
    if (options->jobs.plant <= 0) {
        return bad_usage("no such plant:", plant);
    }
    if (!options->count_given) {
        options->jobs.count = 500;
    }
    int rc = run_jobs(options, &result);
    if (rc != 0) {
        return rc;
    }
    if (!result.failed) {
        printf("%s: NOT CAUGHT by %" PRIu64 " seeds in %.0f s\n", plant, result.done,
               result.elapsed_s);
        return 1;
    }
    printf("%s: caught after %" PRIu64 " seeds, by seed %" PRIu64 ": %s\n", plant, result.done,
           result.seed, result.failure);
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
        if (key->text != NULL) {
            printf("%-16s", key->name);
            for (uint64_t value = key->min; value <= key->max; value++) {
                printf(" %s", key->text((unsigned)value));
            }
            printf("\n");
        } else {
            printf("%-16s %" PRIu64 " to %" PRIu64 "\n", key->name, key->min, key->max);
        }
    }
    return 0;
}

struct replay {
    uint64_t seed;
    enum sim_graph graph;
    struct sim_changes changes;
};

/* One line of a file of seeds; false if it is not "", "# ..." or "N [GRAPH] [KEY=VALUE,...]". */
static bool parse_line(char *line, bool *ret_seed_there, struct replay *ret_replay)
{
    line[strcspn(line, "#\n")] = '\0';
    char error[256];
    char *rest = NULL;
    char *word = strtok_r(line, " \t", &rest);
    *ret_replay = (struct replay){.graph = SIM_GRAPH_ANY};
    *ret_seed_there = word != NULL;
    if (word != NULL && !parse_number(word, &ret_replay->seed)) {
        return false;
    }
    word = word != NULL ? strtok_r(NULL, " \t", &rest) : NULL;
    if (word != NULL && strchr(word, '=') == NULL) {
        int number = sim_graph_parse(word);
        if (number < 0) {
            return false;
        }
        ret_replay->graph = (enum sim_graph)number;
        word = strtok_r(NULL, " \t", &rest);
    }
    if (word != NULL && sim_changes_parse(&ret_replay->changes, word, error, sizeof(error)) != 0) {
        return false;
    }
    return word == NULL || strtok_r(NULL, " \t", &rest) == NULL;
}

static int replay_one(struct options *options, const struct replay *replay)
{
    struct sim_jobs_result result;
    options->jobs.first = replay->seed;
    options->jobs.count = 1;
    options->jobs.processes = 1;
    options->jobs.graph = replay->graph;
    options->changes = replay->changes;
    options->jobs.changes = &options->changes;
    int rc = run_jobs(options, &result);
    if (rc == 0 && result.failed) {
        print_failure(options, replay->seed, replay->graph, result.failure);
        return 1;
    }
    return rc;
}

/* Reads the whole file before any process is started that would share its offset. Owned by the
 * caller; NULL if a line is wrong. */
static struct replay *replay_read(const char *path, FILE *file, unsigned *ret_count)
{
    struct replay *replays = sim_alloc(0);
    char line[512];
    unsigned count = 0;
    for (unsigned number = 1; fgets(line, sizeof(line), file) != NULL; number++) {
        bool there;
        struct replay replay;
        if (!parse_line(line, &there, &replay)) {
            fprintf(stderr, "viaduct-sim: %s:%u: not a seed, a graph and changes\n", path, number);
            free(replays);
            return NULL;
        }
        if (there) {
            replays = sim_realloc(replays, (count + 1) * sizeof(*replays));
            replays[count++] = replay;
        }
    }
    *ret_count = count;
    return replays;
}

static int command_replay(struct options *options, const char *path)
{
    unsigned count = 0;
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        fprintf(stderr, "viaduct-sim: %s: open: %s\n", path, strerror(errno));
        return 2;
    }
    struct replay *replays = replay_read(path, file, &count);
    fclose(file);
    if (replays == NULL) {
        return 2;
    }
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < count; i++) {
        rc = replay_one(options, &replays[i]);
    }
    free(replays);
    if (rc == 0) {
        printf("%u seeds of %s: ok\n", count, path);
    }
    return rc;
}

/* --- arguments ------------------------------------------------------------------------------- */

enum {
    OPTION_FIRST = 256,
    OPTION_COUNT,
    OPTION_JOBS,
    OPTION_SECONDS,
    OPTION_GRAPH,
    OPTION_RING,
    OPTION_TWICE,
    OPTION_PLANT,
    OPTION_SET,
    OPTION_FAULTS,
    OPTION_WORK,
    OPTION_TRACE,
    OPTION_NO_SHRINK,
    OPTION_QUIET,
    OPTION_HELP
};

static const struct option long_options[] = {
    {"first", required_argument, NULL, OPTION_FIRST},
    {"count", required_argument, NULL, OPTION_COUNT},
    {"jobs", required_argument, NULL, OPTION_JOBS},
    {"seconds", required_argument, NULL, OPTION_SECONDS},
    {"graph", required_argument, NULL, OPTION_GRAPH},
    {"ring", no_argument, NULL, OPTION_RING},
    {"twice", no_argument, NULL, OPTION_TWICE},
    {"plant", required_argument, NULL, OPTION_PLANT},
    {"set", required_argument, NULL, OPTION_SET},
    {"faults", required_argument, NULL, OPTION_FAULTS},
    {"work", required_argument, NULL, OPTION_WORK},
    {"trace", no_argument, NULL, OPTION_TRACE},
    {"no-shrink", no_argument, NULL, OPTION_NO_SHRINK},
    {"quiet", no_argument, NULL, OPTION_QUIET},
    {"help", no_argument, NULL, OPTION_HELP},
    {0},
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
    case OPTION_SET:
        return set_changes(options, optarg);
    case OPTION_FAULTS:
        return set_mask(&options->changes.faults, optarg);
    case OPTION_WORK:
        return set_mask(&options->changes.work, optarg);
    case OPTION_NO_SHRINK:
        options->no_shrink = true;
        return 0;
    case OPTION_FIRST:
        return set_number(optarg, 0, UINT64_MAX, &options->jobs.first);
    case OPTION_COUNT:
        options->count_given = true;
        return set_number(optarg, 1, UINT64_MAX, &options->jobs.count);
    case OPTION_JOBS:
        rc = set_number(optarg, 1, 64, &number);
        options->jobs.processes = rc == 0 ? (unsigned)number : 1;
        return rc;
    case OPTION_SECONDS:
        return set_number(optarg, 1, UINT64_MAX, &options->jobs.seconds_max);
    case OPTION_GRAPH:
        if (sim_graph_parse(optarg) < 0) {
            return bad_usage("no such graph:", optarg);
        }
        options->jobs.graph = (enum sim_graph)sim_graph_parse(optarg);
        return 0;
    case OPTION_RING:
        options->jobs.graph = SIM_GRAPH_RING;
        return 0;
    case OPTION_TWICE:
        options->jobs.twice = true;
        return 0;
    case OPTION_PLANT:
        options->plant = optarg;
        options->jobs.plant = sim_plant_parse(optarg);
        return options->jobs.plant < 0 ? bad_usage("no such plant:", optarg) : 0;
    case OPTION_TRACE:
        options->trace = true;
        return 0;
    case OPTION_QUIET:
        options->quiet = true;
        return 0;
    default:
        return 2; /* getopt has printed the reason */
    }
}

/* Exactly one of the three is set. */
struct command {
    const char *name;
    int (*plain)(struct options *options);
    int (*seeded)(struct options *options, uint64_t seed);
    int (*named)(struct options *options, const char *name);
};

static const struct command commands[] = {
    {"seed", .seeded = command_seed},     {"run", .plain = command_run},
    {"shrink", .seeded = command_shrink}, {"digest", .seeded = command_digest},
    {"replay", .named = command_replay},  {"catch", .named = command_catch},
    {"plants", .plain = command_plants},  {"keys", .plain = command_keys},
};

static int run_command(struct options *options, int argc, char **argv)
{
    const struct command *command = NULL;
    uint64_t seed;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(commands); i++) {
        command = strcmp(argv[0], commands[i].name) == 0 ? &commands[i] : command;
    }
    if (command == NULL) {
        return bad_usage("no such command:", argv[0]);
    }
    if (argc != (command->plain != NULL ? 1 : 2)) {
        return bad_usage("wrong number of arguments for", argv[0]);
    }
    if (command->plain != NULL) {
        return command->plain(options);
    }
    if (command->named != NULL) {
        return command->named(options, argv[1]);
    }
    return parse_number(argv[1], &seed) ? command->seeded(options, seed)
                                        : bad_usage("not a seed:", argv[1]);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "scale") == 0) {
        return sim_scale_main(argc - 1, argv + 1);
    }
    sim_ofi_use();
#ifndef VIA_MUTANTS
    sim_pex_use();
    if (argc == 2 && strcmp(argv[1], "model") == 0) {
        return sim_model_main();
    }
    if (argc > 1 && strcmp(argv[1], "plan-json") == 0) {
        return sim_plan_main(argc - 1, argv + 1);
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
        if (option == OPTION_HELP || option == 'h') {
            fputs(usage_text, stdout);
            return 0;
        }
        int rc = set_option(&options, option);
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
