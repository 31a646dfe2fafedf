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
#include "port/emu/lane.h"
#include "port/emu/like.h"

/* Bytes of a bell page that a port maps. */
#define VIA_EMU_BELL_BYTES (VIA_EMU_BELL_LINES_MAX * sizeof(struct via_bell))
_Static_assert(VIA_EMU_BELL_BYTES == 4096, "one page");

/* Behind the bridge: the lanes that side 0 posts to, by queue, then those of side 1. */
#define VIA_EMU_LANES_BYTES \
    VIA_ALIGN_UP(2 * VIA_PORT_QUEUES * sizeof(struct via_emu_lane), VIA_EMU_BRIDGE_BYTES)

/* The memory behind a slice of the window, as the other end has passed it. */
#define VIA_EMU_SLICES_MAX 128u
struct via_emu_slice {
    uint64_t exposure;
    uint64_t off; /* in the memory */
    int fd;       /* owned; -1: nothing */
};

enum via_emu_cable_state {
    VIA_EMU_CABLE_NONE,    /* no peer is connected */
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

/* Why the control thread must end the connection, from any thread. */
enum via_emu_alarm {
    VIA_EMU_ALARM_NONE,
    VIA_EMU_ALARM_ENTRIES, /* a lane holds what are no entries */
    VIA_EMU_ALARM_LOCK,    /* the peer does not give a lane back */
};

/* This process's part of a lane. */
struct via_emu_lane_end {
    /* A thread is in the lane. All below is that thread's. */
    _Atomic bool busy VIA_CACHELINE_ALIGNED;
    uint32_t round;                    /* of the link, when the thread entered */
    uint32_t connection;               /* that the writer was made for */
    struct via_emu_lane_writer writer; /* of lanes that go out */
    struct via_rng rng;
};

/* The fence of a queue, whose thread's it is. */
struct via_emu_fence {
    uint64_t since_ns VIA_CACHELINE_ALIGNED;
    uint32_t downs; /* of the port when it was started */
    bool under_way;
};

struct via_emu_lanes {
    uint64_t delay_ns;
    struct via_emu_lane_end end[2 * VIA_PORT_QUEUES]; /* by queue: those that go out, then in */
};

struct via_emu_port {
    struct via_port base;

    /* --- constant while the port is open. The memory behind the addresses changes --- */
    unsigned char *window;         /* the other's inbox, or all-ones; caps.window_bytes */
    struct via_emu_bridge *bridge; /* of the connection, or private zeroes; lanes follow */
    size_t bridge_bytes;           /* with the lanes */
    struct via_bell *bells;        /* of the other's host, or a private page */
    char *path;
    char name[64];
    const struct via_emu_like *like;
    bool maps_memory; /* processes may map memory that messages bring */
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
    int alarm_fd;  /* eventfd, written with `alarm`; -1 without lanes */
    /* Owned; NULL: posted writes are stores. */
    struct via_emu_lanes *lanes;
    /* Owned; one per transfer thread, whose it is. NULL: no engine. */
    struct via_emu_dma_queue *dma;
    struct via_port_slices slices; /* count 0: none */
    uint64_t window_bytes;         /* with the slices */

    struct via_emu_fence fences[VIA_PORT_QUEUES]; /* each its queue's thread's */

    /* --- any thread --- */
    /* My end is up: the window is mapped. Release in link_up(), acquire in via_emu_port_is_up(). */
    _Atomic bool up;
    _Atomic uint32_t peer_bell_lines; /* 0 = no thread to wake */
    _Atomic uint64_t edges;           /* VIA_PORT_EVENT_LINK_*, _DMA_DONE not yet read */
    _Atomic uint32_t downs;           /* of my end: what no DMA lives through */
    _Atomic uint32_t dma_used;        /* under way, all queues together */
    _Atomic int alarm;                /* enum via_emu_alarm: a write may be lost, so the link is
                                         down from here on */
    struct via_emu_counters counters;

    /* --- written by the control thread while the link is down, read by threads in lanes --- */
    uint32_t connection; /* number of the connection */

    /* --- control thread --- */
    enum via_emu_cable_state state;
    int cable_fd;
    int bridge_fd;     /* of this connection */
    int peer_inbox_fd; /* of this connection */
    uint64_t peer_inbox_bytes;
    uint16_t peer_host;
    pid_t peer_pid;
    bool cut;             /* as far as this end knows */
    bool nudge_due;       /* the peer must read the bridge, but the socket was full */
    bool window_torn;     /* all-ones could not be mapped: the link stays down until they are */
    uint64_t deadline_ns; /* connect again, or give a silent connection up */
    uint64_t retry_ns;
    bool pads_known; /* pads are those of the last connection */
    uint32_t pads[VIA_PORT_SCRATCHPADS];
    uint64_t ups_count, downs_count;
    uint64_t messages_sent, messages_received, messages_dropped;
    uint64_t peers_refused;
    struct via_emu_slice shown[VIA_EMU_SLICES_MAX];
    char error[256];
};

static inline struct via_emu_port *via_emu_port_of(const struct via_port *port)
{
    return via_container_of((uintptr_t)port, struct via_emu_port, base);
}

/* The physical link, now. The bridge may report a change before this end has noticed it, or after:
 * both count, so that a cut shows at once, and up only when the window is there. */
static inline bool via_emu_port_is_up(const struct via_emu_port *emu)
{
    return atomic_load_explicit(&emu->up, memory_order_acquire) &&
           atomic_load_explicit(&emu->alarm, memory_order_relaxed) == VIA_EMU_ALARM_NONE &&
           via_emu_bridge_is_up(via_emu_bridge_link(emu->bridge));
}

/* emu.c: the queue's fence begins: 0, -ENOLINK, -EINVAL. Is it under way on the same link? 0, or
 * what fence_poll() says. It ends with rc. */
int via_emu_fence_begin(struct via_emu_port *emu, unsigned queue);
int via_emu_fence_check(struct via_emu_port *emu, unsigned queue);
int via_emu_fence_end(struct via_emu_port *emu, unsigned queue, int rc);

/* emu.c: checks that count what they refuse, before anything of a post is done. */
bool via_emu_port_check_write(struct via_emu_port *emu, unsigned queue, uint64_t off, size_t len);
bool via_emu_port_check_commit(struct via_emu_port *emu, unsigned queue, uint64_t off, size_t len);
static inline void via_emu_port_count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

uint64_t via_emu_now_ns(void);       /* CLOCK_MONOTONIC, which both ends have */
void via_emu_port_wait(uint64_t ns); /* as a CPU does for the completion of its load */

/* posted.c: core/port.h's, by lanes. */
int via_emu_posted_open(struct via_emu_port *emu,
                        const struct via_emu_options *options); /* 0 or -ENOMEM */
void via_emu_posted_close(struct via_emu_port *emu);
void via_emu_posted_body(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                         size_t len);
void via_emu_posted_commit(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                           size_t len);
void via_emu_posted_flush(struct via_port *port, unsigned queue);
int via_emu_posted_fence_start(struct via_port *port, unsigned queue);
int via_emu_posted_fence_poll(struct via_port *port, unsigned queue);
/* For ring() and events(). Lets writes of the peer arrive as chance has it, by queues that wake the
 * thread that asks for these events; notes which queue rings; lets all arrive that was flushed
 * before the doorbell that has just been read. */
void via_emu_posted_pull(struct via_emu_port *emu, uint64_t mask);
void via_emu_posted_rang(struct via_emu_port *emu, unsigned queue, unsigned bit);
void via_emu_posted_take_bell(struct via_emu_port *emu, unsigned bit);
/* [control] `up` is false: returns when no thread is in a lane. */
void via_emu_posted_quiesce(struct via_emu_port *emu);

/* dma.c: core/port.h's. */
int via_emu_dma_open(struct via_emu_port *emu); /* 0 or -ENOMEM */
void via_emu_dma_close(struct via_emu_port *emu);
int via_emu_dma(struct via_port *port, unsigned queue, uint64_t off, const void *src, size_t len,
                uint64_t cookie);
unsigned via_emu_dma_take(struct via_port *port, unsigned queue, uint64_t *ret_cookies,
                          int *ret_results, unsigned max);
void via_emu_dma_abort(struct via_port *port, unsigned queue);

/* slice.c. init: returns what is left of the window for the inbox. take: a SLICE has come; false:
 * it is void. forget: the link is down. */
struct via_emu_cable_message;
uint64_t via_emu_slices_init(struct via_emu_port *emu, const struct via_emu_options *options,
                             uint64_t window_bytes);
bool via_emu_slice_take(struct via_emu_port *emu, struct via_emu_cable_message *message);
void via_emu_slices_forget(struct via_emu_port *emu);

/* link.c: hangs up, takes the link down; for close. */
void via_emu_link_disconnect(struct via_emu_port *emu);

#endif
