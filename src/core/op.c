/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Operations: the pool, and completion in order.
 *
 * A slot is in use while its operation is in a flow or waits to be reported. `done`: the status is
 * final. `finished`: it no longer waits for earlier operations of its flow. `reported`: the caller
 * has the status, or there is no caller. An operation that is reported but not acknowledged stays
 * in its flow, because its frames occupy numbers.
 */
#include <assert.h>
#include <errno.h>

#include "core/op.h"

#define COOKIE_SLOT_BITS 20
#define COOKIE_SLOT_MASK ((1u << COOKIE_SLOT_BITS) - 1)
/* A get requests the next piece when the piece before has begun to arrive. Two answers at a time
 * are enough to keep the link busy, and leave internal operations to other requesters. */
#define GET_REQUESTS_AHEAD 2u

void via_op_pool_init(struct via_channel *channel)
{
    const struct via_node *node = channel->node;
    uint32_t ops_count = node->config.ops_count;

    via_list_init(&channel->ops->free_ops);
    via_list_init(&channel->ops->free_answers);
    via_list_init(&channel->ops->reports);
    for (uint32_t i = 0; i < ops_count + node->answers_count; i++) {
        struct via_op_slot *op = &channel->ops->slots[i];
        op->answer = i >= ops_count;
        via_list_init(&op->reports);
        via_list_init(&op->waits);
        via_list_push_back(op->answer ? &channel->ops->free_answers : &channel->ops->free_ops,
                           &op->tx.link);
    }
    channel->ops->answers_free = node->answers_count;
}

static uint32_t frames_of(const struct via_node *node, const struct via_op *op)
{
    uint64_t each = via_op_frame_bytes(node, op);

    if (op->kind == VIA_OP_GET) {
        each = node->get_bytes_max;
    } else if (op->kind != VIA_OP_PUT && op->kind != VIA_OP_PUT_SIGNAL &&
               op->kind != VIA_OP_PUT_STRIDED && op->kind != VIA_OP_GET_ANSWER) {
        return 1;
    }
    return op->bytes == 0 ? 1 : (uint32_t)((op->bytes - 1) / each + 1);
}

/* Arrivals, releases and withdrawals of barriers must not be lost, or members would wait forever or
 * would not wait at all. Sent again with new numbers they might count twice. */
static bool is_kept(unsigned kind)
{
    return kind == VIA_OP_BARRIER || kind == VIA_OP_BARRIER_RELEASE ||
           kind == VIA_OP_BARRIER_WITHDRAW || kind == VIA_OP_BARRIER_LEAVE;
}

static struct via_op_slot *slot_new(const struct via_node *node, struct via_list *pool,
                                    const struct via_op *what)
{
    struct via_list *first = via_list_pop_front(pool);
    if (first == NULL) {
        return NULL;
    }
    struct via_op_slot *op = via_list_entry(first, struct via_op_slot, tx.link);
    /* Sets all members but generation and answer. Clearing the whole slot instead took an eighth of
     * the time of a small put. */
    op->tx = (struct via_tx_op){
        .frames_count = frames_of(node, what),
        .frames_ready = what->kind == VIA_OP_GET ? GET_REQUESTS_AHEAD : UINT32_MAX,
        .soon = (what->flags & VIA_FRAME_FLAG_ACK_SOON) != 0,
        .kept = is_kept(what->kind),
    };
    via_list_init(&op->tx.link);
    via_list_init(&op->reports);
    via_list_init(&op->waits);
    op->op = *what;
    op->in_use = true;
    op->done = false;
    op->finished = false;
    op->reported = false;
    op->withdraw = false;
    op->status = 0;
    op->value = 0;
    op->moved = 0;
    op->round = 0;
    return op;
}

static void show_pending(struct via_channel *channel)
{
    atomic_store_explicit(&channel->ops->pending_shown, channel->ops->pending,
                          memory_order_relaxed);
}

struct via_op_slot *via_op_new(struct via_channel *channel, const struct via_op *what)
{
    struct via_op_slot *op = slot_new(channel->node, &channel->ops->free_ops, what);
    if (op != NULL) {
        channel->ops->pending++;
        show_pending(channel);
    }
    return op;
}

void via_op_free_if_over(struct via_channel *channel, struct via_op_slot *op)
{
    if (op->tx.flow != NULL || !op->reported || via_list_is_linked(&op->reports)) {
        return;
    }
    if (via_list_is_linked(&op->waits)) {
        via_list_remove(&op->waits); /* the withdrawal of a barrier has ended */
    }
    op->in_use = false;
    op->generation++;
    if (op->answer) {
        via_list_push_front(&channel->ops->free_answers, &op->tx.link);
        channel->ops->answers_free++;
        channel->ops->answers_of[op->op.destination]--;
        via_rx_wake_waiter(channel);
    } else {
        via_list_push_front(&channel->ops->free_ops, &op->tx.link);
    }
}

/*
 * 0 if this destination may use one more internal operation: it may use as many as are free. So one
 * host that acknowledges late gets at most half of them, n such hosts get n of n + 1 parts, and a
 * host that uses none always finds one.
 */
int via_op_answer_room(const struct via_channel *channel, uint16_t destination)
{
    const struct via_ops *ops = channel->ops;

    if (ops->answers_free == 0) {
        return -ENOBUFS;
    }
    return ops->answers_of[destination] < ops->answers_free ? 0 : -EBUSY;
}

struct via_op_slot *via_op_answer_new(struct via_channel *channel, const struct via_op *what)
{
    struct via_op_slot *op = slot_new(channel->node, &channel->ops->free_answers, what);
    if (op != NULL) {
        op->reported = true; /* no process waits for an answer */
        channel->ops->answers_free--;
        channel->ops->answers_of[what->destination]++;
    }
    return op;
}

uint64_t via_op_cookie(const struct via_channel *channel, const struct via_op_slot *op)
{
    return op->generation << COOKIE_SLOT_BITS | (uint64_t)(op - channel->ops->slots);
}

struct via_op_slot *via_op_by_cookie(struct via_channel *channel, uint64_t cookie,
                                     uint16_t destination)
{
    uint32_t index = (uint32_t)cookie & COOKIE_SLOT_MASK;
    if (index >= channel->node->config.ops_count) {
        return NULL;
    }
    struct via_op_slot *op = &channel->ops->slots[index];
    if (!op->in_use || !op->tx.assigned || op->done || op->op.destination != destination ||
        via_op_cookie(channel, op) != cookie) {
        return NULL;
    }
    return op;
}

/* --- completion ------------------------------------------------------------------------------ */

void via_op_moved(const struct via_channel *channel, struct via_op_slot *op, uint64_t bytes)
{
    op->moved += bytes;
    op->tx.progress++;
    op->tx.frames_ready = (uint32_t)(op->moved / channel->node->get_bytes_max) + GET_REQUESTS_AHEAD;
}

void via_op_done(struct via_op_slot *op, int status, uint64_t value)
{
    op->done = true;
    op->status = status;
    op->value = value;
}

static void finish(struct via_channel *channel, struct via_op_slot *op)
{
    op->finished = true;
    if (op->tx.flow != NULL) {
        via_tx_uncount(&op->tx);
    }
    if (!op->reported) {
        via_list_push_back(&channel->ops->reports, &op->reports);
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

void via_op_flush(struct via_channel *channel, struct via_tx_flow *flow)
{
    via_list_foreach_safe(it, &flow->ops) {
        struct via_op_slot *op = via_list_entry(it, struct via_op_slot, tx.link);
        if (!op->done) {
            break;
        }
        if (!op->finished) {
            finish(channel, op);
        }
        if (op->tx.acked) {
            via_tx_remove(channel, &op->tx);
        }
    }
    if (flow->live == 0 && !via_list_is_empty(&flow->ops)) {
        via_tx_reset(channel, flow, 0); /* no process waits for the remaining operations */
    }
}

void via_op_skip(struct via_channel *channel, struct via_op_slot *op)
{
    assert(op->tx.assigned || op->finished); /* otherwise it would never be reported */
    via_tx_skip(channel, &op->tx);
}

void via_op_report(struct via_channel *channel, struct via_op_slot *op)
{
    const struct via_node_env *env = &channel->node->env;
    uint64_t cookie = op->op.cookie;
    uint64_t value = op->value;
    int status = op->status;

    op->reported = true;
    channel->ops->pending--;
    show_pending(channel);
    via_count(status == 0 ? &channel->counters.ops_completed : &channel->counters.ops_failed, 1);
    via_op_free_if_over(channel, op);
    env->complete(env->ctx, channel->index, cookie, status, value);
}
