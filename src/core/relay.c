/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Frames that this host forwards. The bubble rule in way.h makes sure that there is room. */
#include <errno.h>

#include "core/relay.h"

void via_relay_init(struct via_channel *channel)
{
    const struct via_node_config *config = &channel->node->config;

    via_list_init(&channel->relay->free);
    for (unsigned i = 0; i < config->ports_count * config->bypass_count; i++) {
        via_list_push_back(&channel->relay->free, &channel->relay->frames[i].link);
    }
}

static void bypass_push(struct via_way *way, struct via_bypass_frame *frame)
{
    via_list_push_back(&way->bypass, &frame->link);
    way->bypass_used++;
}

static struct via_bypass_frame *bypass_first(const struct via_way *way)
{
    return way->bypass_used == 0 ? NULL
                                 : via_list_entry(way->bypass.next, struct via_bypass_frame, link);
}

static void bypass_take_out(struct via_way *way, struct via_bypass_frame *frame)
{
    via_list_remove(&frame->link);
    way->bypass_used--;
}

static void bypass_free(struct via_channel *channel, struct via_way *way,
                        struct via_bypass_frame *frame)
{
    bypass_take_out(way, frame);
    via_list_push_front(&channel->relay->free, &frame->link);
}

static void bypass_store(struct via_channel *channel, struct via_way *way,
                         const struct via_frame_header *header, const void *body,
                         uint32_t body_bytes)
{
    /* Each way has its share of the buffers, so one is free. */
    struct via_bypass_frame *frame =
        via_list_entry(via_list_pop_front(&channel->relay->free), struct via_bypass_frame, link);
    frame->since_ns = channel->now_ns;
    frame->header = *header;
    frame->body_bytes = body_bytes;
    if (body_bytes != 0) {
        memcpy(frame->body, body, body_bytes);
    }
    bypass_push(way, frame);
    via_count(&way->frames_bypassed, 1);
}

int via_relay_frame(struct via_channel *channel, struct via_way *from,
                    struct via_frame_header *header, const void *body, uint32_t body_bytes)
{
    struct via_way *way = via_way_to(channel, header->destination);

    if (header->hops_left == 0) {
        via_count(&channel->counters.dropped_hops, 1);
        return 0;
    }
    if (way == NULL) {
        via_count(&channel->counters.dropped_unroutable, 1);
        return 0;
    }
    header->hops_left--;
    if (from->dimension != way->dimension && !via_way_is_turn_allowed(channel, way)) {
        way->turn_requested = true;
        return -EAGAIN;
    }
    if (way->bypass_used == 0 && via_way_has_room(way)) {
        via_way_send(way, header, body, body_bytes);
    } else if (way->bypass_used < channel->node->config.bypass_count) {
        bypass_store(channel, way, header, body, body_bytes);
    } else {
        way->room_requested = true;
        return -EAGAIN;
    }
    via_count(&from->frames_relayed, 1);
    return 0;
}

void via_relay_drain(struct via_channel *channel, struct via_way *way)
{
    struct via_bypass_frame *frame;

    while ((frame = bypass_first(way)) != NULL) {
        if (way->up && via_way_has_room(way)) {
            via_way_send(way, &frame->header, frame->body, frame->body_bytes);
        } else if (channel->now_ns - frame->since_ns >= channel->node->config.stuck_ns) {
            via_count(&channel->counters.dropped_stuck, 1);
        } else {
            return;
        }
        bypass_free(channel, way, frame);
        channel->work++;
    }
}

uint64_t via_relay_deadline_ns(const struct via_channel *channel, const struct via_way *way)
{
    return bypass_first(way)->since_ns + channel->node->config.stuck_ns;
}

/* Moves a bypassed frame whose route has changed. */
static void bypass_move(struct via_channel *channel, struct via_way *from, struct via_way *to,
                        struct via_bypass_frame *frame)
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
    via_list_foreach(watched, &channel->watched) {
        struct via_way *way = via_list_entry(watched, struct via_way, watched);
        via_list_foreach_safe(it, &way->bypass) {
            struct via_bypass_frame *frame = via_list_entry(it, struct via_bypass_frame, link);
            uint16_t destination = frame->header.destination;
            struct via_way *now = via_way_to(channel, destination);
            if (channel->hosts[destination].rerouted && now != way) {
                bypass_move(channel, way, now, frame);
            }
        }
    }
}
