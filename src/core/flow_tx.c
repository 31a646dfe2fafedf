/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The sending end of flows.
 *
 * A flow is a queue of operations, which are split into frames with consecutive numbers. Nothing is
 * copied for retransmission: a lost frame is made again from its operation. A number is never
 * reused for other contents. A frame that must not be sent any more keeps its number as a SKIP
 * frame. When no operation waits for any frame of the flow, the next frame carries START ("all
 * earlier frames are given up").
 */
#include <errno.h>

#include "base/mutant.h"
#include "core/flow.h"

/* Not 0, so that every flow crosses the wrap early, not after four billion frames. */
#define FIRST_SEQUENCE (UINT32_MAX - 63)
/* Maximum of frames of one flow before the next flow has its turn. */
#define BURST 8
/* Each SOON_OPEN_MAX-th frame that may be acknowledged later requests an immediate acknowledgement,
 * because a process has a bounded number of operations under way. */
#define SOON_OPEN_MAX 8
/* When no internal operation is free, answers without progress for this time are given up. */
#define ANSWER_PATIENCE_NS VIA_SEC_NS
/* Number of checks of an operation without progress within its time limit. */
#define STALL_POLLS 4
/* Consecutive NO_STATE replies, from a peer that once had the state of the flow, before the flow is
 * reset. */
#define NO_STATE_MAX 8

void via_tx_init(struct via_channel *channel, struct via_tx_flow *flow, uint16_t host,
                 uint16_t number)
{
    *flow = (struct via_tx_flow){
        .acked = FIRST_SEQUENCE,
        .next = FIRST_SEQUENCE,
        .sent_max = FIRST_SEQUENCE,
        .start = FIRST_SEQUENCE,
        .host = host,
        .flow = number,
        .retry_ns = channel->node->config.retry_ns_min,
        .deadline_ns = VIA_NEVER_NS,
    };
    via_list_init(&flow->ops);
    via_list_init(&flow->ready);
    via_list_init(&flow->busy);
}

static struct via_tx_op *op_after(const struct via_tx_flow *flow, const struct via_tx_op *op)
{
    return op->link.next == &flow->ops ? NULL
                                       : via_list_entry(op->link.next, struct via_tx_op, link);
}

/* --- frames that are ready ------------------------------------------------------------------- */

/* True if the operation allows no further frame now: a get must not request all its pieces at
 * once. */
static bool has_to_wait(const struct via_tx_flow *flow)
{
    const struct via_tx_op *op = flow->send_op;
    return op->frames_ready != UINT32_MAX && !op->skip && op->assigned &&
           flow->next - op->first_sequence >= op->frames_ready;
}

/* True if the next frame is the START frame that belongs to no operation. */
static bool is_start_due(const struct via_tx_flow *flow)
{
    return flow->owed && flow->next == flow->start;
}

static bool is_sendable(const struct via_channel *channel, const struct via_tx_flow *flow)
{
    uint32_t window = flow->probing ? 1 : channel->node->config.window_frames;
    if ((flow->held && !flow->probing) || flow->next - flow->acked >= window) {
        return false;
    }
    return is_start_due(flow) || (flow->send_op != NULL && !has_to_wait(flow));
}

static bool is_local_runnable(const struct via_tx_flow *flow)
{
    return !via_list_is_empty(&flow->ops) && !flow->held;
}

void via_tx_update(struct via_channel *channel, struct via_tx_flow *flow)
{
    bool local = flow->host == channel->node->config.host;
    bool wanted = local ? is_local_runnable(flow) : is_sendable(channel, flow);

    if (!wanted) {
        via_list_remove(&flow->ready);
    } else if (!via_list_is_linked(&flow->ready)) {
        struct via_way *way = local ? NULL : via_way_to(channel, flow->host);
        via_list_push_back(local         ? &channel->flows->local
                           : way != NULL ? &way->flows
                                         : &channel->flows->parked,
                           &flow->ready);
    }
}

static void set_deadline(struct via_channel *channel, struct via_tx_flow *flow)
{
    if (flow->next == flow->acked && !flow->held) {
        flow->deadline_ns = VIA_NEVER_NS;
        return;
    }
    uint64_t soon_ns = flow->soon ? channel->node->config.ack_ns_max : 0;
    flow->deadline_ns = channel->now_ns + soon_ns + flow->retry_ns;
    channel->flows->next_timer_ns = via_min(channel->flows->next_timer_ns, flow->deadline_ns);
}

void via_tx_count(struct via_tx_op *op)
{
    op->flow->live += op->counted ? 0 : 1;
    op->counted = true;
}

void via_tx_uncount(struct via_tx_op *op)
{
    if (op->counted) {
        op->flow->live--;
        op->counted = false;
    }
}

void via_tx_append(struct via_channel *channel, struct via_tx_flow *flow, struct via_tx_op *op)
{
    op->flow = flow;
    via_list_push_back(&flow->ops, &op->link);
    via_tx_count(op);
    if (flow->ack_op == NULL) {
        flow->ack_op = op;
    }
    if (flow->send_op == NULL) {
        flow->send_op = op;
    }
    if (!via_list_is_linked(&flow->busy)) {
        via_list_push_back(&channel->flows->busy, &flow->busy);
        flow->progress_ns = 0;
        /* The time is not known here: via_tx_timers() records it a little later. */
        channel->flows->next_timer_ns =
            via_min(channel->flows->next_timer_ns,
                    via_time_add(channel->now_ns, channel->node->config.retry_ns_min));
    }
    via_tx_update(channel, flow);
}

/* --- the end of operations ------------------------------------------------------------------- */

void via_tx_remove(struct via_channel *channel, struct via_tx_op *op)
{
    struct via_tx_flow *flow = op->flow;

    if (flow->ack_op == op) {
        flow->ack_op = op_after(flow, op);
    }
    if (flow->send_op == op) {
        flow->send_op = op_after(flow, op);
    }
    via_tx_uncount(op);
    via_list_remove(&op->link);
    op->flow = NULL;
    if (via_list_is_empty(&flow->ops) && !flow->owed) {
        via_list_remove(&flow->busy);
        /* The reason to hold the flow has ended. No timer would end the hold for the next
         * operation. */
        flow->held = VIA_MUTANT(HELD) ? flow->held : false;
        flow->probing = false;
        flow->deadline_ns = VIA_NEVER_NS;
    }
    channel->flows->calls.removed(channel, op);
}

static bool is_behind(const struct via_tx_op *op, uint32_t sequence)
{
    return op->assigned && !via_seq_is_before_u32(sequence, op->first_sequence + op->frames_count);
}

/* Called after a change of `acked`, of `next` or of an operation's length. */
static void update_next(struct via_channel *channel, struct via_tx_flow *flow)
{
    if (via_seq_is_before_u32(flow->next, flow->acked)) {
        flow->next = flow->acked;
        flow->send_op = flow->ack_op;
    }
    while (flow->ack_op != NULL && is_behind(flow->ack_op, flow->acked)) {
        struct via_tx_op *op = flow->ack_op;
        flow->ack_op = op_after(flow, op);
        if (flow->send_op == op) {
            flow->send_op = flow->ack_op;
        }
        channel->flows->calls.acked(channel, op);
    }
    while (flow->send_op != NULL && is_behind(flow->send_op, flow->next)) {
        flow->send_op = op_after(flow, flow->send_op);
    }
    channel->flows->calls.settled(channel, flow);
    via_tx_update(channel, flow);
}

static void rewind_to_acked(struct via_tx_flow *flow)
{
    flow->next = flow->acked;
    flow->send_op = flow->ack_op;
}

void via_tx_skip(struct via_channel *channel, struct via_tx_op *op)
{
    struct via_tx_flow *flow = op->flow;

    op->skip = true;
    if (!op->assigned) {
        op->acked = true;
        via_tx_remove(channel, op);
    } else {
        /* Only the last operation that has sent frames can have frames that were never sent. */
        op->frames_count = via_min(op->frames_count, flow->sent_max - op->first_sequence);
    }
    update_next(channel, flow);
}

void via_tx_reset(struct via_channel *channel, struct via_tx_flow *flow, int status)
{
    struct via_list *it;

    flow->acked = flow->sent_max;
    flow->next = flow->sent_max;
    flow->start = flow->sent_max;
    flow->started = false;
    flow->owed = false;
    flow->held = false;
    flow->probing = false;
    flow->no_state_count = 0;
    flow->progress_ns = 0;
    flow->ack_op = NULL;
    flow->send_op = NULL;
    flow->retry_ns = channel->node->config.retry_ns_min;
    flow->deadline_ns = VIA_NEVER_NS;
    via_list_remove(&flow->ready);
    while ((it = via_list_first(&flow->ops)) != NULL) {
        struct via_tx_op *op = via_list_entry(it, struct via_tx_op, link);
        op->acked = true;
        channel->flows->calls.ended(channel, op, status);
        via_tx_remove(channel, op);
    }
    via_list_remove(&flow->busy);
}

/* --- frames ----------------------------------------------------------------------------------- */

/* The flags that request an acknowledgement. The sender decides when frames are acknowledged,
 * because the receiver does not know the sender's window. */
static uint8_t choose_ack_flag(const struct via_channel *channel, const struct via_tx_flow *flow,
                               bool last_of_op, bool soon)
{
    uint32_t window = channel->node->config.window_frames;
    uint32_t quarter = via_max(window / 4, 1u);
    uint32_t open = flow->next + 1 - flow->acked;
    if (flow->probing || (flow->next + 1) % quarter == 0 || open >= window) {
        return VIA_FRAME_FLAG_ACK_NOW;
    }
    if (!last_of_op) {
        return 0;
    }
    bool many = open >= quarter || open % SOON_OPEN_MAX == 0;
    return soon && !many ? VIA_FRAME_FLAG_ACK_SOON : VIA_FRAME_FLAG_ACK_NOW;
}

/* Makes the next frame. True: it is the last one of its operation. */
static bool make_next(struct via_channel *channel, struct via_tx_flow *flow,
                      struct via_outgoing *out)
{
    struct via_tx_op *op = flow->send_op;

    if (is_start_due(flow)) {
        out->header.kind = VIA_FRAME_SKIP;
        out->header.flags |= VIA_FRAME_FLAG_ERROR;
        return true;
    }
    if (!op->assigned) {
        op->assigned = true;
        op->first_sequence = flow->next;
    }
    uint32_t index = flow->next - op->first_sequence;
    if (op->skip) {
        out->header.kind = VIA_FRAME_SKIP;
    } else {
        channel->flows->calls.make(channel, op, index, out);
    }
    return index + 1 == op->frames_count;
}

static void note_sent(struct via_channel *channel, struct via_tx_flow *flow)
{
    if (via_seq_is_before_u32(flow->next, flow->sent_max)) {
        via_count(&channel->counters.resent, 1);
    }
    flow->next++;
    if (via_seq_is_before_u32(flow->sent_max, flow->next)) {
        flow->sent_max = flow->next;
    }
    if (flow->send_op != NULL && is_behind(flow->send_op, flow->next)) {
        flow->send_op = op_after(flow, flow->send_op);
    }
    if (flow->deadline_ns == VIA_NEVER_NS) {
        set_deadline(channel, flow);
    }
    channel->work++;
}

static void send_one(struct via_channel *channel, struct via_way *way, struct via_tx_flow *flow)
{
    const struct via_node_config *config = &channel->node->config;
    struct via_outgoing out = {
        .header =
            {
                .hops_left = config->hops_max,
                .source = config->host,
                .destination = flow->host,
                .source_session = config->session,
                .destination_session = channel->hosts[flow->host].session,
                .sequence = flow->next,
                .flow = flow->flow,
            },
    };
    bool soon = !is_start_due(flow) && flow->send_op->soon;
    bool last = make_next(channel, flow, &out);
    if (flow->next == flow->start && !flow->started) {
        out.header.flags |= VIA_FRAME_FLAG_START;
    }
    uint8_t ack = choose_ack_flag(channel, flow, last, soon);
    flow->soon = ack == VIA_FRAME_FLAG_ACK_SOON;
    out.header.flags |= ack;
    via_way_send(way, &out.header, out.payload, out.bytes);
    note_sent(channel, flow);
    via_rx_acks_with(channel, flow->host);
}

static void send_acks(struct via_channel *channel, struct via_way *way)
{
    uint32_t budget = channel->node->config.batch_frames;

    while (budget-- != 0 && !via_list_is_empty(&way->acks) && via_way_is_inject_allowed(way)) {
        struct via_list *first = via_list_pop_front(&way->acks);
        via_rx_send_ack(channel, way, via_list_entry(first, struct via_rx_flow, ack));
        channel->work++;
    }
}

void via_tx_pump(struct via_channel *channel, struct via_way *way)
{
    uint32_t budget = channel->node->config.batch_frames;

    send_acks(channel, way);
    while (budget != 0 && !via_list_is_empty(&way->flows) && via_way_is_inject_allowed(way)) {
        struct via_tx_flow *flow = via_list_entry(way->flows.next, struct via_tx_flow, ready);
        for (unsigned n = 0; n < BURST && budget != 0; n++, budget--) {
            if (!is_sendable(channel, flow) || !via_way_is_inject_allowed(way)) {
                break;
            }
            send_one(channel, way, flow);
        }
        via_list_remove(&flow->ready); /* to the end of the list, if more frames can be sent */
        via_tx_update(channel, flow);
    }
    send_acks(channel, way); /* acknowledgements that accompany the frames just sent */
}

/* --- acknowledgements ------------------------------------------------------------------------ */

static int status_from_peer(int32_t status)
{
    return status < 0 && status >= -4095 ? status : -EPROTO;
}

static void refused(struct via_channel *channel, struct via_tx_flow *flow, int32_t status)
{
    struct via_tx_op *op = flow->ack_op;

    if (op == NULL || !op->assigned || op->skip) {
        return; /* an old acknowledgement: the operation is already skipped */
    }
    channel->flows->calls.refused(channel, op, status_from_peer(status));
}

/* The peer has no state of this flow: it never had it, or has lost it. */
static void handle_no_state(struct via_channel *channel, struct via_tx_flow *flow)
{
    if (flow->started && ++flow->no_state_count >= NO_STATE_MAX) {
        via_tx_reset(channel, flow, -ECONNRESET);
        return;
    }
    flow->probing = false;
    rewind_to_acked(flow);
}

static void take_ack_state(struct via_channel *channel, struct via_tx_flow *flow,
                           const struct via_frame_ack *ack, bool progress)
{
    switch (ack->state) {
    case VIA_ACK_OK:
        if (progress && (flow->probing || flow->held)) {
            flow->probing = false;
            flow->held = false;
            rewind_to_acked(flow);
        }
        break;
    case VIA_ACK_GAP:
    case VIA_ACK_RESUME:
        flow->held = false;
        flow->probing = false;
        rewind_to_acked(flow);
        break;
    case VIA_ACK_NOT_READY:
        flow->held = true;
        flow->probing = false;
        rewind_to_acked(flow);
        break;
    case VIA_ACK_REFUSED:
        flow->held = false;
        flow->probing = false;
        rewind_to_acked(flow);
        refused(channel, flow, ack->status);
        break;
    case VIA_ACK_NO_STATE:
        handle_no_state(channel, flow);
        break;
    default:
        via_count(&channel->counters.dropped_malformed, 1);
        break;
    }
}

static void take_ack(struct via_channel *channel, struct via_tx_flow *flow,
                     const struct via_frame_ack *ack)
{
    bool progress = ack->next != flow->acked;

    if (ack->state == VIA_ACK_NO_STATE) {
        progress = false; /* `next` is not valid */
    } else if (VIA_MUTANT(WRONG_WRAP) ? ack->next < flow->acked
                                      : via_seq_is_before_u32(ack->next, flow->acked)) {
        return; /* an old acknowledgement */
    } else if (via_seq_is_before_u32(flow->sent_max, ack->next)) {
        via_count(&channel->counters.dropped_malformed, 1);
        return;
    }
    flow->progress_ns = channel->now_ns;
    if (progress) {
        flow->acked = ack->next;
        flow->started = true;
        flow->owed = false;
        flow->retry_ns = channel->node->config.retry_ns_min;
        flow->no_state_count = 0;
        update_next(channel, flow);
        if (via_list_is_empty(&flow->ops)) {
            via_list_remove(&flow->busy);
            set_deadline(channel, flow);
            return; /* the rest of the acknowledgement does not apply any more */
        }
    }
    take_ack_state(channel, flow, ack, progress);
    update_next(channel, flow);
    set_deadline(channel, flow);
}

void via_tx_acked(struct via_channel *channel, const struct via_frame_header *header)
{
    struct via_frame_ack args;

    memcpy(&args, header->args, sizeof(args));
    take_ack(channel, via_channel_tx(channel, header->source, header->flow), &args);
}

/* --- time ------------------------------------------------------------------------------------ */

void via_tx_rerouted(struct via_channel *channel, struct via_tx_flow *flow)
{
    flow->retry_ns = channel->node->config.retry_ns_min;
    if (flow->next != flow->acked || flow->probing) {
        /* Sends one frame; its acknowledgement shows which of the other frames have arrived. */
        flow->probing = true;
        rewind_to_acked(flow);
    }
    via_list_remove(&flow->ready);
    via_tx_update(channel, flow);
    set_deadline(channel, flow);
}

static void timed_out(struct via_channel *channel, struct via_tx_flow *flow)
{
    flow->retry_ns = via_min(flow->retry_ns * 2, channel->node->config.retry_ns_max);
    flow->probing = true;
    rewind_to_acked(flow);
    via_tx_update(channel, flow);
    flow->deadline_ns = channel->now_ns + flow->retry_ns;
    channel->work++;
}

/* Gives up answers to a host that does not acknowledge, so that other hosts get internal
 * operations. A SKIP frame reports the loss to the requester. */
static void give_up_answers(struct via_channel *channel, struct via_tx_flow *flow)
{
    via_tx_reset(channel, flow, -EHOSTUNREACH);
    flow->owed = true;
    via_list_push_back(&channel->flows->busy, &flow->busy);
    via_tx_update(channel, flow);
}

static bool has_kept(const struct via_tx_flow *flow)
{
    via_list_foreach(it, &flow->ops) {
        if (via_list_entry(it, struct via_tx_op, link)->kept) {
            return true;
        }
    }
    return false;
}

/* True if no internal operation is left because other hosts do not acknowledge answers. */
static bool is_short(const struct via_channel *channel)
{
    const struct via_list *first = channel->flows->answer_waiters.next;
    return first != &channel->flows->answer_waiters &&
           channel->flows->calls.answer_room(
               channel, via_list_entry(first, struct via_rx_flow, wait)->host) == -ENOBUFS;
}

/* Time for which the peer of this flow may be silent; VIA_NEVER_NS: forever. */
static uint64_t silence_ns_max(const struct via_channel *channel, const struct via_tx_flow *flow)
{
    const struct via_node_config *config = &channel->node->config;

    if (flow->host == config->host) {
        return VIA_NEVER_NS;
    }
    if (flow->flow == config->flows_count) {
        if (via_list_is_empty(&flow->ops)) {
            return VIA_NEVER_NS; /* only a SKIP frame remains to be sent */
        }
        if (is_short(channel) && !has_kept(flow)) {
            return via_min(ANSWER_PATIENCE_NS, config->give_up_ns);
        }
    }
    return config->give_up_ns;
}

/* True: the flow has ended. */
static bool give_up(struct via_channel *channel, struct via_tx_flow *flow)
{
    channel->work++;
    if (flow->flow != channel->node->config.flows_count) {
        via_tx_reset(channel, flow, -EHOSTUNREACH);
    } else if (!has_kept(flow)) {
        give_up_answers(channel, flow);
    } else {
        flow->progress_ns = channel->now_ns;
        channel->flows->calls.stuck(channel, flow);
        return false;
    }
    return true;
}

static bool is_silent(struct via_channel *channel, struct via_tx_flow *flow)
{
    uint64_t limit_ns = silence_ns_max(channel, flow);

    if (flow->progress_ns == 0) {
        flow->progress_ns = channel->now_ns;
    }
    uint64_t end_ns = via_time_add(flow->progress_ns, limit_ns);
    channel->flows->next_timer_ns = via_min(channel->flows->next_timer_ns, end_ns);
    return channel->now_ns >= end_ns;
}

/* The first operation for which a process waits; those behind it wait for it. */
static struct via_tx_op *first_live(const struct via_tx_flow *flow)
{
    via_list_foreach(it, &flow->ops) {
        struct via_tx_op *op = via_list_entry(it, struct via_tx_op, link);
        if (op->counted) {
            return op;
        }
    }
    return NULL;
}

/* True if a stalled operation may be ended now, because frames of its peer arrive. is_silent()
 * decides about a peer that does not answer. But a peer that answers only now and then, just before
 * it would be given up, does not keep an operation forever: give_up_ns after its limit the
 * operation ends anyway. */
static bool has_recent_frames(const struct via_channel *channel, const struct via_tx_flow *flow,
                              const struct via_tx_op *op, uint64_t end_ns)
{
    const struct via_node_config *config = &channel->node->config;
    return flow->host == config->host ||
           (flow->progress_ns > op->stalled_ns &&
            channel->now_ns - flow->progress_ns < 4 * config->retry_ns_max) ||
           channel->now_ns >= via_time_add(end_ns, config->give_up_ns);
}

/* The first operation, if it has made no progress within wait_ns_max. Checks STALL_POLLS times
 * within that limit. */
static struct via_tx_op *find_stalled(struct via_channel *channel, struct via_tx_flow *flow)
{
    uint64_t limit_ns = channel->node->config.wait_ns_max;
    struct via_tx_op *op = NULL;

    if (channel->now_ns >= flow->poll_ns) {
        flow->poll_ns = via_time_add(channel->now_ns, limit_ns / STALL_POLLS + 1);
        op = VIA_MUTANT(ENDLESS) ? NULL : first_live(flow);
    }
    if (op != NULL) {
        uint32_t mark = flow->acked + op->progress;
        if (op->stalled_ns == 0 || op->mark != mark) {
            op->mark = mark;
            op->stalled_ns = channel->now_ns;
        }
        uint64_t end_ns = via_time_add(op->stalled_ns, limit_ns);
        if (channel->now_ns >= end_ns && has_recent_frames(channel, flow, op, end_ns)) {
            return op;
        }
        flow->poll_ns = channel->now_ns < end_ns ? via_min(flow->poll_ns, end_ns) : flow->poll_ns;
    }
    channel->flows->next_timer_ns = via_min(channel->flows->next_timer_ns, flow->poll_ns);
    return NULL;
}

/* Ends an operation without progress although frames of the peer arrive. True: the flow has
 * ended. */
static bool end_stalled(struct via_channel *channel, struct via_tx_flow *flow, struct via_tx_op *op)
{
    if (flow->flow == channel->node->config.flows_count) {
        return give_up(channel, flow);
    }
    channel->work++;
    channel->flows->calls.timed_out(channel, op);
    if (flow->host == channel->node->config.host) {
        flow->held = false;
        via_tx_update(channel, flow);
    }
    channel->flows->next_timer_ns = channel->now_ns; /* the time of the next operation begins now */
    return false;
}

void via_tx_timers(struct via_channel *channel)
{
    channel->flows->next_timer_ns = VIA_NEVER_NS;
    via_list_foreach_safe(it, &channel->flows->busy) {
        struct via_tx_flow *flow = via_list_entry(it, struct via_tx_flow, busy);
        if (is_silent(channel, flow) && give_up(channel, flow)) {
            continue;
        }
        struct via_tx_op *op = find_stalled(channel, flow);
        if (op != NULL && end_stalled(channel, flow, op)) {
            continue;
        }
        if (channel->now_ns >= flow->deadline_ns) {
            timed_out(channel, flow);
        }
        channel->flows->next_timer_ns = via_min(channel->flows->next_timer_ns, flow->deadline_ns);
    }
}
