/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A fabric without a state file: its description comes from the daemon of this machine. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/request.h"
#include "host/control.h"

#define ANSWER_MS 2000u

json_t *via_fabric_entry(const struct via_fabric *fabric, unsigned host)
{
    json_t *entry;
    size_t i;
    json_array_foreach(json_object_get(fabric->directory, "hosts"), i, entry)
    {
        if (json_is_integer(json_object_get(entry, "host")) &&
            via_answer_u64(entry, "host") == host) {
            return entry;
        }
    }
    return NULL;
}

const char *via_fabric_host_name(const struct via_fabric *fabric, unsigned host)
{
    return via_answer_text(via_fabric_entry(fabric, host), "name");
}

static void add_host(struct via_fabric *fabric, uint64_t id)
{
    struct via_topology *topology = &fabric->topology;
    if (id <= UINT16_MAX && topology->hosts_count < VIA_TOPOLOGY_HOST_MAX &&
        via_fabric_find(fabric, (unsigned)id) < 0) {
        topology->hosts[topology->hosts_count++] = (uint16_t)id;
    }
}

/* The number of links to `peer` that a host announces. */
static unsigned count_links(const struct via_fabric *fabric, unsigned host, unsigned peer)
{
    unsigned count = 0;
    json_t *entry;
    size_t i;
    json_array_foreach(json_object_get(via_fabric_entry(fabric, host), "links"), i, entry)
    {
        json_t *id = json_object_get(entry, "peer");
        count += json_is_integer(id) && json_integer_value(id) == (json_int_t)peer;
    }
    return count;
}

/* Adds a link if either end announces it. */
static void add_links(struct via_fabric *fabric, unsigned a, unsigned b)
{
    struct via_topology *topology = &fabric->topology;
    unsigned count = via_max(count_links(fabric, a, b), count_links(fabric, b, a));
    for (unsigned i = 0;
         i < via_min(count, UINT8_MAX + 1u) && topology->links_count < VIA_TOPOLOGY_LINKS_MAX;
         i++) {
        topology->links[topology->links_count++] =
            (struct via_topology_link){.a = (uint16_t)a, .b = (uint16_t)b, .number = (uint8_t)i};
    }
}

/* Adds the hosts in the directory, and the hosts to which their links lead. */
static void add_hosts(struct via_fabric *fabric)
{
    json_t *entry;
    json_t *link;
    size_t i;
    size_t k;
    json_array_foreach(json_object_get(fabric->directory, "hosts"), i, entry)
    {
        add_host(fabric, via_answer_u64(entry, "host"));
        json_array_foreach(json_object_get(entry, "links"), k, link)
        {
            json_t *peer = json_object_get(link, "peer");
            if (json_is_integer(peer) && json_integer_value(peer) >= 0) {
                add_host(fabric, (uint64_t)json_integer_value(peer));
            }
        }
    }
}

static int compare_ids(const void *a, const void *b)
{
    return *(const uint16_t *)a - *(const uint16_t *)b;
}

int via_fabric_load_live(struct via_fabric *fabric, unsigned local, struct via_error *err)
{
    struct via_topology *topology = &fabric->topology;
    memset(topology, 0, sizeof(*topology));
    memset(fabric->daemons, 0, sizeof(fabric->daemons));
    json_decref(fabric->directory);
    fabric->directory = NULL;
    fabric->local = (int)local;
    int rc = via_control_directory(fabric->rundir.text, local, &fabric->directory, err, ANSWER_MS);
    if (rc != 0) {
        return rc;
    }
    snprintf(fabric->name, sizeof(fabric->name), "%s",
             via_answer_text(fabric->directory, "fabric"));
    add_hosts(fabric);
    qsort(topology->hosts, topology->hosts_count, sizeof(topology->hosts[0]), compare_ids);
    for (unsigned a = 0; a < topology->hosts_count; a++) {
        for (unsigned b = a + 1; b < topology->hosts_count; b++) {
            add_links(fabric, topology->hosts[a], topology->hosts[b]);
        }
    }
    return 0;
}

int via_fabric_resolve(const struct via_fabric *fabric, const char *text, unsigned *ret_host,
                       struct via_error *err)
{
    char *end;
    errno = 0;
    unsigned long id = strtoul(text, &end, 10);
    if (text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && id <= UINT16_MAX &&
        via_fabric_find(fabric, (unsigned)id) >= 0) {
        *ret_host = (unsigned)id;
        return 0;
    }
    int first = -1;
    for (unsigned i = 0; i < fabric->topology.hosts_count; i++) {
        unsigned host = fabric->topology.hosts[i];
        const char *name = via_fabric_host_name(fabric, host);
        if (name[0] == '\0' || strcmp(name, text) != 0) {
            continue;
        }
        if (first >= 0) {
            return via_error_set(err, -EEXIST,
                                 "host %.64s: find: hosts %d and %u both have this name; use the "
                                 "id",
                                 text, first, host);
        }
        first = (int)host;
    }
    if (first < 0) {
        return via_error_set(err, -ENOENT, "host %.64s: find: fabric '%s' has no such host", text,
                             fabric->name);
    }
    *ret_host = (unsigned)first;
    return 0;
}
