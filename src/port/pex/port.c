/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The operations of core/port.h. */
#include "port/pex/port.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/copy.h"
#include "port/pex/regs.h"

#define ALL_ONES UINT32_MAX
#define SCRATCHPADS_EACH (VIA_PORT_SCRATCHPADS / 2)

void via_pex_count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* --- stores and loads --- */

static void store_fence(void)
{
#ifdef __SSE2__
    _mm_sfence();
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Orders write-combined stores: earlier stores leave the CPU before later ones. */
static inline void order_mapped_stores(const struct via_pex_port *pex)
{
    if (atomic_load_explicit(&pex->is_weak, memory_order_relaxed)) {
        store_fence();
    }
}

static void order_called_stores(const struct via_pex_port *pex)
{
    if (pex->pci->ops->fence != NULL) {
        pex->pci->ops->fence(pex->pci);
    }
}

void via_pex_drain(struct via_pex_port *pex)
{
    if (pex->mapping.at != NULL) {
        order_mapped_stores(pex);
    } else {
        order_called_stores(pex);
    }
    /* Later loads of local memory are not executed before these stores. */
    atomic_thread_fence(memory_order_seq_cst);
}

/* No store crosses an 8-byte boundary, because it would become two packets. */
static void store_mapped(const struct via_store *store, unsigned char *to,
                         const unsigned char *from, size_t len)
{
    size_t head = -(uintptr_t)to & 7u;
    if (head != 0) {
        head = via_min(head, len);
        for (size_t i = 0; i < head; i++) {
            ((volatile unsigned char *)to)[i] = from[i];
        }
    }
    to += head;
    from += head;
    len -= head;
    if (store != NULL) {
        /* Bytes up to the first multiple of the width, whole stores, and the rest. */
        size_t before = via_min(-(uintptr_t)to & (store->bytes - 1), len);
        size_t whole = (len - before) & ~(size_t)(store->bytes - 1);
        via_copy_once(to, from, before);
        store->copy(to + before, from + before, whole);
        to += before + whole;
        from += before + whole;
        len -= before + whole;
    }
    via_copy_once(to, from, len);
}

void via_pex_use_store(struct via_port *port, unsigned size_class, const struct via_store *store)
{
    struct via_pex_port *pex = via_pex_port_of(port);
    /* is_weak is never cleared: a thread that stored this way may commit after the method has
     * changed. */
    if (store != NULL && store->is_nontemporal) {
        atomic_store_explicit(&pex->is_weak, true, memory_order_relaxed);
    }
    /* Pairs with the acquire in via_pex_store(): a thread that sees the method also sees
     * is_weak. */
    atomic_store_explicit(&pex->stores[size_class], store, memory_order_release);
}

void via_pex_store(struct via_pex_port *pex, uint64_t off, const void *src, size_t len)
{
    if (via_likely(pex->mapping.at != NULL)) {
        /* Pairs with the release in via_pex_use_store(). */
        store_mapped(atomic_load_explicit(&pex->stores[via_store_class(len)], memory_order_acquire),
                     pex->mapping.at + off, src, len);
    } else {
        (void)pex->pci->ops->region_write(pex->pci, pex->config.bar, pex->window_off + off, src,
                                          len);
    }
}

static void store_word_by_call(struct via_pex_port *pex, uint64_t off, uint64_t word)
{
    order_called_stores(pex);
    (void)pex->pci->ops->region_write(pex->pci, pex->config.bar, pex->window_off + off, &word,
                                      sizeof(word));
}

static inline void store_word(struct via_pex_port *pex, uint64_t off, uint64_t word)
{
    if (via_likely(pex->mapping.at != NULL)) {
        order_mapped_stores(pex);
        /* One atomic store, after all earlier stores. Pairs with the reader's acquire load of this
         * word. */
        atomic_store_explicit((_Atomic uint64_t *)(void *)(pex->mapping.at + off), word,
                              memory_order_release);
    } else {
        store_word_by_call(pex, off, word);
    }
}

void via_pex_store_word(struct via_pex_port *pex, uint64_t off, uint64_t word)
{
    store_word(pex, off, word);
}

uint64_t via_pex_load_word(struct via_pex_port *pex, uint64_t off)
{
    uint64_t word = UINT64_MAX;
    if (pex->mapping.at != NULL) {
        return atomic_load_explicit((_Atomic uint64_t *)(void *)(pex->mapping.at + off),
                                    memory_order_acquire);
    }
    return pex->pci->ops->region_read(pex->pci, pex->config.bar, pex->window_off + off, &word,
                                      sizeof(word)) == 0
               ? word
               : UINT64_MAX;
}

/* --- posting --- */

static bool check_write(struct via_pex_port *pex, unsigned queue, uint64_t off, size_t len)
{
    uint64_t window = pex->base.caps.window_bytes;
    if (via_likely(queue < VIA_PORT_QUEUES && off <= window && len <= window - off)) {
        return true;
    }
    via_pex_count(&pex->counters.puts_out_of_bounds);
    return false;
}

static void leave(struct via_pex_port *pex, unsigned queue)
{
    atomic_store_explicit(&pex->queues[queue].busy, 0, memory_order_release);
}

/* The thread sets `busy`, then loads `up`; the control thread clears `up`, then loads `busy`.
 * membarrier() in quiesce() (link.c) is the full barrier between the two steps for both threads, so
 * a compiler barrier suffices here. */
static inline bool enter(struct via_pex_port *pex, unsigned queue)
{
    atomic_store_explicit(&pex->queues[queue].busy, 1, memory_order_relaxed);
    if (via_likely(pex->asymmetric)) {
        atomic_signal_fence(memory_order_seq_cst);
    } else {
        atomic_thread_fence(memory_order_seq_cst);
    }
    if (via_likely(atomic_load_explicit(&pex->up, memory_order_acquire))) {
        return true;
    }
    leave(pex, queue);
    return false;
}

static void pex_body(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                     size_t len)
{
    struct via_pex_port *pex = via_pex_port_of(port);
    if (!check_write(pex, queue, off, len)) {
        return;
    }
    if (!enter(pex, queue)) {
        via_pex_count(&pex->counters.puts_vanished);
        return;
    }
    if (len != 0) {
        via_pex_store(pex, VIA_PEX_PAGE_BYTES + off, src, len);
    }
    leave(pex, queue);
}

/* len: 8, or a cache line. Inlined for each value, because it is most of the cost of a put of 8
 * bytes. */
static inline void commit(struct via_pex_port *pex, unsigned queue, uint64_t off, const void *src,
                          size_t len)
{
    uint64_t word;
    if (!check_write(pex, queue, off, len)) {
        return;
    }
    if (!enter(pex, queue)) {
        via_pex_count(&pex->counters.puts_vanished);
        return;
    }
    size_t before = len - sizeof(word);
    if (before != 0) {
        via_pex_store(pex, VIA_PEX_PAGE_BYTES + off, src, before);
    }
    memcpy(&word, (const unsigned char *)src + before, sizeof(word));
    store_word(pex, VIA_PEX_PAGE_BYTES + off + before, word);
    leave(pex, queue);
}

static void pex_commit(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                       size_t len)
{
    struct via_pex_port *pex = via_pex_port_of(port);
    if (via_likely(len == sizeof(uint64_t) && off % sizeof(uint64_t) == 0)) {
        commit(pex, queue, off, src, sizeof(uint64_t));
    } else if (via_likely(len == VIA_CACHELINE && off % VIA_CACHELINE == 0)) {
        commit(pex, queue, off, src, VIA_CACHELINE);
    } else {
        via_pex_count(&pex->counters.puts_out_of_bounds);
    }
}

static void pex_flush(struct via_port *port, unsigned queue)
{
    (void)queue;
    via_pex_drain(via_pex_port_of(port));
}

/* --- fences: a load across the link --- */

static int pex_fence_start(struct via_port *port, unsigned queue)
{
    struct via_pex_port *pex = via_pex_port_of(port);
    if (queue >= VIA_PORT_QUEUES) {
        return -EINVAL;
    }
    struct via_pex_queue *mine = &pex->queues[queue];
    mine->fencing = false;
    /* Loaded before the state of the link: a link-down after this load fails the fence. */
    mine->downs = atomic_load_explicit(&pex->downs, memory_order_acquire);
    if (!via_pex_port_is_up(pex)) {
        return -ENOLINK;
    }
    via_pex_drain(pex);
    mine->fencing = true;
    return 0;
}

/* Marks the link as down, and wakes the control thread, which takes it down. */
static void raise_suspicion(struct via_pex_port *pex)
{
    uint64_t one = 1;
    atomic_store_explicit(&pex->up, false, memory_order_seq_cst);
    if (!atomic_exchange_explicit(&pex->suspect, true, memory_order_relaxed)) {
        (void)!write(pex->kick_fd, &one, sizeof(one));
    }
}

/*
 * The load is the round trip. The read request pushes earlier posted writes of this thread, and its
 * completion pushes posted writes of the peer (PCI Express base specification 2.4.1: neither read
 * requests nor completions pass posted writes). The loaded word is the peer's state: if it differs
 * from peer_word, the link has been down.
 */
static int pex_fence_poll(struct via_port *port, unsigned queue)
{
    struct via_pex_port *pex = via_pex_port_of(port);
    if (queue >= VIA_PORT_QUEUES || !pex->queues[queue].fencing) {
        return -EINVAL;
    }
    struct via_pex_queue *mine = &pex->queues[queue];
    mine->fencing = false;
    if (!via_pex_port_is_up(pex) ||
        atomic_load_explicit(&pex->downs, memory_order_acquire) != mine->downs) {
        return -ENOLINK;
    }
    uint64_t expected = atomic_load_explicit(&pex->peer_word, memory_order_relaxed);
    uint64_t word = via_pex_load_word(pex, offsetof(struct via_pex_page, own.word));
    if (atomic_load_explicit(&pex->downs, memory_order_acquire) != mine->downs) {
        return -ENOLINK;
    }
    if (word != expected) {
        raise_suspicion(pex);
        return -ENOLINK;
    }
    return 1;
}

/* --- doorbells and events --- */

static int pex_ring(struct via_port *port, unsigned queue, unsigned bit)
{
    struct via_pex_port *pex = via_pex_port_of(port);
    if (bit >= VIA_PORT_DOORBELLS || queue >= VIA_PORT_QUEUES) {
        return -EINVAL;
    }
    if (!enter(pex, queue)) {
        return -ENOLINK;
    }
    /* The doorbell follows the flushed posts: both take the same path to the NT port, which keeps
     * posted writes in order. The peer reads its doorbells from the NT port, and that read pushes
     * the writes ahead of them. */
    via_pex_chip_ring(pex, UINT32_C(1) << bit);
    leave(pex, queue);
    via_pex_count(&pex->counters.rings);
    return 0;
}

static uint64_t pex_events(struct via_port *port, uint64_t mask)
{
    struct via_pex_port *pex = via_pex_port_of(port);
    if ((atomic_load_explicit(&pex->events, memory_order_relaxed) & mask) == 0) {
        return 0;
    }
    /* Pairs with the fetch-or in link.c. */
    return atomic_fetch_and_explicit(&pex->events, ~mask, memory_order_seq_cst) & mask;
}

static bool pex_link_is_up(struct via_port *port)
{
    return via_pex_port_is_up(via_pex_port_of(port));
}

/* --- scratchpads: eight registers of the NT port, the first four for side 0 (F) --- */

static uint32_t pex_scratchpad_read(struct via_port *port, unsigned index)
{
    struct via_pex_port *pex = via_pex_port_of(port);
    if (index >= VIA_PORT_SCRATCHPADS || !via_pex_port_is_up(pex)) {
        return ALL_ONES;
    }
    uint32_t value = via_pex_chip_pad(pex, index);
    return via_pex_port_is_up(pex) ? value : ALL_ONES;
}

static void pex_scratchpad_write(struct via_port *port, unsigned index, uint32_t value)
{
    struct via_pex_port *pex = via_pex_port_of(port);
    if (index / SCRATCHPADS_EACH != port->side) {
        via_pex_count(&pex->counters.scratchpads_refused);
        return;
    }
    if (via_pex_port_is_up(pex)) {
        via_pex_chip_set_pad(pex, index, value);
    }
}

const struct via_port_ops via_pex_port_ops = {
    .body = pex_body,
    .commit = pex_commit,
    .flush = pex_flush,
    .fence_start = pex_fence_start,
    .fence_poll = pex_fence_poll,
    .ring = pex_ring,
    .dma = via_pex_dma_start,
    .dma_take = via_pex_dma_take,
    .dma_abort = via_pex_dma_abort,
    .events = pex_events,
    .link_is_up = pex_link_is_up,
    .scratchpad_read = pex_scratchpad_read,
    .scratchpad_write = pex_scratchpad_write,
    .close = via_pex_port_close,
};
