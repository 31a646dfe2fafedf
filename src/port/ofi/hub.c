/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "port/ofi/hub.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mutant.h"
#include "base/types.h"
#include "port/ofi/port.h"

#define EVENTS_MAX 32 /* of a turn */
#define KEY_TRIES 8
/* How long the hub's thread leaves a port to transfer threads that poll it. If a transfer thread is
 * preempted, a message may be received this late. */
#define REST_NS (200 * VIA_USEC_NS)

static struct via_list hubs = {.next = &hubs, .prev = &hubs};
static pthread_mutex_t hubs_lock = PTHREAD_MUTEX_INITIALIZER;

void via_ofi_address_text(const void *address, size_t address_bytes, char *ret_text, size_t bytes)
{
    char host[VIA_OFI_ADDRESS_BYTES];
    char service[8];
    ret_text[0] = '\0';
    if (address_bytes >= sizeof(struct sockaddr_in) &&
        getnameinfo(address, (socklen_t)address_bytes, host, sizeof(host), service, sizeof(service),
                    NI_NUMERICHOST | NI_NUMERICSERV) == 0) {
        snprintf(ret_text, bytes, strchr(host, ':') != NULL ? "[%s]:%s" : "%s:%s", host, service);
    }
}

/* --- libfabric's info, fabric and domain --- */

static struct fi_info *make_hints(const struct via_ofi_library *library, const char *provider,
                                  bool ordered)
{
    struct fi_info *hints = library->dupinfo(NULL);
    if (hints == NULL) {
        return NULL;
    }
    hints->caps = FI_MSG | FI_RMA;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_MSG;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    /* Messages of one connection stay in order, and where the provider can, they come after the
     * writes that were posted before them. */
    uint64_t order = FI_ORDER_SAS | (ordered ? FI_ORDER_SAW : 0);
    hints->tx_attr->msg_order = order;
    hints->rx_attr->msg_order = order;
    /* Order of messages does not imply order of their completions. */
    bool requests_order = library->has_completion_order && !VIA_MUTANT(OFI_ANY_ORDER);
    hints->rx_attr->comp_order = requests_order ? VIA_OFI_ORDER_STRICT : 0;
    hints->fabric_attr->prov_name = strdup(provider);
    if (hints->fabric_attr->prov_name == NULL) {
        library->freeinfo(hints);
        return NULL;
    }
    return hints;
}

static int get_info(const struct via_ofi_library *library, const char *provider,
                    const char *address, uint16_t port, bool listens, bool *ret_ordered,
                    struct fi_info **ret_info)
{
    char service[8];
    int rc = -ENODATA;
    snprintf(service, sizeof(service), "%u", port);
    for (int ordered = 1; ordered >= 0 && rc == -ENODATA; ordered--) {
        struct fi_info *hints = make_hints(library, provider, ordered != 0);
        if (hints == NULL) {
            return -ENOMEM;
        }
        rc = library->getinfo(VIA_OFI_VERSION, address, service, listens ? FI_SOURCE : 0, hints,
                              ret_info);
        library->freeinfo(hints);
        *ret_ordered = ordered != 0;
    }
    return rc;
}

int via_ofi_hub_info(struct via_ofi_hub *hub, const char *address, uint16_t port, bool listens,
                     struct fi_info **ret_info)
{
    bool ordered;
    return get_info(hub->library, hub->provider, address, port, listens, &ordered, ret_info);
}

int via_ofi_hub_register(struct via_ofi_hub *hub, void *memory, size_t bytes, uint64_t access,
                         struct fid_mr **ret_mr)
{
    int rc = -FI_ENOKEY; /* not an errno of the C library */
    for (int i = 0; i < KEY_TRIES && rc == -FI_ENOKEY; i++) {
        uint64_t key;
        if (!hub->system->random(hub->system, &key, sizeof(key))) {
            return -EIO;
        }
        if (hub->info->domain_attr->mr_key_size < sizeof(key)) {
            key &= (UINT64_C(1) << 8 * hub->info->domain_attr->mr_key_size) - 1;
        }
        rc = fi_mr_reg(hub->domain, memory, bytes, access, 0, key, 0, ret_mr, NULL);
    }
    return rc;
}

/* --- opening --- */

static int open_eq(struct via_ofi_hub *hub, struct via_error *err)
{
    struct fi_eq_attr attr = {.wait_obj = FI_WAIT_FD};
    int rc = fi_eq_open(hub->fabric, &attr, &hub->eq, NULL);
    return rc != 0 ? via_error_set(err, rc, "event queue: %s", hub->library->strerror(-rc)) : 0;
}

/* True if the provider is installed, but has no connected endpoints. */
static bool has_no_connections(const struct via_ofi_hub *hub)
{
    const struct via_ofi_library *library = hub->library;
    struct fi_info *hints = library->dupinfo(NULL);
    struct fi_info *found = NULL;
    if (hints == NULL) {
        return false;
    }
    hints->fabric_attr->prov_name = strdup(hub->provider);
    bool there = hints->fabric_attr->prov_name != NULL &&
                 library->getinfo(VIA_OFI_VERSION, NULL, NULL, 0, hints, &found) == 0;
    library->freeinfo(hints);
    if (there) {
        library->freeinfo(found);
    }
    return there;
}

static int report_no_provider(const struct via_ofi_hub *hub, int rc, struct via_error *err)
{
    if (rc == -FI_ENODATA && has_no_connections(hub)) {
        return via_error_set(err, rc,
                             "provider '%s' has no connections (FI_EP_MSG), which links need: its "
                             "endpoints do not report the death of a peer; 'fi_info -t FI_EP_MSG' "
                             "lists providers that have them",
                             hub->provider);
    }
    return via_error_set(err, rc,
                         "libfabric has no provider '%s' for connections from %s port %u: %s "
                         "('fi_info -l' lists those that are installed)",
                         hub->provider, hub->listen.host, hub->listen.port,
                         hub->library->strerror(-rc));
}

static int open_fabric(struct via_ofi_hub *hub, struct via_error *err)
{
    int rc = get_info(hub->library, hub->provider, hub->listen.host, hub->listen.port, true,
                      &hub->ordered, &hub->info);
    if (rc != 0) {
        return report_no_provider(hub, rc, err);
    }
    hub->local_keys = (hub->info->domain_attr->mr_mode & FI_MR_LOCAL) != 0;
    hub->inject_bytes = hub->info->tx_attr->inject_size;
    rc = hub->library->fabric(hub->info->fabric_attr, &hub->fabric, NULL);
    if (rc == 0) {
        rc = fi_domain(hub->fabric, hub->info, &hub->domain, NULL);
    }
    if (rc != 0) {
        return via_error_set(err, rc, "provider %s: %s", hub->provider,
                             hub->library->strerror(-rc));
    }
    return open_eq(hub, err);
}

static int listen_for_links(struct via_ofi_hub *hub, struct via_error *err)
{
    struct fid_pep *pep = NULL;
    int rc = fi_passive_ep(hub->fabric, hub->info, &pep, NULL);
    if (rc == 0) {
        rc = fi_pep_bind(pep, &hub->eq->fid, 0);
    }
    if (rc == 0) {
        rc = fi_listen(pep);
    }
    if (rc != 0) {
        if (pep != NULL) {
            fi_close(&pep->fid);
        }
        return via_error_set(err, rc, "listen on %s port %u: %s", hub->listen.host,
                             hub->listen.port, hub->library->strerror(-rc));
    }
    hub->pep = pep;
    return 0;
}

static void close_hub(struct via_ofi_hub *hub)
{
    hub->system->stop(hub);
    struct fid *const fids[] = {hub->pep != NULL ? &hub->pep->fid : NULL,
                                hub->eq != NULL ? &hub->eq->fid : NULL,
                                hub->domain != NULL ? &hub->domain->fid : NULL,
                                hub->fabric != NULL ? &hub->fabric->fid : NULL};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(fids); i++) {
        int rc = fids[i] != NULL ? fi_close(fids[i]) : 0;
        if (rc != 0) {
            via_log(VIA_LOG_ERROR, "ofi %s: close: %s", hub->provider, hub->library->strerror(-rc));
        }
    }
    if (hub->info != NULL) {
        hub->library->freeinfo(hub->info);
    }
    pthread_mutex_destroy(&hub->lock);
    free(hub);
}

/* --- the thread's turn --- */

static struct via_ofi_conn *find_conn(struct via_ofi_hub *hub, const struct fid *fid)
{
    via_list_foreach(it, &hub->conns) {
        struct via_ofi_conn *conn = via_list_entry(it, struct via_ofi_conn, link);
        if (conn->ep != NULL && &conn->ep->fid == fid) {
            return conn;
        }
    }
    return NULL;
}

static void take_error(struct via_ofi_hub *hub)
{
    struct fi_eq_err_entry entry = {0};
    /* Its data belongs to the queue until the next read. */
    if (fi_eq_readerr(hub->eq, &entry, 0) <= 0) {
        return;
    }
    struct via_ofi_conn *conn = find_conn(hub, entry.fid);
    if (conn != NULL) {
        via_ofi_conn_ended(conn, entry.err, entry.err_data, entry.err_data_size);
    }
}

static void take_event(struct via_ofi_hub *hub, uint32_t event, const struct fi_eq_cm_entry *entry,
                       size_t data_bytes)
{
    if (event == FI_CONNREQ) {
        via_ofi_hub_requested(hub, entry->info, entry->data, data_bytes);
        return;
    }
    struct via_ofi_conn *conn = find_conn(hub, entry->fid);
    if (conn == NULL) {
        return;
    }
    if (event == FI_CONNECTED) {
        via_ofi_conn_connected(conn, entry->data, data_bytes);
    } else if (event == FI_SHUTDOWN) {
        via_ofi_conn_ended(conn, 0, NULL, 0);
    }
}

/* true: there may be more. */
static bool take_events(struct via_ofi_hub *hub)
{
    /* An entry of the event queue, and its private data. */
    _Alignas(struct fi_eq_cm_entry) unsigned char buffer[sizeof(struct fi_eq_cm_entry) + 512];
    const struct fi_eq_cm_entry *entry = (const void *)buffer;
    for (int i = 0; i < EVENTS_MAX; i++) {
        uint32_t event = 0;
        ssize_t bytes = fi_eq_read(hub->eq, &event, buffer, sizeof(buffer), 0);
        if (bytes == -FI_EAVAIL) {
            take_error(hub);
        } else if (bytes < (ssize_t)sizeof(*entry)) {
            return false;
        } else {
            take_event(hub, event, entry, (size_t)bytes - sizeof(*entry));
        }
    }
    return true;
}

static void watch(struct via_ofi_conn *conn, bool watched)
{
    if (conn->watched != watched) {
        conn->hub->system->watch_set(conn, watched);
        conn->watched = watched;
    }
}

void via_ofi_hub_rest(struct via_ofi_port *port)
{
    struct via_ofi_hub *hub = port->hub;
    bool done = false;
    if (pthread_mutex_trylock(&hub->lock) == 0) {
        struct via_ofi_conn *conn = port->conn;
        struct fid *fid = conn != NULL && conn->cq != NULL ? &conn->cq->fid : NULL;
        done = fid != NULL && via_ofi_port_progress(port) && fi_trywait(hub->fabric, &fid, 1) == 0;
        if (done) {
            watch(conn, true);
        }
        pthread_mutex_unlock(&hub->lock);
    }
    if (!done) {
        via_ofi_hub_kick(hub);
    }
}

/* Makes progress on a connection, unless transfer threads do so. In that case the hub's thread
 * checks again after REST_NS, or when one of these threads goes to sleep. */
static void progress(struct via_ofi_conn *conn, uint64_t now_ns, uint64_t *ret_deadline_ns)
{
    struct via_ofi_port *port = conn->port;
    if (conn->cq == NULL) {
        return;
    }
    if (conn->state != VIA_OFI_CONN_UP) {
        pthread_mutex_lock(&port->rx_lock);
        via_ofi_conn_progress(conn);
        pthread_mutex_unlock(&port->rx_lock);
        return;
    }
    /* Stores `resting` before it loads `polled`: pairs with ofi_rest() in ops.c. */
    atomic_store_explicit(&port->resting, true, memory_order_seq_cst);
    bool polled = atomic_exchange_explicit(&port->polled, false, memory_order_seq_cst);
    if (!polled) {
        atomic_store_explicit(&port->resting, false, memory_order_seq_cst);
        (void)via_ofi_port_progress(port);
    }
    watch(conn, !polled);
    if (polled) {
        *ret_deadline_ns = via_min(*ret_deadline_ns, now_ns + REST_NS);
    }
}

/* True if libfabric allows the thread to sleep: fi_trywait(). */
static bool is_sleep_allowed(struct via_ofi_hub *hub)
{
    struct fid *fid = &hub->eq->fid;
    if (fi_trywait(hub->fabric, &fid, 1) != 0) {
        return false;
    }
    via_list_foreach(it, &hub->conns) {
        struct via_ofi_conn *conn = via_list_entry(it, struct via_ofi_conn, link);
        fid = conn->cq != NULL ? &conn->cq->fid : NULL;
        if (fid != NULL && conn->watched && fi_trywait(hub->fabric, &fid, 1) != 0) {
            return false;
        }
    }
    return true;
}

static uint64_t run_turn(struct via_ofi_hub *hub)
{
    uint64_t now_ns = via_ofi_hub_now_ns(hub);
    uint64_t deadline_ns = VIA_NEVER_NS;
    bool more = take_events(hub);
    via_list_foreach(it, &hub->conns) {
        progress(via_list_entry(it, struct via_ofi_conn, link), now_ns, &deadline_ns);
    }
    via_list_foreach_safe(it, &hub->conns) {
        struct via_ofi_conn *conn = via_list_entry(it, struct via_ofi_conn, link);
        via_ofi_conn_tick(conn, now_ns, &deadline_ns);
    }
    via_list_foreach(it, &hub->ports) {
        via_ofi_port_tick(via_list_entry(it, struct via_ofi_port, link), now_ns, &deadline_ns);
    }
    via_ofi_strangers_tick(hub, now_ns, &deadline_ns);
    return more || !is_sleep_allowed(hub) ? 0 : deadline_ns;
}

uint64_t via_ofi_hub_turn(struct via_ofi_hub *hub)
{
    pthread_mutex_lock(&hub->lock);
    uint64_t deadline_ns = run_turn(hub);
    pthread_mutex_unlock(&hub->lock);
    return deadline_ns;
}

/* --- the table of hubs --- */

static int make(const struct via_ofi_system *system, const char *provider,
                const struct via_ofi_place *listen, struct via_ofi_hub **ret_hub,
                struct via_error *err)
{
    const struct via_ofi_library *library = system->load(system, err);
    if (library == NULL) {
        return -ELIBACC;
    }
    struct via_ofi_hub *hub = calloc(1, sizeof(*hub));
    if (hub == NULL) {
        return via_error_set(err, -ENOMEM, "%s", strerror(ENOMEM));
    }
    hub->library = library;
    hub->system = system;
    hub->listen = *listen;
    snprintf(hub->provider, sizeof(hub->provider), "%s", provider);
    pthread_mutex_init(&hub->lock, NULL);
    via_list_init(&hub->ports);
    via_list_init(&hub->conns);
    int rc = open_fabric(hub, err);
    if (rc == 0) {
        rc = system->start(hub, err);
    }
    if (rc != 0) {
        close_hub(hub);
        return rc;
    }
    *ret_hub = hub;
    return 0;
}

static struct via_ofi_hub *find_hub(const struct via_ofi_system *system, const char *provider,
                                    const struct via_ofi_place *listen)
{
    via_list_foreach(it, &hubs) {
        struct via_ofi_hub *hub = via_list_entry(it, struct via_ofi_hub, link);
        if (hub->system == system && strcmp(hub->provider, provider) == 0 &&
            strcmp(hub->listen.host, listen->host) == 0 && hub->listen.port == listen->port) {
            return hub;
        }
    }
    return NULL;
}

static int get(const struct via_ofi_system *system, const char *provider,
               const struct via_ofi_place *listen, bool listens, struct via_ofi_hub **ret_hub,
               struct via_error *err)
{
    struct via_ofi_hub *hub = find_hub(system, provider, listen);
    bool made = hub == NULL;
    int rc = made ? make(system, provider, listen, &hub, err) : 0;
    if (rc != 0) {
        return rc;
    }
    pthread_mutex_lock(&hub->lock);
    if (listens && hub->pep == NULL) {
        rc = listen_for_links(hub, err);
    }
    pthread_mutex_unlock(&hub->lock);
    if (rc != 0) {
        if (made) {
            close_hub(hub);
        }
        return rc;
    }
    if (made) {
        via_list_push_back(&hubs, &hub->link);
    }
    hub->users++;
    *ret_hub = hub;
    return 0;
}

int via_ofi_hub_get(const struct via_ofi_system *system, const char *provider,
                    const struct via_ofi_place *listen, bool listens, struct via_ofi_hub **ret_hub,
                    struct via_error *err)
{
    pthread_mutex_lock(&hubs_lock);
    int rc = get(system, provider, listen, listens, ret_hub, err);
    pthread_mutex_unlock(&hubs_lock);
    return rc;
}

void via_ofi_hub_put(struct via_ofi_hub *hub)
{
    pthread_mutex_lock(&hubs_lock);
    if (--hub->users == 0) {
        via_list_remove(&hub->link);
        close_hub(hub);
    }
    pthread_mutex_unlock(&hubs_lock);
}
