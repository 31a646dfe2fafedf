/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CORE_PORT_H
#define VIA_CORE_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The port: the interface of core to one end of a link. Implementations are in src/port/ and sim/.
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
/* DMA of this queue has ended. Wakes transfer thread `queue`, as doorbell `queue` does. Like a
 * doorbell it is a hint: it may be merged, early, late or lost. */
#define VIA_PORT_EVENT_DMA_DONE(queue) (UINT64_C(1) << (48 + (queue))) /* queue 0..13 */
#define VIA_PORT_EVENT_DMA_DONE_ANY (((UINT64_C(1) << VIA_PORT_DATA_DOORBELLS) - 1) << 48)

struct via_port;

struct via_port_ops {
    /*
     * Posted write of len bytes at window offset off (off + len <= window_bytes, else the port
     * drops it and counts an error). May overtake bodies and commits that the queue posted earlier:
     * write-combining buffers drain in any order, packets of a network overtake each other. The
     * caller may reuse src on return. Does not block. On a link that is down the write is lost. A
     * write posted before the link went down may be lost; it does not arrive after link_is_up() is
     * true again.
     */
    void (*body)(struct via_port *port, unsigned queue, uint64_t off, const void *src, size_t len);

    /*
     * Posted write of one word (8 bytes, 8-byte aligned) or one line (64 bytes, 64-byte aligned);
     * the port drops anything else and counts an error. The peer sees a word, or the last 8 bytes
     * of a line, whole, and after the rest of the line and every body and commit that the queue
     * posted earlier: one commit publishes a whole frame. (On write-combined memory: the first 56
     * bytes of a line, sfence, the last 8.) The commit may stay in a buffer of the CPU or the port
     * until flush(), or until later posts fill that buffer. Does not block. Bounds, src and a link
     * that is down: as body().
     */
    void (*commit)(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                   size_t len);

    /* Flushes all posts of the queue: they arrive without further calls. No round trip. Does not
     * block. */
    void (*flush)(struct via_port *port, unsigned queue);

    /*
     * A fence: a round trip to the peer, which fence_start() starts and which ends later. A
     * completed fence proves both:
     * - all posts of the queue before fence_start(), flushed or not, have arrived;
     * - all posts that the peer flushed, on any of its queues, before the fence reached it are
     *   visible here. So if a thread announces that it sleeps, fences and then checks, either the
     *   thread sees the peer's earlier writes, or the peer sees the announcement. Safe sleeping
     *   depends on this (docs/protocol.md, section 6).
     * Nothing is promised while a fence is under way.
     *
     * fence_start starts a fence: 0, or -ENOLINK (the link is down). A queue has one fence: a new
     * one cancels the one under way. Fences of different queues are independent. Does not block and
     * does not wait for the round trip.
     */
    int (*fence_start)(struct via_port *port, unsigned queue);

    /*
     * Has the queue's fence completed? 1: yes. 0: not yet. -ENOLINK: the link was down at some time
     * since fence_start(), even if it is up now; posts of the queue may be lost. -EINVAL: no fence
     * was started since the last 1 or -ENOLINK. Some ports make progress only in this call, and no
     * event reports the end: a round trip on a bus is too short for sleeping (but see
     * caps.fence_wakes). Does not block. If it is called repeatedly, the fence ends within a
     * second, or within four if a slow peer keeps sending signs of life: a port whose fence is lost
     * takes its link down.
     */
    int (*fence_poll)(struct via_port *port, unsigned queue);

    /*
     * Sets doorbell `bit` (0..15) at the peer. A hint: rings coalesce, and may be lost at link
     * down. The peer sees the doorbell after the earlier posts of the queue only if flush() was
     * called in between. 0, -ENOLINK, or -EINVAL for a bit that does not exist.
     */
    int (*ring)(struct via_port *port, unsigned queue, unsigned bit);

    /*
     * DMA: copies by an engine. dma, dma_take and dma_abort may be NULL if caps.dma_depth is 0.
     * `queue` belongs to a transfer thread, which alone takes and aborts the DMA that it started.
     * The port decides how queues share engines and depth. None of the three blocks.
     *
     * dma starts a copy of len bytes (not 0) from src to window offset off. 0; or nothing was
     * begun: -EAGAIN (the limit of DMA under way is reached: try later); -ENOTSUP (no engine, or
     * one that does not reach the peer at present: try much later); -EINVAL (out of bounds, or more
     * than caps.dma_bytes_max), -ENOLINK, -EIO (the engine does not start). src is borrowed until
     * the cookie is taken, and must not change; it is in the memory passed to via_node_init(),
     * which the opener of the port registers with the engine. Until the cookie is taken, bytes may
     * arrive at any time, in any order, in part, and also after the link was down and is up again.
     * DMA is not ordered with body(), commit() and other DMA.
     */
    int (*dma)(struct via_port *port, unsigned queue, uint64_t off, const void *src, size_t len,
               uint64_t cookie);

    /*
     * Stores up to max cookies of the queue's DMA that has ended, each once, in any order, and
     * their results; returns their number. Results:
     * - 0: later commits of this queue arrive after all bytes of the DMA. The bytes need not have
     *   arrived yet; a fence proves that they have. If writes of the engine and of the CPU take
     *   different paths, the port ensures the order before it reports (for example by a read on the
     *   engine's path).
     * - -EIO: the engine failed. Some of the bytes were written, or none.
     * - -ECANCELED: aborted. Some of the bytes were written, or none.
     * - -ENOLINK: the link was down at some time since the DMA was started. With the other results
     *   it was not: posts of the queue since then are not lost.
     *
     * After any of these results the engine no longer reads src, and no byte of the DMA arrives
     * after later posts of this queue.
     */
    unsigned (*dma_take)(struct via_port *port, unsigned queue, uint64_t *ret_cookies,
                         int *ret_results, unsigned max);

    /*
     * Aborts all DMA of the queue, without waiting for its end. Each cookie can be taken within
     * tens of milliseconds, with -ECANCELED or the result of a DMA that had ended. A port that can
     * not stop its engine removes the engine's access to memory (resets it, takes its link down)
     * before it reports. The call may be repeated. Nothing else limits the time of a DMA: an engine
     * may hang, also beyond the end of its link; the caller detects this and aborts. close() ends
     * all DMA before it returns.
     */
    void (*dma_abort)(struct via_port *port, unsigned queue);

    /* Reads and clears the pending events within mask. Does not block. */
    uint64_t (*events)(struct via_port *port, uint64_t mask);

    /*
     * The transfer thread of the queue is about to sleep until a doorbell, DMA, the end of a fence
     * (caps.fence_wakes) or a line (caps.lines_wake) wakes it. Some ports make progress in
     * events(), which the thread has called until now; from here on such a port makes progress by
     * itself, until the thread calls events() again. Does not block. NULL: the port needs no such
     * hint.
     */
    void (*rest)(struct via_port *port, unsigned queue);

    /* The present physical state of the link. */
    bool (*link_is_up)(struct via_port *port);

    /*
     * Scratchpads 0..7, shared by both ends. While the link is down a read returns all-ones, and a
     * write is ignored. A write to a scratchpad of the other side is ignored, too. While the link
     * is down, either all scratchpads keep their values or all become zero; where they are kept,
     * they outlive the host that wrote them. Reads of other indices return all-ones, writes are
     * ignored.
     */
    uint32_t (*scratchpad_read)(struct via_port *port, unsigned index);
    void (*scratchpad_write)(struct via_port *port, unsigned index, uint32_t value);

    /* Releases everything; the port must not be used afterwards. */
    void (*close)(struct via_port *port);
};

/* Constants of an open port. */
struct via_port_caps {
    uint64_t window_bytes;    /* peer memory that body() and commit() reach */
    uint64_t inbox_bytes;     /* memory of this host that the peer reaches through its window */
    uint32_t store_bytes_max; /* largest aligned store that the peer sees whole: 8 or 64 */
    uint32_t dma_depth;       /* DMAs under way at once, all queues together; 0 = no engine */
    uint32_t dma_bytes_max;   /* of one DMA, from when memory is registered on; 0 = no limit */
    bool coherent;            /* a completed store has arrived, in order (x86 shared memory) */
    bool writes_ordered;      /* bodies arrive in the order of the calls; else only commits do */
    bool fence_wakes;         /* the end of a fence wakes the queue's thread, as a doorbell does; on
                                 the control queue it wakes the control thread */
    bool lines_wake;     /* each commit of a line by the same queue of the peer wakes the queue's
                            thread, without an event, because a CPU stores the line. Both ends have
                            this capability or neither */
    uint32_t read_ns;    /* least time of a read from the peer, and of a fence; 0 = as memory
                            if coherent, else unknown */
    uint64_t silence_ns; /* longest silence of a live peer on a link of this kind; 0 = as on a bus:
                            the host decides */
};

struct via_port {
    const struct via_port_ops *ops;
    struct via_port_caps caps;
    unsigned char *
        inbox; /* inbox_bytes of this host's memory, 64-byte aligned; core borrows it until close */
    unsigned char *window; /* mapped for direct stores by core, or NULL: use body() and commit().
                              Only with caps.coherent. Stays mapped until close; stores while the
                              link is down are lost */
    unsigned side;         /* 0 or 1: the end of the link; the two ends differ */
};

#endif
