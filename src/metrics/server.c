/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "metrics/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "metrics/clients.h"
#include "metrics/library.h"

/* libmicrohttpd accepts more than clients.h keeps, because it closes a connection only after its
 * thread has served those that are ready. */
#define CONNECTIONS_MAX (2 * VIA_METRICS_CLIENTS_MAX)
#define CONNECTION_SECONDS 10u
/* Memory of each connection for the head of a request and of its answer. */
#define CONNECTION_BYTES (16u * 1024)
#define BACKLOG 16

struct via_metrics_server {
    struct via_metrics_library library;
    struct MHD_Daemon *daemon;
    via_metrics_collect *collect;
    void *ctx;
    struct via_metrics_clients clients;
};

static const char index_page[] =
    "<!DOCTYPE html><title>Viaduct</title><p>Viaduct: <a href=\"/metrics\">metrics</a></p>\n";

static bool parse_port(const char *text, in_port_t *ret_port)
{
    char *end;
    errno = 0;
    unsigned long port = strtoul(text, &end, 10);
    *ret_port = htons((uint16_t)port);
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && port >= 1 &&
           port <= 65535;
}

int via_metrics_parse_address(const char *text, struct sockaddr_storage *ret_address,
                              struct via_error *err)
{
    char host[INET6_ADDRSTRLEN + 2];
    const char *colon = strrchr(text, ':');
    size_t bytes = colon != NULL ? (size_t)(colon - text) : 0;
    struct sockaddr_in *v4 = (struct sockaddr_in *)ret_address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret_address;
    memset(ret_address, 0, sizeof(*ret_address));
    if (bytes == 0 || bytes >= sizeof(host)) {
        return via_error_set(err, -EINVAL,
                             "'%.80s': ADDRESS:PORT is expected, such as 127.0.0.1:9321", text);
    }
    memcpy(host, text, bytes);
    host[bytes] = '\0';
    bool is_v6 = host[0] == '[' && host[bytes - 1] == ']' && bytes > 2;
    if (is_v6) {
        host[bytes - 1] = '\0';
    }
    bool good = is_v6 ? inet_pton(AF_INET6, host + 1, &v6->sin6_addr) == 1
                      : inet_pton(AF_INET, host, &v4->sin_addr) == 1;
    if (!good) {
        return via_error_set(
            err, -EINVAL,
            "'%.80s': an IPv4 address or [an IPv6 address] is expected before the port", text);
    }
    ret_address->ss_family = is_v6 ? AF_INET6 : AF_INET;
    if (!parse_port(colon + 1, is_v6 ? &v6->sin6_port : &v4->sin_port)) {
        return via_error_set(err, -EINVAL, "'%.80s': the port is 1 to 65535", text);
    }
    return 0;
}

/* --- connections, on the server's thread ------------------------------------------------------ */

/* libmicrohttpd calls it when a connection begins and ends. *of_client belongs to the connection.
 * Without memory for its entry a connection is not among those that are ended for others. */
static void notify(void *of_server, struct MHD_Connection *connection, void **of_client,
                   enum MHD_ConnectionNotificationCode code)
{
    struct via_metrics_server *server = of_server;
    struct via_metrics_client *client = *of_client;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (client != NULL) {
            via_list_remove(&client->link);
            free(client);
        }
        return;
    }
    const union MHD_ConnectionInfo *fd =
        server->library.get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    const union MHD_ConnectionInfo *address =
        server->library.get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    client = fd != NULL && address != NULL ? calloc(1, sizeof(*client)) : NULL;
    *of_client = client;
    if (client != NULL) {
        via_metrics_clients_add(&server->clients, client, fd->connect_fd, address->client_addr);
    }
}

/* --- requests, on the server's thread -------------------------------------------------------- */

static enum MHD_Result send_text(const struct via_metrics_library *library,
                                 struct MHD_Connection *connection, unsigned code, const char *type,
                                 const char *text, size_t bytes, enum MHD_ResponseMemoryMode mode)
{
    struct MHD_Response *response =
        library->create_response_from_buffer(bytes, (void *)(uintptr_t)text, mode);
    if (response == NULL) {
        if (mode == MHD_RESPMEM_MUST_FREE) {
            free((void *)(uintptr_t)text);
        }
        return MHD_NO;
    }
    library->add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED) {
        library->add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    }
    enum MHD_Result result = library->queue_response(connection, code, response);
    library->destroy_response(response);
    return result;
}

static enum MHD_Result send_constant(const struct via_metrics_library *library,
                                     struct MHD_Connection *connection, unsigned code,
                                     const char *type, const char *text)
{
    return send_text(library, connection, code, type, text, strlen(text), MHD_RESPMEM_PERSISTENT);
}

static enum MHD_Result send_metrics(struct via_metrics_server *server,
                                    struct MHD_Connection *connection)
{
    char *text = NULL;
    size_t bytes = 0;
    if (server->collect(server->ctx, &text, &bytes) != 0) {
        return send_constant(&server->library, connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                             "text/plain", "the status of the host is not available\n");
    }
    return send_text(&server->library, connection, MHD_HTTP_OK,
                     "text/plain; version=0.0.4; charset=utf-8", text, bytes,
                     MHD_RESPMEM_MUST_FREE);
}

static enum MHD_Result answer(void *ctx, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_bytes, void **request)
{
    struct via_metrics_server *server = ctx;
    static char seen; /* marks a request whose head has arrived; only its address is used */
    (void)version;
    (void)upload;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        *upload_bytes = 0;
        return send_constant(&server->library, connection, MHD_HTTP_METHOD_NOT_ALLOWED,
                             "text/plain", "GET and HEAD are served\n");
    }
    if (*request == NULL) {
        *request = &seen;
        return MHD_YES;
    }
    if (strcmp(url, "/metrics") == 0) {
        return send_metrics(server, connection);
    }
    if (strcmp(url, "/") == 0) {
        return send_constant(&server->library, connection, MHD_HTTP_OK, "text/html; charset=utf-8",
                             index_page);
    }
    return send_constant(&server->library, connection, MHD_HTTP_NOT_FOUND, "text/plain",
                         "see /metrics\n");
}

/* --- opening --------------------------------------------------------------------------------- */

/* The server listens itself, because MHD does not report why it could not listen. */
static int listen_at(const char *text, int *ret_fd, struct via_error *err)
{
    struct sockaddr_storage address;
    const int on = 1;
    int rc = via_metrics_parse_address(text, &address, err);
    if (rc != 0) {
        return rc;
    }
    socklen_t bytes =
        address.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return via_error_set(err, -errno, "metrics at %.80s: socket: %s", text, strerror(errno));
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (address.ss_family == AF_INET6) {
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    }
    if (bind(fd, (const struct sockaddr *)&address, bytes) != 0 || listen(fd, BACKLOG) != 0) {
        rc = via_error_set(err, -errno, "metrics at %.80s: listen: %s", text, strerror(errno));
        close(fd);
        return rc;
    }
    *ret_fd = fd;
    return 0;
}

int via_metrics_open(const char *address, via_metrics_collect *collect, void *ctx,
                     struct via_metrics_server **ret_server, struct via_error *err)
{
    int fd = -1;
    int rc = listen_at(address, &fd, err);
    if (rc != 0) {
        return rc;
    }
    struct via_metrics_server *server = calloc(1, sizeof(*server));
    if (server == NULL) {
        close(fd);
        return via_error_set(err, -ENOMEM, "metrics at %.80s: %s", address, strerror(ENOMEM));
    }
    rc = via_metrics_library_load(&server->library, err);
    if (rc != 0) {
        close(fd);
        free(server);
        return rc;
    }
    server->collect = collect;
    server->ctx = ctx;
    via_metrics_clients_init(&server->clients);
    server->daemon = server->library.start_daemon(
        MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, answer, server,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX,
        MHD_OPTION_NOTIFY_CONNECTION, notify, server, MHD_OPTION_CONNECTION_TIMEOUT,
        CONNECTION_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES,
        MHD_OPTION_END);
    if (server->daemon == NULL) {
        close(fd);
        free(server);
        return via_error_set(err, -EAGAIN, "metrics at %.80s: start the server's thread", address);
    }
    *ret_server = server;
    return 0;
}

void via_metrics_close(struct via_metrics_server *server)
{
    if (server != NULL) {
        server->library.stop_daemon(server->daemon);
        free(server);
    }
}
