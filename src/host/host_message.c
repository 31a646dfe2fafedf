/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/host_message.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "host/host_private.h"

/* Time after which a turn handles one more arrival and no others, because heartbeats come first. */
#define INBOX_TURN_NS (5 * VIA_MSEC_NS)

/* Low bits of a cookie: serial << 8 | index, so that no two sends share one. */
static_assert(VIA_HOST_SENDS_MAX == 256, "an index is 8 bits of the cookie");

static const struct via_host_service *const services[] = {
    &via_host_board_service, &via_host_aperture_service, &via_host_directory_service,
    &via_control_remote_service, &via_host_direct_service};

static struct via_host_send *send_of(struct via_host_messages *messages, uint64_t cookie)
{
    return &messages->sends[cookie & (VIA_HOST_SENDS_MAX - 1)];
}

/* --- transfer thread 0 ------------------------------------------------------------------------ */

/* Drops one reference to the send: that of the operation, or that of the mail that cancels it. */
static void release_send(struct via_host *host, struct via_host_send *send)
{
    struct via_host_messages *messages = &host->messages;
    pthread_mutex_lock(&messages->lock);
    bool last = --send->holders == 0;
    if (last) {
        via_list_push_back(&messages->done, &send->link);
    }
    pthread_mutex_unlock(&messages->lock);
    if (last) {
        via_host_poke(host);
    }
}

static void end_send(struct via_host *host, struct via_host_send *send, int status)
{
    send->status = status;
    release_send(host, send);
}

static int submit(struct via_transfer *transfer, struct via_host_send *send)
{
    struct via_op op = {
        .kind = VIA_OP_MESSAGE,
        .destination = send->destination,
        .endpoint = send->service->endpoint,
        .source_endpoint = send->service->endpoint,
        .source = send->data,
        .bytes = send->bytes,
        .cookie = send->cookie,
    };
    int rc = via_node_submit(transfer->host->node, transfer->channel, &op);
    if (rc == 0) {
        send->submitted = true;
    } else if (rc != -EAGAIN) {
        end_send(transfer->host, send, rc);
    }
    return rc;
}

static void submit_mail(struct via_transfer *transfer, struct via_mail *mail)
{
    struct via_host_send *send = via_container_of(mail, struct via_host_send, submit);
    if (!via_list_is_empty(&transfer->sends) || submit(transfer, send) == -EAGAIN) {
        via_list_push_back(&transfer->sends, &send->link);
    }
}

void via_host_message_submit_again(struct via_transfer *transfer)
{
    for (struct via_list *link; (link = via_list_first(&transfer->sends)) != NULL;) {
        struct via_host_send *send = via_list_entry(link, struct via_host_send, link);
        via_list_remove(&send->link);
        if (submit(transfer, send) == -EAGAIN) {
            via_list_push_front(&transfer->sends, &send->link);
            return;
        }
    }
}

static void cancel_mail(struct via_transfer *transfer, struct via_mail *mail)
{
    struct via_host_send *send = via_container_of(mail, struct via_host_send, cancel);
    if (send->submitted) {
        /* Completes the send, unless it has completed already. */
        via_node_cancel(transfer->host->node, transfer->channel, UINT64_MAX, send->cookie);
    } else if (via_list_is_linked(&send->link)) {
        via_list_remove(&send->link); /* of transfer->sends: not shared yet */
        end_send(transfer->host, send, -ECANCELED);
    }
    release_send(transfer->host, send);
}

void via_host_message_complete(struct via_host *host, uint64_t cookie, int status)
{
    end_send(host, send_of(&host->messages, cookie), status);
}

static const struct via_host_service *service_of(const struct via_delivery *delivery)
{
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(services); i++) {
        const struct via_host_service *service = services[i];
        if (service->endpoint == delivery->endpoint) {
            return delivery->bytes >= service->bytes_min && delivery->bytes <= service->bytes_max
                       ? service
                       : NULL;
        }
    }
    return NULL;
}

int via_host_message_deliver(struct via_host *host, const struct via_delivery *delivery)
{
    struct via_host_messages *messages = &host->messages;
    const struct via_host_service *service = service_of(delivery);
    if (service == NULL || delivery->channel != 0 || delivery->flow != 0) {
        return -ENOENT;
    }
    int rc = 0;
    pthread_mutex_lock(&messages->lock);
    if (messages->inbox_count == VIA_HOST_ARRIVALS_MAX) {
        messages->blocked[delivery->source / 64] |= UINT64_C(1) << (delivery->source % 64);
        messages->is_blocked = true;
        rc = -EAGAIN;
    } else {
        struct via_host_arrival *arrival =
            &messages
                 ->inbox[(messages->inbox_head + messages->inbox_count++) % VIA_HOST_ARRIVALS_MAX];
        arrival->service = service;
        arrival->source = delivery->source;
        arrival->bytes = delivery->bytes;
        memcpy(arrival->data, delivery->data, delivery->bytes);
    }
    pthread_mutex_unlock(&messages->lock);
    if (rc == 0) {
        via_host_poke(host);
    }
    return rc;
}

static void resume_mail(struct via_transfer *transfer, struct via_mail *resume)
{
    struct via_host_messages *messages = via_container_of(resume, struct via_host_messages, resume);
    uint64_t blocked[VIA_ARRAY_COUNT(messages->blocked)];
    atomic_store_explicit(&messages->resuming, false, memory_order_release);
    pthread_mutex_lock(&messages->lock);
    memcpy(blocked, messages->blocked, sizeof(blocked));
    memset(messages->blocked, 0, sizeof(messages->blocked));
    messages->is_blocked = false;
    pthread_mutex_unlock(&messages->lock);
    for (unsigned source = 0; source < transfer->host->config.hosts_max; source++) {
        if ((blocked[source / 64] >> (source % 64) & 1) != 0) {
            via_node_resume(transfer->host->node, transfer->channel, (uint16_t)source, 0);
        }
    }
}

/* --- control thread --------------------------------------------------------------------------- */

static bool has_share(const struct via_host_messages *messages, enum via_host_message_kind kind,
                      uint16_t destination)
{
    return messages->under_way[destination][kind == VIA_HOST_MESSAGE_ANSWERS] <
           VIA_HOST_SENDS_OF_HOST_MAX;
}

int via_host_message_room(struct via_host *host, uint16_t destination)
{
    struct via_host_messages *messages = &host->messages;
    if (!has_share(messages, VIA_HOST_MESSAGE_ANSWERS, destination)) {
        return -EBUSY;
    }
    bool full = messages->used_count == VIA_HOST_SENDS_MAX;
    messages->is_short |= full;
    return !full;
}

static struct via_host_send *new_send(struct via_host *host)
{
    struct via_host_messages *messages = &host->messages;
    for (unsigned i = 0; i < VIA_HOST_SENDS_MAX; i++) {
        struct via_host_send *send = &messages->sends[i];
        if (send->used) {
            continue;
        }
        *send = (struct via_host_send){
            .submit.handle = submit_mail,
            .cancel.handle = cancel_mail,
            .cookie = (uint64_t)VIA_HOST_OWNER << 32 | (messages->serial++ & 0xffffff) << 8 | i,
            .deadline_ns = host->now_ns + VIA_HOST_MESSAGE_TIMEOUT_NS,
            .used = true,
            .holders = 1,
        };
        via_list_init(&send->link);
        via_list_init(&send->submit.link);
        via_list_init(&send->cancel.link);
        messages->used_count++;
        return send;
    }
    return NULL;
}

int via_host_message_send(struct via_host *host, const struct via_host_service *service,
                          enum via_host_message_kind kind, uint16_t destination, const void *data,
                          uint32_t bytes)
{
    if (bytes > host->config.frame_bytes_max || bytes > service->bytes_max) {
        return -EMSGSIZE;
    }
    struct via_host_messages *messages = &host->messages;
    bool answers = kind == VIA_HOST_MESSAGE_ANSWERS;
    if (!has_share(messages, kind, destination)) {
        return -EAGAIN;
    }
    /* Two hosts whose requests use all of this memory must still be able to answer each other. */
    bool full = !answers && messages->used_count >= VIA_HOST_REQUESTS_MAX;
    struct via_host_send *send = full ? NULL : new_send(host);
    if (send == NULL) {
        messages->is_short = true;
        return -EAGAIN;
    }
    messages->under_way[destination][answers]++;
    send->answers = answers;
    send->service = service;
    send->destination = destination;
    send->bytes = bytes;
    memcpy(send->data, data, bytes);
    via_transfer_post(&host->transfers[0], &send->submit);
    return 0;
}

static void take_done(struct via_host *host)
{
    struct via_host_messages *messages = &host->messages;
    struct via_list done;
    via_list_init(&done);
    pthread_mutex_lock(&messages->lock);
    via_list_splice_back(&done, &messages->done);
    pthread_mutex_unlock(&messages->lock);
    for (struct via_list *link; (link = via_list_pop_front(&done)) != NULL;) {
        struct via_host_send *send = via_list_entry(link, struct via_host_send, link);
        send->service->ended(host, send->destination, send->data,
                             send->status == -ECANCELED ? -EHOSTUNREACH : send->status);
        send->used = false;
        messages->used_count--;
        messages->under_way[send->destination][send->answers]--;
    }
}

/* Handles arrivals. True: there may be more. The number and time are limited, because senders that
 * never stop, and messages that take long to answer, must not keep the control thread here. */
static bool take_inbox(struct via_host *host)
{
    struct via_host_messages *messages = &host->messages;
    uint64_t start_ns = via_host_now_ns();
    for (unsigned i = 0; i < VIA_HOST_ARRIVALS_MAX; i++) {
        struct via_host_arrival arrival;
        pthread_mutex_lock(&messages->lock);
        bool there = messages->inbox_count != 0;
        if (there) {
            arrival = messages->inbox[messages->inbox_head];
        }
        pthread_mutex_unlock(&messages->lock);
        if (!there ||
            !arrival.service->arrived(host, arrival.source, arrival.data, arrival.bytes)) {
            return false;
        }
        pthread_mutex_lock(&messages->lock);
        messages->inbox_head = (messages->inbox_head + 1) % VIA_HOST_ARRIVALS_MAX;
        messages->inbox_count--;
        bool resume = messages->is_blocked;
        pthread_mutex_unlock(&messages->lock);
        if (resume && !atomic_exchange_explicit(&messages->resuming, true, memory_order_acq_rel)) {
            via_transfer_post(&host->transfers[0], &messages->resume);
        }
        if (via_host_now_ns() - start_ns > INBOX_TURN_NS) {
            return true;
        }
    }
    return true;
}

/* A host that takes no messages gets less time while other hosts wait for a send. */
static uint64_t deadline_of(const struct via_host_messages *messages,
                            const struct via_host_send *send, bool is_short)
{
    const uint16_t *under_way = messages->under_way[send->destination];
    bool hurry = is_short && under_way[0] + under_way[1] > (int)VIA_HOST_SENDS_FEW;
    return send->deadline_ns -
           (hurry ? VIA_HOST_MESSAGE_TIMEOUT_NS - VIA_HOST_MESSAGE_PATIENCE_NS : 0);
}

/* Cancels sends that take too long. Returns the next deadline. */
static uint64_t cancel_late(struct via_host *host)
{
    struct via_host_messages *messages = &host->messages;
    uint64_t deadline_ns = VIA_NEVER_NS;
    bool is_short = messages->is_short;
    messages->is_short = false;
    for (unsigned i = 0; i < VIA_HOST_SENDS_MAX && messages->used_count != 0; i++) {
        struct via_host_send *send = &messages->sends[i];
        if (!send->used || send->cancelling) {
            continue;
        }
        uint64_t due_ns = deadline_of(messages, send, is_short);
        if (host->now_ns < due_ns) {
            deadline_ns = via_min(deadline_ns, due_ns);
            continue;
        }
        send->cancelling = true;
        pthread_mutex_lock(&messages->lock);
        bool under_way = send->holders != 0;
        send->holders += under_way;
        pthread_mutex_unlock(&messages->lock);
        if (under_way) {
            via_transfer_post(&host->transfers[0], &send->cancel);
        }
    }
    return deadline_ns;
}

uint64_t via_host_messages_tick(struct via_host *host)
{
    take_done(host);
    bool more = take_inbox(host);
    uint64_t deadline_ns = cancel_late(host);
    return more ? host->now_ns : deadline_ns;
}

void via_host_messages_open(struct via_host *host)
{
    struct via_host_messages *messages = &host->messages;
    pthread_mutex_init(&messages->lock, NULL);
    via_list_init(&messages->done);
    messages->resume.handle = resume_mail;
}

void via_host_messages_close(struct via_host *host)
{
    pthread_mutex_destroy(&host->messages.lock);
}
