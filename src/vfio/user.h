/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* vfio-user: a PCI function behind a UNIX socket, from both ends. */
#ifndef VIA_VFIO_USER_H
#define VIA_VFIO_USER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/error.h"
#include "vfio/pci.h"

/*
 * Connects to a server. Regions are reached by messages, one access a round trip; memory that is
 * mapped for DMA must be a shared mapping of a descriptor (struct via_pci_memory), as it is passed
 * on. A server that ends, answers nothing for two seconds or answers nonsense is gone until the
 * function is revived. Errors do not name the path: the caller does, in the user's words.
 */
VIA_MUST_CHECK int via_vfio_user_open(const char *path, struct via_pci **ret_pci,
                                      struct via_error *err);

/* Called for a new client: opens the function that the server shows. 0 or negative errno. */
typedef int via_vfio_user_attach(void *ctx, struct via_pci **ret_pci);

/*
 * The order of functions of one bridge. QEMU waits for no answer to a write into memory, so such
 * writes may still be in a function's socket when a read by another function is answered. PCI
 * Express does not allow that: the completion of a read that crosses the bridge pushes the posted
 * writes ahead of it (base specification 2.4.1). A driver that relies on it sleeps forever
 * otherwise. All zero but `regions` at first; one for all servers of the bridge.
 */
#define VIA_VFIO_USER_SERVERS_MAX 8u
struct via_vfio_user_bridge {
    uint32_t regions; /* bit i: reads of region i cross the bridge */
    struct via_vfio_user_place {
        _Atomic int client;   /* its descriptor + 1; 0: there is none */
        _Atomic bool is_busy; /* a message is being received or executed */
        /* At most what the server has not yet taken of the message being received. */
        _Atomic uint32_t missing;
        /* For other clients, or for its own to read answers; its earlier messages are executed. */
        _Atomic bool is_waiting;
        _Atomic uint64_t executed; /* bytes of messages */
    } places[VIA_VFIO_USER_SERVERS_MAX];
};

/*
 * Serves clients on a listening socket, one after another, until *stop is true (checked every 100
 * ms while no client is connected, and after each message). The function is attached for each and
 * closed after it. A client harms itself only: what it says is checked, and its memory must be
 * sealed against shrinking, not of huge pages, and of 1 TiB at most. The function's dma_map() must
 * take addresses (alignment 0).
 * bridge: NULL, or that of the function, which has the place `place` there. Then the answer to a
 * read that crosses waits for the other clients' earlier messages, for about a second at most.
 */
void via_vfio_user_serve(int listen_fd, via_vfio_user_attach *attach, void *ctx,
                         struct via_vfio_user_bridge *bridge, unsigned place,
                         const _Atomic bool *stop);

/* A socket to listen on; one that a dead server left behind is replaced. */
VIA_MUST_CHECK int via_vfio_user_listen(const char *path, int *ret_fd, struct via_error *err);

#endif
