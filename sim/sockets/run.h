/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Connections carried by the sockets library's own sources. The simulator provides the functions
 * that these call: send and recv on the kernel's TCP connection (kernel.c), bells and sleeps
 * (local.c) and puts by frames (client.c); and the program at each end, a fiber (program.c).
 */
#ifndef SIM_SOCKETS_RUN_H
#define SIM_SOCKETS_RUN_H

#include <signal.h>

#include "base/rng.h"
#include "base/types.h"
#include "sim/clock.h"
#include "sim/cost/fiber.h"
#include "sim/plant.h"
#include "sim/sockets/burst.h"
#include "sim/sockets/fate.h"
#include "sim/streams.h"
#include "sockets/conn/conn.h"
#include "sockets/fabric/fabric_internal.h"

/* One direction by the kernel. */
struct sock_way {
    unsigned char *bytes; /* owned: all that went this way, in order */
    size_t capacity;
    uint64_t sent, arrived, read;
    uint64_t buffer_bytes; /* SO_SNDBUF and SO_RCVBUF together */
    uint64_t last_ns;      /* when the last of them arrives */
    bool fin_sent, fin_arrived;
};

struct sock_frame {
    unsigned char *data; /* owned */
    size_t off, bytes;
};

/* Frames under way, in order. */
struct sock_line {
    struct sock_frame *frames; /* owned; a ring */
    uint32_t head, count, capacity;
    uint64_t last_ns;
};

struct sock_end {
    struct via_conn conn;
    struct via_fabric fabric;       /* between hosts: the carrier, and the peer's segment */
    struct via_remote remote;       /* ... */
    struct via_peer_bell peer_bell; /* within a host */
    struct via_sock_bell_word word; /* ... counts its sleeps */
    struct sock_run *run;
    struct sock_end *peer;
    unsigned number;        /* of the end: its descriptor, too */
    unsigned char *segment; /* owned; the peer puts into it */
    struct sock_line line;  /* leaving from here */
    struct sock_way out;    /* likewise */

    struct sim_fiber fiber;
    uint32_t ticket;   /* of the event that makes it go on */
    bool pauses;       /* in the library: only time ends it */
    bool asleep, bell; /* until something comes; which has come */
    uint32_t wanted;   /* POLLIN, POLLOUT: the events that the program sleeps for */
    bool dead, closed, leaving;
    bool kept;  /* what could not be sent at once at its end is sent later */
    bool reset; /* its TCP connection, by either end */
    bool rogue; /* writes garbage into its peer's memory: nothing is promised to either */

    /* The program. */
    bool waits_in, waits_out; /* in calls of recv() and send() */
    uint32_t turns_left;      /* of the peer of a rogue */
    uint64_t total, content;  /* bytes to send, and their seed */
    uint64_t sent, received;
    uint64_t
        in_call; /* of them, by the call of send() under way: some, or none, when it is killed */
    uint64_t bytes_seen, seen_ns; /* so many of both, since then */
    bool fin_sent, fin_at_death, ended;
    struct burst burst;
    struct fate kill, exec;
    bool spilled;
    uint64_t vain_ns; /* since then it reads in vain, though the kernel has told the end; 0: it does
                         not */
};

struct sock_run {
    const struct sim_config_streams *config;
    FILE *trace;
    struct sim_clock clock;
    struct via_rng rng, fate; /* fate: when ends are killed, or call exec() */
    struct sock_end *ends;    /* owned; two for each connection */
    unsigned ends_count;
    struct sim_streams_result *result;
    int plant;
    bool is_lenient; /* an end of a rogue's connection runs: it may fail, and must not crash */
};

/* The one that is running: the library's calls of the machine have no argument for it. */
extern struct sock_run *sock_run_now;

static inline struct sock_end *sock_end_of(int fd)
{
    return &sock_run_now->ends[fd];
}

static inline uint64_t sock_between(struct sock_run *run, uint64_t lo, uint64_t hi)
{
    return via_rng_between(&run->rng, lo, hi);
}

static inline bool sock_chance(struct sock_run *run, uint32_t per_mille)
{
    return per_mille != 0 && via_rng_chance(&run->rng, per_mille, 1000);
}

/* --- run.c ------------------------------------------------------------------------------------ */

void sock_fail(struct sock_run *run, const char *format, ...) VIA_PRINTF(2, 3);
void sock_trace(const struct sock_end *end, const char *what, uint64_t number);
/* From within its fiber: for so long, and perhaps longer; it may be killed meanwhile, and then does
 * not return. */
void sock_pause(struct sock_end *end, uint64_t ns);
/* ... until it is woken, or so long; SIM_NEVER: as long as that takes. */
void sock_sleep(struct sock_end *end, uint64_t ns);
void sock_wake(struct sock_end *end);

/* The end whose fiber runs; NULL: none does. */
struct sock_end *sock_running(void);
/* Byte `at` of a stream. */
unsigned char sock_byte(uint64_t content, uint64_t at);

/* --- kernel.c --------------------------------------------------------------------------------- */

void sock_kernel_init(void);
/* 0 bytes: its FIN, or RST. */
void sock_kernel_arrives(struct sock_end *from, uint32_t bytes, bool reset);
void sock_kernel_fin(struct sock_end *end);

/* --- local.c --------------------------------------------------------------------------------- */

void sock_rogue_main(void *end);
/* Of each signal. */
int sock_sigaction(int number, const struct sigaction *action, struct sigaction *ret_before);

/* --- client.c --------------------------------------------------------------------------------- */

void sock_frame_arrives(struct sock_end *from);
void sock_line_free(struct sock_line *line);

/* --- program.c -------------------------------------------------------------------------------- */

void sock_program_main(void *end);
/* Has it been killed just now? */
bool sock_program_is_killed(struct sock_end *end);
/* It has done all that it wants to do. */
bool sock_program_is_over(const struct sock_end *end);

#endif
