/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Inside of the emulated port: emu.c has the operations of core/port.h, link.c brings it up. */
#ifndef VIA_PORT_EMU_PORT_H
#define VIA_PORT_EMU_PORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/port.h"
#include "port/emu/bridge.h"
#include "port/emu/emu.h"

/* Bytes of a bell page that a port maps. */
#define VIA_EMU_BELL_BYTES (VIA_EMU_BELL_LINES_MAX * sizeof(struct via_bell))
_Static_assert(VIA_EMU_BELL_BYTES == 4096, "one page");

enum via_emu_cable_state {
    VIA_EMU_CABLE_NONE,    /* nobody is connected */
    VIA_EMU_CABLE_WAITING, /* connected, my hello sent, the other's not here yet */
    VIA_EMU_CABLE_JOINED,  /* all memory mapped; the bridge tells whether the link is up */
};

struct via_emu_counters {
    _Atomic uint64_t puts_out_of_bounds;
    _Atomic uint64_t puts_vanished;
    _Atomic uint64_t doorbells_fired;
    _Atomic uint64_t doorbells_coalesced;
    _Atomic uint64_t scratchpads_refused;
};

struct via_emu_dma_queue; /* dma.c */

struct via_emu_port {
    struct via_port base;

    /* --- constant while the port is open. What the addresses show changes beneath them --- */
    unsigned char *window;         /* the other's inbox, or all-ones; caps.window_bytes */
    struct via_emu_bridge *bridge; /* of the connection, or a private page of zeroes */
    struct via_bell *bells;        /* of the other's host, or a private page */
    char *path;
    char name[64];
    uint16_t host;
    uint16_t bell_lines; /* of my host */
    mode_t mode;
    via_emu_on_message *on_message;
    void *ctx;
    int inbox_fd;
    int bell_fd;
    int ones_fd;
    int epoll_fd;
    int listen_fd; /* side 0, else -1 */
    /* Owned; one per transfer thread, whose it is. NULL: no engine. */
    struct via_emu_dma_queue *dma;

    /* --- any thread --- */
    /* My end is up: the window is mapped. Release in link_up(), acquire in via_emu_port_is_up(). */
    _Atomic bool up;
    _Atomic uint32_t peer_bell_lines; /* 0 = nobody to wake */
    _Atomic uint64_t edges;           /* VIA_PORT_EVENT_LINK_*, _DMA_DONE not yet read */
    _Atomic uint32_t downs;           /* of my end: what no DMA lives through */
    _Atomic uint32_t dma_used;        /* under way, all queues together */
    struct via_emu_counters counters;

    /* --- control thread --- */
    enum via_emu_cable_state state;
    int cable_fd;
    int bridge_fd;     /* of this connection */
    int peer_inbox_fd; /* of this connection */
    uint64_t peer_inbox_bytes;
    uint16_t peer_host;
    pid_t peer_pid;
    bool cut;             /* as far as this end knows */
    bool nudge_due;       /* the other end must look at the bridge, but the socket was full */
    bool window_torn;     /* all-ones could not be mapped: the link stays down until they are */
    uint64_t deadline_ns; /* connect again, or give a silent connection up */
    uint64_t retry_ns;
    uint64_t ups_count, downs_count;
    uint64_t messages_sent, messages_received, messages_dropped;
    uint64_t peers_refused;
    char error[256];
};

static inline struct via_emu_port *via_emu_port_of(const struct via_port *port)
{
    return via_container_of((uintptr_t)port, struct via_emu_port, base);
}

/* The physical link, now. The bridge says so before this end has noticed, and the other way round:
 * both count, so that a cut shows at once, and up only when the window is there. */
static inline bool via_emu_port_is_up(const struct via_emu_port *emu)
{
    return atomic_load_explicit(&emu->up, memory_order_acquire) &&
           via_emu_bridge_is_up(via_emu_bridge_link(emu->bridge));
}

/* dma.c: core/port.h's. */
int via_emu_dma_open(struct via_emu_port *emu); /* 0 or -ENOMEM */
void via_emu_dma_close(struct via_emu_port *emu);
int via_emu_dma(struct via_port *port, unsigned queue, uint64_t off, const void *src, size_t len,
                uint64_t cookie);
unsigned via_emu_dma_take(struct via_port *port, unsigned queue, uint64_t *ret_cookies,
                          int *ret_results, unsigned max);
void via_emu_dma_abort(struct via_port *port, unsigned queue);

/* link.c: hangs up, takes the link down; for close. */
void via_emu_link_disconnect(struct via_emu_port *emu);

#endif
