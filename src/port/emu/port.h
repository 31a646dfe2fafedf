/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Internals of the emulated port: emu.c implements the operations of core/port.h, link.c brings the
 * link up. */
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

/* Size of a mapped bell page. */
#define VIA_EMU_BELL_BYTES (VIA_EMU_BELL_LINES_MAX * sizeof(struct via_bell))
_Static_assert(VIA_EMU_BELL_BYTES == 4096, "one page");

/* The lanes follow the bridge: those to which side 0 posts, one per queue, then those of side 1. */
#define VIA_EMU_LANES_BYTES \
    VIA_ALIGN_UP(2 * VIA_PORT_QUEUES * sizeof(struct via_emu_lane), VIA_EMU_BRIDGE_BYTES)

/* The memory behind a slice of the window, received from the peer. */
#define VIA_EMU_SLICES_MAX 128u
struct via_emu_slice {
    uint64_t exposure;
    uint64_t off; /* in the memory */
    int fd;       /* owned; -1: none */
};

enum via_emu_cable_state {
    VIA_EMU_CABLE_NONE,    /* no peer is connected */
    VIA_EMU_CABLE_WAITING, /* connected, own hello sent, the peer's not yet received */
    VIA_EMU_CABLE_JOINED, /* all memory is mapped; the link word of the bridge says whether the link
                             is up */
};

struct via_emu_counters {
    _Atomic uint64_t puts_out_of_bounds;
    _Atomic uint64_t puts_vanished;
    _Atomic uint64_t doorbells_fired;
    _Atomic uint64_t doorbells_coalesced;
    _Atomic uint64_t scratchpads_refused;
};

struct via_emu_dma_queue; /* dma.c */

/* Why the control thread must end the connection. Any thread may raise it. */
enum via_emu_alarm {
    VIA_EMU_ALARM_NONE,
    VIA_EMU_ALARM_ENTRIES, /* a lane contains invalid entries */
    VIA_EMU_ALARM_LOCK,    /* the peer does not release the lock of a lane */
};

/* This process's part of a lane. */
struct via_emu_lane_end {
    /* A thread uses the lane. That thread owns the fields below. */
    _Atomic bool busy VIA_CACHELINE_ALIGNED;
    uint32_t round;                    /* of the link, when the thread set busy */
    uint32_t connection;               /* for which the writer was initialized */
    struct via_emu_lane_writer writer; /* outgoing lanes only */
    struct via_rng rng;
};

/* The fence of a queue. Belongs to the thread that uses the queue. */
struct via_emu_fence {
    uint64_t since_ns VIA_CACHELINE_ALIGNED;
    uint32_t downs; /* of the port, when the fence was started */
    bool under_way;
};

struct via_emu_lanes {
    uint64_t delay_ns;
    struct via_emu_lane_end end[2 * VIA_PORT_QUEUES]; /* outgoing by queue, then incoming */
};

struct via_emu_port {
    struct via_port base;

    /* --- constant while the port is open. The memory behind the addresses changes --- */
    unsigned char *window;         /* the peer's inbox, or all-ones; caps.window_bytes */
    struct via_emu_bridge *bridge; /* of the connection, or private zeroed memory; lanes follow */
    size_t bridge_bytes;           /* with the lanes */
    struct via_bell *bells;        /* of the peer's host, or a private page */
    char *path;
    char name[64];
    const struct via_emu_like *like;
    bool maps_memory; /* processes may map memory whose descriptors arrive in messages */
    uint16_t host;
    uint16_t bell_lines; /* of this host */
    mode_t mode;
    via_emu_on_message *on_message;
    void *ctx;
    int inbox_fd;
    int bell_fd;
    int ones_fd;
    int epoll_fd;
    int listen_fd; /* side 0, else -1 */
    int alarm_fd;  /* eventfd, written with `alarm`; -1 without lanes */
    /* Owned; NULL: posted writes are direct stores. */
    struct via_emu_lanes *lanes;
    /* Owned; one per transfer thread, which alone uses it. NULL: no engine. */
    struct via_emu_dma_queue *dma;
    struct via_port_slices slices; /* count 0: none */
    uint64_t window_bytes;         /* with the slices */

    struct via_emu_fence fences[VIA_PORT_QUEUES]; /* each is its queue's thread's */

    /* --- any thread --- */
    /* This end is up: the window is mapped. Release in link_up(), acquire in
     * via_emu_port_is_up(). */
    _Atomic bool up;
    _Atomic uint32_t peer_bell_lines; /* 0 = no thread to wake */
    _Atomic uint64_t edges;           /* VIA_PORT_EVENT_LINK_*, _DMA_DONE not yet read */
    _Atomic uint32_t downs;    /* how often this end went down; a DMA of an earlier value is void */
    _Atomic uint32_t dma_used; /* DMAs under way on all queues */
    _Atomic int alarm; /* enum via_emu_alarm: a write may be lost, so the link counts as down */
    struct via_emu_counters counters;

    /* --- the control thread writes these while the link is down; threads in lanes read them --- */
    uint32_t connection; /* number of the connection */

    /* --- control thread --- */
    enum via_emu_cable_state state;
    int cable_fd;
    int bridge_fd;     /* of this connection */
    int peer_inbox_fd; /* of this connection */
    uint64_t peer_inbox_bytes;
    uint16_t peer_host;
    pid_t peer_pid;
    bool cut;         /* as far as this end knows */
    bool nudge_due;   /* a NUDGE must be sent; the socket was full */
    bool window_torn; /* all-ones could not be mapped: the link stays down until that succeeds */
    uint64_t deadline_ns; /* of the next connect(), or of a connection without a hello */
    uint64_t retry_ns;
    bool pads_known; /* pads holds the values of the last connection */
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

/* The present physical state of the link. The bridge may change before or after `up` does. The link
 * is up only if both say so: a cut takes effect at once, and the link is up only when the window is
 * mapped. */
static inline bool via_emu_port_is_up(const struct via_emu_port *emu)
{
    return atomic_load_explicit(&emu->up, memory_order_acquire) &&
           atomic_load_explicit(&emu->alarm, memory_order_relaxed) == VIA_EMU_ALARM_NONE &&
           via_emu_bridge_is_up(via_emu_bridge_link(emu->bridge));
}

/* emu.c. begin: starts the queue's fence: 0, -ENOLINK, -EINVAL. check: 0 if the fence is under way
 * and the link was not down since, else the result for fence_poll(). end: ends the fence, and
 * returns rc. */
int via_emu_fence_begin(struct via_emu_port *emu, unsigned queue);
int via_emu_fence_check(struct via_emu_port *emu, unsigned queue);
int via_emu_fence_end(struct via_emu_port *emu, unsigned queue, int rc);

/* emu.c: bounds checks before a post. They count refused posts. */
bool via_emu_port_check_write(struct via_emu_port *emu, unsigned queue, uint64_t off, size_t len);
bool via_emu_port_check_commit(struct via_emu_port *emu, unsigned queue, uint64_t off, size_t len);
static inline void via_emu_port_count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

uint64_t via_emu_now_ns(void);       /* CLOCK_MONOTONIC, which both ends share */
void via_emu_port_wait(uint64_t ns); /* busy-waits, as a CPU stalls on a load */

/* posted.c: operations of core/port.h through lanes. */
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
/* For ring() and events(). pull: delivers a random part of the peer's writes, on the queues
 * whose doorbells are in `mask`; link events stand for the control queue. rang: records which queue
 * rings. take_bell: delivers all writes that were flushed before the doorbell that was just
 * read. */
void via_emu_posted_pull(struct via_emu_port *emu, uint64_t mask);
void via_emu_posted_rang(struct via_emu_port *emu, unsigned queue, unsigned bit);
void via_emu_posted_take_bell(struct via_emu_port *emu, unsigned bit);
/* [control] With `up` false: returns when no thread uses a lane. */
void via_emu_posted_quiesce(struct via_emu_port *emu);

/* dma.c: operations of core/port.h. */
int via_emu_dma_open(struct via_emu_port *emu); /* 0 or -ENOMEM */
void via_emu_dma_close(struct via_emu_port *emu);
int via_emu_dma(struct via_port *port, unsigned queue, uint64_t off, const void *src, size_t len,
                uint64_t cookie);
unsigned via_emu_dma_take(struct via_port *port, unsigned queue, uint64_t *ret_cookies,
                          int *ret_results, unsigned max);
void via_emu_dma_abort(struct via_port *port, unsigned queue);

/* slice.c. init: returns the part of the window that remains for the inbox. take: handles a SLICE
 * message; false: it is invalid. forget: for a link that is down. */
struct via_emu_cable_message;
uint64_t via_emu_slices_init(struct via_emu_port *emu, const struct via_emu_options *options,
                             uint64_t window_bytes);
bool via_emu_slice_take(struct via_emu_port *emu, struct via_emu_cable_message *message);
void via_emu_slices_forget(struct via_emu_port *emu);

/* link.c: closes the connection and takes the link down, for close(). */
void via_emu_link_disconnect(struct via_emu_port *emu);

#endif
