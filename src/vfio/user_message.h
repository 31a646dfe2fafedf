/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Whole messages of vfio-user on a stream socket. Both calls block, as long as the socket's
 * time-outs allow. */
#ifndef VIA_VFIO_USER_MESSAGE_H
#define VIA_VFIO_USER_MESSAGE_H

#include <stdatomic.h>
#include <stddef.h>

#include "base/types.h"
#include "vfio/user_wire.h"

struct via_vfio_user_message {
    struct via_vfio_user_header header;
    unsigned char body[VIA_VFIO_USER_MESSAGE_BYTES_MAX - sizeof(struct via_vfio_user_header)]
        __attribute__((aligned(8)));
    size_t body_bytes;
    int fds[VIA_VFIO_USER_FDS_MAX];
    unsigned fds_count;
};

/* 0; -EPIPE (the other end is gone); -ETIMEDOUT. header.bytes is filled in. fds are borrowed. */
VIA_MUST_CHECK int via_vfio_user_send(int fd, struct via_vfio_user_message *message);
/* 0; -EPIPE; -ETIMEDOUT (in the middle of a message, or before one); -EPROTO (a size that is none,
 * too many descriptors). The descriptors are the caller's. */
VIA_MUST_CHECK int via_vfio_user_receive(int fd, struct via_vfio_user_message *message);
/* The same. *missing is at most what the socket, or the client, still has of the part of the
 * message that is being received: it is stored before bytes are taken. */
VIA_MUST_CHECK int via_vfio_user_receive_counted(int fd, struct via_vfio_user_message *message,
                                                 _Atomic uint32_t *missing);
void via_vfio_user_close_fds(struct via_vfio_user_message *message);

#endif
