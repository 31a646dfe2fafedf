/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Room in out pipes, and frames on their way through this host.
 *
 * Bubble rule: a frame that starts here (data, acknowledgement) may leave only if a buffer stays
 * free behind it, in the out pipe or among the bypass buffers of that way; a relayed frame needs
 * just one, unless it turns from one dimension of a torus into the next: for the ring it comes into
 * it is a new one. So on every ring of relays at least one buffer is free at any time, and the
 * frames in the ring can always move on (docs/adr/0002-bubble-with-bypass.md). Other cycles are
 * broken by age: a frame that has waited stuck_ns is dropped, its source sends it again.
 */
#include <assert.h>
#include <errno.h>

#include "base/mutant.h"
#include "core/node_internal.h"

/* After so many bytes of bodies the next hop is rung at once, not at the end of the turn: it can
 * work on them while the next are copied. Fewer, and being woken costs it more than it copies. */
#define RING_EARLY_BYTES (128u << 10)

/* The credits already seen are looked at first: fresh ones cost a cache miss. */
static bool room_is(struct via_channel_link *way, uint32_t least)
{
    struct via_pipe_writer *tx = &way->tx;
    uint32_t known = tx->geometry.slots_count - via_pipe_writer_outstanding(tx);
    return (known >= least && !tx->broken) || via_pipe_writer_room(tx) >= least;
}

bool via_link_has_room(struct via_channel_link *way)
{
    return room_is(way, 1);
}

static uint32_t bypass_free_count(const struct via_channel *channel,
                                  const struct via_channel_link *way)
{
    return channel->node->config.bypass_count - way->bypass_used;
}

bool via_link_may_inject(struct via_channel *channel, struct via_channel_link *way)
{
    bool bypass_free = VIA_MUTANT(NO_BUBBLE) || bypass_free_count(channel, way) > 0;
    return room_is(way, bypass_free ? 1 : 2);
}

bool via_link_may_turn(const struct via_channel *channel, struct via_channel_link *way)
{
    uint32_t bypass = bypass_free_count(channel, way);
    return VIA_MUTANT(NO_TURN_BUBBLE) || bypass >= 2 || room_is(way, 2 - bypass);
}

/* From one ring of a torus into another. */
static bool is_turn(const struct via_channel *channel, const struct via_channel_link *from,
                    const struct via_channel_link *to)
{
    const uint8_t *dimensions = channel->node->config.dimensions;
    return dimensions[from - channel->links] != dimensions[to - channel->links];
}

void via_link_sent(struct via_channel_link *way, unsigned kind, size_t body_bytes)
{
    way->sent = true;
    if (kind == VIA_FRAME_BARRIER_ARRIVE) {
        way->bells |= 1u << VIA_PORT_DOORBELL_BARRIER_START;
    } else if (kind == VIA_FRAME_BARRIER_RELEASE) {
        way->bells |= 1u << VIA_PORT_DOORBELL_BARRIER_END;
    }
    via_count(&way->frames_sent, 1);
    via_count(&way->bytes_sent, body_bytes);
    way->unrung_bytes += (uint32_t)body_bytes;
    if (way->unrung_bytes >= RING_EARLY_BYTES && via_pipe_reader_sleeps(&way->tx)) {
        via_link_ring(way);
    }
}

void via_link_send(struct via_channel_link *way, const struct via_frame_header *header,
                   const void *body, size_t body_bytes)
{
    if (via_unlikely(body_bytes >= way->dma_from)) {
        via_dma_send(way, header, body, body_bytes);
        return;
    }
    int rc = via_pipe_send(&way->tx, header, sizeof(*header), body, body_bytes);
    assert(rc == 0); /* a free slot always has its room in the data ring: see pipe_geometry() */
    (void)rc;
    via_link_sent(way, header->kind, body_bytes);
}

static void bypass_push(struct via_channel_link *way, struct via_bypass_frame *frame)
{
    via_list_push_back(&way->bypass, &frame->link);
    way->bypass_used++;
}

static struct via_bypass_frame *bypass_first(const struct via_channel_link *way)
{
    return way->bypass_used == 0 ? NULL
                                 : via_list_entry(way->bypass.next, struct via_bypass_frame, link);
}

static void bypass_take_out(struct via_channel_link *way, struct via_bypass_frame *frame)
{
    via_list_remove(&frame->link);
    way->bypass_used--;
}

static void bypass_free(struct via_channel *channel, struct via_channel_link *way,
                        struct via_bypass_frame *frame)
{
    bypass_take_out(way, frame);
    via_list_push_front(&channel->bypass_free, &frame->link);
}

static void bypass_store(struct via_channel *channel, struct via_channel_link *way,
                         const struct via_frame_header *header, const void *body,
                         uint32_t body_bytes)
{
    /* Each way has its share of the buffers, so one is free. */
    struct via_bypass_frame *frame =
        via_list_entry(via_list_pop_front(&channel->bypass_free), struct via_bypass_frame, link);
    frame->since_ns = channel->now_ns;
    frame->header = *header;
    frame->body_bytes = body_bytes;
    if (body_bytes != 0) {
        memcpy(frame->body, body, body_bytes);
    }
    bypass_push(way, frame);
    via_count(&way->frames_bypassed, 1);
}

int via_relay_frame(struct via_channel *channel, struct via_channel_link *from,
                    struct via_frame_header *header, const void *body, uint32_t body_bytes)
{
    struct via_channel_link *way = via_channel_way(channel, header->destination);

    if (header->hops_left == 0) {
        via_count(&channel->counters.dropped_hops, 1);
        return 0;
    }
    if (way == NULL) {
        via_count(&channel->counters.dropped_unroutable, 1);
        return 0;
    }
    header->hops_left--;
    if (is_turn(channel, from, way) && !via_link_may_turn(channel, way)) {
        way->turn_asked = true;
        return -EAGAIN;
    }
    if (way->bypass_used == 0 && via_link_has_room(way)) {
        via_link_send(way, header, body, body_bytes);
    } else if (way->bypass_used < channel->node->config.bypass_count) {
        bypass_store(channel, way, header, body, body_bytes);
    } else {
        way->room_asked = true;
        return -EAGAIN;
    }
    via_count(&from->frames_relayed, 1);
    return 0;
}

void via_relay_drain(struct via_channel *channel, struct via_channel_link *way)
{
    struct via_bypass_frame *frame;

    while ((frame = bypass_first(way)) != NULL) {
        if (way->up && via_link_has_room(way)) {
            via_link_send(way, &frame->header, frame->body, frame->body_bytes);
        } else if (channel->now_ns - frame->since_ns >= channel->node->config.stuck_ns) {
            via_count(&channel->counters.dropped_stuck, 1);
        } else {
            return;
        }
        bypass_free(channel, way, frame);
        channel->work++;
    }
}

/* A frame whose way leads elsewhere now. */
static void bypass_move(struct via_channel *channel, struct via_channel_link *from,
                        struct via_channel_link *to, struct via_bypass_frame *frame)
{
    if (to == NULL || to->bypass_used >= channel->node->config.bypass_count) {
        via_count(&channel->counters.dropped_unroutable, 1);
        bypass_free(channel, from, frame);
        return;
    }
    bypass_take_out(from, frame);
    bypass_push(to, frame);
}

void via_relay_reroute(struct via_channel *channel)
{
    for (unsigned p = 0; p < channel->node->config.ports_count; p++) {
        struct via_channel_link *way = &channel->links[p];
        via_list_foreach_safe(it, &way->bypass) {
            struct via_bypass_frame *frame = via_list_entry(it, struct via_bypass_frame, link);
            struct via_channel_link *now = via_channel_way(channel, frame->header.destination);
            if (now != way) {
                bypass_move(channel, way, now, frame);
            }
        }
    }
}
