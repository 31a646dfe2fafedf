/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Configuration files of the daemon: an accepted file is valid and parses again after it is
 * printed, and a refused one gets a reason. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config.h"
#include "tests/fuzz/input.h"

static void check_line(void *ctx, const char *line)
{
    (void)ctx;
    require(strncmp(line, "F:", 2) == 0 || strncmp(line, "and ", 4) == 0);
    for (; *line != '\0'; line++) {
        require(*line >= ' ' && *line < 0x7f);
    }
}

static char *print(const struct via_daemon_options *options)
{
    char *text = NULL;
    size_t bytes;
    FILE *file = open_memstream(&text, &bytes);
    via_daemon_config_print(options, file);
    fclose(file);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct via_daemon_options options;
    static struct via_daemon_report report;
    memset(&report, 0, sizeof(report));
    via_daemon_options_init(&options);
    if (via_daemon_config_parse("F", (const char *)data, bytes, &options, &report) != 0) {
        require(report.lines_count != 0);
        via_daemon_report_each(&report, check_line, NULL);
        return 0;
    }
    require(report.lines_count == 0);
    require(options.host.links_count <= options.host.links_max);
    require(options.rundir.text[0] == '/');
    for (unsigned i = 0; i < options.host.links_count; i++) {
        require(options.links[i].name[0] != '\0' && options.links[i].description[0] != '\0');
        require(options.links[i].peer != options.host.host);
    }
    char *first = print(&options);
    via_daemon_options_init(&options);
    require(via_daemon_config_parse("F", first, strlen(first), &options, &report) == 0);
    char *second = print(&options);
    require(strcmp(first, second) == 0);
    free(first);
    free(second);
    return 0;
}
