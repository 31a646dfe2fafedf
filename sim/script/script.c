/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Commands that are scripts: tools/sim-*. */
#include "sim/script/script.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/types.h"
#include "sim/memory.h"

/* Of the program; exe is PATH_MAX bytes. */
static char *folder_of(char *exe)
{
    ssize_t bytes = readlink("/proc/self/exe", exe, PATH_MAX - 1);
    exe[bytes > 0 ? bytes : 0] = '\0';
    return dirname(exe);
}

bool sim_script_is_one(const char *name)
{
    static const char *const names[] = {"measure",   "paper", "parts", "plan",
                                        "plan-json", "scale", "shrink"};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(names); i++) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

int sim_script_main(int argc, char **argv)
{
    char script[PATH_MAX + 64], exe[PATH_MAX];
    char option[] = "--bin";
    char **words = sim_alloc(((size_t)argc + 3) * sizeof(*words));
    words[0] = script;
    words[1] = option;
    words[2] = folder_of(exe);
    snprintf(script, sizeof(script), "%s/../share/viaduct/sim-%s", words[2], argv[0]);
    memcpy(&words[3], &argv[1], (size_t)(argc - 1) * sizeof(*words));
    execv(script, words);
    fprintf(stderr, "viaduct-sim: %s: %s: start: %s; it needs python3\n", argv[0], script,
            strerror(errno));
    return 2;
}
