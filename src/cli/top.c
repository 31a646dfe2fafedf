/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/top.h"

/* Time between the two collections from which the rates are computed. */
#define SPAN_MS 500u

static const char help[] =
    "usage: viaduct top [--interval SECONDS] [--once] [--fabric NAME | --rundir DIR]\n"
    "\n"
    "Shows hosts, links, TCP connections, OpenSHMEM jobs and attached processes, live.\n"
    "\n"
    "  --interval SECONDS  between two pictures, 0.2 to 60 (1)\n"
    "  --once           print everything once, half a second later, and end\n"
    "  --fabric NAME    name of the fabric (default $VIADUCT_FABRIC or "
    "'default')\n" VIA_CLI_RUNDIR_HELP "  -h, --help       this text\n"
    "\n"
    "Keys: h hosts, l links, c connections, j jobs, a all; arrows and pages scroll; space pauses;\n"
    "+ and - change the interval; q ends.\n";

static const struct option long_options[] = {{"interval", required_argument, NULL, 'i'},
                                             {"once", no_argument, NULL, 'o'},
                                             VIA_CLI_FABRIC_OPTIONS};

static int print_once(const char *name, struct via_error *err)
{
    struct via_top_model model = {0};
    struct via_top_lines lines = {0};
    int rc = via_top_collect(&model, name, err);
    if (rc == 0) {
        usleep(SPAN_MS * 1000);
        rc = via_top_collect(&model, name, err);
    }
    if (rc == 0) {
        rc = via_top_view(&model, VIA_TOP_ALL, 0, 0, &lines);
    }
    for (size_t i = 0; i < lines.count; i++) {
        puts(lines.lines[i].text);
    }
    via_top_lines_free(&lines);
    via_top_release(&model);
    return rc;
}

static bool parse_interval(const char *text, unsigned *ret_ms)
{
    char *end;
    double seconds = strtod(text, &end);
    *ret_ms = *end == '\0' && seconds >= 0.2 && seconds <= 60 ? (unsigned)(seconds * 1000) : 0;
    return *ret_ms != 0;
}

int via_cli_top(int argc, char **argv)
{
    struct via_error err = {0};
    const char *name = NULL;
    unsigned interval_ms = 1000;
    bool once = false;
    int code;
    for (int opt; (opt = getopt_long(argc, argv, "h", long_options, NULL)) != -1;) {
        if (opt == 'o') {
            once = true;
        } else if (opt == 'i') {
            if (!parse_interval(optarg, &interval_ms)) {
                return via_cli_usage(argv[0], "--interval %s: 0.2 to 60 seconds", optarg);
            }
        } else if ((code = via_cli_take_fabric(argv[0], opt, help, &name)) >= 0) {
            return code;
        }
    }
    code = via_cli_take_end(argc, argv);
    if (code >= 0) {
        return code;
    }
    int rc = once ? print_once(name, &err) : via_top_screen(name, interval_ms, &err);
    return rc == 0 ? VIA_CLI_OK : via_cli_fail(argv[0], &err);
}
