/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/machine/machine.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "core/node.h"
#include "sim/cost/still.h"
#include "sim/cost/transfer.h"
#include "sim/memory.h"
#include "wire/frame.h"
#include "wire/record.h"

static const struct sim_key keys[] = {
    {"put", SIM_BANDWIDTH, 1e6, 1e12, NULL},  /* copies into what another processor reads */
    {"near", SIM_BANDWIDTH, 1e6, 1e12, NULL}, /* copies where both sides are on one processor */
    {"line", SIM_TIME, 0, 1e12, NULL},        /* a cache line from one core to another */
    {"bell", SIM_TIME, 0, 1e12, NULL},        /* of who rings: the call that wakes a thread */
    {"queue", SIM_TIME, 0, 1e12, NULL},       /* the same for a thread of the caller's processor */
    {"kick", SIM_TIME, 0, 1e12, NULL},        /* until a woken thread is put on a busy processor */
    {"submit", SIM_TIME, 0, 1e12, NULL},      /* an operation into its host's pipe */
    {"turn", SIM_TIME, 1e3, 1e12, NULL},      /* a turn of a transfer thread that finds nothing */
    {"frame", SIM_TIME, 0, 1e12, NULL},       /* each thing that it finds, copying aside */
    {"spin", SIM_TIME, 0, 1e9, NULL}, /* how long a transfer thread may learn to look for work */
    {"client_spin", SIM_TIME, 0, 1e9, NULL}, /* and a client, before they sleep */
    {"pinned", SIM_COUNT, 0, 1, NULL},   /* host i on processor i modulo their number, client too */
    {"window", SIM_COUNT, 1, 256, NULL}, /* puts of a client under way */
    {"seed", SIM_COUNT, 0, 1e9, NULL},   /* of the wake-up times */
};
static const struct sim_section machine_section = {"machine", false, keys, VIA_ARRAY_COUNT(keys)};
const struct sim_section *const sim_machine_sections[] = {&sim_cpu_section, &sim_memory_section,
                                                          &machine_section};
const size_t sim_machine_sections_count = VIA_ARRAY_COUNT(sim_machine_sections);

struct machine;
struct host;

struct thread {
    struct sim_transfer transfer; /* first */
    struct host *host;
    unsigned queued;               /* operations in its clients' pipe */
    bool is_full;                  /* the node takes no more until one ends */
    uint64_t body_bytes;           /* that others have put, their record not yet */
    uint64_t copyable_bytes;       /* that are for this host: to be copied to their place */
    const struct sim_lcpu *writer; /* where they were put */
};

struct end {
    struct via_port port; /* first */
    struct host *host;
    struct end *peer;
    uint32_t *scratchpads; /* of the link */
    uint64_t events;
};

struct client {
    struct sim_actor actor;
    struct host *host;
    struct via_host_spin spin;
    uint64_t seen_count; /* times that completions have shown */
    uint64_t ticket;     /* of the end of its polling */
    bool polling;
    unsigned under_way;
    uint64_t done;
    uint64_t first_ps, last_ps;
    bool touched; /* completions that it has not been shown */
    bool finished;
};

struct host {
    struct machine *machine;
    unsigned index;
    void *node_memory; /* owned */
    struct via_node *node;
    struct end right, left;
    struct thread threads[SIM_MACHINE_CHANNELS_MAX];
    struct client client;
    unsigned char *segment, *source; /* owned */
    uint64_t segment_handle;
};

struct machine {
    struct sim_machine_run run;
    struct sim_cost cost;
    struct sim_cpu cpu;
    struct sim_memory memory;
    struct host hosts[SIM_MACHINE_HOSTS_MAX];
    uint32_t scratchpads[SIM_MACHINE_HOSTS_MAX][VIA_PORT_SCRATCHPADS];
    double put_rate, near_rate;
    uint64_t line_ps, bell_ps, submit_ps, turn_ps, frame_ps, queue_ps, spin_ps, client_spin_ps;
    unsigned window, finished_count, warmup_count;
    bool pinned;
    bool stopping;
    int status;
};

/* --- who sees what ---------------------------------------------------------------------------- */

static void shown_to_thread(void *object, uint64_t arg)
{
    struct thread *thread = object;
    (void)arg;
    sim_transfer_show(&thread->transfer);
}

/* Something is in memory: who polls it sees it a cache line's way later. */
static void show_to_thread(struct thread *thread)
{
    struct machine *machine = thread->host->machine;
    sim_cost_after(&machine->cost, machine->line_ps, (struct sim_call){shown_to_thread, thread, 0});
}

static void shown_to_client(void *object, uint64_t arg)
{
    struct client *client = object;
    (void)arg;
    client->seen_count++;
    if (client->polling) {
        client->polling = false;
        client->ticket++;
        sim_cost_after(&client->host->machine->cost, 0, sim_fiber_call(&client->actor.fiber));
    } else if (client->actor.asleep) {
        /* It has gone to sleep while the line was on its way: it looks again after arming. */
        sim_actor_wake(&client->actor);
    }
}

/* What the call costs that wakes a thread: more when another processor has to be told. */
static uint64_t bell_ps(const struct machine *machine, const struct sim_actor *woken)
{
    bool told = sim_cpu_is_notified(&machine->cpu, &woken->task);
    return told ? machine->bell_ps : machine->queue_ps;
}

static void work(struct thread *thread, uint64_t work_ps)
{
    sim_actor_work(&thread->transfer.actor, work_ps);
}

/* At the rate of two processors' caches, unless the other side is on this one. */
static void copy(struct thread *thread, uint64_t bytes, const struct sim_lcpu *other,
                 double far_rate)
{
    struct machine *machine = thread->host->machine;
    struct sim_actor *actor = &thread->transfer.actor;
    double rate = actor->task.lcpu == other ? machine->near_rate : far_rate;
    sim_actor_copy_at(actor, &machine->memory, bytes, rate);
}

/* --- the port -------------------------------------------------------------------------------- */

static struct end *end_of(struct via_port *port)
{
    return (struct end *)port;
}

/* Channel 0's does what a control thread does. */
static struct thread *thread_of(struct host *host, unsigned queue)
{
    return &host->threads[queue == VIA_PORT_QUEUE_CONTROL ? 0 : queue];
}

/* A record says for whom the body before it is; a relay sends it on from where it is. */
static void arrived(struct thread *reader, const void *data, size_t bytes)
{
    if (bytes != VIA_RECORD_LINE_BYTES) {
        reader->body_bytes += bytes > VIA_RECORD_LINE_BYTES ? bytes : 0;
        return;
    }
    struct via_frame_header header;
    memcpy(&header, data, sizeof(header));
    if (header.destination == reader->host->index) {
        reader->copyable_bytes += reader->body_bytes;
    }
    reader->body_bytes = 0;
}

static void port_post(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                      size_t len)
{
    struct end *end = end_of(port);
    struct machine *machine = end->host->machine;
    struct thread *thread = thread_of(end->host, queue);
    struct thread *reader = thread_of(end->peer->host, queue);
    assert(off + len <= port->caps.window_bytes);
    if (len > VIA_CACHELINE) {
        copy(thread, len, reader->transfer.actor.task.lcpu, machine->put_rate);
        reader->writer = thread->transfer.actor.task.lcpu;
    }
    memcpy(end->peer->port.inbox + off, src, len);
    arrived(reader, src, len);
    show_to_thread(reader);
}

static int port_ring(struct via_port *port, unsigned queue, unsigned bit)
{
    struct end *end = end_of(port);
    struct machine *machine = end->host->machine;
    struct thread *woken = &end->peer->host->threads[bit < machine->run.channels_count ? bit : 0];
    end->peer->events |= VIA_PORT_EVENT_DOORBELL(bit);
    work(thread_of(end->host, queue), bell_ps(machine, &woken->transfer.actor));
    sim_transfer_ring(&woken->transfer);
    return 0;
}

static uint64_t port_events(struct via_port *port, uint64_t mask)
{
    struct end *end = end_of(port);
    uint64_t events = end->events & mask;
    end->events &= ~mask;
    return events;
}

static uint32_t port_scratchpad_read(struct via_port *port, unsigned index)
{
    return end_of(port)->scratchpads[index];
}

static void port_scratchpad_write(struct via_port *port, unsigned index, uint32_t value)
{
    end_of(port)->scratchpads[index] = value;
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

/* --- what the node calls --------------------------------------------------------------------- */

static void on_complete(void *ctx, unsigned channel, uint64_t cookie, int status, uint64_t value)
{
    struct host *host = ctx;
    struct machine *machine = host->machine;
    struct client *client = &host->client;
    (void)cookie;
    (void)value;
    host->threads[channel].is_full = false;
    machine->status = status != 0 ? -EPROTO : machine->status;
    client->under_way--;
    client->done++;
    if (client->done == machine->warmup_count) {
        client->first_ps = machine->cost.now_ps;
    } else if (client->done == machine->warmup_count + machine->run.ops_count) {
        client->last_ps = machine->cost.now_ps;
        client->finished = true;
        machine->finished_count++;
    }
    client->touched = true;
}

static void on_wake(void *ctx, unsigned channel)
{
    struct host *host = ctx;
    sim_transfer_ring(&host->threads[channel].transfer);
}

/* --- clients --------------------------------------------------------------------------------- */

static void stop(struct machine *machine)
{
    machine->stopping = true;
    for (unsigned i = 0; i < machine->run.hosts_count; i++) {
        for (unsigned k = 0; k < machine->run.channels_count; k++) {
            sim_transfer_ring(&machine->hosts[i].threads[k].transfer);
        }
        if (i < machine->run.clients_count) {
            shown_to_client(&machine->hosts[i].client, 0);
            sim_actor_wake(&machine->hosts[i].client.actor);
        }
    }
}

/* Into the pipe of one channel after the other. */
static void client_submit(struct client *client, uint64_t number)
{
    struct machine *machine = client->host->machine;
    struct thread *thread = &client->host->threads[number % machine->run.channels_count];
    sim_actor_work(&client->actor, machine->submit_ps);
    client->under_way++;
    thread->queued++;
    show_to_thread(thread);
    if (thread->transfer.actor.asleep) {
        sim_actor_work(&client->actor, bell_ps(machine, &thread->transfer.actor));
        sim_actor_wake(&thread->transfer.actor);
    }
}

static void polled_long_enough(void *object, uint64_t ticket)
{
    struct client *client = object;
    if (client->polling && ticket == client->ticket) {
        client->polling = false;
        sim_cost_after(&client->host->machine->cost, 0, sim_fiber_call(&client->actor.fiber));
    }
}

/* As lead() of host/client_wait.c. */
static void client_wait(struct client *client, uint64_t seen_count)
{
    struct sim_cost *cost = &client->host->machine->cost;
    uint64_t since_ps = cost->now_ps;
    if (client->spin.budget_ns > 0 && client->seen_count == seen_count) {
        client->polling = true;
        sim_cost_after(cost, client->spin.budget_ns * SIM_NS_PS,
                       (struct sim_call){polled_long_enough, client, client->ticket});
        sim_actor_stall(&client->actor);
    }
    bool found = client->seen_count != seen_count;
    if (!found) {
        sim_actor_sleep(&client->actor);
    }
    via_host_spin_learn(&client->spin, (cost->now_ps - since_ps) / SIM_NS_PS, found);
}

static void client_main(void *arg)
{
    struct client *client = arg;
    struct machine *machine = client->host->machine;
    unsigned window = machine->run.get ? 1 : machine->window;
    uint64_t submitted = 0;
    while (machine->finished_count < machine->run.clients_count) {
        uint64_t seen_count = client->seen_count;
        if (client->under_way < window) {
            client_submit(client, submitted++);
        } else {
            client_wait(client, seen_count);
        }
    }
    if (!machine->stopping) {
        stop(machine);
    }
    sim_task_sleep(&client->actor.task);
}

/* --- transfer threads ------------------------------------------------------------------------ */

/* What is in the pipe, as far as the node takes it. */
static unsigned serve(struct thread *thread)
{
    struct host *host = thread->host;
    struct machine *machine = host->machine;
    const struct sim_machine_run *run = &machine->run;
    struct host *far = &machine->hosts[(host->index + run->distance) % run->hosts_count];
    unsigned served = 0;
    const struct via_op op = {
        .kind = run->get ? VIA_OP_GET : VIA_OP_PUT,
        .destination = (uint16_t)far->index,
        .segment = far->segment_handle,
        .source = host->source,
        .result = host->source,
        .bytes = run->bytes,
    };
    while (thread->queued > 0 && !thread->is_full) {
        thread->is_full = via_node_submit(host->node, thread->transfer.channel, &op) != 0;
        thread->queued -= thread->is_full ? 0 : 1;
        served += thread->is_full ? 0 : 1;
    }
    return served;
}

static unsigned begin_turn(struct sim_transfer *transfer)
{
    struct thread *thread = (struct thread *)transfer;
    struct machine *machine = thread->host->machine;
    unsigned served = serve(thread);
    uint64_t bytes = thread->copyable_bytes;
    thread->copyable_bytes = 0;
    work(thread, machine->turn_ps);
    if (bytes > 0) {
        copy(thread, bytes, thread->writer, machine->memory.copy_rate);
    }
    return served;
}

/* As flush_touched() of host/host_transfer.c: completions show at the end of a turn. */
static void end_turn(struct sim_transfer *transfer, unsigned done)
{
    struct thread *thread = (struct thread *)transfer;
    struct machine *machine = thread->host->machine;
    struct client *client = &thread->host->client;
    work(thread, done * machine->frame_ps);
    if (!client->touched) {
        return;
    }
    client->touched = false;
    sim_cost_after(&machine->cost, machine->line_ps, (struct sim_call){shown_to_client, client, 0});
    if (client->actor.asleep) {
        work(thread, bell_ps(machine, &client->actor));
        sim_actor_wake(&client->actor);
    }
}

static bool has_commands(const struct sim_transfer *transfer)
{
    const struct thread *thread = (const struct thread *)transfer;
    return thread->queued > 0 && !thread->is_full;
}

static const struct sim_transfer_ops transfer_ops = {begin_turn, end_turn, has_commands};

/* --- the whole ------------------------------------------------------------------------------- */

static void open_port(struct end *end, struct host *host, struct end *peer, uint32_t *scratchpads,
                      unsigned side, size_t inbox_bytes)
{
    *end = (struct end){
        .port = {.ops = &port_ops,
                 .caps = {.window_bytes = inbox_bytes,
                          .inbox_bytes = inbox_bytes,
                          .store_bytes_max = VIA_CACHELINE,
                          .coherent = true},
                 .inbox = sim_alloc_lines(inbox_bytes),
                 .side = side},
        .host = host,
        .peer = peer,
        .scratchpads = scratchpads,
    };
}

static void build_host(struct host *host)
{
    struct machine *machine = host->machine;
    const struct sim_machine_run *run = &machine->run;
    struct host *next = &machine->hosts[(host->index + 1) % run->hosts_count];
    struct host *previous =
        &machine->hosts[(host->index + run->hosts_count - 1) % run->hosts_count];
    struct via_node_config config;
    const struct via_node_env env = {.ctx = host,
                                     .deliver = sim_still_deliver,
                                     .complete = on_complete,
                                     .notify = sim_still_notify,
                                     .wake = on_wake};
    via_node_config_init(&config);
    config.host = (uint16_t)host->index;
    config.hosts_max = SIM_MACHINE_HOSTS_MAX;
    config.session = 0x1000 + host->index;
    config.ports_count = 2;
    config.channels_count = (uint8_t)run->channels_count;
    size_t bytes = via_node_bytes(&config);
    size_t inbox_bytes = via_node_inbox_bytes(&config);
    host->node_memory = sim_alloc_lines(bytes);
    host->source = sim_alloc_lines(run->bytes);
    host->segment = sim_alloc_lines(run->bytes);
    open_port(&host->right, host, &next->left, machine->scratchpads[host->index], 0, inbox_bytes);
    open_port(&host->left, host, &previous->right, machine->scratchpads[previous->index], 1,
              inbox_bytes);
    if (bytes == 0 || via_node_init(&host->node, host->node_memory, &config, &env) != 0 ||
        via_node_port_set(host->node, 0, &host->right.port) != 0 ||
        via_node_port_set(host->node, 1, &host->left.port) != 0 ||
        via_node_segment_add(host->node, host->segment, run->bytes,
                             VIA_SEGMENT_READ | VIA_SEGMENT_WRITE, 1 + host->index,
                             &host->segment_handle) != 0) {
        abort();
    }
}

static void build(struct machine *machine, const struct sim_scenario *scenario)
{
    struct sim_cpu_config cpu;
    sim_cpu_config_read(scenario, "cpu", &cpu);
    machine->put_rate = sim_scenario_number(scenario, "machine", "put");
    machine->near_rate = sim_scenario_number(scenario, "machine", "near");
    machine->line_ps = sim_scenario_ps(scenario, "machine", "line");
    machine->bell_ps = sim_scenario_ps(scenario, "machine", "bell");
    machine->submit_ps = sim_scenario_ps(scenario, "machine", "submit");
    machine->turn_ps = sim_scenario_ps(scenario, "machine", "turn");
    machine->frame_ps = sim_scenario_ps(scenario, "machine", "frame");
    machine->queue_ps = sim_scenario_ps(scenario, "machine", "queue");
    if (cpu.cores_count > 1) {
        machine->spin_ps = sim_scenario_ps(scenario, "machine", "spin");
        machine->client_spin_ps = sim_scenario_ps(scenario, "machine", "client_spin");
    }
    machine->pinned = sim_scenario_count(scenario, "machine", "pinned") != 0;
    machine->window = (unsigned)sim_scenario_count(scenario, "machine", "window");
    machine->warmup_count = machine->run.get ? 4 : machine->window;
    sim_cost_init(&machine->cost);
    cpu.preempts = true;
    cpu.kick_ps = sim_scenario_ps(scenario, "machine", "kick");
    sim_cpu_init(&machine->cpu, &machine->cost, &cpu,
                 sim_scenario_count(scenario, "machine", "seed"));
    sim_memory_init(&machine->memory, &machine->cost, scenario);
    for (unsigned i = 0; i < machine->run.hosts_count; i++) {
        machine->hosts[i].machine = machine;
        machine->hosts[i].index = i;
    }
    for (unsigned i = 0; i < machine->run.hosts_count; i++) {
        build_host(&machine->hosts[i]);
    }
}

static void start_client(struct host *host, unsigned home)
{
    struct machine *machine = host->machine;
    struct client *client = &host->client;
    client->host = host;
    via_host_spin_init(&client->spin, machine->client_spin_ps / SIM_NS_PS);
    if (machine->pinned) {
        sim_actor_start_on(&client->actor, &machine->cpu, home, client_main, client);
    } else {
        sim_actor_start(&client->actor, &machine->cpu, client_main, client);
    }
}

/* The hosts take turns with the processors, if they are to stay where they are. */
static void start(struct machine *machine)
{
    for (unsigned i = 0; i < machine->run.hosts_count; i++) {
        struct host *host = &machine->hosts[i];
        unsigned home = machine->pinned ? i % machine->cpu.lcpus_count : SIM_LCPUS_MAX;
        for (unsigned k = 0; k < machine->run.channels_count; k++) {
            struct thread *thread = &host->threads[k];
            thread->host = host;
            thread->transfer = (struct sim_transfer){.node = host->node,
                                                     .first = &host->threads[0].transfer,
                                                     .ops = &transfer_ops,
                                                     .stopping = &machine->stopping,
                                                     .channel = k};
            sim_transfer_start(&thread->transfer, &machine->cpu, home, machine->spin_ps);
        }
        if (i < machine->run.clients_count) {
            start_client(host, home);
        }
    }
}

static void tear_down(struct machine *machine)
{
    for (unsigned i = 0; i < machine->run.hosts_count; i++) {
        struct host *host = &machine->hosts[i];
        for (unsigned k = 0; k < machine->run.channels_count; k++) {
            sim_actor_fini(&host->threads[k].transfer.actor);
        }
        if (i < machine->run.clients_count) {
            sim_actor_fini(&host->client.actor);
        }
        free(host->node_memory);
        free(host->source);
        free(host->segment);
        free(host->right.port.inbox);
        free(host->left.port.inbox);
    }
    sim_cost_fini(&machine->cost);
}

int sim_machine_run(const struct sim_scenario *scenario, const struct sim_machine_run *run,
                    struct sim_machine_result *ret_result)
{
    assert(run->hosts_count >= 3 && run->hosts_count <= SIM_MACHINE_HOSTS_MAX);
    assert(run->channels_count <= SIM_MACHINE_CHANNELS_MAX &&
           run->clients_count <= run->hosts_count);
    struct machine *machine = sim_alloc(sizeof(*machine));
    machine->run = *run;
    build(machine, scenario);
    start(machine);
    while (!machine->stopping && sim_cost_step(&machine->cost)) {
    }
    assert(machine->stopping);
    *ret_result = (struct sim_machine_result){.events_count = machine->cost.taken_count};
    for (unsigned i = 0; i < run->clients_count; i++) {
        const struct client *client = &machine->hosts[i].client;
        ret_result->op_ps +=
            (double)(client->last_ps - client->first_ps) / run->ops_count / run->clients_count;
    }
    int rc = machine->status;
    tear_down(machine);
    free(machine);
    return rc;
}
