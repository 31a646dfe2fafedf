/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/plan/nodes.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/types.h"
#include "sim/memory.h"
#include "sim/plan/nodes_internal.h"

/* --- operations ------------------------------------------------------------------------------- */

static struct via_list *under_way(struct nodes_host *host, unsigned source, unsigned channel)
{
    return &host->arriving[source * host->nodes->costs.channels_count + channel];
}

void plan_nodes_submit(struct plan_nodes *nodes, unsigned source, unsigned destination,
                       unsigned channel, uint64_t bytes, uint8_t tag)
{
    struct nodes_thread *thread = &nodes->hosts[source].threads[channel];
    struct plan_op *op = sim_alloc(sizeof(*op));
    *op = (struct plan_op){.born_ps = nodes->cost->now_ps,
                           .bytes = bytes,
                           .source = (uint16_t)source,
                           .destination = (uint16_t)destination,
                           .channel = (uint8_t)channel,
                           .tag = tag};
    via_list_push_back(&thread->waiting, &op->member);
    plan_nodes_ring(thread);
}

/* The whole message is at its destination. The time of the copy out of the inbox is spent here. */
static void on_notify(void *ctx, unsigned channel, uint64_t handle)
{
    struct nodes_host *host = ctx;
    struct plan_nodes *nodes = host->nodes;
    for (unsigned i = 0; i < nodes->hosts_count; i++) {
        if (host->segments[i] == handle) {
            struct plan_op *op = plan_ops_pop(under_way(host, i, channel));
            plan_nodes_frame(&host->threads[channel]);
            sim_actor_copy(&host->threads[channel].actor, &host->memory, op->bytes);
            nodes->events.delivered(nodes->events.object, op);
            return;
        }
    }
    abort(); /* there are no other segments */
}

static void on_complete(void *ctx, unsigned channel, uint64_t cookie, int status, uint64_t value)
{
    struct nodes_host *host = ctx;
    struct nodes_thread *thread = &host->threads[channel];
    struct plan_op *op = (struct plan_op *)(uintptr_t)cookie;
    (void)value;
    if (status != 0) {
        abort(); /* no link is cut and no host dies while it runs */
    }
    /* The acknowledgement, which ends operations to one destination, and the report. */
    if (thread->acked_by != 1u + op->destination) {
        thread->acked_by = 1u + op->destination;
        plan_nodes_frame(thread);
    }
    plan_nodes_frame(thread);
    host->nodes->events.ended(host->nodes->events.object, op);
    host->nodes->ended_count++;
    thread->is_full = false;
    free(op);
}

static void on_wake(void *ctx, unsigned channel)
{
    struct nodes_host *host = ctx;
    plan_nodes_ring(&host->threads[channel]);
}

/* Submits as many as the node accepts. */
static void submit(struct nodes_thread *thread)
{
    struct nodes_host *host = thread->host;
    struct plan_nodes *nodes = host->nodes;
    while (!via_list_is_empty(&thread->waiting) && !nodes->stopping && !thread->is_full) {
        struct plan_op *op = via_list_entry(thread->waiting.next, struct plan_op, member);
        const struct via_op put = {
            .kind = VIA_OP_PUT,
            .flags = VIA_FRAME_FLAG_NOTIFY,
            .destination = op->destination,
            .segment = nodes->hosts[op->destination].segments[host->index],
            .source = nodes->source,
            .bytes = op->bytes,
            .cookie = (uintptr_t)op,
        };
        sim_actor_work(&thread->actor, nodes->costs.submit_ps);
        thread->is_full = via_node_submit(host->node, thread->channel, &put) != 0;
        if (!thread->is_full) {
            nodes->submitted_count++;
            via_list_remove(&op->member);
            via_list_push_back(
                under_way(&nodes->hosts[op->destination], host->index, thread->channel),
                &op->member);
        }
    }
}

/* --- transfer threads ------------------------------------------------------------------------- */

void plan_nodes_frame(struct nodes_thread *thread)
{
    thread->frames_paid++;
    sim_actor_work(&thread->actor, thread->host->nodes->costs.frame_ps);
}

/* Frames that this turn has put into bypass buffers were copied there. */
static void copy_bypassed(struct nodes_thread *thread)
{
    struct nodes_host *host = thread->host;
    uint64_t bypassed = 0;
    for (unsigned i = 0; i < host->ends_count; i++) {
        struct via_link_status status;
        if (host->ends[i].peer != NULL && via_node_link_status(host->node, i, &status) == 0) {
            bypassed += status.bypassed_frames;
        }
    }
    uint64_t bytes = (bypassed - host->bypassed_count) * host->nodes->bytes_max;
    host->bypassed_count = bypassed;
    if (bytes > 0) {
        sim_actor_copy(&thread->actor, &host->memory, bytes);
    }
}

static uint64_t now_ns(const struct nodes_thread *thread)
{
    return thread->host->nodes->cost->now_ps / SIM_NS_PS;
}

static bool is_crowded(void *ctx)
{
    const struct nodes_thread *thread = ctx;
    return sim_cpu_running_count(&thread->host->cpu) > thread->host->cpu.lcpus_count;
}

/* --- being woken ------------------------------------------------------------------------------ */

void plan_nodes_show(struct nodes_thread *thread)
{
    thread->seen_count++;
    if (thread->is_polling) {
        thread->is_polling = false;
        thread->ticket++;
        sim_cost_after(thread->host->nodes->cost, 0, sim_fiber_call(&thread->actor.fiber));
    }
}

void plan_nodes_ring(struct nodes_thread *thread)
{
    plan_nodes_show(thread);
    sim_actor_wake(&thread->actor);
}

static void time_is_over(void *object, uint64_t ticket)
{
    struct nodes_thread *thread = object;
    if (ticket != thread->ticket) {
        return;
    }
    if (thread->is_polling) {
        plan_nodes_show(thread);
    } else {
        sim_actor_wake(&thread->actor);
    }
}

static void end_at(struct nodes_thread *thread, uint64_t deadline_ns)
{
    if (deadline_ns < UINT64_MAX / SIM_NS_PS) {
        struct sim_cost *cost = thread->host->nodes->cost;
        sim_cost_at(cost, via_max(deadline_ns * SIM_NS_PS, cost->now_ps),
                    (struct sim_call){time_is_over, thread, thread->ticket});
    }
}

/* --- waiting ---------------------------------------------------------------------------------- */

/* Turns that find nothing are left out: they take the processor and end when something comes. */
static void skip_idle_turns(struct nodes_thread *thread, uint64_t deadline_ns)
{
    if (thread->seen_count == thread->seen_before && !thread->host->nodes->stopping) {
        thread->is_polling = true;
        end_at(thread, via_min(deadline_ns, thread->wait.poll_until_ns));
        sim_actor_stall(&thread->actor);
    }
}

static void sleep_until(struct nodes_thread *thread, uint64_t deadline_ns)
{
    thread->ticket++;
    end_at(thread, deadline_ns);
    sim_actor_sleep(&thread->actor);
    thread->ticket++;
}

static bool arm(void *ctx, enum via_arm *ret_armed)
{
    struct nodes_thread *thread = ctx;
    if (thread->seen_count != thread->seen_before) {
        return false;
    }
    *ret_armed = via_node_arm(thread->host->node, thread->channel);
    if ((!via_list_is_empty(&thread->waiting) && !thread->is_full) ||
        thread->host->nodes->stopping) {
        *ret_armed = VIA_ARM_BUSY;
    }
    return true;
}

static unsigned run_turn(void *ctx, uint64_t begun_ns, uint64_t *deadline_ns)
{
    struct nodes_thread *thread = ctx;
    struct via_node *node = thread->host->node;
    const struct plan_costs *costs = &thread->host->nodes->costs;
    uint64_t control_ns = VIA_NEVER_NS;
    thread->seen_before = thread->seen_count;
    thread->actor.woken = false; /* the bell is recorded: this turn comes after it */
    if (thread->channel == 0) {
        via_node_control(node, begun_ns, &control_ns);
    }
    submit(thread);
    sim_actor_work(&thread->actor, costs->turn_ps);
    thread->frames_paid = 0;
    thread->acked_by = 0;
    unsigned work = via_node_poll(node, thread->channel, now_ns(thread), deadline_ns);
    /* The time of frames for bypass buffers, and of acknowledgements that ended no operation. */
    unsigned unpaid = work - via_min(work, thread->frames_paid);
    sim_actor_work(&thread->actor, unpaid * costs->frame_ps);
    copy_bypassed(thread);
    *deadline_ns = via_min(*deadline_ns, control_ns);
    return work;
}

static void act(void *ctx, enum via_host_wait_step step, uint64_t begun_ns, uint64_t deadline_ns)
{
    struct nodes_thread *thread = ctx;
    (void)begun_ns;
    if (step == VIA_HOST_WAIT_POLL) {
        skip_idle_turns(thread, deadline_ns);
    } else if (step == VIA_HOST_WAIT_FENCE) {
        sim_actor_sleep(&thread->actor);
    } else if (step != VIA_HOST_WAIT_TURN) {
        if (step == VIA_HOST_WAIT_WAKE_CONTROL) {
            plan_nodes_ring(&thread->host->threads[0]);
        }
        sleep_until(thread, deadline_ns);
        via_host_wait_slept(&thread->wait, now_ns(thread));
    }
}

static void transfer_main(void *arg)
{
    static const struct via_host_wait_ops ops = {.turn = run_turn, .arm = arm, .act = act};
    struct nodes_thread *thread = arg;
    while (!thread->host->nodes->stopping) {
        via_host_wait_turn(&thread->wait, now_ns(thread), &ops, thread);
    }
    sim_task_sleep(&thread->actor.task);
}

static void start_thread(struct nodes_host *host, unsigned channel)
{
    struct nodes_thread *thread = &host->threads[channel];
    thread->host = host;
    thread->channel = channel;
    via_list_init(&thread->waiting);
    via_host_wait_init(&thread->wait, host->nodes->costs.spin_ps / SIM_NS_PS, is_crowded, thread);
    sim_actor_start(&thread->actor, &host->cpu, transfer_main, thread);
}

static int deliver_nothing(void *ctx, const struct via_delivery *delivery)
{
    (void)ctx;
    (void)delivery;
    return -ENOENT;
}

/* --- the fabric ------------------------------------------------------------------------------ */

static void build_host(struct nodes_host *host, uint64_t seed)
{
    struct plan_nodes *nodes = host->nodes;
    const struct plan_costs *costs = &nodes->costs;
    struct via_node_config config;
    struct via_node_port_config ports[PLAN_NODES_MAX] = {0};
    const struct via_node_env env = {.ctx = host,
                                     .deliver = deliver_nothing,
                                     .complete = on_complete,
                                     .notify = on_notify,
                                     .wake = on_wake};
    sim_cpu_init(&host->cpu, nodes->cost, &costs->cpu, seed + host->index);
    host->memory = (struct sim_memory){.copy_rate = costs->copy_rate,
                                       .bus_rate = costs->bus_rate,
                                       .crossings = 2,
                                       .piece_bytes = 4096};
    sim_server_init(&host->memory.bus, nodes->cost);
    via_node_config_init(&config);
    config.host = (uint16_t)host->index;
    config.hosts_max = (uint16_t)nodes->hosts_count;
    config.session = 0x1000 + host->index;
    config.ports_count = (uint16_t)host->ends_count;
    config.channels_count = (uint8_t)costs->channels_count;
    config.pipe_slots = costs->pipe_slots;
    config.bypass_count = costs->bypass_count;
    config.window_frames = costs->window_frames;
    config.batch_frames = costs->batch_frames;
    config.frame_bytes_max = (uint32_t)costs->frame_bytes;
    config.flows_count = 1;
    config.segments_count = nodes->hosts_count;
    for (unsigned i = 0; i < host->ends_count; i++) {
        ports[i].dimension = host->ends[i].dimension;
    }
    config.ports = ports;
    host->node_bytes = via_node_bytes(&config);
    host->inbox_bytes = via_node_inbox_bytes(&config);
    host->node_memory = sim_map(host->node_bytes);
    if (host->node_bytes == 0 ||
        via_node_init(&host->node, host->node_memory, &config, &env) != 0) {
        abort();
    }
    host->segment = sim_alloc_lines(nodes->bytes_max);
    host->segments = sim_alloc(nodes->hosts_count * sizeof(*host->segments));
    for (unsigned i = 0; i < nodes->hosts_count; i++) {
        if (via_node_segment_add(host->node, host->segment, nodes->bytes_max, VIA_SEGMENT_WRITE,
                                 1 + i, &host->segments[i]) != 0) {
            abort();
        }
    }
    for (unsigned i = 0; i < host->ends_count; i++) {
        struct nodes_end *end = &host->ends[i];
        if (end->peer == NULL) {
            continue; /* its cable is cut */
        }
        plan_nodes_port_open(end, sim_map(host->inbox_bytes), host->inbox_bytes);
        if (via_node_port_set(host->node, i, &end->port) != 0) {
            abort();
        }
    }
}

/* All links, too: hosts reach each other by relays before the last links between them are up. */
static bool is_every_link_up(const struct plan_nodes *nodes)
{
    for (unsigned i = 0; i < nodes->hosts_count; i++) {
        const struct nodes_host *host = &nodes->hosts[i];
        for (unsigned k = 0; k < host->ends_count; k++) {
            struct via_link_status status;
            if (host->ends[k].peer != NULL && (via_node_link_status(host->node, k, &status) != 0 ||
                                               status.state != VIA_LINK_UP)) {
                return false;
            }
        }
    }
    return true;
}

static bool is_every_route_known(const struct plan_nodes *nodes)
{
    for (unsigned i = 0; i < nodes->hosts_count; i++) {
        for (unsigned k = 0; k < nodes->hosts_count; k++) {
            struct via_route_status route;
            if (via_node_route_status(nodes->hosts[i].node, (uint16_t)k, &route) != 0 ||
                (i != k && (route.port == VIA_PORT_NONE || route.session == 0))) {
                return false;
            }
        }
    }
    return true;
}

struct plan_nodes *plan_nodes_new(struct sim_cost *cost, const struct plan_costs *costs,
                                  const struct plan_shape *shape, struct plan_wiring *wiring,
                                  const struct plan_events *events, uint64_t bytes_max,
                                  uint64_t seed)
{
    struct plan_nodes *nodes = sim_alloc(sizeof(*nodes));
    *nodes = (struct plan_nodes){.cost = cost,
                                 .costs = *costs,
                                 .wiring = wiring,
                                 .events = *events,
                                 .bytes_max = via_max(bytes_max, UINT64_C(64)),
                                 .hosts_count = shape->hosts_count};
    assert(shape->hosts_count <= PLAN_NODES_MAX && bytes_max <= costs->frame_bytes);
    nodes->source = sim_alloc_lines(nodes->bytes_max);
    nodes->hosts = sim_alloc(nodes->hosts_count * sizeof(*nodes->hosts));
    plan_nodes_wire(nodes, shape);
    for (unsigned i = 0; i < nodes->hosts_count; i++) {
        struct nodes_host *host = &nodes->hosts[i];
        unsigned lists_count = nodes->hosts_count * costs->channels_count;
        host->arriving = sim_alloc(lists_count * sizeof(*host->arriving));
        for (unsigned k = 0; k < lists_count; k++) {
            via_list_init(&host->arriving[k]);
        }
        build_host(host, seed);
    }
    for (unsigned i = 0; i < nodes->hosts_count; i++) {
        for (unsigned k = 0; k < costs->channels_count; k++) {
            start_thread(&nodes->hosts[i], k);
        }
    }
    while (!is_every_link_up(nodes) || !is_every_route_known(nodes)) {
        uint64_t until = cost->taken_count + 10000;
        while (cost->taken_count < until && sim_cost_step(cost)) {
        }
    }
    return nodes;
}

/* Frees operations that no node has. A node holds no memory but its own. */
static void free_ops(struct plan_nodes *nodes)
{
    for (unsigned i = 0; i < nodes->hosts_count; i++) {
        struct nodes_host *host = &nodes->hosts[i];
        for (unsigned k = 0; k < nodes->costs.channels_count; k++) {
            for (struct plan_op *op; (op = plan_ops_pop(&host->threads[k].waiting)) != NULL;) {
                free(op);
            }
        }
    }
}

void plan_nodes_free(struct plan_nodes *nodes)
{
    while (nodes->submitted_count != nodes->ended_count && sim_cost_step(nodes->cost)) {
    }
    nodes->stopping = true;
    for (unsigned i = 0; i < nodes->hosts_count; i++) {
        for (unsigned k = 0; k < nodes->costs.channels_count; k++) {
            plan_nodes_ring(&nodes->hosts[i].threads[k]);
        }
    }
    sim_cost_run(nodes->cost, UINT64_MAX);
    free_ops(nodes);
    for (unsigned i = 0; i < nodes->hosts_count; i++) {
        struct nodes_host *host = &nodes->hosts[i];
        for (unsigned k = 0; k < nodes->costs.channels_count; k++) {
            sim_actor_fini(&host->threads[k].actor);
        }
        for (unsigned k = 0; k < host->ends_count; k++) {
            if (host->ends[k].peer != NULL) {
                munmap(host->ends[k].port.inbox, host->inbox_bytes);
            }
        }
        munmap(host->node_memory, host->node_bytes);
        free(host->segment);
        free(host->segments);
        free(host->arriving);
        free(host->ends);
    }
    free(nodes->hosts);
    free(nodes->source);
    free(nodes);
}

uint64_t plan_nodes_stuck(const struct plan_nodes *nodes)
{
    uint64_t stuck = 0;
    for (unsigned i = 0; i < nodes->hosts_count; i++) {
        struct via_node_counters counters;
        via_node_counters(nodes->hosts[i].node, &counters);
        stuck += counters.frames_dropped_stuck;
    }
    return stuck;
}
