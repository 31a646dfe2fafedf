/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* viaduct perf shmem: a script, which runs OpenSHMEM programs on rings of emulated hosts that it
 * makes. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/perf.h"

#define SCRIPT "viaduct-perf-shmem"

/* Finds the script beside this program, or in its ../libexec/viaduct. */
static bool find_script(char path[PATH_MAX])
{
    static const char *const between[] = {"", "../libexec/viaduct/"};
    char own[PATH_MAX];
    ssize_t bytes = readlink("/proc/self/exe", own, sizeof(own) - 1);
    own[bytes > 0 ? bytes : 0] = '\0';
    char *slash = strrchr(own, '/');
    for (size_t i = 0; i < VIA_ARRAY_COUNT(between) && slash != NULL; i++) {
        *slash = '\0';
        int written = snprintf(path, PATH_MAX, "%s/%s" SCRIPT, own, between[i]);
        if (written > 0 && written < PATH_MAX && access(path, X_OK) == 0) {
            return true;
        }
    }
    return false;
}

int via_perf_shmem(const char *name, char **argv)
{
    struct via_error err;
    char path[PATH_MAX];
    via_error_clear(&err);
    if (!find_script(path)) {
        via_error_set(&err, -ENOENT,
                      SCRIPT ": find: neither beside this program nor in its "
                             "../libexec/viaduct");
        return via_cli_fail(name, &err);
    }
    execv(path, argv);
    via_error_set(&err, -errno, "%s: %s", path, strerror(errno));
    return via_cli_fail(name, &err);
}
