/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/paper/share.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void sim_share_path(char *ret, size_t bytes, const char *name)
{
    char exe[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    exe[length > 0 ? length : 0] = '\0';
    snprintf(ret, bytes, "%s/../share/viaduct/%s", dirname(exe), name);
}

int sim_share_plot(const char *csv, const char *folder, struct via_error *err)
{
    char script[PATH_MAX + 64];
    char output[PATH_MAX];
    char input[PATH_MAX];
    char option[] = "--output";
    char *argv[] = {script, option, output, input, NULL};
    pid_t pid;
    int status;
    sim_share_path(script, sizeof(script), "plot-papers");
    snprintf(output, sizeof(output), "%s", folder);
    snprintf(input, sizeof(input), "%s", csv);
    fflush(stdout); /* the script writes there, too */
    int rc = posix_spawn(&pid, script, NULL, NULL, argv, environ);
    if (rc != 0) {
        return via_error_set(err, -rc, "%.200s: start: %s", script, strerror(rc));
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return status == 0 ? 0 : via_error_set(err, -EIO, "%.200s %.200s: failed", script, input);
}
