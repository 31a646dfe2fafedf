/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#include "cli/scale.h"
#include "cli/status.h"

/* Larger fabrics do not fit on a terminal as a matrix. */
#define MATRIX_HOSTS_MAX 20u

/* --- JSON ------------------------------------------------------------------------------------ */

static json_t *number_or_null(int value)
{
    return value >= 0 ? json_integer(value) : json_null();
}

static const char *name_of(const struct via_status *status, const struct via_status_host *host)
{
    return status->fabric.local >= 0 ? via_fabric_host_name(&status->fabric, host->host)
                                     : via_answer_text(host->after, "name");
}

static json_t *routes_of(const struct via_status *status, const struct via_status_host *host)
{
    const struct via_topology *topology = &status->fabric.topology;
    json_t *routes = json_array();
    for (unsigned i = 0; i < topology->hosts_count && host->after != NULL; i++) {
        unsigned other = topology->hosts[i];
        if (other != host->host) {
            json_t *route = via_answer_route(host->after, other);
            json_array_append_new(
                routes, json_pack("{s:i, s:o, s:o, s:O?, s:O?}", "host", (int)other, "hops",
                                  number_or_null(via_answer_hops(host->after, other)), "via",
                                  number_or_null(via_answer_next_hop(host->after, other)), "pipes",
                                  json_object_get(route, "pipes"), "measured",
                                  json_object_get(route, "measured")));
        }
    }
    return routes;
}

/* A part of the answer, unchanged; or an empty one. */
static json_t *part_of(const struct via_status_host *host, const char *key, bool array)
{
    json_t *part = json_object_get(host->after, key);
    if (array ? json_is_array(part) : json_is_object(part)) {
        return json_incref(part);
    }
    return array ? json_array() : json_object();
}

static json_t *addresses_of(const struct via_fabric *fabric, unsigned host)
{
    json_t *addresses = json_array();
    json_t *entry;
    size_t i;
    if (fabric->local < 0) {
        json_array_append_new(addresses, json_string(via_fabric_address(fabric, host).text));
    }
    json_array_foreach(json_object_get(via_fabric_entry(fabric, host), "addresses"), i, entry)
    {
        json_array_append(addresses, json_object_get(entry, "address"));
    }
    return addresses;
}

static json_t *host_json(const struct via_status *status, const struct via_status_host *host)
{
    return json_pack(
        "{s:i, s:s, s:s, s:s, s:i, s:s, s:o, s:I, s:I, s:i, s:o, s:o, s:o, s:o}", "host",
        (int)host->host, "name", name_of(status, host), "state", host->state, "error", host->why,
        "pid", (int)host->pid, "address", via_fabric_address(&status->fabric, host->host).text,
        "addresses", addresses_of(&status->fabric, host->host), "session",
        (json_int_t)via_answer_u64(host->after, "session"), "uptime_ns",
        (json_int_t)via_answer_u64(host->after, "uptime_ns"), "channels",
        (int)via_answer_u64(host->after, "channels"), "routes", routes_of(status, host),
        "processes", part_of(host, "processes", true), "users", part_of(host, "users", true),
        "counters", part_of(host, "counters", false));
}

/* The port of one end, from the answer of its host. */
static json_t *port_json(const struct via_status_link *link, unsigned end)
{
    static const char *const keys[] = {"driver", "found", "like", "error",
                                       "window", "inbox", "caps"};
    json_t *object = json_object();
    json_object_set_new(object, "host", json_integer(end == 0 ? link->link.a : link->link.b));
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(keys); i++) {
        json_object_set(object, keys[i], json_object_get(link->ends[end], keys[i]));
    }
    return object;
}

static json_t *ports_json(const struct via_status_link *link)
{
    json_t *ports = json_array();
    for (unsigned end = 0; end < VIA_ARRAY_COUNT(link->ends); end++) {
        if (link->ends[end] != NULL) {
            json_array_append_new(ports, port_json(link, end));
        }
    }
    return ports;
}

static json_t *link_json(const struct via_status_link *link)
{
    return json_pack(
        "{s:i, s:i, s:i, s:s, s:b, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:o}", "a", (int)link->link.a,
        "b", (int)link->link.b, "n", (int)link->link.number, "state", link->state, "cut",
        (int)link->cut, "bytes_per_second_ab", link->ab.bytes_per_second, "bytes_per_second_ba",
        link->ba.bytes_per_second, "bytes_ab", (json_int_t)link->ab.bytes, "bytes_ba",
        (json_int_t)link->ba.bytes, "frames_ab", (json_int_t)link->ab.frames, "frames_ba",
        (json_int_t)link->ba.frames, "errors", (json_int_t)link->errors, "ports", ports_json(link));
}

json_t *via_status_json(const struct via_status *status)
{
    const struct via_fabric *fabric = &status->fabric;
    json_t *hosts = json_array();
    json_t *links = json_array();
    for (unsigned i = 0; i < fabric->topology.hosts_count; i++) {
        json_array_append_new(hosts, host_json(status, &status->hosts[i]));
    }
    for (unsigned i = 0; i < fabric->topology.links_count; i++) {
        json_array_append_new(links, link_json(&status->links[i]));
    }
    return json_pack("{s:s, s:s, s:s, s:b, s:o, s:o}", "fabric", fabric->name, "rundir",
                     fabric->rundir.text, "like", fabric->like[0] != '\0' ? fabric->like : "memory",
                     "netns", (int)fabric->netns, "hosts", hosts, "links", links);
}

/* --- tables ---------------------------------------------------------------------------------- */

/* Windows are powers of two, or nearly so. */
static struct via_scaled scale_binary(uint64_t bytes)
{
    struct via_scaled scaled;
    snprintf(scaled.text, sizeof(scaled.text), "%.4g MiB", (double)bytes / (1 << 20));
    return scaled;
}

static void print_processes(const struct via_status_host *host)
{
    json_t *processes = json_object_get(host->after, "processes");
    json_t *entry;
    size_t i;
    if (json_array_size(processes) == 0) {
        printf("-");
    }
    json_array_foreach(processes, i, entry)
    {
        printf("%s%s(%llu)", i == 0 ? "" : " ", via_answer_text(entry, "comm"),
               (unsigned long long)via_answer_u64(entry, "pid"));
    }
    printf("\n");
}

/* Prints the hosts of a fabric of several machines, with their names. */
static void print_machines(const struct via_status *status)
{
    const struct via_fabric *fabric = &status->fabric;
    printf("host  name              state        pid      address          processes\n");
    for (unsigned i = 0; i < fabric->topology.hosts_count; i++) {
        const struct via_status_host *host = &status->hosts[i];
        const char *name = name_of(status, host);
        char pid[16] = "-";
        if (host->pid != 0) {
            snprintf(pid, sizeof(pid), "%d", (int)host->pid);
        }
        printf("%4u  %-16s  %-11s  %-7s  %-15s  ", host->host, name[0] != '\0' ? name : "-",
               host->state, pid, via_fabric_address(fabric, host->host).text);
        print_processes(host);
    }
}

static void print_emulated(const struct via_status *status)
{
    printf("host  state   pid      address       processes\n");
    for (unsigned i = 0; i < status->fabric.topology.hosts_count; i++) {
        const struct via_status_host *host = &status->hosts[i];
        char pid[16] = "-";
        if (strcmp(host->state, "down") != 0) {
            snprintf(pid, sizeof(pid), "%d", (int)host->pid);
        }
        printf("%4u  %-6s  %-7s  %-12s  ", host->host, host->state, pid,
               via_fabric_address(&status->fabric, host->host).text);
        print_processes(host);
    }
}

static void print_hosts(const struct via_status *status)
{
    if (status->fabric.local >= 0) {
        print_machines(status);
    } else {
        print_emulated(status);
    }
    for (unsigned i = 0; i < status->fabric.topology.hosts_count; i++) {
        if (status->hosts[i].why[0] != '\0') {
            printf("%s\n", status->hosts[i].why);
        }
    }
}

/* "12/4096"; or "12" without a quota. */
static struct via_scaled use_of(const json_t *user, const char *key, const char *key_max)
{
    struct via_scaled use;
    unsigned long long count = via_answer_u64(user, key);
    unsigned long long max = via_answer_u64(user, key_max);
    if (max != 0) {
        snprintf(use.text, sizeof(use.text), "%llu/%llu", count, max);
    } else {
        snprintf(use.text, sizeof(use.text), "%llu", count);
    }
    return use;
}

static void print_user(unsigned host, const json_t *user)
{
    char memory[56];
    char name[32];
    uint64_t max = via_answer_u64(user, "memory_max");
    uid_t uid = (uid_t)via_answer_u64(user, "uid");
    const struct passwd *entry = getpwuid(uid);
    if (entry != NULL) {
        snprintf(name, sizeof(name), "%.16s", entry->pw_name);
    } else {
        snprintf(name, sizeof(name), "%u", (unsigned)uid);
    }
    snprintf(memory, sizeof(memory), "%s%s%s",
             via_scale((double)via_answer_u64(user, "memory"), "B").text, max != 0 ? "/" : "",
             max != 0 ? via_scale((double)max, "B").text : "");
    printf("%4u  %-16s  %9llu  %-11s  %-15s  %-9s  %s\n", host, name,
           (unsigned long long)via_answer_u64(user, "processes"),
           use_of(user, "segments", "segments_max").text, memory,
           use_of(user, "pipes", "pipes_max").text, use_of(user, "notes", "notes_max").text);
}

/* True if a user has a quota; otherwise the table of users is left out. */
static bool has_quotas(const struct via_status *status)
{
    for (unsigned i = 0; i < status->fabric.topology.hosts_count; i++) {
        json_t *entry;
        size_t k;
        json_array_foreach(json_object_get(status->hosts[i].after, "users"), k, entry)
        {
            if (via_answer_u64(entry, "segments_max") != 0) {
                return true;
            }
        }
    }
    return false;
}

static void print_users(const struct via_status *status)
{
    if (!has_quotas(status)) {
        return;
    }
    printf("\nhost  user              processes  segments     memory           pipes      notes\n");
    for (unsigned i = 0; i < status->fabric.topology.hosts_count; i++) {
        json_t *entry;
        size_t k;
        json_array_foreach(json_object_get(status->hosts[i].after, "users"), k, entry)
        {
            print_user(status->hosts[i].host, entry);
        }
    }
}

static void print_link(const struct via_status_link *link)
{
    char name[16];
    char state[32];
    if (link->link.number == 0) {
        snprintf(name, sizeof(name), "%u-%u", link->link.a, link->link.b);
    } else {
        snprintf(name, sizeof(name), "%u-%u/%u", link->link.a, link->link.b, link->link.number);
    }
    snprintf(state, sizeof(state), "%s", link->cut ? "cut" : link->state);
    printf("%-9s  %-12s  %10s  %10s  %9s  %9s  %6llu\n", name, state,
           via_scale(link->ab.bytes_per_second, "B/s").text,
           via_scale(link->ba.bytes_per_second, "B/s").text,
           via_scale((double)link->ab.bytes, "B").text, via_scale((double)link->ba.bytes, "B").text,
           (unsigned long long)link->errors);
}

static void print_links(const struct via_status *status)
{
    if (status->fabric.topology.links_count > 0) {
        printf("\nlink a-b   state              a->b        b->a   a->b sum   b->a sum  errors\n");
    }
    for (unsigned i = 0; i < status->fabric.topology.links_count; i++) {
        print_link(&status->links[i]);
    }
    for (unsigned i = 0; i < status->fabric.topology.links_count; i++) {
        const struct via_status_link *link = &status->links[i];
        for (unsigned end = 0; end < VIA_ARRAY_COUNT(link->why); end++) {
            if (link->why[end][0] != '\0') {
                printf("link %u-%u, host %u: %s\n", link->link.a, link->link.b,
                       end == 0 ? link->link.a : link->link.b, link->why[end]);
            }
        }
    }
}

static void print_failed(const struct via_status *status)
{
    for (unsigned i = 0; i < status->fabric.topology.hosts_count; i++) {
        json_t *why;
        size_t k;
        json_array_foreach(json_object_get(status->hosts[i].after, "links_failed"), k, why)
        {
            printf("host %u: not opened: %s\n", status->hosts[i].host, json_string_value(why));
        }
    }
}

static bool is_id_shared(const struct via_status *status, unsigned i, unsigned id)
{
    json_t *entry;
    size_t k;
    json_array_foreach(json_object_get(status->hosts[i].after, "ids_shared"), k, entry)
    {
        if (json_integer_value(entry) == (json_int_t)id) {
            return true;
        }
    }
    return false;
}

/* Prints each id once that two hosts have. */
static void print_ids_shared(const struct via_status *status)
{
    unsigned count = status->fabric.topology.hosts_count;
    for (unsigned at = 0; at < count; at++) {
        unsigned id = status->hosts[at].host;
        for (unsigned i = 0; i < count; i++) {
            if (is_id_shared(status, i, id)) {
                printf("host %u: two hosts of the fabric have this id, as host %u sees it\n", id,
                       status->hosts[i].host);
                break;
            }
        }
    }
}

/* Prints the decisions of viaduct tune sockets. */
static void print_measured(const struct via_status *status)
{
    bool any = false;
    for (unsigned i = 0; i < status->fabric.topology.hosts_count; i++) {
        json_t *route;
        size_t k;
        json_array_foreach(json_object_get(status->hosts[i].after, "routes"), k, route)
        {
            json_t *measured = json_object_get(route, "measured");
            if (!json_is_object(measured)) {
                continue;
            }
            printf("%s%9u  %4llu  %-7s  %5llu %%  %5llu %%  %5llu %%  %7llu s\n",
                   any ? "" : "\nsockets a     b  by          8 B   16 KiB   stream        age\n",
                   status->hosts[i].host, (unsigned long long)via_answer_u64(route, "host"),
                   json_is_true(json_object_get(route, "pipes")) ? "pipes" : "kernel",
                   (unsigned long long)via_answer_u64(measured, "small"),
                   (unsigned long long)via_answer_u64(measured, "medium"),
                   (unsigned long long)via_answer_u64(measured, "stream"),
                   (unsigned long long)(via_answer_u64(measured, "age_ns") / VIA_SEC_NS));
            any = true;
        }
    }
}

static void print_port(const struct via_status_link *link, unsigned end)
{
    json_t *port = link->ends[end];
    json_t *caps = json_object_get(port, "caps");
    uint64_t read_ns = via_answer_u64(caps, "read_ns");
    bool coherent = json_is_true(json_object_get(caps, "coherent"));
    char read[24];
    snprintf(read, sizeof(read), "%s", coherent ? "as memory" : "not known");
    if (read_ns != 0) {
        snprintf(read, sizeof(read), "%.3g us", (double)read_ns / 1000);
    }
    printf("%4u %4u  %-8s  %10s  %10s  %-7s  %-8s  %5llu B  %9s  %3llu  %s\n",
           end == 0 ? link->link.a : link->link.b, end == 0 ? link->link.b : link->link.a,
           via_answer_text(port, "driver"), scale_binary(via_answer_u64(port, "window")).text,
           scale_binary(via_answer_u64(port, "inbox")).text,
           json_is_true(json_object_get(caps, "writes_ordered")) ? "all" : "commits",
           coherent ? "coherent" : "posted",
           (unsigned long long)via_answer_u64(caps, "store_bytes"), read,
           (unsigned long long)via_answer_u64(caps, "dma_depth"), via_answer_text(port, "found"));
}

static void print_ports(const struct via_status *status)
{
    printf("\nhost peer  driver        window       inbox  ordered  stores    whole       reads  "
           "DMA  found\n");
    for (unsigned i = 0; i < status->fabric.topology.links_count; i++) {
        for (unsigned end = 0; end < VIA_ARRAY_COUNT(status->links[i].ends); end++) {
            if (status->links[i].ends[end] != NULL) {
                print_port(&status->links[i], end);
            }
        }
    }
}

static void print_hops_row(const struct via_status *status, const struct via_status_host *host)
{
    printf("%9u", host->host);
    for (unsigned i = 0; i < status->fabric.topology.hosts_count; i++) {
        unsigned other = status->fabric.topology.hosts[i];
        int hops = via_answer_hops(host->after, other);
        if (other == host->host || hops < 0) {
            printf("%4s", other == host->host ? "." : "-");
        } else {
            printf("%4d", hops);
        }
    }
    printf("\n");
}

static void print_routes(const struct via_status *status)
{
    unsigned count = status->fabric.topology.hosts_count;
    if (count > MATRIX_HOSTS_MAX) {
        for (unsigned i = 0; i < count; i++) {
            unsigned reached = 0;
            for (unsigned k = 0; k < count; k++) {
                reached += k != i && via_answer_hops(status->hosts[i].after,
                                                     status->fabric.topology.hosts[k]) >= 0;
            }
            printf("%shost %u reaches %u of %u hosts\n", i == 0 ? "\n" : "", status->hosts[i].host,
                   reached, count - 1);
        }
        return;
    }
    printf("\nhops from");
    for (unsigned i = 0; i < count; i++) {
        printf("%4u", status->fabric.topology.hosts[i]);
    }
    printf("\n");
    for (unsigned i = 0; i < count; i++) {
        print_hops_row(status, &status->hosts[i]);
    }
}

/* Prints the class of the links; all have the same one. */
static void print_like(const struct via_status *status)
{
    uint64_t window = 0;
    for (unsigned i = 0; i < status->fabric.topology.hosts_count && window == 0; i++) {
        json_t *links = json_object_get(status->hosts[i].after, "links");
        window = via_answer_u64(json_array_get(links, 0), "window");
    }
    printf("links like %s", status->fabric.like);
    if (window != 0) {
        printf(", windows of %s", scale_binary(window).text);
    }
    printf("\n");
}

void via_status_print(const struct via_status *status, bool ports)
{
    if (status->fabric.local >= 0) {
        printf("fabric '%s', as host %d sees it (%s)\n", status->fabric.name, status->fabric.local,
               status->fabric.rundir.text);
    } else {
        printf("fabric '%s' in %s\n", status->fabric.name, status->fabric.rundir.text);
    }
    if (status->fabric.like[0] != '\0') {
        print_like(status);
    }
    printf("\n");
    print_hosts(status);
    print_ids_shared(status);
    print_users(status);
    print_links(status);
    print_failed(status);
    if (ports && status->fabric.topology.links_count != 0) {
        print_ports(status);
    }
    print_measured(status);
    if (status->fabric.topology.hosts_count > 1) {
        print_routes(status);
    }
}
