/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/meet/rendezvous.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/fds.h"
#include "sockets/process/os.h"
#include "sockets/process/real.h"

#define SOCKET_TYPE (SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK)

/* The abstract name, which begins with a zero byte, and its length for bind(). */
static socklen_t name_of(uint64_t cookie, struct sockaddr_un *ret_name)
{
    *ret_name = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(ret_name->sun_path + 1, sizeof(ret_name->sun_path) - 1, "viaduct/%u/%016llx",
                     VIA_RENDEZVOUS_VERSION, (unsigned long long)cookie);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

int via_rendezvous_listen(uint64_t cookie)
{
    struct sockaddr_un name;
    socklen_t bytes = name_of(cookie, &name);
    int fd = VIA_REAL(socket)(AF_UNIX, SOCKET_TYPE, 0);
    if (fd < 0) {
        return -errno;
    }
    if (bind(fd, (struct sockaddr *)&name, bytes) != 0 || VIA_REAL(listen)(fd, 4) != 0) {
        int error = errno;
        VIA_REAL(close)(fd);
        return -error;
    }
    return fd;
}

struct ucred via_rendezvous_peer(int control_fd)
{
    struct ucred cred = {.uid = (uid_t)-1};
    socklen_t bytes = sizeof(cred);
    VIA_REAL(getsockopt)(control_fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes);
    return cred;
}

int via_rendezvous_accept(int listen_fd, uid_t *ret_uid)
{
    int fd = VIA_REAL(accept4)(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        return -errno;
    }
    *ret_uid = via_rendezvous_peer(fd).uid;
    return fd;
}

int via_rendezvous_connect(uint64_t cookie, uid_t uid)
{
    struct sockaddr_un name;
    socklen_t bytes = name_of(cookie, &name);
    int fd = VIA_REAL(socket)(AF_UNIX, SOCKET_TYPE, 0);
    if (fd < 0) {
        return -errno;
    }
    int rc = VIA_REAL(connect)(fd, (struct sockaddr *)&name, bytes) != 0 ? -errno : 0;
    if (rc == 0 && (via_rendezvous_peer(fd).uid != uid || !via_os_uid_is_one(uid))) {
        rc = -EACCES;
    }
    if (rc != 0) {
        VIA_REAL(close)(fd);
        return rc;
    }
    return fd;
}

#define FDS_MAX 5u

int via_rendezvous_send(int control_fd, const struct via_offer *offer, const int *fds,
                        unsigned fds_count)
{
    VIA_FDS_SPACE(FDS_MAX) control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)offer, .iov_len = sizeof(*offer)};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fds_count == 0 || fds_count > FDS_MAX) {
        return -EINVAL;
    }
    via_fds_add(&message, &control, fds, fds_count);
    ssize_t n = VIA_REAL(sendmsg)(control_fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    return n == (ssize_t)sizeof(*offer) ? 0 : n < 0 ? -errno : -EPROTO;
}

/* Extracts the descriptors of a message, and closes those beyond FDS_MAX. Returns their number. */
static unsigned take_fds(struct msghdr *message, int *ret_fds)
{
    struct via_fds_place place = {0};
    unsigned count = 0;
    int fd;
    while (via_fds_next(message, &place, &fd)) {
        if (count < FDS_MAX) {
            ret_fds[count++] = fd;
        } else {
            VIA_REAL(close)(fd);
        }
    }
    return count;
}

void via_rendezvous_drop(int control_fd)
{
    char byte;
    ssize_t n = VIA_REAL(recv)(control_fd, &byte, 1, MSG_DONTWAIT);
    (void)n;
}

int via_rendezvous_peek(int control_fd, struct via_offer *ret_offer, int *ret_fds,
                        unsigned fds_count)
{
    VIA_FDS_SPACE(FDS_MAX) control;
    unsigned char bytes[sizeof(*ret_offer)];
    struct iovec iov = {.iov_base = bytes, .iov_len = sizeof(bytes)};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    int fds[FDS_MAX];
    ssize_t n = VIA_REAL(recvmsg)(control_fd, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0) {
        return errno == EWOULDBLOCK ? -EAGAIN : -errno;
    }
    unsigned count = take_fds(&message, fds);
    if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 && count == fds_count &&
        via_offer_parse(bytes, (size_t)n, ret_offer) == 0) {
        memcpy(ret_fds, fds, count * sizeof(int));
        return 0;
    }
    /* The kernel cuts off the descriptors beyond this process's RLIMIT_NOFILE (unix(7)). */
    bool cut = (message.msg_flags & MSG_CTRUNC) != 0 && count < fds_count;
    while (count > 0) {
        VIA_REAL(close)(fds[--count]);
    }
    return n == 0 ? -EPIPE : cut ? -EMFILE : -EPROTO;
}
