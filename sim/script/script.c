/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Commands that are scripts: sim-parts makes parts from measurements on a machine, sim-plan shows
 * plans. */
#include "sim/script/script.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sim/memory.h"
#include "sim/paper/share.h"

int sim_script_main(int argc, char **argv)
{
    char script[PATH_MAX];
    char name[32];
    char exe[PATH_MAX];
    char option[] = "--bin";
    char **words = sim_alloc(((size_t)argc + 3) * sizeof(*words));
    ssize_t bytes = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    exe[bytes > 0 ? bytes : 0] = '\0';
    snprintf(name, sizeof(name), "sim-%s", argv[0]);
    sim_share_path(script, sizeof(script), name);
    words[0] = script;
    words[1] = option;
    words[2] = dirname(exe);
    memcpy(&words[3], &argv[1], (size_t)(argc - 1) * sizeof(*words));
    execv(script, words);
    fprintf(stderr, "viaduct-sim: %s: %s: start: %s; it needs python3\n", argv[0], script,
            strerror(errno));
    return 2;
}
