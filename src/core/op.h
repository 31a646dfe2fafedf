/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CORE_OP_H
#define VIA_CORE_OP_H

#include "core/flow.h"
#include "core/segment.h"

/* Layer 5: operations. What a process asked for and what the node answers by itself, as frames, and
 * what frames that come in ask for. */

/* Kinds of operations that a node starts itself, after enum via_op_kind. */
enum via_op_kind_internal {
    VIA_OP_GET_ANSWER = 32,
    VIA_OP_ATOMIC_ANSWER = 33,
    VIA_OP_BARRIER_RELEASE = 34,
    VIA_OP_BARRIER_WITHDRAW = 35,
};

/* An operation in progress. In use while it is in a flow's list or waits to be reported. */
struct via_op_slot {
    struct via_tx_op tx;     /* tx.link: via_ops.free_ops or .free_answers when not in use */
    struct via_list reports; /* via_ops.reports */
    struct via_list waits;   /* barrier: via_barriers.waiting */
    struct via_op op;
    uint64_t generation; /* of the slot, part of the wire cookie: late answers find nobody */
    bool answer;         /* from the pool of internal operations */
    bool in_use;
    bool done;     /* status is final */
    bool finished; /* and nothing before it in its flow keeps it from being reported */
    bool reported; /* or there is nobody to report to */
    bool withdraw; /* barrier: send a withdrawal once the arrival is acknowledged */
    int status;
    uint64_t value;
    uint64_t moved; /* get: bytes arrived; local operation: bytes done */
    uint32_t round; /* barrier */
};

struct via_ops {
    struct via_op_slot *slots; /* ops_count, then answers_count internal ones */
    struct via_list free_ops, free_answers;
    struct via_list reports; /* via_op_slot.reports: finished, to be told */
    unsigned pending;        /* operations accepted and not reported */
    _Atomic uint32_t pending_shown;
};

#define VIA_BARRIER_GROUPS 64u

/* A barrier group as its root sees it. */
struct via_barrier_group {
    bool used;
    uint32_t group;
    struct via_op_slot *op; /* the root's own, NULL = not there yet */
    uint32_t missing;       /* members of op that have not arrived */
    uint32_t arrived_count; /* non-zero arrivals */
    uint32_t release_count; /* non-zero releases */
    uint32_t release_from;  /* where the next look for one starts */
    uint32_t *arrivals;     /* per host: the round it arrived in, 0 = has not */
    uint32_t *releases;     /* per host: the round to release, 0 = none due */
};

struct via_barriers {
    struct via_list waiting; /* via_op_slot.waits */
    struct via_barrier_group groups[VIA_BARRIER_GROUPS];
    uint32_t round;
    uint32_t releases_due; /* of all groups */
};

static inline struct via_op_slot *via_op_of(struct via_tx_op *tx)
{
    return via_list_entry(tx, struct via_op_slot, tx);
}

/* --- op.c: the pool, and how operations end -------------------------------------------------- */

void via_op_pool_init(struct via_channel *channel);
/* An operation of a process, NULL when all are in use. */
struct via_op_slot *via_op_new(struct via_channel *channel, const struct via_op *what);
/* An internal operation, NULL when there is none. */
struct via_op_slot *via_op_answer_new(struct via_channel *channel, const struct via_op *what);
bool via_op_answer_available(const struct via_channel *channel);
uint64_t via_op_cookie(const struct via_channel *channel, const struct via_op_slot *op);
/* The operation an answer is for, or NULL. */
struct via_op_slot *via_op_by_cookie(struct via_channel *channel, uint64_t cookie,
                                     uint16_t destination);
/* So many bytes of a get have arrived. */
void via_op_moved(const struct via_channel *channel, struct via_op_slot *op, uint64_t bytes);
/* The status of an operation is final; via_op_flush() finishes it when it is its turn. */
void via_op_done(struct via_op_slot *op, int status, uint64_t value);
/* Ends the operation out of order; it is reported at the end of the turn. */
void via_op_finish(struct via_channel *channel, struct via_op_slot *op, int status, uint64_t value);
/* Finishes those at the front of a flow that are done, in order. */
void via_op_flush(struct via_channel *channel, struct via_tx_flow *flow);
/* via_tx_skip() of an operation in a flow. */
void via_op_skip(struct via_channel *channel, struct via_op_slot *op);
void via_op_free_if_over(struct via_channel *channel, struct via_op_slot *op);
/* Tells the caller. The slot may be another operation's when this returns. */
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
/* Sends releases that are due, as far as there are internal operations. */
void via_barrier_pump(struct via_channel *channel);
bool via_barrier_is_due(const struct via_channel *channel);
void via_barrier_host_reset(struct via_channel *channel, uint16_t host);
/* The operation ends before its barrier does. */
void via_barrier_abandon(struct via_channel *channel, struct via_op_slot *op, int status);
void via_barrier_acked(struct via_channel *channel, struct via_op_slot *op);

/* --- ops.c ----------------------------------------------------------------------------------- */

/* With the channel's flows and, where it has them, barriers. */
void via_ops_init(struct via_channel *channel);
void via_ops_report(struct via_channel *channel);
/* Bounded turn of the operations on the own host. */
void via_ops_local(struct via_channel *channel);

#endif
