/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The status page: the state of the fabric that processes read without a request. */
#include "host/host_private.h"
#include "port/bell.h"

int via_host_status_open(struct via_host *host, struct via_error *err)
{
    size_t bytes = via_align_up(sizeof(struct via_status_page), 4096);
    int rc = via_host_memory_open(&host->status_memory, "viaduct-status", bytes, true, err);
    if (rc != 0) {
        return rc;
    }
    host->status = host->status_memory.base;
    host->status->magic = VIA_STATUS_MAGIC;
    host->status->host = host->config.host;
    host->status->session = host->session;
    host->status->hosts_max = host->config.hosts_max;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(host->status->peers); i++) {
        atomic_store_explicit(&host->status->peers[i],
                              via_status_word(0, 0, VIA_STATUS_UNREACHABLE, false),
                              memory_order_relaxed);
    }
    return 0;
}

/*
 * Updates for each host a number that changes with each up and down of its links, and with the link
 * that carries direct accesses. When the number changes, a process that has mapped memory of the
 * host must check its path again. Also updates whether there are slices. Loads each link once.
 */
static void update_links(struct via_host *host)
{
    for (uint16_t id = 0; id < host->config.hosts_max; id++) {
        struct via_host_peer *peer = &host->peers[id];
        peer->edges_now = 0;
        peer->direct = id == host->config.host;
        peer->slices = false;
    }
    for (unsigned i = 0; i < host->cables_count; i++) {
        struct via_link_status link;
        if (via_node_link_status(host->node, i, &link) != 0 ||
            link.peer >= host->config.hosts_max) {
            continue;
        }
        struct via_host_peer *peer = &host->peers[link.peer];
        peer->edges_now += (uint64_t)link.ups_count + link.downs_count;
        if (!peer->direct && host->cables[i].direct && link.state == VIA_LINK_UP) {
            peer->direct = true;
            peer->edges_now += (uint64_t)(i + 1) << 48;
        }
        peer->slices |= via_host_aperture_is_offered(host, i, &link);
    }
}

/* Called after update_links(). */
static uint64_t word_of(struct via_host *host, uint16_t id)
{
    struct via_route_status route = {.port = VIA_PORT_NONE};
    struct via_host_peer *peer = &host->peers[id];
    if (peer->edges_now != peer->edges) {
        peer->edges = peer->edges_now;
        peer->generation++;
    }
    unsigned hops = VIA_STATUS_UNREACHABLE;
    if (id == host->config.host) {
        hops = 0;
        route.session = host->session;
    } else if (via_node_route_status(host->node, id, &route) == 0 && route.port != VIA_PORT_NONE) {
        hops = route.hops;
    }
    return via_status_word(route.session, peer->generation, hops, peer->direct) |
           (peer->slices && !peer->direct ? VIA_STATUS_SLICES : 0);
}

void via_host_status_update(struct via_host *host)
{
    struct via_status_page *page = host->status;
    /* A sequence lock: odd before any word changes, even after all words have changed. The fence
     * keeps the stores to the words after the odd version. Pairs with the reader's acquire loads of
     * words and version. */
    uint32_t version = atomic_load_explicit(&page->version, memory_order_relaxed);
    atomic_store_explicit(&page->version, version + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    bool lost = false;
    update_links(host);
    for (uint16_t id = 0; id < host->config.hosts_max; id++) {
        uint64_t before = atomic_load_explicit(&page->peers[id], memory_order_relaxed);
        uint64_t word = word_of(host, id);
        if (word == before) {
            continue;
        }
        host->attach.changed[id / 64] |= UINT64_C(1) << (id % 64);
        lost |= !via_status_is_reachable(word) && via_status_is_reachable(before);
        atomic_store_explicit(&page->peers[id], word, memory_order_release);
    }
    atomic_store_explicit(&page->version, version + 2, memory_order_release);
    if (lost) {
        /* Commands for that host may delay commands for other hosts: attach_server_park.c. */
        for (unsigned i = 0; i < host->config.channels_count; i++) {
            via_bell_ring((struct via_bell *)host->bells.base + i);
        }
    }
}
