/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Links whose ends are src/port/ofi, on a simulated libfabric. A host is a process with a hub,
 * whose turns are events. Faults are those of the simulator: what cuts a link is drawn, a
 * partition, a connection that breaks or an operator; a process that is killed takes its machine
 * with it, or not.
 */
#include "sim/ofi/ofi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "port/ofi/driver.h"
#include "port/ofi/hub.h"
#include "port/ofi/ops.h"
#include "port/ofi/port.h"
#include "sim/memory.h"
#include "sim/ofi/fabric.h"
#include "sim/ofi/mac.h"

#define PAGE 4096u
#define POLL_NS (20 * VIA_MSEC_NS)
#define PAUSE_NS (100 * VIA_USEC_NS)
/* Operations that fail in a run. Hosts announce the end of each connection over all links. In a
 * mesh of 24 hosts this takes more than 400 operations, of which with error_chance 256 another one
 * fails, so without a limit failures would not end while faults are allowed. */
#define ERRORS_MAX 64u

static struct sim_ofi_side *side_of(const struct sim_end *end)
{
    struct sim_ofi_link *wire = end->link->chip;
    return &wire->sides[end - end->link->end];
}

/* --- the system under a hub ------------------------------------------------------------------- */

static struct sim_ofi_node *node_of(const struct via_ofi_system *system)
{
    return via_container_of((uintptr_t)system, struct sim_ofi_node, system);
}

static const struct via_ofi_library *get_library(const struct via_ofi_system *system,
                                                 struct via_error *err)
{
    (void)err;
    sim_ofi_select_node(node_of(system));
    return &sim_ofi_library;
}

/* A thread that waits in its turn is later than the clock. */
static uint64_t spent_ns(const struct sim_ofi_node *node)
{
    const struct sim_thread *thread = node->ofi->world->current;
    return thread != NULL && thread->host == node->host ? thread->spent_ns : 0;
}

static uint64_t get_time(const struct via_ofi_system *system)
{
    const struct sim_ofi_node *node = node_of(system);
    return sim_host_now(node->host) + spent_ns(node);
}

static bool get_random(const struct via_ofi_system *system, void *ret_bytes, size_t bytes)
{
    unsigned char *to = ret_bytes;
    for (size_t i = 0; i < bytes; i++) {
        to[i] = (unsigned char)via_rng_next(&node_of(system)->ofi->rng);
    }
    return true;
}

void sim_ofi_turn_at(struct sim_ofi_node *node, uint64_t time_ns)
{
    struct sim_world *world = node->ofi->world;
    if (time_ns < node->turn_ns) {
        node->turn_ns = time_ns;
        sim_clock_at(&world->clock, time_ns, SIM_EVENT_CHIP, node->any->link->index,
                     (uint32_t)(node->any - node->any->link->end), SIM_OFI_TURN);
    }
}

void sim_ofi_wake(struct sim_ofi_node *node)
{
    struct sim_world *world = node->ofi->world;
    const struct sim_config_cpu *cpu = &world->config.cpu;
    if (node->hub != NULL) {
        sim_ofi_turn_at(node, world->clock.now_ns +
                                  sim_between(&node->ofi->rng, cpu->wake_ns_min, cpu->wake_ns_max));
    }
}

void sim_ofi_audit(const struct sim_ofi_node *node)
{
    struct sim_world *world = node->ofi->world;
    for (uint32_t k = 0; k < world->config.node.channels_count && !world->auditing; k++) {
        sim_thread_audit_soon(&node->host->threads[k]);
    }
}

static int start(struct via_ofi_hub *hub, struct via_error *err)
{
    struct sim_ofi_node *node = node_of(hub->system);
    (void)err;
    node->hub = hub;
    sim_ofi_wake(node);
    return 0;
}

static void stop(struct via_ofi_hub *hub)
{
    node_of(hub->system)->hub = NULL;
}

static void kick(struct via_ofi_hub *hub)
{
    sim_ofi_wake(node_of(hub->system));
}

static struct sim_ofi_cq *cq_of(const struct via_ofi_conn *conn)
{
    return via_container_of(conn->cq, struct sim_ofi_cq, cq);
}

static void watch_set(struct via_ofi_conn *conn, bool watched)
{
    struct sim_ofi_cq *cq = cq_of(conn);
    cq->watched = watched;
    if (watched && !via_list_is_empty(&cq->entries)) {
        sim_ofi_wake(cq->node); /* as an epoll set is level-triggered */
    }
}

static int watch_open(struct via_ofi_conn *conn)
{
    cq_of(conn)->watched = true;
    return 0;
}

static void watch_close(struct via_ofi_conn *conn)
{
    cq_of(conn)->watched = false;
}

static int changed_open(struct via_ofi_port *port)
{
    port->changed_fd = -1;
    return 0;
}

static void on_wake(void *ctx, unsigned thread)
{
    struct sim_ofi_side *side = ctx;
    if (!side->node->is_dead) {
        sim_thread_interrupt(&side->node->host->threads[thread == VIA_DRIVER_CONTROL ? 0 : thread]);
    }
}

static void changed(struct via_ofi_port *port)
{
    struct sim_ofi_side *side = port->host->ctx;
    side->wants_service = true;
    on_wake(side, VIA_DRIVER_CONTROL);
}

/* The wire goes on while a thread waits for room. */
static void pause_thread(struct via_ofi_hub *hub)
{
    struct sim_ofi_node *node = node_of(hub->system);
    struct sim_world *world = node->ofi->world;
    sim_ofi_count(node->ofi, SIM_OFI_PAUSES);
    if (world->current != NULL) {
        world->current->spent_ns += PAUSE_NS;
    }
    for (uint32_t i = 0; i < node->host->ports_count; i++) {
        sim_ofi_run(side_of(node->host->ports[i])->link, world->clock.now_ns + spent_ns(node));
    }
}

/* --- processes -------------------------------------------------------------------------------- */

static struct sim_ofi_node *new_node(struct sim_ofi *ofi, struct sim_end *end, unsigned ordinal)
{
    struct sim_ofi_node *node = sim_alloc(sizeof(*node));
    *node = (struct sim_ofi_node){.system = {.load = get_library,
                                             .now_ns = get_time,
                                             .random = get_random,
                                             .start = start,
                                             .stop = stop,
                                             .kick = kick,
                                             .watch_open = watch_open,
                                             .watch_set = watch_set,
                                             .watch_close = watch_close,
                                             .changed_open = changed_open,
                                             .changed = changed,
                                             .pause = pause_thread},
                                  .ofi = ofi,
                                  .host = &ofi->world->hosts[end->host],
                                  .any = end,
                                  .turn_ns = VIA_NEVER_NS};
    node->address = (struct sockaddr_in){.sin_family = AF_INET,
                                         .sin_port = htons((uint16_t)(SIM_OFI_PORT + ordinal)),
                                         .sin_addr.s_addr = htonl(0x0a000001u + end->host)};
    via_list_init(&node->endpoints);
    via_list_init(&node->memories);
    via_list_init(&node->closed);
    via_list_init(&node->events);
    via_list_init(&node->requests);
    return node;
}

static struct sim_ofi_node *node_for(struct sim_ofi *ofi, struct sim_end *end, unsigned ordinal)
{
    struct sim_ofi_node **place = &ofi->nodes[end->host][ordinal];
    if (*place == NULL) {
        *place = new_node(ofi, end, ordinal);
    }
    return *place;
}

struct sim_ofi_node *sim_ofi_find_node(struct sim_ofi *ofi, const struct sockaddr_in *address)
{
    uint32_t host = ntohl(address->sin_addr.s_addr) - 0x0a000001u;
    unsigned ordinal = ntohs(address->sin_port) - SIM_OFI_PORT;
    return host < ofi->world->hosts_count && ordinal < SIM_OFI_NODES_MAX ? ofi->nodes[host][ordinal]
                                                                         : NULL;
}

struct sim_ofi_link *sim_ofi_find_wire(const struct sim_ofi_node *from,
                                       const struct sim_ofi_node *to)
{
    for (uint32_t i = 0; i < from->host->ports_count; i++) {
        const struct sim_ofi_side *side = side_of(from->host->ports[i]);
        if (side->node == from && side->end->peer->host == to->host->index) {
            return side->link;
        }
    }
    return NULL;
}

static bool is_frozen(const struct sim_host *host)
{
    return host->thaw_ns > host->world->clock.now_ns;
}

static void take_turn(struct sim_ofi_node *node)
{
    struct sim_world *world = node->ofi->world;
    uint64_t now_ns = world->clock.now_ns;
    if (node->turn_ns > now_ns) {
        return; /* an earlier turn has done it */
    }
    node->turn_ns = VIA_NEVER_NS;
    if (node->hub == NULL) {
        return;
    }
    if (is_frozen(node->host) || !node->host->alive) {
        sim_ofi_turn_at(node, is_frozen(node->host) ? node->host->thaw_ns : now_ns + VIA_USEC_NS);
        return;
    }
    uint64_t deadline_ns = via_ofi_hub_turn(node->hub);
    uint64_t host_ns = sim_host_now(node->host);
    const struct sim_config_cpu *cpu = &world->config.cpu;
    uint64_t soon_ns = now_ns + sim_between(&node->ofi->rng, cpu->turn_ns_min, cpu->turn_ns_max);
    if (deadline_ns != VIA_NEVER_NS) {
        sim_ofi_turn_at(node, deadline_ns > host_ns
                                  ? via_max(soon_ns, now_ns + (deadline_ns - host_ns))
                                  : soon_ns);
    }
    sim_ofi_audit(node);
}

/* --- ends of links ---------------------------------------------------------------------------- */

static void mac(void *ctx, const void *data, size_t bytes, uint8_t ret_mac[32])
{
    (void)ctx;
    sim_ofi_mac(1, data, bytes, ret_mac);
}

static void set_place(struct via_ofi_place *place, const struct sim_ofi_node *node)
{
    uint32_t address = ntohl(node->address.sin_addr.s_addr);
    snprintf(place->host, sizeof(place->host), "10.0.%u.%u", address >> 8 & 0xff, address & 0xff);
    place->port = ntohs(node->address.sin_port);
}

static void open_port(struct sim_ofi_side *side, uint64_t inbox_bytes, bool dma)
{
    struct sim_end *end = side->end;
    struct sim_ofi_link *wire = side->link;
    struct sim_ofi_side *peer = &wire->sides[side == &wire->sides[0]];
    struct via_error err = {0};
    side->host = (struct via_driver_host){
        .host = side->node->host->id,
        .peer = peer->node->host->id,
        .inbox_bytes = via_align_up(inbox_bytes, (uint64_t)PAGE),
        .threads_count = end->world->config.node.channels_count,
        .wake = on_wake,
        .dma = dma,
        .ctx = side,
        .mac = wire->has_key ? mac : NULL,
    };
    struct via_ofi_options options = {.system = &side->node->system,
                                      .provider = "simulated",
                                      .encrypted = wire->encrypted,
                                      .host = &side->host};
    set_place(&options.place, peer->node);
    set_place(&options.listen, side->node);
    side->node->is_dead = side->node->is_silent = false;
    int rc = via_ofi_port_open(&options, &side->port, &err);
    if (rc != 0) {
        fprintf(stderr, "simulator: open port %u of host %u: %d %s\n", end->index, end->host, rc,
                err.text);
        abort();
    }
    side->wants_service = true;
    sim_chip_attach(end, side->port);
}

static void close_port(struct sim_ofi_side *side)
{
    if (side->port != NULL) {
        side->port->ops->close(side->port);
        side->port = NULL;
    }
}

static bool is_known_as_cut(const struct sim_ofi_side *side)
{
    struct via_port_status status = {.cut = false};
    if (side->port != NULL) {
        via_ofi_driver.status(side->port, &status);
    }
    return status.cut;
}

/* The kernel tells the peers, unless the whole machine is gone. */
static void ofi_crashed(struct sim_end *end)
{
    struct sim_ofi_side *side = side_of(end);
    struct sim_ofi_node *node = side->node;
    if (!node->is_dead) {
        node->is_dead = true;
        node->is_silent = !end->world->over && via_rng_chance(&node->ofi->rng, 1, 3);
        if (node->is_silent) {
            sim_ofi_count(node->ofi, SIM_OFI_DEATHS);
        }
    }
    close_port(side);
}

static void ofi_reopen(struct sim_end *end)
{
    struct sim_ofi_side *side = side_of(end);
    struct sim_ofi_link *wire = side->link;
    struct sim_ofi_side *peer = &wire->sides[side == &wire->sides[0]];
    open_port(side, side->host.inbox_bytes, side->host.dma);
    /* The host may have died before it reported a repair to the peer, which then regards the link
     * as cut. */
    if (!side->is_cut && !peer->is_cut && is_known_as_cut(peer)) {
        via_ofi_driver.cut(side->port, false);
    }
}

static int ofi_register(struct sim_end *end, void *memory, size_t bytes)
{
    struct via_error err = {0};
    return via_ofi_driver.memory_register(side_of(end)->port, memory, bytes, &err);
}

/* --- links ------------------------------------------------------------------------------------ */

static void draw(struct sim_ofi *ofi)
{
    struct via_rng *rng = &ofi->rng;
    static const size_t inject_bytes[] = {0, 64, 128, 4096};
    ofi->keeps_order = via_rng_chance(rng, 1, 2);
    ofi->mr_mode = via_rng_chance(rng, 1, 2) ? FI_MR_LOCAL | FI_MR_ALLOCATED : 0;
    ofi->mr_mode |= via_rng_chance(rng, 1, 2) ? FI_MR_VIRT_ADDR : 0;
    ofi->mr_mode |= via_rng_chance(rng, 1, 2) ? FI_MR_PROV_KEY : 0;
    ofi->inject_bytes = inject_bytes[sim_between(rng, 0, 3)];
    ofi->queue_depth = 4u << sim_between(rng, 0, 6);
    ofi->full_chance = via_rng_chance(rng, 1, 2) ? sim_between(rng, 1, 300) : 0;
    ofi->again_chance = via_rng_chance(rng, 1, 2) ? sim_between(rng, 1, 500) : 0;
    ofi->duplicate_chance = via_rng_chance(rng, 1, 2) ? sim_between(rng, 1, 500) : 0;
    bool has_faults = ofi->world->config.faults.cuts_count != 0;
    ofi->error_chance = has_faults && via_rng_chance(rng, 1, 2) ? 1u << sim_between(rng, 0, 8) : 0;
    ofi->errors_left = ERRORS_MAX;
    ofi->complete_ns_max = 1u << sim_between(rng, 8, 20);
}

static struct sim_ofi *ofi_of(struct sim_world *world)
{
    const struct sim_ofi_link *first = world->links[0].chip;
    if (first != NULL) {
        return first->ofi;
    }
    struct sim_ofi *ofi = sim_alloc(sizeof(*ofi));
    ofi->world = world;
    via_rng_init(&ofi->rng, world->config.seed ^ UINT64_C(0x6f6669));
    draw(ofi);
    sim_trace(world,
              "libfabric: %s order, mr_mode %#llx, injects %zu, queues of %u, full %u, parts again "
              "%u, completions again %u, errors %u",
              ofi->keeps_order ? "keeps" : "no", (unsigned long long)ofi->mr_mode,
              ofi->inject_bytes, ofi->queue_depth, ofi->full_chance, ofi->again_chance,
              ofi->duplicate_chance, ofi->error_chance);
    return ofi;
}

/* Each further link between the same hosts listens at another port. */
static unsigned ordinal_of(const struct sim_world *world, const struct sim_link *link)
{
    unsigned count = 0;
    for (const struct sim_link *it = world->links; it != link; it++) {
        uint32_t a = it->end[0].host;
        uint32_t b = it->end[1].host;
        count += (a == link->end[0].host && b == link->end[1].host) ||
                 (b == link->end[0].host && a == link->end[1].host);
    }
    if (count >= SIM_OFI_NODES_MAX) {
        fprintf(stderr, "simulator: more than %u links between two hosts\n", SIM_OFI_NODES_MAX);
        abort();
    }
    return count;
}

static void ofi_open(struct sim_link *link, size_t inbox_bytes)
{
    struct sim_world *world = link->end[0].world;
    struct sim_ofi *ofi = ofi_of(world);
    struct sim_ofi_link *wire = sim_alloc(sizeof(*wire));
    bool dma = link->end[0].port.caps.dma_depth != 0;
    *wire = (struct sim_ofi_link){
        .ofi = ofi, .link = link, .ordinal = ordinal_of(world, link), .is_wire_up = true};
    wire->has_key = via_rng_chance(&ofi->rng, 1, 4);
    wire->encrypted = wire->has_key && via_rng_chance(&ofi->rng, 1, 2);
    via_list_init(&wire->packets);
    link->chip = wire;
    ofi->links_count++;
    for (unsigned i = 0; i < 2; i++) {
        wire->sides[i] = (struct sim_ofi_side){.link = wire,
                                               .end = &link->end[i],
                                               .node = node_for(ofi, &link->end[i], wire->ordinal)};
    }
    for (unsigned i = 0; i < 2; i++) {
        open_port(&wire->sides[i], inbox_bytes, dma);
    }
}

static void free_ofi(struct sim_ofi *ofi)
{
    for (uint32_t host = 0; host < ofi->world->hosts_count; host++) {
        for (unsigned i = 0; i < SIM_OFI_NODES_MAX; i++) {
            if (ofi->nodes[host][i] != NULL) {
                sim_ofi_free_closed(ofi->nodes[host][i]);
                free(ofi->nodes[host][i]);
            }
        }
    }
    free(ofi);
}

static void ofi_fini(struct sim_link *link)
{
    struct sim_ofi_link *wire = link->chip;
    struct sim_ofi *ofi = wire->ofi;
    close_port(&wire->sides[0]);
    close_port(&wire->sides[1]);
    sim_ofi_drop(wire);
    free(wire);
    link->chip = NULL;
    if (--ofi->links_count == 0) {
        free_ofi(ofi);
    }
}

/* --- cuts ------------------------------------------------------------------------------------- */

/* The operator's, at an end whose host is up. */
static bool cut_by_operator(struct sim_ofi_link *wire)
{
    struct sim_ofi_side *side = &wire->sides[sim_between(&wire->ofi->rng, 0, 1)];
    if (side->port == NULL) {
        return false;
    }
    side->is_cut = true;
    sim_trace(wire->ofi->world, "  %u.%u: the operator cuts its link", side->end->host,
              side->end->index);
    via_ofi_driver.cut(side->port, true);
    sim_ofi_count(wire->ofi, SIM_OFI_CUTS);
    return true;
}

/* At one end, by turns, if both ends know of the cut: the other end learns of it by the port,
 * whatever happens to the connection meanwhile. */
static void mend_by_operator(struct sim_ofi_link *wire)
{
    bool was_cut = wire->sides[0].is_cut || wire->sides[1].is_cut;
    bool is_known = is_known_as_cut(&wire->sides[0]) && is_known_as_cut(&wire->sides[1]);
    unsigned turn = was_cut ? wire->mends_count++ % 2 : 0;
    for (unsigned i = 0; i < 2 && was_cut; i++) {
        wire->sides[i].is_cut = false;
        if (wire->sides[i].port != NULL && (!is_known || i == turn)) {
            sim_trace(wire->ofi->world, "  %u.%u: the operator mends its link",
                      wire->sides[i].end->host, wire->sides[i].end->index);
            via_ofi_driver.cut(wire->sides[i].port, false);
        }
    }
}

/* Both ends notice, as when a firewall answers by resets. */
static void reset_connections(struct sim_ofi_link *wire)
{
    sim_ofi_count(wire->ofi, SIM_OFI_RESETS);
    for (unsigned i = 0; i < 2; i++) {
        via_list_foreach(it, &wire->sides[i].node->endpoints) {
            struct sim_ofi_endpoint *endpoint = via_list_entry(it, struct sim_ofi_endpoint, link);
            if (endpoint->wire == wire && endpoint->is_connected && !endpoint->is_broken) {
                sim_ofi_break(endpoint, FI_ECONNRESET);
                sim_ofi_report(endpoint->node, FI_SHUTDOWN, &endpoint->ep.fid, NULL, NULL, 0, 0);
            }
        }
    }
}

static void ofi_set(struct sim_link *link, bool up)
{
    struct sim_ofi_link *wire = link->chip;
    struct sim_ofi *ofi = wire->ofi;
    if (up) {
        wire->is_wire_up = true;
        mend_by_operator(wire);
        sim_ofi_run(wire, ofi->world->clock.now_ns);
        return;
    }
    if (via_rng_chance(&ofi->rng, 1, 4) && cut_by_operator(wire)) {
        return;
    }
    wire->is_wire_up = false;
    if (via_rng_chance(&ofi->rng, 1, 2)) {
        reset_connections(wire);
    } else {
        sim_ofi_count(ofi, SIM_OFI_PARTITIONS);
    }
}

/* --- turns ------------------------------------------------------------------------------------ */

static void ofi_enter(struct sim_end *end)
{
    struct sim_world *world = end->world;
    struct sim_ofi_link *wire = side_of(end)->link;
    if (!world->auditing &&
        via_rng_chance(&world->rng_port, world->config.port.pump_chance, 1000)) {
        /* The wire is ahead of the clock for a moment. */
        sim_ofi_run(wire, world->clock.now_ns + via_rng_below(&wire->ofi->rng, 20 * VIA_USEC_NS));
    }
}

static struct via_port *ofi_driver(struct sim_end *end)
{
    return side_of(end)->port;
}

static void ofi_fence_failed(struct sim_end *end)
{
    (void)end; /* the port has said so by changed() */
}

static int ofi_service(struct sim_end *end, uint64_t now_ns, uint64_t *deadline_ns)
{
    struct sim_ofi_side *side = side_of(end);
    uint64_t never_ns;
    (void)deadline_ns;
    if (!side->wants_service) {
        return 0;
    }
    side->wants_service = false;
    int rc = via_ofi_driver.service(side->port, now_ns, &never_ns);
    if (rc != 0) {
        struct via_port_status status;
        via_ofi_driver.status(side->port, &status);
        sim_trace(end->world, "  %u.%u: the driver says that its link is %s%s%s", end->host,
                  end->index, side->port->ops->link_is_up(side->port) ? "up" : "down",
                  status.error[0] != '\0' ? ": " : "", status.error);
    }
    return rc;
}

static void ofi_event(struct sim_link *link, uint32_t end, uint32_t what)
{
    struct sim_ofi_link *wire = link->chip;
    if (what == SIM_OFI_TURN) {
        take_turn(wire->sides[end].node);
    } else if (wire->due_ns != 0 && wire->due_ns <= wire->ofi->world->clock.now_ns) {
        wire->due_ns = 0; /* else an earlier event has done it */
        sim_ofi_run(wire, wire->ofi->world->clock.now_ns);
    }
}

/* Its hub tries again each millisecond. */
static bool has_pending(const struct via_port *base)
{
    const struct via_ofi_port *port = base != NULL ? via_ofi_port_of(base) : NULL;
    return port != NULL && (!via_list_is_empty(&port->pending) || port->fences_due != 0);
}

/* The audit searches for completions in a queue whose thread will not be woken. */
static bool ofi_is_ringing(struct sim_end *end)
{
    struct sim_ofi_side *side = side_of(end);
    const struct sim_ofi_link *wire = side->link;
    return side->wants_service || has_pending(wire->sides[0].port) ||
           has_pending(wire->sides[1].port) || !side->port->ops->link_is_up(side->port) ||
           !via_list_is_empty(&wire->packets) || !wire->is_wire_up ||
           side->node->turn_ns <= end->world->clock.now_ns + VIA_MSEC_NS;
}

static uint64_t ofi_poll_ns(const struct sim_end *end)
{
    (void)end;
    return POLL_NS;
}

void sim_ofi_use(void)
{
    static const struct sim_chip_ops ops = {
        .enter = ofi_enter,
        .driver = ofi_driver,
        .fence_failed = ofi_fence_failed,
        .open = ofi_open,
        .fini = ofi_fini,
        .set = ofi_set,
        .crashed = ofi_crashed,
        .reopen = ofi_reopen,
        .memory_register = ofi_register,
        .service = ofi_service,
        .event = ofi_event,
        .is_ringing = ofi_is_ringing,
        .poll_ns = ofi_poll_ns,
    };
    sim_chips[SIM_LIKE_OFI] = &ops;
}
