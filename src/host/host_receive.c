/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/host_receive.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fds.h"
#include "base/types.h"

void via_host_receive(int fd, void *buffer, size_t bytes, struct via_host_received *ret_received)
{
    struct iovec iov = {.iov_base = buffer, .iov_len = bytes};
    VIA_FDS_SPACE(VIA_HOST_RECEIVE_FDS_MAX) control;
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
    struct via_fds_place place = {0};
    int descriptor;
    while (ret_received->fds_count < VIA_HOST_RECEIVE_FDS_MAX &&
           via_fds_next(&message, &place, &descriptor)) {
        ret_received->fds[ret_received->fds_count++] = descriptor;
    }
}
