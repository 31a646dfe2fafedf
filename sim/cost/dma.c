/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sim/cost/dma.h"

#include <assert.h>
#include <stdlib.h>

#include "base/types.h"
#include "sim/memory.h"

struct sim_dma_job {
    struct sim_dma_job *next;
    struct sim_dma *dma;
    struct sim_dma_channel *channel;
    struct sim_dma_transfer transfer;
    uint64_t unrequested_bytes; /* not yet requested from the source */
    uint64_t left_bytes;        /* not yet seen at the target */
};

void sim_dma_init(struct sim_dma *dma, struct sim_net *net, const struct sim_scenario *scenario,
                  const char *section)
{
    *dma = (struct sim_dma){
        .net = net,
        .channels_count = (unsigned)sim_scenario_count(scenario, section, "channels"),
        .setup_ps = sim_scenario_ps(scenario, section, "setup"),
        .finish_ps = sim_scenario_ps(scenario, section, "finish"),
        .request_ps = sim_scenario_ps(scenario, section, "request_interval"),
        .tags_count = sim_scenario_count(scenario, section, "tags"),
        .descriptor_bytes = sim_scenario_count(scenario, section, "descriptor"),
        .mrrs_bytes = (unsigned)sim_scenario_count(scenario, section, "mrrs"),
    };
    dma->channels = sim_alloc(dma->channels_count * sizeof(*dma->channels));
    for (unsigned i = 0; i < dma->channels_count; i++) {
        sim_server_init(&dma->channels[i].issue, net->cost);
        dma->channels[i].tags_free = dma->tags_count;
    }
}

void sim_dma_fini(struct sim_dma *dma)
{
    for (unsigned i = 0; i < dma->channels_count; i++) {
        for (struct sim_dma_job *job = dma->channels[i].first; job != NULL;) {
            struct sim_dma_job *next = job->next;
            free(job);
            job = next;
        }
    }
    free(dma->channels);
    dma->channels = NULL;
    dma->channels_count = 0;
}

static void begin(struct sim_dma_job *job);
static void request(struct sim_dma_job *job);

static void finished(void *object, uint64_t arg)
{
    (void)arg;
    struct sim_dma_job *job = object;
    struct sim_dma_channel *channel = job->channel;
    struct sim_call done = job->transfer.done;
    channel->first = job->next;
    if (channel->first == NULL) {
        channel->last = NULL;
    } else {
        begin(channel->first);
    }
    sim_cost_after(job->dma->net->cost, 0, done);
    free(job);
}

static void landed(void *object, uint64_t bytes)
{
    struct sim_dma_job *job = object;
    job->left_bytes -= bytes;
    if (job->left_bytes == 0) {
        sim_cost_after(job->dma->net->cost, job->dma->finish_ps,
                       (struct sim_call){finished, job, 0});
    }
}

static void read_done(void *object, uint64_t bytes)
{
    struct sim_dma_job *job = object;
    job->channel->tags_free++;
    sim_net_post(job->dma->net, &(struct sim_post){.path = job->transfer.to_target,
                                                   .bytes = bytes,
                                                   .arrived = {landed, job, bytes}});
    request(job);
}

static void send_request(void *object, uint64_t bytes)
{
    struct sim_dma_job *job = object;
    sim_net_read(job->dma->net, job->transfer.to_source, job->transfer.from_source, bytes,
                 (struct sim_call){read_done, job, bytes});
}

/* As many requests as there are tags, with the minimum time between them. */
static void request(struct sim_dma_job *job)
{
    struct sim_dma *dma = job->dma;
    struct sim_dma_channel *channel = job->channel;
    while (channel->tags_free > 0 && job->unrequested_bytes > 0) {
        uint64_t bytes = via_min(job->unrequested_bytes, (uint64_t)dma->mrrs_bytes);
        channel->tags_free--;
        job->unrequested_bytes -= bytes;
        uint64_t end_ps = sim_server_add(&channel->issue, dma->request_ps, 0, (struct sim_call){0});
        sim_cost_at(dma->net->cost, end_ps - dma->request_ps,
                    (struct sim_call){send_request, job, bytes});
    }
}

static void described(void *object, uint64_t arg)
{
    (void)arg;
    request(object);
}

static void set_up(void *object, uint64_t arg)
{
    (void)arg;
    struct sim_dma_job *job = object;
    const struct sim_dma_transfer *transfer = &job->transfer;
    if (transfer->to_descriptor == NULL || job->dma->descriptor_bytes == 0) {
        request(job);
        return;
    }
    sim_net_read(job->dma->net, transfer->to_descriptor, transfer->from_descriptor,
                 job->dma->descriptor_bytes, (struct sim_call){described, job, 0});
}

static void begin(struct sim_dma_job *job)
{
    sim_cost_after(job->dma->net->cost, job->dma->setup_ps, (struct sim_call){set_up, job, 0});
}

void sim_dma_start(struct sim_dma *dma, unsigned channel_index,
                   const struct sim_dma_transfer *transfer)
{
    assert(channel_index < dma->channels_count && transfer->bytes > 0);
    struct sim_dma_channel *channel = &dma->channels[channel_index];
    struct sim_dma_job *job = sim_alloc(sizeof(*job));
    *job = (struct sim_dma_job){.dma = dma,
                                .channel = channel,
                                .transfer = *transfer,
                                .unrequested_bytes = transfer->bytes,
                                .left_bytes = transfer->bytes};
    if (channel->last != NULL) {
        channel->last->next = job;
        channel->last = job;
        return;
    }
    channel->first = job;
    channel->last = job;
    begin(job);
}
