/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Operations: submission, the calls of the flow layer, early ends, and operations on this host. */
#include <errno.h>

#include "base/copy.h"
#include "core/op.h"

/* Maximum of bytes of operations on this host that one turn copies. */
#define LOCAL_BYTES_PER_TURN (256u * 1024)

/* --- submission ------------------------------------------------------------------------------ */

static int check_strided(const struct via_node_config *config, const struct via_op *op)
{
    if (op->compare == 0 || op->compare > config->frame_bytes_max || op->bytes % op->compare != 0 ||
        (op->flags & ~VIA_FRAME_FLAG_ACK_SOON) != 0) {
        return -EINVAL;
    }
    return op->bytes > VIA_OP_STRIDED_BYTES_MAX ? -EMSGSIZE : 0;
}

static int check(const struct via_channel *channel, const struct via_op *op)
{
    const struct via_node_config *config = &channel->node->config;

    if (op->kind == VIA_OP_BARRIER) {
        return via_barrier_check(channel, op);
    }
    bool strided = op->kind == VIA_OP_PUT_STRIDED;
    if (op->kind < VIA_OP_MESSAGE || (op->kind > VIA_OP_ATOMIC && !strided) ||
        op->flow >= config->flows_count || (op->flags & ~VIA_OP_FLAGS) != 0) {
        return -EINVAL;
    }
    if (op->destination >= config->hosts_max) {
        return -EHOSTUNREACH;
    }
    if (op->kind == VIA_OP_ATOMIC) {
        unsigned operation = op->atomic & ~VIA_ATOMIC_32;
        return operation < VIA_ATOMIC_ADD || operation > VIA_ATOMIC_FETCH ? -EINVAL : 0;
    }
    if (op->bytes != 0 && (op->kind == VIA_OP_GET ? op->result == NULL : op->source == NULL)) {
        return -EINVAL;
    }
    if (strided) {
        return check_strided(config, op);
    }
    /* An operation has fewer frames than half of the sequence numbers, so that numbers can be
     * compared. */
    uint64_t bytes_max = op->kind == VIA_OP_MESSAGE ? config->frame_bytes_max
                                                    : (uint64_t)config->frame_bytes_max << 31;
    return op->bytes > bytes_max ? -EMSGSIZE : 0;
}

int via_node_submit(struct via_node *node, unsigned index, const struct via_op *what)
{
    if (index >= node->config.channels_count) {
        return -EINVAL;
    }
    struct via_channel *channel = &node->channels[index];
    int rc = check(channel, what);
    if (rc != 0) {
        return rc;
    }
    struct via_op_slot *op = via_op_new(channel, what);
    if (op == NULL) {
        return -EAGAIN;
    }
    if (what->kind == VIA_OP_BARRIER) {
        via_barrier_start(channel, op);
    } else {
        via_tx_append(channel, via_channel_tx(channel, what->destination, what->flow), &op->tx);
    }
    return 0;
}

void via_ops_report(struct via_channel *channel)
{
    struct via_list *it;

    while ((it = via_list_pop_front(&channel->ops->reports)) != NULL) {
        via_op_report(channel, via_list_entry(it, struct via_op_slot, reports));
        channel->work++;
    }
}

static void cancel(struct via_channel *channel, struct via_op_slot *op)
{
    if (op->finished) {
        via_list_remove(&op->reports); /* its real status is final, so it is reported instead */
        via_op_report(channel, op);
        return;
    }
    if (op->op.kind == VIA_OP_BARRIER || op->op.kind == VIA_OP_BARRIER_LEAVE) {
        via_barrier_abandon(channel, op, -ECANCELED);
        via_list_remove(&op->reports);
        via_op_report(channel, op);
        return;
    }
    via_op_done(op, -ECANCELED, 0);
    op->finished = true;
    via_tx_uncount(&op->tx);
    via_op_skip(channel, op); /* the slot stays, because it is not reported yet */
    via_op_report(channel, op);
}

void via_node_cancel(struct via_node *node, unsigned index, uint64_t mask, uint64_t match)
{
    struct via_channel *channel = &node->channels[index];

    for (uint32_t i = 0; i < node->config.ops_count; i++) {
        struct via_op_slot *op = &channel->ops->slots[i];
        if (op->in_use && !op->reported && (op->op.cookie & mask) == match) {
            cancel(channel, op);
        }
    }
}

void via_node_relocate(struct via_node *node, unsigned index, uint64_t mask, uint64_t match,
                       void (*relocate)(void *ctx, struct via_op *op), void *ctx)
{
    struct via_channel *channel = &node->channels[index];

    for (uint32_t i = 0; i < node->config.ops_count; i++) {
        struct via_op_slot *op = &channel->ops->slots[i];
        if (op->in_use && !op->reported && (op->op.cookie & mask) == match) {
            relocate(ctx, &op->op);
        }
    }
}

unsigned via_node_pending(const struct via_node *node, unsigned index)
{
    return atomic_load_explicit(&node->channels[index].ops->pending_shown, memory_order_relaxed);
}

/* --- calls of the flow layer ------------------------------------------------------------------ */

/* via_flow_calls.execute */
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
        return via_apply_message(channel, header->source, header->flow, &args, data, bytes);
    }
    case VIA_FRAME_PUT: {
        struct via_frame_access args;
        memcpy(&args, header->args, sizeof(args));
        return via_apply_put(channel, &args, data, bytes, flags);
    }
    case VIA_FRAME_PUT_SIGNAL: {
        struct via_frame_signal args;
        memcpy(&args, header->args, sizeof(args));
        return via_apply_put_signal(channel, &args, data, bytes, flags);
    }
    case VIA_FRAME_PUT_STRIDED: {
        struct via_frame_strided args;
        memcpy(&args, header->args, sizeof(args));
        return via_apply_put_strided(channel, &args, data, bytes);
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
        return channel->barriers == NULL ? -EPROTO : via_barrier_arrive(channel, header);
    case VIA_FRAME_BARRIER_RELEASE:
        if (channel->barriers != NULL) {
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

static void acked(struct via_channel *channel, struct via_tx_op *tx)
{
    struct via_op_slot *op = via_op_of(tx);

    op->tx.acked = true;
    switch (op->op.kind) {
    case VIA_OP_GET:
    case VIA_OP_ATOMIC:
        break; /* done when the answer has arrived */
    case VIA_OP_BARRIER:
    case VIA_OP_BARRIER_LEAVE:
        via_barrier_acked(channel, op);
        break;
    default:
        if (!op->done) {
            via_op_done(op, 0, 0);
        }
        break;
    }
}

static void refused(struct via_channel *channel, struct via_tx_op *tx, int status)
{
    struct via_op_slot *op = via_op_of(tx);

    if (!op->done) {
        via_op_done(op, status, 0);
    }
    if (op->op.kind == VIA_OP_BARRIER || op->op.kind == VIA_OP_BARRIER_LEAVE) {
        /* barriers have no order with other operations */
        via_op_finish(channel, op, op->status, 0);
    }
    via_op_skip(channel, op);
}

static void timed_out(struct via_channel *channel, struct via_tx_op *tx)
{
    struct via_op_slot *op = via_op_of(tx);

    if (op->op.destination == channel->node->config.host) {
        tx->acked = true;
        via_op_done(op, -ETIMEDOUT, 0);
        via_op_flush(channel, tx->flow);
    } else if (tx->assigned) {
        via_op_done(op, -ETIMEDOUT, 0);
        via_op_skip(channel, op);
    } else {
        via_op_finish(channel, op, -ETIMEDOUT, 0);
        via_op_skip(channel, op);
    }
}

static void ended(struct via_channel *channel, struct via_tx_op *tx, int status)
{
    struct via_op_slot *op = via_op_of(tx);

    if (!op->finished) {
        via_op_finish(channel, op, op->done ? op->status : status, op->value);
    }
}

static void removed(struct via_channel *channel, struct via_tx_op *tx)
{
    via_op_free_if_over(channel, via_op_of(tx));
}

static const struct via_flow_calls calls = {
    .make = via_outgoing_make,
    .acked = acked,
    .refused = refused,
    .settled = via_op_flush,
    .ended = ended,
    .removed = removed,
    .timed_out = timed_out,
    .stuck = via_barrier_stuck,
    .answer_room = via_op_answer_room,
    .execute = execute,
};

void via_ops_init(struct via_channel *channel)
{
    via_flows_init(channel, &calls);
    via_op_pool_init(channel);
    if (channel->barriers != NULL) {
        via_barrier_init(channel);
    }
}

/* --- operations on this host ------------------------------------------------------------------ */

/* One step of a put or get. True: it has ended. */
static bool copy_step(struct via_channel *channel, struct via_op_slot *op, uint32_t *budget,
                      int *ret_status)
{
    uint64_t left = op->op.bytes - op->moved;
    uint64_t bytes = via_min(left, (uint64_t)LOCAL_BYTES_PER_TURN);
    bool last = bytes == left;
    unsigned flags = last ? op->op.flags : 0;
    uint64_t offset = op->op.offset + op->moved;
    const unsigned char *source = (const unsigned char *)op->op.source + op->moved;

    if (op->op.kind == VIA_OP_GET) {
        unsigned char *memory;
        *ret_status =
            via_segment_reach(channel, op->op.segment, offset, bytes, VIA_SEGMENT_READ, &memory);
        if (*ret_status == 0 && bytes != 0) {
            via_copy_foreign((unsigned char *)op->op.result + op->moved, memory, bytes);
        }
    } else if (last && op->op.kind == VIA_OP_PUT_SIGNAL) {
        struct via_frame_signal args = {op->op.segment, offset, op->op.signal_offset,
                                        op->op.signal_value};
        *ret_status = via_apply_put_signal(channel, &args, source, (uint32_t)bytes, flags);
    } else {
        struct via_frame_access args = {op->op.segment, offset};
        *ret_status = via_apply_put(channel, &args, source, (uint32_t)bytes, flags);
    }
    op->moved += bytes;
    op->tx.progress++;
    *budget -= (uint32_t)via_min(bytes, (uint64_t)*budget);
    return last || *ret_status != 0;
}

static int apply_local_message(struct via_channel *channel, const struct via_op_slot *op)
{
    struct via_frame_message args = {op->op.endpoint, op->op.source_endpoint};
    return via_apply_message(channel, channel->node->config.host, op->op.flow, &args, op->op.source,
                             (uint32_t)op->op.bytes);
}

static int apply_local_atomic(struct via_channel *channel, const struct via_op_slot *op,
                              uint64_t *ret_old)
{
    struct via_frame_atomic args = {
        .segment = op->op.segment,
        .offset = op->op.offset,
        .operation = op->op.atomic,
    };
    struct via_frame_atomic_operands operands = {op->op.operand, op->op.compare};
    return via_apply_atomic(channel, &args, &operands, ret_old);
}

static int apply_local_put_strided(struct via_channel *channel, const struct via_op_slot *op)
{
    struct via_frame_strided args = {
        .segment = op->op.segment,
        .offset = op->op.offset,
        .step = (int64_t)op->op.operand,
        .block_bytes = (uint32_t)op->op.compare,
    };
    return via_apply_put_strided(channel, &args, op->op.source, (uint32_t)op->op.bytes);
}

/* True: the operation has ended. */
static bool step_local(struct via_channel *channel, struct via_op_slot *op, uint32_t *budget,
                       int *ret_status, uint64_t *ret_value)
{
    switch (op->op.kind) {
    case VIA_OP_MESSAGE:
        *ret_status = apply_local_message(channel, op);
        return *ret_status != -EAGAIN;
    case VIA_OP_ATOMIC:
        *ret_status = apply_local_atomic(channel, op, ret_value);
        return true;
    case VIA_OP_PUT_STRIDED:
        *ret_status = apply_local_put_strided(channel, op);
        *budget -= (uint32_t)via_min(op->op.bytes, (uint64_t)*budget);
        return true;
    default:
        return copy_step(channel, op, budget, ret_status);
    }
}

static void step_local_flow(struct via_channel *channel, struct via_tx_flow *flow)
{
    uint32_t budget = LOCAL_BYTES_PER_TURN;

    for (uint32_t n = 0; n < channel->node->config.batch_frames && budget != 0; n++) {
        if (via_list_is_empty(&flow->ops)) {
            return;
        }
        struct via_op_slot *op = via_list_entry(flow->ops.next, struct via_op_slot, tx.link);
        int status = 0;
        uint64_t value = 0;
        channel->work++;
        if (step_local(channel, op, &budget, &status, &value)) {
            op->tx.acked = true;
            via_op_done(op, status, value);
            via_op_flush(channel, flow);
        } else if (status == -EAGAIN) {
            flow->held = true;
            return;
        }
    }
}

void via_ops_run_local(struct via_channel *channel)
{
    struct via_list now, *it;

    via_list_init(&now);
    via_list_splice_back(&now, &channel->flows->local);
    while ((it = via_list_pop_front(&now)) != NULL) {
        struct via_tx_flow *flow = via_list_entry(it, struct via_tx_flow, ready);
        step_local_flow(channel, flow);
        via_tx_update(channel, flow);
    }
}
