/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/control_server.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mutant.h"
#include "host/control.h"
#include "host/host_private.h"
#include "host/host_receive.h"

struct connection {
    struct via_host *host;
    struct via_host_source source;
    struct via_host_grave grave;
    struct via_list link;
    uint64_t deadline_ns;
    uid_t uid;
    bool may_look; /* status */
    bool may_administer;
    bool closing;  /* when all is sent */
    bool stopping; /* and then the host ends */
    size_t in_bytes;
    char *out; /* answers not yet taken: out_bytes, of which out_sent have gone */
    size_t out_bytes;
    size_t out_sent;
    char in[VIA_CONTROL_REQUEST_BYTES_MAX];
};

static void close_connection(struct connection *connection)
{
    struct via_host *host = connection->host;
    int fd = connection->source.fd;
    if (fd < 0) {
        return;
    }
    via_host_source_remove(host, &connection->source);
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

static void send_out(struct connection *connection)
{
    while (connection->out_sent < connection->out_bytes) {
        ssize_t sent =
            send(connection->source.fd, connection->out + connection->out_sent,
                 connection->out_bytes - connection->out_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            connection->out_sent += (size_t)sent;
        } else if (errno == EAGAIN) {
            /* Nothing more is read until this is taken. */
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
        via_host_source_modify(connection->host, &connection->source, EPOLLIN);
    }
}

/* Appends one line. */
static void append(struct connection *connection, const char *text, size_t bytes)
{
    char *out = connection->out_bytes + bytes + 1 <= VIA_CONTROL_ANSWER_BYTES_MAX
                    ? realloc(connection->out, connection->out_bytes + bytes + 1)
                    : NULL;
    if (out == NULL) {
        connection->closing = true; /* the caller sees the connection end without an answer */
        return;
    }
    memcpy(out + connection->out_bytes, text, bytes);
    out[connection->out_bytes + bytes] = '\n';
    connection->out = out;
    connection->out_bytes += bytes + 1;
}

/* answer: taken over; NULL = out of memory. */
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

static void answer_error(struct connection *connection, const char *format, ...) VIA_PRINTF(2, 3);

static void answer_error(struct connection *connection, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    /* What was asked may be no UTF-8; then the text can not be JSON either. */
    json_t *error = json_string(text);
    if (error == NULL) {
        error = json_string("malformed request");
    }
    answer_json(connection, json_pack("{s:b, s:o}", "ok", 0, "error", error));
}

static void answer_ok(struct connection *connection)
{
    answer_json(connection, json_pack("{s:b}", "ok", 1));
}

/* --- commands --------------------------------------------------------------------------------- */

static void do_status(struct connection *connection, json_t *request)
{
    (void)request;
    answer_json(connection, via_control_status(connection->host));
}

static void cut_or_mend(struct connection *connection, json_t *request, bool cut)
{
    struct via_host *host = connection->host;
    json_t *peer = json_object_get(request, "peer");
    json_t *link = json_object_get(request, "link");
    json_int_t id = json_integer_value(peer);
    if (!json_is_integer(peer) || id < 0 || id >= host->config.hosts_max) {
        answer_error(connection, "\"peer\" is not the id of a host (0 to %u)",
                     host->config.hosts_max - 1u);
        return;
    }
    if (link != NULL && (!json_is_integer(link) || json_integer_value(link) < 0 ||
                         json_integer_value(link) >= (json_int_t)VIA_PORTS_MAX)) {
        answer_error(connection, "\"link\" is not the number of a port (0 to %u)",
                     VIA_PORTS_MAX - 1);
        return;
    }
    int index = link != NULL ? (int)json_integer_value(link) : -1;
    if (via_host_cables_cut(host, (uint16_t)id, index, cut) < 0) {
        answer_error(connection, index < 0 ? "no link to host %d" : "no link to host %d at port %d",
                     (int)id, index);
        return;
    }
    answer_ok(connection);
}

static void do_cut(struct connection *connection, json_t *request)
{
    cut_or_mend(connection, request, true);
}

static void do_mend(struct connection *connection, json_t *request)
{
    cut_or_mend(connection, request, false);
}

static void do_stop(struct connection *connection, json_t *request)
{
    (void)request;
    via_log(VIA_LOG_INFO, "host %u: asked to stop by user %u", connection->host->config.host,
            (unsigned)connection->uid);
    answer_ok(connection);
    connection->stopping = true;
    connection->closing = true;
}

/* right: for people. */
static void refuse(struct connection *connection, const char *name, const char *right)
{
    struct via_host *host = connection->host;
    via_host_warn(host, VIA_HOST_WARNS_CONTROL, connection->uid,
                  "host %u: '%s' of user %u is refused: no right to %s", host->config.host, name,
                  (unsigned)connection->uid, right);
    answer_error(connection,
                 "permission denied: user %u has no right to %s host %u, which '%s' needs",
                 (unsigned)connection->uid, right, host->config.host, name);
}

static void handle_object(struct connection *connection, json_t *request)
{
    static const struct {
        const char *name;
        void (*run)(struct connection *connection, json_t *request);
        bool administers;
    } commands[] = {{"status", do_status, false},
                    {"cut", do_cut, true},
                    {"mend", do_mend, true},
                    {"stop", do_stop, true}};
    const char *name = json_string_value(json_object_get(request, "cmd"));
    if (name == NULL) {
        answer_error(connection, "no \"cmd\" in the request");
        return;
    }
    for (size_t i = 0; i < VIA_ARRAY_COUNT(commands); i++) {
        if (strcmp(name, commands[i].name) != 0) {
            continue;
        }
        if (commands[i].administers ? connection->may_administer : connection->may_look) {
            commands[i].run(connection, request);
        } else {
            refuse(connection, name, commands[i].administers ? "administer" : "attach to");
        }
        return;
    }
    answer_error(connection, "unknown command '%.40s'", name);
}

static void handle_line(struct connection *connection, const char *line, size_t bytes)
{
    if (!connection->may_look) {
        refuse(connection, "control", "attach to");
        connection->closing = true;
        return;
    }
    json_error_t why;
    json_t *request = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, &why);
    if (json_is_object(request)) {
        handle_object(connection, request);
    } else {
        answer_error(connection, "malformed request: %s",
                     request != NULL ? "not an object" : why.text);
    }
    json_decref(request);
}

/* --- connections ------------------------------------------------------------------------------ */

static void handle_lines(struct connection *connection)
{
    size_t done = 0;
    while (!connection->closing) {
        char *line = connection->in + done;
        char *end =
            memchr(line, '\n', connection->in_bytes - (VIA_MUTANT(CONTROL_LINES) ? 0 : done));
        if (end == NULL) {
            break;
        }
        handle_line(connection, line, (size_t)(end - line));
        done = (size_t)(end - connection->in) + 1;
    }
    connection->in_bytes -= done;
    memmove(connection->in, connection->in + done, connection->in_bytes);
    if (connection->in_bytes == sizeof(connection->in) && !connection->closing) {
        answer_error(connection, "request is longer than %zu bytes", sizeof(connection->in));
        connection->closing = true;
    }
}

static void ready(struct via_host_source *source, uint32_t events)
{
    struct connection *connection = via_container_of(source, struct connection, source);
    struct via_host *host = connection->host;
    connection->deadline_ns = host->now_ns + VIA_CONTROL_SILENCE_NS;
    via_list_remove(&connection->link);
    via_list_push_back(&host->control.connections, &connection->link);
    if (connection->out_bytes == 0) {
        struct via_host_received received;
        via_host_receive(source->fd, connection->in + connection->in_bytes,
                         sizeof(connection->in) - connection->in_bytes, &received);
        via_reaper_add_fds(host->reaper, received.fds, received.fds_count);
        ssize_t bytes = received.bytes;
        if (bytes == 0 || (bytes < 0 && bytes != -EAGAIN && bytes != -EINTR)) {
            close_connection(connection);
            return;
        }
        if (bytes > 0) {
            connection->in_bytes += (size_t)bytes;
            handle_lines(connection);
        }
    } else if ((events & (EPOLLHUP | EPOLLERR)) != 0) {
        close_connection(connection);
        return;
    }
    send_out(connection);
}

/* There are too many: the oldest of the user ends, or the oldest of all. */
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
    connection->uid = peer->uid;
    connection->may_administer = via_rights_has(&host->options.admin, fd, peer);
    connection->may_look =
        connection->may_administer || via_rights_has(&host->options.attach, fd, peer);
    via_list_push_back(&server->connections, &connection->link);
    server->connections_count++;
    if (via_host_source_add(host, &connection->source, EPOLLIN) != 0) {
        close_connection(connection);
    } else {
        end_connection(server, peer->uid);
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
            return via_min(deadline_ns, connection->deadline_ns); /* the list is in order */
        }
        close_connection(connection);
    }
    return deadline_ns;
}
