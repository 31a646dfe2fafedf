/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* `viaduct metrics`: the status of a fabric for Prometheus, once or over HTTP. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/status.h"
#include "metrics/server.h"
#include "metrics/text.h"

/* Below the 10 s that Prometheus waits by default. */
#define ANSWER_MS 1000u

static const char help[] =
    "usage: viaduct metrics [--listen ADDRESS:PORT] [--fabric NAME | --rundir DIR]\n"
    "\n"
    "Prints the state and the counters of the hosts of a fabric, their links, routes and users as\n"
    "Prometheus text; with --listen serves them at http://ADDRESS:PORT/metrics until it is ended.\n"
    "A daemon serves the metrics of its own host by viaductd --metrics.\n"
    "\n"
    "  --listen ADDRESS:PORT  such as 127.0.0.1:9321 or [::1]:9321\n"
    "  --fabric NAME    name of the fabric (default $VIADUCT_FABRIC or "
    "'default')\n" VIA_CLI_RUNDIR_HELP "  -h, --help       this text\n";

static const struct option long_options[] = {{"listen", required_argument, NULL, 'l'},
                                             VIA_CLI_FABRIC_OPTIONS};

/* Waiting requests are then refused, because each may take ANSWER_MS for each host. */
static _Atomic bool ending;

/* Opens the fabric for each text, because hosts are added and removed. */
static int collect(const char *name, char **ret_text, size_t *ret_bytes, struct via_error *err)
{
    static struct via_status status;
    static struct via_metrics_host hosts[VIA_TOPOLOGY_HOST_MAX];
    int rc = via_fabric_open(&status.fabric, name, err);
    if (rc != 0) {
        return rc;
    }
    unsigned count = status.fabric.topology.hosts_count;
    via_status_request(&status, ANSWER_MS, false);
    for (unsigned i = 0; i < count; i++) {
        hosts[i] = (struct via_metrics_host){.host = status.hosts[i].host,
                                             .status = status.hosts[i].after};
    }
    rc = via_metrics_write(hosts, count, ret_text, ret_bytes);
    via_status_release(&status);
    json_decref(status.fabric.directory);
    return rc == 0 ? 0 : via_error_set(err, rc, "metrics: write: %s", strerror(-rc));
}

static int collect_for_server(void *name, char **ret_text, size_t *ret_bytes)
{
    struct via_error err = {0};
    if (atomic_load_explicit(&ending, memory_order_relaxed)) {
        return -ECANCELED;
    }
    int rc = collect(name, ret_text, ret_bytes, &err);
    if (rc != 0) {
        via_cli_fail("viaduct metrics", &err);
    }
    return rc;
}

/* Serves until SIGINT or SIGTERM. The server's thread is created with both blocked. */
static int serve(const char *address, const char *name, struct via_error *err)
{
    struct via_metrics_server *server;
    sigset_t signals;
    int number;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    int rc = via_metrics_open(address, collect_for_server, (void *)(uintptr_t)name, &server, err);
    if (rc != 0) {
        return rc;
    }
    printf("serves http://%s/metrics\n", address);
    fflush(stdout);
    while (sigwait(&signals, &number) != 0) {
    }
    atomic_store_explicit(&ending, true, memory_order_relaxed);
    via_metrics_close(server);
    return 0;
}

static int print(const char *name, struct via_error *err)
{
    char *text;
    size_t bytes;
    int rc = collect(name, &text, &bytes, err);
    if (rc == 0) {
        fwrite(text, 1, bytes, stdout);
        free(text);
    }
    return rc;
}

int via_cli_metrics(int argc, char **argv)
{
    struct via_error err = {0};
    const char *name = NULL;
    const char *address = NULL;
    int code;
    for (int opt; (opt = getopt_long(argc, argv, "h", long_options, NULL)) != -1;) {
        if (opt == 'l') {
            address = optarg;
        } else if ((code = via_cli_take_fabric(argv[0], opt, help, &name)) >= 0) {
            return code;
        }
    }
    code = via_cli_take_end(argc, argv);
    if (code >= 0) {
        return code;
    }
    int rc = address != NULL ? serve(address, name, &err) : print(name, &err);
    return rc == 0 ? VIA_CLI_OK : via_cli_fail(argv[0], &err);
}
