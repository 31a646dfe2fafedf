/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Write-combining buffers between a thread and the bus: they hold lines of stores, merge stores to
 * the same line, and leave in any order and in parts (Intel SDM volume 3, 12.3.1). A fence drains
 * only the buffers of its own thread. */
#include <string.h>

#include "base/rng.h"
#include "sim/pex/bus.h"

#define LINE_BYTES 64u

static struct via_rng *rng_of(const struct sim_pex_side *side)
{
    return &side->end->world->rng_port;
}

/* Sends a whole line as one packet. Of a partial line each run of bytes within 8 is a packet. */
static void drain(struct sim_pex_side *side, struct sim_pex_buffer *buffer)
{
    side->end->world->counts.drains++;
    if (buffer->mask == UINT64_MAX) {
        sim_pex_bus_post(side, buffer->region, buffer->line_off, buffer->data, LINE_BYTES);
    } else {
        for (unsigned from = 0, to; from < LINE_BYTES; from = to + 1) {
            to = from;
            while (to < LINE_BYTES && (buffer->mask >> to & 1) != 0 &&
                   (to == from || to % 8 != 0)) {
                to++;
            }
            if (to > from) {
                sim_pex_bus_post(side, buffer->region, buffer->line_off + from, buffer->data + from,
                                 to - from);
                to -= 1; /* the next run may begin at once */
            }
        }
    }
    buffer->mask = 0;
}

/* A buffer with contents: of this thread; NULL: of any thread. Returns NULL if there is none. */
static struct sim_pex_buffer *some_buffer(struct sim_pex_side *side,
                                          const struct sim_thread *thread, bool any_thread)
{
    struct sim_pex_buffer *used[SIM_WC_BUFFERS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < side->pex->buffers_count; i++) {
        struct sim_pex_buffer *buffer = &side->buffers[i];
        if (buffer->mask != 0 && (any_thread || buffer->thread == thread)) {
            used[count++] = buffer;
        }
    }
    return count == 0 ? NULL : used[sim_between(rng_of(side), 0, count - 1)];
}

static struct sim_pex_buffer *find_buffer(struct sim_pex_side *side, unsigned region,
                                          uint64_t line_off)
{
    const struct sim_thread *thread = side->end->world->current;
    struct sim_pex_buffer *free_one = NULL;
    for (uint32_t i = 0; i < side->pex->buffers_count; i++) {
        struct sim_pex_buffer *buffer = &side->buffers[i];
        if (buffer->mask == 0) {
            free_one = buffer;
        } else if (buffer->thread == thread && buffer->region == region &&
                   buffer->line_off == line_off) {
            return buffer;
        }
    }
    if (free_one == NULL) {
        free_one = some_buffer(side, thread, true);
        drain(side, free_one);
    }
    *free_one = (struct sim_pex_buffer){.line_off = line_off, .region = region, .thread = thread};
    return free_one;
}

void sim_pex_combine(struct sim_pex_side *side, unsigned region, uint64_t off,
                     const unsigned char *data, size_t len)
{
    while (len != 0) {
        unsigned within = (unsigned)(off % LINE_BYTES);
        size_t part = via_min(len, (size_t)(LINE_BYTES - within));
        struct sim_pex_buffer *buffer = find_buffer(side, region, off - within);
        memcpy(buffer->data + within, data, part);
        buffer->mask |= (part == LINE_BYTES ? UINT64_MAX : (UINT64_C(1) << part) - 1) << within;
        off += part;
        data += part;
        len -= part;
        if (via_rng_chance(rng_of(side), 1, 8)) { /* some leave by themselves */
            drain(side, some_buffer(side, NULL, true));
        }
    }
}

void sim_pex_combine_fence(struct sim_pex_side *side)
{
    struct sim_pex_buffer *buffer;
    while ((buffer = some_buffer(side, side->end->world->current, false)) != NULL) {
        drain(side, buffer);
    }
}
