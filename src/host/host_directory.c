/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/host_directory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "host/host_private.h"

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * VIA_SEC_NS + (uint64_t)now.tv_nsec;
}

/* --- this host's entry ------------------------------------------------------------------------ */

static void describe_link(const struct via_host *host, unsigned index,
                          struct via_directory_link *ret_link)
{
    const struct via_host_cable *cable = &host->cables[index];
    struct via_link_status link = {.state = VIA_LINK_DOWN};
    struct via_port_status port;
    (void)via_node_link_status(host->node, index, &link);
    cable->link.driver->status(cable->port, &port);
    bool seen = link.state == VIA_LINK_UP;
    *ret_link = (struct via_directory_link){
        .peer = seen ? link.peer : cable->peer,
        .state = (uint8_t)link.state,
        .flags = port.cut ? VIA_DIRECTORY_LINK_CUT : 0,
    };
    strncpy(ret_link->driver, cable->link.driver->name, sizeof(ret_link->driver) - 1);
    strncpy(ret_link->like, port.class_name, sizeof(ret_link->like) - 1);
}

static unsigned describe_links(const struct via_host *host, struct via_directory_link *ret_links)
{
    unsigned count = 0;
    for (unsigned i = 0; i < host->cables_count && count < VIA_DIRECTORY_LINKS_MAX; i++) {
        if (host->cables[i].port != NULL) {
            describe_link(host, i, &ret_links[count++]);
        }
    }
    return count;
}

static void describe_identity(struct via_host *host, struct via_directory_entry *own)
{
    memcpy(own->name, host->identity.name, sizeof(own->name));
    memcpy(own->fabric, host->identity.fabric, sizeof(own->fabric));
    own->addresses_count = 0;
    for (unsigned i = 0; i < host->identity.addresses_count; i++) {
        own->addresses_count += via_directory_ip_parse(host->identity.addresses[i],
                                                       &own->addresses[own->addresses_count]);
    }
}

/* From options, which are constant, and from the identity, which may change. */
static int describe_host(struct via_host *host)
{
    struct via_directory_entry *own = via_directory_own(&host->directory.table);
    if (own == NULL) {
        return -ENOMEM;
    }
    own->revision = 1;
    own->protocol_version = host->protocol_version;
    own->frame_bytes = host->config.frame_bytes_max;
    own->hosts_max = host->config.hosts_max;
    own->channels_count = host->config.channels_count;
    own->started_ns = clock_ns(CLOCK_REALTIME);
    own->booted_ns = own->started_ns - clock_ns(CLOCK_BOOTTIME);
    strncpy(own->version, VIADUCT_VERSION, VIA_DIRECTORY_VERSION_BYTES);
    describe_identity(host, own);
    return 0;
}

/* Records which hosts are unreachable, and since when. */
static void update_routes(struct via_host *host)
{
    for (uint16_t id = 0; id < host->config.hosts_max; id++) {
        struct via_directory_peer *peer = &host->directory.peers[id];
        struct via_route_status route = {.port = VIA_PORT_NONE};
        bool there =
            via_node_route_status(host->node, id, &route) == 0 && route.port != VIA_PORT_NONE;
        if (peer->reachable && !there) {
            peer->lost_ns = host->now_ns;
        }
        peer->reachable = there;
    }
    host->directory.gone_ns = host->now_ns;
}

static uint64_t gone_after_ns(const struct via_host *host)
{
    uint64_t given = host->config.give_up_ns;
    return given != 0 ? given : VIA_DIRECTORY_GONE_NS;
}

/* Finds hosts that were unreachable for so long that other hosts may take their addresses over.
 * True: the set has changed. */
static bool find_gone_hosts(struct via_host *host)
{
    struct via_host_directory *directory = &host->directory;
    uint64_t after_ns = gone_after_ns(host);
    bool changed = false;
    if (host->now_ns < directory->gone_ns) {
        return false;
    }
    directory->gone_ns = VIA_NEVER_NS;
    for (uint16_t id = 0; id < host->config.hosts_max; id++) {
        const struct via_directory_peer *peer = &directory->peers[id];
        struct via_directory_entry *entry = via_directory_find(&directory->table, id);
        if (entry == NULL || id == host->config.host) {
            continue;
        }
        bool lost = !peer->reachable && peer->lost_ns != 0;
        bool gone = lost && host->now_ns - peer->lost_ns >= after_ns;
        changed |= via_directory_set_gone(entry, gone, host->now_ns);
        if (lost && !gone && after_ns < VIA_NEVER_NS - peer->lost_ns) {
            directory->gone_ns = via_min(directory->gone_ns, peer->lost_ns + after_ns);
        }
    }
    return changed;
}

static void update_links(struct via_host *host)
{
    static _Thread_local struct via_directory_link links[VIA_DIRECTORY_LINKS_MAX];
    struct via_directory_entry *own = via_directory_own(&host->directory.table);
    unsigned count = describe_links(host, links);
    if (count != own->links_count || memcmp(links, own->links, count * sizeof(links[0])) != 0) {
        memcpy(own->links, links, count * sizeof(links[0]));
        own->links_count = count;
        own->links_total = count;
        own->revision++;
    }
}

/* --- announcing ------------------------------------------------------------------------------- */

static int send_message(struct via_host *host, uint16_t id, const void *message, size_t bytes)
{
    struct via_host_directory *directory = &host->directory;
    if (directory->under_way == VIA_DIRECTORY_SENDS_MAX) {
        return -EAGAIN;
    }
    int rc = via_host_message_send(host, &via_host_directory_service, VIA_HOST_MESSAGE_REQUESTS, id,
                                   message, (uint32_t)bytes);
    if (rc == 0) {
        directory->under_way++;
        directory->peers[id].under_way++;
    }
    return rc;
}

static int send_host(struct via_host *host, uint16_t id)
{
    struct via_directory_peer *peer = &host->directory.peers[id];
    struct via_directory_entry *own = via_directory_own(&host->directory.table);
    struct via_directory_host_message message;
    if (host->directory.under_way == VIA_DIRECTORY_SENDS_MAX) {
        return -EAGAIN;
    }
    own->sent_ns = clock_ns(CLOCK_REALTIME);
    via_directory_make_host(own, &message);
    int rc = send_message(host, id, &message, sizeof(message));
    if (rc == 0) {
        peer->links_due = true;
        peer->revision = own->revision;
        peer->next = 0;
    }
    return rc;
}

/* 0: all remaining links are sent. */
static int send_links(struct via_host *host, uint16_t id)
{
    struct via_directory_peer *peer = &host->directory.peers[id];
    const struct via_directory_entry *own = via_directory_own(&host->directory.table);
    struct via_directory_links_message message;
    size_t bytes;
    int rc = 0;
    while (rc == 0 && (bytes = via_directory_make_links(own, peer->next, &message)) != 0) {
        rc = send_message(host, id, &message, bytes);
        peer->next += rc == 0 ? message.count : 0;
    }
    peer->links_due = rc != 0;
    return rc;
}

/* 0: nothing has to be sent now. */
static int send_entry(struct via_host *host, uint16_t id, uint32_t session)
{
    struct via_directory_peer *peer = &host->directory.peers[id];
    const struct via_directory_entry *own = via_directory_own(&host->directory.table);
    if (peer->session != session) {
        *peer = (struct via_directory_peer){
            .session = session, .under_way = peer->under_way, .reachable = true};
    }
    if (peer->is_foreign || host->now_ns < peer->retry_ns) {
        return 0;
    }
    /* LINKS messages of a revision follow its HOST message. If the entry changes meanwhile, both
     * are sent again. */
    int rc = peer->revision != own->revision ? send_host(host, id) : 0;
    return rc == 0 && peer->links_due ? send_links(host, id) : rc;
}

static uint64_t send_all(struct via_host *host)
{
    struct via_host_directory *directory = &host->directory;
    uint64_t deadline_ns = VIA_NEVER_NS;
    directory->sends_due = false;
    for (uint16_t id = 0; id < host->config.hosts_max; id++) {
        struct via_route_status route;
        if (id == host->config.host || via_node_route_status(host->node, id, &route) != 0 ||
            route.port == VIA_PORT_NONE || route.session == 0) {
            continue;
        }
        if (send_entry(host, id, route.session) == -EAGAIN) {
            /* A send can succeed when an earlier one has ended, of this service or of another
             * one. */
            directory->sends_due = true;
            deadline_ns = host->now_ns + VIA_DIRECTORY_PAUSE_NS;
        }
        if (directory->peers[id].retry_ns > host->now_ns && !directory->peers[id].is_foreign) {
            directory->sends_due = true;
            deadline_ns = via_min(deadline_ns, directory->peers[id].retry_ns);
        }
    }
    return deadline_ns;
}

static void ended(struct via_host *host, uint16_t destination, const void *data, int status)
{
    struct via_host_directory *directory = &host->directory;
    struct via_directory_peer *peer = &directory->peers[destination];
    (void)data;
    directory->under_way--;
    peer->under_way--;
    peer->failed |= status != 0;
    if (status == -ENOENT) {
        peer->is_foreign = true; /* an older version; after an update the host has a new session */
    }
    if (peer->failed && peer->under_way == 0) {
        peer->failed = false;
        peer->links_due = false;
        peer->revision = 0;
        peer->retry_ns = host->now_ns + VIA_DIRECTORY_RETRY_NS;
    }
    directory->sends_due = true;
}

/* --- entries of other hosts ------------------------------------------------------------------- */

/* Warns if the received entry claims an address that another host has. Programs continue to find
 * the host that had the address first. */
static void warn_of_claims(struct via_host *host, uint16_t source)
{
    const struct via_directory_entry *entry = via_directory_find(&host->directory.table, source);
    for (unsigned i = 0; entry != NULL && i < entry->addresses_count; i++) {
        int owner = via_directory_host_at(&host->directory.table, &entry->addresses[i]);
        if (owner == source || owner == -ENOENT) {
            continue;
        }
        char whose[48] = "another host claims, too: it has no owner";
        if (owner >= 0) {
            snprintf(whose, sizeof(whose), "belongs to host %d", owner);
        }
        via_host_warn(host, VIA_HOST_WARNS_DIRECTORY, source,
                      "host %u: host %u claims the address %s, which %s", host->config.host, source,
                      via_directory_ip_text(&entry->addresses[i]).text, whose);
    }
}

static bool arrived(struct via_host *host, uint16_t source, const void *data, uint32_t bytes)
{
    int rc = via_directory_take(&host->directory.table, source, data, bytes, host->now_ns);
    if (rc == -EPROTO) {
        via_host_warn(host, VIA_HOST_WARNS_DIRECTORY, source,
                      "host %u: host %u sends an invalid directory entry: %u bytes are dropped",
                      host->config.host, source, bytes);
    }
    host->directory.changed |= rc == 1;
    if (rc == 1) {
        warn_of_claims(host, source);
    }
    return true;
}

const struct via_host_service via_host_directory_service = {
    .endpoint = VIA_HOST_ENDPOINT_DIRECTORY,
    .bytes_min = VIA_DIRECTORY_LINKS_HEAD_BYTES,
    .bytes_max = VIA_HOST_MESSAGE_BYTES_MAX,
    .arrived = arrived,
    .ended = ended,
};

/* --- the host --------------------------------------------------------------------------------- */

/* Programs work without the page. */
static void open_page(struct via_host *host)
{
    struct via_error err;
    bool passable = host->options.attach.count + host->options.admin.count != 0;
    host->directory.page =
        via_hosts_page_open(host->rundir.text, host->config.host, passable, &err);
    if (host->directory.page == NULL) {
        via_log(VIA_LOG_WARN, "host %u: TCP connections stay with the kernel: %s",
                host->config.host, err.text);
    }
}

int via_host_directory_open(struct via_host *host, struct via_error *err)
{
    struct via_host_directory *directory = &host->directory;
    int rc = via_directory_init(&directory->table, host->config.host, host->config.hosts_max);
    directory->peers = calloc(host->config.hosts_max, sizeof(*directory->peers));
    directory->plain_hops = calloc(host->config.hosts_max, sizeof(*directory->plain_hops));
    directory->all_hops = calloc(host->config.hosts_max, sizeof(*directory->all_hops));
    directory->by_network = calloc(host->config.hosts_max, sizeof(*directory->by_network));
    directory->entries = calloc(VIA_HOSTS_PAGE_ENTRIES_MAX, sizeof(*directory->entries));
    if (rc == 0 && directory->peers != NULL && directory->plain_hops != NULL &&
        directory->all_hops != NULL && directory->by_network != NULL &&
        directory->entries != NULL) {
        rc = describe_host(host);
        open_page(host);
    } else {
        rc = -ENOMEM;
    }
    directory->dirty = true;
    return rc != 0 ? via_error_set(err, rc, "directory: %s", strerror(-rc)) : 0;
}

void via_host_directory_close(struct via_host *host)
{
    via_directory_fini(&host->directory.table);
    free(host->directory.peers);
    free(host->directory.plain_hops);
    free(host->directory.all_hops);
    free(host->directory.by_network);
    free(host->directory.entries);
    via_hosts_page_close(host->directory.page, host->rundir.text, host->config.host);
}

void via_host_directory_changed(struct via_host *host)
{
    host->directory.dirty = true;
}

static bool is_no_kernel_network(const struct via_directory_link *link)
{
    /* The emulated driver only imitates this class. */
    return strcmp(link->like, "network") != 0 || strcmp(link->driver, "emu") == 0;
}

void via_host_directory_renamed(struct via_host *host)
{
    struct via_directory_entry *own = via_directory_own(&host->directory.table);
    describe_identity(host, own);
    own->revision++;
    via_host_directory_changed(host);
}

static bool is_any(const struct via_directory_link *link)
{
    (void)link;
    return true;
}

/* While no route leads to a host, its last class counts. So a connection that begins meanwhile gets
 * pipes when a route exists again, instead of staying with the kernel permanently. */
static void update_hops(struct via_host *host)
{
    struct via_host_directory *directory = &host->directory;
    via_directory_hops(&directory->table, is_no_kernel_network, directory->plain_hops);
    via_directory_hops(&directory->table, is_any, directory->all_hops);
    for (uint16_t id = 0; id < host->config.hosts_max; id++) {
        struct via_route_status route = {.port = VIA_PORT_NONE};
        (void)via_node_route_status(host->node, id, &route);
        /* The announcements of links arrive a little later than changes of routes. */
        if (route.port != VIA_PORT_NONE && directory->all_hops[id] <= route.hops) {
            directory->by_network[id] = directory->plain_hops[id] > route.hops;
        }
    }
}

bool via_host_directory_has_pipes(const struct via_host *host, uint16_t id)
{
    const struct via_measured *measured = via_host_measured(host, id);
    return measured != NULL ? measured->carrier == VIA_MEASURED_PIPES
                            : !host->directory.by_network[id];
}

static unsigned add_entries(struct via_host *host, uint16_t id, unsigned count)
{
    struct via_host_directory *directory = &host->directory;
    const struct via_directory_entry *entry = via_directory_find(&directory->table, id);
    unsigned flags = id == host->config.host                  ? VIA_HOSTS_OWN
                     : via_host_directory_has_pipes(host, id) ? VIA_HOSTS_PIPES
                                                              : 0;
    for (unsigned i = 0; entry != NULL && i < entry->addresses_count; i++) {
        const struct via_directory_ip *ip = &entry->addresses[i];
        if (count < VIA_HOSTS_PAGE_ENTRIES_MAX &&
            via_directory_host_at(&directory->table, ip) == id) {
            struct via_hosts_entry *made = &directory->entries[count++];
            *made = (struct via_hosts_entry){.host = id, .flags = (uint16_t)flags};
            memcpy(made->ip, ip->byte, sizeof(made->ip));
        }
    }
    return count;
}

static void write_page(struct via_host *host)
{
    unsigned count = 0;
    if (host->directory.page == NULL) {
        return;
    }
    for (uint16_t id = 0; id < host->config.hosts_max; id++) {
        count = add_entries(host, id, count);
    }
    via_hosts_page_write(host->directory.page, host->directory.entries, count);
}

/* True if this host's entry may change now. Else *ret_deadline_ns is the time when it may. */
static bool is_change_allowed(struct via_host *host, uint64_t *ret_deadline_ns)
{
    struct via_host_directory *directory = &host->directory;
    uint64_t paid = (host->now_ns - directory->changed_ns) / VIA_DIRECTORY_PAUSE_NS;
    if (paid != 0) {
        directory->changes -= (unsigned)via_min(paid, (uint64_t)directory->changes);
        directory->changed_ns = host->now_ns;
    }
    if (directory->changes < VIA_DIRECTORY_BURST) {
        return true;
    }
    *ret_deadline_ns = directory->changed_ns + VIA_DIRECTORY_PAUSE_NS;
    return false;
}

uint64_t via_host_directory_tick(struct via_host *host)
{
    struct via_host_directory *directory = &host->directory;
    uint64_t deadline_ns = VIA_NEVER_NS;
    if ((directory->dirty || directory->changed) && is_change_allowed(host, &deadline_ns)) {
        directory->changes++;
        if (directory->dirty) {
            update_links(host);
            update_routes(host);
            directory->sends_due = true;
        }
        directory->dirty = false;
        directory->changed = false;
        (void)find_gone_hosts(host);
        update_hops(host);
        write_page(host);
    } else if (find_gone_hosts(host)) {
        write_page(host);
    }
    deadline_ns = via_min(deadline_ns, directory->gone_ns);
    return directory->sends_due ? via_min(deadline_ns, send_all(host)) : deadline_ns;
}

/* --- for people ------------------------------------------------------------------------------- */

static json_t *address_json(const struct via_host *host, uint16_t id,
                            const struct via_directory_ip *ip)
{
    int found = via_directory_host_at(&host->directory.table, ip);
    json_t *object = json_object();
    json_object_set_new(object, "address", json_string(via_directory_ip_text(ip).text));
    json_object_set_new(object, "used", json_boolean(found == id));
    return object;
}

static json_t *link_json(const struct via_directory_link *link)
{
    json_t *object = json_object();
    bool known = link->peer != VIA_DIRECTORY_PEER_UNKNOWN;
    json_object_set_new(object, "peer", known ? json_integer(link->peer) : json_null());
    json_object_set_new(object, "state", json_string(via_link_state_name(link->state)));
    json_object_set_new(object, "cut", json_boolean((link->flags & VIA_DIRECTORY_LINK_CUT) != 0));
    json_object_set_new(object, "driver", json_string(link->driver));
    json_object_set_new(object, "like", json_string(link->like));
    return object;
}

static void set(json_t *object, const char *key, uint64_t value)
{
    json_object_set_new(object, key, json_integer((json_int_t)(value & INT64_MAX)));
}

static void set_entry(const struct via_host *host, uint16_t id,
                      const struct via_directory_entry *entry, json_t *object)
{
    json_t *addresses = json_array();
    json_t *links = json_array();
    for (unsigned i = 0; i < entry->addresses_count; i++) {
        json_array_append_new(addresses, address_json(host, id, &entry->addresses[i]));
    }
    for (unsigned i = 0; i < entry->links_count; i++) {
        json_array_append_new(links, link_json(&entry->links[i]));
    }
    json_object_set_new(object, "name", json_string(entry->name));
    json_object_set_new(object, "fabric", json_string(entry->fabric));
    json_object_set_new(object, "version", json_string(entry->version));
    set(object, "protocol_version", entry->protocol_version);
    set(object, "hosts_max", entry->hosts_max);
    set(object, "channels", entry->channels_count);
    set(object, "frame_bytes", entry->frame_bytes);
    set(object, "started_ns", entry->started_ns);
    set(object, "booted_ns", entry->booted_ns);
    json_object_set_new(object, "addresses", addresses);
    json_object_set_new(object, "links", links);
}

/* "up": this host, or one that it can reach; "silent": one that has announced no entry;
 * "unreachable". */
static json_t *host_json(struct via_host *host, uint16_t id)
{
    const struct via_directory_entry *entry = via_directory_find(&host->directory.table, id);
    struct via_route_status route = {.port = VIA_PORT_NONE};
    bool self = id == host->config.host;
    (void)via_node_route_status(host->node, id, &route);
    bool there = self || route.port != VIA_PORT_NONE;
    if (entry == NULL && !there && route.session == 0) {
        return NULL;
    }
    uint64_t lost_ns = host->directory.peers[id].lost_ns;
    json_t *object = json_object();
    set(object, "host", id);
    json_object_set_new(object, "state",
                        json_string(!there          ? "unreachable"
                                    : entry == NULL ? "silent"
                                                    : "up"));
    json_object_set_new(object, "hops", there ? json_integer(self ? 0 : route.hops) : json_null());
    set(object, "session", self ? host->session : route.session);
    json_object_set_new(
        object, "network_only",
        json_boolean(there && !self && host->directory.plain_hops[id] > route.hops));
    json_object_set_new(object, "unreachable_ns",
                        there || lost_ns == 0 ? json_null()
                                              : json_integer((json_int_t)(host->now_ns - lost_ns)));
    if (entry != NULL) {
        set_entry(host, id, entry, object);
    }
    return object;
}

/* An estimate of the bytes of an entry's JSON, rather too high. */
static size_t text_bytes(const struct via_directory_entry *entry)
{
    return entry == NULL
               ? 256
               : 1024 + (size_t)entry->addresses_count * 96 + (size_t)entry->links_count * 160;
}

json_t *via_host_directory_json(struct via_host *host, unsigned first, unsigned count_max,
                                size_t bytes_max)
{
    json_t *object = json_object();
    json_t *hosts = json_array();
    size_t bytes = 0;
    unsigned id = first;
    json_object_set_new(object, "ok", json_true());
    set(object, "host", host->config.host);
    set(object, "hosts_max", host->config.hosts_max);
    json_object_set_new(object, "fabric", json_string(host->identity.fabric));
    for (; id < host->config.hosts_max; id++) {
        size_t count = json_array_size(hosts);
        size_t more = text_bytes(via_directory_find(&host->directory.table, (uint16_t)id));
        if (count != 0 && (count >= count_max || bytes + more > bytes_max)) {
            break;
        }
        json_t *entry = host_json(host, (uint16_t)id);
        if (entry != NULL) {
            json_array_append_new(hosts, entry);
            bytes += more;
        }
    }
    json_object_set_new(object, "hosts", hosts);
    json_object_set_new(object, "next",
                        id < host->config.hosts_max ? json_integer(id) : json_null());
    return object;
}
