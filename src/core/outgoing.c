/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Makes the frames of an operation. Any frame can be made at any time, and repeatedly, because an
 * operation is always split in the same way.
 */
#include "base/copy.h"
#include "base/mutant.h"
#include "core/op.h"

static void set_args(struct via_outgoing *out, const void *args, size_t bytes)
{
    memcpy(out->header.args, args, bytes);
}

/* The place of piece `index` in an operation's data. True: it is the last piece. */
static bool locate_piece(const struct via_channel *channel, const struct via_op_slot *op,
                         uint32_t index, uint64_t *ret_off, uint32_t *ret_bytes)
{
    uint64_t each = via_op_frame_bytes(channel->node, &op->op);
    uint64_t bytes = op->op.bytes;
    uint64_t last = bytes == 0 ? 0 : (bytes - 1) / each;
    uint64_t off = index * each;
    uint64_t end = index == last ? bytes : off + each;

    /* LAST_WORD requires the last aligned word to be within one piece. */
    if ((op->op.flags & VIA_FRAME_FLAG_LAST_WORD) != 0 && last > 0 && bytes - last * each < 16) {
        if (index == last) {
            off -= 32;
        } else if (index + 1 == last) {
            end -= 32;
        }
    }
    *ret_off = off;
    *ret_bytes = (uint32_t)(end - off);
    return index == last;
}

static void make_message(const struct via_op_slot *op, struct via_outgoing *out)
{
    struct via_frame_message args = {
        .endpoint = op->op.endpoint,
        .source_endpoint = op->op.source_endpoint,
    };
    set_args(out, &args, sizeof(args));
    out->header.kind = VIA_FRAME_MESSAGE;
    out->header.flags |= VIA_FRAME_FLAG_LAST;
    out->payload = op->op.source;
    out->bytes = (uint32_t)op->op.bytes;
}

static void make_put(const struct via_channel *channel, const struct via_op_slot *op,
                     uint32_t index, struct via_outgoing *out)
{
    uint64_t off;
    bool last = locate_piece(channel, op, index, &off, &out->bytes);

    out->payload = (const unsigned char *)op->op.source + off;
    if (last) {
        out->header.flags |= VIA_FRAME_FLAG_LAST |
                             (op->op.flags & (VIA_FRAME_FLAG_NOTIFY | VIA_FRAME_FLAG_LAST_WORD));
    }
    if ((VIA_MUTANT(SIGNAL_FIRST) ? index == 0 : last) && op->op.kind == VIA_OP_PUT_SIGNAL) {
        struct via_frame_signal args = {
            .segment = op->op.segment,
            .offset = op->op.offset + off,
            .signal_offset = op->op.signal_offset,
            .signal_value = op->op.signal_value,
        };
        out->header.kind = VIA_FRAME_PUT_SIGNAL;
        set_args(out, &args, sizeof(args));
    } else {
        struct via_frame_access args = {.segment = op->op.segment, .offset = op->op.offset + off};
        out->header.kind = VIA_FRAME_PUT;
        set_args(out, &args, sizeof(args));
    }
}

static void make_put_strided(const struct via_channel *channel, const struct via_op_slot *op,
                             uint32_t index, struct via_outgoing *out)
{
    uint64_t off;
    bool last = locate_piece(channel, op, index, &off, &out->bytes);
    struct via_frame_strided args = {
        .segment = op->op.segment,
        .offset = op->op.offset + off / op->op.compare * op->op.operand,
        .step = (int64_t)op->op.operand,
        .block_bytes = (uint32_t)op->op.compare,
    };

    out->header.kind = VIA_FRAME_PUT_STRIDED;
    out->payload = (const unsigned char *)op->op.source + off;
    out->header.flags |= last ? VIA_FRAME_FLAG_LAST : 0;
    set_args(out, &args, sizeof(args));
}

static void make_get(const struct via_channel *channel, const struct via_op_slot *op,
                     uint32_t index, struct via_outgoing *out)
{
    uint64_t off = (uint64_t)index * channel->node->get_bytes_max;
    struct via_frame_get args = {
        .segment = op->op.segment,
        .offset = op->op.offset + off,
        .cookie = via_op_cookie(channel, op),
        .length = (uint32_t)via_min((uint64_t)channel->node->get_bytes_max, op->op.bytes - off),
    };
    out->header.kind = VIA_FRAME_GET;
    set_args(out, &args, sizeof(args));
}

static void make_atomic(const struct via_channel *channel, const struct via_op_slot *op,
                        struct via_outgoing *out)
{
    struct via_frame_atomic args = {
        .segment = op->op.segment,
        .offset = op->op.offset,
        .cookie = via_op_cookie(channel, op),
        .operation = op->op.atomic,
    };
    out->header.kind = VIA_FRAME_ATOMIC;
    set_args(out, &args, sizeof(args));
    out->operands =
        (struct via_frame_atomic_operands){.operand = op->op.operand, .compare = op->op.compare};
    out->payload = &out->operands;
    out->bytes = sizeof(out->operands);
}

/* Looks up the segment for each piece, because it may have been removed meanwhile. */
static void make_get_answer(struct via_channel *channel, struct via_op_slot *op, uint32_t index,
                            struct via_outgoing *out)
{
    uint64_t off;
    unsigned char *memory = NULL;
    bool last = locate_piece(channel, op, index, &off, &out->bytes);
    int rc = via_segment_reach(channel, op->op.segment, op->op.offset + off, out->bytes,
                               VIA_SEGMENT_READ, &memory);
    struct via_frame_answer args = {.cookie = op->op.cookie, .value = op->op.offset + off};

    out->header.kind = VIA_FRAME_GET_DATA;
    out->payload = memory;
    if (rc != 0) {
        /* The requester may have all frames that were sent, and drops them if they arrive again. So
         * one further frame must report the error. */
        uint32_t begun = op->tx.flow->sent_max - op->tx.first_sequence;
        op->tx.frames_count = via_min(op->tx.frames_count, begun + 1);
        args.value = (uint64_t)(int64_t)rc;
        out->header.flags |= VIA_FRAME_FLAG_ERROR;
        out->bytes = 0;
    }
    if (last || rc != 0) {
        out->header.flags |= VIA_FRAME_FLAG_LAST;
    }
    set_args(out, &args, sizeof(args));
}

static void make_atomic_answer(const struct via_op_slot *op, struct via_outgoing *out)
{
    struct via_frame_answer args = {.cookie = op->op.cookie, .value = op->op.operand};
    out->header.kind = VIA_FRAME_ATOMIC_RESULT;
    set_args(out, &args, sizeof(args));
}

static void make_barrier(const struct via_op_slot *op, struct via_outgoing *out)
{
    struct via_frame_barrier args = {
        .group = op->op.group,
        .round = op->round,
        .action = op->op.kind == VIA_OP_BARRIER_WITHDRAW ? VIA_BARRIER_WITHDRAW
                  : op->op.kind == VIA_OP_BARRIER_LEAVE  ? VIA_BARRIER_LEAVE
                                                         : VIA_BARRIER_PLAIN,
        .status = op->op.kind == VIA_OP_BARRIER_RELEASE ? (int32_t)(int64_t)op->op.operand : 0,
    };
    out->header.kind = op->op.kind == VIA_OP_BARRIER_RELEASE ? VIA_FRAME_BARRIER_RELEASE
                                                             : VIA_FRAME_BARRIER_ARRIVE;
    set_args(out, &args, sizeof(args));
}

/* Moves a small payload into the header, so that both are in one cache line. */
static void put_inline(struct via_outgoing *out)
{
    unsigned max = via_frame_inline_max(out->header.kind);
    if (out->bytes != 0 && out->bytes <= max) {
        via_copy_foreign(out->header.args + sizeof(out->header.args) - max, out->payload,
                         out->bytes);
        out->header.inline_bytes = (uint8_t)out->bytes;
        out->bytes = 0;
    }
}

void via_outgoing_make(struct via_channel *channel, struct via_tx_op *tx, uint32_t index,
                       struct via_outgoing *out)
{
    struct via_op_slot *op = via_op_of(tx);

    switch (op->op.kind) {
    case VIA_OP_MESSAGE:
        make_message(op, out);
        break;
    case VIA_OP_PUT:
    case VIA_OP_PUT_SIGNAL:
        make_put(channel, op, index, out);
        break;
    case VIA_OP_PUT_STRIDED:
        make_put_strided(channel, op, index, out);
        break;
    case VIA_OP_GET:
        make_get(channel, op, index, out);
        break;
    case VIA_OP_ATOMIC:
        make_atomic(channel, op, out);
        break;
    case VIA_OP_GET_ANSWER:
        make_get_answer(channel, op, index, out);
        break;
    case VIA_OP_ATOMIC_ANSWER:
        make_atomic_answer(op, out);
        break;
    default:
        make_barrier(op, out);
        break;
    }
    put_inline(out);
}
