/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Commands of processes, in the transfer thread. Everything in a command is hostile input: it is
 * copied once, checked, then used. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutant.h"
#include "host/host_private.h"

/* Maximum of commands taken from one process in one turn. */
#define BATCH_COMMANDS 32u

bool via_process_channel_is_ready(const struct via_process_channel *pc)
{
    return !pc->broken && !pc->cancelled && !pc->stashed && !pc->held &&
           via_pipe_is_ready(&pc->commands);
}

/* The segment of this process with this handle, or NULL. */
static struct via_host_segment *find_segment(const struct via_process_channel *pc, uint64_t handle)
{
    const struct via_attach_server *server = &pc->process->host->attach;
    uint16_t index = via_segment_handle_index(handle);
    if (index >= pc->process->host->config.segments_count) {
        return NULL;
    }
    /* Pairs with the release in publish_segment(). The segment stays for a grace period after its
     * removal, and this turn ends within it. */
    struct via_host_segment *segment =
        atomic_load_explicit(&server->segments[index], memory_order_acquire);
    return segment != NULL && segment->handle == handle && segment->process == pc->process ? segment
                                                                                           : NULL;
}

/* Finds the payload in a segment of the process. */
static int borrow_segment(struct via_process_channel *pc, const struct via_command *command,
                          struct via_command_slot *slot, unsigned char **ret_memory)
{
    struct via_host_segment *segment = find_segment(pc, command->a.source_segment);
    if (segment == NULL) {
        return -EACCES;
    }
    uint64_t offset = command->b.source_offset;
    if ((offset > segment->memory.bytes || command->bytes > segment->memory.bytes - offset) &&
        !VIA_MUTANT(ATTACH_RANGE)) {
        return -ERANGE;
    }
    atomic_fetch_add_explicit(&segment->borrowed, 1, memory_order_relaxed);
    slot->segment = segment;
    *ret_memory = (unsigned char *)segment->memory.base + offset;
    return 0;
}

static int build_source(struct via_process_channel *pc, const struct via_command *command,
                        struct via_command_slot *slot, struct via_op *op)
{
    switch (command->source) {
    case VIA_SOURCE_NONE:
        return command->bytes == 0 ? 0 : -EINVAL;
    case VIA_SOURCE_BODY:
        op->source = pc->stash.body;
        return command->bytes <= pc->stash.body_bytes ? 0 : -EINVAL;
    case VIA_SOURCE_SEGMENT: {
        /* a and b contain the source; signals and endpoints use the same fields. */
        if (command->kind != VIA_OP_PUT) {
            return -EINVAL;
        }
        unsigned char *memory = NULL;
        int rc = borrow_segment(pc, command, slot, &memory);
        op->source = memory;
        return rc;
    }
    default:
        return -EINVAL;
    }
}

static int build_message(struct via_process_channel *pc, const struct via_command *command,
                         struct via_command_slot *slot, struct via_op *op)
{
    if (command->a.endpoint > UINT32_MAX || command->b.source_endpoint > UINT32_MAX) {
        return -EINVAL;
    }
    if (command->a.endpoint >= VIA_HOST_ENDPOINT_FIRST ||
        command->b.source_endpoint >= VIA_HOST_ENDPOINT_FIRST) {
        return -EACCES;
    }
    if (command->b.source_endpoint >= VIA_HOST_ENDPOINT_OWNERS && !pc->process->tenant->exempt) {
        return -EACCES;
    }
    op->endpoint = (uint32_t)command->a.endpoint;
    op->source_endpoint = (uint32_t)command->b.source_endpoint;
    if (command->bytes > pc->process->host->attach.message_bytes_max) {
        return -EMSGSIZE;
    }
    return build_source(pc, command, slot, op);
}

static int build_get(struct via_process_channel *pc, const struct via_command *command,
                     struct via_command_slot *slot, struct via_op *op)
{
    if (command->source == VIA_SOURCE_SEGMENT) {
        unsigned char *memory = NULL;
        int rc = borrow_segment(pc, command, slot, &memory);
        op->result = memory;
        return rc;
    }
    if (command->source != VIA_SOURCE_NONE) {
        return -EINVAL;
    }
    if (command->bytes > pc->replies.geometry.body_bytes_max) {
        return -EMSGSIZE;
    }
    uint64_t large = pc->bounces_free & ((1u << VIA_ATTACH_BOUNCES) - 1);
    uint64_t small = command->bytes <= VIA_ATTACH_SMALL_BYTES ? pc->bounces_free ^ large : 0;
    uint64_t free = small != 0 ? small : large;
    if (free == 0) {
        return -EAGAIN; /* one of the process's own gets must end first */
    }
    slot->bounce = (int16_t)__builtin_ctzll(free);
    pc->bounces_free &= ~(UINT64_C(1) << slot->bounce);
    slot->is_data = true;
    op->result = via_process_channel_bounce(pc, slot);
    return 0;
}

static bool are_members(const uint16_t *ids, size_t count, uint16_t host, uint16_t hosts_max)
{
    bool mine = false;
    for (size_t i = 0; i < count; i++) {
        if (ids[i] >= hosts_max || (i > 0 && ids[i] <= ids[i - 1])) {
            return false;
        }
        mine = mine || ids[i] == host;
    }
    return mine;
}

/* The root's barriers are divided among the users that have a bell page of their own. */
static bool is_barrier_allowed(const struct via_transfer *transfer,
                               const struct via_process_channel *pc, uint16_t root)
{
    const struct via_tenant *tenant = pc->process->tenant;
    return tenant->exempt || transfer->channel != 0 ||
           via_node_is_barrier_allowed(transfer->host->node, tenant->uid, root);
}

static int build_barrier(const struct via_transfer *transfer, struct via_process_channel *pc,
                         const struct via_command *command, struct via_command_slot *slot,
                         struct via_op *op)
{
    const struct via_node_config *config = &pc->process->host->config;
    size_t count = pc->stash.body_bytes / sizeof(uint16_t);
    if (command->source != VIA_SOURCE_BODY || command->bytes != pc->stash.body_bytes ||
        pc->stash.body_bytes % sizeof(uint16_t) != 0 || command->a.group > UINT32_MAX ||
        count > config->hosts_max) {
        return -EINVAL;
    }
    if (pc->members_free == 0) {
        return -ENOBUFS;
    }
    unsigned index = (unsigned)__builtin_ctz(pc->members_free);
    uint16_t *members = pc->members + (size_t)index * config->hosts_max;
    if (count != 0) {
        memcpy(members, pc->stash.body, count * sizeof(*members));
    }
    if (!are_members(members, count, config->host, config->hosts_max)) {
        return -EINVAL;
    }
    if (!is_barrier_allowed(transfer, pc, members[0])) {
        return -ENOSPC;
    }
    pc->members_free &= ~(1u << index);
    slot->members = (int16_t)index;
    op->group = VIA_BARRIER_GROUP(pc->process->tenant->uid, command->a.group);
    op->members = members;
    op->members_count = (uint32_t)count;
    return 0;
}

static int build(struct via_transfer *transfer, struct via_process_channel *pc,
                 const struct via_command *command, struct via_command_slot *slot,
                 struct via_op *op)
{
    switch (command->kind) {
    case VIA_OP_MESSAGE:
        return build_message(pc, command, slot, op);
    case VIA_OP_PUT:
        return build_source(pc, command, slot, op);
    case VIA_OP_PUT_SIGNAL:
        op->signal_offset = command->a.signal_offset;
        op->signal_value = command->b.signal_value;
        return build_source(pc, command, slot, op);
    case VIA_OP_PUT_STRIDED:
        op->operand = command->a.step;
        op->compare = command->b.block_bytes;
        return build_source(pc, command, slot, op);
    case VIA_OP_GET:
        return build_get(pc, command, slot, op);
    case VIA_OP_ATOMIC:
        op->operand = command->a.operand;
        op->compare = command->b.compare;
        return command->source == VIA_SOURCE_NONE ? 0 : -EINVAL;
    case VIA_OP_BARRIER:
        return build_barrier(transfer, pc, command, slot, op);
    default:
        return -EINVAL;
    }
}

/* Releases the command's references and buffers, except the bounce buffer of data still to be
 * sent. */
static void unborrow(struct via_process_channel *pc, struct via_command_slot *slot)
{
    if (slot->segment != NULL) {
        /* Pairs with the acquire in is_idle() (attach_server_segment.c): no access follows this. */
        atomic_fetch_sub_explicit(&slot->segment->borrowed, 1, memory_order_release);
        slot->segment = NULL;
    }
    if (slot->members >= 0) {
        pc->members_free |= 1u << slot->members;
        slot->members = -1;
    }
    if (slot->copy != NULL) {
        pc->parked_bytes -= slot->bytes;
        free(slot->copy);
        slot->copy = NULL;
    }
}

static struct via_flow_share *share_of(const struct via_transfer *transfer,
                                       const struct via_process_channel *pc, uint16_t destination)
{
    return &pc->process->flows_tenant
                ->flow_shares[(size_t)transfer->channel * transfer->host->config.hosts_max +
                              destination];
}

/*
 * Processes share the flows towards a host, except flow 0, which belongs to the host itself. So a
 * process whose messages are not received delays few other processes of its user. The commands of a
 * process keep their order within the flow that it requests, and so do those of two processes with
 * the same flow, channel and user.
 */
uint16_t via_process_channel_begin_flow(const struct via_transfer *transfer,
                                        struct via_process_channel *pc, uint16_t destination,
                                        uint16_t flow)
{
    uint32_t flows = via_host_flows_shared(transfer->host);
    return via_flow_share_begin(share_of(transfer, pc, destination),
                                &transfer->flows_taken[destination],
                                (pc->process->flow + flow) % flows, flows);
}

void via_process_channel_end_flow(const struct via_transfer *transfer,
                                  struct via_process_channel *pc, uint16_t destination)
{
    via_flow_share_end(share_of(transfer, pc, destination), &transfer->flows_taken[destination]);
}

/* Hands the stashed command to the node. -EAGAIN: try later. Otherwise the command is under way or
 * has ended. */
static int start(struct via_transfer *transfer, struct via_process_channel *pc)
{
    struct via_command command;
    memcpy(&command, pc->stash.head, sizeof(command));
    struct via_command_slot *slot = &pc->slots[pc->stash_index];
    *slot = (struct via_command_slot){
        .cookie = command.cookie,
        .state = VIA_COMMAND_RUNNING,
        .bounce = -1,
        .members = -1,
        .bytes = (uint32_t)command.bytes,
        .destination = command.destination,
    };
    struct via_op op = {
        .kind = command.kind,
        .flags = command.flags,
        .atomic = command.atomic,
        .destination = command.destination,
        .segment = command.segment,
        .offset = command.offset,
        .bytes = command.bytes,
        .cookie = (uint64_t)pc->process->number << 32 | pc->stash_index,
    };
    int rc =
        (command.flags & ~VIA_OP_FLAGS) == 0 ? build(transfer, pc, &command, slot, &op) : -EINVAL;
    if (rc == 0 && command.destination >= transfer->host->config.hosts_max) {
        rc = -EHOSTUNREACH;
    } else if (rc == 0) {
        op.flow = via_process_channel_begin_flow(transfer, pc, command.destination, command.flow);
        rc = via_node_submit(transfer->host->node, transfer->channel, &op);
        if (rc != 0) {
            via_process_channel_end_flow(transfer, pc, command.destination);
        }
    }
    if (rc == 0) {
        pc->running_count++;
        return 0;
    }
    unborrow(pc, slot);
    via_process_channel_unbounce(pc, slot);
    slot->state = VIA_COMMAND_FREE;
    if (rc != -EAGAIN) {
        slot->is_data = false;
        via_process_channel_finish(transfer, pc, pc->stash_index, rc, 0);
        rc = 0;
    }
    return rc;
}

/* Takes the next record into the stash. False: there is none. */
static bool take(struct via_process_channel *pc)
{
    /* A process that overwrites records before the host has released them could bring a second
     * record for a slot in use. So the next record waits until the first one is released. */
    if (pc->commands.sequence - pc->commands.released > via_process_channel_slot_mask(pc)) {
        return false;
    }
    int rc = via_pipe_take(&pc->commands, &pc->stash);
    if (rc < 0) {
        via_process_channel_break(pc);
    }
    if (rc <= 0) {
        return false;
    }
    pc->stash_index = (pc->commands.sequence - 1) & via_process_channel_slot_mask(pc);
    pc->stashed = true;
    return true;
}

static bool is_run_allowed(struct via_process_channel *pc)
{
    pc->held = pc->running_count >= VIA_ATTACH_RUNNING_MAX;
    return !pc->held;
}

unsigned via_process_channel_serve(struct via_transfer *transfer, struct via_process_channel *pc)
{
    unsigned taken = 0;
    if (pc->broken || pc->cancelled) {
        return 0;
    }
    if (via_unlikely(via_process_channel_is_stuck(pc))) {
        via_process_channel_park(transfer, pc);
    }
    while (taken < BATCH_COMMANDS && is_run_allowed(pc) && (pc->stashed || take(pc))) {
        if (start(transfer, pc) == -EAGAIN) {
            break;
        }
        pc->stashed = false;
        taken++;
    }
    if (pc->ending) {
        via_process_channel_check_gone(transfer, pc);
    }
    return taken;
}

void via_process_channel_finish(struct via_transfer *transfer, struct via_process_channel *pc,
                                uint32_t index, int status, uint64_t value)
{
    struct via_command_slot *slot = &pc->slots[index];
    slot->status = status;
    slot->value = value;
    bool reply = (slot->cookie != 0 || status != 0 || slot->is_data) && !pc->ending;
    if (reply) {
        slot->state = VIA_COMMAND_DUE;
        uint32_t due_max = via_process_channel_due_max(via_process_channel_slot_mask(pc) + 1);
        pc->due[(pc->due_head + pc->due_count++) & (due_max - 1)] = index;
    } else {
        via_process_channel_over(transfer, pc, slot);
    }
    via_process_channel_touch(transfer, pc);
}

void via_process_channel_complete(struct via_transfer *transfer, struct via_process_channel *pc,
                                  uint32_t index, int status, uint64_t value)
{
    via_process_channel_end_flow(transfer, pc, pc->slots[index].destination);
    unborrow(pc, &pc->slots[index]);
    pc->running_count -=
        /* a higher index is that of a parked command, which was not counted */
        index <= via_process_channel_slot_mask(pc) ? 1 : 0;
    if (pc->held) {
        pc->held = false;
        via_list_remove(&pc->link);
        via_list_push_back(&transfer->active, &pc->link);
    }
    via_process_channel_finish(transfer, pc, index, status, value);
}
