/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Pipes between hosts: room, arriving records, and frames that wait for them. */
#include "sim/plan/pipe.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "sim/memory.h"

/* --- frames ---------------------------------------------------------------------------------- */

void plan_frames_push(struct plan_frames *frames, struct plan_frame *frame)
{
    frame->next = NULL;
    if (frames->first == NULL) {
        frames->first = frame;
    } else {
        frames->last->next = frame;
    }
    frames->last = frame;
    frames->count++;
}

struct plan_frame *plan_frames_pop(struct plan_frames *frames)
{
    struct plan_frame *frame = frames->first;
    frames->first = frame->next;
    frames->count--;
    return frame;
}

/* --- finding --------------------------------------------------------------------------------- */

static struct plan_pipe **bucket(struct plan_fabric *fabric, unsigned from, unsigned to,
                                 unsigned channel)
{
    uint64_t key = ((uint64_t)from << 16 | to) << 8 | channel;
    return &fabric->pipes[(key * UINT64_C(0x9e3779b97f4a7c15)) >> 40 & fabric->pipes_mask];
}

static struct plan_pipe *pipe_new(struct plan_fabric *fabric, unsigned from, unsigned to,
                                  unsigned channel)
{
    struct plan_pipe *pipe = sim_objects_new(&fabric->all_pipes);
    *pipe = (struct plan_pipe){
        .from = (uint16_t)from,
        .to = (uint16_t)to,
        .channel = (uint8_t)channel,
        .dimension = fabric->shape->kind == PLAN_TORUS
                         ? (uint8_t)plan_shape_dimension(fabric->shape, from, to)
                         : 0,
        .writer = &fabric->hosts[from].threads[channel],
        .reader = &fabric->hosts[to].threads[channel],
        .credits = fabric->costs.pipe_slots,
    };
    via_list_init(&pipe->ops);
    plan_wiring_path(fabric->wiring, from, to, &pipe->there);
    plan_wiring_path(fabric->wiring, to, from, &pipe->back);
    struct plan_pipe **at = bucket(fabric, from, to, channel);
    pipe->same_hash = *at;
    *at = pipe;
    return pipe;
}

struct plan_pipe *plan_pipe_towards(struct plan_fabric *fabric, unsigned at, unsigned destination,
                                    unsigned channel)
{
    unsigned next = destination;
    if (fabric->shape->kind == PLAN_TORUS) {
        plan_shape_way(fabric->shape, at, destination, &next);
    }
    struct plan_pipe *pipe = *bucket(fabric, at, next, channel);
    while (pipe != NULL && (pipe->from != at || pipe->to != next || pipe->channel != channel)) {
        pipe = pipe->same_hash;
    }
    return pipe != NULL ? pipe : pipe_new(fabric, at, next, channel);
}

void plan_pipe_forget(struct plan_fabric *fabric, struct plan_pipe *pipe)
{
    bool idle = pipe->credits + pipe->due == fabric->costs.pipe_slots && !pipe->want_sent &&
                !pipe->out.listed && !pipe->in.listed && pipe->own.count == 0 &&
                via_list_is_empty(&pipe->ops) && pipe->arrived.count == 0;
    if (fabric->shape->kind != PLAN_TREE || !idle) {
        return;
    }
    struct plan_pipe **at = bucket(fabric, pipe->from, pipe->to, pipe->channel);
    while (*at != pipe) {
        at = &(*at)->same_hash;
    }
    *at = pipe->same_hash;
    sim_objects_free(&fabric->all_pipes, pipe);
}

/* --- room ------------------------------------------------------------------------------------ */

/* One buffer stays free behind it, in the pipe or in the bypass. */
bool plan_pipe_is_turn_allowed(const struct plan_fabric *fabric, const struct plan_pipe *pipe)
{
    return pipe->credits + fabric->costs.bypass_count - pipe->bypass_used >= 2;
}

bool plan_pipe_is_inject_allowed(const struct plan_pipe *pipe)
{
    return pipe->credits >= 1 && pipe->bypass_used == 0;
}

bool plan_pipe_has_work(const struct plan_pipe *pipe)
{
    return pipe->bypass.count > 0 || pipe->own.count > 0 || !via_list_is_empty(&pipe->ops) ||
           pipe->blocked != NULL;
}

static void credits_arrived(void *object, uint64_t count)
{
    struct plan_pipe *pipe = object;
    struct plan_fabric *fabric = pipe->writer->host->fabric;
    pipe->credits += (uint32_t)count;
    pipe->wants = false;
    assert(pipe->credits <= fabric->costs.pipe_slots);
    if (plan_pipe_has_work(pipe)) {
        plan_pipe_offer(pipe, pipe->reader);
    } else {
        plan_pipe_forget(fabric, pipe);
    }
}

static void post_word(struct plan_fabric *fabric, const struct sim_path *path, struct sim_call call)
{
    sim_net_post(&fabric->wiring->net,
                 &(struct sim_post){.path = path, .bytes = 8, .arrived = call});
}

static void give_back(struct plan_fabric *fabric, struct plan_pipe *pipe)
{
    uint32_t count = pipe->due;
    pipe->due = 0;
    post_word(fabric, &pipe->back, (struct sim_call){credits_arrived, pipe, count});
}

static void on_want(void *object, uint64_t arg)
{
    (void)arg;
    struct plan_pipe *pipe = object;
    struct plan_fabric *fabric = pipe->writer->host->fabric;
    pipe->want_sent = false;
    if (pipe->wants && pipe->due > 0) {
        give_back(fabric, pipe);
    }
    plan_pipe_forget(fabric, pipe);
}

void plan_pipe_request_room(struct plan_fabric *fabric, struct plan_pipe *pipe)
{
    if (!pipe->wants) {
        pipe->wants = true;
        if (!pipe->want_sent) {
            pipe->want_sent = true;
            post_word(fabric, &pipe->there, (struct sim_call){on_want, pipe, 0});
        }
    }
}

void plan_pipe_release(struct plan_fabric *fabric, struct plan_pipe *pipe)
{
    pipe->due++;
    bool wanted = pipe->wants && !pipe->want_sent;
    if (wanted || pipe->due * 4 >= fabric->costs.pipe_slots) {
        give_back(fabric, pipe);
    } else {
        plan_pipe_forget(fabric, pipe);
    }
}

/* --- records --------------------------------------------------------------------------------- */

void plan_pipe_list_out(struct plan_pipe *pipe)
{
    if (!pipe->out.listed) {
        pipe->out.listed = true;
        via_list_push_back(&pipe->writer->out.later, &pipe->out.member);
    }
}

void plan_pipe_list_in(struct plan_pipe *pipe)
{
    if (pipe->arrived.count > 0 && !pipe->in.listed && !pipe->is_blocked) {
        pipe->in.listed = true;
        via_list_push_back(&pipe->reader->in.later, &pipe->in.member);
    }
}

void plan_pipe_offer(struct plan_pipe *pipe, struct plan_thread *ringer)
{
    plan_pipe_list_out(pipe);
    plan_thread_kick(pipe->writer, ringer);
}

static void arrived(struct plan_fabric *fabric, struct plan_frame *frame)
{
    struct plan_pipe *pipe = frame->pipe;
    const struct sim_call none = {0};
    plan_frames_push(&pipe->arrived, frame);
    sim_server_add(
        pipe->reader->host->bus,
        (uint64_t)sim_ps_of(frame->body_bytes + PLAN_RECORD_BYTES, fabric->costs.bus_rate), 0,
        none);
    plan_pipe_list_in(pipe);
    plan_thread_kick(pipe->reader, pipe->writer);
}

void plan_frame_arrived(void *object, uint64_t arg)
{
    (void)arg;
    struct plan_frame *frame = object;
    if (--frame->arriving == 0) {
        arrived(frame->pipe->writer->host->fabric, frame);
    }
}

void plan_pipe_post(struct plan_fabric *fabric, struct plan_frame *frame, struct sim_call sent)
{
    struct plan_pipe *pipe = frame->pipe;
    sim_net_post(&fabric->wiring->net,
                 &(struct sim_post){.path = &pipe->there,
                                    .bytes = frame->body_bytes + PLAN_RECORD_BYTES,
                                    .sent = sent,
                                    .arrived = {plan_frame_arrived, frame, 0}});
}
