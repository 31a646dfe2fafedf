/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/host_measured.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "host/host_private.h"

/* A link is idle if both directions together carry less than this rate, over at least POLL_NS. */
#define IDLE_BYTES_PER_S (128u << 10)
#define POLL_NS (900 * VIA_MSEC_NS)
/* ... at this number of consecutive checks. */
#define IDLE_POLLS 5u
/* A restart of the other host alone causes no new measurement within this time. */
#define SAME_NS (3600 * VIA_SEC_NS)
/* Time until the next attempt after a failure. Each further failure doubles it. */
#define RETRY_NS (60 * VIA_SEC_NS)
#define RETRY_DOUBLINGS_MAX 6u

int via_host_measured_open(struct via_host *host)
{
    struct via_host_measured_all *all = &host->measured;
    all->of = calloc(host->config.hosts_max, sizeof(*all->of));
    all->tries = calloc(host->config.hosts_max, sizeof(*all->tries));
    return all->of != NULL && all->tries != NULL ? 0 : -ENOMEM;
}

void via_host_measured_close(struct via_host *host)
{
    free(host->measured.of);
    free(host->measured.tries);
}

static uint64_t real_time_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * VIA_SEC_NS + (uint64_t)now.tv_nsec;
}

/* --- decisions -------------------------------------------------------------------------------- */

static struct via_route_status route_to(const struct via_host *host, uint16_t id)
{
    struct via_route_status route = {.port = VIA_PORT_NONE};
    (void)via_node_route_status(host->node, id, &route);
    return route;
}

/* Describes the path and the versions for which a decision now would be valid. False: the hosts'
 * entries are not known yet. */
static bool describe(const struct via_host *host, uint16_t id, const struct via_route_status *route,
                     char ret_text[VIA_MEASURED_FOR_BYTES])
{
    const struct via_directory *table = &host->directory.table;
    const struct via_directory_entry *own = via_directory_find(table, host->config.host);
    const struct via_directory_entry *entry = via_directory_find(table, id);
    if (entry == NULL || own == NULL || route->port >= host->cables_count) {
        return false;
    }
    const char *link = host->cables[route->port].description;
    snprintf(ret_text, VIA_MEASURED_FOR_BYTES, "%s %s, host %s %s, %u hops, %s, %s", own->name,
             own->version, entry->name, entry->version, route->hops,
             host->directory.by_network[id] ? "network" : "no network", link != NULL ? link : "");
    return true;
}

const struct via_measured *via_host_measured(const struct via_host *host, uint16_t id)
{
    const struct via_measured *measured = &host->measured.of[id];
    char now_for[VIA_MEASURED_FOR_BYTES];
    if (measured->carrier == VIA_MEASURED_NOT) {
        return NULL;
    }
    struct via_route_status route = route_to(host, id);
    return route.port == VIA_PORT_NONE ||
                   (describe(host, id, &route, now_for) && strcmp(now_for, measured->made_for) == 0)
               ? measured
               : NULL;
}

static void changed(struct via_host *host)
{
    host->directory.changed = true; /* causes a new write of the page */
    if (host->measured.calls.changed != NULL) {
        host->measured.calls.changed(host->measured.calls.ctx);
    }
}

int via_host_measured_take(struct via_host *host, uint16_t id, const struct via_measured *measured)
{
    struct via_measured made = *measured;
    if (made.carrier != VIA_MEASURED_NOT) {
        struct via_route_status route = route_to(host, id);
        if (route.port == VIA_PORT_NONE || !describe(host, id, &route, made.made_for)) {
            return -EHOSTUNREACH;
        }
        made.session = route.session;
        made.measured_ns = real_time_ns();
    }
    host->measured.of[id] = made;
    host->measured.tries[id] =
        (struct via_measured_try){.next_ns = host->now_ns + (made.carrier ? 0 : RETRY_NS)};
    changed(host);
    return 0;
}

/* --- for the program that embeds the host ----------------------------------------------------- */

void via_host_set_measuring(struct via_host *host, const struct via_host_measuring *calls)
{
    host->measured.calls = *calls;
}

const struct via_measured *via_host_measured_kept(const struct via_host *host, uint16_t id)
{
    bool there = id < host->config.hosts_max && host->measured.of[id].carrier != VIA_MEASURED_NOT;
    return there ? &host->measured.of[id] : NULL;
}

void via_host_measured_restore(struct via_host *host, uint16_t id,
                               const struct via_measured *measured)
{
    if (id < host->config.hosts_max && id != host->config.host) {
        host->measured.of[id] = *measured;
        host->directory.changed = true;
    }
}

/* True if a new decision is due. A clock that was set back counts as time that has passed. */
static bool is_wanted(const struct via_host *host, uint16_t id,
                      const struct via_route_status *route)
{
    const struct via_measured *measured = via_host_measured(host, id);
    return measured == NULL || (measured->session != route->session &&
                                real_time_ns() - measured->measured_ns > SAME_NS);
}

/* True if the link was idle at the last checks. */
static bool is_idle(struct via_host *host, uint16_t id, unsigned port)
{
    struct via_measured_try *try = &host->measured.tries[id];
    struct via_link_status link;
    if (via_node_link_status(host->node, port, &link) != 0 || link.state != VIA_LINK_UP) {
        return false;
    }
    uint64_t bytes = link.bytes_sent + link.bytes_received;
    uint64_t took_ns = host->now_ns - try->polled_ns;
    if (try->polled_ns != 0 && try->ups == (uint32_t)link.ups_count && took_ns < POLL_NS) {
        return false;
    }
    bool idle = try->polled_ns != 0 && try->ups == (uint32_t)link.ups_count &&
                bytes - try->bytes < IDLE_BYTES_PER_S * (took_ns / VIA_MSEC_NS) / 1000;
    try->idle_polls = idle ? try->idle_polls + 1 : 0;
    try->polled_ns = host->now_ns;
    try->bytes = bytes;
    try->ups = (uint32_t)link.ups_count;
    return try->idle_polls >= IDLE_POLLS;
}

const char *via_host_first_address(const struct via_host *host)
{
    return host->identity.addresses_count != 0 ? host->identity.addresses[0] : NULL;
}

int via_host_measured_next(struct via_host *host)
{
    if (host->identity.addresses_count == 0) {
        return -ENOENT;
    }
    /* The host with the lower id of a pair measures. */
    for (uint16_t id = (uint16_t)(host->config.host + 1); id < host->config.hosts_max; id++) {
        const struct via_directory_entry *entry = via_directory_find(&host->directory.table, id);
        struct via_route_status route = route_to(host, id);
        if (entry != NULL && entry->addresses_count != 0 && route.port != VIA_PORT_NONE &&
            route.hops == 1 && host->directory.by_network[id] &&
            host->now_ns >= host->measured.tries[id].next_ns && is_wanted(host, id, &route) &&
            is_idle(host, id, route.port)) {
            return id;
        }
    }
    return -ENOENT;
}

void via_host_measured_ended(struct via_host *host, uint16_t id, bool failed)
{
    struct via_measured_try *try = &host->measured.tries[id];
    try->failures = failed ? via_min(try->failures + 1, RETRY_DOUBLINGS_MAX) : 0;
    try->next_ns = failed ? host->now_ns + (RETRY_NS << (try->failures - 1)) : host->now_ns;
}
