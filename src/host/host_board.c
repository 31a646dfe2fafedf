/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/host_board.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/mutant.h"
#include "host/host_private.h"

/* Low bits of a cookie: serial << 8 | index, so that no two sends share one. */
static_assert(VIA_BOARD_SENDS_MAX == 256, "an index is 8 bits of the cookie");

static struct via_board_send *send_of(struct via_host_board_mail *mail, uint64_t cookie)
{
    return &mail->sends[cookie & (VIA_BOARD_SENDS_MAX - 1)];
}

/* --- transfer thread 0 ------------------------------------------------------------------------ */

/* One of those that know the send does no more: the operation, the mail that cancels it. */
static void let_go(struct via_host *host, struct via_board_send *send)
{
    struct via_host_board_mail *mail = &host->board_mail;
    pthread_mutex_lock(&mail->lock);
    bool last = --send->holders == 0;
    if (last) {
        via_list_push_back(&mail->done, &send->link);
    }
    pthread_mutex_unlock(&mail->lock);
    if (last) {
        via_host_poke(host);
    }
}

static void end_send(struct via_host *host, struct via_board_send *send, int status)
{
    send->status = status;
    let_go(host, send);
}

static int submit(struct via_transfer *transfer, struct via_board_send *send)
{
    struct via_op op = {
        .kind = VIA_OP_MESSAGE,
        .destination = send->destination,
        .endpoint = VIA_HOST_ENDPOINT_BOARD,
        .source_endpoint = VIA_HOST_ENDPOINT_BOARD,
        .source = &send->message,
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
    struct via_board_send *send = via_container_of(mail, struct via_board_send, submit);
    if (!via_list_empty(&transfer->sends) || submit(transfer, send) == -EAGAIN) {
        via_list_push_back(&transfer->sends, &send->link);
    }
}

void via_host_board_submit_again(struct via_transfer *transfer)
{
    for (struct via_list *link; (link = via_list_first(&transfer->sends)) != NULL;) {
        struct via_board_send *send = via_list_entry(link, struct via_board_send, link);
        via_list_remove(&send->link);
        if (submit(transfer, send) == -EAGAIN) {
            via_list_push_front(&transfer->sends, &send->link);
            return;
        }
    }
}

static void cancel_mail(struct via_transfer *transfer, struct via_mail *mail)
{
    struct via_board_send *send = via_container_of(mail, struct via_board_send, cancel);
    if (send->submitted) {
        /* Completes it, unless it has completed already. */
        via_node_cancel(transfer->host->node, transfer->channel, UINT64_MAX, send->cookie);
    } else if (via_list_is_linked(&send->link)) {
        via_list_remove(&send->link); /* of transfer->sends: nobody else has it yet */
        end_send(transfer->host, send, -ECANCELED);
    }
    let_go(transfer->host, send);
}

void via_host_board_complete(struct via_host *host, uint64_t cookie, int status)
{
    end_send(host, send_of(&host->board_mail, cookie), status);
}

int via_host_board_deliver(struct via_host *host, const struct via_delivery *delivery)
{
    struct via_host_board_mail *mail = &host->board_mail;
    if (delivery->endpoint != VIA_HOST_ENDPOINT_BOARD || delivery->channel != 0 ||
        delivery->flow != 0 || delivery->bytes < VIA_BOARD_MESSAGE_HEAD_BYTES ||
        delivery->bytes > sizeof(struct via_board_message)) {
        return -ENOENT;
    }
    int rc = 0;
    pthread_mutex_lock(&mail->lock);
    if (mail->inbox_count == VIA_BOARD_INBOX_MAX) {
        mail->blocked[delivery->source / 64] |= UINT64_C(1) << (delivery->source % 64);
        mail->is_blocked = true;
        rc = -EAGAIN;
    } else {
        struct via_board_arrival *arrival =
            &mail->inbox[(mail->inbox_head + mail->inbox_count++) % VIA_BOARD_INBOX_MAX];
        arrival->source = delivery->source;
        arrival->bytes = delivery->bytes;
        memcpy(&arrival->message, delivery->data, delivery->bytes);
    }
    pthread_mutex_unlock(&mail->lock);
    if (rc == 0) {
        via_host_poke(host);
    }
    return rc;
}

static void resume_mail(struct via_transfer *transfer, struct via_mail *resume)
{
    struct via_host_board_mail *mail = via_container_of(resume, struct via_host_board_mail, resume);
    uint64_t blocked[VIA_ARRAY_COUNT(mail->blocked)];
    atomic_store_explicit(&mail->resuming, false, memory_order_release);
    pthread_mutex_lock(&mail->lock);
    memcpy(blocked, mail->blocked, sizeof(blocked));
    memset(mail->blocked, 0, sizeof(mail->blocked));
    mail->is_blocked = false;
    pthread_mutex_unlock(&mail->lock);
    for (unsigned source = 0; source < transfer->host->config.hosts_max; source++) {
        if ((blocked[source / 64] >> (source % 64) & 1) != 0) {
            via_node_resume(transfer->host->node, transfer->channel, (uint16_t)source, 0);
        }
    }
}

/* --- control thread: sending ------------------------------------------------------------------ */

static struct via_board_send *new_send(struct via_host *host, uint16_t destination)
{
    struct via_host_board_mail *mail = &host->board_mail;
    for (unsigned i = 0; i < VIA_BOARD_SENDS_MAX; i++) {
        struct via_board_send *send = &mail->sends[i];
        if (send->used) {
            continue;
        }
        *send = (struct via_board_send){
            .submit.handle = submit_mail,
            .cancel.handle = cancel_mail,
            .cookie = (uint64_t)VIA_HOST_OWNER << 32 | (mail->serial++ & 0xffffff) << 8 | i,
            .deadline_ns = host->now_ns + VIA_BOARD_TIMEOUT_NS,
            .destination = destination,
            .used = true,
            .holders = 1,
            .bytes = VIA_BOARD_MESSAGE_HEAD_BYTES,
        };
        via_list_init(&send->link);
        via_list_init(&send->submit.link);
        via_list_init(&send->cancel.link);
        mail->used_count++;
        return send;
    }
    return NULL;
}

static void post_send(struct via_host *host, struct via_board_send *send)
{
    via_transfer_post(&host->transfers[0], &send->submit);
}

int via_host_board_post(struct via_host *host, const struct via_attach_pending *pending,
                        const struct via_attach_request *request)
{
    uint32_t bytes = VIA_BOARD_MESSAGE_HEAD_BYTES + request->key_bytes + request->value_bytes;
    if (bytes > host->config.frame_bytes_max) {
        return -EMSGSIZE;
    }
    /* Half of them is for answers: two hosts full of posts must still be able to answer. */
    if (host->board_mail.used_count >= VIA_BOARD_SENDS_MAX / 2) {
        return -EAGAIN;
    }
    struct via_board_send *send = new_send(host, pending->peer);
    if (send == NULL) {
        return -EAGAIN;
    }
    send->bytes = bytes;
    send->message.type = VIA_BOARD_POST;
    send->message.id = pending->id;
    send->message.process = pending->process->number;
    send->message.ttl_ms = request->ttl_ms;
    send->message.key_bytes = request->key_bytes;
    send->message.value_bytes = (uint16_t)request->value_bytes;
    memcpy(send->message.data, request->key, request->key_bytes);
    memcpy(send->message.data + request->key_bytes, request->value, request->value_bytes);
    pending->process->posted[pending->peer / 64] |= UINT64_C(1) << (pending->peer % 64);
    post_send(host, send);
    return 0;
}

bool via_host_board_leave(struct via_host *host, struct via_process *process)
{
    struct via_board_poster poster = {
        .host = host->config.host, .session = host->session, .process = process->number};
    via_board_withdraw(&host->board, &poster);
    for (unsigned peer = 0; peer < host->config.hosts_max; peer++) {
        if ((process->posted[peer / 64] >> (peer % 64) & 1) == 0) {
            continue;
        }
        struct via_board_send *send = new_send(host, (uint16_t)peer);
        if (send == NULL) {
            return false;
        }
        process->posted[peer / 64] &= ~(UINT64_C(1) << (peer % 64));
        send->message.type = VIA_BOARD_WITHDRAW;
        send->message.process = process->number;
        post_send(host, send);
    }
    return true;
}

/* --- control thread: receiving ---------------------------------------------------------------- */

static uint32_t session_of(struct via_host *host, uint16_t id)
{
    struct via_route_status route;
    return via_node_route_status(host->node, id, &route) == 0 ? route.session : 0;
}

void via_host_board_changed(struct via_host *host)
{
    for (uint16_t id = 0; id < host->config.hosts_max; id++) {
        uint32_t session = session_of(host, id);
        uint32_t *seen = &host->board_mail.sessions[id];
        if (session == 0 || session == *seen || id == host->config.host) {
            continue;
        }
        *seen = session;
        struct via_board_poster others = {.host = id, .session = session, .process = UINT32_MAX};
        via_board_withdraw(&host->board, &others);
    }
}

static int hang_up(struct via_host *host, const struct via_board_arrival *arrival)
{
    const struct via_board_message *message = &arrival->message;
    if (arrival->bytes != VIA_BOARD_MESSAGE_HEAD_BYTES + (uint32_t)message->key_bytes +
                              (uint32_t)message->value_bytes &&
        !VIA_MUTANT(BOARD_BYTES)) {
        return -EINVAL;
    }
    struct via_board_poster poster = {.host = arrival->source,
                                      .session = session_of(host, arrival->source),
                                      .process = message->process};
    return via_board_hang(&host->board, &poster, message->data, message->key_bytes,
                          message->data + message->key_bytes, message->value_bytes,
                          message->ttl_ms * VIA_MSEC_NS, host->now_ns);
}

/* false: no room for the answer, later. */
static bool handle_arrival(struct via_host *host, const struct via_board_arrival *arrival)
{
    const struct via_board_message *message = &arrival->message;
    if (message->type == VIA_BOARD_POST) {
        struct via_board_send *send = new_send(host, arrival->source);
        if (send == NULL) {
            return false;
        }
        send->message.type = VIA_BOARD_ANSWER;
        send->message.id = message->id;
        send->message.status = hang_up(host, arrival);
        post_send(host, send);
    } else if (message->type == VIA_BOARD_ANSWER) {
        int status = message->status <= 0 && message->status >= -4095 ? message->status : -EPROTO;
        struct via_attach_answer answer = {.status = status};
        via_attach_server_answered(host, message->id, arrival->source, &answer, NULL, 0);
    } else if (message->type == VIA_BOARD_WITHDRAW) {
        struct via_board_poster poster = {.host = arrival->source,
                                          .session = session_of(host, arrival->source),
                                          .process = message->process};
        if (poster.process != UINT32_MAX) {
            via_board_withdraw(&host->board, &poster);
        }
    }
    return true;
}

static void take_done(struct via_host *host)
{
    struct via_host_board_mail *mail = &host->board_mail;
    struct via_list done;
    via_list_init(&done);
    pthread_mutex_lock(&mail->lock);
    via_list_splice_back(&done, &mail->done);
    pthread_mutex_unlock(&mail->lock);
    for (struct via_list *link; (link = via_list_pop_front(&done)) != NULL;) {
        struct via_board_send *send = via_list_entry(link, struct via_board_send, link);
        if (send->status != 0 && send->message.type == VIA_BOARD_POST) {
            struct via_attach_answer answer = {.status = send->status == -ECANCELED ? -EHOSTUNREACH
                                                                                    : send->status};
            via_attach_server_answered(host, send->message.id, send->destination, &answer, NULL, 0);
        }
        send->used = false;
        mail->used_count--;
    }
}

static void take_inbox(struct via_host *host)
{
    struct via_host_board_mail *mail = &host->board_mail;
    for (;;) {
        struct via_board_arrival arrival;
        pthread_mutex_lock(&mail->lock);
        bool there = mail->inbox_count != 0;
        if (there) {
            arrival = mail->inbox[mail->inbox_head];
        }
        pthread_mutex_unlock(&mail->lock);
        if (!there || !handle_arrival(host, &arrival)) {
            return;
        }
        pthread_mutex_lock(&mail->lock);
        mail->inbox_head = (mail->inbox_head + 1) % VIA_BOARD_INBOX_MAX;
        mail->inbox_count--;
        bool resume = mail->is_blocked;
        pthread_mutex_unlock(&mail->lock);
        if (resume && !atomic_exchange_explicit(&mail->resuming, true, memory_order_acq_rel)) {
            via_transfer_post(&host->transfers[0], &mail->resume);
        }
    }
}

/* Sends that take too long; the next deadline. */
static uint64_t cancel_late(struct via_host *host)
{
    struct via_host_board_mail *mail = &host->board_mail;
    uint64_t deadline_ns = VIA_NEVER_NS;
    for (unsigned i = 0; i < VIA_BOARD_SENDS_MAX && mail->used_count != 0; i++) {
        struct via_board_send *send = &mail->sends[i];
        if (!send->used || send->cancelling) {
            continue;
        }
        if (host->now_ns < send->deadline_ns) {
            deadline_ns = via_min(deadline_ns, send->deadline_ns);
            continue;
        }
        send->cancelling = true;
        pthread_mutex_lock(&mail->lock);
        bool under_way = send->holders != 0;
        send->holders += under_way;
        pthread_mutex_unlock(&mail->lock);
        if (under_way) {
            via_transfer_post(&host->transfers[0], &send->cancel);
        }
    }
    return deadline_ns;
}

uint64_t via_host_board_tick(struct via_host *host)
{
    take_done(host);
    take_inbox(host);
    return via_min(cancel_late(host), via_board_expire(&host->board, host->now_ns));
}

void via_host_board_open(struct via_host *host)
{
    struct via_host_board_mail *mail = &host->board_mail;
    pthread_mutex_init(&mail->lock, NULL);
    via_list_init(&mail->done);
    mail->resume.handle = resume_mail;
    via_board_init(&host->board, VIA_BOARD_NOTES_MAX, VIA_BOARD_BYTES_MAX);
}

void via_host_board_close(struct via_host *host)
{
    via_board_fini(&host->board);
    pthread_mutex_destroy(&host->board_mail.lock);
}
