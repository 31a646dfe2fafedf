/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The operations of core/port.h; opening and closing. */
#include "port/ofi/ops.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "port/ofi/port.h"

#define ALL_ONES UINT32_MAX
#define SCRATCHPADS_EACH (VIA_PORT_SCRATCHPADS / 2)
#define DOORBELLS_MASK ((UINT64_C(1) << VIA_PORT_DOORBELLS) - 1)
/* After this time a fence counts as lost, unless messages of the peer have arrived meanwhile. In
 * that case the peer is only slow, because a connection loses no messages, and taking the link down
 * would slow it further. */
#define FENCE_NS (900 * VIA_MSEC_NS)
#define FENCE_PATIENCE 4u
/* Large, because heartbeats pass the network and the threads of two hubs. The death of a process
 * ends its connection, and is therefore detected at once. */
#define SILENCE_NS (1 * VIA_SEC_NS)

/* --- posted writes --- */

static bool is_in_bounds(struct via_ofi_port *port, unsigned queue, uint64_t off, size_t len)
{
    uint64_t window = port->base.caps.window_bytes;
    if (queue < VIA_PORT_QUEUES && off <= window && len <= window - off) {
        return true;
    }
    via_ofi_count(&port->counters.puts_out_of_bounds);
    return false;
}

static bool is_link_there(struct via_ofi_port *port)
{
    if (via_ofi_port_is_up(port)) {
        return true;
    }
    via_ofi_count(&port->counters.puts_vanished);
    return false;
}

static void ofi_body(struct via_port *base, unsigned queue, uint64_t off, const void *src,
                     size_t len)
{
    struct via_ofi_port *port = via_ofi_port_of(base);
    if (is_in_bounds(port, queue, off, len) && len != 0 && is_link_there(port)) {
        via_ofi_post_body(port, queue, off, src, len);
    }
}

static void ofi_commit(struct via_port *base, unsigned queue, uint64_t off, const void *src,
                       size_t len)
{
    struct via_ofi_port *port = via_ofi_port_of(base);
    bool word = len == sizeof(uint64_t);
    if ((!word && len != VIA_CACHELINE) || off % len != 0) {
        via_ofi_count(&port->counters.puts_out_of_bounds);
        return;
    }
    if (is_in_bounds(port, queue, off, len) && is_link_there(port)) {
        struct via_ofi_entry head = {.kind = word ? VIA_OFI_ENTRY_WORD : VIA_OFI_ENTRY_LINE,
                                     .bytes = (uint16_t)len,
                                     .value = queue,
                                     .off = off};
        via_ofi_post_entry(port, queue, &head, src);
    }
}

static void ofi_flush(struct via_port *base, unsigned queue)
{
    via_ofi_post_flush(via_ofi_port_of(base), queue);
}

/* --- fences: a FENCE entry, and FENCED as the answer --- */

static int ofi_fence_start(struct via_port *base, unsigned index)
{
    struct via_ofi_port *port = via_ofi_port_of(base);
    if (index >= VIA_PORT_QUEUES) {
        return -EINVAL;
    }
    struct via_ofi_queue *queue = &port->queues[index];
    queue->fence_under_way = false;
    /* Loaded before the state of the link: a link-down after this load fails the fence. */
    queue->fence_session = atomic_load_explicit(&port->session, memory_order_acquire);
    if (!via_ofi_port_is_up(port)) {
        return -ENOLINK;
    }
    queue->fence_ns = via_ofi_hub_now_ns(port->hub);
    queue->fence_turns = 0;
    queue->fence_messages = atomic_load_explicit(&port->messages_received, memory_order_relaxed);
    queue->fence_under_way = true;
    struct via_ofi_entry head = {
        .kind = VIA_OFI_ENTRY_FENCE, .value = ++queue->fence, .off = index};
    via_ofi_post_entry(port, index, &head, NULL);
    via_ofi_post_flush(port, index);
    return 0;
}

static bool is_fenced(const struct via_ofi_queue *queue)
{
    /* Pairs with the release in receive.c: stores that the peer had flushed before its answer are
     * visible. */
    return atomic_load_explicit(&queue->fenced, memory_order_acquire) == queue->fence;
}

/* True if the missing answer to a fence means that the peer is dead. */
static bool is_fence_lost(struct via_ofi_port *port, struct via_ofi_queue *queue)
{
    uint64_t now_ns = via_ofi_hub_now_ns(port->hub);
    if (now_ns - queue->fence_ns <= FENCE_NS) {
        return false;
    }
    uint64_t messages = atomic_load_explicit(&port->messages_received, memory_order_relaxed);
    if (messages == queue->fence_messages || ++queue->fence_turns >= FENCE_PATIENCE) {
        return true;
    }
    queue->fence_messages = messages;
    queue->fence_ns = now_ns;
    return false;
}

static int ofi_fence_poll(struct via_port *base, unsigned index)
{
    struct via_ofi_port *port = via_ofi_port_of(base);
    if (index >= VIA_PORT_QUEUES || !port->queues[index].fence_under_way) {
        return -EINVAL;
    }
    struct via_ofi_queue *queue = &port->queues[index];
    if (!is_fenced(queue)) {
        (void)via_ofi_port_progress(port);
    }
    bool fenced = is_fenced(queue);
    if (!via_ofi_port_is_up(port) ||
        atomic_load_explicit(&port->session, memory_order_acquire) != queue->fence_session) {
        queue->fence_under_way = false;
        return -ENOLINK;
    }
    if (fenced) {
        queue->fence_under_way = false;
        return 1;
    }
    if (is_fence_lost(port, queue)) {
        queue->fence_under_way = false;
        via_ofi_port_down(port, "the peer does not answer a fence");
        return -ENOLINK;
    }
    return 0;
}

/* --- doorbells, events, scratchpads --- */

static int ofi_ring(struct via_port *base, unsigned queue, unsigned bit)
{
    struct via_ofi_port *port = via_ofi_port_of(base);
    if (bit >= VIA_PORT_DOORBELLS || queue >= VIA_PORT_QUEUES) {
        return -EINVAL;
    }
    if (!via_ofi_port_is_up(port)) {
        return -ENOLINK;
    }
    struct via_ofi_entry head = {.kind = VIA_OFI_ENTRY_BELL, .value = 1u << bit};
    via_ofi_post_entry(port, queue, &head, NULL);
    via_ofi_post_flush(port, queue);
    via_ofi_count(&port->counters.doorbells_fired);
    return 0;
}

static uint64_t ofi_events(struct via_port *base, uint64_t mask)
{
    struct via_ofi_port *port = via_ofi_port_of(base);
    uint32_t bells = (uint32_t)(mask & DOORBELLS_MASK);
    uint64_t edges = mask & ~DOORBELLS_MASK;
    uint64_t events = 0;
    if (bells != 0) {
        /* A transfer thread polls and makes progress, so the hub's thread need not. */
        if (!atomic_load_explicit(&port->polled, memory_order_relaxed)) {
            atomic_store_explicit(&port->polled, true, memory_order_relaxed);
        }
        (void)via_ofi_port_progress(port);
    }
    if ((atomic_load_explicit(&port->bells, memory_order_relaxed) & bells) != 0) {
        /* Acquire pairs with the release in receive.c. */
        events = atomic_fetch_and_explicit(&port->bells, ~bells, memory_order_acq_rel) & bells;
    }
    if ((atomic_load_explicit(&port->edges, memory_order_relaxed) & edges) != 0) {
        events |= atomic_fetch_and_explicit(&port->edges, ~edges, memory_order_acq_rel) & edges;
    }
    return events;
}

static void ofi_rest(struct via_port *base, unsigned queue)
{
    struct via_ofi_port *port = via_ofi_port_of(base);
    (void)queue;
    /* Pairs with progress() in hub.c: either the hub's thread loads `polled` as false, or this
     * thread loads `resting` as true and makes the hub's thread watch the connection. */
    atomic_store_explicit(&port->polled, false, memory_order_seq_cst);
    if (atomic_exchange_explicit(&port->resting, false, memory_order_seq_cst)) {
        via_ofi_hub_rest(port);
    }
}

static bool ofi_link_is_up(struct via_port *base)
{
    return via_ofi_port_is_up(via_ofi_port_of(base));
}

static uint32_t ofi_scratchpad_read(struct via_port *base, unsigned index)
{
    struct via_ofi_port *port = via_ofi_port_of(base);
    if (index >= VIA_PORT_SCRATCHPADS || !via_ofi_port_is_up(port)) {
        return ALL_ONES;
    }
    uint32_t value = atomic_load_explicit(&port->pads[index], memory_order_acquire);
    return via_ofi_port_is_up(port) ? value : ALL_ONES;
}

static void ofi_scratchpad_write(struct via_port *base, unsigned index, uint32_t value)
{
    struct via_ofi_port *port = via_ofi_port_of(base);
    if (index / SCRATCHPADS_EACH != base->side) {
        via_ofi_count(&port->counters.scratchpads_refused);
        return;
    }
    if (!via_ofi_port_is_up(port)) {
        return;
    }
    struct via_ofi_entry head = {
        .kind = VIA_OFI_ENTRY_SCRATCHPAD, .value = value, .off = index % SCRATCHPADS_EACH};
    atomic_store_explicit(&port->pads[index], value, memory_order_release);
    via_ofi_post_entry(port, VIA_PORT_QUEUE_CONTROL, &head, NULL);
    via_ofi_post_flush(port, VIA_PORT_QUEUE_CONTROL);
}

/* --- open and close --- */

void via_ofi_port_init(struct via_ofi_port *port)
{
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&port->rx_lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    pthread_mutex_init(&port->tx_lock, NULL);
    pthread_mutex_init(&port->state_lock, NULL);
    struct via_list *lists[] = {&port->link,     &port->messages_free, &port->writes_free,
                                &port->dma_free, &port->pending,       &port->flying};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(lists); i++) {
        via_list_init(lists[i]);
    }
    for (unsigned i = 0; i < VIA_PORT_DATA_DOORBELLS; i++) {
        via_list_init(&port->dma_done[i]);
    }
}

void via_ofi_port_fini(struct via_ofi_port *port)
{
    pthread_mutex_destroy(&port->rx_lock);
    pthread_mutex_destroy(&port->tx_lock);
    pthread_mutex_destroy(&port->state_lock);
}

static void ofi_close(struct via_port *base)
{
    struct via_ofi_port *port = via_ofi_port_of(base);
    struct via_ofi_hub *hub = port->hub;
    if (hub != NULL) {
        pthread_mutex_lock(&hub->lock);
        via_list_remove(&port->link);
        via_ofi_port_hang_up(port);
        via_ofi_resolve_drop(port->resolve);
        via_ofi_sends_close(port);
        pthread_mutex_unlock(&hub->lock);
        via_ofi_hub_put(hub);
    }
    if (port->changed_fd >= 0) {
        close(port->changed_fd);
    }
    if (base->inbox != NULL) {
        munmap(base->inbox, base->caps.inbox_bytes);
    }
    via_ofi_port_fini(port);
    free(port);
}

static const struct via_port_ops ofi_ops = {
    .body = ofi_body,
    .commit = ofi_commit,
    .flush = ofi_flush,
    .fence_start = ofi_fence_start,
    .fence_poll = ofi_fence_poll,
    .ring = ofi_ring,
    .dma = via_ofi_dma,
    .dma_take = via_ofi_dma_take,
    .dma_abort = via_ofi_dma_abort,
    .events = ofi_events,
    .rest = ofi_rest,
    .link_is_up = ofi_link_is_up,
    .scratchpad_read = ofi_scratchpad_read,
    .scratchpad_write = ofi_scratchpad_write,
    .close = ofi_close,
};

static struct via_ofi_port *new_port(const struct via_ofi_options *options)
{
    struct via_ofi_port *port = aligned_alloc(VIA_CACHELINE, sizeof(*port));
    if (port == NULL) {
        return NULL;
    }
    const struct via_driver_host *host = options->host;
    memset(port, 0, sizeof(*port));
    port->base.ops = &ofi_ops;
    port->base.side = host->host < host->peer ? 0 : 1;
    port->base.caps = (struct via_port_caps){
        .silence_ns = SILENCE_NS,
        .fence_wakes = true,
        .lines_wake = true,
        .window_bytes = host->inbox_bytes,
        .inbox_bytes = host->inbox_bytes,
        .store_bytes_max = sizeof(uint64_t),
        .dma_depth = host->dma && !options->encrypted ? VIA_OFI_DMA_DEPTH : 0,
        .coherent = false,
        .writes_ordered = false,
    };
    port->host = host;
    port->place = options->place;
    port->id = host->host;
    port->peer_id = host->peer;
    port->unordered = options->unordered;
    port->encrypted = options->encrypted;
    port->message_bytes =
        options->encrypted ? VIA_OFI_MESSAGE_BYTES_ENCRYPTED : VIA_OFI_MESSAGE_BYTES;
    port->changed_fd = -1;
    via_ofi_port_init(port);
    return port;
}

static int open_memory(struct via_ofi_port *port, const struct via_ofi_system *system,
                       struct via_error *err)
{
    struct via_port *base = &port->base;
    void *inbox = mmap(NULL, base->caps.inbox_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (inbox == MAP_FAILED) {
        return via_error_set(err, -errno, "inbox of %llu bytes: %s",
                             (unsigned long long)base->caps.inbox_bytes, strerror(errno));
    }
    base->inbox = inbox;
    int rc = system->changed_open(port);
    if (rc != 0) {
        return via_error_set(err, rc, "eventfd: %s", strerror(-rc));
    }
    if (!system->random(system, &port->instance, sizeof(port->instance))) {
        return via_error_set(err, -EIO, "random numbers: %s", strerror(errno));
    }
    return 0;
}

int via_ofi_port_open(const struct via_ofi_options *options, struct via_port **ret_port,
                      struct via_error *err)
{
    struct via_ofi_port *port = new_port(options);
    if (port == NULL) {
        return via_error_set(err, -ENOMEM, "ofi port: %s", strerror(ENOMEM));
    }
    int rc = open_memory(port, options->system, err);
    if (rc == 0) {
        rc = via_ofi_hub_get(options->system, options->provider, &options->listen,
                             !via_ofi_side_is_connector(port), &port->hub, err);
    }
    if (rc == 0) {
        port->unordered = port->unordered || !port->hub->ordered;
        rc = via_ofi_sends_open(port);
        if (rc != 0) {
            via_error_set(err, rc, "memory of what is sent: %s", port->hub->library->strerror(-rc));
        }
    }
    if (rc != 0) {
        ofi_close(&port->base);
        return rc;
    }
    pthread_mutex_lock(&port->hub->lock);
    port->tick_ns = via_ofi_hub_now_ns(port->hub);
    via_list_push_back(&port->hub->ports, &port->link);
    pthread_mutex_unlock(&port->hub->lock);
    via_ofi_hub_kick(port->hub);
    *ret_port = &port->base;
    return 0;
}
