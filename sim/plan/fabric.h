/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Viaduct's protocol on a fabric of any size, as costs: operations are cut into frames, frames go
 * through the pipe of a channel into the next host's memory, where a transfer thread delivers or
 * relays them; credits, bypass buffers, the bubble rule, acknowledgements and doorbells are those
 * of docs/protocol.md. Not modelled: contents, faults, repetition of frames (except of those
 * dropped because they were stuck), and announcements.
 */
#ifndef SIM_PLAN_FABRIC_H
#define SIM_PLAN_FABRIC_H

#include "sim/cost/cpu.h"
#include "sim/cost/net.h"
#include "sim/plan/wiring.h"

#define PLAN_CHANNELS_MAX 14u
#define PLAN_RECORD_BYTES 64u

/* The same for every host; times and rates from the parts file. */
struct plan_costs {
    struct sim_cpu_config cpu;
    double copy_rate;    /* memory copy of a core, bytes per second */
    double bus_rate;     /* of all memory traffic of a host */
    double store_rate;   /* stores of a core into a window */
    uint64_t fill_bytes; /* bytes that the core may be ahead of the link */
    uint64_t submit_ps;  /* taking an operation from a program */
    uint64_t turn_ps;    /* a turn of a transfer thread, before up to batch_frames */
    uint64_t frame_ps;   /* making or handling a frame */
    uint64_t fence_ps;   /* work per used link at the end of a turn */
    uint64_t ring_ps;    /* ringing a doorbell */
    uint64_t handler_ps; /* handling its interrupt */
    uint64_t spin_ps;    /* time without work until a thread sleeps */
    uint64_t stuck_ps;   /* until a waiting frame is dropped */
    uint64_t retry_ps;   /* until a dropped frame is sent again */
    unsigned channels_count;
    unsigned pipe_slots, bypass_count, window_frames, batch_frames;
    uint64_t frame_bytes;
};

void plan_costs_read(struct plan_costs *costs, const struct sim_scenario *parts);

struct plan_fabric;
struct plan_op;

/* Events for the traffic. */
struct plan_events {
    void *object;
    void (*delivered)(void *object,
                      struct plan_op *op);           /* the whole operation is at the destination */
    void (*ended)(void *object, struct plan_op *op); /* acknowledged; op is freed afterwards */
};

struct plan_op {
    struct via_list member; /* of the operations of a thread, or of a pipe */
    uint64_t born_ps;
    uint64_t bytes;
    uint64_t unsent_bytes;
    uint32_t frames_left; /* not yet delivered */
    uint32_t frames_unsent;
    uint32_t unacknowledged; /* frames that count against the window */
    uint32_t to_acknowledge; /* frames received since the last acknowledgement */
    uint16_t source, destination;
    uint8_t channel;
    uint8_t tag; /* private to the traffic */
    bool queued;
};

/* The first of a list of operations; NULL: it is empty. */
static inline struct plan_op *plan_ops_pop(struct via_list *ops)
{
    struct via_list *member = via_list_pop_front(ops);
    return member == NULL ? NULL : via_list_entry(member, struct plan_op, member);
}

struct plan_fabric *plan_fabric_new(struct sim_cost *cost, const struct plan_costs *costs,
                                    const struct plan_shape *shape, struct plan_wiring *wiring,
                                    const struct plan_events *events, uint64_t seed);
void plan_fabric_free(struct plan_fabric *fabric);

/* Starts an operation of any length from host to host, on a channel. */
void plan_fabric_submit(struct plan_fabric *fabric, unsigned source, unsigned destination,
                        unsigned channel, uint64_t bytes, uint8_t tag);

/* A word that a program itself stores into the window on a neighbour; `seen` is called there. */
void plan_fabric_store(struct plan_fabric *fabric, unsigned source, unsigned neighbour,
                       struct sim_call seen);

uint64_t plan_fabric_stuck(const struct plan_fabric *fabric); /* frames dropped so far */

/* --- utilisation ----------------------------------------------------------------------------- */

enum plan_resource { PLAN_LINK, PLAN_THREAD, PLAN_MEMORY, PLAN_RESOURCES };

/* Starts counting. */
void plan_fabric_mark(struct plan_fabric *fabric);

struct plan_busy {
    double share; /* share of the time since the mark; 0..1 */
    double work;  /* of a thread: the part that is computing, not waiting for a link */
    char name[80];
};

/* The busiest resource of a kind since the mark; name "" if there is none. */
void plan_fabric_busiest(const struct plan_fabric *fabric, enum plan_resource resource,
                         struct plan_busy *ret_busy);

/* For each direction of each link, the busy share of the time since the mark: [2 x link + way]. */
void plan_fabric_links(const struct plan_fabric *fabric, float *ret_shares);

#endif
