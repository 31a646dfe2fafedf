/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* reload: makes the daemon of this machine read its configuration file again, and prints the
 * result. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/fabric.h"

/* Closing links may take two seconds, and the file may be on a slow disk. */
#define ANSWER_MS 20000

static const char help[] =
    "usage: viaduct reload [--rundir DIR]\n"
    "\n"
    "The daemon of this machine reads its configuration file again. Prints the links that were\n"
    "added and removed, and settings that need a restart of the daemon; a file with an error\n"
    "changes nothing.\n"
    "\n"
    "  --rundir DIR     run directory of the daemon (default $VIADUCT_RUNDIR or /run/viaduct)\n"
    "  -h, --help       this text\n";

static const struct option long_options[] = {
    {"rundir", required_argument, NULL, 'r'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static int reload(struct via_error *err)
{
    static struct via_fabric fabric;
    int rc = via_fabric_open(&fabric, NULL, err);
    if (rc == 0 && fabric.local < 0) {
        rc = via_error_set(err, -ENOENT,
                           "reload: %s: its hosts have no configuration file: 'viaduct up' has "
                           "made them",
                           fabric.rundir.text);
    }
    if (rc != 0) {
        return rc;
    }
    json_t *answer = NULL;
    json_t *request = json_pack("{s:s}", "cmd", "reload");
    rc = via_control_call(fabric.rundir.text, (unsigned)fabric.local, request, &answer, err,
                          ANSWER_MS);
    json_decref(request);
    const json_t *report = json_object_get(answer, "report");
    for (size_t i = 0; i < json_array_size(report); i++) {
        printf("%s\n", json_string_value(json_array_get(report, i)));
    }
    json_decref(answer);
    return rc;
}

int via_cli_reload(int argc, char **argv)
{
    struct via_error err;
    int opt;
    while ((opt = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
        switch (opt) {
        case 'r':
            setenv("VIADUCT_RUNDIR", optarg, 1);
            break;
        default:
            return via_cli_take_help(argv[0], opt, help);
        }
    }
    if (optind < argc) {
        return via_cli_usage(argv[0], "'%s': one argument too many", argv[optind]);
    }
    return reload(&err) == 0 ? VIA_CLI_OK : via_cli_fail(argv[0], &err);
}
