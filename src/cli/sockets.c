/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/preload.h"
#include "cli/sockets.h"
#include "host/control_rules.h"

static const char help[] =
    "usage: viaduct sockets [--json|--prometheus] [--pid PID]\n"
    "       viaduct sockets [RULE...] [--] PROGRAM [ARGUMENT...]\n"
    "\n"
    "Without a program: lists the TCP connections of this user's processes (root: of all), "
    "whether\n"
    "each uses pipes, and if not, why. With one: runs it with the sockets' library in front of\n"
    "the C library; the exit code is the program's; 127 if it is not found, 126 if it can not be\n"
    "run.\n"
    "\n"
    "  --json            the list for programs\n"
    "  --prometheus      the sums of each process, as Prometheus reads them\n"
    "  --pid PID         of this process only\n"
    "  --ports LIST      server ports to accelerate, such as 80,6000-6010 or !22\n"
    "  --networks LIST   networks of the other end, such as 127.0.0.0/8,::1\n"
    "  --programs LIST   names of programs, such as nginx,redis-*,!ssh\n"
    "  --after N         calls that move data before a connection gets pipes (default 4)\n"
    "  --config FILE     rules of a file (default $VIADUCT_SOCKETS_CONFIG or\n"
    "                    " VIA_RULES_FILE ")\n"
    "  --stats FILE      each process appends a line of JSON when it ends\n"
    "  -h, --help        this text\n";

static const struct option long_options[] = {
    {"prometheus", no_argument, NULL, 'm'},
    {"json", no_argument, NULL, 'j'},
    {"pid", required_argument, NULL, 'i'},
    {"ports", required_argument, NULL, 'p'},
    {"networks", required_argument, NULL, 'n'},
    {"programs", required_argument, NULL, 'g'},
    {"after", required_argument, NULL, 'a'},
    {"config", required_argument, NULL, 'c'},
    {"stats", required_argument, NULL, 's'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* Options that are passed to the library in environment variables. */
static const struct {
    int option;
    const char *name;
    const char *variable;
    const char *key; /* key of the rules; NULL: none */
} variables[] = {
    {'p', "--ports", "VIADUCT_SOCKETS_PORTS", "ports"},
    {'n', "--networks", "VIADUCT_SOCKETS_NETWORKS", "networks"},
    {'g', "--programs", "VIADUCT_SOCKETS_PROGRAMS", "programs"},
    {'a', "--after", "VIADUCT_SOCKETS_AFTER", "after"},
    {'c', "--config", "VIADUCT_SOCKETS_CONFIG", NULL},
    {'s', "--stats", "VIADUCT_SOCKETS_STATS", NULL},
};

struct options {
    bool json;
    bool prometheus;
    unsigned pid;
    const char *list_only; /* the last given option that only the list supports; NULL: none */
    const char *run_only;
};

#define PID_MAX 4194304u /* the limit of the kernel */

/* -1: the option was taken; otherwise the exit code. */
static int take_variable(const char *name, int opt, struct options *options)
{
    for (size_t i = 0; i < VIA_ARRAY_COUNT(variables); i++) {
        struct via_rules rules;
        const char *why = "";
        if (variables[i].option != opt) {
            continue;
        }
        options->run_only = variables[i].name;
        if (variables[i].key != NULL &&
            via_rules_set(&rules, variables[i].key, optarg, &why) != 0) {
            return via_cli_usage(name, "%s: '%s': %s", variables[i].name, optarg, why);
        }
        if (setenv(variables[i].variable, optarg, 1) != 0) {
            struct via_error err;
            via_error_set(&err, -errno, "%s: set: %s", variables[i].variable, strerror(errno));
            return via_cli_fail(name, &err);
        }
        return -1;
    }
    return via_cli_usage(name, NULL);
}

static int take_options(int argc, char **argv, struct options *options)
{
    int opt, code = -1;
    /* "+": options after PROGRAM belong to the program. */
    while (code < 0 && (opt = getopt_long(argc, argv, "+h", long_options, NULL)) != -1) {
        switch (opt) {
        case 'j':
            options->json = true;
            options->list_only = "--json";
            break;
        case 'm':
            options->prometheus = true;
            options->list_only = "--prometheus";
            break;
        case 'i':
            options->list_only = "--pid";
            if (via_cli_number(optarg, 1, PID_MAX, &options->pid) != 0) {
                return via_cli_usage(argv[0], "--pid: '%s': not the number of a process", optarg);
            }
            break;
        case 'h':
            fputs(help, stdout);
            return VIA_CLI_OK;
        default:
            code = take_variable(argv[0], opt, options);
        }
    }
    return code;
}

static int list(const struct options *options, struct via_error *err)
{
    struct via_sockets_list found = {.count = 0};
    int rc = via_sockets_scan((pid_t)options->pid, &found, err);
    if (rc == 0 && options->json) {
        json_t *json = via_sockets_json(&found);
        if (json == NULL || json_dumpf(json, stdout, JSON_INDENT(1)) != 0) {
            rc = via_error_set(err, -ENOMEM, "sockets: write as JSON: %s", strerror(ENOMEM));
        }
        putchar('\n');
        json_decref(json);
    } else if (rc == 0 && options->prometheus) {
        via_sockets_print_metrics(&found);
    } else if (rc == 0) {
        via_sockets_print(&found);
    }
    via_sockets_free(&found);
    return rc;
}

/* Invalid rules, for which the library would only switch itself off, are an error here. */
static int check_rules(const char *path, struct via_error *err)
{
    struct via_rules rules;
    const char *slash = strrchr(path, '/');
    return via_rules_load(&rules, slash != NULL ? slash + 1 : path, err);
}

int via_cli_sockets(int argc, char **argv)
{
    struct options options = {.json = false};
    struct via_error err = {0};
    int code = take_options(argc, argv, &options);
    if (code >= 0) {
        return code;
    }
    if (options.json && options.prometheus) {
        return via_cli_usage(argv[0], "--prometheus: not with --json");
    }
    bool run = optind < argc;
    if (run && options.list_only != NULL) {
        return via_cli_usage(argv[0], "%s: is for the list, not for running a program",
                             options.list_only);
    }
    if (!run && options.run_only != NULL) {
        return via_cli_usage(argv[0], "%s: for which program?", options.run_only);
    }
    if (!run) {
        return list(&options, &err) == 0 ? VIA_CLI_OK : via_cli_fail(argv[0], &err);
    }
    int rc = check_rules(argv[optind], &err);
    if (rc == 0) {
        rc = via_preload_set("", &err);
    }
    return rc == 0 ? via_preload_exec(argv[0], argv + optind) : via_cli_fail(argv[0], &err);
}
