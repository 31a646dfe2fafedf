/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/shmem/serve.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>

#include "host/host_private.h"
#include "sim/memory.h"
#include "sim/stub.h"
#include "sim/world.h"

/* Owner bits of a PE's cookies: those of a guest, and the PE. */
#define NUMBER_OF(pe) ((uint32_t)(SIM_GUEST_COOKIE >> 32) | (pe))

struct sim_serve {
    struct sim_host *sim;
    struct via_host host;
    struct via_tenant tenant; /* all PEs are the owner's */
    struct via_process *processes;
    uint32_t pes_max;
    uint32_t rings_seen[VIA_CHANNELS_MAX];
    bool crashed;
};

/* The thread whose turn it is, and the bells of its host. */
static struct sim_thread *serving;
static const struct via_bell *serving_bells;

/* --- what this code of src/host calls ------------------------------------------------------- */

int sim_serve_submit(struct via_node *node, unsigned channel, const struct via_op *op);
long sim_serve_syscall(long number, ...);

int sim_serve_submit(struct via_node *node, unsigned channel, const struct via_op *op)
{
    struct sim_world *world = serving->host->world;
    serving->in_submit = true;
    int rc = via_node_submit(node, channel, op);
    serving->in_submit = false;
    if (rc != -EAGAIN) {
        world->counts.pe_frames++;
        world->counts.ops[op->kind]++;
        sim_trace(world, "host %u: command %#llx: kind %u, %llu bytes at %#llx of host id %u: %d",
                  serving->host->index, (unsigned long long)op->cookie, op->kind,
                  (unsigned long long)op->bytes, (unsigned long long)op->offset, op->destination,
                  rc);
    }
    return rc;
}

/* That code makes two system calls: to ring a PE's bell, whose descriptor is the PE's index, and to
 * ring that of a transfer thread. */
long sim_serve_syscall(long number, ...)
{
    va_list args;
    va_start(args, number);
    if (number == SYS_preadv2) {
        sim_pe_ring((uint32_t)va_arg(args, int));
    } else if (number == SYS_futex) {
        const struct via_bell *bell = va_arg(args, void *);
        sim_thread_interrupt(&serving->host->threads[bell - serving_bells]);
    } else {
        abort();
    }
    va_end(args);
    return (long)sizeof(uint64_t);
}

/* The control thread: it would detach a process that breaks the rules of a pipe. */
void via_host_poke(struct via_host *host)
{
    const struct sim_serve *serve = via_container_of(host, struct sim_serve, host);
    for (uint32_t i = 0; i < serve->pes_max; i++) {
        if (atomic_load_explicit(&serve->processes[i].broken, memory_order_relaxed)) {
            sim_fail(serve->sim->world, "PE %u breaks the rules of its pipes", i);
        }
    }
}

/* No link here has direct connections. */
bool via_process_channel_put_kept(struct via_transfer *transfer, struct via_process_channel *pc)
{
    (void)transfer, (void)pc;
    return true;
}

int via_host_memory_open(struct via_host_memory *memory, const char *name, size_t bytes,
                         bool reader_only, struct via_error *err)
{
    (void)name, (void)reader_only, (void)err;
    memory->base = sim_alloc_lines(bytes);
    return 0;
}

/* No link here has slices. */
SIM_STUB(bool, false, via_host_aperture_is_offered, const struct via_host *host, unsigned index,
         const struct via_link_status *link)
/* Of users who are not exempt. */
SIM_STUB_NEVER(bool, via_tenant_is_take_allowed, const struct via_tenant *tenant, uint32_t count,
               uint32_t all_max)

/* --- a host and its processes --------------------------------------------------------------- */

struct sim_serve *sim_serve_new(struct sim_host *sim, const struct sim_serve_options *options)
{
    const struct via_node_config *node = &sim->world->config.node;
    struct sim_serve *serve = sim_alloc(sizeof(*serve));
    struct via_host *host = &serve->host;
    serve->sim = sim;
    serve->tenant.exempt = true;
    serve->tenant.flow_shares = sim_alloc((size_t)node->channels_count * node->hosts_max *
                                          sizeof(*serve->tenant.flow_shares));
    serve->pes_max = options->pes_max;
    serve->processes = sim_alloc(options->pes_max * sizeof(*serve->processes));
    host->config = *node;
    host->config.host = sim->id;
    host->session = sim->life.session;
    host->peers = sim_alloc(node->hosts_max * sizeof(*host->peers));
    host->bells.base = options->bells;
    host->cables_count = sim->ports_count;
    host->cables = sim_alloc(sim->ports_count * sizeof(*host->cables));
    for (uint32_t i = 0; i < sim->ports_count; i++) {
        host->cables[i].direct = sim->ports[i]->link->direct;
    }
    if (via_host_status_open(host, NULL) != 0) {
        abort();
    }
    host->attach.command = options->command;
    host->attach.reply = options->reply;
    host->attach.area_bytes = options->area_bytes;
    host->attach.message_bytes_max = options->reply.body_bytes_max;
    host->attach.segments = sim_alloc(node->segments_count * sizeof(*host->attach.segments));
    for (unsigned i = 0; i < node->channels_count; i++) {
        struct via_transfer *transfer = &host->transfers[i];
        transfer->host = host;
        transfer->channel = i;
        transfer->by_slot = sim_alloc(options->pes_max * sizeof(struct via_process_channel *));
        transfer->flows_taken = sim_alloc(node->hosts_max * sizeof(*transfer->flows_taken));
        via_list_init(&transfer->active);
        via_list_init(&transfer->idle);
        via_list_init(&transfer->touched);
        via_list_init(&transfer->starved);
    }
    return serve;
}

void sim_serve_free(struct sim_serve *serve)
{
    for (uint32_t i = 0; i < serve->pes_max; i++) {
        struct via_process *process = &serve->processes[i];
        for (uint32_t channel = 0; channel < process->channels_count; channel++) {
            via_process_channel_fini(&process->channels[channel]);
        }
        free(process->channels);
    }
    for (uint32_t i = 0; i < serve->host.config.segments_count; i++) {
        free(atomic_load(&serve->host.attach.segments[i]));
    }
    for (unsigned i = 0; i < serve->host.config.channels_count; i++) {
        free((void *)serve->host.transfers[i].by_slot);
        free(serve->host.transfers[i].flows_taken);
    }
    free(serve->tenant.flow_shares);
    free((void *)serve->host.attach.segments);
    free(serve->host.status_memory.base);
    free(serve->host.peers);
    free(serve->host.cables);
    free(serve->processes);
    free(serve);
}

const struct via_status_page *sim_serve_page(const struct sim_serve *serve)
{
    return serve->host.status;
}

void sim_serve_attach(struct sim_serve *serve, uint32_t index, unsigned char *memory)
{
    struct via_process *process = &serve->processes[index];
    process->host = &serve->host;
    process->slot = index;
    process->flow = index;
    process->number = NUMBER_OF(index);
    process->tenant = &serve->tenant;
    process->flows_tenant = &serve->tenant;
    process->bell_fd = (int)index;
    process->memory.base = memory;
    process->channels_count = serve->host.config.channels_count;
    process->channels = sim_alloc(process->channels_count * sizeof(*process->channels));
    for (uint32_t i = 0; i < process->channels_count; i++) {
        if (via_process_channel_init(process, i) != 0) {
            abort();
        }
        via_process_channel_added(&serve->host.transfers[i], &process->channels[i].add);
    }
}

void sim_serve_offer(struct sim_serve *serve, uint32_t index, uint64_t handle, void *base,
                     uint64_t bytes)
{
    struct via_host_segment *segment = sim_alloc(sizeof(*segment));
    segment->process = &serve->processes[index];
    segment->memory.base = base;
    segment->memory.bytes = bytes;
    segment->handle = handle;
    atomic_store(&serve->host.attach.segments[via_segment_handle_index(handle)], segment);
}

void sim_serve_crash(struct sim_serve *serve)
{
    serve->crashed = true;
}

bool sim_serve_is_idle(const struct sim_serve *serve)
{
    for (uint32_t i = 0; i < serve->pes_max && !serve->crashed; i++) {
        const struct via_process *process = &serve->processes[i];
        for (uint32_t channel = 0; channel < process->channels_count; channel++) {
            const struct via_process_channel *pc = &process->channels[channel];
            if (pc->running_count + pc->parked_count != 0) {
                return false;
            }
        }
    }
    return true;
}

/* --- for the transfer threads: as run_turn() and arm() of host/host_transfer.c -------------- */

unsigned sim_serve_turn(struct sim_serve *serve, struct sim_thread *thread)
{
    struct via_transfer *transfer = &serve->host.transfers[thread->channel];
    if (serve->crashed) {
        return 0;
    }
    serving = thread;
    serving_bells = serve->host.bells.base;
    serve->host.node = thread->host->node;
    if (thread->channel == 0) {
        via_host_status_update(&serve->host);
    }
    if (serve->rings_seen[thread->channel] != thread->rings) {
        serve->rings_seen[thread->channel] = thread->rings;
        via_process_channels_rearm(transfer);
    }
    return via_process_channels_serve(transfer);
}

static void note_ring(struct via_transfer *transfer, struct sim_thread *thread)
{
    thread->wait.rang = thread->wait.rang || transfer->wait.rang;
    transfer->wait.rang = false;
}

unsigned sim_serve_turn_over(struct sim_serve *serve, struct sim_thread *thread)
{
    struct via_transfer *transfer = &serve->host.transfers[thread->channel];
    if (serve->crashed) {
        return 0;
    }
    unsigned fed = via_process_channels_feed(transfer);
    via_process_channels_flush(transfer);
    note_ring(transfer, thread);
    return fed;
}

bool sim_serve_arm(struct sim_serve *serve, struct sim_thread *thread)
{
    return !serve->crashed && via_process_channels_arm(&serve->host.transfers[thread->channel]);
}

void sim_serve_complete(struct sim_serve *serve, unsigned channel, uint64_t cookie, int status,
                        uint64_t value)
{
    struct sim_world *world = serve->sim->world;
    struct via_transfer *transfer = &serve->host.transfers[channel];
    uint32_t pe = (uint32_t)((cookie & ~SIM_GUEST_COOKIE) >> 32);
    uint32_t index = (uint32_t)cookie;
    struct via_process_channel *pc = pe < serve->pes_max ? transfer->by_slot[pe] : NULL;
    sim_mark(world, SIM_MARK_COMPLETE, cookie, (uint64_t)(int64_t)status ^ value << 16);
    if (pc == NULL || index >= pc->commands.geometry.slots_count + VIA_ATTACH_PARKED_MAX ||
        pc->slots[index].state != VIA_COMMAND_RUNNING) {
        sim_fail(world, "host %u: cookie %#llx ends, which is not under way", serve->sim->index,
                 (unsigned long long)cookie);
        return;
    }
    sim_trace(world, "PE %u: command %u ends with %d", pe, index, status);
    via_process_channel_complete(transfer, pc, index, status, value);
    if (sim_serve_is_idle(serve)) {
        sim_final_progress(world);
    }
}
