/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * An ivshmem server: gives each client that connects to its socket the same memory, and eventfds
 * by which clients interrupt each other. QEMU's ivshmem-doorbell devices are such clients, and so
 * is port/ivshmem/socket.c. It keeps no other state: clients that are connected go on without it.
 *
 * It trusts its clients as far as its file mode does: each may read and write all of the memory and
 * interrupt all others. None can make it block or fail. A client that reads nothing has about six
 * unread messages at most, each with one descriptor; the server hangs up on it after a while, and
 * keeps its place taken until the client closes its socket or reads them.
 *
 * All functions are one thread's.
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
    const char *path;      /* of the socket; one that a dead server left behind is replaced */
    uint64_t memory_bytes; /* a power of two, at least a page: QEMU makes a BAR of it */
    unsigned vectors;      /* eventfds of each client, 1 to 64 */
    unsigned clients_max;  /* at once, 1 to VIA_IVSHMEM_CLIENTS_MAX */
    mode_t mode;           /* of the socket; 0 = 0600 */
    unsigned stall_ms;     /* a client that takes none of its messages for this time is hung up on;
                              0 = a minute */
};

/* 0; -EINVAL, -EADDRINUSE (a living server listens there), -ENOMEM, -ENAMETOOLONG, and what the
 * system says. */
VIA_MUST_CHECK int via_ivshmem_server_open(const struct via_ivshmem_server_options *options,
                                           struct via_ivshmem_server **ret_server,
                                           struct via_error *err);

/* Readable when via_ivshmem_server_service() has something to do. */
int via_ivshmem_server_fd(const struct via_ivshmem_server *server);

/* A bounded turn; does not block. */
void via_ivshmem_server_service(struct via_ivshmem_server *server);

unsigned via_ivshmem_server_clients(const struct via_ivshmem_server *server);

/* Hangs up, removes the socket. */
void via_ivshmem_server_close(struct via_ivshmem_server *server);

#endif
