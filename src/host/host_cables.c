/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The cables of a host: emulated ports, their links, and messages to the hosts at the other ends.
 */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "host/host_private.h"
#include "port/emu/like.h"

/* Of an emulated engine. Less than what the channels of a host would give it at once, so that they
 * find it full now and then. */
#define DMA_DEPTH 8u

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
        via_attach_server_map_asked(cable, &message);
    } else if (message.type == VIA_CABLE_MAP_ANSWER) {
        via_attach_server_map_answered(cable, &message, fds, nfds);
    }
}

/* Of pipes with a slot each: with less no link comes up. */
static uint64_t inbox_bytes_min(const struct via_host *host)
{
    struct via_node_config config = host->config;
    config.pipe_slots = 1;
    return via_align_up(via_node_inbox_bytes(&config), 4096);
}

static int open_cable(struct via_host *host, struct via_host_cable *cable,
                      const struct via_host_link *link, struct via_error *err)
{
    if (strlen(link->path) >= sizeof(cable->path.text)) {
        return via_error_set(err, -ENAMETOOLONG, "%s: longer than a socket address", link->path);
    }
    memcpy(cable->path.text, link->path, strlen(link->path) + 1);
    cable->peer = link->peer;
    cable->like = via_emu_like_find(link->like != NULL ? link->like : "memory");
    if (cable->like == NULL) {
        return via_error_set(err, -EINVAL, "like '%s': there is no such class of links",
                             link->like);
    }
    cable->direct = link->direct && cable->like->maps_memory;
    cable->dimension = link->dimension;
    struct via_emu_options options = {
        .path = cable->path.text,
        .side = link->side,
        .host = host->config.host,
        .inbox_bytes = via_align_up(via_node_inbox_bytes(&host->config), 4096),
        .bell_fd = host->bells.fd,
        .bell_lines = host->config.channels_count,
        .direct = link->direct,
        .slices = true,
        .inbox_bytes_min = inbox_bytes_min(host),
        .like = cable->like,
        .window_bytes = link->window_bytes,
        .seed = link->seed,
        .dma_depth = host->options.dma_bytes_min != 0 ? DMA_DEPTH : 0,
        .on_message = on_message,
        .ctx = cable,
    };
    int rc = via_emu_port_open(&options, &cable->port, err);
    if (rc != 0) {
        return rc;
    }
    rc = via_node_port_set(host->node, cable->index, cable->port);
    if (rc != 0) {
        return via_error_set(err, rc, "give the port to the node: %s", strerror(-rc));
    }
    cable->source.fd = via_emu_port_fd(cable->port);
    rc = via_host_source_add(host, &cable->source, EPOLLIN);
    if (rc != 0) {
        cable->source.fd = -1;
        return via_error_set(err, rc, "epoll: %s", strerror(-rc));
    }
    return 0;
}

int via_host_cables_open(struct via_host *host, const struct via_host_options *options,
                         struct via_error *err)
{
    for (unsigned i = 0; i < options->links_count; i++) {
        struct via_host_cable *cable = &host->cables[i];
        *cable =
            (struct via_host_cable){.host = host, .source = {.ready = ready, .fd = -1}, .index = i};
        host->cables_count = i + 1;
        int rc = open_cable(host, cable, &options->links[i], err);
        if (rc != 0) {
            via_error_prefix(err, "link %u to host %u: ", i, options->links[i].peer);
            return rc;
        }
    }
    return 0;
}

void via_host_cables_close(struct via_host *host)
{
    for (unsigned i = 0; i < host->cables_count; i++) {
        struct via_host_cable *cable = &host->cables[i];
        via_host_source_remove(host, &cable->source);
        if (cable->port != NULL) {
            cable->port->ops->close(cable->port);
            cable->port = NULL;
        }
    }
    host->cables_count = 0;
}

uint64_t via_host_cables_tick(struct via_host *host)
{
    uint64_t deadline_ns = VIA_NEVER_NS;
    for (unsigned i = 0; i < host->cables_count; i++) {
        struct via_host_cable *cable = &host->cables[i];
        if (host->now_ns >= cable->deadline_ns) {
            cable->deadline_ns = VIA_NEVER_NS;
            if (via_emu_port_service(cable->port, host->now_ns, &cable->deadline_ns) != 0) {
                host->node_due = true;
            }
        }
        deadline_ns = via_min(deadline_ns, cable->deadline_ns);
    }
    return deadline_ns;
}

static void log_state(struct via_host_cable *cable, const struct via_link_status *link)
{
    unsigned host = cable->host->config.host;
    switch (link->state) {
    case VIA_LINK_UP:
        via_host_log(cable->host, VIA_HOST_WARNS_LINK, cable->index, VIA_LOG_INFO,
                     "host %u: link %u: up, host %u", host, cable->index, link->peer);
        if (link->peer != cable->peer) {
            via_host_warn(cable->host, VIA_HOST_WARNS_LINK, cable->index,
                          "host %u: link %u: host %u is at the other end, not host %u", host,
                          cable->index, link->peer, cable->peer);
        }
        break;
    case VIA_LINK_BAD_MAGIC:
    case VIA_LINK_BAD_VERSION:
    case VIA_LINK_BAD_GEOMETRY:
    case VIA_LINK_BAD_HOST:
    case VIA_LINK_BAD_FABRIC:
    case VIA_LINK_BAD_KEY:
        via_host_log(cable->host, VIA_HOST_WARNS_LINK, cable->index, VIA_LOG_ERROR,
                     "host %u: link %u to host %u: bring-up: %s", host, cable->index, cable->peer,
                     via_link_explain(link, cable->host->protocol_version).text);
        break;
    default:
        via_host_log(cable->host, VIA_HOST_WARNS_LINK, cable->index,
                     cable->state_seen == VIA_LINK_UP ? VIA_LOG_INFO : VIA_LOG_DEBUG,
                     "host %u: link %u to host %u: %s", host, cable->index, cable->peer,
                     via_link_state_name(link->state));
    }
}

void via_host_cables_changed(struct via_host *host)
{
    for (unsigned i = 0; i < host->cables_count; i++) {
        struct via_host_cable *cable = &host->cables[i];
        struct via_link_status link;
        if (via_node_link_status(host->node, i, &link) == 0 && link.state != cable->state_seen) {
            log_state(cable, &link);
            cable->state_seen = link.state;
        }
    }
}

struct via_host_cable *via_host_cables_direct(struct via_host *host, uint16_t peer)
{
    for (unsigned i = 0; i < host->cables_count; i++) {
        struct via_host_cable *cable = &host->cables[i];
        struct via_link_status link;
        if (cable->direct && via_node_link_status(host->node, i, &link) == 0 &&
            link.state == VIA_LINK_UP && link.peer == peer) {
            return cable;
        }
    }
    return NULL;
}

int via_host_cables_cut(struct via_host *host, uint16_t peer, int index, bool cut)
{
    int count = 0;
    for (unsigned i = 0; i < host->cables_count; i++) {
        struct via_host_cable *cable = &host->cables[i];
        if (cable->peer != peer || (index >= 0 && (unsigned)index != i)) {
            continue;
        }
        via_log(VIA_LOG_INFO, "host %u: link %u to host %u is %s", host->config.host, i, peer,
                cut ? "cut" : "mended");
        via_emu_port_cut(cable->port, cut);
        cable->deadline_ns = 0;
        count++;
    }
    if (count == 0) {
        return -ENOENT;
    }
    /* Now, not after the events of this turn: the direct bit of the status page goes with it. */
    host->node_due = true;
    via_host_fabric_tick(host);
    return count;
}
