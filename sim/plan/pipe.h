/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Shared by fabric.c, pipe.c and thread.c: hosts, their transfer threads, pipes and frames. */
#ifndef SIM_PLAN_PIPE_H
#define SIM_PLAN_PIPE_H

#include "host/host_wait.h"
#include "sim/plan/fabric.h"

struct plan_frame {
    struct plan_pipe *pipe; /* the pipe that it is in */
    struct plan_frame *next;
    struct plan_frame *with; /* further acknowledgements that are merged into this one */
    struct plan_op *op;
    uint64_t since_ps; /* time since which it waits to be relayed */
    uint32_t body_bytes;
    uint32_t acknowledges; /* of an acknowledgement: the number of frames that it acknowledges */
    uint16_t source, destination;
    bool acknowledge_now;
    /* Number of outstanding events of two: the end of its stores, and its arrival. */
    uint8_t arriving;
};

struct plan_frames {
    struct plan_frame *first, *last;
    uint32_t count;
};

struct plan_thread;

/* A pipe in a list of those that its writer's or its reader's thread has to check. */
struct plan_visit {
    struct via_list member;
    bool listed;
    uint32_t turn;            /* the thread's last turn that has checked it */
    uint32_t left, acks_left; /* of that turn: frames, and acknowledgements besides */
};

/* From a host to a neighbour on a channel: a pipe, and the frames that wait at its writer. */
struct plan_pipe {
    struct plan_pipe *same_hash;
    uint16_t from, to;
    uint8_t channel;
    uint8_t dimension; /* of a torus */
    struct plan_thread *writer, *reader;
    struct sim_path there, back;
    /* state of the writer */
    uint32_t credits; /* slots that it knows to be free */
    bool wants;       /* the writer needs room */
    bool want_sent;   /* the want word is under way */
    struct plan_visit out;
    struct plan_frames bypass;
    uint32_t bypass_used;      /* frames in the pipe, including those being stored */
    struct plan_frames own;    /* acknowledgements, and repeated frames */
    struct via_list ops;       /* struct plan_op */
    struct plan_pipe *blocked; /* pipes whose first frame waits for a bypass buffer */
    /* state of the reader */
    struct plan_frames arrived;
    uint32_t due; /* free slots that the writer does not know of */
    struct plan_visit in;
    bool is_blocked;
    struct plan_pipe *next_blocked;
};

/* Visits of this turn, and those after it. */
struct plan_visits {
    struct via_list now, later;
};

enum plan_job {
    PLAN_TAKE,  /* take a frame for this host out of the pipe */
    PLAN_RELAY, /* relay from a pipe into the next */
    PLAN_STORE, /* move into a bypass buffer */
    PLAN_DRAIN, /* send from a bypass buffer */
    PLAN_SEND,  /* start a frame of this host */
};

/* State of a turn, as turn() of core/channel.c. */
enum plan_phase { PLAN_DRAINS, PLAN_TAKES, PLAN_SENDS, PLAN_PHASES };

enum plan_state { PLAN_ASLEEP, PLAN_WAKING, PLAN_POLLING, PLAN_BUSY };

struct plan_thread {
    struct plan_host *host;
    struct sim_task task;
    uint8_t channel;
    enum plan_state state;
    struct plan_visits in, out; /* pipes to check */
    struct via_list submitted;  /* struct plan_op */
    uint32_t turn;
    bool turn_begins;     /* continues with the next job */
    uint16_t touched[32]; /* neighbours that this turn has used */
    unsigned touched_count;
    bool has_worked; /* time since it last found nothing */
    enum plan_phase phase;
    struct via_list *drain_at; /* in out.later, the next pipe whose bypass buffers are checked */
    uint64_t debt_ps;          /* cost of doorbells rung since its last job, not yet spent */
    struct via_host_wait wait;
    uint64_t poll_ticket; /* for the end of the current wait */
    uint64_t empty_ns;    /* begin of the last turn that found nothing */
    /* its CPU time for the job */
    enum plan_job job;
    struct plan_frame *frame;
    struct plan_pipe *from, *way;
    uint64_t body_ready_ps; /* when memory has delivered the copied bytes */
    unsigned waits;
    uint64_t work_end_ps;
    /* for utilisation */
    uint64_t job_since_ps, busy_ps, stalled_ps, marked_busy_ps, marked_stalled_ps;
};

struct plan_host {
    struct plan_fabric *fabric;
    struct sim_cpu *cpu;
    struct sim_server *bus;
    uint16_t index;
    struct plan_thread *threads;
    struct sim_path there, back; /* paths to neighbours, for fences */
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
    struct sim_objects all_pipes, all_frames, all_ops;
    uint64_t stuck_count;
    uint64_t marked_ps;
    uint64_t *marked_links, *marked_buses; /* owned */
};

/* --- pipe.c ---------------------------------------------------------------------------------- */

void plan_frames_push(struct plan_frames *frames, struct plan_frame *frame);
struct plan_frame *plan_frames_pop(struct plan_frames *frames);

/* The pipe by which a frame of a channel for `destination` leaves host `at`; made at first use. */
struct plan_pipe *plan_pipe_towards(struct plan_fabric *fabric, unsigned at, unsigned destination,
                                    unsigned channel);
/* Forgets a pipe that is in its initial state: a tree has more pairs of hosts than talk at a
 * time. */
void plan_pipe_forget(struct plan_fabric *fabric, struct plan_pipe *pipe);

/* The bubble rule, for new frames and for frames that turn into another dimension. */
bool plan_pipe_is_inject_allowed(const struct plan_pipe *pipe);
bool plan_pipe_is_turn_allowed(const struct plan_fabric *fabric, const struct plan_pipe *pipe);
/* The writer has found no room. */
void plan_pipe_request_room(struct plan_fabric *fabric, struct plan_pipe *pipe);
/* The reader has consumed a record. */
void plan_pipe_release(struct plan_fabric *fabric, struct plan_pipe *pipe);
/* The writer has work for this pipe, or room in it: its thread must check it. If the thread sleeps,
 * `ringer` pays for the doorbell; NULL: no thread does. */
void plan_pipe_offer(struct plan_pipe *pipe, struct plan_thread *ringer);
/* The same, called by its own thread, which is awake. */
void plan_pipe_list_out(struct plan_pipe *pipe);
/* Its reader must check it, if frames have arrived and their way is free. */
void plan_pipe_list_in(struct plan_pipe *pipe);
/* Whether the writer has something to send, or pipes wait for its bypass buffers. */
bool plan_pipe_has_work(const struct plan_pipe *pipe);
/* The stores of a frame begin; `sent`: called when all have left. */
void plan_pipe_post(struct plan_fabric *fabric, struct plan_frame *frame, struct sim_call sent);
/* One of the two events has happened that a frame waits for: see `arriving`. */
void plan_frame_arrived(void *frame, uint64_t arg);

/* --- thread.c -------------------------------------------------------------------------------- */

void plan_thread_init(struct plan_thread *thread, struct plan_host *host, unsigned channel);
/* Queues an operation, which the next turn takes. */
void plan_thread_submit(struct plan_thread *thread, struct plan_op *op);
/* There is work for the thread. */
void plan_thread_kick(struct plan_thread *thread, struct plan_thread *ringer);
/* Drops frames that have waited too long, and sends them again later; schedules itself. */
void plan_fabric_sweep(void *fabric, uint64_t arg);

#endif
