/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Endpoints and messages, boards, barriers. */
#include "host/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/node.h"
#include "host/client_auto.h"

/* Longer than the computation of a new route after the loss of a link. */
#define REACH_NS_MAX (500 * VIA_MSEC_NS)

/* --- endpoints and messages --------------------------------------------------------------------*/

static int request_endpoint(struct via_attach *attach, enum via_attach_type type, uint32_t endpoint,
                            const char *attempt)
{
    struct via_attach_request message = {.type = (uint16_t)type, .endpoint = endpoint};
    struct via_client_request request;
    via_client_lock(attach);
    int rc = via_client_request_wait(attach, &message, -1, &request);
    via_client_unlock(attach);
    if (rc < 0 && rc != -ENOTCONN && rc != -ETIMEDOUT) {
        via_client_error(rc, "host %u, endpoint %u: %s: %s", attach->host, endpoint, attempt,
                         strerror(-rc));
    }
    return rc;
}

int via_endpoint_open(struct via_attach *attach, uint32_t endpoint)
{
    return request_endpoint(attach, VIA_ATTACH_ENDPOINT_OPEN, endpoint, "open");
}

int via_endpoint_close(struct via_attach *attach, uint32_t endpoint)
{
    return request_endpoint(attach, VIA_ATTACH_ENDPOINT_CLOSE, endpoint, "close");
}

size_t via_message_bytes_max(const struct via_attach *attach)
{
    return attach->message_bytes_max;
}

int via_message_send(struct via_attach *attach, unsigned host, uint32_t endpoint,
                     uint32_t source_endpoint, const void *data, size_t bytes)
{
    if (host >= attach->hosts_max) {
        return via_client_error(-EINVAL, "host %u, endpoint %u: send: no host of this fabric", host,
                                endpoint);
    }
    if (bytes > attach->message_bytes_max) {
        return via_client_error(-EMSGSIZE, "host %u, endpoint %u: send: %zu bytes, but at most %u",
                                host, endpoint, bytes, attach->message_bytes_max);
    }
    struct via_client_channel *channel = via_client_channel_to(attach, host);
    struct via_command command = {
        .kind = VIA_OP_MESSAGE,
        .source = bytes == 0 ? VIA_SOURCE_NONE : VIA_SOURCE_BODY,
        .destination = (uint16_t)host,
        .bytes = bytes,
        .a.endpoint = endpoint,
        .b.source_endpoint = source_endpoint,
    };
    int rc = via_client_auto_leave(attach, host);
    if (rc != 0) {
        return rc;
    }
    via_client_lock(attach);
    rc = via_client_command_room(attach, channel, bytes);
    if (rc == 0) {
        const struct via_client_intent intent = {0};
        via_client_command_send(attach, channel, &command, data, bytes, &intent);
    }
    via_client_unlock(attach);
    return rc;
}

static bool has_message(struct via_attach *attach, void *ctx)
{
    (void)ctx;
    return !via_list_is_empty(&attach->messages);
}

/* [locked] Moves the oldest message to the caller's memory. */
static int take_message(struct via_attach *attach, void *buffer, size_t max,
                        struct via_message_info *ret_info)
{
    struct via_client_message *message =
        via_list_entry(via_list_pop_front(&attach->messages), struct via_client_message, link);
    size_t bytes = via_min((size_t)message->info.bytes, max);
    if (bytes != 0) {
        memcpy(buffer, message->data, bytes);
    }
    if (ret_info != NULL) {
        *ret_info = message->info;
    }
    attach->messages_bytes -= sizeof(*message) + message->info.bytes;
    free(message);
    via_client_unstick(attach);
    return (int)bytes;
}

int via_message_receive(struct via_attach *attach, void *buffer, size_t max, int timeout_ms,
                        struct via_message_info *ret_info)
{
    struct via_client_wait wait = {
        .done = has_message,
        .deadline_ns = VIA_NEVER_NS,
        .interruptible = true,
    };
    if (timeout_ms >= 0) {
        wait.deadline_ns = via_client_now_ns() + (uint64_t)timeout_ms * VIA_MSEC_NS;
    }
    via_client_lock(attach);
    int rc = has_message(attach, NULL) ? 0 : via_client_wait(attach, &wait);
    if (rc == 0) {
        rc = take_message(attach, buffer, max, ret_info);
    } else if (rc == -ETIMEDOUT || rc == -EINTR) {
        via_client_error(rc, "host %u: receive: %s", attach->host, strerror(-rc));
    }
    via_client_unlock(attach);
    return rc;
}

/* --- boards ------------------------------------------------------------------------------------*/

static int request_board(struct via_attach *attach, struct via_attach_request *message,
                         const void *key, size_t key_bytes, struct via_client_request *request)
{
    if (key_bytes == 0 || key_bytes > VIADUCT_BOARD_KEY_MAX) {
        return via_client_error(-EINVAL, "host %u, board: a key of %zu bytes, but 1 to %u are one",
                                attach->host, key_bytes, VIADUCT_BOARD_KEY_MAX);
    }
    message->key_bytes = (uint16_t)key_bytes;
    memcpy(message->key, key, key_bytes);
    via_client_lock(attach);
    int rc = via_client_request_wait(attach, message, -1, request);
    via_client_unlock(attach);
    return rc;
}

static bool is_reachable(struct via_attach *attach, void *ctx)
{
    const unsigned *host = ctx;
    return via_status_is_reachable(via_client_watch(attach, *host));
}

/* Waits for a host that was reachable before, because routes change while links go up and down.
 * Does not wait for a host that this attachment has never reached. -EHOSTUNREACH if the host stays
 * unreachable. */
static int await_host(struct via_attach *attach, unsigned host)
{
    struct via_client_wait wait = {
        .done = is_reachable,
        .ctx = &host,
        .deadline_ns = via_client_now_ns() + REACH_NS_MAX,
    };
    if (host >= attach->hosts_max || via_status_session(via_client_status(attach, host)) == 0) {
        return via_attach_hops(attach, host);
    }
    if (is_reachable(attach, &host)) {
        return 0;
    }
    via_client_lock(attach);
    int rc = via_client_wait(attach, &wait);
    via_client_unlock(attach);
    return rc == -ETIMEDOUT ? via_attach_hops(attach, host) : rc;
}

int via_board_post(struct via_attach *attach, unsigned host, const void *key, size_t key_bytes,
                   const void *value, size_t value_bytes, unsigned ttl_ms)
{
    struct via_attach_request message = {
        .type = VIA_ATTACH_BOARD_POST,
        .host = (uint16_t)host,
        .ttl_ms = ttl_ms,
        .value_bytes = (uint32_t)value_bytes,
    };
    struct via_client_request request;
    if (value_bytes > VIADUCT_BOARD_VALUE_MAX) {
        return via_client_error(-EINVAL, "host %u, board: a note of %zu bytes, but at most %u",
                                host, value_bytes, VIADUCT_BOARD_VALUE_MAX);
    }
    int rc = await_host(attach, host);
    if (rc < 0) {
        return rc;
    }
    if (value_bytes != 0) {
        memcpy(message.value, value, value_bytes);
    }
    rc = request_board(attach, &message, key, key_bytes, &request);
    if (rc < 0 && rc != -ENOTCONN && rc != -ETIMEDOUT && rc != -EINVAL) {
        via_client_error(rc, "host %u, board: post: %s", host, via_client_cause(&request.answer));
    }
    return rc;
}

int via_board_take(struct via_attach *attach, const void *key, size_t key_bytes, void *ret_value,
                   size_t max)
{
    struct via_attach_request message = {.type = VIA_ATTACH_BOARD_TAKE, .host = attach->host};
    struct via_client_request request;
    int rc = request_board(attach, &message, key, key_bytes, &request);
    if (rc < 0) {
        return rc == -ENOENT ? via_client_error(rc, "host %u, board: no such note", attach->host)
                             : rc;
    }
    size_t bytes = via_min((size_t)request.answer.value_bytes, sizeof(request.answer.value));
    bytes = via_min(bytes, max);
    if (bytes != 0) {
        memcpy(ret_value, request.answer.value, bytes);
    }
    return (int)bytes;
}

/* --- barriers ----------------------------------------------------------------------------------*/

static int check_members(const struct via_attach *attach, const uint16_t *hosts, unsigned count)
{
    bool mine = false;
    for (unsigned i = 0; i < count; i++) {
        if (hosts[i] >= attach->hosts_max || (i != 0 && hosts[i] <= hosts[i - 1])) {
            return -EINVAL;
        }
        mine |= hosts[i] == attach->host;
    }
    return mine && count * sizeof(*hosts) <= attach->body_bytes_max ? 0 : -EINVAL;
}

int via_barrier(struct via_attach *attach, uint32_t group, const uint16_t *hosts,
                unsigned hosts_count)
{
    if (check_members(attach, hosts, hosts_count) != 0) {
        return via_client_error(-EINVAL,
                                "host %u, barrier %u: members: they are ids in ascending "
                                "order, mine among them",
                                attach->host, group);
    }
    /* The node runs barriers on channel 0. */
    struct via_client_channel *channel = &attach->channels[0];
    struct via_client_result result = {0};
    size_t bytes = hosts_count * sizeof(*hosts);
    struct via_command command = {
        .kind = VIA_OP_BARRIER,
        .source = VIA_SOURCE_BODY,
        .destination = attach->host,
        .bytes = bytes,
        .a.group = group,
    };
    via_client_lock(attach);
    int rc = via_client_command_room(attach, channel, bytes);
    if (rc == 0) {
        struct via_client_intent intent = {.result = &result};
        via_client_command_send(attach, channel, &command, hosts, bytes, &intent);
        rc = via_client_wait_result(attach, channel, &result);
    }
    via_client_unlock(attach);
    if (rc < 0 && rc != -ENOTCONN && rc != -ENOBUFS) {
        via_client_error(rc, "host %u, barrier %u: %s", attach->host, group, strerror(-rc));
    }
    return rc;
}
