/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Commands that scripts of share/viaduct implement. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/find.h"

/* The script finds this command in VIADUCT_COMMAND. */
static int export_own_path(struct via_error *err)
{
    char own[PATH_MAX];
    ssize_t bytes = readlink("/proc/self/exe", own, sizeof(own) - 1);
    own[bytes > 0 ? bytes : 0] = '\0';
    return bytes > 0 && setenv("VIADUCT_COMMAND", own, 1) == 0
               ? 0
               : via_error_set(err, -errno, "viaduct: find: %s", strerror(errno));
}

int via_cli_script(const char *name, const char *file, int argc, char **argv)
{
    struct via_find_path script;
    struct via_error err;
    char **words = calloc((size_t)argc + 3, sizeof(*words));
    if (words == NULL) {
        via_error_set(&err, -ENOMEM, "arguments: allocate: %s", strerror(ENOMEM));
        return via_cli_fail(name, &err);
    }
    if (via_find_shared(file, &script, &err) == 0 && export_own_path(&err) == 0) {
        words[0] = (char *)"python3";
        words[1] = script.text;
        memcpy(&words[2], argv, (size_t)argc * sizeof(*words));
        execvp(words[0], words);
        via_error_set(&err, -errno, "python3: run %s: %s", script.text, strerror(errno));
    }
    free(words);
    return via_cli_fail(name, &err);
}

int via_cli_report(int argc, char **argv)
{
    return via_cli_script(argv[0], "report", argc - 1, argv + 1);
}
