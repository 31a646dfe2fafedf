/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Agents: ends of a link that execute commands, in this thread or another process. */
#ifndef VIA_TESTS_CONFORM_AGENT_H
#define VIA_TESTS_CONFORM_AGENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "conform_work.h"
#include "port_conform.h"

enum conform_verb {
    CONFORM_BODY = 1,     /* by queue `value`: data, bytes to off; the source is overwritten then */
    CONFORM_COMMIT,       /* the same */
    CONFORM_BODY_ANY,     /* off and bytes are passed unchanged; source is a buffer of `count` bytes
                           */
    CONFORM_COMMIT_ANY,   /* the same */
    CONFORM_WINDOW_STORE, /* 8 bytes by a direct store; result 0, 1 when there is no window */
    CONFORM_WINDOW_LOAD,  /* 8 bytes; result and count 0, count 1 when there is no window */
    CONFORM_FLUSH,        /* queue `value` */
    CONFORM_FENCE_START,  /* of queue `value` */
    CONFORM_FENCE_POLL,   /* the same */
    CONFORM_RING,
    CONFORM_EVENTS,
    CONFORM_LINK_IS_UP,
    CONFORM_SCRATCHPAD_READ,
    CONFORM_SCRATCHPAD_WRITE,
    CONFORM_INBOX_READ, /* bytes at off */
    CONFORM_INBOX_FILL, /* bytes at off with value */
    CONFORM_CAPS,       /* data: struct conform_caps */
    CONFORM_DMA,        /* data, bytes to off, with cookie `value` */
    CONFORM_DMA_TAKE, /* takes one; value: its cookie, count: its result; its source is overwritten
                       */
    CONFORM_DMA_ABORT,
    CONFORM_PUTS_OUT_OF_BOUNDS,
    CONFORM_BELL_COUNT, /* of line `value` */
    CONFORM_CUT,
    CONFORM_START, /* work `value` as worker `worker`, with off and count */
    CONFORM_STATE, /* data: struct conform_report */
    CONFORM_STOP,  /* the same, and the worker ends */
    CONFORM_QUIT,  /* closes the port */
};

struct conform_caps {
    struct via_port_caps caps;
    unsigned side;
    uint64_t inbox_address;
    bool has_window;
    bool has_bell;
};

#define CONFORM_DATA_BYTES 4096u
#define CONFORM_DMA_SOURCES 64u
struct conform_call {
    uint32_t verb;
    uint32_t worker;
    uint64_t off;
    uint64_t value;
    uint64_t count;
    uint64_t bytes;
    int64_t result;
    unsigned char data[CONFORM_DATA_BYTES];
};

struct conform_agent {
    const struct conform_kind *kind;
    enum conform_place place;
    unsigned side;
    char directory[64];
    bool alive;
    int socket;       /* the suite's end; not CONFORM_INLINE */
    int agent_socket; /* the agent's */
    pid_t pid;
    pthread_t thread;
    struct conform_end *end; /* CONFORM_INLINE: shared with the suite */
    struct conform_worker workers[CONFORM_WORKERS_MAX];
    unsigned char *dma_sources; /* CONFORM_DMA_SOURCES of CONFORM_DATA_BYTES, by cookie */
};

int conform_agent_start(struct conform_agent *agent, const struct conform_kind *kind,
                        enum conform_place place, unsigned side, const char *directory,
                        struct conform_end *end);
/* Executes the call and fills in the result. 0, or -EPIPE when the agent has died. */
int conform_agent_call(struct conform_agent *agent, struct conform_call *call);
/* Ends the agent like a crash where the place supports this, otherwise by closing without notice.
 */
void conform_agent_kill(struct conform_agent *agent);
/* Closes the port and ends the agent. 0, or -EIO when the agent had ended by itself or ended with
 * an error. */
int conform_agent_quit(struct conform_agent *agent);

/* Open descriptors of this process. */
int conform_count_fds(void);

#endif
