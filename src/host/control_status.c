/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The status of a host. docs/host.md lists the fields. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "host/host_private.h"

/* All numbers go through this function, because numbers in JSON are signed. */
static void set(json_t *object, const char *key, uint64_t value)
{
    json_object_set_new(object, key, json_integer((json_int_t)value));
}

/* For readers that compare the clocks of several machines. */
static uint64_t real_time_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * VIA_SEC_NS + (uint64_t)now.tv_nsec;
}

static void set_slices(json_t *object, const struct via_host_slices *slices)
{
    const struct via_port_slices *port = slices->port;
    set(object, "slices", port != NULL ? port->count : 0);
    if (port == NULL) {
        return;
    }
    set(object, "slice_bytes", port->slice_bytes);
    set(object, "slices_open", via_slice_table_open_count(&slices->table));
    set(object, "slices_opened", slices->opened_count);
    set(object, "slices_evicted", slices->table.evicted_count);
    set(object, "slices_refused", slices->table.refused_count);
    set(object, "slices_gone", slices->gone_count);
    set(object, "exposed", slices->exposed_count);
    set(object, "exposed_refused", slices->exposed_refused_count);
}

static json_t *caps_of(const struct via_port_caps *caps)
{
    json_t *object = json_object();
    json_object_set_new(object, "coherent", json_boolean(caps->coherent));
    json_object_set_new(object, "writes_ordered", json_boolean(caps->writes_ordered));
    set(object, "store_bytes", caps->store_bytes_max);
    set(object, "read_ns", caps->read_ns);
    set(object, "dma_depth", caps->dma_depth);
    return object;
}

static json_t *link_of(const struct via_host *host, unsigned index)
{
    const struct via_host_cable *cable = &host->cables[index];
    struct via_link_status link = {.state = VIA_LINK_DOWN};
    struct via_port_status port;
    char found[128];
    (void)via_node_link_status(host->node, index, &link);
    cable->link.driver->status(cable->port, &port);
    cable->link.driver->describe(cable->port, found, sizeof(found));
    struct via_link_text error = via_link_explain(&link, host->protocol_version);
    json_t *object = json_object();
    set(object, "port", index);
    json_object_set_new(object, "name", json_string(cable->name));
    json_object_set_new(object, "peer", json_integer(via_host_cable_peer(cable)));
    json_object_set_new(object, "state", json_string(via_link_state_name(link.state)));
    json_object_set_new(object, "error",
                        json_string(error.text[0] != '\0' ? error.text : port.error));
    json_object_set_new(object, "cut", json_boolean(port.cut));
    json_object_set_new(object, "direct", json_boolean(cable->direct));
    json_object_set_new(object, "driver", json_string(cable->link.driver->name));
    json_object_set_new(object, "found", json_string(found));
    json_object_set_new(object, "like", json_string(port.class_name));
    set(object, "window", port.window_bytes);
    set(object, "inbox", cable->port->caps.inbox_bytes);
    json_object_set_new(object, "caps", caps_of(&cable->port->caps));
    set_slices(object, &host->aperture.links[index]);
    set(object, "dimension", cable->dimension);
    json_object_set_new(object, "path", json_string(cable->link.target));
    set(object, "seen_peer", link.peer);
    set(object, "peer_session", link.peer_session);
    set(object, "peer_version", link.peer_version);
    set(object, "slots", link.pipe_slots);
    set(object, "peer_pid", port.peer_pid);
    set(object, "ups", link.ups_count);
    set(object, "downs", link.downs_count);
    json_object_set_new(object, "down_why", json_string(via_link_explain_down(&link).text));
    set(object, "heartbeats", link.heartbeats);
    set(object, "silence_max_us", link.silence_max_ns / VIA_USEC_NS);
    set(object, "frames_sent", link.frames_sent);
    set(object, "frames_received", link.frames_received);
    set(object, "bytes_sent", link.bytes_sent);
    set(object, "bytes_received", link.bytes_received);
    set(object, "frames_relayed", link.relayed_frames);
    set(object, "frames_bypassed", link.bypassed_frames);
    set(object, "errors", link.errors);
    set(object, "dma_frames", link.dma_frames);
    set(object, "dma_bytes", link.dma_bytes);
    set(object, "dma_busy", link.dma_busy);
    set(object, "dma_fallbacks", link.dma_fallbacks);
    set(object, "dma_hangs", link.dma_hangs);
    set(object, "doorbells_fired", port.doorbells_fired);
    set(object, "doorbells_coalesced", port.doorbells_coalesced);
    set(object, "peers_refused", port.peers_refused);
    return object;
}

static json_t *links_of(const struct via_host *host)
{
    json_t *array = json_array();
    for (unsigned i = 0; i < host->cables_count; i++) {
        if (host->cables[i].port != NULL) {
            json_array_append_new(array, link_of(host, i));
        }
    }
    return array;
}

/* The speed of TCP connections to the host. null: nothing was measured on the present path. */
static json_t *measured_of(const struct via_host *host, uint16_t id)
{
    const struct via_measured *measured = via_host_measured(host, id);
    if (measured == NULL) {
        return json_null();
    }
    json_t *object = json_object();
    set(object, "small", measured->small_pct);
    set(object, "medium", measured->medium_pct);
    set(object, "stream", measured->stream_pct);
    set(object, "age_ns", via_max(real_time_ns(), measured->measured_ns) - measured->measured_ns);
    return object;
}

/* Hosts from which frames have arrived. -1 hops: unreachable now. */
static json_t *routes_of(const struct via_host *host)
{
    json_t *array = json_array();
    for (uint16_t id = 0; id < host->config.hosts_max; id++) {
        struct via_route_status route;
        if (via_node_route_status(host->node, id, &route) != 0 || id == host->config.host ||
            (route.session == 0 && route.port == VIA_PORT_NONE)) {
            continue;
        }
        bool there = route.port != VIA_PORT_NONE;
        json_t *object = json_object();
        set(object, "host", id);
        json_object_set_new(object, "port", json_integer(there ? route.port : -1));
        json_object_set_new(object, "hops", json_integer(there ? route.hops : -1));
        set(object, "session", route.session);
        json_object_set_new(object, "pipes", json_boolean(via_host_directory_has_pipes(host, id)));
        json_object_set_new(object, "measured", measured_of(host, id));
        json_object_set_new(object, "in_directory",
                            json_boolean(via_directory_find(&host->directory.table, id) != NULL));
        json_array_append_new(array, object);
    }
    return array;
}

static json_t *neighbours_of(const struct via_host *host)
{
    json_t *object = json_object();
    for (uint16_t id = 0; id < host->config.hosts_max; id++) {
        uint16_t ids[VIA_HOSTS_MAX];
        int count = via_node_neighbours(host->node, id, ids, VIA_HOSTS_MAX);
        if (count < 0) {
            continue;
        }
        char key[8];
        snprintf(key, sizeof(key), "%u", id);
        json_t *array = json_array();
        for (int i = 0; i < count; i++) {
            json_array_append_new(array, json_integer(ids[i]));
        }
        json_object_set_new(object, key, array);
    }
    return object;
}

/* Ids that are announced by two hosts each. */
static json_t *ids_shared_of(const struct via_host *host)
{
    json_t *array = json_array();
    for (uint16_t id = 0; id < host->config.hosts_max; id++) {
        if (via_host_ids_is_shared(host, id)) {
            json_array_append_new(array, json_integer(id));
        }
    }
    return array;
}

static json_t *counters_of(const struct via_host *host)
{
    struct via_node_counters counters;
    via_node_counters(host->node, &counters);
    json_t *object = json_object();
    set(object, "frames_delivered", counters.frames_delivered);
    set(object, "frames_duplicate", counters.frames_duplicate);
    set(object, "frames_gap", counters.frames_gap);
    set(object, "frames_resent", counters.frames_resent);
    set(object, "frames_dropped_stuck", counters.frames_dropped_stuck);
    set(object, "frames_dropped_hops", counters.frames_dropped_hops);
    set(object, "frames_dropped_session", counters.frames_dropped_session);
    set(object, "frames_dropped_unroutable", counters.frames_dropped_unroutable);
    set(object, "frames_dropped_malformed", counters.frames_dropped_malformed);
    set(object, "frames_dropped_forged", counters.frames_dropped_forged);
    set(object, "refused_key", counters.refused_key);
    set(object, "refused_range", counters.refused_range);
    set(object, "refused_endpoint", counters.refused_endpoint);
    set(object, "ops_completed", counters.ops_completed);
    set(object, "ops_failed", counters.ops_failed);
    set(object, "announcements_sent", counters.announcements_sent);
    set(object, "announcements_received", counters.announcements_received);
    set(object, "announcement_bytes_sent", counters.announcement_bytes_sent);
    set(object, "routes_changed", counters.routes_changed);
    set(object, "routes_examined", counters.routes_examined);
    set(object, "attached", host->attach.attached_count);
    set(object, "attach_refused", host->attach.refused_count);
    set(object, "detached", host->attach.died_count);
    set(object, "maps", host->attach.maps_count);
    set(object, "maps_refused", host->attach.maps_refused_count);
    set(object, "slice_puts", via_host_aperture_bursts(host));
    set(object, "direct_connections", via_host_direct_conns(host));
    set(object, "direct_refused",
        atomic_load_explicit(&host->direct.refused_count, memory_order_relaxed));
    set(object, "change_rings", host->attach.rings_count);
    set(object, "bells_missed", via_host_bells_missed(host));
    set(object, "notes", host->board.notes_count);
    set(object, "note_bytes", host->board.bytes);
    return object;
}

static void append_processes(json_t *array, const struct via_list *list)
{
    via_list_foreach(it, list) {
        const struct via_process *process = via_list_entry(it, struct via_process, link);
        json_t *object = json_object();
        set(object, "pid", (uint64_t)process->pid);
        set(object, "uid", process->uid);
        json_object_set_new(object, "comm", json_string(process->comm));
        set(object, "segments", process->segments_count);
        set(object, "bytes", process->segments_bytes);
        json_object_set_new(object, "leaving",
                            json_boolean(process->state != VIA_PROCESS_ATTACHED));
        json_array_append_new(array, object);
    }
}

/* The limit of the user; 0: none. */
static uint64_t limit(const struct via_tenant *tenant, uint64_t max)
{
    return tenant->exempt ? 0 : max;
}

static void append_user(const struct via_host *host, json_t *array, const struct via_tenant *tenant)
{
    const struct via_quota *quota = &host->tenants.quota;
    json_t *object = json_object();
    set(object, "uid", tenant->uid);
    set(object, "processes", tenant->processes_count);
    set(object, "segments", tenant->segments_count);
    set(object, "segments_max", limit(tenant, quota->segments));
    set(object, "memory", tenant->memory_bytes);
    set(object, "memory_max", limit(tenant, quota->memory_bytes));
    set(object, "pipes", tenant->pipes_count);
    set(object, "pipes_max", limit(tenant, quota->pipes));
    set(object, "notes", via_board_notes_of(&host->board, tenant->uid));
    set(object, "notes_max", limit(tenant, quota->notes));
    json_array_append_new(array, object);
}

struct users {
    const struct via_host *host;
    json_t *array;
};

/* Adds a user of another host, which may have notes here without a process. */
static void append_poster(void *ctx, uint32_t uid, uint32_t notes_count)
{
    const struct users *users = ctx;
    (void)notes_count;
    via_list_foreach(it, &users->host->tenants.all) {
        if (via_list_entry(it, struct via_tenant, link)->uid == uid) {
            return;
        }
    }
    struct via_tenant absent = {.uid = uid, .exempt = via_rights_is_owner(uid)};
    append_user(users->host, users->array, &absent);
}

static json_t *users_of(const struct via_host *host)
{
    struct users users = {.host = host, .array = json_array()};
    via_list_foreach(it, &host->tenants.all) {
        append_user(host, users.array, via_list_entry(it, struct via_tenant, link));
    }
    via_board_each_user(&host->board, append_poster, &users);
    return users.array;
}

static json_t *addresses_of(const struct via_host_identity *identity)
{
    json_t *array = json_array();
    for (unsigned i = 0; i < identity->addresses_count; i++) {
        json_array_append_new(array, json_string(identity->addresses[i]));
    }
    return array;
}

json_t *via_control_status(struct via_host *host)
{
    json_t *object = json_object();
    json_t *processes = json_array();
    append_processes(processes, &host->attach.processes);
    append_processes(processes, &host->attach.closing);
    json_object_set_new(object, "ok", json_true());
    set(object, "host", host->config.host);
    json_object_set_new(object, "name", json_string(host->identity.name));
    json_object_set_new(object, "fabric", json_string(host->identity.fabric));
    json_object_set_new(object, "addresses", addresses_of(&host->identity));
    set(object, "hosts_max", host->config.hosts_max);
    set(object, "session", host->session);
    set(object, "pid", (uint64_t)getpid());
    set(object, "uptime_ns", via_host_now_ns() - host->started_ns);
    set(object, "time_ns", real_time_ns());
    set(object, "protocol_version", host->protocol_version);
    set(object, "channels", host->config.channels_count);
    set(object, "slots", host->config.pipe_slots);
    set(object, "frame_bytes", host->config.frame_bytes_max);
    json_object_set_new(object, "links", links_of(host));
    json_object_set_new(object, "links_failed",
                        host->links_failed != NULL ? json_deep_copy(host->links_failed)
                                                   : json_array());
    json_object_set_new(object, "ids_shared", ids_shared_of(host));
    json_object_set_new(object, "routes", routes_of(host));
    json_object_set_new(object, "neighbours", neighbours_of(host));
    json_object_set_new(object, "counters", counters_of(host));
    json_object_set_new(object, "processes", processes);
    json_object_set_new(object, "users", users_of(host));
    return object;
}
