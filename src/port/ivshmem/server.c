/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "port/ivshmem/server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "port/emu/cable.h"
#include "port/emu/memory.h"
#include "port/ivshmem/device.h"
#include "port/ivshmem/protocol.h"

#define EVENTS_PER_TURN 64
#define LISTENER UINT32_MAX
/* Room for the greeting of a client among as many others as there may be. */
#define SEND_BYTES (1 << 20)

/* A place for a client; its number is the client's id. */
struct client {
    int fd; /* -1: free */
    int vector[VIA_IVSHMEM_VECTORS_MAX];
    bool failed; /* to be hung up on */
};

struct via_ivshmem_server {
    char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
    int listen_fd;
    int epoll_fd;
    int memory_fd;
    int spare_fd; /* closed when descriptors run out: one connection can be taken and refused */
    unsigned vectors;
    unsigned clients_max;
    unsigned clients_count;
    uint32_t id_next; /* ids are used again as late as possible */
    struct client clients[VIA_IVSHMEM_CLIENTS_MAX];
};

/* --- messages --- */

static void send_message(struct client *to, int64_t number, int fd)
{
    if (!to->failed && via_ivshmem_message_send(to->fd, number, fd) != 0) {
        to->failed = true;
    }
}

static void send_vectors(const struct via_ivshmem_server *server, struct client *to,
                         const struct client *of)
{
    for (unsigned i = 0; i < server->vectors; i++) {
        send_message(to, of - server->clients, of->vector[i]);
    }
}

static void greet(struct via_ivshmem_server *server, struct client *client)
{
    send_message(client, VIA_IVSHMEM_PROTOCOL_VERSION, -1);
    send_message(client, client - server->clients, -1);
    send_message(client, VIA_IVSHMEM_ID_MEMORY, server->memory_fd);
    for (unsigned i = 0; i < server->clients_max; i++) {
        struct client *other = &server->clients[i];
        if (other->fd >= 0 && other != client) {
            send_vectors(server, client, other);
            send_vectors(server, other, client);
        }
    }
    send_vectors(server, client, client);
}

/* --- clients --- */

static void free_client(struct via_ivshmem_server *server, struct client *client)
{
    for (unsigned i = 0; i < server->vectors; i++) {
        if (client->vector[i] >= 0) {
            close(client->vector[i]);
        }
    }
    if (client->fd >= 0) {
        close(client->fd);
        server->clients_count--;
    }
    client->fd = -1;
}

static void hang_up(struct via_ivshmem_server *server, struct client *client)
{
    long id = client - server->clients;
    via_log(VIA_LOG_INFO, "%s: client %ld %s", server->path, id,
            client->failed ? "does not take its messages: hung up" : "has left");
    free_client(server, client);
    for (unsigned i = 0; i < server->clients_max; i++) {
        if (server->clients[i].fd >= 0) {
            send_message(&server->clients[i], id, -1);
        }
    }
}

/* A client may have failed while the server sent the others a message about another one. Each round
 * hangs up on one at least, so this ends. */
static void hang_up_failed(struct via_ivshmem_server *server)
{
    for (bool again = true; again;) {
        again = false;
        for (unsigned i = 0; i < server->clients_max; i++) {
            if (server->clients[i].fd >= 0 && server->clients[i].failed) {
                hang_up(server, &server->clients[i]);
                again = true;
            }
        }
    }
}

static struct client *find_place(struct via_ivshmem_server *server)
{
    for (unsigned i = 0; i < server->clients_max; i++) {
        uint32_t id = (server->id_next + i) % server->clients_max;
        if (server->clients[id].fd < 0) {
            server->id_next = id + 1;
            return &server->clients[id];
        }
    }
    return NULL;
}

static int make_client(struct via_ivshmem_server *server, struct client *client, int fd)
{
    client->fd = fd;
    client->failed = false;
    server->clients_count++;
    for (unsigned i = 0; i < server->vectors; i++) {
        client->vector[i] = -1;
    }
    for (unsigned i = 0; i < server->vectors; i++) {
        client->vector[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (client->vector[i] < 0) {
            return -errno;
        }
    }
    int bytes = SEND_BYTES;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP,
                                .data.u32 = (uint32_t)(client - server->clients)};
    return epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

/* A connection that stays in the queue would wake the server again at once, for ever. */
static void refuse_one(struct via_ivshmem_server *server)
{
    via_log(VIA_LOG_ERROR, "%s: a client is refused: %s", server->path, strerror(errno));
    if (server->spare_fd >= 0) {
        close(server->spare_fd);
    }
    int fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) {
        close(fd);
    }
    server->spare_fd = eventfd(0, EFD_CLOEXEC);
}

static void accept_one(struct via_ivshmem_server *server)
{
    int fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
        refuse_one(server);
        return;
    }
    if (fd < 0) {
        if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR) {
            via_log(VIA_LOG_ERROR, "%s: accept: %s", server->path, strerror(errno));
        }
        return;
    }
    struct client *client = find_place(server);
    if (client == NULL) {
        via_log(VIA_LOG_ERROR, "%s: a client is refused: there are %u already", server->path,
                server->clients_max);
        close(fd);
        return;
    }
    int rc = make_client(server, client, fd);
    if (rc != 0) {
        via_log(VIA_LOG_ERROR, "%s: a client is refused: %s", server->path, strerror(-rc));
        free_client(server, client);
        return;
    }
    via_log(VIA_LOG_INFO, "%s: client %ld has joined", server->path,
            (long)(client - server->clients));
    greet(server, client);
    hang_up_failed(server);
}

/* Clients say nothing: whatever can be read is the end, or to be dropped. */
static void check_client(struct via_ivshmem_server *server, struct client *client)
{
    char bytes[256];
    ssize_t count = client->fd >= 0 ? recv(client->fd, bytes, sizeof(bytes), MSG_DONTWAIT) : 1;
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) {
        hang_up(server, client);
        hang_up_failed(server);
    }
}

void via_ivshmem_server_service(struct via_ivshmem_server *server)
{
    struct epoll_event events[EVENTS_PER_TURN];
    int count = epoll_wait(server->epoll_fd, events, EVENTS_PER_TURN, 0);
    for (int i = 0; i < count; i++) {
        if (events[i].data.u32 != LISTENER) {
            check_client(server, &server->clients[events[i].data.u32]);
        }
    }
    /* After the hang-ups: a place that has just become free does not meet an event of before. */
    for (int i = 0; i < count; i++) {
        if (events[i].data.u32 == LISTENER) {
            accept_one(server);
        }
    }
}

/* --- open and close --- */

static int check_options(const struct via_ivshmem_server_options *options, struct via_error *err)
{
    uint64_t bytes = options->memory_bytes;
    if (bytes < 4096 || (bytes & (bytes - 1)) != 0 || bytes > VIA_IVSHMEM_MEMORY_BYTES_MAX) {
        return via_error_set(err, -EINVAL,
                             "memory of %llu bytes: not a power of two between 4096 and 2^40",
                             (unsigned long long)bytes);
    }
    if (options->vectors == 0 || options->vectors > VIA_IVSHMEM_VECTORS_MAX) {
        return via_error_set(err, -EINVAL, "%u vectors: not 1 to %u", options->vectors,
                             VIA_IVSHMEM_VECTORS_MAX);
    }
    if (options->clients_max == 0 || options->clients_max > VIA_IVSHMEM_CLIENTS_MAX) {
        return via_error_set(err, -EINVAL, "%u clients: not 1 to %u", options->clients_max,
                             VIA_IVSHMEM_CLIENTS_MAX);
    }
    if (strlen(options->path) >= sizeof(((struct via_ivshmem_server *)NULL)->path)) {
        return via_error_set(err, -ENAMETOOLONG, "longer than a socket address");
    }
    return 0;
}

static int open_all(struct via_ivshmem_server *server,
                    const struct via_ivshmem_server_options *options, struct via_error *err)
{
    int rc = via_emu_memfd_new("ivshmem", options->memory_bytes, &server->memory_fd);
    if (rc != 0) {
        return via_error_set(err, rc, "memory of %llu bytes: %s",
                             (unsigned long long)options->memory_bytes, strerror(-rc));
    }
    server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (server->epoll_fd < 0) {
        return via_error_set(err, -errno, "epoll: %s", strerror(errno));
    }
    server->spare_fd = eventfd(0, EFD_CLOEXEC);
    if (server->spare_fd < 0) {
        return via_error_set(err, -errno, "eventfd: %s", strerror(errno));
    }
    mode_t mode = options->mode != 0 ? options->mode : 0600;
    rc = via_emu_listen(server->path, SOCK_STREAM, mode, &server->listen_fd, err);
    if (rc != 0) {
        return rc;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = LISTENER};
    return epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, server->listen_fd, &event) == 0
               ? 0
               : via_error_set(err, -errno, "epoll: %s", strerror(errno));
}

int via_ivshmem_server_open(const struct via_ivshmem_server_options *options,
                            struct via_ivshmem_server **ret_server, struct via_error *err)
{
    int rc = check_options(options, err);
    struct via_ivshmem_server *server = rc == 0 ? calloc(1, sizeof(*server)) : NULL;
    if (rc == 0 && server == NULL) {
        rc = via_error_set(err, -ENOMEM, "%s", strerror(ENOMEM));
    }
    if (rc == 0) {
        server->vectors = options->vectors;
        server->clients_max = options->clients_max;
        server->listen_fd = server->epoll_fd = server->memory_fd = server->spare_fd = -1;
        strcpy(server->path, options->path);
        for (unsigned i = 0; i < VIA_IVSHMEM_CLIENTS_MAX; i++) {
            server->clients[i].fd = -1;
        }
        rc = open_all(server, options, err);
    }
    if (rc != 0) {
        via_error_prefix(err, "ivshmem server on %s: ", options->path);
        via_ivshmem_server_close(server);
        return rc;
    }
    *ret_server = server;
    return 0;
}

int via_ivshmem_server_fd(const struct via_ivshmem_server *server)
{
    return server->epoll_fd;
}

unsigned via_ivshmem_server_clients(const struct via_ivshmem_server *server)
{
    return server->clients_count;
}

void via_ivshmem_server_close(struct via_ivshmem_server *server)
{
    if (server == NULL) {
        return;
    }
    if (server->listen_fd >= 0) {
        /* Before the descriptor: as long as the name exists, a process listens behind it. */
        unlink(server->path);
        close(server->listen_fd);
    }
    for (unsigned i = 0; i < server->clients_max; i++) {
        if (server->clients[i].fd >= 0) {
            free_client(server, &server->clients[i]);
        }
    }
    if (server->epoll_fd >= 0) {
        close(server->epoll_fd);
    }
    if (server->memory_fd >= 0) {
        close(server->memory_fd);
    }
    if (server->spare_fd >= 0) {
        close(server->spare_fd);
    }
    free(server);
}
