/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* What the files of streams between hosts share: see streams_hosts.c. */
#ifndef SIM_STREAMS_HOSTS_H
#define SIM_STREAMS_HOSTS_H

#include "base/rng.h"
#include "base/types.h"
#include "sim/clock.h"
#include "sim/plant.h"
#include "sim/streams.h"
#include "sim/streams_burst.h"
#include "sim/streams_fate.h"
#include "sockets/stream/phase.h"
#include "sockets/stream/stream.h"
#include "sockets/stream/stream_replay.h"
#include "sockets/stream/stream_stall.h"

#define CHUNK_MAX 4096u

/* The states that an end publishes to its peer; sockets/conn/side.h has the same as bits of a
 * word. */
struct said {
    bool demote, followed, stays, closed, kernel_end;
    uint32_t released, skip; /* with demote: the offset at which it stopped */
};

enum frame_kind { FRAME_RECORD = 1, FRAME_WANT, FRAME_CREDIT, FRAME_SAID };

struct frame {
    enum frame_kind kind;
    uint64_t word; /* want, credit; sequence of a record */
    struct said said;
};

/* Frames under way from an end, in order. */
struct line {
    struct frame *frames; /* owned; a ring */
    uint32_t head, count, capacity;
    uint32_t records; /* pipe records among them: a path carries a limited number */
    uint64_t last_ns;
};

struct way {
    struct via_pipe_geometry geometry;
    unsigned char *memory; /* owned; at the reader */
    unsigned char *mirror; /* owned; the writer's copy of it */
    _Atomic uint64_t credit;
    _Atomic uint64_t credit_mirror; /* at the reader */
    uint64_t credit_pushed, want_pushed;
    uint32_t *data_ends; /* owned */
    struct via_stream_tx tx;
    struct via_stream_rx rx;
    struct via_stream_rx rx_left; /* copy made when the reader left the pipe */
    uint64_t total, content, sent, received;
    unsigned char *kernel; /* owned */
    uint64_t kernel_sent, kernel_arrived, kernel_read, kernel_last_ns;
    uint64_t again; /* pipe bytes that the kernel had carried, too, when the writer left */
    bool switched, fin_sent, fin_at_death, fin_arrived, ended;
};

struct end {
    struct way *out, *in;
    struct line line;
    struct said said; /* by this end */
    struct said heard;
    struct via_stream_replay replay;
    enum via_phase phase;
    bool sent_again, sent_whole; /* bytes in the pipe when it left; all read bytes */
    uint64_t drops;              /* bytes that arrive again, which it had read before it left */
    bool execs; /* in exec(): returns to the kernel, and does nothing else until then */
    bool dead;  /* was killed */
    bool asleep, bell;
    struct fate kill, exec;
    struct burst burst;
    struct via_stream_stall stall;
    uint32_t ticket;
};

struct connection {
    struct way ways[2];
    struct end ends[2];
};

struct hosts {
    const struct sim_config_streams *config;
    int plant;
    FILE *trace;
    struct sim_clock clock;
    struct via_rng rng;
    struct via_rng fate;            /* when an end is killed, or calls exec() */
    struct connection *connections; /* owned */
    struct sim_streams_result *result;
    unsigned char chunk[CHUNK_MAX];
};

static inline uint64_t between(struct hosts *hosts, uint64_t lo, uint64_t hi)
{
    return via_rng_between(&hosts->rng, lo, hi);
}

static inline bool chance(struct hosts *hosts, uint32_t per_mille)
{
    return per_mille != 0 && via_rng_chance(&hosts->rng, per_mille, 1000);
}

static inline bool line_has_room(const struct hosts *hosts, const struct end *end)
{
    return end->line.records < hosts->config->frames_max;
}

/* Bytes that arrive again take no room from later ones: real buffers are larger than a pipe, and
 * these bytes are few, since the reader returns credit for bytes it has read before (READY: not
 * modelled). */
static inline uint64_t kernel_room(const struct hosts *hosts, const struct way *way)
{
    return hosts->config->kernel_bytes + way->again - (way->kernel_sent - way->kernel_read);
}

void sim_hosts_fail(struct hosts *hosts, const char *format, ...) VIA_PRINTF(2, 3);
void sim_hosts_trace(struct hosts *hosts, unsigned connection, unsigned end, const char *what,
                     uint64_t number);
/* Changes the end's phase; fails the run if the state machine forbids it. */
void sim_hosts_event(struct hosts *hosts, unsigned number, unsigned which, enum via_event event);
void sim_hosts_wake(struct hosts *hosts, unsigned number, unsigned which);

/* Sends changed words, and the last written record if there is one. */
void sim_hosts_push(struct hosts *hosts, unsigned number, unsigned which, bool record);
/* Sends the state that the end publishes now. */
void sim_hosts_send_flags(struct hosts *hosts, unsigned number, unsigned which);
/* 0 bytes: the FIN. */
void sim_hosts_kernel_send(struct hosts *hosts, unsigned number, unsigned which, const void *data,
                           uint32_t bytes);

/* Called before an end sleeps for room: true if it must not sleep. */
bool sim_hosts_watch_stall(struct hosts *hosts, unsigned number, unsigned which);

/* Kills and exec(): streams_hosts_life.c. */
void sim_hosts_draw_fate(struct hosts *hosts, struct end *end);
/* Called before each turn; false: this end has just been killed. */
bool sim_hosts_is_alive(struct hosts *hosts, unsigned number, unsigned which);
/* The peer is dead, and all the bytes it had written have arrived. */
bool sim_hosts_all_is_there(const struct connection *connection, unsigned which);
/* Has everything arrived in a direction that ends now? */
bool sim_hosts_is_all(const struct connection *connection, unsigned which);
/* A write to a dead end returns EPIPE, and the program stops. */
void sim_hosts_give_up(struct hosts *hosts, unsigned number, unsigned which);
/* One action of an end in a turn. False: there is nothing to do. */
bool sim_hosts_work(struct hosts *hosts, unsigned number, unsigned which);

#endif
