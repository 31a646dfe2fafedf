/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Transfers by DMA. Queue q uses channel q modulo 4. Queues of one channel share its ring: if one
 * of them aborts, DMAs of the others on that channel end with -EIO.
 *
 * The engine writes a descriptor back when the transfer is done; the write-back may arrive after
 * the interrupt. The engine may stop without an error. If it hangs and does not obey an abort, the
 * driver clears its bus mastering. DMA then stays off until the port is opened again, or the
 * vfio-user server of the function restarts.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "port/pex/engine.h"

#define POLL_NS (200 * VIA_USEC_NS) /* interval of register reads while DMAs are under way */
#define LOCK_TRIES 1000u
#define ABORT_NS (10 * VIA_MSEC_NS)

void via_plx_channel_set_up(struct via_plx_engine *engine, unsigned index)
{
    struct via_plx_channel *channel = &engine->channels[index];
    uint64_t at =
        engine->rings_iova + index * VIA_PLX_SLOTS * sizeof(struct via_plx_dma_descriptor);
    channel->ring = (struct via_plx_dma_descriptor *)(void *)engine->rings + index * VIA_PLX_SLOTS;
    for (unsigned i = 0; i < VIA_PLX_SLOTS; i++) {
        atomic_store_explicit(&channel->ring[i].flags, 0, memory_order_relaxed);
    }
    channel->head = channel->done = 0;
    channel->abort_ns = 0;
    via_plx_channel_write(engine, index, VIA_PLX_DMA_CONTROL, VIA_PLX_DMA_CLEARS);
    via_plx_channel_write(engine, index, VIA_PLX_DMA_RING_LOW, (uint32_t)at);
    via_plx_channel_write(engine, index, VIA_PLX_DMA_RING_HIGH, (uint32_t)(at >> 32));
    via_plx_channel_write(engine, index, VIA_PLX_DMA_RING_NEXT, (uint32_t)at);
    via_plx_channel_write(engine, index, VIA_PLX_DMA_RING_COUNT, VIA_PLX_SLOTS);
    via_plx_channel_write(engine, index, VIA_PLX_DMA_PREFETCH, VIA_PLX_DMA_PREFETCH_FOUR);
    via_plx_channel_write(engine, index, VIA_PLX_DMA_INTERRUPT, VIA_PLX_DMA_INTERRUPT_STATUS);
}

/* --- starting --- */

/* The address from which the engine reads; copies into the bounce buffer if there is one. */
static uint64_t source_of(struct via_plx_engine *engine, unsigned slot, const void *src, size_t len)
{
    uint64_t off = (uint64_t)slot * VIA_PLX_BOUNCE_BYTES;
    if (engine->bounces == NULL) {
        return engine->memory_iova + (uint64_t)((const unsigned char *)src - engine->memory);
    }
    memcpy(engine->bounces + off, src, len);
    return engine->bounces_iova + off;
}

static void fill(struct via_pex_dma *dma, struct via_plx_dma_descriptor *descriptor, unsigned slot,
                 uint64_t window, uint64_t off, const void *src, size_t len)
{
    uint64_t from = source_of(dma->engine, slot, src, len);
    uint64_t to = window + VIA_PEX_PAGE_BYTES + off;
    via_plx_dma_fill(descriptor, from, to,
                     VIA_PLX_DMA_VALID | VIA_PLX_DMA_WANTS_INTERRUPT | (uint32_t)len);
}

static bool is_memory(const struct via_plx_engine *engine, const void *src, size_t len)
{
    uintptr_t at = (uintptr_t)src, first = (uintptr_t)engine->memory;
    return at >= first && at - first <= engine->memory_bytes &&
           len <= engine->memory_bytes - (at - first);
}

int via_pex_dma_start(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                      size_t len, uint64_t cookie)
{
    struct via_pex_port *pex = via_pex_port_of(port);
    struct via_pex_dma *dma = pex->dma;
    if (dma == NULL) {
        return -ENOTSUP;
    }
    if (queue >= VIA_PORT_DATA_DOORBELLS || len == 0 || len > VIA_PLX_DMA_SIZE_MAX ||
        off > port->caps.window_bytes || len > port->caps.window_bytes - off) {
        via_pex_count(&pex->counters.puts_out_of_bounds);
        return -EINVAL;
    }
    uint32_t downs = atomic_load_explicit(&pex->downs, memory_order_acquire);
    if (!via_pex_port_is_up(pex)) {
        return -ENOLINK;
    }
    struct via_plx_engine *engine = dma->engine;
    uint64_t window = atomic_load_explicit(&dma->window_address, memory_order_relaxed);
    if (atomic_load_explicit(&engine->dead, memory_order_relaxed) || window == 0) {
        return -EIO;
    }
    if (!atomic_load_explicit(&dma->works, memory_order_relaxed)) {
        return -ENOTSUP;
    }
    if (!is_memory(engine, src, len) || (engine->bounces != NULL && len > VIA_PLX_BOUNCE_BYTES)) {
        return -EINVAL; /* outside the registered memory */
    }
    unsigned index = queue % VIA_PLX_DMA_CHANNELS;
    struct via_plx_channel *channel = &engine->channels[index];
    if (!via_plx_channel_try_lock(channel)) {
        return -EAGAIN;
    }
    int rc = -EAGAIN;
    unsigned place = channel->head % VIA_PLX_SLOTS;
    /* Checked again under the lock, because revive() clears `works` before it takes the lock. */
    if (!atomic_load_explicit(&dma->works, memory_order_relaxed)) {
        rc = -ENOTSUP;
    } else if (channel->abort_ns == 0 && channel->slots[place].state == VIA_PLX_SLOT_FREE &&
               channel->head - channel->done < VIA_PLX_SLOTS - 1) {
        channel->slots[place] = (struct via_plx_slot){.state = VIA_PLX_SLOT_BUSY,
                                                      .user = dma,
                                                      .queue = queue,
                                                      .cookie = cookie,
                                                      .downs = downs};
        channel->head++;
        atomic_fetch_add_explicit(&dma->pending[queue], 1, memory_order_relaxed);
        fill(dma, &channel->ring[place], index * VIA_PLX_SLOTS + place, window, off, src, len);
        via_plx_channel_write(engine, index, VIA_PLX_DMA_CONTROL,
                              VIA_PLX_DMA_START | VIA_PLX_DMA_CLEARS);
        rc = 0;
    }
    via_plx_channel_unlock(channel);
    return rc;
}

/* --- completion --- */

void via_plx_channel_finish(struct via_plx_channel *channel, int rc_of_others)
{
    for (; channel->done != channel->head; channel->done++) {
        struct via_plx_slot *slot = &channel->slots[channel->done % VIA_PLX_SLOTS];
        slot->result = slot->aborted ? -ECANCELED : rc_of_others;
        slot->state = VIA_PLX_SLOT_DONE;
    }
}

/* Removes the access to memory of an engine that does not obey an abort. */
void via_plx_engine_cut_off(struct via_plx_engine *engine)
{
    atomic_store_explicit(&engine->dead, true, memory_order_relaxed);
    if (engine->pci != NULL) {
        (void)engine->pci->ops->config_write(engine->pci, VIA_PCI_COMMAND, 2,
                                             VIA_PCI_COMMAND_MEMORY);
    }
}

static void follow_abort(struct via_plx_engine *engine, unsigned index, uint64_t now_ns)
{
    struct via_plx_channel *channel = &engine->channels[index];
    uint32_t control = via_plx_channel_read(engine, index, VIA_PLX_DMA_CONTROL);
    /* All-ones: the read failed, and the engine may still copy. */
    bool is_over = control != UINT32_MAX && (control & VIA_PLX_DMA_ABORTED) != 0;
    if (!is_over && now_ns < channel->abort_ns + ABORT_NS &&
        !atomic_load_explicit(&engine->dead, memory_order_relaxed)) {
        return;
    }
    if (!is_over) {
        via_plx_engine_cut_off(engine);
    }
    via_plx_channel_finish(channel, -EIO);
    via_plx_channel_set_up(engine, index); /* slots stay until dma_take() */
}

/* Records the results that the engine has written back. */
static void collect_written(struct via_plx_channel *channel)
{
    while (channel->done != channel->head) {
        struct via_plx_slot *slot = &channel->slots[channel->done % VIA_PLX_SLOTS];
        /* Pairs with the engine's write-back. */
        uint32_t flags = atomic_load_explicit(&channel->ring[channel->done % VIA_PLX_SLOTS].flags,
                                              memory_order_acquire);
        if ((flags & VIA_PLX_DMA_VALID) != 0) {
            break;
        }
        slot->result = (flags & VIA_PLX_DMA_GOOD) != 0 ? 0 : -EIO;
        slot->state = VIA_PLX_SLOT_DONE;
        channel->done++;
    }
}

void via_plx_channel_collect(struct via_plx_engine *engine, unsigned index,
                             const struct via_pex_port *pex)
{
    struct via_plx_channel *channel = &engine->channels[index];
    collect_written(channel);
    uint64_t now_ns = channel->done != channel->head ? via_pex_now_ns(pex) : 0;
    if (channel->abort_ns != 0) {
        follow_abort(engine, index, via_pex_now_ns(pex));
    } else if (atomic_load_explicit(&engine->dead, memory_order_relaxed)) {
        via_plx_channel_finish(channel, -EIO);
    } else if (now_ns >= channel->poll_ns && now_ns != 0) {
        channel->poll_ns = now_ns + POLL_NS;
        /* The read pushes late write-backs to memory. If the engine has stopped with work left, it
         * is started again. */
        bool stands =
            (via_plx_channel_read(engine, index, VIA_PLX_DMA_CONTROL) & VIA_PLX_DMA_BUSY) == 0;
        collect_written(channel);
        if (stands && channel->done != channel->head) {
            via_plx_channel_write(engine, index, VIA_PLX_DMA_CONTROL,
                                  VIA_PLX_DMA_START | VIA_PLX_DMA_CLEARS);
        }
    }
}

/* Orders the engine's writes before later stores of the CPU, by a read on the path that both take:
 * their writes meet in the NT port. False if the link is down, or the peer's word has changed. */
static bool is_ordered(struct via_pex_port *pex)
{
    uint64_t expected = atomic_load_explicit(&pex->peer_word, memory_order_relaxed);
    return via_pex_port_is_up(pex) &&
           via_pex_load_word(pex, offsetof(struct via_pex_page, own.word)) == expected;
}

unsigned via_pex_dma_take(struct via_port *port, unsigned queue, uint64_t *ret_cookies,
                          int *ret_results, unsigned max)
{
    struct via_pex_port *pex = via_pex_port_of(port);
    struct via_pex_dma *dma = pex->dma;
    if (dma == NULL || queue >= VIA_PORT_DATA_DOORBELLS ||
        atomic_load_explicit(&dma->pending[queue], memory_order_relaxed) == 0) {
        return 0;
    }
    struct via_plx_channel *channel = &dma->engine->channels[queue % VIA_PLX_DMA_CHANNELS];
    unsigned count = 0;
    uint32_t downs[VIA_PLX_SLOTS];
    if (!via_plx_channel_try_lock(channel)) {
        return 0;
    }
    via_plx_channel_collect(dma->engine, queue % VIA_PLX_DMA_CHANNELS, pex);
    for (unsigned i = 0; i < VIA_PLX_SLOTS && count < max; i++) {
        /* Oldest first. */
        struct via_plx_slot *slot = &channel->slots[(channel->head + i) % VIA_PLX_SLOTS];
        if (slot->state == VIA_PLX_SLOT_DONE && slot->user == dma && slot->queue == queue) {
            ret_cookies[count] = slot->cookie;
            ret_results[count] = slot->result;
            downs[count++] = slot->downs;
            slot->state = VIA_PLX_SLOT_FREE;
        }
    }
    via_plx_channel_unlock(channel);
    bool ordered = count != 0 && is_ordered(pex);
    uint32_t now = atomic_load_explicit(&pex->downs, memory_order_acquire);
    for (unsigned i = 0; i < count; i++) {
        if (!ordered || downs[i] != now) {
            ret_results[i] = -ENOLINK;
        }
    }
    atomic_fetch_sub_explicit(&dma->pending[queue], count, memory_order_relaxed);
    return count;
}

void via_plx_channel_abort(struct via_pex_dma *dma, unsigned index, unsigned queue)
{
    struct via_plx_engine *engine = dma->engine;
    struct via_plx_channel *channel = &engine->channels[index];
    bool any = false;
    via_plx_channel_collect(engine, index, dma->pex);
    for (uint32_t i = channel->done; i != channel->head; i++) {
        struct via_plx_slot *slot = &channel->slots[i % VIA_PLX_SLOTS];
        bool is_meant = slot->user == dma && slot->queue == queue;
        slot->aborted |= is_meant;
        any |= is_meant;
    }
    if (any && channel->abort_ns == 0) {
        channel->abort_ns = via_pex_now_ns(dma->pex);
        via_plx_channel_write(engine, index, VIA_PLX_DMA_CONTROL,
                              VIA_PLX_DMA_ABORT | VIA_PLX_DMA_CLEARS);
    }
}

void via_pex_dma_abort(struct via_port *port, unsigned queue)
{
    struct via_pex_dma *dma = via_pex_port_of(port)->dma;
    if (dma == NULL || queue >= VIA_PORT_DATA_DOORBELLS) {
        return;
    }
    struct via_plx_channel *channel = &dma->engine->channels[queue % VIA_PLX_DMA_CHANNELS];
    /* Another queue's thread holds the lock for a few register accesses. If the lock stays taken
     * for LOCK_TRIES attempts, its holder was preempted; the caller repeats the abort later. */
    for (unsigned i = 0; i < LOCK_TRIES; i++) {
        if (via_plx_channel_try_lock(channel)) {
            via_plx_channel_abort(dma, queue % VIA_PLX_DMA_CHANNELS, queue);
            via_plx_channel_unlock(channel);
            return;
        }
        sched_yield();
    }
}
