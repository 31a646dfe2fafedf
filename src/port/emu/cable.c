/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "port/emu/cable.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/fds.h"

#define LISTEN_BACKLOG 8
#define LOCK_TRIES 1000
#define LOCK_TRY_NS VIA_MSEC_NS

static int address_of(const char *path, struct sockaddr_un *ret_address)
{
    size_t bytes = strlen(path) + 1;
    if (bytes > sizeof(ret_address->sun_path)) {
        return -ENAMETOOLONG;
    }
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(ret_address->sun_path, path, bytes);
    return 0;
}

static int open_unix_socket(int type)
{
    int fd = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return fd < 0 ? -errno : fd;
}

/* Serializes processes that find the same stale socket; otherwise one could remove the new socket
 * of the other. */
static int lock_directory(const char *path, int *ret_fd, struct via_error *err)
{
    char copy[PATH_MAX];
    if (strlen(path) >= sizeof(copy)) {
        return via_error_set(err, -ENAMETOOLONG, "%s", strerror(ENAMETOOLONG));
    }
    memcpy(copy, path, strlen(path) + 1);
    const char *directory = dirname(copy);
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return via_error_set(err, -errno, "open %s: %s", directory, strerror(errno));
    }
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            *ret_fd = fd;
            return 0;
        }
        struct timespec pause = {.tv_nsec = LOCK_TRY_NS};
        nanosleep(&pause, NULL);
    }
    close(fd);
    return via_error_set(err, -EBUSY, "another process keeps %s locked", directory);
}

/* 0: path is free; a socket without a listener was removed. */
static int remove_stale(const char *path, int type, const struct sockaddr_un *address,
                        struct via_error *err)
{
    struct stat info;
    if (lstat(path, &info) != 0) {
        return errno == ENOENT ? 0 : via_error_set(err, -errno, "%s", strerror(errno));
    }
    if (!S_ISSOCK(info.st_mode)) {
        return via_error_set(err, -EEXIST, "the path exists and is not a socket");
    }
    int fd = open_unix_socket(type);
    if (fd < 0) {
        return via_error_set(err, fd, "%s", strerror(-fd));
    }
    int rc = connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 ? 0 : -errno;
    if (rc == -ECONNREFUSED) {
        rc = unlink(path) == 0 ? 0 : via_error_set(err, -errno, "remove: %s", strerror(errno));
    } else if (rc == 0) {
        struct ucred peer = {0};
        socklen_t bytes = sizeof(peer);
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes);
        rc = via_error_set(err, -EADDRINUSE, "another process (pid %d) holds it", (int)peer.pid);
    } else {
        /* EAGAIN: the backlog is full; EPROTOTYPE: another type of socket. Either way a process
         * listens. */
        rc = via_error_set(err, -EADDRINUSE, "another process holds it (%s)", strerror(-rc));
    }
    close(fd);
    return rc;
}

static int bind_and_listen(const struct sockaddr_un *address, int type, mode_t mode, int *ret_fd,
                           struct via_error *err)
{
    int fd = open_unix_socket(type);
    if (fd < 0) {
        return via_error_set(err, fd, "%s", strerror(-fd));
    }
    /* bind() creates the file with the mode of the socket, so the file never has another mode. */
    if (fchmod(fd, mode) != 0 ||
        bind(fd, (const struct sockaddr *)address, sizeof(*address)) != 0) {
        int rc = via_error_set(err, -errno, "%s", strerror(errno));
        close(fd);
        return rc;
    }
    if (listen(fd, LISTEN_BACKLOG) != 0) {
        int rc = via_error_set(err, -errno, "%s", strerror(errno));
        unlink(address->sun_path);
        close(fd);
        return rc;
    }
    *ret_fd = fd;
    return 0;
}

int via_emu_listen(const char *path, int type, mode_t mode, int *ret_fd, struct via_error *err)
{
    struct sockaddr_un address;
    int rc = address_of(path, &address);
    if (rc != 0) {
        return via_error_set(err, rc, "a socket's path has at most %zu bytes",
                             sizeof(address.sun_path) - 1);
    }
    int lock_fd;
    rc = lock_directory(path, &lock_fd, err);
    if (rc != 0) {
        return rc;
    }
    rc = remove_stale(path, type, &address, err);
    if (rc == 0) {
        rc = bind_and_listen(&address, type, mode, ret_fd, err);
    }
    close(lock_fd);
    return rc;
}

int via_emu_cable_listen(const char *path, mode_t mode, int *ret_fd, struct via_error *err)
{
    return via_emu_listen(path, SOCK_SEQPACKET, mode, ret_fd, err);
}

int via_emu_cable_accept(int listen_fd, int *ret_fd)
{
    int fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    *ret_fd = fd;
    return 0;
}

int via_emu_cable_connect(const char *path, int *ret_fd)
{
    struct sockaddr_un address;
    int rc = address_of(path, &address);
    if (rc != 0) {
        return rc;
    }
    int fd = open_unix_socket(SOCK_SEQPACKET);
    if (fd < 0) {
        return fd;
    }
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        rc = -errno;
        close(fd);
        return rc;
    }
    *ret_fd = fd;
    return 0;
}

int via_emu_cable_peer(int fd, pid_t *ret_pid)
{
    struct ucred peer;
    socklen_t bytes = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) {
        return -errno;
    }
    *ret_pid = peer.pid;
    return peer.uid == geteuid() || peer.uid == 0 ? 0 : -EACCES;
}

int via_emu_cable_send(int fd, enum via_emu_cable_type type, const void *body, size_t body_bytes,
                       const int *fds, unsigned fds_count)
{
    struct via_emu_cable_header header = {
        .magic = VIA_EMU_CABLE_MAGIC, .version = VIA_EMU_CABLE_VERSION, .type = (uint16_t)type};
    struct iovec parts[2] = {{&header, sizeof(header)}, {(void *)(uintptr_t)body, body_bytes}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = body_bytes != 0 ? 2 : 1};
    VIA_FDS_SPACE(VIA_EMU_MESSAGE_FDS_MAX) control = {0};

    if (fds_count > VIA_EMU_MESSAGE_FDS_MAX || body_bytes > VIA_EMU_CABLE_BODY_BYTES_MAX) {
        return -EMSGSIZE;
    }
    via_fds_add(&message, &control, fds, fds_count);
    ssize_t sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent < 0 ? -errno : 0;
}

static void take_fds(struct msghdr *header, struct via_emu_cable_message *message)
{
    struct via_fds_place place = {0};
    int fd;
    while (via_fds_next(header, &place, &fd)) {
        if (message->fds_count < VIA_EMU_MESSAGE_FDS_MAX) {
            message->fds[message->fds_count++] = fd;
        } else {
            close(fd);
        }
    }
}

static int check_message(const struct via_emu_cable_message *message, ssize_t received, int flags)
{
    if ((size_t)received < sizeof(message->header) ||
        message->header.magic != VIA_EMU_CABLE_MAGIC) {
        return -EPROTO;
    }
    if (message->header.version != VIA_EMU_CABLE_VERSION) {
        return -EPROTONOSUPPORT;
    }
    /* A longer datagram, or more descriptors, than any message has. The kernel has closed the
     * descriptors that did not fit. */
    return (flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ? -EPROTO : 1;
}

int via_emu_cable_receive(int fd, struct via_emu_cable_message *ret_message)
{
    struct iovec parts[2] = {{&ret_message->header, sizeof(ret_message->header)},
                             {ret_message->body, sizeof(ret_message->body)}};
    VIA_FDS_SPACE(VIA_EMU_MESSAGE_FDS_MAX) control;
    struct msghdr header = {.msg_iov = parts,
                            .msg_iovlen = 2,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof(control.bytes)};

    ret_message->fds_count = 0;
    ssize_t received = recvmsg(fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (received < 0) {
        return errno == EAGAIN || errno == EINTR
                   ? -EAGAIN
                   : 0; /* ECONNRESET: the peer has closed the connection */
    }
    take_fds(&header, ret_message);
    if (received == 0 && ret_message->fds_count == 0) {
        return 0; /* end of file, or an empty datagram, which is malformed too */
    }
    int rc = check_message(ret_message, received, header.msg_flags);
    if (rc != 1) {
        via_emu_cable_close_fds(ret_message);
        return rc;
    }
    ret_message->body_bytes = (size_t)received - sizeof(ret_message->header);
    return 1;
}

void via_emu_cable_close_fds(struct via_emu_cable_message *message)
{
    for (unsigned i = 0; i < message->fds_count; i++) {
        if (message->fds[i] >= 0) {
            close(message->fds[i]);
        }
    }
    message->fds_count = 0;
}
