/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A connection: its endpoint, completion queue and receives. */
#include <errno.h>
#include <rdma/fi_rma.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "base/mutant.h"
#include "port/ofi/port.h"

_Static_assert(VIA_OFI_GREETINGS *VIA_OFI_GREETING_BYTES <= 4096u, "fits");
#define CQ_ENTRIES (VIA_OFI_RECEIVES + VIA_OFI_MESSAGES + VIA_OFI_WRITES + VIA_OFI_DMA_DEPTH + 64u)

static size_t receives_bytes(const struct via_ofi_conn *conn)
{
    return (size_t)VIA_OFI_RECEIVES * conn->port->message_bytes;
}

/* With the greetings. */
static size_t memory_bytes(const struct via_ofi_conn *conn)
{
    return receives_bytes(conn) + 4096u;
}

static int open_memory(struct via_ofi_conn *conn)
{
    conn->memory =
        mmap(NULL, memory_bytes(conn), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (conn->memory == MAP_FAILED) {
        conn->memory = NULL;
        return -errno;
    }
    for (unsigned i = 0; i < VIA_OFI_RECEIVES; i++) {
        conn->receives[i].op.kind = VIA_OFI_OP_RECEIVE;
        conn->receives[i].data = conn->memory + (size_t)i * conn->port->message_bytes;
    }
    for (unsigned i = 0; i < VIA_OFI_GREETINGS; i++) {
        conn->greetings[i].op.kind = VIA_OFI_OP_GREETING;
        conn->greetings[i].data = conn->memory + receives_bytes(conn) + i * VIA_OFI_GREETING_BYTES;
    }
    return conn->hub->local_keys ? via_ofi_hub_register(conn->hub, conn->memory, memory_bytes(conn),
                                                        FI_RECV | FI_SEND, &conn->memory_mr)
                                 : 0;
}

static int open_cq(struct via_ofi_conn *conn)
{
    struct fi_cq_attr attr = {
        .size = CQ_ENTRIES, .format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_FD};
    int rc = fi_cq_open(conn->hub->domain, &attr, &conn->cq, conn);
    if (rc == 0) {
        rc = conn->hub->system->watch_open(conn);
    }
    conn->watched = rc == 0;
    return rc;
}

static int open_ep(struct via_ofi_conn *conn, struct fi_info *info)
{
    /* Each send sets FI_COMPLETION if its completion is wanted. */
    info->tx_attr->op_flags = 0;
    info->rx_attr->op_flags = FI_COMPLETION;
    int rc = fi_endpoint(conn->hub->domain, info, &conn->ep, conn);
    if (rc == 0) {
        rc = fi_ep_bind(conn->ep, &conn->hub->eq->fid, 0);
    }
    if (rc == 0) {
        rc = fi_ep_bind(conn->ep, &conn->cq->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION);
    }
    if (rc == 0) {
        rc = fi_ep_bind(conn->ep, &conn->cq->fid, FI_RECV);
    }
    return rc == 0 ? fi_enable(conn->ep) : rc;
}

static int post_receive(struct via_ofi_conn *conn, struct via_ofi_receive *receive)
{
    void *desc = conn->memory_mr != NULL ? fi_mr_desc(conn->memory_mr) : NULL;
    receive->op.posted = true;
    return (int)fi_recv(conn->ep, receive->data, conn->port->message_bytes, desc, FI_ADDR_UNSPEC,
                        &receive->op);
}

/* Called before the connection is established, for the peer's first messages. */
static int post_receives(struct via_ofi_conn *conn)
{
    int rc = 0;
    for (unsigned i = 0; i < VIA_OFI_RECEIVES && rc == 0; i++) {
        rc = post_receive(conn, &conn->receives[i]);
    }
    return rc;
}

static int new_conn(struct via_ofi_port *port, struct fi_info *info, bool connector,
                    struct via_ofi_conn **ret_conn)
{
    struct via_ofi_conn *conn = calloc(1, sizeof(*conn));
    if (conn == NULL) {
        return -ENOMEM;
    }
    *ret_conn = conn;
    conn->hub = port->hub;
    conn->port = port;
    conn->number = ++port->hub->conns_made;
    conn->connector = connector;
    conn->state = VIA_OFI_CONN_CONNECTING;
    via_list_push_back(&port->hub->conns, &conn->link);
    int rc = open_memory(conn);
    if (rc == 0) {
        rc = open_cq(conn);
    }
    if (rc == 0) {
        rc = open_ep(conn, info);
    }
    return rc == 0 ? post_receives(conn) : rc;
}

int via_ofi_conn_connect(struct via_ofi_port *port, struct fi_info *info,
                         const struct via_ofi_request *request, struct via_ofi_conn **ret_conn)
{
    struct via_ofi_conn *conn = NULL;
    int rc = new_conn(port, info, true, &conn);
    if (rc == 0) {
        conn->request = *request;
        rc = fi_connect(conn->ep, info->dest_addr, request, sizeof(*request));
    }
    if (rc != 0 && conn != NULL) {
        via_ofi_conn_free(conn);
        return rc;
    }
    *ret_conn = conn;
    return rc;
}

int via_ofi_conn_accept(struct via_ofi_port *port, struct fi_info *info,
                        const struct via_ofi_request *request, const struct via_ofi_answer *answer,
                        bool *ret_owned, struct via_ofi_conn **ret_conn)
{
    struct via_ofi_conn *conn = NULL;
    int rc = new_conn(port, info, false, &conn);
    *ret_owned = conn != NULL && conn->ep != NULL;
    if (rc == 0) {
        conn->request = *request;
        conn->answer = *answer;
        rc = fi_accept(conn->ep, answer, sizeof(*answer));
    }
    if (rc != 0 && conn != NULL) {
        via_ofi_conn_free(conn);
        return rc;
    }
    *ret_conn = conn;
    return rc;
}

void via_ofi_conn_connected_to(struct via_ofi_conn *conn)
{
    unsigned char address[128];
    size_t bytes = sizeof(address);
    if (fi_getname(&conn->ep->fid, address, &bytes) == 0) {
        via_ofi_address_text(address, bytes, conn->local_text, sizeof(conn->local_text));
    }
    bytes = sizeof(address);
    if (fi_getpeer(conn->ep, address, &bytes) == 0) {
        via_ofi_address_text(address, bytes, conn->peer_text, sizeof(conn->peer_text));
    }
}

int via_ofi_conn_open_inbox(struct via_ofi_conn *conn)
{
    const struct via_ofi_port *port = conn->port;
    return via_ofi_hub_register(conn->hub, port->base.inbox, port->base.caps.inbox_bytes,
                                FI_REMOTE_WRITE, &conn->inbox_mr);
}

int via_ofi_conn_repost(struct via_ofi_conn *conn, struct via_ofi_receive *receive)
{
    return post_receive(conn, receive);
}

int via_ofi_conn_send(struct via_ofi_conn *conn, enum via_ofi_entry_kind kind, uint32_t value,
                      const void *data, uint16_t bytes)
{
    struct via_ofi_entry head = {.kind = (uint16_t)kind, .bytes = bytes, .value = value};
    struct via_ofi_greeting *greeting = NULL;
    for (unsigned i = 0; i < VIA_OFI_GREETINGS && greeting == NULL; i++) {
        greeting = conn->greetings[i].busy ? NULL : &conn->greetings[i];
    }
    if (greeting == NULL) {
        return -EAGAIN;
    }
    _Static_assert(sizeof(head) + sizeof(struct via_ofi_proof) <= VIA_OFI_GREETING_BYTES, "fits");
    memcpy(greeting->data, &head, sizeof(head));
    if (bytes != 0) {
        memcpy(greeting->data + sizeof(head), data, bytes);
    }
    struct iovec vector = {.iov_base = greeting->data,
                           .iov_len = sizeof(head) + via_align_up(bytes, 8)};
    if (conn->sealed) {
        via_ofi_seal_put(&conn->send, greeting->data, vector.iov_len);
        vector.iov_len += VIA_OFI_TAG_BYTES;
    }
    void *desc = conn->memory_mr != NULL ? fi_mr_desc(conn->memory_mr) : NULL;
    struct fi_msg msg = {.msg_iov = &vector,
                         .desc = &desc,
                         .iov_count = 1,
                         .context = &greeting->op,
                         .addr = FI_ADDR_UNSPEC};
    greeting->op.posted = true;
    int rc = (int)fi_sendmsg(conn->ep, &msg, FI_COMPLETION);
    greeting->busy = rc == 0;
    greeting->op.posted = greeting->op.posted && rc == 0;
    /* A sealed message has its number: if it is not sent, the peer rejects all later ones. */
    conn->broken = conn->broken || (conn->sealed && rc != 0);
    return rc;
}

static void close_fid(struct fid *fid, const char *what, struct via_ofi_conn *conn)
{
    int rc = fi_close(fid);
    if (rc != 0) {
        via_log(VIA_LOG_ERROR, "ofi %s: close the %s: %s", conn->hub->provider, what,
                conn->hub->library->strerror(-rc));
    }
}

void via_ofi_conn_close(struct via_ofi_conn *conn)
{
    /* The endpoint first, so that no more completions arrive. */
    if (conn->ep != NULL) {
        close_fid(&conn->ep->fid, "endpoint", conn);
        conn->ep = NULL;
    }
    if (conn->cq != NULL) {
        conn->hub->system->watch_close(conn);
        close_fid(&conn->cq->fid, "completion queue", conn);
        conn->cq = NULL;
    }
    struct fid_mr **const mrs[] = {&conn->inbox_mr, &conn->memory_mr};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(mrs); i++) {
        if (*mrs[i] != NULL && !(VIA_MUTANT(OFI_KEPT_KEY) && mrs[i] == &conn->inbox_mr)) {
            close_fid(&(*mrs[i])->fid, "memory", conn);
            *mrs[i] = NULL;
        }
    }
    conn->broken = true;
}

void via_ofi_conn_free(struct via_ofi_conn *conn)
{
    via_ofi_conn_close(conn);
    via_list_remove(&conn->link);
    if (conn->memory != NULL) {
        munmap(conn->memory, memory_bytes(conn));
    }
    via_ofi_seal_wipe(conn->secret, sizeof(conn->secret));
    via_ofi_seal_wipe(&conn->send, sizeof(conn->send));
    via_ofi_seal_wipe(&conn->receive, sizeof(conn->receive));
    free(conn);
}
