/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A PE's attachment to its host: the state that via_attach_open() would have set up, and the host's
 * answers on the socket. The rest of the client library is compiled unchanged.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host/client_auto.h"
#include "sim/memory.h"
#include "sim/shmem/job.h"
#include "sim/stub.h"

/* Descriptor numbers that only the simulator interprets. */
enum { SOCKET_FD = 100001, BELL_FD, NUDGE_FD, EPOLL_FD };

#define LIFE_BYTES 4096u
/* Every life of a segment in a run is its first. */
#define LIFE UINT64_C(1)
#define ANSWER_NS_MAX 100000u

/* --- errors ---------------------------------------------------------------------------------- */

static char *error_text(void)
{
    static char none_runs[sizeof(sim_job->pes[0].error_text)];
    return sim_job->running != NULL ? sim_job->running->error_text : none_runs;
}

const char *via_error_text(void)
{
    return error_text();
}

int via_client_error(int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error_text(), sizeof(sim_job->pes[0].error_text), format, args);
    va_end(args);
    return code;
}

int via_client_dead(const struct via_attach *attach)
{
    return via_client_error(-ENOTCONN, "host %u: its daemon has ended, or violated the protocol",
                            attach->host);
}

/* --- a host's pipes and pages ---------------------------------------------------------------- */

static struct sim_serve_options describe_pipes(const struct sim_job *job)
{
    const struct sim_config_shmem *config = job->config;
    struct sim_serve_options pipes = {
        .command = {.slots_count = config->slots,
                    .data_bytes = via_max(2u, config->slots / 2) * config->body_bytes,
                    .body_bytes_max = config->body_bytes},
        .reply = {.slots_count = config->reply_slots,
                  .data_bytes = 2 * config->body_bytes,
                  .body_bytes_max = config->body_bytes},
        .pes_max = job->pes_count,
    };
    pipes.area_bytes = (uint32_t)(VIA_ATTACH_COMMAND_OFF + via_pipe_memory_bytes(&pipes.command) +
                                  via_pipe_memory_bytes(&pipes.reply));
    return pipes;
}

void sim_attach_host_init(struct sim_job *job, uint32_t index)
{
    struct sim_pe_host *shared = &job->hosts[index];
    const struct via_node_config *node = &job->world->config.node;
    shared->bells = sim_alloc_lines(node->channels_count * sizeof(*shared->bells));
    for (unsigned i = 0; i < node->channels_count; i++) {
        shared->bells[i].sleepers = 1;
    }
    shared->lives = sim_map_shared(LIFE_BYTES, &shared->life_fd);
    struct sim_serve_options pipes = describe_pipes(job);
    pipes.bells = shared->bells;
    shared->serve = sim_serve_new(&job->world->hosts[index], &pipes);
}

void sim_attach_host_fini(struct sim_job *job, uint32_t index)
{
    struct sim_pe_host *shared = &job->hosts[index];
    sim_serve_free(shared->serve);
    free(shared->bells);
    munmap(shared->lives, LIFE_BYTES);
    close(shared->life_fd);
}

int via_attach_hops(struct via_attach *attach, unsigned host)
{
    uint64_t word = via_client_status(attach, host);
    return via_status_is_reachable(word) ? (int)via_status_hops(word) : -EHOSTUNREACH;
}

/* --- answers of the host --------------------------------------------------------------------- */

static int add_segment(struct sim_pe *pe, const struct via_attach_request *message, int fd,
                       struct via_attach_answer *answer)
{
    struct sim_job *job = pe->job;
    char *base = pe->base[fd == pe->fds[VIA_REGION_HEAP] ? VIA_REGION_HEAP : VIA_REGION_DATA];
    uint64_t handle;
    int rc = via_node_segment_add(pe->host->node, base, message->bytes, message->access,
                                  via_rng_next(&job->rng) >> 16, &handle);
    if (rc == 0) {
        answer->handle = handle;
        struct sim_pe_host *shared = &job->hosts[pe->host->index];
        shared->lives[via_segment_handle_index(handle)] = LIFE;
        sim_serve_offer(shared->serve, pe->index, handle, base, message->bytes);
    }
    return rc;
}

/* Finds the owner of a segment, and its region; NULL. */
static struct sim_pe *owner_of(struct sim_job *job, const struct sim_host *host, uint64_t handle,
                               int *ret_region)
{
    for (uint32_t i = 0; i < job->pes_count; i++) {
        struct sim_pe *pe = &job->pes[i];
        for (int region = 0; region < VIA_REGIONS && pe->host == host; region++) {
            if (job->job->pes[i].handle[region] == handle) {
                *ret_region = region;
                return pe;
            }
        }
    }
    return NULL;
}

static int map_segment(struct sim_pe *pe, const struct via_attach_request *message,
                       struct via_client_request *request)
{
    struct sim_job *job = pe->job;
    const struct sim_host *host = &job->world->hosts[job->world->host_by_id[message->host]];
    struct sim_pe_host *shared = &job->hosts[host->index];
    int region;
    if ((via_client_status(&pe->attach, host->id) & VIA_STATUS_DIRECT) == 0 || !host->alive) {
        return -EXDEV;
    }
    const struct sim_pe *owner = owner_of(job, host, message->handle, &region);
    if (owner == NULL || shared->crashed) {
        return -EACCES;
    }
    /* No process rings the owner's bell in this file, so any descriptor will do. */
    const int fds[] = {owner->fds[region], shared->life_fd, shared->life_fd};
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(fds); i++) {
        request->fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
    }
    request->fds_count = VIA_ARRAY_COUNT(fds);
    request->answer.bytes = sim_pe_bytes[region];
    request->answer.life = LIFE;
    return 0;
}

int via_client_request_wait(struct via_attach *attach, struct via_attach_request *message, int fd,
                            struct via_client_request *request)
{
    struct sim_pe *pe = sim_job->running;
    *request = (struct via_client_request){0};
    sim_pe_pause(pe, sim_job_between(pe->job, 1000, ANSWER_NS_MAX));
    if (pe->job->hosts[pe->host->index].crashed) {
        via_client_die(attach);
        return via_client_dead(attach);
    }
    int rc = -EINVAL;
    if (message->type == VIA_ATTACH_SEGMENT_ADD) {
        rc = add_segment(pe, message, fd, &request->answer);
    } else if (message->type == VIA_ATTACH_MAP) {
        rc = map_segment(pe, message, request);
        sim_pe_trace(pe, "maps a segment of host %u: %d", message->host, rc);
    }
    return rc;
}

/* Asks for slices, which no link here has. */
SIM_STUB(int, -EINVAL, via_client_request_send, struct via_attach *attach,
         struct via_attach_request *message, struct via_client_request *request)
/* Jobs remove no segment before their end. */
SIM_STUB(int, 0, via_client_notify_host, struct via_attach *attach,
         struct via_attach_request *message)

unsigned via_client_take_answers(struct via_attach *attach)
{
    const struct sim_pe *pe = sim_job->running;
    attach->socket_ready = false;
    if (!pe->job->hosts[pe->host->index].crashed) {
        return 0;
    }
    via_client_die(attach);
    return 1;
}

/* --- attaching ------------------------------------------------------------------------------- */

static void channel_init(struct sim_pe *pe, unsigned index, const struct via_pipe_geometry *command,
                         const struct via_pipe_geometry *reply, unsigned char *area)
{
    struct via_client_channel *channel = &pe->attach.channels[index];
    unsigned char *commands = area + VIA_ATTACH_COMMAND_OFF;
    struct via_pipe_target target = {.direct = commands};
    struct via_pipe_target credit = {.direct = area + VIA_ATTACH_REPLY_CREDIT_OFF};
    channel->data_ends = sim_alloc(command->slots_count * sizeof(*channel->data_ends));
    channel->bell = &pe->job->hosts[pe->host->index].bells[index];
    via_pipe_writer_init(&channel->writer, command, &target,
                         (const _Atomic uint64_t *)(void *)(area + VIA_ATTACH_COMMAND_CREDIT_OFF),
                         channel->data_ends, VIA_ATTACH_EPOCH);
    via_pipe_reader_init(&channel->reader, reply, commands + via_pipe_memory_bytes(command),
                         &credit, VIA_ATTACH_EPOCH);
}

void sim_attach_open(struct sim_pe *pe)
{
    struct sim_job *job = pe->job;
    const struct sim_config_shmem *config = job->config;
    struct via_attach *attach = &pe->attach;
    const struct sim_serve_options pipes = describe_pipes(job);
    attach->socket_fd = SOCKET_FD;
    attach->bell_fd = BELL_FD;
    attach->nudge_fd = NUDGE_FD;
    attach->epoll_fd = EPOLL_FD;
    attach->host = pe->host->id;
    attach->hosts_max = job->world->config.node.hosts_max;
    attach->channels_count = job->world->config.node.channels_count;
    attach->channel_first = (uint16_t)(pe->index % attach->channels_count);
    attach->body_bytes_max = config->body_bytes;
    attach->reply_bytes_max = config->body_bytes;
    attach->inbox_bytes_max = VIA_CLIENT_INBOX_BYTES_MAX;
    attach->stuck_ns_max = VIA_CLIENT_STUCK_NS_MAX;
    attach->status = sim_serve_page(job->hosts[pe->host->index].serve);
    attach->memory_bytes = (size_t)pipes.area_bytes * attach->channels_count;
    attach->memory = sim_alloc_lines(attach->memory_bytes);
    attach->interest = sim_alloc_lines(VIA_ATTACH_INTEREST_WORDS * sizeof(*attach->interest));
    attach->ops_count = pipes.command.slots_count * attach->channels_count;
    attach->ops = sim_alloc(attach->ops_count * sizeof(*attach->ops));
    for (uint32_t i = 0; i < attach->ops_count; i++) {
        attach->ops[i].index_next_free = i + 1;
    }
    via_host_spin_init(&attach->spin, config->wake_ns_max / 2);
    via_list_init(&attach->pending);
    via_list_init(&attach->messages);
    via_list_init(&attach->requests);
    via_list_init(&attach->segments);
    via_list_init(&attach->segments_left);
    via_list_init(&attach->remotes);
    for (unsigned i = 0; i < attach->channels_count; i++) {
        channel_init(pe, i, &pipes.command, &pipes.reply,
                     attach->memory + (size_t)i * pipes.area_bytes);
    }
    if (job->nodes_count > 1) {
        sim_serve_attach(job->hosts[pe->host->index].serve, pe->index, attach->memory);
    }
}

void sim_attach_offer(struct sim_pe *pe)
{
    for (int region = 0; region < VIA_REGIONS && via_world.attach != NULL; region++) {
        int rc = via_segment_adopt(
            via_world.attach, pe->fds[region], via_world.region[region].bytes, pe->base[region],
            VIADUCT_SEGMENT_READ | VIADUCT_SEGMENT_WRITE, &via_world.segment[region]);
        if (rc != 0) {
            via_fatal("offering memory: %s", via_error_text());
        }
        via_world.me->handle[region] = via_segment_handle(via_world.segment[region]);
    }
}

void sim_attach_close(struct sim_pe *pe)
{
    struct via_attach *attach = &pe->attach;
    while (!via_list_is_empty(&attach->remotes)) {
        via_client_remote_free(
            via_list_entry(via_list_first(&attach->remotes), struct via_remote, link));
    }
    for (unsigned i = 0; i < attach->channels_count; i++) {
        free(attach->channels[i].data_ends);
    }
    free(attach->memory);
    free(attach->interest);
    free(attach->ops);
}

/* --- direct connections: a simulated host has none ------------------------------------------- */

SIM_STUB(int, -EXDEV, via_tcp_dial, struct via_remote *remote, const struct via_tcp_card *card)

int via_client_tcp_way(struct via_remote *remote, struct via_client_tcp **ret_tcp)
{
    (void)remote;
    *ret_tcp = NULL;
    return 0;
}

SIM_STUB(int, 0, via_client_tcp_leave, struct via_remote *remote)
/* via_client_tcp_way() has reported no direct connection, so none of these calls is made. */
SIM_STUB_NEVER(int, via_client_tcp_put, struct via_client_tcp *tcp, struct via_remote *remote,
               uint64_t off, const void *src, size_t bytes, unsigned flags)
SIM_STUB_NEVER(int, via_client_tcp_put_signal, struct via_client_tcp *tcp,
               struct via_remote *remote, uint64_t off, const void *src, size_t bytes,
               uint64_t signal_off, uint64_t value, unsigned signal_op)
SIM_STUB_NEVER(int, via_client_tcp_get, struct via_client_tcp *tcp, struct via_remote *remote,
               uint64_t off, void *dst, size_t bytes, bool waits)
SIM_STUB_NEVER(int, via_client_tcp_atomic, struct via_client_tcp *tcp, struct via_remote *remote,
               uint64_t off, unsigned width, enum viaduct_atomic operation, uint64_t operand,
               uint64_t compare, uint64_t *ret_old, void *fetch)
SIM_STUB(int, 0, via_client_tcp_all_quiet, struct via_attach *attach)
SIM_STUB(int, 0, via_client_tcp_all_failure, const struct via_attach *attach)
SIM_STUB_NEVER(void, via_client_tcp_release, struct via_remote *remote)

int via_client_auto_put(struct via_remote *remote, uint64_t off, const void *src, size_t bytes,
                        unsigned flags, bool *ret_end)
{
    (void)remote, (void)off, (void)src, (void)bytes, (void)flags;
    *ret_end = false;
    return 0;
}

SIM_STUB_VOID(via_client_auto_off, struct via_attach *attach)
SIM_STUB(int, 0, via_client_auto_leave_slow, struct via_attach *attach, unsigned host)
SIM_STUB(int, 0, via_client_auto_try_leave, struct via_attach *attach, unsigned host)
SIM_STUB(bool, true, via_client_auto_close_remote, struct via_remote *remote)
SIM_STUB(unsigned, 0, via_client_auto_pending, struct via_remote *remote)
SIM_STUB(int, 0, via_client_auto_refusal, const struct via_attach *attach)
SIM_STUB_VOID(via_client_serve_drop, struct via_client_serve *serve,
              const struct via_segment *segment)
