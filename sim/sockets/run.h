/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Connections that run the sockets library's own sources. The simulator provides the functions that
 * these sources call: send and recv on the kernel's TCP connection (kernel.c), bells and sleeps
 * (local.c) and puts by frames (client.c); and the program at each end, a fiber (program.c).
 */
#ifndef SIM_SOCKETS_RUN_H
#define SIM_SOCKETS_RUN_H

#include <signal.h>

#include "base/list.h"
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

/* One direction of the kernel connection. */
struct sock_way {
    unsigned char *bytes; /* owned: all bytes sent in this direction, in order */
    size_t capacity;
    uint64_t sent, arrived, read;
    uint64_t buffer_bytes; /* SO_SNDBUF and SO_RCVBUF together */
    uint64_t last_ns;      /* when the last byte under way arrives */
    bool fin_sent, fin_arrived;
};

/* Frames under way, in order. */
struct sock_line {
    struct via_list frames;
    uint32_t count;
    uint64_t last_ns;
};

struct sock_end {
    struct via_conn conn;
    struct via_fabric fabric;       /* between hosts: the carrier */
    struct via_remote remote;       /* between hosts: the peer's segment */
    struct via_peer_bell peer_bell; /* within a host */
    struct via_sock_bell_word word; /* within a host: counts its sleeps */
    struct sock_run *run;
    struct sock_end *peer;
    unsigned number;        /* index of the end, which is also its descriptor */
    unsigned char *segment; /* owned; the peer puts into it */
    struct sock_line line;  /* frames from this end to its peer */
    struct sock_way out;    /* kernel bytes from this end to its peer */

    struct sim_fiber fiber;
    uint32_t ticket;   /* number of the valid event that resumes the fiber */
    bool pauses;       /* it pauses in the library: only time resumes it */
    bool asleep, bell; /* asleep until a bell; a bell has rung */
    uint32_t wanted;   /* POLLIN, POLLOUT: the events that the program sleeps for */
    bool dead, closed, leaving;
    bool kept;  /* the steward has to send, or shut down, what the end could not at once */
    bool reset; /* an end has reset the TCP connection */
    bool rogue; /* writes garbage into its peer's memory: no guarantee holds for the two ends */

    /* The program. */
    bool waits_in, waits_out; /* it may block in recv(); in send() */
    uint32_t turns_left;      /* turns until the peer of a rogue closes */
    uint64_t total, content;  /* bytes to send; the seed of their contents */
    uint64_t sent, received;
    uint64_t in_call; /* bytes of `sent` in the current call of send(): a kill may lose all or some
                         of them */
    uint64_t bytes_seen, seen_ns; /* sent + received when they last changed; the time of that */
    bool fin_sent, fin_at_death, ended;
    struct burst burst;
    struct fate kill, exec;
    bool spilled;
    uint64_t fin_ns; /* since when it has been waiting for the end of file although the FIN has
                         arrived; 0: it is not */
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

/* The run in progress: the functions that the library calls have no argument for it. */
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
/* Pauses the running fiber for that time or longer. Does not return if the program is killed
 * meanwhile. */
void sock_pause(struct sock_end *end, uint64_t ns);
/* Sleeps until woken, at most for that time; SIM_NEVER: without a limit. */
void sock_sleep(struct sock_end *end, uint64_t ns);
void sock_wake(struct sock_end *end);

/* The end whose fiber runs; NULL: none does. */
struct sock_end *sock_running(void);
/* Byte `at` of a stream. */
unsigned char sock_byte(uint64_t content, uint64_t at);

/* --- kernel.c --------------------------------------------------------------------------------- */

/* Bytes from `from` arrive at its peer's socket; 0 bytes: its FIN or RST. */
void sock_kernel_arrives(struct sock_end *from, uint32_t bytes, bool reset);
void sock_kernel_fin(struct sock_end *end);

/* --- local.c --------------------------------------------------------------------------------- */

void sock_rogue_main(void *end);

/* --- client.c --------------------------------------------------------------------------------- */

void sock_frame_arrives(struct sock_end *from);
void sock_line_free(struct sock_line *line);

/* --- program.c -------------------------------------------------------------------------------- */

void sock_program_main(void *end);
/* Kills the program if that is due now. True if it is dead. */
bool sock_program_is_killed(struct sock_end *end);
/* True if the program has sent and received all. */
bool sock_program_is_over(const struct sock_end *end);

#endif
