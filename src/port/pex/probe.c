/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Checks whether writes of the DMA function arrive. A chip that does not have the requester id of
 * the function in its table drops the writes, and the function still reports success. So each time
 * the link comes up, and after a restart of the function, the function copies a line of fresh
 * random data into the peer's page, and the CPU reads that line back through the window. Until the
 * line has arrived, the CPU copies all bodies.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "port/pex/engine.h"

#define CHANNEL 0u
/* In place of a queue number: no transfer thread takes this DMA. */
#define QUEUE VIA_PORT_DATA_DOORBELLS
/* Time limit for the copy of 64 bytes, and then again for its arrival. */
#define PROBE_NS (20 * VIA_MSEC_NS)
/* Interval of new probes after a failure or a timeout. If writes are refused, the next probe is
 * after the next link down. */
#define AGAIN_NS VIA_SEC_NS
#define TRIES 3u
#define SOURCES_OFF 2048u /* after the rings: a line for each slot of the channel */

_Static_assert(VIA_PLX_DMA_CHANNELS *VIA_PLX_SLOTS * sizeof(struct via_plx_dma_descriptor) <=
                       SOURCES_OFF &&
                   SOURCES_OFF + VIA_PLX_SLOTS * VIA_CACHELINE <= VIA_PLX_RINGS_BYTES,
               "one page");

static void set_verdict(struct via_pex_dma *dma, enum via_plx_verdict verdict, uint64_t now_ns)
{
    struct via_plx_probe *probe = &dma->probe;
    probe->step = VIA_PLX_PROBE_OVER;
    probe->verdict = verdict;
    bool is_passing = verdict == VIA_PLX_FAILED || verdict == VIA_PLX_SILENT;
    probe->again_ns = is_passing ? now_ns + AGAIN_NS : UINT64_MAX;
    /* Relaxed: read in via_pex_dma_start(), and publishes no other data. */
    atomic_store_explicit(&dma->works, verdict == VIA_PLX_WORKS, memory_order_relaxed);
}

/* The probe's slot of the channel, or NULL. */
static struct via_plx_slot *find_slot(struct via_pex_dma *dma)
{
    struct via_plx_channel *channel = &dma->engine->channels[CHANNEL];
    for (unsigned i = 0; i < VIA_PLX_SLOTS; i++) {
        struct via_plx_slot *slot = &channel->slots[i];
        if (slot->state != VIA_PLX_SLOT_FREE && slot->user == dma && slot->queue == QUEUE) {
            return slot;
        }
    }
    return NULL;
}

/* Draws a new line for each probe, so that a late write of an earlier probe does not match. */
static void draw_line(struct via_pex_dma *dma)
{
    struct via_plx_probe *probe = &dma->probe;
    uint64_t seed[] = {dma->pex->session, ++probe->serial, 0};
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(probe->line); i++) {
        seed[2] = i;
        probe->line[i] = via_hash64(VIA_HASH64_INIT, seed, sizeof(seed));
    }
}

/* With the channel's lock. false: the channel is full or being aborted. */
static bool start_copy(struct via_pex_dma *dma)
{
    struct via_plx_engine *engine = dma->engine;
    struct via_plx_channel *channel = &engine->channels[CHANNEL];
    unsigned place = channel->head % VIA_PLX_SLOTS;
    if (channel->abort_ns != 0 || channel->slots[place].state != VIA_PLX_SLOT_FREE ||
        channel->head - channel->done >= VIA_PLX_SLOTS - 1) {
        return false;
    }
    draw_line(dma);
    uint64_t off = SOURCES_OFF + place * VIA_CACHELINE;
    memcpy(engine->rings + off, dma->probe.line, sizeof(dma->probe.line));
    channel->slots[place] =
        (struct via_plx_slot){.state = VIA_PLX_SLOT_BUSY, .user = dma, .queue = QUEUE};
    dma->probe.holds_slot = true;
    channel->head++;
    via_plx_dma_fill(&channel->ring[place], engine->rings_iova + off,
                     dma->window_address + offsetof(struct via_pex_page, probed),
                     VIA_PLX_DMA_VALID | VIA_PLX_DMA_WANTS_INTERRUPT | VIA_CACHELINE);
    via_plx_channel_write(engine, CHANNEL, VIA_PLX_DMA_CONTROL,
                          VIA_PLX_DMA_START | VIA_PLX_DMA_CLEARS);
    return true;
}

static void start(struct via_pex_dma *dma, uint64_t now_ns)
{
    struct via_plx_probe *probe = &dma->probe;
    probe->life = atomic_load_explicit(&dma->engine->lives_count, memory_order_acquire);
    if (atomic_load_explicit(&dma->engine->dead, memory_order_relaxed)) {
        set_verdict(dma, VIA_PLX_DEAD, now_ns);
    } else if (dma->window_address == 0) {
        set_verdict(dma, VIA_PLX_LOST, now_ns);
    } else if (start_copy(dma)) {
        probe->step = VIA_PLX_PROBE_COPIES;
        probe->tries++;
        probe->deadline_ns = now_ns + PROBE_NS;
    } else if (now_ns >= probe->deadline_ns) {
        set_verdict(dma, VIA_PLX_SILENT, now_ns);
    }
}

/* A read of the CPU follows the engine's writes once these have reached the NT port. No source
 * states how long they take, so the CPU reads until the deadline. */
static void read_back(struct via_pex_dma *dma, struct via_pex_port *pex, uint64_t now_ns)
{
    struct via_plx_probe *probe = &dma->probe;
    bool same = true;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(probe->line) && same; i++) {
        uint64_t off = offsetof(struct via_pex_page, probed) + i * sizeof(probe->line[0]);
        same = via_pex_load_word(pex, off) == probe->line[i];
    }
    if (same || now_ns >= probe->deadline_ns) {
        set_verdict(dma, same ? VIA_PLX_WORKS : VIA_PLX_REFUSED, now_ns);
    }
}

/* Handles the end of the copy. If it failed, it is repeated, because another port on the channel
 * may have aborted it. */
static void take_result(struct via_pex_dma *dma, int result, uint64_t now_ns)
{
    struct via_plx_probe *probe = &dma->probe;
    if (result == 0) {
        probe->step = VIA_PLX_PROBE_READS;
        probe->deadline_ns = now_ns + PROBE_NS;
    } else if (probe->tries < TRIES && now_ns < probe->deadline_ns) {
        probe->step = VIA_PLX_PROBE_DUE;
    } else {
        set_verdict(dma, VIA_PLX_FAILED, now_ns);
    }
}

/* With the channel's lock. The copy of an abandoned probe is aborted before the next probe
 * starts. */
static void advance(struct via_pex_dma *dma, uint64_t now_ns)
{
    struct via_plx_probe *probe = &dma->probe;
    struct via_plx_slot *slot = find_slot(dma);
    if (slot != NULL) {
        via_plx_channel_collect(dma->engine, CHANNEL, dma->pex);
        if (slot->state == VIA_PLX_SLOT_DONE) {
            slot->state = VIA_PLX_SLOT_FREE;
            if (probe->step == VIA_PLX_PROBE_COPIES) {
                take_result(dma, slot->result, now_ns);
            }
        } else if (probe->step != VIA_PLX_PROBE_OVER && now_ns >= probe->deadline_ns) {
            via_plx_channel_abort(dma, CHANNEL, QUEUE);
            set_verdict(dma, VIA_PLX_SILENT, now_ns);
        } else if (probe->step == VIA_PLX_PROBE_DUE && !slot->aborted) {
            via_plx_channel_abort(dma, CHANNEL, QUEUE);
        }
        return;
    }
    if (probe->step == VIA_PLX_PROBE_COPIES) { /* the function was lost, with its slots */
        set_verdict(dma, VIA_PLX_DEAD, now_ns);
    }
    if (probe->step == VIA_PLX_PROBE_DUE) {
        start(dma, now_ns);
    }
}

void via_pex_probe_begin(struct via_pex_port *pex)
{
    struct via_pex_dma *dma = pex->dma;
    if (dma != NULL) {
        atomic_store_explicit(&dma->works, false, memory_order_relaxed);
        dma->probe.step = VIA_PLX_PROBE_DUE;
        dma->probe.tries = 0;
        dma->probe.deadline_ns = 0;
    }
}

/* True if the function was restarted, or the time for a new probe has come. */
static bool is_due_again(const struct via_pex_dma *dma, uint64_t now_ns)
{
    const struct via_plx_probe *probe = &dma->probe;
    uint32_t life = atomic_load_explicit(&dma->engine->lives_count, memory_order_acquire);
    bool is_over = probe->step == VIA_PLX_PROBE_OVER;
    return probe->step != VIA_PLX_PROBE_DUE &&
           (life != probe->life || (is_over && now_ns >= probe->again_ns));
}

bool via_pex_probe_turn(struct via_pex_port *pex)
{
    struct via_pex_dma *dma = pex->dma;
    if (dma == NULL) {
        return true;
    }
    uint64_t now_ns = via_pex_now_ns(pex);
    if (is_due_again(dma, now_ns)) {
        via_pex_probe_begin(pex);
    }
    if (dma->probe.deadline_ns == 0) {
        dma->probe.deadline_ns = now_ns + PROBE_NS;
    }
    struct via_plx_channel *channel = &dma->engine->channels[CHANNEL];
    if (via_plx_channel_try_lock(channel)) {
        advance(dma, now_ns);
        via_plx_channel_unlock(channel);
    }
    if (dma->probe.step == VIA_PLX_PROBE_READS) {
        read_back(dma, pex, now_ns);
    }
    return dma->probe.step == VIA_PLX_PROBE_OVER;
}

void via_pex_probe_reap(struct via_pex_port *pex)
{
    struct via_pex_dma *dma = pex->dma;
    struct via_plx_channel *channel = &dma->engine->channels[CHANNEL];
    if (!dma->probe.holds_slot || dma->probe.step == VIA_PLX_PROBE_COPIES ||
        !via_plx_channel_try_lock(channel)) {
        return;
    }
    struct via_plx_slot *slot = find_slot(dma);
    if (slot != NULL) {
        via_plx_channel_collect(dma->engine, CHANNEL, pex);
        slot->state = slot->state == VIA_PLX_SLOT_DONE ? VIA_PLX_SLOT_FREE : slot->state;
    }
    dma->probe.holds_slot = find_slot(dma) != NULL;
    via_plx_channel_unlock(channel);
}

bool via_pex_probe_is_under_way(const struct via_pex_port *pex)
{
    return pex->dma != NULL && pex->dma->probe.step != VIA_PLX_PROBE_OVER;
}

bool via_pex_probe_describe(const struct via_pex_port *pex, char *ret_text, size_t bytes)
{
    static const char *const causes[] = {
        [VIA_PLX_REFUSED] = "what the DMA function writes does not arrive at the peer, although "
                            "it reports success: the chip's table of requester ids does not know "
                            "the number that its requests carry (entered is",
        [VIA_PLX_FAILED] = "the DMA function fails to copy 64 bytes to the peer",
        [VIA_PLX_SILENT] = "the DMA function does not end a copy of 64 bytes to the peer",
        [VIA_PLX_LOST] = "the address of the window on the bus is not known",
        [VIA_PLX_DEAD] = "the DMA function does not obey an abort, or is not reachable any more, "
                         "so the driver has switched off its bus mastering",
    };
    const struct via_pex_dma *dma = pex->dma;
    if (dma == NULL) {
        return false;
    }
    bool is_dead = atomic_load_explicit(&dma->engine->dead, memory_order_relaxed);
    enum via_plx_verdict verdict = is_dead ? VIA_PLX_DEAD : dma->probe.verdict;
    if (verdict == VIA_PLX_UNKNOWN || verdict == VIA_PLX_WORKS) {
        return false;
    }
    int length = snprintf(ret_text, bytes, "bodies go without DMA: %s", causes[verdict]);
    if (verdict == VIA_PLX_REFUSED && length > 0 && (size_t)length < bytes) {
        unsigned id = via_pex_dma_requester(pex);
        snprintf(ret_text + length, bytes - (size_t)length, " %02x:%02x)", id >> 8, id >> 3 & 31);
    }
    return true;
}
