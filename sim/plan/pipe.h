/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* What fabric.c, pipe.c and thread.c share: hosts, their transfer threads, pipes and frames. */
#ifndef SIM_PLAN_PIPE_H
#define SIM_PLAN_PIPE_H

#include "host/host_wait.h"
#include "sim/plan/fabric.h"

struct plan_frame {
    struct plan_frame *next;
    struct plan_frame *with; /* further acknowledgements that this one takes along */
    struct plan_pipe *pipe;  /* that it is in */
    struct plan_op *op;
    uint64_t since_ps; /* it has waited to be relayed */
    uint32_t body_bytes;
    uint32_t acknowledges; /* so many frames, if it is an acknowledgement */
    uint16_t source, destination;
    bool acknowledge_now;
    bool first;       /* of its operation */
    uint8_t arriving; /* of its stores and its arrival, what is still to come */
};

struct plan_frames {
    struct plan_frame *first, *last;
    uint32_t count;
};

struct plan_thread;

/* From a host to a neighbour on a channel: a pipe, and what waits at its writer for it. */
struct plan_pipe {
    struct plan_pipe *same_hash;
    uint16_t from, to;
    uint8_t channel;
    uint8_t dimension; /* of a torus */
    struct plan_thread *writer, *reader;
    struct sim_path there, back;
    /* writer's */
    uint32_t credits; /* slots it knows to be free */
    bool wants;       /* has asked for room */
    bool asking;      /* the want word is under way */
    bool out_listed;  /* in the writer's list */
    struct plan_pipe *next_out;
    uint32_t sent_in;               /* the last turn of the writer that has looked at it */
    uint32_t sends_left, acks_left; /* of that turn */
    struct plan_frames bypass;
    uint32_t bypass_used;   /* those that are being stored there included */
    struct plan_frames own; /* acknowledgements, and what is sent again */
    struct plan_op *ops_first, *ops_last;
    struct plan_pipe *blocked; /* pipes whose first frame waits for a bypass buffer */
    /* reader's */
    struct plan_frames arrived;
    uint32_t due; /* slots that are free, and the writer does not know */
    bool in_listed, is_blocked;
    uint32_t taken_in;   /* the last turn of the reader that has looked at it */
    uint32_t takes_left; /* of that turn */
    struct plan_pipe *next_in, *next_blocked;
};

struct plan_pipes {
    struct plan_pipe *first, *last;
};

enum plan_job {
    PLAN_TAKE,  /* a frame for this host out of the pipe */
    PLAN_RELAY, /* out of a pipe into the next */
    PLAN_STORE, /* into a bypass buffer */
    PLAN_DRAIN, /* out of one */
    PLAN_SEND,  /* a frame that begins here */
};

/* Of a turn, as turn() of core/channel.c. */
enum plan_phase { PLAN_DRAINS, PLAN_TAKES, PLAN_SENDS, PLAN_PHASES };

enum plan_state { PLAN_ASLEEP, PLAN_WAKING, PLAN_POLLING, PLAN_BUSY };

struct plan_thread {
    struct plan_host *host;
    struct sim_task task;
    uint8_t channel;
    enum plan_state state;
    struct plan_pipes in, out;           /* with something to look at */
    struct plan_pipes in_turn, out_turn; /* the same, of this turn */
    struct plan_op *submitted_first, *submitted_last;
    uint32_t turn;
    bool turn_begins;     /* with the next job */
    uint16_t touched[32]; /* neighbours that this turn has sent to or taken from */
    unsigned touched_count;
    bool has_worked; /* since it last found nothing */
    enum plan_phase phase;
    struct plan_pipe *drain_at; /* of out, the next one whose bypass buffers are looked at */
    uint64_t debt_ps;           /* doorbells it has rung since its last job */
    struct via_host_wait wait;
    uint64_t poll_ticket; /* of the end of the wait under way */
    uint64_t empty_ns;    /* begin of the last turn that found nothing */
    /* the job */
    enum plan_job job;
    struct plan_frame *frame;
    struct plan_pipe *from, *way;
    uint64_t body_ready_ps; /* when memory has delivered what is copied */
    unsigned waits;
    uint64_t work_end_ps;
    /* how busy */
    uint64_t job_since_ps, busy_ps, stalled_ps, marked_busy_ps, marked_stalled_ps;
};

struct plan_host {
    struct plan_fabric *fabric;
    struct sim_cpu *cpu;
    struct sim_server *bus;
    uint16_t index;
    struct plan_thread *threads;
    struct sim_path there, back; /* to a neighbour, for fences */
};

struct plan_fabric {
    struct sim_cost *cost;
    struct plan_costs costs;
    const struct plan_shape *shape;
    struct plan_wiring *wiring;
    struct plan_events events;
    unsigned hosts_count;
    struct plan_host *hosts;
    struct plan_thread *threads;
    struct sim_cpu *cpus;
    struct sim_server *buses;
    struct plan_pipe **pipes; /* by hash */
    unsigned pipes_mask;
    struct plan_slab *slabs; /* all memory of pipes, frames and operations */
    struct plan_pipe *spare_pipes;
    struct plan_frame *spare_frames;
    struct plan_op *spare_ops;
    uint64_t stuck_count;
    uint64_t marked_ps;
    uint64_t *marked_links, *marked_buses; /* owned */
};

/* --- pipe.c ---------------------------------------------------------------------------------- */

struct plan_slab {
    struct plan_slab *next;
};

struct plan_frame *plan_frame_new(struct plan_fabric *fabric);
void plan_frame_free(struct plan_fabric *fabric, struct plan_frame *frame);
struct plan_op *plan_op_new(struct plan_fabric *fabric);
void plan_op_free(struct plan_fabric *fabric, struct plan_op *op);

void plan_frames_push(struct plan_frames *frames, struct plan_frame *frame);
struct plan_frame *plan_frames_pop(struct plan_frames *frames);

/* The pipe that a frame of a channel for `destination` leaves `at` by; made when it is not there.
 */
struct plan_pipe *plan_pipe_towards(struct plan_fabric *fabric, unsigned at, unsigned destination,
                                    unsigned channel);
/* Forgets a pipe that is as if it were new: a tree has more pairs of hosts than talk at a time. */
void plan_pipe_forget(struct plan_fabric *fabric, struct plan_pipe *pipe);

/* The bubble rule, for frames that begin here; for those that turn into another dimension. */
bool plan_pipe_may_inject(const struct plan_pipe *pipe);
bool plan_pipe_may_turn(const struct plan_fabric *fabric, const struct plan_pipe *pipe);
/* The writer has found no room. */
void plan_pipe_ask_for_room(struct plan_fabric *fabric, struct plan_pipe *pipe);
/* The reader has taken a record. */
void plan_pipe_release(struct plan_fabric *fabric, struct plan_pipe *pipe);
/* The writer has something for it, or room in it: its thread is to look. ringer pays if that
 * sleeps; NULL: somebody else does. */
void plan_pipe_offer(struct plan_pipe *pipe, struct plan_thread *ringer);
/* The same of its own thread, which is at work. */
void plan_pipe_list_out(struct plan_pipe *pipe);
/* A frame has arrived. */
void plan_pipe_arrived(struct plan_fabric *fabric, struct plan_frame *frame);
/* The stores of a frame begin; `sent`: all have left. */
void plan_pipe_post(struct plan_fabric *fabric, struct plan_frame *frame, struct sim_call sent);
void plan_frame_came(void *frame, uint64_t arg);

/* --- thread.c -------------------------------------------------------------------------------- */

void plan_thread_init(struct plan_thread *thread, struct plan_host *host, unsigned channel);
/* An operation, to be taken over when its next turn begins. */
void plan_thread_submit(struct plan_thread *thread, struct plan_op *op);
/* There is something to look at. */
void plan_thread_kick(struct plan_thread *thread, struct plan_thread *ringer);
/* Frames that have waited too long are dropped, and sent again later; called by itself. */
void plan_fabric_sweep(void *fabric, uint64_t arg);

#endif
