/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Operations under way: commands are written into the pipes, and replies find their operation by
 * the cookie. */
#include "host/client.h"

#include <errno.h>
#include <string.h>

#include "core/node.h"
#include "host/client_auto.h"
#include "host/client_tcp.h"
#include "wire/frame.h"

/* Cookie: bits 63..24 generation, bits 23..0 index + 1. It is never 0, which would request no
 * reply. */
#define COOKIE_INDEX_BITS 24
/* Sending commands also takes replies, so that these do not fill their pipe. It does so only every
 * TAKE_EVERY_COMMANDS, because the host writes replies in batches. */
#define TAKE_EVERY_COMMANDS 32u

static uint64_t cookie_of(const struct via_attach *attach, const struct via_client_op *op)
{
    uint64_t index = (uint64_t)(op - attach->ops);
    return (uint64_t)op->generation << COOKIE_INDEX_BITS | (index + 1);
}

/* NULL: this cookie was never given out, or its reply was taken. */
static struct via_client_op *find(struct via_attach *attach, uint64_t cookie)
{
    uint64_t index = cookie & ((UINT64_C(1) << COOKIE_INDEX_BITS) - 1);
    if (index == 0 || index > attach->ops_count) {
        return NULL;
    }
    struct via_client_op *op = &attach->ops[index - 1];
    return op->used && cookie_of(attach, op) == cookie ? op : NULL;
}

static struct via_client_op *op_get(struct via_attach *attach)
{
    struct via_client_op *op = &attach->ops[attach->ops_free];
    attach->ops_free = op->index_next_free;
    uint32_t generation = op->generation + 1;
    *op = (struct via_client_op){.generation = generation, .used = true};
    via_list_init(&op->pending);
    return op;
}

static void op_put(struct via_attach *attach, struct via_client_op *op)
{
    op->used = false;
    op->index_next_free = attach->ops_free;
    attach->ops_free = (uint32_t)(op - attach->ops);
}

bool via_client_command_has_room(struct via_attach *attach, struct via_client_channel *channel,
                                 size_t body_bytes)
{
    return attach->ops_free != attach->ops_count &&
           via_pipe_writer_has_place(&channel->writer, body_bytes);
}

struct room {
    struct via_client_channel *channel;
    size_t body_bytes;
};

static bool has_room(struct via_attach *attach, void *ctx)
{
    const struct room *room = ctx;
    /* A broken pipe never has room, so the wait must end by the attachment's death. */
    if (room->channel->writer.broken) {
        via_client_die(attach);
        return false;
    }
    return via_client_command_has_room(attach, room->channel, room->body_bytes);
}

int via_client_command_room(struct via_attach *attach, struct via_client_channel *channel,
                            size_t body_bytes)
{
    if (attach->dead) {
        return via_client_dead(attach);
    }
    if (channel->writer.sequence % TAKE_EVERY_COMMANDS == 0 && !attach->asleep) {
        via_client_take(attach);
    }
    struct room room = {.channel = channel, .body_bytes = body_bytes};
    if (has_room(attach, &room)) {
        return 0;
    }
    struct via_client_wait wait = {
        .done = has_room,
        .ctx = &room,
        .room = channel,
        .deadline_ns = VIA_NEVER_NS,
        .replies = via_client_replies(attach, channel),
    };
    return via_client_wait(attach, &wait);
}

/* [locked] Threads without the lock only read the counter. So no atomic addition is necessary,
 * which costs as much as twenty others. */
static void add_locked(_Atomic uint32_t *counter, uint32_t by)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + by,
                          memory_order_release);
}

/* Counts an operation for which no thread waits, until it has ended. */
static void make_asynchronous(struct via_attach *attach, struct via_client_op *op)
{
    op->issue = attach->issue_next++;
    via_list_push_back(&attach->pending, &op->pending);
    if (op->remote != NULL) {
        atomic_fetch_add_explicit(&op->remote->pending, 1, memory_order_release);
        add_locked(&op->remote->begun, 1);
        add_locked(&attach->puts_pending, 1);
    }
    if (op->ordered) {
        /* Pairs with the acquires in find_direct() and frames_before(): no direct store happens
         * until 0 is loaded. */
        add_locked(&op->remote->ordered, 1);
        add_locked(&attach->host_pending[op->host], 1);
    }
}

void via_client_command_send(struct via_attach *attach, struct via_client_channel *channel,
                             struct via_command *command, const void *body, size_t body_bytes,
                             const struct via_client_intent *intent)
{
    struct via_client_op *op = op_get(attach);
    op->result = intent->result;
    op->remote = intent->remote;
    op->destination = intent->destination;
    op->bytes = intent->bytes;
    op->fetches = command->kind == VIA_OP_ATOMIC;
    op->host = command->destination;
    /* A put without bytes that only rings may be overtaken, because a later put rings again. */
    op->ordered = op->remote != NULL &&
                  (command->bytes != 0 || (command->flags & VIA_FRAME_FLAG_NOTIFY) == 0);
    if (op->result != NULL) {
        op->result->left++;
    } else {
        make_asynchronous(attach, op);
    }
    command->cookie = cookie_of(attach, op);
    if (via_pipe_send(&channel->writer, command, sizeof(*command), body, body_bytes) != 0) {
        /* The command fitted a moment ago, under the same lock, so the credit word is corrupt. */
        via_client_die(attach);
        return;
    }
    via_client_ring(channel);
}

static void end_asynchronous(struct via_attach *attach, struct via_client_op *op, int status)
{
    via_list_remove(&op->pending);
    if (op->remote != NULL) {
        status = via_client_remote_status(op->remote, status);
    }
    if (status < 0 && attach->async_status == 0) {
        attach->async_status = status;
        attach->async_host = op->host;
    }
    if (op->remote != NULL && status < 0) {
        /* Before the end is counted: a thread that stores directly afterwards can find the
         * failure. */
        via_client_remote_fail(op->remote, status);
    }
    if (op->remote != NULL && via_client_is_given_up(status)) {
        atomic_fetch_add_explicit(&attach->puts_given_up, 1, memory_order_relaxed);
    }
    if (op->ordered) {
        add_locked(&attach->host_pending[op->host], UINT32_MAX);
        add_locked(&op->remote->ordered, UINT32_MAX);
    }
    if (op->remote != NULL) {
        add_locked(&attach->puts_pending, UINT32_MAX);
        via_client_remote_done(op->remote);
    }
}

static void end_waited(struct via_client_op *op, int status, uint64_t value)
{
    op->result->left--;
    if (status < 0 && op->result->status == 0) {
        op->result->status = status;
    }
    op->result->value = value;
}

/* Stores the result at its destination. 0; -EPROTO: the reply contains no such result. */
static int fill_in(const struct via_client_op *op, const struct via_reply *reply, const void *body,
                   size_t body_bytes)
{
    if (op->fetches && reply->kind == VIA_REPLY_COMPLETE && op->bytes <= sizeof(reply->value)) {
        memcpy(op->destination, &reply->value, op->bytes);
        return 0;
    }
    if (!op->fetches && reply->kind == VIA_REPLY_DATA && body_bytes == op->bytes) {
        memcpy(op->destination, body, body_bytes);
        return 0;
    }
    return -EPROTO;
}

void via_client_command_end(struct via_attach *attach, const struct via_reply *reply,
                            const void *body, size_t body_bytes)
{
    struct via_client_op *op = find(attach, reply->cookie);
    if (op == NULL) {
        return;
    }
    int status = reply->status > 0 ? -EPROTO : reply->status;
    if (op->destination != NULL && status == 0) {
        status = fill_in(op, reply, body, body_bytes);
    }
    if (op->result != NULL) {
        end_waited(op, status, reply->value);
    } else if (via_list_is_linked(&op->pending)) {
        end_asynchronous(attach, op, status);
    }
    op_put(attach, op);
}

void via_client_command_forget(struct via_attach *attach, struct via_client_result *result)
{
    for (uint32_t i = 0; i < attach->ops_count; i++) {
        struct via_client_op *op = &attach->ops[i];
        if (op->used && op->result == result) {
            op->result = NULL;
            op->destination = NULL;
        }
    }
}

unsigned via_remote_pending(struct via_remote *remote)
{
    /* First, because frames may have taken over puts that an ended connection kept. */
    unsigned kept = via_client_auto_pending(remote);
    unsigned pending = atomic_load_explicit(&remote->pending, memory_order_acquire);
    if (pending != 0 && via_attach_poll(remote->attach) >= 0) {
        pending = atomic_load_explicit(&remote->pending, memory_order_acquire);
    }
    return kept + pending;
}

/* True if all operations that were started before `issue` have ended. */
static bool is_quiet(struct via_attach *attach, void *ctx)
{
    const uint64_t *issue = ctx;
    struct via_list *first = via_list_first(&attach->pending);
    return first == NULL || via_list_entry(first, struct via_client_op, pending)->issue >= *issue;
}

/* [locked] */
static int first_failure(const struct via_attach *attach)
{
    return attach->async_status == 0
               ? 0
               : via_client_error(attach->async_status,
                                  "host %u: puts and messages since the last quiet: the first that "
                                  "failed, to host %u: %s",
                                  attach->host, attach->async_host,
                                  strerror(-attach->async_status));
}

int via_attach_failure(struct via_attach *attach)
{
    via_client_lock(attach);
    int rc = first_failure(attach);
    via_client_unlock(attach);
    rc = rc == 0 ? via_client_auto_refusal(attach) : rc;
    return rc != 0 ? rc : via_client_tcp_all_failure(attach);
}

static int wait_until_frames_quiet(struct via_attach *attach)
{
    via_client_lock(attach);
    uint64_t issue = attach->issue_next;
    struct via_client_wait wait = {
        .done = is_quiet,
        .ctx = &issue,
        .deadline_ns = VIA_NEVER_NS,
        .replies = VIA_CLIENT_REPLIES_ALL,
    };
    int rc = is_quiet(attach, &issue) ? 0 : via_client_wait(attach, &wait);
    if (rc == 0 && attach->async_status != 0) {
        rc = first_failure(attach);
        attach->async_status = 0;
    }
    via_client_unlock(attach);
    return rc;
}

int via_attach_quiet(struct via_attach *attach)
{
    uint64_t before;
    int rc;
    do { /* again if frames have taken over puts that a connection kept */
        before = atomic_load_explicit(&attach->recoveries, memory_order_relaxed);
        rc = wait_until_frames_quiet(attach);
        rc = rc == 0 ? via_client_tcp_all_quiet(attach) : rc;
        /* This load follows the one that found nothing kept, which pairs with via_kept_pop(). */
    } while (rc == 0 && atomic_load_explicit(&attach->recoveries, memory_order_relaxed) != before);
    return rc;
}
