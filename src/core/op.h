/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CORE_OP_H
#define VIA_CORE_OP_H

#include "core/flow.h"
#include "core/segment.h"

/* Layer 5: operations. Turns requests of processes and the node's own answers into frames, and
 * performs the requests that arrive in frames. */

/* Kinds of operations that a node starts itself, after enum via_op_kind. */
enum via_op_kind_internal {
    VIA_OP_GET_ANSWER = 32,
    VIA_OP_ATOMIC_ANSWER = 33,
    VIA_OP_BARRIER_RELEASE = 34,
    VIA_OP_BARRIER_WITHDRAW = 35,
    VIA_OP_BARRIER_LEAVE = 36,
};

/* An operation in progress. In use while it is in a flow's list or waits to be reported. */
struct via_op_slot {
    struct via_tx_op tx;     /* tx.link: via_ops.free_ops or .free_answers when not in use */
    struct via_list reports; /* via_ops.reports */
    struct via_list waits;   /* barrier: via_barriers.waiting, then .withdrawing */
    struct via_op op;
    uint64_t generation; /* of the slot, part of the wire cookie: late answers match no operation */
    bool answer;         /* from the pool of internal operations */
    bool in_use;
    bool done;     /* status is final */
    bool finished; /* done, and it no longer waits for earlier operations of its flow */
    bool reported; /* also set if the process has ended */
    bool withdraw; /* barrier: send a withdrawal once the arrival is acknowledged */
    int status;
    uint64_t value;
    uint64_t moved; /* get: bytes arrived; local operation: bytes done */
    uint32_t round; /* barrier */
    /* Barriers, set when they start: */
    bool leaving;      /* its time is over, and this host has requested the result from the root */
    uint32_t missing;  /* at the root: members that have not arrived */
    uint64_t since_ns; /* when the wait began, or this host sent that request. 0 = set at the next
                          check */
};

struct via_ops {
    struct via_op_slot *slots; /* ops_count, then answers_count internal ones */
    struct via_list free_ops, free_answers;
    uint32_t answers_free;   /* in free_answers */
    uint32_t *answers_of;    /* by destination: internal operations in use */
    struct via_list reports; /* via_op_slot.reports: finished, to be reported */
    unsigned pending;        /* operations accepted and not reported */
    _Atomic uint32_t pending_shown;
};

/* A member's arrival, at the root. */
struct via_barrier_arrival {
    uint64_t group;
    uint32_t round;
    uint32_t since_ms; /* time of its arrival; wraps */
    int16_t status;    /* with `due`: the result */
    bool due;          /* the member must get the result; the arrival does not count any more */
};

/* The root's record of one host. */
struct via_barrier_host {
    struct via_list due; /* via_barriers.due: there are results for it, and it may be reachable */
    struct via_barrier_arrival *arrivals; /* VIA_BARRIER_ARRIVALS_MAX */
    uint16_t count;                       /* number of `arrivals` in use */
    uint16_t due_count;                   /* number of these that are due */
};

struct via_barriers {
    struct via_list waiting;        /* via_op_slot.waits: barriers that this host has entered */
    struct via_list withdrawing;    /* via_op_slot.waits: ended, and the root may not know yet */
    struct via_list due;            /* via_barrier_host.due */
    struct via_barrier_host *hosts; /* hosts_max */
    uint32_t round;
    uint64_t waits_timer_ns;    /* when to check `waiting` */
    uint64_t arrivals_timer_ns; /* when to check arrivals */
};

static inline struct via_op_slot *via_op_of(struct via_tx_op *tx)
{
    return via_list_entry(tx, struct via_op_slot, tx);
}

/* Bytes in a frame of an operation with several frames; strided puts are split between blocks. */
static inline uint64_t via_op_frame_bytes(const struct via_node *node, const struct via_op *op)
{
    uint64_t each = node->config.frame_bytes_max;
    return op->kind == VIA_OP_PUT_STRIDED ? each - each % op->compare : each;
}

/* --- op.c: the pool, and the end of operations ----------------------------------------------- */

void via_op_pool_init(struct via_channel *channel);
/* An operation of a process, NULL if all are in use. */
struct via_op_slot *via_op_new(struct via_channel *channel, const struct via_op *what);
/* An internal operation, NULL if none is free. */
struct via_op_slot *via_op_answer_new(struct via_channel *channel, const struct via_op *what);
/* Is one more internal operation to this destination allowed? 0; -EBUSY: its share is in use;
 * -ENOBUFS: none is free. */
int via_op_answer_room(const struct via_channel *channel, uint16_t destination);
uint64_t via_op_cookie(const struct via_channel *channel, const struct via_op_slot *op);
/* The operation with this wire cookie, or NULL. */
struct via_op_slot *via_op_by_cookie(struct via_channel *channel, uint64_t cookie,
                                     uint16_t destination);
/* `bytes` bytes of a get have arrived. */
void via_op_moved(const struct via_channel *channel, struct via_op_slot *op, uint64_t bytes);
/* The status of an operation is final; via_op_flush() finishes it when it is its turn. */
void via_op_done(struct via_op_slot *op, int status, uint64_t value);
/* Ends the operation out of order; it is reported at the end of the turn. */
void via_op_finish(struct via_channel *channel, struct via_op_slot *op, int status, uint64_t value);
/* Finishes operations at the front of a flow that are done, in order. */
void via_op_flush(struct via_channel *channel, struct via_tx_flow *flow);
/* via_tx_skip() of an operation in a flow. */
void via_op_skip(struct via_channel *channel, struct via_op_slot *op);
void via_op_free_if_over(struct via_channel *channel, struct via_op_slot *op);
/* Reports the end to the submitter. The slot may belong to another operation when this returns. */
void via_op_report(struct via_channel *channel, struct via_op_slot *op);

/* --- outgoing.c ------------------------------------------------------------------------------ */

/* via_flow_calls.make */
void via_outgoing_make(struct via_channel *channel, struct via_tx_op *tx, uint32_t index,
                       struct via_outgoing *out);

/* --- answer.c: gets and atomics, at the owner of the memory and at the requester ------------- */

int via_answer_get(struct via_channel *channel, const struct via_frame_header *header);
int via_answer_atomic(struct via_channel *channel, const struct via_frame_header *header,
                      const void *body, uint32_t body_bytes);
void via_answer_get_data(struct via_channel *channel, const struct via_frame_header *header,
                         const void *data, uint32_t bytes);
void via_answer_atomic_result(struct via_channel *channel, const struct via_frame_header *header);
/* `host` has given up answers that it owed. */
void via_answer_lost(struct via_channel *channel, uint16_t host);

/* --- barrier.c ------------------------------------------------------------------------------- */

void via_barrier_init(struct via_channel *channel);
int via_barrier_check(const struct via_channel *channel, const struct via_op *op);
void via_barrier_start(struct via_channel *channel, struct via_op_slot *op);
int via_barrier_arrive(struct via_channel *channel, const struct via_frame_header *header);
void via_barrier_release(struct via_channel *channel, const struct via_frame_header *header);
/* Sends the outstanding messages to members, as far as there are paths and internal operations. */
void via_barrier_pump(struct via_channel *channel);
bool via_barrier_is_due(struct via_channel *channel);
/* The host has restarted. */
void via_barrier_host_reset(struct via_channel *channel, uint16_t host);
/* After a change of routes in via_channel_host: the first for each changed host, the second once
 * for each change. */
void via_barrier_host_rerouted(struct via_channel *channel, uint16_t host);
void via_barrier_rerouted(struct via_channel *channel);
/* The peer of the flow has acknowledged nothing for too long: ends the barriers that wait for it.
 */
void via_barrier_stuck(struct via_channel *channel, struct via_tx_flow *flow);
/* Ends waits that have taken too long. */
void via_barrier_timers(struct via_channel *channel);
/* The next deadline of via_barrier_timers(); VIA_NEVER_NS. */
uint64_t via_barrier_deadline_ns(const struct via_channel *channel);
/* The operation ends before its barrier does. */
void via_barrier_abandon(struct via_channel *channel, struct via_op_slot *op, int status);
void via_barrier_acked(struct via_channel *channel, struct via_op_slot *op);

/* --- ops.c ----------------------------------------------------------------------------------- */

/* With the channel's flows and, where it has them, barriers. */
void via_ops_init(struct via_channel *channel);
void via_ops_report(struct via_channel *channel);
/* A bounded turn of operations whose destination is this host. */
void via_ops_run_local(struct via_channel *channel);

#endif
