/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The command: options, then place, spawn and watch. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "shmem/launch.h"
#include "shmem/world.h"

#define EXIT_CODE_USAGE 2
#define TIMEOUT_S_MAX 31536000ul

static const char usage_text[] =
    "usage: oshrun -n N [options] program [arguments]\n"
    "       oshrun --trace [--job JOB]\n"
    "Runs an OpenSHMEM program as N PEs on this machine, or on the hosts of a fabric.\n"
    "\n"
    "  -n, --np N        how many PEs\n"
    "  --hosts LIST      on these hosts of the fabric, such as 1,2 or 1-4, in equal blocks\n"
    "  --spread          on all hosts of the fabric\n"
    "  --fabric NAME     the fabric (default: $VIADUCT_FABRIC, else \"default\")\n"
    "  --timeout S       end the job after S seconds, with exit code 124\n"
    "  --tag             put [PE] before each line of output\n"
    "  --trace           who waits for whom in the jobs that run (the same: SIGQUIT)\n"
    "  --job JOB         with --trace: the job of this id, or of the launcher with this pid\n"
    "  --help, --version\n"
    "\n"
    "Exit code: that of the first PE that fails, 128 + n when it was killed by signal n, else 0.\n"
    "Environment: SHMEM_SYMMETRIC_SIZE, SHMEM_INFO, SHMEM_VERSION, SHMEM_DEBUG; see oshrun(1).\n";

enum {
    OPTION_HOSTS = 256,
    OPTION_SPREAD,
    OPTION_FABRIC,
    OPTION_TIMEOUT,
    OPTION_TAG,
    OPTION_TRACE,
    OPTION_JOB,
    OPTION_HELP,
    OPTION_VERSION
};

static const struct option long_options[] = {
    {"np", required_argument, NULL, 'n'},
    {"hosts", required_argument, NULL, OPTION_HOSTS},
    {"spread", no_argument, NULL, OPTION_SPREAD},
    {"fabric", required_argument, NULL, OPTION_FABRIC},
    {"timeout", required_argument, NULL, OPTION_TIMEOUT},
    {"tag", no_argument, NULL, OPTION_TAG},
    {"trace", no_argument, NULL, OPTION_TRACE},
    {"job", required_argument, NULL, OPTION_JOB},
    {"help", no_argument, NULL, OPTION_HELP},
    {"version", no_argument, NULL, OPTION_VERSION},
    {0},
};

static int parse_count(const char *option, const char *text, unsigned long max, uint32_t *ret_count,
                       struct via_error *err)
{
    char *end;

    errno = 0;
    unsigned long count = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || count == 0 || count > max)
        return via_error_set(err, -EINVAL, "%s \"%s\": not a number from 1 to %lu", option, text,
                             max);
    *ret_count = (uint32_t)count;
    return 0;
}

static int parse_option(int option, struct via_launch_options *options, struct via_error *err)
{
    int result;

    switch (option) {
    case 'n':
        return parse_count("-n", optarg, VIA_JOB_PES_MAX, &options->pes_count, err);
    case OPTION_HOSTS:
        result = via_launch_parse_hosts(optarg, options, err);
        return result < 0 ? via_error_prefix(err, "--hosts ") : 0;
    case OPTION_SPREAD:
        options->spread = true;
        return 0;
    case OPTION_FABRIC:
        options->fabric = optarg;
        return 0;
    case OPTION_TIMEOUT:
        return parse_count("--timeout", optarg, TIMEOUT_S_MAX, &options->timeout_s, err);
    case OPTION_TAG:
        options->tag = true;
        return 0;
    case OPTION_TRACE:
        options->trace = true;
        return 0;
    case OPTION_JOB:
        options->trace_job = optarg;
        return 0;
    case OPTION_HELP:
        fputs(usage_text, stdout);
        exit(0);
    case OPTION_VERSION:
        puts("oshrun (Viaduct) " VIADUCT_VERSION);
        exit(0);
    default:
        return via_error_set(err, -EINVAL, "%s: unknown option, or its argument is missing",
                             optind > 0 ? "command line" : "");
    }
}

static int parse_options(int argc, char **argv, struct via_launch_options *options,
                         struct via_error *err)
{
    int option, result = 0;

    opterr = 0;
    /* "+": what follows the program's name is the program's. */
    while (result == 0 && (option = getopt_long(argc, argv, "+n:", long_options, NULL)) != -1) {
        if (option == '?')
            return via_error_set(err, -EINVAL, "%s: unknown option, or its argument is missing",
                                 argv[optind - 1]);
        result = parse_option(option, options, err);
    }
    if (result < 0)
        return result;
    options->argv = argv + optind;
    if (options->trace_job && !options->trace)
        return via_error_set(err, -EINVAL, "--job needs --trace");
    if (options->trace)
        return optind < argc ? via_error_set(err, -EINVAL, "--trace starts no program") : 0;
    if (options->pes_count == 0)
        return via_error_set(err, -EINVAL, "how many PEs? (-n N)");
    if (optind >= argc)
        return via_error_set(err, -EINVAL, "which program?");
    if (options->spread && options->hosts_count > 0)
        return via_error_set(err, -EINVAL, "--hosts and --spread exclude each other");
    if (options->fabric && !options->spread && options->hosts_count == 0)
        return via_error_set(err, -EINVAL, "--fabric needs --hosts or --spread");
    return 0;
}

/* --- set-up ----------------------------------------------------------------------------------- */

static int make_job(struct via_launch *launch, struct via_error *err)
{
    struct via_job_spec spec = {
        .pes_count = launch->options.pes_count,
        .nodes_count = launch->place.nodes_count,
        .node_of = launch->place.node_of,
        .host_of = launch->place.fabric ? launch->place.host_of : NULL,
        .cores = via_wait_cores(),
    };

    int result = via_job_heap_bytes(&spec.heap_bytes, err);
    if (result < 0)
        return result;
    spec.heap_bytes += VIA_INTERNAL_BYTES;
    return via_job_create(&spec, &launch->files, err);
}

/* Two memfds a PE, and with --tag two pipes. */
static void raise_files_limit(struct via_launch *launch)
{
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &launch->files_limit);
    limit = launch->files_limit;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static int take_signals_by_descriptor(struct via_launch *launch, struct via_error *err)
{
    static const int taken[] = {SIGCHLD, SIGINT,  SIGTERM, SIGHUP,
                                SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP};
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < VIA_ARRAY_COUNT(taken); i++)
        sigaddset(&set, taken[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    /* A reader of our output that has gone is no reason to leave PEs behind. */
    signal(SIGPIPE, SIG_IGN);
    launch->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return launch->signal_fd < 0 ? via_error_set(err, -errno, "signalfd: %s", strerror(errno)) : 0;
}

static int trace(const struct via_launch_options *options)
{
    struct via_error err = {0};

    if (via_launch_trace_jobs(options->trace_job, &err) == 0)
        return 0;
    via_launch_say("%s", via_error_describe(&err));
    return 1;
}

int main(int argc, char **argv)
{
    static struct via_launch launch;
    struct via_error err = {0};

    if (parse_options(argc, argv, &launch.options, &err) < 0) {
        via_launch_say("%s (oshrun --help)", via_error_describe(&err));
        return EXIT_CODE_USAGE;
    }
    if (launch.options.trace)
        return trace(&launch.options);
    if (gethostname(launch.machine, sizeof(launch.machine) - 1) < 0)
        strcpy(launch.machine, "this machine");
    launch.timeout_ns = launch.options.timeout_s == 0
                            ? VIA_NEVER_NS
                            : via_launch_now_ns() + launch.options.timeout_s * VIA_SEC_NS;
    raise_files_limit(&launch);
    int result = via_launch_place(&launch.options, &launch.place, &err);
    if (result == 0)
        result = make_job(&launch, &err);
    if (result == 0)
        result = take_signals_by_descriptor(&launch, &err);
    if (result == 0)
        result = via_launch_input_open(&launch.input, &err);
    if (result == 0)
        result = via_launch_spawn(&launch, &err);
    if (result < 0) {
        via_launch_say("%s", via_error_describe(&err));
        return result == -ENOENT ? 127 : 1;
    }
    return via_launch_watch(&launch);
}
