/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/status.h"

#define ANSWER_MS 2000u
/* Time between the two answers from which the throughput is computed. */
#define SPAN_MS 200u

static const char help[] =
    "usage: viaduct status [--json | --ports] [--fabric NAME | --rundir DIR]\n"
    "\n"
    "Shows the hosts of a fabric, its links with their throughput (measured over 0.2 s), totals\n"
    "and errors, the hops from each host to each, and the processes attached. A host that has "
    "died\n"
    "is shown as down.\n"
    "\n"
    "  --json           the same for programs\n"
    "  --ports          also what the port at each end of a link promises: order, coherence, ...\n"
    "  --fabric NAME    name of the fabric (default $VIADUCT_FABRIC or "
    "'default')\n" VIA_CLI_RUNDIR_HELP "  -h, --help       this text\n";

static const struct option long_options[] = {
    {"json", no_argument, NULL, 'j'}, {"ports", no_argument, NULL, 'p'}, VIA_CLI_FABRIC_OPTIONS};

/* --- the command ----------------------------------------------------------------------------- */

static int print_json(const struct via_status *status, struct via_error *err)
{
    json_t *json = via_status_json(status);
    int rc = 0;
    if (json == NULL || json_dumpf(json, stdout, JSON_INDENT(1)) != 0) {
        rc = via_error_set(err, -ENOMEM, "status: write as JSON: %s", strerror(ENOMEM));
    }
    putchar('\n');
    json_decref(json);
    return rc;
}

static int show(struct via_status *status, bool json, bool ports, struct via_error *err)
{
    int rc = 0;
    via_status_request(status, ANSWER_MS, false);
    usleep(SPAN_MS * 1000);
    via_status_request(status, ANSWER_MS, true);
    via_status_compare(status);
    if (json) {
        rc = print_json(status, err);
    } else {
        via_status_print(status, ports);
    }
    via_status_release(status);
    return rc;
}

int via_cli_status(int argc, char **argv)
{
    static struct via_status status;
    struct via_error err = {0};
    const char *name = NULL;
    bool json = false;
    bool ports = false;
    int code;
    for (int opt; (opt = getopt_long(argc, argv, "h", long_options, NULL)) != -1;) {
        if (opt == 'j' || opt == 'p') {
            *(opt == 'j' ? &json : &ports) = true;
        } else if ((code = via_cli_take_fabric(argv[0], opt, help, &name)) >= 0) {
            return code;
        }
    }
    code = via_cli_take_end(argc, argv);
    if (code >= 0) {
        return code;
    }
    int rc = via_fabric_open(&status.fabric, name, &err);
    if (rc == 0) {
        rc = show(&status, json, ports, &err);
    }
    return rc == 0 ? VIA_CLI_OK : via_cli_fail(argv[0], &err);
}
