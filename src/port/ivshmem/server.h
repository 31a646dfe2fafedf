/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * An ivshmem server: gives each client that connects to its socket the same memory, and eventfds by
 * which clients interrupt each other. QEMU's ivshmem-doorbell devices and port/ivshmem/socket.c are
 * such clients. The server keeps no other state: if it ends, connected clients keep memory and
 * interrupts.
 *
 * The mode of the socket file decides which users may connect; each client may read and write all
 * of the memory and interrupt all others. No client can make the server block or fail. A client
 * that reads nothing has at most about six unread messages, each with one descriptor. The server
 * disconnects it after stall_ms, and keeps its place occupied until the client closes its socket or
 * reads the messages.
 *
 * One thread calls all functions.
 */
#ifndef VIA_PORT_IVSHMEM_SERVER_H
#define VIA_PORT_IVSHMEM_SERVER_H

#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/types.h"

#define VIA_IVSHMEM_MEMORY_BYTES_MAX (UINT64_C(1) << 40)
#define VIA_IVSHMEM_CLIENTS_MAX 256u

struct via_ivshmem_server;

struct via_ivshmem_server_options {
    const char *path;      /* of the socket; the socket of a dead server is replaced */
    uint64_t memory_bytes; /* a power of two, at least a page: QEMU makes a BAR of it */
    unsigned vectors;      /* eventfds of each client, 1 to 64 */
    unsigned clients_max;  /* at once, 1 to VIA_IVSHMEM_CLIENTS_MAX */
    mode_t mode;           /* of the socket; 0 = 0600 */
    unsigned stall_ms;     /* disconnect a client that reads nothing for this time; 0 = 60,000 */
};

/* 0; -EINVAL, -EADDRINUSE (a living server listens there), -ENOMEM, -ENAMETOOLONG, and errors of
 * system calls. */
VIA_MUST_CHECK int via_ivshmem_server_open(const struct via_ivshmem_server_options *options,
                                           struct via_ivshmem_server **ret_server,
                                           struct via_error *err);

/* Readable when via_ivshmem_server_service() has work. */
int via_ivshmem_server_fd(const struct via_ivshmem_server *server);

/* A bounded turn; does not block. */
void via_ivshmem_server_service(struct via_ivshmem_server *server);

unsigned via_ivshmem_server_clients(const struct via_ivshmem_server *server);

/* Disconnects all clients and removes the socket. */
void via_ivshmem_server_close(struct via_ivshmem_server *server);

#endif
