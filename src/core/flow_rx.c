/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The receiving end of flows: takes frames in order and once. Duplicates are acknowledged and
 * dropped.
 */
#include <errno.h>

#include "base/mutant.h"
#include "core/flow.h"

void via_rx_init(struct via_rx_flow *flow, uint16_t host, uint16_t number)
{
    *flow = (struct via_rx_flow){.host = host, .flow = number};
    via_list_init(&flow->ack);
    via_list_init(&flow->wait);
    via_list_init(&flow->soon);
}

static void clear_state(struct via_rx_flow *flow)
{
    via_list_remove(&flow->wait);
    flow->stalled = false;
    flow->starved = false;
    flow->resumed = false;
    flow->gap = false;
    flow->gap_reported = false;
    flow->refused = false;
    flow->no_state = false;
}

static void cancel_soon(struct via_channel *channel, struct via_rx_flow *flow)
{
    if (via_list_is_linked(&flow->soon)) {
        via_list_remove(&flow->soon);
        channel->flows->acks_soon_counts[flow->host]--;
    }
}

void via_rx_reset(struct via_channel *channel, struct via_rx_flow *flow)
{
    clear_state(flow);
    cancel_soon(channel, flow);
    via_list_remove(&flow->ack);
    flow->ack_due = false;
    flow->session = 0;
}

/* --- order ----------------------------------------------------------------------------------- */

static void advance(struct via_rx_flow *flow, uint32_t expected)
{
    flow->expected = expected;
    clear_state(flow);
}

static void ack_soon(struct via_channel *channel, struct via_rx_flow *flow)
{
    if (!via_list_is_linked(&flow->soon)) {
        flow->soon_ns = channel->now_ns + channel->node->config.ack_ns_max;
        via_list_push_back(&channel->flows->acks_soon, &flow->soon);
        channel->flows->acks_soon_counts[flow->host]++;
    }
}

/* Takes the frame that is next in order. */
static void take_next(struct via_channel *channel, struct via_rx_flow *flow,
                      const struct via_frame_header *header, const void *body, uint32_t body_bytes)
{
    bool skip = header->kind == VIA_FRAME_SKIP;

    if (!skip && (flow->refused || flow->stalled)) {
        flow->ack_due = true; /* refused: permanently; stalled: until via_node_resume() */
        return;
    }
    int rc = channel->flows->calls.execute(channel, header, body, body_bytes);
    if (rc == 0) {
        advance(flow, flow->expected + 1);
        if ((header->flags & VIA_FRAME_FLAG_ACK_NOW) != 0) {
            flow->ack_due = true;
        } else if ((header->flags & VIA_FRAME_FLAG_ACK_SOON) != 0) {
            ack_soon(channel, flow);
        }
        via_count(&channel->counters.delivered, 1);
        return;
    }
    flow->ack_due = true;
    if (VIA_MUTANT(ACK_FIRST)) {
        advance(flow, flow->expected + 1);
    } else if (rc == -EAGAIN) {
        flow->stalled = true;
    } else if (rc == -ENOBUFS) {
        flow->starved = true;
        if (!via_list_is_linked(&flow->wait)) {
            via_list_push_back(&channel->flows->answer_waiters, &flow->wait);
            /* Lets via_tx_timers() check whether other answers can be given up. */
            channel->flows->next_timer_ns = 0;
        }
    } else {
        flow->refused = true;
        flow->refused_status = rc;
    }
}

/* Adapts the state of the flow to the session of the source, and to frames that the source has
 * given up. False: the frame has no place in the order. */
static bool place(struct via_rx_flow *flow, const struct via_frame_header *header)
{
    bool start = (header->flags & VIA_FRAME_FLAG_START) != 0;

    if (flow->session != header->source_session) {
        if (!start) {
            flow->no_state = true;
            flow->ack_due = true;
            return false;
        }
        flow->session = header->source_session;
        advance(flow, header->sequence);
    } else if (start && via_seq_is_before_u32(flow->expected, header->sequence)) {
        advance(flow, header->sequence);
    }
    return true;
}

void via_rx_take(struct via_channel *channel, const struct via_frame_header *header,
                 const void *body, uint32_t body_bytes)
{
    struct via_rx_flow *flow = via_channel_rx(channel, header->source, header->flow);

    if (place(flow, header)) {
        if (header->sequence == flow->expected ||
            (VIA_MUTANT(TWICE) && header->sequence + 1 == flow->expected)) {
            take_next(channel, flow, header, body, body_bytes);
        } else if (via_seq_is_before_u32(header->sequence, flow->expected)) {
            via_count(&channel->counters.duplicate, 1);
            flow->ack_due = true;
        } else {
            via_count(&channel->counters.gap, 1);
            /* Once per gap. While the consumer is not ready, later frames are no gap. */
            if (!flow->gap_reported && !flow->stalled && !flow->starved && !flow->refused) {
                flow->gap = true;
                flow->gap_reported = true;
                flow->ack_due = true;
            }
        }
    }
    if (flow->ack_due) {
        via_rx_update(channel, flow);
    }
}

/* --- acknowledgements ------------------------------------------------------------------------ */

void via_rx_update(struct via_channel *channel, struct via_rx_flow *flow)
{
    if (!flow->ack_due || via_list_is_linked(&flow->ack)) {
        return;
    }
    struct via_way *way = via_way_to(channel, flow->host);
    via_list_push_back(way != NULL ? &way->acks : &channel->flows->parked_acks, &flow->ack);
}

static enum via_frame_ack_state ack_state(const struct via_rx_flow *flow)
{
    if (flow->no_state) {
        return VIA_ACK_NO_STATE;
    }
    if (flow->refused) {
        return VIA_ACK_REFUSED;
    }
    if (flow->stalled || flow->starved) {
        return VIA_ACK_NOT_READY;
    }
    if (flow->resumed) {
        return VIA_ACK_RESUME;
    }
    return flow->gap ? VIA_ACK_GAP : VIA_ACK_OK;
}

void via_rx_send_ack(struct via_channel *channel, struct via_way *way, struct via_rx_flow *flow)
{
    const struct via_node_config *config = &channel->node->config;
    struct via_frame_ack args = {
        .next = flow->expected,
        .state = ack_state(flow),
        .status = flow->refused ? flow->refused_status : 0,
    };
    struct via_frame_header header = {
        .kind = VIA_FRAME_ACK,
        .hops_left = config->hops_max,
        .source = config->host,
        .destination = flow->host,
        .source_session = config->session,
        .destination_session = channel->hosts[flow->host].session,
        .flow = flow->flow,
    };
    memcpy(header.args, &args, sizeof(args));
    cancel_soon(channel, flow);
    flow->ack_due = false;
    flow->gap = false;
    flow->no_state = false;
    flow->resumed = false;
    via_way_send(way, &header, NULL, 0);
}

static void ack_now(struct via_channel *channel, struct via_rx_flow *flow)
{
    cancel_soon(channel, flow);
    flow->ack_due = true;
    via_rx_update(channel, flow);
}

void via_rx_acks_with(struct via_channel *channel, uint16_t host)
{
    if (via_list_is_empty(&channel->flows->acks_soon) ||
        channel->flows->acks_soon_counts[host] == 0) {
        return;
    }
    via_list_foreach_safe(it, &channel->flows->acks_soon) {
        struct via_rx_flow *flow = via_list_entry(it, struct via_rx_flow, soon);
        if (flow->host == host) {
            ack_now(channel, flow);
        }
    }
}

uint64_t via_rx_deadline_ns(const struct via_channel *channel)
{
    return via_list_is_empty(&channel->flows->acks_soon)
               ? VIA_NEVER_NS
               : via_list_entry(channel->flows->acks_soon.next, struct via_rx_flow, soon)->soon_ns;
}

void via_rx_timers(struct via_channel *channel)
{
    while (channel->now_ns >= via_rx_deadline_ns(channel)) {
        ack_now(channel, via_list_entry(channel->flows->acks_soon.next, struct via_rx_flow, soon));
    }
}

void via_rx_resume(struct via_channel *channel, struct via_rx_flow *flow)
{
    if (flow->stalled) {
        flow->stalled = false;
        flow->resumed = true;
        flow->ack_due = true;
        via_rx_update(channel, flow);
    }
}

void via_rx_wake_waiter(struct via_channel *channel)
{
    via_list_foreach(it, &channel->flows->answer_waiters) {
        struct via_rx_flow *flow = via_list_entry(it, struct via_rx_flow, wait);
        if (channel->flows->calls.answer_room(channel, flow->host) == 0) {
            via_list_remove(&flow->wait);
            flow->starved = false;
            flow->resumed = true;
            flow->ack_due = true;
            via_rx_update(channel, flow);
            return;
        }
    }
}
