/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The receiving end of flows: what comes is taken in order, once, or acknowledged as what it is.
 */
#include <errno.h>

#include "base/mutant.h"
#include "core/node_internal.h"

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
    flow->gap_told = false;
    flow->refused = false;
    flow->no_state = false;
}

static void not_soon(struct via_channel *channel, struct via_rx_flow *flow)
{
    if (via_list_is_linked(&flow->soon)) {
        via_list_remove(&flow->soon);
        channel->hosts[flow->host].acks_soon_count--;
    }
}

void via_rx_reset(struct via_channel *channel, struct via_rx_flow *flow)
{
    clear_state(flow);
    not_soon(channel, flow);
    via_list_remove(&flow->ack);
    flow->ack_due = false;
    flow->session = 0;
}

/* --- what frames ask for --------------------------------------------------------------------- */

int via_rx_message(struct via_channel *channel, uint16_t source, uint16_t flow,
                   const struct via_frame_message *args, const void *data, uint32_t bytes)
{
    const struct via_node_env *env = &channel->node->env;
    struct via_delivery delivery = {
        .source = source,
        .flow = flow,
        .endpoint = args->endpoint,
        .source_endpoint = args->source_endpoint,
        .data = data,
        .bytes = bytes,
        .channel = channel->index,
    };
    int rc = env->deliver(env->ctx, &delivery);
    if (rc < 0 && rc != -EAGAIN) {
        via_count(&channel->counters.refused_endpoint, 1);
    }
    return rc;
}

static void notify(struct via_channel *channel, uint64_t handle, unsigned flags)
{
    if ((flags & VIA_FRAME_FLAG_NOTIFY) != 0) {
        channel->node->env.notify(channel->node->env.ctx, channel->index, handle);
    }
}

int via_rx_put(struct via_channel *channel, const struct via_frame_access *args, const void *data,
               uint32_t bytes, unsigned flags)
{
    unsigned char *memory;
    int rc =
        via_segment_reach(channel, args->segment, args->offset, bytes, VIA_SEGMENT_WRITE, &memory);
    if (rc != 0) {
        return rc;
    }
    via_segment_store(memory, data, bytes, flags);
    notify(channel, args->segment, flags);
    return 0;
}

int via_rx_put_signal(struct via_channel *channel, const struct via_frame_signal *args,
                      const void *data, uint32_t bytes, unsigned flags)
{
    unsigned char *memory, *signal;
    int rc =
        via_segment_reach(channel, args->segment, args->offset, bytes, VIA_SEGMENT_WRITE, &memory);
    if (rc != 0) {
        return rc;
    }
    rc = via_segment_reach(channel, args->segment, args->signal_offset & ~VIA_FRAME_SIGNAL_ADD, 8,
                           VIA_SEGMENT_WRITE, &signal);
    if (rc != 0) {
        return rc;
    }
    if ((uintptr_t)signal % 8 != 0) {
        return -EINVAL;
    }
    via_segment_store(memory, data, bytes, flags);
    via_segment_signal(signal, args->signal_offset, args->signal_value);
    notify(channel, args->segment, flags);
    return 0;
}

int via_rx_atomic(struct via_channel *channel, const struct via_frame_atomic *args,
                  const struct via_frame_atomic_operands *operands, uint64_t *ret_old)
{
    bool fetch = (args->operation & ~VIA_ATOMIC_32) == VIA_ATOMIC_FETCH;
    unsigned need = fetch ? VIA_SEGMENT_READ : VIA_SEGMENT_READ | VIA_SEGMENT_WRITE;
    unsigned char *memory;
    int rc = via_segment_reach(channel, args->segment, args->offset,
                               via_atomic_bytes(args->operation), need, &memory);
    if (rc != 0) {
        return rc;
    }
    return via_segment_atomic(memory, args->operation, operands->operand, operands->compare,
                              ret_old);
}

/* The frame that is next in its flow. 0 = taken, -EAGAIN, -ENOBUFS = later, else refused. */
static int execute(struct via_channel *channel, const struct via_frame_header *header,
                   const void *body, uint32_t body_bytes)
{
    const void *data = body;
    uint32_t bytes = body_bytes;
    unsigned flags = header->flags;

    if (header->inline_bytes != 0) {
        data = header->args + sizeof(header->args) - via_frame_inline_max(header->kind);
        bytes = header->inline_bytes;
    }
    switch (header->kind) {
    case VIA_FRAME_MESSAGE: {
        struct via_frame_message args;
        memcpy(&args, header->args, sizeof(args));
        return via_rx_message(channel, header->source, header->flow, &args, data, bytes);
    }
    case VIA_FRAME_PUT: {
        struct via_frame_access args;
        memcpy(&args, header->args, sizeof(args));
        return via_rx_put(channel, &args, data, bytes, flags);
    }
    case VIA_FRAME_PUT_SIGNAL: {
        struct via_frame_signal args;
        memcpy(&args, header->args, sizeof(args));
        return via_rx_put_signal(channel, &args, data, bytes, flags);
    }
    case VIA_FRAME_GET:
        return via_answer_get(channel, header);
    case VIA_FRAME_GET_DATA:
        via_answer_get_data(channel, header, data, bytes);
        return 0;
    case VIA_FRAME_ATOMIC:
        return via_answer_atomic(channel, header, body, body_bytes);
    case VIA_FRAME_ATOMIC_RESULT:
        via_answer_atomic_result(channel, header);
        return 0;
    case VIA_FRAME_BARRIER_ARRIVE:
        return channel->groups == NULL ? -EPROTO : via_barrier_arrive(channel, header);
    case VIA_FRAME_BARRIER_RELEASE:
        if (channel->groups != NULL) {
            via_barrier_release(channel, header);
        }
        return 0;
    case VIA_FRAME_SKIP:
        if ((flags & VIA_FRAME_FLAG_ERROR) != 0) {
            via_answer_lost(channel, header->source);
        }
        return 0;
    default:
        via_count(&channel->counters.dropped_malformed, 1);
        return -EPROTO;
    }
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
        via_list_push_back(&channel->acks_soon, &flow->soon);
        channel->hosts[flow->host].acks_soon_count++;
    }
}

/* The frame whose turn it is. */
static void take_next(struct via_channel *channel, struct via_rx_flow *flow,
                      const struct via_frame_header *header, const void *body, uint32_t body_bytes)
{
    bool skip = header->kind == VIA_FRAME_SKIP;

    if (!skip && (flow->refused || flow->stalled)) {
        flow->ack_due = true; /* refused stays refused; stalled until via_node_resume() */
        return;
    }
    int rc = execute(channel, header, body, body_bytes);
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
            via_list_push_back(&channel->answer_waiters, &flow->wait);
            via_tx_answers_short(channel);
        }
    } else {
        flow->refused = true;
        flow->refused_status = rc;
    }
}

/* Brings the state of the flow to the life of the source and what it has given up. false = the
 * frame can not be placed. */
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
    } else if (start && via_seq_before_u32(flow->expected, header->sequence)) {
        advance(flow, header->sequence);
    }
    return true;
}

static void take_sequenced(struct via_channel *channel, const struct via_frame_header *header,
                           const void *body, uint32_t body_bytes)
{
    struct via_rx_flow *flow = via_channel_rx(channel, header->source, header->flow);

    if (place(flow, header)) {
        if (header->sequence == flow->expected ||
            (VIA_MUTANT(TWICE) && header->sequence + 1 == flow->expected)) {
            take_next(channel, flow, header, body, body_bytes);
        } else if (via_seq_before_u32(header->sequence, flow->expected)) {
            via_count(&channel->counters.duplicate, 1);
            flow->ack_due = true;
        } else {
            via_count(&channel->counters.gap, 1);
            /* Once per gap; while the consumer is not ready, later frames are not missed. */
            if (!flow->gap_told && !flow->stalled && !flow->starved && !flow->refused) {
                flow->gap = true;
                flow->gap_told = true;
                flow->ack_due = true;
            }
        }
    }
    if (flow->ack_due) {
        via_rx_update(channel, flow);
    }
}

static void take_ack(struct via_channel *channel, const struct via_frame_header *header)
{
    struct via_frame_ack args;

    memcpy(&args, header->args, sizeof(args));
    via_tx_acked(channel, via_channel_tx(channel, header->source, header->flow), &args);
}

void via_rx_frame(struct via_channel *channel, const struct via_frame_header *header,
                  const void *body, uint32_t body_bytes)
{
    /* Only frames between the two lives that are known now count; 0 is no life. */
    if ((header->source_session == 0 ||
         header->source_session != channel->hosts[header->source].session ||
         header->destination_session != channel->node->config.session) &&
        !VIA_MUTANT(NO_SESSION)) {
        via_count(&channel->counters.dropped_session, 1);
    } else if (header->kind == VIA_FRAME_ACK) {
        take_ack(channel, header);
    } else {
        take_sequenced(channel, header, body, body_bytes);
    }
}

/* --- acknowledgements ------------------------------------------------------------------------ */

void via_rx_update(struct via_channel *channel, struct via_rx_flow *flow)
{
    if (!flow->ack_due || via_list_is_linked(&flow->ack)) {
        return;
    }
    struct via_channel_link *way = via_channel_way(channel, flow->host);
    via_list_push_back(way != NULL ? &way->acks : &channel->parked_acks, &flow->ack);
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

void via_rx_send_ack(struct via_channel *channel, struct via_channel_link *way,
                     struct via_rx_flow *flow)
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
    not_soon(channel, flow);
    flow->ack_due = false;
    flow->gap = false;
    flow->no_state = false;
    flow->resumed = false;
    via_link_send(way, &header, NULL, 0);
}

static void ack_now(struct via_channel *channel, struct via_rx_flow *flow)
{
    not_soon(channel, flow);
    flow->ack_due = true;
    via_rx_update(channel, flow);
}

void via_rx_acks_with(struct via_channel *channel, uint16_t host)
{
    if (channel->hosts[host].acks_soon_count == 0) {
        return;
    }
    via_list_foreach_safe(it, &channel->acks_soon) {
        struct via_rx_flow *flow = via_list_entry(it, struct via_rx_flow, soon);
        if (flow->host == host) {
            ack_now(channel, flow);
        }
    }
}

uint64_t via_rx_deadline_ns(const struct via_channel *channel)
{
    return via_list_empty(&channel->acks_soon)
               ? VIA_NEVER_NS
               : via_list_entry(channel->acks_soon.next, struct via_rx_flow, soon)->soon_ns;
}

void via_rx_timers(struct via_channel *channel)
{
    while (channel->now_ns >= via_rx_deadline_ns(channel)) {
        ack_now(channel, via_list_entry(channel->acks_soon.next, struct via_rx_flow, soon));
    }
}

void via_node_resume(struct via_node *node, unsigned index, uint16_t source, uint16_t number)
{
    struct via_channel *channel = &node->channels[index];

    if (source >= node->config.hosts_max || number >= node->config.flows_count) {
        return;
    }
    if (source == node->config.host) {
        struct via_tx_flow *flow = via_channel_tx(channel, source, number);
        flow->held = false;
        via_tx_update(channel, flow);
        return;
    }
    struct via_rx_flow *flow = via_channel_rx(channel, source, number);
    if (flow->stalled) {
        flow->stalled = false;
        flow->resumed = true;
        flow->ack_due = true;
        via_rx_update(channel, flow);
    }
}
