/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CORE_FLOW_H
#define VIA_CORE_FLOW_H

#include "base/mutant.h"
#include "core/way.h"

/*
 * Layer 4: flows. Frames get numbers, are acknowledged, sent again, and taken in order, once. What
 * the frames say is up to the layer above, which flows call through struct via_flow_calls only.
 */

/* The flow's part of an operation: a range of numbers. Owned by the layer above. */
struct via_tx_op {
    struct via_list link;     /* via_tx_flow.ops; in no flow, the owner's */
    struct via_tx_flow *flow; /* NULL = in no flow */
    uint32_t first_sequence;
    uint32_t frames_count;
    uint32_t frames_ready; /* how many may be sent now; UINT32_MAX = all */
    bool counted;          /* in via_tx_flow.live */
    bool assigned;         /* first_sequence is set: some of it was sent */
    bool acked;            /* all its frames are acknowledged */
    bool skip;             /* what is not acknowledged is sent as SKIP */
    bool soon;             /* its last frame is to be acknowledged soon, not at once */
    bool kept;             /* a host that does not acknowledge is no reason to give it up */
    uint32_t progress;     /* the layer above counts progress here, besides acknowledgements */
    uint32_t mark;         /* progress at the last check ... */
    uint64_t stalled_ns;   /* ... and since when; 0 = it was not */
};

struct via_tx_flow {
    struct via_list ops;       /* via_tx_op.link, in order of submission */
    struct via_list ready;     /* via_way.flows, via_flows.parked or .local */
    struct via_list busy;      /* via_flows.busy while it has operations */
    struct via_tx_op *ack_op;  /* the first with unacknowledged frames */
    struct via_tx_op *send_op; /* what `next` belongs to; NULL = all is sent */
    uint32_t acked;            /* everything before is delivered */
    uint32_t next;             /* to be sent next */
    uint32_t sent_max;         /* after the last ever sent */
    uint32_t start;            /* carries the START flag until it is acknowledged */
    bool started;              /* it was */
    bool owed;                 /* answers were given up: a SKIP frame at `start` has to say so */
    bool held;                 /* NOT_READY: one frame per time-out until that changes */
    bool probing;              /* after a time-out: one frame, then see what the peer says */
    bool soon;                 /* what was sent last is to be acknowledged soon, not at once */
    uint8_t no_state_count;
    uint16_t host;
    uint16_t flow;
    uint32_t live; /* operations that a process waits for */
    uint64_t retry_ns;
    uint64_t deadline_ns;
    uint64_t progress_ns; /* when a frame of the peer last arrived. 0 = set at the next check */
    uint64_t poll_ns;     /* when to check the progress of the first operation */
};

struct via_rx_flow {
    struct via_list ack;  /* via_way.acks or via_flows.parked_acks */
    struct via_list wait; /* via_flows.answer_waiters */
    struct via_list soon; /* via_flows.acks_soon */
    uint64_t soon_ns;     /* when it is due at the latest */
    uint32_t session;     /* of the source this state belongs to; 0 = none */
    uint32_t expected;
    uint16_t host;
    uint16_t flow;
    bool ack_due;
    bool stalled; /* the consumer said -EAGAIN */
    bool starved; /* no internal operation for the answer */
    bool resumed;
    bool gap; /* a later frame has come */
    bool gap_told;
    bool refused;
    bool no_state;
    int32_t refused_status;
};

/* The parts of one frame; payload is borrowed or lies in `operands`. */
struct via_outgoing {
    struct via_frame_header header;
    const void *payload;
    uint32_t bytes;
    struct via_frame_atomic_operands operands;
};

/* Calls of the layer above, for flows. Every call may add operations to any flow; which operations
 * it may take off a flow is said. */
struct via_flow_calls {
    /* Fills in kind, arguments and payload of frame `index` of an operation; `out` has the rest of
     * the header. May lower op->frames_count to the frames sent and this one; takes nothing off. */
    void (*make)(struct via_channel *channel, struct via_tx_op *op, uint32_t index,
                 struct via_outgoing *out);
    /* All frames of the operation are acknowledged. May take it off. */
    void (*acked)(struct via_channel *channel, struct via_tx_op *op);
    /* The peer refused the first frame that is not acknowledged; status < 0. Calls via_tx_skip().
     */
    void (*refused)(struct via_channel *channel, struct via_tx_op *op, int status);
    /* Acknowledgements were taken: ends the operations done at the front of the flow. May take any
     * off, and reset the flow. */
    void (*settled)(struct via_channel *channel, struct via_tx_flow *flow);
    /* The flow is reset: the operation ends with `status` unless it has ended. Takes nothing off.
     */
    void (*ended)(struct via_channel *channel, struct via_tx_op *op, int status);
    /* The operation is in no flow any more. */
    void (*removed)(struct via_channel *channel, struct via_tx_op *op);
    /* The first operation that a process waits for made no progress for wait_ns_max, although
     * frames of its peer arrive: it ends with -ETIMEDOUT. May take any off, and reset the flow. */
    void (*timed_out)(struct via_channel *channel, struct via_tx_op *op);
    /* No frame of the reserved flow's peer arrived for give_up_ns, and some operations are kept:
     * the operations that wait for them end. May take any off, and reset the flow. */
    void (*stuck)(struct via_channel *channel, struct via_tx_flow *flow);
    /* May there be one more answer to this host? 0; -EBUSY: it has its share; -ENOBUFS: there are
     * too many in all. */
    int (*answer_room)(const struct via_channel *channel, uint16_t host);
    /* Does what the frame asks for, which is next in its flow. 0 = taken; later: -EAGAIN (until
     * via_node_resume()), -ENOBUFS (until via_rx_wake_waiter()); else refused. */
    int (*execute)(struct via_channel *channel, const struct via_frame_header *header,
                   const void *body, uint32_t body_bytes);
};

struct via_flows {
    struct via_flow_calls calls;
    struct via_tx_flow *tx; /* [host * (flows_count + 1) + flow]; the last flow: answers */
    struct via_rx_flow *rx;
    uint64_t next_timer_ns; /* not later than the earliest deadline of a busy flow */
    struct via_list busy, parked, local;
    struct via_list parked_acks, answer_waiters;
    struct via_list acks_soon;  /* via_rx_flow.soon, the first due first */
    uint16_t *acks_soon_counts; /* by host: how many of its flows are in acks_soon */
};

static inline struct via_tx_flow *via_channel_tx(struct via_channel *channel, uint16_t host,
                                                 uint16_t flow)
{
    return &channel->flows->tx[(size_t)host * channel->node->flows_each + flow];
}
static inline struct via_rx_flow *via_channel_rx(struct via_channel *channel, uint16_t host,
                                                 uint16_t flow)
{
    return &channel->flows->rx[(size_t)host * channel->node->flows_each + flow];
}

/* --- flow_rx.c ------------------------------------------------------------------------------- */

void via_rx_init(struct via_rx_flow *flow, uint16_t host, uint16_t number);
/* A frame with a number of its own, whose destination is this host. Never blocks. */
void via_rx_take(struct via_channel *channel, const struct via_frame_header *header,
                 const void *body, uint32_t body_bytes);
void via_rx_update(struct via_channel *channel, struct via_rx_flow *flow);
/* The consumer that said -EAGAIN is ready. */
void via_rx_resume(struct via_channel *channel, struct via_rx_flow *flow);
/* An internal operation has become free: lets a flow that waits for one try again. */
void via_rx_wake_waiter(struct via_channel *channel);
/* A frame goes to the host: due acknowledgements go with it. */
void via_rx_acks_with(struct via_channel *channel, uint16_t host);
/* Acknowledgements that have waited long enough. */
void via_rx_timers(struct via_channel *channel);
/* When via_rx_timers() wants to be called; VIA_NEVER_NS. */
uint64_t via_rx_deadline_ns(const struct via_channel *channel);
/* Sends one acknowledgement that is due; may_inject() was true. */
void via_rx_send_ack(struct via_channel *channel, struct via_way *way, struct via_rx_flow *flow);
/* The source of the flow lives a new life. */
void via_rx_reset(struct via_channel *channel, struct via_rx_flow *flow);

/* --- flow_tx.c ------------------------------------------------------------------------------- */

void via_tx_init(struct via_channel *channel, struct via_tx_flow *flow, uint16_t host,
                 uint16_t number);
/* Puts the flow where it belongs: ready on its way, parked, local, or nowhere. */
void via_tx_update(struct via_channel *channel, struct via_tx_flow *flow);
void via_tx_append(struct via_channel *channel, struct via_tx_flow *flow, struct via_tx_op *op);
/* Sends the frames that may leave on a way, acknowledgements first. */
void via_tx_pump(struct via_channel *channel, struct via_way *way);
/* Takes an acknowledgement. */
void via_tx_acked(struct via_channel *channel, const struct via_frame_header *header);
/* The way to the flow's host has changed. */
void via_tx_rerouted(struct via_channel *channel, struct via_tx_flow *flow);
/* Ends all operations of the flow with status; the next frame starts anew. */
void via_tx_reset(struct via_channel *channel, struct via_tx_flow *flow, int status);
/* The operation needs no more frames than were sent: the rest become SKIP frames. */
void via_tx_skip(struct via_channel *channel, struct via_tx_op *op);
/* Counts an operation of a flow as one that a process waits for, or stops counting it. */
void via_tx_count(struct via_tx_op *op);
void via_tx_uncount(struct via_tx_op *op);
/* Takes an operation off its flow; calls->removed() follows. */
void via_tx_remove(struct via_channel *channel, struct via_tx_op *op);
/* Time-outs of all busy flows, when the earliest may have come. */
void via_tx_timers(struct via_channel *channel);

/* --- flow.c ---------------------------------------------------------------------------------- */

void via_flows_init(struct via_channel *channel, const struct via_flow_calls *calls);
/* A frame whose destination is this host. Never blocks. */
static inline void via_flows_frame(struct via_channel *channel,
                                   const struct via_frame_header *header, const void *body,
                                   uint32_t body_bytes)
{
    /* Only frames between the two lives that are known now count; 0 is no life. */
    if ((header->source_session == 0 ||
         header->source_session != channel->hosts[header->source].session ||
         header->destination_session != channel->node->config.session) &&
        !VIA_MUTANT(NO_SESSION)) {
        via_count(&channel->counters.dropped_session, 1);
    } else if (header->kind == VIA_FRAME_ACK) {
        via_tx_acked(channel, header);
    } else {
        via_rx_take(channel, header, body, body_bytes);
    }
}
/* After the way went up or down: what waits for it is put where it belongs now. */
void via_flows_sort(struct via_channel *channel, struct via_way *way);
/* Frames on the way through this port may be lost: asks each peer beyond it how far it got. */
void via_flows_ask_again(struct via_channel *channel, unsigned port);
/* After a change of routes: the same for hosts with via_channel_host.rerouted. */
void via_flows_rerouted(struct via_channel *channel);
/* The host lives a new life. */
void via_flows_host_reset(struct via_channel *channel, uint16_t host);

#endif
