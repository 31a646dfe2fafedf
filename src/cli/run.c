/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/find.h"
#include "cli/netns.h"
#include "cli/preload.h"
#include "cli/remote.h"
#include "cli/request.h"

#define ANSWER_MS 5000u

static const char help[] =
    "usage: viaduct run [OPTION...] --host H [--] PROGRAM [ARGUMENT...]\n"
    "       viaduct run [OPTION...] H -- PROGRAM [ARGUMENT...]\n"
    "\n"
    "Runs a program on a host of the fabric: its sockets use Viaduct where they can, and\n"
    "libviaduct and OpenSHMEM programs attach to that host. On another machine an agent starts\n"
    "it: ssh. The exit code is the program's; 127 if it is not found, 126 if it can not be run.\n"
    "\n"
    "  --host H         id of the host, or its name where hosts have names\n"
    "  --agent COMMAND  runs a command on another machine: words, to which a host and the\n"
    "                   command are added (default $VIADUCT_AGENT or 'ssh')\n"
    "  --fabric NAME    name of the fabric (default $VIADUCT_FABRIC or "
    "'default')\n" VIA_CLI_RUNDIR_HELP
    "  --no-sockets     leave the program's sockets to the kernel\n"
    "  -h, --help       this text\n";

#define OPT_REMOTE 257

static const struct option long_options[] = {{"host", required_argument, NULL, 'H'},
                                             {"agent", required_argument, NULL, 'a'},
                                             {"no-sockets", no_argument, NULL, 's'},
                                             {"remote", no_argument, NULL, OPT_REMOTE},
                                             VIA_CLI_FABRIC_OPTIONS};

struct options {
    const char *fabric;
    const char *word; /* the host as the user wrote it */
    const char *agent;
    unsigned host; /* the id of that host */
    bool sockets;
    bool remote; /* called by an agent: the host must be on this machine */
};

static int take_host(int argc, char **argv, struct options *options)
{
    /* The form "H -- PROGRAM". */
    if (options->word == NULL && optind + 1 < argc && strcmp(argv[optind + 1], "--") == 0) {
        options->word = argv[optind];
        optind += 2;
    }
    if (options->word == NULL) {
        return via_cli_usage(argv[0], "on which host? --host H");
    }
    if (!via_cli_is_host(options->word)) {
        return via_cli_usage(argv[0], "'%s': neither a host id nor a name", options->word);
    }
    return optind < argc ? -1 : via_cli_usage(argv[0], "which program?");
}

/* -1: continue; otherwise the exit code. */
static int take_options(int argc, char **argv, struct options *options)
{
    int opt, code;
    /* "+": options after PROGRAM belong to the program. */
    while ((opt = getopt_long(argc, argv, "+h", long_options, NULL)) != -1) {
        switch (opt) {
        case 'H':
            options->word = optarg;
            break;
        case 'a':
            options->agent = optarg;
            break;
        case 's':
            options->sockets = false;
            break;
        case OPT_REMOTE:
            options->remote = true;
            break;
        default:
            code = via_cli_take_fabric(argv[0], opt, help, &options->fabric);
            if (code >= 0) {
                return code;
            }
        }
    }
    return take_host(argc, argv, options);
}

static int check_host(const struct via_fabric *fabric, unsigned host, struct via_error *err)
{
    json_t *answer = NULL;
    int rc = via_fabric_request(fabric, host, "status", ANSWER_MS, &answer, err);
    json_decref(answer);
    if ((rc == -ENOENT || rc == -ECONNREFUSED) && fabric->local < 0) {
        return via_error_set(err, rc,
                             "host %u: attach: it is down: its daemon (pid %d) has died; 'viaduct "
                             "status --fabric %s' shows the hosts that are up",
                             host, (int)fabric->daemons[via_fabric_find(fabric, host)].pid,
                             fabric->name);
    }
    return rc;
}

static int set_environment(const struct via_fabric *fabric, const struct options *options,
                           struct via_error *err)
{
    char host[8];
    snprintf(host, sizeof(host), "%u", options->host);
    /* The directory identifies a machine's daemon; its fabric may have no name. */
    bool named = fabric->local < 0;
    if (setenv("VIADUCT_RUNDIR", fabric->rundir.text, 1) != 0 ||
        (named ? setenv("VIADUCT_FABRIC", fabric->name, 1) : unsetenv("VIADUCT_FABRIC")) != 0 ||
        setenv("VIADUCT_HOST", host, 1) != 0) {
        return via_error_set(err, -errno, "environment: set: %s", strerror(errno));
    }
    return options->sockets ? via_preload_set("; --no-sockets runs the program without it", err)
                            : 0;
}

/* The host of the program is on this machine. 0: the program can be started. */
static int prepare(const struct via_fabric *fabric, const struct options *options,
                   struct via_error *err)
{
    int rc = check_host(fabric, options->host, err);
    if (rc == 0 && fabric->netns) {
        rc = via_netns_enter(fabric, options->host, err);
    }
    return rc == 0 ? set_environment(fabric, options, err) : rc;
}

static int check_here(const struct via_fabric *fabric, const struct options *options,
                      struct via_error *err)
{
    if (!options->remote || fabric->local == (int)options->host) {
        return 0;
    }
    return via_error_set(
        err, -EXDEV, "host %u: run: the agent has led to another machine: its daemon is host %d",
        options->host, fabric->local);
}

int via_cli_run(int argc, char **argv)
{
    static struct via_fabric fabric;
    struct options options = {.sockets = true};
    struct via_error err = {0};
    int code = take_options(argc, argv, &options);
    if (code >= 0) {
        return code;
    }
    int rc = via_fabric_open(&fabric, options.fabric, &err);
    if (rc == 0) {
        rc = via_fabric_resolve(&fabric, options.word, &options.host, &err);
    }
    if (rc == 0) {
        rc = check_here(&fabric, &options, &err);
    }
    if (rc != 0) {
        return via_cli_fail(argv[0], &err);
    }
    if (fabric.local >= 0 && options.host != (unsigned)fabric.local) {
        return via_remote_run(argv[0], &fabric, options.host, options.agent, options.sockets,
                              argv + optind);
    }
    rc = prepare(&fabric, &options, &err);
    if (rc != 0) {
        return via_cli_fail(argv[0], &err);
    }
    return options.remote ? via_remote_end(argv[0], argv + optind)
                          : via_preload_exec(argv[0], argv + optind);
}
