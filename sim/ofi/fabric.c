/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* libfabric's objects that are no endpoints. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "sim/memory.h"
#include "sim/ofi/fabric.h"

struct entry {
    struct via_list link;
    struct fi_cq_msg_entry entry;
    uint64_t serial;
    int error;
};

struct event {
    struct via_list link;
    uint32_t event;
    struct fid *fid;
    struct fi_info *info;
    int error;
    size_t bytes;
    unsigned char data[SIM_OFI_DATA_MAX];
};

/* Whose fabric is opened: libfabric's calls without an object. */
static struct sim_ofi_node *opens;

void sim_ofi_select_node(struct sim_ofi_node *node)
{
    opens = node;
}

/* --- info ------------------------------------------------------------------------------------- */

struct whole_info {
    struct fi_info info; /* first */
    struct fi_tx_attr tx;
    struct fi_rx_attr rx;
    struct fi_ep_attr ep;
    struct fi_domain_attr domain;
    struct fi_fabric_attr fabric;
    struct sockaddr_in source, destination;
};

static struct fi_info *new_info(const struct fi_info *unused)
{
    struct whole_info *whole = sim_alloc(sizeof(*whole));
    (void)unused; /* the port asks for an empty one */
    whole->info = (struct fi_info){.tx_attr = &whole->tx,
                                   .rx_attr = &whole->rx,
                                   .ep_attr = &whole->ep,
                                   .domain_attr = &whole->domain,
                                   .fabric_attr = &whole->fabric};
    return &whole->info;
}

void sim_ofi_free_info(struct fi_info *info)
{
    if (info != NULL) {
        free(info->fabric_attr->prov_name);
        free(info);
    }
}

struct fi_info *sim_ofi_info(const struct sim_ofi *ofi, const struct sockaddr_in *source,
                             const struct sockaddr_in *destination)
{
    struct fi_info *info = new_info(NULL);
    struct whole_info *whole = (struct whole_info *)info;
    info->ep_attr->type = FI_EP_MSG;
    info->domain_attr->mr_mode = (int)ofi->mr_mode;
    info->domain_attr->mr_key_size = sizeof(uint64_t);
    info->tx_attr->inject_size = ofi->inject_bytes;
    info->addr_format = FI_SOCKADDR_IN;
    if (source != NULL) {
        whole->source = *source;
        info->src_addr = &whole->source;
        info->src_addrlen = sizeof(whole->source);
    }
    if (destination != NULL) {
        whole->destination = *destination;
        info->dest_addr = &whole->destination;
        info->dest_addrlen = sizeof(whole->destination);
    }
    return info;
}

static int get_info(uint32_t version, const char *node, const char *service, uint64_t flags,
                    const struct fi_info *hints, struct fi_info **ret_info)
{
    const struct sim_ofi *ofi = opens->ofi;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)atoi(service)),
                                  .sin_addr.s_addr = inet_addr(node)};
    (void)version;
    if ((hints->tx_attr->msg_order & FI_ORDER_SAW) != 0 && !ofi->keeps_order) {
        return -FI_ENODATA;
    }
    bool is_source = (flags & FI_SOURCE) != 0;
    *ret_info = sim_ofi_info(ofi, is_source ? &address : NULL, is_source ? NULL : &address);
    /* The provider promises no order that the port did not ask for. */
    (*ret_info)->rx_attr->comp_order = hints->rx_attr->comp_order;
    return 0;
}

static const char *error_text(int code)
{
    return strerror(code);
}

/* --- memory ----------------------------------------------------------------------------------- */

const struct sim_ofi_memory *sim_ofi_memory_by_key(const struct sim_ofi_node *node, uint64_t key)
{
    via_list_foreach(it, &node->memories) {
        const struct sim_ofi_memory *memory = via_list_entry(it, struct sim_ofi_memory, link);
        if (memory->mr.key == key) {
            return memory;
        }
    }
    return NULL;
}

void sim_ofi_check_memory(const struct sim_ofi_node *node, const void *at, size_t bytes,
                          const void *desc, uint64_t access)
{
    const unsigned char *from = at;
    if ((node->ofi->mr_mode & FI_MR_LOCAL) == 0) {
        return;
    }
    const struct sim_ofi_memory *memory = desc;
    if (memory != NULL && memory->node == node && from >= memory->at &&
        from + bytes <= memory->at + memory->bytes && (memory->access & access) == access) {
        return;
    }
    sim_fail(node->ofi->world, "host %u: libfabric is given %zu bytes that are not registered",
             node->host->index, bytes);
}

static int memory_close(struct fid *fid)
{
    struct sim_ofi_memory *memory = via_container_of(fid, struct sim_ofi_memory, mr.fid);
    via_list_remove(&memory->link);
    via_list_push_back(&memory->node->closed, &memory->link);
    memory->node = NULL;
    return 0;
}

void sim_ofi_free_closed(struct sim_ofi_node *node)
{
    for (struct via_list *it; (it = via_list_pop_front(&node->closed)) != NULL;) {
        free(via_list_entry(it, struct sim_ofi_memory, link));
    }
}

static int memory_open(struct fid *fid, const void *at, size_t bytes, uint64_t access,
                       uint64_t offset, uint64_t key, uint64_t flags, struct fid_mr **ret_mr,
                       void *context)
{
    static struct fi_ops ops = {.size = sizeof(ops), .close = memory_close};
    struct sim_ofi_node *node = via_container_of(fid, struct sim_ofi_node, domain.fid);
    (void)offset, (void)flags;
    bool own_key = (node->ofi->mr_mode & FI_MR_PROV_KEY) != 0;
    if (!own_key && (sim_ofi_memory_by_key(node, key) != NULL || sim_ofi_chance(node->ofi, 20))) {
        return -FI_ENOKEY;
    }
    struct sim_ofi_memory *memory = sim_alloc(sizeof(*memory));
    *memory = (struct sim_ofi_memory){.node = node, .at = at, .bytes = bytes, .access = access};
    memory->mr.fid = (struct fid){.fclass = FI_CLASS_MR, .context = context, .ops = &ops};
    memory->mr.mem_desc = memory;
    memory->mr.key = own_key ? via_rng_next(&node->ofi->rng) : key;
    via_list_push_back(&node->memories, &memory->link);
    *ret_mr = &memory->mr;
    return 0;
}

/* --- completion queues ------------------------------------------------------------------------ */

/* An operation's context belongs to the provider until it is completed, and has its number. */
static uint64_t serial_of(const void *context)
{
    uint64_t serial;
    memcpy(&serial, context, sizeof(serial));
    return serial;
}

static struct entry *pop(struct sim_ofi_cq *cq)
{
    cq->count--;
    return via_list_entry(via_list_pop_front(&cq->entries), struct entry, link);
}

static bool has_error_next(const struct sim_ofi_cq *cq)
{
    return via_list_entry(via_list_first(&cq->entries), struct entry, link)->error != 0;
}

/* Of the same operation, and before its context is used again: a later one is no duplicate that a
 * caller could notice (ADR 75). */
static void duplicate(struct sim_ofi_cq *cq, struct entry *entry)
{
    struct sim_ofi *ofi = cq->node->ofi;
    if (cq->count >= cq->size || !sim_ofi_chance(ofi, ofi->duplicate_chance)) {
        free(entry);
        return;
    }
    sim_ofi_count(ofi, SIM_OFI_DUPLICATES);
    cq->count++;
    if (via_rng_chance(&ofi->rng, 1, 2)) {
        via_list_push_front(&cq->entries, &entry->link);
    } else {
        via_list_push_back(&cq->entries, &entry->link);
    }
}

static ssize_t cq_read(struct fid_cq *fid, void *ret_entries, size_t count)
{
    struct sim_ofi_cq *cq = via_container_of(fid, struct sim_ofi_cq, cq);
    struct fi_cq_msg_entry *to = ret_entries;
    size_t done = 0;
    while (done < count && !via_list_is_empty(&cq->entries)) {
        if (has_error_next(cq)) {
            return done != 0 ? (ssize_t)done : -FI_EAVAIL;
        }
        struct entry *entry = pop(cq);
        if (serial_of(entry->entry.op_context) != entry->serial) {
            free(entry); /* a duplicate that comes too late */
            continue;
        }
        to[done++] = entry->entry;
        duplicate(cq, entry);
    }
    return done != 0 ? (ssize_t)done : -FI_EAGAIN;
}

static ssize_t cq_read_error(struct fid_cq *fid, struct fi_cq_err_entry *ret_entry, uint64_t flags)
{
    struct sim_ofi_cq *cq = via_container_of(fid, struct sim_ofi_cq, cq);
    (void)flags;
    if (via_list_is_empty(&cq->entries) || !has_error_next(cq)) {
        return -FI_EAGAIN;
    }
    struct entry *entry = pop(cq);
    *ret_entry =
        (struct fi_cq_err_entry){.op_context = entry->entry.op_context, .err = entry->error};
    sim_ofi_count(cq->node->ofi, SIM_OFI_ERRORS);
    free(entry);
    return 1;
}

static int cq_close(struct fid *fid)
{
    struct sim_ofi_cq *cq = via_container_of(fid, struct sim_ofi_cq, cq.fid);
    via_list_foreach(it, &cq->node->endpoints) {
        if (via_list_entry(it, struct sim_ofi_endpoint, link)->cq == cq) {
            sim_fail(cq->node->ofi->world,
                     "host %u: a completion queue is closed before its endpoint",
                     cq->node->host->index);
        }
    }
    while (!via_list_is_empty(&cq->entries)) {
        free(pop(cq));
    }
    cq->node->cqs_count--;
    free(cq);
    return 0;
}

static int cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **ret_cq,
                   void *context)
{
    static struct fi_ops ops = {.size = sizeof(ops), .close = cq_close};
    static struct fi_ops_cq cq_ops = {
        .size = sizeof(cq_ops), .read = cq_read, .readerr = cq_read_error};
    struct sim_ofi_node *node = via_container_of(domain, struct sim_ofi_node, domain);
    struct sim_ofi_cq *cq = sim_alloc(sizeof(*cq));
    cq->node = node;
    cq->size = attr->size;
    cq->cq.fid = (struct fid){.fclass = FI_CLASS_CQ, .context = context, .ops = &ops};
    cq->cq.ops = &cq_ops;
    via_list_init(&cq->entries);
    node->cqs_count++;
    *ret_cq = &cq->cq;
    return 0;
}

/* Without an order a completion comes at any place among those that were not read. */
static void insert(struct sim_ofi_cq *cq, struct entry *entry, bool in_order)
{
    struct sim_ofi *ofi = cq->node->ofi;
    struct via_list *place = cq->entries.prev;
    for (unsigned i = 0; !in_order && place != &cq->entries && i < 8; i++) {
        if (via_rng_chance(&ofi->rng, 1, 2)) {
            break;
        }
        place = place->prev;
        sim_ofi_count(ofi, SIM_OFI_DISORDER);
    }
    via_list_insert_after(place, &entry->link);
}

void sim_ofi_complete(struct sim_ofi_endpoint *endpoint, void *context, uint64_t serial,
                      size_t bytes, int error, bool in_order)
{
    struct sim_ofi_cq *cq = endpoint->cq;
    struct entry *entry = sim_alloc(sizeof(*entry));
    entry->entry = (struct fi_cq_msg_entry){.op_context = context, .len = bytes};
    entry->serial = serial;
    entry->error = error;
    insert(cq, entry, in_order);
    if (++cq->count > cq->size) {
        sim_fail(cq->node->ofi->world, "host %u: a completion queue of %zu entries overflows",
                 cq->node->host->index, cq->size);
    }
    if (cq->watched) {
        sim_ofi_wake(cq->node); /* the audit follows the turn */
    } else {
        sim_ofi_audit(cq->node);
    }
}

/* --- event queues ----------------------------------------------------------------------------- */

void sim_ofi_report(struct sim_ofi_node *node, uint32_t what, struct fid *fid, struct fi_info *info,
                    const void *data, size_t bytes, int error)
{
    struct event *event = sim_alloc(sizeof(*event));
    *event =
        (struct event){.event = what, .fid = fid, .info = info, .error = error, .bytes = bytes};
    if (bytes != 0) {
        memcpy(event->data, data, bytes);
    }
    via_list_push_back(&node->events, &event->link);
    sim_ofi_wake(node);
}

static void drop_event(struct event *event)
{
    via_list_remove(&event->link);
    sim_ofi_free_info(event->info);
    free(event);
}

void sim_ofi_forget_events(struct sim_ofi_node *node, const struct fid *fid)
{
    via_list_foreach_safe(it, &node->events) {
        struct event *event = via_list_entry(it, struct event, link);
        if (fid == NULL || event->fid == fid) {
            drop_event(event);
        }
    }
}

static struct event *first_event(struct fid_eq *eq)
{
    struct sim_ofi_node *node = via_container_of(eq, struct sim_ofi_node, eq);
    struct via_list *first = via_list_first(&node->events);
    return first != NULL ? via_list_entry(first, struct event, link) : NULL;
}

static ssize_t eq_read(struct fid_eq *eq, uint32_t *ret_event, void *buffer, size_t bytes,
                       uint64_t flags)
{
    struct event *event = first_event(eq);
    struct fi_eq_cm_entry *entry = buffer;
    (void)flags;
    if (event == NULL || event->error != 0) {
        return event == NULL ? -FI_EAGAIN : -FI_EAVAIL;
    }
    size_t some = via_min(event->bytes, bytes - sizeof(*entry));
    *ret_event = event->event;
    entry->fid = event->fid;
    entry->info = event->info;
    memcpy(entry->data, event->data, some);
    event->info = NULL; /* the caller's */
    drop_event(event);
    return (ssize_t)(sizeof(*entry) + some);
}

static ssize_t eq_read_error(struct fid_eq *eq, struct fi_eq_err_entry *ret_entry, uint64_t flags)
{
    static unsigned char data[SIM_OFI_DATA_MAX]; /* the queue's until the next call */
    struct event *event = first_event(eq);
    (void)flags;
    if (event == NULL || event->error == 0) {
        return -FI_EAGAIN;
    }
    memcpy(data, event->data, event->bytes);
    *ret_entry = (struct fi_eq_err_entry){
        .fid = event->fid, .err = event->error, .err_data = data, .err_data_size = event->bytes};
    drop_event(event);
    return sizeof(*ret_entry);
}

/* --- fabric, domain --------------------------------------------------------------------------- */

static int close_eq(struct fid *fid)
{
    sim_ofi_forget_events(via_container_of(fid, struct sim_ofi_node, eq.fid), NULL);
    return 0;
}

static int eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **ret_eq,
                   void *context)
{
    static struct fi_ops ops = {.size = sizeof(ops), .close = close_eq};
    static struct fi_ops_eq eq_ops = {
        .size = sizeof(eq_ops), .read = eq_read, .readerr = eq_read_error};
    struct sim_ofi_node *node = via_container_of(fabric, struct sim_ofi_node, fabric);
    (void)attr;
    node->eq = (struct fid_eq){.fid = {.fclass = FI_CLASS_EQ, .context = context, .ops = &ops},
                               .ops = &eq_ops};
    *ret_eq = &node->eq;
    return 0;
}

static int close_domain(struct fid *fid)
{
    const struct sim_ofi_node *node = via_container_of(fid, struct sim_ofi_node, domain.fid);
    if (!via_list_is_empty(&node->endpoints) || !via_list_is_empty(&node->memories) ||
        node->cqs_count != 0) {
        sim_fail(node->ofi->world, "host %u: a domain is closed before what is in it",
                 node->host->index);
    }
    return 0;
}

static int domain_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **ret,
                       void *context)
{
    static struct fi_ops ops = {.size = sizeof(ops), .close = close_domain};
    static struct fi_ops_domain domain_ops = {
        .size = sizeof(domain_ops), .cq_open = cq_open, .endpoint = sim_ofi_endpoint_open};
    static struct fi_ops_mr mr_ops = {.size = sizeof(mr_ops), .reg = memory_open};
    struct sim_ofi_node *node = via_container_of(fabric, struct sim_ofi_node, fabric);
    (void)info;
    node->domain =
        (struct fid_domain){.fid = {.fclass = FI_CLASS_DOMAIN, .context = context, .ops = &ops},
                            .ops = &domain_ops,
                            .mr = &mr_ops};
    *ret = &node->domain;
    return 0;
}

static int try_wait(struct fid_fabric *fabric, struct fid **fids, int count)
{
    struct sim_ofi_node *node = via_container_of(fabric, struct sim_ofi_node, fabric);
    for (int i = 0; i < count; i++) {
        const struct via_list *list =
            fids[i]->fclass == FI_CLASS_EQ
                ? &node->events
                : &via_container_of(fids[i], struct sim_ofi_cq, cq.fid)->entries;
        if (!via_list_is_empty(list)) {
            return -FI_EAGAIN;
        }
    }
    return 0;
}

static int close_nothing(struct fid *fid)
{
    (void)fid;
    return 0;
}

static int fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **ret_fabric, void *context)
{
    static struct fi_ops ops = {.size = sizeof(ops), .close = close_nothing};
    static struct fi_ops_fabric fabric_ops = {.size = sizeof(fabric_ops),
                                              .domain = domain_open,
                                              .passive_ep = sim_ofi_listen_open,
                                              .eq_open = eq_open,
                                              .trywait = try_wait};
    (void)attr;
    opens->fabric = (struct fid_fabric){
        .fid = {.fclass = FI_CLASS_FABRIC, .context = context, .ops = &ops}, .ops = &fabric_ops};
    *ret_fabric = &opens->fabric;
    return 0;
}

const struct via_ofi_library sim_ofi_library = {.has_completion_order = true,
                                                .getinfo = get_info,
                                                .freeinfo = sim_ofi_free_info,
                                                .dupinfo = new_info,
                                                .fabric = fabric_open,
                                                .strerror = error_text};
