/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* vfio-user: a PCI function behind a UNIX socket; client and server. */
#ifndef VIA_VFIO_USER_H
#define VIA_VFIO_USER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/error.h"
#include "vfio/pci.h"

/*
 * Connects to a server. Each access to a region is a message with a round trip. Memory for DMA must
 * be a shared mapping of a descriptor (struct via_pci_memory), because the descriptor is sent to
 * the server. If the server ends, does not answer for two seconds or sends an invalid answer, the
 * function is lost until revive(). Error texts do not contain the path; the caller adds it.
 */
VIA_MUST_CHECK int via_vfio_user_open(const char *path, struct via_pci **ret_pci,
                                      struct via_error *err);

/* Called for each new client: opens the function for it. 0 or negative errno. */
typedef int via_vfio_user_attach(void *ctx, struct via_pci **ret_pci);

/*
 * Ordering between the functions of one bridge. QEMU does not wait for answers to memory writes, so
 * such writes may still be in one function's socket when a read of another function is answered.
 * PCI Express does not allow that: the completion of a read across the bridge pushes the posted
 * writes ahead of it (base specification 2.4.1). A driver that relies on this order could otherwise
 * sleep forever. All servers of a bridge share one struct; initially all but `regions` is zero.
 */
#define VIA_VFIO_USER_SERVERS_MAX 8u
struct via_vfio_user_bridge {
    uint32_t regions; /* bit i: reads of region i cross the bridge */
    struct via_vfio_user_place {
        _Atomic int client;   /* its descriptor + 1; 0: no client */
        _Atomic bool is_busy; /* a message is being received or executed */
        /* Upper bound of the bytes of the message being received that the server has not yet
         * read. */
        _Atomic uint32_t missing;
        /* The server waits for other clients, or for its own client to read answers; all earlier
         * messages of this client are executed. */
        _Atomic bool is_waiting;
        _Atomic uint64_t executed; /* bytes of messages */
    } places[VIA_VFIO_USER_SERVERS_MAX];
};

/*
 * Serves clients on a listening socket, one after another, until *stop is true (checked every 100
 * ms while no client is connected, and after each message). For each client, attach() opens the
 * function, and the server closes it afterwards. A client can harm only itself: all messages are
 * checked, and its memory must be sealed against shrinking, without huge pages, and at most 1 TiB.
 * dma_map() of the function must accept alignment 0. bridge: NULL, or the function's bridge, in
 * which it has the place `place`. Then the answer to a read across the bridge waits for earlier
 * messages of the other clients, for at most about a second.
 */
void via_vfio_user_serve(int listen_fd, via_vfio_user_attach *attach, void *ctx,
                         struct via_vfio_user_bridge *bridge, unsigned place,
                         const _Atomic bool *stop);

/* Opens a listening socket; replaces the socket of a dead server. */
VIA_MUST_CHECK int via_vfio_user_listen(const char *path, int *ret_fd, struct via_error *err);

#endif
