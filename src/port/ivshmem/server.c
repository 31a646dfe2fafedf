/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "port/ivshmem/server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include <linux/sockios.h>

#include "base/log.h"
#include "port/emu/cable.h"
#include "port/emu/memory.h"
#include "port/ivshmem/device.h"
#include "port/ivshmem/protocol.h"

#define EVENTS_PER_TURN 64
#define LISTENER UINT32_MAX
#define TIMER (UINT32_MAX - 1)
#define GREETING_COUNT 3u
#define TICK_MS 250u
#define STALL_MS 60000u
/*
 * Descriptors in messages that no client has received count against RLIMIT_NOFILE of the server's
 * user (linux, net/core/scm.c and unix(7), ETOOMANYREFS), so a client that reads nothing could
 * exhaust the limit for messages to other clients. The kernel raises the value 1 to its minimum,
 * SOCK_MIN_SNDBUF, which has room for about six messages.
 */
#define SEND_BYTES 1

/* Which messages about one client have been sent to another one, or to itself. */
struct announced {
    uint32_t life; /* 0: none, or the message that it has left */
    uint32_t vectors_count;
};

/* A place for a client; its number is the client's id. */
struct client {
    int fd; /* -1: free */
    int vector[VIA_IVSHMEM_VECTORS_MAX];
    uint32_t life;           /* unique among all clients of this server's life */
    bool has_left;           /* disconnected, with unread messages: the place stays occupied */
    int waits;               /* 0, or negative errno: why messages to it wait */
    unsigned ticks_count;    /* since the last message that the server could send */
    unsigned greeting_count; /* messages sent before the vectors */
    struct announced announced[VIA_IVSHMEM_CLIENTS_MAX];
};

struct via_ivshmem_server {
    char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
    int listen_fd;
    int epoll_fd;
    int memory_fd;
    int timer_fd; /* ticks while messages to a client wait */
    int spare_fd; /* closed if descriptors run out, to accept and refuse one connection */
    unsigned vectors;
    unsigned clients_max;
    unsigned clients_count;
    unsigned stall_ms;
    bool ticks;
    uint32_t id_next; /* ids are reused as late as possible */
    uint32_t lives_count;
    struct client clients[VIA_IVSHMEM_CLIENTS_MAX];
};

static bool is_peer(const struct client *client)
{
    return client->fd >= 0 && !client->has_left;
}

/* --- messages --- */

static int send_message(struct client *to, int64_t number, int fd)
{
    int rc = via_ivshmem_message_send(to->fd, number, fd);
    if (rc == 0) {
        to->ticks_count = 0;
    }
    return rc;
}

static int send_greeting(const struct via_ivshmem_server *server, struct client *to)
{
    const int64_t number[GREETING_COUNT] = {VIA_IVSHMEM_PROTOCOL_VERSION, to - server->clients,
                                            VIA_IVSHMEM_ID_MEMORY};
    int rc = 0;
    while (rc == 0 && to->greeting_count < GREETING_COUNT) {
        bool has_memory = number[to->greeting_count] == VIA_IVSHMEM_ID_MEMORY;
        rc = send_message(to, number[to->greeting_count], has_memory ? server->memory_fd : -1);
        to->greeting_count += rc == 0 ? 1 : 0;
    }
    return rc;
}

/* Sends `to` those messages about one client that have not been sent yet. */
static int send_news(const struct via_ivshmem_server *server, struct client *to,
                     const struct client *of)
{
    int64_t id = of - server->clients;
    struct announced *announced = &to->announced[id];
    int rc = 0;
    if (announced->life != 0 && !(is_peer(of) && announced->life == of->life)) {
        rc = send_message(to, id, -1);
        if (rc == 0) {
            *announced = (struct announced){0};
        }
    }
    while (rc == 0 && is_peer(of) && announced->vectors_count < server->vectors) {
        rc = send_message(to, id, of->vector[announced->vectors_count]);
        if (rc == 0) {
            announced->life = of->life;
            announced->vectors_count++;
        }
    }
    return rc;
}

static int send_all_news(const struct via_ivshmem_server *server, struct client *to)
{
    int rc = send_greeting(server, to);
    unsigned own = (unsigned)(to - server->clients);
    for (unsigned i = 1; i <= server->clients_max && rc == 0; i++) { /* own vectors last */
        rc = send_news(server, to, &server->clients[(own + i) % server->clients_max]);
    }
    return rc;
}

static void set_events(const struct via_ivshmem_server *server, const struct client *client,
                       bool wants_room)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | (wants_room ? EPOLLOUT : 0u),
                                .data.u32 = (uint32_t)(client - server->clients)};
    (void)epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, client->fd, &event);
}

static void set_ticks(struct via_ivshmem_server *server, bool on)
{
    struct timespec period = {.tv_nsec = on ? TICK_MS * 1000000L : 0};
    struct itimerspec spec = {.it_interval = period, .it_value = period};
    if (server->ticks != on && timerfd_settime(server->timer_fd, 0, &spec, NULL) == 0) {
        server->ticks = on;
    }
}

/* Sends a client its missing messages, as many as fit its socket. */
static void update(struct via_ivshmem_server *server, struct client *to)
{
    int before = to->waits;
    to->waits = send_all_news(server, to);
    if ((before == -EAGAIN) != (to->waits == -EAGAIN)) {
        set_events(server, to, to->waits == -EAGAIN);
    }
    if (to->waits != 0) {
        set_ticks(server, true);
    }
    if (to->waits == -ETOOMANYREFS && before != -ETOOMANYREFS) {
        via_log(VIA_LOG_ERROR,
                "%s: messages to client %ld wait: this user has as many descriptors in unread "
                "messages as RLIMIT_NOFILE allows",
                server->path, (long)(to - server->clients));
    }
}

static void update_all(struct via_ivshmem_server *server)
{
    for (unsigned i = 0; i < server->clients_max; i++) {
        if (is_peer(&server->clients[i])) {
            update(server, &server->clients[i]);
        }
    }
}

/* --- clients --- */

static void close_vectors(const struct via_ivshmem_server *server, struct client *client)
{
    for (unsigned i = 0; i < server->vectors; i++) {
        if (client->vector[i] >= 0) {
            close(client->vector[i]);
            client->vector[i] = -1;
        }
    }
}

static void free_client(struct via_ivshmem_server *server, struct client *client)
{
    if (is_peer(client)) {
        server->clients_count--;
    }
    close_vectors(server, client);
    if (client->fd >= 0) {
        close(client->fd);
    }
    client->fd = -1;
    client->has_left = false;
}

static bool has_unread(const struct client *client)
{
    int bytes = 0; /* memory that unread messages occupy */
    return ioctl(client->fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

/*
 * Disconnects a client. Its place stays occupied until the client has received or discarded all
 * messages; otherwise a client could accumulate unread messages by reconnecting.
 */
static void hang_up(struct via_ivshmem_server *server, struct client *client)
{
    if (has_unread(client)) {
        close_vectors(server, client);
        (void)epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, client->fd, NULL);
        (void)shutdown(client->fd, SHUT_WR);
        client->has_left = true;
        server->clients_count--;
        set_ticks(server, true);
    } else {
        free_client(server, client);
    }
    update_all(server);
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
    *client = (struct client){.fd = fd, .life = ++server->lives_count};
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
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP,
                                .data.u32 = (uint32_t)(client - server->clients)};
    return setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) == 0 &&
                   epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0
               ? 0
               : -errno;
}

/* Accepts and closes one connection without a free descriptor. If it stayed in the backlog, it
 * would wake the server again at once. */
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
        via_log(VIA_LOG_ERROR,
                "%s: a client is refused: there are %u, and %u that left and have unread messages",
                server->path, server->clients_count, server->clients_max - server->clients_count);
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
    update_all(server);
}

/* Clients send no messages: the server drops received bytes, and handles end of file. */
static void check_client(struct via_ivshmem_server *server, struct client *client)
{
    char bytes[256];
    if (!is_peer(client)) {
        return;
    }
    ssize_t count = recv(client->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) {
        via_log(VIA_LOG_INFO, "%s: client %ld has left", server->path,
                (long)(client - server->clients));
        hang_up(server, client);
    } else if (client->waits == -EAGAIN) {
        update(server, client);
    }
}

/* Frees the place of a disconnected client when it has no unread messages. Disconnects a client
 * that reads no messages, or has shut down its receiving direction, for stall_ms. */
static void tick_client(struct via_ivshmem_server *server, struct client *client)
{
    if (client->has_left && !has_unread(client)) {
        free_client(server, client);
    } else if (is_peer(client) && client->waits != 0) {
        /* The client is not to blame for -ETOOMANYREFS: descriptors in messages to other
         * clients. */
        client->ticks_count += client->waits != -ETOOMANYREFS ? 1 : 0;
        update(server, client);
        if (client->waits != 0 && client->ticks_count * TICK_MS >= server->stall_ms) {
            via_log(VIA_LOG_ERROR, "%s: client %ld has taken no message for %u ms: hung up",
                    server->path, (long)(client - server->clients), server->stall_ms);
            hang_up(server, client);
        }
    }
}

static void tick(struct via_ivshmem_server *server)
{
    uint64_t count;
    bool is_needed = false;
    (void)!read(server->timer_fd, &count, sizeof(count));
    for (unsigned i = 0; i < server->clients_max; i++) {
        tick_client(server, &server->clients[i]);
    }
    for (unsigned i = 0; i < server->clients_max; i++) {
        struct client *client = &server->clients[i];
        is_needed |= client->fd >= 0 && (client->has_left || client->waits != 0);
    }
    set_ticks(server, is_needed);
}

void via_ivshmem_server_service(struct via_ivshmem_server *server)
{
    struct epoll_event events[EVENTS_PER_TURN];
    bool ticks = false, listens = false;
    int count = epoll_wait(server->epoll_fd, events, EVENTS_PER_TURN, 0);
    for (int i = 0; i < count; i++) {
        uint32_t id = events[i].data.u32;
        ticks |= id == TIMER;
        listens |= id == LISTENER;
        if (id != TIMER && id != LISTENER) {
            check_client(server, &server->clients[id]);
        }
    }
    if (ticks) {
        tick(server);
    }
    /* After the clients' events: a new client in a place that was just freed must not get an event
     * of the old one. */
    if (listens) {
        accept_one(server);
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
    server->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (server->timer_fd < 0) {
        return via_error_set(err, -errno, "timerfd: %s", strerror(errno));
    }
    mode_t mode = options->mode != 0 ? options->mode : 0600;
    rc = via_emu_listen(server->path, SOCK_STREAM, mode, &server->listen_fd, err);
    if (rc != 0) {
        return rc;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = LISTENER};
    struct epoll_event timer = {.events = EPOLLIN, .data.u32 = TIMER};
    return epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, server->listen_fd, &event) == 0 &&
                   epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, server->timer_fd, &timer) == 0
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
        server->listen_fd = server->epoll_fd = server->memory_fd = -1;
        server->timer_fd = server->spare_fd = -1;
        server->stall_ms = options->stall_ms != 0 ? options->stall_ms : STALL_MS;
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
        /* Before the descriptor is closed: while the name exists, a process listens behind it. */
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
    if (server->timer_fd >= 0) {
        close(server->timer_fd);
    }
    if (server->spare_fd >= 0) {
        close(server->spare_fd);
    }
    free(server);
}
