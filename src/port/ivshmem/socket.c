/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* An ivshmem device without a virtual machine: this process is a client of the ivshmem server. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "port/ivshmem/device.h"
#include "port/ivshmem/protocol.h"
#include "vfio/event.h"

#define RETRY_NS_MIN (10 * VIA_MSEC_NS)
#define RETRY_NS_MAX (500 * VIA_MSEC_NS)
#define GREETING_NS (2 * VIA_SEC_NS)
#define MESSAGES_PER_TURN 256u
#define PEERS_MAX 256u

struct vectors {
    unsigned count;
    int fd[VIA_IVSHMEM_VECTORS_MAX];
};

struct peer {
    struct peer *next;
    uint32_t id;
    struct vectors vectors;
};

struct socket_device {
    struct via_ivshmem_device base;
    struct sockaddr_un address;
    int epoll_fd;
    int fd; /* to the server; -1 */
    struct via_ivshmem_message message;
    int64_t expected; /* next message of the greeting: 0 version, 1 id, 2 memory, 3 complete */
    bool lost;        /* was ready; until drop() */
    uint64_t deadline_ns;
    uint64_t retry_ns;
    struct vectors own;   /* interrupts of this process */
    struct vectors aimed; /* dup()s of the vectors of the peer that ring() interrupts */
    struct peer *peers;
    unsigned peers_count;
};

static struct socket_device *of(const struct via_ivshmem_device *device)
{
    return via_container_of((uintptr_t)device, struct socket_device, base);
}

static void set_error(struct socket_device *self, const char *format, ...) VIA_PRINTF(2, 3);
static void set_error(struct socket_device *self, const char *format, ...)
{
    va_list args;
    int prefix =
        snprintf(self->base.error, sizeof(self->base.error), "%.100s: ", self->address.sun_path);
    va_start(args, format);
    vsnprintf(self->base.error + prefix, sizeof(self->base.error) - (size_t)prefix, format, args);
    va_end(args);
}

/* --- peers --- */

static void close_vectors(struct vectors *vectors)
{
    for (unsigned i = 0; i < vectors->count; i++) {
        close(vectors->fd[i]);
    }
    vectors->count = 0;
}

static struct peer **find(struct socket_device *self, uint32_t id)
{
    struct peer **at = &self->peers;
    while (*at != NULL && (*at)->id != id) {
        at = &(*at)->next;
    }
    return at;
}

static void forget(struct socket_device *self, struct peer **at)
{
    struct peer *peer = *at;
    *at = peer->next;
    close_vectors(&peer->vectors);
    free(peer);
    self->peers_count--;
}

/* Takes ownership of fd. 0 or -EPROTO. */
static int add_vector(struct socket_device *self, struct vectors *vectors, int fd)
{
    /* All holders of the eventfd share O_NONBLOCK; a foreign server may not have set it. */
    int flags = fcntl(fd, F_GETFL);
    if (vectors->count == VIA_IVSHMEM_VECTORS_MAX || !via_event_is_eventfd(fd) || flags < 0 ||
        fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
        set_error(self, "the server passed a vector that is no eventfd, or more than %u vectors",
                  VIA_IVSHMEM_VECTORS_MAX);
        close(fd);
        return -EPROTO;
    }
    vectors->fd[vectors->count++] = fd;
    return 0;
}

/* Takes ownership of fd. 0 or -EPROTO. */
static int add_peer_vector(struct socket_device *self, uint32_t id, int fd)
{
    struct peer **at = find(self, id);
    if (*at == NULL && self->peers_count < PEERS_MAX) {
        *at = calloc(1, sizeof(**at));
        if (*at != NULL) {
            (*at)->id = id;
            self->peers_count++;
        }
    }
    if (*at == NULL) {
        close(fd); /* the table is full: the vector of a peer without an entry is dropped */
        return 0;
    }
    if ((*at)->vectors.count != 0) {
        close(fd); /* only the first vector is used; so a server can not exhaust the descriptors */
        return 0;
    }
    return add_vector(self, &(*at)->vectors, fd);
}

static int add_own_vector(struct socket_device *self, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 1 + self->own.count};
    if (add_vector(self, &self->own, fd) != 0) {
        return -EPROTO;
    }
    if (epoll_ctl(self->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        set_error(self, "vector %u: epoll: %s", self->own.count - 1, strerror(errno));
        return -EPROTO;
    }
    return 0;
}

/* --- connection --- */

static void retry_later(struct socket_device *self, uint64_t now_ns)
{
    self->retry_ns = self->retry_ns == 0 ? RETRY_NS_MIN : via_min(self->retry_ns * 2, RETRY_NS_MAX);
    self->deadline_ns = now_ns + self->retry_ns;
}

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

static void disconnect(struct socket_device *self, uint64_t now_ns)
{
    close_fd(&self->message.fd);
    self->message.count = 0;
    close_fd(&self->fd);
    /* The server has these eventfds open too, so closing them does not remove them from the epoll
     * set. */
    for (unsigned i = 0; i < self->own.count; i++) {
        epoll_ctl(self->epoll_fd, EPOLL_CTL_DEL, self->own.fd[i], NULL);
    }
    close_vectors(&self->own);
    while (self->peers != NULL) {
        forget(self, &self->peers);
    }
    self->lost = self->base.ready;
    self->base.ready = false;
    if (!self->lost) {
        close_fd(&self->base.memory_fd);
    }
    self->expected = 0;
    retry_later(self, now_ns);
}

static void connect_again(struct socket_device *self, uint64_t now_ns)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.u32 = 0};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int rc = fd >= 0 ? 0 : -errno;
    if (rc == 0 && connect(fd, (struct sockaddr *)&self->address, sizeof(self->address)) != 0) {
        rc = -errno;
    }
    if (rc == 0 && epoll_ctl(self->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        rc = -errno;
    }
    if (rc == 0) {
        self->fd = fd;
        self->deadline_ns = now_ns + GREETING_NS;
        return;
    }
    if (fd >= 0) {
        close(fd);
    }
    if (rc == -ENOENT || rc == -ECONNREFUSED) {
        set_error(self, "no ivshmem server listens there");
    } else if (rc != -EAGAIN) {
        set_error(self, "connect: %s", strerror(-rc));
    }
    retry_later(self, now_ns);
}

/* --- messages of the server --- */

static int take_memory(struct socket_device *self, int fd)
{
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size <= 0) {
        set_error(self, "the server passed a descriptor that is not memory");
        return -EPROTO;
    }
    self->base.memory_bytes = (uint64_t)info.st_size;
    self->base.memory_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return self->base.memory_fd >= 0 ? 0 : -errno;
}

static int greet(struct socket_device *self, int64_t number, int fd)
{
    int64_t step = self->expected++;
    if (step == 0 && fd < 0 && number == VIA_IVSHMEM_PROTOCOL_VERSION) {
        return 0;
    }
    if (step == 1 && fd < 0 && number >= 0 && number < VIA_IVSHMEM_IDS_MAX) {
        self->base.id = (uint32_t)number;
        return 0;
    }
    if (step == 2 && fd >= 0 && number == VIA_IVSHMEM_ID_MEMORY) {
        return take_memory(self, fd);
    }
    if (step == 0) {
        set_error(self, "the server speaks version %lld of the protocol, this program version %d",
                  (long long)number, VIA_IVSHMEM_PROTOCOL_VERSION);
    } else {
        set_error(self, "the server's greeting has %lld where %s belongs", (long long)number,
                  step == 1 ? "an id" : "the memory");
    }
    return -EPROTO;
}

/* The first vector of this process completes the greeting. */
static void become_ready(struct socket_device *self)
{
    if (self->base.ready || self->own.count == 0) {
        return;
    }
    self->base.ready = true;
    self->base.error[0] = '\0';
    self->retry_ns = 0;
    self->deadline_ns = VIA_NEVER_NS;
    snprintf(self->base.found, sizeof(self->base.found), "peer %u of %.60s, %llu MiB",
             self->base.id, self->address.sun_path,
             (unsigned long long)self->base.memory_bytes >> 20);
}

/* 0, or negative errno: the connection must end. The caller closes message->fd unless it is -1. */
static int take_message(struct socket_device *self, int64_t number)
{
    int *fd = &self->message.fd;
    if (self->expected < 3) {
        return greet(self, number, *fd);
    }
    if (number < 0 || number >= VIA_IVSHMEM_IDS_MAX) {
        set_error(self, "the server sent the invalid peer id %lld", (long long)number);
        return -EPROTO;
    }
    if (*fd < 0) {
        struct peer **at = find(self, (uint32_t)number);
        if (*at != NULL) {
            forget(self, at);
        }
        return 0;
    }
    int taken = *fd;
    *fd = -1;
    if ((uint32_t)number != self->base.id) {
        return add_peer_vector(self, (uint32_t)number, taken);
    }
    int rc = add_own_vector(self, taken);
    if (rc == 0) {
        become_ready(self);
    }
    return rc;
}

static void receive_all(struct socket_device *self, uint64_t now_ns)
{
    for (unsigned i = 0; i < MESSAGES_PER_TURN; i++) {
        int64_t number;
        int rc = via_ivshmem_message_receive(self->fd, &self->message, &number);
        if (rc == -EAGAIN) {
            return;
        }
        bool is_broken = rc < 0;
        if (rc == 1) {
            rc = take_message(self, number) == 0 ? 1 : -EPROTO;
            close_fd(&self->message.fd);
        }
        if (rc != 1) {
            if (rc == 0) {
                set_error(self, "the server has closed the connection");
            } else if (is_broken) {
                set_error(self, "a message of the server has more than one descriptor, or this "
                                "process has no room for it");
            }
            disconnect(self, now_ns);
            return;
        }
    }
}

/* --- struct via_ivshmem_device_ops --- */

static int socket_fd(const struct via_ivshmem_device *device)
{
    return of(device)->epoll_fd;
}

static uint64_t take_interrupts(struct socket_device *self)
{
    struct epoll_event events[VIA_IVSHMEM_VECTORS_MAX + 1];
    uint64_t fired = 0;
    int count = epoll_wait(self->epoll_fd, events, VIA_ARRAY_COUNT(events), 0);
    for (int i = 0; i < count; i++) {
        uint32_t vector = events[i].data.u32 - 1;
        uint64_t value;
        if (vector < self->own.count &&
            read(self->own.fd[vector], &value, sizeof(value)) == (ssize_t)sizeof(value)) {
            fired |= UINT64_C(1) << vector;
        }
    }
    return fired;
}

/* The server may have truncated or extended the memory. */
static void measure_memory(struct socket_device *self)
{
    struct stat info;
    if (self->base.ready && fstat(self->base.memory_fd, &info) == 0 && info.st_size >= 0) {
        self->base.memory_bytes = (uint64_t)info.st_size;
    }
}

static uint64_t socket_service(struct via_ivshmem_device *device, uint64_t now_ns,
                               uint64_t *ret_deadline_ns)
{
    struct socket_device *self = of(device);
    if (self->fd < 0 && !self->lost && now_ns >= self->deadline_ns) {
        connect_again(self, now_ns);
    }
    uint64_t fired = 0;
    if (self->fd >= 0) {
        receive_all(self, now_ns);
        fired = take_interrupts(self);
    }
    if (self->fd >= 0 && !device->ready && now_ns >= self->deadline_ns) {
        set_error(self, "the server's greeting is incomplete");
        disconnect(self, now_ns);
    }
    measure_memory(self);
    *ret_deadline_ns = device->ready ? VIA_NEVER_NS : self->deadline_ns;
    return fired;
}

static void socket_drop(struct via_ivshmem_device *device)
{
    struct socket_device *self = of(device);
    close_vectors(&self->aimed);
    if (self->lost) {
        self->lost = false;
        close_fd(&device->memory_fd);
    }
}

static int socket_presence(const struct via_ivshmem_device *device, uint32_t id)
{
    return id == device->id || *find(of(device), id) != NULL;
}

static void socket_nudge(struct via_ivshmem_device *device, uint32_t id)
{
    struct peer *peer = *find(of(device), id);
    if (peer != NULL && peer->vectors.count != 0) {
        via_event_signal(peer->vectors.fd[0]);
    }
}

static int socket_aim(struct via_ivshmem_device *device, uint32_t id)
{
    struct socket_device *self = of(device);
    struct peer *peer = *find(self, id);
    close_vectors(&self->aimed);
    if (peer == NULL || peer->vectors.count == 0) {
        return -ENOENT;
    }
    for (unsigned i = 0; i < peer->vectors.count; i++) {
        int fd = fcntl(peer->vectors.fd[i], F_DUPFD_CLOEXEC, 0);
        if (fd < 0) {
            int rc = -errno;
            close_vectors(&self->aimed);
            return rc;
        }
        self->aimed.fd[self->aimed.count++] = fd;
    }
    return 0;
}

static void socket_ring(struct via_ivshmem_device *device, unsigned bit)
{
    struct socket_device *self = of(device);
    (void)bit;
    /* Vector 0 for each doorbell: a guest enables no other vector, and the peer polls the doorbell
     * registers of the cell. */
    if (self->aimed.count != 0) {
        via_event_signal(self->aimed.fd[0]);
    }
}

static void socket_close(struct via_ivshmem_device *device)
{
    struct socket_device *self = of(device);
    disconnect(self, 0);
    socket_drop(device);
    close_fd(&self->epoll_fd);
    free(self);
}

static const struct via_ivshmem_device_ops socket_ops = {
    .fd = socket_fd,
    .service = socket_service,
    .drop = socket_drop,
    .presence = socket_presence,
    .nudge = socket_nudge,
    .aim = socket_aim,
    .ring = socket_ring,
    .close = socket_close,
};

int via_ivshmem_socket_open(const char *path, struct via_ivshmem_device **ret_device,
                            struct via_error *err)
{
    struct socket_device *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return via_error_set(err, -ENOMEM, "%s", strerror(ENOMEM));
    }
    self->base =
        (struct via_ivshmem_device){.ops = &socket_ops, .interrupts = true, .memory_fd = -1};
    self->fd = -1;
    self->message.fd = -1;
    self->address.sun_family = AF_UNIX;
    self->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int rc = self->epoll_fd >= 0 ? 0 : via_error_set(err, -errno, "epoll: %s", strerror(errno));
    if (rc == 0 && strlen(path) >= sizeof(self->address.sun_path)) {
        rc = via_error_set(err, -ENAMETOOLONG, "%s: longer than a socket address", path);
    }
    if (rc != 0) {
        close_fd(&self->epoll_fd);
        free(self);
        return rc;
    }
    strcpy(self->address.sun_path, path);
    *ret_device = &self->base;
    return 0;
}
