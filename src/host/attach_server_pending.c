/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Requests of processes that another host must answer. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/host_private.h"

static int request_map(struct via_host *host, const struct via_attach_pending *pending,
                       uint64_t handle)
{
    struct via_host_cable *cable = via_host_cables_direct(host, pending->peer);
    if (cable == NULL) {
        return -EXDEV;
    }
    struct via_cable_message message = {
        .magic = VIA_CABLE_MAGIC,
        .type = VIA_CABLE_MAP,
        .id = pending->id,
        .handle = handle,
    };
    int rc = via_host_cable_send(cable, &message, sizeof(message), NULL, 0);
    return rc != 0 ? -EXDEV : 0;
}

static int send_request(struct via_host *host, struct via_attach_pending *pending,
                        const struct via_attach_request *request)
{
    switch (request->type) {
    case VIA_ATTACH_MAP:
        return request_map(host, pending, request->handle);
    case VIA_ATTACH_SLICE:
        return via_host_aperture_send_request(host, pending, request);
    case VIA_ATTACH_DIRECT:
        return via_host_direct_send_request(host, pending, request);
    default:
        return via_host_board_post(host, pending, request);
    }
}

int via_attach_server_send_request(struct via_process *process,
                                   const struct via_attach_request *request, uint64_t timeout_ns)
{
    struct via_host *host = process->host;
    struct via_attach_server *server = &host->attach;
    struct via_tenant *tenant = process->tenant;
    bool posts = request->type == VIA_ATTACH_BOARD_POST;
    if (process->pending_count >= VIA_ATTACH_REQUESTS_MAX ||
        server->pending_count >= VIA_ATTACH_REQUESTS_ALL ||
        !via_tenant_is_take_allowed(tenant, tenant->requests_count, VIA_ATTACH_REQUESTS_ALL) ||
        (posts &&
         !via_tenant_is_take_allowed(tenant, tenant->posts_count, VIA_HOST_REQUESTS_MAX))) {
        return -EAGAIN;
    }
    struct via_attach_pending *pending = calloc(1, sizeof(*pending));
    if (pending == NULL) {
        return -ENOMEM;
    }
    pending->host = host;
    pending->process = process;
    pending->tenant = tenant;
    pending->request_id = request->id;
    pending->type = request->type;
    pending->id = server->pending_id_next++;
    pending->peer = request->host;
    pending->deadline_ns = host->now_ns + timeout_ns;
    int rc = send_request(host, pending, request);
    if (rc != 0) {
        free(pending);
        return rc;
    }
    process->pending_count++;
    server->pending_count++;
    tenant->holds_count++;
    tenant->requests_count++;
    tenant->posts_count += posts ? 1 : 0;
    via_list_push_back(&server->pending, &pending->link);
    return 0;
}

static void remove_pending(struct via_attach_pending *pending)
{
    via_list_remove(&pending->link);
    if (pending->process != NULL) {
        pending->process->pending_count--;
    }
    pending->host->attach.pending_count--;
    pending->tenant->requests_count--;
    pending->tenant->posts_count -= pending->type == VIA_ATTACH_BOARD_POST ? 1 : 0;
    via_tenant_release(pending->host, pending->tenant);
    free(pending);
}

static void finish(struct via_attach_pending *pending, const struct via_attach_answer *content,
                   const int *fds, unsigned fds_count)
{
    struct via_process *process = pending->process;
    struct via_attach_answer answer = *content;
    if (process == NULL) {
        remove_pending(pending);
        return;
    }
    if (process->state == VIA_PROCESS_DRAINING) {
        uint16_t peer = pending->peer;
        remove_pending(pending);
        via_process_kept_answered(process, peer, content);
        return;
    }
    answer.magic = VIA_ATTACH_MAGIC;
    answer.version = VIA_ATTACH_VERSION;
    answer.type = pending->type;
    answer.id = pending->request_id;
    answer.host = process->host->config.host;
    remove_pending(pending);
    via_attach_server_answer(process, &answer, fds, fds_count);
}

static void finish_status(struct via_attach_pending *pending, int status)
{
    struct via_attach_answer answer = {.status = status};
    finish(pending, &answer, NULL, 0);
}

/* The message with the other host's answer has no room for the reason. */
static void finish_over_quota(struct via_attach_pending *pending)
{
    struct via_attach_answer answer = {.status = -EDQUOT};
    int bytes = snprintf((char *)answer.value, sizeof(answer.value),
                         "user %u is at its quota of notes on host %u",
                         (unsigned)pending->tenant->uid, pending->peer);
    answer.value_bytes = (uint32_t)bytes;
    finish(pending, &answer, NULL, 0);
}

void via_attach_server_answered(struct via_host *host, uint32_t id, uint16_t peer,
                                const struct via_attach_answer *content, const int *fds,
                                unsigned fds_count)
{
    via_list_foreach(it, &host->attach.pending) {
        struct via_attach_pending *pending = via_list_entry(it, struct via_attach_pending, link);
        /* A hostile neighbour may send an answer without a request. */
        if (pending->id != id || pending->peer != peer || pending->type != content->type) {
            continue;
        }
        if (content->status == -EDQUOT && pending->type == VIA_ATTACH_BOARD_POST) {
            finish_over_quota(pending);
        } else {
            finish(pending, content, fds, fds_count);
        }
        return;
    }
    /* No process waits any more: the request was given up, or its process has ended. */
}

void via_attach_server_pending_drop(struct via_process *process)
{
    if (process->pending_count == 0) {
        return;
    }
    via_list_foreach_safe(it, &process->host->attach.pending) {
        struct via_attach_pending *pending = via_list_entry(it, struct via_attach_pending, link);
        if (pending->process != process) {
            continue;
        }
        if (pending->type == VIA_ATTACH_BOARD_POST) {
            /* The note still counts against the user's quota, so that a new process of the user
             * does not get a new allowance. */
            pending->process = NULL;
            process->pending_count--;
        } else {
            remove_pending(pending);
        }
    }
}

void via_attach_server_pending_free(struct via_host *host)
{
    via_list_foreach_safe(it, &host->attach.pending) {
        remove_pending(via_list_entry(it, struct via_attach_pending, link));
    }
}

/* A MAP request is answered over the link on which it was sent, or never. */
void via_attach_server_links_changed(struct via_host *host)
{
    via_list_foreach_safe(it, &host->attach.pending) {
        struct via_attach_pending *pending = via_list_entry(it, struct via_attach_pending, link);
        if (pending->type == VIA_ATTACH_MAP &&
            via_host_cables_direct(host, pending->peer) == NULL) {
            finish_status(pending, -EXDEV);
        }
    }
}

uint64_t via_attach_server_pending_tick(struct via_host *host)
{
    uint64_t deadline_ns = VIA_NEVER_NS;
    via_list_foreach_safe(it, &host->attach.pending) {
        struct via_attach_pending *pending = via_list_entry(it, struct via_attach_pending, link);
        if (host->now_ns < pending->deadline_ns) {
            deadline_ns = via_min(deadline_ns, pending->deadline_ns);
        } else {
            finish_status(pending, pending->type == VIA_ATTACH_BOARD_POST ? -EHOSTUNREACH : -EXDEV);
        }
    }
    return deadline_ns;
}
