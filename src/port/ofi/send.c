/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The sending side. Small bodies, commits, doorbells and fences of a queue are entries of a
 * message, which flush() sends. A larger body is copied to the shadow of the window, at the same
 * offset, and sent from there by an RMA write. No thread waits for the completion of the write,
 * because core reuses the offset only after the peer has read the contents. A message arrives after
 * earlier writes (FI_ORDER_SAW), or is held back until these are complete.
 *
 * On an encrypted link all bodies are entries. Each message is sealed when it is passed to
 * libfabric, in the order of their numbers.
 */
#include <errno.h>
#include <rdma/fi_rma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/copy.h"
#include "base/mutant.h"
#include "port/ofi/port.h"

/* Free messages that are reserved for answers to fences and for signs of life. */
#define MESSAGES_KEPT 4u
/* A body is not split for less room in a message than this. */
#define PIECE_BYTES_MIN 512u
/* Longest wait of a transfer thread if all sends are in use; core's credits make this rare. The
 * control thread waits less long. */
#define FULL_NS (500 * VIA_MSEC_NS)
#define FULL_CONTROL_NS (100 * VIA_MSEC_NS)
/* An aborted transfer ends within this time, or its link is taken down. */
#define DMA_ABORT_NS (30 * VIA_MSEC_NS)

/* --- [tx_lock] passing sends to libfabric --- */

static void retire(struct via_ofi_port *port, struct via_ofi_send *send, int result)
{
    switch (send->op.kind) {
    case VIA_OFI_OP_MESSAGE:
        via_list_push_back(&port->messages_free, &send->link);
        port->messages_free_count++;
        break;
    case VIA_OFI_OP_WRITE:
        via_list_push_back(&port->writes_free, &send->link);
        break;
    default:
        send->result = result;
        via_list_push_back(&port->dma_done[send->queue], &send->link);
        atomic_fetch_or_explicit(&port->edges, VIA_PORT_EVENT_DMA_DONE(send->queue),
                                 memory_order_release);
        port->host->wake(port->host->ctx, send->queue % port->host->threads_count);
    }
}

static int post_message(struct via_ofi_port *port, struct via_ofi_send *send)
{
    struct via_ofi_conn *conn = port->conn;
    /* If libfabric returns EAGAIN, the sealed message stays first in `pending`, so numbers stay in
     * order. */
    if (conn->sealed && !send->sealed) {
        via_ofi_seal_put(&conn->send, send->data, send->bytes);
        send->bytes += VIA_OFI_TAG_BYTES;
        send->sealed = true;
    }
    if (send->bytes <= port->hub->inject_bytes) {
        int rc = (int)fi_inject(conn->ep, send->data, send->bytes, FI_ADDR_UNSPEC);
        if (rc == 0) {
            retire(port, send, 0);
            port->messages_free_count -= VIA_MUTANT(OFI_CREDIT);
        }
        return rc;
    }
    struct iovec vector = {.iov_base = send->data, .iov_len = send->bytes};
    struct fi_msg msg = {.msg_iov = &vector,
                         .desc = &send->desc,
                         .iov_count = 1,
                         .addr = FI_ADDR_UNSPEC,
                         .context = &send->op};
    /* Set before the completion, which another thread may handle. */
    send->op.posted = true;
    int rc = (int)fi_sendmsg(conn->ep, &msg, FI_COMPLETION);
    if (rc == 0) {
        via_list_push_back(&port->flying, &send->link);
    } else {
        send->op.posted = false;
    }
    return rc;
}

static int post_write_op(struct via_ofi_port *port, struct via_ofi_send *send)
{
    struct via_ofi_conn *conn = port->conn;
    struct iovec vector = {.iov_base = send->data, .iov_len = send->bytes};
    struct fi_rma_iov remote = {.addr = conn->peer.inbox_address + send->off,
                                .len = send->bytes,
                                .key = conn->peer.inbox_key};
    struct fi_msg_rma msg = {.msg_iov = &vector,
                             .desc = &send->desc,
                             .iov_count = 1,
                             .addr = FI_ADDR_UNSPEC,
                             .rma_iov = &remote,
                             .rma_iov_count = 1,
                             .context = &send->op};
    bool on_delivery = port->unordered && !VIA_MUTANT(OFI_EARLY_DONE);
    uint64_t flags = FI_COMPLETION | (on_delivery ? FI_DELIVERY_COMPLETE : 0);
    send->op.posted = true;
    int rc = (int)fi_writemsg(conn->ep, &msg, flags);
    if (rc == 0) {
        via_list_push_back(&port->flying, &send->link);
        port->writes_flying++;
    } else {
        send->op.posted = false;
    }
    return rc;
}

/* 0: passed to libfabric, or lost with the connection; -EAGAIN: later. */
static int post_next(struct via_ofi_port *port, struct via_ofi_send *send)
{
    bool message = send->op.kind == VIA_OFI_OP_MESSAGE;
    if (port->unordered && message && port->writes_flying != 0 && !VIA_MUTANT(OFI_NO_WAIT)) {
        return -EAGAIN;
    }
    int rc = message ? post_message(port, send) : post_write_op(port, send);
    if (rc == 0 || rc == -FI_EAGAIN) {
        return rc == 0 ? 0 : -EAGAIN;
    }
    char why[128];
    snprintf(why, sizeof(why), "send to host %u: %s", port->peer_id,
             port->hub->library->strerror(-rc));
    retire(port, send, -ENOLINK);
    via_ofi_port_down(port, why);
    return 0;
}

static void submit(struct via_ofi_port *port, struct via_ofi_send *send)
{
    if (!via_list_is_empty(&port->pending) || post_next(port, send) != 0) {
        via_list_push_back(&port->pending, &send->link);
    }
}

/* Does not wait; NULL: at most `keep` messages are free. */
static struct via_ofi_send *take_message(struct via_ofi_port *port, unsigned keep)
{
    if (port->messages_free_count <= keep) {
        return NULL;
    }
    struct via_list *link = via_list_pop_front(&port->messages_free);
    struct via_ofi_send *send = via_list_entry(link, struct via_ofi_send, link);
    port->messages_free_count--;
    send->bytes = 0;
    send->sealed = false;
    return send;
}

static void append(struct via_ofi_send *send, const struct via_ofi_entry *head, const void *data)
{
    size_t bytes = head->bytes;
    memcpy(send->data + send->bytes, head, sizeof(*head));
    send->bytes += sizeof(*head);
    if (bytes != 0) {
        memcpy(send->data + send->bytes, data, bytes);
        memset(send->data + send->bytes + bytes, 0, via_align_up(bytes, 8) - bytes);
        send->bytes += (uint32_t)via_align_up(bytes, 8);
    }
}

/* Answers all due fences in one message, behind the posts that this end has flushed. */
static void answer_fences(struct via_ofi_port *port)
{
    struct via_ofi_send *send = port->fences_due != 0 ? take_message(port, 0) : NULL;
    if (send == NULL) {
        return;
    }
    for (unsigned queue = 0; queue < VIA_PORT_QUEUES; queue++) {
        if ((port->fences_due & 1u << queue) != 0) {
            struct via_ofi_entry head = {
                .kind = VIA_OFI_ENTRY_FENCED, .value = port->fence_numbers[queue], .off = queue};
            append(send, &head, NULL);
        }
    }
    port->fences_due = 0;
    if (VIA_MUTANT(OFI_FENCE_FIRST) && post_next(port, send) == 0) {
        return;
    }
    submit(port, send);
}

void via_ofi_port_drain(struct via_ofi_port *port)
{
    while (port->conn != NULL && via_ofi_port_is_up(port) && !via_list_is_empty(&port->pending)) {
        struct via_list *first = via_list_pop_front(&port->pending);
        struct via_ofi_send *send = via_list_entry(first, struct via_ofi_send, link);
        if (post_next(port, send) != 0) {
            via_list_push_front(&port->pending, first);
            break;
        }
    }
    if (port->conn != NULL && via_ofi_port_is_up(port)) {
        answer_fences(port);
    }
}

void via_ofi_fence_requested(struct via_ofi_port *port, unsigned queue, uint32_t number)
{
    port->fences_due |= 1u << queue;
    port->fence_numbers[queue] = number;
}

void via_ofi_send_done(struct via_ofi_port *port, struct via_ofi_send *send)
{
    via_list_remove(&send->link);
    port->writes_flying -= send->op.kind != VIA_OFI_OP_MESSAGE;
    retire(port, send, 0);
}

void via_ofi_port_forget(struct via_ofi_port *port)
{
    struct via_list *lists[] = {&port->pending, &port->flying};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(lists); i++) {
        for (struct via_list *link; (link = via_list_pop_front(lists[i])) != NULL;) {
            retire(port, via_list_entry(link, struct via_ofi_send, link), -ENOLINK);
        }
    }
    port->writes_flying = 0;
    port->fences_due = 0;
}

void via_ofi_post_alive(struct via_ofi_port *port)
{
    struct via_ofi_entry head = {.kind = VIA_OFI_ENTRY_ALIVE};
    pthread_mutex_lock(&port->tx_lock);
    bool up = port->conn != NULL && via_ofi_port_is_up(port);
    struct via_ofi_send *send = up ? take_message(port, 0) : NULL;
    if (send != NULL) {
        append(send, &head, NULL);
        submit(port, send);
    }
    pthread_mutex_unlock(&port->tx_lock);
}

/* --- posting --- */

static uint32_t session_of(const struct via_ofi_port *port)
{
    return atomic_load_explicit(&port->session, memory_order_acquire);
}

/* [tx_lock] True if the link is up, and was not down since the caller loaded `session`. */
static bool is_same(const struct via_ofi_port *port, uint32_t session)
{
    return port->conn != NULL && via_ofi_port_is_up(port) && session_of(port) == session;
}

static struct via_ofi_send *take(struct via_ofi_port *port, enum via_ofi_op_kind kind,
                                 uint32_t session)
{
    struct via_ofi_send *send = NULL;
    pthread_mutex_lock(&port->tx_lock);
    if (is_same(port, session)) {
        via_ofi_port_drain(port);
        if (kind == VIA_OFI_OP_MESSAGE) {
            send = take_message(port, MESSAGES_KEPT);
        } else {
            struct via_list *link = via_list_pop_front(&port->writes_free);
            send = link != NULL ? via_list_entry(link, struct via_ofi_send, link) : NULL;
        }
    }
    pthread_mutex_unlock(&port->tx_lock);
    return send;
}

/* Waits for a free send. NULL: the link is down. */
static struct via_ofi_send *take_patiently(struct via_ofi_port *port, enum via_ofi_op_kind kind,
                                           unsigned queue, uint32_t session)
{
    struct via_ofi_send *send = take(port, kind, session);
    uint64_t since_ns = send == NULL ? via_ofi_hub_now_ns(port->hub) : 0;
    uint64_t patience_ns = queue == VIA_PORT_QUEUE_CONTROL ? FULL_CONTROL_NS : FULL_NS;
    while (send == NULL && via_ofi_port_is_up(port) && session_of(port) == session) {
        if (via_ofi_hub_now_ns(port->hub) - since_ns > patience_ns) {
            char why[96];
            snprintf(why, sizeof(why), "host %u takes nothing for %llu ms", port->peer_id,
                     (unsigned long long)(patience_ns / VIA_MSEC_NS));
            via_ofi_port_down(port, why);
            return NULL;
        }
        (void)via_ofi_port_progress(port);
        port->hub->system->pause(port->hub);
        send = take(port, kind, session);
    }
    return send;
}

/* Submits the queue's open message, or drops it if its link has been down. */
static void close_message(struct via_ofi_port *port, struct via_ofi_queue *queue)
{
    struct via_ofi_send *send = queue->open;
    queue->open = NULL;
    if (send == NULL) {
        return;
    }
    pthread_mutex_lock(&port->tx_lock);
    if (is_same(port, queue->open_session)) {
        submit(port, send);
    } else {
        retire(port, send, 0);
    }
    pthread_mutex_unlock(&port->tx_lock);
}

void via_ofi_post_flush(struct via_ofi_port *port, unsigned queue)
{
    if (queue < VIA_PORT_QUEUES) {
        close_message(port, &port->queues[queue]);
    }
}

/* Bytes for entries in a message. */
static size_t room_of(const struct via_ofi_port *port)
{
    return port->message_bytes - (port->encrypted ? VIA_OFI_TAG_BYTES : 0);
}

void via_ofi_post_entry(struct via_ofi_port *port, unsigned index, const struct via_ofi_entry *head,
                        const void *data)
{
    struct via_ofi_queue *queue = &port->queues[index];
    size_t bytes = sizeof(*head) + via_align_up(head->bytes, 8);
    uint32_t session = session_of(port);
    if (queue->open != NULL &&
        (queue->open_session != session || queue->open->bytes + bytes > room_of(port))) {
        close_message(port, queue);
    }
    if (queue->open == NULL) {
        queue->open = take_patiently(port, VIA_OFI_OP_MESSAGE, index, session);
        queue->open_session = session;
    }
    if (queue->open == NULL) {
        via_ofi_count(&port->counters.puts_vanished);
        return;
    }
    append(queue->open, head, data);
}

/* Sends a body from the shadow, where the data stays until core reuses the offset. */
static void post_write(struct via_ofi_port *port, unsigned index, uint64_t off, const void *src,
                       size_t len)
{
    uint32_t session = session_of(port);
    struct via_ofi_send *send = take_patiently(port, VIA_OFI_OP_WRITE, index, session);
    if (send == NULL) {
        via_ofi_count(&port->counters.puts_vanished);
        return;
    }
    via_copy_foreign(port->shadow + off, src, len);
    send->data = port->shadow + off;
    send->off = off;
    send->bytes = (uint32_t)len;
    pthread_mutex_lock(&port->tx_lock);
    if (is_same(port, session)) {
        submit(port, send);
    } else {
        retire(port, send, 0);
    }
    pthread_mutex_unlock(&port->tx_lock);
}

/* Sends a body as entries, each as large as the room in the open message or a new one. */
static void post_pieces(struct via_ofi_port *port, unsigned index, uint64_t off, const void *src,
                        size_t len)
{
    const unsigned char *from = src;
    for (size_t done = 0; done < len;) {
        const struct via_ofi_send *open = port->queues[index].open;
        size_t room = room_of(port) - (open != NULL ? open->bytes : 0);
        if (room < sizeof(struct via_ofi_entry) + PIECE_BYTES_MIN) {
            room = room_of(port);
        }
        size_t bytes = via_min(len - done, (room - sizeof(struct via_ofi_entry)) & ~(size_t)7);
        struct via_ofi_entry head = {
            .kind = VIA_OFI_ENTRY_BODY, .bytes = (uint16_t)bytes, .off = off + done};
        via_ofi_post_entry(port, index, &head, from + done);
        done += bytes;
    }
}

void via_ofi_post_body(struct via_ofi_port *port, unsigned queue, uint64_t off, const void *src,
                       size_t len)
{
    /* Beyond the peer's inbox: a write there would end the connection. */
    if (off + len > atomic_load_explicit(&port->reach_bytes, memory_order_relaxed)) {
        via_ofi_count(&port->counters.puts_vanished);
        return;
    }
    if (port->encrypted) {
        post_pieces(port, queue, off, src, len);
        return;
    }
    if (len > VIA_OFI_INLINE_BYTES) {
        post_write(port, queue, off, src, len);
        return;
    }
    struct via_ofi_entry head = {.kind = VIA_OFI_ENTRY_BODY, .bytes = (uint16_t)len, .off = off};
    via_ofi_post_entry(port, queue, &head, src);
}

/* --- DMA: RMA writes from registered memory --- */

int via_ofi_dma(struct via_port *base, unsigned queue, uint64_t off, const void *src, size_t len,
                uint64_t cookie)
{
    struct via_ofi_port *port = via_ofi_port_of(base);
    if (base->caps.dma_depth == 0) {
        return -ENOTSUP;
    }
    if (queue >= VIA_PORT_DATA_DOORBELLS || len == 0 || len > UINT32_MAX ||
        off > port->base.caps.window_bytes || len > port->base.caps.window_bytes - off) {
        via_ofi_count(&port->counters.puts_out_of_bounds);
        return -EINVAL;
    }
    pthread_mutex_lock(&port->tx_lock);
    int rc = port->conn != NULL && via_ofi_port_is_up(port) ? 0 : -ENOLINK;
    if (rc == 0 &&
        len > port->conn->peer.inbox_bytes - via_min(off, port->conn->peer.inbox_bytes)) {
        rc = -EIO; /* the peer's inbox is smaller than this window */
    }
    if (rc == 0 && via_list_is_empty(&port->dma_free)) {
        rc = -EAGAIN;
    }
    if (rc == 0) {
        struct via_list *link = via_list_pop_front(&port->dma_free);
        struct via_ofi_send *send = via_list_entry(link, struct via_ofi_send, link);
        /* Drops const: libfabric only reads this memory. */
        memcpy(&send->data, &src, sizeof(src));
        send->bytes = (uint32_t)len;
        send->off = off;
        send->cookie = cookie;
        send->queue = queue;
        send->abort_ns = 0;
        send->session = session_of(port);
        send->desc = port->dma_mr != NULL ? fi_mr_desc(port->dma_mr) : NULL;
        submit(port, send);
    }
    pthread_mutex_unlock(&port->tx_lock);
    return rc;
}

unsigned via_ofi_dma_take(struct via_port *base, unsigned queue, uint64_t *ret_cookies,
                          int *ret_results, unsigned max)
{
    struct via_ofi_port *port = via_ofi_port_of(base);
    unsigned count = 0;
    if (queue >= VIA_PORT_DATA_DOORBELLS) {
        return 0;
    }
    (void)via_ofi_port_progress(port);
    pthread_mutex_lock(&port->tx_lock);
    bool up = port->conn != NULL && via_ofi_port_is_up(port);
    for (struct via_list *link;
         count < max && (link = via_list_pop_front(&port->dma_done[queue])) != NULL; count++) {
        struct via_ofi_send *send = via_list_entry(link, struct via_ofi_send, link);
        ret_cookies[count] = send->cookie;
        ret_results[count] = up && send->session == session_of(port) ? send->result : -ENOLINK;
        via_list_push_back(&port->dma_free, link);
    }
    pthread_mutex_unlock(&port->tx_lock);
    return count;
}

void via_ofi_dma_abort(struct via_port *base, unsigned queue)
{
    struct via_ofi_port *port = via_ofi_port_of(base);
    uint64_t now_ns = via_ofi_hub_now_ns(port->hub);
    bool flies = false;
    pthread_mutex_lock(&port->tx_lock);
    via_list_foreach_safe(it, &port->pending) {
        struct via_ofi_send *send = via_list_entry(it, struct via_ofi_send, link);
        if (send->op.kind == VIA_OFI_OP_DMA && send->queue == queue) {
            via_list_remove(&send->link);
            retire(port, send, -ECANCELED);
        }
    }
    via_list_foreach(it, &port->flying) {
        struct via_ofi_send *send = via_list_entry(it, struct via_ofi_send, link);
        if (send->op.kind == VIA_OFI_OP_DMA && send->queue == queue && send->abort_ns == 0) {
            send->abort_ns = now_ns;
            flies = true;
        }
    }
    pthread_mutex_unlock(&port->tx_lock);
    if (flies) {
        via_ofi_hub_kick(port->hub);
    }
}

void via_ofi_dma_tick(struct via_ofi_port *port, uint64_t now_ns, uint64_t *ret_deadline_ns)
{
    bool hangs = false;
    pthread_mutex_lock(&port->tx_lock);
    via_list_foreach(it, &port->flying) {
        const struct via_ofi_send *send = via_list_entry(it, struct via_ofi_send, link);
        if (send->op.kind == VIA_OFI_OP_DMA && send->abort_ns != 0) {
            uint64_t end_ns = send->abort_ns + DMA_ABORT_NS;
            hangs = hangs || now_ns >= end_ns;
            *ret_deadline_ns = via_min(*ret_deadline_ns, end_ns);
        }
    }
    pthread_mutex_unlock(&port->tx_lock);
    if (hangs) {
        via_ofi_port_down(port, "DMA that is aborted does not end");
    }
}

/* --- open and close --- */

static void init_send(struct via_ofi_port *port, unsigned i)
{
    struct via_ofi_send *send = &port->sends[i];
    via_list_init(&send->link);
    if (i < VIA_OFI_MESSAGES) {
        send->op.kind = VIA_OFI_OP_MESSAGE;
        send->data = port->messages + (size_t)i * port->message_bytes;
        send->desc = port->messages_mr != NULL ? fi_mr_desc(port->messages_mr) : NULL;
        via_list_push_back(&port->messages_free, &send->link);
        port->messages_free_count++;
    } else if (i < VIA_OFI_MESSAGES + VIA_OFI_WRITES) {
        send->op.kind = VIA_OFI_OP_WRITE;
        send->desc = port->shadow_mr != NULL ? fi_mr_desc(port->shadow_mr) : NULL;
        via_list_push_back(&port->writes_free, &send->link);
    } else {
        send->op.kind = VIA_OFI_OP_DMA;
        via_list_push_back(&port->dma_free, &send->link);
    }
}

static size_t messages_bytes(const struct via_ofi_port *port)
{
    return (size_t)VIA_OFI_MESSAGES * port->message_bytes;
}

static void *map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory != MAP_FAILED ? memory : NULL;
}

int via_ofi_sends_open(struct via_ofi_port *port)
{
    struct via_ofi_hub *hub = port->hub;
    unsigned count = VIA_OFI_MESSAGES + VIA_OFI_WRITES + VIA_OFI_DMA_DEPTH;
    port->messages = map(messages_bytes(port));
    port->shadow = map(port->base.caps.window_bytes);
    port->sends = calloc(count, sizeof(*port->sends));
    if (port->messages == NULL || port->shadow == NULL || port->sends == NULL) {
        return -ENOMEM;
    }
    int rc = 0;
    if (hub->local_keys) {
        rc = via_ofi_hub_register(hub, port->messages, messages_bytes(port), FI_SEND,
                                  &port->messages_mr);
        rc = rc != 0 ? rc
                     : via_ofi_hub_register(hub, port->shadow, port->base.caps.window_bytes,
                                            FI_WRITE, &port->shadow_mr);
    }
    for (unsigned i = 0; i < count && rc == 0; i++) {
        init_send(port, i);
    }
    return rc;
}

void via_ofi_sends_close(struct via_ofi_port *port)
{
    struct fid_mr *const mrs[] = {port->messages_mr, port->shadow_mr, port->dma_mr};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(mrs); i++) {
        if (mrs[i] != NULL) {
            fi_close(&mrs[i]->fid);
        }
    }
    if (port->messages != NULL) {
        munmap(port->messages, messages_bytes(port));
    }
    if (port->shadow != NULL) {
        munmap(port->shadow, port->base.caps.window_bytes);
    }
    free(port->sends);
}
