/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/status.h"

#define ANSWER_MS 2000u
/* Between the two looks that give the throughput. */
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
    {"json", no_argument, NULL, 'j'},         {"ports", no_argument, NULL, 'p'},
    {"fabric", required_argument, NULL, 'f'}, {"rundir", required_argument, NULL, VIA_CLI_RUNDIR},
    {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0},
};

/* --- asking --------------------------------------------------------------------------------------
 */

/* A host of another machine, as the daemon of this one sees it. */
static const char *state_of(const struct via_fabric *fabric, unsigned host, int rc)
{
    if (host == (unsigned)fabric->local) {
        return "silent";
    }
    if (rc == -EREMOTEIO) {
        return "refused";
    }
    const char *state = via_ask_text(via_fabric_entry(fabric, host), "state");
    return strcmp(state, "up") == 0 || strcmp(state, "silent") == 0 ? "silent" : "unreachable";
}

static void look(const struct via_fabric *fabric, struct via_status_host *host, json_t **ret_answer)
{
    const struct via_process *daemon = &fabric->daemons[via_fabric_find(fabric, host->host)];
    struct via_error err = {0};
    int rc = via_ask(fabric, host->host, "status", ANSWER_MS, ret_answer, &err);
    if (rc == 0) {
        host->state = "up";
        host->pid = (pid_t)via_ask_u64(*ret_answer, "pid");
        return;
    }
    *ret_answer = NULL;
    if (fabric->local >= 0) {
        host->state = state_of(fabric, host->host, rc);
        snprintf(host->why, sizeof(host->why), "%s", err.text);
    } else {
        host->state = via_process_is_alive(daemon) ? "silent" : "down";
        host->pid = daemon->pid;
    }
}

/* Who does not answer at first is not waited for again. */
static void look_at_all(struct via_status *status)
{
    unsigned count = status->fabric.topology.hosts_count;
    for (unsigned i = 0; i < count; i++) {
        status->hosts[i].host = status->fabric.topology.hosts[i];
        look(&status->fabric, &status->hosts[i], &status->hosts[i].before);
    }
    usleep(SPAN_MS * 1000);
    for (unsigned i = 0; i < count; i++) {
        if (status->hosts[i].before != NULL) {
            look(&status->fabric, &status->hosts[i], &status->hosts[i].after);
        }
    }
}

/* --- links ---------------------------------------------------------------------------------------
 */

/* What one end counts of one direction, between the two looks. */
struct end {
    json_t *before;
    json_t *after;
    double seconds;
};

static struct end end_of(const struct via_status *status, unsigned host, unsigned peer,
                         unsigned number)
{
    const struct via_status_host *entry = &status->hosts[via_fabric_find(&status->fabric, host)];
    struct end end = {.before = via_ask_link(entry->before, peer, number),
                      .after = via_ask_link(entry->after, peer, number)};
    uint64_t from = via_ask_u64(entry->before, "uptime_ns");
    uint64_t to = via_ask_u64(entry->after, "uptime_ns");
    end.seconds = to > from ? (double)(to - from) / (double)VIA_SEC_NS : 0;
    return end;
}

/* The sender's count, or the receiver's when the sender does not answer. */
static struct via_status_flow flow_of(const struct end *sender, const struct end *receiver)
{
    bool sent = sender->after != NULL;
    const struct end *end = sent ? sender : receiver;
    const char *key = sent ? "bytes_sent" : "bytes_received";
    struct via_status_flow flow = {
        .bytes = via_ask_u64(end->after, key),
        .frames = via_ask_u64(end->after, sent ? "frames_sent" : "frames_received"),
    };
    uint64_t before = via_ask_u64(end->before, key);
    if (end->before != NULL && end->seconds > 0 && flow.bytes > before) {
        flow.bytes_per_second = (double)(flow.bytes - before) / end->seconds;
    }
    return flow;
}

static bool is_cut(const struct end *end)
{
    return json_is_true(json_object_get(end->after, "cut"));
}

static void find_link_state(struct via_status_link *link, const struct end ends[2])
{
    link->state = "up";
    for (unsigned i = 0; i < 2; i++) {
        const char *state = ends[i].after != NULL ? via_ask_text(ends[i].after, "state") : "down";
        if (strcmp(state, "up") != 0) {
            link->state = state;
        }
        link->cut = link->cut || is_cut(&ends[i]);
        link->errors += via_ask_u64(ends[i].after, "errors");
        link->ends[i] = ends[i].after;
        link->why[i] = via_ask_text(ends[i].after, "error");
    }
    for (unsigned i = 0; i < 2; i++) {
        /* What is wrong says more than that it is not there. */
        const char *state = via_ask_text(ends[i].after, "state");
        link->state = strncmp(state, "bad", 3) == 0 ? state : link->state;
    }
}

static void compare_ends(struct via_status *status)
{
    for (unsigned i = 0; i < status->fabric.topology.links_count; i++) {
        struct via_status_link *link = &status->links[i];
        link->link = status->fabric.topology.links[i];
        const struct end ends[2] = {
            end_of(status, link->link.a, link->link.b, link->link.number),
            end_of(status, link->link.b, link->link.a, link->link.number),
        };
        find_link_state(link, ends);
        link->ab = flow_of(&ends[0], &ends[1]);
        link->ba = flow_of(&ends[1], &ends[0]);
    }
}

/* --- the command ---------------------------------------------------------------------------------
 */

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
    look_at_all(status);
    compare_ends(status);
    if (json) {
        rc = print_json(status, err);
    } else {
        via_status_print(status, ports);
    }
    for (unsigned i = 0; i < status->fabric.topology.hosts_count; i++) {
        json_decref(status->hosts[i].before);
        json_decref(status->hosts[i].after);
    }
    return rc;
}

int via_cli_status(int argc, char **argv)
{
    static struct via_status status;
    struct via_error err = {0};
    const char *name = NULL;
    bool json = false;
    bool ports = false;
    int opt;
    while ((opt = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
        switch (opt) {
        case 'j':
            json = true;
            break;
        case 'p':
            ports = true;
            break;
        case 'f':
            name = optarg;
            break;
        case VIA_CLI_RUNDIR:
            via_cli_set_rundir(optarg);
            break;
        case 'h':
            fputs(help, stdout);
            return VIA_CLI_OK;
        default:
            return via_cli_usage(argv[0], NULL);
        }
    }
    if (optind < argc) {
        return via_cli_usage(argv[0], "'%s': one argument too many", argv[optind]);
    }
    int rc = via_fabric_open(&status.fabric, name, &err);
    if (rc == 0) {
        rc = show(&status, json, ports, &err);
    }
    return rc == 0 ? VIA_CLI_OK : via_cli_fail(argv[0], &err);
}
