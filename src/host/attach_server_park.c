/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Commands for hosts to which no link leads, in the transfer thread. They wait for a link without a
 * time limit. Their payloads are in the pipe, whose records are released in order, so they would
 * hold up the commands of the process for other hosts. To prevent that, such a command is parked:
 * the thread copies its payload, releases its record, and keeps it in a slot that belongs to no
 * record. There is room for as many bytes as the pipe holds.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutant.h"
#include "host/host_private.h"

static bool is_cut_off(const struct via_process_channel *pc, uint16_t destination)
{
    const struct via_host *host = pc->process->host;
    return via_status_hops(atomic_load_explicit(&host->status->peers[destination],
                                                memory_order_relaxed)) == VIA_STATUS_UNREACHABLE;
}

/* The user of a process with its own bell page gets only a share of the places. */
static bool is_park_allowed(const struct via_transfer *transfer,
                            const struct via_process_channel *pc)
{
    const struct via_tenant *tenant = pc->process->tenant;
    return tenant->exempt ||
           via_tenant_is_take_allowed(tenant, transfer->tenant_parked_counts[tenant->bells_index],
                                      VIA_ATTACH_PARKED_ALL);
}

static void count_parked(struct via_transfer *transfer, struct via_process_channel *pc, int change)
{
    const struct via_tenant *tenant = pc->process->tenant;
    pc->parked_count += (uint32_t)change;
    transfer->parked_count += (uint32_t)change;
    if (!tenant->exempt) {
        transfer->tenant_parked_counts[tenant->bells_index] += (uint32_t)change;
    }
}

void via_process_channel_unpark(struct via_transfer *transfer, struct via_process_channel *pc)
{
    count_parked(transfer, pc, -1);
}

/* A slot for one more command with `bytes` of payload to copy; NULL if none is free. */
static struct via_command_slot *free_slot(const struct via_transfer *transfer,
                                          const struct via_process_channel *pc, size_t bytes)
{
    struct via_command_slot *slots = pc->slots + pc->commands.geometry.slots_count;
    if (pc->parked_count >= VIA_ATTACH_PARKED_MAX ||
        transfer->parked_count >= VIA_ATTACH_PARKED_ALL || !is_park_allowed(transfer, pc) ||
        bytes > VIA_ATTACH_COMMAND_DATA_BYTES - pc->parked_bytes) {
        return NULL;
    }
    for (uint32_t i = 0; i < VIA_ATTACH_PARKED_MAX; i++) {
        if (slots[i].state == VIA_COMMAND_FREE) {
            return &slots[i];
        }
    }
    return NULL;
}

/* True if the oldest command alone prevents the release of records. */
bool via_process_channel_is_stuck(const struct via_process_channel *pc)
{
    uint32_t slots_count = pc->commands.geometry.slots_count;
    bool crowded = pc->running_count >= VIA_ATTACH_RUNNING_MAX || /* `held` is set later */
                   pc->commands.sequence - pc->commands.released >= slots_count / 2;
    const struct via_command_slot *oldest = &pc->slots[pc->over_next & (slots_count - 1)];
    return crowded && !pc->broken && !pc->cancelled && oldest->state == VIA_COMMAND_RUNNING &&
           pc->parked_count < VIA_ATTACH_PARKED_MAX &&
           (oldest->segment != NULL ||
            oldest->bytes <= VIA_ATTACH_COMMAND_DATA_BYTES - pc->parked_bytes) &&
           is_cut_off(pc, oldest->destination);
}

bool via_process_channel_is_stranded(const struct via_process_channel *pc)
{
    for (uint32_t i = 0; i < pc->commands.geometry.slots_count + VIA_ATTACH_PARKED_MAX; i++) {
        if (pc->slots[i].state == VIA_COMMAND_RUNNING &&
            !is_cut_off(pc, pc->slots[i].destination)) {
            return false;
        }
    }
    return pc->running_count + pc->parked_count != 0;
}

struct parking {
    struct via_transfer *transfer;
    struct via_process_channel *pc;
};

static void park_one(void *ctx, struct via_op *op)
{
    const struct parking *parking = ctx;
    struct via_transfer *transfer = parking->transfer;
    struct via_process_channel *pc = parking->pc;
    uint32_t index = (uint32_t)op->cookie;
    struct via_command_slot *from = &pc->slots[index];
    if (index >= pc->commands.geometry.slots_count || from->state != VIA_COMMAND_RUNNING ||
        !is_cut_off(pc, op->destination)) {
        return;
    }
    size_t bytes = op->source != NULL && from->segment == NULL ? (size_t)op->bytes : 0;
    struct via_command_slot *to = free_slot(transfer, pc, bytes);
    unsigned char *copy = to != NULL && bytes != 0 ? malloc(bytes) : NULL;
    if (to == NULL || (bytes != 0 && copy == NULL)) {
        return;
    }
    *to = *from;
    if (copy != NULL) {
        memcpy(copy, op->source, bytes);
        op->source = VIA_MUTANT(SERVE_PARK_KEPT) ? op->source : copy;
        to->copy = copy;
        pc->parked_bytes += (uint32_t)bytes;
    }
    op->cookie = (op->cookie & ~(uint64_t)UINT32_MAX) | (uint32_t)(to - pc->slots);
    *from = (struct via_command_slot){.state = VIA_COMMAND_OVER, .bounce = -1, .members = -1};
    pc->running_count--;
    count_parked(transfer, pc, 1);
}

int via_process_channel_put(struct via_transfer *transfer, struct via_process_channel *pc,
                            struct via_host_segment *segment, struct via_op *op)
{
    struct via_command_slot *slot = free_slot(transfer, pc, 0);
    if (slot == NULL) {
        return -EAGAIN;
    }
    *slot = (struct via_command_slot){
        .state = VIA_COMMAND_RUNNING,
        .bounce = -1,
        .members = -1,
        .destination = op->destination,
        .segment = segment,
    };
    atomic_fetch_add_explicit(&segment->borrowed, 1, memory_order_relaxed);
    op->cookie = (uint64_t)pc->process->number << 32 | (uint32_t)(slot - pc->slots);
    op->flow = via_process_channel_begin_flow(transfer, pc, op->destination, 0);
    count_parked(transfer, pc, 1);
    int rc = via_node_submit(transfer->host->node, transfer->channel, op);
    if (rc != 0) {
        via_process_channel_end_flow(transfer, pc, op->destination);
        atomic_fetch_sub_explicit(&segment->borrowed, 1, memory_order_release);
        count_parked(transfer, pc, -1);
        slot->segment = NULL;
        slot->state = VIA_COMMAND_FREE;
    }
    return rc;
}

void via_process_channel_park(struct via_transfer *transfer, struct via_process_channel *pc)
{
    if (transfer->parked_count >= VIA_ATTACH_PARKED_ALL || !is_park_allowed(transfer, pc)) {
        return;
    }
    struct parking parking = {.transfer = transfer, .pc = pc};
    via_node_relocate(transfer->host->node, transfer->channel, VIA_HOST_OWNER_MASK,
                      (uint64_t)pc->process->number << 32, park_one, &parking);
    via_process_channel_touch(transfer, pc);
}
