/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The pipes of processes in a transfer thread: making them, and serving them in its turns. */
#include <errno.h>
#include <stdlib.h>

#include "base/mutant.h"
#include "host/host_private.h"

/* After this number of turns without a command the thread arms a process's pipe, and polls it only
 * after a ring. */
#define EMPTY_POLLS_MAX 16u

int via_process_channel_init(struct via_process *process, uint32_t index)
{
    const struct via_attach_server *server = &process->host->attach;
    struct via_process_channel *pc = &process->channels[index];
    uint32_t slots = server->command.slots_count;
    pc->process = process;
    via_list_init(&pc->link);
    via_list_init(&pc->touched_link);
    via_list_init(&pc->starved_link);
    pc->add.handle = via_process_channel_added;
    pc->end.handle = via_process_channel_ending;
    pc->strand.handle = via_process_channel_stranded;
    pc->cancel.handle = via_process_channel_cancelled;
    pc->data_ends = calloc(server->reply.slots_count, sizeof(*pc->data_ends));
    pc->slots = calloc(slots + VIA_ATTACH_PARKED_MAX, sizeof(*pc->slots));
    pc->due = calloc(via_process_channel_due_max(slots), sizeof(*pc->due));
    pc->bounces = malloc((size_t)VIA_ATTACH_BOUNCES * server->reply.body_bytes_max +
                         VIA_ATTACH_SMALL_BOUNCES * VIA_ATTACH_SMALL_BYTES);
    pc->bounces_free = UINT64_MAX >> (64 - VIA_ATTACH_BOUNCES - VIA_ATTACH_SMALL_BOUNCES);
    pc->members =
        calloc(VIA_ATTACH_MEMBERS, sizeof(*pc->members) * process->host->config.hosts_max);
    pc->members_free = (1u << VIA_ATTACH_MEMBERS) - 1;
    if (pc->data_ends == NULL || pc->slots == NULL || pc->due == NULL || pc->bounces == NULL ||
        pc->members == NULL) {
        return -ENOMEM;
    }
    unsigned char *area =
        (unsigned char *)process->memory.base + (size_t)index * server->area_bytes;
    struct via_pipe_target credit = {.direct = area + VIA_ATTACH_COMMAND_CREDIT_OFF};
    via_pipe_reader_init(&pc->commands, &server->command, area + VIA_ATTACH_COMMAND_OFF, &credit,
                         VIA_ATTACH_EPOCH);
    struct via_pipe_target target = {.direct = area + VIA_ATTACH_COMMAND_OFF +
                                               via_pipe_memory_bytes(&server->command)};
    via_pipe_writer_init(
        &pc->replies, &server->reply, &target,
        (const _Atomic uint64_t *)(const void *)(area + VIA_ATTACH_REPLY_CREDIT_OFF), pc->data_ends,
        VIA_ATTACH_EPOCH);
    return 0;
}

void via_process_channel_fini(struct via_process_channel *pc)
{
    uint32_t slots = pc->commands.geometry.slots_count; /* 0: `slots` was not allocated */
    for (uint32_t i = slots; slots != 0 && i < slots + VIA_ATTACH_PARKED_MAX; i++) {
        free(pc->slots[i].copy);
    }
    free(pc->data_ends);
    free(pc->slots);
    free(pc->due);
    free(pc->bounces);
    free(pc->members);
}

/*
 * The bell has rung: for a command in an idle pipe, or for room in the pipe of a starved channel. A
 * process whose channel was active may have rung late, for a command that was already taken. Such a
 * ring uses up the arm generation of an idle pipe, so all idle pipes are armed again.
 */
void via_process_channels_rearm(struct via_transfer *transfer)
{
    via_list_foreach_safe(it, &transfer->idle) {
        if (VIA_MUTANT(SERVE_NO_REARM)) {
            break;
        }
        struct via_process_channel *pc = via_list_entry(it, struct via_process_channel, link);
        via_pipe_arm(&pc->commands);
        if (via_process_channel_is_ready(pc) || via_process_channel_is_stuck(pc)) {
            via_list_remove(&pc->link);
            via_list_push_back(&transfer->active, &pc->link);
        }
    }
}

unsigned via_process_channels_serve(struct via_transfer *transfer)
{
    unsigned work = 0;
    via_list_foreach_safe(it, &transfer->active) {
        struct via_process_channel *pc = via_list_entry(it, struct via_process_channel, link);
        unsigned taken = via_process_channel_serve(transfer, pc);
        work += taken;
        if (pc->gone) {
            continue;
        }
        if (taken != 0 || pc->stashed || pc->keeps) {
            pc->empty_polls = 0;
        } else if (++pc->empty_polls >= EMPTY_POLLS_MAX) {
            pc->empty_polls = 0;
            via_process_channel_arm(pc);
            if (!via_process_channel_is_ready(pc)) {
                via_list_remove(&pc->link);
                via_list_push_back(&transfer->idle, &pc->link);
            }
        }
    }
    /* The channel that is served first in this turn is the last one in the next turn, so that room
     * in the node is given to all in turn. */
    struct via_list *first = via_list_pop_front(&transfer->active);
    if (first != NULL) {
        via_list_push_back(&transfer->active, first);
    }
    return work;
}

unsigned via_process_channels_feed(struct via_transfer *transfer)
{
    unsigned work = 0;
    via_list_foreach_safe(it, &transfer->starved) {
        struct via_process_channel *pc =
            via_list_entry(it, struct via_process_channel, starved_link);
        work += via_process_channel_feed(transfer, pc);
    }
    return work;
}

void via_process_channels_flush(struct via_transfer *transfer)
{
    for (struct via_list *link; (link = via_list_pop_front(&transfer->touched)) != NULL;) {
        via_process_channel_flush(transfer,
                                  via_list_entry(link, struct via_process_channel, touched_link));
    }
}

bool via_process_channels_arm(struct via_transfer *transfer)
{
    bool found = false;
    via_list_foreach_safe(it, &transfer->active) {
        struct via_process_channel *pc = via_list_entry(it, struct via_process_channel, link);
        via_process_channel_arm(pc);
        if (via_process_channel_is_ready(pc)) {
            found = true;
        } else if (!pc->stashed && !pc->keeps) {
            pc->empty_polls = 0;
            via_list_remove(&pc->link);
            via_list_push_back(&transfer->idle, &pc->link);
        }
    }
    via_list_foreach_safe(it, &transfer->starved) {
        struct via_process_channel *pc =
            via_list_entry(it, struct via_process_channel, starved_link);
        if (!VIA_MUTANT(SERVE_NO_ROOM)) {
            via_pipe_request_room(&pc->replies);
        }
        if (via_process_channel_feed(transfer, pc)) {
            found = true;
        }
    }
    return found || !via_list_is_empty(&transfer->touched);
}
