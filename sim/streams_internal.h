/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* What the files of the streams share. */
#ifndef SIM_STREAMS_INTERNAL_H
#define SIM_STREAMS_INTERNAL_H

#include "base/rng.h"
#include "sim/clock.h"
#include "sim/plant.h"
#include "sim/streams.h"
#include "sim/streams_burst.h"
#include "sockets/stream.h"
#include "sockets/stream_stall.h"

#define EPOCH 7u
#define CHUNK_MAX 4096u

enum step { STEP_WORK = 0, STEP_RING, STEP_ARM, STEP_LOOK };

/* One direction of a connection: its pipe, its way through the kernel, and what is known of both.
 */
struct direction {
    struct via_pipe_geometry geometry;
    unsigned char *memory; /* owned; at the reader */
    _Atomic uint64_t credit;
    uint32_t *data_ends; /* owned */
    struct via_stream_tx tx;
    struct via_stream_rx rx;
    uint64_t total;   /* bytes that the program wants to send */
    uint64_t content; /* seed */
    uint64_t sent;    /* of them, by either way */
    uint64_t received;
    unsigned char *kernel; /* owned: what went that way, in order */
    uint64_t kernel_sent, kernel_arrived, kernel_read;
    bool kernel_fin, kernel_fin_arrived;
    bool switched, fin_sent, ended;
    struct via_avail_words at_writer, at_reader; /* of zero-copy */
    uint64_t avail_bytes;                        /* left to be fetched, from `sent` on; 0 = none */
};

struct end {
    struct direction *out, *in;
    enum step step;
    bool asleep, bell;
    bool pulled;    /* the writer is to be told how far fetching is */
    bool in_fetch;  /* has claimed what is to be fetched, and is about to copy it */
    bool in_kernel; /* has looked at the pipe and found nothing: about to read from the kernel */
    bool ring_reader,
        ring_writer; /* something was written, given back: the peer may have to know */
    bool rogue;
    struct burst burst;
    struct via_stream_stall stall;
    bool listens; /* sleeps for room, and wants to know of records all the same */
    uint32_t rogue_turns;
    uint32_t ticket;
};

struct connection {
    struct direction directions[2];
    struct end ends[2];
    bool rogue; /* one of its ends is: nothing is promised any more */
};

struct streams {
    const struct sim_config_streams *config;
    int plant;
    FILE *trace;
    struct sim_clock clock;
    struct via_rng rng;
    struct connection *connections; /* owned */
    struct sim_streams_result *result;
    unsigned char chunk[CHUNK_MAX];
};

static inline uint64_t between(struct streams *streams, uint64_t lo, uint64_t hi)
{
    return via_rng_between(&streams->rng, lo, hi);
}

static inline bool chance(struct streams *streams, uint32_t per_mille)
{
    return per_mille != 0 && via_rng_chance(&streams->rng, per_mille, 1000);
}

/* A reader of this direction, as at the start of its connection. */
void sim_streams_reader_init(struct streams *streams, struct direction *way);

/* A turn of an end of a connection that has a rogue; false when it was the last. */
bool sim_streams_rogue_turn(struct streams *streams, struct connection *connection,
                            struct end *end);

#endif
