/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Operations: submission, the pool, completion in order, and those on the own host.
 *
 * A slot is in use while its operation is in a flow or waits to be reported. `done`: the status is
 * known; `finished`: it was its turn to be reported; `reported`: the caller was told, or there is
 * no caller. What is reported but not acknowledged stays in its flow for the numbers of its frames.
 */
#include <assert.h>
#include <errno.h>

#include "base/copy.h"
#include "core/node_internal.h"

#define COOKIE_SLOT_BITS 20
#define COOKIE_SLOT_MASK ((1u << COOKIE_SLOT_BITS) - 1)
/* One turn works on so much of the own host's operations. */
#define LOCAL_BYTES_PER_TURN (256u * 1024)

void via_ops_init(struct via_channel *channel)
{
    const struct via_node *node = channel->node;
    uint32_t ops_count = node->config.ops_count;

    via_list_init(&channel->free_ops);
    via_list_init(&channel->free_answers);
    via_list_init(&channel->barriers);
    for (uint32_t i = 0; i < ops_count + node->answers_count; i++) {
        struct via_op_slot *op = &channel->slots[i];
        op->answer = i >= ops_count;
        via_list_init(&op->reports);
        via_list_init(&op->waits);
        via_list_push_back(op->answer ? &channel->free_answers : &channel->free_ops, &op->link);
    }
}

static struct via_op_slot *slot_new(struct via_list *pool)
{
    struct via_list *first = via_list_pop_front(pool);
    if (first == NULL) {
        return NULL;
    }
    struct via_op_slot *op = via_list_entry(first, struct via_op_slot, link);
    uint64_t generation = op->generation;
    bool answer = op->answer;
    *op = (struct via_op_slot){.generation = generation, .answer = answer, .in_use = true};
    via_list_init(&op->link);
    via_list_init(&op->reports);
    via_list_init(&op->waits);
    return op;
}

/* An internal operation has become free: let one of those that waited for one try again. */
static void wake_answer_waiter(struct via_channel *channel)
{
    struct via_list *first = via_list_pop_front(&channel->answer_waiters);
    if (first != NULL) {
        struct via_rx_flow *flow = via_list_entry(first, struct via_rx_flow, wait);
        flow->starved = false;
        flow->resumed = true;
        flow->ack_due = true;
        via_rx_update(channel, flow);
    }
}

void via_op_free_if_over(struct via_channel *channel, struct via_op_slot *op)
{
    if (op->flow != NULL || !op->reported || via_list_is_linked(&op->reports)) {
        return;
    }
    op->in_use = false;
    op->generation++;
    if (op->answer) {
        via_list_push_front(&channel->free_answers, &op->link);
        wake_answer_waiter(channel);
    } else {
        via_list_push_front(&channel->free_ops, &op->link);
    }
}

/* --- submission ------------------------------------------------------------------------------ */

static int check(const struct via_channel *channel, const struct via_op *op)
{
    const struct via_node_config *config = &channel->node->config;

    if (op->kind == VIA_OP_BARRIER) {
        return via_barrier_check(channel, op);
    }
    if (op->kind < VIA_OP_MESSAGE || op->kind > VIA_OP_ATOMIC || op->flow >= config->flows_count ||
        (op->flags & ~VIA_OP_FLAGS) != 0) {
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
    /* The number of a frame within its operation fits into half of the sequence numbers. */
    uint64_t bytes_max = op->kind == VIA_OP_MESSAGE ? config->frame_bytes_max
                                                    : (uint64_t)config->frame_bytes_max << 31;
    return op->bytes > bytes_max ? -EMSGSIZE : 0;
}

static uint32_t frames_of(const struct via_node *node, const struct via_op *op)
{
    uint64_t each = node->config.frame_bytes_max;

    if (op->kind == VIA_OP_GET) {
        each = node->get_bytes_max;
    } else if (op->kind != VIA_OP_PUT && op->kind != VIA_OP_PUT_SIGNAL &&
               op->kind != VIA_OP_GET_ANSWER) {
        return 1;
    }
    return op->bytes == 0 ? 1 : (uint32_t)((op->bytes - 1) / each + 1);
}

static void show_pending(struct via_channel *channel)
{
    atomic_store_explicit(&channel->pending_shown, channel->pending, memory_order_relaxed);
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
    struct via_op_slot *op = slot_new(&channel->free_ops);
    if (op == NULL) {
        return -EAGAIN;
    }
    op->op = *what;
    op->frames_count = frames_of(node, what);
    channel->pending++;
    show_pending(channel);
    if (what->kind == VIA_OP_BARRIER) {
        via_barrier_start(channel, op);
    } else {
        via_tx_append(channel, via_channel_tx(channel, what->destination, what->flow), op);
    }
    return 0;
}

bool via_op_answer_available(const struct via_channel *channel)
{
    return !via_list_empty(&channel->free_answers);
}

struct via_op_slot *via_op_answer_new(struct via_channel *channel, const struct via_op *what)
{
    struct via_op_slot *op = slot_new(&channel->free_answers);
    if (op != NULL) {
        op->op = *what;
        op->frames_count = frames_of(channel->node, what);
        op->reported = true; /* to nobody */
    }
    return op;
}

uint64_t via_op_cookie(const struct via_channel *channel, const struct via_op_slot *op)
{
    return op->generation << COOKIE_SLOT_BITS | (uint64_t)(op - channel->slots);
}

struct via_op_slot *via_op_by_cookie(struct via_channel *channel, uint64_t cookie,
                                     uint16_t destination)
{
    uint32_t index = (uint32_t)cookie & COOKIE_SLOT_MASK;
    if (index >= channel->node->config.ops_count) {
        return NULL;
    }
    struct via_op_slot *op = &channel->slots[index];
    if (!op->in_use || !op->assigned || op->done || op->op.destination != destination ||
        via_op_cookie(channel, op) != cookie) {
        return NULL;
    }
    return op;
}

/* --- completion ------------------------------------------------------------------------------ */

void via_op_done(struct via_op_slot *op, int status, uint64_t value)
{
    op->done = true;
    op->status = status;
    op->value = value;
}

static void finish(struct via_channel *channel, struct via_op_slot *op)
{
    op->finished = true;
    if (op->flow != NULL) {
        via_tx_uncount(op);
    }
    if (!op->reported) {
        via_list_push_back(&channel->reports, &op->reports);
    }
}

void via_op_finish(struct via_channel *channel, struct via_op_slot *op, int status, uint64_t value)
{
    if (op->finished) {
        return;
    }
    via_op_done(op, status, value);
    via_list_remove(&op->waits);
    finish(channel, op);
}

void via_op_acked(struct via_channel *channel, struct via_op_slot *op)
{
    op->acked = true;
    switch (op->op.kind) {
    case VIA_OP_GET:
    case VIA_OP_ATOMIC:
        break; /* done when the answer is here */
    case VIA_OP_BARRIER:
        via_barrier_acked(channel, op);
        break;
    default:
        if (!op->done) {
            via_op_done(op, 0, 0);
        }
        break;
    }
}

void via_op_flush(struct via_channel *channel, struct via_tx_flow *flow)
{
    via_list_foreach_safe(it, &flow->ops) {
        struct via_op_slot *op = via_list_entry(it, struct via_op_slot, link);
        if (!op->done) {
            break;
        }
        if (!op->finished) {
            finish(channel, op);
        }
        if (op->acked) {
            via_tx_remove(channel, op);
        }
    }
    if (flow->live == 0 && !via_list_empty(&flow->ops)) {
        via_tx_reset(channel, flow, 0); /* nobody waits for what is left */
    }
}

/* Tells the caller. The slot may be another operation's when this returns. */
static void report(struct via_channel *channel, struct via_op_slot *op)
{
    const struct via_node_env *env = &channel->node->env;
    uint64_t cookie = op->op.cookie;
    uint64_t value = op->value;
    int status = op->status;

    op->reported = true;
    channel->pending--;
    show_pending(channel);
    via_count(status == 0 ? &channel->counters.ops_completed : &channel->counters.ops_failed, 1);
    via_op_free_if_over(channel, op);
    env->complete(env->ctx, channel->index, cookie, status, value);
}

void via_ops_report(struct via_channel *channel)
{
    struct via_list *it;

    while ((it = via_list_pop_front(&channel->reports)) != NULL) {
        report(channel, via_list_entry(it, struct via_op_slot, reports));
        channel->work++;
    }
}

static void cancel(struct via_channel *channel, struct via_op_slot *op)
{
    if (op->finished) {
        via_list_remove(&op->reports); /* its true status is as good */
        report(channel, op);
        return;
    }
    if (op->op.kind == VIA_OP_BARRIER) {
        via_barrier_abandon(channel, op, -ECANCELED);
        via_list_remove(&op->reports);
        report(channel, op);
        return;
    }
    via_op_done(op, -ECANCELED, 0);
    op->finished = true;
    via_tx_uncount(op);
    via_tx_skip(channel, op); /* the slot stays: it is not reported yet */
    report(channel, op);
}

void via_node_cancel(struct via_node *node, unsigned index, uint64_t mask, uint64_t match)
{
    struct via_channel *channel = &node->channels[index];

    for (uint32_t i = 0; i < node->config.ops_count; i++) {
        struct via_op_slot *op = &channel->slots[i];
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
        struct via_op_slot *op = &channel->slots[i];
        if (op->in_use && !op->reported && (op->op.cookie & mask) == match) {
            relocate(ctx, &op->op);
        }
    }
}

unsigned via_node_pending(const struct via_node *node, unsigned index)
{
    return atomic_load_explicit(&node->channels[index].pending_shown, memory_order_relaxed);
}

/* --- operations on the own host -------------------------------------------------------------- */

/* One step of a put or get; true when it is done or refused. */
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
        *ret_status = via_rx_put_signal(channel, &args, source, (uint32_t)bytes, flags);
    } else {
        struct via_frame_access args = {op->op.segment, offset};
        *ret_status = via_rx_put(channel, &args, source, (uint32_t)bytes, flags);
    }
    op->moved += bytes;
    *budget -= (uint32_t)via_min(bytes, (uint64_t)*budget);
    return last || *ret_status != 0;
}

static int local_message(struct via_channel *channel, const struct via_op_slot *op)
{
    struct via_frame_message args = {op->op.endpoint, op->op.source_endpoint};
    return via_rx_message(channel, channel->node->config.host, op->op.flow, &args, op->op.source,
                          (uint32_t)op->op.bytes);
}

static int local_atomic(struct via_channel *channel, const struct via_op_slot *op,
                        uint64_t *ret_old)
{
    struct via_frame_atomic args = {
        .segment = op->op.segment,
        .offset = op->op.offset,
        .operation = op->op.atomic,
    };
    struct via_frame_atomic_operands operands = {op->op.operand, op->op.compare};
    return via_rx_atomic(channel, &args, &operands, ret_old);
}

/* true when the operation is done. */
static bool local_step(struct via_channel *channel, struct via_op_slot *op, uint32_t *budget,
                       int *ret_status, uint64_t *ret_value)
{
    switch (op->op.kind) {
    case VIA_OP_MESSAGE:
        *ret_status = local_message(channel, op);
        return *ret_status != -EAGAIN;
    case VIA_OP_ATOMIC:
        *ret_status = local_atomic(channel, op, ret_value);
        return true;
    default:
        return copy_step(channel, op, budget, ret_status);
    }
}

static void local_flow(struct via_channel *channel, struct via_tx_flow *flow)
{
    uint32_t budget = LOCAL_BYTES_PER_TURN;

    for (uint32_t n = 0; n < channel->node->config.batch_frames && budget != 0; n++) {
        if (via_list_empty(&flow->ops)) {
            return;
        }
        struct via_op_slot *op = via_list_entry(flow->ops.next, struct via_op_slot, link);
        int status = 0;
        uint64_t value = 0;
        channel->work++;
        if (local_step(channel, op, &budget, &status, &value)) {
            op->acked = true;
            via_op_done(op, status, value);
            via_op_flush(channel, flow);
        } else if (status == -EAGAIN) {
            flow->held = true;
            return;
        }
    }
}

void via_ops_local(struct via_channel *channel)
{
    struct via_list now, *it;

    via_list_init(&now);
    via_list_splice_back(&now, &channel->local);
    while ((it = via_list_pop_front(&now)) != NULL) {
        struct via_tx_flow *flow = via_list_entry(it, struct via_tx_flow, ready);
        local_flow(channel, flow);
        via_tx_update(channel, flow);
    }
}
