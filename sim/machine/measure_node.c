/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* What a node of src/core costs: two of them on ports that are memory, polled by one thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "core/node.h"
#include "sim/cost/still.h"
#include "sim/machine/measure.h"
#include "sim/memory.h"

#define TRIALS 200u
#define PUTS 32u
#define BYTES 64u

struct side {
    struct via_port port; /* first */
    struct side *peer;
    uint32_t *scratchpads; /* of both */
    uint64_t events;
    void *memory; /* owned */
    struct via_node *node;
    unsigned char segment[BYTES], source[BYTES];
    uint64_t handle;
    unsigned done_count, failed_count;
};

static struct side *side_of(struct via_port *port)
{
    return (struct side *)port;
}

static void port_post(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                      size_t len)
{
    (void)queue;
    memcpy(side_of(port)->peer->port.inbox + off, src, len);
}

static int port_ring(struct via_port *port, unsigned queue, unsigned bit)
{
    (void)queue;
    side_of(port)->peer->events |= VIA_PORT_EVENT_DOORBELL(bit);
    return 0;
}

static uint64_t port_events(struct via_port *port, uint64_t mask)
{
    uint64_t events = side_of(port)->events & mask;
    side_of(port)->events &= ~mask;
    return events;
}

static uint32_t port_scratchpad_read(struct via_port *port, unsigned index)
{
    return side_of(port)->scratchpads[index];
}

static void port_scratchpad_write(struct via_port *port, unsigned index, uint32_t value)
{
    side_of(port)->scratchpads[index] = value;
}

static const struct via_port_ops port_ops = {
    .body = port_post,
    .commit = port_post,
    .flush = sim_still_flush,
    .fence_start = sim_still_fence_start,
    .fence_poll = sim_still_fence_poll,
    .ring = port_ring,
    .events = port_events,
    .link_is_up = sim_still_link_is_up,
    .scratchpad_read = port_scratchpad_read,
    .scratchpad_write = port_scratchpad_write,
    .close = sim_still_close,
};

static void on_complete(void *ctx, unsigned channel, uint64_t cookie, int status, uint64_t value)
{
    struct side *side = ctx;
    (void)channel;
    (void)cookie;
    (void)value;
    side->done_count++;
    side->failed_count += status != 0 ? 1 : 0;
}

static void build(struct side *side, struct side *peer, unsigned index, uint32_t *scratchpads)
{
    struct via_node_config config;
    const struct via_node_env env = {.ctx = side,
                                     .deliver = sim_still_deliver,
                                     .complete = on_complete,
                                     .notify = sim_still_notify,
                                     .wake = sim_still_wake};
    via_node_config_init(&config);
    config.host = (uint16_t)index;
    config.hosts_max = 2;
    config.session = 1 + index;
    config.ports_count = 1;
    config.channels_count = 1;
    size_t bytes = via_node_inbox_bytes(&config);
    side->peer = peer;
    side->scratchpads = scratchpads;
    side->memory = sim_alloc_lines(via_node_bytes(&config));
    side->port = (struct via_port){.ops = &port_ops,
                                   .caps = {.window_bytes = bytes,
                                            .inbox_bytes = bytes,
                                            .store_bytes_max = VIA_CACHELINE,
                                            .coherent = true},
                                   .inbox = sim_alloc_lines(bytes),
                                   .side = index};
    if (via_node_init(&side->node, side->memory, &config, &env) != 0 ||
        via_node_port_set(side->node, 0, &side->port) != 0 ||
        via_node_segment_add(side->node, side->segment, BYTES, VIA_SEGMENT_READ | VIA_SEGMENT_WRITE,
                             7, &side->handle) != 0) {
        abort(); /* sizes that always fit */
    }
}

static void run_turn(struct side *side)
{
    uint64_t deadline_ns = VIA_NEVER_NS;
    via_node_control(side->node, sim_measure_now_ns(), &deadline_ns);
    via_node_poll(side->node, 0, sim_measure_now_ns(), &deadline_ns);
}

static bool is_routed(const struct side *side)
{
    struct via_route_status route;
    return via_node_route_status(side->node, 1, &route) == 0 && route.hops == 1;
}

/* So many puts from a to b; what was found, and the time of submits and of polls. */
static void trial(struct side *a, struct side *b, double *ret_submit_ns, double *ret_frame_ns,
                  double turn_ns)
{
    const struct via_op op = {.kind = VIA_OP_PUT,
                              .destination = 1,
                              .segment = b->handle,
                              .source = a->source,
                              .bytes = BYTES};
    uint64_t deadline_ns = VIA_NEVER_NS;
    unsigned accepted = 0;
    unsigned found = 0;
    unsigned polls = 0;
    a->done_count = 0;
    uint64_t start_ns = sim_measure_now_ns();
    while (accepted < PUTS && via_node_submit(a->node, 0, &op) == 0) {
        accepted++;
    }
    uint64_t submitted_ns = sim_measure_now_ns();
    uint64_t give_up_ns = submitted_ns + VIA_SEC_NS;
    while (a->done_count < accepted && sim_measure_now_ns() < give_up_ns) {
        found += via_node_poll(a->node, 0, sim_measure_now_ns(), &deadline_ns);
        found += via_node_poll(b->node, 0, sim_measure_now_ns(), &deadline_ns);
        polls += 2;
        if (polls % 256 == 0) { /* this takes long: heartbeats must not stop */
            run_turn(a);
            run_turn(b);
        }
    }
    double polled_ns = (double)(sim_measure_now_ns() - submitted_ns) - polls * turn_ns;
    *ret_submit_ns = accepted > 0 ? (double)(submitted_ns - start_ns) / accepted : 1e9;
    *ret_frame_ns = found > 0 && polled_ns > 0 ? polled_ns / found : 1e9;
}

static double idle_turn_ns(struct side *side)
{
    double best_ns = 1e9;
    for (unsigned i = 0; i < TRIALS; i++) {
        uint64_t deadline_ns = VIA_NEVER_NS;
        uint64_t start_ns = sim_measure_now_ns();
        for (unsigned k = 0; k < 20; k++) {
            via_node_poll(side->node, 0, sim_measure_now_ns(), &deadline_ns);
        }
        double ns = (double)(sim_measure_now_ns() - start_ns) / 20;
        best_ns = ns < best_ns ? ns : best_ns;
    }
    return best_ns;
}

int sim_measure_node(struct sim_measured *ret, struct via_error *err)
{
    uint32_t scratchpads[VIA_PORT_SCRATCHPADS] = {0};
    struct side *sides = sim_alloc(2 * sizeof(*sides));
    build(&sides[0], &sides[1], 0, scratchpads);
    build(&sides[1], &sides[0], 1, scratchpads);
    uint64_t give_up_ns = sim_measure_now_ns() + 2 * VIA_SEC_NS;
    while (!is_routed(&sides[0]) && sim_measure_now_ns() < give_up_ns) {
        run_turn(&sides[0]);
        run_turn(&sides[1]);
    }
    ret->turn_ns = idle_turn_ns(&sides[0]);
    ret->submit_ns = 1e9;
    ret->frame_ns = 1e9;
    give_up_ns = sim_measure_now_ns() + VIA_SEC_NS;
    for (unsigned i = 0; i < TRIALS && sim_measure_now_ns() < give_up_ns; i++) {
        double submit_ns;
        double frame_ns;
        run_turn(&sides[0]);
        run_turn(&sides[1]);
        trial(&sides[0], &sides[1], &submit_ns, &frame_ns, ret->turn_ns);
        ret->submit_ns = submit_ns < ret->submit_ns ? submit_ns : ret->submit_ns;
        ret->frame_ns = frame_ns < ret->frame_ns ? frame_ns : ret->frame_ns;
    }
    bool good = ret->submit_ns < 1e9 && ret->frame_ns < 1e9 && sides[0].failed_count == 0;
    for (unsigned i = 0; i < 2; i++) {
        free(sides[i].memory);
        free(sides[i].port.inbox);
    }
    free(sides);
    return good ? 0 : via_error_set(err, -EAGAIN, "two nodes in one thread: puts did not end");
}
