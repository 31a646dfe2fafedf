/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* viaduct sim: runs the simulator, a separate program, with the remaining words. viaduct plan: runs
 * its command of that name. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/find.h"

/* name: argv[0] of the command, for errors. */
static int run_simulator(const char *name, char **argv)
{
    struct via_find_path path;
    struct via_error err;
    if (via_find_simulator(&path, &err) != 0) {
        return via_cli_fail(name, &err);
    }
    argv[0] = path.text;
    execv(path.text, argv);
    via_error_set(&err, -errno, "%s: exec: %s", path.text, strerror(errno));
    return via_cli_fail(name, &err);
}

int via_cli_sim(int argc, char **argv)
{
    (void)argc;
    return run_simulator(argv[0], argv);
}

int via_cli_plan(int argc, char **argv)
{
    char **words = calloc((size_t)argc + 2, sizeof(*words));
    struct via_error err;
    char plan[] = "plan";
    if (words == NULL) {
        via_error_set(&err, -ENOMEM, "arguments: allocate: %s", strerror(ENOMEM));
        return via_cli_fail(argv[0], &err);
    }
    words[1] = plan;
    memcpy(&words[2], &argv[1], (size_t)(argc - 1) * sizeof(*words));
    int rc = run_simulator(argv[0], words);
    free(words);
    return rc;
}
