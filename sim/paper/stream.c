/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/paper/stream.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/types.h"
#include "sim/memory.h"

#define EVENTS_MAX UINT64_C(100000000)

struct end {
    struct sim_cpu cpu;
    struct sim_memory memory;
    struct sim_actor actor;
    struct sim_path to_chip, from_chip;
};

struct stream {
    const struct sim_scenario *scenario;
    struct sim_cost cost;
    struct sim_net net;
    struct sim_dma dma;
    struct end sender, receiver;
    enum sim_stream_mode mode;
    uint64_t bytes;
    uint64_t writes_count, warmup_count;
    struct sim_pool buffers;    /* doorbell mode: free ones */
    uint64_t dma_done_count;    /* finished DMAs: the chip's in-progress bit */
    uint64_t read_count;        /* writes that the receiver has read: the scratchpad in the chip */
    uint64_t bells_count;       /* writes announced to the receiver */
    uint64_t first_ps, last_ps; /* measured from and to */
    uint64_t first_busy_ps, last_busy_ps;
    struct sim_spread phases; /* of polls */
    uint64_t interval_ps;     /* a poll's interval: the poll itself and the pause after it */
};

static uint64_t parameter(const struct stream *stream, const char *key)
{
    return sim_scenario_ps(stream->scenario, "stream", key);
}

static uint64_t software(const struct stream *stream, const char *key)
{
    return sim_scenario_ps(stream->scenario, "software", key);
}

/* --- the chip -------------------------------------------------------------------------------- */

static void ring(struct stream *stream, struct end *from, struct end *to, struct sim_call arrived)
{
    sim_actor_work(&from->actor, software(stream, "register_store"));
    sim_net_ring(&stream->net, &from->to_chip, &to->from_chip, arrived);
}

static void bell_handled(void *object, uint64_t arg)
{
    (void)arg;
    struct stream *stream = object;
    stream->bells_count++;
    sim_actor_wake(&stream->receiver.actor);
}

static void bell_arrived(void *object, uint64_t arg)
{
    (void)arg;
    struct stream *stream = object;
    sim_cpu_interrupt(&stream->receiver.cpu, 0, software(stream, "handler"),
                      (struct sim_call){bell_handled, stream, 0});
}

/* Doorbell mode: the handler of the engine's interrupt rings for the sender. */
static void dma_handled(void *object, uint64_t arg)
{
    (void)arg;
    struct stream *stream = object;
    sim_net_ring(&stream->net, &stream->sender.to_chip, &stream->receiver.from_chip,
                 (struct sim_call){bell_arrived, stream, 0});
}

static void dma_interrupt(void *object, uint64_t arg)
{
    (void)arg;
    struct stream *stream = object;
    sim_cpu_interrupt(&stream->sender.cpu, 0,
                      software(stream, "handler") + software(stream, "register_store"),
                      (struct sim_call){dma_handled, stream, 0});
}

static void dma_done(void *object, uint64_t arg)
{
    (void)arg;
    struct stream *stream = object;
    stream->dma_done_count++;
    if (stream->mode == SIM_STREAM_DOORBELL) {
        sim_net_post(&stream->net, &(struct sim_post){.path = &stream->sender.from_chip,
                                                      .bytes = 4,
                                                      .arrived = {dma_interrupt, stream, 0}});
    }
}

static void dma_start(void *object, uint64_t arg)
{
    (void)arg;
    struct stream *stream = object;
    sim_dma_start(&stream->dma, 0,
                  &(struct sim_dma_transfer){.to_source = &stream->sender.from_chip,
                                             .from_source = &stream->sender.to_chip,
                                             .to_target = &stream->receiver.from_chip,
                                             .bytes = stream->bytes,
                                             .done = {dma_done, stream, 0}});
}

static void read_noted(void *object, uint64_t count)
{
    struct stream *stream = object;
    stream->read_count = via_max(stream->read_count, count);
}

static void buffer_freed(void *object, uint64_t arg)
{
    (void)arg;
    struct stream *stream = object;
    sim_pool_give(&stream->buffers, 1);
}

static void free_arrived(void *object, uint64_t arg)
{
    (void)arg;
    struct stream *stream = object;
    sim_cpu_interrupt(&stream->sender.cpu, 0, software(stream, "handler"),
                      (struct sim_call){buffer_freed, stream, 0});
}

/* Phase of a poll, in [0, 1): its place in the interval. */
static double phase(struct stream *stream)
{
    return exp(-sim_spread_draw(&stream->phases));
}

/* --- the sender ------------------------------------------------------------------------------ */

/*
 * Polls a register of the chip, a round trip each time, until it has at least this value. Software
 * times vary by more than a poll's interval from write to write, so the first poll comes at a
 * random phase of it: an arrival is found half an interval late on average, whatever the transfer
 * took. With a fixed phase a longer cable could make a transfer end just before a poll instead of
 * after it.
 */
static void poll_until(struct stream *stream, const uint64_t *reg, uint64_t count)
{
    struct sim_actor *actor = &stream->sender.actor;
    sim_actor_work(actor, (uint64_t)((double)stream->interval_ps * phase(stream)));
    for (;;) {
        sim_actor_work(actor, software(stream, "register_read"));
        sim_net_read(&stream->net, &stream->sender.to_chip, &stream->sender.from_chip, 4,
                     sim_fiber_call(&actor->fiber));
        sim_actor_stall(actor);
        if (*reg >= count) {
            return;
        }
        sim_actor_work(actor, parameter(stream, "poll"));
    }
}

static void sender_main(void *arg)
{
    struct stream *stream = arg;
    struct sim_actor *actor = &stream->sender.actor;
    uint64_t stores = sim_scenario_count(stream->scenario, "stream", "dma_stores");
    for (uint64_t i = 0; i < stream->warmup_count + stream->writes_count; i++) {
        sim_actor_work(actor, parameter(stream, "syscall") + parameter(stream, "lookup"));
        if (stream->mode == SIM_STREAM_POLLING) {
            poll_until(stream, &stream->read_count, i);
        } else {
            sim_actor_take(actor, &stream->buffers);
        }
        sim_actor_copy(actor, &stream->sender.memory, stream->bytes);
        sim_actor_work(actor, stores * software(stream, "register_store"));
        sim_net_post(&stream->net, &(struct sim_post){.path = &stream->sender.to_chip,
                                                      .bytes = 4,
                                                      .arrived = {dma_start, stream, 0}});
        if (stream->mode == SIM_STREAM_POLLING) {
            poll_until(stream, &stream->dma_done_count, i + 1);
            ring(stream, &stream->sender, &stream->receiver,
                 (struct sim_call){bell_arrived, stream, 0});
        }
    }
    sim_task_sleep(&actor->task);
}

/* --- the receiver ---------------------------------------------------------------------------- */

static void publish_read(struct stream *stream, uint64_t count)
{
    struct end *receiver = &stream->receiver;
    if (stream->mode == SIM_STREAM_DOORBELL) {
        ring(stream, receiver, &stream->sender, (struct sim_call){free_arrived, stream, 0});
        return;
    }
    sim_actor_work(&receiver->actor, software(stream, "register_store"));
    sim_net_post(&stream->net, &(struct sim_post){.path = &receiver->to_chip,
                                                  .bytes = 4,
                                                  .arrived = {read_noted, stream, count}});
}

static void receiver_main(void *arg)
{
    struct stream *stream = arg;
    struct sim_actor *actor = &stream->receiver.actor;
    uint64_t all = stream->warmup_count + stream->writes_count;
    for (uint64_t count = 0; count < all; count++) {
        while (stream->bells_count <= count) {
            sim_actor_sleep(actor);
        }
        sim_actor_copy(actor, &stream->receiver.memory, stream->bytes);
        publish_read(stream, count + 1);
        if (count + 1 == stream->warmup_count) {
            stream->first_ps = stream->cost.now_ps;
            stream->first_busy_ps = sim_cpu_busy_ps(&stream->sender.cpu);
        }
        stream->last_ps = stream->cost.now_ps;
        stream->last_busy_ps = sim_cpu_busy_ps(&stream->sender.cpu);
        sim_actor_work(actor, parameter(stream, "syscall"));
    }
    sim_task_sleep(&actor->task);
}

/* --- a run ----------------------------------------------------------------------------------- */

static void end_init(struct stream *stream, struct end *end)
{
    struct sim_cpu_config config;
    sim_cpu_config_read(stream->scenario, "cpu", &config);
    sim_cpu_init(&end->cpu, &stream->cost, &config, 1);
    sim_memory_init(&end->memory, &stream->cost, stream->scenario);
}

static void end_paths(struct stream *stream, struct end *end, const char *name)
{
    unsigned host = (unsigned)sim_net_node(&stream->net, name);
    unsigned chip = (unsigned)sim_net_node(&stream->net, "chip");
    sim_net_way(&stream->net, host, chip, &end->to_chip);
    sim_net_way(&stream->net, chip, host, &end->from_chip);
}

static void stream_free(struct stream *stream)
{
    sim_dma_fini(&stream->dma);
    sim_net_fini(&stream->net);
    sim_cost_fini(&stream->cost);
    free(stream);
}

static struct stream *stream_new(const struct sim_scenario *scenario)
{
    struct stream *stream = sim_alloc(sizeof(*stream));
    stream->scenario = scenario;
    sim_cost_init(&stream->cost);
    sim_net_init(&stream->net, &stream->cost);
    sim_net_build(&stream->net, scenario);
    end_paths(stream, &stream->sender, "sender");
    end_paths(stream, &stream->receiver, "receiver");
    sim_dma_init(&stream->dma, &stream->net, scenario, "dma chip");
    sim_pool_init(&stream->buffers, &stream->cost,
                  sim_scenario_count(scenario, "stream", "buffers"));
    end_init(stream, &stream->sender);
    end_init(stream, &stream->receiver);
    return stream;
}

/* The time of one poll, measured on an idle fabric: no other traffic competes with it. */
static uint64_t poll_ps(struct stream *stream)
{
    uint64_t ended;
    sim_net_read(&stream->net, &stream->sender.to_chip, &stream->sender.from_chip, 4,
                 sim_cost_ending(&ended));
    return sim_cost_wait(&stream->cost, &ended) + software(stream, "register_read") +
           parameter(stream, "poll");
}

void sim_stream_run(const struct sim_scenario *scenario, enum sim_stream_mode mode, uint64_t bytes,
                    struct sim_stream_result *ret_result)
{
    struct stream *stream = stream_new(scenario);
    stream->mode = mode;
    stream->bytes = bytes;
    stream->writes_count =
        sim_scenario_count(scenario, "stream", bytes >= 262144 ? "large_writes" : "writes");
    stream->warmup_count = 2;
    sim_spread_init(&stream->phases, 1);
    stream->interval_ps = poll_ps(stream);
    sim_actor_start(&stream->receiver.actor, &stream->receiver.cpu, receiver_main, stream);
    sim_actor_start(&stream->sender.actor, &stream->sender.cpu, sender_main, stream);
    bool ended = sim_cost_run(&stream->cost, EVENTS_MAX);
    assert(ended);
    double total = (double)(bytes * stream->writes_count);
    double busy_ps = (double)(stream->last_busy_ps - stream->first_busy_ps);
    ret_result->rate = total * (double)SIM_SEC_PS / (double)(stream->last_ps - stream->first_ps);
    ret_result->cpu_ps = busy_ps / (double)stream->writes_count;
    sim_actor_fini(&stream->sender.actor);
    sim_actor_fini(&stream->receiver.actor);
    stream_free(stream);
}

double sim_stream_latency(const struct sim_scenario *scenario)
{
    struct stream *stream = stream_new(scenario);
    struct sim_path path;
    uint64_t ended;
    sim_net_way(&stream->net, stream->sender.to_chip.from, stream->receiver.to_chip.from, &path);
    sim_net_post(&stream->net,
                 &(struct sim_post){.path = &path, .bytes = 8, .arrived = sim_cost_ending(&ended)});
    double seconds = (double)sim_cost_wait(&stream->cost, &ended) / (double)SIM_SEC_PS;
    stream_free(stream);
    return seconds;
}
