/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CORE_FLOW_H
#define VIA_CORE_FLOW_H

#include "base/mutant.h"
#include "core/way.h"

/*
 * Layer 4: flows. Frames get numbers, are acknowledged, sent again, and taken in order, once. The
 * layer above, which flows call through struct via_flow_calls only, defines their contents.
 */

/* The flow's part of an operation: a range of numbers. Owned by the layer above. */
struct via_tx_op {
    struct via_list link;     /* via_tx_flow.ops; in no flow: for the owner's use */
    struct via_tx_flow *flow; /* NULL = in no flow */
    uint32_t first_sequence;
    uint32_t frames_count;
    uint32_t frames_ready; /* number of frames that may be sent now; UINT32_MAX = all */
    bool counted;          /* in via_tx_flow.live */
    bool assigned;         /* first_sequence is set: a frame was sent */
    bool acked;            /* all its frames are acknowledged */
    bool skip;             /* unacknowledged frames are sent as SKIP */
    bool soon;             /* its last frame is to be acknowledged soon, not at once */
    bool kept;             /* it is not given up if the host does not acknowledge */
    uint32_t progress;     /* the layer above counts progress here, besides acknowledgements */
    uint32_t mark;         /* progress at the last check ... */
    uint64_t stalled_ns;   /* ... and since when it has this value; 0 = never checked */
};

struct via_tx_flow {
    struct via_list ops;       /* via_tx_op.link, in order of submission */
    struct via_list ready;     /* via_way.flows, via_flows.parked or .local */
    struct via_list busy;      /* via_flows.busy while it has operations */
    struct via_tx_op *ack_op;  /* the first with unacknowledged frames */
    struct via_tx_op *send_op; /* the operation of frame `next`; NULL = all is sent */
    uint32_t acked;            /* all frames before this number are delivered */
    uint32_t next;             /* number of the frame to send next */
    uint32_t sent_max;         /* after the highest number ever sent */
    uint32_t start;            /* this frame carries the START flag until it is acknowledged */
    bool started;              /* the START frame is acknowledged */
    bool owed;                 /* answers were given up: a SKIP frame at `start` must report it */
    bool held;                 /* NOT_READY: one frame per time-out until the peer is ready */
    bool probing;              /* after a time-out: one frame, then wait for its acknowledgement */
    bool soon;                 /* the last frame sent is to be acknowledged soon, not at once */
    uint8_t no_state_count;
    uint16_t host;
    uint16_t flow;
    uint32_t live; /* number of operations for which a process waits */
    uint64_t retry_ns;
    uint64_t deadline_ns;
    uint64_t progress_ns; /* when a frame of the peer last arrived. 0 = set at the next check */
    uint64_t poll_ns;     /* when to check the progress of the first operation */
};

struct via_rx_flow {
    struct via_list ack;  /* via_way.acks or via_flows.parked_acks */
    struct via_list wait; /* via_flows.answer_waiters */
    struct via_list soon; /* via_flows.acks_soon */
    uint64_t soon_ns;     /* latest time of the acknowledgement */
    uint32_t session;     /* of the source this state belongs to; 0 = none */
    uint32_t expected;
    uint16_t host;
    uint16_t flow;
    bool ack_due;
    bool stalled; /* the consumer returned -EAGAIN */
    bool starved; /* no internal operation for the answer */
    bool resumed;
    bool gap; /* a later frame has arrived */
    bool gap_reported;
    bool refused;
    bool no_state;
    int32_t refused_status;
};

/* The parts of one frame; payload is borrowed or points to `operands`. */
struct via_outgoing {
    struct via_frame_header header;
    const void *payload;
    uint32_t bytes;
    struct via_frame_atomic_operands operands;
};

/* Functions of the layer above, which flows call. Every function may add operations to any flow;
 * its comment says which operations it may remove from a flow. */
struct via_flow_calls {
    /* Fills in kind, arguments and payload of frame `index` of an operation; `out` has the rest of
     * the header. May lower op->frames_count to the frames sent and this one; removes nothing. */
    void (*make)(struct via_channel *channel, struct via_tx_op *op, uint32_t index,
                 struct via_outgoing *out);
    /* All frames of the operation are acknowledged. May remove it. */
    void (*acked)(struct via_channel *channel, struct via_tx_op *op);
    /* The peer refused the first unacknowledged frame; status < 0. Calls via_tx_skip(). */
    void (*refused)(struct via_channel *channel, struct via_tx_op *op, int status);
    /* Acknowledgements were taken: ends the operations at the front of the flow that are done. May
     * remove any operation, and reset the flow. */
    void (*settled)(struct via_channel *channel, struct via_tx_flow *flow);
    /* The flow is reset: the operation ends with `status` unless it has ended. Removes nothing. */
    void (*ended)(struct via_channel *channel, struct via_tx_op *op, int status);
    /* The operation is in no flow any more. */
    void (*removed)(struct via_channel *channel, struct via_tx_op *op);
    /* The first operation for which a process waits made no progress for wait_ns_max, although
     * frames of its peer arrive: it ends with -ETIMEDOUT. May remove any, and reset the flow. */
    void (*timed_out)(struct via_channel *channel, struct via_tx_op *op);
    /* No frame of the reserved flow's peer arrived for give_up_ns, and some operations are kept:
     * the operations that wait for them end. May remove any, and reset the flow. */
    void (*stuck)(struct via_channel *channel, struct via_tx_flow *flow);
    /* Is one more answer to this host allowed? 0; -EBUSY: the host has its share; -ENOBUFS: there
     * are too many answers in all. */
    int (*answer_room)(const struct via_channel *channel, uint16_t host);
    /* Executes the frame, which is next in its flow. 0 = done; try again: -EAGAIN (after
     * via_node_resume()), -ENOBUFS (after via_rx_wake_waiter()); else refused. */
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
    uint16_t *acks_soon_counts; /* by host: number of its flows in acks_soon */
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
/* Takes a numbered frame whose destination is this host. Never blocks. */
void via_rx_take(struct via_channel *channel, const struct via_frame_header *header,
                 const void *body, uint32_t body_bytes);
void via_rx_update(struct via_channel *channel, struct via_rx_flow *flow);
/* The consumer that returned -EAGAIN is ready. */
void via_rx_resume(struct via_channel *channel, struct via_rx_flow *flow);
/* An internal operation has become free: lets a flow that waits for one try again. */
void via_rx_wake_waiter(struct via_channel *channel);
/* A frame is sent to the host: also sends its delayed acknowledgements. */
void via_rx_acks_with(struct via_channel *channel, uint16_t host);
/* Sends acknowledgements whose delay is over. */
void via_rx_timers(struct via_channel *channel);
/* The next deadline of via_rx_timers(); VIA_NEVER_NS. */
uint64_t via_rx_deadline_ns(const struct via_channel *channel);
/* Sends one acknowledgement that is due; may_inject() was true. */
void via_rx_send_ack(struct via_channel *channel, struct via_way *way, struct via_rx_flow *flow);
/* The source of the flow has restarted. */
void via_rx_reset(struct via_channel *channel, struct via_rx_flow *flow);

/* --- flow_tx.c ------------------------------------------------------------------------------- */

void via_tx_init(struct via_channel *channel, struct via_tx_flow *flow, uint16_t host,
                 uint16_t number);
/* Puts the flow into the list that it belongs to: ready on its way, parked, local, or none. */
void via_tx_update(struct via_channel *channel, struct via_tx_flow *flow);
void via_tx_append(struct via_channel *channel, struct via_tx_flow *flow, struct via_tx_op *op);
/* Sends the frames that may leave on a way, acknowledgements first. */
void via_tx_pump(struct via_channel *channel, struct via_way *way);
/* Takes an acknowledgement. */
void via_tx_acked(struct via_channel *channel, const struct via_frame_header *header);
/* The route to the flow's host has changed. */
void via_tx_rerouted(struct via_channel *channel, struct via_tx_flow *flow);
/* Ends all operations of the flow with status; the next frame starts the flow again. */
void via_tx_reset(struct via_channel *channel, struct via_tx_flow *flow, int status);
/* The operation needs no more frames than were sent: its unacknowledged frames become SKIP
 * frames. */
void via_tx_skip(struct via_channel *channel, struct via_tx_op *op);
/* Counts an operation of a flow as one for which a process waits, or stops counting it. */
void via_tx_count(struct via_tx_op *op);
void via_tx_uncount(struct via_tx_op *op);
/* Removes an operation from its flow; calls->removed() follows. */
void via_tx_remove(struct via_channel *channel, struct via_tx_op *op);
/* Handles time-outs of all busy flows if the earliest deadline may be over. */
void via_tx_timers(struct via_channel *channel);

/* --- flow.c ---------------------------------------------------------------------------------- */

void via_flows_init(struct via_channel *channel, const struct via_flow_calls *calls);
/* A frame whose destination is this host. Never blocks. */
static inline void via_flows_frame(struct via_channel *channel,
                                   const struct via_frame_header *header, const void *body,
                                   uint32_t body_bytes)
{
    /* Only frames between the two present sessions count; 0 is no session. */
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
/* The way went up or down: moves the flows and acknowledgements that wait for it to other lists. */
void via_flows_sort(struct via_channel *channel, struct via_way *way);
/* Frames sent through this port may be lost: requests from each host beyond the port its
 * last acknowledged number. */
void via_flows_request_acks(struct via_channel *channel, unsigned port);
/* After a change of routes: the same for hosts with via_channel_host.rerouted. */
void via_flows_rerouted(struct via_channel *channel);
/* The host has restarted. */
void via_flows_host_reset(struct via_channel *channel, uint16_t host);

#endif
