/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A lane: a ring, in memory that both ends of an emulated link map, of the posted writes of one
 * queue that have not arrived yet. An emulated port with the weak promises of hardware
 * (docs/emulated-port.md) does not store into the peer's inbox: it appends to a lane. The writes
 * arrive later, in a random order among those that the contract of core/port.h allows.
 *
 * Either end may deliver writes: the receiver when it polls, the sender when the lane is full or
 * a fence has to prove arrival. So a write arrives even if one of the processes sleeps or is
 * stopped, and no extra thread is needed. A lock in the lane serializes the two ends. No function
 * waits for the lock: one that does not get it returns -EAGAIN. If a process dies with the lock,
 * the connection ends, and the lane with it.
 *
 * A write is one entry or several. BODY entries arrive in any order and at any time, also before
 * entries that were posted earlier. A WORD entry arrives after everything that was posted before
 * it.
 *
 * The peer can write to all of a lane. So each entry is copied once, and the copy is checked.
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
#define VIA_EMU_LANE_PIECE_BYTES 2048u /* largest part of a body in one entry */

enum via_emu_flight_kind {
    VIA_EMU_FLIGHT_BODY = 1,
    VIA_EMU_FLIGHT_WORD = 2,
    VIA_EMU_FLIGHT_SKIP = 3, /* the rest of the ring is too short for the next entry */
};

/* Header of an entry; the bytes of a body follow, rounded up to whole headers. */
struct via_emu_flight {
    uint32_t round; /* of the link at the time of posting; void in any other round */
    uint16_t kind;  /* enum via_emu_flight_kind */
    uint16_t arrived;
    uint32_t bytes; /* of a body; 0 with other kinds */
    uint32_t reserved;
    uint64_t off; /* in the peer's inbox */
    uint64_t word;
};
_Static_assert(sizeof(struct via_emu_flight) == 32, "divides the ring");

/* Shared. Positions count bytes since the beginning of the connection, modulo 2^32. The sender
 * writes posted and flushed; the holder of the lock writes taken. */
struct via_emu_lane {
    _Atomic uint32_t posted VIA_CACHELINE_ALIGNED;
    _Atomic uint32_t flushed;    /* entries before it arrive without further calls of the sender */
    _Atomic uint64_t flushed_ns; /* time of the sender's last flush, CLOCK_MONOTONIC */
    _Atomic uint32_t taken VIA_CACHELINE_ALIGNED; /* all entries before it have arrived */
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

/* The caller ensures that the lane's memory is zero, or that only this writer still uses it. */
void via_emu_lane_writer_init(struct via_emu_lane_writer *writer, struct via_emu_lane *lane,
                              uint64_t seed);

/*
 * Appends a body, or the first part that fits, and returns its number of bytes. The caller appends
 * the rest after some writes have arrived.
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
    VIA_EMU_LANE_SOME,    /* a random choice: some, all or none */
    VIA_EMU_LANE_FLUSHED, /* all flushed entries, and a random part of the others */
    VIA_EMU_LANE_ALL,     /* all posted entries */
};

/*
 * Delivers entries to the target. delay_ns: with SOME, entries that were flushed at least delay_ns
 * ago arrive in any case. 0; -EAGAIN: the peer, or another thread, holds the lock; -EPROTO: the
 * lane has invalid entries, or entries outside the target, and the caller must end the connection.
 * Bounded by the size of a lane.
 */
VIA_MUST_CHECK int via_emu_lane_arrive(struct via_emu_lane *lane,
                                       const struct via_emu_lane_target *target,
                                       enum via_emu_lane_extent extent, struct via_rng *rng,
                                       uint64_t now_ns, uint64_t delay_ns);

/* True if a write has not arrived. Loads without the lock. */
static inline bool via_emu_lane_is_empty(const struct via_emu_lane *lane)
{
    /* Pairs with the sequentially consistent store of posted in the sender. A thread that announces
     * something to the sender and then fences sees all entries that the sender posted before the
     * announcement was visible to it. */
    return atomic_load_explicit(&lane->posted, memory_order_seq_cst) ==
           atomic_load_explicit(&lane->taken, memory_order_relaxed);
}

#endif
