/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "port/ivshmem/ivshmem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/copy.h"
#include "port/emu/memory.h"
#include "port/ivshmem/port.h"
#include "vfio/guard.h"
#include "vfio/kernel.h"

#define ALL_ONES UINT32_MAX
#define PADS_EACH (VIA_PORT_SCRATCHPADS / 2)
/* Bounds take_doorbell() if the peer rings without pause. */
#define TAKES_MAX 4u

/* --- operations of core/port.h --- */

/* The address for a write; NULL: out of bounds, or the link is down. */
static unsigned char *place_of(struct via_ivshmem_port *self, unsigned queue, uint64_t off,
                               size_t len)
{
    uint64_t bytes = self->base.caps.window_bytes;
    if (queue >= VIA_PORT_QUEUES || off > bytes || len > bytes - off) {
        via_ivshmem_count(&self->puts_out_of_bounds);
        return NULL;
    }
    return via_ivshmem_port_is_up(self) ? self->window + off : NULL;
}

static void ivshmem_body(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                         size_t len)
{
    unsigned char *to = place_of(via_ivshmem_port_of(port), queue, off, len);
    if (to != NULL) {
        via_copy_foreign(to, src, len);
    }
}

static void ivshmem_commit(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                           size_t len)
{
    struct via_ivshmem_port *self = via_ivshmem_port_of(port);
    uint64_t word;
    if ((len != sizeof(word) && len != VIA_CACHELINE) || off % len != 0) {
        via_ivshmem_count(&self->puts_out_of_bounds);
        return;
    }
    unsigned char *to = place_of(self, queue, off, len);
    if (to == NULL) {
        return;
    }
    size_t before = len - sizeof(word);
    memcpy(to, src, before);
    memcpy(&word, (const unsigned char *)src + before, sizeof(word));
    /* One atomic store, after the bytes before it. Pairs with the reader's acquire load of this
     * word. */
    atomic_store_explicit((_Atomic uint64_t *)(void *)(to + before), word, memory_order_release);
}

static void ivshmem_flush(struct via_port *port, unsigned queue)
{
    (void)port;
    (void)queue;
    /* The caller's next load may check whether the peer sleeps. */
    atomic_thread_fence(memory_order_seq_cst);
}

static int ivshmem_fence_start(struct via_port *port, unsigned queue)
{
    struct via_ivshmem_port *self = via_ivshmem_port_of(port);
    if (queue >= VIA_PORT_QUEUES) {
        return -EINVAL;
    }
    struct via_ivshmem_fence *fence = &self->fences[queue];
    atomic_thread_fence(memory_order_seq_cst);
    fence->under_way = false;
    /* Loaded before the state of the link: a link-down after this load fails the fence. */
    fence->downs = atomic_load_explicit(&self->downs, memory_order_acquire);
    if (!via_ivshmem_port_is_up(self)) {
        return -ENOLINK;
    }
    fence->under_way = true;
    return 0;
}

static int ivshmem_fence_poll(struct via_port *port, unsigned queue)
{
    struct via_ivshmem_port *self = via_ivshmem_port_of(port);
    if (queue >= VIA_PORT_QUEUES || !self->fences[queue].under_way) {
        return -EINVAL;
    }
    struct via_ivshmem_fence *fence = &self->fences[queue];
    fence->under_way = false;
    return via_ivshmem_port_is_up(self) &&
                   atomic_load_explicit(&self->downs, memory_order_acquire) == fence->downs
               ? 1
               : -ENOLINK;
}

/* `ringers` counts threads that ring, so that the control thread does not close the peer's eventfds
 * under them. Either this thread loads `up` as false, or wait_for_ringers() loads the count. */
static int interrupt(struct via_ivshmem_port *self, unsigned bit)
{
    int rc = -ENOLINK;
    atomic_fetch_add_explicit(&self->ringers, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&self->up, memory_order_seq_cst)) {
        self->device->ops->ring(self->device, bit);
        rc = 0;
    }
    /* Pairs with the acquire in wait_for_ringers(). */
    atomic_fetch_sub_explicit(&self->ringers, 1, memory_order_release);
    return rc;
}

static int ivshmem_ring(struct via_port *port, unsigned queue, unsigned bit)
{
    struct via_ivshmem_port *self = via_ivshmem_port_of(port);
    (void)queue;
    if (bit >= VIA_PORT_DOORBELLS) {
        return -EINVAL;
    }
    if (!via_ivshmem_port_is_up(self)) {
        return -ENOLINK;
    }
    /* Either this thread sees that the peer has taken all earlier rings, and interrupts it; or the
     * peer, which loads `rung` again after its store to `taken`, sees this ring:
     * take_doorbell(). */
    uint32_t before =
        atomic_fetch_add_explicit(&via_ivshmem_own(self)->rung[bit], 1, memory_order_seq_cst);
    if (atomic_load_explicit(&via_ivshmem_peer(self)->taken[bit], memory_order_seq_cst) != before) {
        via_ivshmem_count(&self->doorbells_coalesced);
        return 0;
    }
    via_ivshmem_count(&self->doorbells_fired);
    return interrupt(self, bit);
}

/* Takes a doorbell that was rung since it was last taken. */
static void take_doorbell(struct via_ivshmem_port *self, unsigned bit, uint32_t rung)
{
    _Atomic uint32_t *peer = &via_ivshmem_peer(self)->rung[bit];
    for (unsigned i = 0; i < TAKES_MAX; i++) {
        atomic_store_explicit(&self->taken[bit], rung, memory_order_relaxed);
        atomic_store_explicit(&via_ivshmem_own(self)->taken[bit], rung, memory_order_seq_cst);
        uint32_t again = atomic_load_explicit(peer, memory_order_seq_cst);
        if (again == rung) {
            return;
        }
        rung = again;
    }
}

static uint64_t ivshmem_events(struct via_port *port, uint64_t mask)
{
    struct via_ivshmem_port *self = via_ivshmem_port_of(port);
    uint64_t edges = mask & VIA_PORT_EVENT_CONTROL;
    uint32_t doorbells = (uint32_t)(mask & ((1u << VIA_PORT_DOORBELLS) - 1));
    uint64_t events = 0;

    while (doorbells != 0) {
        unsigned bit = (unsigned)__builtin_ctz(doorbells);
        doorbells &= doorbells - 1;
        /* Pairs with the addition in ivshmem_ring(): the reader sees all puts from before the
         * doorbell. */
        uint32_t rung =
            atomic_load_explicit(&via_ivshmem_peer(self)->rung[bit], memory_order_acquire);
        if (rung != atomic_load_explicit(&self->taken[bit], memory_order_relaxed) &&
            via_ivshmem_port_is_up(self)) {
            take_doorbell(self, bit, rung);
            events |= VIA_PORT_EVENT_DOORBELL(bit);
        }
    }
    if ((atomic_load_explicit(&self->edges, memory_order_relaxed) & edges) != 0) {
        events |= atomic_fetch_and_explicit(&self->edges, ~edges, memory_order_acq_rel) & edges;
    }
    return events;
}

static bool ivshmem_link_is_up(struct via_port *port)
{
    return via_ivshmem_port_is_up(via_ivshmem_port_of(port));
}

static uint32_t ivshmem_scratchpad_read(struct via_port *port, unsigned index)
{
    struct via_ivshmem_port *self = via_ivshmem_port_of(port);
    if (index >= VIA_PORT_SCRATCHPADS || !via_ivshmem_port_is_up(self)) {
        return ALL_ONES;
    }
    /* Pairs with the release in ivshmem_scratchpad_write(). */
    uint32_t value = atomic_load_explicit(
        &self->cell->end[index / PADS_EACH].pad[index % PADS_EACH], memory_order_acquire);
    return via_ivshmem_port_is_up(self) ? value : ALL_ONES;
}

static void ivshmem_scratchpad_write(struct via_port *port, unsigned index, uint32_t value)
{
    struct via_ivshmem_port *self = via_ivshmem_port_of(port);
    if (index / PADS_EACH == port->side && via_ivshmem_port_is_up(self)) {
        atomic_store_explicit(&via_ivshmem_own(self)->pad[index % PADS_EACH], value,
                              memory_order_release);
    }
}

static void ivshmem_close(struct via_port *port)
{
    struct via_ivshmem_port *self = via_ivshmem_port_of(port);
    via_ivshmem_link_detach(self);
    if (self->device != NULL) {
        self->device->ops->close(self->device);
    }
    if (self->ones_fd >= 0) {
        close(self->ones_fd);
    }
    for (unsigned i = 0; i < self->guards_count; i++) {
        via_guard_remove(self->guards[i]);
    }
    via_emu_range_free(self->window, port->caps.window_bytes);
    via_emu_range_free(port->inbox, port->caps.inbox_bytes);
    via_emu_range_free(self->cell, VIA_IVSHMEM_PAGE_BYTES);
    free(self);
}

static const struct via_port_ops ivshmem_ops = {
    .body = ivshmem_body,
    .commit = ivshmem_commit,
    .flush = ivshmem_flush,
    .fence_start = ivshmem_fence_start,
    .fence_poll = ivshmem_fence_poll,
    .ring = ivshmem_ring,
    .events = ivshmem_events,
    .link_is_up = ivshmem_link_is_up,
    .scratchpad_read = ivshmem_scratchpad_read,
    .scratchpad_write = ivshmem_scratchpad_write,
    .close = ivshmem_close,
};

/* --- open --- */

static int check_options(const struct via_ivshmem_options *options, struct via_error *err)
{
    if (options->side > 1) {
        return via_error_set(err, -EINVAL, "side %u, a link has 0 and 1", options->side);
    }
    if (options->cell >= VIA_IVSHMEM_CELLS_MAX) {
        return via_error_set(err, -EINVAL, "cell %u, there are at most %u", options->cell,
                             VIA_IVSHMEM_CELLS_MAX);
    }
    if (options->window_bytes == 0 || options->window_bytes % VIA_IVSHMEM_PAGE_BYTES != 0 ||
        options->window_bytes > VIA_IVSHMEM_WINDOW_BYTES_MAX) {
        return via_error_set(err, -EINVAL,
                             "window of %llu bytes: not a multiple of %u, or more than %llu",
                             (unsigned long long)options->window_bytes, VIA_IVSHMEM_PAGE_BYTES,
                             (unsigned long long)VIA_IVSHMEM_WINDOW_BYTES_MAX);
    }
    return 0;
}

/* Reserves the address ranges, without memory of the peer. */
static int open_memory(struct via_ivshmem_port *self, struct via_error *err)
{
    struct via_port *port = &self->base;
    uint64_t bytes = port->caps.window_bytes;
    port->inbox = via_emu_range_new(bytes);
    self->window = via_emu_range_new(bytes);
    self->cell = via_emu_range_new(VIA_IVSHMEM_PAGE_BYTES);
    if (port->inbox == NULL || self->window == NULL || self->cell == NULL) {
        return via_error_set(err, -ENOMEM, "addresses for inbox and window: %s", strerror(ENOMEM));
    }
    int rc = via_emu_ones_new(&self->ones_fd);
    if (rc == 0) {
        rc = via_emu_range_zero(port->inbox, bytes);
    }
    if (rc == 0) {
        rc = via_emu_range_fill_ones(self->window, bytes, self->ones_fd);
    }
    if (rc == 0) {
        rc = via_emu_range_zero(self->cell, VIA_IVSHMEM_PAGE_BYTES);
    }
    port->window = self->window;
    return rc == 0 ? 0 : via_error_set(err, rc, "memory for inbox and window: %s", strerror(-rc));
}

/* Accesses raise SIGBUS if the PCI function was removed, or if the server or one of its clients has
 * truncated the memory. */
static int guard_memory(struct via_ivshmem_port *self, struct via_error *err)
{
    const struct via_port_caps *caps = &self->base.caps;
    struct {
        void *at;
        uint64_t bytes;
    } ranges[VIA_IVSHMEM_GUARDS] = {{self->window, caps->window_bytes},
                                    {self->base.inbox, caps->inbox_bytes},
                                    {self->cell, VIA_IVSHMEM_PAGE_BYTES}};
    while (self->guards_count < VIA_IVSHMEM_GUARDS) {
        unsigned i = self->guards_count;
        int rc = via_guard_add(ranges[i].at, ranges[i].bytes, &self->guards[i]);
        if (rc != 0) {
            return via_error_set(err, rc, "guard mappings of the function: %s", strerror(-rc));
        }
        self->guards_count++;
    }
    return 0;
}

static int open_device(struct via_ivshmem_port *self, const struct via_ivshmem_options *options,
                       struct via_error *err)
{
    int rc = guard_memory(self, err);
    if (rc != 0) {
        return rc;
    }
    return via_kernel_is_address(options->target)
               ? via_ivshmem_pci_open(options->target, options->access, &self->device, err)
               : via_ivshmem_socket_open(options->target, &self->device, err);
}

int via_ivshmem_port_open(const struct via_ivshmem_options *options, struct via_port **ret_port,
                          struct via_error *err)
{
    int rc = check_options(options, err);
    if (rc != 0) {
        return rc;
    }
    struct via_ivshmem_port *self = aligned_alloc(VIA_CACHELINE, sizeof(*self));
    if (self == NULL) {
        return via_error_set(err, -ENOMEM, "%s", strerror(ENOMEM));
    }
    *self = (struct via_ivshmem_port){
        .base = {.ops = &ivshmem_ops,
                 .caps = {.window_bytes = options->window_bytes,
                          .inbox_bytes = options->window_bytes,
                          .store_bytes_max = sizeof(uint64_t),
                          .coherent = true,
                          .writes_ordered = true},
                 .side = options->side},
        .wake = options->wake,
        .ctx = options->ctx,
        .cell_off = options->cell * via_ivshmem_cell_bytes(options->window_bytes),
        .host = options->host,
        .threads_count = via_max(options->threads_count, 1u),
        .ones_fd = -1,
    };
    snprintf(self->name, sizeof(self->name), "cell %u of %.120s", options->cell, options->target);
    rc = open_memory(self, err);
    if (rc == 0) {
        rc = open_device(self, options, err);
    }
    if (rc != 0) {
        ivshmem_close(&self->base);
        return rc;
    }
    *ret_port = &self->base;
    return 0;
}
