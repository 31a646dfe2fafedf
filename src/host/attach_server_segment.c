/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The memory of processes: the node registers it, the host maps it, and each process that presents
 * its handle gets the descriptors to map it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/log.h"
#include "host/host_private.h"

#define SEGMENT_BYTES_MAX (UINT64_C(1) << 46)
/* Time in which other processes notice the owner's end and read the bytes that it left:
 * LINGER_NS_MAX while all lingering segments together have at most LINGER_BYTES_MAX and new
 * segments have room, else LINGER_NS. */
#define LINGER_NS (5 * VIA_SEC_NS)
#define LINGER_BYTES_MAX (64u << 20)
#define LINGER_NS_MAX (600 * VIA_SEC_NS)
#define NODE_ACCESS (VIA_SEGMENT_READ | VIA_SEGMENT_WRITE)
/* Interval at which the host checks whether removed segments are still in use. */
#define REAP_POLL_NS (10 * VIA_MSEC_NS)

static void publish_segment(struct via_host *host, uint64_t handle,
                            struct via_host_segment *segment)
{
    /* Pairs with the acquires in find_segment(), notify() and host_direct.c. */
    atomic_store_explicit(&host->attach.segments[via_segment_handle_index(handle)], segment,
                          memory_order_release);
}

static struct via_host_segment *find_handle(const struct via_host *host, uint64_t handle)
{
    uint16_t index = via_segment_handle_index(handle);
    if (index >= host->config.segments_count) {
        return NULL;
    }
    struct via_host_segment *segment =
        atomic_load_explicit(&host->attach.segments[index], memory_order_relaxed);
    return segment != NULL && segment->handle == handle ? segment : NULL;
}

static void set_life(struct via_host *host, const struct via_host_segment *segment, uint64_t life)
{
    /* Processes load it relaxed: it orders nothing, and only stops their accesses. */
    atomic_store_explicit(&host->attach.lives[via_segment_handle_index(segment->handle)], life,
                          memory_order_relaxed);
}

static int random_key(uint64_t *ret_key)
{
    if (getrandom(ret_key, sizeof(*ret_key), 0) != (ssize_t)sizeof(*ret_key)) {
        return -EIO;
    }
    *ret_key &= (UINT64_C(1) << 48) - 1;
    return 0;
}

static void segment_freed(struct via_host *host, struct via_reap *reap)
{
    (void)host;
    free(via_container_of(reap, struct via_host_segment, reap));
}

/* The segment has left the table, but may still be in use. */
static void charge_removed(struct via_host_segment *segment)
{
    via_tenant_remove_segment(segment->tenant, segment->memory.bytes);
    segment->charge_removed = true;
}

static void free_segment(struct via_host *host, struct via_host_segment *segment)
{
    via_list_remove(&segment->link);
    if (segment->tenant != NULL) {
        via_tenant_free_segment(segment->tenant, segment->memory.bytes, segment->charge_removed);
        via_tenant_release(host, segment->tenant);
        segment->tenant = NULL;
    }
    segment->reap = (struct via_reap){.memory = segment->memory, .done = segment_freed};
    via_reaper_add(host->reaper, &segment->reap);
}

/* --- registering ------------------------------------------------------------------------------ */

static int add_to_node(struct via_host *host, struct via_host_segment *segment, unsigned access,
                       uint64_t key)
{
    return via_node_segment_add(host->node, segment->memory.base, segment->memory.bytes,
                                access & NODE_ACCESS, key, &segment->handle);
}

/* The end of a lingering segment's time while no new segment needs its place. */
static uint64_t linger_end_ns(const struct via_host *host, const struct via_host_segment *segment)
{
    bool few = host->attach.lingering_bytes <= LINGER_BYTES_MAX;
    return segment->lingers_ns + (few ? LINGER_NS_MAX : LINGER_NS);
}

static void end_lingering(struct via_host *host, struct via_host_segment *segment)
{
    host->attach.lingering_bytes -= segment->memory.bytes;
    (void)via_node_segment_remove(host->node, segment->handle); /* the node has it until now */
    segment->sync = via_host_sync(host);
    charge_removed(segment);
    via_list_remove(&segment->link);
    via_list_push_back(&host->attach.removed, &segment->link);
}

static struct via_host_segment *first_lingering(const struct via_host *host)
{
    struct via_list *link = via_list_first(&host->attach.lingering);
    return link != NULL ? via_list_entry(link, struct via_host_segment, link) : NULL;
}

/* Removes segments whose time to linger is over; via_segment_reap() frees them when nothing uses
 * them. Returns the next deadline. */
static uint64_t end_lingering_due(struct via_host *host)
{
    for (struct via_host_segment *segment; (segment = first_lingering(host)) != NULL;) {
        if (linger_end_ns(host, segment) > host->now_ns) {
            return linger_end_ns(host, segment);
        }
        end_lingering(host, segment);
    }
    return VIA_NEVER_NS;
}

/* Removes segments that have lingered since this time or longer. True if there was one. */
static bool end_lingering_since(struct via_host *host, uint64_t since_ns)
{
    bool any = false;
    for (struct via_host_segment *segment;
         (segment = first_lingering(host)) != NULL && segment->lingers_ns <= since_ns;) {
        end_lingering(host, segment);
        any = true;
    }
    return any;
}

/* Removes the lingering segments of a user. True if there was one. */
static bool end_lingering_of(struct via_host *host, const struct via_tenant *tenant)
{
    bool any = false;
    via_list_foreach_safe(it, &host->attach.lingering) {
        struct via_host_segment *segment = via_list_entry(it, struct via_host_segment, link);
        if (segment->tenant == tenant) {
            end_lingering(host, segment);
            any = true;
        }
    }
    return any;
}

/* Charges all bytes to the user of the process. The pages are allocated later, by puts of other
 * hosts, and the kernel charges those to this host's process instead of the user. */
static int charge(struct via_process *process, struct via_host_segment *segment, uint64_t bytes,
                  struct via_error *err)
{
    struct via_host *host = process->host;
    int rc = via_tenant_add_segment(host, process->tenant, bytes, err);
    if (rc == -EDQUOT && end_lingering_of(host, process->tenant)) {
        rc = via_tenant_add_segment(host, process->tenant, bytes, err);
    }
    if (rc != 0) {
        return rc;
    }
    process->tenant->holds_count++;
    segment->tenant = process->tenant;
    return 0;
}

static int add(struct via_process *process, const struct via_attach_request *request,
               struct via_host_segment *segment)
{
    struct via_host *host = process->host;
    uint64_t key;
    int rc = random_key(&key);
    if (rc == 0) {
        rc = add_to_node(host, segment, request->access, key);
    }
    if (rc == -ENOSPC && (end_lingering_since(host, host->now_ns - LINGER_NS) ||
                          end_lingering_since(host, VIA_NEVER_NS))) {
        rc = add_to_node(host, segment, request->access, key);
    }
    if (rc != 0) {
        return rc;
    }
    segment->process = process;
    segment->access = request->access;
    via_list_push_back(&process->segments, &segment->link);
    process->segments_count++;
    process->segments_bytes += segment->memory.bytes;
    segment->life = ++host->attach.life_last;
    set_life(host, segment, segment->life);
    publish_segment(host, segment->handle, segment);
    return 0;
}

static int check_request(const struct via_process *process,
                         const struct via_attach_request *request, unsigned fds_count)
{
    if (fds_count != 1 || request->bytes == 0 || request->bytes > SEGMENT_BYTES_MAX ||
        (request->access & ~(NODE_ACCESS | VIA_ATTACH_SEGMENT_LINGER)) != 0) {
        return -EINVAL;
    }
    return process->segments_count < VIA_ATTACH_SEGMENTS_MAX ? 0 : -ENOSPC;
}

static int take_memory(struct via_process *process, struct via_host_segment *segment, int *fds,
                       uint64_t bytes, struct via_error *err)
{
    int rc = charge(process, segment, bytes, err);
    if (rc != 0) {
        return rc;
    }
    rc = via_host_memory_adopt(&segment->memory, fds[0], bytes, err);
    if (rc != 0) {
        via_tenant_free_segment(segment->tenant, bytes, false);
        via_tenant_release(process->host, segment->tenant);
        return rc;
    }
    fds[0] = -1; /* the segment owns it now */
    via_list_init(&segment->link);
    return 0;
}

int via_segment_add_for(struct via_process *process, const struct via_attach_request *request,
                        int *fds, unsigned fds_count)
{
    int rc = check_request(process, request, fds_count);
    if (rc != 0) {
        return rc;
    }
    struct via_host_segment *segment = calloc(1, sizeof(*segment));
    if (segment == NULL) {
        return -ENOMEM;
    }
    struct via_error err;
    rc = take_memory(process, segment, fds, request->bytes, &err);
    if (rc != 0) {
        via_host_warn(process->host, rc == -EDQUOT ? VIA_HOST_WARNS_QUOTA : VIA_HOST_WARNS_MEMORY,
                      process->uid, "host %u: process %d (%s): %s", process->host->config.host,
                      (int)process->pid, process->comm, err.text);
        via_attach_server_refuse(process, request, rc, err.text);
        free(segment);
        return 0; /* answered */
    }
    rc = add(process, request, segment);
    if (rc != 0) {
        free_segment(process->host, segment);
        return rc;
    }
    struct via_attach_answer answer;
    via_attach_server_answer_init(process->host, request, &answer);
    answer.handle = segment->handle;
    answer.bytes = request->bytes;
    via_attach_server_answer(process, &answer, NULL, 0);
    return 0;
}

/* --- removing --------------------------------------------------------------------------------- */

static bool is_idle(const struct via_host *host, const struct via_host_segment *segment)
{
    /* Pairs with the release in unborrow(). */
    return atomic_load_explicit(&segment->borrowed, memory_order_acquire) == 0 &&
           via_node_segment_is_idle(host->node, segment->handle);
}

static void retire(struct via_host *host, struct via_host_segment *segment)
{
    /* First of all: when frames are answered with "segment gone", the life page must already show
     * it. */
    set_life(host, segment, 0);
    via_host_aperture_gone(host, segment->handle);
    /* Never -ENOENT: the node has the segment until it is retired, which happens once. */
    int rc = via_node_segment_retire(host->node, segment->handle);
    if (rc != 0) {
        via_log(VIA_LOG_ERROR, "host %u: the node does not know segment %#llx: %s",
                host->config.host, (unsigned long long)segment->handle, strerror(-rc));
    }
}

/* Another segment may get the number from now on. An earlier release would let the two share the
 * table's entry. */
static void forget(struct via_host *host, const struct via_host_segment *segment)
{
    publish_segment(host, segment->handle, NULL);
    (void)via_node_segment_remove(host->node, segment->handle); /* the node has retired it before */
}

static void remove_segment(struct via_host *host, struct via_host_segment *segment)
{
    retire(host, segment);
    forget(host, segment);
    via_list_remove(&segment->link);
    segment->sync = via_host_sync(host);
    charge_removed(segment);
    via_list_push_back(&host->attach.removed, &segment->link);
}

struct via_host_segment *via_segment_find_own(const struct via_process *process, uint64_t handle)
{
    struct via_host_segment *segment = find_handle(process->host, handle);
    return segment != NULL && segment->process == process ? segment : NULL;
}

int via_segment_remove_for(struct via_process *process, uint64_t handle)
{
    struct via_host *host = process->host;
    struct via_host_segment *segment = via_segment_find_own(process, handle);
    if (segment == NULL) {
        return -ENOENT;
    }
    process->segments_count--;
    process->segments_bytes -= segment->memory.bytes;
    remove_segment(host, segment);
    return 0;
}

uint64_t via_segment_reap(struct via_host *host)
{
    uint64_t deadline_ns = end_lingering_due(host);
    via_list_foreach_safe(it, &host->attach.removed) {
        struct via_host_segment *segment = via_list_entry(it, struct via_host_segment, link);
        if (via_host_is_synced(host, segment->sync) && is_idle(host, segment)) {
            free_segment(host, segment);
        } else {
            deadline_ns = via_min(deadline_ns, host->now_ns + REAP_POLL_NS);
        }
    }
    return deadline_ns;
}

/* Called after the transfer threads have ended. */
void via_segment_free_all(struct via_host *host)
{
    via_list_splice_back(&host->attach.removed, &host->attach.lingering);
    via_list_foreach_safe(it, &host->attach.removed) {
        free_segment(host, via_list_entry(it, struct via_host_segment, link));
    }
}

/* The segment has no owner any more, and only processes with its handle can read it. */
static void linger(struct via_host *host, struct via_host_segment *segment)
{
    set_life(host, segment, 0);
    via_host_aperture_gone(host, segment->handle);
    /* the node has it */
    (void)via_node_segment_limit(host->node, segment->handle, VIA_SEGMENT_READ);
    publish_segment(host, segment->handle, NULL);
    segment->lingers_ns = host->now_ns;
    host->attach.lingering_bytes += segment->memory.bytes;
    via_host_memory_close_fd(&segment->memory); /* no further process can map it */
    via_list_remove(&segment->link);
    via_list_push_back(&host->attach.lingering, &segment->link);
}

/* A process ends in three steps. First no new user reaches its memory, which its last commands
 * still use. Then the threads forget the memory. Then it is unmapped. */
void via_segment_retire_all_for(struct via_process *process)
{
    via_list_foreach_safe(it, &process->segments) {
        struct via_host_segment *segment = via_list_entry(it, struct via_host_segment, link);
        if ((segment->access & VIA_ATTACH_SEGMENT_LINGER) != 0) {
            linger(process->host, segment);
        } else {
            retire(process->host, segment);
        }
    }
}

/* Removes all segments except those that its commands read and no other process reaches. */
void via_segment_leave_all_for(struct via_process *process)
{
    via_list_foreach_safe(it, &process->segments) {
        struct via_host_segment *segment = via_list_entry(it, struct via_host_segment, link);
        if ((segment->access & VIA_ATTACH_SEGMENT_LINGER) != 0) {
            linger(process->host, segment);
        } else if (segment->access != 0) {
            remove_segment(process->host, segment);
        }
    }
}

void via_segment_forget_all_for(struct via_process *process)
{
    via_list_foreach(it, &process->segments) {
        forget(process->host, via_list_entry(it, struct via_host_segment, link));
    }
}

bool via_segment_is_all_idle_for(const struct via_process *process)
{
    via_list_foreach(it, &process->segments) {
        if (!is_idle(process->host, via_list_entry(it, struct via_host_segment, link))) {
            return false;
        }
    }
    return true;
}

void via_segment_free_all_for(struct via_process *process)
{
    via_list_foreach_safe(it, &process->segments) {
        free_segment(process->host, via_list_entry(it, struct via_host_segment, link));
    }
}

/* --- mapping ---------------------------------------------------------------------------------- */

#define MAP_FDS_COUNT 3u

/* The descriptors for a process that may map the segment: {memory, bell, life page}. *ret_own: the
 * caller closes the first one. */
static int pass_on(const struct via_host *host, const struct via_host_segment *segment,
                   int ret_fds[MAP_FDS_COUNT], bool *ret_own)
{
    *ret_own = false;
    ret_fds[0] = segment->memory.fd;
    ret_fds[1] = segment->process->bell_fd;
    ret_fds[2] = host->attach.life_memory.fd;
    if ((segment->access & VIA_SEGMENT_WRITE) != 0) {
        return 0;
    }
    /* A read-only descriptor can be reopened for writing through /proc/self/fd, because the mode of
     * a memfd admits all users. Only the seal prevents that. The seal also binds the owner, which
     * keeps the mapping that it has, as does this host. If the owner has sealed the memfd against
     * further seals, all accesses are sent in frames. */
    int seals = fcntl(segment->memory.fd, F_GET_SEALS);
    if (seals < 0 || ((seals & F_SEAL_FUTURE_WRITE) == 0 &&
                      fcntl(segment->memory.fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) != 0)) {
        return -EXDEV;
    }
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", segment->memory.fd);
    ret_fds[0] = open(path, O_RDONLY | O_CLOEXEC);
    if (ret_fds[0] < 0) {
        return -errno;
    }
    *ret_own = true;
    return 0;
}

/* Finds a segment that may be mapped. Refusals are counted. */
static int find_mappable(struct via_host *host, uint64_t handle,
                         struct via_host_segment **ret_segment)
{
    struct via_host_segment *segment = find_handle(host, handle);
    if (segment == NULL || segment->access == 0 ||
        segment->process->state != VIA_PROCESS_ATTACHED) {
        host->attach.maps_refused_count++;
        return -EACCES;
    }
    /* A mapping that can be written can also be read on some architectures, among them x86
     * (mmap(2): PROT_WRITE may imply PROT_READ). So a segment that may not be read is accessed by
     * frames, which are checked. */
    if ((segment->access & VIA_SEGMENT_READ) == 0) {
        return -EXDEV;
    }
    host->attach.maps_count++;
    *ret_segment = segment;
    return 0;
}

int via_segment_find_exposable(struct via_host *host, uint64_t handle,
                               const struct via_host_segment **ret_segment)
{
    struct via_host_segment *segment = NULL;
    int rc = find_mappable(host, handle, &segment);
    if (rc != 0) {
        return rc;
    }
    if ((segment->access & VIA_SEGMENT_WRITE) == 0) {
        return -EXDEV;
    }
    *ret_segment = segment;
    return 0;
}

static int map_own(struct via_process *process, const struct via_attach_request *request)
{
    struct via_host_segment *segment = NULL;
    int fds[MAP_FDS_COUNT];
    bool own = false;
    int rc = find_mappable(process->host, request->handle, &segment);
    if (rc == 0) {
        rc = pass_on(process->host, segment, fds, &own);
    }
    if (rc != 0) {
        return rc;
    }
    struct via_attach_answer answer;
    via_attach_server_answer_init(process->host, request, &answer);
    answer.handle = request->handle;
    answer.bytes = segment->memory.bytes;
    answer.life = segment->life;
    via_attach_server_answer(process, &answer, fds, MAP_FDS_COUNT);
    if (own) {
        close(fds[0]);
    }
    return 0;
}

int via_segment_map_for(struct via_process *process, const struct via_attach_request *request)
{
    if (request->host >= process->host->config.hosts_max) {
        return -EHOSTUNREACH;
    }
    return request->host == process->host->config.host
               ? map_own(process, request)
               : via_attach_server_send_request(process, request, VIA_ATTACH_MAP_NS);
}

/* [cable] A neighbour requests the memory of one of this host's processes. */
void via_attach_server_map_requested(struct via_host_cable *cable,
                                     const struct via_cable_message *message)
{
    struct via_host *host = cable->host;
    struct via_host_segment *segment = NULL;
    int fds[MAP_FDS_COUNT];
    bool own = false;
    int rc = cable->direct ? find_mappable(host, message->handle, &segment) : -EXDEV;
    if (rc == 0) {
        rc = pass_on(host, segment, fds, &own);
    }
    if (rc == -EACCES) {
        via_host_warn(host, VIA_HOST_WARNS_MAP, cable->index,
                      "host %u: host %d may not map segment %u: no such handle", host->config.host,
                      via_host_cable_peer(cable), via_segment_handle_index(message->handle));
    }
    struct via_cable_message answer = {
        .magic = VIA_CABLE_MAGIC,
        .type = VIA_CABLE_MAP_ANSWER,
        .id = message->id,
        .status = rc,
        .handle = message->handle,
        .bytes = rc == 0 ? segment->memory.bytes : 0,
        .life = rc == 0 ? segment->life : 0,
    };
    /* If the answer can not be sent, the link is down or the neighbour does not receive: its
     * request times out. */
    int sent =
        via_host_cable_send(cable, &answer, sizeof(answer), fds, rc == 0 ? MAP_FDS_COUNT : 0);
    if (sent != 0) {
        via_host_warn(host, VIA_HOST_WARNS_MAP, cable->index, "host %u: %s: answer: %s",
                      host->config.host, via_host_cable_describe(cable).text, strerror(-sent));
    }
    if (own) {
        close(fds[0]);
    }
}

/* [cable] A neighbour has answered such a request. */
void via_attach_server_map_answered(struct via_host_cable *cable,
                                    const struct via_cable_message *message, int *fds,
                                    unsigned nfds)
{
    struct via_link_status link;
    if (via_node_link_status(cable->host->node, cable->index, &link) != 0) {
        return;
    }
    int status = message->status;
    if (status == 0 && nfds != MAP_FDS_COUNT) {
        status = -EPROTO;
    } else if (status > 0 || status < -4095) {
        status = -EPROTO;
    }
    struct via_attach_answer answer = {
        .type = VIA_ATTACH_MAP,
        .handle = message->handle,
        .bytes = message->bytes,
        .life = message->life,
        .status = status,
    };
    via_attach_server_answered(cable->host, message->id, link.peer, &answer, fds,
                               status == 0 ? nfds : 0);
}
