/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Bodies by the port's DMA engine (docs/adr/0005-dma-from-staging-memory.md).
 *
 * A record whose body is copied by DMA gets its slot and its place in the data ring like any other
 * record. But its line is posted only after the DMA has ended, and so are the lines of all later
 * records, whose heads wait here.
 *
 * The engine reads from staging memory of the node. So the owner of the source (a program, a
 * segment, the pipe of another link) never waits for an engine, and can not unmap memory that an
 * engine reads.
 *
 * If the engine refuses or fails, the body is copied by PIO to the same place. An engine that hangs
 * is aborted. Bodies behind a DMA were stored while it was under way; if the link has been down
 * since, some of them may be lost, and the link is brought up again. No resource is reused before
 * the cookie of its DMA has come back: the staging buffer, the place in the ring, and after the end
 * of the link the whole pipe.
 */
#include <assert.h>
#include <errno.h>

#include "base/copy.h"
#include "base/mutant.h"
#include "core/way.h"

/* Maximum of cookies that are taken in one call. */
#define TAKE_MAX 8u
/* After a hang, a failure or a refusal the engine is not used for PAUSE_FACTOR times dma_ns_max. So
 * an engine that hangs each time costs at most 1/PAUSE_FACTOR of the time. */
#define PAUSE_FACTOR 50u
/* A cookie: the serial number of the DMA, and in the low bits the index of its stage. */
#define COOKIE_STAGE_BITS 16
#define COOKIE_STAGE_MASK ((1u << COOKIE_STAGE_BITS) - 1)

void via_dma_init(struct via_channel *channel, struct via_way *way)
{
    struct via_dma *dma = way->dma;

    dma->channel = channel;
    via_list_init(&dma->free);
    via_list_init(&dma->running);
    for (uint32_t i = 0; i < channel->node->config.dma_buffers; i++) {
        via_list_push_back(&dma->free, &dma->stages[i].link);
    }
}

/* Sets the size from which on bodies are sent through via_dma_send(); 0, for all records, while a
 * record is deferred. */
static void set_dma_from(struct via_way *way)
{
    way->dma_from = way->tx.deferred != 0
                        ? 0
                        : atomic_load_explicit(&way->dma->bytes_min, memory_order_relaxed);
}

void via_dma_take_up(struct via_way *way)
{
    way->dma_from = SIZE_MAX;
    if (way->dma != NULL && way->port->caps.dma_depth != 0) {
        way->dma->lost = false;
        set_dma_from(way);
    }
}

static struct via_dma_record *record_at(const struct via_way *way, uint32_t sequence)
{
    return &way->dma->records[sequence & (way->tx.geometry.slots_count - 1)];
}

static void abort_all(struct via_way *way)
{
    struct via_dma *dma = way->dma;

    dma->aborting = true;
    dma->abort_ns = dma->channel->now_ns;
    way->port->ops->dma_abort(way->port, dma->channel->index);
}

void via_dma_release(struct via_way *way)
{
    struct via_dma *dma = way->dma;

    via_list_foreach(it, &dma->running) {
        via_list_entry(it, struct via_dma_stage, link)->record = NULL;
    }
    way->tx.deferred = 0;
    if (dma->running_count != 0 && !dma->aborting) {
        abort_all(way);
    }
}

/* --- sending ---------------------------------------------------------------------------------- */

static void publish_ready(struct via_way *way)
{
    while (way->tx.deferred != 0) {
        const struct via_dma_record *record = record_at(way, way->tx.sequence - way->tx.deferred);
        if (record->waits && !VIA_MUTANT(DMA_FIRST)) {
            break;
        }
        via_pipe_publish(&way->tx, &record->header, sizeof(record->header), record->body_bytes);
        via_way_sent(way, record->header.kind, record->body_bytes);
    }
    set_dma_from(way);
}

/* A free stage, if the engine can accept a DMA now; else NULL. */
static struct via_dma_stage *take_stage(struct via_way *way)
{
    struct via_dma *dma = way->dma;

    if (dma->aborting || dma->channel->now_ns < dma->resume_ns ||
        dma->running_count >= way->port->caps.dma_depth) {
        return NULL;
    }
    struct via_list *first = via_list_pop_front(&dma->free);
    return first != NULL ? via_list_entry(first, struct via_dma_stage, link) : NULL;
}

/* Meanwhile no body is copied into a stage, because that copy would be wasted. */
static void pause_engine(struct via_dma *dma)
{
    dma->resume_ns = dma->channel->now_ns + PAUSE_FACTOR * dma->channel->node->config.dma_ns_max;
}

/* Starts a DMA of the body. False: PIO must copy it. */
static bool start(struct via_way *way, struct via_dma_record *record, const void *body)
{
    struct via_dma *dma = way->dma;
    struct via_dma_stage *stage = take_stage(way);

    if (stage == NULL) {
        via_count(&way->dma_busy, 1);
        return false;
    }
    uint64_t cookie = ++dma->serial << COOKIE_STAGE_BITS | (uint64_t)(stage - dma->stages);
    via_copy_foreign(stage->data, body, record->body_bytes);
    int rc = way->port->ops->dma(way->port, dma->channel->index, record->off, stage->data,
                                 record->body_bytes, cookie);
    if (rc != 0) {
        via_list_push_front(&dma->free, &stage->link);
        via_count(rc == -EAGAIN ? &way->dma_busy : &way->dma_fallbacks, 1);
        if (rc == -ENOTSUP) {
            pause_engine(dma);
        }
        return false;
    }
    stage->cookie = cookie;
    stage->record = record;
    stage->since_ns = dma->channel->now_ns;
    via_list_push_back(VIA_MUTANT(DMA_REUSE) ? &dma->free : &dma->running, &stage->link);
    dma->running_count++;
    return true;
}

void via_dma_send(struct via_way *way, const struct via_frame_header *header, const void *body,
                  size_t body_bytes)
{
    uint32_t sequence = way->tx.sequence;
    uint64_t off = 0;
    int rc = via_pipe_defer(&way->tx, body_bytes, &off);
    assert(rc == 0); /* the caller has checked for room, see via_way_send() */
    (void)rc;

    struct via_dma_record *record = record_at(way, sequence);
    *record = (struct via_dma_record){
        .header = *header,
        .off = off,
        .body_bytes = (uint32_t)body_bytes,
    };
    record->waits =
        body_bytes >= atomic_load_explicit(&way->dma->bytes_min, memory_order_relaxed) &&
        start(way, record, body);
    if (!record->waits && body_bytes != 0) {
        via_pipe_put_body(&way->tx, off, body, body_bytes);
    }
    publish_ready(way);
}

/* --- completions ------------------------------------------------------------------------------ */

/* The stage of a cookie. NULL: such a DMA was never started, so its completion is ignored. */
static struct via_dma_stage *stage_of(const struct via_dma *dma, uint64_t cookie)
{
    uint32_t index = (uint32_t)cookie & COOKIE_STAGE_MASK;
    if (index >= dma->channel->node->config.dma_buffers || cookie == 0 ||
        dma->stages[index].cookie != cookie) {
        return NULL;
    }
    return &dma->stages[index];
}

static void put_by_pio(struct via_way *way, const struct via_dma_stage *stage)
{
    struct via_dma_record *record = stage->record;
    if (!VIA_MUTANT(DMA_FAILED)) {
        via_pipe_put_body(&way->tx, record->off, stage->data, record->body_bytes);
    }
    record->waits = false;
    via_count(&way->dma_fallbacks, 1);
}

static void ended(struct via_way *way, uint64_t cookie, int result)
{
    struct via_dma *dma = way->dma;
    struct via_dma_stage *stage = stage_of(dma, cookie);

    if (stage == NULL) {
        return;
    }
    if (result == 0) {
        via_count(&way->dma_frames, 1);
        if (stage->record != NULL) {
            stage->record->waits = false;
            via_count(&way->dma_bytes, stage->record->body_bytes);
        }
    } else if (stage->record != NULL) {
        /* The link was down: bodies that were stored meanwhile may be lost although their lines
         * would arrive. */
        dma->lost |= result == -ENOLINK && !VIA_MUTANT(DMA_FLAP);
        put_by_pio(way, stage);
    }
    stage->cookie = 0;
    stage->record = NULL;
    via_list_remove(&stage->link);
    via_list_push_front(&dma->free, &stage->link);
    dma->running_count--;
    dma->aborting = dma->aborting && dma->running_count != 0;
    dma->channel->work++;
}

static void take(struct via_way *way)
{
    struct via_port *port = way->port;
    uint64_t cookies[TAKE_MAX];
    int results[TAKE_MAX];
    unsigned count;

    do {
        count = port->ops->dma_take(port, way->dma->channel->index, cookies, results, TAKE_MAX);
        for (unsigned i = 0; i < count; i++) {
            ended(way, cookies[i], results[i]);
        }
    } while (count == TAKE_MAX && way->dma->running_count != 0);
}

/* Only for the mutant, which does not wait for the end of an abort. */
static void put_all_by_pio(struct via_way *way)
{
    via_list_foreach(it, &way->dma->running) {
        struct via_dma_stage *stage = via_list_entry(it, struct via_dma_stage, link);
        if (stage->record != NULL) {
            put_by_pio(way, stage);
            stage->record = NULL;
        }
    }
}

uint64_t via_dma_deadline_ns(const struct via_way *way)
{
    const struct via_dma *dma = way->dma;
    uint64_t since_ns = dma->abort_ns;

    if (!dma->aborting && !via_list_is_empty(&dma->running)) {
        since_ns = via_list_entry(dma->running.next, struct via_dma_stage, link)->since_ns;
    }
    return since_ns + dma->channel->node->config.dma_ns_max;
}

/* False: the engine was aborted and has not stopped in time. */
static bool watch(struct via_way *way)
{
    struct via_dma *dma = way->dma;
    uint64_t now_ns = dma->channel->now_ns;

    if (dma->running_count == 0 || now_ns < via_dma_deadline_ns(way)) {
        return true;
    }
    bool first = !dma->aborting;
    abort_all(way);
    pause_engine(dma);
    if (first) {
        via_count(&way->dma_hangs, 1);
        if (VIA_MUTANT(DMA_HASTE)) {
            put_all_by_pio(way);
        }
    }
    return first || !way->up;
}

bool via_dma_poll(struct via_way *way)
{
    take(way);
    if (way->up && way->dma->lost) {
        return false;
    }
    if (!watch(way)) {
        return false;
    }
    if (way->up) {
        publish_ready(way);
    }
    return true;
}
