/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The attach socket: rights, requests and answers. */
#include "host/attach_server.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fds.h"
#include "base/log.h"
#include "base/mutant.h"
#include "host/client_sys.h"
#include "host/host_private.h"
#include "host/host_receive.h"

#define ANSWER_FDS_MAX 4u
#define UNREAD_FDS_MAX 32u
#define REQUESTS_PER_TURN 16u
#define STRANGERS_MAX 256u
#define STRANGERS_OF_USER_MAX 64u
#define RINGS_PER_TURN 256u
/* Time in which a connection must send HELLO. */
#define STRANGER_NS (5 * VIA_SEC_NS)

/* 0 or negative errno. */
static int send_answer(const struct via_process *process, const struct via_attach_answer *answer,
                       const int *fds, unsigned fds_count)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)answer, .iov_len = sizeof(*answer)};
    VIA_FDS_SPACE(ANSWER_FDS_MAX) control = {0};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    via_fds_add(&message, &control, fds, fds_count);
    ssize_t sent;
    do {
        sent = sendmsg(process->source.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : 0;
}

/* False: the process has too many descriptors that it has not received. They count against the
 * number of descriptors that the kernel lets this user have in flight (RLIMIT_NOFILE, unless the
 * user has CAP_SYS_RESOURCE). */
static bool reserve_fds(struct via_process *process, unsigned fds_count)
{
    int unread_bytes = 0;
    if (ioctl(process->source.fd, SIOCOUTQ, &unread_bytes) == 0 && unread_bytes == 0) {
        process->fds_unread = 0;
    }
    if (process->fds_unread + fds_count > UNREAD_FDS_MAX) {
        return false;
    }
    process->fds_unread += fds_count;
    return true;
}

/* Answers without the descriptors that can not be sent: the process then uses frames. */
static int send_without(const struct via_process *process, const struct via_attach_answer *answer)
{
    struct via_attach_answer without = {
        .magic = answer->magic,
        .version = answer->version,
        .type = answer->type,
        .id = answer->id,
        .host = answer->host,
        .status = answer->type == VIA_ATTACH_SLICE ? -EAGAIN : -EXDEV,
    };
    return send_answer(process, &without, NULL, 0);
}

void via_attach_server_answer(struct via_process *process, const struct via_attach_answer *answer,
                              const int *fds, unsigned fds_count)
{
    int rc = fds_count != 0 && !reserve_fds(process, fds_count)
                 ? -ETOOMANYREFS
                 : send_answer(process, answer, fds, fds_count);
    if (rc == -ETOOMANYREFS && answer->type != VIA_ATTACH_HELLO) {
        rc = send_without(process, answer);
    }
    if (rc != 0 && rc != -EPIPE && rc != -ECONNRESET) {
        /* The socket has room for more answers than a process may request at a time. */
        via_host_warn(process->host, VIA_HOST_WARNS_DETACHED, process->uid,
                      "host %u: process %d (%s) is detached: its answer can not be sent: %s",
                      process->host->config.host, (int)process->pid, process->comm, strerror(-rc));
        shutdown(process->source.fd, SHUT_RDWR);
    }
}

void via_attach_server_answer_init(const struct via_host *host,
                                   const struct via_attach_request *request,
                                   struct via_attach_answer *ret_answer)
{
    *ret_answer = (struct via_attach_answer){
        .magic = VIA_ATTACH_MAGIC,
        .version = VIA_ATTACH_VERSION,
        .type = request->type,
        .id = request->id,
        .host = host->config.host,
    };
}

void via_attach_server_refuse(struct via_process *process, const struct via_attach_request *request,
                              int status, const char *why)
{
    struct via_attach_answer answer;
    via_attach_server_answer_init(process->host, request, &answer);
    answer.status = status;
    answer.value_bytes = (uint32_t)via_min(strlen(why), sizeof(answer.value));
    memcpy(answer.value, why, answer.value_bytes);
    via_attach_server_answer(process, &answer, NULL, 0);
}

void via_attach_server_answer_status(struct via_process *process,
                                     const struct via_attach_request *request, int status)
{
    struct via_attach_answer answer;
    via_attach_server_answer_init(process->host, request, &answer);
    answer.status = status;
    via_attach_server_answer(process, &answer, NULL, 0);
}

/* Receives one datagram and its descriptors. 1; 0: the process has closed the socket; -EAGAIN,
 * -EPROTO. */
static int receive(struct via_process *process, struct via_attach_request *ret_request,
                   struct via_host_received *ret_received)
{
    via_host_receive(process->source.fd, ret_request, sizeof(*ret_request), ret_received);
    if (ret_received->bytes < 0) {
        return ret_received->bytes == -EAGAIN || ret_received->bytes == -EINTR ? -EAGAIN : 0;
    }
    if (ret_received->bytes == 0) {
        return 0;
    }
    return (size_t)ret_received->bytes == sizeof(*ret_request) && !ret_received->truncated
               ? 1
               : -EPROTO;
}

static int endpoint_request(struct via_process *process, const struct via_attach_request *request)
{
    if (request->endpoint == 0 || request->endpoint >= VIA_HOST_ENDPOINT_FIRST) {
        return -EINVAL;
    }
    if (request->endpoint >= VIA_HOST_ENDPOINT_OWNERS && !process->tenant->exempt) {
        return -EACCES;
    }
    return request->type == VIA_ATTACH_ENDPOINT_OPEN
               ? via_endpoint_open_for(process, request->endpoint)
               : via_endpoint_close_for(process, request->endpoint);
}

static void board_take(struct via_process *process, const struct via_attach_request *request)
{
    struct via_attach_answer answer;
    via_attach_server_answer_init(process->host, request, &answer);
    int rc = -EINVAL;
    if (request->key_bytes >= 1 &&
        (request->key_bytes <= sizeof(request->key) || VIA_MUTANT(ATTACH_KEY))) {
        rc = via_board_pull(&process->host->board, process->uid, request->key, request->key_bytes,
                            answer.value, process->host->now_ns);
    }
    answer.status = via_min(rc, 0);
    answer.value_bytes = rc > 0 ? (uint32_t)rc : 0;
    via_attach_server_answer(process, &answer, NULL, 0);
}

static void refuse_note(struct via_process *process, const struct via_attach_request *request,
                        uint32_t notes_max)
{
    struct via_host *host = process->host;
    struct via_error err;
    int rc = via_error_set(&err, -EDQUOT, "user %u is at its quota of notes on host %u: %u",
                           (unsigned)process->uid, host->config.host, notes_max);
    via_host_warn(host, VIA_HOST_WARNS_QUOTA, process->uid, "host %u: process %d (%s): %s",
                  host->config.host, (int)process->pid, process->comm, err.text);
    via_attach_server_refuse(process, request, rc, err.text);
}

/* 0: answered, or will be answered. Else the status of the answer. */
static int board_post(struct via_process *process, const struct via_attach_request *request)
{
    struct via_host *host = process->host;
    if (request->key_bytes == 0 || request->key_bytes > sizeof(request->key) ||
        request->value_bytes > sizeof(request->value)) {
        return -EINVAL;
    }
    if (request->host >= host->config.hosts_max) {
        return -EHOSTUNREACH;
    }
    if (request->host != host->config.host) {
        return via_attach_server_send_request(process, request, VIA_HOST_MESSAGE_TIMEOUT_NS);
    }
    struct via_board_poster poster = {.uid = process->uid,
                                      .host = host->config.host,
                                      .session = host->session,
                                      .process = process->number};
    uint32_t notes_max = via_tenant_notes_max(host, process->uid);
    int rc = via_board_add(&host->board, &poster, notes_max, request->key, request->key_bytes,
                           request->value, request->value_bytes, request->ttl_ms * VIA_MSEC_NS,
                           host->now_ns);
    process->posted[poster.host / 64] |= UINT64_C(1) << (poster.host % 64);
    if (rc == -EDQUOT) {
        refuse_note(process, request, notes_max);
        return 0;
    }
    via_attach_server_answer_status(process, request, rc);
    return 0;
}

static int answer_tcp_request(struct via_process *process, const struct via_attach_request *request)
{
    struct via_attach_tcp where = {0};
    int rc = via_host_cables_tcp(process->host, request->host, where.local, where.peer,
                                 sizeof(where.local));
    if (rc != 0) {
        return rc;
    }
    struct via_attach_answer answer;
    via_attach_server_answer_init(process->host, request, &answer);
    answer.value_bytes = sizeof(where);
    memcpy(answer.value, &where, sizeof(where));
    via_attach_server_answer(process, &answer, NULL, 0);
    return 0;
}

static void handle_attached(struct via_process *process, const struct via_attach_request *request,
                            int *fds, unsigned fds_count)
{
    int status = 0;
    switch (request->type) {
    case VIA_ATTACH_SEGMENT_ADD:
        status = via_segment_add_for(process, request, fds, fds_count);
        break;
    case VIA_ATTACH_SEGMENT_REMOVE:
        status = via_segment_remove_for(process, request->handle);
        if (request->id != 0) {
            via_attach_server_answer_status(process, request, status);
        }
        return;
    case VIA_ATTACH_MAP:
        status = via_segment_map_for(process, request);
        break;
    case VIA_ATTACH_SLICE:
        status = via_host_aperture_request(process, request);
        break;
    case VIA_ATTACH_TCP:
        status = answer_tcp_request(process, request);
        break;
    case VIA_ATTACH_DIRECT:
        status = via_host_direct_request(process, request);
        break;
    case VIA_ATTACH_ENDPOINT_OPEN:
    case VIA_ATTACH_ENDPOINT_CLOSE:
        via_attach_server_answer_status(process, request, endpoint_request(process, request));
        return;
    case VIA_ATTACH_BOARD_POST:
        status = board_post(process, request);
        break;
    case VIA_ATTACH_BOARD_TAKE:
        board_take(process, request);
        return;
    default:
        status = -EINVAL;
    }
    if (status != 0) {
        via_attach_server_answer_status(process, request, status);
    }
}

/* False: the connection must be closed. */
static bool handle_hello(struct via_process *process, const struct via_attach_request *request)
{
    struct via_host *host = process->host;
    struct via_error err;
    int status = via_error_set(&err, -EPROTO, "%s", strerror(EPROTO));
    if (process->state == VIA_PROCESS_REFUSED) {
        status =
            via_error_set(&err, -EACCES, "user %u may not attach to host %u (viaductd --attach)",
                          (unsigned)process->uid, host->config.host);
    } else if (request->version != VIA_ATTACH_VERSION) {
        via_host_warn(host, VIA_HOST_WARNS_VERSION, process->uid,
                      "host %u: process %d (%s) refused: it speaks attach version %u, this host %u",
                      host->config.host, (int)process->pid, process->comm, request->version,
                      VIA_ATTACH_VERSION);
    } else if (request->type == VIA_ATTACH_HELLO) {
        status = via_process_attach(process, request, &err);
        if (status != 0) {
            via_host_warn(host, VIA_HOST_WARNS_ATTACH, process->uid,
                          "host %u: process %d (%s) can not attach: %s", host->config.host,
                          (int)process->pid, process->comm, err.text);
        }
    }
    if (status != 0) {
        host->attach.refused_count++;
        via_attach_server_refuse(process, request, status, err.text);
    }
    return status == 0;
}

/* False: the connection must be closed. */
static bool handle(struct via_process *process, const struct via_attach_request *request, int *fds,
                   unsigned fds_count)
{
    if (request->magic != VIA_ATTACH_MAGIC) {
        return false;
    }
    if (process->state != VIA_PROCESS_ATTACHED) {
        return handle_hello(process, request);
    }
    if (request->version != VIA_ATTACH_VERSION) {
        return false;
    }
    handle_attached(process, request, fds, fds_count);
    return true;
}

static void ready(struct via_host_source *source, uint32_t events)
{
    struct via_process *process = via_container_of(source, struct via_process, source);
    (void)events;
    for (unsigned i = 0; i < REQUESTS_PER_TURN; i++) {
        struct via_attach_request request;
        struct via_host_received received;
        int rc = receive(process, &request, &received);
        if (rc == -EAGAIN) {
            return;
        }
        bool alive = rc == 1 && handle(process, &request, received.fds, received.fds_count);
        via_reaper_add_fds(process->host->reaper, received.fds, received.fds_count);
        if (!alive) {
            via_process_leave(process);
            return;
        }
    }
}

/* Connections that send no HELLO must not keep other processes out. If a user has too many, closes
 * that user's oldest one, else the oldest of all. */
static void end_stranger(struct via_attach_server *server, uid_t uid)
{
    struct via_process *oldest = NULL;
    unsigned count = 0;
    via_list_foreach(it, &server->strangers) {
        struct via_process *stranger = via_list_entry(it, struct via_process, link);
        if (stranger->uid == uid) {
            oldest = oldest != NULL ? oldest : stranger;
            count++;
        }
    }
    if (count > STRANGERS_OF_USER_MAX) {
        via_process_leave(oldest);
    } else if (server->strangers_count > STRANGERS_MAX) {
        via_process_leave(via_list_entry(server->strangers.next, struct via_process, link));
    }
}

static void accepted(struct via_host *host, int fd, const struct ucred *peer)
{
    struct via_attach_server *server = &host->attach;
    struct via_process *process = via_process_new(host, fd, peer);
    if (process == NULL) {
        via_reaper_add_fds(host->reaper, &fd, 1);
        return;
    }
    process->source.ready = ready;
    process->deadline_ns = host->now_ns + STRANGER_NS;
    if (!via_rights_has(&host->options.attach, fd, peer)) {
        process->state = VIA_PROCESS_REFUSED;
        via_host_warn(host, VIA_HOST_WARNS_REFUSED, peer->uid,
                      "host %u: process %d (%s): user %u may not attach", host->config.host,
                      (int)peer->pid, process->comm, (unsigned)peer->uid);
    }
    via_list_push_back(&server->strangers, &process->link);
    server->strangers_count++;
    if (via_host_source_add(host, &process->source, EPOLLIN | EPOLLRDHUP) != 0) {
        via_process_leave(process);
    } else {
        end_stranger(server, peer->uid);
    }
}

static int set_geometry(struct via_host *host, struct via_error *err)
{
    struct via_attach_server *server = &host->attach;
    uint32_t frame_bytes = host->config.frame_bytes_max;
    uint32_t body_bytes = via_max(VIA_ATTACH_BODY_BYTES_MAX, frame_bytes);
    server->command = (struct via_pipe_geometry){
        .slots_count = VIA_ATTACH_SLOTS,
        .data_bytes = VIA_ATTACH_COMMAND_DATA_BYTES,
        .body_bytes_max = body_bytes,
    };
    server->reply = (struct via_pipe_geometry){
        .slots_count = VIA_ATTACH_SLOTS,
        .data_bytes = VIA_ATTACH_REPLY_DATA_BYTES,
        .body_bytes_max = body_bytes,
    };
    if (via_pipe_geometry_check(&server->command) != 0 ||
        via_pipe_geometry_check(&server->reply) != 0) {
        return via_error_set(err, -EINVAL, "frames of %u bytes do not fit the pipes of processes",
                             frame_bytes);
    }
    server->message_bytes_max = frame_bytes;
    server->area_bytes =
        (uint32_t)via_align_up(VIA_ATTACH_COMMAND_OFF + via_pipe_memory_bytes(&server->command) +
                                   via_pipe_memory_bytes(&server->reply),
                               4096);
    return 0;
}

int via_attach_server_init(struct via_host *host, struct via_error *err)
{
    struct via_attach_server *server = &host->attach;
    *server = (struct via_attach_server){.host = host, .life_memory.fd = -1};
    via_list_init(&server->processes);
    via_list_init(&server->strangers);
    via_list_init(&server->closing);
    via_list_init(&server->lingering);
    via_list_init(&server->removed);
    via_list_init(&server->retired);
    via_list_init(&server->pending);
    int rc = set_geometry(host, err);
    if (rc != 0) {
        return rc;
    }
    server->by_slot = calloc(host->options.processes_max, sizeof(struct via_process *));
    server->generations = calloc(host->options.processes_max, sizeof(uint32_t));
    server->segments = calloc(host->config.segments_count, sizeof(*server->segments));
    struct via_endpoint_table *table = via_endpoint_table_new(0);
    atomic_store_explicit(&server->endpoints, table, memory_order_release);
    if (server->by_slot == NULL || server->generations == NULL || server->segments == NULL ||
        table == NULL) {
        return via_error_set(err, -ENOMEM, "tables of processes: %s", strerror(ENOMEM));
    }
    size_t bytes = via_align_up(host->config.segments_count * sizeof(*server->lives), 4096);
    rc = via_host_memory_open(&server->life_memory, "viaduct-lives", bytes, true, err);
    server->lives = server->life_memory.base;
    return rc;
}

int via_attach_server_listen(struct via_host *host, struct via_error *err)
{
    struct via_rundir_path path;
    int rc = via_rundir_attach_path(host->rundir.text, host->config.host, &path, err);
    return rc != 0 ? rc
                   : via_host_listener_open(host, &host->attach.listener, &path, SOCK_SEQPACKET,
                                            accepted, err);
}

void via_attach_server_close(struct via_host *host)
{
    struct via_attach_server *server = &host->attach;
    if (server->host == NULL) {
        return;
    }
    via_host_listener_close(&server->listener);
    via_attach_server_pending_free(host);
    via_process_free_all(host);
    via_segment_free_all(host);
    via_endpoint_tables_free(server);
    via_host_memory_close(&server->life_memory);
    free(server->segments);
    free(server->generations);
    free(server->by_slot);
    server->host = NULL;
}

/* True if the process has loaded the status word of a host that has changed. */
static bool is_concerned(const struct via_process *process)
{
    const struct via_attach_server *server = &process->host->attach;
    const _Atomic uint64_t *interest =
        (const _Atomic uint64_t *)(const void *)((const unsigned char *)process->memory.base +
                                                 (size_t)process->channels_count *
                                                     server->area_bytes +
                                                 VIA_ATTACH_BUSY_BYTES);
    for (unsigned i = 0; i < VIA_ATTACH_INTEREST_WORDS; i++) {
        if (server->ringing[i] != 0 &&
            (atomic_load_explicit(&interest[i], memory_order_relaxed) & server->ringing[i]) != 0) {
            return true;
        }
    }
    return false;
}

/* Rings processes that use a host whose path has changed, a bounded number in each turn. Returns
 * the next deadline. */
static uint64_t ring_some(struct via_host *host)
{
    struct via_attach_server *server = &host->attach;
    uint32_t count = via_min(server->to_ring_count, RINGS_PER_TURN);
    server->to_ring_count -= count;
    for (struct via_list *link; count != 0 && (link = via_list_pop_front(&server->processes));
         count--) {
        struct via_process *process = via_list_entry(link, struct via_process, link);
        if (is_concerned(process)) {
            via_sys_bell_ring(process->bell_fd);
            server->rings_count++;
        }
        via_list_push_back(&server->processes, link);
    }
    if (server->to_ring_count == 0) {
        memset(server->ringing, 0, sizeof(server->ringing));
    }
    return server->to_ring_count != 0 ? host->now_ns : VIA_NEVER_NS;
}

void via_attach_server_changed(struct via_host *host)
{
    struct via_attach_server *server = &host->attach;
    uint64_t any = 0;
    for (unsigned i = 0; i < VIA_ATTACH_INTEREST_WORDS; i++) {
        any |= server->changed[i];
        server->ringing[i] |= server->changed[i];
        server->changed[i] = 0;
    }
    /* After the stores to the status page, before the loads that check which processes watch the
     * words. Pairs with the fence in via_client_watch(). */
    atomic_thread_fence(memory_order_seq_cst);
    if (any != 0) {
        server->to_ring_count = server->processes_count;
        ring_some(host);
    }
    via_attach_server_links_changed(host);
}

uint64_t via_attach_server_tick(struct via_host *host)
{
    uint64_t deadline_ns = via_host_listener_tick(&host->attach.listener);
    deadline_ns = via_min(deadline_ns, ring_some(host));
    deadline_ns = via_min(deadline_ns, via_process_tick(host));
    via_endpoint_tables_reap(host);
    deadline_ns = via_min(deadline_ns, via_segment_reap(host));
    return via_min(deadline_ns, via_attach_server_pending_tick(host));
}
