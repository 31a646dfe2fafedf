/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Transfer threads: chooses the next frame and computes its cost. A job is a frame: CPU time, then,
 * if the frame is stored into a window, the stores, which block the thread while they are ahead of
 * the link by more than the fill buffers.
 */
#include <assert.h>

#include "base/types.h"
#include "sim/plan/pipe.h"

static void next(struct plan_thread *thread);

/* --- the next job ---------------------------------------------------------------------------- */

/* Each pipe is served once in a turn, with the frames that arrive before that; NULL: all have been.
 * A pipe with arrived frames counts as listed until stay_in(), so that later arrivals do not extend
 * the turn. */
static struct plan_visit *pop(struct plan_thread *thread, struct plan_visits *visits)
{
    struct via_list *member = via_list_first(&visits->now);
    member = member == NULL ? via_list_first(&visits->later) : member;
    struct plan_visit *visit =
        member == NULL ? NULL : via_list_entry(member, struct plan_visit, member);
    if (visit == NULL || (via_list_is_empty(&visits->now) && visit->turn == thread->turn)) {
        return NULL;
    }
    via_list_remove(member);
    if (visit->turn != thread->turn) {
        visit->turn = thread->turn;
        visit->left = visit->acks_left = thread->host->fabric->costs.batch_frames;
    }
    return visit;
}

/* It is checked next. */
static void stay(struct plan_visits *visits, struct plan_visit *visit)
{
    if (!visit->listed) {
        visit->listed = true;
        via_list_push_front(&visits->now, &visit->member);
    }
}

/* A turn stays with a pipe while there is something in it, up to a batch. */
static void stay_in(struct plan_thread *thread, struct plan_pipe *pipe)
{
    pipe->in.listed = false;
    if (pipe->in.left == 0) {
        plan_pipe_list_in(pipe);
    } else if (pipe->arrived.count > 0 && !pipe->is_blocked) {
        stay(&thread->in, &pipe->in);
    }
}

/* Operations of programs, taken at the beginning of a turn. */
static void take_submitted(struct plan_thread *thread)
{
    struct plan_fabric *fabric = thread->host->fabric;
    for (struct plan_op *op; (op = plan_ops_pop(&thread->submitted)) != NULL;) {
        struct plan_pipe *way = plan_pipe_towards(fabric, op->source, op->destination, op->channel);
        via_list_push_back(&way->ops, &op->member);
        thread->debt_ps += fabric->costs.submit_ps;
        plan_pipe_offer(way, NULL);
    }
}

/* Pipes listed from now on wait for the next turn. */
static void begin_phase(struct plan_thread *thread)
{
    thread->phase = (thread->phase + 1) % PLAN_PHASES;
    if (thread->phase == PLAN_DRAINS) {
        thread->turn_begins = true;
        thread->turn++;
        take_submitted(thread);
        thread->drain_at = thread->out.later.next;
    } else if (thread->phase == PLAN_SENDS) {
        via_list_splice_back(&thread->out.now, &thread->out.later);
    } else {
        via_list_splice_back(&thread->in.now, &thread->in.later);
    }
}

static void block(struct plan_fabric *fabric, struct plan_pipe *pipe, struct plan_pipe *way)
{
    pipe->is_blocked = true;
    pipe->in.listed = false;
    pipe->arrived.first->since_ps = fabric->cost->now_ps;
    pipe->next_blocked = way->blocked;
    way->blocked = pipe;
    plan_pipe_request_room(fabric, way);
}

/* Makes the readers try the blocked pipes again. */
static void unblock(struct plan_pipe *way)
{
    unsigned bypass_count = way->writer->host->fabric->costs.bypass_count;
    while (way->blocked != NULL && way->bypass_used < bypass_count) {
        struct plan_pipe *pipe = way->blocked;
        way->blocked = pipe->next_blocked;
        pipe->is_blocked = false;
        plan_pipe_list_in(pipe);
    }
}

/* Takes a frame out of a pipe, unless the frame has to wait. */
static bool choose_in(struct plan_thread *thread)
{
    struct plan_fabric *fabric = thread->host->fabric;
    struct plan_visit *visit;
    while ((visit = pop(thread, &thread->in)) != NULL) {
        struct plan_pipe *pipe = via_container_of(visit, struct plan_pipe, in);
        const struct plan_frame *frame = pipe->arrived.first;
        struct plan_pipe *way = NULL;
        thread->job = PLAN_TAKE;
        if (frame->destination != thread->host->index) {
            way =
                plan_pipe_towards(fabric, thread->host->index, frame->destination, thread->channel);
            bool turns = way->dimension != pipe->dimension;
            if (turns && !plan_pipe_is_turn_allowed(fabric, way)) {
                block(fabric, pipe, way);
                continue;
            }
            if (way->bypass_used == 0 && way->credits > 0) {
                thread->job = PLAN_RELAY;
                way->credits--;
            } else if (way->bypass_used < fabric->costs.bypass_count) {
                thread->job = PLAN_STORE;
                way->bypass_used++;
            } else {
                block(fabric, pipe, way);
                continue;
            }
        }
        visit->left--;
        thread->from = pipe;
        thread->way = way;
        thread->frame = plan_frames_pop(&pipe->arrived);
        return true;
    }
    return false;
}

/* The next frame of the first operation that may send one. */
static struct plan_frame *cut(struct plan_fabric *fabric, struct plan_pipe *way)
{
    struct plan_op *op = via_list_entry(via_list_first(&way->ops), struct plan_op, member);
    struct plan_frame *frame = sim_objects_new(&fabric->all_frames);
    uint32_t quarter = via_max(fabric->costs.window_frames / 4, 1u);
    *frame = (struct plan_frame){
        .op = op,
        .body_bytes = (uint32_t)via_min(op->unsent_bytes, fabric->costs.frame_bytes),
        .source = op->source,
        .destination = op->destination,
        .acknowledge_now = op->frames_unsent == 1 || op->frames_unsent % quarter == 0,
    };
    op->unsent_bytes -= frame->body_bytes;
    op->frames_unsent--;
    op->unacknowledged++;
    if (op->frames_unsent == 0 || op->unacknowledged == fabric->costs.window_frames) {
        via_list_remove(&op->member); /* goes on when an acknowledgement comes */
        op->queued = false;
    }
    return frame;
}

/* Sends as many frames as there is room for, of each kind. */
static bool choose_drain(struct plan_thread *thread)
{
    for (; thread->drain_at != &thread->out.later; thread->drain_at = thread->drain_at->next) {
        struct plan_pipe *way = via_list_entry(thread->drain_at, struct plan_pipe, out.member);
        if (way->bypass.count > 0 && way->credits > 0) {
            thread->job = PLAN_DRAIN;
            thread->frame = plan_frames_pop(&way->bypass);
            way->credits--;
            thread->way = way;
            thread->from = NULL;
            return true;
        }
        unblock(way);
    }
    return false;
}

static bool choose_out(struct plan_thread *thread)
{
    struct plan_fabric *fabric = thread->host->fabric;
    struct plan_visit *visit;
    while ((visit = pop(thread, &thread->out)) != NULL) {
        struct plan_pipe *way = via_container_of(visit, struct plan_pipe, out);
        visit->listed = false;
        unblock(way);
        bool acks = way->own.count > 0;
        bool own = acks || !via_list_is_empty(&way->ops);
        if (own && plan_pipe_is_inject_allowed(way)) {
            uint32_t *left = acks ? &visit->acks_left : &visit->left;
            if (*left == 0) {
                plan_pipe_list_out(way);
                continue;
            }
            (*left)--;
            thread->job = PLAN_SEND;
            thread->frame = acks ? plan_frames_pop(&way->own) : cut(fabric, way);
            way->credits--;
            visit->listed = true; /* until it has been sent */
            thread->way = way;
            thread->from = NULL;
            return true;
        }
        if (way->bypass.count > 0 && way->credits > 0) {
            plan_pipe_list_out(way);
            continue;
        }
        if (own || way->bypass.count > 0) {
            plan_pipe_request_room(fabric, way);
        }
        plan_pipe_forget(fabric, way);
    }
    return false;
}

/* As run_turn() of core/channel.c: empty the bypass buffers, take arrived frames, send new frames;
 * the last two up to a batch of each pipe. */
static bool choose(struct plan_thread *thread)
{
    static bool (*const phases[PLAN_PHASES])(struct plan_thread * thread) = {
        [PLAN_DRAINS] = choose_drain, [PLAN_TAKES] = choose_in, [PLAN_SENDS] = choose_out};
    /* One phase may free room that an earlier phase needs. */
    for (unsigned i = 0; i <= 2 * PLAN_PHASES; i++) {
        if (phases[thread->phase](thread)) {
            return true;
        }
        begin_phase(thread);
    }
    return false;
}

/* --- its cost -------------------------------------------------------------------------------- */

static bool stores(const struct plan_thread *thread)
{
    return thread->job == PLAN_RELAY || thread->job == PLAN_DRAIN || thread->job == PLAN_SEND;
}

static void finish(struct plan_thread *thread);

static void memory_done(void *object, uint64_t arg)
{
    (void)arg;
    finish(object);
}

static void part_done(void *object, uint64_t is_work)
{
    struct plan_thread *thread = object;
    if (is_work) {
        thread->work_end_ps = thread->host->fabric->cost->now_ps;
        if (stores(thread)) {
            plan_frame_arrived(thread->frame, 0);
        }
    }
    if (--thread->waits == 0) {
        finish(thread);
    }
}

/* The header is made and the data copied. Now the stores into the window. */
static void begin_stores(struct plan_thread *thread)
{
    struct plan_fabric *fabric = thread->host->fabric;
    struct plan_frame *frame = thread->frame;
    uint64_t bytes = frame->body_bytes + PLAN_RECORD_BYTES;
    const struct sim_call none = {0};
    frame->pipe = thread->way;
    frame->since_ps = 0;
    if (bytes <= fabric->costs.fill_bytes) {
        frame->arriving = 1;
        plan_pipe_post(fabric, frame, none);
        finish(thread);
        return;
    }
    frame->arriving = 2;
    thread->waits = 2;
    plan_pipe_post(fabric, frame, (struct sim_call){part_done, thread, false});
    sim_task_work(&thread->task, (uint64_t)sim_ps_of(bytes, fabric->costs.store_rate),
                  (struct sim_call){part_done, thread, true});
}

static void work_done(void *object, uint64_t arg)
{
    (void)arg;
    struct plan_thread *thread = object;
    struct sim_cost *cost = thread->host->fabric->cost;
    thread->work_end_ps = cost->now_ps;
    if (thread->body_ready_ps > cost->now_ps) {
        thread->waits = 1;
        sim_cost_at(cost, thread->body_ready_ps,
                    stores(thread) ? (struct sim_call){work_done, thread, 0}
                                   : (struct sim_call){memory_done, thread, 0});
        thread->body_ready_ps = 0;
    } else if (stores(thread)) {
        begin_stores(thread);
    } else {
        finish(thread);
    }
}

static bool is_ending(const struct plan_op *op, const struct plan_frame *ack)
{
    return op->frames_left == 0 && op->unacknowledged == ack->acknowledges;
}

/* Operations of this host that end with this frame: each is reported to its program. */
static unsigned reports_count(const struct plan_frame *frame)
{
    unsigned count = 0;
    for (; frame != NULL && frame->acknowledges > 0; frame = frame->with) {
        count += is_ending(frame->op, frame);
    }
    return count;
}

/* A turn ends with a fence on each link that it has used. */
static void touch(struct plan_thread *thread, unsigned neighbour)
{
    for (unsigned i = 0; i < thread->touched_count; i++) {
        if (thread->touched[i] == neighbour) {
            return;
        }
    }
    if (thread->touched_count < VIA_ARRAY_COUNT(thread->touched)) {
        thread->touched[thread->touched_count++] = (uint16_t)neighbour;
    }
    thread->debt_ps += thread->host->fabric->costs.fence_ps;
}

static void begin(struct plan_thread *thread)
{
    struct plan_fabric *fabric = thread->host->fabric;
    const struct plan_costs *costs = &fabric->costs;
    const struct plan_frame *frame = thread->frame;
    const struct sim_call none = {0};
    uint64_t bytes = frame->body_bytes + PLAN_RECORD_BYTES;
    uint64_t work_ps = thread->debt_ps + costs->frame_ps;
    uint64_t crossed = 0; /* bytes that cross the memory bus */
    thread->debt_ps = 0;
    if (thread->turn_begins) {
        thread->turn_begins = false;
        thread->touched_count = 0;
        work_ps += costs->turn_ps;
    }
    if (thread->from != NULL) {
        touch(thread, thread->from->from);
    }
    if (stores(thread)) {
        touch(thread, thread->way->to);
    }
    if (thread->job == PLAN_TAKE) {
        work_ps += reports_count(frame) * costs->frame_ps;
    }
    if (stores(thread)) {
        crossed = frame->body_bytes;
        if (bytes <= costs->fill_bytes) {
            work_ps += (uint64_t)sim_ps_of(bytes, costs->store_rate);
        }
    } else {
        work_ps += (uint64_t)sim_ps_of(frame->body_bytes, costs->copy_rate);
        crossed = 2 * (uint64_t)frame->body_bytes;
    }
    thread->state = PLAN_BUSY;
    thread->has_worked = true;
    thread->job_since_ps = fabric->cost->now_ps;
    thread->body_ready_ps =
        crossed > 0 ? sim_server_add(thread->host->bus,
                                     (uint64_t)sim_ps_of(crossed, costs->bus_rate), 0, none)
                    : 0;
    sim_task_work(&thread->task, work_ps, (struct sim_call){work_done, thread, 0});
}

/* --- its effect ------------------------------------------------------------------------------ */

/* An unsent acknowledgement of the same flow; it includes later ones. */
static struct plan_frame *waiting_ack(const struct plan_pipe *way, const struct plan_frame *ack)
{
    for (struct plan_frame *it = way->own.first; it != NULL; it = it->next) {
        if (it->acknowledges > 0 && it->source == ack->source &&
            it->destination == ack->destination) {
            return it;
        }
    }
    return NULL;
}

static void acknowledge(struct plan_thread *thread, const struct plan_frame *frame)
{
    struct plan_fabric *fabric = thread->host->fabric;
    struct plan_op *op = frame->op;
    struct plan_frame *ack = sim_objects_new(&fabric->all_frames);
    ack->op = op;
    ack->source = frame->destination;
    ack->destination = frame->source;
    ack->acknowledges = op->to_acknowledge;
    op->to_acknowledge = 0;
    struct plan_pipe *way =
        plan_pipe_towards(fabric, ack->source, ack->destination, thread->channel);
    struct plan_frame *waiting = waiting_ack(way, ack);
    if (waiting != NULL) {
        ack->with = waiting->with;
        waiting->with = ack;
        return;
    }
    plan_frames_push(&way->own, ack);
    plan_pipe_offer(way, NULL);
}

static void acknowledged(struct plan_thread *thread, const struct plan_frame *ack)
{
    struct plan_fabric *fabric = thread->host->fabric;
    struct plan_op *op = ack->op;
    op->unacknowledged -= ack->acknowledges;
    if (op->frames_unsent > 0 && !op->queued) {
        struct plan_pipe *way = plan_pipe_towards(fabric, op->source, op->destination, op->channel);
        op->queued = true;
        via_list_push_front(&way->ops, &op->member);
        plan_pipe_offer(way, NULL);
    } else if (op->frames_left == 0 && op->unacknowledged == 0) {
        fabric->events.ended(fabric->events.object, op);
        sim_objects_free(&fabric->all_ops, op);
    }
}

static void taken(struct plan_thread *thread, struct plan_frame *frame)
{
    struct plan_fabric *fabric = thread->host->fabric;
    struct plan_op *op = frame->op;
    if (frame->acknowledges > 0) {
        for (struct plan_frame *ack = frame->with; ack != NULL;) {
            struct plan_frame *next_ack = ack->with;
            acknowledged(thread, ack);
            sim_objects_free(&fabric->all_frames, ack);
            ack = next_ack;
        }
        acknowledged(thread, frame);
    } else {
        op->to_acknowledge++;
        op->frames_left--;
        if (frame->acknowledge_now || op->frames_left == 0) {
            acknowledge(thread, frame);
        }
        if (op->frames_left == 0) {
            fabric->events.delivered(fabric->events.object, op);
        }
    }
    sim_objects_free(&fabric->all_frames, frame);
}

static void finish(struct plan_thread *thread)
{
    struct plan_fabric *fabric = thread->host->fabric;
    struct plan_pipe *from = thread->from, *way = thread->way;
    struct plan_frame *frame = thread->frame;
    uint64_t now_ps = fabric->cost->now_ps;
    thread->busy_ps += now_ps - thread->job_since_ps;
    thread->stalled_ps += now_ps - thread->work_end_ps;
    if (thread->job == PLAN_TAKE) {
        taken(thread, frame);
    } else if (thread->job == PLAN_STORE) {
        frame->since_ps = now_ps;
        plan_frames_push(&way->bypass, frame);
        plan_pipe_offer(way, NULL);
    } else if (thread->job == PLAN_DRAIN) {
        way->bypass_used--;
    }
    if (thread->job == PLAN_SEND) {
        way->out.listed = false;
    }
    if (stores(thread) && plan_pipe_has_work(way)) {
        if (thread->phase == PLAN_SENDS) {
            stay(&thread->out, &way->out);
        } else {
            plan_pipe_offer(way, NULL);
        }
    }
    if (from != NULL) {
        stay_in(thread, from);
        plan_pipe_release(fabric, from);
    }
    next(thread);
}

/* --- waking and sleeping --------------------------------------------------------------------- */

static void awake(void *object, uint64_t arg)
{
    (void)arg;
    next(object);
}

static void handled(void *object, uint64_t arg)
{
    (void)arg;
    struct plan_thread *thread = object;
    sim_task_wake(&thread->task, (struct sim_call){awake, thread, 0});
}

void plan_thread_submit(struct plan_thread *thread, struct plan_op *op)
{
    via_list_push_back(&thread->submitted, &op->member);
    plan_thread_kick(thread, NULL);
}

void plan_thread_kick(struct plan_thread *thread, struct plan_thread *ringer)
{
    const struct plan_costs *costs = &thread->host->fabric->costs;
    if (thread->state == PLAN_POLLING) {
        next(thread);
    } else if (thread->state == PLAN_ASLEEP) {
        thread->state = PLAN_WAKING;
        if (ringer == NULL) { /* by a thread of its own host: no doorbell, no interrupt */
            handled(thread, 0);
            return;
        }
        ringer->debt_ps += costs->ring_ps;
        sim_cpu_interrupt(thread->host->cpu, thread->channel % thread->host->cpu->lcpus_count,
                          costs->handler_ps, (struct sim_call){handled, thread, 0});
    }
}

static uint64_t now_ns(const struct plan_thread *thread)
{
    return thread->host->fabric->cost->now_ps / SIM_NS_PS;
}

static void wait_for_work(struct plan_thread *thread);

static void polled_long_enough(void *object, uint64_t ticket)
{
    struct plan_thread *thread = object;
    if (ticket == thread->poll_ticket && thread->state == PLAN_POLLING) {
        wait_for_work(thread);
    }
}

/* Nothing arrived before everything was armed. */
static void armed(void *object, uint64_t ticket)
{
    struct plan_thread *thread = object;
    if (ticket == thread->poll_ticket && thread->state == PLAN_POLLING) {
        thread->state = PLAN_ASLEEP;
        sim_task_sleep(&thread->task);
    }
}

/* The turn before the fence and the one after it have found nothing. */
static void fenced(void *object, uint64_t ticket)
{
    struct plan_thread *thread = object;
    if (ticket == thread->poll_ticket && thread->state == PLAN_POLLING) {
        sim_cost_after(thread->host->fabric->cost, 2 * thread->host->fabric->costs.turn_ps,
                       (struct sim_call){armed, thread, ticket});
    }
}

/* As run() of host/host_transfer.c, after a turn that found nothing; further turns that would find
 * nothing are left out. Before the thread sleeps it waits for a fence: a round trip on a link of
 * its host. */
static void wait_for_work(struct plan_thread *thread)
{
    struct plan_fabric *fabric = thread->host->fabric;
    enum via_host_wait_step step = via_host_wait_turned(
        &thread->wait, thread->wait.idle ? now_ns(thread) : thread->empty_ns, 0, VIA_NEVER_NS);
    thread->state = PLAN_POLLING;
    thread->poll_ticket++;
    if (step == VIA_HOST_WAIT_POLL) {
        sim_cost_at(fabric->cost, thread->wait.poll_until_ns * SIM_NS_PS,
                    (struct sim_call){polled_long_enough, thread, thread->poll_ticket});
    } else {
        sim_net_read(&fabric->wiring->net, &thread->host->there, &thread->host->back, 4,
                     (struct sim_call){fenced, thread, thread->poll_ticket});
    }
}

/* The cost of a turn has been spent. The turn finds what has arrived meanwhile. */
static void end_poll(void *object, uint64_t arg)
{
    (void)arg;
    struct plan_thread *thread = object;
    if (choose(thread)) {
        thread->turn_begins = false;
        begin(thread);
    } else {
        wait_for_work(thread);
    }
}

/* The turn after the last successful one finds nothing, and takes its time. */
static void next(struct plan_thread *thread)
{
    bool slept = thread->state == PLAN_WAKING;
    thread->state = PLAN_BUSY;
    if (slept) {
        via_host_wait_slept(&thread->wait, now_ns(thread));
    }
    if (choose(thread)) {
        (void)via_host_wait_turned(&thread->wait, now_ns(thread), 1, VIA_NEVER_NS);
        begin(thread);
        return;
    }
    thread->turn_begins = true;
    if (thread->has_worked) {
        thread->has_worked = false;
        thread->empty_ns = now_ns(thread);
        thread->touched_count = 0;
        sim_task_work(&thread->task, thread->debt_ps + thread->host->fabric->costs.turn_ps,
                      (struct sim_call){end_poll, thread, 0});
        thread->debt_ps = 0;
    } else {
        thread->empty_ns = thread->wait.idle ? thread->empty_ns : now_ns(thread);
        wait_for_work(thread);
    }
}

static bool is_crowded(void *ctx)
{
    const struct sim_cpu *cpu = ctx;
    return sim_cpu_running_count(cpu) > cpu->lcpus_count;
}

void plan_thread_init(struct plan_thread *thread, struct plan_host *host, unsigned channel)
{
    *thread = (struct plan_thread){.host = host, .channel = (uint8_t)channel};
    via_list_init(&thread->in.now);
    via_list_init(&thread->in.later);
    via_list_init(&thread->out.now);
    via_list_init(&thread->out.later);
    via_list_init(&thread->submitted);
    thread->drain_at = &thread->out.later;
    sim_task_init(&thread->task, host->cpu);
    via_host_wait_init(&thread->wait, host->fabric->costs.spin_ps / SIM_NS_PS, is_crowded,
                       host->cpu);
}

/* --- frames that are stuck ------------------------------------------------------------------- */

static void send_again(void *object, uint64_t arg)
{
    (void)arg;
    struct plan_frame *frame = object;
    struct plan_pipe *old = frame->pipe;
    struct plan_fabric *fabric = old->writer->host->fabric;
    struct plan_pipe *way =
        plan_pipe_towards(fabric, frame->source, frame->destination, old->channel);
    plan_frames_push(&way->own, frame);
    plan_pipe_offer(way, NULL);
}

static void drop(struct plan_fabric *fabric, struct plan_frame *frame)
{
    fabric->stuck_count++;
    frame->since_ps = 0;
    sim_cost_after(fabric->cost, fabric->costs.retry_ps, (struct sim_call){send_again, frame, 0});
}

static bool is_stuck(const struct plan_fabric *fabric, const struct plan_frame *frame)
{
    return frame != NULL && frame->since_ps != 0 &&
           fabric->cost->now_ps - frame->since_ps >= fabric->costs.stuck_ps;
}

static void sweep_pipe(struct plan_fabric *fabric, struct plan_pipe *pipe)
{
    while (pipe->bypass.count > 0 && is_stuck(fabric, pipe->bypass.first)) {
        drop(fabric, plan_frames_pop(&pipe->bypass));
        pipe->bypass_used--;
    }
    if (pipe->blocked != NULL && pipe->bypass_used < fabric->costs.bypass_count) {
        unblock(pipe);
        plan_thread_kick(pipe->writer, NULL);
    }
}

void plan_fabric_sweep(void *object, uint64_t arg)
{
    (void)arg;
    struct plan_fabric *fabric = object;
    for (unsigned i = 0; i <= fabric->pipes_mask; i++) {
        for (struct plan_pipe *pipe = fabric->pipes[i]; pipe != NULL; pipe = pipe->same_hash) {
            sweep_pipe(fabric, pipe);
        }
    }
    sim_cost_after(fabric->cost, via_max(fabric->costs.stuck_ps / 4, SIM_USEC_PS),
                   (struct sim_call){plan_fabric_sweep, fabric, 0});
}
