/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/control_remote.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutant.h"
#include "host/control_command.h"
#include "host/host_private.h"

/* An answer that is being sent to the host that has requested it. */
struct answer {
    struct via_list link;
    uint16_t peer;
    uint32_t id;
    char *text;
    size_t bytes;
    size_t sent;
    unsigned under_way;
    uint64_t deadline_ns;
    bool failed;   /* the peer no longer takes the answer */
    bool stopping; /* stop the host after it */
};

static size_t chunk_bytes(const struct via_host *host)
{
    return via_min((size_t)host->config.frame_bytes_max, sizeof(struct via_remote_message)) -
           VIA_REMOTE_HEAD_BYTES;
}

/* --- requests to other hosts ------------------------------------------------------------------ */

static void take_out(struct via_remote_call *call)
{
    via_list_remove(&call->link);
    call->active = false;
    call->text = NULL;
    if (call->place != NULL) {
        call->place->call = NULL;
        call->place = NULL;
    }
}

static void end_call(struct via_remote_call *call, const char *why)
{
    char *text = call->text;
    take_out(call);
    call->answered(call, why == NULL ? text : NULL, call->bytes, why);
    free(text);
}

static struct via_remote_call *find_call(struct via_host *host, uint32_t id, uint16_t peer)
{
    via_list_foreach(it, &host->remote.calls) {
        struct via_remote_call *call = via_list_entry(it, struct via_remote_call, link);
        if (call->id == id && call->destination == peer) {
            return call;
        }
    }
    return NULL;
}

static int check_destination(struct via_host *host, uint16_t destination, struct via_error *err)
{
    const struct via_directory_peer *peer = &host->directory.peers[destination];
    struct via_route_status route = {.port = VIA_PORT_NONE};
    (void)via_node_route_status(host->node, destination, &route);
    if (route.port != VIA_PORT_NONE) {
        return 0;
    }
    if (peer->lost_ns != 0) {
        return via_error_set(err, -EHOSTUNREACH, "unreachable for %llu s",
                             (unsigned long long)((host->now_ns - peer->lost_ns) / VIA_SEC_NS));
    }
    return via_error_set(err, -EHOSTUNREACH, "this host has received nothing from it");
}

/* A free place for a call of the user. NULL: none now; *ret_free_ns is the earliest time at which a
 * place becomes free without an answer. */
static struct via_remote_place *find_place(struct via_host *host, uint16_t destination, uid_t uid,
                                           uint64_t *ret_free_ns)
{
    struct via_remote_place *free = NULL;
    unsigned of_user = 0;
    *ret_free_ns = VIA_NEVER_NS;
    for (unsigned i = 0; i < VIA_REMOTE_PLACES_MAX; i++) {
        struct via_remote_place *place = &host->remote.places[destination][i];
        if (place->call == NULL && place->free_ns <= host->now_ns) {
            free = place;
            continue;
        }
        of_user += place->uid == uid;
        if (place->call == NULL) {
            *ret_free_ns = via_min(*ret_free_ns, place->free_ns);
        }
    }
    return of_user < VIA_REMOTE_PLACES_OF_USER_MAX ? free : NULL;
}

/* 0: sent; or the call waits for a place until *ret_free_ns or until another call ends. Otherwise
 * the call has failed before it began. */
static int start(struct via_host *host, struct via_remote_call *call, uint64_t *ret_free_ns)
{
    uid_t uid = call->message.uid;
    struct via_remote_place *place = NULL;
    *ret_free_ns = VIA_NEVER_NS;
    if (!via_rights_is_owner(uid)) {
        place = find_place(host, call->destination, uid, ret_free_ns);
        if (place == NULL) {
            return 0;
        }
    }
    call->id = call->message.id = host->remote.id_next;
    int rc = via_host_message_send(host, &via_control_remote_service, VIA_HOST_MESSAGE_REQUESTS,
                                   call->destination, &call->message, call->message_bytes);
    if (rc != 0) {
        return rc;
    }
    host->remote.id_next++;
    if (place != NULL) {
        *place = (struct via_remote_place){
            .call = call, .uid = uid, .free_ns = host->now_ns + VIA_REMOTE_PLACE_NS};
        call->place = place;
    }
    via_list_remove(&call->link);
    via_list_push_back(&host->remote.calls, &call->link);
    return 0;
}

static const char *describe_send_failure(int rc)
{
    return rc == -EAGAIN ? "too many messages to other hosts are under way; try again"
                         : strerror(-rc);
}

int via_control_remote_send_request(struct via_host *host, struct via_remote_call *call,
                                    uint16_t destination, const struct via_rights_user *user,
                                    const char *text, size_t bytes, struct via_error *err)
{
    struct via_remote_message *message = &call->message;
    uint64_t free_ns;
    *message = (struct via_remote_message){.type = VIA_REMOTE_REQUEST,
                                           .total_bytes = (uint32_t)bytes,
                                           .uid = user->uid,
                                           .gid = user->gid};
    unsigned groups_count = via_min(user->groups_count, VIA_REMOTE_GROUPS_MAX);
    size_t groups_bytes = groups_count * sizeof(user->groups[0]);
    if (bytes > VIA_REMOTE_REQUEST_BYTES_MAX) {
        return via_error_set(err, -EMSGSIZE, "a request to another host has at most %u bytes",
                             VIA_REMOTE_REQUEST_BYTES_MAX);
    }
    int rc = check_destination(host, destination, err);
    if (rc != 0) {
        return rc;
    }
    message->groups_count = (uint16_t)groups_count;
    message->bytes = (uint16_t)bytes;
    memcpy(message->data, user->groups, groups_bytes);
    memcpy(message->data + groups_bytes, text, bytes);
    call->message_bytes = (uint32_t)(VIA_REMOTE_HEAD_BYTES + groups_bytes + bytes);
    call->destination = destination;
    call->deadline_ns = host->now_ns + VIA_REMOTE_TIMEOUT_NS;
    call->place = NULL;
    call->text = NULL;
    call->bytes = 0;
    call->total_bytes = 0;
    via_list_push_back(&host->remote.waiting, &call->link);
    rc = start(host, call, &free_ns);
    if (rc != 0) {
        via_list_remove(&call->link);
        return via_error_set(err, rc, "send the request: %s", describe_send_failure(rc));
    }
    call->active = true;
    return 0;
}

void via_control_remote_cancel(struct via_remote_call *call)
{
    if (call->active) {
        if (call->place != NULL) { /* the other host still sends its answer */
            call->place->free_ns = via_max(call->place->free_ns, call->deadline_ns);
        }
        free(call->text);
        take_out(call);
    }
}

/* The text for a request that was not taken. */
static const char *describe_refusal(int status)
{
    switch (status) {
    case -ENOENT:
        return "its daemon accepts no requests from other hosts (an older version)";
    case -EHOSTUNREACH:
        return "the route to it was lost";
    default:
        return strerror(-status);
    }
}

/* True if the answer is one line that begins as a JSON object. It is not parsed here. */
static bool is_line(const char *text, size_t bytes)
{
    return bytes >= 2 && text[0] == '{' && memchr(text, '\n', bytes) == NULL &&
           memchr(text, '\0', bytes) == NULL;
}

/* Appends a chunk. Chunks of one host arrive in the order in which they were sent. */
static int take_chunk(struct via_remote_call *call, const struct via_remote_message *message)
{
    if (message->bytes == 0 || message->total_bytes > VIA_REMOTE_ANSWER_BYTES_MAX ||
        message->off != call->bytes || message->bytes > message->total_bytes - message->off ||
        (call->bytes != 0 && message->total_bytes != call->total_bytes)) {
        return -EPROTO;
    }
    char *text = realloc(call->text, call->bytes + message->bytes);
    if (text == NULL) {
        return -ENOMEM;
    }
    memcpy(text + call->bytes, message->data, message->bytes);
    call->text = text;
    call->bytes += message->bytes;
    call->total_bytes = message->total_bytes;
    return call->bytes == call->total_bytes && !is_line(call->text, call->bytes) ? -EPROTO : 0;
}

static void take_answer(struct via_host *host, uint16_t source,
                        const struct via_remote_message *message)
{
    struct via_remote_call *call = find_call(host, message->id, source);
    if (call == NULL) {
        return; /* the call has ended */
    }
    int rc = take_chunk(call, message);
    if (rc != 0) {
        via_host_warn(host, VIA_HOST_WARNS_REMOTE, source, "host %u: answer of host %u: %s",
                      host->config.host, source, strerror(-rc));
        end_call(call, rc == -EPROTO ? "its answer is invalid" : strerror(-rc));
    } else if (call->bytes == call->total_bytes) {
        end_call(call, NULL);
    }
}

/* --- answers to other hosts ------------------------------------------------------------------- */

static void free_answer(struct via_host *host, struct answer *answer)
{
    via_list_remove(&answer->link);
    host->remote.answers_count--;
    free(answer->text);
    free(answer);
}

static struct answer *find_answer(struct via_host *host, uint16_t peer, uint32_t id)
{
    via_list_foreach(it, &host->remote.answers) {
        struct answer *answer = via_list_entry(it, struct answer, link);
        if (answer->peer == peer && answer->id == id) {
            return answer;
        }
    }
    return NULL;
}

static bool accept_request(struct via_host *host, uint16_t peer, uint32_t id)
{
    struct via_remote_rate *rate = &host->remote.rates[peer];
    unsigned count = 0;
    if (host->now_ns - rate->since_ns >= VIA_SEC_NS) {
        *rate = (struct via_remote_rate){.since_ns = host->now_ns};
    }
    via_list_foreach(it, &host->remote.answers) {
        count += via_list_entry(it, struct answer, link)->peer == peer;
    }
    /* ended() finds an answer by peer and id. If two answers had the same id, it would count the
     * messages of both for the first one, and neither would ever be freed. */
    bool twice = find_answer(host, peer, id) != NULL && !VIA_MUTANT(REMOTE_TWICE);
    return rate->count++ < VIA_REMOTE_REQUESTS_PER_SECOND && !twice &&
           count < VIA_REMOTE_ANSWERS_OF_HOST_MAX &&
           host->remote.answers_count < VIA_REMOTE_ANSWERS_MAX;
}

static void add_answer(struct via_host *host, uint16_t peer, uint32_t id, json_t *json,
                       bool stopping)
{
    struct answer *answer = calloc(1, sizeof(*answer));
    char *text = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    if (answer == NULL || text == NULL) {
        free(answer);
        free(text);
        return; /* the request times out at the other host */
    }
    if (strlen(text) > VIA_REMOTE_ANSWER_BYTES_MAX) {
        static const char too_long[] = "{\"ok\":false,\"error\":\"the answer is too long\"}";
        memcpy(text, too_long, sizeof(too_long));
    }
    *answer = (struct answer){.peer = peer,
                              .id = id,
                              .text = text,
                              .bytes = strlen(text),
                              .stopping = stopping,
                              .deadline_ns = host->now_ns + 2 * VIA_REMOTE_TIMEOUT_NS};
    via_list_push_back(&host->remote.answers, &answer->link);
    host->remote.answers_count++;
}

static json_t *run(struct via_host *host, uint16_t source, const struct via_rights_user *user,
                   const char *text, size_t bytes, bool *ret_stopping)
{
    struct via_control_caller caller = {.host = host, .uid = user->uid, .from = source};
    json_error_t why;
    caller.has_admin_right = via_rights_has_user(&host->options.admin, user);
    caller.has_read_right =
        caller.has_admin_right || via_rights_has_user(&host->options.attach, user);
    if (!caller.has_read_right) {
        return via_control_refusal(&caller, "control", "attach to");
    }
    json_t *request = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
    json_t *answer = json_is_object(request) ? via_control_answer(&caller, request)
                                             : via_control_error("malformed request");
    json_decref(request);
    *ret_stopping = caller.stopping;
    return answer;
}

static void take_request(struct via_host *host, uint16_t source,
                         const struct via_remote_message *message, uint32_t bytes)
{
    struct via_rights_user user = {.uid = message->uid, .gid = message->gid};
    size_t groups_bytes = message->groups_count * sizeof(user.groups[0]);
    if ((message->groups_count > VIA_REMOTE_GROUPS_MAX && !VIA_MUTANT(REMOTE_GROUPS)) ||
        bytes != VIA_REMOTE_HEAD_BYTES + groups_bytes + message->bytes ||
        message->bytes > VIA_REMOTE_REQUEST_BYTES_MAX || message->total_bytes != message->bytes) {
        via_host_warn(host, VIA_HOST_WARNS_REMOTE, source,
                      "host %u: invalid request of host %u: dropped", host->config.host, source);
        return;
    }
    if (!accept_request(host, source, message->id)) {
        via_host_warn(
            host, VIA_HOST_WARNS_REMOTE, source,
            "host %u: host %u sends too many requests, or one twice: requests are dropped",
            host->config.host, source);
        return;
    }
    user.groups_count = message->groups_count;
    memcpy(user.groups, message->data, groups_bytes);
    bool stopping = false;
    json_t *json = run(host, source, &user, (const char *)message->data + groups_bytes,
                       message->bytes, &stopping);
    add_answer(host, source, message->id, json, stopping);
}

/* Sends the next chunk. Fewer messages than the window are under way. */
static bool send_chunk(struct via_host *host, struct answer *answer)
{
    struct via_remote_message message = {.type = VIA_REMOTE_ANSWER,
                                         .id = answer->id,
                                         .total_bytes = (uint32_t)answer->bytes,
                                         .off = (uint32_t)answer->sent};
    size_t bytes = via_min(answer->bytes - answer->sent, chunk_bytes(host));
    message.bytes = (uint16_t)bytes;
    memcpy(message.data, answer->text + answer->sent, bytes);
    if (via_host_message_send(host, &via_control_remote_service, VIA_HOST_MESSAGE_ANSWERS,
                              answer->peer, &message,
                              (uint32_t)(VIA_REMOTE_HEAD_BYTES + bytes)) != 0) {
        return false;
    }
    answer->sent += bytes;
    answer->under_way++;
    return true;
}

static void send_more(struct via_host *host, struct answer *answer)
{
    while (answer->sent < answer->bytes && answer->under_way < VIA_REMOTE_WINDOW &&
           send_chunk(host, answer)) {
    }
}

/* --- messages --------------------------------------------------------------------------------- */

static bool arrived(struct via_host *host, uint16_t source, const void *data, uint32_t bytes)
{
    const struct via_remote_message *message = data;
    if (message->type == VIA_REMOTE_REQUEST) {
        take_request(host, source, message, bytes);
    } else if (message->type == VIA_REMOTE_ANSWER &&
               bytes == VIA_REMOTE_HEAD_BYTES + (uint32_t)message->bytes) {
        take_answer(host, source, message);
    }
    return true;
}

static void ended(struct via_host *host, uint16_t destination, const void *data, int status)
{
    const struct via_remote_message *message = data;
    if (message->type == VIA_REMOTE_REQUEST) {
        struct via_remote_call *call = find_call(host, message->id, destination);
        if (call != NULL && status != 0) {
            end_call(call, describe_refusal(status));
        }
        return;
    }
    struct answer *answer = find_answer(host, destination, message->id);
    if (answer != NULL) {
        answer->under_way--;
        answer->failed |= status != 0;
    }
}

const struct via_host_service via_control_remote_service = {
    .endpoint = VIA_HOST_ENDPOINT_REMOTE,
    .bytes_min = VIA_REMOTE_HEAD_BYTES,
    .bytes_max = sizeof(struct via_remote_message),
    .arrived = arrived,
    .ended = ended,
};

/* Starts calls for which a place has become free, in the order of their requests. */
static uint64_t start_waiting(struct via_host *host)
{
    uint64_t deadline_ns = VIA_NEVER_NS;
    via_list_foreach_safe(it, &host->remote.waiting) {
        struct via_remote_call *call = via_list_entry(it, struct via_remote_call, link);
        uint64_t free_ns;
        if (host->now_ns >= call->deadline_ns) {
            end_call(call, "too many requests of users to this host; try again");
            continue;
        }
        int rc = start(host, call, &free_ns);
        if (rc != 0) {
            end_call(call, describe_send_failure(rc));
        } else {
            deadline_ns = via_min(deadline_ns, via_min(free_ns, call->deadline_ns));
        }
    }
    return deadline_ns;
}

uint64_t via_control_remote_tick(struct via_host *host)
{
    uint64_t deadline_ns = start_waiting(host);
    via_list_foreach_safe(it, &host->remote.calls) {
        struct via_remote_call *call = via_list_entry(it, struct via_remote_call, link);
        if (host->now_ns >= call->deadline_ns) {
            end_call(call, "no answer in time");
        } else {
            deadline_ns = via_min(deadline_ns, call->deadline_ns);
        }
    }
    via_list_foreach_safe(it, &host->remote.answers) {
        struct answer *answer = via_list_entry(it, struct answer, link);
        bool over = answer->failed || host->now_ns >= answer->deadline_ns;
        if (!over) {
            send_more(host, answer);
            over = answer->sent == answer->bytes;
        }
        if (over && answer->under_way == 0) {
            if (answer->stopping) {
                via_host_stop(host);
            }
            free_answer(host, answer);
        } else if (answer->under_way == 0) {
            deadline_ns = host->now_ns + VIA_MSEC_NS; /* other services use all sends */
        }                                             /* else the end of a message continues this */
    }
    return deadline_ns;
}

int via_control_remote_open(struct via_host *host, struct via_error *err)
{
    via_list_init(&host->remote.calls);
    via_list_init(&host->remote.waiting);
    via_list_init(&host->remote.answers);
    host->remote.id_next = host->session;
    host->remote.rates = calloc(host->config.hosts_max, sizeof(*host->remote.rates));
    host->remote.places = calloc(host->config.hosts_max, sizeof(*host->remote.places));
    return host->remote.rates != NULL && host->remote.places != NULL
               ? 0
               : via_error_set(err, -ENOMEM, "table of requests: %s", strerror(ENOMEM));
}

void via_control_remote_close(struct via_host *host)
{
    if (host->remote.places == NULL) {
        free(host->remote.rates);
        return;
    }
    via_list_foreach_safe(it, &host->remote.answers) {
        free_answer(host, via_list_entry(it, struct answer, link));
    }
    free(host->remote.rates);
    free(host->remote.places);
}
