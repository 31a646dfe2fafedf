/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "port/emu/lane.h"

#include <errno.h>
#include <string.h>

#include "base/copy.h"

#define HEADER ((uint32_t)sizeof(struct via_emu_flight))
#define RING VIA_EMU_LANE_DATA_BYTES
_Static_assert((RING & (RING - 1)) == 0 && VIA_EMU_LANE_PIECE_BYTES % sizeof(uint64_t) == 0,
               "positions wrap, pieces keep their alignment");

/* --- the sender --- */

void via_emu_lane_writer_init(struct via_emu_lane_writer *writer, struct via_emu_lane *lane,
                              uint64_t seed)
{
    *writer = (struct via_emu_lane_writer){.lane = lane};
    via_rng_init(&writer->rng, seed);
    atomic_store_explicit(&lane->posted, 0, memory_order_relaxed);
    atomic_store_explicit(&lane->flushed, 0, memory_order_relaxed);
    atomic_store_explicit(&lane->taken, 0, memory_order_relaxed);
}

static uint32_t room(const struct via_emu_lane_writer *writer)
{
    /* Pairs with the release in take(): no process reads these entries any more. */
    uint32_t taken = atomic_load_explicit(&writer->lane->taken, memory_order_acquire);
    uint32_t used = writer->posted - taken;
    return used <= RING ? RING - used : 0; /* else a hostile peer wrote `taken` */
}

static uint32_t left_of_lap(const struct via_emu_lane_writer *writer)
{
    return RING - (writer->posted & (RING - 1));
}

static void append(struct via_emu_lane_writer *writer, const struct via_emu_flight *flight,
                   const void *src)
{
    unsigned char *at = writer->lane->data + (writer->posted & (RING - 1));
    via_copy_foreign(at, flight, HEADER);
    via_copy_foreign(at + HEADER, src, flight->bytes);
    writer->posted += HEADER + via_align_up(flight->bytes, HEADER);
    /* Pairs with the acquire of posted in via_emu_lane_arrive(). */
    atomic_store_explicit(&writer->lane->posted, writer->posted, memory_order_release);
}

/* A random length for the next entry of a body, because write-combining buffers drain in part, and
 * packets are split. */
static uint32_t piece_of(struct via_emu_lane_writer *writer, size_t len)
{
    uint32_t piece = (uint32_t)via_min(len, (size_t)VIA_EMU_LANE_PIECE_BYTES);
    uint64_t chance = via_rng_next(&writer->rng);
    if (piece <= 4 || (chance & 3) != 0) {
        return piece;
    }
    return 4 * (uint32_t)(1 + (chance >> 2) % ((piece - 1) / 4));
}

size_t via_emu_lane_post_body(struct via_emu_lane_writer *writer, uint32_t round, uint64_t off,
                              const void *src, size_t len)
{
    size_t done = 0;
    while (done < len) {
        uint32_t free = room(writer);
        uint32_t lap = left_of_lap(writer);
        struct via_emu_flight flight = {.round = round, .kind = VIA_EMU_FLIGHT_SKIP};
        if (free < 3 * HEADER) {
            break;
        }
        if (lap > HEADER) {
            uint32_t most = via_min(lap, free) - HEADER;
            flight.kind = VIA_EMU_FLIGHT_BODY;
            flight.bytes = via_min(piece_of(writer, len - done), most);
            flight.off = off + done;
        }
        append(writer, &flight, (const unsigned char *)src + done);
        done += flight.bytes;
    }
    return done;
}

bool via_emu_lane_post_word(struct via_emu_lane_writer *writer, uint32_t round, uint64_t off,
                            uint64_t word)
{
    struct via_emu_flight flight = {
        .round = round, .kind = VIA_EMU_FLIGHT_WORD, .off = off, .word = word};
    if (room(writer) < HEADER) {
        return false;
    }
    append(writer, &flight, &word);
    return true;
}

void via_emu_lane_flush(struct via_emu_lane_writer *writer, uint64_t now_ns)
{
    writer->flushed = writer->posted;
    atomic_store_explicit(&writer->lane->flushed_ns, now_ns, memory_order_relaxed);
    /* Pairs with the acquire in choose(). */
    atomic_store_explicit(&writer->lane->flushed, writer->flushed, memory_order_release);
}

/* --- arrival --- */

/* Which of the entries between taken and posted arrive. */
struct choice {
    uint32_t all_bytes;    /* all entries that begin before this distance from taken */
    uint32_t body_eighths; /* chance of each body behind that, in eighths */
};

/* A random choice for writes that no fence and no doorbell pushes. */
static struct choice draw(uint32_t flushed, uint32_t posted, struct via_rng *rng)
{
    uint64_t chance = via_rng_next(rng);
    switch (chance & 7) {
    case 0:
        return (struct choice){0};
    case 1:
    case 2:
        return (struct choice){.body_eighths = 4};
    case 3:
    case 4:
        return (struct choice){.all_bytes = (uint32_t)((chance >> 3) % (flushed + 1)),
                               .body_eighths = 4};
    case 5: /* a buffer drains without a flush */
        return (struct choice){.all_bytes = (uint32_t)((chance >> 3) % (posted + 1)),
                               .body_eighths = 2};
    default:
        return (struct choice){.all_bytes = flushed};
    }
}

static struct choice choose(struct via_emu_lane *lane, uint32_t taken, uint32_t posted,
                            enum via_emu_lane_extent extent, struct via_rng *rng, uint64_t now_ns,
                            uint64_t delay_ns)
{
    /* Pairs with the release in via_emu_lane_flush(). `taken` may be past `flushed`, because
     * unflushed writes may arrive too.
     */
    int32_t ahead = (int32_t)(atomic_load_explicit(&lane->flushed, memory_order_acquire) - taken);
    uint32_t flushed = ahead < 0 ? 0 : via_min((uint32_t)ahead, posted);
    uint64_t flushed_ns = atomic_load_explicit(&lane->flushed_ns, memory_order_relaxed);

    switch (extent) {
    case VIA_EMU_LANE_ALL:
        return (struct choice){.all_bytes = posted};
    case VIA_EMU_LANE_SOME:
        if (now_ns - flushed_ns < delay_ns) {
            return draw(flushed, posted, rng);
        }
        break;
    case VIA_EMU_LANE_FLUSHED:
        break;
    }
    return (struct choice){.all_bytes = flushed, .body_eighths = via_rng_chance(rng, 1, 8) ? 4 : 0};
}

/* Copies the header at a position, and checks the copy: the entry must lie within the lane, within
 * the posted bytes, and within the target. */
static int load(const struct via_emu_lane *lane, uint32_t at, uint32_t left,
                const struct via_emu_lane_target *target, struct via_emu_flight *ret_flight)
{
    uint32_t index = at & (RING - 1);
    struct via_emu_flight flight;

    via_copy_foreign(&flight, lane->data + index, HEADER);
    if (flight.kind == VIA_EMU_FLIGHT_BODY) {
        if (flight.bytes > VIA_EMU_LANE_PIECE_BYTES ||
            via_align_up(flight.bytes, HEADER) > via_min(RING - index, left) - HEADER ||
            flight.off > target->bytes || flight.bytes > target->bytes - flight.off) {
            return -EPROTO;
        }
    } else if (flight.kind == VIA_EMU_FLIGHT_WORD) {
        if (flight.bytes != 0 || flight.off % sizeof(uint64_t) != 0 ||
            flight.off > target->bytes - sizeof(uint64_t)) {
            return -EPROTO;
        }
    } else if (flight.kind != VIA_EMU_FLIGHT_SKIP || flight.bytes != 0) {
        return -EPROTO;
    }
    *ret_flight = flight;
    return 0;
}

static void store(const struct via_emu_lane *lane, uint32_t at, const struct via_emu_flight *flight,
                  const struct via_emu_lane_target *target)
{
    if (flight->round != target->round) {
        return; /* posted before the link went down */
    }
    if (flight->kind == VIA_EMU_FLIGHT_BODY) {
        via_copy_foreign(target->memory + flight->off, lane->data + (at & (RING - 1)) + HEADER,
                         flight->bytes);
    } else if (flight->kind == VIA_EMU_FLIGHT_WORD) {
        /* One atomic store, after all entries that arrived before it. Pairs with the reader's
         * acquire load of this word. */
        atomic_store_explicit((_Atomic uint64_t *)(void *)(target->memory + flight->off),
                              flight->word, memory_order_release);
    }
}

static void mark_arrived(struct via_emu_lane *lane, uint32_t at)
{
    static const uint16_t arrived = 1;
    memcpy(lane->data + (at & (RING - 1)) + offsetof(struct via_emu_flight, arrived), &arrived,
           sizeof(arrived));
}

static int take(struct via_emu_lane *lane, const struct via_emu_lane_target *target,
                uint32_t posted, const struct choice *choice, struct via_rng *rng)
{
    uint32_t taken = atomic_load_explicit(&lane->taken, memory_order_relaxed);
    bool gapless = true; /* all entries so far have arrived */

    for (uint32_t past = 0, bytes; past < posted; past += bytes) {
        struct via_emu_flight flight;
        uint32_t at = taken + past;
        int rc = load(lane, at, posted - past, target, &flight);
        if (rc != 0) {
            return rc;
        }
        bytes = HEADER + via_align_up(flight.bytes, HEADER);
        if (flight.arrived == 0) {
            bool loose = flight.kind == VIA_EMU_FLIGHT_BODY || flight.round != target->round;
            if (past < choice->all_bytes ||
                (loose && via_rng_chance(rng, choice->body_eighths, 8))) {
                store(lane, at, &flight, target);
                mark_arrived(lane, at);
            } else {
                gapless = false;
            }
        }
        if (gapless) {
            /* Pairs with the acquire in room(). */
            atomic_store_explicit(&lane->taken, at + bytes, memory_order_release);
        }
    }
    return 0;
}

int via_emu_lane_arrive(struct via_emu_lane *lane, const struct via_emu_lane_target *target,
                        enum via_emu_lane_extent extent, struct via_rng *rng, uint64_t now_ns,
                        uint64_t delay_ns)
{
    /* Pairs with the release below: the new holder sees the state that the last one left. */
    if (atomic_exchange_explicit(&lane->lock, 1, memory_order_acquire) != 0) {
        return -EAGAIN;
    }
    /* Pairs with the release in append(). */
    uint32_t posted = atomic_load_explicit(&lane->posted, memory_order_acquire);
    uint32_t taken = atomic_load_explicit(&lane->taken, memory_order_relaxed);
    int rc = 0;
    if (posted - taken > RING || posted % HEADER != 0 || taken % HEADER != 0) {
        rc = -EPROTO;
    } else if (posted != taken) {
        struct choice choice = choose(lane, taken, posted - taken, extent, rng, now_ns, delay_ns);
        rc = take(lane, target, posted - taken, &choice, rng);
    }
    atomic_store_explicit(&lane->lock, 0, memory_order_release);
    return rc;
}
