/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* What the files of the streams share. */
#ifndef SIM_STREAMS_INTERNAL_H
#define SIM_STREAMS_INTERNAL_H

#include "base/rng.h"
#include "sim/clock.h"
#include "sim/plant.h"
#include "sim/streams.h"
#include "sim/streams_burst.h"
#include "sim/streams_fate.h"
#include "sockets/stream/stream.h"
#include "sockets/stream/stream_stall.h"

#define EPOCH 7u
#define CHUNK_MAX 4096u

enum step { STEP_WORK = 0, STEP_RING, STEP_ARM, STEP_CHECK };

/* One direction of a connection: its pipe, its way through the kernel, and the checker's record of
 * both. */
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
    unsigned char *kernel; /* owned: bytes that the kernel carried, in order */
    uint64_t kernel_sent, kernel_arrived, kernel_read;
    bool kernel_fin, kernel_fin_arrived;
    bool switched, fin_sent, ended;
    bool fin_at_death;
    struct via_avail_words at_writer, at_reader; /* of zero-copy */
    uint64_t avail_bytes; /* left at the writer to be fetched, from `sent` on; 0 = none */
};

#define THREADS_MAX 2u

/* A thread that holds an end: of the first process, or of one that was forked from it. */
struct thread {
    enum step step;
    bool lives;
    bool asleep, bell;
    bool listens; /* sleeps for room, and must be woken for records, too */
    uint32_t ticket;
    struct fate kill;
    uint64_t late_ns; /* it is killed so much later, whatever it does then */
};

struct end {
    struct direction *out, *in;
    uint32_t connection; /* its number */
    struct thread threads[THREADS_MAX];
    struct thread
        *in_call; /* has begun to fetch, or to read from the kernel: no other thread may */
    uint32_t fork_turns_left;
    bool shared;    /* was forked */
    bool dead;      /* all holders of it are killed */
    bool peer_gone; /* the kernel has reported that the other end is dead */
    bool pulled;    /* must tell the writer how far fetching is */
    bool late;      /* bytes that it left were not fetched: it copies the next ones */
    bool in_fetch;  /* has claimed bytes to fetch, and is about to copy them */
    bool in_kernel; /* has found the pipe empty: about to read from the kernel */
    bool ring_reader, ring_writer; /* has written or given back: may have to wake the peer */
    bool rogue;
    struct burst burst;
    struct via_stream_stall stall;
    uint32_t rogue_turns;
};

struct connection {
    struct direction directions[2];
    struct end ends[2];
    bool rogue; /* one of its ends is a rogue: no guarantee holds any more */
};

struct streams {
    const struct sim_config_streams *config;
    int plant;
    FILE *trace;
    struct sim_clock clock;
    struct via_rng rng;
    struct via_rng fate;            /* when a holder forks and is killed */
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

/* Threads have numbers: the end's number, and twice that of the thread at it. */
static inline struct end *end_at(struct streams *streams, unsigned connection, unsigned number)
{
    return &streams->connections[connection].ends[number & 1];
}

static inline struct thread *thread_at(struct streams *streams, unsigned connection,
                                       unsigned number)
{
    return &end_at(streams, connection, number)->threads[number >> 1];
}

static inline const struct end *writer_of(const struct connection *connection,
                                          const struct direction *way)
{
    return &connection->ends[way == &connection->directions[0] ? 0 : 1];
}

void sim_streams_fail(struct streams *streams, const char *format, ...) VIA_PRINTF(2, 3);
void sim_streams_trace(struct streams *streams, unsigned connection, unsigned number,
                       const char *format, ...) VIA_PRINTF(4, 5);
void sim_streams_turn_after(struct streams *streams, unsigned connection, unsigned number,
                            uint64_t delay_ns);
/* All threads at an end. */
void sim_streams_wake(struct streams *streams, unsigned connection, unsigned end);
void sim_streams_kernel_send(struct streams *streams, unsigned number, struct direction *way,
                             const void *data, uint32_t bytes);

/* Bytes in `chunk` that have been received. */
void sim_streams_check_chunk(struct streams *streams, struct direction *way, uint64_t bytes);

/* Zero-copy: streams_avail.c. The writer leaves bytes (check: may it go on?), the reader meets and
 * fetches them. */
bool sim_streams_avail_open(struct streams *streams, struct end *end);
bool sim_streams_avail_check(struct streams *streams, struct end *end);
void sim_streams_avail_meet(struct streams *streams, struct end *end);
void sim_streams_avail_fetch(struct streams *streams, struct end *end, uint64_t max);

/* Forks and kills: streams_life.c. */
void sim_streams_draw_fate(struct streams *streams, struct connection *connection);
/* Called before each turn; false: this thread has just been killed. */
bool sim_streams_is_alive(struct streams *streams, unsigned connection, unsigned number);
/* The fault's time has come. */
void sim_streams_kill(struct streams *streams, unsigned connection, unsigned number);
/* A write to a dead end returns EPIPE, and the program stops. */
void sim_streams_give_up(struct end *end);
/* Has everything arrived in a direction that ends now? */
bool sim_streams_is_all(const struct connection *connection, const struct direction *way);

/* A reader of this direction, as at the start of its connection. */
void sim_streams_reader_init(struct streams *streams, struct direction *way);

/* A turn of an end of a connection with a rogue; false if it was the last. */
bool sim_streams_rogue_turn(struct streams *streams, struct connection *connection,
                            struct end *end);

#endif
