/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "port/ivshmem/protocol.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fds.h"

int via_ivshmem_message_send(int socket_fd, int64_t number, int fd)
{
    uint64_t word = htole64((uint64_t)number);
    struct iovec iov = {.iov_base = &word, .iov_len = sizeof(word)};
    VIA_FDS_SPACE(1) control = {0};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    via_fds_add(&message, &control, &fd, fd >= 0 ? 1 : 0);
    ssize_t sent;
    do {
        sent = sendmsg(socket_fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0) {
        return -errno;
    }
    /* A stream socket accepts a part of 8 bytes only if it is full, so the client is too slow. */
    return sent == (ssize_t)sizeof(word) ? 0 : -EAGAIN;
}

/* Takes the descriptors of a message: 0, or -EPROTO if the message has more than one in all its
 * parts. */
static int take_fds(struct msghdr *header, struct via_ivshmem_message *message)
{
    int rc = (header->msg_flags & MSG_CTRUNC) != 0 ? -EPROTO : 0;
    struct via_fds_place place = {0};
    int fd;
    while (via_fds_next(header, &place, &fd)) {
        if (message->fd < 0) {
            message->fd = fd;
        } else {
            close(fd);
            rc = -EPROTO;
        }
    }
    return rc;
}

int via_ivshmem_message_receive(int socket_fd, struct via_ivshmem_message *message,
                                int64_t *ret_number)
{
    VIA_FDS_SPACE(4) control;
    if (message->count == 0) {
        message->fd = -1;
    }
    while (message->count < sizeof(message->bytes)) {
        struct iovec iov = {.iov_base = message->bytes + message->count,
                            .iov_len = sizeof(message->bytes) - message->count};
        struct msghdr header = {.msg_iov = &iov,
                                .msg_iovlen = 1,
                                .msg_control = control.bytes,
                                .msg_controllen = sizeof(control.bytes)};
        ssize_t bytes = recvmsg(socket_fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (bytes < 0 && errno == EINTR) {
            continue;
        }
        if (bytes < 0) {
            return errno == EAGAIN || errno == EWOULDBLOCK ? -EAGAIN : 0;
        }
        int rc = take_fds(&header, message);
        if (rc != 0 || bytes == 0) {
            return rc;
        }
        message->count += (unsigned)bytes;
    }
    uint64_t word;
    memcpy(&word, message->bytes, sizeof(word));
    *ret_number = (int64_t)le64toh(word);
    message->count = 0;
    return 1;
}
