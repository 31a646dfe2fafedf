/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Finds the peer, brings the link up and down. Runs in the hub's thread, or in the control thread
 * with the hub's lock. Side 0 connects. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "port/ofi/greet.h"
#include "port/ofi/port.h"

/* Interval of the connection attempts of side 0. It doubles after each failed attempt, up to the
 * maximum. */
#define RETRY_NS_MIN (10 * VIA_MSEC_NS)
#define RETRY_NS_MAX (400 * VIA_MSEC_NS)
/* If a request gets no answer, the connector sends a second one on another connection, because TCP
 * retransmits a packet that was lost in a partition only after 1, 3 and 7 s. */
#define REQUEST_AGAIN_NS (400 * VIA_MSEC_NS)
#define REQUESTS_MAX 3u
#define RESOLVE_POLL_NS (20 * VIA_MSEC_NS)
#define ADDRESS_NS (10 * VIA_SEC_NS) /* how long a name's address stays valid */
#define CONNECT_NS (3 * VIA_SEC_NS)
#define GREET_NS (2 * VIA_SEC_NS)
#define LEAVE_NS (200 * VIA_MSEC_NS)
/* Interval of signs of life, and the silence after which the link goes down. */
#define ALIVE_NS (250 * VIA_MSEC_NS)
#define DEAD_NS (2 * VIA_SEC_NS)
/* A peer whose messages arrived within this time has not restarted. */
#define TAKEN_NS (1 * VIA_SEC_NS)
/* If this thread itself has not run for this time, the silence of peers does not count. */
#define ASLEEP_NS (700 * VIA_MSEC_NS)

/* --- texts for operators --- */

/* Makes the control thread of the host call service(). */
static void changed(struct via_ofi_port *port)
{
    atomic_store_explicit(&port->changed, true, memory_order_release);
    port->hub->system->changed(port);
}

static void set_error(struct via_ofi_port *port, const char *format, ...) VIA_PRINTF(2, 3);
static void set_error(struct via_ofi_port *port, const char *format, ...)
{
    char text[sizeof(port->error)];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (strcmp(port->error, text) != 0) {
        memcpy(port->error, text, sizeof(text));
        changed(port);
    }
}

/* --- up and down --- */

void via_ofi_port_down(struct via_ofi_port *port, const char *why)
{
    pthread_mutex_lock(&port->state_lock);
    bool was_up = via_ofi_port_is_up(port);
    if (was_up) {
        atomic_store_explicit(&port->up, false, memory_order_seq_cst);
        atomic_fetch_or_explicit(&port->edges, VIA_PORT_EVENT_LINK_DOWN, memory_order_acq_rel);
        snprintf(port->down_why, sizeof(port->down_why), "%s", why != NULL ? why : "");
    }
    pthread_mutex_unlock(&port->state_lock);
    if (was_up) {
        changed(port);
    }
    via_ofi_hub_kick(port->hub);
}

/* Detaches the port's connection and closes it; messages and writes under way are lost. */
static void detach(struct via_ofi_port *port)
{
    struct via_ofi_conn *conn = port->conn;
    if (conn == NULL) {
        return;
    }
    via_ofi_port_down(port, NULL);
    pthread_mutex_lock(&port->rx_lock);
    pthread_mutex_lock(&port->tx_lock);
    port->conn = NULL;
    conn->state = VIA_OFI_CONN_LEAVING;
    conn->broken = true;
    via_ofi_conn_close(conn);
    via_ofi_port_forget(port);
    pthread_mutex_unlock(&port->tx_lock);
    pthread_mutex_unlock(&port->rx_lock);
    port->retry_ns = 0;
    port->retry_at_ns = via_ofi_hub_now_ns(port->hub) + RETRY_NS_MIN / 2;
}

/* Brings the link up on a connection whose ends have authenticated. */
static void attach(struct via_ofi_conn *conn)
{
    struct via_ofi_port *port = conn->port;
    uint64_t now_ns = via_ofi_hub_now_ns(conn->hub);
    pthread_mutex_lock(&port->rx_lock);
    pthread_mutex_lock(&port->tx_lock);
    for (unsigned i = 0; i < VIA_PORT_SCRATCHPADS; i++) {
        atomic_store_explicit(&port->pads[i], 0, memory_order_relaxed);
    }
    atomic_store_explicit(&port->bells, 0, memory_order_relaxed);
    atomic_store_explicit(&port->reach_bytes,
                          via_min(conn->peer.inbox_bytes, port->base.caps.window_bytes),
                          memory_order_relaxed);
    atomic_fetch_add_explicit(&port->session, 1, memory_order_release);
    conn->state = VIA_OFI_CONN_UP;
    conn->received_ns = now_ns;
    conn->alive_ns = now_ns;
    port->conn = conn;
    pthread_mutex_lock(&port->state_lock);
    port->down_why[0] = '\0';
    /* Release: a thread that sees `up` sees all of the above. Pairs with the acquire in
     * via_ofi_port_is_up(). */
    atomic_store_explicit(&port->up, true, memory_order_seq_cst);
    atomic_fetch_or_explicit(&port->edges, VIA_PORT_EVENT_LINK_UP, memory_order_acq_rel);
    pthread_mutex_unlock(&port->state_lock);
    pthread_mutex_unlock(&port->tx_lock);
    pthread_mutex_unlock(&port->rx_lock);
    port->error[0] = '\0';
    changed(port);
}

static void close_others(struct via_ofi_conn *conn)
{
    struct via_ofi_port *port = conn->port;
    if (port->conn != conn) {
        detach(port);
    }
    via_list_foreach(it, &port->hub->conns) {
        struct via_ofi_conn *other = via_list_entry(it, struct via_ofi_conn, link);
        if (other != conn && other->port == port) {
            via_ofi_conn_close(other);
        }
    }
}

/* --- cut and mend --- */

/* Sends MEND to a peer that holds the connection because the link was cut. If the peer does not
 * receive it, the next proof carries the same decision. false: there is no room. */
static bool send_mend(struct via_ofi_conn *conn)
{
    return via_ofi_conn_send(conn, VIA_OFI_ENTRY_MEND, conn->port->decision.last, NULL, 0) == 0;
}

/* Both ends have authenticated: brings the link up, or holds the connection if the link is cut. */
static void finish_greeting(struct via_ofi_conn *conn)
{
    struct via_ofi_port *port = conn->port;
    snprintf(port->found, sizeof(port->found), "%s %s to %s, host %u, inbox of %llu bytes%s",
             port->hub->provider, conn->local_text, conn->peer_text, port->peer_id,
             (unsigned long long)conn->peer.inbox_bytes, conn->sealed ? ", encrypted" : "");
    close_others(conn);
    port->retry_ns = 0;
    bool is_mended =
        conn->connector && via_ofi_decision_granted(&port->decision, &conn->mine, &conn->peer);
    conn->deadline_ns = VIA_NEVER_NS;
    conn->received_ns = via_ofi_hub_now_ns(conn->hub);
    conn->state = VIA_OFI_CONN_HELD;
    port->error[0] = '\0';
    if (!via_ofi_decision_is_cut(&port->decision) && (!is_mended || send_mend(conn))) {
        attach(conn);
    }
}

void via_ofi_port_cut(struct via_port *base, bool cut)
{
    struct via_ofi_port *port = via_ofi_port_of(base);
    struct via_ofi_hub *hub = port->hub;
    pthread_mutex_lock(&hub->lock);
    /* Ignores a cut of a cut link, and a mend of a link that is up. */
    if (cut ? !via_ofi_decision_is_cut(&port->decision) : !via_ofi_port_is_up(port)) {
        via_ofi_decision_make(&port->decision, cut);
    }
    if (cut) {
        via_ofi_port_hang_up(port);
    } else {
        struct via_ofi_conn *held = NULL;
        via_list_foreach(it, &hub->conns) {
            struct via_ofi_conn *conn = via_list_entry(it, struct via_ofi_conn, link);
            held = conn->port == port && conn->state == VIA_OFI_CONN_HELD && !conn->broken ? conn
                                                                                           : held;
        }
        if (held != NULL && send_mend(held)) {
            attach(held);
        }
    }
    pthread_mutex_unlock(&hub->lock);
    via_ofi_hub_kick(hub);
}

void via_ofi_port_hang_up(struct via_ofi_port *port)
{
    detach(port);
    via_list_foreach_safe(it, &port->hub->conns) {
        struct via_ofi_conn *conn = via_list_entry(it, struct via_ofi_conn, link);
        if (conn->port == port) {
            via_ofi_conn_free(conn);
        }
    }
    port->retry_at_ns = 0;
}

/* --- the connector --- */

static void retry_later(struct via_ofi_port *port)
{
    port->retry_ns = via_min(via_max(port->retry_ns * 2, RETRY_NS_MIN), RETRY_NS_MAX);
    /* Spreads the retries of hosts that lost the same neighbour. */
    uint64_t spread_ns = port->retry_ns / 4 + 1;
    port->retry_at_ns = via_ofi_hub_now_ns(port->hub) + port->retry_ns - port->instance % spread_ns;
}

/* Finds the address of the peer: 0; -EAGAIN: not yet; or another negative errno. */
static int find_address(struct via_ofi_port *port, uint64_t now_ns)
{
    const char *why = "";
    int rc = 0;
    if (port->resolve == NULL && now_ns < port->address_until_ns) {
        return 0;
    }
    if (port->resolve == NULL && via_ofi_resolve_is_address(port->place.host)) {
        snprintf(port->address, sizeof(port->address), "%.63s", port->place.host);
        port->address_until_ns = VIA_NEVER_NS;
        return 0;
    }
    if (port->resolve == NULL) {
        rc = via_ofi_resolve_start(port->place.host, &port->resolve);
        why = strerror(-rc);
    }
    if (rc == 0) {
        rc = via_ofi_resolve_poll(port->resolve, port->address, &why);
    }
    if (rc == -EAGAIN) {
        port->retry_at_ns = now_ns + RESOLVE_POLL_NS;
        return rc;
    }
    via_ofi_resolve_drop(port->resolve);
    port->resolve = NULL;
    port->address_until_ns = now_ns + ADDRESS_NS;
    if (rc != 0) {
        port->address_until_ns = 0;
        set_error(port, "address of %s: %s", port->place.host, why);
        retry_later(port);
    }
    return rc;
}

static void connect_to_peer(struct via_ofi_port *port, uint64_t now_ns)
{
    struct via_ofi_hub *hub = port->hub;
    struct fi_info *info = NULL;
    struct via_ofi_request request;
    struct via_ofi_conn *conn = NULL;
    int rc = via_ofi_hub_info(hub, port->address, port->place.port, false, &info);
    if (rc == 0) {
        rc = via_ofi_request_make(port->host, port->peer_id, port->encrypted, &request);
    }
    if (rc == 0) {
        rc = via_ofi_conn_connect(port, info, &request, &conn);
    }
    if (info != NULL) {
        hub->library->freeinfo(info);
    }
    if (rc != 0) {
        set_error(port, "connect to %s port %u: %s", port->address, port->place.port,
                  hub->library->strerror(-rc));
        retry_later(port);
        return;
    }
    snprintf(conn->peer_text, sizeof(conn->peer_text), "%s port %u", port->address,
             port->place.port);
    conn->deadline_ns = now_ns + CONNECT_NS;
    port->retry_at_ns = now_ns + REQUEST_AGAIN_NS;
}

/* Sends the reason, and closes the connection later, so that the peer can read the reason first. */
static void leave(struct via_ofi_conn *conn, enum via_ofi_refusal code)
{
    conn->port->peers_refused++;
    if (via_ofi_conn_send(conn, VIA_OFI_ENTRY_REFUSE, code, NULL, 0) == 0) {
        conn->state = VIA_OFI_CONN_LEAVING;
        conn->deadline_ns = via_ofi_hub_now_ns(conn->hub) + LEAVE_NS;
    } else {
        via_ofi_conn_close(conn);
    }
    retry_later(conn->port);
}

/* Sends this end's proof. From here on the peer can write to the inbox, unless the link is
 * encrypted: then all data arrives in sealed messages. */
static int prove(struct via_ofi_conn *conn, enum via_ofi_entry_kind kind)
{
    struct via_ofi_port *port = conn->port;
    uint8_t exchange[VIA_OFI_EXCHANGE_BYTES] = {0};
    int rc = port->encrypted ? via_ofi_exchange_make(conn->secret, exchange)
                             : via_ofi_conn_open_inbox(conn);
    if (rc != 0) {
        return rc;
    }
    bool by_address = (conn->hub->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
    conn->mine = (struct via_ofi_proof){
        .instance = port->instance,
        .inbox_bytes = port->base.caps.inbox_bytes,
        .inbox_address = by_address ? (uintptr_t)port->base.inbox : 0,
        .inbox_key = conn->inbox_mr != NULL ? fi_mr_key(conn->inbox_mr) : 0,
        .flags = via_ofi_decision_flags(&port->decision),
        .decision = port->decision.last,
    };
    memcpy(conn->mine.exchange, exchange, sizeof(exchange));
    via_ofi_proof_sign(port->host, conn->connector, &conn->request, &conn->answer, &conn->mine);
    return via_ofi_conn_send(conn, kind, 0, &conn->mine, sizeof(conn->mine));
}

static void give_up(struct via_ofi_conn *conn, const char *what, int rc)
{
    set_error(conn->port, "%s host %u at %s: %s", what, conn->port->peer_id, conn->peer_text,
              conn->hub->library->strerror(-rc));
    via_ofi_conn_close(conn);
    retry_later(conn->port);
}

/* Checks the listener's answer to this end's request. */
static void check_answer(struct via_ofi_conn *conn, const void *data, size_t bytes)
{
    struct via_ofi_port *port = conn->port;
    bool is_answer = via_ofi_answer_read(data, bytes, &conn->answer);
    if (is_answer && conn->answer.version != VIA_OFI_WIRE_VERSION) {
        set_error(port, "host %u at %s %s", port->peer_id, conn->peer_text,
                  via_ofi_version_text(conn->answer.version).text);
        via_ofi_conn_close(conn);
        retry_later(port);
        return;
    }
    if (!is_answer || conn->answer.code != VIA_OFI_ACCEPTED) {
        set_error(port, "%s is no host that speaks version %u of the protocol of ofi links",
                  conn->peer_text, VIA_OFI_WIRE_VERSION);
        via_ofi_conn_close(conn);
        retry_later(port);
        return;
    }
    if (conn->answer.from != port->peer_id || conn->answer.to != port->id) {
        set_error(port, "host %u is at %s, not host %u", conn->answer.from, conn->peer_text,
                  port->peer_id);
        leave(conn, VIA_OFI_REFUSED_IDENTITY);
        return;
    }
    if (!via_ofi_answer_is_proof(port->host, &conn->request, &conn->answer)) {
        set_error(port, "host %u at %s %s", port->peer_id, conn->peer_text,
                  via_ofi_refusal_by_peer(VIA_OFI_REFUSED_KEY_WRONG));
        leave(conn, VIA_OFI_REFUSED_KEY_WRONG);
        return;
    }
    int rc = prove(conn, VIA_OFI_ENTRY_PROOF);
    if (rc != 0) {
        give_up(conn, "greet", rc);
    }
}

void via_ofi_conn_connected(struct via_ofi_conn *conn, const void *answer, size_t bytes)
{
    if (conn->state != VIA_OFI_CONN_CONNECTING) {
        return;
    }
    via_ofi_conn_connected_to(conn);
    conn->state = VIA_OFI_CONN_GREETING;
    conn->deadline_ns = via_ofi_hub_now_ns(conn->hub) + GREET_NS;
    if (conn->connector) {
        check_answer(conn, answer, bytes);
    }
}

/* `answer`: that of the listener; NULL: the peer has refused in a later message. */
static void refused(struct via_ofi_conn *conn, enum via_ofi_refusal code,
                    const struct via_ofi_answer *answer)
{
    struct via_ofi_port *port = conn->port;
    if (code == VIA_OFI_REFUSED_IDENTITY && answer != NULL) {
        set_error(port, "the daemon at %s says that it is host %u, not host %u", conn->peer_text,
                  answer->from, port->peer_id);
        return;
    }
    if (code == VIA_OFI_REFUSED_VERSION && answer != NULL) {
        set_error(port, "host %u at %s %s", port->peer_id, conn->peer_text,
                  via_ofi_version_text(answer->version).text);
        return;
    }
    set_error(port, "host %u at %s %s", port->peer_id, conn->peer_text,
              via_ofi_refusal_by_peer(code));
}

void via_ofi_conn_ended(struct via_ofi_conn *conn, int code, const void *data, size_t bytes)
{
    struct via_ofi_port *port = conn->port;
    struct via_ofi_answer answer;
    /* The peer's last message, for example a refusal, may not be read yet. */
    if (conn->state == VIA_OFI_CONN_GREETING || conn->state == VIA_OFI_CONN_HELD) {
        pthread_mutex_lock(&port->rx_lock);
        via_ofi_conn_progress(conn);
        pthread_mutex_unlock(&port->rx_lock);
    }
    if (conn->state == VIA_OFI_CONN_UP) {
        via_ofi_port_down(port, NULL);
        return; /* via_ofi_port_tick() closes it */
    }
    if (conn->connector && conn->state == VIA_OFI_CONN_CONNECTING) {
        if (via_ofi_answer_read(data, bytes, &answer) && answer.code != VIA_OFI_ACCEPTED) {
            refused(conn, answer.code, &answer);
        } else {
            set_error(port, "connect to %s: %s", conn->peer_text,
                      conn->hub->library->strerror(code != 0 ? code : FI_ECONNREFUSED));
        }
    }
    if (conn->connector && conn->state != VIA_OFI_CONN_HELD) {
        retry_later(port);
    }
    via_ofi_conn_close(conn);
}

/* --- the listener --- */

static unsigned count_candidates(const struct via_ofi_port *port)
{
    unsigned count = 0;
    via_list_foreach(it, &port->hub->conns) {
        const struct via_ofi_conn *conn = via_list_entry(it, struct via_ofi_conn, link);
        count += conn->port == port &&
                 (conn->state == VIA_OFI_CONN_CONNECTING || conn->state == VIA_OFI_CONN_GREETING);
    }
    return count;
}

/* The address of a peer that has connected, without the port, because the kernel chooses a new one
 * for each connection. */
struct address_text {
    char text[80];
};
static struct address_text address_of(const char *peer_text)
{
    struct address_text address;
    snprintf(address.text, sizeof(address.text), "%.*s", (int)strcspn(peer_text, " "), peer_text);
    char *colon = strrchr(address.text, ':');
    if (colon != NULL && strchr(peer_text, ' ') == NULL) {
        *colon = '\0';
        return address;
    }
    snprintf(address.text, sizeof(address.text), "%s", peer_text);
    return address;
}

/* Finds the port for a request; NULL, and the reason in *ret_code. */
static struct via_ofi_port *find_port(struct via_ofi_hub *hub,
                                      const struct via_ofi_request *request,
                                      enum via_ofi_refusal *ret_code)
{
    *ret_code = VIA_OFI_REFUSED_IDENTITY;
    via_list_foreach(it, &hub->ports) {
        struct via_ofi_port *port = via_list_entry(it, struct via_ofi_port, link);
        if (port->id == request->to) {
            *ret_code = VIA_OFI_REFUSED_NO_LINK;
            if (port->peer_id == request->from && !via_ofi_side_is_connector(port)) {
                *ret_code = VIA_OFI_ACCEPTED;
                return port;
            }
        }
    }
    return NULL;
}

struct asker {
    const struct via_driver_host *host; /* to which the request goes */
    const char *peer_text;
};

static void reject(struct via_ofi_hub *hub, struct fi_info *info, const struct asker *id,
                   const struct via_ofi_request *request, enum via_ofi_refusal code,
                   bool is_stranger)
{
    struct via_ofi_answer answer;
    if (is_stranger) { /* otherwise the port's error text reports it */
        via_log_limited(&hub->strangers, via_ofi_hub_now_ns(hub), VIA_LOG_WARN,
                        "host %u: refused a connection from %s, as host %u to host %u: it %s",
                        id->host->host, id->peer_text, request->from, request->to,
                        via_ofi_refusal_text(request, code).text);
    }
    (void)!via_ofi_answer_make(id->host, request, code, &answer);
    (void)fi_reject(hub->pep, info->handle, &answer, sizeof(answer));
}

void via_ofi_hub_requested(struct via_ofi_hub *hub, struct fi_info *info, const void *data,
                           size_t bytes)
{
    struct via_ofi_request request;
    struct via_ofi_answer answer;
    struct via_ofi_conn *conn = NULL;
    enum via_ofi_refusal where;
    char peer_text[80];
    bool owned = false;
    if (via_list_is_empty(&hub->ports)) {
        (void)fi_reject(hub->pep, info->handle, NULL, 0);
        hub->library->freeinfo(info);
        return;
    }
    via_ofi_address_text(info->dest_addr, info->dest_addrlen, peer_text, sizeof(peer_text));
    /* Hosts of one process may have different keys: the destination of the request checks it. */
    memset(&request, 0, sizeof(request));
    memcpy(&request, data, via_min(bytes, sizeof(request)));
    struct via_ofi_port *port = find_port(hub, &request, &where);
    struct via_ofi_port *any =
        via_list_entry(via_list_first(&hub->ports), struct via_ofi_port, link);
    struct asker id = {(port != NULL ? port : any)->host, peer_text};
    enum via_ofi_refusal code = via_ofi_request_read(id.host, data, bytes, &request);
    code = code != VIA_OFI_ACCEPTED ? code : where;
    if (code == VIA_OFI_ACCEPTED &&
        port->encrypted != ((request.flags & VIA_OFI_FLAG_ENCRYPTED) != 0)) {
        code = port->encrypted ? VIA_OFI_REFUSED_PLAIN : VIA_OFI_REFUSED_ENCRYPTED;
    }
    if (code == VIA_OFI_ACCEPTED && count_candidates(port) >= VIA_OFI_CANDIDATES_MAX) {
        code = VIA_OFI_REFUSED_FULL;
    }
    int rc = code == VIA_OFI_ACCEPTED ? via_ofi_answer_make(id.host, &request, code, &answer) : 0;
    if (code != VIA_OFI_ACCEPTED || rc != 0) {
        reject(hub, info, &id, &request, code, port == NULL);
        if (port != NULL) {
            port->peers_refused++;
            set_error(port, "host %u at %s %s", port->peer_id, address_of(peer_text).text,
                      via_ofi_refusal_text(&request, code).text);
        }
        hub->library->freeinfo(info);
        return;
    }
    rc = via_ofi_conn_accept(port, info, &request, &answer, &owned, &conn);
    if (rc == 0) {
        conn->deadline_ns = via_ofi_hub_now_ns(hub) + GREET_NS;
    } else {
        set_error(port, "accept host %u at %s: %s", port->peer_id, peer_text,
                  hub->library->strerror(-rc));
        if (!owned) {
            (void)fi_reject(hub->pep, info->handle, NULL, 0);
        }
    }
    hub->library->freeinfo(info);
}

/* True if another live host with the peer's id is connected. */
static bool is_taken(const struct via_ofi_conn *conn)
{
    const struct via_ofi_port *port = conn->port;
    uint64_t now_ns = via_ofi_hub_now_ns(conn->hub);
    via_list_foreach(it, &port->hub->conns) {
        const struct via_ofi_conn *other = via_list_entry(it, struct via_ofi_conn, link);
        if (other != conn && other->port == port && !other->broken &&
            (other->state == VIA_OFI_CONN_HELD ||
             (other->state == VIA_OFI_CONN_UP && via_ofi_port_is_up(port))) &&
            other->peer.instance != conn->peer.instance && now_ns - other->received_ns < TAKEN_NS) {
            return true;
        }
    }
    return false;
}

/* Both ends have sent their halves of the key exchange: all later messages are sealed. 0 or
 * negative errno. */
static int seal(struct via_ofi_conn *conn)
{
    int rc =
        via_ofi_seal_agree(conn->port->host, conn->connector, conn->secret, &conn->request,
                           &conn->answer, &conn->mine, &conn->peer, &conn->send, &conn->receive);
    via_ofi_seal_wipe(conn->secret, sizeof(conn->secret));
    conn->sealed = rc == 0;
    return rc;
}

/* Handles the connector's proof, or the listener's grant. */
static void take_proof(struct via_ofi_conn *conn, const void *data)
{
    struct via_ofi_port *port = conn->port;
    enum via_ofi_refusal code = VIA_OFI_ACCEPTED;
    memcpy(&conn->peer, data, sizeof(conn->peer));
    if (!via_ofi_proof_is_valid(port->host, !conn->connector, &conn->request, &conn->answer,
                                &conn->peer)) {
        code = VIA_OFI_REFUSED_KEY_WRONG;
    } else if (conn->connector && port->encrypted && seal(conn) != 0) {
        code = VIA_OFI_REFUSED_KEY_WRONG;
    } else if (conn->peer.inbox_bytes < port->host->inbox_bytes_min) {
        code = VIA_OFI_REFUSED_INBOX;
    } else if (is_taken(conn)) {
        code = VIA_OFI_REFUSED_TAKEN;
    }
    if (code != VIA_OFI_ACCEPTED) {
        set_error(port, "host %u at %s %s", port->peer_id, address_of(conn->peer_text).text,
                  via_ofi_refusal_of_peer(code));
        leave(conn, code);
        return;
    }
    int rc = 0;
    if (!conn->connector) {
        via_ofi_decision_agree(&port->decision, &conn->peer);
        rc = prove(conn, VIA_OFI_ENTRY_GRANT);
    }
    if (rc == 0 && !conn->connector && port->encrypted) {
        rc = seal(conn);
    }
    if (rc != 0) {
        give_up(conn, "greet", rc);
        return;
    }
    finish_greeting(conn);
}

void via_ofi_conn_take(struct via_ofi_conn *conn, const struct via_ofi_entry *head,
                       const void *data)
{
    struct via_ofi_port *port = conn->port;
    enum via_ofi_entry_kind expected = conn->connector ? VIA_OFI_ENTRY_GRANT : VIA_OFI_ENTRY_PROOF;
    if (conn->state == VIA_OFI_CONN_LEAVING || head->kind == VIA_OFI_ENTRY_ALIVE) {
        return;
    }
    /* The connector's first message may arrive before the event that reports the connection. */
    if (conn->state == VIA_OFI_CONN_CONNECTING && !conn->connector) {
        via_ofi_conn_connected(conn, NULL, 0);
    }
    if (head->kind == VIA_OFI_ENTRY_REFUSE) {
        refused(conn, head->value, NULL);
        retry_later(port);
        via_ofi_conn_close(conn);
    } else if (conn->state == VIA_OFI_CONN_GREETING && head->kind == expected &&
               head->bytes == sizeof(struct via_ofi_proof)) {
        take_proof(conn, data);
    } else if (conn->state == VIA_OFI_CONN_HELD && head->kind == VIA_OFI_ENTRY_MEND) {
        via_ofi_decision_mended(&port->decision, head->value);
        attach(conn);
    } else {
        set_error(port, "host %u at %s sent what does not belong into a greeting", port->peer_id,
                  conn->peer_text);
        port->peers_refused++;
        via_ofi_conn_close(conn);
        retry_later(port);
    }
}

/* --- turns --- */

/* Checks a link that is up: takes it down if the peer is silent, or if another thread has found a
 * failure. */
static void watch_link(struct via_ofi_port *port, uint64_t now_ns, uint64_t *ret_deadline_ns)
{
    struct via_ofi_conn *conn = port->conn;
    bool asleep = now_ns - port->tick_ns > ASLEEP_NS;
    if (atomic_exchange_explicit(&conn->has_received, false, memory_order_relaxed) || asleep) {
        conn->received_ns = now_ns;
    }
    if (now_ns - conn->received_ns >= DEAD_NS) {
        via_ofi_port_down(port, "no message of the peer for two seconds");
    }
    if (!via_ofi_port_is_up(port) || conn->broken) {
        char why[sizeof(port->down_why)];
        detach(port);
        pthread_mutex_lock(&port->state_lock);
        memcpy(why, port->down_why, sizeof(why));
        pthread_mutex_unlock(&port->state_lock);
        if (why[0] != '\0') {
            set_error(port, "%s", why);
        }
        return;
    }
    if (now_ns >= conn->alive_ns + ALIVE_NS) {
        conn->alive_ns = now_ns;
        via_ofi_post_alive(port);
    }
    via_ofi_dma_tick(port, now_ns, ret_deadline_ns);
    pthread_mutex_lock(&port->tx_lock);
    via_ofi_port_drain(port);
    bool waits = !via_list_is_empty(&port->pending) || port->fences_due != 0;
    pthread_mutex_unlock(&port->tx_lock);
    uint64_t next_ns = via_min(conn->alive_ns + ALIVE_NS, conn->received_ns + DEAD_NS);
    *ret_deadline_ns = via_min(*ret_deadline_ns, waits ? now_ns + VIA_MSEC_NS : next_ns);
}

/* In the connector: makes room for another request by closing the oldest one if there are
 * REQUESTS_MAX. false: a request has been answered, so no other one is needed. */
static bool make_room_for_request(struct via_ofi_port *port)
{
    struct via_ofi_conn *oldest = NULL;
    unsigned count = 0;
    via_list_foreach(it, &port->hub->conns) {
        struct via_ofi_conn *conn = via_list_entry(it, struct via_ofi_conn, link);
        if (conn->port != port || conn->broken) {
            continue;
        }
        if (conn->state != VIA_OFI_CONN_CONNECTING) {
            return false;
        }
        oldest = oldest != NULL ? oldest : conn;
        count++;
    }
    if (count >= REQUESTS_MAX) {
        set_error(port, "host %u at %s does not answer", port->peer_id, oldest->peer_text);
        via_ofi_conn_close(oldest);
    }
    return true;
}

void via_ofi_port_tick(struct via_ofi_port *port, uint64_t now_ns, uint64_t *ret_deadline_ns)
{
    if (port->conn != NULL) {
        watch_link(port, now_ns, ret_deadline_ns);
    }
    port->tick_ns = now_ns;
    if (!via_ofi_side_is_connector(port) || port->conn != NULL) {
        return;
    }
    if (now_ns >= port->retry_at_ns) {
        port->retry_at_ns =
            now_ns + RETRY_NS_MIN; /* time of the next poll; connect_to_peer() sets a later one */
        if (make_room_for_request(port) && find_address(port, now_ns) == 0) {
            connect_to_peer(port, now_ns);
        }
    }
    *ret_deadline_ns = via_min(*ret_deadline_ns, via_max(port->retry_at_ns, now_ns + VIA_MSEC_NS));
}

/* Repeats a MEND for which there was no room. */
static void mend_again(struct via_ofi_conn *conn, uint64_t now_ns, uint64_t *ret_deadline_ns)
{
    if (send_mend(conn)) {
        attach(conn);
    }
    *ret_deadline_ns = via_min(*ret_deadline_ns, now_ns + VIA_MSEC_NS);
}

static void watch_held(struct via_ofi_conn *conn, uint64_t now_ns, uint64_t *ret_deadline_ns)
{
    bool asleep = now_ns - conn->port->tick_ns > ASLEEP_NS;
    if (atomic_exchange_explicit(&conn->has_received, false, memory_order_relaxed) || asleep) {
        conn->received_ns = now_ns;
    }
    if (now_ns - conn->received_ns >= DEAD_NS) {
        set_error(conn->port, "no message of host %u for two seconds", conn->port->peer_id);
        via_ofi_conn_close(conn);
        return;
    }
    if (!via_ofi_decision_is_cut(&conn->port->decision)) {
        mend_again(conn, now_ns, ret_deadline_ns);
        return;
    }
    if (now_ns >= conn->alive_ns + ALIVE_NS) {
        conn->alive_ns = now_ns;
        (void)!via_ofi_conn_send(conn, VIA_OFI_ENTRY_ALIVE, 0, NULL, 0);
    }
    *ret_deadline_ns = via_min(*ret_deadline_ns, conn->alive_ns + ALIVE_NS);
}

void via_ofi_conn_tick(struct via_ofi_conn *conn, uint64_t now_ns, uint64_t *ret_deadline_ns)
{
    struct via_ofi_port *port = conn->port;
    if (conn->state == VIA_OFI_CONN_UP) {
        return; /* handled in via_ofi_port_tick() */
    }
    if (conn->state == VIA_OFI_CONN_HELD && !conn->broken) {
        watch_held(conn, now_ns, ret_deadline_ns);
    } else if (!conn->broken && now_ns >= conn->deadline_ns) {
        if (conn->state != VIA_OFI_CONN_LEAVING && port->conn == NULL) {
            set_error(port, "host %u at %s does not answer", port->peer_id, conn->peer_text);
            retry_later(port);
        }
        conn->broken = true;
    } else if (!conn->broken) {
        *ret_deadline_ns = via_min(*ret_deadline_ns, conn->deadline_ns);
    }
    if (conn->broken) {
        via_ofi_conn_free(conn);
    }
}
