/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Gets and atomics. The owner's host answers with an operation of its own in the reserved flow, so
 * that answers never queue behind requests. The requester's host takes the answers.
 */
#include <errno.h>

#include "base/copy.h"
#include "core/op.h"

static void answer(struct via_channel *channel, const struct via_op *what)
{
    /* never NULL: the caller has checked for room */
    struct via_op_slot *op = via_op_answer_new(channel, what);
    via_tx_append(channel,
                  via_channel_tx(channel, what->destination, channel->node->config.flows_count),
                  &op->tx);
}

int via_answer_get(struct via_channel *channel, const struct via_frame_header *header)
{
    struct via_frame_get args;
    unsigned char *memory;

    memcpy(&args, header->args, sizeof(args));
    int rc = via_segment_reach(channel, args.segment, args.offset, args.length, VIA_SEGMENT_READ,
                               &memory);
    if (rc != 0) {
        return rc;
    }
    if (via_op_answer_room(channel, header->source) != 0) {
        return -ENOBUFS;
    }
    answer(channel, &(struct via_op){
                        .kind = VIA_OP_GET_ANSWER,
                        .destination = header->source,
                        .segment = args.segment,
                        .offset = args.offset,
                        .bytes = args.length,
                        .cookie = args.cookie,
                    });
    return 0;
}

int via_answer_atomic(struct via_channel *channel, const struct via_frame_header *header,
                      const void *body, uint32_t body_bytes)
{
    struct via_frame_atomic args;
    struct via_frame_atomic_operands operands;
    uint64_t old;

    if (body_bytes != sizeof(operands)) {
        return -EPROTO;
    }
    memcpy(&args, header->args, sizeof(args));
    memcpy(&operands, body, sizeof(operands));
    if (via_op_answer_room(channel, header->source) != 0) {
        return -ENOBUFS;
    }
    int rc = via_apply_atomic(channel, &args, &operands, &old);
    if (rc != 0) {
        return rc;
    }
    answer(channel, &(struct via_op){
                        .kind = VIA_OP_ATOMIC_ANSWER,
                        .destination = header->source,
                        .cookie = args.cookie,
                        .operand = old,
                    });
    return 0;
}

/* The request has ended, even if a part of it was not sent. */
static void end_request(struct via_channel *channel, struct via_op_slot *op, int status,
                        uint64_t value)
{
    struct via_tx_flow *flow = op->tx.flow;

    via_op_done(op, status, value);
    if (status != 0) {
        via_op_skip(channel, op);
        return;
    }
    via_op_flush(channel, flow);
    via_tx_update(channel, flow);
}

void via_answer_get_data(struct via_channel *channel, const struct via_frame_header *header,
                         const void *data, uint32_t bytes)
{
    struct via_frame_answer args;

    memcpy(&args, header->args, sizeof(args));
    struct via_op_slot *op = via_op_by_cookie(channel, args.cookie, header->source);
    if (op == NULL || op->op.kind != VIA_OP_GET) {
        return; /* given up meanwhile */
    }
    op->tx.flow->progress_ns = channel->now_ns;
    if ((header->flags & VIA_FRAME_FLAG_ERROR) != 0) {
        int64_t status = (int64_t)args.value;
        end_request(channel, op, status < 0 && status >= -4095 ? (int)status : -EPROTO, 0);
        return;
    }
    /* Answers of a flow arrive in order, so each has exactly one valid place. */
    if (args.value != op->op.offset + op->moved || bytes > op->op.bytes - op->moved ||
        (bytes == 0 && op->op.bytes != 0)) {
        via_count(&channel->counters.dropped_malformed, 1);
        end_request(channel, op, -EPROTO, 0);
        return;
    }
    if (bytes != 0) {
        via_copy_foreign((unsigned char *)op->op.result + op->moved, data, bytes);
    }
    via_op_moved(channel, op, bytes);
    if (op->moved == op->op.bytes) {
        end_request(channel, op, 0, 0);
    } else {
        via_tx_update(channel, op->tx.flow);
    }
}

void via_answer_atomic_result(struct via_channel *channel, const struct via_frame_header *header)
{
    struct via_frame_answer args;

    memcpy(&args, header->args, sizeof(args));
    struct via_op_slot *op = via_op_by_cookie(channel, args.cookie, header->source);
    if (op != NULL && op->op.kind == VIA_OP_ATOMIC) {
        end_request(channel, op, 0, args.value);
    }
}

void via_answer_lost(struct via_channel *channel, uint16_t host)
{
    for (uint32_t i = 0; i < channel->node->config.ops_count; i++) {
        struct via_op_slot *op = &channel->ops->slots[i];
        bool is_answered = op->op.kind == VIA_OP_GET || op->op.kind == VIA_OP_ATOMIC;
        if (op->in_use && !op->done && is_answered && op->tx.assigned &&
            op->op.destination == host) {
            end_request(channel, op, -EHOSTUNREACH, 0);
        }
    }
}
