/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* viaduct report: a script of share/viaduct makes the page. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/find.h"

int via_cli_report(int argc, char **argv)
{
    struct via_find_path script;
    struct via_error err;
    const char *name = argv[0];
    char **words = calloc((size_t)argc + 2, sizeof(*words));
    if (words == NULL) {
        via_error_set(&err, -ENOMEM, "arguments: allocate: %s", strerror(ENOMEM));
        return via_cli_fail(name, &err);
    }
    if (via_find_shared("report", &script, &err) == 0) {
        words[0] = (char *)"python3";
        words[1] = script.text;
        memcpy(&words[2], &argv[1], (size_t)(argc - 1) * sizeof(*words));
        execvp(words[0], words);
        via_error_set(&err, -errno, "python3: run %s: %s", script.text, strerror(errno));
    }
    free(words);
    return via_cli_fail(name, &err);
}
