/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A process attaches; a process ends, by detaching, or by dying during any operation. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "host/client_sys.h"
#include "host/host_private.h"

/* Interval at which this thread polls a closing process that waits for an event without a wake-up.
 */
#define CLOSING_POLL_NS (10 * VIA_MSEC_NS)
/* After this time a turn of the control thread closes one more process, and no others. */
#define CLOSING_TURN_NS (2 * VIA_MSEC_NS)

static void read_comm(struct via_process *process)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/comm", (int)process->pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd >= 0 ? read(fd, process->comm, sizeof(process->comm) - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    if (bytes <= 0) {
        process->comm[0] = '?'; /* the process has ended, or this host has no free descriptor */
        bytes = 1;
    }
    process->comm[bytes] = '\0';
    /* Logs and tables show the name: it becomes one word of plain characters. */
    for (char *c = process->comm; *c != '\0'; c++) {
        if (*c == '\n') {
            *c = '\0';
            break;
        }
        if (*c < ' ' || *c > '~') {
            *c = '?';
        }
    }
}

struct via_process *via_process_new(struct via_host *host, int fd, const struct ucred *peer)
{
    struct via_process *process = calloc(1, sizeof(*process));
    if (process == NULL) {
        return NULL;
    }
    process->host = host;
    process->source.fd = fd;
    process->state = VIA_PROCESS_STRANGER;
    process->pid = peer->pid;
    process->uid = peer->uid;
    process->bell_fd = -1;
    process->memory.fd = -1;
    via_list_init(&process->segments);
    read_comm(process);
    return process;
}

static void free_channels(struct via_process *process)
{
    for (uint32_t i = 0; process->channels != NULL && i < process->channels_count; i++) {
        via_process_channel_fini(&process->channels[i]);
    }
    free(process->channels);
    process->channels = NULL;
}

static void free_process(struct via_host *host, struct via_reap *reap)
{
    (void)host;
    free(via_container_of(reap, struct via_process, reap));
}

/* Shuts the connection down, so that the process notices its end. Returns the socket, which the
 * caller closes. */
static int shut_down_socket(struct via_process *process)
{
    int fd = process->source.fd;
    if (fd >= 0) {
        via_host_source_remove(process->host, &process->source);
        shutdown(fd, SHUT_RDWR);
    }
    return fd;
}

/* Frees everything but the place of the process in lists and tables. */
static void release_resources(struct via_process *process)
{
    process->reap_fds[0] = shut_down_socket(process);
    process->reap_fds[1] = process->bell_fd;
    free_channels(process);
    via_process_kept_free(process);
    process->reap = (struct via_reap){.memory = process->memory,
                                      .fds = process->reap_fds,
                                      .fds_count = VIA_ARRAY_COUNT(process->reap_fds),
                                      .done = free_process};
    via_reaper_add(process->host->reaper, &process->reap);
}

/* --- attaching -------------------------------------------------------------------------------- */

static int allocate(struct via_process *process, struct via_error *err)
{
    const struct via_host *host = process->host;
    uint32_t channels = host->config.channels_count;
    char name[64];
    snprintf(name, sizeof(name), "viaduct-attach-%d", (int)process->pid);
    int rc = via_host_memory_open(
        &process->memory, name, (size_t)channels * host->attach.area_bytes + VIA_ATTACH_TAIL_BYTES,
        false, err);
    if (rc != 0) {
        return rc;
    }
    process->bell_fd = via_sys_bell_new();
    if (process->bell_fd < 0) {
        return via_error_set(err, process->bell_fd, "eventfd: %s", strerror(-process->bell_fd));
    }
    process->channels = calloc(channels, sizeof(*process->channels));
    process->channels_count = channels;
    rc = process->channels == NULL ? -ENOMEM : 0;
    for (uint32_t i = 0; i < channels && rc == 0; i++) {
        rc = via_process_channel_init(process, i);
    }
    return rc != 0 ? via_error_set(err, rc, "pipes: %s", strerror(-rc)) : 0;
}

/* Takes slots in turn, so that a slot is reused as late as possible. */
static int take_slot(struct via_process *process, struct via_error *err)
{
    struct via_attach_server *server = &process->host->attach;
    uint32_t slots = process->host->options.processes_max;
    for (uint32_t i = 0; i < slots; i++) {
        uint32_t slot = (server->slot_next + i) % slots;
        if (server->by_slot[slot] == NULL) {
            server->slot_next = slot + 1;
            server->by_slot[slot] = process;
            process->slot = slot;
            process->number = (server->generations[slot]++ & 0x7fff) << 16 | slot;
            return 0;
        }
    }
    return via_error_set(err, -EMFILE, "%u processes are attached already", slots);
}

static void leave_slot(struct via_process *process)
{
    process->host->attach.by_slot[process->slot] = NULL;
}

static void welcome(struct via_process *process, const struct via_attach_request *request)
{
    struct via_host *host = process->host;
    struct via_attach_server *server = &host->attach;
    uint32_t channels = host->config.channels_count;
    struct via_attach_answer answer;
    via_attach_server_answer_init(host, request, &answer);
    answer.channels_count = (uint16_t)channels;
    process->channel_first = request->channel >= 0 && (uint32_t)request->channel < channels
                                 ? (uint32_t)request->channel
                                 : process->slot % channels;
    answer.channel_first = (uint16_t)process->channel_first;
    answer.flow = process->flow + 1;
    answer.handle = process->order;
    answer.hosts_max = host->config.hosts_max;
    answer.give_up_ns = host->config.give_up_ns;
    answer.area_bytes = server->area_bytes;
    answer.message_bytes_max = server->message_bytes_max;
    answer.command = server->command;
    answer.reply = server->reply;
    const int fds[] = {process->memory.fd, host->status_memory.fd,
                       via_tenant_bells_fd(host, process->tenant), process->bell_fd};
    via_attach_server_answer(process, &answer, fds, VIA_ARRAY_COUNT(fds));
    via_host_memory_close_fd(&process->memory);
}

/* Charges the process to its user for as long as it has a slot. */
static int charge(struct via_process *process, struct via_error *err)
{
    struct via_host *host = process->host;
    int rc = via_tenant_hold(host, process->uid, &process->tenant, err);
    if (rc != 0) {
        return rc;
    }
    rc = via_tenant_add_process(host, process->tenant, host->config.channels_count, err);
    if (rc != 0) {
        via_tenant_release(host, process->tenant);
        process->tenant = NULL;
    }
    return rc;
}

static void uncharge(struct via_process *process)
{
    if (process->flows_tenant != NULL) {
        via_tenant_release(process->host, process->flows_tenant);
        process->flows_tenant = NULL;
    }
    via_tenant_remove_process(process->tenant, process->host->config.channels_count);
    via_tenant_release(process->host, process->tenant);
    process->tenant = NULL;
}

static const struct via_process *find_order(const struct via_list *processes, uint64_t order)
{
    via_list_foreach(it, processes) {
        const struct via_process *process = via_list_entry(it, struct via_process, link);
        if (process->order == order) {
            return process;
        }
    }
    return NULL;
}

/*
 * Chooses the flow of the commands. HELLO may name another process, also one of another user,
 * because a process that has changed its user continues its connections: then the flow is that of
 * the named process. The name is secret, because a user who could guess it would enter the flows of
 * others. If no such process exists, no operation is under way that the commands could overtake.
 */
static int take_flow(struct via_process *process, const struct via_attach_request *request,
                     struct via_error *err)
{
    const struct via_attach_server *server = &process->host->attach;
    uint32_t flows = via_host_flows_shared(process->host);
    const struct via_process *before = NULL;
    if (request->handle != 0) {
        before = find_order(&server->processes, request->handle);
        before = before != NULL ? before : find_order(&server->closing, request->handle);
    }
    if (before != NULL) {
        process->flow = before->flow;
        process->order = before->order;
    } else {
        process->flow = (request->flow != 0 ? request->flow - 1 : process->slot) % flows;
        if (getrandom(&process->order, sizeof(process->order), 0) !=
            (ssize_t)sizeof(process->order)) {
            return via_error_set(err, -EIO, "random number: %s", strerror(errno));
        }
    }
    process->flows_tenant =
        before != NULL && before->flows_tenant != NULL ? before->flows_tenant : process->tenant;
    process->flows_tenant->holds_count++;
    return 0;
}

int via_process_attach(struct via_process *process, const struct via_attach_request *request,
                       struct via_error *err)
{
    struct via_host *host = process->host;
    struct via_attach_server *server = &host->attach;
    int rc = charge(process, err);
    if (rc != 0) {
        return rc;
    }
    rc = take_slot(process, err);
    if (rc != 0) {
        uncharge(process);
        return rc;
    }
    process->late = (request->access & VIA_ATTACH_LATE) != 0;
    rc = take_flow(process, request, err);
    if (rc == 0) {
        rc = allocate(process, err);
    }
    if (rc != 0) {
        free_channels(process);
        leave_slot(process);
        uncharge(process);
        return rc;
    }
    via_list_remove(&process->link);
    server->strangers_count--;
    via_list_push_back(&server->processes, &process->link);
    server->processes_count++;
    server->attached_count++;
    process->state = VIA_PROCESS_ATTACHED;
    for (uint32_t i = 0; i < process->channels_count; i++) {
        via_transfer_post(&host->transfers[i], &process->channels[i].add);
    }
    welcome(process, request);
    via_log(VIA_LOG_DEBUG, "host %u: process %d (%s) attached", host->config.host,
            (int)process->pid, process->comm);
    return 0;
}

/* --- ending ----------------------------------------------------------------------------------- */

/* From now on the transfer threads finish the commands of the process. */
static void end_channels(struct via_process *process)
{
    struct via_host *host = process->host;
    process->queries = false;
    process->deadline_ns = host->now_ns + VIA_ATTACH_DRAIN_NS;
    for (uint32_t i = 0; i < process->channels_count; i++) {
        via_transfer_post(&host->transfers[i], &process->channels[i].end);
    }
}

static void begin_draining(struct via_process *process)
{
    struct via_host *host = process->host;
    struct via_attach_server *server = &host->attach;
    via_log(VIA_LOG_DEBUG, "host %u: process %d (%s) has ended", host->config.host,
            (int)process->pid, process->comm);
    server->processes_count--;
    server->died_count++;
    via_list_push_back(&server->closing, &process->link);
    server->closing_count++;
    process->state = VIA_PROCESS_DRAINING;
    process->deadline_ns = host->now_ns + VIA_ATTACH_KEPT_NS;
    /* From here on no new user reaches the process. */
    via_attach_server_pending_drop(process);
    via_host_aperture_leave(process);
    (void)via_endpoint_close_all_for(process); /* tried again in tick_closing() */
    atomic_store_explicit(&process->channels_left, process->channels_count, memory_order_relaxed);
    process->queries = via_process_kept_begin(process);
    if (!process->queries) {
        end_channels(process);
    }
}

void via_process_leave(struct via_process *process)
{
    struct via_attach_server *server = &process->host->attach;
    if (process->state == VIA_PROCESS_DRAINING || process->state == VIA_PROCESS_SYNCING) {
        return;
    }
    via_list_remove(&process->link);
    if (process->state != VIA_PROCESS_ATTACHED) {
        server->strangers_count--;
        release_resources(process);
        return;
    }
    int fd = shut_down_socket(process);
    via_reaper_add_fds(process->host->reaper, &fd, 1);
    begin_draining(process);
}

/* If all remaining commands are for unreachable hosts, they stay, because only this host can still
 * send them. Other hosts learn now that the process has ended. */
static void leave_stranded(struct via_process *process)
{
    struct via_host *host = process->host;
    process->stranded = true;
    process->deadline_ns = host->now_ns + VIA_ATTACH_STRANDED_NS;
    host->attach.stranded_count++;
    process->tenant->stranded_count++;
    via_segment_leave_all_for(process);
    for (uint32_t i = 0; i < process->channels_count; i++) {
        via_transfer_post(&host->transfers[i], &process->channels[i].strand);
    }
}

static bool is_stranding_possible(const struct via_process *process)
{
    const struct via_host *host = process->host;
    uint32_t stranded_max = host->options.processes_max / VIA_ATTACH_STRANDED_PART;
    return process->late && !process->stranded && host->attach.stranded_count < stranded_max &&
           via_tenant_is_take_allowed(process->tenant, process->tenant->stranded_count,
                                      stranded_max);
}

static void warn_given_up(const struct via_process *process, const char *what)
{
    via_host_warn(process->host, VIA_HOST_WARNS_DETACHED, process->uid,
                  "host %u: process %d (%s) has ended with %s that can not be finished; given up",
                  process->host->config.host, (int)process->pid, process->comm, what);
}

static void cancel_commands(struct via_process *process)
{
    process->cancelled = true;
    process->deadline_ns = VIA_NEVER_NS;
    warn_given_up(process, "commands");
    for (uint32_t i = 0; i < process->channels_count; i++) {
        via_transfer_post(&process->host->transfers[i], &process->channels[i].cancel);
    }
}

/* Queries the neighbours how many of the kept puts they have applied. 0: all have answered, or the
 * time for it has ended. */
static uint64_t tick_queries(struct via_process *process)
{
    const struct via_host *host = process->host;
    uint64_t next_ns = via_process_kept_tick(process);
    if (next_ns != 0 && host->now_ns < process->deadline_ns) {
        return via_min(next_ns, process->deadline_ns);
    }
    if (next_ns != 0) {
        warn_given_up(process, "puts");
        via_attach_server_pending_drop(process);
        via_process_kept_give_up(process);
    }
    end_channels(process);
    return 0;
}

/* Takes one step towards the end of a process. Returns when to call it again. */
static uint64_t tick_closing(struct via_process *process)
{
    struct via_host *host = process->host;
    uint64_t queries_ns = process->queries ? tick_queries(process) : 0;
    if (queries_ns != 0) {
        return queries_ns;
    }
    if (process->state == VIA_PROCESS_DRAINING) {
        /* Pairs with the release in via_process_channel_check_gone(). */
        if (atomic_load_explicit(&process->channels_left, memory_order_acquire) != 0) {
            if (host->now_ns >= process->deadline_ns) {
                (is_stranding_possible(process) ? leave_stranded : cancel_commands)(process);
            }
            return process->deadline_ns;
        }
        host->attach.stranded_count -= process->stranded ? 1 : 0;
        process->tenant->stranded_count -= process->stranded ? 1 : 0;
        process->stranded = false;
        if (via_endpoint_close_all_for(process) != 0) {
            return host->now_ns + CLOSING_POLL_NS; /* out of memory now */
        }
        /* Not earlier: when a peer finds that the memory of the process is gone, everything that
         * the process sent has arrived. */
        via_segment_retire_all_for(process);
        via_segment_forget_all_for(process);
        process->sync = via_host_sync(host);
        process->state = VIA_PROCESS_SYNCING;
    }
    if (!via_host_is_synced(host, process->sync)) {
        return VIA_NEVER_NS; /* the transfer threads poke this thread when they are synced */
    }
    if (!via_segment_is_all_idle_for(process) || !via_host_board_leave(host, process)) {
        return host->now_ns + CLOSING_POLL_NS;
    }
    via_segment_free_all_for(process);
    via_list_remove(&process->link);
    host->attach.closing_count--;
    leave_slot(process);
    uncharge(process);
    release_resources(process);
    return VIA_NEVER_NS;
}

/* Many processes that end at once are closed in several turns. */
static uint64_t tick_all_closing(struct via_host *host)
{
    struct via_attach_server *server = &host->attach;
    uint64_t deadline_ns = VIA_NEVER_NS;
    uint64_t start_ns = via_host_now_ns();
    for (uint32_t left = server->closing_count; left != 0; left--) {
        struct via_list *link = via_list_pop_front(&server->closing);
        via_list_push_back(&server->closing, link);
        deadline_ns =
            via_min(deadline_ns, tick_closing(via_list_entry(link, struct via_process, link)));
        if (via_host_now_ns() - start_ns >= CLOSING_TURN_NS && left > 1) {
            return host->now_ns;
        }
    }
    return deadline_ns;
}

static void detach_broken(struct via_host *host)
{
    via_list_foreach_safe(it, &host->attach.processes) {
        struct via_process *process = via_list_entry(it, struct via_process, link);
        if (atomic_load_explicit(&process->broken, memory_order_relaxed)) {
            via_host_warn(host, VIA_HOST_WARNS_DETACHED, process->uid,
                          "host %u: process %d (%s) is detached: it broke the rules of its pipes",
                          host->config.host, (int)process->pid, process->comm);
            via_process_leave(process);
        }
    }
}

uint64_t via_process_tick(struct via_host *host)
{
    struct via_attach_server *server = &host->attach;
    /* Pairs with the release in via_process_channel_break(). */
    if (atomic_exchange_explicit(&server->has_broken, false, memory_order_acquire)) {
        detach_broken(host);
    }
    uint64_t deadline_ns = tick_all_closing(host);
    via_list_foreach_safe(stranger, &server->strangers) {
        struct via_process *process = via_list_entry(stranger, struct via_process, link);
        if (host->now_ns < process->deadline_ns) {
            deadline_ns = via_min(deadline_ns, process->deadline_ns);
            break;
        }
        via_process_leave(process);
    }
    return deadline_ns;
}

static void free_list(struct via_list *list)
{
    via_list_foreach_safe(it, list) {
        struct via_process *process = via_list_entry(it, struct via_process, link);
        via_list_remove(&process->link);
        via_attach_server_pending_drop(process);
        via_host_aperture_leave(process);
        via_segment_free_all_for(process);
        release_resources(process);
    }
}

void via_process_free_all(struct via_host *host)
{
    free_list(&host->attach.processes);
    free_list(&host->attach.strangers);
    free_list(&host->attach.closing);
}
