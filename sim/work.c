/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Operations: drawn at random, from every host to every host, on every channel and flow. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sim/memory.h"
#include "sim/world.h"

struct sim_flow *sim_flow_at(struct sim_world *world, uint32_t source, uint32_t destination,
                             uint32_t channel, uint32_t flow)
{
    const struct via_node_config *node = &world->config.node;
    uint32_t index = (source * world->hosts_count + destination) * node->channels_count + channel;
    return &world->flows[index * node->flows_count + flow];
}

void sim_work_init(struct sim_world *world)
{
    const struct via_node_config *node = &world->config.node;
    world->flows_count = world->hosts_count * world->hosts_count * node->channels_count *
                         (uint32_t)node->flows_count;
    world->flows = sim_alloc(world->flows_count * sizeof(*world->flows));
    for (uint32_t i = 0; i < world->flows_count; i++) {
        struct sim_flow *flow = &world->flows[i];
        uint32_t rest = i / node->flows_count;
        flow->world = world;
        flow->index = i;
        flow->flow = (uint16_t)(i % node->flows_count);
        flow->channel = (uint8_t)(rest % node->channels_count);
        rest /= node->channels_count;
        flow->destination = rest % world->hosts_count;
        flow->source = rest / world->hosts_count;
        flow->next_number = 1;
        via_list_init(&flow->pending);
    }
}

void sim_work_fini(struct sim_world *world)
{
    for (uint32_t i = 0; i < world->ops_count; i++) {
        sim_op_free_buffer(world->ops[i]);
        free(world->ops[i]);
    }
    free(world->ops);
    free(world->flows);
}

/* Half of the work comes just when a fault waits for it. */
static uint64_t work_time(struct sim_world *world)
{
    uint64_t quiet_ns = world->config.work.quiet_ns;
    if (world->traps_count == 0 || via_rng_chance(&world->rng_work, 1, 2)) {
        return quiet_ns + via_rng_below(&world->rng_work, world->config.active_ns - quiet_ns);
    }
    const struct sim_trap *trap =
        &world->traps[sim_between(&world->rng_work, 0, world->traps_count - 1)];
    uint64_t spread = UINT64_C(1) << sim_between(&world->rng_work, 10, 23);
    uint64_t at = trap->at_ns + via_rng_below(&world->rng_work, spread);
    return at > spread / 2 ? at - spread / 2 : at;
}

void sim_work_plan(struct sim_world *world)
{
    const struct sim_config *config = &world->config;
    for (uint32_t left = config->work.ops_count; left > 0;) {
        uint32_t burst = via_min(sim_between(&world->rng_work, 1, config->work.burst_max), left);
        uint64_t at = work_time(world);
        uint32_t host = sim_between(&world->rng_work, 0, world->hosts_count - 1);
        uint32_t channel = sim_between(&world->rng_work, 0, config->node.channels_count - 1u);
        uint32_t hosts = config->work.shift != 0 ? via_min(left / burst, world->hosts_count) : 1;
        for (uint32_t i = 0; i < hosts; i++) {
            if (!sim_mask_is_kept(&config->work_mask, world->work_bursts++)) {
                continue;
            }
            sim_clock_at(&world->clock, at, SIM_EVENT_WORK, (host + i) % world->hosts_count,
                         channel, burst);
        }
        left -= hosts * burst;
    }
    for (uint32_t i = 0; i < world->hosts_count; i++) {
        if (via_rng_chance(&world->rng_work, 1, 3)) {
            sim_clock_at(&world->clock, work_time(world), SIM_EVENT_REMOVE, i, 0, 0);
        }
    }
    for (uint32_t i = 0; i < config->work.cancels_count; i++) {
        sim_clock_at(&world->clock, work_time(world), SIM_EVENT_CANCEL,
                     sim_between(&world->rng_work, 0, world->hosts_count - 1),
                     sim_between(&world->rng_work, 0, config->node.channels_count - 1u),
                     sim_between(&world->rng_work, 0, SIM_OWNERS - 1));
    }
}

/* --- drawing --------------------------------------------------------------------------------- */

struct sim_op *sim_op_new(struct sim_world *world)
{
    if (world->ops_count == world->ops_capacity) {
        world->ops_capacity = world->ops_capacity == 0 ? 256 : world->ops_capacity * 2;
        world->ops = sim_realloc(world->ops, world->ops_capacity * sizeof(struct sim_op *));
    }
    struct sim_op *op = sim_alloc(sizeof(*op));
    op->index = world->ops_count;
    via_list_init(&op->pending);
    via_list_init(&op->watched);
    world->ops[world->ops_count++] = op;
    return op;
}

uint64_t sim_op_cookie(const struct sim_op *op)
{
    return (uint64_t)op->owner << 32 | op->index;
}

/* 1 to max; small numbers as often as large ones. */
static uint32_t some_bytes(struct sim_world *world, uint32_t max)
{
    uint32_t top = max;
    while (top > 1 && via_rng_chance(&world->rng_work, 1, 2)) {
        top /= 2;
    }
    return sim_between(&world->rng_work, 1, top);
}

static uint8_t draw_kind(struct sim_world *world)
{
    const struct sim_config_work *work = &world->config.work;
    const uint32_t weights[] = {work->message, work->put, work->put_signal, work->get,
                                work->atomic};
    uint32_t sum = 0;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(weights); i++) {
        sum += weights[i];
    }
    uint32_t drawn = sim_between(&world->rng_work, 0, sum - 1);
    uint8_t kind = VIA_OP_MESSAGE;
    for (unsigned i = 0; drawn >= weights[i]; i++) {
        drawn -= weights[i];
        kind++;
    }
    return kind;
}

static void draw_message(struct sim_world *world, struct sim_op *op)
{
    op->bytes = via_rng_chance(&world->rng_work, 1, 20)
                    ? 0
                    : some_bytes(world, world->config.node.frame_bytes_max);
    op->endpoint = sim_between(&world->rng_work, 1, 1000);
    if (op->wrong != SIM_RIGHT) {
        op->wrong = SIM_WRONG_ENDPOINT;
    }
}

/* false: there is no free place to put to. */
static bool draw_put(struct sim_world *world, struct sim_op *op)
{
    uint32_t alignment = 1;
    op->bytes = some_bytes(world, world->config.work.region_bytes);
    op->flags |= op->number % 3 == 0 ? VIA_FRAME_FLAG_ACK_SOON : 0;
    if (op->kind == VIA_OP_PUT) {
        op->flags |= via_rng_chance(&world->rng_work, 1, 4) ? VIA_FRAME_FLAG_NOTIFY : 0;
        if (via_rng_chance(&world->rng_work, 1, 4)) {
            op->flags |= VIA_FRAME_FLAG_LAST_WORD;
            op->bytes = (op->bytes + 7) & ~UINT64_C(7);
            alignment = 8;
        }
    } else {
        op->operand = via_rng_chance(&world->rng_work, 1, 2) ? VIA_FRAME_SIGNAL_ADD : 0;
        op->compare = op->operand != 0 ? sim_between(&world->rng_work, 1, 1000) : op->number;
    }
    op->off = sim_region_place(op->flow, (uint32_t)op->bytes, alignment);
    return op->off != UINT32_MAX;
}

static void draw_get(struct sim_world *world, struct sim_op *op)
{
    const struct sim_op *put = op->flow->last_put;
    if (put != NULL && via_rng_chance(&world->rng_work, 1, 2)) {
        op->reads = put;
        op->off = put->off;
        op->bytes = put->bytes;
        return;
    }
    uint32_t bytes = world->config.work.library_bytes;
    op->bytes = some_bytes(world, bytes);
    op->off = sim_between(&world->rng_work, 0, bytes - (uint32_t)op->bytes);
}

static void draw_atomic(struct sim_world *world, struct sim_op *op)
{
    op->bytes = 8;
    op->atomic = VIA_ATOMIC_ADD;
    op->operand = 1;
    op->shared_counter = via_rng_chance(&world->rng_work, 1, 2);
    op->off = sim_region_counter_off(world);
    if (op->shared_counter) {
        return;
    }
    op->atomic = (uint8_t)sim_between(&world->rng_work, VIA_ATOMIC_ADD, VIA_ATOMIC_FETCH);
    bool narrow = via_rng_chance(&world->rng_work, 1, 2);
    uint64_t *likely = narrow ? &op->flow->likely32 : &op->flow->likely64;
    op->off = sim_region_words_off(world, op->flow) +
              (narrow ? offsetof(struct sim_flow_words, atomic32)
                      : offsetof(struct sim_flow_words, atomic64));
    op->atomic |= narrow ? VIA_ATOMIC_32 : 0;
    op->operand = via_rng_next(&world->rng_work);
    op->compare = via_rng_chance(&world->rng_work, 1, 2) ? *likely : op->operand;
}

/*
 * Every fourth put stores blocks with gaps, in the place that has been drawn for it. The gaps keep
 * their bytes. Drawn from the content's seed, so that the other draws stay.
 */
static void make_strided(struct sim_world *world, struct sim_op *op)
{
    uint64_t draw = op->content;
    uint64_t span = op->bytes;
    uint64_t block_max = via_min(span, (uint64_t)world->config.node.frame_bytes_max);
    uint64_t block = 1 + draw % via_min(block_max, UINT64_C(8));
    uint64_t apart = block + (draw >> 8) % 24;
    if (op->wrong == SIM_WRONG_RANGE) {
        apart = span - block; /* of two blocks one may be inside */
    }
    uint64_t blocks = (span - block) / apart + 1;
    bool back = (draw >> 16 & 1) != 0;
    op->kind = VIA_OP_PUT_STRIDED;
    op->flags &= VIA_FRAME_FLAG_ACK_SOON;
    op->bytes = blocks * block;
    op->compare = block;
    op->operand = back ? 0 - apart : apart;
    op->off += back ? apart * (blocks - 1) : 0;
}

/* Turns an operation into one that must be refused, if possible. */
static void draw_wrong(struct sim_world *world, struct sim_op *op)
{
    op->wrong = (uint8_t)sim_between(&world->rng_work, SIM_WRONG_KEY, SIM_WRONG_ACCESS);
    op->reads = NULL;
    op->shared_counter = false;
    if (op->wrong == SIM_WRONG_ENDPOINT ||
        (op->wrong == SIM_WRONG_ACCESS && op->kind == VIA_OP_GET)) {
        op->wrong = SIM_WRONG_KEY;
    }
    if (op->wrong == SIM_WRONG_RANGE) {
        /* Begins in the pad at the end, or far out, where sums wrap around. */
        static const uint64_t far[] = {UINT64_MAX - 7, UINT64_MAX / 2 + 1, UINT64_C(1) << 32};
        uint64_t end = world->hosts[op->flow->destination].life.mail_bytes;
        op->off = via_rng_chance(&world->rng_work, 1, 2)
                      ? far[sim_between(&world->rng_work, 0, VIA_ARRAY_COUNT(far) - 1)]
                      : end - 8;
        op->off = op->kind == VIA_OP_ATOMIC ? via_max(op->off, end) : op->off;
        op->bytes = via_max(op->bytes, UINT64_C(9));
    }
    if (op->wrong == SIM_WRONG_ACCESS) {
        op->atomic = VIA_ATOMIC_ADD; /* to fetch would be allowed */
        op->off = 0;
        op->bytes = via_min(op->bytes, (uint64_t)world->config.work.library_bytes);
    }
}

/* Into the segment that will be removed; its content does not matter. */
static void draw_draft(struct sim_world *world, struct sim_op *op)
{
    op->wrong = SIM_WRONG_DRAFT;
    op->reads = NULL;
    op->shared_counter = false;
    op->flags &= (uint8_t)~VIA_FRAME_FLAG_NOTIFY;
    op->bytes = via_min(op->bytes, (uint64_t)SIM_DRAFT_BYTES - 8);
    op->off = sim_between(&world->rng_work, 0, (SIM_DRAFT_BYTES - 8 - (uint32_t)op->bytes) / 8) * 8;
}

static void draw_memory_op(struct sim_world *world, struct sim_op *op)
{
    if ((op->kind == VIA_OP_PUT || op->kind == VIA_OP_PUT_SIGNAL) && !draw_put(world, op)) {
        op->kind = VIA_OP_GET;
        op->flags = 0;
    }
    if (op->kind == VIA_OP_GET) {
        draw_get(world, op);
    } else if (op->kind == VIA_OP_ATOMIC) {
        draw_atomic(world, op);
    }
    if (op->wrong != SIM_RIGHT) {
        draw_wrong(world, op);
    } else if (via_rng_chance(&world->rng_work, 1, 25)) {
        draw_draft(world, op);
    }
    if (op->kind == VIA_OP_PUT && op->number % 4 == 1) {
        make_strided(world, op);
    }
}

static uint32_t draw_destination(const struct sim_thread *thread)
{
    struct sim_world *world = thread->host->world;
    uint32_t shift = world->config.work.shift;
    return shift != 0 ? (thread->host->index + shift) % world->hosts_count
                      : sim_between(&world->rng_work, 0, world->hosts_count - 1);
}

static struct sim_op *draw(struct sim_thread *thread)
{
    struct sim_world *world = thread->host->world;
    struct sim_op *op = sim_op_new(world);
    op->flow = sim_flow_at(world, thread->host->index, draw_destination(thread), thread->channel,
                           sim_between(&world->rng_work, 0, world->config.node.flows_count - 1));
    op->source = thread->host->index;
    op->source_life = thread->host->life.number;
    op->channel = thread->channel;
    op->owner = (uint8_t)sim_between(&world->rng_work, 0, SIM_OWNERS - 1);
    op->number = op->flow->next_number++;
    op->content = via_rng_next(&world->rng_work);
    op->kind = draw_kind(world);
    op->wrong = world->config.work.wrong != 0 && via_rng_chance(&world->rng_work, 1, 15);
    if (op->kind == VIA_OP_MESSAGE) {
        draw_message(world, op);
    } else {
        draw_memory_op(world, op);
    }
    op->buffer = sim_alloc(op->bytes);
    if (op->kind != VIA_OP_GET) {
        sim_content_fill(op->buffer, op->bytes, op->content);
    }
    return op;
}

/* --- submitting ------------------------------------------------------------------------------ */

static void fill_memory_op(struct sim_world *world, const struct sim_op *op, struct via_op *node_op)
{
    const struct sim_life *life = &world->hosts[op->flow->destination].life;
    bool library = op->wrong == SIM_WRONG_ACCESS || (op->kind == VIA_OP_GET && op->reads == NULL);
    node_op->segment = library ? life->library : life->mail;
    if (op->wrong == SIM_WRONG_KEY) {
        node_op->segment ^= (op->content | 1) << 16;
    }
    if (op->wrong == SIM_WRONG_RANGE) {
        node_op->segment = life->mail;
    }
    if (op->wrong == SIM_WRONG_DRAFT) {
        node_op->segment = life->draft;
    }
    node_op->offset = op->off;
    node_op->atomic = op->atomic;
    node_op->operand = op->operand;
    node_op->compare = op->compare;
    if (op->kind == VIA_OP_PUT_SIGNAL) {
        bool add = op->operand != 0;
        node_op->signal_offset =
            op->operand | (sim_region_words_off(world, op->flow) +
                           (add ? offsetof(struct sim_flow_words, signal_sum)
                                : offsetof(struct sim_flow_words, signal_set)));
        if (op->wrong == SIM_WRONG_ACCESS || op->wrong == SIM_WRONG_DRAFT) {
            node_op->signal_offset = op->operand; /* at place 0, which exists */
        }
        node_op->signal_value = op->compare;
    }
}

static struct via_op node_op_of(struct sim_world *world, const struct sim_op *op)
{
    struct via_op node_op = {
        .kind = op->kind,
        .flags = op->flags,
        .destination = world->hosts[op->flow->destination].id,
        .flow = op->flow->flow,
        .bytes = op->bytes,
        .cookie = sim_op_cookie(op),
    };
    if (op->kind == VIA_OP_GET) {
        node_op.result = op->buffer;
    } else if (op->kind != VIA_OP_ATOMIC) {
        node_op.source = op->buffer;
    }
    if (op->kind == VIA_OP_MESSAGE) {
        node_op.endpoint = op->endpoint;
        node_op.source_endpoint = op->number;
    } else {
        fill_memory_op(world, op, &node_op);
    }
    return node_op;
}

bool sim_op_submit(struct sim_thread *thread, struct sim_op *op, const struct via_op *node_op)
{
    struct sim_host *host = thread->host;
    struct sim_world *world = host->world;
    thread->in_submit = true;
    int rc = via_node_submit(host->node, thread->channel, node_op);
    thread->in_submit = false;
    if (rc == 0) {
        op->state = SIM_OP_PENDING;
        op->submit_ns = world->clock.now_ns;
        world->ops_pending++;
        world->counts.ops[op->kind]++;
        sim_mark(world, SIM_MARK_SUBMIT, op->index, op->bytes);
        return true;
    }
    if (rc != -EAGAIN) {
        sim_fail(world, "%s: submit returned %d (%s)", sim_op_name(op), rc, strerror(-rc));
    }
    return false;
}

static void note_destination(const struct sim_thread *thread, struct sim_op *op)
{
    struct sim_world *world = thread->host->world;
    const struct sim_host *destination = &world->hosts[op->flow->destination];
    op->destination_life = destination->life.number;
    op->dead_handle = !destination->alive;
    op->draft_removed = destination->life.draft_removed;
    op->stale_route = !sim_thread_has_seen(thread, op->flow->destination);
    if (op->reads != NULL && op->reads->destination_life != op->destination_life) {
        op->reads = NULL; /* the memory that it was to read is gone */
        op->off = 0;
        op->bytes = via_min(op->bytes, (uint64_t)world->config.work.library_bytes);
    }
}

static void accepted(struct sim_op *op)
{
    struct sim_flow *flow = op->flow;
    via_list_push_back(&flow->pending, &op->pending);
    sim_region_submitted(op);
    sim_limit_submitted(flow->world, op);
    if (op->wrong != SIM_RIGHT) {
        return;
    }
    if (op->kind == VIA_OP_PUT || op->kind == VIA_OP_PUT_SIGNAL) {
        flow->last_put = op;
    }
    if (op->kind == VIA_OP_PUT_STRIDED) {
        flow->last_put = NULL; /* it may be overwritten */
    }
    if (op->kind == VIA_OP_PUT_SIGNAL && op->operand == 0) {
        flow->last_set = op->number;
    }
    if (op->kind == VIA_OP_ATOMIC && !op->shared_counter) {
        uint64_t *likely = op->atomic & VIA_ATOMIC_32 ? &flow->likely32 : &flow->likely64;
        *likely = sim_region_atomic(op, *likely);
    }
}

static bool submit(struct sim_thread *thread, struct sim_op *op)
{
    struct sim_host *host = thread->host;
    struct sim_world *world = host->world;
    note_destination(thread, op);
    struct via_op node_op = node_op_of(world, op);
    if (!sim_op_submit(thread, op, &node_op)) {
        return false;
    }
    sim_trace(world, "%s: %llu bytes at %#llx%s", sim_op_name(op), (unsigned long long)op->bytes,
              (unsigned long long)op->off, op->wrong != SIM_RIGHT ? ", wrong on purpose" : "");
    accepted(op);
    return true;
}

void sim_op_cancel(struct sim_thread *thread, uint32_t owner)
{
    struct sim_host *host = thread->host;
    struct sim_world *world = host->world;
    for (uint32_t i = 0; i < world->ops_count; i++) {
        struct sim_op *op = world->ops[i];
        if (op->state == SIM_OP_PENDING && op->source == host->index &&
            op->channel == thread->channel && op->owner == owner) {
            op->cancelled = true;
        }
    }
    sim_trace(world, "host %u thread %u: cancels owner %u", host->index, thread->channel, owner);
    via_node_cancel(host->node, thread->channel, ~UINT64_C(0) << 32, (uint64_t)owner << 32);
    for (uint32_t i = 0; i < world->ops_count; i++) {
        const struct sim_op *op = world->ops[i];
        if (op->state == SIM_OP_PENDING && op->cancelled && op->source == host->index) {
            sim_fail(world, "%s: cancelled, but has not ended", sim_op_name(op));
        }
    }
}

static void resume(struct sim_thread *thread)
{
    struct sim_world *world = thread->host->world;
    for (;;) {
        struct via_list *member = via_list_pop_front(&thread->resumes);
        if (member == NULL) {
            return;
        }
        struct sim_resume *wanted = via_list_entry(member, struct sim_resume, member);
        struct sim_flow *flow = &world->flows[wanted->flow];
        free(wanted);
        flow->busy = false;
        via_node_resume(thread->host->node, thread->channel, world->hosts[flow->source].id,
                        flow->flow);
    }
}

void sim_work_turn(struct sim_thread *thread)
{
    struct sim_world *world = thread->host->world;
    resume(thread);
    for (uint32_t owner = 0; thread->owners_given_up != 0; owner++) {
        if (thread->owners_given_up >> owner & 1) {
            thread->owners_given_up &= ~(1u << owner);
            sim_op_cancel(thread, owner);
        }
    }
    if (thread->channel == 0) {
        sim_barrier_turn(thread);
    }
    while (!world->failed && (thread->held != NULL || thread->work_wanted != 0)) {
        if (thread->held == NULL) {
            thread->work_wanted--;
            thread->held = draw(thread);
        }
        if (!submit(thread, thread->held)) {
            return;
        }
        thread->held = NULL;
    }
}
