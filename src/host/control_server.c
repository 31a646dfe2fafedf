/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/control_server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mutant.h"
#include "host/control.h"
#include "host/control_command.h"
#include "host/host_private.h"
#include "host/host_receive.h"

struct connection {
    struct via_host *host;
    struct via_host_source source;
    struct via_host_grave grave;
    struct via_list link;
    uint64_t deadline_ns;
    uid_t uid;
    bool has_read_right; /* for the status */
    bool has_admin_right;
    struct via_remote_call call; /* the request that another host is to answer */
    bool closing;                /* close when everything is sent */
    bool stopping;               /* ... and then stop the host */
    bool waiting;                /* for the end of a reload; no request is read meanwhile */
    bool taken;                  /* a reload that began after the request */
    size_t in_bytes;
    char *out; /* answers to send: out_bytes, of which out_sent are sent */
    size_t out_bytes;
    size_t out_sent;
    char in[VIA_CONTROL_REQUEST_BYTES_MAX];
};

/* True while the answer to a request is outstanding. */
static bool is_waiting(const struct connection *connection)
{
    return connection->call.active || connection->waiting;
}

static void close_connection(struct connection *connection)
{
    struct via_host *host = connection->host;
    int fd = connection->source.fd;
    if (fd < 0) {
        return;
    }
    via_host_source_remove(host, &connection->source);
    via_control_remote_cancel(&connection->call);
    shutdown(fd, SHUT_RDWR);
    via_reaper_add_fds(host->reaper, &fd, 1);
    via_list_remove(&connection->link);
    host->control.connections_count--;
    free(connection->out);
    connection->out = NULL;
    if (connection->stopping) {
        via_host_stop(host);
    }
    via_host_bury(host, &connection->grave, connection);
}

/* --- answers ---------------------------------------------------------------------------------- */

/* The end of a request that was received and not handled yet, or NULL. */
static const char *find_line_end(const struct connection *connection)
{
    return memchr(connection->in, '\n',
                  VIA_MUTANT(CONTROL_LINES) ? sizeof(connection->in) + 1 : connection->in_bytes);
}

/* The events for which the connection waits once all its answers are sent. */
static uint32_t wanted_events(const struct connection *connection)
{
    if (is_waiting(connection)) {
        /* no request is read while an answer is outstanding, because its answer might not fit */
        return 0;
    }
    /* A request that was already received is handled in the next turn. */
    return find_line_end(connection) != NULL ? EPOLLOUT : EPOLLIN;
}

static void send_out(struct connection *connection)
{
    while (connection->out_sent < connection->out_bytes) {
        ssize_t sent =
            send(connection->source.fd, connection->out + connection->out_sent,
                 connection->out_bytes - connection->out_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            connection->out_sent += (size_t)sent;
        } else if (errno == EAGAIN) {
            /* No request is read until the client has read this answer. */
            via_host_source_modify(connection->host, &connection->source, EPOLLOUT);
            return;
        } else if (errno != EINTR) {
            close_connection(connection);
            return;
        }
    }
    free(connection->out);
    connection->out = NULL;
    connection->out_bytes = 0;
    connection->out_sent = 0;
    if (connection->closing) {
        close_connection(connection);
    } else {
        via_host_source_modify(connection->host, &connection->source, wanted_events(connection));
    }
}

/* Appends one line. */
static void append(struct connection *connection, const char *text, size_t bytes)
{
    char *out = connection->out_bytes + bytes + 1 <= VIA_CONTROL_ANSWER_BYTES_MAX
                    ? realloc(connection->out, connection->out_bytes + bytes + 1)
                    : NULL;
    if (out == NULL) {
        /* the client finds the end of the connection without an answer */
        connection->closing = true;
        return;
    }
    memcpy(out + connection->out_bytes, text, bytes);
    out[connection->out_bytes + bytes] = '\n';
    connection->out = out;
    connection->out_bytes += bytes + 1;
}

/* answer: this function releases it; NULL: out of memory. */
static void answer_json(struct connection *connection, json_t *answer)
{
    static const char no_memory[] = "{\"ok\":false,\"error\":\"out of memory\"}";
    char *text = answer != NULL ? json_dumps(answer, JSON_COMPACT) : NULL;
    if (text != NULL) {
        append(connection, text, strlen(text));
    } else {
        append(connection, no_memory, sizeof(no_memory) - 1);
    }
    free(text);
    json_decref(answer);
}

/* --- requests for other hosts ----------------------------------------------------------------- */

/* Reports that another host does not answer. */
static void answer_unreachable(struct connection *connection, const char *why)
{
    json_t *error = via_control_error("request of host %u: %s", connection->host->config.host, why);
    json_object_set_new(error, "unreachable", json_true());
    answer_json(connection, error);
}

static void answered(struct via_remote_call *call, const char *text, size_t bytes, const char *why)
{
    struct connection *connection = via_container_of(call, struct connection, call);
    if (text != NULL) {
        append(connection, text, bytes);
    } else {
        answer_unreachable(connection, why);
    }
    send_out(connection);
}

static void request_other(struct connection *connection, json_t *request, json_int_t id)
{
    struct via_host *host = connection->host;
    struct via_rights_user user;
    struct ucred peer;
    struct via_error err;
    char text[VIA_REMOTE_REQUEST_BYTES_MAX];
    socklen_t peer_bytes = sizeof(peer);
    if (id < 0 || id >= host->config.hosts_max) {
        answer_json(connection, via_control_error("\"host\" is not the id of a host (0 to %u)",
                                                  host->config.hosts_max - 1u));
        return;
    }
    connection->call.answered = answered;
    json_object_del(request, "host");
    size_t bytes = json_dumpb(request, text, sizeof(text), JSON_COMPACT);
    if (bytes == 0 || bytes > sizeof(text)) {
        answer_json(connection, via_control_error("a request to another host has at most %u bytes",
                                                  VIA_REMOTE_REQUEST_BYTES_MAX));
        return;
    }
    if (getsockopt(connection->source.fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) != 0) {
        answer_unreachable(connection, "the user of this connection is not known");
        return;
    }
    via_rights_user_of(connection->source.fd, &peer, &user);
    if (via_control_remote_send_request(host, &connection->call, (uint16_t)id, &user, text, bytes,
                                        &err) != 0) {
        answer_unreachable(connection, err.text);
    }
}

/* --- requests --------------------------------------------------------------------------------- */

static void handle_object(struct connection *connection, json_t *request)
{
    struct via_host *host = connection->host;
    const json_t *other = json_object_get(request, "host");
    if (other != NULL && !json_is_integer(other)) {
        answer_json(connection, via_control_error("\"host\" is not the id of a host"));
        return;
    }
    if (other != NULL && json_integer_value(other) != host->config.host) {
        request_other(connection, request, json_integer_value(other));
        return;
    }
    struct via_control_caller caller = {.host = host,
                                        .uid = connection->uid,
                                        .from = -1,
                                        .has_read_right = connection->has_read_right,
                                        .has_admin_right = connection->has_admin_right};
    json_t *answer = via_control_answer(&caller, request);
    if (caller.reloading) {
        connection->waiting = true; /* via_host_reloaded() sends the answer */
        host->reload(host->reload_ctx);
        return;
    }
    answer_json(connection, answer);
    connection->stopping |= caller.stopping;
    connection->closing |= caller.stopping;
}

static void handle_line(struct connection *connection, const char *line, size_t bytes)
{
    if (!connection->has_read_right) {
        const struct via_control_caller caller = {
            .host = connection->host, .uid = connection->uid, .from = -1};
        answer_json(connection, via_control_refusal(&caller, "control", "attach to"));
        connection->closing = true;
        return;
    }
    json_error_t why;
    json_t *request = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, &why);
    if (json_is_object(request)) {
        handle_object(connection, request);
    } else {
        answer_json(connection, via_control_error("malformed request: %s",
                                                  request != NULL ? "not an object" : why.text));
    }
    json_decref(request);
}

/* --- connections ------------------------------------------------------------------------------ */

/* Handles one request per turn. The control thread also sends the heartbeats, and a client may send
 * hundreds of requests at once, each of which takes milliseconds on a large host. */
static void handle_next_line(struct connection *connection)
{
    const char *end = find_line_end(connection);
    if (end != NULL) {
        size_t bytes = (size_t)(end - connection->in);
        handle_line(connection, connection->in, bytes);
        connection->in_bytes -= bytes + 1;
        memmove(connection->in, connection->in + bytes + 1, connection->in_bytes);
    } else if (connection->in_bytes == sizeof(connection->in)) {
        answer_json(connection,
                    via_control_error("request is longer than %zu bytes", sizeof(connection->in)));
        connection->closing = true;
    }
}

/* 0; -ECONNRESET: the client has closed the connection. */
static int receive(struct connection *connection)
{
    struct via_host_received received;
    via_host_receive(connection->source.fd, connection->in + connection->in_bytes,
                     sizeof(connection->in) - connection->in_bytes, &received);
    via_reaper_add_fds(connection->host->reaper, received.fds, received.fds_count);
    ssize_t bytes = received.bytes;
    if (bytes == 0 || (bytes < 0 && bytes != -EAGAIN && bytes != -EINTR)) {
        return -ECONNRESET;
    }
    connection->in_bytes += bytes > 0 ? (size_t)bytes : 0;
    return 0;
}

static void ready(struct via_host_source *source, uint32_t events)
{
    struct connection *connection = via_container_of(source, struct connection, source);
    struct via_host *host = connection->host;
    connection->deadline_ns = host->now_ns + VIA_CONTROL_SILENCE_NS;
    via_list_remove(&connection->link);
    via_list_push_back(&host->control.connections, &connection->link);
    if (is_waiting(connection)) {
        if ((events & (EPOLLHUP | EPOLLERR)) != 0) {
            close_connection(connection);
        }
        return;
    }
    if (connection->out_bytes == 0) {
        if (find_line_end(connection) == NULL && receive(connection) != 0) {
            close_connection(connection);
            return;
        }
        handle_next_line(connection);
    } else if ((events & (EPOLLHUP | EPOLLERR)) != 0) {
        close_connection(connection);
        return;
    }
    send_out(connection);
}

/* If the user has too many connections, closes the oldest of the user; if there are too many in
 * all, the oldest of all. */
static void end_connection(struct via_control_server *server, uid_t uid)
{
    struct connection *oldest = NULL;
    unsigned count = 0;
    via_list_foreach(it, &server->connections) {
        struct connection *connection = via_list_entry(it, struct connection, link);
        if (connection->uid == uid) {
            oldest = oldest != NULL ? oldest : connection;
            count++;
        }
    }
    if (count > VIA_CONTROL_CONNECTIONS_OF_USER_MAX && !via_rights_is_owner(uid)) {
        close_connection(oldest);
    } else if (server->connections_count > VIA_CONTROL_CONNECTIONS_MAX) {
        close_connection(via_list_entry(server->connections.next, struct connection, link));
    }
}

static void set_rights(struct connection *connection, const struct ucred *peer)
{
    const struct via_host_options *options = &connection->host->options;
    int fd = connection->source.fd;
    connection->uid = peer->uid;
    connection->has_admin_right = via_rights_has(&options->admin, fd, peer);
    connection->has_read_right =
        connection->has_admin_right || via_rights_has(&options->attach, fd, peer);
}

static void accepted(struct via_host *host, int fd, const struct ucred *peer)
{
    struct via_control_server *server = &host->control;
    struct connection *connection = calloc(1, sizeof(*connection));
    if (connection == NULL) {
        via_reaper_add_fds(host->reaper, &fd, 1);
        return;
    }
    connection->host = host;
    connection->source = (struct via_host_source){.ready = ready, .fd = fd};
    connection->deadline_ns = host->now_ns + VIA_CONTROL_SILENCE_NS;
    set_rights(connection, peer);
    via_list_push_back(&server->connections, &connection->link);
    server->connections_count++;
    if (via_host_source_add(host, &connection->source, EPOLLIN) != 0) {
        close_connection(connection);
    } else {
        end_connection(server, peer->uid);
    }
}

/* --- events of other parts of the host ------------------------------------------------------ */

static json_t *lines_of(const char *const *lines, unsigned lines_count)
{
    json_t *array = json_array();
    for (unsigned i = 0; i < lines_count; i++) {
        json_array_append_new(array, json_string(lines[i]));
    }
    return array;
}

/* The text for people: the first line, and the number of further lines. */
static json_t *failure_of(const char *const *lines, unsigned lines_count)
{
    const char *first = lines_count != 0 ? lines[0] : "nothing was changed";
    return lines_count > 1
               ? json_sprintf("%s (and %u lines more, see the log)", first, lines_count - 1)
               : json_string(first);
}

void via_host_reloaded(struct via_host *host, bool failed, const char *const *lines,
                       unsigned lines_count)
{
    via_list_foreach_safe(it, &host->control.connections) {
        struct connection *connection = via_list_entry(it, struct connection, link);
        if (!connection->taken) {
            continue; /* the file has changed since the reload read it */
        }
        connection->waiting = false;
        connection->taken = false;
        json_t *answer =
            failed ? json_pack("{s:b, s:o, s:o}", "ok", 0, "error", failure_of(lines, lines_count),
                               "report", lines_of(lines, lines_count))
                   : json_pack("{s:b, s:o}", "ok", 1, "report", lines_of(lines, lines_count));
        answer_json(connection, answer);
        send_out(connection);
    }
}

void via_host_reload_started(struct via_host *host)
{
    via_list_foreach(it, &host->control.connections) {
        struct connection *connection = via_list_entry(it, struct connection, link);
        connection->taken = connection->waiting;
    }
}

void via_host_set_reload(struct via_host *host, void (*begin)(void *ctx), void *ctx)
{
    host->reload = begin;
    host->reload_ctx = ctx;
}

void via_control_server_rights_changed(struct via_host *host)
{
    via_list_foreach(it, &host->control.connections) {
        struct connection *connection = via_list_entry(it, struct connection, link);
        struct ucred peer;
        socklen_t bytes = sizeof(peer);
        if (getsockopt(connection->source.fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0) {
            set_rights(connection, &peer);
        }
    }
}

int via_control_server_open(struct via_host *host, struct via_error *err)
{
    struct via_rundir_path path;
    via_list_init(&host->control.connections);
    int rc = via_rundir_control_path(host->rundir.text, host->config.host, &path, err);
    return rc != 0 ? rc
                   : via_host_listener_open(host, &host->control.listener, &path, SOCK_STREAM,
                                            accepted, err);
}

void via_control_server_close(struct via_host *host)
{
    struct via_control_server *server = &host->control;
    if (server->connections.next == NULL) {
        return;
    }
    via_host_listener_close(&server->listener);
    via_list_foreach_safe(it, &server->connections) {
        close_connection(via_list_entry(it, struct connection, link));
    }
}

uint64_t via_control_server_tick(struct via_host *host)
{
    uint64_t deadline_ns = via_host_listener_tick(&host->control.listener);
    via_list_foreach_safe(it, &host->control.connections) {
        struct connection *connection = via_list_entry(it, struct connection, link);
        if (host->now_ns < connection->deadline_ns) {
            /* the list is ordered by deadline */
            return via_min(deadline_ns, connection->deadline_ns);
        }
        close_connection(connection);
    }
    return deadline_ns;
}
