/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Connections, and what is posted on them. */
#include <stdlib.h>
#include <string.h>

#include "sim/memory.h"
#include "sim/ofi/fabric.h"

struct receive {
    struct via_list link;
    unsigned char *at;
    size_t bytes;
    void *context;
    uint64_t serial;
};

static struct sim_ofi_endpoint *endpoint_of(struct fid_ep *ep)
{
    return via_container_of(ep, struct sim_ofi_endpoint, ep);
}

/* A context is the provider's until its operation is completed. */
struct stamp {
    uint64_t serial;
    const struct sim_ofi_endpoint *posted; /* where a receive waits that has this context */
};
_Static_assert(sizeof(struct stamp) <= sizeof(struct fi_context), "fits");

static uint64_t stamp(struct sim_ofi_endpoint *endpoint, void *context, bool is_posted)
{
    struct stamp stamp = {++endpoint->ops_number, is_posted ? endpoint : NULL};
    memcpy(context, &stamp, sizeof(stamp));
    return stamp.serial;
}

static bool is_posted(const struct sim_ofi_endpoint *endpoint, const void *context)
{
    struct stamp stamp;
    memcpy(&stamp, context, sizeof(stamp));
    return stamp.posted == endpoint;
}

/* --- operations ------------------------------------------------------------------------------- */

void sim_ofi_op_release(struct sim_ofi_op *op)
{
    if (op->packets_count == 0 && !op->is_linked && !op->is_waiting) {
        free(op->data);
        free(op);
    }
}

/* 0: there is room. */
static int check_room(struct sim_ofi_endpoint *endpoint)
{
    struct sim_ofi *ofi = endpoint->node->ofi;
    if (!endpoint->is_connected) {
        return -FI_ENOTCONN;
    }
    if (endpoint->is_broken) {
        return -FI_ESHUTDOWN;
    }
    if (endpoint->ops_count >= ofi->queue_depth || sim_ofi_chance(ofi, ofi->full_chance)) {
        sim_ofi_count(ofi, SIM_OFI_FULL);
        return -FI_EAGAIN;
    }
    return 0;
}

static struct sim_ofi_op *new_op(struct sim_ofi_endpoint *endpoint, const void *source,
                                 size_t bytes, void *context)
{
    struct sim_ofi_op *op = sim_alloc(sizeof(*op));
    *op = (struct sim_ofi_op){.endpoint = endpoint,
                              .is_linked = true,
                              .context = context,
                              .source = source,
                              .bytes = bytes,
                              .wants_completion = context != NULL};
    op->serial = context != NULL ? stamp(endpoint, context, false) : ++endpoint->ops_number;
    op->number = endpoint->ops_number;
    via_list_push_back(&endpoint->ops, &op->link);
    endpoint->ops_count++;
    return op;
}

static ssize_t post_message(struct fid_ep *ep, const struct fi_msg *msg, uint64_t flags)
{
    struct sim_ofi_endpoint *endpoint = endpoint_of(ep);
    (void)flags;
    int rc = check_room(endpoint);
    if (rc == 0) {
        sim_ofi_check_memory(endpoint->node, msg->msg_iov[0].iov_base, msg->msg_iov[0].iov_len,
                             msg->desc[0], FI_SEND);
        sim_ofi_send_op(
            new_op(endpoint, msg->msg_iov[0].iov_base, msg->msg_iov[0].iov_len, msg->context));
    }
    return rc;
}

static ssize_t inject(struct fid_ep *ep, const void *data, size_t bytes, fi_addr_t to)
{
    struct sim_ofi_endpoint *endpoint = endpoint_of(ep);
    (void)to;
    int rc = check_room(endpoint);
    if (rc == 0 && bytes > endpoint->node->ofi->inject_bytes) {
        sim_fail(endpoint->node->ofi->world, "host %u: %zu bytes are more than can be injected",
                 endpoint->node->host->index, bytes);
    }
    if (rc == 0) {
        struct sim_ofi_op *op = new_op(endpoint, NULL, bytes, NULL);
        op->data = sim_alloc(bytes);
        memcpy(op->data, data, bytes);
        sim_ofi_send_op(op);
    }
    return rc;
}

static ssize_t post_write(struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags)
{
    struct sim_ofi_endpoint *endpoint = endpoint_of(ep);
    int rc = check_room(endpoint);
    if (rc == 0) {
        sim_ofi_check_memory(endpoint->node, msg->msg_iov[0].iov_base, msg->msg_iov[0].iov_len,
                             msg->desc[0], FI_WRITE);
        struct sim_ofi_op *op =
            new_op(endpoint, msg->msg_iov[0].iov_base, msg->msg_iov[0].iov_len, msg->context);
        op->is_write = true;
        op->on_delivery = (flags & FI_DELIVERY_COMPLETE) != 0;
        op->remote = msg->rma_iov[0].addr;
        op->key = msg->rma_iov[0].key;
        sim_ofi_send_op(op);
    }
    return rc;
}

static ssize_t post_receive(struct fid_ep *ep, void *at, size_t bytes, void *desc, fi_addr_t from,
                            void *context)
{
    struct sim_ofi_endpoint *endpoint = endpoint_of(ep);
    struct receive *receive = sim_alloc(sizeof(*receive));
    (void)from;
    sim_ofi_check_memory(endpoint->node, at, bytes, desc, FI_RECV);
    if (is_posted(endpoint, context)) {
        sim_fail(endpoint->node->ofi->world, "host %u: a receive is posted twice",
                 endpoint->node->host->index);
    }
    *receive = (struct receive){
        .at = at, .bytes = bytes, .context = context, .serial = stamp(endpoint, context, true)};
    via_list_push_back(&endpoint->receives, &receive->link);
    sim_ofi_deliver(endpoint);
    return 0;
}

/* Its serial stays: the completion is compared with it. */
static void unpost(void *context)
{
    struct stamp stamp;
    memcpy(&stamp, context, sizeof(stamp));
    stamp.posted = NULL;
    memcpy(context, &stamp, sizeof(stamp));
}

void sim_ofi_deliver(struct sim_ofi_endpoint *to)
{
    while (!via_list_is_empty(&to->unread) && !via_list_is_empty(&to->receives) && !to->is_broken) {
        struct sim_ofi_op *op =
            via_list_entry(via_list_pop_front(&to->unread), struct sim_ofi_op, link);
        struct receive *receive =
            via_list_entry(via_list_pop_front(&to->receives), struct receive, link);
        if (op->bytes > receive->bytes) {
            sim_fail(to->node->ofi->world, "host %u: a message of %zu bytes, and room for %zu",
                     to->node->host->index, op->bytes, receive->bytes);
        }
        memcpy(receive->at, op->data, via_min(op->bytes, receive->bytes));
        unpost(receive->context);
        sim_ofi_complete(to, receive->context, receive->serial, op->bytes, 0,
                         to->receives_in_order);
        op->is_waiting = false;
        sim_ofi_op_release(op);
        free(receive);
    }
}

/* --- ends ------------------------------------------------------------------------------------- */

static void drop_lists(struct sim_ofi_endpoint *endpoint)
{
    for (struct via_list *it; (it = via_list_pop_front(&endpoint->receives)) != NULL;) {
        free(via_list_entry(it, struct receive, link));
    }
    for (struct via_list *it; (it = via_list_pop_front(&endpoint->unread)) != NULL;) {
        struct sim_ofi_op *op = via_list_entry(it, struct sim_ofi_op, link);
        op->is_waiting = false;
        sim_ofi_op_release(op);
    }
}

void sim_ofi_break(struct sim_ofi_endpoint *endpoint, int error)
{
    if (endpoint->is_broken) {
        return;
    }
    endpoint->is_broken = true;
    for (struct via_list *it; (it = via_list_pop_front(&endpoint->ops)) != NULL;) {
        struct sim_ofi_op *op = via_list_entry(it, struct sim_ofi_op, link);
        op->is_linked = false;
        if (op->wants_completion && !op->is_completed) {
            op->is_completed = true;
            if (op->data == NULL) {
                op->data = sim_alloc(op->bytes);
                memcpy(op->data, op->source, op->bytes);
            }
            sim_ofi_complete(endpoint, op->context, op->serial, 0, error, true);
            error = FI_ECANCELED;
        }
        sim_ofi_op_release(op);
    }
    endpoint->ops_count = 0;
}

static int endpoint_close(struct fid *fid)
{
    struct sim_ofi_endpoint *endpoint = via_container_of(fid, struct sim_ofi_endpoint, ep.fid);
    sim_ofi_close(endpoint);
    for (struct via_list *it; (it = via_list_pop_front(&endpoint->ops)) != NULL;) {
        struct sim_ofi_op *op = via_list_entry(it, struct sim_ofi_op, link);
        op->is_linked = false;
        op->endpoint = NULL;
        sim_ofi_op_release(op);
    }
    drop_lists(endpoint);
    sim_ofi_forget_events(endpoint->node, fid);
    via_list_remove(&endpoint->link);
    free(endpoint);
    return 0;
}

/* --- connections ------------------------------------------------------------------------------ */

static int get_name(fid_t fid, void *address, size_t *bytes)
{
    struct sim_ofi_node *node = fid->fclass == FI_CLASS_EP
                                    ? via_container_of(fid, struct sim_ofi_endpoint, ep.fid)->node
                                    : via_container_of(fid, struct sim_ofi_node, pep.fid);
    memcpy(address, &node->address, via_min(*bytes, sizeof(node->address)));
    *bytes = sizeof(node->address);
    return 0;
}

static int get_peer(struct fid_ep *ep, void *address, size_t *bytes)
{
    struct sim_ofi_endpoint *peer = endpoint_of(ep)->peer;
    return peer != NULL ? get_name(&peer->ep.fid, address, bytes) : -FI_ENOTCONN;
}

static int connect_to(struct fid_ep *ep, const void *address, const void *data, size_t bytes)
{
    struct sim_ofi_endpoint *endpoint = endpoint_of(ep);
    struct sim_ofi *ofi = endpoint->node->ofi;
    struct sim_ofi_node *to = sim_ofi_find_node(ofi, address);
    endpoint->wire = to != NULL ? sim_ofi_find_wire(endpoint->node, to) : NULL;
    if (endpoint->wire == NULL || !endpoint->is_enabled) {
        sim_fail(ofi->world, "host %u: connects to nowhere", endpoint->node->host->index);
        return -FI_EHOSTUNREACH;
    }
    struct sim_ofi_packet *packet = sim_ofi_send(endpoint->wire, SIM_OFI_CONNECT, endpoint, NULL,
                                                 ofi->world->clock.now_ns + sim_ofi_latency(ofi));
    packet->node = to;
    memcpy(packet->data, data, bytes);
    packet->data_bytes = bytes;
    return 0;
}

static int accept_call(struct fid_ep *ep, const void *data, size_t bytes)
{
    struct sim_ofi_endpoint *endpoint = endpoint_of(ep);
    struct sim_ofi *ofi = endpoint->node->ofi;
    struct sim_ofi_request *request = endpoint->request;
    uint64_t now_ns = ofi->world->clock.now_ns;
    endpoint->request = NULL;
    endpoint->wire = request->wire;
    endpoint->peer = request->caller;
    endpoint->is_connected = true;
    via_list_remove(&request->link);
    if (request->caller == NULL) {
        sim_ofi_send(endpoint->wire, SIM_OFI_SHUTDOWN, NULL, endpoint,
                     now_ns + sim_ofi_latency(ofi));
    } else {
        request->caller->peer = endpoint;
        uint64_t there_ns = now_ns + sim_ofi_latency(ofi);
        struct sim_ofi_packet *packet =
            sim_ofi_send(endpoint->wire, SIM_OFI_ACCEPT, endpoint, request->caller, there_ns);
        memcpy(packet->data, data, bytes);
        packet->data_bytes = bytes;
        endpoint->message_ns = there_ns;
        /* What the caller sends first may be here before this. */
        sim_ofi_send(endpoint->wire, SIM_OFI_ESTABLISHED, NULL, endpoint,
                     there_ns + via_rng_below(&ofi->rng, 2 * sim_ofi_latency(ofi)));
    }
    free(request);
    return 0;
}

static int reject(struct fid_pep *pep, fid_t handle, const void *data, size_t bytes)
{
    struct sim_ofi_node *node = via_container_of(pep, struct sim_ofi_node, pep);
    struct sim_ofi_request *request = via_container_of(handle, struct sim_ofi_request, fid);
    if (request->caller != NULL) {
        struct sim_ofi_packet *packet =
            sim_ofi_send(request->wire, SIM_OFI_REJECT, NULL, request->caller,
                         node->ofi->world->clock.now_ns + sim_ofi_latency(node->ofi));
        packet->error = FI_ECONNREFUSED;
        if (bytes != 0) {
            memcpy(packet->data, data, bytes);
        }
        packet->data_bytes = bytes;
    }
    via_list_remove(&request->link);
    free(request);
    return 0;
}

static int listen_for_callers(struct fid_pep *pep)
{
    via_container_of(pep, struct sim_ofi_node, pep)->is_listening = true;
    return 0;
}

static int close_listener(struct fid *fid)
{
    struct sim_ofi_node *node = via_container_of(fid, struct sim_ofi_node, pep.fid);
    node->is_listening = false;
    for (struct via_list *it; (it = via_list_pop_front(&node->requests)) != NULL;) {
        free(via_list_entry(it, struct sim_ofi_request, link));
    }
    return 0;
}

static int bind_to(struct fid *fid, struct fid *other, uint64_t flags)
{
    (void)flags;
    if (fid->fclass == FI_CLASS_EP && other->fclass == FI_CLASS_CQ) {
        via_container_of(fid, struct sim_ofi_endpoint, ep.fid)->cq =
            via_container_of(other, struct sim_ofi_cq, cq.fid);
    }
    return 0;
}

static int enable(struct fid *fid, int command, void *argument)
{
    (void)argument;
    via_container_of(fid, struct sim_ofi_endpoint, ep.fid)->is_enabled = command == FI_ENABLE;
    return 0;
}

static struct fi_ops_cm cm_ops = {.size = sizeof(cm_ops),
                                  .getname = get_name,
                                  .getpeer = get_peer,
                                  .connect = connect_to,
                                  .listen = listen_for_callers,
                                  .accept = accept_call,
                                  .reject = reject};

int sim_ofi_listen_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_pep **ret_pep,
                        void *context)
{
    static struct fi_ops ops = {.size = sizeof(ops), .close = close_listener, .bind = bind_to};
    struct sim_ofi_node *node = via_container_of(fabric, struct sim_ofi_node, fabric);
    node->receive_order = info->rx_attr->comp_order;
    node->pep = (struct fid_pep){.fid = {.fclass = FI_CLASS_PEP, .context = context, .ops = &ops},
                                 .cm = &cm_ops};
    *ret_pep = &node->pep;
    return 0;
}

int sim_ofi_endpoint_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ret_ep,
                          void *context)
{
    static struct fi_ops ops = {
        .size = sizeof(ops), .close = endpoint_close, .bind = bind_to, .control = enable};
    static struct fi_ops_msg msg_ops = {
        .size = sizeof(msg_ops), .recv = post_receive, .sendmsg = post_message, .inject = inject};
    static struct fi_ops_rma rma_ops = {.size = sizeof(rma_ops), .writemsg = post_write};
    struct sim_ofi_endpoint *endpoint = sim_alloc(sizeof(*endpoint));
    endpoint->node = via_container_of(domain, struct sim_ofi_node, domain);
    endpoint->receives_in_order = info->rx_attr->comp_order == VIA_OFI_ORDER_STRICT;
    endpoint->request =
        info->handle != NULL ? via_container_of(info->handle, struct sim_ofi_request, fid) : NULL;
    endpoint->ep.fid = (struct fid){.fclass = FI_CLASS_EP, .context = context, .ops = &ops};
    endpoint->ep.cm = &cm_ops;
    endpoint->ep.msg = &msg_ops;
    endpoint->ep.rma = &rma_ops;
    via_list_init(&endpoint->receives);
    via_list_init(&endpoint->unread);
    via_list_init(&endpoint->ops);
    via_list_push_back(&endpoint->node->endpoints, &endpoint->link);
    *ret_ep = &endpoint->ep;
    return 0;
}
