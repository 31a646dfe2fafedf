/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The end of a run: once the faults are over, all work ends within a bound, all links and routes
 * are right, the fabric comes to rest, and no resource is left over. */
#include <string.h>

#include "sim/world.h"
#include "wire/link_state.h"

static uint64_t or_default(uint64_t value, uint64_t preset)
{
    return value != 0 ? value : preset;
}

/* The node's defaults for a config value of 0 (core/node.h). */
static uint64_t dead_ns(const struct sim_world *world)
{
    return or_default(world->config.node.dead_ns, 80 * VIA_MSEC_NS);
}

static uint64_t heartbeat_ns(const struct sim_world *world)
{
    return or_default(world->config.node.heartbeat_ns, 20 * VIA_MSEC_NS);
}

static uint64_t retry_ns_max(const struct sim_world *world)
{
    return or_default(world->config.node.retry_ns_max, 100 * VIA_MSEC_NS);
}

static uint64_t stuck_ns(const struct sim_world *world)
{
    return or_default(world->config.node.stuck_ns, 50 * VIA_MSEC_NS);
}

/* Time for drivers that find their peers by polling. */
static uint64_t chips_ns(const struct sim_world *world)
{
    switch (world->config.like) {
    case SIM_LIKE_PEX_DRIVER:
        return 500 * VIA_MSEC_NS;
    case SIM_LIKE_OFI:
        /* A peer that is cut off, or has died silently, counts as dead after 2 s. Then connecting
         * takes time. */
        return 4 * VIA_SEC_NS;
    default:
        return 0;
    }
}

/* A bound for the way of news. */
static uint32_t hops_max(const struct sim_world *world)
{
    return world->config.graph == SIM_GRAPH_MESH ? 1 : world->hosts_count;
}

/* Links are up and routes known everywhere this long after the last fault. False announcements with
 * high numbers have to be forgotten first. */
static uint64_t settle_ns(const struct sim_world *world)
{
    uint64_t forget_ns = world->config.faults.lies_chance != 0 ? 2 * VIA_LINK_STATE_FORGET_NS : 0;
    return forget_ns + chips_ns(world) + 3 * dead_ns(world) +
           (4 + 2 * hops_max(world)) * heartbeat_ns(world) + world->config.cpu.insurance_ns * 4;
}

/* Everything that a node accepted has ended this long after the last fault. */
static uint64_t drain_ns(const struct sim_world *world)
{
    uint64_t guest_ns = world->guest != NULL ? world->guest->patience_ns : 0;
    /* A lost interrupt costs the time until the driver's next poll. */
    uint64_t lost_ns = world->config.port.bell_drop_chance != 0 ? 20 * chips_ns(world) : 0;
    return settle_ns(world) + lost_ns + 8 * (retry_ns_max(world) + stuck_ns(world)) +
           2 * VIA_SEC_NS + guest_ns;
}

static bool is_all_done(const struct sim_world *world)
{
    if (world->ops_pending != 0 || !sim_barrier_is_done(world) ||
        (world->guest != NULL && !world->guest->ops->is_done(world->guest))) {
        return false;
    }
    for (uint32_t i = 0; i < world->hosts_count; i++) {
        for (uint32_t k = 0; k < world->config.node.channels_count; k++) {
            const struct sim_thread *thread = &world->hosts[i].threads[k];
            if (thread->held != NULL || thread->work_wanted != 0 || thread->barriers_wanted != 0) {
                return false;
            }
        }
    }
    return true;
}

void sim_final_progress(struct sim_world *world)
{
    if (!world->healed || world->done || !is_all_done(world)) {
        return;
    }
    world->done = true;
    world->done_ns = world->clock.now_ns;
    uint64_t at = via_max(world->done_ns, world->heal_ns + settle_ns(world));
    sim_clock_at(&world->clock, at, SIM_EVENT_SETTLED, 0, 0, 0);
}

void sim_final_plan(struct sim_world *world)
{
    sim_clock_at(&world->clock, world->heal_ns + drain_ns(world), SIM_EVENT_OVERDUE, 0, 0, 0);
}

void sim_final_overdue(struct sim_world *world)
{
    if (world->done) {
        return;
    }
    if (world->guest != NULL) {
        world->guest->ops->overdue(world->guest);
        return;
    }
    const struct sim_op *oldest = NULL;
    for (uint32_t i = 0; i < world->ops_count && oldest == NULL; i++) {
        oldest = world->ops[i]->state == SIM_OP_PENDING ? world->ops[i] : NULL;
    }
    sim_fail(world, "%u ms after the last fault %u operations have not ended%s%s",
             (unsigned)(drain_ns(world) / VIA_MSEC_NS), world->ops_pending,
             oldest != NULL ? ", first: " : "", oldest != NULL ? sim_op_name(oldest) : "");
}

/* The node's report about a port's engine, compared with what the engine did. */
static void check_engine(const struct sim_host *host, uint32_t port,
                         const struct via_link_status *status)
{
    struct sim_world *world = host->world;
    const struct sim_end *end = host->ports[port];
    if (status->dma_frames != end->dmas_good) {
        sim_fail(world, "host %u port %u: counts %llu bodies by DMA; the engine did %llu",
                 host->index, port, (unsigned long long)status->dma_frames,
                 (unsigned long long)end->dmas_good);
    } else if (sim_is_calm(world) &&
               (status->dma_hangs != 0 || status->dma_fallbacks != end->dmas_refused)) {
        sim_fail(world,
                 "host %u port %u: without faults the engine was stopped %llu times, and %llu "
                 "bodies were copied by PIO; it has refused %llu",
                 host->index, port, (unsigned long long)status->dma_hangs,
                 (unsigned long long)status->dma_fallbacks, (unsigned long long)end->dmas_refused);
    }
}

static void check_links(struct sim_host *host)
{
    struct sim_world *world = host->world;
    bool calm = sim_is_calm(world);
    for (uint32_t i = 0; i < host->ports_count; i++) {
        struct via_link_status status;
        const struct sim_host *peer = &world->hosts[host->ports[i]->peer->host];
        int rc = via_node_link_status(host->node, i, &status);
        if (rc != 0 || status.state != VIA_LINK_UP || status.peer != peer->id ||
            status.peer_session != peer->life.session) {
            sim_fail(world,
                     "host %u port %u: link status %d: state %d, peer id %u session %#x; the "
                     "peer's id is %u, its session %#x",
                     host->index, i, rc, status.state, status.peer, status.peer_session, peer->id,
                     peer->life.session);
        } else if (status.errors != 0 && host->rogue_life == 0 && peer->rogue_life == 0) {
            sim_fail(world, "host %u port %u: %llu records or words broke the rules", host->index,
                     i, (unsigned long long)status.errors);
        } else if (calm && (status.downs_count != 0 || status.ups_count != 1)) {
            sim_fail(world, "host %u port %u: the link went down %u times for no reason",
                     host->index, i, status.downs_count);
        } else {
            check_engine(host, i, &status);
        }
    }
}

static void check_routes(struct sim_host *host)
{
    struct sim_world *world = host->world;
    for (uint32_t i = 0; i < world->hosts_count; i++) {
        const struct sim_host *peer = &world->hosts[i];
        uint32_t hops = sim_topology_hops(world, host->index, i);
        struct via_route_status route;
        int rc = via_node_route_status(host->node, peer->id, &route);
        if (rc != 0 || route.hops != hops || route.session != peer->life.session) {
            sim_fail(world,
                     "host %u: route to host %u: %d, %u hops, session %#x; it is %u hops away, "
                     "session %#x",
                     host->index, i, rc, route.hops, route.session, hops, peer->life.session);
        }
    }
}

/* False: a frame may wait for so long that it looks stuck, without being stuck. */
static bool is_brisk(const struct sim_world *world)
{
    const struct sim_config_port *port = &world->config.port;
    const struct sim_config_cpu *cpu = &world->config.cpu;
    uint64_t slowest = via_max(port->bell_late_chance != 0 ? port->bell_late_ns_max : 0,
                               cpu->stall_chance != 0 ? cpu->stall_ns_max : 0);
    const struct sim_config_dma *dma = &world->config.dma;
    slowest = via_max(slowest, dma->percent != 0 ? (uint64_t)dma->ns_max * dma->depth : 0);
    if (world->config.like == SIM_LIKE_OFI && dma->percent != 0) {
        return false; /* the completions take a millisecond and more, and messages wait for them */
    }
    bool is_reliable = port->bell_drop_chance == 0 && (dma->percent == 0 || dma->lost_chance == 0);
    return is_reliable && slowest * 20 < stuck_ns(world);
}

static void check_counters(struct sim_host *host)
{
    struct sim_world *world = host->world;
    const struct sim_life *life = &host->life;
    struct via_node_counters counters;
    via_node_counters(host->node, &counters);
    bool calm = sim_is_calm(world);
    if (counters.refused_key < life->refused_key || counters.refused_range < life->refused_range ||
        counters.refused_endpoint < life->refused_endpoint) {
        sim_fail(world,
                 "host %u: counts %llu, %llu and %llu refusals (key, range, endpoint); "
                 "requesters were informed of %llu, %llu and %llu",
                 host->index, (unsigned long long)counters.refused_key,
                 (unsigned long long)counters.refused_range,
                 (unsigned long long)counters.refused_endpoint,
                 (unsigned long long)life->refused_key, (unsigned long long)life->refused_range,
                 (unsigned long long)life->refused_endpoint);
    }
    if (counters.frames_dropped_malformed != 0 && world->counts.rogues == 0) {
        sim_fail(world, "host %u: %llu malformed frames", host->index,
                 (unsigned long long)counters.frames_dropped_malformed);
    }
    /* Bubbles keep rings from filling up: no frame waits there until it is dropped. */
    bool rings = world->config.graph == SIM_GRAPH_RING || world->config.graph == SIM_GRAPH_TORUS;
    if (calm && is_brisk(world) && rings && counters.frames_dropped_stuck != 0) {
        sim_fail(world, "host %u: %llu frames stuck on a %s without faults", host->index,
                 (unsigned long long)counters.frames_dropped_stuck,
                 sim_graph_names[world->config.graph]);
    }
    for (uint32_t k = 0; k < world->config.node.channels_count; k++) {
        if (via_node_pending(host->node, k) != 0) {
            sim_fail(world, "host %u: %u operations pending, of none", host->index,
                     via_node_pending(host->node, k));
        }
    }
}

/* Turns that a fabric at rest may take: heartbeats come and go, and each may wake a thread. */
static uint64_t turns_allowed(const struct sim_world *world, uint64_t span_ns)
{
    uint64_t beats = span_ns / heartbeat_ns(world) + 2;
    uint64_t naps =
        world->config.cpu.insurance_ns != 0 ? span_ns / world->config.cpu.insurance_ns + 1 : 0;
    uint64_t polls = 0;
    for (uint32_t i = 0; i < world->links_count; i++) {
        const struct sim_link *link = &world->links[i];
        /* Each end polls. A doorbell that wakes a thread wakes the control thread first. */
        polls += link->has_chip
                     ? 2 * (span_ns / world->chips->poll_ns(&link->end[0]) + 1) + 8 * beats
                     : 0;
    }
    uint64_t threads = (uint64_t)world->hosts_count * world->config.node.channels_count;
    return beats * (world->links_count * 2 * 4 + world->hosts_count * 4) + naps * threads * 2 +
           polls + threads * 10;
}

#define REST_NS (100 * VIA_MSEC_NS)

void sim_final_settled(struct sim_world *world)
{
    world->settled = true;
    for (uint32_t i = 0; i < world->hosts_count && !world->failed; i++) {
        check_links(&world->hosts[i]);
        check_routes(&world->hosts[i]);
        check_counters(&world->hosts[i]);
        if (world->plant == SIM_PLANT_SEGMENT_WRITE) {
            world->hosts[i].life.mail_data[world->config.seed % 64] ^= 1;
        }
        sim_region_final(&world->hosts[i]);
    }
    world->turns_at_rest = world->counts.turns;
    sim_clock_after(&world->clock, REST_NS, SIM_EVENT_STOP, 0, 0, 0);
}

void sim_final_stop(struct sim_world *world)
{
    uint64_t turns = world->counts.turns - world->turns_at_rest;
    world->over = true;
    if (turns > turns_allowed(world, REST_NS)) {
        sim_fail(world, "at rest, yet %llu turns in %u ms (%llu would do)",
                 (unsigned long long)turns, (unsigned)(REST_NS / VIA_MSEC_NS),
                 (unsigned long long)turns_allowed(world, REST_NS));
    }
}
