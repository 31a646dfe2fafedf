/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/host_direct.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "host/client_kept.h"
#include "host/host_private.h"

/* Time in which the neighbour answers. After that all operations are sent in frames. */
#define REQUEST_NS VIA_SEC_NS
/* A token expires if no connection has presented it within this time. */
#define TOKEN_NS (5 * VIA_SEC_NS)

/* When another connection needs room, one that has been idle for IDLE_NS is closed. */
#define IDLE_NS VIA_SEC_NS

/* The number of a connection's peer: the host, and the slot in the upper half. */
static uint32_t make_peer(uint16_t host, unsigned slot)
{
    return (uint32_t)slot << 16 | host;
}

static uint16_t host_of(uint32_t peer)
{
    return (uint16_t)peer;
}

/* [lock] */
static struct via_direct_slot *slot_of(struct via_host_direct *direct, uint32_t peer)
{
    return &direct->neighbours[host_of(peer)].slots[peer >> 16];
}

/* --- [the serving thread] --------------------------------------------------------------------- */

static bool is_same_token(const uint8_t *a, const uint8_t *b)
{
    unsigned char wrong = 0;
    for (unsigned i = 0; i < VIA_TCP_TOKEN_BYTES; i++) { /* takes the same time for all tokens */
        wrong |= a[i] ^ b[i];
    }
    return wrong == 0;
}

/* [lock] The slot with this token that is not free, or NULL. */
static struct via_direct_slot *find_slot(const struct via_direct_neighbour *neighbour,
                                         const uint8_t *token)
{
    for (unsigned i = 0; neighbour->slots != NULL && i < VIA_DIRECT_CONNS_OF_HOST_MAX; i++) {
        if (neighbour->slots[i].state != VIA_DIRECT_FREE &&
            is_same_token(neighbour->slots[i].token, token)) {
            return &neighbour->slots[i];
        }
    }
    return NULL;
}

static bool admit(void *ctx, const uint8_t *token, uint32_t *ret_peer)
{
    const struct via_direct_listener *listener = ctx;
    struct via_host *host = listener->host;
    struct via_host_direct *direct = &host->direct;
    uint64_t now_ns = via_host_now_ns();
    bool admitted = false;
    pthread_mutex_lock(&direct->lock);
    for (uint16_t id = 0; id < host->config.hosts_max && !admitted; id++) {
        const struct via_direct_neighbour *neighbour = &direct->neighbours[id];
        struct via_direct_slot *slot = find_slot(neighbour, token);
        if (slot != NULL && slot->state == VIA_DIRECT_OFFERED && slot->at_ns >= now_ns &&
            slot->era == neighbour->era) {
            slot->state = VIA_DIRECT_OPEN;
            *ret_peer = make_peer(id, (unsigned)(slot - neighbour->slots));
            atomic_fetch_add_explicit(&direct->conns_count, 1, memory_order_relaxed);
            admitted = true;
        }
    }
    pthread_mutex_unlock(&direct->lock);
    return admitted;
}

static void left(void *ctx, uint32_t peer, const struct via_attach_position *end)
{
    const struct via_direct_listener *listener = ctx;
    struct via_host_direct *direct = &listener->host->direct;
    pthread_mutex_lock(&direct->lock);
    struct via_direct_slot *slot = slot_of(direct, peer);
    slot->state = VIA_DIRECT_ENDED;
    slot->at_ns = via_host_now_ns();
    slot->end = *end;
    pthread_mutex_unlock(&direct->lock);
    atomic_fetch_sub_explicit(&direct->conns_count, 1, memory_order_relaxed);
}

static bool is_unwanted(void *ctx, uint32_t peer, uint64_t idle_ns)
{
    const struct via_direct_listener *listener = ctx;
    struct via_host_direct *direct = &listener->host->direct;
    pthread_mutex_lock(&direct->lock);
    struct via_direct_slot *slot = slot_of(direct, peer);
    bool unwanted = slot->era != direct->neighbours[host_of(peer)].era || slot->unwanted ||
                    (slot->idle && idle_ns >= IDLE_NS);
    slot->idle = false;
    pthread_mutex_unlock(&direct->lock);
    return unwanted;
}

static void turn(void *ctx, bool begins)
{
    struct via_direct_listener *listener = ctx;
    struct via_host *host = listener->host;
    if (begins) {
        atomic_store_explicit(&listener->inside, true, memory_order_relaxed);
        /* This thread stores `inside`, then loads the tables. The control thread changes the
         * tables, then loads `inside` in via_host_direct_is_synced(), with whose fence this one
         * pairs. */
        atomic_thread_fence(memory_order_seq_cst);
        /* Acquire pairs with via_host_sync(): a segment that was removed before is not found. */
        atomic_store_explicit(&listener->entered,
                              atomic_load_explicit(&host->sync_target, memory_order_acquire),
                              memory_order_relaxed);
        return;
    }
    uint64_t entered = atomic_load_explicit(&listener->entered, memory_order_relaxed);
    /* Pairs with the acquire in via_host_direct_is_synced(): all accesses to memory precede this
     * store. */
    atomic_store_explicit(&listener->inside, false, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&host->sync_target, memory_order_relaxed) != entered) {
        via_host_poke(host); /* the control thread may wait for the end of this turn */
    }
}

static unsigned char *reach(void *ctx, uint64_t handle, uint64_t off, uint64_t bytes, unsigned need)
{
    const struct via_direct_listener *listener = ctx;
    struct via_host *host = listener->host;
    uint16_t index = via_segment_handle_index(handle);
    /* Acquire pairs with publish_segment(). */
    const struct via_host_segment *segment =
        handle != 0 && index < host->config.segments_count
            ? atomic_load_explicit(&host->attach.segments[index], memory_order_acquire)
            : NULL;
    if (segment == NULL || segment->handle != handle || (segment->access & need) != need ||
        atomic_load_explicit(&host->attach.lives[index], memory_order_relaxed) != segment->life ||
        off > segment->memory.bytes || bytes > segment->memory.bytes - off) {
        atomic_fetch_add_explicit(&host->direct.refused_count, 1, memory_order_relaxed);
        return NULL;
    }
    return (unsigned char *)segment->memory.base + off;
}

static bool is_crowded(void *ctx)
{
    const struct via_direct_listener *listener = ctx;
    return via_host_spin_is_crowded(listener->host->loadavg_fd, listener->host->cpus);
}

/* --- listeners -------------------------------------------------------------------------------- */

/* Finds the listener at this address of this host, or opens it. */
static int find_listener(struct via_host *host, const char *address,
                         struct via_direct_listener **ret_listener)
{
    struct via_host_direct *direct = &host->direct;
    for (unsigned i = 0; i < direct->listeners_count; i++) {
        if (strcmp(direct->listeners[i].address, address) == 0) {
            *ret_listener = &direct->listeners[i];
            return 0;
        }
    }
    if (direct->listeners_count == VIA_DIRECT_LISTENERS_MAX) {
        return -ENOSPC;
    }
    struct via_direct_listener *listener = &direct->listeners[direct->listeners_count];
    *listener = (struct via_direct_listener){
        .host = host,
        .calls = {.ctx = listener,
                  .admit = admit,
                  .left = left,
                  .is_unwanted = is_unwanted,
                  .turn = turn,
                  .reach = reach,
                  .is_crowded = is_crowded,
                  .spin_ns_max = host->cpus > 1 ? host->options.spin_ns_max : 0},
    };
    snprintf(listener->address, sizeof(listener->address), "%s", address);
    int rc = via_client_serve_open_host(&listener->calls, address, &listener->serve);
    if (rc != 0) {
        via_host_warn(host, VIA_HOST_WARNS_FULL, 0, "host %u: direct connections: listen at %s: %s",
                      host->config.host, address, strerror(-rc));
        return rc;
    }
    direct->listeners_count++;
    *ret_listener = listener;
    return 0;
}

void via_host_direct_open(struct via_host *host)
{
    pthread_mutex_init(&host->direct.lock, NULL);
}

void via_host_direct_close(struct via_host *host)
{
    struct via_host_direct *direct = &host->direct;
    for (unsigned i = 0; i < direct->listeners_count; i++) {
        via_client_serve_close(direct->listeners[i].serve, true);
    }
    direct->listeners_count = 0;
    for (unsigned i = 0; i < VIA_HOSTS_MAX; i++) {
        free(direct->neighbours[i].slots);
    }
    pthread_mutex_destroy(&direct->lock);
}

bool via_host_direct_is_synced(const struct via_host *host, uint64_t target)
{
    const struct via_host_direct *direct = &host->direct;
    /* Pairs with the fence in turn(). */
    atomic_thread_fence(memory_order_seq_cst);
    for (unsigned i = 0; i < direct->listeners_count; i++) {
        const struct via_direct_listener *listener = &direct->listeners[i];
        if (atomic_load_explicit(&listener->inside, memory_order_acquire) &&
            atomic_load_explicit(&listener->entered, memory_order_acquire) < target) {
            return false;
        }
    }
    return true;
}

unsigned via_host_direct_conns(const struct via_host *host)
{
    return atomic_load_explicit(&host->direct.conns_count, memory_order_relaxed);
}

/* --- links ------------------------------------------------------------------------------------ */

static uint32_t session_of(const struct via_host *host, uint16_t id)
{
    struct via_route_status route = {.session = 0};
    return via_node_route_status(host->node, id, &route) == 0 ? route.session : 0;
}

/* True if a link to this host supports direct connections, whether the link is up or down. */
static bool is_entitled(const struct via_host *host, uint16_t id)
{
    char local[64], peer[64];
    for (unsigned i = 0; i < host->cables_count; i++) {
        const struct via_host_cable *cable = &host->cables[i];
        const struct via_driver *driver = cable->link.driver;
        if (cable->port == NULL || cable->leaving || driver->tcp == NULL ||
            via_host_cable_peer(cable) != id) {
            continue;
        }
        if (driver->tcp(cable->port, local, peer, sizeof(local)) != -EXDEV) {
            return true;
        }
    }
    return false;
}

/* Makes the serving threads end the connections for which is_unwanted() is true. */
static void review(struct via_host *host)
{
    for (unsigned i = 0; i < host->direct.listeners_count; i++) {
        via_client_serve_review(host->direct.listeners[i].serve);
    }
}

/* Ends all connections of the host and revokes its tokens. */
static void end_era(struct via_host *host, uint16_t id)
{
    pthread_mutex_lock(&host->direct.lock);
    host->direct.neighbours[id].era++;
    pthread_mutex_unlock(&host->direct.lock);
    review(host);
}

void via_host_direct_changed(struct via_host *host)
{
    for (uint16_t id = 0; host->direct.listeners_count != 0 && id < host->config.hosts_max; id++) {
        struct via_direct_neighbour *neighbour = &host->direct.neighbours[id];
        uint32_t session = neighbour->session != 0 ? session_of(host, id) : 0;
        bool restarted = session != 0 && session != neighbour->session;
        if (neighbour->session != 0 && (restarted || !is_entitled(host, id))) {
            neighbour->session = 0;
            end_era(host, id);
        }
    }
}

/* --- cards ------------------------------------------------------------------------------------ */

static bool is_taken(const struct via_direct_slot *slot, uint64_t now_ns)
{
    return slot->state == VIA_DIRECT_OPEN ||
           (slot->state == VIA_DIRECT_OFFERED && slot->at_ns > now_ns);
}

/* [lock] The slot for a new connection of this user: a free one, else the one whose connection
 * ended first, so that the positions of ended connections stay known for as long as possible. NULL:
 * the user has its share. A user gets another connection only while more slots are free than it
 * uses. */
static struct via_direct_slot *choose_slot(const struct via_direct_neighbour *neighbour,
                                           uint32_t uid, uint64_t now_ns)
{
    struct via_direct_slot *chosen = NULL;
    unsigned own = 0, free_count = 0;
    for (unsigned i = 0; i < VIA_DIRECT_CONNS_OF_HOST_MAX; i++) {
        struct via_direct_slot *slot = &neighbour->slots[i];
        if (is_taken(slot, now_ns)) {
            own += slot->uid == uid ? 1 : 0;
            continue;
        }
        free_count++;
        if (chosen == NULL || slot->state == VIA_DIRECT_FREE || slot->at_ns < chosen->at_ns) {
            chosen = chosen == NULL || chosen->state != VIA_DIRECT_FREE ? slot : chosen;
        }
    }
    return free_count > own ? chosen : NULL;
}

/* [lock] The user has its share, or no slot is left. Makes the serving thread close idle
 * connections whose processes can continue without them. */
static void mark_idle(const struct via_direct_neighbour *neighbour)
{
    for (unsigned i = 0; i < VIA_DIRECT_CONNS_OF_HOST_MAX; i++) {
        struct via_direct_slot *slot = &neighbour->slots[i];
        slot->idle = slot->state == VIA_DIRECT_OPEN && slot->keeps;
    }
}

/* -EBUSY: the user, or the neighbour, has its maximum of connections. */
static int add_token(struct via_host *host, uint16_t id, uint32_t whose, uint8_t *ret_token)
{
    struct via_host_direct *direct = &host->direct;
    struct via_direct_neighbour *neighbour = &direct->neighbours[id];
    struct via_direct_slot made = {.uid = whose & VIA_DIRECT_UID_MASK,
                                   .keeps = (whose & VIA_DIRECT_KEEPS) != 0,
                                   .state = VIA_DIRECT_OFFERED,
                                   .at_ns = host->now_ns + TOKEN_NS};
    if (getrandom(made.token, sizeof(made.token), 0) != (ssize_t)sizeof(made.token)) {
        return -EIO;
    }
    memcpy(ret_token, made.token, sizeof(made.token));
    pthread_mutex_lock(&direct->lock);
    if (neighbour->slots == NULL) {
        neighbour->slots = calloc(VIA_DIRECT_CONNS_OF_HOST_MAX, sizeof(*neighbour->slots));
    }
    int rc = neighbour->slots == NULL ? -ENOMEM : 0;
    struct via_direct_slot *slot = rc == 0 ? choose_slot(neighbour, made.uid, host->now_ns) : NULL;
    if (slot != NULL) {
        made.era = neighbour->era;
        *slot = made;
    } else if (rc == 0) {
        mark_idle(neighbour);
        rc = -EBUSY;
    }
    pthread_mutex_unlock(&direct->lock);
    if (rc == -EBUSY) {
        review(host);
    }
    return rc;
}

/* True if a later attempt may succeed. */
static bool is_shortage(int rc)
{
    return rc == -EMFILE || rc == -ENFILE || rc == -ENOBUFS || rc == -ENOMEM;
}

static int make_card(struct via_host *host, uint16_t source, uint32_t whose,
                     struct via_tcp_card *ret_card)
{
    char local[sizeof(((struct via_direct_listener *)NULL)->address)], peer[sizeof(local)];
    struct via_direct_listener *listener = NULL;
    int rc = via_tcp_is_switched_off()
                 ? -EXDEV
                 : via_host_cables_tcp(host, source, local, peer, sizeof(local));
    if (rc == 0) {
        rc = find_listener(host, local, &listener);
    }
    if (rc != 0) {
        return is_shortage(rc) ? -EBUSY : rc;
    }
    struct via_direct_neighbour *neighbour = &host->direct.neighbours[source];
    uint32_t session = session_of(host, source);
    if (neighbour->session != 0 && neighbour->session != session) {
        end_era(host, source); /* of its earlier session: the neighbour has restarted */
    }
    neighbour->session = session;
    *ret_card = *via_client_serve_card(listener->serve);
    return add_token(host, source, whose, ret_card->token);
}

/* -EAGAIN: the serving thread has yet to end the connection. -ENOENT: another connection has its
 * slot. */
static int find_position(struct via_host *host, uint16_t source, const uint8_t *token,
                         struct via_direct_message *ret_message)
{
    struct via_host_direct *direct = &host->direct;
    int rc = -ENOENT;
    pthread_mutex_lock(&direct->lock);
    struct via_direct_slot *slot = find_slot(&direct->neighbours[source], token);
    if (slot != NULL && slot->state == VIA_DIRECT_OPEN) {
        slot->unwanted = true;
        rc = -EAGAIN;
    } else if (slot != NULL) {
        /* A token that was offered is no longer valid. */
        slot->state = VIA_DIRECT_ENDED;
        ret_message->end.position = slot->end.position;
        ret_message->end.refusal = slot->end.refusal;
        ret_message->end.answered_bytes = slot->end.answered_bytes;
        rc = 0;
    }
    pthread_mutex_unlock(&direct->lock);
    if (rc == -EAGAIN) {
        review(host);
    }
    return rc;
}

static bool answer(struct via_host *host, uint16_t source, const struct via_direct_message *request)
{
    struct via_direct_message message = {.type = VIA_DIRECT_ANSWER, .id = request->id};
    int room = via_host_message_room(host, source);
    if (room <= 0) {
        return room < 0;
    }
    if (request->type == VIA_DIRECT_REQUEST_POSITION) {
        message.type = VIA_DIRECT_POSITION;
        message.status = find_position(host, source, request->card.token, &message);
    } else {
        message.status = make_card(host, source, request->whose, &message.card);
        message.whose = VIA_DIRECT_KEEPS;
        if (message.status != 0) {
            memset(&message.card, 0, sizeof(message.card));
        }
    }
    return via_host_message_send(host, &via_host_direct_service, VIA_HOST_MESSAGE_ANSWERS, source,
                                 &message, sizeof(message)) == 0;
}

/* Answers the waiting process with the card, and with the neighbour's address at this host's end of
 * the link. */
static void finish(struct via_host *host, uint16_t source, uint32_t id, int status,
                   const struct via_direct_message *message)
{
    struct via_attach_answer content = {.type = VIA_ATTACH_DIRECT, .status = status};
    struct via_attach_direct direct = {0};
    if (status == 0) {
        content.status = via_host_cables_tcp(host, source, direct.where.local, direct.where.peer,
                                             sizeof(direct.where.local));
    }
    if (content.status == 0) {
        direct.card = message->card;
        direct.keeps = (message->whose & VIA_DIRECT_KEEPS) != 0;
        direct.kept_layout = VIA_KEPT_LAYOUT;
        content.value_bytes = sizeof(direct);
        memcpy(content.value, &direct, sizeof(direct));
    } else {
        content.status = content.status == -EBUSY ? -EBUSY : -EXDEV;
    }
    via_attach_server_answered(host, id, source, &content, NULL, 0);
}

static void finish_position(struct via_host *host, uint16_t source, uint32_t id, int status,
                            const struct via_direct_message *message)
{
    struct via_attach_answer content = {.type = VIA_ATTACH_DIRECT, .status = status};
    struct via_attach_position position = {0};
    if (status != 0 && status != -EAGAIN && status != -ENOENT) {
        content.status = -EXDEV; /* processes know no other status, whatever a neighbour answers */
    } else if (status == 0) {
        position = (struct via_attach_position){.position = message->end.position,
                                                .refusal = message->end.refusal,
                                                .answered_bytes = message->end.answered_bytes};
        content.value_bytes = sizeof(position);
        memcpy(content.value, &position, sizeof(position));
    }
    via_attach_server_answered(host, id, source, &content, NULL, 0);
}

static bool arrived(struct via_host *host, uint16_t source, const void *data, uint32_t bytes)
{
    const struct via_direct_message *message = data;
    (void)bytes; /* bytes_min and bytes_max of the service are the size of a message */
    switch (message->type) {
    case VIA_DIRECT_REQUEST_CARD:
    case VIA_DIRECT_REQUEST_POSITION:
        return answer(host, source, message);
    case VIA_DIRECT_ANSWER:
        finish(host, source, message->id, message->status, message);
        return true;
    case VIA_DIRECT_POSITION:
        finish_position(host, source, message->id, message->status, message);
        return true;
    default:
        return true;
    }
}

/* A host of an older version refuses these messages. */
static void ended(struct via_host *host, uint16_t destination, const void *data, int status)
{
    const struct via_direct_message *message = data;
    if (status != 0 && message->type == VIA_DIRECT_REQUEST_CARD) {
        finish(host, destination, message->id, status, NULL);
    } else if (status != 0 && message->type == VIA_DIRECT_REQUEST_POSITION) {
        finish_position(host, destination, message->id, status, NULL);
    }
}

const struct via_host_service via_host_direct_service = {
    .endpoint = VIA_HOST_ENDPOINT_DIRECT,
    .bytes_min = sizeof(struct via_direct_message),
    .bytes_max = sizeof(struct via_direct_message),
    .arrived = arrived,
    .ended = ended,
};

/* --- this host's processes -------------------------------------------------------------------- */

/* True if the request is for the position of an earlier connection, whose token is in it. */
static bool is_position_request(const struct via_attach_request *request)
{
    return request->key_bytes == VIA_TCP_TOKEN_BYTES;
}

int via_host_direct_request(struct via_process *process, const struct via_attach_request *request)
{
    struct via_host *host = process->host;
    char local[64], peer[64];
    if (request->host >= host->config.hosts_max || request->host == host->config.host) {
        return -EXDEV;
    }
    if (!is_position_request(request) &&
        (via_tcp_is_switched_off() ||
         via_host_cables_tcp(host, request->host, local, peer, sizeof(local)) != 0)) {
        return -EXDEV;
    }
    if (!is_position_request(request) && (request->access & VIA_ATTACH_KEEPS) != 0) {
        int rc = via_process_kept_note(process, request->host, request->handle);
        if (rc != 0) {
            return rc;
        }
    }
    return via_attach_server_send_request(process, request, REQUEST_NS);
}

int via_host_direct_send_request(struct via_host *host, const struct via_attach_pending *pending,
                                 const struct via_attach_request *request)
{
    struct via_direct_message message = {.type = VIA_DIRECT_REQUEST_CARD, .id = pending->id};
    if (is_position_request(request)) {
        message.type = VIA_DIRECT_REQUEST_POSITION;
        memcpy(message.card.token, request->key, sizeof(message.card.token));
    } else {
        message.whose = ((uint32_t)pending->tenant->uid & VIA_DIRECT_UID_MASK) |
                        ((request->access & VIA_ATTACH_KEEPS) != 0 ? VIA_DIRECT_KEEPS : 0);
    }
    return via_host_message_send(host, &via_host_direct_service, VIA_HOST_MESSAGE_REQUESTS,
                                 pending->peer, &message, sizeof(message));
}
