/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Pipes between hosts: room, arriving records, and frames that wait for them. */
#include "sim/plan/pipe.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "sim/memory.h"

/* --- memory: freed only at the end, objects are reused --------------------------------------- */

#define SLAB_OBJECTS 64u

/* A block of memory for SLAB_OBJECTS objects. */
static void *slab_new(struct plan_fabric *fabric, size_t object_bytes)
{
    size_t head = via_align_up(sizeof(struct plan_slab), 16);
    struct plan_slab *slab = sim_alloc(head + SLAB_OBJECTS * object_bytes);
    slab->next = fabric->slabs;
    fabric->slabs = slab;
    return (char *)slab + head;
}

struct plan_frame *plan_frame_new(struct plan_fabric *fabric)
{
    if (fabric->spare_frames == NULL) {
        struct plan_frame *frames = slab_new(fabric, sizeof(*frames));
        for (unsigned i = 0; i < SLAB_OBJECTS; i++) {
            plan_frame_free(fabric, &frames[i]);
        }
    }
    struct plan_frame *frame = fabric->spare_frames;
    fabric->spare_frames = frame->next;
    *frame = (struct plan_frame){0};
    return frame;
}

void plan_frame_free(struct plan_fabric *fabric, struct plan_frame *frame)
{
    frame->next = fabric->spare_frames;
    fabric->spare_frames = frame;
}

struct plan_op *plan_op_new(struct plan_fabric *fabric)
{
    if (fabric->spare_ops == NULL) {
        struct plan_op *ops = slab_new(fabric, sizeof(*ops));
        for (unsigned i = 0; i < SLAB_OBJECTS; i++) {
            plan_op_free(fabric, &ops[i]);
        }
    }
    struct plan_op *op = fabric->spare_ops;
    fabric->spare_ops = op->next;
    *op = (struct plan_op){0};
    return op;
}

void plan_op_free(struct plan_fabric *fabric, struct plan_op *op)
{
    op->next = fabric->spare_ops;
    fabric->spare_ops = op;
}

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
    if (fabric->spare_pipes == NULL) {
        struct plan_pipe *pipes = slab_new(fabric, sizeof(*pipes));
        for (unsigned i = 0; i < SLAB_OBJECTS; i++) {
            pipes[i].same_hash = fabric->spare_pipes;
            fabric->spare_pipes = &pipes[i];
        }
    }
    struct plan_pipe *pipe = fabric->spare_pipes;
    fabric->spare_pipes = pipe->same_hash;
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
    bool idle = pipe->credits + pipe->due == fabric->costs.pipe_slots && !pipe->asking &&
                !pipe->out_listed && !pipe->in_listed && pipe->own.count == 0 &&
                pipe->ops_first == NULL && pipe->arrived.count == 0;
    if (fabric->shape->kind != PLAN_TREE || !idle) {
        return;
    }
    struct plan_pipe **at = bucket(fabric, pipe->from, pipe->to, pipe->channel);
    while (*at != pipe) {
        at = &(*at)->same_hash;
    }
    *at = pipe->same_hash;
    pipe->same_hash = fabric->spare_pipes;
    fabric->spare_pipes = pipe;
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

static void credits_arrived(void *object, uint64_t count)
{
    struct plan_pipe *pipe = object;
    struct plan_fabric *fabric = pipe->writer->host->fabric;
    pipe->credits += (uint32_t)count;
    pipe->wants = false;
    assert(pipe->credits <= fabric->costs.pipe_slots);
    if (pipe->bypass.count > 0 || pipe->own.count > 0 || pipe->ops_first != NULL ||
        pipe->blocked != NULL) {
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
    pipe->asking = false;
    if (pipe->wants && pipe->due > 0) {
        give_back(fabric, pipe);
    }
    plan_pipe_forget(fabric, pipe);
}

void plan_pipe_ask_for_room(struct plan_fabric *fabric, struct plan_pipe *pipe)
{
    if (!pipe->wants) {
        pipe->wants = true;
        if (!pipe->asking) {
            pipe->asking = true;
            post_word(fabric, &pipe->there, (struct sim_call){on_want, pipe, 0});
        }
    }
}

void plan_pipe_release(struct plan_fabric *fabric, struct plan_pipe *pipe)
{
    pipe->due++;
    bool wanted = pipe->wants && !pipe->asking;
    if (wanted || pipe->due * 4 >= fabric->costs.pipe_slots) {
        give_back(fabric, pipe);
    } else {
        plan_pipe_forget(fabric, pipe);
    }
}

/* --- records --------------------------------------------------------------------------------- */

static void pipes_push(struct plan_pipes *pipes, struct plan_pipe *pipe, bool in)
{
    struct plan_pipe **next = pipes->last == NULL ? &pipes->first
                              : in                ? &pipes->last->next_in
                                                  : &pipes->last->next_out;
    *next = pipe;
    *(in ? &pipe->next_in : &pipe->next_out) = NULL;
    pipes->last = pipe;
}

void plan_pipe_list_out(struct plan_pipe *pipe)
{
    if (!pipe->out_listed) {
        pipe->out_listed = true;
        pipes_push(&pipe->writer->out, pipe, false);
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
    sim_server_add(pipe->reader->host->bus,
                   (uint64_t)((double)(frame->body_bytes + PLAN_RECORD_BYTES) /
                              fabric->costs.bus_rate * (double)SIM_SEC_PS),
                   0, none);
    if (!pipe->in_listed && !pipe->is_blocked) {
        pipe->in_listed = true;
        pipes_push(&pipe->reader->in, pipe, true);
    }
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
