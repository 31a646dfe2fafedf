/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/scale/fabric.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/types.h"
#include "host/host_wait.h"
#include "sim/cost/cost.h"
#include "sim/memory.h"
#include "sim/scale/port.h"

/* Limit of consecutive turns with work, before other hosts get their turns anyway. */
#define POLLS_MAX 64u
#define START_NS VIA_SEC_NS
#define MESSAGE_BYTES 64u

struct scale_host {
    struct scale_fabric *fabric;
    uint16_t index;
    uint16_t ports_count;
    void *memory;
    size_t bytes;
    struct via_node *node;
    uint64_t turn_ns; /* time of its next turn */
    uint64_t busy_ns; /* end of its last turn */
    uint64_t ticket;  /* of the valid turn event */
    struct via_host_wait wait;
    uint32_t routes_seen;
    bool changed;
    uint64_t cpu_ns; /* CPU time since the last count */
    uint64_t turns;
    uint64_t announcements_taken;
    struct via_node_counters counted;
};

struct edge {
    uint32_t host, link, side;
};

struct scale_fabric {
    unsigned hosts_count;
    struct scale_host *hosts;
    struct scale_link **links;
    unsigned links_count, links_capacity;
    struct via_node_config config;
    struct sim_cost cost; /* the clock, and the events */
    struct edge *edges;   /* the ports of all hosts, host by host */
    uint32_t *first;      /* index of each host's first edge */
    uint16_t *hops;       /* [from][to]: length of the shortest path over the links that are up */
    bool *wrong;          /* [from][to]: the host's route is not one of that length */
    uint64_t wrongs;      /* how many of them are wrong */
    /* The message that a run sends. */
    unsigned char message[MESSAGE_BYTES];
    uint64_t delivered_ns, completed;
    uint16_t delivered_at;
    int status;
};

static uint64_t cpu_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * VIA_SEC_NS + (uint64_t)now.tv_nsec;
}

uint64_t scale_fabric_now_ns(const struct scale_fabric *fabric)
{
    return fabric->cost.now_ps / SIM_NS_PS;
}

/* --- events ---------------------------------------------------------------------------------- */

static void take_turn(void *object, uint64_t ticket);

/* Schedules a turn at that time at the latest. */
static void wake(struct scale_host *host, uint64_t at_ns)
{
    at_ns = via_max(at_ns, host->busy_ns);
    if (at_ns >= host->turn_ns) {
        return;
    }
    host->turn_ns = at_ns;
    sim_cost_at(&host->fabric->cost, at_ns * SIM_NS_PS,
                (struct sim_call){take_turn, host, ++host->ticket});
}

static void arrive(void *object, uint64_t bit_and_era)
{
    struct scale_end *end = object;
    struct scale_fabric *fabric = end->link->fabric;
    if (bit_and_era >> 8 == end->link->era) {
        end->events |= VIA_PORT_EVENT_DOORBELL(bit_and_era & 0xff);
        wake(&fabric->hosts[end->host], scale_fabric_now_ns(fabric));
    }
}

void scale_fabric_ring(struct scale_fabric *fabric, struct scale_end *end, unsigned bit)
{
    sim_cost_after(&fabric->cost, SCALE_BELL_NS * SIM_NS_PS,
                   (struct sim_call){arrive, end, (uint64_t)end->link->era << 8 | bit});
}

/* --- calls of nodes -------------------------------------------------------------------------- */

static int node_deliver(void *ctx, const struct via_delivery *delivery)
{
    const struct scale_host *host = ctx;
    struct scale_fabric *fabric = host->fabric;
    if (delivery->bytes == MESSAGE_BYTES &&
        memcmp(delivery->data, fabric->message, MESSAGE_BYTES) == 0) {
        fabric->delivered_ns = scale_fabric_now_ns(fabric);
        fabric->delivered_at = host->index;
    }
    return 0;
}

static void node_complete(void *ctx, unsigned channel, uint64_t cookie, int status, uint64_t value)
{
    const struct scale_host *host = ctx;
    (void)channel;
    (void)value;
    host->fabric->completed = cookie;
    host->fabric->status = status;
}

static void node_notify(void *ctx, unsigned channel, uint64_t handle)
{
    (void)ctx;
    (void)channel;
    (void)handle;
}

static void node_wake(void *ctx, unsigned channel)
{
    struct scale_host *host = ctx;
    (void)channel;
    wake(host, scale_fabric_now_ns(host->fabric));
}

static void node_changed(void *ctx)
{
    struct scale_host *host = ctx;
    host->changed = true;
}

/* --- routes ---------------------------------------------------------------------------------- */

static bool is_right(const struct scale_fabric *fabric, unsigned from, unsigned to)
{
    struct via_route_status route;
    unsigned hops = scale_fabric_hops(fabric, from, to);
    if (via_node_route_status(fabric->hosts[from].node, (uint16_t)to, &route) != 0) {
        abort(); /* ids are those of the fabric */
    }
    if (hops == SCALE_UNREACHABLE || route.port == VIA_PORT_NONE || from == to) {
        return (hops == SCALE_UNREACHABLE) == (route.port == VIA_PORT_NONE);
    }
    /* The route must use a link that is up, to a host that is closer. */
    const struct edge *edge = &fabric->edges[fabric->first[from] + route.port];
    return route.hops == hops && route.port < fabric->hosts[from].ports_count &&
           fabric->links[edge->link]->up && scale_fabric_hops(fabric, edge->host, to) + 1 == hops;
}

static void check_pair(struct scale_fabric *fabric, unsigned from, unsigned to)
{
    size_t at = (size_t)from * fabric->hosts_count + to;
    bool wrong = !is_right(fabric, from, to);
    fabric->wrongs += wrong ? 1 : 0;
    fabric->wrongs -= fabric->wrong[at] ? 1 : 0;
    fabric->wrong[at] = wrong;
}

static void check_changes(struct scale_host *host)
{
    uint16_t ids[VIA_ROUTE_CHANGES_MAX];
    host->changed = false;
    int count = via_node_route_changes(host->node, &host->routes_seen, ids);
    for (int i = 0; i < count; i++) {
        check_pair(host->fabric, host->index, ids[i]);
    }
    for (unsigned to = 0; count < 0 && to < host->fabric->hosts_count; to++) {
        check_pair(host->fabric, host->index, to);
    }
}

/* The shortest ways from one host, breadth first. */
static void find_hops(struct scale_fabric *fabric, unsigned from, uint16_t *queue)
{
    uint16_t *hops = fabric->hops + (size_t)from * fabric->hosts_count;
    unsigned head = 0, tail = 0;
    for (unsigned to = 0; to < fabric->hosts_count; to++) {
        hops[to] = SCALE_UNREACHABLE;
    }
    hops[from] = 0;
    queue[tail++] = (uint16_t)from;
    while (head < tail) {
        unsigned at = queue[head++];
        for (uint32_t i = fabric->first[at]; i < fabric->first[at + 1]; i++) {
            const struct edge *edge = &fabric->edges[i];
            if (fabric->links[edge->link]->up && hops[edge->host] == SCALE_UNREACHABLE) {
                hops[edge->host] = (uint16_t)(hops[at] + 1);
                queue[tail++] = (uint16_t)edge->host;
            }
        }
    }
}

static void list_edges(struct scale_fabric *fabric)
{
    size_t hosts_count = fabric->hosts_count;
    uint32_t *next = sim_alloc(hosts_count * sizeof(*next));
    uint32_t count = 0;
    fabric->edges = sim_alloc(2 * (size_t)fabric->links_count * sizeof(*fabric->edges));
    fabric->first = sim_alloc((hosts_count + 1) * sizeof(*fabric->first));
    for (unsigned h = 0; h < hosts_count; h++) {
        fabric->first[h] = count;
        count += fabric->hosts[h].ports_count;
    }
    fabric->first[hosts_count] = count;
    memcpy(next, fabric->first, hosts_count * sizeof(*next));
    for (unsigned l = 0; l < fabric->links_count; l++) {
        for (unsigned side = 0; side < 2; side++) {
            const struct scale_end *end = &fabric->links[l]->ends[side];
            fabric->edges[next[end->host]++] =
                (struct edge){.host = end->peer->host, .link = l, .side = side};
        }
    }
    free(next);
}

/* Links have changed. */
static void check_all_pairs(struct scale_fabric *fabric)
{
    uint16_t *queue = sim_alloc((size_t)fabric->hosts_count * sizeof(*queue));
    for (unsigned from = 0; from < fabric->hosts_count; from++) {
        find_hops(fabric, from, queue);
    }
    for (unsigned from = 0; from < fabric->hosts_count; from++) {
        for (unsigned to = 0; to < fabric->hosts_count; to++) {
            check_pair(fabric, from, to);
        }
    }
    free(queue);
}

bool scale_fabric_is_shortest(const struct scale_fabric *fabric)
{
    bool right = true;
    for (unsigned from = 0; from < fabric->hosts_count; from++) {
        for (unsigned to = 0; to < fabric->hosts_count; to++) {
            right &= is_right(fabric, from, to);
        }
    }
    return right;
}

/* --- turns ----------------------------------------------------------------------------------- */

/* Polls until there is nothing more to do. */
static unsigned run_turn(void *ctx, uint64_t now_ns, uint64_t *deadline_ns)
{
    struct scale_host *host = ctx;
    uint64_t control_ns = VIA_NEVER_NS, poll_ns = VIA_NEVER_NS;
    unsigned work = 0;
    host->turns++;
    uint64_t begun_ns = cpu_now_ns();
    via_node_control(host->node, now_ns, &control_ns);
    for (unsigned polls = 0; polls < POLLS_MAX; polls++) {
        unsigned done = via_node_poll(host->node, 0, now_ns, &poll_ns);
        work += done;
        if (done == 0) {
            break;
        }
    }
    host->cpu_ns += cpu_now_ns() - begun_ns;
    *deadline_ns = via_min(control_ns, poll_ns);

    struct via_node_counters counters;
    via_node_counters(host->node, &counters);
    uint64_t taken = counters.announcements_received - host->announcements_taken;
    host->announcements_taken = counters.announcements_received;
    host->busy_ns = now_ns + SCALE_TURN_NS + taken * SCALE_ANNOUNCED_NS;
    if (host->changed) {
        check_changes(host);
    }
    return work;
}

static bool arm(void *ctx, enum via_arm *ret_armed)
{
    struct scale_host *host = ctx;
    uint64_t begun_ns = cpu_now_ns();
    *ret_armed = via_node_arm(host->node, 0);
    host->cpu_ns += cpu_now_ns() - begun_ns;
    return true;
}

static void act(void *ctx, enum via_host_wait_step step, uint64_t now_ns, uint64_t deadline_ns)
{
    struct scale_host *host = ctx;
    bool is_asleep = step == VIA_HOST_WAIT_SLEEP || step == VIA_HOST_WAIT_WAKE_CONTROL;
    (void)now_ns;
    wake(host, is_asleep ? deadline_ns : host->busy_ns);
}

/* No other work runs on these hosts. */
static bool is_crowded(void *ctx)
{
    (void)ctx;
    return false;
}

/* If it was asked for during the last turn, that turn may still be running. */
static void take_turn(void *object, uint64_t ticket)
{
    static const struct via_host_wait_ops ops = {.turn = run_turn, .arm = arm, .act = act};
    struct scale_host *host = object;
    if (ticket != host->ticket) {
        return;
    }
    host->turn_ns = VIA_NEVER_NS;
    uint64_t now_ns = scale_fabric_now_ns(host->fabric);
    if (now_ns >= host->busy_ns) {
        via_host_wait_turn(&host->wait, now_ns, &ops, host);
    } else {
        wake(host, host->busy_ns);
    }
}

/* One event; false: there is none before that time. */
static bool step(struct scale_fabric *fabric, uint64_t end_ns)
{
    return sim_cost_step_until(&fabric->cost, end_ns * SIM_NS_PS);
}

bool scale_fabric_settle(struct scale_fabric *fabric, uint64_t limit_ns)
{
    uint64_t end_ns = scale_fabric_now_ns(fabric) + limit_ns;
    while (fabric->wrongs != 0 && step(fabric, end_ns)) {
    }
    return fabric->wrongs == 0;
}

bool scale_fabric_send(struct scale_fabric *fabric, unsigned from, unsigned to, uint64_t limit_ns,
                       uint64_t *ret_ns)
{
    const struct via_op op = {.kind = VIA_OP_MESSAGE,
                              .destination = (uint16_t)to,
                              .source = fabric->message,
                              .bytes = MESSAGE_BYTES,
                              .cookie = 1};
    uint64_t begun_ns = scale_fabric_now_ns(fabric);
    sim_content_fill(fabric->message, MESSAGE_BYTES, from + 1);
    fabric->completed = 0;
    fabric->delivered_ns = 0;
    if (via_node_submit(fabric->hosts[from].node, 0, &op) != 0) {
        return false;
    }
    wake(&fabric->hosts[from], begun_ns);
    while (fabric->completed == 0 && step(fabric, begun_ns + limit_ns)) {
    }
    *ret_ns = fabric->delivered_ns - begun_ns;
    return fabric->completed != 0 && fabric->status == 0 && fabric->delivered_at == to &&
           fabric->delivered_ns != 0;
}

/* --- making it ------------------------------------------------------------------------------- */

struct scale_fabric *scale_fabric_new(unsigned hosts_count)
{
    struct scale_fabric *fabric = sim_alloc(sizeof(*fabric));
    size_t pairs = (size_t)hosts_count * hosts_count;
    fabric->hosts_count = hosts_count;
    fabric->hosts = sim_alloc(hosts_count * sizeof(*fabric->hosts));
    fabric->hops = sim_alloc(pairs * sizeof(*fabric->hops));
    fabric->wrong = sim_alloc(pairs * sizeof(*fabric->wrong));
    sim_cost_init(&fabric->cost);
    fabric->cost.now_ps = START_NS * SIM_NS_PS;
    via_node_config_init(&fabric->config);
    fabric->config.hosts_max = (uint16_t)hosts_count;
    fabric->config.channels_count = 1;
    fabric->config.pipe_slots = 8;
    fabric->config.frame_bytes_max = 256;
    fabric->config.bypass_count = 4;
    fabric->config.ops_count = 4;
    fabric->config.flows_count = 1;
    fabric->config.window_frames = 8;
    fabric->config.segments_count = 1;
    for (unsigned h = 0; h < hosts_count; h++) {
        fabric->hosts[h].fabric = fabric;
        fabric->hosts[h].index = (uint16_t)h;
        fabric->hosts[h].turn_ns = VIA_NEVER_NS;
        via_host_wait_init(&fabric->hosts[h].wait, 0, is_crowded, NULL);
    }
    return fabric;
}

void scale_fabric_link(struct scale_fabric *fabric, unsigned a, unsigned b, unsigned dimension)
{
    if (fabric->links_count == fabric->links_capacity) {
        fabric->links_capacity = via_max(2 * fabric->links_capacity, 64u);
        fabric->links =
            sim_realloc(fabric->links, fabric->links_capacity * sizeof(struct scale_link *));
    }
    struct via_node_config config = fabric->config;
    struct scale_link *link = sim_alloc(sizeof(*link));
    config.session = 1;
    config.ports_count = 1;
    scale_link_init(link, fabric, a, b, via_align_up(via_node_inbox_bytes(&config), (size_t)4096));
    link->dimension = (uint8_t)dimension;
    fabric->links[fabric->links_count++] = link;
    fabric->hosts[a].ports_count++;
    fabric->hosts[b].ports_count++;
}

static struct via_node_config node_config(const struct scale_fabric *fabric,
                                          const struct scale_host *host,
                                          const struct via_node_port_config *ports)
{
    struct via_node_config config = fabric->config;
    config.host = host->index;
    config.session = 1000u + host->index;
    config.ports_count = host->ports_count;
    config.ports = ports;
    return config;
}

static void start(struct scale_host *host, const struct edge *edges)
{
    const struct scale_fabric *fabric = host->fabric;
    struct via_node_port_config *ports = sim_alloc((size_t)host->ports_count * sizeof(*ports));
    for (unsigned p = 0; p < host->ports_count; p++) {
        ports[p].dimension = fabric->links[edges[p].link]->dimension;
    }
    struct via_node_config config = node_config(fabric, host, ports);
    const struct via_node_env env = {.ctx = host,
                                     .deliver = node_deliver,
                                     .complete = node_complete,
                                     .notify = node_notify,
                                     .wake = node_wake,
                                     .changed = node_changed};
    host->bytes = via_node_bytes(&config);
    host->memory = sim_map(host->bytes);
    if (host->bytes == 0 || via_node_init(&host->node, host->memory, &config, &env) != 0) {
        abort(); /* the configuration is ours */
    }
    for (unsigned p = 0; p < host->ports_count; p++) {
        struct scale_end *end = &fabric->links[edges[p].link]->ends[edges[p].side];
        if (via_node_port_set(host->node, p, &end->port) != 0) {
            abort();
        }
    }
    free(ports);
}

void scale_fabric_start(struct scale_fabric *fabric)
{
    list_edges(fabric);
    for (unsigned h = 0; h < fabric->hosts_count; h++) {
        start(&fabric->hosts[h], &fabric->edges[fabric->first[h]]);
        wake(&fabric->hosts[h], scale_fabric_now_ns(fabric));
    }
    check_all_pairs(fabric);
}

void scale_fabric_cut(struct scale_fabric *fabric, unsigned link)
{
    scale_link_cut(fabric->links[link]);
    for (unsigned side = 0; side < 2; side++) {
        wake(&fabric->hosts[fabric->links[link]->ends[side].host],
             scale_fabric_now_ns(fabric) + SCALE_BELL_NS);
    }
    check_all_pairs(fabric);
}

void scale_fabric_free(struct scale_fabric *fabric)
{
    for (unsigned h = 0; h < fabric->hosts_count; h++) {
        if (fabric->hosts[h].node != NULL) {
            via_node_fini(fabric->hosts[h].node);
        }
        if (fabric->hosts[h].memory != NULL) {
            munmap(fabric->hosts[h].memory, fabric->hosts[h].bytes);
        }
    }
    for (unsigned l = 0; l < fabric->links_count; l++) {
        scale_link_fini(fabric->links[l]);
        free(fabric->links[l]);
    }
    free(fabric->links);
    free(fabric->hosts);
    free(fabric->edges);
    free(fabric->first);
    free(fabric->hops);
    free(fabric->wrong);
    sim_cost_fini(&fabric->cost);
    free(fabric);
}

/* --- results --------------------------------------------------------------------------------- */

unsigned scale_fabric_links(const struct scale_fabric *fabric)
{
    return fabric->links_count;
}

unsigned scale_fabric_hops(const struct scale_fabric *fabric, unsigned from, unsigned to)
{
    return fabric->hops[(size_t)from * fabric->hosts_count + to];
}

void scale_fabric_count(struct scale_fabric *fabric, struct scale_counts *ret_counts)
{
    struct scale_counts counts = {.cpu_ns = 0};
    for (unsigned h = 0; h < fabric->hosts_count; h++) {
        struct scale_host *host = &fabric->hosts[h];
        const struct via_node_counters *before = &host->counted;
        struct via_node_counters now;
        via_node_counters(host->node, &now);
        uint64_t changed = now.routes_changed - before->routes_changed;
        counts.cpu_ns += host->cpu_ns;
        counts.cpu_ns_max = via_max(counts.cpu_ns_max, host->cpu_ns);
        counts.turns += host->turns;
        counts.announcements += now.announcements_sent - before->announcements_sent;
        counts.announcement_bytes += now.announcement_bytes_sent - before->announcement_bytes_sent;
        counts.routes_changed += changed;
        counts.routes_changed_max = via_max(counts.routes_changed_max, changed);
        counts.routes_examined += now.routes_examined - before->routes_examined;
        host->counted = now;
        host->cpu_ns = 0;
        host->turns = 0;
    }
    *ret_counts = counts;
}

static uint64_t touched_bytes(const struct scale_host *host)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t pages = (host->bytes + page - 1) / page;
    unsigned char *resident = sim_alloc(pages);
    uint64_t bytes = 0;
    if (mincore(host->memory, host->bytes, resident) == 0) {
        for (size_t i = 0; i < pages; i++) {
            bytes += (resident[i] & 1) != 0 ? page : 0;
        }
    }
    free(resident);
    return bytes;
}

void scale_fabric_sizes(const struct scale_fabric *fabric, struct scale_sizes *ret_sizes)
{
    struct scale_sizes sizes = {.link = 2 * fabric->links[0]->ends[0].port.caps.inbox_bytes};
    struct via_node_config config;
    via_node_config_init(&config);
    config.hosts_max = (uint16_t)fabric->hosts_count;
    config.session = 1;
    config.ports_count = fabric->hosts[0].ports_count;
    sizes.preset = via_node_bytes(&config);
    for (unsigned h = 0; h < fabric->hosts_count; h++) {
        sizes.node += fabric->hosts[h].bytes;
        sizes.touched += touched_bytes(&fabric->hosts[h]);
    }
    sizes.node /= fabric->hosts_count;
    sizes.touched /= fabric->hosts_count;
    *ret_sizes = sizes;
}
