/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CORE_PORT_H
#define VIA_CORE_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The port: one end of a link, as core sees it. Implementations live in src/port/ and sim/.
 *
 * Queues. A caller names its queue: 0 to 13 for the transfer threads, VIA_PORT_QUEUE_CONTROL for
 * the control thread. One thread at a time uses a queue; queues may be used at the same time. Order
 * is promised within a queue of a port, never between two.
 *
 * events() may be called by several threads with disjoint masks. Scratchpads and close belong to
 * the control thread.
 */
#define VIA_PORT_DOORBELLS 16u
#define VIA_PORT_DATA_DOORBELLS 14u         /* bit k wakes transfer thread k */
#define VIA_PORT_DOORBELL_BARRIER_START 14u /* wakes thread 0: a barrier has arrivals */
#define VIA_PORT_DOORBELL_BARRIER_END 15u   /* wakes thread 0: a barrier is released */
#define VIA_PORT_SCRATCHPADS 8u             /* 0..3 written by side 0, 4..7 by side 1 */
#define VIA_PORT_QUEUE_CONTROL 14u          /* the control thread's */
#define VIA_PORT_QUEUES 15u

/* Bits of events(). */
#define VIA_PORT_EVENT_DOORBELL(bit) (UINT64_C(1) << (bit)) /* bit 0..15 */
#define VIA_PORT_EVENT_LINK_UP (UINT64_C(1) << 32)
#define VIA_PORT_EVENT_LINK_DOWN (UINT64_C(1) << 33)
#define VIA_PORT_EVENT_CONTROL (VIA_PORT_EVENT_LINK_UP | VIA_PORT_EVENT_LINK_DOWN)
/* DMA of this queue has ended. Wakes transfer thread `queue`, as doorbell `queue` does, and is a
 * hint as doorbells are: merged, early, late or lost. */
#define VIA_PORT_EVENT_DMA_DONE(queue) (UINT64_C(1) << (48 + (queue))) /* queue 0..13 */
#define VIA_PORT_EVENT_DMA_DONE_ANY (((UINT64_C(1) << VIA_PORT_DATA_DOORBELLS) - 1) << 48)

struct via_port;

struct via_port_ops {
    /*
     * Posted write of len bytes at window offset off (off + len <= window_bytes, else the port
     * drops it and counts an error). May overtake bodies and commits that the queue posted before
     * it: write-combining buffers drain as they like, packets of a network pass each other. src is
     * the caller's again on return. Does not block. On a link that is down the write vanishes, and
     * so may one that was posted before the link went down; what was posted before does not arrive
     * after link_is_up() is true again.
     */
    void (*body)(struct via_port *port, unsigned queue, uint64_t off, const void *src, size_t len);

    /*
     * Posted write of one word (8 bytes, 8-byte aligned) or one line (64 bytes, 64-byte aligned);
     * the port drops anything else and counts an error. A word, and of a line the last 8 bytes, are
     * seen whole, after the rest of the line and after every body and every commit that the queue
     * posted before: one commit publishes a whole frame. (On write-combined memory: the first 56
     * bytes of a line, sfence, the last 8.) It may stay in a buffer of the CPU or the port until
     * flush(), or until later posts fill that buffer. Does not block. Bounds, src and a link that
     * is down: as body().
     */
    void (*commit)(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                   size_t len);

    /* Sends on its way what the queue posted: from here on it arrives without further calls. No
     * round trip. Does not block. */
    void (*flush)(struct via_port *port, unsigned queue);

    /*
     * A fence: a round trip to the peer that is started here and ends later. A completed fence
     * proves both of:
     * - all that the queue posted before fence_start(), flushed or not, has arrived;
     * - all that the peer posted and flushed, by any of its queues, before the fence reached it is
     *   visible here. A thread that announces something, fences and then checks sees what the peer
     *   wrote before the announcement reached it, or the peer sees the announcement: safe
     *   sleeping rests on this (docs/protocol.md, section 6).
     * Nothing is promised while a fence is under way.
     *
     * fence_start starts one: 0, or -ENOLINK (the link is down). A queue has one fence: starting
     * another gives up the one under way. Fences of two queues do not touch each other. Does not
     * block and does not wait for the round trip.
     */
    int (*fence_start)(struct via_port *port, unsigned queue);

    /*
     * Has the queue's fence completed? 1: yes. 0: not yet. -ENOLINK: the link has been down since
     * it was started, also when it is up again by now; what the queue posted may be lost. -EINVAL:
     * none was started since the last 1 or -ENOLINK. Some ports get ahead only in this call, and no
     * event reports the end: a round trip on a bus is too short to sleep for (but see
     * caps.fence_wakes). Does not block. Asked again and again, it ends within a second, or within
     * four where a peer that is slow says all the time that it lives: a port whose fence gets lost
     * takes its link down.
     */
    int (*fence_poll)(struct via_port *port, unsigned queue);

    /*
     * Sets doorbell `bit` (0..15) at the peer. A hint: coalesces, may be lost at link down. The
     * peer sees it after the earlier posts of the queue only if flush() came between. 0, -ENOLINK,
     * or -EINVAL for a bit that does not exist.
     */
    int (*ring)(struct via_port *port, unsigned queue, unsigned bit);

    /*
     * DMA: copies by an engine. dma, dma_take and dma_abort may be NULL when caps.dma_depth is 0.
     * `queue` is a transfer thread's; what it started, only it takes and aborts. How queues share
     * engines and depth is up to the port. None of the three blocks.
     *
     * dma starts a copy of len bytes (not 0) from src to window offset off. 0; -EAGAIN (as many as
     * the engine takes are under way: later); -ENOTSUP (no engine, or one that does not reach the
     * peer at present: much later); -EINVAL (out of bounds, or more than caps.dma_bytes_max),
     * -ENOLINK, -EIO (it does not start): nothing was begun. src is borrowed until the cookie is
     * taken and does not change; it lies in the memory that via_node_init() got, which the opener
     * of the port registers with the engine. Until the cookie
     * is taken, bytes may arrive at any time, in any order, in part, and also after the link was
     * down and is up again. There is no order towards body(), commit() and other DMA.
     */
    int (*dma)(struct via_port *port, unsigned queue, uint64_t off, const void *src, size_t len,
               uint64_t cookie);

    /*
     * Stores up to max cookies of the queue's DMA that has ended, each once, in any order, and
     * their results; returns how many. Results:
     * - 0: what this queue commits from now on arrives after all bytes of the DMA. They need not
     *   have arrived yet: a fence proves that. Where the engine's writes and those of the CPU
     * take different ways, the port sees to the order before it reports (by a read back on the
     *   engine's way, say).
     * - -EIO: the engine failed. Some of the bytes were written, or none.
     * - -ECANCELED: aborted. The same.
     * - -ENOLINK: the link has been down since the DMA was started, whatever else became of it.
     *   With the other results it has not: what the queue posted meanwhile is on its way.
     *
     * Whatever the result, the engine reads src no more, and nothing of it arrives after what this
     * queue posts from now on.
     */
    unsigned (*dma_take)(struct via_port *port, unsigned queue, uint64_t *ret_cookies,
                         int *ret_results, unsigned max);

    /*
     * Ends all DMA of the queue, without waiting for it. Each cookie can be taken within tens of
     * milliseconds, with -ECANCELED or the result it had by then. A port that can not stop its
     * engine cuts it off from memory (resets it, takes its link down) before it reports. Asking
     * again is allowed. Nothing else limits the time of a DMA: an engine may hang, also over the
     * end of its link, and the caller notices and aborts. close() ends all DMA before it
     * returns.
     */
    void (*dma_abort)(struct via_port *port, unsigned queue);

    /* Reads and clears the pending events within mask. Does not block. */
    uint64_t (*events)(struct via_port *port, uint64_t mask);

    /*
     * The thread of a transfer thread's queue is about to sleep until a doorbell, DMA, the end of a
     * fence (caps.fence_wakes) or a line (caps.lines_wake) wakes it.
     * It called events() until now, by which some ports make progress; from here on such a port
     * sees to progress itself, until the thread calls events() again. Does not block. NULL: the
     * port needs no such hint.
     */
    void (*rest)(struct via_port *port, unsigned queue);

    /* Physical link state now. */
    bool (*link_is_up)(struct via_port *port);

    /*
     * Scratchpads 0..7, shared by both ends. A read returns all-ones when the link is down; a write
     * then vanishes, as does one to a scratchpad of the other side. While the link is down they
     * keep their values or become zero, all of them the same; a host that dies does not take its
     * values along where they are kept. There are no others: reads of them bring all-ones, writes
     * vanish.
     */
    uint32_t (*scratchpad_read)(struct via_port *port, unsigned index);
    void (*scratchpad_write)(struct via_port *port, unsigned index, uint32_t value);

    /* Releases everything; the port must not be used afterwards. */
    void (*close)(struct via_port *port);
};

/* Constants of an open port. */
struct via_port_caps {
    uint64_t window_bytes;    /* peer memory that body() and commit() reach */
    uint64_t inbox_bytes;     /* my memory that the peer reaches by its window */
    uint32_t store_bytes_max; /* largest aligned store the peer sees whole: 8 or 64 */
    uint32_t dma_depth;       /* DMAs under way at once, all queues together; 0 = no engine */
    uint32_t dma_bytes_max;   /* of one DMA, from when memory is registered on; 0 = no limit */
    bool coherent;            /* a store that returned has arrived, in order (x86 shared memory) */
    bool writes_ordered;      /* bodies arrive in the order of the calls; else only commits do */
    bool fence_wakes;         /* the end of a fence wakes the queue's thread, as a doorbell does;
                                 that of the control queue the control thread */
    bool lines_wake;     /* so does each commit of a line by that queue of the peer, but no event
                            reports it: a CPU stores it. Both ends have this or neither */
    uint32_t read_ns;    /* least time of a read from the peer, and of a fence; 0 = as memory
                            when    coherent, else not known */
    uint64_t silence_ns; /* how long a peer that lives may be silent on a link of this kind; 0 =
                            as on a bus: the host decides */
};

struct via_port {
    const struct via_port_ops *ops;
    struct via_port_caps caps;
    unsigned char
        *inbox; /* my memory, inbox_bytes, 64-byte aligned; borrowed by core until close */
    unsigned char *window; /* mapped for direct stores by core, or NULL: use body() and commit().
                              Only with caps.coherent. Stays mapped (and swallows stores while the
                              link is down) until close */
    unsigned side;         /* 0 or 1: which end of the link; the two ends differ */
};

#endif
