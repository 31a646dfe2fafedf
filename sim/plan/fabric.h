/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Viaduct's protocol on a fabric of any size, as costs: operations are cut into frames, frames go
 * through the pipe of a channel into the next host's memory, a transfer thread finds them there and
 * keeps or relays them; credits, bypass buffers, the bubble rule, acknowledgements and doorbells
 * are those of docs/protocol.md. What is not here: contents, faults, flows that send again (but for
 * frames that were dropped because they were stuck), and announcements.
 */
#ifndef SIM_PLAN_FABRIC_H
#define SIM_PLAN_FABRIC_H

#include "sim/cost/cpu.h"
#include "sim/cost/net.h"
#include "sim/plan/wiring.h"

#define PLAN_CHANNELS_MAX 14u
#define PLAN_RECORD_BYTES 64u

/* [memory], [viaduct] */
extern const struct sim_section sim_plan_memory_section, sim_plan_viaduct_section;

/* Of every host; times and rates from the parts file. */
struct plan_costs {
    struct sim_cpu_config cpu;
    double copy_rate;    /* of a core, bytes per second */
    double bus_rate;     /* of all memory traffic of a host */
    double store_rate;   /* of a core into a window */
    uint64_t fill_bytes; /* what the core may be ahead of the link */
    uint64_t submit_ps;  /* an operation taken over from a program */
    uint64_t turn_ps;    /* a turn of a transfer thread, before up to batch_frames */
    uint64_t frame_ps;   /* a frame made, or looked at */
    uint64_t fence_ps;   /* of a link, at the end of a turn that has used it */
    uint64_t ring_ps;    /* a doorbell rung */
    uint64_t handler_ps; /* its interrupt handled */
    uint64_t spin_ps;    /* without work until a thread sleeps */
    uint64_t stuck_ps;   /* until a waiting frame is dropped */
    uint64_t retry_ps;   /* until it is sent again */
    unsigned channels_count;
    unsigned pipe_slots, bypass_count, window_frames, batch_frames;
    uint64_t frame_bytes;
};

void plan_costs_read(struct plan_costs *costs, const struct sim_scenario *parts);

struct plan_fabric;
struct plan_op;

/* What the traffic wants to know. */
struct plan_events {
    void *object;
    void (*delivered)(void *object, struct plan_op *op); /* all of it is at the destination */
    void (*ended)(void *object, struct plan_op *op);     /* acknowledged; op is gone afterwards */
};

struct plan_op {
    struct plan_op *next;
    uint64_t born_ps;
    uint64_t bytes;
    uint64_t unsent_bytes;
    uint32_t frames_left; /* not yet delivered */
    uint32_t frames_unsent;
    uint32_t unacknowledged; /* frames that count against the window */
    uint32_t to_acknowledge; /* frames that came since the last acknowledgement */
    uint16_t source, destination;
    uint8_t channel;
    uint8_t tag; /* the traffic's */
    bool queued;
};

struct plan_fabric *plan_fabric_new(struct sim_cost *cost, const struct plan_costs *costs,
                                    const struct plan_shape *shape, struct plan_wiring *wiring,
                                    const struct plan_events *events, uint64_t seed);
void plan_fabric_free(struct plan_fabric *fabric);

/* An operation of any length from host to host, on a channel. */
void plan_fabric_submit(struct plan_fabric *fabric, unsigned source, unsigned destination,
                        unsigned channel, uint64_t bytes, uint8_t tag);

/* A word that a program stores into the window on a neighbour by itself; `seen` there. */
void plan_fabric_store(struct plan_fabric *fabric, unsigned source, unsigned neighbour,
                       struct sim_call seen);

uint64_t plan_fabric_stuck(const struct plan_fabric *fabric); /* frames dropped so far */

/* --- how busy what is ------------------------------------------------------------------------ */

enum plan_resource { PLAN_LINK, PLAN_THREAD, PLAN_MEMORY, PLAN_RESOURCES };

/* Counts from now on. */
void plan_fabric_mark(struct plan_fabric *fabric);

struct plan_busy {
    double share; /* of the time since the mark; 0..1 */
    double work;  /* of a thread: the part that is computing, not waiting for a link */
    char name[80];
};

/* The busiest of a kind since the mark; name "" when there is none. */
void plan_fabric_busiest(const struct plan_fabric *fabric, enum plan_resource resource,
                         struct plan_busy *ret_busy);

/* The share of the time since the mark that each way of each link was busy: [2 x link + way]. */
void plan_fabric_links(const struct plan_fabric *fabric, float *ret_shares);

#endif
