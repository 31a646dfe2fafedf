/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Posted writes on their way: a lane per queue of a port, first in, first out, but for bodies that
 * are posted with relaxed ordering; between lanes there is no order. In front of the lanes of a
 * write-combining window are the buffers of the queue's core, which drain at any time, in any order
 * and in part. A commit of such a port is a fence between stores.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/memory.h"
#include "sim/posted.h"

static uint32_t event_end(const struct sim_end *end)
{
    return (uint32_t)(end - end->link->end);
}

static uint32_t lane_index(const struct sim_end *end, const struct sim_lane *lane)
{
    return (uint32_t)(lane - end->lanes);
}

/* --- arrival --------------------------------------------------------------------------------- */

/* Makes some of its aligned words visible, never the last: a write becomes visible in parts. */
static void show_part(struct sim_end *to, const struct sim_flight *flight, struct via_rng *rng)
{
    uint64_t pattern = via_rng_next(rng);
    for (uint32_t off = 0; off + 8 < flight->bytes; off += 8) {
        if (pattern >> (off / 8 % 64) & 1) {
            memcpy(to->inbox + flight->off + off, flight->data + off, 8);
        }
    }
}

/* The thread that reads this lane's writes; thread 0 is the control thread, too. */
static struct sim_thread *thread_of_lane(const struct sim_end *to, uint32_t lane)
{
    return &to->world->hosts[to->host].threads[lane != VIA_PORT_QUEUE_CONTROL ? lane : 0];
}

static struct sim_flight *pop(struct sim_lane *lane)
{
    struct sim_flight *flight = lane->head;
    lane->head = flight->next;
    if (lane->head == NULL) {
        lane->tail = NULL;
    }
    return flight;
}

/* Wakes the reader of a line, as a port does where a CPU of the receiver stores the lines
 * (caps.lines_wake). */
static void wake_for_line(struct sim_end *to, const struct sim_flight *flight, uint32_t lane)
{
    bool is_line = !flight->is_body && flight->bytes == VIA_RECORD_LINE_BYTES;
    if (to->port.caps.lines_wake && is_line && to->world->plant != SIM_PLANT_LOST_LINE) {
        sim_thread_interrupt(thread_of_lane(to, lane));
    }
}

static void arrive(struct sim_end *from, struct sim_lane *lane)
{
    struct sim_flight *flight = pop(lane);
    struct sim_end *to = from->peer;
    memcpy(to->inbox + flight->off, flight->data, flight->bytes);
    wake_for_line(to, flight, lane_index(from, lane));
    sim_trace_arrival(from, lane_index(from, lane), flight);
    if (!flight->by_audit) {
        sim_thread_audit_soon(thread_of_lane(to, lane_index(from, lane)));
    }
    free(flight);
}

static bool has_one_before(const struct sim_lane *lane, uint64_t mark)
{
    for (const struct sim_flight *it = lane->head; it != NULL; it = it->next) {
        if (it->number < mark) {
            return true;
        }
    }
    return false;
}

void sim_posted_arrive_until(struct sim_end *from, struct sim_lane *lane, uint64_t mark)
{
    while (has_one_before(lane, mark)) {
        arrive(from, lane);
    }
}

void sim_link_puts(struct sim_link *link, uint32_t end, uint32_t lane_number)
{
    struct sim_end *from = &link->end[end];
    struct sim_lane *lane = &from->lanes[lane_number];
    while (lane->head != NULL && lane->head->arrive_ns <= from->world->clock.now_ns) {
        arrive(from, lane);
    }
}

void sim_link_show(struct sim_link *link, uint32_t end, uint32_t lane_number)
{
    struct sim_end *from = &link->end[end];
    struct sim_flight *flight = from->lanes[lane_number].head;
    if (flight != NULL) {
        show_part(from->peer, flight, &from->world->rng_port);
    }
}

void sim_posted_pump(struct sim_end *end)
{
    struct sim_world *world = end->world;
    if (!via_rng_chance(&world->rng_port, world->config.port.pump_chance, 1000)) {
        return;
    }
    struct sim_end *peer = end->peer;
    uint32_t lane = sim_between(&world->rng_port, 0, world->config.node.channels_count);
    lane = lane == world->config.node.channels_count ? VIA_PORT_QUEUE_CONTROL : lane;
    for (uint32_t n = sim_between(&world->rng_port, 1, 4); n > 0; n--) {
        if (peer->lanes[lane].head != NULL) {
            arrive(peer, &peer->lanes[lane]);
        }
    }
}

/* --- leaving --------------------------------------------------------------------------------- */

static uint64_t put_latency(struct sim_world *world)
{
    const struct sim_config_port *port = &world->config.port;
    return sim_between(&world->rng_port, port->put_ns_min, port->put_ns_max);
}

/* With relaxed ordering a body may overtake some earlier writes. It never arrives after its
 * time. */
static void overtake(struct sim_world *world, struct sim_lane *lane, struct sim_flight *flight)
{
    uint32_t count = 0;
    for (const struct sim_flight *it = lane->head; it != NULL; it = it->next) {
        count++;
    }
    uint32_t before = sim_between(&world->rng_port, 0, count - 1);
    struct sim_flight **at = &lane->head;
    uint64_t earliest_ns = 0;
    for (; before > 0; before--) {
        earliest_ns = (*at)->arrive_ns;
        at = &(*at)->next;
    }
    flight->arrive_ns = via_max(via_min(flight->arrive_ns, (*at)->arrive_ns), earliest_ns);
    flight->next = *at;
    *at = flight;
    world->counts.overtakes++;
}

static bool is_overtaking_allowed(struct sim_world *world, const struct sim_flight *flight)
{
    /* A write with a flag (a record's line, a word) is never posted relaxed, except by a planted
     * bug. */
    if (!flight->is_body && world->plant != SIM_PLANT_RELAXED_FLAG) {
        return false;
    }
    return world->config.port.relaxed_chance != 0 &&
           via_rng_chance(&world->rng_port, world->config.port.relaxed_chance, 1000);
}

static void launch(struct sim_end *end, struct sim_lane *lane, struct sim_flight *flight)
{
    struct sim_world *world = end->world;
    const struct sim_config_port *port = &world->config.port;
    uint64_t now = world->clock.now_ns;
    uint64_t at = now + put_latency(world);
    if (via_rng_chance(&world->rng_port, port->linger_chance, 1000)) {
        at += sim_between(&world->rng_port, 0, port->linger_ns_max);
    }
    flight->arrive_ns = at;
    if (lane->tail != NULL && is_overtaking_allowed(world, flight)) {
        overtake(world, lane, flight);
    } else if (lane->tail != NULL) {
        flight->arrive_ns = via_max(at, lane->tail->arrive_ns);
        lane->tail->next = flight;
        lane->tail = flight;
    } else {
        lane->head = flight;
        lane->tail = flight;
    }
    at = flight->arrive_ns;
    sim_clock_at(&world->clock, at, SIM_EVENT_PUTS, end->link->index, event_end(end),
                 lane_index(end, lane));
    if (via_rng_chance(&world->rng_port, port->show_chance, 1000)) {
        sim_clock_at(&world->clock, via_rng_between(&world->rng_port, now, at), SIM_EVENT_SHOW,
                     end->link->index, event_end(end), lane_index(end, lane));
    }
}

static void post(struct sim_end *end, struct sim_lane *lane, uint64_t off, const void *src,
                 size_t len, bool is_body)
{
    struct sim_world *world = end->world;
    struct sim_flight *flight = sim_alloc(sizeof(*flight) + len);
    flight->off = off;
    flight->bytes = (uint32_t)len;
    flight->is_body = is_body;
    flight->number = end->posted_count++;
    flight->by_audit = world->auditing;
    memcpy(flight->data, src, len);
    if (world->plant == SIM_PLANT_FLIPPED_BIT && len > 8 && len != 64 &&
        via_rng_chance(&world->rng_port, 1, 100)) {
        flight->data[via_rng_below(&world->rng_port, len)] ^= 0x10;
    }
    launch(end, lane, flight);
}

/* --- write-combining buffers ----------------------------------------------------------------- */

/* A line in parts: its words in any order, each as a write of its own. */
static void drain_words(struct sim_end *end, struct sim_lane *lane,
                        const struct sim_wc_buffer *buffer)
{
    uint32_t words[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t j = sim_between(&end->world->rng_port, i, 7);
        uint32_t word = words[j];
        words[j] = words[i];
        words[i] = word;
        /* Runs of bytes that were stored; a whole word is one. */
        for (uint32_t from = 0; from < 8; from++) {
            uint32_t to = from;
            while (to < 8 && buffer->mask >> (word * 8 + to) & 1) {
                to++;
            }
            if (to > from) {
                post(end, lane, buffer->line_off + word * 8 + from, buffer->data + word * 8 + from,
                     to - from, false);
                from = to;
            }
        }
    }
}

static void drain(struct sim_end *end, struct sim_lane *lane, struct sim_wc_buffer *buffer)
{
    struct sim_world *world = end->world;
    world->counts.drains++;
    if (buffer->mask == UINT64_MAX && via_rng_chance(&world->rng_port, 3, 4)) {
        post(end, lane, buffer->line_off, buffer->data, sizeof(buffer->data), false);
    } else {
        drain_words(end, lane, buffer);
    }
    buffer->mask = 0;
}

/* A buffer with contents, or NULL. */
static struct sim_wc_buffer *some_buffer(struct sim_end *end, struct sim_lane *lane)
{
    struct sim_wc_buffer *used[SIM_WC_BUFFERS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < end->world->config.port.wc_buffers; i++) {
        if (lane->wc[i].mask != 0) {
            used[count++] = &lane->wc[i];
        }
    }
    return count == 0 ? NULL : used[sim_between(&end->world->rng_port, 0, count - 1)];
}

/* Drains the buffers, as sfence does. */
static void fence(struct sim_end *end, struct sim_lane *lane)
{
    struct sim_wc_buffer *buffer;
    while (lane->wc != NULL && (buffer = some_buffer(end, lane)) != NULL) {
        drain(end, lane, buffer);
    }
}

/* Some buffers drain by themselves, soon or late; others never. */
static void drain_later(struct sim_end *end, const struct sim_lane *lane)
{
    struct sim_world *world = end->world;
    if (via_rng_chance(&world->rng_port, 1, 2)) {
        uint64_t after = via_rng_below(&world->rng_port, world->config.port.wc_drain_ns_max) + 1;
        sim_clock_after(&world->clock, after, SIM_EVENT_DRAIN, end->link->index, event_end(end),
                        lane_index(end, lane));
    }
}

void sim_link_drain(struct sim_link *link, uint32_t end_number, uint32_t lane_number)
{
    struct sim_end *end = &link->end[end_number];
    struct sim_wc_buffer *buffer = some_buffer(end, &end->lanes[lane_number]);
    if (buffer != NULL && link->up) {
        drain(end, &end->lanes[lane_number], buffer);
    }
}

static struct sim_wc_buffer *buffer_for(struct sim_end *end, struct sim_lane *lane,
                                        uint64_t line_off)
{
    struct sim_wc_buffer *free_one = NULL;
    for (uint32_t i = 0; i < end->world->config.port.wc_buffers; i++) {
        struct sim_wc_buffer *buffer = &lane->wc[i];
        if (buffer->mask != 0 && buffer->line_off == line_off) {
            return buffer;
        }
        free_one = buffer->mask == 0 ? buffer : free_one;
    }
    if (free_one == NULL) {
        free_one = some_buffer(end, lane);
        drain(end, lane, free_one);
    }
    free_one->line_off = line_off;
    drain_later(end, lane);
    return free_one;
}

static void store(struct sim_end *end, struct sim_lane *lane, uint64_t off, const void *src,
                  size_t len)
{
    const unsigned char *bytes = src;
    while (len != 0) {
        uint64_t at = off % 64;
        size_t part = via_min(len, (size_t)(64 - at));
        struct sim_wc_buffer *buffer = buffer_for(end, lane, off - at);
        memcpy(buffer->data + at, bytes, part);
        buffer->mask |= (part == 64 ? UINT64_MAX : (UINT64_C(1) << part) - 1) << at;
        /* A full buffer may drain, and most drain at once. */
        if (buffer->mask == UINT64_MAX && via_rng_chance(&end->world->rng_port, 3, 4)) {
            drain(end, lane, buffer);
        }
        off += part;
        bytes += part;
        len -= part;
    }
}

/*
 * How a port with a write-combining window keeps the order of core/port.h with one fence per frame:
 * it stores the last word when all earlier writes, and the rest of the line, have left.
 */
static void commit_combined(struct sim_end *end, struct sim_lane *lane, uint64_t off,
                            const void *src, size_t len)
{
    size_t first = len - sizeof(uint64_t);
    store(end, lane, off, src, first);
    if (end->world->plant != SIM_PLANT_NO_FENCE) {
        fence(end, lane);
    }
    store(end, lane, off + first, (const unsigned char *)src + first, sizeof(uint64_t));
}

/* --- calls of a port ------------------------------------------------------------------------- */

/* true if a planted bug swallows the write. */
static bool put_planted(struct sim_end *end, struct sim_lane *lane, uint64_t off, const void *src,
                        size_t len)
{
    struct sim_world *world = end->world;
    switch (world->plant) {
    case SIM_PLANT_LOST_PUT:
        return via_rng_chance(&world->rng_port, 1, 500);
    case SIM_PLANT_WORD_FIRST:
        if (len == 64 && lane->head != NULL && via_rng_chance(&world->rng_port, 1, 4)) {
            memcpy(end->peer->inbox + off, src, len);
            sim_thread_audit_soon(thread_of_lane(end->peer, lane_index(end, lane)));
            return true;
        }
        return false;
    default:
        return false;
    }
}

void sim_posted_body(struct sim_end *end, struct sim_lane *lane, uint64_t off, const void *src,
                     size_t len)
{
    if (put_planted(end, lane, off, src, len)) {
        return;
    }
    if (end->link->combines) {
        store(end, lane, off, src, len);
    } else {
        post(end, lane, off, src, len, true);
    }
}

void sim_posted_commit(struct sim_end *end, struct sim_lane *lane, uint64_t off, const void *src,
                       size_t len)
{
    if (put_planted(end, lane, off, src, len)) {
        return;
    }
    if (end->link->combines) {
        commit_combined(end, lane, off, src, len);
    } else {
        post(end, lane, off, src, len, false);
    }
}

void sim_posted_by_engine(struct sim_end *end, struct sim_lane *lane, uint64_t off, const void *src,
                          size_t len)
{
    post(end, lane, off, src, len, false);
}

void sim_posted_flush(struct sim_end *end, struct sim_lane *lane)
{
    struct sim_world *world = end->world;
    fence(end, lane);
    if (lane->tail == NULL || lane->tail->flushed) {
        return;
    }
    uint64_t at = world->clock.now_ns + put_latency(world);
    for (struct sim_flight *flight = lane->head; flight != NULL; flight = flight->next) {
        if (!flight->flushed) {
            flight->arrive_ns = via_min(flight->arrive_ns, at);
            flight->flushed = true;
        }
        at = via_max(at, flight->arrive_ns);
    }
    sim_clock_at(&world->clock, at, SIM_EVENT_PUTS, end->link->index, event_end(end),
                 lane_index(end, lane));
}

void sim_posted_drain(struct sim_end *end, struct sim_lane *lane)
{
    fence(end, lane);
}

/* --- the end of the link --------------------------------------------------------------------- */

/* The link fails at some point of the sequence: writes before it arrive, one write is torn, the
 * rest is lost. */
void sim_posted_cut(struct sim_end *from, struct sim_lane *lane)
{
    struct sim_world *world = from->world;
    struct sim_wc_buffer *buffer;
    while (lane->wc != NULL && (buffer = some_buffer(from, lane)) != NULL) {
        if (via_rng_chance(&world->rng_port, 1, 2)) {
            drain(from, lane, buffer);
        }
        buffer->mask = 0;
    }
    uint32_t count = 0;
    for (struct sim_flight *flight = lane->head; flight != NULL; flight = flight->next) {
        count++;
    }
    for (uint32_t keep = sim_between(&world->rng_fault, 0, count); keep > 0; keep--) {
        arrive(from, lane);
    }
    struct sim_flight *torn = lane->head;
    if (torn != NULL) {
        show_part(from->peer, torn, &world->rng_fault);
        world->counts.torn++;
        sim_trace(world, "  a write of %u bytes from host %u to host %u is torn, %u more are lost",
                  torn->bytes, from->host, from->peer->host, count);
        if (world->plant == SIM_PLANT_TORN_WORD && torn->bytes == 64) {
            /* The beginning, and the word that marks it as complete. */
            memcpy(from->peer->inbox + torn->off, torn->data, 24);
            memcpy(from->peer->inbox + torn->off + 56, torn->data + 56, 8);
        }
    }
    sim_posted_drop(lane);
}

void sim_posted_drop(struct sim_lane *lane)
{
    while (lane->head != NULL) {
        free(pop(lane));
    }
    for (uint32_t i = 0; lane->wc != NULL && i < SIM_WC_BUFFERS_MAX; i++) {
        lane->wc[i].mask = 0;
    }
}
