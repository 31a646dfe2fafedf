/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Posted writes through lanes: body, commit, flush and fence of core/port.h for classes with the
 * weak promises of hardware.
 *
 * Each end delivers its own writes when a lane is full or at a fence, and those of the peer when it
 * polls. events() delivers a random part; if it returns a doorbell, it first delivers all writes
 * that were flushed before the doorbell. A fence delivers all flushed writes of the peer.
 * So software that reads without a fence sees late and reordered writes, as on hardware, and a
 * sleeping process does not delay the writes of another.
 *
 * A thread that uses a lane holds the lane's busy flag. When the link goes down, the control thread
 * clears `up`, and waits for all busy flags before it replaces any mapping; the link does not come
 * up before that. So no write that was posted before the link went down arrives after it is up
 * again.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "port/emu/port.h"

/* If the peer holds the lock of a lane for this time, its process is stopped or hostile, and the
 * connection ends. Longer than a thread waits for the CPU on an oversubscribed machine. */
#define PATIENCE_NS (500 * VIA_MSEC_NS)

static struct via_emu_lane *lane_of(const struct via_emu_port *emu, unsigned side, unsigned queue)
{
    struct via_emu_lane *lanes =
        (struct via_emu_lane *)(void *)((unsigned char *)emu->bridge + VIA_EMU_BRIDGE_BYTES);
    return &lanes[side * VIA_PORT_QUEUES + queue];
}

/* A lane has invalid entries, or its lock is not released. The link counts as down from here on, so
 * that the peer sees no later write of this thread without the lost ones. The control thread ends
 * the connection. */
static void raise_alarm(struct via_emu_port *emu, enum via_emu_alarm alarm)
{
    const uint64_t one = 1;
    atomic_store_explicit(&emu->alarm, alarm, memory_order_relaxed);
    (void)!write(emu->alarm_fd, &one, sizeof(one));
}

/* --- being in a lane --- */

static void leave(struct via_emu_lane_end *end)
{
    /* Pairs with the load in via_emu_posted_quiesce(): this thread no longer accesses the lane. */
    atomic_store_explicit(&end->busy, false, memory_order_release);
}

/*
 * 0: the caller may use the lane, and the memory of the connection stays mapped until leave().
 * -ENOLINK; -EAGAIN: another thread of this process uses the lane, which happens only with incoming
 * lanes.
 */
static int enter(struct via_emu_port *emu, struct via_emu_lane_end *end)
{
    if (atomic_exchange_explicit(&end->busy, true, memory_order_seq_cst)) {
        return -EAGAIN;
    }
    /* Sequentially consistent, as in link_down() and via_emu_posted_quiesce(): either this thread
     * sees the link down, or the control thread sees `busy`. */
    bool up = atomic_load_explicit(&emu->up, memory_order_seq_cst);
    uint32_t link = via_emu_bridge_link(emu->bridge);
    int alarm = atomic_load_explicit(&emu->alarm, memory_order_relaxed);
    if (!up || alarm != VIA_EMU_ALARM_NONE || !via_emu_bridge_is_up(link)) {
        leave(end);
        return -ENOLINK;
    }
    end->round = link >> VIA_EMU_LINK_ROUND_SHIFT;
    return 0;
}

void via_emu_posted_quiesce(struct via_emu_port *emu)
{
    for (unsigned i = 0; emu->lanes != NULL && i < 2 * VIA_PORT_QUEUES; i++) {
        /* Only threads of this process set `busy`, and none blocks while it is set. */
        while (atomic_load_explicit(&emu->lanes->end[i].busy, memory_order_seq_cst)) {
            sched_yield();
        }
    }
}

/* Delivers all writes of this end's queue to the peer. The caller holds the busy flag. */
static int push(struct via_emu_port *emu, struct via_emu_lane_end *end, unsigned queue)
{
    struct via_emu_lane_target target = {
        .memory = emu->window, .bytes = emu->base.caps.window_bytes, .round = end->round};
    return via_emu_lane_arrive(lane_of(emu, emu->base.side, queue), &target, VIA_EMU_LANE_ALL,
                               &end->rng, 0, 0);
}

/* Delivers writes of the peer's queue here. 0, -ENOLINK, -EAGAIN. */
static int pull(struct via_emu_port *emu, unsigned queue, enum via_emu_lane_extent extent)
{
    struct via_emu_lane_end *end = &emu->lanes->end[VIA_PORT_QUEUES + queue];
    struct via_emu_lane *lane = lane_of(emu, 1 - emu->base.side, queue);
    if (via_emu_lane_is_empty(lane)) {
        return 0;
    }
    int rc = enter(emu, end);
    if (rc != 0) {
        return rc;
    }
    struct via_emu_lane_target target = {
        .memory = emu->base.inbox, .bytes = emu->base.caps.inbox_bytes, .round = end->round};
    rc = via_emu_lane_arrive(lane, &target, extent, &end->rng, via_emu_now_ns(),
                             emu->lanes->delay_ns);
    leave(end);
    if (rc == -EPROTO) {
        raise_alarm(emu, VIA_EMU_ALARM_ENTRIES);
    }
    return rc;
}

/* --- outgoing --- */

/* NULL: the link is down, and writes vanish. */
static struct via_emu_lane_end *enter_out(struct via_emu_port *emu, unsigned queue)
{
    struct via_emu_lane_end *end = &emu->lanes->end[queue];
    if (enter(emu, end) != 0) {
        return NULL;
    }
    if (end->connection != emu->connection) {
        end->connection = emu->connection;
        via_emu_lane_writer_init(&end->writer, lane_of(emu, emu->base.side, queue),
                                 via_rng_next(&end->rng));
    }
    return end;
}

/* Makes room in a full lane. Between attempts it clears the busy flag, so that the control thread
 * never waits for the peer. again: the lane is full right after an earlier call has made room, so
 * the peer wrote false positions. NULL: the link is down now. */
static struct via_emu_lane_end *make_room(struct via_emu_port *emu, unsigned queue,
                                          struct via_emu_lane_end *end, bool again)
{
    uint64_t since_ns = 0;
    if (again) {
        leave(end);
        raise_alarm(emu, VIA_EMU_ALARM_ENTRIES);
        return NULL;
    }
    for (int rc; (rc = push(emu, end, queue)) != 0;) {
        leave(end);
        since_ns = since_ns != 0 ? since_ns : via_emu_now_ns();
        if (rc == -EPROTO || via_emu_now_ns() - since_ns > PATIENCE_NS) {
            raise_alarm(emu, rc == -EPROTO ? VIA_EMU_ALARM_ENTRIES : VIA_EMU_ALARM_LOCK);
            return NULL;
        }
        sched_yield();
        end = enter_out(emu, queue);
        if (end == NULL) {
            return NULL;
        }
    }
    return end;
}

void via_emu_posted_body(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                         size_t len)
{
    struct via_emu_port *emu = via_emu_port_of(port);
    if (!via_emu_port_check_write(emu, queue, off, len)) {
        return;
    }
    struct via_emu_lane_end *end = enter_out(emu, queue);
    bool again = false;
    for (size_t done = 0; end != NULL;) {
        size_t posted = via_emu_lane_post_body(&end->writer, end->round, off + done,
                                               (const unsigned char *)src + done, len - done);
        done += posted;
        if (done == len) {
            leave(end);
            return;
        }
        end = make_room(emu, queue, end, again && posted == 0);
        again = true;
    }
    via_emu_port_count(&emu->counters.puts_vanished);
}

void via_emu_posted_commit(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                           size_t len)
{
    struct via_emu_port *emu = via_emu_port_of(port);
    uint64_t word;
    if (!via_emu_port_check_commit(emu, queue, off, len)) {
        return;
    }
    size_t before = len - sizeof(word);
    if (before != 0) {
        via_emu_posted_body(port, queue, off, src, before);
    }
    memcpy(&word, (const unsigned char *)src + before, sizeof(word));
    struct via_emu_lane_end *end = enter_out(emu, queue);
    if (end != NULL) {
        /* Earlier posts must arrive before the commit. */
        via_emu_lane_flush(&end->writer, via_emu_now_ns());
    }
    for (bool again = false; end != NULL; again = true) {
        if (via_emu_lane_post_word(&end->writer, end->round, off + before, word)) {
            leave(end);
            return;
        }
        end = make_room(emu, queue, end, again);
    }
    via_emu_port_count(&emu->counters.puts_vanished);
}

void via_emu_posted_flush(struct via_port *port, unsigned queue)
{
    struct via_emu_port *emu = via_emu_port_of(port);
    struct via_emu_lane_end *end = queue < VIA_PORT_QUEUES ? enter_out(emu, queue) : NULL;
    if (end != NULL) {
        if (!via_emu_lane_is_flushed(&end->writer)) {
            via_emu_lane_flush(&end->writer, via_emu_now_ns());
        }
        leave(end);
    }
    /* The caller's next load may check whether the peer sleeps. Pairs with the fence in
     * via_emu_posted_fence_poll(): either the peer sees the flushed writes, or this thread sees
     * that the peer has announced to sleep. */
    atomic_thread_fence(memory_order_seq_cst);
}

/* --- fences --- */

/* Delivers all posts of the queue to the peer. 0; -EAGAIN: the peer holds the lane's lock;
 * -ENOLINK; -EPROTO. */
static int push_all(struct via_emu_port *emu, unsigned queue)
{
    struct via_emu_lane_end *end = enter_out(emu, queue);
    if (end == NULL) {
        return -ENOLINK;
    }
    int rc = push(emu, end, queue);
    leave(end);
    if (rc == -EPROTO) {
        raise_alarm(emu, VIA_EMU_ALARM_ENTRIES);
    }
    return rc;
}

/* Delivers all flushed writes of the peer here. 0; -EAGAIN: another thread, or the peer, uses
 * one of the lanes; -ENOLINK; -EPROTO. */
static int pull_all(struct via_emu_port *emu)
{
    for (unsigned i = 0; i < VIA_PORT_QUEUES; i++) {
        int rc = pull(emu, i, VIA_EMU_LANE_FLUSHED);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

int via_emu_posted_fence_start(struct via_port *port, unsigned queue)
{
    struct via_emu_port *emu = via_emu_port_of(port);
    int rc = via_emu_fence_begin(emu, queue);
    struct via_emu_lane_end *end = rc == 0 ? enter_out(emu, queue) : NULL;
    if (rc != 0 || end == NULL) {
        return rc != 0 ? rc : via_emu_fence_end(emu, queue, -ENOLINK);
    }
    via_emu_lane_flush(&end->writer, via_emu_now_ns());
    leave(end);
    return 0;
}

int via_emu_posted_fence_poll(struct via_port *port, unsigned queue)
{
    struct via_emu_port *emu = via_emu_port_of(port);
    int rc = via_emu_fence_check(emu, queue);
    if (rc != 0) {
        return rc;
    }
    uint64_t age_ns = via_emu_now_ns() - emu->fences[queue].since_ns;
    if (age_ns < emu->like->read_ns) {
        return 0;
    }
    rc = push_all(emu, queue);
    /* See via_emu_posted_flush(). */
    atomic_thread_fence(memory_order_seq_cst);
    rc = rc == 0 ? pull_all(emu) : rc;
    if (rc == -EAGAIN && age_ns <= PATIENCE_NS) {
        return 0;
    }
    if (rc == -EAGAIN) {
        raise_alarm(emu, VIA_EMU_ALARM_LOCK);
    }
    return via_emu_fence_end(emu, queue, rc == 0 && via_emu_port_is_up(emu) ? 1 : -ENOLINK);
}

/* --- incoming --- */

void via_emu_posted_pull(struct via_emu_port *emu, uint64_t mask)
{
    for (unsigned queue = 0; queue < VIA_PORT_DATA_DOORBELLS; queue++) {
        if ((mask & VIA_PORT_EVENT_DOORBELL(queue)) != 0) {
            (void)pull(emu, queue, VIA_EMU_LANE_SOME);
        }
    }
    if ((mask & VIA_PORT_EVENT_CONTROL) != 0) {
        (void)pull(emu, VIA_PORT_QUEUE_CONTROL, VIA_EMU_LANE_SOME);
    }
}

void via_emu_posted_rang(struct via_emu_port *emu, unsigned queue, unsigned bit)
{
    if (queue < VIA_PORT_QUEUES) {
        /* Ordered before the doorbell, whose fetch-or in emu_ring() releases it. */
        atomic_fetch_or_explicit(&emu->bridge->doorbell[1 - emu->base.side].rung_by[bit],
                                 1u << queue, memory_order_relaxed);
    }
}

/* Delivers all flushed writes of the peer's queue; waits while another thread or the peer uses
 * the lane. */
static void pull_patiently(struct via_emu_port *emu, unsigned queue)
{
    uint64_t since_ns = 0;
    while (pull(emu, queue, VIA_EMU_LANE_FLUSHED) == -EAGAIN) {
        since_ns = since_ns != 0 ? since_ns : via_emu_now_ns();
        if (via_emu_now_ns() - since_ns > PATIENCE_NS) {
            raise_alarm(emu, VIA_EMU_ALARM_LOCK);
            return;
        }
        sched_yield();
    }
}

void via_emu_posted_take_bell(struct via_emu_port *emu, unsigned bit)
{
    _Atomic uint32_t *rung_by = &emu->bridge->doorbell[emu->base.side].rung_by[bit];
    uint32_t queues = atomic_exchange_explicit(rung_by, 0, memory_order_relaxed);
    for (unsigned queue = 0; queue < VIA_PORT_QUEUES; queue++) {
        if ((queues & 1u << queue) != 0) {
            pull_patiently(emu, queue);
        }
    }
}

/* --- open and close --- */

int via_emu_posted_open(struct via_emu_port *emu, const struct via_emu_options *options)
{
    uint64_t seed = options->seed * 2048 + emu->host * 2 + emu->base.side;
    emu->lanes = aligned_alloc(VIA_CACHELINE, sizeof(*emu->lanes));
    if (emu->lanes == NULL) {
        return -ENOMEM;
    }
    *emu->lanes = (struct via_emu_lanes){.delay_ns = options->delay_ns != 0 ? options->delay_ns
                                                                            : emu->like->delay_ns};
    for (unsigned i = 0; i < 2 * VIA_PORT_QUEUES; i++) {
        via_rng_init(&emu->lanes->end[i].rng, seed * 64 + i);
    }
    return 0;
}

void via_emu_posted_close(struct via_emu_port *emu)
{
    free(emu->lanes);
    emu->lanes = NULL;
}
