/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/ask.h"
#include "cli/cli.h"
#include "cli/find.h"
#include "cli/netns.h"
#include "cli/preload.h"

#define ANSWER_MS 5000u

static const char help[] =
    "usage: viaduct run --host H [--fabric NAME] [--no-sockets] [--] PROGRAM [ARGUMENT...]\n"
    "\n"
    "Runs a program on a host of the fabric: its sockets go by Viaduct where they can, and\n"
    "libviaduct and OpenSHMEM programs attach to that host. The exit code is the program's; 127 "
    "if\n"
    "it is not found, 126 if it can not be run.\n"
    "\n"
    "  --host H         id of the host\n"
    "  --fabric NAME    name of the fabric (default $VIADUCT_FABRIC or 'default')\n"
    "  --no-sockets     leave the program's sockets to the kernel\n"
    "  -h, --help       this text\n";

static const struct option long_options[] = {
    {"host", required_argument, NULL, 'H'},
    {"fabric", required_argument, NULL, 'f'},
    {"no-sockets", no_argument, NULL, 's'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

struct options {
    const char *fabric;
    unsigned host; /* 0 = not said */
    bool sockets;
};

/* -1 = go on, else the exit code. */
static int take_options(int argc, char **argv, struct options *options)
{
    int opt;
    /* "+": options after PROGRAM are the program's. */
    while ((opt = getopt_long(argc, argv, "+h", long_options, NULL)) != -1) {
        switch (opt) {
        case 'H':
            if (via_cli_number(optarg, VIA_TOPOLOGY_HOST_MIN, VIA_TOPOLOGY_HOST_MAX,
                               &options->host) != 0) {
                return via_cli_usage(argv[0], "--host: '%s': a host id is a number from %u to %u",
                                     optarg, VIA_TOPOLOGY_HOST_MIN, VIA_TOPOLOGY_HOST_MAX);
            }
            break;
        case 'f':
            options->fabric = optarg;
            break;
        case 's':
            options->sockets = false;
            break;
        case 'h':
            fputs(help, stdout);
            return VIA_CLI_OK;
        default:
            return via_cli_usage(argv[0], NULL);
        }
    }
    if (options->host == 0) {
        return via_cli_usage(argv[0], "on which host? --host H");
    }
    return optind < argc ? -1 : via_cli_usage(argv[0], "which program?");
}

static int check_host(const struct via_fabric *fabric, unsigned host, struct via_error *err)
{
    json_t *answer = NULL;
    int index = via_fabric_find(fabric, host);
    if (index < 0) {
        return via_error_set(err, -ENOENT, "host %u: find: fabric '%s' has no such host", host,
                             fabric->name);
    }
    int rc = via_ask(fabric, host, "status", ANSWER_MS, &answer, err);
    json_decref(answer);
    if (rc == -ENOENT || rc == -ECONNREFUSED) {
        return via_error_set(err, rc,
                             "host %u: attach: it is down: its daemon (pid %d) has died; 'viaduct "
                             "status --fabric %s' shows who is up",
                             host, (int)fabric->daemons[index].pid, fabric->name);
    }
    return rc;
}

static int set_environment(const struct via_fabric *fabric, const struct options *options,
                           struct via_error *err)
{
    char host[8];
    snprintf(host, sizeof(host), "%u", options->host);
    if (setenv("VIADUCT_RUNDIR", fabric->rundir.text, 1) != 0 ||
        setenv("VIADUCT_FABRIC", fabric->name, 1) != 0 || setenv("VIADUCT_HOST", host, 1) != 0) {
        return via_error_set(err, -errno, "environment: set: %s", strerror(errno));
    }
    return options->sockets ? via_preload_set("; --no-sockets does without", err) : 0;
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
    int rc = via_fabric_init(&fabric, options.fabric, &err);
    if (rc == 0) {
        rc = via_fabric_load(&fabric, &err);
    }
    if (rc == 0) {
        rc = check_host(&fabric, options.host, &err);
    }
    if (rc == 0 && fabric.netns) {
        rc = via_netns_enter(&fabric, options.host, &err);
    }
    if (rc == 0) {
        rc = set_environment(&fabric, &options, &err);
    }
    if (rc != 0) {
        return via_cli_fail(argv[0], &err);
    }
    return via_preload_exec(argv[0], argv + optind);
}
