/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/daemon.h"
#include "cli/ip_hosts.h"
#include "cli/netns.h"
#include "host/control.h"

/* A running `up` ends within its own time limit. */
#define LOCK_MS 60000u
#define ANSWER_MS 5000

static const char help[] =
    "usage: viaduct down [--fabric NAME]\n"
    "       viaduct down --host N [--fabric NAME]\n"
    "\n"
    "Ends all daemons of a fabric, also of one that crashed, and removes its remains: sockets,\n"
    "logs, namespaces. Nothing to end is no failure.\n"
    "\n"
    "  --host N         end the daemon of host N only, which may be on another machine\n"
    "  --fabric NAME    name of the fabric (default $VIADUCT_FABRIC or 'default')\n"
    "  -h, --help       this text\n";

static const struct option long_options[] = {
    {"host", required_argument, NULL, 'H'},
    {"fabric", required_argument, NULL, 'f'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* Namespaces are found by the name of the fabric. Two fabrics with different $VIADUCT_RUNDIR may
 * have the same name; the namespaces then belong to the one whose state file says so. */
static int remove_namespaces(const struct via_fabric *fabric, bool known, struct via_error *err)
{
    bool has_netns = known ? fabric->netns : getenv("VIADUCT_RUNDIR") == NULL;
    return has_netns && geteuid() == 0 ? via_netns_remove(fabric, err) : 0;
}

static void print_found(const struct via_fabric *fabric, const struct via_daemon_ended *ended,
                        unsigned files, int spaces)
{
    unsigned ran = ended->stopped + ended->forced;
    printf("fabric '%s' is down: %u daemon%s ended", fabric->name, ran, ran == 1 ? "" : "s");
    if (ended->forced > 0) {
        printf(" (%u by a signal)", ended->forced);
    }
    if (ended->strays > 0) {
        printf(" (%u unknown to its state)", ended->strays);
    }
    if (ended->dead > 0) {
        printf(", %u had died before", ended->dead);
    }
    if (spaces > 0) {
        printf(", %d namespaces removed", spaces);
    }
    if (ran == 0) {
        printf(", %u file%s removed", files, files == 1 ? "" : "s");
    }
    printf("\n");
}

static int take_down(struct via_fabric *fabric, struct via_error *err)
{
    struct via_daemon_ended ended;
    int rc = via_fabric_load(fabric, err);
    if (rc == -EBUSY || rc == -EACCES) {
        return rc;
    }
    /* Without a valid state file everything that runs there is ended, too. */
    bool known = rc == 0;
    rc = via_ip_hosts_end(fabric, err);
    if (rc >= 0) {
        rc = via_daemon_end_all(fabric, &ended, err);
    }
    if (rc != 0) {
        return rc;
    }
    int spaces = remove_namespaces(fabric, known, err);
    if (spaces < 0) {
        return spaces;
    }
    unsigned files = via_fabric_count_files(fabric);
    rc = via_fabric_remove(fabric, err);
    if (rc == 0 || rc == -ENOTEMPTY) {
        print_found(fabric, &ended, files, spaces);
    }
    return rc;
}

static int down(struct via_fabric *fabric, struct via_error *err)
{
    struct stat st;
    if (lstat(fabric->rundir.text, &st) != 0 && errno == ENOENT) {
        int spaces = remove_namespaces(fabric, false, err);
        if (spaces > 0) {
            printf("fabric '%s' is not up; removed %d namespaces it had left\n", fabric->name,
                   spaces);
        } else if (spaces == 0) {
            printf("fabric '%s' is not up: nothing to do\n", fabric->name);
        }
        return spaces < 0 ? spaces : 0;
    }
    /* A process that could write there could make this command end any process of this user. */
    int rc = via_rundir_make(fabric->rundir.text, false, err);
    if (rc == 0) {
        rc = via_fabric_lock(fabric, LOCK_MS, err);
    }
    if (rc == 0) {
        rc = take_down(fabric, err);
    }
    via_fabric_unlock(fabric);
    return rc;
}

/* Sends the request to the host's own daemon, or to that of this machine, which forwards it. */
static int stop_host(const struct via_fabric *fabric, unsigned host, struct via_error *err)
{
    unsigned by = host;
    json_t *answer = NULL;
    if (via_rundir_local(fabric->rundir.text, &by) != 0) {
        by = host;
    }
    json_t *request = json_pack("{s:s}", "cmd", "stop");
    int rc = request != NULL ? via_control_call_by(fabric->rundir.text, by, host, request, &answer,
                                                   err, ANSWER_MS)
                             : via_error_set(err, -ENOMEM, "host %u: stop: out of memory", host);
    if (rc == 0) {
        printf("host %u: its daemon ends\n", host);
    }
    json_decref(answer);
    json_decref(request);
    return rc;
}

int via_cli_down(int argc, char **argv)
{
    static struct via_fabric fabric;
    struct via_error err = {0};
    const char *name = NULL;
    unsigned host = 0; /* all */
    int opt;
    while ((opt = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
        switch (opt) {
        case 'f':
            name = optarg;
            break;
        case 'H':
            if (via_cli_number(optarg, VIA_TOPOLOGY_HOST_MIN, VIA_TOPOLOGY_HOST_MAX, &host) != 0) {
                return via_cli_usage(argv[0], "--host: '%s': not the id of a host", optarg);
            }
            break;
        default:
            return via_cli_take_help(argv[0], opt, help);
        }
    }
    int code = via_cli_take_end(argc, argv);
    if (code >= 0) {
        return code;
    }
    int rc =
        host != 0 ? via_fabric_locate(&fabric, name, &err) : via_fabric_init(&fabric, name, &err);
    if (rc == 0) {
        rc = host != 0 ? stop_host(&fabric, host, &err) : down(&fabric, &err);
    }
    return rc == 0 ? VIA_CLI_OK : via_cli_fail(argv[0], &err);
}
