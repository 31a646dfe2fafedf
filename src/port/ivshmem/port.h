/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Internals of the ivshmem port: ivshmem.c implements the operations of core/port.h, link.c brings
 * the link up. */
#ifndef VIA_PORT_IVSHMEM_PORT_H
#define VIA_PORT_IVSHMEM_PORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/port.h"
#include "port/ivshmem/cell.h"
#include "port/ivshmem/device.h"
#include "port/ivshmem/ivshmem.h"

#define VIA_IVSHMEM_GUARDS 3u

/* The fence of a queue. Belongs to the thread that uses the queue. */
struct via_ivshmem_fence {
    uint32_t downs VIA_CACHELINE_ALIGNED; /* of the port, when it was started */
    bool under_way;
};

struct via_ivshmem_port {
    struct via_port base;

    /* --- constant while the port is open. The memory behind the addresses changes --- */
    unsigned char *window;         /* inbox of the peer, or all-ones; caps.window_bytes */
    struct via_ivshmem_cell *cell; /* registers, or private zeroes */
    struct via_ivshmem_device *device;
    void (*wake)(void *ctx, unsigned thread);
    void *ctx;
    char name[160];
    uint64_t cell_off; /* in the memory */
    uint16_t host;
    unsigned threads_count;
    int ones_fd;
    unsigned guards[VIA_IVSHMEM_GUARDS];
    unsigned guards_count;

    struct via_ivshmem_fence fences[VIA_PORT_QUEUES]; /* each belongs to its queue's thread */

    /* --- any thread --- */
    _Atomic bool up;            /* release in link_up(), acquire in via_ivshmem_port_is_up() */
    _Atomic uint64_t boot;      /* of this end, in this life of the link */
    _Atomic uint64_t peer_boot; /* that this end is trained for; 0 = none */
    _Atomic uint32_t ringers;   /* threads in device->ops->ring() */
    _Atomic uint64_t edges;     /* VIA_PORT_EVENT_LINK_* not yet read */
    _Atomic uint32_t downs;     /* of this end */
    /* Doorbells of the peer, as last taken. One thread at a time handles a bit. */
    _Atomic uint32_t taken[VIA_PORT_DOORBELLS];
    _Atomic uint64_t puts_out_of_bounds, doorbells_fired, doorbells_coalesced;

    /* --- control thread --- */
    bool attached;    /* the memory of the device is mapped */
    bool window_torn; /* all-ones could not be mapped */
    bool cut;         /* the decision that counts, as last read */
    uint64_t own_cut; /* decision of this end */
    bool has_own_cut; /* own_cut is valid; else an earlier host's value in the memory counts */
    bool decided;     /* `cut` was set while no memory was attached */
    uint64_t ups_count, downs_count, peers_refused;
    uint64_t seat_ns;   /* since when another host seems to use this end; 0 = none */
    uint64_t seat_beat; /* its `beat` at that time */
    char error[256];
};

static inline struct via_ivshmem_port *via_ivshmem_port_of(const struct via_port *port)
{
    return via_container_of((uintptr_t)port, struct via_ivshmem_port, base);
}

static inline struct via_ivshmem_end *via_ivshmem_own(const struct via_ivshmem_port *self)
{
    return &self->cell->end[self->base.side];
}

static inline struct via_ivshmem_end *via_ivshmem_peer(const struct via_ivshmem_port *self)
{
    return &self->cell->end[1 - self->base.side];
}

/* The present state of the link. The peer's registers may change before or after `up` does. The
 * link is up only if all agree. */
static inline bool via_ivshmem_port_is_up(const struct via_ivshmem_port *self)
{
    const struct via_ivshmem_end *peer = via_ivshmem_peer(self);
    /* The acquires of both words pair with the releases in train() at the peer. */
    return atomic_load_explicit(&self->up, memory_order_acquire) &&
           atomic_load_explicit(&peer->trained, memory_order_acquire) ==
               atomic_load_explicit(&self->boot, memory_order_relaxed) &&
           atomic_load_explicit(&peer->boot, memory_order_acquire) ==
               atomic_load_explicit(&self->peer_boot, memory_order_relaxed);
}

static inline void via_ivshmem_count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* link.c: takes the link down and the memory away; for close. */
void via_ivshmem_link_detach(struct via_ivshmem_port *self);

#endif
