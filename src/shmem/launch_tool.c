/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The profiling tool: preloaded in front of the library if a variable requests a profile or a
 * timeline. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/types.h"
#include "shmem/launch.h"

#define TOOL "libviaduct-shmem-profile.so"

static bool is_set(const char *name)
{
    const char *value = getenv(name);

    return value && *value != '\0';
}

/* Looks for the tool beside this program and where libraries are installed. */
static bool find_tool(char path[PATH_MAX])
{
    static const char *const between[] = {"", VIADUCT_BINDIR_TO_LIBDIR "/"};
    char own[PATH_MAX];
    ssize_t bytes = readlink("/proc/self/exe", own, sizeof(own) - 1);

    if (bytes <= 0)
        return false;
    own[bytes] = '\0';
    char *slash = strrchr(own, '/');
    if (!slash)
        return false;
    slash[1] = '\0';
    for (size_t i = 0; i < VIA_ARRAY_COUNT(between); i++) {
        int length = snprintf(path, PATH_MAX, "%s%s%s", own, between[i], TOOL);
        if (length < PATH_MAX && access(path, R_OK) == 0)
            return true;
    }
    return false;
}

int via_launch_find_tool(char **ret_preload, struct via_error *err)
{
    char path[PATH_MAX];
    const char *others = getenv("LD_PRELOAD");

    *ret_preload = NULL;
    if (!is_set("VIADUCT_SHMEM_PROFILE") && !is_set("VIADUCT_SHMEM_TIMELINE"))
        return 0;
    if (!find_tool(path))
        return via_error_set(err, -EINVAL,
                             "VIADUCT_SHMEM_PROFILE, VIADUCT_SHMEM_TIMELINE: %s is neither beside "
                             "oshrun nor in %s",
                             TOOL, VIADUCT_BINDIR_TO_LIBDIR);
    /* ld.so(8) accepts both as separators, and knows no quoting. */
    if (strpbrk(path, ": "))
        return via_error_set(err, -EINVAL, "%s: a path with a space or colon can not be preloaded",
                             path);
    if (asprintf(ret_preload, "%s%s%s", path, others ? ":" : "", others ? others : "") < 0)
        return via_error_set(err, -ENOMEM, "%s: out of memory", path);
    return 0;
}
