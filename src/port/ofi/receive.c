/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The receiving side: completions of a connection, and the entries of the peer's messages. One
 * thread at a time polls a connection, so entries take effect in their order. The peer is hostile:
 * each entry is checked before it takes effect.
 */
#include <errno.h>
#include <rdma/fi_rma.h>
#include <stdio.h>
#include <string.h>

#include "base/copy.h"
#include "base/mutant.h"
#include "port/ofi/port.h"

#define COMPLETIONS 32
#define ROUNDS_MAX 4 /* of one poll */

/* Ends a connection because of an invalid message. A connection that is not up may belong to a
 * stranger: it does not affect the link that the port may have on another connection
 * (tests/conform/test_ofi_stranger.c). */
static void refuse(struct via_ofi_conn *conn, const char *what)
{
    char why[128];
    snprintf(why, sizeof(why), "host %u sent %s", conn->port->peer_id, what);
    conn->broken = true;
    if (conn->state == VIA_OFI_CONN_UP) {
        via_ofi_port_down(conn->port, why);
    } else {
        conn->port->peers_refused++;
        via_ofi_hub_kick(conn->hub);
    }
}

static void ring(struct via_ofi_port *port, uint32_t bits)
{
    /* Pairs with the exchange in events(): data that arrived before the doorbell is visible after
     * it. */
    uint32_t old = atomic_fetch_or_explicit(&port->bells, bits, memory_order_acq_rel);
    uint32_t fresh = bits & ~old;
    if (fresh != bits) {
        via_ofi_count(&port->counters.doorbells_coalesced);
    }
    for (unsigned bit = 0; bit < VIA_PORT_DOORBELLS; bit++) {
        if ((fresh & 1u << bit) != 0) {
            unsigned thread = bit < VIA_PORT_DATA_DOORBELLS ? bit % port->host->threads_count : 0;
            port->host->wake(port->host->ctx, thread);
        }
    }
}

/* Wakes the thread of a queue, as caps.lines_wake and caps.fence_wakes promise. */
static void wake_for(struct via_ofi_port *port, uint64_t queue)
{
    const struct via_driver_host *host = port->host;
    if (queue < VIA_PORT_DATA_DOORBELLS) {
        host->wake(host->ctx, (unsigned)queue % host->threads_count);
    } else if (queue == VIA_PORT_QUEUE_CONTROL) {
        host->wake(host->ctx, VIA_DRIVER_CONTROL);
    }
}

static void store_word(unsigned char *to, const unsigned char *from)
{
    uint64_t word;
    memcpy(&word, from, sizeof(word));
    /* One atomic store, after all earlier entries. Pairs with core's acquire load of this word. */
    atomic_store_explicit((_Atomic uint64_t *)(void *)to, word, memory_order_release);
}

static bool is_inside(const struct via_ofi_port *port, const struct via_ofi_entry *head)
{
    uint64_t bytes = port->base.caps.inbox_bytes;
    return head->off <= bytes && (head->bytes <= bytes - head->off || VIA_MUTANT(OFI_RANGE));
}

/* Applies an entry that writes into the inbox. false: out of bounds or malformed. */
static bool put(struct via_ofi_port *port, const struct via_ofi_entry *head,
                const unsigned char *data)
{
    if (!is_inside(port, head)) {
        return false;
    }
    unsigned char *to = port->base.inbox + head->off;
    if (head->kind == VIA_OFI_ENTRY_BODY) {
        via_copy_foreign(to, data, head->bytes);
        return true;
    }
    size_t bytes = head->kind == VIA_OFI_ENTRY_WORD ? sizeof(uint64_t) : VIA_CACHELINE;
    if (head->bytes != bytes || head->off % bytes != 0) {
        return false;
    }
    via_copy_foreign(to, data, bytes - sizeof(uint64_t));
    store_word(to + bytes - sizeof(uint64_t), data + bytes - sizeof(uint64_t));
    /* After the store, so that the woken thread sees the line. */
    if (head->kind == VIA_OFI_ENTRY_LINE) {
        wake_for(port, head->value);
    }
    return true;
}

/* Applies an entry on a link that is up. false: invalid. */
static bool apply(struct via_ofi_port *port, const struct via_ofi_entry *head,
                  const unsigned char *data)
{
    switch (head->kind) {
    case VIA_OFI_ENTRY_BODY:
    case VIA_OFI_ENTRY_WORD:
    case VIA_OFI_ENTRY_LINE:
        return put(port, head, data);
    case VIA_OFI_ENTRY_BELL:
        ring(port, head->value & ((1u << VIA_PORT_DOORBELLS) - 1));
        return true;
    case VIA_OFI_ENTRY_FENCE:
        if (head->off >= VIA_PORT_QUEUES) {
            return false;
        }
        pthread_mutex_lock(&port->tx_lock);
        via_ofi_fence_requested(port, (unsigned)head->off, head->value);
        pthread_mutex_unlock(&port->tx_lock);
        return true;
    case VIA_OFI_ENTRY_FENCED:
        if (head->off >= VIA_PORT_QUEUES) {
            return false;
        }
        atomic_store_explicit(&port->queues[head->off].fenced, head->value, memory_order_release);
        wake_for(port, head->off);
        return true;
    case VIA_OFI_ENTRY_SCRATCHPAD:
        if (head->off >= VIA_PORT_SCRATCHPADS / 2) {
            return false;
        }
        atomic_store_explicit(
            &port->pads[(1 - port->base.side) * (VIA_PORT_SCRATCHPADS / 2) + head->off],
            head->value, memory_order_release);
        return true;
    case VIA_OFI_ENTRY_ALIVE:
    case VIA_OFI_ENTRY_MEND: /* both ends have mended the link */
        return true;
    default:
        return false;
    }
}

static void take_message(struct via_ofi_conn *conn, const unsigned char *message, size_t bytes)
{
    struct via_ofi_port *port = conn->port;
    size_t at = 0;
    bool sealed = conn->sealed;
    atomic_store_explicit(&conn->has_received, true, memory_order_relaxed);
    via_ofi_count(&port->messages_received);
    while (at < bytes && !conn->broken) {
        struct via_ofi_entry head;
        if (conn->sealed != sealed && !VIA_MUTANT(OFI_PLAIN)) {
            refuse(conn, "more than the end of a greeting, in plain text");
            return;
        }
        if (bytes - at < sizeof(head)) {
            refuse(conn, "half an entry");
            return;
        }
        memcpy(&head, message + at, sizeof(head));
        at += sizeof(head);
        size_t padded = via_align_up(head.bytes, 8);
        if (padded > bytes - at) {
            refuse(conn, "an entry that is longer than its message");
            return;
        }
        if (conn->state != VIA_OFI_CONN_UP) {
            via_ofi_conn_take(conn, &head, message + at);
        } else if (!via_ofi_port_is_up(port)) {
            return; /* later messages belong to a link that is down */
        } else if (!apply(port, &head, message + at)) {
            refuse(conn, "an entry that is none, or out of bounds");
            return;
        }
        at += padded;
    }
}

/* Decrypts and handles a message of an encrypted link, or ends the connection. */
static void take_sealed(struct via_ofi_conn *conn, unsigned char *message, size_t bytes)
{
    ssize_t plain = via_ofi_seal_take(&conn->receive, message, bytes);
    if (plain < 0) {
        refuse(conn, "a message that is forged, or damaged on its way");
        return;
    }
    take_message(conn, message, (size_t)plain);
}

/* True for the first completion of a posted operation. A provider may report a completion twice
 * (ADR 75); by then the memory may belong to another operation. All completions of a batch are
 * checked before any is handled, because the handler may post the same operation again. */
static bool is_first(const struct fi_cq_msg_entry *entry)
{
    struct via_ofi_op *op = entry->op_context;
    return op != NULL && (atomic_exchange_explicit(&op->posted, false, memory_order_acq_rel) ||
                          VIA_MUTANT(OFI_TWICE));
}

static void take_completion(struct via_ofi_conn *conn, const struct fi_cq_msg_entry *entry)
{
    struct via_ofi_op *op = entry->op_context;
    switch (op->kind) {
    case VIA_OFI_OP_RECEIVE: {
        struct via_ofi_receive *receive = via_container_of(op, struct via_ofi_receive, op);
        size_t bytes = via_min(entry->len, (size_t)conn->port->message_bytes);
        if (conn->sealed) {
            take_sealed(conn, receive->data, bytes);
        } else {
            take_message(conn, receive->data, bytes);
        }
        if (VIA_MUTANT(OFI_NO_REPOST) && bytes > 200) {
            break;
        }
        if (!conn->broken && conn->ep != NULL && via_ofi_conn_repost(conn, receive) != 0) {
            refuse(conn, "more than can be received");
        }
        break;
    }
    case VIA_OFI_OP_GREETING:
        via_container_of(op, struct via_ofi_greeting, op)->busy = false;
        break;
    default:
        pthread_mutex_lock(&conn->port->tx_lock);
        via_ofi_send_done(conn->port, via_container_of(op, struct via_ofi_send, op));
        pthread_mutex_unlock(&conn->port->tx_lock);
    }
}

/* Each failure ends the connection. */
static void take_error(struct via_ofi_conn *conn)
{
    struct fi_cq_err_entry entry = {0};
    char why[160];
    if (fi_cq_readerr(conn->cq, &entry, 0) <= 0) {
        return;
    }
    snprintf(why, sizeof(why), "the connection to host %u failed: %s", conn->port->peer_id,
             conn->hub->library->strerror(entry.err));
    conn->broken = true;
    if (conn->state == VIA_OFI_CONN_UP) {
        via_ofi_port_down(conn->port, entry.err == FI_ECANCELED ? NULL : why);
    }
}

void via_ofi_conn_progress(struct via_ofi_conn *conn)
{
    struct fi_cq_msg_entry entries[COMPLETIONS];
    bool any = false;
    for (int round = 0; round < ROUNDS_MAX && !conn->broken && conn->cq != NULL; round++) {
        ssize_t count = fi_cq_read(conn->cq, entries, COMPLETIONS);
        if (count == -FI_EAVAIL) {
            take_error(conn);
            break;
        }
        if (count <= 0) {
            break;
        }
        ssize_t fresh = 0;
        for (ssize_t i = 0; i < count; i++) {
            if (is_first(&entries[i])) {
                entries[fresh++] = entries[i];
            }
        }
        for (ssize_t i = 0; i < fresh && !conn->broken; i++) {
            take_completion(conn, &entries[i]);
        }
        any = true;
        if (count < COMPLETIONS) {
            break;
        }
    }
    if (any && conn->state == VIA_OFI_CONN_UP) {
        pthread_mutex_lock(&conn->port->tx_lock);
        via_ofi_port_drain(conn->port);
        pthread_mutex_unlock(&conn->port->tx_lock);
    }
}

bool via_ofi_port_progress(struct via_ofi_port *port)
{
    if (!via_ofi_port_is_up(port)) {
        return true;
    }
    if (pthread_mutex_trylock(&port->rx_lock) != 0) {
        return false;
    }
    if (port->conn != NULL && via_ofi_port_is_up(port)) {
        via_ofi_conn_progress(port->conn);
    }
    pthread_mutex_unlock(&port->rx_lock);
    return true;
}
