/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/host_board.h"

#include <errno.h>
#include <string.h>

#include "base/mutant.h"
#include "host/host_private.h"

/* --- sending ---------------------------------------------------------------------------------- */

int via_host_board_post(struct via_host *host, const struct via_attach_pending *pending,
                        const struct via_attach_request *request)
{
    struct via_board_message message = {
        .type = VIA_BOARD_POST,
        .id = pending->id,
        .process = pending->process->number,
        .uid = pending->process->uid,
        .ttl_ms = request->ttl_ms,
        .key_bytes = request->key_bytes,
        .value_bytes = (uint16_t)request->value_bytes,
    };
    memcpy(message.data, request->key, request->key_bytes);
    memcpy(message.data + request->key_bytes, request->value, request->value_bytes);
    int rc = via_host_message_send(
        host, &via_host_board_service, VIA_HOST_MESSAGE_REQUESTS, pending->peer, &message,
        VIA_BOARD_MESSAGE_HEAD_BYTES + request->key_bytes + request->value_bytes);
    if (rc == 0) {
        pending->process->posted[pending->peer / 64] |= UINT64_C(1) << (pending->peer % 64);
    }
    return rc;
}

/* False: there is no room. */
static bool send_head(struct via_host *host, uint16_t destination,
                      const struct via_board_message *message)
{
    /* The message is no longer than a frame and than a board message, so nothing else can fail. */
    return via_host_message_send(host, &via_host_board_service, VIA_HOST_MESSAGE_ANSWERS,
                                 destination, message, VIA_BOARD_MESSAGE_HEAD_BYTES) == 0;
}

bool via_host_board_leave(struct via_host *host, struct via_process *process)
{
    struct via_board_message message = {.type = VIA_BOARD_WITHDRAW, .process = process->number};
    for (unsigned peer = 0; peer < host->config.hosts_max; peer++) {
        if ((process->posted[peer / 64] >> (peer % 64) & 1) == 0) {
            continue;
        }
        if (peer == host->config.host) {
            struct via_board_poster poster = {
                .host = (uint16_t)peer, .session = host->session, .process = process->number};
            via_board_withdraw(&host->board, &poster);
        } else if (!send_head(host, (uint16_t)peer, &message)) {
            return false;
        }
        process->posted[peer / 64] &= ~(UINT64_C(1) << (peer % 64));
    }
    return true;
}

/* --- receiving -------------------------------------------------------------------------------- */

static uint32_t session_of(struct via_host *host, uint16_t id)
{
    struct via_route_status route;
    return via_node_route_status(host->node, id, &route) == 0 ? route.session : 0;
}

void via_host_board_changed(struct via_host *host)
{
    uint32_t changed[VIA_HOSTS_MAX] = {0};
    bool any = false;
    for (uint16_t id = 0; id < host->config.hosts_max; id++) {
        uint32_t session = session_of(host, id);
        uint32_t *seen = &host->board_sessions[id];
        if (session == 0 || session == *seen || id == host->config.host) {
            continue;
        }
        *seen = session;
        changed[id] = session;
        any = true;
    }
    if (any) {
        via_board_withdraw_stale(&host->board, changed);
    }
}

static int post_note(struct via_host *host, uint16_t source,
                     const struct via_board_message *message, uint32_t bytes)
{
    if (bytes != VIA_BOARD_MESSAGE_HEAD_BYTES + (uint32_t)message->key_bytes +
                     (uint32_t)message->value_bytes &&
        !VIA_MUTANT(BOARD_BYTES)) {
        return -EINVAL;
    }
    struct via_board_poster poster = {.uid = message->uid,
                                      .host = source,
                                      .session = session_of(host, source),
                                      .process = message->process};
    return via_board_add(&host->board, &poster, via_tenant_notes_max(host, message->uid),
                         message->data, message->key_bytes, message->data + message->key_bytes,
                         message->value_bytes, message->ttl_ms * VIA_MSEC_NS, host->now_ns);
}

static bool arrived(struct via_host *host, uint16_t source, const void *data, uint32_t bytes)
{
    const struct via_board_message *message = data;
    if (message->type == VIA_BOARD_POST) {
        struct via_board_message answer = {.type = VIA_BOARD_ANSWER, .id = message->id};
        int room = via_host_message_room(host, source);
        if (room <= 0) {
            return room < 0; /* requests wait while their host takes no answers */
        }
        answer.status = post_note(host, source, message, bytes);
        return send_head(host, source, &answer);
    }
    if (message->type == VIA_BOARD_ANSWER) {
        int status = message->status <= 0 && message->status >= -4095 ? message->status : -EPROTO;
        struct via_attach_answer answer = {.type = VIA_ATTACH_BOARD_POST, .status = status};
        via_attach_server_answered(host, message->id, source, &answer, NULL, 0);
    } else if (message->type == VIA_BOARD_WITHDRAW) {
        struct via_board_poster poster = {
            .host = source, .session = session_of(host, source), .process = message->process};
        if (poster.process != UINT32_MAX) {
            via_board_withdraw(&host->board, &poster);
        }
    }
    return true;
}

static void ended(struct via_host *host, uint16_t destination, const void *data, int status)
{
    const struct via_board_message *message = data;
    if (status != 0 && message->type == VIA_BOARD_POST) {
        struct via_attach_answer answer = {.type = VIA_ATTACH_BOARD_POST, .status = status};
        via_attach_server_answered(host, message->id, destination, &answer, NULL, 0);
    }
}

const struct via_host_service via_host_board_service = {
    .endpoint = VIA_HOST_ENDPOINT_BOARD,
    .bytes_min = VIA_BOARD_MESSAGE_HEAD_BYTES,
    .bytes_max = sizeof(struct via_board_message),
    .arrived = arrived,
    .ended = ended,
};

uint64_t via_host_board_tick(struct via_host *host)
{
    return via_board_expire(&host->board, host->now_ns);
}

void via_host_board_open(struct via_host *host)
{
    via_board_init(&host->board, VIA_BOARD_NOTES_MAX, VIA_BOARD_BYTES_MAX);
}

void via_host_board_close(struct via_host *host)
{
    via_board_fini(&host->board);
}
