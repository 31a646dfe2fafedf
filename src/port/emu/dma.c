/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The emulated engine: it executes its copies only when the thread calls dma_take(). It saves no
 * time; it exists so that a host without hardware runs the code for engines.
 *
 * A queue belongs to its transfer thread, so there is no lock; the queues share only the depth. The
 * youngest copy is executed first: DMA ends out of order.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/copy.h"
#include "port/emu/port.h"

struct queued {
    uint64_t off;
    const void *src;
    size_t len;
    uint64_t cookie;
    uint32_t downs; /* of the port when the DMA was started */
    int result;     /* -ECANCELED: aborted */
};

struct via_emu_dma_queue {
    struct queued queued[VIA_EMU_DMA_DEPTH_MAX];
    unsigned count;
} VIA_CACHELINE_ALIGNED;

int via_emu_dma_open(struct via_emu_port *emu)
{
    size_t bytes = VIA_PORT_DATA_DOORBELLS * sizeof(struct via_emu_dma_queue);
    if (emu->base.caps.dma_depth == 0) {
        return 0;
    }
    emu->dma = aligned_alloc(VIA_CACHELINE, bytes);
    if (emu->dma == NULL) {
        return -ENOMEM;
    }
    for (unsigned k = 0; k < VIA_PORT_DATA_DOORBELLS; k++) {
        emu->dma[k].count = 0;
    }
    return 0;
}

void via_emu_dma_close(struct via_emu_port *emu)
{
    free(emu->dma);
}

int via_emu_dma(struct via_port *port, unsigned queue, uint64_t off, const void *src, size_t len,
                uint64_t cookie)
{
    struct via_emu_port *emu = via_emu_port_of(port);

    if (port->caps.dma_depth == 0) {
        return -ENOTSUP;
    }
    if (queue >= VIA_PORT_DATA_DOORBELLS || len == 0 || off > port->caps.window_bytes ||
        len > port->caps.window_bytes - off) {
        atomic_fetch_add_explicit(&emu->counters.puts_out_of_bounds, 1, memory_order_relaxed);
        return -EINVAL;
    }
    uint32_t downs = atomic_load_explicit(&emu->downs, memory_order_acquire);
    if (!via_emu_port_is_up(emu)) {
        return -ENOLINK;
    }
    if (atomic_fetch_add_explicit(&emu->dma_used, 1, memory_order_relaxed) >=
        port->caps.dma_depth) {
        atomic_fetch_sub_explicit(&emu->dma_used, 1, memory_order_relaxed);
        return -EAGAIN;
    }
    struct via_emu_dma_queue *mine = &emu->dma[queue];
    mine->queued[mine->count++] =
        (struct queued){.off = off, .src = src, .len = len, .cookie = cookie, .downs = downs};
    atomic_fetch_or_explicit(&emu->edges, VIA_PORT_EVENT_DMA_DONE(queue), memory_order_relaxed);
    return 0;
}

static int copy(struct via_emu_port *emu, unsigned queue, const struct queued *dma)
{
    /* The link does not come up again before link_down() has counted its end. */
    if (!via_emu_port_is_up(emu) ||
        atomic_load_explicit(&emu->downs, memory_order_acquire) != dma->downs) {
        return -ENOLINK;
    }
    if (dma->result != 0) {
        return dma->result;
    }
    if (emu->lanes != NULL) {
        via_emu_posted_body(&emu->base, queue, dma->off, dma->src, dma->len);
        return 0;
    }
    /* The release in emu_commit() orders these stores before the thread's next commit. */
    via_copy_once(emu->window + dma->off, dma->src, dma->len);
    return 0;
}

unsigned via_emu_dma_take(struct via_port *port, unsigned queue, uint64_t *ret_cookies,
                          int *ret_results, unsigned max)
{
    struct via_emu_port *emu = via_emu_port_of(port);
    unsigned count = 0;

    if (port->caps.dma_depth == 0 || queue >= VIA_PORT_DATA_DOORBELLS) {
        return 0;
    }
    struct via_emu_dma_queue *mine = &emu->dma[queue];
    while (count < max && mine->count != 0) {
        const struct queued *dma = &mine->queued[--mine->count];
        ret_cookies[count] = dma->cookie;
        ret_results[count++] = copy(emu, queue, dma);
        atomic_fetch_sub_explicit(&emu->dma_used, 1, memory_order_relaxed);
    }
    if (count != 0) {
        /* Orders the copies also before the thread's later direct stores. */
        atomic_thread_fence(memory_order_release);
    }
    return count;
}

void via_emu_dma_abort(struct via_port *port, unsigned queue)
{
    struct via_emu_port *emu = via_emu_port_of(port);

    if (port->caps.dma_depth == 0 || queue >= VIA_PORT_DATA_DOORBELLS) {
        return;
    }
    for (unsigned i = 0; i < emu->dma[queue].count; i++) {
        emu->dma[queue].queued[i].result = -ECANCELED;
    }
}
