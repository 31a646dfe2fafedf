/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef TESTS_SOCKETS_PASS_FD_H
#define TESTS_SOCKETS_PASS_FD_H

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

/* Sends a descriptor and a byte (unix(7)). False with errno on failure. */
static inline bool pass_fd(int channel, int fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    char byte = 'f';
    struct iovec iov = {&byte, 1};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    control.header = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
    return sendmsg(channel, &message, 0) == 1;
}

/* The descriptor that pass_fd() sent; blocks. -1 with errno, EBADMSG if none came. */
static inline int taken_fd(int channel)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    char byte;
    int fd = -1;
    struct iovec iov = {&byte, 1};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    ssize_t n = recvmsg(channel, &message, 0);
    if (n == 1 && control.header.cmsg_type == SCM_RIGHTS) {
        memcpy(&fd, CMSG_DATA(&control.header), sizeof(fd));
    } else if (n >= 0) {
        errno = EBADMSG;
    }
    return fd;
}

#endif
