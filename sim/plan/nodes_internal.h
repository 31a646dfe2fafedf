/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Shared by nodes.c and nodes_port.c: hosts, their threads, and the ends of links. */
#ifndef SIM_PLAN_NODES_INTERNAL_H
#define SIM_PLAN_NODES_INTERNAL_H

#include "core/node.h"
#include "host/host_wait.h"
#include "sim/cost/actor.h"
#include "sim/plan/nodes.h"

struct nodes_host;

struct flight;

/* A transfer thread of src/host on a modelled CPU: turns of the node, and between them the waiting
 * rules of host/host_wait.c. That of channel 0 also does the control thread's work. */
struct nodes_thread {
    struct sim_actor actor;
    struct nodes_host *host;
    unsigned channel;
    struct via_host_wait wait;
    uint64_t seen_count;  /* counts wake-ups without a bell that may have given this thread work */
    uint64_t seen_before; /* the same, when its turn began */
    uint64_t ticket;      /* number of the current wait; timers of earlier waits are void */
    bool is_polling;
    struct via_list waiting; /* struct plan_op, submitted, and not yet passed to the node */
    bool is_full;            /* the node accepts no more until one ends */
    unsigned frames_paid;    /* of this turn: their time has been spent */
    unsigned acked_by; /* 1 + the host whose acknowledgement's cost was charged last in this turn */
    bool stored_body;  /* of the frame that is published next */
    struct flight *body; /* the last one, while it is under way */
    bool sent, sending;  /* the stores of a body have left; the actor waits for that */
};

/* A port. */
struct nodes_end {
    struct via_port port; /* first */
    struct nodes_host *host;
    struct nodes_end *peer; /* NULL: the cable is cut */
    uint32_t *scratchpads;  /* of the link; its state is in the chip of its lower end */
    uint32_t registers[VIA_PORT_SCRATCHPADS];
    uint64_t events;
    uint8_t dimension;
    struct sim_path there;              /* to the peer's memory */
    struct sim_path to_chip, from_chip; /* between the host and its card */
    struct sim_path bell;               /* from its card to the peer */
    unsigned fences[VIA_PORT_QUEUES];   /* under way; only the last started counts */
};

struct nodes_host {
    struct plan_nodes *nodes;
    unsigned index, ends_count;
    struct nodes_end *ends; /* owned; by port */
    struct sim_cpu cpu;
    struct sim_memory memory;
    struct via_node *node;
    void *node_memory; /* mapped */
    size_t node_bytes, inbox_bytes;
    struct nodes_thread threads[PLAN_CHANNELS_MAX];
    unsigned char *segment; /* owned; target of all puts */
    uint64_t *segments;     /* owned; a handle of it for each source */
    struct via_list *
        arriving; /* struct plan_op, owned; [source x channels + channel], in order of submission */
    uint64_t bypassed_count;
};

struct plan_nodes {
    struct sim_cost *cost;
    struct plan_costs costs;
    struct plan_wiring *wiring;
    struct plan_events events;
    unsigned hosts_count;
    uint64_t bytes_max;
    unsigned char *source; /* owned */
    struct nodes_host *hosts;
    uint64_t submitted_count, ended_count;
    bool stopping;
};

/* --- nodes.c ---------------------------------------------------------------------------------- */

/* A change in memory that the thread sees if it polls: stores, the end of a fence. */
void plan_nodes_show(struct nodes_thread *thread);
/* Its bell rings. */
void plan_nodes_ring(struct nodes_thread *thread);

/* Spends the time of a frame, before its effect is visible. */
void plan_nodes_frame(struct nodes_thread *thread);

/* --- nodes_port.c ----------------------------------------------------------------------------- */

/* Makes the ends of all links of the shape. */
void plan_nodes_wire(struct plan_nodes *nodes, const struct plan_shape *shape);
void plan_nodes_port_open(struct nodes_end *end, void *inbox, size_t inbox_bytes);

#endif
