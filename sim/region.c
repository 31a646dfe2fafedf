/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * What the segments of a host must hold. The "mail" segment has a region for every flow that ends
 * at the host, a line of words for each, one counter for all, and a pad; the "library" may only be
 * read. For each byte of mail the checker knows the expected value, or that an operation is writing
 * it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sim/memory.h"
#include "sim/world.h"

#define PAD_BYTES 64u /* at the end: operations that reach beyond the segment begin here */
#define ADDS_SEEN_MAX 4096u

static uint32_t flows_to_host(const struct sim_world *world)
{
    return world->hosts_count * world->config.node.channels_count * world->config.node.flows_count;
}

static uint32_t place_of(const struct sim_flow *flow, const struct sim_world *world)
{
    const struct via_node_config *node = &world->config.node;
    return (flow->source * node->channels_count + flow->channel) * node->flows_count + flow->flow;
}

uint32_t sim_region_off(const struct sim_world *world, const struct sim_flow *flow)
{
    return place_of(flow, world) * world->config.work.region_bytes;
}

uint32_t sim_region_words_off(const struct sim_world *world, const struct sim_flow *flow)
{
    return flows_to_host(world) * world->config.work.region_bytes +
           place_of(flow, world) * (uint32_t)sizeof(struct sim_flow_words);
}

uint32_t sim_region_counter_off(const struct sim_world *world)
{
    return flows_to_host(world) *
           (world->config.work.region_bytes + (uint32_t)sizeof(struct sim_flow_words));
}

static uint32_t mail_bytes(const struct sim_world *world)
{
    return sim_region_counter_off(world) + 64 + PAD_BYTES;
}

static struct sim_flow_words *words_of(struct sim_world *world, const struct sim_flow *flow)
{
    struct sim_host *host = &world->hosts[flow->destination];
    return (struct sim_flow_words *)(void *)(host->life.mail_data +
                                             sim_region_words_off(world, flow));
}

/* --- lives ----------------------------------------------------------------------------------- */

static uint64_t random_key(struct sim_world *world)
{
    return via_rng_next(&world->rng_work) >> 16;
}

static void add_segment(struct sim_host *host, unsigned char *data, uint32_t bytes, unsigned flags,
                        uint64_t *ret_handle)
{
    int rc =
        via_node_segment_add(host->node, data, bytes, flags, random_key(host->world), ret_handle);
    if (rc != 0) {
        sim_fail(host->world, "host %u: via_node_segment_add of %u bytes: %d", host->index, bytes,
                 rc);
    }
}

static void flow_meets_new_memory(struct sim_flow *flow)
{
    flow->busy = false;
    flow->last_put = NULL;
    flow->last_set = 0;
    flow->sum_done = 0;
    flow->sum_unknown = 0;
    flow->value64 = flow->likely64 = 0;
    flow->value32 = flow->likely32 = 0;
    flow->known64 = flow->known32 = true;
    flow->out_of_order = false;
}

void sim_region_begin_life(struct sim_host *host)
{
    struct sim_world *world = host->world;
    struct sim_life *life = &host->life;
    *life = (struct sim_life){
        .start_ns = life->start_ns,
        .born = life->born,
        .number = life->number,
        .session = life->session,
        .mail_bytes = mail_bytes(world),
        .library_bytes = world->config.work.library_bytes,
        .library_seed = via_rng_next(&world->rng_work),
    };
    life->mail_data = sim_alloc_lines(life->mail_bytes);
    life->library_data = sim_alloc_lines(life->library_bytes);
    life->expect = sim_alloc(life->mail_bytes);
    life->known = sim_alloc(life->mail_bytes);
    life->adds_seen = sim_alloc(ADDS_SEEN_MAX);
    sim_content_fill(life->library_data, life->library_bytes, life->library_seed);
    memset(life->known, 1, (size_t)flows_to_host(world) * world->config.work.region_bytes);
    add_segment(host, life->mail_data, life->mail_bytes, VIA_SEGMENT_READ | VIA_SEGMENT_WRITE,
                &life->mail);
    add_segment(host, life->library_data, life->library_bytes, VIA_SEGMENT_READ, &life->library);
    life->draft_data = sim_alloc_lines(SIM_DRAFT_BYTES);
    add_segment(host, life->draft_data, SIM_DRAFT_BYTES, VIA_SEGMENT_READ | VIA_SEGMENT_WRITE,
                &life->draft);
    for (uint32_t i = 0; i < world->flows_count; i++) {
        if (world->flows[i].destination == host->index) {
            flow_meets_new_memory(&world->flows[i]);
        }
    }
}

void sim_region_life_fini(struct sim_host *host)
{
    struct sim_life *life = &host->life;
    free(life->mail_data);
    free(life->library_data);
    free(life->draft_data);
    free(life->expect);
    free(life->known);
    free(life->adds_seen);
    life->draft_data = NULL;
    life->mail_data = life->library_data = life->expect = life->known = life->adds_seen = NULL;
    while (!via_list_is_empty(&host->watched)) {
        via_list_pop_front(&host->watched);
    }
}

bool sim_region_draft_remove(struct sim_host *host)
{
    struct sim_life *life = &host->life;
    int expected = life->draft_removed ? -ENOENT : 0;
    int rc = via_node_segment_remove(host->node, life->draft);
    if (rc != expected) {
        sim_fail(host->world, "host %u: via_node_segment_remove: %d, expected %d", host->index, rc,
                 expected);
    }
    life->draft_removed = true;
    if (!via_node_segment_is_idle(host->node, life->draft)) {
        return true;
    }
    /* No operation may touch it from now on: ASan reports an access. */
    free(life->draft_data);
    life->draft_data = NULL;
    return false;
}

/* --- operations ------------------------------------------------------------------------------ */

static struct sim_host *destination_of(const struct sim_op *op)
{
    return &op->flow->world->hosts[op->flow->destination];
}

/* Does the memory that the operation aimed at still exist? */
static bool is_same_life(const struct sim_op *op)
{
    struct sim_host *host = destination_of(op);
    return host->alive && host->life.number == op->destination_life;
}

static bool is_writing(const struct sim_op *op)
{
    return (op->kind == VIA_OP_PUT || op->kind == VIA_OP_PUT_SIGNAL ||
            op->kind == VIA_OP_PUT_STRIDED) &&
           op->wrong == SIM_RIGHT;
}

/* Bytes of each block of a put. Most puts have one block. */
static uint64_t block_bytes(const struct sim_op *op)
{
    return op->kind == VIA_OP_PUT_STRIDED ? op->compare : op->bytes;
}

/* The place of the block that begins with byte `done` of the payload. */
static uint64_t block_off(const struct sim_op *op, uint64_t done)
{
    return op->kind == VIA_OP_PUT_STRIDED ? op->off + done / op->compare * op->operand : op->off;
}

/* Does the range contain bytes of `op`? Gaps between its blocks count. */
static bool is_meeting(const struct sim_op *op, uint64_t off, uint64_t bytes)
{
    uint64_t first = op->off;
    uint64_t last = op->bytes == 0 ? first : block_off(op, op->bytes - block_bytes(op));
    return off < via_max(first, last) + block_bytes(op) && via_min(first, last) < off + bytes;
}

static bool is_occupied_by(const struct sim_op *op)
{
    return is_writing(op) || (op->kind == VIA_OP_GET && op->reads != NULL);
}

uint32_t sim_region_place(struct sim_flow *flow, uint32_t bytes, uint32_t alignment)
{
    struct sim_world *world = flow->world;
    uint32_t size = world->config.work.region_bytes;
    uint32_t begin = sim_region_off(world, flow);
    if (bytes > size) {
        return UINT32_MAX;
    }
    for (unsigned attempt = 0; attempt < 4; attempt++) {
        uint32_t off = begin + (sim_between(&world->rng_work, 0, size - bytes) & ~(alignment - 1));
        bool free_place = true;
        via_list_foreach(member, &flow->pending) {
            const struct sim_op *op = via_list_entry(member, struct sim_op, pending);
            if (is_occupied_by(op) && is_meeting(op, off, bytes)) {
                free_place = false;
                break;
            }
        }
        if (free_place) {
            return off;
        }
    }
    return UINT32_MAX;
}

void sim_region_submitted(struct sim_op *op)
{
    struct sim_host *host = destination_of(op);
    if (!is_writing(op) || !host->alive) {
        return;
    }
    for (uint64_t done = 0; done < op->bytes; done += block_bytes(op)) {
        memset(host->life.known + block_off(op, done), 0, block_bytes(op));
    }
    bool ordered = op->kind == VIA_OP_PUT_SIGNAL ? (op->operand & VIA_FRAME_SIGNAL_ADD) == 0
                                                 : (op->flags & VIA_FRAME_FLAG_LAST_WORD) != 0;
    if (ordered) {
        via_list_push_back(&host->watched, &op->watched);
    }
}

/* The payload of a put, as it is in memory now. If it consists of blocks, they are collected in
 * world->scratch. */
static const unsigned char *payload_of(const struct sim_op *op, const struct sim_host *host)
{
    unsigned char *scratch = host->world->scratch;
    if (op->kind != VIA_OP_PUT_STRIDED) {
        return host->life.mail_data + op->off;
    }
    for (uint64_t done = 0; done < op->bytes; done += block_bytes(op)) {
        memcpy(scratch + done, host->life.mail_data + block_off(op, done), block_bytes(op));
    }
    return scratch;
}

static void put_completed(struct sim_op *op, struct sim_host *host)
{
    struct sim_world *world = host->world;
    struct sim_life *life = &host->life;
    size_t same = sim_content_check(payload_of(op, host), op->bytes, op->content);
    if (same != op->bytes) {
        sim_fail(world, "%s: complete, but byte %zu has not arrived", sim_op_name(op), same);
        return;
    }
    for (uint64_t done = 0; done < op->bytes; done += block_bytes(op)) {
        uint64_t off = block_off(op, done);
        memcpy(life->expect + off, life->mail_data + off, block_bytes(op));
        memset(life->known + off, 1, block_bytes(op));
    }
    if (op->kind != VIA_OP_PUT_SIGNAL) {
        return;
    }
    const struct sim_flow_words *words = words_of(world, op->flow);
    if (op->operand & VIA_FRAME_SIGNAL_ADD) {
        op->flow->sum_done += op->compare;
        if (words->signal_sum < op->flow->sum_done) {
            sim_fail(world, "%s: complete, but its signal was not added", sim_op_name(op));
        }
    } else if (words->signal_set < op->number || words->signal_set > op->flow->last_set) {
        sim_fail(world, "%s: complete, but the signal is %llu", sim_op_name(op),
                 (unsigned long long)words->signal_set);
    }
}

static void get_completed(struct sim_op *op, struct sim_host *host)
{
    size_t same = op->bytes;
    if (op->reads == NULL) {
        if (memcmp(op->buffer, host->life.library_data + op->off, op->bytes) != 0) {
            same = 0;
        }
    } else if (op->reads->state == SIM_OP_DONE && op->reads->status == 0 &&
               op->reads->destination_life == op->destination_life) {
        same = sim_content_check(op->buffer, op->bytes, op->reads->content);
    }
    if (same != op->bytes) {
        sim_fail(host->world, "%s: returned other bytes than its source has", sim_op_name(op));
    }
}

/* --- atomics --------------------------------------------------------------------------------- */

static uint64_t atomic_result(unsigned operation, uint64_t old, uint64_t operand, uint64_t compare)
{
    switch (operation) {
    case VIA_ATOMIC_ADD:
        return old + operand;
    case VIA_ATOMIC_AND:
        return old & operand;
    case VIA_ATOMIC_OR:
        return old | operand;
    case VIA_ATOMIC_XOR:
        return old ^ operand;
    case VIA_ATOMIC_SWAP:
        return operand;
    case VIA_ATOMIC_COMPARE_SWAP:
        return old == compare ? operand : old;
    default:
        return old;
    }
}

uint64_t sim_region_atomic(const struct sim_op *op, uint64_t old)
{
    unsigned operation = op->atomic & ~VIA_ATOMIC_32;
    if (op->atomic & VIA_ATOMIC_32) {
        return (uint32_t)atomic_result(operation, (uint32_t)old, (uint32_t)op->operand,
                                       (uint32_t)op->compare);
    }
    return atomic_result(operation, old, op->operand, op->compare);
}

/* Every operation adds 1 to the counter: no two may return the same old value. */
static void counter_completed(struct sim_op *op, struct sim_host *host, uint64_t old)
{
    struct sim_life *life = &host->life;
    if (old >= ADDS_SEEN_MAX || life->adds_seen[old] != 0) {
        sim_fail(host->world, "%s: the old value %llu has been returned before, or never was",
                 sim_op_name(op), (unsigned long long)old);
        return;
    }
    life->adds_seen[old] = 1;
    life->adds_done++;
}

static void atomic_completed(struct sim_op *op, struct sim_host *host, uint64_t old)
{
    if (op->shared_counter) {
        counter_completed(op, host, old);
        return;
    }
    bool narrow = (op->atomic & VIA_ATOMIC_32) != 0;
    uint64_t *value = narrow ? &op->flow->value32 : &op->flow->value64;
    bool *known = narrow ? &op->flow->known32 : &op->flow->known64;
    if (*known && *value != old) {
        sim_fail(host->world, "%s: the old value is %#llx, not %#llx", sim_op_name(op),
                 (unsigned long long)old, (unsigned long long)*value);
        return;
    }
    *value = sim_region_atomic(op, old);
    *known = !op->flow->out_of_order;
}

/* --- ends ------------------------------------------------------------------------------------ */

void sim_region_completed(struct sim_op *op, uint64_t value)
{
    via_list_remove(&op->watched);
    if (op->wrong != SIM_RIGHT || !is_same_life(op)) {
        return;
    }
    struct sim_host *host = destination_of(op);
    switch (op->kind) {
    case VIA_OP_PUT:
    case VIA_OP_PUT_SIGNAL:
    case VIA_OP_PUT_STRIDED:
        put_completed(op, host);
        if (op->flags & VIA_FRAME_FLAG_NOTIFY) {
            host->life.notifies_done++;
            if (host->life.notifies < host->life.notifies_done) {
                sim_fail(host->world, "%s: complete, but its owner was not notified",
                         sim_op_name(op));
            }
        }
        break;
    case VIA_OP_GET:
        get_completed(op, host);
        break;
    case VIA_OP_ATOMIC:
        atomic_completed(op, host, value);
        break;
    default:
        break;
    }
}

void sim_region_unknown(struct sim_op *op)
{
    via_list_remove(&op->watched);
    if (op->wrong != SIM_RIGHT || !is_same_life(op)) {
        return;
    }
    struct sim_life *life = &destination_of(op)->life;
    struct sim_flow *flow = op->flow;
    if (flow->last_put == op) {
        flow->last_put = NULL;
    }
    if (op->kind == VIA_OP_PUT && op->flags & VIA_FRAME_FLAG_NOTIFY) {
        life->notifies_unknown++;
    }
    if (op->kind == VIA_OP_PUT_SIGNAL && op->operand & VIA_FRAME_SIGNAL_ADD) {
        flow->sum_unknown += op->compare;
    }
    if (op->kind == VIA_OP_ATOMIC) {
        if (op->shared_counter) {
            life->adds_unknown++;
        } else if (op->atomic & VIA_ATOMIC_32) {
            flow->known32 = false;
        } else {
            flow->known64 = false;
        }
    }
}

/* --- seen from the owner --------------------------------------------------------------------- */

/* A program that polls the last word or the signal may read the rest as soon as it has changed. */
void sim_region_watch(struct sim_host *host)
{
    struct sim_world *world = host->world;
    via_list_foreach(member, &host->watched) {
        const struct sim_op *op = via_list_entry(member, struct sim_op, watched);
        const unsigned char *data = host->life.mail_data + op->off;
        bool seen;
        if (op->kind == VIA_OP_PUT_SIGNAL) {
            seen = words_of(world, op->flow)->signal_set >= op->number;
        } else {
            unsigned char *content = world->scratch;
            sim_content_fill(content, op->bytes, op->content);
            seen = memcmp(data + op->bytes - 8, content + op->bytes - 8, 8) == 0;
        }
        if (seen && sim_content_check(data, op->bytes, op->content) != op->bytes) {
            sim_fail(world, "%s: its end is seen before the rest", sim_op_name(op));
            return;
        }
    }
}

static void flow_final(struct sim_host *host, struct sim_flow *flow)
{
    struct sim_world *world = host->world;
    const struct sim_flow_words *words = words_of(world, flow);
    uint64_t sum = words->signal_sum;
    if (sum < flow->sum_done || sum > flow->sum_done + flow->sum_unknown) {
        sim_fail(world, "host %u: signals of flow %u add up to %llu, not %llu (+%llu)", host->index,
                 flow->index, (unsigned long long)sum, (unsigned long long)flow->sum_done,
                 (unsigned long long)flow->sum_unknown);
    }
    if ((flow->known64 && words->atomic64 != flow->value64) ||
        (flow->known32 && words->atomic32 != flow->value32) || words->guard != 0) {
        sim_fail(world, "host %u: the atomic words of flow %u are not what was last returned",
                 host->index, flow->index);
    }
}

void sim_region_final(struct sim_host *host)
{
    struct sim_world *world = host->world;
    struct sim_life *life = &host->life;
    uint32_t end = flows_to_host(world) * world->config.work.region_bytes;
    for (uint32_t i = 0; i < end; i++) {
        if (life->known[i] && life->mail_data[i] != life->expect[i]) {
            sim_fail(world,
                     "host %u: byte %u of its segment is %#x, not %#x: no operation wrote it",
                     host->index, i, life->mail_data[i], life->expect[i]);
            return;
        }
    }
    if (sim_content_check(life->library_data, life->library_bytes, life->library_seed) !=
        life->library_bytes) {
        sim_fail(world, "host %u: what may only be read has been written", host->index);
    }
    uint64_t adds;
    memcpy(&adds, life->mail_data + sim_region_counter_off(world), 8);
    if (adds < life->adds_done || adds > life->adds_done + life->adds_unknown) {
        sim_fail(world, "host %u: its counter is %llu after %llu (+%llu) additions", host->index,
                 (unsigned long long)adds, (unsigned long long)life->adds_done,
                 (unsigned long long)life->adds_unknown);
    }
    if (life->notifies < life->notifies_done ||
        life->notifies > life->notifies_done + life->notifies_unknown) {
        sim_fail(world, "host %u: notified of %llu puts, of %llu (+%llu)", host->index,
                 (unsigned long long)life->notifies, (unsigned long long)life->notifies_done,
                 (unsigned long long)life->notifies_unknown);
    }
    for (uint32_t i = 0; i < world->flows_count; i++) {
        if (world->flows[i].destination == host->index) {
            flow_final(host, &world->flows[i]);
        }
    }
}
