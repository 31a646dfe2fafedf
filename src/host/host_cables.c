/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The cables of a host: ports, their links, and messages to the hosts at the other ends. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "host/host_private.h"

static void ready(struct via_host_source *source, uint32_t events)
{
    struct via_host_cable *cable = via_container_of(source, struct via_host_cable, source);
    (void)events;
    cable->deadline_ns = 0;
}

static void on_message(void *ctx, const void *msg, size_t len, int *fds, unsigned nfds)
{
    struct via_host_cable *cable = ctx;
    struct via_cable_message message;
    if (len != sizeof(message)) {
        return;
    }
    memcpy(&message, msg, sizeof(message));
    if (message.magic != VIA_CABLE_MAGIC) {
        return;
    }
    if (message.type == VIA_CABLE_MAP) {
        via_attach_server_map_requested(cable, &message);
    } else if (message.type == VIA_CABLE_MAP_ANSWER) {
        via_attach_server_map_answered(cable, &message, fds, nfds);
    }
}

/* The size of an inbox with pipes of one slot each: with less no link comes up. */
static uint64_t inbox_bytes_min(const struct via_host *host)
{
    struct via_node_config config = host->config;
    config.pipe_slots = 1;
    return via_align_up(via_node_inbox_bytes(&config), 4096);
}

/* [any thread] */
static void wake(void *ctx, unsigned thread)
{
    struct via_host_cable *cable = ctx;
    if (thread == VIA_DRIVER_CONTROL) {
        via_host_control_request(cable->host);
    } else if (thread < cable->host->config.channels_count) {
        via_bell_ring(cable->host->transfers[thread].bell);
    }
}

int via_host_link_check(const struct via_host_link *link, struct via_error *err)
{
    struct via_link_config config;
    return via_link_parse(link->description, &config, err);
}

int via_host_cable_peer(const struct via_host_cable *cable)
{
    struct via_link_status link;
    if (cable->peer != VIA_HOST_PEER_LEARNED) {
        return cable->peer;
    }
    bool seen =
        via_node_link_status(cable->host->node, cable->index, &link) == 0 && link.peer_session != 0;
    return seen ? link.peer : -1;
}

struct via_host_cable_text via_host_cable_describe(const struct via_host_cable *cable)
{
    struct via_host_cable_text ret;
    char name[VIA_FABRIC_NAME_BYTES_MAX + 4] = "";
    char to[24] = "";
    int peer = via_host_cable_peer(cable);
    if (cable->name[0] != '\0') {
        snprintf(name, sizeof(name), " (%s)", cable->name);
    }
    if (peer >= 0) {
        snprintf(to, sizeof(to), " to host %d", peer);
    }
    snprintf(ret.text, sizeof(ret.text), "link %u%s%s", cable->index, name, to);
    return ret;
}

/* The link's configured size, but no more than the pipes use, so that 1,023 peers do not each have
 * an inbox of full size. */
static int choose_inbox(const struct via_host_cable *cable, uint64_t *ret_bytes,
                        struct via_error *err)
{
    const struct via_host *host = cable->host;
    uint64_t least = inbox_bytes_min(host);
    uint64_t wanted = cable->link.inbox_bytes;
    *ret_bytes = via_align_up(via_node_inbox_bytes(&host->config), UINT64_C(4096));
    if (wanted == 0) {
        return 0;
    }
    if (wanted < least) {
        return via_error_set(err, -EINVAL,
                             "inbox of %llu bytes: %u channels with frames of %u bytes need %llu",
                             (unsigned long long)wanted, host->config.channels_count,
                             host->config.frame_bytes_max, (unsigned long long)least);
    }
    *ret_bytes = via_min(*ret_bytes, via_align_up(wanted, UINT64_C(4096)));
    return 0;
}

uint32_t via_host_dma_default(const struct via_host *host)
{
    const struct via_host_options *options = &host->options;
    bool some_links = options->tuning != NULL && via_tuning_has_dma(options->tuning);
    return options->dma_bytes_min != 0 ? options->dma_bytes_min : some_links ? UINT32_MAX : 0;
}

/* Called when a link comes up: its measured settings apply if the hardware is still the same. */
static void tune(struct via_host_cable *cable)
{
    struct via_host *host = cable->host;
    const struct via_tuning_link *tuned = cable->tuned;
    const struct via_driver *driver = cable->link.driver;
    struct via_error err;
    if (tuned == NULL || !cable->port->ops->link_is_up(cable->port)) {
        return;
    }
    bool is_same = via_tuning_check_link(tuned, driver, cable->port, &err) == 0;
    if (!is_same) {
        via_host_warn(host, VIA_HOST_WARNS_LINK, cable->index, "host %u: %s: %s", host->config.host,
                      via_host_cable_describe(cable).text, err.text);
    }
    bool has_dma = is_same && tuned->dma_bytes_min != 0;
    (void)via_node_port_dma(host->node, cable->index,
                            has_dma ? tuned->dma_bytes_min : via_host_dma_default(host));
    for (unsigned i = 0; i < VIA_STORE_CLASSES && driver->use_store != NULL; i++) {
        driver->use_store(cable->port, i, is_same ? tuned->stores[i] : NULL);
    }
    if (is_same) {
        char stores[VIA_STORE_TEXT_BYTES];
        via_store_print(tuned->stores, stores);
        via_host_log(host, VIA_HOST_WARNS_LINK, cable->index, VIA_LOG_INFO,
                     "host %u: %s: measured settings: dma-bytes %u, store %s", host->config.host,
                     via_host_cable_describe(cable).text, tuned->dma_bytes_min, stores);
    }
}

static int open_port(struct via_host_cable *cable, struct via_error *err)
{
    struct via_host *host = cable->host;
    const struct via_driver *driver = cable->link.driver;
    struct via_port_status status;
    uint64_t inbox_bytes;
    int rc = choose_inbox(cable, &inbox_bytes, err);
    if (rc != 0) {
        return rc;
    }
    cable->offer = (struct via_driver_host){
        .host = host->config.host,
        .inbox_bytes = inbox_bytes,
        .threads_count = host->config.channels_count,
        .bell_fd = host->bells.fd,
        .inbox_bytes_min = inbox_bytes_min(host),
        .slices = true,
        .dma = host->options.dma_bytes_min != 0 ||
               (cable->tuned != NULL && cable->tuned->dma_bytes_min != 0),
        .wake = wake,
        .on_message = on_message,
        .ctx = cable,
        .peer = cable->peer,
        .mac = host->options.key != NULL ? host->options.key->mac : NULL,
        .mac_ctx = host->options.key != NULL ? host->options.key->ctx : NULL,
        .encrypted = host->options.encrypt,
        .listen = host->listen[0] != '\0' ? host->listen : NULL,
    };
    rc = driver->open(cable->link.config, &cable->offer, &cable->port, err);
    if (rc != 0) {
        via_error_prefix(err, "driver %s: open: ", driver->name);
        return rc;
    }
    if (driver->memory_register != NULL && cable->port->caps.dma_depth != 0) {
        rc = driver->memory_register(cable->port, host->node_memory, host->node_memory_bytes, err);
        if (rc != 0) {
            via_error_prefix(err, "driver %s: memory of the node: ", driver->name);
            return rc;
        }
    }
    driver->status(cable->port, &status);
    cable->direct = status.maps_memory && driver->request != NULL;
    return 0;
}

static int describe_cable(struct via_host_cable *cable, const struct via_host_link *link,
                          struct via_error *err)
{
    cable->peer = link->peer;
    cable->dimension = link->dimension;
    if (link->name != NULL && (size_t)snprintf(cable->name, sizeof(cable->name), "%s",
                                               link->name) >= sizeof(cable->name)) {
        return via_error_set(err, -EINVAL, "the name is longer than %u bytes",
                             VIA_FABRIC_NAME_BYTES_MAX);
    }
    cable->description = strdup(link->description);
    if (cable->description == NULL) {
        return via_error_set(err, -ENOMEM, "%s", strerror(ENOMEM));
    }
    const struct via_tuning *tuning = cable->host->options.tuning;
    cable->tuned = tuning != NULL ? via_tuning_find(tuning, link->description) : NULL;
    return via_link_parse(link->description, &cable->link, err);
}

static int join_node(struct via_host_cable *cable, struct via_error *err)
{
    struct via_host *host = cable->host;
    int rc = via_node_port_dimension(host->node, cable->index, cable->dimension);
    if (rc == 0) {
        rc = via_node_port_set(host->node, cable->index, cable->port);
    }
    if (rc != 0) {
        return via_error_set(err, rc, "give the port to the node: %s", strerror(-rc));
    }
    host->node_due = true;
    cable->source.fd = cable->link.driver->fd(cable->port);
    if (cable->source.fd < 0) {
        return 0; /* a port without a descriptor is polled at its deadlines */
    }
    rc = via_host_source_add(host, &cable->source, EPOLLIN);
    if (rc != 0) {
        cable->source.fd = -1;
        return via_error_set(err, rc, "epoll: %s", strerror(-rc));
    }
    return 0;
}

/* The node must not have the port. */
static void close_cable(struct via_host_cable *cable)
{
    via_host_source_remove(cable->host, &cable->source);
    if (cable->port != NULL) {
        cable->port->ops->close(cable->port);
        cable->port = NULL;
    }
    free(cable->description);
    cable->description = NULL;
}

static struct via_host_cable *free_cable(struct via_host *host)
{
    for (unsigned i = 0; i < host->links_max; i++) {
        if (host->cables[i].port == NULL) {
            return &host->cables[i];
        }
    }
    return NULL;
}

int via_host_cable_open(struct via_host *host, const struct via_host_link *link,
                        struct via_error *err)
{
    struct via_host_cable *cable = free_cable(host);
    if (cable == NULL) {
        return via_error_set(err, -ENOSPC, "there are %u links already, as many as there may be",
                             host->links_max);
    }
    unsigned index = (unsigned)(cable - host->cables);
    *cable =
        (struct via_host_cable){.host = host, .source = {.ready = ready, .fd = -1}, .index = index};
    host->cables_count = via_max(host->cables_count, index + 1);
    int rc = describe_cable(cable, link, err);
    if (rc == 0) {
        rc = open_port(cable, err);
    }
    if (rc == 0) {
        rc = via_host_aperture_link_open(host, index);
        rc = rc != 0 ? via_error_set(err, rc, "tables of slices: %s", strerror(-rc)) : 0;
    }
    if (rc == 0) {
        rc = join_node(cable, err);
    }
    if (rc != 0) {
        via_error_prefix(err, "%s: ", via_host_cable_describe(cable).text);
    }
    if (rc != 0 && cable->port == NULL) {
        close_cable(cable);
    }
    cable->leaving = rc != 0 && cable->port != NULL; /* via_host_change_tick() completes it */
    return rc;
}

void via_host_cable_failed(struct via_host *host, const char *why)
{
    via_log(VIA_LOG_ERROR, "host %u: continues without a link: %s ('viaduct reload' tries again)",
            host->config.host, why);
    if (host->links_failed == NULL) {
        host->links_failed = json_array();
    }
    (void)json_array_append_new(host->links_failed, json_string(why));
}

int via_host_cable_leave(struct via_host_cable *cable)
{
    struct via_host *host = cable->host;
    if (!cable->leaving) {
        via_log(VIA_LOG_INFO, "host %u: %s: is removed", host->config.host,
                via_host_cable_describe(cable).text);
        cable->leaving = true;
    }
    int rc = via_node_port_clear(host->node, cable->index);
    host->node_due = true; /* to update routes, and the link's state in the status page */
    if (rc == -EAGAIN) {
        return rc;
    }
    /* -ENOENT: the port was opened, but never added to the node. Processes may still store through
     * its slices. */
    if (!via_host_aperture_link_close(host, cable->index)) {
        return -EAGAIN;
    }
    cable->leaving = false;
    cable->direct = false;
    cable->state_seen = VIA_LINK_DOWN;
    close_cable(cable);
    return 0;
}

int via_host_cables_open(struct via_host *host, const struct via_host_options *options,
                         struct via_error *err)
{
    unsigned failed_count = 0;
    for (unsigned i = 0; i < options->links_count; i++) {
        int rc = via_host_cable_open(host, &options->links[i], err);
        failed_count += rc != 0;
        if (rc != 0 && (!options->links_may_fail || failed_count == options->links_count)) {
            return rc;
        }
        if (rc != 0) {
            via_host_cable_failed(host, err->text);
        }
    }
    return 0;
}

void via_host_cables_close(struct via_host *host)
{
    for (unsigned i = 0; i < host->cables_count; i++) {
        close_cable(&host->cables[i]);
    }
    host->cables_count = 0;
    json_decref(host->links_failed);
}

/* Logs the port's reason why the link is down. Core has no reason until a peer answers. */
static void log_error(struct via_host_cable *cable)
{
    struct via_port_status status;
    cable->link.driver->status(cable->port, &status);
    size_t bytes = strnlen(status.error, sizeof(status.error));
    uint64_t hash = bytes != 0 ? via_hash64(VIA_HASH64_INIT, status.error, bytes) | 1 : 0;
    if (hash != cable->error_seen && hash != 0) {
        via_host_warn(cable->host, VIA_HOST_WARNS_LINK, cable->index, "host %u: %s: driver %s: %s",
                      cable->host->config.host, via_host_cable_describe(cable).text,
                      cable->link.driver->name, status.error);
    }
    cable->error_seen = hash;
}

uint64_t via_host_cables_tick(struct via_host *host)
{
    uint64_t deadline_ns = VIA_NEVER_NS;
    for (unsigned i = 0; i < host->cables_count; i++) {
        struct via_host_cable *cable = &host->cables[i];
        if (cable->port == NULL) {
            continue;
        }
        if (host->now_ns >= cable->deadline_ns) {
            cable->deadline_ns = VIA_NEVER_NS;
            if (cable->link.driver->service(cable->port, host->now_ns, &cable->deadline_ns) != 0) {
                host->node_due = true;
                tune(cable);
            }
            log_error(cable);
        }
        deadline_ns = via_min(deadline_ns, cable->deadline_ns);
    }
    return deadline_ns;
}

static void log_down(struct via_host_cable *cable, const struct via_link_status *link,
                     const char *name)
{
    bool was_up = cable->state_seen == VIA_LINK_UP;
    struct via_link_text why = {.text = ""};
    struct via_port_status port;
    cable->link.driver->status(cable->port, &port);
    if (was_up && port.cut) {
        snprintf(why.text, sizeof(why.text), "it is cut");
    } else if (was_up) {
        why = via_link_explain_down(link);
    }
    via_host_log(cable->host, VIA_HOST_WARNS_LINK, cable->index,
                 was_up ? VIA_LOG_INFO : VIA_LOG_DEBUG, "host %u: %s: %s%s%s",
                 cable->host->config.host, name, via_link_state_name(link->state),
                 why.text[0] != '\0' ? ": " : "", why.text);
}

static void log_state(struct via_host_cable *cable, const struct via_link_status *link)
{
    unsigned host = cable->host->config.host;
    struct via_host_cable_text text = via_host_cable_describe(cable);
    switch (link->state) {
    case VIA_LINK_UP:
        via_host_log(cable->host, VIA_HOST_WARNS_LINK, cable->index, VIA_LOG_INFO,
                     "host %u: %s: up, host %u", host, text.text, link->peer);
        if (cable->peer != VIA_HOST_PEER_LEARNED && link->peer != cable->peer) {
            via_host_warn(cable->host, VIA_HOST_WARNS_LINK, cable->index,
                          "host %u: %s: host %u is at the other end, not host %u", host, text.text,
                          link->peer, cable->peer);
        }
        break;
    case VIA_LINK_BAD_MAGIC:
    case VIA_LINK_BAD_VERSION:
    case VIA_LINK_BAD_GEOMETRY:
    case VIA_LINK_BAD_HOST:
    case VIA_LINK_BAD_FABRIC:
    case VIA_LINK_BAD_KEY:
        via_host_log(cable->host, VIA_HOST_WARNS_LINK, cable->index, VIA_LOG_ERROR,
                     "host %u: %s: bring-up: %s", host, text.text,
                     via_link_explain(link, cable->host->protocol_version).text);
        break;
    default:
        log_down(cable, link, text.text);
    }
}

void via_host_cables_changed(struct via_host *host)
{
    for (unsigned i = 0; i < host->cables_count; i++) {
        struct via_host_cable *cable = &host->cables[i];
        struct via_link_status link;
        if (cable->port != NULL && via_node_link_status(host->node, i, &link) == 0 &&
            link.state != cable->state_seen) {
            log_state(cable, &link);
            cable->state_seen = link.state;
        }
    }
}

void via_host_cables_log_states(struct via_host *host, uint32_t source)
{
    for (unsigned i = source; i < host->cables_count; i += VIA_HOST_WARNING_SOURCES) {
        struct via_host_cable *cable = &host->cables[i];
        struct via_link_status link;
        if (cable->port != NULL && via_node_link_status(host->node, i, &link) == 0) {
            via_log(VIA_LOG_INFO, "host %u: %s: now %s", host->config.host,
                    via_host_cable_describe(cable).text, via_link_state_name(link.state));
        }
    }
}

struct via_host_cable *via_host_cables_direct(struct via_host *host, uint16_t peer)
{
    for (unsigned i = 0; i < host->cables_count; i++) {
        struct via_host_cable *cable = &host->cables[i];
        struct via_link_status link;
        if (cable->direct && !cable->leaving && via_node_link_status(host->node, i, &link) == 0 &&
            link.state == VIA_LINK_UP && link.peer == peer) {
            return cable;
        }
    }
    return NULL;
}

/* True if the link is up and leads to this peer; or to any peer, if `peer` is this host. */
static bool is_up_to(const struct via_host_cable *cable, uint16_t peer)
{
    struct via_link_status link;
    return cable->port != NULL && !cable->leaving &&
           via_node_link_status(cable->host->node, cable->index, &link) == 0 &&
           link.state == VIA_LINK_UP && (link.peer == peer || peer == cable->host->config.host);
}

int via_host_cables_tcp(struct via_host *host, uint16_t peer, char *ret_local, char *ret_peer,
                        size_t bytes)
{
    int rc = -EXDEV;
    memset(ret_local, 0, bytes);
    memset(ret_peer, 0, bytes);
    for (unsigned i = 0; i < host->cables_count; i++) {
        const struct via_host_cable *cable = &host->cables[i];
        if (!is_up_to(cable, peer)) {
            continue;
        }
        const struct via_driver *driver = cable->link.driver;
        rc = driver->tcp != NULL ? driver->tcp(cable->port, ret_local, ret_peer, bytes) : -EXDEV;
        /* For this host's own address one such link is enough. To a peer, a link of another kind
         * may be the better path. */
        if ((rc == 0) == (peer == host->config.host)) {
            break;
        }
    }
    if (peer == host->config.host) {
        memset(ret_peer, 0, bytes);
    }
    return rc == 0 ? 0 : -EXDEV;
}

int via_host_cable_send(struct via_host_cable *cable, const void *msg, size_t len, const int *fds,
                        unsigned nfds)
{
    const struct via_driver *driver = cable->link.driver;
    return driver->request != NULL ? driver->request(cable->port, msg, len, fds, nfds) : -ENOTSUP;
}

int via_host_cables_cut(struct via_host *host, uint16_t peer, int index, bool cut)
{
    int count = 0;
    for (unsigned i = 0; i < host->cables_count; i++) {
        struct via_host_cable *cable = &host->cables[i];
        if (cable->port == NULL || cable->leaving || via_host_cable_peer(cable) != peer ||
            (index >= 0 && (unsigned)index != i) || cable->link.driver->cut == NULL) {
            continue;
        }
        via_log(VIA_LOG_INFO, "host %u: %s is %s", host->config.host,
                via_host_cable_describe(cable).text, cut ? "cut" : "mended");
        cable->link.driver->cut(cable->port, cut);
        cable->deadline_ns = 0;
        count++;
    }
    if (count == 0) {
        return -ENOENT;
    }
    /* At once, not after the other events of this turn, because the direct bit of the status page
     * changes with the cut. */
    host->node_due = true;
    via_host_fabric_tick(host);
    return count;
}
