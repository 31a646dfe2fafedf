/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The command oshrun: parses the options, then places, spawns and watches the PEs. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shmem/launch_remote.h"
#include "shmem/world.h"

#define EXIT_CODE_USAGE 2
/* One step of Slurm for each agent: with one step for all, srun would mix the output of the
 * tasks. */
#define AGENT_SLURM                                                                         \
    "srun --nodes=1 --ntasks=1 --nodelist=%h --overlap --mpi=none --cpu-bind=none --quiet " \
    "--kill-on-bad-exit=1"
#define TIMEOUT_S_MAX 31536000ul

static const char usage_text[] =
    "usage: oshrun -n N [options] program [arguments]\n"
    "       oshrun --trace [--job JOB] [--json]\n"
    "Runs an OpenSHMEM program as N PEs on this machine, or on the hosts of a fabric.\n"
    "\n"
    "  -n, --np N        how many PEs\n"
    "  --hosts LIST      on these hosts of the fabric, such as 1,2 or 1-4, in equal blocks, or\n"
    "                    1:3,2-4:1, with that number of PEs on each;\n"
    "                    or on these machines, such as node1,node2 or node1:4,node2:2\n"
    "  --hostfile FILE   on the machines in the file: \"name\" or \"name slots=N\" in each line\n"
    "  --spread          on all hosts of the fabric\n"
    "  --fabric NAME     the fabric (default: $VIADUCT_FABRIC, else \"default\")\n"
    "  --agent COMMAND   runs a command on a machine; gets the name and the command (ssh)\n"
    "  --rundir DIR      where the daemons of the machines have their sockets\n"
    "  --lost-after S    a machine that sends nothing for S seconds is lost (10)\n"
    "  --timeout S       end the job after S seconds, with exit code 124\n"
    "  --tag             put [PE] before each line of output\n"
    "  --trace           what each PE of the running jobs waits for (the same: SIGQUIT)\n"
    "  --job JOB         with --trace: the job of this id, or of the launcher with this pid\n"
    "  --json            with --trace: for Perfetto and chrome://tracing, one array per job\n"
    "  --help, --version\n"
    "\n"
    "Exit code: that of the first PE that fails, 128 + n when it was killed by signal n, else 0.\n"
    "Environment: SHMEM_SYMMETRIC_SIZE, SHMEM_INFO, SHMEM_VERSION, SHMEM_DEBUG; see oshrun(1).\n";

enum {
    OPTION_HOSTS = 256,
    OPTION_HOSTFILE,
    OPTION_AGENT,
    OPTION_RUNDIR,
    OPTION_LOST_AFTER,
    OPTION_SERVE,
    OPTION_SPREAD,
    OPTION_FABRIC,
    OPTION_TIMEOUT,
    OPTION_TAG,
    OPTION_TRACE,
    OPTION_JSON,
    OPTION_JOB,
    OPTION_HELP,
    OPTION_VERSION
};

static const struct option long_options[] = {
    {"np", required_argument, NULL, 'n'},
    {"hosts", required_argument, NULL, OPTION_HOSTS},
    {"hostfile", required_argument, NULL, OPTION_HOSTFILE},
    {"agent", required_argument, NULL, OPTION_AGENT},
    {"rundir", required_argument, NULL, OPTION_RUNDIR},
    {"lost-after", required_argument, NULL, OPTION_LOST_AFTER},
    {"serve", no_argument, NULL, OPTION_SERVE},
    {"spread", no_argument, NULL, OPTION_SPREAD},
    {"fabric", required_argument, NULL, OPTION_FABRIC},
    {"timeout", required_argument, NULL, OPTION_TIMEOUT},
    {"tag", no_argument, NULL, OPTION_TAG},
    {"trace", no_argument, NULL, OPTION_TRACE},
    {"json", no_argument, NULL, OPTION_JSON},
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

static struct via_launch_machines machines;

static int parse_hosts(struct via_launch_options *options, struct via_error *err)
{
    int result;

    if (options->machines || options->hosts_count > 0)
        return via_error_set(err, -EINVAL, "the hosts are named twice");
    if (via_launch_machines_are_named(optarg)) {
        options->machines = &machines;
        result = via_launch_machines_parse(optarg, &machines, err);
    } else {
        result = via_launch_parse_hosts(optarg, options, err);
    }
    return result < 0 ? via_error_prefix(err, "--hosts ") : 0;
}

static int parse_hostfile(struct via_launch_options *options, struct via_error *err)
{
    if (options->machines || options->hosts_count > 0)
        return via_error_set(err, -EINVAL, "the hosts are named twice");
    options->machines = &machines;
    int result = via_launch_machines_read(optarg, &machines, err);
    return result < 0 ? via_error_prefix(err, "--hostfile ") : 0;
}

static int parse_option(int option, struct via_launch_options *options, struct via_error *err)
{
    switch (option) {
    case 'n':
        return parse_count("-n", optarg, VIA_JOB_PES_MAX, &options->pes_count, err);
    case OPTION_HOSTS:
        return parse_hosts(options, err);
    case OPTION_HOSTFILE:
        return parse_hostfile(options, err);
    case OPTION_AGENT:
        options->agent = optarg;
        return 0;
    case OPTION_RUNDIR:
        options->rundir = optarg;
        return 0;
    case OPTION_LOST_AFTER:
        return parse_count("--lost-after", optarg, VIA_LAUNCH_LOST_AFTER_S_MAX,
                           &options->lost_after_s, err);
    case OPTION_SERVE:
        exit(via_launch_serve());
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
    case OPTION_JSON:
        options->trace_json = true;
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

/* Uses the nodes of a Slurm allocation that this process is in, unless that is only this machine.
 * Returns 1 if it uses them. */
static int use_allocation(struct via_launch_options *options, struct via_error *err)
{
    const char *list = getenv("SLURM_JOB_NODELIST"), *tasks = getenv("SLURM_NTASKS");
    const char *each = getenv("SLURM_TASKS_PER_NODE");
    char machine[64] = "";

    if (!getenv("SLURM_JOB_ID") || !list || options->machines || options->hosts_count > 0 ||
        options->spread)
        return 0;
    if (options->pes_count == 0 && tasks) {
        int result = parse_count("SLURM_NTASKS", tasks, VIA_JOB_PES_MAX, &options->pes_count, err);
        if (result < 0)
            return result;
    }
    if (gethostname(machine, sizeof(machine) - 1) == 0)
        machine[strcspn(machine, ".")] = '\0';
    if (strcmp(list, machine) == 0)
        return 0;
    int result = via_launch_machines_of_slurm(list, each, &machines, err);
    if (result < 0)
        return result;
    options->machines = &machines;
    return 1;
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
    if ((options->trace_job || options->trace_json) && !options->trace)
        return via_error_set(err, -EINVAL, "%s needs --trace",
                             options->trace_job ? "--job" : "--json");
    if (options->trace)
        return optind < argc ? via_error_set(err, -EINVAL, "--trace starts no program") : 0;
    int slurm = use_allocation(options, err);
    if (slurm < 0)
        return slurm;
    if (options->pes_count == 0)
        return via_error_set(err, -EINVAL, "how many PEs? (-n N)");
    if (optind >= argc)
        return via_error_set(err, -EINVAL, "which program?");
    if (options->spread && (options->hosts_count > 0 || options->machines))
        return via_error_set(err, -EINVAL, "--hosts and --spread exclude each other");
    if (options->fabric && !options->spread && options->hosts_count == 0 && !options->machines)
        return via_error_set(err, -EINVAL, "--fabric needs --hosts or --spread");
    if (slurm > 0 && !options->agent)
        options->agent = getenv("OSHRUN_AGENT") ? getenv("OSHRUN_AGENT") : AGENT_SLURM;
    if ((options->agent || options->rundir || options->lost_after_s > 0) && !options->machines)
        return via_error_set(err, -EINVAL,
                             "--agent, --rundir and --lost-after need names of machines (--hosts)");
    if (options->lost_after_s == 0)
        options->lost_after_s = VIA_LAUNCH_LOST_AFTER_S;
    if (!options->agent)
        options->agent = getenv("OSHRUN_AGENT");
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

static int trace(const struct via_launch_options *options)
{
    struct via_error err = {0};

    if (via_launch_trace_jobs(options->trace_job, options->trace_json, &err) == 0)
        return 0;
    via_launch_print("%s", via_error_describe(&err));
    return 1;
}

/* Runs a job on other machines. */
static int run_remote(struct via_launch *launch)
{
    struct via_error err = {0};
    uint64_t heap_bytes;

    int result = via_launch_machines_place(launch->options.machines, launch->options.pes_count,
                                           &launch->place, &err);
    if (result == 0)
        result = via_job_heap_bytes(&heap_bytes, &err);
    if (result == 0)
        result = via_launch_take_signals(launch, &err);
    if (result < 0) {
        via_launch_print("%s", via_error_describe(&err));
        return 1;
    }
    return via_launch_remote_run(launch, heap_bytes + VIA_INTERNAL_BYTES);
}

/* If a standard stream were closed, memory or a pipe of the job would get its descriptor number,
 * and PEs would read and write that. */
static void open_standard_streams(void)
{
    int fd;

    while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO)
        ;
    if (fd > STDERR_FILENO)
        close(fd);
}

int main(int argc, char **argv)
{
    static struct via_launch launch;
    struct via_error err = {0};

    open_standard_streams();
    if (parse_options(argc, argv, &launch.options, &err) < 0) {
        via_launch_print("%s (oshrun --help)", via_error_describe(&err));
        return EXIT_CODE_USAGE;
    }
    if (launch.options.trace)
        return trace(&launch.options);
    if (gethostname(launch.machine, sizeof(launch.machine) - 1) < 0)
        strcpy(launch.machine, "this machine");
    launch.timeout_ns = launch.options.timeout_s == 0
                            ? VIA_NEVER_NS
                            : via_launch_now_ns() + launch.options.timeout_s * VIA_SEC_NS;
    via_launch_raise_files(&launch);
    if (launch.options.machines)
        return run_remote(&launch);
    int result = via_launch_place(&launch.options, &launch.place, &err);
    if (result == 0)
        result = make_job(&launch, &err);
    if (result == 0)
        result = via_launch_take_signals(&launch, &err);
    if (result == 0)
        result = via_launch_input_open(&launch.input, &err);
    if (result == 0)
        result = via_launch_spawn(&launch, &err);
    if (result < 0) {
        via_launch_print("%s", via_error_describe(&err));
        return result == -ENOENT ? 127 : 1;
    }
    return via_launch_watch(&launch);
}
