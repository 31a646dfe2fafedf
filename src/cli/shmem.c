/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* `viaduct shmem trace`: an option of the launcher, which can inspect jobs. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/find.h"

static const char help[] =
    "usage: viaduct shmem trace [--job JOB] [--json]\n"
    "\n"
    "Shows which PE waits for which in the OpenSHMEM jobs of this machine: the call each PE\n"
    "waits in, since when, from where it was called, and for which word or PE.\n"
    "\n"
    "  --job JOB        the job of this id (or its beginning), or of the launcher with this pid\n"
    "  --json           for Perfetto and chrome://tracing: an array of a span for each wait, a "
    "job\n"
    "  -h, --help       this text\n";

static int trace(char **options)
{
    struct via_find_path oshrun;
    struct via_error err = {0};
    char *argv[8] = {(char *)"oshrun", (char *)"--trace"};

    for (int i = 0; i < 4 && options[i] != NULL; i++) {
        argv[2 + i] = options[i];
    }
    if (via_find_oshrun(&oshrun, &err) == 0) {
        execv(oshrun.text, argv);
        via_error_set(&err, -errno, "%s: run: %s", oshrun.text, strerror(errno));
    }
    return via_cli_fail("viaduct shmem", &err);
}

int via_cli_shmem(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(help, stdout);
            return VIA_CLI_OK;
        }
    }
    if (argc < 2) {
        return via_cli_usage(argv[0], "a sub-command is missing; 'trace' is the only one");
    }
    if (strcmp(argv[1], "trace") != 0) {
        return via_cli_usage(argv[0], "'%s': unknown sub-command; 'trace' is the only one",
                             argv[1]);
    }
    for (int i = 2; i < argc; i++) {
        bool job = strcmp(argv[i], "--job") == 0 && i + 1 < argc;
        if ((!job && strcmp(argv[i], "--json") != 0) || argc > 5) {
            return via_cli_usage(argv[0], "'%s': unknown option, or its argument is missing",
                                 argv[argc - 1]);
        }
        i += job;
    }
    return trace(argv + 2);
}
