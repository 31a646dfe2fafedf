/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/host_receive.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/types.h"

void via_host_receive(int fd, void *buffer, size_t bytes, struct via_host_received *ret_received)
{
    struct iovec iov = {.iov_base = buffer, .iov_len = bytes};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * VIA_HOST_RECEIVE_FDS_MAX)];
    } control;
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    ret_received->fds_count = 0;
    ret_received->bytes = got < 0 ? -errno : got;
    ret_received->truncated = got >= 0 && (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
    if (got < 0) {
        return;
    }
    for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header != NULL;
         header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        count = via_min(count, (size_t)(VIA_HOST_RECEIVE_FDS_MAX - ret_received->fds_count));
        memcpy(ret_received->fds + ret_received->fds_count, CMSG_DATA(header), count * sizeof(int));
        ret_received->fds_count += (unsigned)count;
    }
}
