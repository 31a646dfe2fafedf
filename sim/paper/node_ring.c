/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/paper/node_ring.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "core/node.h"
#include "sim/cost/poller.h"
#include "sim/cost/still.h"
#include "sim/memory.h"

static const struct sim_key keys[] = {
    {"line_store", SIM_TIME, 0, 1e6, NULL}, {"fill_buffers", SIM_COUNT, 1, 64, NULL},
    {"submit", SIM_TIME, 0, 1e9, NULL},     {"turn", SIM_TIME, 1e3, 1e9, NULL},
    {"frame", SIM_TIME, 0, 1e9, NULL},      {"spin", SIM_TIME, 0, 1e10, NULL},
};
const struct sim_section sim_node_ring_section = {"viaduct", false, keys, VIA_ARRAY_COUNT(keys)};

#define LINE_BYTES VIA_CACHELINE
/* Stores cross in pieces, so that others get their turns on the links. */
#define PIECE_BYTES 4096u

struct node_host;

struct node_thread {
    struct node_host *host;
    unsigned channel;
    struct sim_poller poller;
    unsigned window, under_way;
    uint64_t submitted, done;
    uint64_t body_bytes;     /* arrived for this channel, their record not yet */
    uint64_t copyable_bytes; /* arrived with their record */
    uint64_t *submit_ps;     /* owned; by cookie */
};

/* A port. */
struct node_end {
    struct via_port port; /* first */
    struct node_host *host;
    struct node_end *peer;
    uint32_t *scratchpads; /* of the link; in the chip */
    uint64_t events;
    struct sim_path stores;                 /* to the peer's memory, a fill buffer at a time */
    const struct sim_path *there, *back;    /* the same way for reads */
    const struct sim_path *to_chip, *to_me; /* its registers */
    const struct sim_path *bell_to_peer;
    unsigned fences[VIA_PORT_QUEUES]; /* under way; the last started counts */
};

struct node_host {
    struct node_ring *ring;
    unsigned index;
    struct sim_cpu cpu;
    struct sim_memory memory;
    void *node_memory; /* owned */
    struct via_node *node;
    struct node_end right, left;
    struct node_thread threads[SIM_RING_THREADS_MAX];
    unsigned char *segment, *source; /* owned */
    uint64_t segment_handle;
    unsigned done;
    uint64_t first_ps, last_ps, latency_ps, latencies_count;
};

struct node_ring {
    const struct sim_scenario *scenario;
    struct sim_ring_run run;
    struct sim_cost cost;
    struct sim_ring_net net;
    struct node_host hosts[SIM_RING_HOSTS_MAX];
    uint32_t scratchpads[SIM_RING_HOSTS_MAX][VIA_PORT_SCRATCHPADS]; /* by link */
    struct node_thread *current; /* whose calls the ports are getting */
    unsigned finished_count, under_way;
    uint64_t from_ps, busy_from_ps; /* when the first host began to measure; CPU used until then */
    bool stopping;
    int status;
    uint64_t line_ps, fence_ps, submit_ps, turn_ps, frame_ps, spin_ps;
    uint64_t store_ps, handler_ps, read_ps;
    uint64_t fill_bytes;
};

/* --- waiting as the thread that calls: afterwards it is the current one again ----------------- */

static void work(struct node_thread *thread, uint64_t work_ps)
{
    sim_actor_work(&thread->poller.actor, work_ps);
    thread->host->ring->current = thread;
}

static void stall(struct node_thread *thread)
{
    sim_actor_stall(&thread->poller.actor);
    thread->host->ring->current = thread;
}

/* --- the port -------------------------------------------------------------------------------- */

struct flight {
    struct node_end *to;
    uint64_t off;
    uint32_t bytes;
    uint32_t channel;
    unsigned char data[];
};

static struct node_end *end_of(struct via_port *port)
{
    return (struct node_end *)port;
}

static void land(void *object, uint64_t arg)
{
    struct flight *flight = object;
    struct node_thread *thread = &flight->to->host->threads[flight->channel];
    (void)arg;
    memcpy(flight->to->port.inbox + flight->off, flight->data, flight->bytes);
    sim_memory_traffic(&flight->to->host->memory, flight->bytes);
    /* A record of 64 bytes says that the body before it is whole. */
    if (flight->bytes == LINE_BYTES) {
        thread->copyable_bytes += thread->body_bytes;
        thread->body_bytes = 0;
    } else if (flight->bytes > LINE_BYTES) {
        thread->body_bytes += flight->bytes;
    }
    free(flight);
    sim_poller_arrived(&thread->poller);
}

static void post(struct node_end *end, uint64_t off, const void *src, size_t bytes,
                 struct sim_call sent)
{
    struct node_ring *ring = end->host->ring;
    struct flight *flight = sim_alloc(sizeof(*flight) + bytes);
    *flight = (struct flight){
        .to = end->peer, .off = off, .bytes = (uint32_t)bytes, .channel = ring->current->channel};
    memcpy(flight->data, src, bytes);
    sim_net_post(&ring->net.net, &(struct sim_post){.path = &end->stores,
                                                    .bytes = bytes,
                                                    .sent = sent,
                                                    .arrived = {.run = land, .object = flight}});
}

static void port_post(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                      size_t len)
{
    struct node_end *end = end_of(port);
    struct node_ring *ring = end->host->ring;
    struct node_thread *thread = ring->current;
    const unsigned char *data = src;
    const struct sim_call none = {0};
    (void)queue;
    assert(off + len <= port->caps.window_bytes);
    for (size_t done = 0; done < len;) {
        size_t piece = via_min(len - done, (size_t)PIECE_BYTES);
        /* More than the fill buffers hold: the core goes at the pace of the link. */
        bool waits = piece > ring->fill_bytes;
        work(thread, (piece + LINE_BYTES - 1) / LINE_BYTES * ring->line_ps);
        post(end, off + done, data + done, piece,
             waits ? sim_fiber_call(&thread->poller.actor.fiber) : none);
        if (waits) {
            stall(thread);
        }
        done += piece;
    }
}

static void port_flush(struct via_port *port, unsigned queue)
{
    (void)queue;
    struct node_ring *ring = end_of(port)->host->ring;
    work(ring->current, ring->fence_ps);
}

static void read_register(struct node_end *end, const struct sim_path *there,
                          const struct sim_path *back)
{
    struct node_ring *ring = end->host->ring;
    struct node_thread *thread = ring->current;
    sim_net_read(&ring->net.net, there, back, 4, sim_fiber_call(&thread->poller.actor.fiber));
    stall(thread);
}

static void fence_is_back(void *object, uint64_t queue)
{
    struct node_end *end = object;
    unsigned channel = queue != VIA_PORT_QUEUE_CONTROL ? (unsigned)queue : 0;
    struct node_thread *thread = &end->host->threads[channel];
    end->fences[queue]--;
    sim_poller_fenced(&thread->poller);
}

static int port_fence_start(struct via_port *port, unsigned queue)
{
    struct node_end *end = end_of(port);
    end->fences[queue]++;
    sim_net_read(&end->host->ring->net.net, end->there, end->back, 4,
                 (struct sim_call){.run = fence_is_back, .object = end, .arg = queue});
    return 0;
}

static int port_fence_poll(struct via_port *port, unsigned queue)
{
    return end_of(port)->fences[queue] == 0;
}

/* Until one of those of this thread's channel is over. */
static void wait_for_fence(struct node_thread *thread)
{
    const struct node_host *host = thread->host;
    if (host->right.fences[thread->channel] != 0 || host->left.fences[thread->channel] != 0) {
        sim_poller_wait_for_fence(&thread->poller);
        host->ring->current = thread;
    }
}

static void bell_handled(void *object, uint64_t bit)
{
    struct node_end *end = object;
    unsigned channel = bit < end->host->ring->run.threads_count ? (unsigned)bit : 0;
    end->events |= VIA_PORT_EVENT_DOORBELL(bit);
    sim_actor_wake(&end->host->threads[channel].poller.actor);
}

static void bell_arrived(void *object, uint64_t bit)
{
    struct node_end *end = object;
    struct node_ring *ring = end->host->ring;
    /* The handler reads the doorbell register, and has no scratchpads to read. */
    sim_cpu_interrupt(&end->host->cpu, 0, ring->handler_ps + ring->read_ps,
                      (struct sim_call){.run = bell_handled, .object = end, .arg = bit});
}

static int port_ring(struct via_port *port, unsigned queue, unsigned bit)
{
    (void)queue;
    struct node_end *end = end_of(port);
    struct node_ring *ring = end->host->ring;
    work(ring->current, ring->store_ps);
    sim_net_ring(&ring->net.net, end->to_chip, end->bell_to_peer,
                 (struct sim_call){.run = bell_arrived, .object = end->peer, .arg = bit});
    return 0;
}

static uint64_t port_events(struct via_port *port, uint64_t mask)
{
    struct node_end *end = end_of(port);
    uint64_t events = end->events & mask;
    end->events &= ~mask;
    return events;
}

static uint32_t port_scratchpad_read(struct via_port *port, unsigned index)
{
    struct node_end *end = end_of(port);
    read_register(end, end->to_chip, end->to_me);
    return end->scratchpads[index];
}

static void port_scratchpad_write(struct via_port *port, unsigned index, uint32_t value)
{
    struct node_end *end = end_of(port);
    work(end->host->ring->current, end->host->ring->store_ps);
    end->scratchpads[index] = value;
}

static const struct via_port_ops port_ops = {
    .body = port_post,
    .commit = port_post,
    .flush = port_flush,
    .fence_start = port_fence_start,
    .fence_poll = port_fence_poll,
    .ring = port_ring,
    .events = port_events,
    .link_is_up = sim_still_link_is_up,
    .scratchpad_read = port_scratchpad_read,
    .scratchpad_write = port_scratchpad_write,
    .close = sim_still_close,
};

/* --- what the node calls --------------------------------------------------------------------- */

static void stop_if_over(struct node_ring *ring)
{
    if (ring->finished_count < ring->run.senders_count || ring->under_way != 0) {
        return;
    }
    ring->stopping = true;
    for (unsigned i = 0; i < ring->run.hosts_count; i++) {
        for (unsigned k = 0; k < ring->run.threads_count; k++) {
            struct node_thread *thread = &ring->hosts[i].threads[k];
            sim_poller_poke(&thread->poller);
        }
    }
}

static uint64_t busy_ps(struct node_ring *ring)
{
    uint64_t busy_ps = 0;
    for (unsigned i = 0; i < ring->run.hosts_count; i++) {
        busy_ps += sim_cpu_busy_ps(&ring->hosts[i].cpu);
    }
    return busy_ps;
}

static void on_complete(void *ctx, unsigned channel, uint64_t cookie, int status, uint64_t value)
{
    struct node_host *host = ctx;
    struct node_ring *ring = host->ring;
    struct node_thread *thread = &host->threads[channel];
    const struct sim_ring_run *run = &ring->run;
    (void)value;
    ring->status = status != 0 ? -EPROTO : ring->status;
    thread->under_way--;
    thread->done++;
    ring->under_way--;
    host->done++;
    if (host->done == run->window) {
        host->first_ps = ring->cost.now_ps;
        if (ring->from_ps == 0) {
            ring->from_ps = ring->cost.now_ps;
            ring->busy_from_ps = busy_ps(ring);
        }
    } else if (host->done > run->window && host->done <= run->window + run->puts_count) {
        /* Those that were submitted before the links were up do not count. */
        if (thread->submit_ps[cookie] >= host->first_ps) {
            host->latency_ps += ring->cost.now_ps - thread->submit_ps[cookie];
            host->latencies_count++;
        }
        host->last_ps = ring->cost.now_ps;
        ring->finished_count += host->done == run->window + run->puts_count;
    }
    stop_if_over(ring);
}

static void on_wake(void *ctx, unsigned channel)
{
    struct node_host *host = ctx;
    sim_actor_wake(&host->threads[channel].poller.actor);
}

/* --- transfer threads ------------------------------------------------------------------------ */

static void submit(struct node_thread *thread)
{
    struct node_host *host = thread->host;
    struct node_ring *ring = host->ring;
    const struct node_host *right = &ring->hosts[(host->index + 1) % ring->run.hosts_count];
    uint64_t cookie = thread->submitted % thread->window;
    const struct via_op op = {
        .kind = VIA_OP_PUT,
        .destination = (uint16_t)right->index,
        .segment = right->segment_handle,
        .source = host->source,
        .bytes = ring->run.bytes,
        .cookie = cookie,
    };
    thread->submit_ps[cookie] = ring->cost.now_ps;
    work(thread, ring->submit_ps);
    if (via_node_submit(host->node, thread->channel, &op) != 0) {
        abort(); /* there are more operations than the window asks for */
    }
    thread->submitted++;
    thread->under_way++;
    ring->under_way++;
}

static void deadline_over(void *object, uint64_t arg)
{
    struct node_thread *thread = object;
    (void)arg;
    sim_actor_wake(&thread->poller.actor);
}

static void wait_for_work(struct node_thread *thread, uint64_t deadline_ns)
{
    struct node_host *host = thread->host;
    struct node_ring *ring = host->ring;
    uint64_t deadline_ps =
        deadline_ns >= UINT64_MAX / SIM_NS_PS ? UINT64_MAX : deadline_ns * SIM_NS_PS;
    uint64_t until_ps = via_min(deadline_ps, ring->cost.now_ps + ring->spin_ps);
    if (deadline_ps <= ring->cost.now_ps) {
        return;
    }
    bool came = sim_poller_spin(&thread->poller, until_ps);
    ring->current = thread;
    if (came || ring->stopping) {
        return;
    }
    enum via_arm arm = VIA_ARM_BUSY;
    while (deadline_ps > ring->cost.now_ps &&
           (arm = via_node_arm(host->node, thread->channel)) == VIA_ARM_FENCING) {
        wait_for_fence(thread);
    }
    if (arm != VIA_ARM_SLEEP) {
        return;
    }
    if (!ring->stopping) {
        if (deadline_ps != UINT64_MAX) {
            sim_cost_at(&ring->cost, deadline_ps,
                        (struct sim_call){.run = deadline_over, .object = thread});
        }
        sim_actor_sleep(&thread->poller.actor);
        ring->current = thread;
    }
}

/* What the poll is going to copy out of the inbox; its time is spent before, as a whole. */
static void copy_out(struct node_thread *thread)
{
    uint64_t bytes = thread->copyable_bytes;
    thread->copyable_bytes = 0;
    if (bytes > 0) {
        sim_actor_copy(&thread->poller.actor, &thread->host->memory, bytes);
        thread->host->ring->current = thread;
    }
}

static void thread_main(void *arg)
{
    struct node_thread *thread = arg;
    struct node_host *host = thread->host;
    struct node_ring *ring = host->ring;
    bool sends = host->index < ring->run.senders_count;
    ring->current = thread;
    while (!ring->stopping) {
        uint64_t control_ns = VIA_NEVER_NS;
        uint64_t deadline_ns = VIA_NEVER_NS;
        uint64_t arrivals = thread->poller.arrivals;
        if (thread->channel == 0) {
            via_node_control(host->node, ring->cost.now_ps / SIM_NS_PS, &control_ns);
        }
        while (sends && thread->under_way < thread->window &&
               ring->finished_count < ring->run.senders_count) {
            submit(thread);
        }
        copy_out(thread);
        work(thread, ring->turn_ps);
        unsigned done =
            via_node_poll(host->node, thread->channel, ring->cost.now_ps / SIM_NS_PS, &deadline_ns);
        work(thread, done * ring->frame_ps);
        if (done == 0 && thread->poller.arrivals == arrivals) {
            wait_for_work(thread, via_min(deadline_ns, control_ns));
        }
    }
}

/* --- the whole ------------------------------------------------------------------------------- */

static void link_ends(struct node_ring *ring, struct node_host *host)
{
    const struct sim_ring_place *place = &ring->net.places[host->index];
    struct node_host *neighbour = &ring->hosts[(host->index + 1) % ring->run.hosts_count];
    struct node_end *a = &host->right;
    struct node_end *b = &neighbour->left;
    uint32_t *scratchpads = ring->scratchpads[host->index];
    *a = (struct node_end){.host = host,
                           .peer = b,
                           .scratchpads = scratchpads,
                           .stores = place->to_right,
                           .there = &place->to_right,
                           .back = &place->from_right,
                           .to_chip = &place->to_chip,
                           .to_me = &place->from_chip,
                           .bell_to_peer = &place->chip_to_right};
    *b = (struct node_end){.host = neighbour,
                           .peer = a,
                           .scratchpads = scratchpads,
                           .stores = place->from_right,
                           .there = &place->from_right,
                           .back = &place->to_right,
                           .to_chip = &place->right_to_chip,
                           .to_me = &place->chip_to_right,
                           .bell_to_peer = &place->from_chip};
    /* Write-combined stores leave as TLPs of a fill buffer each. */
    a->stores.mps_bytes = LINE_BYTES;
    b->stores.mps_bytes = LINE_BYTES;
}

static void open_port(struct node_end *end, unsigned side, size_t inbox_bytes)
{
    end->port = (struct via_port){
        .ops = &port_ops,
        .caps = {.window_bytes = inbox_bytes, .inbox_bytes = inbox_bytes, .store_bytes_max = 64},
        .inbox = sim_alloc_lines(inbox_bytes),
        .side = side,
    };
}

static void build_host(struct node_host *host)
{
    struct node_ring *ring = host->ring;
    struct sim_cpu_config cpu;
    struct via_node_config config;
    const struct via_node_env env = {.ctx = host,
                                     .deliver = sim_still_deliver,
                                     .complete = on_complete,
                                     .notify = sim_still_notify,
                                     .wake = on_wake};
    sim_cpu_config_read(ring->scenario, "cpu", &cpu);
    sim_cpu_init(&host->cpu, &ring->cost, &cpu,
                 sim_scenario_count(ring->scenario, "ring", "seed") + host->index);
    sim_memory_init(&host->memory, &ring->cost, ring->scenario);
    via_node_config_init(&config);
    config.host = (uint16_t)host->index;
    config.hosts_max = SIM_RING_HOSTS_MAX;
    config.session = 0x1000 + host->index;
    config.ports_count = 2;
    config.channels_count = (uint8_t)ring->run.threads_count;
    size_t bytes = via_node_bytes(&config);
    host->node_memory = sim_alloc_lines(bytes);
    if (bytes == 0 || via_node_init(&host->node, host->node_memory, &config, &env) != 0) {
        abort();
    }
    open_port(&host->right, 0, via_node_inbox_bytes(&config));
    open_port(&host->left, 1, via_node_inbox_bytes(&config));
    host->source = sim_alloc_lines(ring->run.bytes);
    host->segment = sim_alloc_lines(ring->run.bytes);
    if (via_node_port_set(host->node, 0, &host->right.port) != 0 ||
        via_node_port_set(host->node, 1, &host->left.port) != 0 ||
        via_node_segment_add(host->node, host->segment, ring->run.bytes,
                             VIA_SEGMENT_READ | VIA_SEGMENT_WRITE, 1 + host->index,
                             &host->segment_handle) != 0) {
        abort();
    }
}

static void build(struct node_ring *ring)
{
    const struct sim_scenario *scenario = ring->scenario;
    ring->line_ps = sim_scenario_ps(scenario, "viaduct", "line_store");
    ring->fill_bytes = sim_scenario_count(scenario, "viaduct", "fill_buffers") * LINE_BYTES;
    ring->fence_ps = sim_scenario_ps(scenario, "software", "fence");
    ring->submit_ps = sim_scenario_ps(scenario, "viaduct", "submit");
    ring->turn_ps = sim_scenario_ps(scenario, "viaduct", "turn");
    ring->frame_ps = sim_scenario_ps(scenario, "viaduct", "frame");
    ring->spin_ps = sim_scenario_ps(scenario, "viaduct", "spin");
    ring->store_ps = sim_scenario_ps(scenario, "software", "register_store");
    ring->handler_ps = sim_scenario_ps(scenario, "software", "handler");
    sim_cost_init(&ring->cost);
    sim_ring_net_init(&ring->net, &ring->cost, scenario, ring->run.hosts_count);
    ring->read_ps = sim_ring_net_read_ps(&ring->net);
    for (unsigned i = 0; i < ring->run.hosts_count; i++) {
        ring->hosts[i].ring = ring;
        ring->hosts[i].index = i;
    }
    for (unsigned i = 0; i < ring->run.hosts_count; i++) {
        link_ends(ring, &ring->hosts[i]);
    }
    for (unsigned i = 0; i < ring->run.hosts_count; i++) {
        build_host(&ring->hosts[i]);
    }
}

static void start(struct node_ring *ring)
{
    unsigned threads = ring->run.threads_count;
    for (unsigned i = 0; i < ring->run.hosts_count; i++) {
        struct node_host *host = &ring->hosts[i];
        for (unsigned k = 0; k < threads; k++) {
            struct node_thread *thread = &host->threads[k];
            thread->host = host;
            thread->channel = k;
            thread->poller.cost = &ring->cost;
            /* The window is shared out: channels are served by different threads. */
            thread->window = ring->run.window / threads + (k < ring->run.window % threads);
            thread->submit_ps = sim_alloc((thread->window + 1) * sizeof(*thread->submit_ps));
            sim_actor_start(&thread->poller.actor, &host->cpu, thread_main, thread);
        }
    }
}

static void gather(struct node_ring *ring, struct sim_ring_result *ret)
{
    *ret = (struct sim_ring_result){.events_count = ring->cost.taken_count};
    for (unsigned i = 0; i < ring->run.hosts_count; i++) {
        struct node_host *host = &ring->hosts[i];
        if (i < ring->run.senders_count) {
            ret->put_ps += (double)(host->last_ps - host->first_ps) / ring->run.puts_count;
            ret->latency_ps += (double)host->latency_ps / (double)host->latencies_count;
        }
    }
    ret->put_ps /= ring->run.senders_count;
    ret->latency_ps /= ring->run.senders_count;
    double lcpus = ring->run.hosts_count * ring->hosts[0].cpu.lcpus_count;
    ret->cpu_percent = 100 * (double)(busy_ps(ring) - ring->busy_from_ps) /
                       (lcpus * (double)(ring->cost.now_ps - ring->from_ps));
}

static void tear_down(struct node_ring *ring)
{
    for (unsigned i = 0; i < ring->run.hosts_count; i++) {
        struct node_host *host = &ring->hosts[i];
        for (unsigned k = 0; k < ring->run.threads_count; k++) {
            sim_actor_fini(&host->threads[k].poller.actor);
            free(host->threads[k].submit_ps);
        }
        free(host->node_memory);
        free(host->source);
        free(host->segment);
        free(host->right.port.inbox);
        free(host->left.port.inbox);
    }
    sim_ring_net_fini(&ring->net);
    sim_cost_fini(&ring->cost);
}

int sim_node_ring_run(const struct sim_scenario *scenario, const struct sim_ring_run *run,
                      struct sim_ring_result *ret_result)
{
    assert(run->threads_count <= VIA_CHANNELS_MAX && run->threads_count <= SIM_RING_THREADS_MAX);
    struct node_ring *ring = sim_alloc(sizeof(*ring));
    ring->scenario = scenario;
    ring->run = *run;
    build(ring);
    start(ring);
    while (!ring->stopping && sim_cost_step(&ring->cost)) {
    }
    assert(ring->stopping);
    gather(ring, ret_result);
    sim_cost_run(&ring->cost, UINT64_MAX);
    int rc = ring->status;
    tear_down(ring);
    free(ring);
    return rc;
}
