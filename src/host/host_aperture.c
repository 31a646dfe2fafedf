/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/host_aperture.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/log.h"
#include "base/mutant.h"
#include "host/host_private.h"

/* Time in which the owner's host answers. After that its link counts as one without slices. */
#define REQUEST_NS VIA_SEC_NS
/* ... for SILENCE_NS_MIN at first. Each further missing answer doubles this time. */
#define SILENCE_NS_MIN VIA_SEC_NS
#define SILENCE_NS_MAX (60 * VIA_SEC_NS)
/* Interval at which the host polls busy words of slices that it takes away. */
#define SETTLE_NS VIA_MSEC_NS

static bool is_up(const struct via_host *host, const struct via_host_slices *slices,
                  struct via_link_status *ret_link)
{
    return slices->port != NULL && via_node_link_status(host->node, slices->link, ret_link) == 0 &&
           ret_link->state == VIA_LINK_UP && ret_link->peer_link != 0;
}

/* The link through which processes store into memory of processes of `peer`; NULL: none. */
static struct via_host_slices *find_link(const struct via_host *host, uint16_t peer)
{
    for (unsigned i = 0; host->aperture.links != NULL && i < host->cables_count; i++) {
        struct via_host_slices *slices = &host->aperture.links[i];
        struct via_link_status link;
        if (is_up(host, slices, &link) && link.peer == peer) {
            return slices;
        }
    }
    return NULL;
}

bool via_host_aperture_is_offered(const struct via_host *host, unsigned index,
                                  const struct via_link_status *link)
{
    return host->aperture.links != NULL && host->aperture.links[index].port != NULL &&
           link->state == VIA_LINK_UP && link->peer_link != 0;
}

static void set_silent(const struct via_host *host, struct via_host_slices *slices)
{
    slices->silence_ns = via_min(via_max(2 * slices->silence_ns, SILENCE_NS_MIN), SILENCE_NS_MAX);
    slices->silent_until_ns = host->now_ns + slices->silence_ns;
}

/* The link that a message of host `source` is about; NULL: there is no such link. */
static struct via_host_slices *link_of(struct via_host *host, uint16_t source,
                                       const struct via_aperture_message *message)
{
    struct via_link_status link;
    if (message->link == 0 || message->link > host->cables_count) {
        return NULL;
    }
    struct via_host_slices *slices = &host->aperture.links[message->link - 1];
    bool same = is_up(host, slices, &link) && link.peer == source &&
                link.peer_link == message->from && message->slice < slices->port->count;
    return same ? slices : NULL;
}

static int send_message(struct via_host *host, const struct via_host_slices *slices,
                        enum via_host_message_kind kind, struct via_aperture_message *message)
{
    struct via_link_status link;
    if (!is_up(host, slices, &link)) {
        return -EXDEV;
    }
    message->link = link.peer_link;
    message->from = slices->link + 1;
    return via_host_message_send(host, &via_host_aperture_service, kind, link.peer, message,
                                 sizeof(*message));
}

/* --- the importer: users ---------------------------------------------------------------------- */

static struct via_host_slice_users *users_of(struct via_process *process)
{
    if (process->slice_users != NULL) {
        return process->slice_users;
    }
    struct via_host_slice_users *users = calloc(1, sizeof(*users));
    const struct via_slice_busy *busy =
        (const struct via_slice_busy *)(const void *)((const unsigned char *)process->memory.base +
                                                      (size_t)process->channels_count *
                                                          process->host->attach.area_bytes);
    for (uint32_t i = 0; users != NULL && i < VIA_ATTACH_SLICES_MAX; i++) {
        via_slice_user_init(&users->users[i].user, process->uid, &busy[i].word);
    }
    process->slice_users = users;
    return users;
}

static void take_away(struct via_host_slices *slices, uint32_t slice, bool gone)
{
    slices->requested_count -= slices->table.entries[slice].state == VIA_SLICE_REQUESTED;
    via_slice_table_revoke(&slices->table, slice, gone);
    slices->leaving = true;
}

/* Makes room for a process that uses slices of many links. It gives up the oldest slice through
 * which no process of another user stores. */
static void evict_oldest(struct via_host_slice_users *users)
{
    for (uint32_t i = 0; i < VIA_ATTACH_SLICES_MAX; i++) {
        struct via_host_slice_user *user = &users->users[users->oldest];
        users->oldest = (users->oldest + 1) % VIA_ATTACH_SLICES_MAX;
        if (user->user.slice != VIA_SLICE_NONE &&
            via_slice_table_is_only_of(&user->link->table, user->user.slice, user->user.uid)) {
            user->link->table.evicted_count++;
            take_away(user->link, user->user.slice, false);
            return;
        }
    }
}

static uint32_t free_user(const struct via_host_slice_users *users)
{
    for (uint32_t i = 0; i < VIA_ATTACH_SLICES_MAX; i++) {
        if (users->users[i].user.slice == VIA_SLICE_NONE) {
            return i;
        }
    }
    return VIA_SLICE_NONE;
}

/* Lets the process store through an open slice. *ret_busy: the index of its busy word. -EAGAIN,
 * -ENOMEM. */
static int join(struct via_process *process, struct via_host_slices *slices, uint32_t slice,
                uint32_t *ret_busy)
{
    struct via_host_slice_users *users = users_of(process);
    if (users == NULL) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < VIA_ATTACH_SLICES_MAX; i++) {
        if (users->users[i].link == slices && users->users[i].user.slice == slice) {
            *ret_busy = i;
            return 0;
        }
    }
    uint32_t index = free_user(users);
    if (index == VIA_SLICE_NONE) {
        evict_oldest(users);
        index = free_user(users);
    }
    if (index == VIA_SLICE_NONE) {
        return -EAGAIN;
    }
    users->users[index].link = slices;
    via_slice_table_join(&slices->table, slice, &users->users[index].user);
    *ret_busy = index;
    return 0;
}

static uint64_t bursts_of(const struct via_process *process)
{
    uint64_t bursts = 0;
    for (uint32_t i = 0; process->slice_users != NULL && i < VIA_ATTACH_SLICES_MAX; i++) {
        bursts +=
            atomic_load_explicit(process->slice_users->users[i].user.busy, memory_order_relaxed) >>
            16;
    }
    return bursts;
}

void via_host_aperture_leave(struct via_process *process)
{
    struct via_host_slice_users *users = process->slice_users;
    if (users == NULL) {
        return;
    }
    process->host->aperture.bursts_ended += bursts_of(process);
    for (uint32_t i = 0; i < VIA_ATTACH_SLICES_MAX; i++) {
        if (users->users[i].user.slice != VIA_SLICE_NONE) {
            users->users[i].link->leaving = true;
            via_slice_table_leave(&users->users[i].link->table, &users->users[i].user);
        }
    }
    free(users);
    process->slice_users = NULL;
}

uint64_t via_host_aperture_bursts(const struct via_host *host)
{
    uint64_t bursts = host->aperture.bursts_ended;
    via_list_foreach(it, &host->attach.processes) {
        bursts += bursts_of(via_list_entry(it, struct via_process, link));
    }
    return bursts;
}

/* --- the importer: answering processes -------------------------------------------------------- */

/* Fills in the answer with an open slice for this process. 0 or negative errno. */
static int describe(struct via_process *process, struct via_host_slices *slices, uint32_t slice,
                    struct via_attach_answer *ret_answer, int *ret_fd)
{
    const struct via_port_slices *port = slices->port;
    const struct via_host_slice *mine = &slices->slices[slice];
    struct via_attach_slice shown = {
        .off = slices->table.entries[slice].piece.index * port->slice_bytes,
        .bytes = mine->bytes,
        .slice_bytes = port->slice_bytes,
        .life = mine->exposure,
        .word = slices->word_first + slice,
        .link = slices->link,
        .read_ns = port->read_ns,
        .flags = (port->combines ? VIA_ATTACH_SLICE_COMBINES : 0) |
                 (port->imitates ? VIA_ATTACH_SLICE_IMITATES : 0),
    };
    int rc = port->ops->map(slices->port, slice, mine->exposure, ret_fd, &shown.fd_off);
    if (rc != 0) {
        return rc == -EAGAIN ? rc : -EXDEV;
    }
    rc = join(process, slices, slice, &shown.busy);
    if (rc == 0) {
        ret_answer->value_bytes = sizeof(shown);
        memcpy(ret_answer->value, &shown, sizeof(shown));
    }
    return rc;
}

static bool is_waiting_for(const struct via_attach_pending *pending,
                           const struct via_host_slices *slices, uint32_t slice)
{
    return pending->type == VIA_ATTACH_SLICE && pending->slices == slices &&
           pending->slice == slice;
}

/* Answers all processes that wait for the slice: with it, or with the status. */
static void answer_all(struct via_host *host, struct via_host_slices *slices, uint32_t slice,
                       int status)
{
    via_list_foreach_safe(it, &host->attach.pending) {
        const struct via_attach_pending *pending =
            via_list_entry(it, struct via_attach_pending, link);
        struct via_attach_answer answer = {.type = VIA_ATTACH_SLICE, .status = status};
        int fd = -1;
        if (!is_waiting_for(pending, slices, slice)) {
            continue;
        }
        if (status == 0) {
            answer.status = describe(pending->process, slices, slice, &answer, &fd);
        }
        via_attach_server_answered(host, pending->id, pending->peer, &answer, &fd,
                                   answer.status == 0 ? 1 : 0);
    }
}

static int answer_now(struct via_process *process, struct via_host_slices *slices, uint32_t slice,
                      const struct via_attach_request *request)
{
    struct via_attach_answer answer;
    int fd = -1;
    via_attach_server_answer_init(process->host, request, &answer);
    int rc = describe(process, slices, slice, &answer, &fd);
    if (rc == 0) {
        via_attach_server_answer(process, &answer, &fd, 1);
    }
    return rc;
}

/* --- the importer: requests ------------------------------------------------------------------ */

static struct via_slice_piece piece_of(const struct via_host_slices *slices,
                                       const struct via_attach_request *request)
{
    return (struct via_slice_piece){.handle = request->handle,
                                    .index = request->bytes / slices->port->slice_bytes};
}

/* Through a slice of a hardware window a process could reach the pipes of the hosts, and slices of
 * other processes. So only the daemon's user and root may map one. */
static bool is_map_allowed(const struct via_process *process, const struct via_host_slices *slices)
{
    return !slices->port->shares_window || process->uid == geteuid() || process->uid == 0;
}

int via_host_aperture_request(struct via_process *process, const struct via_attach_request *request)
{
    struct via_host_slices *slices = find_link(process->host, request->host);
    if (slices == NULL || !is_map_allowed(process, slices)) {
        return -EXDEV;
    }
    struct via_slice_piece piece = piece_of(slices, request);
    uint32_t slice = via_slice_table_find(&slices->table, &piece);
    if (slice != VIA_SLICE_NONE && slices->table.entries[slice].state == VIA_SLICE_OPEN) {
        return answer_now(process, slices, slice, request);
    }
    return via_attach_server_send_request(process, request, 2 * REQUEST_NS);
}

/* The slice is REQUESTED and no process uses it yet. */
static int request_exposure(struct via_host *host, struct via_host_slices *slices, uint32_t slice)
{
    struct via_host_slice *mine = &slices->slices[slice];
    const struct via_slice_piece *piece = &slices->table.entries[slice].piece;
    *mine = (struct via_host_slice){.exposure = ++host->aperture.exposure_last,
                                    .deadline_ns = host->now_ns + REQUEST_NS,
                                    .mapped = mine->mapped};
    struct via_aperture_message message = {
        .type = VIA_APERTURE_EXPOSE,
        .slice = slice,
        .exposure = mine->exposure,
        .handle = piece->handle,
        .piece = piece->index,
        .bytes = slices->port->slice_bytes,
    };
    return send_message(host, slices, VIA_HOST_MESSAGE_REQUESTS, &message);
}

/* Number of slices, of all links, that were requested from owners for this user. */
static uint32_t requested_by(const struct via_host *host, uid_t uid)
{
    uint32_t count = 0;
    for (unsigned i = 0; i < host->cables_count; i++) {
        const struct via_host_slices *slices = &host->aperture.links[i];
        if (slices->port != NULL && slices->requested_count != 0) {
            count += via_slice_table_requested_count(&slices->table, uid);
        }
    }
    return count;
}

int via_host_aperture_send_request(struct via_host *host, struct via_attach_pending *pending,
                                   const struct via_attach_request *request)
{
    struct via_host_slices *slices = find_link(host, pending->peer);
    if (slices == NULL) {
        return -EXDEV;
    }
    struct via_slice_piece piece = piece_of(slices, request);
    pending->slices = slices;
    pending->slice = via_slice_table_find(&slices->table, &piece);
    if (pending->slice != VIA_SLICE_NONE) {
        return 0;
    }
    if (host->now_ns < slices->silent_until_ns) {
        return -EAGAIN; /* the processes repeat their requests */
    }
    if (!via_tenant_is_take_allowed(pending->tenant, requested_by(host, pending->process->uid),
                                    VIA_HOST_REQUESTS_MAX)) {
        return -EAGAIN;
    }
    slices->leaving = true; /* an evicted slice may not be free yet */
    int rc = via_slice_table_take(&slices->table, &piece, pending->process->uid, host->now_ns,
                                  &pending->slice);
    if (rc != 0) {
        return rc;
    }
    slices->requested_count++;
    rc = request_exposure(host, slices, pending->slice);
    if (rc != 0) {
        take_away(slices, pending->slice, false);
    }
    return rc;
}

/* The owner does not provide the requested piece. */
static void give_up(struct via_host *host, struct via_host_slices *slices, uint32_t slice,
                    int status)
{
    take_away(slices, slice, false);
    answer_all(host, slices, slice, status);
}

/* Opens a slice that the owner has exposed, if the memory that a process maps exists at this host
 * as well. */
static void try_open(struct via_host *host, struct via_host_slices *slices, uint32_t slice)
{
    struct via_host_slice *mine = &slices->slices[slice];
    uint64_t off;
    int fd;
    int rc = slices->port->ops->map(slices->port, slice, mine->exposure, &fd, &off);
    if (rc == -EAGAIN) {
        return; /* the port wakes this thread when the memory arrives */
    }
    if (rc != 0) {
        give_up(host, slices, slice, -EXDEV);
        return;
    }
    mine->mapped = true;
    slices->requested_count--;
    slices->opened_count++;
    via_slice_table_open(&slices->table, slice, mine->exposure, host->now_ns);
    answer_all(host, slices, slice, 0);
}

static bool is_requested(const struct via_host_slices *slices,
                         const struct via_aperture_message *message)
{
    /* The link may have been removed meanwhile, and another link may have its index. */
    return slices->port != NULL && message->slice < slices->port->count &&
           slices->table.entries[message->slice].state == VIA_SLICE_REQUESTED &&
           slices->slices[message->slice].exposure == message->exposure;
}

/* The error that a process gets for the owner's refusal. */
static int status_of(const struct via_aperture_message *message)
{
    return message->status == -EACCES || message->status == -EAGAIN ? message->status : -EXDEV;
}

static void answered(struct via_host *host, uint16_t source,
                     const struct via_aperture_message *message)
{
    struct via_host_slices *slices = link_of(host, source, message);
    if (slices == NULL || !is_requested(slices, message)) {
        return; /* given up meanwhile, or never requested */
    }
    struct via_host_slice *mine = &slices->slices[message->slice];
    bool sound = message->bytes != 0 && message->bytes <= slices->port->slice_bytes;
    if (message->status != 0 || (!sound && !VIA_MUTANT(APERTURE_BYTES))) {
        give_up(host, slices, message->slice, status_of(message));
        return;
    }
    slices->silence_ns = 0;
    mine->answered = true;
    mine->bytes = message->bytes;
    try_open(host, slices, message->slice);
}

static void on_gone(struct via_host *host, uint16_t source,
                    const struct via_aperture_message *message)
{
    struct via_host_slices *slices = link_of(host, source, message);
    if (slices == NULL || slices->slices[message->slice].exposure != message->exposure) {
        return;
    }
    enum via_slice_state state = slices->table.entries[message->slice].state;
    if (state == VIA_SLICE_OPEN || state == VIA_SLICE_REQUESTED) {
        slices->gone_count++;
        take_away(slices, message->slice, true);
        answer_all(host, slices, message->slice, -EACCES);
    }
}

/* --- the owner -------------------------------------------------------------------------------- */

static int expose(struct via_host *host, uint16_t source,
                  const struct via_aperture_message *message, struct via_aperture_message *ret)
{
    struct via_host_slices *slices = link_of(host, source, message);
    const struct via_host_segment *segment = NULL;
    if (slices == NULL || message->bytes != slices->port->slice_bytes || message->exposure == 0) {
        return -EXDEV;
    }
    struct via_port_slices *port = slices->port;
    struct via_host_exposure *exposure = &slices->exposures[message->slice];
    /* The importer no longer uses the piece that the slice showed. */
    *exposure = (struct via_host_exposure){0};
    int rc = via_segment_find_exposable(host, message->handle, &segment);
    if (rc != 0) {
        return rc;
    }
    if (message->piece > (segment->memory.bytes - 1) / port->slice_bytes) {
        return -ERANGE;
    }
    uint64_t off = message->piece * port->slice_bytes;
    ret->bytes = via_min(port->slice_bytes, segment->memory.bytes - off);
    rc = port->ops->expose(port, message->slice, message->exposure, segment->memory.fd, off,
                           ret->bytes);
    if (rc == 0) {
        *exposure =
            (struct via_host_exposure){.handle = message->handle, .exposure = message->exposure};
        slices->exposed_count++;
    }
    return rc;
}

/* False: there is no room for the answer now, so the request of this host waits. */
static bool take_expose(struct via_host *host, uint16_t source,
                        const struct via_aperture_message *message)
{
    struct via_aperture_message answer = {
        .type = VIA_APERTURE_ANSWER,
        .link = message->from,
        .from = message->link,
        .slice = message->slice,
        .exposure = message->exposure,
    };
    int room = via_host_message_room(host, source);
    if (room <= 0) {
        return room < 0;
    }
    answer.status = expose(host, source, message, &answer);
    if (answer.status != 0) {
        struct via_host_slices *slices = link_of(host, source, message);
        answer.bytes = 0;
        if (slices != NULL) {
            slices->exposed_refused_count++;
            slices->port->ops->conceal(slices->port, message->slice);
        }
    }
    return via_host_message_send(host, &via_host_aperture_service, VIA_HOST_MESSAGE_ANSWERS, source,
                                 &answer, sizeof(answer)) == 0;
}

void via_host_aperture_gone(struct via_host *host, uint64_t handle)
{
    for (unsigned i = 0; host->aperture.links != NULL && i < host->cables_count; i++) {
        struct via_host_slices *slices = &host->aperture.links[i];
        for (uint32_t k = 0; slices->port != NULL && k < slices->port->count; k++) {
            struct via_host_exposure *exposure = &slices->exposures[k];
            if (exposure->handle == handle) {
                exposure->handle = 0;
                exposure->gone = true;
                slices->gone_due = true;
                slices->port->ops->conceal(slices->port, k);
            }
        }
    }
}

/* Notifies the importer of segments that have gone; false: some notifications are still to be
 * sent. */
static bool send_gone(struct via_host *host, struct via_host_slices *slices)
{
    for (uint32_t k = 0; k < slices->port->count; k++) {
        struct via_host_exposure *exposure = &slices->exposures[k];
        struct via_aperture_message message = {
            .type = VIA_APERTURE_GONE, .slice = k, .exposure = exposure->exposure};
        if (exposure->gone &&
            send_message(host, slices, VIA_HOST_MESSAGE_REQUESTS, &message) == -EAGAIN) {
            return false;
        }
        exposure->gone = false;
    }
    return true;
}

/* --- messages --------------------------------------------------------------------------------- */

static bool arrived(struct via_host *host, uint16_t source, const void *data, uint32_t bytes)
{
    const struct via_aperture_message *message = data;
    (void)bytes; /* bytes_min and bytes_max of the service are the size of a message */
    switch (message->type) {
    case VIA_APERTURE_EXPOSE:
        return take_expose(host, source, message);
    case VIA_APERTURE_ANSWER:
        answered(host, source, message);
        return true;
    case VIA_APERTURE_GONE:
        on_gone(host, source, message);
        return true;
    default:
        return true;
    }
}

/* The notification that a segment was freed could not be sent. Schedules it again if the link is
 * the same and the slice shows no other piece. */
static void resend_gone(struct via_host_slices *slices, const struct via_aperture_message *message)
{
    struct via_host_exposure *exposure = &slices->exposures[message->slice];
    if (exposure->exposure == message->exposure && exposure->handle == 0) {
        exposure->gone = true;
        slices->gone_due = true;
    }
}

static void ended(struct via_host *host, uint16_t destination, const void *data, int status)
{
    const struct via_aperture_message *message = data;
    if (status == 0 || message->from == 0 || message->from > host->cables_count) {
        return;
    }
    struct via_host_slices *slices = &host->aperture.links[message->from - 1];
    if (message->type == VIA_APERTURE_EXPOSE && is_requested(slices, message)) {
        via_log(VIA_LOG_DEBUG, "host %u: link %u: host %u did not take a request for a slice: %s",
                host->config.host, slices->link, destination, strerror(-status));
        set_silent(host, slices);
        give_up(host, slices, message->slice, -EAGAIN);
    } else if (message->type == VIA_APERTURE_GONE && slices->port != NULL &&
               message->slice < slices->port->count) {
        resend_gone(slices, message);
    }
}

const struct via_host_service via_host_aperture_service = {
    .endpoint = VIA_HOST_ENDPOINT_APERTURE,
    .bytes_min = sizeof(struct via_aperture_message),
    .bytes_max = sizeof(struct via_aperture_message),
    .arrived = arrived,
    .ended = ended,
};

/* --- time and links --------------------------------------------------------------------------- */

static void give_all_up(struct via_host *host, struct via_host_slices *slices)
{
    for (uint32_t k = 0; k < slices->port->count; k++) {
        bool requested = slices->table.entries[k].state == VIA_SLICE_REQUESTED;
        take_away(slices, k, false);
        if (requested) {
            answer_all(host, slices, k, -EXDEV);
        }
    }
}

void via_host_aperture_changed(struct via_host *host)
{
    for (unsigned i = 0; host->aperture.links != NULL && i < host->cables_count; i++) {
        struct via_host_slices *slices = &host->aperture.links[i];
        struct via_link_status link;
        if (slices->port == NULL || via_node_link_status(host->node, i, &link) != 0) {
            continue;
        }
        uint64_t edges = (uint64_t)link.ups_count + link.downs_count;
        if (edges != slices->edges) {
            slices->edges = edges;
            slices->silent_until_ns = 0;
            slices->silence_ns = 0;
            give_all_up(host, slices);
            memset(slices->exposures, 0, slices->port->count * sizeof(*slices->exposures));
        }
    }
}

/* Unmaps slices that are no longer used. True: some are still used. */
static bool settle(struct via_host_slices *slices, uint64_t now_ns)
{
    uint32_t leaving = via_slice_table_settle(&slices->table, now_ns);
    for (uint32_t k = 0; k < slices->port->count; k++) {
        if (slices->table.entries[k].state == VIA_SLICE_FREE && slices->slices[k].mapped) {
            slices->slices[k].mapped = false;
            slices->port->ops->unmap(slices->port, k);
        }
    }
    return leaving != 0;
}

/* Opens slices that have become ready, and gives up those without an answer. Returns the next
 * deadline. */
static uint64_t tick_requested(struct via_host *host, struct via_host_slices *slices)
{
    uint64_t deadline_ns = VIA_NEVER_NS;
    for (uint32_t k = 0; k < slices->port->count && slices->requested_count != 0; k++) {
        const struct via_slice_entry *entry = &slices->table.entries[k];
        if (entry->state == VIA_SLICE_REQUESTED && slices->slices[k].answered) {
            try_open(host, slices, k);
        }
        if (entry->state != VIA_SLICE_REQUESTED) {
            continue;
        }
        if (host->now_ns < slices->slices[k].deadline_ns) {
            deadline_ns = via_min(deadline_ns, slices->slices[k].deadline_ns);
        } else {
            set_silent(host, slices);
            give_up(host, slices, k, -EAGAIN);
        }
    }
    return deadline_ns;
}

uint64_t via_host_aperture_tick(struct via_host *host)
{
    uint64_t deadline_ns = VIA_NEVER_NS;
    for (unsigned i = 0; i < host->cables_count; i++) {
        struct via_host_slices *slices = &host->aperture.links[i];
        if (slices->port == NULL) {
            continue;
        }
        deadline_ns = via_min(deadline_ns, tick_requested(host, slices));
        if (slices->gone_due) {
            slices->gone_due = !send_gone(host, slices);
        }
        if (slices->leaving) {
            slices->leaving = settle(slices, host->now_ns);
        }
        if (slices->gone_due || slices->leaving) {
            deadline_ns = via_min(deadline_ns, host->now_ns + SETTLE_NS);
        }
    }
    return deadline_ns;
}

/* --- open and close --------------------------------------------------------------------------- */

/* Finds consecutive free words in the status page, one for each slice of the port. False: there are
 * none. A process that has left may still know such a word. It does not confuse two exposures,
 * because no number of an exposure is used twice. */
static bool find_words(const struct via_host *host, uint32_t count, uint32_t *ret_first)
{
    uint32_t first = 0;
    for (unsigned i = 0; i < host->links_max; i++) {
        const struct via_host_slices *slices = &host->aperture.links[i];
        if (slices->port != NULL && first < slices->word_first + slices->port->count &&
            slices->word_first < first + count) {
            first = slices->word_first + slices->port->count;
            i = UINT_MAX; /* start again; each round begins at a later word */
        }
    }
    *ret_first = first;
    return first + count <= VIA_SLICES_MAX;
}

static void free_tables(struct via_host_slices *slices)
{
    via_slice_table_fini(&slices->table);
    free(slices->slices);
    free(slices->exposures);
}

static int open_tables(struct via_host *host, struct via_host_slices *slices, uint32_t word_first)
{
    struct via_port_slices *port = slices->port;
    int rc = via_slice_table_init(&slices->table, port->count, port->detaches,
                                  &host->status->slices[word_first]);
    slices->word_first = word_first;
    slices->slices = calloc(port->count, sizeof(*slices->slices));
    slices->exposures = calloc(port->count, sizeof(*slices->exposures));
    return rc == 0 && slices->slices != NULL && slices->exposures != NULL ? 0 : -ENOMEM;
}

int via_host_aperture_open(struct via_host *host)
{
    host->aperture.links = calloc(via_max(host->links_max, 1u), sizeof(*host->aperture.links));
    return host->aperture.links != NULL ? 0 : -ENOMEM;
}

int via_host_aperture_link_open(struct via_host *host, unsigned index)
{
    struct via_host_slices *slices = &host->aperture.links[index];
    const struct via_host_cable *cable = &host->cables[index];
    const struct via_driver *driver = cable->link.driver;
    struct via_port_slices *port = driver->slices != NULL ? driver->slices(cable->port) : NULL;
    uint32_t word_first;
    *slices = (struct via_host_slices){.link = index};
    if (port == NULL || !find_words(host, port->count, &word_first)) {
        return 0;
    }
    slices->port = port;
    int rc = open_tables(host, slices, word_first);
    if (rc != 0) {
        free_tables(slices);
        slices->port = NULL;
    }
    return rc;
}

bool via_host_aperture_link_close(struct via_host *host, unsigned index)
{
    struct via_host_slices *slices = &host->aperture.links[index];
    if (slices->port == NULL) {
        return true;
    }
    give_all_up(host, slices);
    if (settle(slices, host->now_ns)) {
        return false;
    }
    free_tables(slices);
    *slices = (struct via_host_slices){.link = index};
    return true;
}

void via_host_aperture_close(struct via_host *host)
{
    for (unsigned i = 0; host->aperture.links != NULL && i < host->links_max; i++) {
        if (host->aperture.links[i].port != NULL) {
            free_tables(&host->aperture.links[i]);
        }
    }
    free(host->aperture.links);
    host->aperture.links = NULL;
}
