/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A lane: the posted writes of one queue on their way to the other end of an emulated link, in
 * memory that both ends map. An emulated port that is as strict as hardware (docs/emulated-port.md)
 * stores nothing into the peer's inbox itself: it appends to a lane, and the writes arrive later,
 * in an order that the contract of core/port.h allows and that chance picks.
 *
 * Either end may let writes arrive: the receiver when it polls, the sender when the lane is full or
 * a fence has to prove arrival. So a write arrives although one of the processes sleeps or is
 * stopped, and no thread has to carry it. A lock in the lane keeps the two apart. No thread waits
 * for the lock here: a function that does not get it says -EAGAIN, and a process that dies with the
 * lock ends the connection, with which the lane ends as well.
 *
 * A write is one entry or several. BODY entries arrive in any order and at any time, also before
 * entries that were posted earlier. A WORD entry arrives after everything that was posted before
 * it.
 *
 * The peer can write to all of a lane, so what is read there is copied once and checked.
 */
#ifndef VIA_PORT_EMU_LANE_H
#define VIA_PORT_EMU_LANE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "base/types.h"

#define VIA_EMU_LANE_DATA_BYTES 32768u /* a power of two */
#define VIA_EMU_LANE_PIECE_BYTES 2048u /* most of a body in one entry */

enum via_emu_flight_kind {
    VIA_EMU_FLIGHT_BODY = 1,
    VIA_EMU_FLIGHT_WORD = 2,
    VIA_EMU_FLIGHT_SKIP = 3, /* the rest of the ring is too short for the next entry */
};

/* Header of an entry; the bytes of a body follow, rounded up to whole headers. */
struct via_emu_flight {
    uint32_t round; /* of the link when it was posted: void in any other */
    uint16_t kind;  /* enum via_emu_flight_kind */
    uint16_t arrived;
    uint32_t bytes; /* of a body; 0 with other kinds */
    uint32_t reserved;
    uint64_t off; /* in the peer's inbox */
    uint64_t word;
};
_Static_assert(sizeof(struct via_emu_flight) == 32, "divides the ring");

/* Shared. Positions count bytes from the beginning of the connection and wrap; posted and flushed
 * are the sender's, taken belongs to the holder of the lock. */
struct via_emu_lane {
    _Atomic uint32_t posted VIA_CACHELINE_ALIGNED;
    _Atomic uint32_t flushed;    /* up to here entries arrive without further calls of the sender */
    _Atomic uint64_t flushed_ns; /* when the sender flushed last, CLOCK_MONOTONIC */
    _Atomic uint32_t taken VIA_CACHELINE_ALIGNED; /* up to here all has arrived */
    _Atomic uint32_t lock;
    unsigned char data[VIA_EMU_LANE_DATA_BYTES] VIA_CACHELINE_ALIGNED;
};

/* The sender's end of a lane. Belongs to the thread that uses the queue. */
struct via_emu_lane_writer {
    struct via_emu_lane *lane; /* borrowed */
    uint32_t posted;
    uint32_t flushed;
    struct via_rng rng;
};

/* The lane's memory is zero, or only this writer still has it. */
void via_emu_lane_writer_init(struct via_emu_lane_writer *writer, struct via_emu_lane *lane,
                              uint64_t seed);

/*
 * Appends a body, or as much of it as there is room for, and returns the number of bytes. The
 * caller appends the rest once writes have arrived.
 */
VIA_MUST_CHECK size_t via_emu_lane_post_body(struct via_emu_lane_writer *writer, uint32_t round,
                                             uint64_t off, const void *src, size_t len);

/* Appends a word. false: no room. */
VIA_MUST_CHECK bool via_emu_lane_post_word(struct via_emu_lane_writer *writer, uint32_t round,
                                           uint64_t off, uint64_t word);

/* All entries posted so far arrive without further calls. */
void via_emu_lane_flush(struct via_emu_lane_writer *writer, uint64_t now_ns);

static inline bool via_emu_lane_is_flushed(const struct via_emu_lane_writer *writer)
{
    return writer->flushed == writer->posted;
}

/* Memory that writes arrive in. */
struct via_emu_lane_target {
    unsigned char *memory; /* 8-byte aligned */
    uint64_t bytes;
    uint32_t round; /* entries of other rounds vanish */
};

enum via_emu_lane_extent {
    VIA_EMU_LANE_SOME,    /* what chance picks: perhaps some, perhaps none */
    VIA_EMU_LANE_FLUSHED, /* all that is flushed, and perhaps more */
    VIA_EMU_LANE_ALL,     /* all that is posted */
};

/*
 * Lets entries arrive in target. delay_ns: with SOME, entries that were flushed at least this time
 * ago arrive in any case. 0; -EAGAIN: the other end, or another thread, has the lock; -EPROTO: what
 * lies in the lane are no entries that fit the target, and the connection must end. Bounded by the
 * size of a lane.
 */
VIA_MUST_CHECK int via_emu_lane_arrive(struct via_emu_lane *lane,
                                       const struct via_emu_lane_target *target,
                                       enum via_emu_lane_extent extent, struct via_rng *rng,
                                       uint64_t now_ns, uint64_t delay_ns);

/* True if a write has not arrived. Loads without the lock. */
static inline bool via_emu_lane_is_empty(const struct via_emu_lane *lane)
{
    /* Sequentially consistent, as the store of posted: a fence that has announced something to the
     * sender finds what the sender posted before it could see that. */
    return atomic_load_explicit(&lane->posted, memory_order_seq_cst) ==
           atomic_load_explicit(&lane->taken, memory_order_relaxed);
}

#endif
