/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/daemon.h"
#include "cli/find.h"
#include "cli/ip_hosts.h"
#include "cli/netns.h"
#include "host/control_rights.h"

/* A fabric with as many hosts as the machine has CPUs is up in less than a second. The hosts of a
 * large one share few CPUs. */
#define READY_NS (30 * VIA_SEC_NS)
#define READY_NS_PER_HOST (200 * VIA_MSEC_NS)
#define LOCK_MS 500u
/* The largest body. */
#define DMA_BYTES_MAX 65472u
/* One day, the maximum of viaductd. */
#define LIMIT_MS_MAX 86400000u
#define SPIN_US_MAX 10000u
#define WINDOW_MIB_MAX 64u

static const char help[] =
    "usage: viaduct up --ring N | --chain N | --star N | --mesh N | --torus AxB[xC] | FILE\n"
    "                  [OPTION...]\n"
    "\n"
    "Brings an emulated fabric up on this machine: one viaductd for each host, in the background.\n"
    "Host i answers on 127.77.0.i.\n"
    "\n"
    "  --ring N         hosts 1 to N, each linked with the next, and N with 1\n"
    "  --chain N        the same without the last link\n"
    "  --star N         host 1 linked with all others\n"
    "  --mesh N         each host linked with all others\n"
    "  --torus AxB[xC]  A, B, C hosts along each dimension, each linked with the next, the last "
    "with\n"
    "                   the first: host 1 + x + A * (y + B * z)\n"
    "  FILE             hosts and links as a file says: viaduct-topology(5)\n"
    "  --fabric NAME    name of the fabric (default $VIADUCT_FABRIC or 'default')\n"
    "  --channels K     data channels of each link, 1 to 14\n"
    "  --netns          a network namespace for each host, 10.77.0.i there (root)\n"
    "  --ip             with --netns: IP over the fabric, 10.78.0.i on the device via0 of each "
    "host\n"
    "  --no-ethernet    with --ip: hosts have no other network\n"
    "  --like CLASS     links that promise only what real ones of a class do: pex,\n"
    "                   ivshmem or network\n"
    "  --window N       of such a link, in MiB, 1 to 64 (default 4)\n"
    "  --no-direct      processes may not map a neighbour's memory: frames carry all\n"
    "  --dma-bytes N    a DMA engine, emulated too, moves bodies of N bytes or more: for tests\n"
    "  --give-up-ms N   operations end when their host has been unreachable for N ms\n"
    "                   (default 120000, 0 = never)\n"
    "  --wait-ms N      operations end when a reachable host has not answered for N ms\n"
    "                   (default 600000, 0 = never)\n"
    "  --spin-us N      longest poll of a transfer thread before it sleeps, 0 = none (default 50)\n"
    "  --key FILE       fabric key: hosts prove to each other that they have it\n"
    "  --attach WHO     users that may attach besides you and root: all, user:NAME, group:NAME, "
    "separated\n"
    "                   by commas\n"
    "  --admin WHO      users that may cut and mend links and stop hosts, too\n"
    "  --quota WHAT=N   limits of a user on each host: segments, memory, pipes, notes,\n"
    "                   separated by commas (default half of the limits)\n"
    "  --with PID       the fabric ends when this process does (default $VIADUCT_UP_WITH)\n"
    "  -h, --help       this text\n";

struct options {
    const char *fabric;
    const char *file;
    int shape; /* enum via_topology_shape; -1: FILE */
    unsigned count;
    const char *key;
    const char *attach;
    const char *admin;
    const char *quota;
    const char *torus; /* sizes of the torus; NULL: none */
    unsigned channels;
    unsigned dma_bytes;
    unsigned give_up_ms;
    unsigned wait_ms;
    unsigned spin_us;
    unsigned with;
    const char *like; /* NULL: plain memory */
    unsigned window_mib;
    bool netns;
    bool ip;
    bool ethernet;
    bool direct;
};

enum {
    OPT_RING = 256,
    OPT_CHAIN,
    OPT_STAR,
    OPT_MESH,
    OPT_TORUS,
    OPT_FABRIC,
    OPT_CHANNELS,
    OPT_NETNS,
    OPT_IP,
    OPT_NO_ETHERNET,
    OPT_NO_DIRECT,
    OPT_LIKE,
    OPT_WINDOW,
    OPT_DMA_BYTES,
    OPT_GIVE_UP_MS,
    OPT_WAIT_MS,
    OPT_SPIN_US,
    OPT_KEY,
    OPT_ATTACH,
    OPT_ADMIN,
    OPT_QUOTA,
    OPT_WITH
};

static const struct option long_options[] = {
    {"ring", required_argument, NULL, OPT_RING},
    {"chain", required_argument, NULL, OPT_CHAIN},
    {"star", required_argument, NULL, OPT_STAR},
    {"mesh", required_argument, NULL, OPT_MESH},
    {"torus", required_argument, NULL, OPT_TORUS},
    {"fabric", required_argument, NULL, OPT_FABRIC},
    {"channels", required_argument, NULL, OPT_CHANNELS},
    {"netns", no_argument, NULL, OPT_NETNS},
    {"ip", no_argument, NULL, OPT_IP},
    {"no-ethernet", no_argument, NULL, OPT_NO_ETHERNET},
    {"no-direct", no_argument, NULL, OPT_NO_DIRECT},
    {"like", required_argument, NULL, OPT_LIKE},
    {"window", required_argument, NULL, OPT_WINDOW},
    {"dma-bytes", required_argument, NULL, OPT_DMA_BYTES},
    {"give-up-ms", required_argument, NULL, OPT_GIVE_UP_MS},
    {"wait-ms", required_argument, NULL, OPT_WAIT_MS},
    {"spin-us", required_argument, NULL, OPT_SPIN_US},
    {"key", required_argument, NULL, OPT_KEY},
    {"attach", required_argument, NULL, OPT_ATTACH},
    {"admin", required_argument, NULL, OPT_ADMIN},
    {"quota", required_argument, NULL, OPT_QUOTA},
    {"with", required_argument, NULL, OPT_WITH},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* --- the command line ------------------------------------------------------------------------ */

static int take_shape(const char *name, struct options *options, int opt)
{
    static const enum via_topology_shape shapes[] = {VIA_TOPOLOGY_RING, VIA_TOPOLOGY_CHAIN,
                                                     VIA_TOPOLOGY_STAR, VIA_TOPOLOGY_MESH};
    const char *word = long_options[opt - OPT_RING].name;
    if (options->shape >= 0 || options->torus != NULL) {
        return via_cli_usage(name, "--%s: one shape only", word);
    }
    if (opt == OPT_TORUS) {
        options->torus = optarg;
        return VIA_CLI_OK;
    }
    /* More hosts than ids is an error of the topology, not of the command line. */
    if (via_cli_number(optarg, 1, 1000000, &options->count) != 0) {
        return via_cli_usage(name, "--%s: '%s': not a number of hosts", word, optarg);
    }
    options->shape = (int)shapes[opt - OPT_RING];
    return VIA_CLI_OK;
}

static int take_number(const char *name, const char *option, unsigned min, unsigned max,
                       unsigned *ret_number)
{
    if (via_cli_number(optarg, min, max, ret_number) != 0) {
        return via_cli_usage(name, "--%s: '%s': a number from %u to %u", option, optarg, min, max);
    }
    return VIA_CLI_OK;
}

static int take_companion(const char *name, const char *what, const char *text,
                          struct options *options)
{
    if (via_cli_number(text, 1, INT32_MAX, &options->with) != 0) {
        return via_cli_usage(name, "%s: '%s': not the number of a process", what, text);
    }
    if (kill((pid_t)options->with, 0) != 0 && errno == ESRCH) {
        fprintf(stderr, "viaduct %s: %s: process %u: %s\n", name, what, options->with,
                strerror(errno));
        return VIA_CLI_FAILED;
    }
    return VIA_CLI_OK;
}

static int take_class(const char *name, const char *what, const char *text, struct options *options)
{
    static const char *const classes[] = {"memory", "pex", "ivshmem", "network"};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(classes); i++) {
        if (strcmp(text, classes[i]) == 0) {
            options->like = i != 0 ? classes[i] : NULL;
            return VIA_CLI_OK;
        }
    }
    return via_cli_usage(name, "%s: '%s': not a class of links: memory, pex, ivshmem or network",
                         what, text);
}

/* Prints once the errors that each viaductd would print. */
static int check_rights(const char *name, const char *option)
{
    struct via_rights rights = {0};
    struct via_error err = {0};
    return via_rights_add(&rights, optarg, &err) == 0
               ? VIA_CLI_OK
               : via_cli_usage(name, "--%s: %s", option, err.text);
}

static int check_quota(const char *name)
{
    struct via_quota quota = {0};
    struct via_error err = {0};
    return via_quota_parse(&quota, optarg, &err) == 0
               ? VIA_CLI_OK
               : via_cli_usage(name, "--quota: %s", err.text);
}

/* Takes options that the command line omits from the environment. */
static int take_environment(const char *name, struct options *options)
{
    const char *with = getenv("VIADUCT_UP_WITH");
    const char *like = getenv("VIADUCT_UP_LIKE");
    int code = VIA_CLI_OK;
    if (with != NULL && with[0] != '\0') {
        code = take_companion(name, "VIADUCT_UP_WITH", with, options);
    }
    if (code == VIA_CLI_OK && like != NULL && like[0] != '\0') {
        code = take_class(name, "VIADUCT_UP_LIKE", like, options);
    }
    return code;
}

/* -1: continue; otherwise the exit code. */
static int take_options(int argc, char **argv, struct options *options)
{
    int opt;
    int code = VIA_CLI_OK;
    while (code == VIA_CLI_OK && (opt = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
        switch (opt) {
        case OPT_RING:
        case OPT_CHAIN:
        case OPT_STAR:
        case OPT_MESH:
        case OPT_TORUS:
            code = take_shape(argv[0], options, opt);
            break;
        case OPT_FABRIC:
            options->fabric = optarg;
            break;
        case OPT_CHANNELS:
            code =
                take_number(argv[0], "channels", 1, VIA_TOPOLOGY_CHANNELS_MAX, &options->channels);
            break;
        case OPT_NETNS:
            options->netns = true;
            break;
        case OPT_IP:
            options->ip = true;
            break;
        case OPT_NO_ETHERNET:
            options->ethernet = false;
            break;
        case OPT_NO_DIRECT:
            options->direct = false;
            break;
        case OPT_LIKE:
            code = take_class(argv[0], "--like", optarg, options);
            break;
        case OPT_WINDOW:
            if (via_cli_number(optarg, 1, WINDOW_MIB_MAX, &options->window_mib) != 0) {
                code = via_cli_usage(argv[0], "--window: '%s': a number from 1 to %u, in MiB",
                                     optarg, WINDOW_MIB_MAX);
            }
            break;
        case OPT_DMA_BYTES:
            code = take_number(argv[0], "dma-bytes", 0, DMA_BYTES_MAX, &options->dma_bytes);
            break;
        case OPT_GIVE_UP_MS:
            code = take_number(argv[0], "give-up-ms", 0, LIMIT_MS_MAX, &options->give_up_ms);
            break;
        case OPT_WAIT_MS:
            code = take_number(argv[0], "wait-ms", 0, LIMIT_MS_MAX, &options->wait_ms);
            break;
        case OPT_SPIN_US:
            code = take_number(argv[0], "spin-us", 0, SPIN_US_MAX, &options->spin_us);
            break;
        case OPT_KEY:
            options->key = optarg;
            break;
        case OPT_ATTACH:
            options->attach = optarg;
            code = check_rights(argv[0], "attach");
            break;
        case OPT_ADMIN:
            options->admin = optarg;
            code = check_rights(argv[0], "admin");
            break;
        case OPT_QUOTA:
            options->quota = optarg;
            code = check_quota(argv[0]);
            break;
        case OPT_WITH:
            code = take_companion(argv[0], "--with", optarg, options);
            break;
        default:
            return via_cli_take_help(argv[0], opt, help);
        }
    }
    bool shaped = options->shape >= 0 || options->torus != NULL;
    if (code == VIA_CLI_OK && optind < argc && !shaped) {
        options->file = argv[optind++];
    }
    if (code == VIA_CLI_OK && optind < argc) {
        code = via_cli_usage(argv[0], "'%s': one argument too many", argv[optind]);
    }
    if (code == VIA_CLI_OK && !shaped && options->file == NULL) {
        code = via_cli_usage(argv[0], "which topology? --ring N, --chain N, --star N, --mesh N, "
                                      "--torus AxB[xC] or a FILE");
    }
    if (code == VIA_CLI_OK && options->ip && !options->netns) {
        code =
            via_cli_usage(argv[0], "--ip: only with --netns: in one namespace the kernel carries "
                                   "packets from one address to another by itself");
    }
    if (code == VIA_CLI_OK && !options->ethernet && !options->ip) {
        code = via_cli_usage(argv[0], "--no-ethernet: only with --ip");
    }
    bool windowed = options->like != NULL && strcmp(options->like, "network") != 0;
    if (code == VIA_CLI_OK && options->window_mib != 0 && !windowed) {
        code = via_cli_usage(argv[0], "--window: only with --like pex or ivshmem");
    }
    return code == VIA_CLI_OK ? -1 : code;
}

static int make_topology(const struct options *options, struct via_fabric *fabric,
                         struct via_error *err)
{
    int rc;
    if (options->file != NULL) {
        rc = via_topology_load(options->file, &fabric->topology, err);
    } else if (options->torus != NULL) {
        rc = via_topology_make_torus(options->torus, &fabric->topology, err);
        if (rc != 0) {
            via_error_prefix(err, "--torus %s: ", options->torus);
        }
    } else {
        static const char *const words[] = {
            [VIA_TOPOLOGY_RING] = "ring",
            [VIA_TOPOLOGY_CHAIN] = "chain",
            [VIA_TOPOLOGY_STAR] = "star",
            [VIA_TOPOLOGY_MESH] = "mesh",
        };
        rc = via_topology_make((enum via_topology_shape)options->shape, options->count,
                               &fabric->topology, err);
        if (rc != 0) {
            via_error_prefix(err, "--%s %u: ", words[options->shape], options->count);
        }
    }
    if (rc == 0 && options->channels != 0) {
        fabric->topology.channels_count = options->channels;
    }
    return rc;
}

/* --- the run directory ----------------------------------------------------------------------- */

/* Checks, before anything is made, that the longest name of a socket fits. */
static int check_rundir(const struct via_fabric *fabric, struct via_error *err)
{
    struct via_rundir_path longest;
    int rc = via_rundir_link_path(fabric->rundir.text, VIA_TOPOLOGY_HOST_MAX - 1,
                                  VIA_TOPOLOGY_HOST_MAX, VIA_TOPOLOGY_PORTS_MAX - 1, &longest, err);
    return rc != 0 ? via_error_prefix(err, "run directory: ") : 0;
}

/* Makes and locks the run directory. A concurrent `down` may remove it in between. */
static int enter_rundir(struct via_fabric *fabric, struct via_error *err)
{
    int rc = check_rundir(fabric, err);
    bool again = rc == 0;
    for (unsigned i = 0; i < 5 && again; i++) {
        rc = via_rundir_make(fabric->rundir.text, fabric->attach != NULL || fabric->admin != NULL,
                             err);
        if (rc == 0) {
            rc = via_fabric_lock(fabric, LOCK_MS, err);
        }
        again = rc == -ENOENT;
    }
    return rc;
}

static unsigned count_alive(const struct via_fabric *fabric)
{
    unsigned count = 0;
    for (unsigned i = 0; i < fabric->topology.hosts_count; i++) {
        count += via_process_is_alive(&fabric->daemons[i]) ? 1 : 0;
    }
    return count;
}

/* Refuses a fabric that runs, and cleans up after one that crashed. */
static int clear_way(const struct via_fabric *fabric, const char *name, struct via_error *err)
{
    static struct via_fabric old;
    static struct via_fabric_stray stray[VIA_TOPOLOGY_HOST_MAX];
    old = *fabric;
    int rc = via_fabric_load(&old, err);
    if (rc == -EBUSY) {
        return rc;
    }
    unsigned alive = rc == 0 ? count_alive(&old) : 0;
    unsigned strays = via_fabric_strays(&old, stray, VIA_ARRAY_COUNT(stray));
    if (alive + strays > 0) {
        return via_error_set(err, -EEXIST,
                             "fabric '%s': it is up already in %s (%u of %u hosts run); 'viaduct "
                             "down' first, or another --fabric NAME",
                             fabric->name, fabric->rundir.text, alive + strays,
                             via_max(old.topology.hosts_count, alive + strays));
    }
    unsigned files = via_fabric_count_files(fabric);
    int devices = via_ip_hosts_end(fabric, err);
    if (devices < 0) {
        return devices;
    }
    int spaces = rc == 0 && old.netns && geteuid() == 0 ? via_netns_remove(fabric, err) : 0;
    if (spaces < 0) {
        return spaces;
    }
    if (files > 0) {
        fprintf(stderr,
                "%s: fabric '%s': cleaned up after a crash: %u dead host%s, %u file%s, %d "
                "namespace%s\n",
                name, fabric->name, old.topology.hosts_count,
                old.topology.hosts_count == 1 ? "" : "s", files, files == 1 ? "" : "s", spaces,
                spaces == 1 ? "" : "s");
        return via_fabric_clean(fabric, err);
    }
    return 0;
}

/* --- up -------------------------------------------------------------------------------------- */

static void interrupt(int number)
{
    (void)number;
    via_daemon_interrupted = 1;
}

static void catch_signals(void)
{
    static const int signals[] = {SIGHUP, SIGINT, SIGTERM};
    struct sigaction action = {.sa_handler = interrupt};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(signals); i++) {
        sigaction(signals[i], &action, NULL);
    }
    /* If the reader of standard output ends, the fabric must not stay half started. */
    signal(SIGPIPE, SIG_IGN);
}

/* Makes everything that take_down() removes. */
static int bring_up(struct via_fabric *fabric, unsigned *ret_host, struct via_error *err)
{
    struct via_find_path program;
    uint64_t patience_ns = via_max(READY_NS, fabric->topology.hosts_count * READY_NS_PER_HOST);
    uint64_t deadline_ns = via_process_now_ns() + patience_ns;
    int rc = via_find_daemon(&program, err);
    if (rc == 0) {
        rc = via_fabric_save(fabric, err);
    }
    if (rc == 0 && fabric->netns) {
        rc = via_netns_make(fabric, err);
        /* The existing namespaces belong to another fabric, so they stay. */
        fabric->netns = rc != -EEXIST;
    }
    if (rc == 0) {
        rc = via_daemon_start_all(fabric, program.text, deadline_ns, ret_host, err);
    }
    if (rc == 0) {
        rc = via_fabric_save(fabric, err);
    }
    if (rc == 0) {
        rc = via_daemon_wait_links(fabric, deadline_ns, ret_host, err);
    }
    if (rc == 0 && fabric->ip) {
        rc = via_ip_hosts_start(fabric, deadline_ns, ret_host, err);
    }
    return rc;
}

static void take_down(struct via_fabric *fabric, const char *name)
{
    struct via_daemon_ended ended;
    struct via_error err = {0};
    if (via_ip_hosts_end(fabric, &err) < 0 || via_daemon_end_all(fabric, &ended, &err) != 0 ||
        (fabric->netns && geteuid() == 0 && via_netns_remove(fabric, &err) < 0) ||
        via_fabric_remove(fabric, &err) != 0) {
        via_cli_fail(name, &err);
    }
}

/* In ascending order. A neighbour with two cables appears twice. */
static void print_neighbours(const struct via_topology *topology, unsigned host)
{
    unsigned shown = 0;
    for (unsigned peer = VIA_TOPOLOGY_HOST_MIN; peer <= VIA_TOPOLOGY_HOST_MAX; peer++) {
        for (unsigned i = 0; i < topology->links_count; i++) {
            const struct via_topology_link *link = &topology->links[i];
            if (link->a == via_min(host, peer) && link->b == via_max(host, peer)) {
                printf("%s%u", shown++ == 0 ? "  linked with " : ", ", peer);
            }
        }
    }
}

static void print_summary(const struct via_fabric *fabric)
{
    const struct via_topology *topology = &fabric->topology;
    printf("fabric '%s' is up: %u host%s, %u link%s\n", fabric->name, topology->hosts_count,
           topology->hosts_count == 1 ? "" : "s", topology->links_count,
           topology->links_count == 1 ? "" : "s");
    for (unsigned i = 0; i < topology->hosts_count; i++) {
        unsigned host = topology->hosts[i];
        printf("  host %-3u  %-12s", host, via_fabric_address(fabric, host).text);
        print_neighbours(topology, host);
        printf("\n");
    }
}

static int up(struct via_fabric *fabric, const char *name)
{
    struct via_error err = {0};
    unsigned host = 0;
    int rc = enter_rundir(fabric, &err);
    if (rc == 0) {
        rc = clear_way(fabric, name, &err);
    }
    if (rc != 0) {
        via_fabric_unlock(fabric);
        return via_cli_fail(name, &err);
    }
    rc = bring_up(fabric, &host, &err);
    if (rc != 0) {
        via_cli_fail(name, &err);
        if (host != 0) {
            via_daemon_print_log(fabric, host, stderr);
            via_ip_hosts_print_log(fabric, host, stderr);
        }
        take_down(fabric, name);
    } else {
        print_summary(fabric);
    }
    via_fabric_unlock(fabric);
    return rc == 0 ? VIA_CLI_OK : VIA_CLI_FAILED;
}

int via_cli_up(int argc, char **argv)
{
    static struct via_fabric fabric;
    struct options options = {
        .shape = -1,
        .ethernet = true,
        .direct = true,
        .give_up_ms = VIA_FABRIC_GIVE_UP_MS,
        .wait_ms = VIA_FABRIC_WAIT_MS,
        .spin_us = VIA_FABRIC_SPIN_US,
    };
    struct via_error err = {0};
    int code = take_environment(argv[0], &options);
    if (code != VIA_CLI_OK) {
        return code;
    }
    code = take_options(argc, argv, &options);
    if (code >= 0) {
        return code;
    }
    int rc = via_fabric_init(&fabric, options.fabric, &err);
    if (rc == 0) {
        rc = make_topology(&options, &fabric, &err);
    }
    if (rc != 0) {
        return via_cli_fail(argv[0], &err);
    }
    fabric.netns = options.netns;
    fabric.ip = options.ip;
    fabric.ethernet = options.ethernet;
    fabric.direct = options.direct;
    fabric.window_mib = options.window_mib;
    if (options.like != NULL) {
        snprintf(fabric.like, sizeof(fabric.like), "%s", options.like);
    }
    fabric.dma_bytes = options.dma_bytes;
    fabric.give_up_ms = options.give_up_ms;
    fabric.wait_ms = options.wait_ms;
    fabric.spin_us = options.spin_us;
    fabric.key = options.key;
    fabric.attach = options.attach;
    fabric.admin = options.admin;
    fabric.quota = options.quota;
    fabric.with = options.with;
    catch_signals();
    return up(&fabric, argv[0]);
}
