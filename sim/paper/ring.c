/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/paper/ring.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/types.h"
#include "sim/cost/spread.h"
#include "sim/memory.h"

/* --- the machine ----------------------------------------------------------------------------- */

struct request {
    struct via_list queued;
    struct ring_host *source;
    uint64_t bytes;     /* bytes that the request moves now */
    uint64_t submit_ps; /* accepted from the program */
    uint64_t step_ps;   /* when the step it is in began */
};

struct thread;

/* Steps whose times vary, each with draws of its own. */
enum spread { TAKE, TRANSLATION, HANDLER, COPY_IN, COPY_OUT, SPREADS_COUNT };

struct ring_host {
    struct ring *ring;
    unsigned index;
    struct ring_host *right;
    const struct sim_ring_place *place;
    struct sim_spread spreads[SPREADS_COUNT];
    struct sim_cpu cpu;
    struct sim_memory memory;
    struct sim_dma dma;           /* of the chip on the right */
    struct sim_pool port;         /* the owner runs its DMA channel and its registers */
    struct sim_pool scratchpads;  /* the one set: free when the neighbour has read it */
    struct via_list own, relayed; /* struct request, to be taken */
    struct thread *threads[SIM_RING_THREADS_MAX];
    struct sim_actor program;
    unsigned under_way, submitted, done;
    bool sends;
    uint64_t first_ps, last_ps; /* when measuring began, and when the last put ended */
    uint64_t latency_ps;
};

/* A data doorbell towards the right, with its part of the shared region: the transfer thread that
 * uses it, and the service thread of the doorbell from the left. */
struct thread {
    struct ring_host *host;
    unsigned index;
    struct sim_actor transfer, service;
    struct sim_pool doorbell;
    bool idle;
    struct request *incoming; /* for the service thread */
};

struct ring {
    const struct sim_scenario *scenario;
    struct sim_ring_run run;
    struct sim_cost cost;
    struct sim_ring_net net;
    unsigned hosts_count, finished_count;
    bool stopping;
    struct ring_host hosts[SIM_RING_HOSTS_MAX];
    struct thread threads[SIM_RING_HOSTS_MAX][SIM_RING_THREADS_MAX];
    struct request *requests; /* owned; window of them per host */
    uint64_t submit_ps, take_ps, handoff_ps, translation_ps, store_ps, handler_ps;
    double spread, copy_spread;
    uint64_t dma_stores, block_bytes, scratchpads_count;
    uint64_t dma_ps[2];      /* of a whole block, and of the rest of a transfer */
    uint64_t core_read_ps;   /* cost of a register read besides the path through the fabric */
    uint64_t remote_read_ps; /* total cost of a register read across the cable */
    bool acknowledgement_whole;
    uint64_t step_ps[SIM_RING_STEPS];
    uint64_t hops_count;
};

static void build_host(struct ring_host *host, const struct sim_cpu_config *cpu, uint64_t seed)
{
    struct ring *ring = host->ring;
    for (unsigned i = 0; i < SPREADS_COUNT; i++) {
        sim_spread_init(&host->spreads[i],
                        seed + (uint64_t)(i + 1) * SIM_RING_HOSTS_MAX + host->index);
    }
    sim_cpu_init(&host->cpu, &ring->cost, cpu, seed + host->index);
    sim_memory_init(&host->memory, &ring->cost, ring->scenario);
    sim_dma_init(&host->dma, &ring->net.net, ring->scenario, "dma pex");
    sim_pool_init(&host->port, &ring->cost, 1);
    sim_pool_init(&host->scratchpads, &ring->cost, 1);
    via_list_init(&host->own);
    via_list_init(&host->relayed);
}

static void build(struct ring *ring, const struct sim_scenario *scenario, unsigned hosts_count)
{
    struct sim_cpu_config cpu;
    *ring = (struct ring){.scenario = scenario, .hosts_count = hosts_count};
    sim_cost_init(&ring->cost);
    sim_cpu_config_read(scenario, "cpu", &cpu);
    sim_ring_net_init(&ring->net, &ring->cost, scenario, hosts_count);
    for (unsigned i = 0; i < hosts_count; i++) {
        struct ring_host *host = &ring->hosts[i];
        host->ring = ring;
        host->index = i;
        host->place = &ring->net.places[i];
        host->right = &ring->hosts[(i + 1) % hosts_count];
        build_host(host, &cpu, sim_scenario_count(scenario, "ring", "seed"));
    }
    ring->submit_ps = sim_scenario_ps(scenario, "ring", "submit");
    ring->take_ps = sim_scenario_ps(scenario, "ring", "take");
    ring->handoff_ps = sim_scenario_ps(scenario, "ring", "handoff");
    ring->translation_ps = sim_scenario_ps(scenario, "ring", "translation");
    ring->store_ps = sim_scenario_ps(scenario, "software", "register_store");
    ring->handler_ps = sim_scenario_ps(scenario, "software", "handler");
    ring->dma_stores = sim_scenario_count(scenario, "ring", "dma_stores");
    ring->copy_spread = sim_scenario_number(scenario, "ring", "copy_spread");
    ring->spread = sim_scenario_number(scenario, "ring", "spread");
    ring->block_bytes = sim_scenario_count(scenario, "ring", "block");
    ring->scratchpads_count = sim_scenario_count(scenario, "ring", "scratchpads");
    ring->acknowledgement_whole =
        strcmp(sim_scenario_word(scenario, "ring", "acknowledgement"), "whole") == 0;
    /* Measured once, on an idle fabric: register accesses are a small part of the traffic on the
     * links. */
    ring->core_read_ps = sim_scenario_ps(scenario, "software", "register_read");
    ring->remote_read_ps = ring->core_read_ps + sim_ring_net_read_ps(&ring->net);
}

static void tear_down(struct ring *ring)
{
    for (unsigned i = 0; i < ring->hosts_count; i++) {
        sim_dma_fini(&ring->hosts[i].dma);
    }
    sim_ring_net_fini(&ring->net);
    sim_cost_fini(&ring->cost);
}

/* --- software steps: their times vary, with caches, page tables and other work of the host --- */

/* Of mean 1: a fixed part, and an exponential one. */
static double vary(struct ring_host *host, enum spread step)
{
    const struct ring *ring = host->ring;
    double share = step == COPY_IN || step == COPY_OUT ? ring->copy_spread : ring->spread;
    return 1 - share + share * sim_spread_draw(&host->spreads[step]);
}

static void work(struct sim_actor *actor, struct ring_host *host, enum spread step,
                 uint64_t work_ps)
{
    sim_actor_work(actor, (uint64_t)((double)work_ps * vary(host, step)));
}

static void copy(struct sim_actor *actor, struct ring_host *host, enum spread step, uint64_t bytes)
{
    sim_actor_copy(actor, &host->memory, (uint64_t)((double)bytes * vary(host, step)));
}

/* --- registers and the DMA engine, as a thread sees them -------------------------------------- */

static void read_register(struct sim_actor *actor, struct ring_host *host)
{
    struct ring *ring = host->ring;
    sim_actor_work(actor, ring->core_read_ps);
    sim_net_read(&ring->net.net, &host->place->to_chip, &host->place->from_chip, 4,
                 sim_fiber_call(&actor->fiber));
    sim_actor_stall(actor);
}

static void start_dma(struct ring_host *host, uint64_t bytes, struct sim_call done)
{
    const struct sim_dma_transfer transfer = {
        .to_source = &host->place->from_chip,
        .from_source = &host->place->to_chip,
        .to_target = &host->place->chip_to_right,
        .bytes = bytes,
        .done = done,
    };
    sim_dma_start(&host->dma, 0, &transfer);
}

/* One transfer, TLP by TLP. The port has one owner at a time and no other large traffic crosses its
 * links, so all transfers of that size take equally long, and are modelled only once. */
static uint64_t measure_dma(struct ring *ring, uint64_t bytes)
{
    uint64_t ended;
    if (bytes == 0) {
        return 0;
    }
    start_dma(&ring->hosts[0], bytes, sim_cost_ending(&ended));
    return sim_cost_wait(&ring->cost, &ended);
}

static void dma(struct sim_actor *actor, struct ring_host *host, uint64_t bytes)
{
    struct ring *ring = host->ring;
    sim_actor_work(actor, ring->dma_stores * ring->store_ps);
    sim_memory_traffic(&host->memory, bytes);
    sim_memory_traffic(&host->right->memory, bytes);
    sim_actor_stall_until(actor, ring->cost.now_ps + ring->dma_ps[bytes < ring->block_bytes]);
    read_register(actor, host); /* the poll that finds it done */
}

/* --- requests -------------------------------------------------------------------------------- */

static void enter(struct request *request, enum sim_ring_step left)
{
    struct ring *ring = request->source->ring;
    ring->step_ps[left] += ring->cost.now_ps - request->step_ps;
    request->step_ps = ring->cost.now_ps;
}

static void wake_one(struct ring_host *host)
{
    for (unsigned i = 0; i < host->ring->run.threads_count; i++) {
        struct thread *thread = host->threads[i];
        if (thread->idle) {
            thread->idle = false;
            sim_actor_wake(&thread->transfer);
            return;
        }
    }
}

static void enqueue(struct ring_host *host, struct via_list *queue, struct request *request)
{
    request->step_ps = host->ring->cost.now_ps;
    via_list_push_back(queue, &request->queued);
    wake_one(host);
}

/* First come, first served, from both queues. */
static struct request *take_request(struct ring_host *host)
{
    struct via_list *own = via_list_first(&host->own);
    struct via_list *relayed = via_list_first(&host->relayed);
    struct request *a = own == NULL ? NULL : via_list_entry(own, struct request, queued);
    struct request *b = relayed == NULL ? NULL : via_list_entry(relayed, struct request, queued);
    struct request *first = a == NULL ? b : b == NULL || a->step_ps < b->step_ps ? a : b;
    if (first != NULL) {
        via_list_remove(&first->queued);
    }
    return first;
}

static void finish(struct request *request)
{
    struct ring_host *host = request->source;
    struct ring *ring = host->ring;
    host->under_way--;
    host->done++;
    if (host->done == ring->run.window) {
        host->first_ps = ring->cost.now_ps;
    } else if (host->done > ring->run.window &&
               host->done <= ring->run.window + ring->run.puts_count) {
        host->latency_ps += ring->cost.now_ps - request->submit_ps;
        host->last_ps = ring->cost.now_ps;
        ring->finished_count += host->done == ring->run.window + ring->run.puts_count;
    }
    request->source = NULL;
    sim_actor_wake(&host->program);
}

/* --- to the right ---------------------------------------------------------------------------- */

static void interrupt(void *object, uint64_t arg);

static void pass_on(struct thread *thread, struct request *request)
{
    struct ring_host *host = thread->host;
    struct ring *ring = host->ring;
    struct sim_actor *actor = &thread->transfer;
    enter(request, SIM_RING_QUEUE);
    work(actor, host, TAKE, ring->take_ps);
    enter(request, SIM_RING_TAKE);
    sim_actor_take(actor, &thread->doorbell);
    enter(request, SIM_RING_INTERRUPT);
    copy(actor, host, COPY_IN, request->bytes);
    enter(request, SIM_RING_COPY_IN);
    if (!sim_pool_try(&host->port, 1)) {
        sim_actor_spin_take(actor, &host->port);
        sim_actor_work(actor, ring->handoff_ps);
    }
    enter(request, SIM_RING_PORT);
    if (request->source == host) {
        work(actor, host, TRANSLATION, ring->translation_ps);
    }
    enter(request, SIM_RING_TRANSLATE);
    for (uint64_t left = request->bytes; left > 0;) {
        uint64_t block = via_min(left, ring->block_bytes);
        dma(actor, host, block);
        left -= block;
    }
    enter(request, SIM_RING_DMA);
    sim_actor_spin_take(actor, &host->scratchpads);
    sim_actor_work(actor, ring->scratchpads_count * ring->store_ps);
    enter(request, SIM_RING_SCRATCHPAD);
    sim_actor_work(actor, ring->store_ps);
    host->right->threads[thread->index]->incoming = request;
    sim_net_ring(&ring->net.net, &host->place->to_chip, &host->place->chip_to_right,
                 (struct sim_call){.run = interrupt, .object = host->right, .arg = thread->index});
    sim_pool_give(&host->port, 1);
    ring->hops_count++;
}

static void transfer_main(void *arg)
{
    struct thread *thread = arg;
    for (;;) {
        struct request *request = take_request(thread->host);
        if (request != NULL) {
            pass_on(thread, request);
        } else {
            thread->idle = true;
            sim_actor_sleep(&thread->transfer);
        }
    }
}

/* --- from the left --------------------------------------------------------------------------- */

static void scratchpads_read(void *object, uint64_t arg)
{
    struct ring_host *left = object;
    (void)arg;
    sim_pool_give(&left->scratchpads, 1);
}

static void doorbell_freed(void *object, uint64_t index)
{
    struct ring_host *left = object;
    sim_pool_give(&left->threads[index]->doorbell, 1);
}

/* Sends a word to the left neighbour: the registers of that link are across the cable. */
static void notify_left(struct ring_host *host, void (*then)(void *object, uint64_t arg),
                        uint64_t index)
{
    struct ring *ring = host->ring;
    unsigned left = (host->index + ring->hosts_count - 1) % ring->hosts_count;
    sim_net_post(
        &ring->net.net,
        &(struct sim_post){.path = &ring->hosts[left].place->right_to_chip,
                           .bytes = 4,
                           .arrived = {.run = then, .object = &ring->hosts[left], .arg = index}});
}

static void handled(void *object, uint64_t index)
{
    struct ring_host *host = object;
    enter(host->threads[index]->incoming, SIM_RING_HANDLER);
    notify_left(host, scratchpads_read, 0);
    sim_actor_wake(&host->threads[index]->service);
}

/* The MSI arrives. All vectors of an adapter go to one hardware thread. */
static void interrupt(void *object, uint64_t index)
{
    struct ring_host *host = object;
    struct ring *ring = host->ring;
    enter(host->threads[index]->incoming, SIM_RING_DOORBELL);
    /* It reads the doorbell register and the scratchpads, with the core waiting for each. */
    uint64_t reads_ps = (1 + ring->scratchpads_count) * ring->remote_read_ps;
    sim_cpu_interrupt(&host->cpu, 0,
                      (uint64_t)((double)(ring->handler_ps + reads_ps) * vary(host, HANDLER)),
                      (struct sim_call){.run = handled, .object = host, .arg = index});
}

static void serve(struct thread *thread, struct request *request)
{
    struct ring_host *host = thread->host;
    struct ring *ring = host->ring;
    enter(request, SIM_RING_SERVICE);
    copy(&thread->service, host, COPY_OUT, request->bytes);
    enter(request, SIM_RING_COPY_OUT);
    sim_actor_work(&thread->service, ring->store_ps);
    notify_left(host, doorbell_freed, thread->index);
    if (request->source == host) {
        finish(request);
        return;
    }
    /* Neighbour puts: the first host on the way is the destination; from there on the request is
     * the acknowledgement. */
    if (!ring->acknowledgement_whole) {
        request->bytes = 0;
    }
    enqueue(host, &host->relayed, request);
}

static void service_main(void *arg)
{
    struct thread *thread = arg;
    for (;;) {
        struct request *request = thread->incoming;
        if (request != NULL) {
            thread->incoming = NULL;
            serve(thread, request);
        } else {
            sim_actor_sleep(&thread->service);
        }
    }
}

/* --- the program ----------------------------------------------------------------------------- */

static struct request *free_request(struct ring_host *host)
{
    struct ring *ring = host->ring;
    for (unsigned i = 0;; i++) {
        assert(i < ring->run.window);
        struct request *request = &ring->requests[host->index * ring->run.window + i];
        if (request->source == NULL) {
            return request;
        }
    }
}

static void submit(struct ring_host *host)
{
    struct ring *ring = host->ring;
    struct request *request = free_request(host);
    *request =
        (struct request){.source = host, .bytes = ring->run.bytes, .submit_ps = ring->cost.now_ps};
    via_list_init(&request->queued);
    host->under_way++;
    host->submitted++;
    sim_actor_work(&host->program, ring->submit_ps);
    enqueue(host, &host->own, request);
}

static void program_main(void *arg)
{
    struct ring_host *host = arg;
    for (;;) {
        if (host->under_way < host->ring->run.window && !host->ring->stopping) {
            submit(host);
        } else {
            sim_actor_sleep(&host->program);
        }
    }
}

static void start(struct ring *ring)
{
    for (unsigned i = 0; i < ring->hosts_count; i++) {
        struct ring_host *host = &ring->hosts[i];
        for (unsigned k = 0; k < ring->run.threads_count; k++) {
            struct thread *thread = &ring->threads[i][k];
            thread->host = host;
            thread->index = k;
            host->threads[k] = thread;
            sim_pool_init(&thread->doorbell, &ring->cost, 1);
            sim_actor_start(&thread->service, &host->cpu, service_main, thread);
            sim_actor_start(&thread->transfer, &host->cpu, transfer_main, thread);
        }
        host->sends = i < ring->run.senders_count;
        if (host->sends) {
            sim_actor_start(&host->program, &host->cpu, program_main, host);
        }
    }
}

static void gather(struct ring *ring, struct sim_ring_result *ret)
{
    *ret = (struct sim_ring_result){.events_count = ring->cost.taken_count};
    for (unsigned i = 0; i < ring->hosts_count; i++) {
        struct ring_host *host = &ring->hosts[i];
        double puts = ring->run.puts_count;
        if (host->sends) {
            ret->put_ps += (double)(host->last_ps - host->first_ps) / puts;
            ret->latency_ps += (double)host->latency_ps / puts;
        }
    }
    ret->put_ps /= ring->run.senders_count;
    ret->latency_ps /= ring->run.senders_count;
    for (unsigned s = 0; s < SIM_RING_STEPS; s++) {
        ret->step_ps[s] = (double)ring->step_ps[s] / (double)ring->hops_count;
    }
}

void sim_ring_run(const struct sim_scenario *scenario, const struct sim_ring_run *run,
                  struct sim_ring_result *ret_result)
{
    assert(run->hosts_count <= SIM_RING_HOSTS_MAX && run->threads_count <= SIM_RING_THREADS_MAX);
    struct ring *ring = sim_alloc(sizeof(*ring));
    build(ring, scenario, run->hosts_count);
    ring->run = *run;
    ring->dma_ps[0] = measure_dma(ring, via_min(run->bytes, ring->block_bytes));
    ring->dma_ps[1] = measure_dma(ring, run->bytes % ring->block_bytes);
    ring->requests = sim_alloc((size_t)run->hosts_count * run->window * sizeof(struct request));
    start(ring);
    while (ring->finished_count < run->senders_count && sim_cost_step(&ring->cost)) {
    }
    assert(ring->finished_count == run->senders_count);
    gather(ring, ret_result);
    ring->stopping = true; /* and operations under way end */
    sim_cost_run(&ring->cost, UINT64_MAX);
    for (unsigned i = 0; i < ring->hosts_count; i++) {
        for (unsigned k = 0; k < run->threads_count; k++) {
            sim_actor_fini(&ring->threads[i][k].transfer);
            sim_actor_fini(&ring->threads[i][k].service);
        }
        if (ring->hosts[i].sends) {
            sim_actor_fini(&ring->hosts[i].program);
        }
    }
    tear_down(ring);
    free(ring->requests);
    free(ring);
}

/* --- the engine alone ------------------------------------------------------------------------ */

#define RAW_TRANSFERS 8

static void raw_main(void *arg)
{
    struct ring_host *host = arg;
    struct sim_actor *actor = &host->program;
    struct ring *ring = host->ring;
    host->first_ps = ring->cost.now_ps;
    for (unsigned i = 0; i < RAW_TRANSFERS; i++) {
        sim_actor_work(actor, ring->dma_stores * ring->store_ps);
        start_dma(host, ring->run.bytes, sim_fiber_call(&actor->fiber));
        sim_actor_stall(actor);
        read_register(actor, host);
    }
    host->last_ps = ring->cost.now_ps;
    sim_actor_sleep(actor);
}

double sim_ring_raw_ps(const struct sim_scenario *scenario, uint64_t bytes)
{
    struct ring *ring = sim_alloc(sizeof(*ring));
    build(ring, scenario, 3);
    ring->run.bytes = bytes;
    struct ring_host *host = &ring->hosts[0];
    sim_actor_start(&host->program, &host->cpu, raw_main, host);
    sim_cost_run(&ring->cost, UINT64_MAX);
    double ps = (double)(host->last_ps - host->first_ps) / RAW_TRANSFERS;
    sim_actor_fini(&host->program);
    tear_down(ring);
    free(ring);
    return ps;
}
