/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Sends and receives whole vfio-user messages on a stream socket. Both calls block, up to the
 * socket's time-outs. */
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

/* 0; -EPIPE (the peer has closed the connection); -ETIMEDOUT. header.bytes is filled in. fds are
 * borrowed. */
VIA_MUST_CHECK int via_vfio_user_send(int fd, struct via_vfio_user_message *message);
/* 0; -EPIPE; -ETIMEDOUT (within a message, or before one); -EPROTO (invalid size, or too many
 * descriptors). The caller owns the descriptors. */
VIA_MUST_CHECK int via_vfio_user_receive(int fd, struct via_vfio_user_message *message);
/* The same. *missing is an upper bound of the bytes, of the part of the message being received,
 * that are not read from the socket yet. It is stored before bytes are read. */
VIA_MUST_CHECK int via_vfio_user_receive_counted(int fd, struct via_vfio_user_message *message,
                                                 _Atomic uint32_t *missing);
void via_vfio_user_close_fds(struct via_vfio_user_message *message);

#endif
