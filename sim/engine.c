/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * DMA engines: one in each port that has any, shared by the transfer threads. A copy reads its
 * source and makes parts of it visible at any time until its cookie is taken; it ends in or out of
 * order, fails, or hangs until it is aborted, which takes a while. The bytes of a finished copy may
 * still be under way when its cookie is taken: they then arrive before the thread's next put, as
 * core/port.h says.
 */
#include "sim/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/link.h"
#include "sim/memory.h"
#include "sim/posted.h"

enum state {
    RUNNING = 0,
    HUNG,
    ENDING, /* aborted, or its link went down */
    ENDED,  /* can be taken */
};

struct sim_engine_dma {
    struct sim_engine_dma *next;
    uint64_t off, cookie;
    const unsigned char *src; /* the node's */
    uint32_t bytes;
    uint32_t number;
    uint8_t queue;
    uint8_t state;
    bool trails; /* its bytes leave when it is taken */
    int result;
    uint32_t era;        /* of the link when it started */
    unsigned char was[]; /* the content of src at the start, which must stay until it is taken */
};

static uint32_t event_end(const struct sim_end *end)
{
    return (uint32_t)(end - end->link->end);
}

static const struct sim_config_dma *config_of(const struct sim_end *end)
{
    return &end->world->config.dma;
}

static bool chance(struct sim_end *end, uint32_t per_mille)
{
    return per_mille != 0 && via_rng_chance(&end->world->rng_dma, per_mille, 1000);
}

static bool is_overlapping(const struct sim_engine_dma *dma, uint64_t off, uint64_t bytes)
{
    return off < dma->off + dma->bytes && dma->off < off + bytes;
}

static const struct sim_engine_dma *at_work_on(const struct sim_end *end, uint64_t off,
                                               uint64_t bytes)
{
    for (const struct sim_engine_dma *dma = end->dmas; dma != NULL; dma = dma->next) {
        if (is_overlapping(dma, off, bytes)) {
            return dma;
        }
    }
    return NULL;
}

/* --- bytes ----------------------------------------------------------------------------------- */

/* The engine reads: its source must still exist, unchanged. */
static bool check_source(struct sim_end *end, const struct sim_engine_dma *dma)
{
    if (memcmp(dma->src, dma->was, dma->bytes) == 0) {
        return true;
    }
    sim_fail(end->world, "host %u port %u: the source of DMA %u changes while the engine is at it",
             end->host, end->index, dma->number);
    return false;
}

/* Some of its bytes arrive. */
static void write_part(struct sim_end *end, const struct sim_engine_dma *dma)
{
    struct via_rng *rng = &end->world->rng_dma;
    uint64_t pattern = via_rng_next(rng);
    if (!check_source(end, dma)) {
        return;
    }
    for (uint32_t off = 0; off < dma->bytes; off += 16) {
        if (pattern >> (off / 16 % 64) & 1) {
            memcpy(end->peer->inbox + dma->off + off, dma->src + off,
                   via_min(dma->bytes - off, 16u));
        }
    }
}

static void write_all(struct sim_end *end, const struct sim_engine_dma *dma)
{
    uint32_t bytes = dma->bytes;
    if (end->world->plant == SIM_PLANT_SHORT_DMA && via_rng_chance(&end->world->rng_dma, 1, 20)) {
        bytes = bytes / 2;
    }
    if (check_source(end, dma)) {
        memcpy(end->peer->inbox + dma->off, dma->src, bytes);
    }
}

/* --- ends ------------------------------------------------------------------------------------ */

static void at(struct sim_end *end, uint64_t time_ns, enum sim_event_kind kind,
               const struct sim_engine_dma *dma)
{
    sim_clock_at(&end->world->clock, time_ns, kind, end->link->index, event_end(end), dma->number);
}

static void interrupt(struct sim_end *end, unsigned queue)
{
    end->events |= VIA_PORT_EVENT_DMA_DONE(queue);
    if (end->world->healed || !chance(end, config_of(end)->lost_chance)) {
        sim_thread_interrupt(&end->world->hosts[end->host].threads[queue]);
    }
}

static const char *result_name(int result)
{
    return result == 0 ? "done" : result == -EIO ? "fails" : "ends in the middle";
}

static void finish(struct sim_end *end, struct sim_engine_dma *dma)
{
    struct sim_world *world = end->world;
    if (dma->state == RUNNING && !world->healed && chance(end, config_of(end)->fail_chance)) {
        dma->result = -EIO;
        world->counts.dma_failed++;
    }
    dma->state = ENDED;
    dma->trails = dma->result == 0 && chance(end, config_of(end)->trail_chance);
    if (dma->result != 0 && end->link->up) {
        write_part(end, dma);
    } else if (dma->result == 0 && !dma->trails) {
        write_all(end, dma);
    }
    sim_trace(world, "  host %u > host %u (link %u, thread %u): DMA %u %s", end->host,
              end->peer->host, end->link->index, dma->queue, dma->number, result_name(dma->result));
    interrupt(end, dma->queue);
}

static struct sim_engine_dma *find(const struct sim_end *end, uint32_t number)
{
    struct sim_engine_dma *dma = end->dmas;
    while (dma != NULL && dma->number != number) {
        dma = dma->next;
    }
    return dma;
}

void sim_link_dma(struct sim_link *link, uint32_t end_number, uint32_t number)
{
    struct sim_end *end = &link->end[end_number];
    struct sim_engine_dma *dma = find(end, number);
    if (dma != NULL && (dma->state == RUNNING || dma->state == ENDING)) {
        finish(end, dma); /* aborted meanwhile, it ends when the abort or the copy does */
    }
}

void sim_link_dma_show(struct sim_link *link, uint32_t end_number, uint32_t number)
{
    struct sim_end *end = &link->end[end_number];
    const struct sim_engine_dma *dma = find(end, number);
    if (dma != NULL && dma->state != ENDED && link->up) {
        write_part(end, dma);
    }
}

/* --- calls of a port ------------------------------------------------------------------------- */

static bool is_right(struct sim_end *end, unsigned queue, uint64_t off, size_t len, uint64_t cookie)
{
    struct sim_world *world = end->world;
    if (world->current == NULL || world->current->host->index != end->host ||
        world->current->channel != queue) {
        sim_fail(world, "host %u port %u: DMA queue %u is used by another thread", end->host,
                 end->index, queue);
        return false;
    }
    if (off > end->port.caps.window_bytes || len > end->port.caps.window_bytes - off || len == 0) {
        sim_fail(world, "host %u port %u: DMA of %zu bytes at %#llx is outside the window",
                 end->host, end->index, len, (unsigned long long)off);
        return false;
    }
    for (const struct sim_engine_dma *dma = end->dmas; dma != NULL; dma = dma->next) {
        if (dma->queue == queue && dma->cookie == cookie) {
            sim_fail(world, "host %u port %u: DMA cookie %#llx is given again", end->host,
                     end->index, (unsigned long long)cookie);
            return false;
        }
    }
    const struct sim_engine_dma *other = at_work_on(end, off, len);
    if (other != NULL) {
        sim_fail(world, "host %u port %u: DMA at %#llx, where DMA %u is at work", end->host,
                 end->index, (unsigned long long)off, other->number);
    }
    return other == NULL;
}

static uint64_t duration(struct sim_end *end)
{
    const struct sim_config_dma *config = config_of(end);
    return sim_between(&end->world->rng_dma, config->ns_min, config->ns_max);
}

/* Draws when it ends, and which bytes become visible before; or never. */
static void plan(struct sim_end *end, struct sim_engine_dma *dma)
{
    struct sim_world *world = end->world;
    const struct sim_config_dma *config = config_of(end);
    uint64_t now = world->clock.now_ns;
    uint64_t begin = config->in_order ? via_max(now, end->dma_last_ns) : now;
    uint64_t ends = begin + duration(end);
    if (chance(end, config->show_chance)) {
        at(end, via_rng_between(&world->rng_dma, now, ends), SIM_EVENT_DMA_SHOW, dma);
    }
    if (!world->healed && chance(end, config->hang_chance)) {
        dma->state = HUNG;
        world->counts.dma_hung++;
        return;
    }
    end->dma_last_ns = ends;
    at(end, ends, SIM_EVENT_DMA, dma);
}

int sim_engine_start(struct sim_end *end, unsigned queue, uint64_t off, const void *src, size_t len,
                     uint64_t cookie)
{
    struct sim_world *world = end->world;
    const struct sim_config_dma *config = config_of(end);
    if (end->port.caps.dma_depth == 0) {
        return -ENOTSUP;
    }
    if (!is_right(end, queue, off, len, cookie)) {
        return -EINVAL;
    }
    if (world->traps_armed != 0) {
        sim_fault_traffic(world, end->link->index, end->host);
    }
    sim_mark(world, SIM_MARK_PUT, off << 20 ^ len, (uint64_t)end->host << 8 ^ end->index);
    if (!end->link->up) {
        return -ENOLINK;
    }
    if (end->dmas_count >= end->port.caps.dma_depth || chance(end, config->busy_chance)) {
        return -EAGAIN;
    }
    if (!world->healed && chance(end, config->fail_chance / 4)) {
        end->dmas_refused++;
        return -EIO;
    }
    struct sim_engine_dma *dma = sim_alloc(sizeof(*dma) + len);
    dma->off = off;
    dma->bytes = (uint32_t)len;
    dma->src = src;
    dma->cookie = cookie;
    dma->queue = (uint8_t)queue;
    dma->number = end->dma_next_number++;
    dma->era = end->link->era;
    memcpy(dma->was, src, len);
    struct sim_engine_dma **last = &end->dmas;
    while (*last != NULL) {
        last = &(*last)->next;
    }
    *last = dma;
    end->dmas_count++;
    world->counts.dmas++;
    plan(end, dma);
    sim_trace(world, "  host %u > host %u (link %u, thread %u): DMA %u of %zu bytes%s", end->host,
              end->peer->host, end->link->index, queue, dma->number, len,
              dma->state == HUNG ? ", hangs" : "");
    return 0;
}

static void take_out(struct sim_end *end, struct sim_engine_dma **place)
{
    struct sim_engine_dma *dma = *place;
    *place = dma->next;
    end->dmas_count--;
    free(dma);
}

/* Its bytes leave now, before the thread's next put. */
static void trail(struct sim_end *end, const struct sim_engine_dma *dma)
{
    if (!end->link->up || end->link->era != dma->era || !check_source(end, dma)) {
        return;
    }
    if (end->link->direct) {
        write_all(end, dma);
    } else {
        sim_posted_by_engine(end, &end->lanes[dma->queue], dma->off, dma->src, dma->bytes);
    }
}

unsigned sim_engine_take(struct sim_end *end, unsigned queue, uint64_t *ret_cookies,
                         int *ret_results, unsigned max)
{
    unsigned count = 0;
    for (struct sim_engine_dma **place = &end->dmas; *place != NULL && count < max;) {
        struct sim_engine_dma *dma = *place;
        if (dma->state != ENDED || dma->queue != queue) {
            place = &dma->next;
            continue;
        }
        if (check_source(end, dma) && dma->trails) {
            trail(end, dma);
        }
        if (end->link->era != dma->era) {
            dma->result = -ENOLINK;
        }
        end->dmas_good += dma->result == 0;
        end->dmas_refused += dma->result == -EIO;
        ret_cookies[count] = dma->cookie;
        ret_results[count++] = dma->result;
        take_out(end, place);
    }
    return count;
}

static void end_soon(struct sim_end *end, struct sim_engine_dma *dma, int result)
{
    struct sim_world *world = end->world;
    const struct sim_config_dma *config = config_of(end);
    uint64_t after = via_rng_below(&world->rng_dma, config->abort_ns_max + UINT64_C(1));
    if (!world->healed && chance(end, config->stubborn_chance)) {
        after += via_rng_below(&world->rng_dma, 3 * world->config.node.dma_ns_max + 1);
    }
    dma->state = ENDING;
    dma->result = result;
    at(end, world->clock.now_ns + after, SIM_EVENT_DMA, dma);
}

void sim_engine_abort(struct sim_end *end, unsigned queue)
{
    sim_trace(end->world, "  host %u port %u: DMA of queue %u is aborted", end->host, end->index,
              queue);
    for (struct sim_engine_dma *dma = end->dmas; dma != NULL; dma = dma->next) {
        if (dma->queue == queue && (dma->state == RUNNING || dma->state == HUNG)) {
            end_soon(end, dma, -ECANCELED);
        }
    }
}

void sim_engine_cut(struct sim_end *end)
{
    for (struct sim_engine_dma *dma = end->dmas; dma != NULL; dma = dma->next) {
        if (dma->state == RUNNING) {
            write_part(end, dma);
            end->world->counts.dma_torn++;
            end_soon(end, dma, -ENOLINK);
        }
    }
}

void sim_engine_drop(struct sim_end *end)
{
    while (end->dmas != NULL) {
        if (end->dmas->state != ENDED && end->link->up) {
            write_part(end, end->dmas);
        }
        take_out(end, &end->dmas);
    }
    end->dmas_good = 0;
    end->dmas_refused = 0;
}

/* --- calls of the node ----------------------------------------------------------------------- */

/* The place of a record's body, from the lengths of all earlier records: as docs/protocol.md
 * says. */
static void check_record(struct sim_end *end, unsigned pipe,
                         const struct via_pipe_geometry *geometry, size_t data_off, uint64_t word)
{
    uint32_t bytes = (via_record_word_length(word) + 63u) & ~63u;
    uint32_t *head = &end->data_heads[pipe];
    if (via_record_word_sequence(word) == end->world->config.node.pipe_first) {
        *head = 0;
    }
    if (bytes == 0) {
        return;
    }
    *head = *head + bytes > geometry->data_bytes ? 0 : *head;
    const struct sim_engine_dma *dma = at_work_on(end, data_off + *head, bytes);
    if (dma != NULL) {
        sim_fail(end->world,
                 "host %u port %u: record %u is published, and DMA %u of its body is not done",
                 end->host, end->index, via_record_word_sequence(word), dma->number);
    }
    *head += bytes;
}

void sim_engine_check_put(struct sim_end *end, uint64_t off, const void *src, size_t len)
{
    struct sim_world *world = end->world;
    const struct via_node *node = world->hosts[end->host].node;
    const struct sim_engine_dma *dma = at_work_on(end, off, len);
    if (dma != NULL) {
        sim_fail(world, "host %u port %u: %zu bytes are put to %#llx, where DMA %u is at work",
                 end->host, end->index, len, (unsigned long long)off, dma->number);
        return;
    }
    for (unsigned pipe = 1; node != NULL && pipe <= world->config.node.channels_count; pipe++) {
        struct via_inbox_place place;
        const struct via_pipe_geometry *geometry = &node->links[end->index].geometry;
        via_inbox_place(geometry, pipe, &place);
        size_t slots_off = place.memory_off + VIA_RECORD_LINE_BYTES;
        size_t data_off = slots_off + (size_t)geometry->slots_count * VIA_RECORD_LINE_BYTES;
        if (len == VIA_RECORD_LINE_BYTES && off >= slots_off && off < data_off) {
            uint64_t word;
            memcpy(&word, (const unsigned char *)src + offsetof(struct via_record_line, word),
                   sizeof(word));
            check_record(end, pipe, geometry, data_off, word);
        }
    }
}
