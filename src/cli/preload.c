/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "cli/preload.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/find.h"

/* Chooses the library to preload for the one at `library`: the stub beside it, which is harmless
 * for programs that can not use the library; without a stub, the library itself. */
static void choose(struct via_find_path *library)
{
    static const char stub[] = VIA_PRELOAD_STUB_NAME;
    _Static_assert(sizeof(VIA_PRELOAD_STUB_NAME) == sizeof(VIA_PRELOAD_NAME), "written in place");
    struct via_find_path path = *library;
    char *slash = strrchr(path.text, '/');
    if (slash != NULL && strlen(slash + 1) + 1 == sizeof(stub)) {
        memcpy(slash + 1, stub, sizeof(stub));
        if (access(path.text, R_OK) == 0) {
            *library = path;
        }
    }
}

int via_preload_set(const char *instead, struct via_error *err)
{
    static char value[2 * PATH_MAX];
    struct via_find_path path;
    const char *old = getenv("LD_PRELOAD");
    int rc = via_find_preload(&path, err);
    if (rc != 0) {
        via_error_prefix(err, "sockets: ");
        return rc;
    }
    choose(&path);
    /* ld.so(8) separates names by both, and has no quoting. */
    if (strpbrk(path.text, ": ") != NULL) {
        return via_error_set(err, -EINVAL,
                             "sockets: preload %s: a path with a space or colon can not be "
                             "preloaded%s",
                             path.text, instead);
    }
    if (old != NULL && strstr(old, path.text) != NULL) {
        return 0;
    }
    bool more = old != NULL && old[0] != '\0';
    snprintf(value, sizeof(value), "%s%s%s", path.text, more ? ":" : "", more ? old : "");
    return setenv("LD_PRELOAD", value, 1) == 0
               ? 0
               : via_error_set(err, -errno, "sockets: set LD_PRELOAD: %s", strerror(errno));
}

int via_preload_exec(const char *name, char **argv)
{
    struct via_error err = {0};
    execvp(argv[0], argv);
    int code = errno == ENOENT ? VIA_CLI_NOT_FOUND : VIA_CLI_CAN_NOT_RUN;
    via_error_set(&err, -errno, "%s: run: %s", argv[0], strerror(errno));
    via_cli_fail(name, &err);
    return code;
}
