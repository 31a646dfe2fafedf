/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* viaduct sim: the simulator, a program of its own, with the words that are left. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/find.h"

int via_cli_sim(int argc, char **argv)
{
    struct via_find_path path;
    struct via_error err;
    const char *name = argv[0];
    (void)argc;
    if (via_find_simulator(&path, &err) != 0) {
        return via_cli_fail(name, &err);
    }
    argv[0] = path.text;
    execv(path.text, argv);
    via_error_set(&err, -errno, "%s: exec: %s", path.text, strerror(errno));
    return via_cli_fail(name, &err);
}
