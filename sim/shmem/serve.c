/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The host's side of the pipes of its PEs, as in host/attach_server_command.c and _reply.c:
 * commands become operations of the node, their results go back as replies. Commands are released
 * in order when they have ended; replies are sent in order of completion.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/node.h"
#include "sim/memory.h"
#include "sim/shmem/job.h"

#define BATCH_COMMANDS 32u
#define COOKIE_PE_SHIFT 32

static struct sim_job *job_of(struct sim_guest *guest)
{
    return (struct sim_job *)(void *)guest;
}

static uint32_t mask_of(const struct sim_serve *serve)
{
    return serve->commands.geometry.slots_count - 1;
}

void sim_serve_init(struct sim_pe *pe, unsigned channel, const struct via_pipe_geometry *command,
                    const struct via_pipe_geometry *reply, unsigned char *area)
{
    struct sim_serve *serve = &pe->serve[channel];
    unsigned char *commands = area + VIA_ATTACH_COMMAND_OFF;
    struct via_pipe_target target = {.direct = commands + via_pipe_memory_bytes(command)};
    struct via_pipe_target credit = {.direct = area + VIA_ATTACH_COMMAND_CREDIT_OFF};
    serve->slots = sim_alloc(command->slots_count * sizeof(*serve->slots));
    serve->due = sim_alloc(command->slots_count * sizeof(*serve->due));
    serve->reply_ends = sim_alloc(reply->slots_count * sizeof(*serve->reply_ends));
    via_pipe_reader_init(&serve->commands, command, commands, &credit, VIA_ATTACH_EPOCH);
    via_pipe_writer_init(&serve->replies, reply, &target,
                         (const _Atomic uint64_t *)(void *)(area + VIA_ATTACH_REPLY_CREDIT_OFF),
                         serve->reply_ends, VIA_ATTACH_EPOCH);
}

void sim_serve_fini(struct sim_pe *pe, unsigned channel)
{
    struct sim_serve *serve = &pe->serve[channel];
    for (uint32_t i = 0; i <= mask_of(serve); i++) {
        free(serve->slots[i].bounce);
    }
    free(serve->slots);
    free(serve->due);
    free(serve->reply_ends);
}

/* A write to an eventfd: the PE notices a little later. */
void sim_serve_ring(struct sim_pe *pe)
{
    struct sim_job *job = pe->job;
    sim_clock_after(&job->world->clock, sim_job_between(job, 0, 2000), SIM_EVENT_GUEST, pe->index,
                    SIM_PE_BELL, 0);
}

/* --- commands -------------------------------------------------------------------------------- */

/* The PE's own memory, for a get that needs no copy. */
static unsigned char *segment_of(struct sim_pe *pe, const struct via_command *command)
{
    for (int region = 0; region < VIA_REGIONS; region++) {
        if (pe->job->job->pes[pe->index].handle[region] == command->a.source_segment) {
            return (unsigned char *)pe->base[region] + command->b.source_offset;
        }
    }
    return NULL;
}

static void fill(struct sim_pe *pe, struct sim_serve *serve, const struct via_command *command,
                 struct sim_slot *slot, struct via_op *op)
{
    switch (command->kind) {
    case VIA_OP_PUT_SIGNAL:
        op->signal_offset = command->a.signal_offset;
        op->signal_value = command->b.signal_value;
        op->source = serve->stash.body;
        break;
    case VIA_OP_PUT:
        op->source = serve->stash.body;
        break;
    case VIA_OP_PUT_STRIDED:
        op->operand = command->a.step;
        op->compare = command->b.block_bytes;
        op->source = serve->stash.body;
        break;
    case VIA_OP_GET:
        slot->is_data = command->source == VIA_SOURCE_NONE;
        slot->bounce = slot->is_data ? sim_alloc(command->bytes) : NULL;
        op->result = slot->is_data ? slot->bounce : segment_of(pe, command);
        break;
    default:
        op->operand = command->a.operand;
        op->compare = command->b.compare;
        break;
    }
}

static void finish(struct sim_serve *serve, uint32_t index, int status, uint64_t value)
{
    struct sim_slot *slot = &serve->slots[index];
    slot->status = status;
    slot->value = value;
    slot->state = SIM_SLOT_DUE;
    serve->due[(serve->due_head + serve->due_count++) & mask_of(serve)] = index;
}

/* False: the node has no room now. */
static bool start(struct sim_pe *pe, struct sim_thread *thread, struct sim_serve *serve)
{
    struct sim_job *job = pe->job;
    uint32_t flows = job->world->config.node.flows_count;
    struct via_command command;
    memcpy(&command, serve->stash.head, sizeof(command));
    struct sim_slot *slot = &serve->slots[serve->stash_index];
    *slot = (struct sim_slot){
        .state = SIM_SLOT_RUNNING, .cookie = command.cookie, .bytes = (uint32_t)command.bytes};
    struct via_op op = {
        .kind = command.kind,
        .flags = command.flags,
        .atomic = command.atomic,
        .destination = command.destination,
        .flow = flows > 1 ? (uint16_t)(1 + pe->index % (flows - 1)) : 0,
        .segment = command.segment,
        .offset = command.offset,
        .bytes = command.bytes,
        .cookie = SIM_GUEST_COOKIE | (uint64_t)pe->index << COOKIE_PE_SHIFT | serve->stash_index,
    };
    fill(pe, serve, &command, slot, &op);
    thread->in_submit = true;
    int rc = via_node_submit(pe->host->node, thread->channel, &op);
    thread->in_submit = false;
    if (rc == -EAGAIN) {
        free(slot->bounce);
        *slot = (struct sim_slot){0};
        return false;
    }
    job->world->counts.pe_frames++;
    job->world->counts.ops[op.kind]++;
    sim_pe_trace(pe, "its host takes command %u: kind %u, %llu bytes at %#llx of host id %u: %d",
                 serve->stash_index, op.kind, (unsigned long long)op.bytes,
                 (unsigned long long)op.offset, op.destination, rc);
    if (rc == 0) {
        job->hosts[pe->host->index].running++;
    } else {
        finish(serve, serve->stash_index, rc, 0);
    }
    return true;
}

static bool take(struct sim_pe *pe, struct sim_serve *serve)
{
    if (serve->commands.sequence - serve->commands.released > mask_of(serve)) {
        return false;
    }
    int rc = via_pipe_take(&serve->commands, &serve->stash);
    if (rc < 0) {
        sim_fail(pe->job->world, "PE %u breaks its command pipe: %d", pe->index, rc);
    }
    if (rc <= 0) {
        return false;
    }
    serve->stash_index = (serve->commands.sequence - 1) & mask_of(serve);
    serve->stashed = true;
    return true;
}

static unsigned serve_commands(struct sim_pe *pe, struct sim_thread *thread)
{
    struct sim_serve *serve = &pe->serve[thread->channel];
    unsigned taken = 0;
    while (taken < BATCH_COMMANDS && (serve->stashed || take(pe, serve)) &&
           start(pe, thread, serve)) {
        serve->stashed = false;
        taken++;
    }
    return taken;
}

/* --- replies --------------------------------------------------------------------------------- */

static bool send_reply(struct sim_pe *pe, struct sim_serve *serve, struct sim_slot *slot)
{
    bool has_body = slot->is_data && slot->status == 0;
    struct via_reply reply = {
        .kind = slot->is_data ? VIA_REPLY_DATA : VIA_REPLY_COMPLETE,
        .status = slot->status,
        .cookie = slot->cookie,
        .value = slot->value,
        .bytes = has_body ? slot->bytes : 0,
    };
    int rc = via_pipe_send(&serve->replies, &reply, sizeof(reply), has_body ? slot->bounce : NULL,
                           reply.bytes);
    if (rc != 0 && rc != -EAGAIN) {
        sim_fail(pe->job->world, "PE %u: a reply can not be sent: %d", pe->index, rc);
    }
    return rc == 0;
}

static unsigned send_due(struct sim_pe *pe, struct sim_serve *serve)
{
    unsigned sent = 0;
    while (serve->due_count != 0) {
        struct sim_slot *slot = &serve->slots[serve->due[serve->due_head & mask_of(serve)]];
        if (!send_reply(pe, serve, slot)) {
            break;
        }
        free(slot->bounce);
        slot->bounce = NULL;
        slot->state = SIM_SLOT_OVER;
        serve->due_head++;
        serve->due_count--;
        sent++;
    }
    return sent;
}

static uint32_t release_over(struct sim_serve *serve)
{
    uint32_t count = 0;
    for (;; count++) {
        struct sim_slot *slot = &serve->slots[serve->over_next & mask_of(serve)];
        if (slot->state != SIM_SLOT_OVER) {
            break;
        }
        slot->state = SIM_SLOT_FREE;
        serve->over_next++;
    }
    if (count != 0) {
        via_pipe_release(&serve->commands, count);
    }
    return count;
}

static unsigned flush(struct sim_pe *pe, unsigned channel)
{
    struct sim_serve *serve = &pe->serve[channel];
    unsigned sent = send_due(pe, serve);
    bool ring = sent != 0 && via_pipe_take_reader_ring(&serve->replies);
    if (release_over(serve) != 0) {
        ring = via_pipe_take_writer_ring(&serve->commands) || ring;
    }
    if (ring) {
        sim_serve_ring(pe);
    }
    return sent;
}

/* --- for the transfer thread ----------------------------------------------------------------- */

#define EACH_PE(job, pe, on)                                                       \
    for (struct sim_pe *pe = (job)->pes; pe < (job)->pes + (job)->pes_count; pe++) \
        if (pe->host == (on) && pe->world.attach != NULL && !(job)->hosts[(on)->index].crashed)

unsigned sim_serve_turn(struct sim_guest *guest, struct sim_thread *thread)
{
    struct sim_job *job = job_of(guest);
    unsigned done = 0;
    if (thread->channel == 0 && !job->hosts[thread->host->index].crashed) {
        sim_attach_status(job, thread->host);
    }
    EACH_PE(job, pe, thread->host)
    {
        done += serve_commands(pe, thread);
    }
    return done;
}

unsigned sim_serve_turn_over(struct sim_guest *guest, struct sim_thread *thread)
{
    unsigned done = 0;
    EACH_PE(job_of(guest), pe, thread->host)
    {
        done += flush(pe, thread->channel);
    }
    return done;
}

bool sim_serve_arm(struct sim_guest *guest, struct sim_thread *thread)
{
    bool busy = false;
    EACH_PE(job_of(guest), pe, thread->host)
    {
        struct sim_serve *serve = &pe->serve[thread->channel];
        via_pipe_arm(&serve->commands);
        if (via_pipe_take_writer_ring(&serve->commands)) {
            sim_serve_ring(pe);
        }
        if (serve->due_count != 0) {
            via_pipe_ask_for_room(&serve->replies);
            busy = via_pipe_writer_has_place(&serve->replies,
                                             serve->replies.geometry.body_bytes_max) ||
                   busy;
        }
        busy = (!serve->stashed && via_pipe_is_ready(&serve->commands)) || busy;
    }
    return busy;
}

void sim_serve_complete(struct sim_guest *guest, struct sim_host *host, unsigned channel,
                        uint64_t cookie, int status, uint64_t value)
{
    struct sim_job *job = job_of(guest);
    uint32_t index = (uint32_t)((cookie & ~SIM_GUEST_COOKIE) >> COOKIE_PE_SHIFT);
    struct sim_pe *pe = &job->pes[index];
    struct sim_serve *serve = &pe->serve[channel];
    uint32_t slot = (uint32_t)cookie;
    sim_mark(job->world, SIM_MARK_COMPLETE, cookie, (uint64_t)(int64_t)status ^ value << 16);
    if (index >= job->pes_count || pe->host != host || slot > mask_of(serve) ||
        serve->slots[slot].state != SIM_SLOT_RUNNING) {
        sim_fail(job->world, "host %u: cookie %#llx ends, which is not under way", host->index,
                 (unsigned long long)cookie);
        return;
    }
    sim_pe_trace(pe, "command %u ends with %d", slot, status);
    finish(serve, slot, status, value);
    if (--job->hosts[host->index].running == 0) {
        sim_final_progress(job->world);
    }
}
