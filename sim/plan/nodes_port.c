/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Ports whose calls take time according to the planned cards and cables. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "sim/memory.h"
#include "sim/plan/nodes_internal.h"

struct flight {
    struct nodes_end *to;
    struct flight *line;        /* of the same frame: lands behind it */
    struct nodes_thread *owner; /* whose body it is; NULL: no body */
    uint64_t off;
    uint32_t bytes;
    uint32_t channel;
    unsigned char data[];
};

static struct nodes_end *end_of(struct via_port *port)
{
    return (struct nodes_end *)port;
}

/* The thread of channel 0 also does the control thread's work. */
static struct nodes_thread *thread_of(const struct nodes_end *end, unsigned queue)
{
    return &end->host->threads[queue == VIA_PORT_QUEUE_CONTROL ? 0 : queue];
}

/* --- stores ----------------------------------------------------------------------------------- */

static void land_one(struct flight *flight)
{
    struct nodes_host *host = flight->to->host;
    memcpy(flight->to->port.inbox + flight->off, flight->data, flight->bytes);
    sim_memory_traffic(&host->memory, flight->bytes);
    plan_nodes_show(&host->threads[flight->channel]);
    free(flight);
}

static void land(void *object, uint64_t arg)
{
    struct flight *flight = object;
    struct flight *line = flight->line;
    (void)arg;
    if (flight->owner != NULL && flight->owner->body == flight) {
        flight->owner->body = NULL;
    }
    land_one(flight);
    if (line != NULL) {
        land_one(line);
    }
}

static void stores_left(void *object, uint64_t arg)
{
    struct nodes_thread *thread = object;
    (void)arg;
    thread->sent = true;
    if (thread->sending) {
        thread->sending = false;
        sim_cost_after(thread->host->nodes->cost, 0, sim_fiber_call(&thread->actor.fiber));
    }
}

static struct flight *flight_new(struct nodes_end *end, unsigned queue, uint64_t off,
                                 const void *src, size_t len)
{
    struct flight *flight = sim_alloc(sizeof(*flight) + len);
    assert(off + len <= end->port.caps.window_bytes);
    *flight = (struct flight){.to = end->peer,
                              .off = off,
                              .bytes = (uint32_t)len,
                              .channel = thread_of(end, queue)->channel};
    memcpy(flight->data, src, len);
    return flight;
}

/* Bytes that fit into the fill buffers leave as soon as the core has stored them. With more bytes
 * the core stores while the link sends, and is blocked until all have left. */
static void store(struct nodes_end *end, struct flight *flight, uint64_t wire_bytes)
{
    struct plan_nodes *nodes = end->host->nodes;
    struct nodes_thread *thread = &end->host->threads[flight->channel];
    bool waits = flight->bytes > nodes->costs.fill_bytes;
    uint64_t store_ps = (uint64_t)sim_ps_of(flight->bytes, nodes->costs.store_rate);
    thread->sent = false;
    sim_memory_traffic(&end->host->memory, flight->bytes);
    if (!waits) {
        sim_actor_work(&thread->actor, store_ps);
    }
    sim_net_post(&nodes->wiring->net,
                 &(struct sim_post){.path = &end->there,
                                    .bytes = wire_bytes,
                                    .sent = {waits ? stores_left : NULL, thread, 0},
                                    .arrived = {land, flight, 0}});
    if (waits) {
        sim_actor_work(&thread->actor, store_ps);
    }
    if (waits && !thread->sent) {
        thread->sending = true;
        sim_actor_stall(&thread->actor);
    }
}

/* A frame is made before any of it is stored. The links carry a frame's body and its line as one:
 * in reality the TLPs of several threads alternate, and no line waits for another thread's whole
 * body. */
static void port_body(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                      size_t len)
{
    struct nodes_end *end = end_of(port);
    struct nodes_thread *thread = thread_of(end, queue);
    struct flight *flight = flight_new(end, queue, off, src, len);
    bool is_first = !thread->stored_body;
    if (is_first) {
        thread->stored_body = true;
        plan_nodes_frame(thread);
    }
    flight->owner = thread;
    thread->body = flight;
    store(end, flight, len + (is_first ? VIA_CACHELINE : 0));
}

/* Words, such as credits, are no frames. */
static void port_commit(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                        size_t len)
{
    struct nodes_end *end = end_of(port);
    struct nodes_thread *thread = thread_of(end, queue);
    struct flight *flight = flight_new(end, queue, off, src, len);
    if (len < VIA_CACHELINE) {
        store(end, flight, len);
        return;
    }
    bool has_body = thread->stored_body;
    thread->stored_body = false;
    if (!has_body) {
        plan_nodes_frame(thread);
    }
    if (has_body && thread->body != NULL) {
        thread->body->line = flight;
    } else {
        store(end, flight, len);
    }
}

static void port_flush(struct via_port *port, unsigned queue)
{
    struct nodes_thread *thread = thread_of(end_of(port), queue);
    sim_actor_work(&thread->actor, thread->host->nodes->costs.fence_ps);
}

/* --- fences ----------------------------------------------------------------------------------- */

static void fence_is_back(void *object, uint64_t queue)
{
    struct nodes_end *end = object;
    end->fences[queue]--;
    plan_nodes_show(thread_of(end, (unsigned)queue));
}

static int port_fence_start(struct via_port *port, unsigned queue)
{
    struct nodes_end *end = end_of(port);
    end->fences[queue]++;
    sim_net_read(&end->host->nodes->wiring->net, &end->there, &end->peer->there, 4,
                 (struct sim_call){.run = fence_is_back, .object = end, .arg = queue});
    return 0;
}

static int port_fence_poll(struct via_port *port, unsigned queue)
{
    return end_of(port)->fences[queue] == 0;
}

/* --- doorbells, scratchpads ------------------------------------------------------------------- */

static void bell_handled(void *object, uint64_t bit)
{
    struct nodes_end *end = object;
    unsigned channel = bit < end->host->nodes->costs.channels_count ? (unsigned)bit : 0;
    end->events |= VIA_PORT_EVENT_DOORBELL(bit);
    plan_nodes_ring(&end->host->threads[channel]);
}

static void bell_arrived(void *object, uint64_t bit)
{
    struct nodes_end *end = object;
    struct nodes_host *host = end->host;
    sim_cpu_interrupt(&host->cpu, (unsigned)bit % host->cpu.lcpus_count,
                      host->nodes->costs.handler_ps,
                      (struct sim_call){.run = bell_handled, .object = end, .arg = bit});
}

static int port_ring(struct via_port *port, unsigned queue, unsigned bit)
{
    struct nodes_end *end = end_of(port);
    struct plan_nodes *nodes = end->host->nodes;
    sim_actor_work(&thread_of(end, queue)->actor, nodes->costs.ring_ps);
    sim_net_ring(&nodes->wiring->net, &end->to_chip, &end->bell,
                 (struct sim_call){.run = bell_arrived, .object = end->peer, .arg = bit});
    return 0;
}

static uint64_t port_events(struct via_port *port, uint64_t mask)
{
    struct nodes_end *end = end_of(port);
    uint64_t events = end->events & mask;
    end->events &= ~mask;
    return events;
}

static uint32_t port_scratchpad_read(struct via_port *port, unsigned index)
{
    struct nodes_end *end = end_of(port);
    struct nodes_thread *thread = &end->host->threads[0];
    sim_net_read(&end->host->nodes->wiring->net, &end->to_chip, &end->from_chip, 4,
                 sim_fiber_call(&thread->actor.fiber));
    sim_actor_stall(&thread->actor);
    return end->scratchpads[index];
}

static void port_scratchpad_write(struct via_port *port, unsigned index, uint32_t value)
{
    struct nodes_end *end = end_of(port);
    sim_actor_work(&end->host->threads[0].actor, end->host->nodes->costs.ring_ps);
    end->scratchpads[index] = value;
}

/* Cables are whole, or were never there. */
static bool port_link_is_up(struct via_port *port)
{
    (void)port;
    return true;
}

static void port_close(struct via_port *port)
{
    (void)port;
}

static const struct via_port_ops port_ops = {
    .body = port_body,
    .commit = port_commit,
    .flush = port_flush,
    .fence_start = port_fence_start,
    .fence_poll = port_fence_poll,
    .ring = port_ring,
    .events = port_events,
    .link_is_up = port_link_is_up,
    .scratchpad_read = port_scratchpad_read,
    .scratchpad_write = port_scratchpad_write,
    .close = port_close,
};

void plan_nodes_port_open(struct nodes_end *end, void *inbox, size_t inbox_bytes)
{
    end->port = (struct via_port){
        .ops = &port_ops,
        .caps = {.window_bytes = inbox_bytes,
                 .inbox_bytes = inbox_bytes,
                 .store_bytes_max = VIA_CACHELINE},
        .inbox = inbox,
        .side = end->host->index < end->peer->host->index ? 0 : 1,
    };
}

/* --- wiring ----------------------------------------------------------------------------------- */

static void join(struct plan_nodes *nodes, struct nodes_end *a, struct nodes_end *b)
{
    const struct sim_net *net = &nodes->wiring->net;
    unsigned from = a->host->index;
    unsigned to = b->host->index;
    struct sim_path back;
    a->peer = b;
    a->scratchpads = from < to ? a->registers : b->registers;
    plan_wiring_path(nodes->wiring, from, to, &a->there);
    plan_wiring_path(nodes->wiring, to, from, &back);
    sim_net_part(net, &a->there, 0, 1, &a->to_chip);
    sim_net_part(net, &back, back.hops_count - 1, back.hops_count, &a->from_chip);
    sim_net_part(net, &a->there, 1, a->there.hops_count, &a->bell);
}

static void wire_torus(struct plan_nodes *nodes, const struct plan_shape *shape)
{
    for (unsigned i = 0; i < nodes->hosts_count; i++) {
        for (unsigned d = 0; d < shape->dimensions_count; d++) {
            unsigned up = plan_shape_step(shape, i, d, false);
            struct nodes_end *a = &nodes->hosts[i].ends[plan_shape_port(shape, d, false)];
            struct nodes_end *b = &nodes->hosts[up].ends[plan_shape_port(shape, d, true)];
            a->dimension = b->dimension = (uint8_t)d;
            if (plan_shape_is_cut(shape, i, up)) {
                continue;
            }
            join(nodes, a, b);
            join(nodes, b, a);
        }
    }
}

void plan_nodes_wire(struct plan_nodes *nodes, const struct plan_shape *shape)
{
    unsigned hosts = nodes->hosts_count;
    for (unsigned i = 0; i < hosts; i++) {
        struct nodes_host *host = &nodes->hosts[i];
        host->nodes = nodes;
        host->index = i;
        host->ends_count = shape->kind == PLAN_TREE ? hosts - 1 : plan_shape_degree(shape);
        host->ends = sim_alloc(host->ends_count * sizeof(*host->ends));
        for (unsigned k = 0; k < host->ends_count; k++) {
            host->ends[k].host = host;
        }
    }
    if (shape->kind == PLAN_TORUS) {
        wire_torus(nodes, shape);
        return;
    }
    for (unsigned i = 0; i < hosts; i++) {
        for (unsigned k = 0; k < hosts; k++) {
            if (i != k) {
                join(nodes, &nodes->hosts[i].ends[k < i ? k : k - 1],
                     &nodes->hosts[k].ends[i < k ? i : i - 1]);
            }
        }
    }
}
