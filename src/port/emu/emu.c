/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "port/emu/emu.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/copy.h"
#include "port/emu/cable.h"
#include "port/emu/memory.h"
#include "port/emu/port.h"

#define ALL_ONES UINT32_MAX
#define SCRATCHPADS_EACH (VIA_PORT_SCRATCHPADS / 2)

uint64_t via_emu_now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * VIA_SEC_NS + (uint64_t)time.tv_nsec;
}

void via_emu_port_wait(uint64_t ns)
{
    uint64_t end_ns = ns != 0 ? via_emu_now_ns() + ns : 0;
    while (ns != 0 && via_emu_now_ns() < end_ns) {
    }
}

/* --- operations of core/port.h --- */

static void store_word(unsigned char *to, const void *from)
{
    uint64_t word;
    memcpy(&word, from, sizeof(word));
    /* One atomic store, after the bytes before it. Pairs with the reader's acquire load of this
     * word. */
    atomic_store_explicit((_Atomic uint64_t *)(void *)to, word, memory_order_release);
}

bool via_emu_port_check_write(struct via_emu_port *emu, unsigned queue, uint64_t off, size_t len)
{
    const struct via_port_caps *caps = &emu->base.caps;

    if (queue < VIA_PORT_QUEUES && off <= caps->window_bytes && len <= caps->window_bytes - off) {
        return true;
    }
    via_emu_port_count(&emu->counters.puts_out_of_bounds);
    return false;
}

bool via_emu_port_check_commit(struct via_emu_port *emu, unsigned queue, uint64_t off, size_t len)
{
    if ((len == sizeof(uint64_t) || len == VIA_CACHELINE) && off % len == 0) {
        return via_emu_port_check_write(emu, queue, off, len);
    }
    via_emu_port_count(&emu->counters.puts_out_of_bounds);
    return false;
}

/* The address for a write that is in bounds; NULL: the link is down, and the write vanishes. */
static unsigned char *place_of(struct via_emu_port *emu, uint64_t off)
{
    if (via_emu_port_is_up(emu)) {
        return emu->window + off;
    }
    via_emu_port_count(&emu->counters.puts_vanished);
    return NULL;
}

static void emu_body(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                     size_t len)
{
    struct via_emu_port *emu = via_emu_port_of(port);
    unsigned char *to = via_emu_port_check_write(emu, queue, off, len) ? place_of(emu, off) : NULL;
    if (to != NULL) {
        via_copy_foreign(to, src, len);
    }
}

static void emu_commit(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                       size_t len)
{
    struct via_emu_port *emu = via_emu_port_of(port);
    unsigned char *to = via_emu_port_check_commit(emu, queue, off, len) ? place_of(emu, off) : NULL;
    if (to == NULL) {
        return;
    }
    size_t before = len - sizeof(uint64_t);
    memcpy(to, src, before);
    /* The release store of the word orders all earlier stores of this thread before it. */
    store_word(to + before, (const unsigned char *)src + before);
}

static void emu_flush(struct via_port *port, unsigned queue)
{
    (void)port;
    (void)queue;
    /* Drains the CPU's store buffer: the caller's next load may check whether the peer sleeps. */
    atomic_thread_fence(memory_order_seq_cst);
}

int via_emu_fence_begin(struct via_emu_port *emu, unsigned queue)
{
    if (queue >= VIA_PORT_QUEUES) {
        return -EINVAL;
    }
    struct via_emu_fence *fence = &emu->fences[queue];
    fence->under_way = false;
    /* Loaded before the state of the link: a link-down after this load fails the fence. */
    fence->downs = atomic_load_explicit(&emu->downs, memory_order_acquire);
    if (!via_emu_port_is_up(emu)) {
        return -ENOLINK;
    }
    fence->since_ns = via_emu_now_ns();
    fence->under_way = true;
    return 0;
}

int via_emu_fence_check(struct via_emu_port *emu, unsigned queue)
{
    if (queue >= VIA_PORT_QUEUES || !emu->fences[queue].under_way) {
        return -EINVAL;
    }
    struct via_emu_fence *fence = &emu->fences[queue];
    if (!via_emu_port_is_up(emu) ||
        atomic_load_explicit(&emu->downs, memory_order_acquire) != fence->downs) {
        return via_emu_fence_end(emu, queue, -ENOLINK);
    }
    return 0;
}

int via_emu_fence_end(struct via_emu_port *emu, unsigned queue, int rc)
{
    emu->fences[queue].under_way = false;
    return rc;
}

static int emu_fence_start(struct via_port *port, unsigned queue)
{
    /* A store has arrived when it is in the cache. This fence waits for that. */
    atomic_thread_fence(memory_order_seq_cst);
    return via_emu_fence_begin(via_emu_port_of(port), queue);
}

static int emu_fence_poll(struct via_port *port, unsigned queue)
{
    struct via_emu_port *emu = via_emu_port_of(port);
    int rc = via_emu_fence_check(emu, queue);
    return rc == 0 ? via_emu_fence_end(emu, queue, 1) : rc;
}

static int emu_ring(struct via_port *port, unsigned queue, unsigned bit)
{
    struct via_emu_port *emu = via_emu_port_of(port);

    if (bit >= VIA_PORT_DOORBELLS) {
        return -EINVAL;
    }
    if (!via_emu_port_is_up(emu)) {
        return -ENOLINK;
    }
    if (emu->lanes != NULL) {
        via_emu_posted_rang(emu, queue, bit);
    }
    /* Pairs with the fetch-and in events(): the reader of the doorbell sees all puts from before
     * it. */
    uint32_t old = atomic_fetch_or_explicit(&emu->bridge->doorbell[1 - port->side].pending,
                                            1u << bit, memory_order_seq_cst);
    if ((old & 1u << bit) != 0) {
        /* Fires only on 0 -> 1, as a message-signalled interrupt does. */
        via_emu_port_count(&emu->counters.doorbells_coalesced);
        return 0;
    }
    via_emu_port_count(&emu->counters.doorbells_fired);
    uint32_t lines = atomic_load_explicit(&emu->peer_bell_lines, memory_order_relaxed);
    if (lines != 0) {
        via_bell_ring(&emu->bells[via_emu_bell_line(bit, lines)]);
    }
    return 0;
}

static uint64_t emu_events(struct via_port *port, uint64_t mask)
{
    struct via_emu_port *emu = via_emu_port_of(port);
    uint32_t doorbells = (uint32_t)(mask & ((1u << VIA_PORT_DOORBELLS) - 1));
    uint64_t edges = mask & (VIA_PORT_EVENT_CONTROL | VIA_PORT_EVENT_DMA_DONE_ANY);
    _Atomic uint32_t *pending = &emu->bridge->doorbell[port->side].pending;
    uint64_t events = 0;

    if (emu->lanes != NULL) {
        via_emu_posted_pull(emu, mask);
    }
    /* Loaded before the read-modify-write: most polls find no doorbell, and a load does not take
     * the cache line from the peer. */
    if ((atomic_load_explicit(pending, memory_order_relaxed) & doorbells) != 0) {
        /* Pairs with the fetch-or in ring(). Masked, because the peer can set any bit. */
        events |= atomic_fetch_and_explicit(pending, ~doorbells, memory_order_seq_cst) & doorbells;
        for (unsigned bit = 0; emu->lanes != NULL && bit < VIA_PORT_DOORBELLS; bit++) {
            if ((events & VIA_PORT_EVENT_DOORBELL(bit)) != 0) {
                via_emu_posted_take_bell(emu, bit);
            }
        }
    }
    if ((atomic_load_explicit(&emu->edges, memory_order_relaxed) & edges) != 0) {
        events |= atomic_fetch_and_explicit(&emu->edges, ~edges, memory_order_acq_rel) & edges;
    }
    return events;
}

static bool emu_link_is_up(struct via_port *port)
{
    return via_emu_port_is_up(via_emu_port_of(port));
}

static uint32_t emu_scratchpad_read(struct via_port *port, unsigned index)
{
    struct via_emu_port *emu = via_emu_port_of(port);

    if (index >= VIA_PORT_SCRATCHPADS || !via_emu_port_is_up(emu)) {
        return ALL_ONES;
    }
    via_emu_port_wait(emu->like->pad_ns);
    /* Pairs with the release in emu_scratchpad_write(). */
    uint32_t value = atomic_load_explicit(&emu->bridge->scratchpad[index], memory_order_acquire);
    /* If the link went down meanwhile, the value may be the zero of link_down(), not one of the
     * peer. */
    return via_emu_port_is_up(emu) ? value : ALL_ONES;
}

static void emu_scratchpad_write(struct via_port *port, unsigned index, uint32_t value)
{
    struct via_emu_port *emu = via_emu_port_of(port);

    if (index / SCRATCHPADS_EACH != port->side) {
        via_emu_port_count(&emu->counters.scratchpads_refused);
        return;
    }
    if (via_emu_port_is_up(emu)) {
        atomic_store_explicit(&emu->bridge->scratchpad[index], value, memory_order_release);
    }
}

/* --- open and close --- */

static void emu_close(struct via_port *port)
{
    struct via_emu_port *emu = via_emu_port_of(port);

    if (emu->listen_fd >= 0) {
        /* Before the descriptor is closed: while the name exists, a process listens behind it. */
        unlink(emu->path);
    }
    via_emu_link_disconnect(emu);
    via_emu_slices_forget(emu);
    int *fds[] = {&emu->listen_fd, &emu->epoll_fd, &emu->inbox_fd,
                  &emu->bell_fd,   &emu->ones_fd,  &emu->alarm_fd};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(fds); i++) {
        if (*fds[i] >= 0) {
            close(*fds[i]);
        }
    }
    via_emu_range_free(emu->window, port->caps.window_bytes);
    via_emu_range_free(port->inbox, port->caps.inbox_bytes);
    via_emu_range_free(emu->bridge, emu->bridge_bytes);
    via_emu_range_free(emu->bells, VIA_EMU_BELL_BYTES);
    via_emu_dma_close(emu);
    via_emu_posted_close(emu);
    free(emu->path);
    free(emu);
}

static const struct via_port_ops emu_ops = {
    .body = emu_body,
    .commit = emu_commit,
    .flush = emu_flush,
    .fence_start = emu_fence_start,
    .fence_poll = emu_fence_poll,
    .ring = emu_ring,
    .dma = via_emu_dma,
    .dma_take = via_emu_dma_take,
    .dma_abort = via_emu_dma_abort,
    .events = emu_events,
    .link_is_up = emu_link_is_up,
    .scratchpad_read = emu_scratchpad_read,
    .scratchpad_write = emu_scratchpad_write,
    .close = emu_close,
};

/* For classes with lanes. */
static const struct via_port_ops lane_ops = {
    .body = via_emu_posted_body,
    .commit = via_emu_posted_commit,
    .flush = via_emu_posted_flush,
    .fence_start = via_emu_posted_fence_start,
    .fence_poll = via_emu_posted_fence_poll,
    .ring = emu_ring,
    .dma = via_emu_dma,
    .dma_take = via_emu_dma_take,
    .dma_abort = via_emu_dma_abort,
    .events = emu_events,
    .link_is_up = emu_link_is_up,
    .scratchpad_read = emu_scratchpad_read,
    .scratchpad_write = emu_scratchpad_write,
    .close = emu_close,
};

static int check_options(const struct via_emu_options *options, struct via_error *err)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t window = options->window_bytes;

    if (options->path == NULL || options->path[0] == '\0') {
        return via_error_set(err, -EINVAL, "no path");
    }
    if (options->side > 1) {
        return via_error_set(err, -EINVAL, "side %u, a link has 0 and 1", options->side);
    }
    if (options->inbox_bytes == 0 || options->inbox_bytes % page != 0 ||
        options->inbox_bytes > VIA_EMU_INBOX_BYTES_MAX || window % page != 0 ||
        window > VIA_EMU_INBOX_BYTES_MAX) {
        return via_error_set(
            err, -EINVAL,
            "inbox of %llu bytes and window of %llu: not multiples of %llu, or more than %llu",
            (unsigned long long)options->inbox_bytes, (unsigned long long)window,
            (unsigned long long)page, (unsigned long long)VIA_EMU_INBOX_BYTES_MAX);
    }
    if (options->bell_lines > VIA_EMU_BELL_LINES_MAX ||
        (options->bell_fd < 0) != (options->bell_lines == 0)) {
        return via_error_set(err, -EINVAL, "bell page with %u lines, 1 to %u are possible",
                             options->bell_lines, VIA_EMU_BELL_LINES_MAX);
    }
    return 0;
}

/* Checks inbox and window against the class of links. */
static int check_like(const struct via_emu_options *options, struct via_error *err)
{
    const struct via_emu_like *like = options->like;
    if (like == NULL || like->window_bytes_max == 0) {
        return 0;
    }
    uint64_t window = options->window_bytes != 0 ? options->window_bytes : like->window_bytes;
    if (window < VIA_EMU_WINDOW_BYTES_MIN || window > like->window_bytes_max) {
        return via_error_set(err, -EINVAL, "window of %llu bytes: one like %s has %llu to %llu",
                             (unsigned long long)window, like->name,
                             (unsigned long long)VIA_EMU_WINDOW_BYTES_MIN,
                             (unsigned long long)like->window_bytes_max);
    }
    return 0;
}

static int check_engine(const struct via_emu_options *options, struct via_error *err)
{
    return options->dma_depth <= VIA_EMU_DMA_DEPTH_MAX
               ? 0
               : via_error_set(err, -EINVAL, "DMA engine of depth %u, at most %u are possible",
                               options->dma_depth, VIA_EMU_DMA_DEPTH_MAX);
}

static struct via_emu_port *new_port(const struct via_emu_options *options)
{
    struct via_emu_port *emu = calloc(1, sizeof(*emu));
    if (emu == NULL) {
        return NULL;
    }
    emu->path = strdup(options->path);
    if (emu->path == NULL) {
        free(emu);
        return NULL;
    }
    const char *slash = strrchr(emu->path, '/');
    const char *base = slash != NULL ? slash + 1 : emu->path;
    size_t length = strlen(base);
    if (length > 5 && strcmp(base + length - 5, ".sock") == 0) {
        length -= 5;
    }
    snprintf(emu->name, sizeof(emu->name), "%.*s", (int)length, base);

    const struct via_emu_like *like =
        options->like != NULL ? options->like : via_emu_like_find("memory");
    uint64_t window = options->window_bytes != 0 ? options->window_bytes
                      : like->window_bytes != 0  ? like->window_bytes
                                                 : options->inbox_bytes;
    emu->like = like;
    emu->window_bytes = window;
    window = via_emu_slices_init(emu, options, window);
    emu->maps_memory = options->direct && like->maps_memory;
    emu->base.ops = like->lanes ? &lane_ops : &emu_ops;
    emu->base.side = options->side;
    emu->base.caps = (struct via_port_caps){
        .window_bytes = window,
        /* If the class has a window size, as a BAR has, the inbox is as large as the window, so
         * that the nodes of both ends compute the same sizes. */
        .inbox_bytes = like->window_bytes != 0 ? window : options->inbox_bytes,
        .store_bytes_max = sizeof(uint64_t),
        .dma_depth = options->dma_depth,
        .coherent = like->coherent && options->direct,
        .writes_ordered = like->writes_ordered,
        .read_ns = like->read_ns,
    };
    emu->bridge_bytes = VIA_EMU_BRIDGE_BYTES;
    if (like->lanes) {
        emu->bridge_bytes += VIA_EMU_LANES_BYTES;
    }
    emu->host = options->host;
    emu->bell_lines = (uint16_t)options->bell_lines;
    emu->mode = options->mode != 0 ? options->mode : 0600;
    emu->on_message = options->on_message;
    emu->ctx = options->ctx;
    emu->inbox_fd = emu->bell_fd = emu->ones_fd = emu->epoll_fd = emu->listen_fd = -1;
    emu->alarm_fd = -1;
    emu->cable_fd = emu->bridge_fd = emu->peer_inbox_fd = -1;
    return emu;
}

static int open_bell(struct via_emu_port *emu, int bell_fd, struct via_error *err)
{
    if (bell_fd < 0) {
        int rc = via_emu_memfd_new("viaduct-bell", VIA_EMU_BELL_BYTES, &emu->bell_fd);
        return rc == 0 ? 0 : via_error_set(err, rc, "bell page: %s", strerror(-rc));
    }
    int rc = via_emu_memfd_check(bell_fd, VIA_EMU_BELL_BYTES);
    if (rc != 0) {
        return via_error_set(err, rc, "bell page: no memfd of %zu bytes sealed against shrinking",
                             VIA_EMU_BELL_BYTES);
    }
    emu->bell_fd = fcntl(bell_fd, F_DUPFD_CLOEXEC, 0);
    return emu->bell_fd >= 0 ? 0 : via_error_set(err, -errno, "bell page: %s", strerror(errno));
}

static int open_memory(struct via_emu_port *emu, struct via_error *err)
{
    struct via_port *port = &emu->base;

    port->inbox = via_emu_range_new(port->caps.inbox_bytes);
    emu->window = via_emu_range_new(port->caps.window_bytes);
    emu->bridge = via_emu_range_new(emu->bridge_bytes);
    emu->bells = via_emu_range_new(VIA_EMU_BELL_BYTES);
    if (!port->inbox || !emu->window || !emu->bridge || !emu->bells) {
        return via_error_set(err, -ENOMEM, "addresses for inbox and window: %s", strerror(ENOMEM));
    }
    int rc = via_emu_memfd_new("viaduct-inbox", port->caps.inbox_bytes, &emu->inbox_fd);
    if (rc == 0) {
        rc = via_emu_range_share(port->inbox, port->caps.inbox_bytes, emu->inbox_fd);
    }
    if (rc == 0) {
        rc = via_emu_ones_new(&emu->ones_fd);
    }
    if (rc == 0) {
        rc = via_emu_range_fill_ones(emu->window, port->caps.window_bytes, emu->ones_fd);
    }
    if (rc == 0) {
        rc = via_emu_range_zero(emu->bridge, emu->bridge_bytes);
    }
    if (rc == 0) {
        rc = via_emu_range_zero(emu->bells, VIA_EMU_BELL_BYTES);
    }
    if (rc != 0) {
        return via_error_set(err, rc, "memory for inbox and window: %s", strerror(-rc));
    }
    if (emu->base.caps.coherent) {
        port->window = emu->window;
    }
    return 0;
}

/* Opens the lanes, and the eventfd by which threads in lanes wake the control thread. */
static int open_lanes(struct via_emu_port *emu, const struct via_emu_options *options,
                      struct via_error *err)
{
    struct epoll_event event = {.events = EPOLLIN};
    if (!emu->like->lanes) {
        return 0;
    }
    if (via_emu_posted_open(emu, options) != 0) {
        return via_error_set(err, -ENOMEM, "lanes: %s", strerror(ENOMEM));
    }
    emu->alarm_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (emu->alarm_fd < 0 || epoll_ctl(emu->epoll_fd, EPOLL_CTL_ADD, emu->alarm_fd, &event) != 0) {
        return via_error_set(err, -errno, "eventfd: %s", strerror(errno));
    }
    return 0;
}

static int open_cable(struct via_emu_port *emu, struct via_error *err)
{
    emu->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (emu->epoll_fd < 0) {
        return via_error_set(err, -errno, "epoll: %s", strerror(errno));
    }
    if (emu->base.side != 0) {
        return 0;
    }
    int rc = via_emu_cable_listen(emu->path, emu->mode, &emu->listen_fd, err);
    if (rc != 0) {
        via_error_prefix(err, "listen on %s: ", emu->path);
        return rc;
    }
    struct epoll_event event = {.events = EPOLLIN};
    if (epoll_ctl(emu->epoll_fd, EPOLL_CTL_ADD, emu->listen_fd, &event) != 0) {
        return via_error_set(err, -errno, "epoll: %s", strerror(errno));
    }
    return 0;
}

int via_emu_port_open(const struct via_emu_options *options, struct via_port **ret_port,
                      struct via_error *err)
{
    int rc = check_options(options, err);
    if (rc == 0) {
        rc = check_like(options, err);
    }
    if (rc == 0) {
        rc = check_engine(options, err);
    }
    if (rc != 0) {
        via_error_prefix(err, "emulated port: ");
        return rc;
    }
    struct via_emu_port *emu = new_port(options);
    if (emu == NULL) {
        return via_error_set(err, -ENOMEM, "emulated port: %s", strerror(ENOMEM));
    }
    rc = open_bell(emu, options->bell_fd, err);
    if (rc == 0) {
        rc = open_memory(emu, err);
    }
    if (rc == 0 && via_emu_dma_open(emu) != 0) {
        rc = via_error_set(err, -ENOMEM, "queues of the DMA engine: %s", strerror(ENOMEM));
    }
    if (rc == 0) {
        rc = open_cable(emu, err);
    }
    if (rc == 0) {
        rc = open_lanes(emu, options, err);
    }
    if (rc != 0) {
        via_error_prefix(err, "%s: ", emu->name);
        emu_close(&emu->base);
        return rc;
    }
    *ret_port = &emu->base;
    return 0;
}

int via_emu_port_fd(const struct via_port *port)
{
    return via_emu_port_of(port)->epoll_fd;
}

void via_emu_port_status(const struct via_port *port, struct via_emu_status *ret_status)
{
    const struct via_emu_port *emu = via_emu_port_of(port);
    const struct via_emu_counters *counters = &emu->counters;
    bool joined = emu->state == VIA_EMU_CABLE_JOINED;

    *ret_status = (struct via_emu_status){
        .connected = joined,
        .up = via_emu_port_is_up(emu),
        .cut = emu->cut,
        .peer_pid = joined ? emu->peer_pid : 0,
        .peer_host = joined ? emu->peer_host : 0,
        .peer_inbox_bytes = joined ? emu->peer_inbox_bytes : 0,
        .window_bytes = emu->window_bytes,
        .ups_count = emu->ups_count,
        .downs_count = emu->downs_count,
        .puts_out_of_bounds =
            atomic_load_explicit(&counters->puts_out_of_bounds, memory_order_relaxed),
        .puts_vanished = atomic_load_explicit(&counters->puts_vanished, memory_order_relaxed),
        .doorbells_fired = atomic_load_explicit(&counters->doorbells_fired, memory_order_relaxed),
        .doorbells_coalesced =
            atomic_load_explicit(&counters->doorbells_coalesced, memory_order_relaxed),
        .scratchpads_refused =
            atomic_load_explicit(&counters->scratchpads_refused, memory_order_relaxed),
        .messages_sent = emu->messages_sent,
        .messages_received = emu->messages_received,
        .messages_dropped = emu->messages_dropped,
        .peers_refused = emu->peers_refused,
    };
    memcpy(ret_status->error, emu->error, sizeof(emu->error));
}
