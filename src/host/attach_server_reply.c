/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Replies, messages and rings to processes, in the transfer thread; and the end of the pipes of an
 * ended process. */
#include <errno.h>
#include <string.h>

#include "host/client_sys.h"
#include "host/host_private.h"

void via_process_channel_touch(struct via_transfer *transfer, struct via_process_channel *pc)
{
    if (!via_list_is_linked(&pc->touched_link)) {
        via_list_push_back(&transfer->touched, &pc->touched_link);
    }
}

void via_process_channel_break(struct via_process_channel *pc)
{
    struct via_host *host = pc->process->host;
    pc->broken = true;
    /* Release pairs with the acquire in via_process_tick(). */
    atomic_store_explicit(&pc->process->broken, true, memory_order_relaxed);
    atomic_store_explicit(&host->attach.has_broken, true, memory_order_release);
    via_host_poke(host);
}

static void list_starved(struct via_transfer *transfer, struct via_process_channel *pc)
{
    if (!via_list_is_linked(&pc->starved_link)) {
        via_list_push_back(&transfer->starved, &pc->starved_link);
    }
}

unsigned char *via_process_channel_bounce(const struct via_process_channel *pc,
                                          const struct via_command_slot *slot)
{
    size_t large = via_min((size_t)slot->bounce, (size_t)VIA_ATTACH_BOUNCES);
    size_t small = (size_t)slot->bounce - large;
    return pc->bounces + large * pc->replies.geometry.body_bytes_max +
           small * VIA_ATTACH_SMALL_BYTES;
}

void via_process_channel_unbounce(struct via_process_channel *pc, struct via_command_slot *slot)
{
    if (slot->bounce >= 0) {
        pc->bounces_free |= UINT64_C(1) << slot->bounce;
        slot->bounce = -1;
    }
}

void via_process_channel_over(struct via_transfer *transfer, struct via_process_channel *pc,
                              struct via_command_slot *slot)
{
    via_process_channel_unbounce(pc, slot);
    if (slot - pc->slots <= (ptrdiff_t)via_process_channel_slot_mask(pc)) {
        slot->state = VIA_COMMAND_OVER;
        return;
    }
    slot->state = VIA_COMMAND_FREE;
    via_process_channel_unpark(transfer, pc);
}

static int send_reply(struct via_process_channel *pc, const struct via_command_slot *slot)
{
    struct via_reply reply = {
        .kind = slot->is_data ? VIA_REPLY_DATA : VIA_REPLY_COMPLETE,
        .status = slot->status,
        .cookie = slot->cookie,
        .value = slot->value,
    };
    const void *body = NULL;
    if (slot->is_data && slot->status == 0 && slot->bytes != 0) {
        body = via_process_channel_bounce(pc, slot);
        reply.bytes = slot->bytes;
    }
    return via_pipe_send(&pc->replies, &reply, sizeof(reply), body, reply.bytes);
}

/* Sends replies in the order of completion, while there is room. */
static void send_due(struct via_transfer *transfer, struct via_process_channel *pc)
{
    while (pc->due_count != 0) {
        uint32_t due_max = via_process_channel_due_max(via_process_channel_slot_mask(pc) + 1);
        struct via_command_slot *slot = &pc->slots[pc->due[pc->due_head & (due_max - 1)]];
        if (!pc->ending && !pc->broken) {
            int rc = send_reply(pc, slot);
            if (rc == -EAGAIN) {
                list_starved(transfer, pc);
                return;
            }
            if (rc != 0) {
                via_process_channel_break(pc);
            }
            pc->sent = true;
        }
        via_process_channel_over(transfer, pc, slot);
        pc->due_head++;
        pc->due_count--;
    }
}

/* Releases commands in the order in which they were taken, whatever the order of their ends. */
static uint32_t release_over(struct via_process_channel *pc)
{
    uint32_t count = 0;
    for (struct via_command_slot *slot;
         slot = &pc->slots[pc->over_next & via_process_channel_slot_mask(pc)],
         slot->state == VIA_COMMAND_OVER;) {
        slot->state = VIA_COMMAND_FREE;
        pc->over_next++;
        count++;
    }
    if (count != 0) {
        via_pipe_release(&pc->commands, count);
    }
    return count;
}

static void ring_process(const struct via_process_channel *pc)
{
    via_sys_bell_ring(pc->process->bell_fd);
}

void via_process_channel_arm(struct via_process_channel *pc)
{
    via_pipe_arm(&pc->commands);
    /* Arming returns credits. The process may have begun to wait for them after the turn that
     * released them. */
    if (via_pipe_take_writer_ring(&pc->commands) && !pc->ending) {
        ring_process(pc);
    }
}

void via_process_channel_flush(struct via_transfer *transfer, struct via_process_channel *pc)
{
    send_due(transfer, pc);
    bool ring = pc->ring;
    if (release_over(pc) != 0) {
        ring = via_pipe_take_writer_ring(&pc->commands) || ring;
    }
    if (pc->sent) {
        ring = via_pipe_take_reader_ring(&pc->replies) || ring;
    }
    pc->sent = false;
    pc->ring = false;
    if (pc->ending) {
        via_process_channel_check_gone(transfer, pc);
        return;
    }
    if (ring) {
        ring_process(pc);
        transfer->wait.rang = true;
    }
    /* Credits that were not posted are posted when the pipe is armed, and only active pipes are
     * armed. */
    if (pc->commands.posted != pc->commands.released && !pc->gone) {
        via_list_remove(&pc->link);
        via_list_push_back(&transfer->active, &pc->link);
    }
}

/* Messages leave a quarter of the reply pipe to replies, so that a process that waits for a reply
 * need not take its messages first. */
static bool has_message_room(struct via_process_channel *pc, uint32_t bytes)
{
    uint32_t slots = pc->replies.geometry.slots_count;
    return via_pipe_writer_room(&pc->replies) > slots / 4 &&
           via_pipe_writer_has_place(&pc->replies, bytes);
}

static void block(struct via_process_channel *pc, uint16_t source, uint16_t flow)
{
    unsigned count = via_min(pc->blocked_count, VIA_ATTACH_BLOCKED_MAX);
    for (unsigned i = 0; i < count; i++) {
        if (pc->blocked[i].source == source && pc->blocked[i].flow == flow) {
            return;
        }
    }
    if (pc->blocked_count < VIA_ATTACH_BLOCKED_MAX) {
        pc->blocked[pc->blocked_count] = (struct via_blocked_flow){source, flow};
    }
    pc->blocked_count = via_min(pc->blocked_count + 1, VIA_ATTACH_BLOCKED_MAX + 1);
}

void via_process_channel_resume(struct via_transfer *transfer, struct via_process_channel *pc)
{
    struct via_node *node = transfer->host->node;
    const struct via_node_config *config = &transfer->host->config;
    if (pc->blocked_count > VIA_ATTACH_BLOCKED_MAX) {
        for (unsigned source = 0; source < config->hosts_max; source++) {
            for (unsigned flow = 0; flow < config->flows_count; flow++) {
                via_node_resume(node, transfer->channel, (uint16_t)source, (uint16_t)flow);
            }
        }
    } else {
        for (unsigned i = 0; i < pc->blocked_count; i++) {
            via_node_resume(node, transfer->channel, pc->blocked[i].source, pc->blocked[i].flow);
        }
    }
    pc->blocked_count = 0;
}

bool via_process_channel_feed(struct via_transfer *transfer, struct via_process_channel *pc)
{
    uint32_t due = pc->due_count;
    send_due(transfer, pc);
    bool fed = pc->due_count != due;
    if (pc->blocked_count != 0 &&
        (pc->broken || has_message_room(pc, transfer->host->attach.message_bytes_max))) {
        via_process_channel_resume(transfer, pc);
        fed = true;
    }
    if (pc->due_count == 0 && pc->blocked_count == 0) {
        via_list_remove(&pc->starved_link);
    }
    if (fed) {
        via_process_channel_touch(transfer, pc);
    }
    return fed;
}

int via_process_channel_deliver(struct via_transfer *transfer, struct via_process_channel *pc,
                                const struct via_delivery *delivery)
{
    if (pc->ending || pc->broken) {
        return -ENOENT;
    }
    struct via_reply reply = {
        .kind = VIA_REPLY_MESSAGE,
        .source_host = delivery->source,
        .endpoint = delivery->endpoint,
        .source_endpoint = delivery->source_endpoint,
        .bytes = delivery->bytes,
    };
    const void *body = delivery->data;
    uint32_t body_bytes = delivery->bytes;
    if (body_bytes <= sizeof(reply.data)) {
        reply.inline_bytes = (uint8_t)body_bytes;
        if (body_bytes != 0) {
            memcpy(reply.data, body, body_bytes);
        }
        body_bytes = 0;
    } else if (body_bytes > pc->replies.geometry.body_bytes_max) {
        return -EMSGSIZE;
    }
    if (!has_message_room(pc, body_bytes)) {
        block(pc, delivery->source, delivery->flow);
        list_starved(transfer, pc);
        return -EAGAIN;
    }
    int rc = via_pipe_send(&pc->replies, &reply, sizeof(reply), body, body_bytes);
    if (rc != 0) {
        via_process_channel_break(pc);
        return -ENOENT;
    }
    pc->sent = true;
    via_process_channel_touch(transfer, pc);
    return 0;
}

void via_process_channel_added(struct via_transfer *transfer, struct via_mail *mail)
{
    struct via_process_channel *pc = via_container_of(mail, struct via_process_channel, add);
    transfer->by_slot[pc->process->slot] = pc;
    via_list_push_back(&transfer->active, &pc->link);
}

void via_process_channel_ending(struct via_transfer *transfer, struct via_mail *mail)
{
    struct via_process_channel *pc = via_container_of(mail, struct via_process_channel, end);
    pc->ending = true;
    /* The endpoints of the process are closed already, so a sender that waits for room gets the
     * answer that its endpoint is closed. */
    via_process_channel_resume(transfer, pc);
    via_list_remove(&pc->starved_link);
    via_process_channel_touch(transfer, pc);
    via_list_remove(&pc->link);
    via_list_push_back(&transfer->active, &pc->link);
}

static void cancel(struct via_transfer *transfer, struct via_process_channel *pc)
{
    pc->cancelled = true;
    pc->stashed = false;
    if (!pc->gone) {
        via_node_cancel(transfer->host->node, transfer->channel, VIA_HOST_OWNER_MASK,
                        (uint64_t)pc->process->number << 32);
        via_process_channel_touch(transfer, pc);
    }
}

void via_process_channel_stranded(struct via_transfer *transfer, struct via_mail *mail)
{
    struct via_process_channel *pc = via_container_of(mail, struct via_process_channel, strand);
    if (!via_process_channel_is_stranded(pc)) {
        cancel(transfer, pc);
    }
}

void via_process_channel_cancelled(struct via_transfer *transfer, struct via_mail *mail)
{
    cancel(transfer, via_container_of(mail, struct via_process_channel, cancel));
}

void via_process_channel_check_gone(struct via_transfer *transfer, struct via_process_channel *pc)
{
    bool more = !pc->cancelled && !pc->broken && (pc->stashed || via_pipe_is_ready(&pc->commands));
    if (pc->gone || more) {
        return;
    }
    pc->keeps = !pc->cancelled && !pc->broken && !via_process_channel_put_kept(transfer, pc);
    if (pc->keeps || pc->running_count != 0 || pc->parked_count != 0 || pc->due_count != 0) {
        return;
    }
    pc->gone = true;
    via_list_remove(&pc->link);
    via_list_remove(&pc->touched_link);
    via_list_remove(&pc->starved_link);
    transfer->by_slot[pc->process->slot] = NULL;
    struct via_host *host = transfer->host;
    /* Pairs with the acquire in tick_closing(): this thread no longer uses the process. */
    atomic_fetch_sub_explicit(&pc->process->channels_left, 1, memory_order_release);
    atomic_store_explicit(&host->attach.has_broken, true, memory_order_release);
    via_host_poke(host);
}
