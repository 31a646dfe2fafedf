/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "vfio/user_message.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/fds.h"
#include "base/types.h"

/* Longest time of a message after its first byte. The socket's time-outs detect a sender that
 * stops, but not one that sends byte by byte. */
#define MESSAGE_NS (2 * VIA_SEC_NS)

static bool is_late(uint64_t *until_ns)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    uint64_t now_ns = (uint64_t)time.tv_sec * VIA_SEC_NS + (uint64_t)time.tv_nsec;
    *until_ns = *until_ns == 0 ? now_ns + MESSAGE_NS : *until_ns;
    return now_ns > *until_ns;
}

static int explain(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK ? -ETIMEDOUT : -EPIPE;
}

int via_vfio_user_send(int fd, struct via_vfio_user_message *message)
{
    VIA_FDS_SPACE(VIA_VFIO_USER_FDS_MAX) control = {0};
    size_t bytes = sizeof(message->header) + message->body_bytes;
    uint64_t until_ns = 0;
    message->header.bytes = (uint32_t)bytes;
    for (size_t done = 0; done < bytes;) {
        struct iovec iov[2];
        struct msghdr header = {.msg_iov = iov, .msg_iovlen = 1};
        if (done < sizeof(message->header)) {
            iov[0] =
                (struct iovec){(char *)&message->header + done, sizeof(message->header) - done};
            iov[1] = (struct iovec){message->body, message->body_bytes};
            header.msg_iovlen = 2;
        } else {
            size_t off = done - sizeof(message->header);
            iov[0] = (struct iovec){message->body + off, message->body_bytes - off};
        }
        if (done == 0) {
            via_fds_add(&header, &control, message->fds, message->fds_count);
        }
        ssize_t sent = sendmsg(fd, &header, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent <= 0) {
            return explain(errno);
        }
        done += (size_t)sent;
        if (done < bytes && is_late(&until_ns)) {
            return -ETIMEDOUT;
        }
    }
    return 0;
}

void via_vfio_user_close_fds(struct via_vfio_user_message *message)
{
    for (unsigned i = 0; i < message->fds_count; i++) {
        if (message->fds[i] >= 0) {
            close(message->fds[i]);
        }
    }
    message->fds_count = 0;
}

/* false: too many descriptors. */
static bool take_fds(struct via_vfio_user_message *message, struct msghdr *header)
{
    struct via_fds_place place = {0};
    int fd;
    while (via_fds_next(header, &place, &fd)) {
        if (message->fds_count < VIA_VFIO_USER_FDS_MAX) {
            message->fds[message->fds_count++] = fd;
        } else {
            close(fd);
        }
    }
    return (header->msg_flags & MSG_CTRUNC) == 0;
}

/* Waits for bytes, and returns how many are in the socket, at most `wanted`. The caller reads no
 * more, so *missing is stored before these bytes leave the socket. */
static size_t wait_for_some(int fd, size_t wanted, _Atomic uint32_t *missing)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    int there = 0;
    atomic_store_explicit(missing, (uint32_t)wanted, memory_order_seq_cst);
    while (poll(&ready, 1, (int)(MESSAGE_NS / VIA_MSEC_NS)) < 0 && errno == EINTR) {
    }
    (void)ioctl(fd, FIONREAD, &there);
    size_t some = there > 0 ? via_min((size_t)there, wanted) : wanted;
    atomic_store_explicit(missing, (uint32_t)(wanted - some), memory_order_seq_cst);
    return some;
}

static int receive_bytes(int fd, struct via_vfio_user_message *message, void *to, size_t bytes,
                         uint64_t *until_ns, _Atomic uint32_t *missing)
{
    for (size_t done = 0; done < bytes;) {
        VIA_FDS_SPACE(VIA_VFIO_USER_FDS_MAX) control;
        size_t some = missing != NULL ? wait_for_some(fd, bytes - done, missing) : bytes - done;
        struct iovec iov = {(char *)to + done, some};
        struct msghdr header = {.msg_iov = &iov,
                                .msg_iovlen = 1,
                                .msg_control = &control,
                                .msg_controllen = sizeof(control)};
        ssize_t got = recvmsg(fd, &header, MSG_CMSG_CLOEXEC | (missing != NULL ? MSG_DONTWAIT : 0));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return got == 0 ? -EPIPE : explain(errno);
        }
        if (!take_fds(message, &header)) {
            return -EPROTO;
        }
        done += (size_t)got;
        if (is_late(until_ns)) {
            return -ETIMEDOUT;
        }
    }
    return 0;
}

int via_vfio_user_receive(int fd, struct via_vfio_user_message *message)
{
    return via_vfio_user_receive_counted(fd, message, NULL);
}

int via_vfio_user_receive_counted(int fd, struct via_vfio_user_message *message,
                                  _Atomic uint32_t *missing)
{
    uint64_t until_ns = 0;
    message->fds_count = 0;
    message->body_bytes = 0;
    int rc =
        receive_bytes(fd, message, &message->header, sizeof(message->header), &until_ns, missing);
    if (rc == 0 && (message->header.bytes < sizeof(message->header) ||
                    message->header.bytes > VIA_VFIO_USER_MESSAGE_BYTES_MAX)) {
        rc = -EPROTO;
    }
    if (rc == 0) {
        message->body_bytes = message->header.bytes - sizeof(message->header);
        rc = receive_bytes(fd, message, message->body, message->body_bytes, &until_ns, missing);
    }
    if (missing != NULL) {
        atomic_store_explicit(missing, 0, memory_order_seq_cst);
    }
    if (rc != 0) {
        via_vfio_user_close_fds(message);
    }
    return rc;
}
