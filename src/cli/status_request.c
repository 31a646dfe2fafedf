/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/status.h"

/* --- requests --------------------------------------------------------------------------------- */

/* The state of a host of another machine, according to the daemon of this machine. */
static const char *state_of(const struct via_fabric *fabric, unsigned host, int rc)
{
    if (host == (unsigned)fabric->local) {
        return "silent";
    }
    if (rc == -EREMOTEIO) {
        return "refused";
    }
    const char *state = via_answer_text(via_fabric_entry(fabric, host), "state");
    return strcmp(state, "up") == 0 || strcmp(state, "silent") == 0 ? "silent" : "unreachable";
}

static void request_host(const struct via_fabric *fabric, struct via_status_host *host,
                         unsigned timeout_ms)
{
    const struct via_process *daemon = &fabric->daemons[via_fabric_find(fabric, host->host)];
    struct via_error err = {0};
    int rc = via_fabric_request(fabric, host->host, "status", timeout_ms, &host->after, &err);
    if (rc == 0) {
        host->state = "up";
        host->pid = (pid_t)via_answer_u64(host->after, "pid");
        return;
    }
    host->after = NULL;
    if (fabric->local >= 0) {
        host->state = state_of(fabric, host->host, rc);
    } else {
        const char *alive = rc == -EREMOTEIO ? "refused" : "silent";
        host->state = via_process_is_alive(daemon) ? alive : "down";
        host->pid = daemon->pid;
    }
    if (fabric->local >= 0 || rc == -EREMOTEIO) {
        snprintf(host->why, sizeof(host->why), "%s", err.text);
    }
}

void via_status_request(struct via_status *status, unsigned timeout_ms, bool again)
{
    for (unsigned i = 0; i < status->fabric.topology.hosts_count; i++) {
        struct via_status_host *host = &status->hosts[i];
        host->host = status->fabric.topology.hosts[i];
        json_decref(host->before);
        host->before = host->after;
        host->after = NULL;
        if (!again || host->before != NULL) {
            host->why[0] = '\0';
            request_host(&status->fabric, host, timeout_ms);
        }
    }
}

/* --- links ----------------------------------------------------------------------------------- */

/* The counters of one end for one direction, in both answers. */
struct end {
    json_t *before;
    json_t *after;
    double seconds;
};

static struct end end_of(const struct via_status *status, unsigned host, unsigned peer,
                         unsigned number)
{
    const struct via_status_host *entry = &status->hosts[via_fabric_find(&status->fabric, host)];
    struct end end = {.before = via_answer_link(entry->before, peer, number),
                      .after = via_answer_link(entry->after, peer, number)};
    uint64_t from = via_answer_u64(entry->before, "uptime_ns");
    uint64_t to = via_answer_u64(entry->after, "uptime_ns");
    end.seconds = to > from ? (double)(to - from) / (double)VIA_SEC_NS : 0;
    return end;
}

/* The sender's counters, or the receiver's if the sender does not answer. */
static struct via_status_flow flow_of(const struct end *sender, const struct end *receiver)
{
    bool sent = sender->after != NULL;
    const struct end *end = sent ? sender : receiver;
    const char *key = sent ? "bytes_sent" : "bytes_received";
    struct via_status_flow flow = {
        .bytes = via_answer_u64(end->after, key),
        .frames = via_answer_u64(end->after, sent ? "frames_sent" : "frames_received"),
    };
    uint64_t before = via_answer_u64(end->before, key);
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
        const char *state =
            ends[i].after != NULL ? via_answer_text(ends[i].after, "state") : "down";
        if (strcmp(state, "up") != 0) {
            link->state = state;
        }
        link->cut = link->cut || is_cut(&ends[i]);
        link->errors += via_answer_u64(ends[i].after, "errors");
        link->ends[i] = ends[i].after;
        link->why[i] = via_answer_text(ends[i].after, "error");
    }
    for (unsigned i = 0; i < 2; i++) {
        /* A state that names the error is more useful than "down". */
        const char *state = via_answer_text(ends[i].after, "state");
        link->state = strncmp(state, "bad", 3) == 0 ? state : link->state;
    }
}

void via_status_compare(struct via_status *status)
{
    for (unsigned i = 0; i < status->fabric.topology.links_count; i++) {
        struct via_status_link *link = &status->links[i];
        *link = (struct via_status_link){.link = status->fabric.topology.links[i]};
        const struct end ends[2] = {
            end_of(status, link->link.a, link->link.b, link->link.number),
            end_of(status, link->link.b, link->link.a, link->link.number),
        };
        find_link_state(link, ends);
        link->ab = flow_of(&ends[0], &ends[1]);
        link->ba = flow_of(&ends[1], &ends[0]);
    }
}

void via_status_release(struct via_status *status)
{
    for (unsigned i = 0; i < status->fabric.topology.hosts_count; i++) {
        json_decref(status->hosts[i].before);
        json_decref(status->hosts[i].after);
        status->hosts[i].before = NULL;
        status->hosts[i].after = NULL;
    }
}
