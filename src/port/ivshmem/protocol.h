/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The messages of an ivshmem server to its clients, QEMU's protocol of version 0 (QEMU,
 * docs/specs/ivshmem-spec.rst, "Client-Server protocol"): signed 64-bit little-endian numbers over
 * a UNIX stream socket, some with one descriptor. A client sends no messages.
 *
 *   version (0); the client's id; -1 with the memory; then for each vector of each other peer that
 *   peer's id with an eventfd; then for each vector of the client its own id with an eventfd.
 *   Later: an id with an eventfd for each vector of a peer that joins, an id alone for one that
 *   leaves.
 */
#ifndef VIA_PORT_IVSHMEM_PROTOCOL_H
#define VIA_PORT_IVSHMEM_PROTOCOL_H

#include <stdint.h>

#define VIA_IVSHMEM_PROTOCOL_VERSION 0
#define VIA_IVSHMEM_ID_MEMORY (-1)
#define VIA_IVSHMEM_IDS_MAX 65536 /* an id has 16 bits in the doorbell register */

/* One message. fd -1: none. 0, -EAGAIN (the socket is full), or what sendmsg() says. */
int via_ivshmem_message_send(int socket_fd, int64_t number, int fd);

/* Buffer for a partially received message. */
struct via_ivshmem_message {
    unsigned char bytes[8];
    unsigned count;
    int fd; /* the caller closes it after a complete message and after -EPROTO; -1: none */
};

/* 1: a complete message, its number in *ret_number, its descriptor in message->fd. 0: the server
 * has closed the connection. -EAGAIN: later. -EPROTO: more than one descriptor. */
int via_ivshmem_message_receive(int socket_fd, struct via_ivshmem_message *message,
                                int64_t *ret_number);

#endif
