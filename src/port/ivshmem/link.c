/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The control thread's part of the ivshmem port: finds the peer, brings the link up and down. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/pause.h"
#include "port/emu/memory.h"
#include "port/ivshmem/port.h"
#include "vfio/guard.h"

/* The peer interrupts this end at each change. In case an interrupt is lost, this end also polls.
 */
#define POLL_DOWN_NS (100 * VIA_MSEC_NS)
#define POLL_UP_NS (1 * VIA_SEC_NS)
/* Longer than the longest time between two turns of a live host's control thread. */
#define SEAT_NS (1500 * VIA_MSEC_NS)

static void set_error(struct via_ivshmem_port *self, const char *format, ...) VIA_PRINTF(2, 3);
static void set_error(struct via_ivshmem_port *self, const char *format, ...)
{
    va_list args;
    int prefix = snprintf(self->error, sizeof(self->error), "%s: ", self->name);
    va_start(args, format);
    vsnprintf(self->error + prefix, sizeof(self->error) - (size_t)prefix, format, args);
    va_end(args);
}

static void nudge_peer(struct via_ivshmem_port *self)
{
    self->device->ops->nudge(
        self->device, atomic_load_explicit(&via_ivshmem_peer(self)->id, memory_order_relaxed));
}

/* --- up and down --- */

static void take_window_away(struct via_ivshmem_port *self)
{
    int rc = via_emu_range_fill_ones(self->window, self->base.caps.window_bytes, self->ones_fd);
    self->window_torn = rc != 0;
    if (rc != 0) {
        set_error(self, "unmap the window: %s", strerror(-rc));
    }
}

/* Ringing does not block, so the wait is short. */
static void wait_for_ringers(struct via_ivshmem_port *self)
{
    /* Pairs with the release in interrupt(). */
    while (atomic_load_explicit(&self->ringers, memory_order_acquire) != 0) {
        via_cpu_pause();
    }
}

/* Begins a new life of this end: nothing of the last one counts any more. */
static void take_new_boot(struct via_ivshmem_port *self)
{
    uint64_t boot = atomic_load_explicit(&self->boot, memory_order_relaxed);
    uint64_t fresh = 0;
    if (getrandom(&fresh, sizeof(fresh), GRND_NONBLOCK) != (ssize_t)sizeof(fresh)) {
        fresh = boot + 2;
    }
    fresh |= 1; /* not 0 */
    atomic_store_explicit(&self->boot, fresh == boot ? fresh + 2 : fresh, memory_order_relaxed);
}

/* Ends the link to the peer. If the link was up, this end takes a new boot, so that the peer sees
 * that it was down. Otherwise the boot stays; else two ends could react to each other's new boots
 * forever. */
static void link_down(struct via_ivshmem_port *self)
{
    struct via_ivshmem_end *own = via_ivshmem_own(self);
    bool was_up = atomic_load_explicit(&self->up, memory_order_relaxed);
    /* Sequentially consistent: see interrupt(). */
    atomic_store_explicit(&self->up, false, memory_order_seq_cst);
    if (was_up) {
        wait_for_ringers(self);
        take_window_away(self);
        take_new_boot(self);
        self->downs_count++;
        atomic_fetch_add_explicit(&self->downs, 1, memory_order_release);
        atomic_fetch_or_explicit(&self->edges, VIA_PORT_EVENT_LINK_DOWN, memory_order_acq_rel);
    }
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(own->pad); i++) {
        atomic_store_explicit(&own->pad[i], 0, memory_order_relaxed);
    }
    atomic_store_explicit(&self->peer_boot, 0, memory_order_relaxed);
    atomic_store_explicit(&own->trained, 0, memory_order_release);
    atomic_store_explicit(&own->boot, atomic_load_explicit(&self->boot, memory_order_relaxed),
                          memory_order_release);
    if (was_up) {
        nudge_peer(self);
    }
}

/* Discards old doorbells, and announces to the peer that this end is ready: its window is
 * unmapped. */
static void train(struct via_ivshmem_port *self, uint64_t peer_boot)
{
    struct via_ivshmem_end *own = via_ivshmem_own(self);
    for (unsigned bit = 0; bit < VIA_PORT_DOORBELLS; bit++) {
        uint32_t rung =
            atomic_load_explicit(&via_ivshmem_peer(self)->rung[bit], memory_order_relaxed);
        atomic_store_explicit(&self->taken[bit], rung, memory_order_relaxed);
        atomic_store_explicit(&own->taken[bit], rung, memory_order_relaxed);
    }
    atomic_store_explicit(&self->peer_boot, peer_boot, memory_order_relaxed);
    /* Pairs with the acquires in via_ivshmem_port_is_up() and follow() at the peer. */
    atomic_store_explicit(&own->trained, peer_boot, memory_order_release);
    nudge_peer(self);
}

static void link_up(struct via_ivshmem_port *self)
{
    struct via_port *port = &self->base;
    uint64_t bytes = port->caps.window_bytes;
    uint32_t id = atomic_load_explicit(&via_ivshmem_peer(self)->id, memory_order_relaxed);
    int rc = self->device->ops->aim(self->device, id);
    if (rc != 0) {
        return; /* the peer's vectors are not known yet, or it has left */
    }
    rc = via_emu_range_share_at(self->window, bytes, self->device->memory_fd,
                                self->device->memory_off + self->cell_off +
                                    via_ivshmem_inbox_off(1 - port->side, bytes));
    if (rc != 0) {
        set_error(self, "map the inbox of the peer: %s", strerror(-rc));
        self->window_torn = true;
        return;
    }
    self->error[0] = '\0';
    self->ups_count++;
    /* Pairs with the acquire in via_ivshmem_port_is_up(): a thread that sees `up` stores into the
     * window mapped above. */
    atomic_store_explicit(&self->up, true, memory_order_seq_cst);
    atomic_fetch_or_explicit(&self->edges, VIA_PORT_EVENT_LINK_UP, memory_order_acq_rel);
}

/* --- attaching to the memory --- */

static int map_own(struct via_ivshmem_port *self)
{
    struct via_port *port = &self->base;
    int fd = self->device->memory_fd;
    uint64_t bytes = port->caps.inbox_bytes;
    uint64_t cell_off = self->device->memory_off + self->cell_off;
    int rc = via_emu_range_share_at(self->cell, VIA_IVSHMEM_PAGE_BYTES, fd, cell_off);
    if (rc == 0) {
        rc = via_emu_range_share_at(port->inbox, bytes, fd,
                                    cell_off + via_ivshmem_inbox_off(port->side, bytes));
    }
    if (rc != 0) {
        set_error(self, "map the memory: %s", strerror(-rc));
    }
    return rc;
}

static void unmap_own(struct via_ivshmem_port *self)
{
    if (via_emu_range_zero(self->cell, VIA_IVSHMEM_PAGE_BYTES) != 0 ||
        via_emu_range_zero(self->base.inbox, self->base.caps.inbox_bytes) != 0) {
        set_error(self, "unmap the memory: %s", strerror(errno));
    }
    self->attached = false;
}

static int check_memory(struct via_ivshmem_port *self)
{
    uint64_t cell_bytes = via_ivshmem_cell_bytes(self->base.caps.window_bytes);
    uint64_t bytes = self->device->memory_bytes;
    if (self->cell_off > bytes || cell_bytes > bytes - self->cell_off) {
        set_error(self, "the memory of %llu bytes has room for %llu cells of %llu bytes",
                  (unsigned long long)bytes, (unsigned long long)(bytes / cell_bytes),
                  (unsigned long long)cell_bytes);
        return -ENOSPC;
    }
    return 0;
}

/* Checks whether another live host uses this end. The registers may be those of a dead host, and
 * its ivshmem id may belong to another machine by now. A live host increments `beat` in each turn;
 * the interrupt of nudge() causes a turn. */
static int check_seat(struct via_ivshmem_port *self, uint64_t now_ns)
{
    struct via_ivshmem_end *own = via_ivshmem_own(self);
    uint32_t id = atomic_load_explicit(&own->id, memory_order_relaxed);
    uint64_t beat = atomic_load_explicit(&own->beat, memory_order_relaxed);
    if (atomic_load_explicit(&own->boot, memory_order_acquire) == 0 || id == self->device->id ||
        self->device->ops->presence(self->device, id) == 0) {
        return 0;
    }
    if (self->seat_ns == 0) {
        self->seat_ns = now_ns;
        self->seat_beat = beat;
        self->device->ops->nudge(self->device, id);
    }
    if (beat == self->seat_beat) {
        return now_ns - self->seat_ns < SEAT_NS ? -EAGAIN : 0;
    }
    set_error(self, "host %u (ivshmem peer %u) is side %u already",
              atomic_load_explicit(&own->host, memory_order_relaxed), id, self->base.side);
    self->peers_refused++;
    self->seat_ns = 0;
    return -EBUSY;
}

static void occupy_end(struct via_ivshmem_port *self)
{
    struct via_ivshmem_end *own = via_ivshmem_own(self);
    uint64_t decision = via_ivshmem_cell_cut(self->cell);
    atomic_store_explicit(&own->boot, 0, memory_order_release);
    atomic_store_explicit(&own->trained, 0, memory_order_release);
    /* Erases data for an earlier life of this end. */
    memset(self->base.inbox, 0, self->base.caps.inbox_bytes);
    atomic_store_explicit(&own->window_bytes, self->base.caps.window_bytes, memory_order_relaxed);
    atomic_store_explicit(&own->host, self->host, memory_order_relaxed);
    atomic_store_explicit(&own->id, self->device->id, memory_order_relaxed);
    if (!self->has_own_cut) {
        self->own_cut = via_ivshmem_end_cut(own);
    }
    if (self->decided) {
        self->own_cut = ((decision & ~UINT64_C(1)) + 2) | (self->cut ? 1 : 0);
    }
    self->has_own_cut = true;
    self->decided = false;
    atomic_store_explicit(&own->cut, self->own_cut, memory_order_relaxed);
    /* Release: a peer that sees the hello sees the stores above. Pairs with the acquire in
     * is_welcome(). */
    atomic_store_explicit(&own->hello, VIA_IVSHMEM_HELLO, memory_order_release);
    self->attached = true;
    self->seat_ns = 0;
    take_new_boot(self);
    link_down(self);
    nudge_peer(self);
}

static void keep(_Atomic uint64_t *word, uint64_t value)
{
    if (atomic_load_explicit(word, memory_order_relaxed) != value) {
        atomic_store_explicit(word, value, memory_order_release);
    }
}

/* Restores this end's registers. Every machine on the memory can overwrite them, and a false value,
 * for example a cut, would keep the link down even after that machine has left. */
static void keep_own_words(struct via_ivshmem_port *self)
{
    struct via_ivshmem_end *own = via_ivshmem_own(self);
    keep(&own->window_bytes, self->base.caps.window_bytes);
    keep(&own->cut, self->own_cut);
    keep(&own->trained, atomic_load_explicit(&self->peer_boot, memory_order_relaxed));
    keep(&own->hello, VIA_IVSHMEM_HELLO);
    if (atomic_load_explicit(&own->id, memory_order_relaxed) != self->device->id ||
        atomic_load_explicit(&own->host, memory_order_relaxed) != self->host) {
        atomic_store_explicit(&own->host, self->host, memory_order_relaxed);
        atomic_store_explicit(&own->id, self->device->id, memory_order_release);
    }
}

static void attach(struct via_ivshmem_port *self, uint64_t now_ns)
{
    if (check_memory(self) != 0 || map_own(self) != 0) {
        return;
    }
    if (check_seat(self, now_ns) != 0) {
        unmap_own(self);
        return;
    }
    occupy_end(self);
}

/* Announces the end to the peer, so that the peer need not detect it by silence. */
static void leave_end(struct via_ivshmem_port *self)
{
    struct via_ivshmem_end *own = via_ivshmem_own(self);
    link_down(self);
    atomic_store_explicit(&own->boot, 0, memory_order_release);
    nudge_peer(self);
    unmap_own(self);
}

void via_ivshmem_link_detach(struct via_ivshmem_port *self)
{
    if (self->attached) {
        leave_end(self);
    }
}

/* --- following the peer --- */

/* True if this end may train for the peer with this boot. */
static bool is_welcome(struct via_ivshmem_port *self, uint64_t peer_boot)
{
    const struct via_ivshmem_end *peer = via_ivshmem_peer(self);
    if (peer_boot == 0) {
        return false;
    }
    uint64_t hello = atomic_load_explicit(&peer->hello, memory_order_acquire);
    uint64_t bytes = atomic_load_explicit(&peer->window_bytes, memory_order_relaxed);
    if (hello != VIA_IVSHMEM_HELLO) {
        set_error(self, "the peer has layout %#llx of the cell, this host %#llx",
                  (unsigned long long)hello, (unsigned long long)VIA_IVSHMEM_HELLO);
        return false;
    }
    if (bytes != self->base.caps.window_bytes) {
        set_error(self, "the peer has windows of %llu bytes, this host of %llu",
                  (unsigned long long)bytes, (unsigned long long)self->base.caps.window_bytes);
        return false;
    }
    return true;
}

/* Follows the peer's registers: first down, so that no down is missed, then training, then up. */
static void follow(struct via_ivshmem_port *self)
{
    const struct via_ivshmem_end *peer = via_ivshmem_peer(self);
    uint64_t peer_boot = atomic_load_explicit(&peer->boot, memory_order_acquire);
    uint64_t joined = atomic_load_explicit(&self->peer_boot, memory_order_relaxed);
    bool left = self->device->ops->presence(
                    self->device, atomic_load_explicit(&peer->id, memory_order_relaxed)) == 0;
    self->cut = (via_ivshmem_cell_cut(self->cell) & 1) != 0;
    bool up = atomic_load_explicit(&self->up, memory_order_relaxed);
    if (joined != 0 &&
        (peer_boot != joined || left || self->cut || (up && !via_ivshmem_port_is_up(self)))) {
        link_down(self);
        joined = 0;
        up = false;
    }
    if (self->window_torn) {
        take_window_away(self);
    }
    if (self->window_torn || self->cut) {
        return;
    }
    if (joined == 0 && !left && is_welcome(self, peer_boot)) {
        train(self, peer_boot);
        joined = peer_boot;
    }
    if (joined != 0 && !up &&
        /* Pairs with the release in train() at the peer: the peer's window is unmapped. */
        atomic_load_explicit(&peer->trained, memory_order_acquire) ==
            atomic_load_explicit(&self->boot, memory_order_relaxed)) {
        link_up(self);
    }
}

static void wake_threads(struct via_ivshmem_port *self)
{
    uint64_t woken = 0;
    for (unsigned bit = 0; bit < VIA_PORT_DOORBELLS && self->wake != NULL; bit++) {
        unsigned thread = bit < VIA_PORT_DATA_DOORBELLS ? bit % self->threads_count : 0;
        if (atomic_load_explicit(&via_ivshmem_peer(self)->rung[bit], memory_order_acquire) !=
                atomic_load_explicit(&self->taken[bit], memory_order_relaxed) &&
            (woken & UINT64_C(1) << thread) == 0) {
            woken |= UINT64_C(1) << thread;
            self->wake(self->ctx, thread);
        }
    }
}

/* --- what the control thread calls --- */

int via_ivshmem_port_fd(const struct via_port *port)
{
    const struct via_ivshmem_port *self = via_ivshmem_port_of(port);
    return self->device->ops->fd(self->device);
}

static bool is_seat_taken(const struct via_ivshmem_port *self)
{
    return atomic_load_explicit(&via_ivshmem_own(self)->boot, memory_order_acquire) !=
           atomic_load_explicit(&self->boot, memory_order_relaxed);
}

/* True if an access has raised SIGBUS; the guard has mapped private memory there. */
static bool is_memory_lost(struct via_ivshmem_port *self)
{
    bool lost = false;
    for (unsigned i = 0; i < self->guards_count; i++) {
        lost |= via_guard_take_hit(self->guards[i]);
    }
    return lost;
}

int via_ivshmem_port_service(struct via_port *port, uint64_t now_ns, uint64_t *ret_deadline_ns)
{
    struct via_ivshmem_port *self = via_ivshmem_port_of(port);
    struct via_ivshmem_device *device = self->device;
    uint64_t ups = self->ups_count;
    uint64_t downs = self->downs_count;

    uint64_t fired = device->ops->service(device, now_ns, ret_deadline_ns);
    if (is_memory_lost(self) && self->attached) {
        link_down(self);
        unmap_own(self);
        set_error(self, "the memory was truncated, or the device removed, while in use");
    }
    if (self->attached && is_seat_taken(self)) {
        set_error(self, "another host uses side %u now", self->base.side);
        link_down(self);
        unmap_own(self);
    }
    if (!device->ready) {
        via_ivshmem_link_detach(self);
        device->ops->drop(device);
    } else if (!self->attached) {
        attach(self, now_ns);
    }
    if (self->attached) {
        atomic_fetch_add_explicit(&via_ivshmem_own(self)->beat, 1, memory_order_relaxed);
        keep_own_words(self);
        follow(self);
        if (fired != 0 || !device->interrupts) {
            wake_threads(self);
        }
    }
    if (device->ready) {
        bool up = atomic_load_explicit(&self->up, memory_order_relaxed);
        *ret_deadline_ns = via_min(*ret_deadline_ns, now_ns + (up ? POLL_UP_NS : POLL_DOWN_NS));
    }
    return self->ups_count != ups || self->downs_count != downs;
}

void via_ivshmem_port_cut(struct via_port *port, bool cut)
{
    struct via_ivshmem_port *self = via_ivshmem_port_of(port);
    self->cut = cut;
    self->decided = !self->attached;
    if (!self->attached) {
        return;
    }
    uint64_t decision = via_ivshmem_cell_cut(self->cell);
    self->own_cut = ((decision & ~UINT64_C(1)) + 2) | (cut ? 1 : 0);
    atomic_store_explicit(&via_ivshmem_own(self)->cut, self->own_cut, memory_order_release);
    follow(self);
    nudge_peer(self);
}

void via_ivshmem_port_status(const struct via_port *port, struct via_ivshmem_status *ret_status)
{
    const struct via_ivshmem_port *self = via_ivshmem_port_of(port);
    const struct via_ivshmem_end *peer = via_ivshmem_peer(self);
    bool there = atomic_load_explicit(&self->peer_boot, memory_order_relaxed) != 0;
    *ret_status = (struct via_ivshmem_status){
        .cut = self->cut,
        .attached = self->attached,
        .peer_host = there ? (uint16_t)atomic_load_explicit(&peer->host, memory_order_relaxed) : 0,
        .peer_id = there ? atomic_load_explicit(&peer->id, memory_order_relaxed) : 0,
        .window_bytes = port->caps.window_bytes,
        .puts_out_of_bounds = atomic_load_explicit(&self->puts_out_of_bounds, memory_order_relaxed),
        .doorbells_fired = atomic_load_explicit(&self->doorbells_fired, memory_order_relaxed),
        .doorbells_coalesced =
            atomic_load_explicit(&self->doorbells_coalesced, memory_order_relaxed),
        .peers_refused = self->peers_refused,
    };
    snprintf(ret_status->found, sizeof(ret_status->found), "%s", self->device->found);
    snprintf(ret_status->error, sizeof(ret_status->error), "%s",
             self->device->error[0] != '\0' ? self->device->error : self->error);
}
