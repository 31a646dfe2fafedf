/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CORE_NODE_INTERNAL_H
#define VIA_CORE_NODE_INTERNAL_H

#include <stdatomic.h>
#include <string.h>

#include "base/bits.h"
#include "base/list.h"
#include "base/types.h"
#include "core/node.h"
#include "core/pipe.h"
#include "wire/handshake.h"
#include "wire/link_state.h"

/*
 * What the files of the node share. Who owns what:
 *   struct via_link, struct via_lsdb          the control thread, but for the fields that say
 * otherwise struct via_channel and all inside         its transfer thread, but for atomics
 *   via_node.segments                         the control thread writes, channels read (atomics)
 *   via_node.routes, sessions, routes_version the control thread writes, channels copy
 */

/* Counters have one writer; readers in other threads may be late but never see half a number. */
static inline void via_count(_Atomic uint64_t *counter, uint64_t more)
{
    uint64_t old = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, old + more, memory_order_relaxed);
}

static inline uint64_t via_counted(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* --- links (link.c) -------------------------------------------------------------------------- */

/*
 * Where pipes lie in an inbox (both ends compute the same): the heartbeat line, then per pipe the
 * line with the credit word of the pipe that goes out, then the memory of the pipe that comes in.
 * Pipe 0 is the control pipe, pipe 1 + k channel k's.
 */
struct via_inbox_place {
    size_t credit_off;
    size_t memory_off;
};

enum via_link_phase {
    VIA_PHASE_NO_PORT = 0,
    VIA_PHASE_DOWN,      /* no physical link */
    VIA_PHASE_QUIESCE,   /* until all channels have let go of the pipes */
    VIA_PHASE_HANDSHAKE, /* my epoch is published */
    VIA_PHASE_UP,
};

struct via_link {
    struct via_port *_Atomic port;
    unsigned index;

    /*
     * Odd: up. Every change is announced here: a channel that sees a new value lets go of its
     * pipes, takes the epochs when it is odd, and answers in via_channel_link.seen_generation. The
     * epochs are written only while all channels have answered an even value.
     */
    _Atomic uint32_t generation;
    uint16_t rx_epoch;   /* of records into my inbox; my choice */
    uint16_t tx_epoch;   /* of records into the peer's inbox; the peer's choice */
    _Atomic bool broken; /* set by a channel: the peer posted nonsense */
    _Atomic bool lost;   /* set by a channel: it was down, or its engine can not be stopped */

    /* What via_node_arm(0) looks at without touching the control thread's reader. */
    _Atomic uint64_t control_word; /* the record word that comes next, length 0; 0 = down */

    /* Control thread only. */
    enum via_link_phase phase;
    uint32_t peer_seen_session;
    uint16_t echo; /* peer epoch echoed, 0 = none */
    uint8_t published_state;
    uint64_t next_look_ns;
    uint64_t next_beat_ns;
    uint64_t heard_ns;
    uint64_t heartbeat_sent;
    uint64_t heartbeat_seen;
    uint64_t activity_seen;
    struct via_pipe_writer control_tx;
    struct via_pipe_reader control_rx;
    uint32_t control_data_ends[VIA_CONTROL_PIPE_SLOTS];
    uint64_t *dirty;     /* bitmap of hosts whose announcement this peer has not got */
    unsigned dirty_from; /* where the next look for a dirty host starts */
    unsigned dirty_count;

    /* For via_node_link_status. */
    _Atomic uint8_t state;
    _Atomic uint16_t peer;
    _Atomic uint32_t peer_session;
    _Atomic uint32_t peer_version;
    _Atomic uint32_t ups_count;
    _Atomic uint32_t downs_count;
    _Atomic uint64_t errors;
};

/* --- link states (lsdb.c) -------------------------------------------------------------------- */

/* version is a sequence lock for via_node_neighbours(): odd while the control thread writes. */
struct via_lsa {
    _Atomic uint32_t version;
    _Atomic uint32_t session; /* 0 = never seen */
    uint64_t sequence;
    _Atomic uint8_t neighbours_count;
    _Atomic uint16_t neighbours[VIA_LINK_STATE_NEIGHBOURS_MAX];
    uint32_t neighbour_sessions[VIA_LINK_STATE_NEIGHBOURS_MAX];
};

/* Route word: hops << 8 | port. */
#define VIA_ROUTE_NONE 0xffffffu

/* --- segments (segment.c) -------------------------------------------------------------------- */

struct via_segment_slot {
    _Atomic uint64_t handle; /* 0 = free */
    unsigned char *base;
    size_t bytes;
    _Atomic unsigned flags;
    uint64_t handle_removed; /* control thread: the last one that was here */
    uint64_t retired;        /* control thread: the handle that keeps the slot; 0 = none */
    uint32_t *turns;         /* control thread: each channel's turn when it was removed */
};

/* --- channels -------------------------------------------------------------------------------- */

/* A frame that waits in a relay. */
struct via_bypass_frame {
    struct via_list link; /* via_channel_link.bypass, or via_channel.bypass_free */
    uint64_t since_ns;
    uint32_t body_bytes;
    struct via_frame_header header;
    unsigned char *body; /* frame_bytes_max bytes */
};

/* Where a body waits for the engine that reads it. */
struct via_dma_stage {
    struct via_list link;          /* via_dma.free or via_dma.running */
    struct via_dma_record *record; /* NULL: of a link that is gone */
    uint64_t cookie;               /* 0 = no DMA is under way */
    uint64_t since_ns;
    unsigned char *data; /* frame_bytes_max bytes */
};

/* A record that has its places in the pipe and is not published. */
struct via_dma_record {
    struct via_frame_header header;
    uint64_t off; /* of the body in the window */
    uint32_t body_bytes;
    bool waits; /* for its DMA */
};

struct via_dma {
    struct via_channel *channel;
    uint32_t bytes_min;
    unsigned running_count;
    struct via_dma_stage *stages; /* config.dma_buffers */
    struct via_list free;
    struct via_list running;        /* the oldest first */
    struct via_dma_record *records; /* pipe_slots; by sequence number */
    uint64_t serial;                /* of the last DMA */
    bool lost;                      /* the link was down while a DMA was under way */
    bool aborting;
    uint64_t abort_ns;  /* when that was asked for */
    uint64_t resume_ns; /* after a hang: by PIO until then */
};

struct via_channel_link {
    struct via_link *link;
    struct via_port *port; /* set while up */
    uint8_t doorbell;      /* the channel's number */
    bool up;
    bool blocked;          /* the frame at the head of rx waits for room elsewhere */
    bool room_asked;       /* a frame of another in-pipe waits for room here */
    bool turn_asked;       /* the same, of a frame that turns: via_link_may_turn() */
    bool sent;             /* records since the last must_ring */
    bool released;         /* records since the last must_ring_writer */
    uint16_t bells;        /* doorbells besides the channel's own that go with `sent` */
    uint32_t unrung_bytes; /* bodies since the last must_ring */
    uint32_t seen;
    _Atomic uint32_t seen_generation; /* `seen`, for the control thread */
    uint64_t blocked_since_ns;
    struct via_pipe_writer tx;
    struct via_pipe_reader rx;
    uint32_t *data_ends;
    size_t dma_from;     /* while up: bodies of so many bytes go to via_dma_send(). SIZE_MAX: none.
                            0: all records, because those before them wait for their DMA */
    struct via_dma *dma; /* NULL: this port is never given DMA */
    struct via_list bypass; /* struct via_bypass_frame.link, oldest first */
    unsigned bypass_used;
    struct via_list flows; /* struct via_tx_flow.ready: have something to send this way */
    struct via_list acks;  /* struct via_rx_flow.ack: acknowledgements to send this way */
    _Atomic uint64_t frames_sent, frames_received, bytes_sent, bytes_received;
    _Atomic uint64_t frames_relayed, frames_bypassed;
    _Atomic uint64_t dma_frames, dma_bytes, dma_busy, dma_fallbacks, dma_hangs;
};

/* What channels know of a host; a copy of the routes at via_channel.routes_seen. */
struct via_channel_host {
    uint32_t session;
    uint8_t port;             /* VIA_PORT_NONE: unreachable, or myself */
    bool rerouted;            /* by the last change of routes */
    uint16_t acks_soon_count; /* of its flows in via_channel.acks_soon */
};

/* Kinds of operations that a node starts itself, after enum via_op_kind. */
enum via_op_kind_internal {
    VIA_OP_GET_ANSWER = 32,
    VIA_OP_ATOMIC_ANSWER = 33,
    VIA_OP_BARRIER_RELEASE = 34,
    VIA_OP_BARRIER_WITHDRAW = 35,
};

/* An operation in progress. In use while it is in a flow's list or waits to be reported. */
struct via_op_slot {
    struct via_list link;     /* via_tx_flow.ops, via_channel.free_ops or free_answers */
    struct via_list reports;  /* via_channel.reports */
    struct via_list waits;    /* barrier: via_channel.barriers */
    struct via_tx_flow *flow; /* NULL = in no flow */
    struct via_op op;
    uint64_t generation; /* of the slot, part of the wire cookie: late answers find nobody */
    bool answer;         /* from the pool of internal operations */
    bool counted;        /* in via_tx_flow.live */
    bool in_use;
    bool assigned; /* first_sequence is set: some of it was sent */
    bool acked;    /* all its frames are acknowledged */
    bool skip;     /* what is not acknowledged is sent as SKIP */
    bool done;     /* status is final */
    bool finished; /* and nothing before it in its flow keeps it from being reported */
    bool reported; /* or there is nobody to report to */
    bool withdraw; /* barrier: send a withdrawal once the arrival is acknowledged */
    int status;
    uint64_t value;
    uint32_t first_sequence;
    uint32_t frames_count;
    uint64_t moved; /* get: bytes arrived; local operation: bytes done */
    uint32_t round; /* barrier */
};

struct via_tx_flow {
    struct via_list ops;         /* in order of submission */
    struct via_list ready;       /* via_channel_link.flows, via_channel.parked or .local */
    struct via_list busy;        /* via_channel.busy while it has operations */
    struct via_op_slot *ack_op;  /* the first with unacknowledged frames */
    struct via_op_slot *send_op; /* what `next` belongs to; NULL = all is sent */
    uint32_t acked;              /* everything before is delivered */
    uint32_t next;               /* to be sent next */
    uint32_t sent_max;           /* after the last ever sent */
    uint32_t start;              /* carries the START flag until it is acknowledged */
    bool started;                /* it was */
    bool owed;                   /* answers were given up: a SKIP frame at `start` has to say so */
    bool held;                   /* NOT_READY: one frame per time-out until that changes */
    bool probing;                /* after a time-out: one frame, then see what the peer says */
    bool soon;                   /* what was sent last is to be acknowledged soon, not at once */
    uint8_t no_state_count;
    uint16_t host;
    uint16_t flow;
    uint32_t live; /* operations that somebody waits for */
    uint64_t retry_ns;
    uint64_t deadline_ns;
    uint64_t progress_ns; /* 0 = take the time of the next look */
};

struct via_rx_flow {
    struct via_list ack;  /* via_channel_link.acks or via_channel.parked_acks */
    struct via_list wait; /* via_channel.answer_waiters */
    struct via_list soon; /* via_channel.acks_soon */
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

struct via_channel_counters {
    _Atomic uint64_t delivered, duplicate, gap, resent;
    _Atomic uint64_t dropped_stuck, dropped_hops, dropped_session, dropped_unroutable,
        dropped_malformed;
    _Atomic uint64_t refused_key, refused_range, refused_endpoint;
    _Atomic uint64_t ops_completed, ops_failed;
};

#define VIA_BARRIER_GROUPS 64u

/* A barrier group as its root sees it. Channel 0. */
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

struct via_channel {
    struct via_node *node;
    unsigned index;
    _Atomic uint32_t turn; /* odd while a poll is under way: see segment.c */
    uint32_t routes_seen;
    uint64_t now_ns;
    uint64_t next_timer_ns; /* not later than the earliest deadline of a busy flow */
    unsigned work;          /* done in this turn */
    unsigned pending;       /* operations accepted and not reported */
    _Atomic uint32_t pending_shown;
    struct via_channel_link *links;
    struct via_channel_host *hosts;
    struct via_tx_flow *tx; /* [host * (flows_count + 1) + flow]; the last flow: answers */
    struct via_rx_flow *rx;
    struct via_op_slot *slots; /* ops_count, then answers_count internal ones */
    struct via_list free_ops, free_answers;
    struct via_list reports; /* via_op_slot.reports: finished, to be told */
    struct via_list busy, parked, local;
    struct via_list parked_acks, answer_waiters;
    struct via_list acks_soon; /* via_rx_flow.soon, the first due first */
    struct via_list barriers;  /* via_op_slot.waits */
    struct via_list bypass_free;
    struct via_bypass_frame *bypass_frames;
    struct via_barrier_group *groups; /* channel 0: VIA_BARRIER_GROUPS */
    uint32_t barrier_round;
    uint32_t releases_due; /* of all groups */
    struct via_channel_counters counters;
} VIA_CACHELINE_ALIGNED;

struct via_node {
    struct via_node_config config;
    struct via_node_env env;
    struct via_pipe_geometry geometry; /* of channel pipes */
    size_t inbox_bytes;
    uint32_t flows_each; /* flows_count + 1 */
    uint32_t answers_count;
    uint32_t get_bytes_max; /* of one request */

    struct via_link links[VIA_PORTS_MAX];
    struct via_lsa *lsas; /* by host */
    bool own_dirty;       /* my neighbours have changed */
    bool routes_dirty;
    bool changed;
    uint64_t own_sequence_ns; /* when my announcement last had to outnumber another */
    bool own_outnumbered;
    uint16_t *queue; /* scratch of the route computation */
    uint32_t *route_scratch;

    _Atomic uint32_t routes_version;
    _Atomic uint32_t *routes;   /* by host: hops << 8 | port, or VIA_ROUTE_NONE */
    _Atomic uint32_t *sessions; /* by host: the session last reached, 0 = never */

    struct via_segment_slot *segments;
    struct via_channel *channels;
};

/* node.c */
void via_inbox_place(const struct via_node *node, unsigned pipe, struct via_inbox_place *ret_place);
/* Where posts through a port to inbox offset `off` go. */
void via_link_target(struct via_port *port, size_t off, struct via_pipe_target *ret_target);
void via_node_trace(const struct via_node *node, const char *format, ...) VIA_PRINTF(2, 3);

static inline const struct via_pipe_geometry *via_control_geometry(void)
{
    static const struct via_pipe_geometry geometry = {
        .slots_count = VIA_CONTROL_PIPE_SLOTS,
        .data_bytes = (VIA_CONTROL_PIPE_SLOTS + 1) * VIA_CONTROL_PIPE_BODY_BYTES,
        .body_bytes_max = VIA_CONTROL_PIPE_BODY_BYTES,
    };
    return &geometry;
}

/* link.c: one link's share of via_node_control; lowers *ret_deadline_ns. */
void via_link_control(struct via_node *node, struct via_link *link, uint64_t now_ns,
                      uint64_t *ret_deadline_ns);
/* The same after link states were updated: sends them, arms. */
void via_link_finish(struct via_node *node, struct via_link *link, uint64_t now_ns,
                     uint64_t *ret_deadline_ns);
void via_link_close(struct via_node *node, struct via_link *link);

/* lsdb.c */
void via_lsdb_init(struct via_node *node);
void via_lsdb_link_up(struct via_node *node, struct via_link *link);
/* Takes announcements from a link's control pipe. -EPROTO when the peer broke the rules. */
int via_lsdb_receive(struct via_node *node, struct via_link *link);
/* After all links were looked at: own announcement, routes. Lowers *ret_deadline_ns. */
void via_lsdb_update(struct via_node *node, uint64_t now_ns, uint64_t *ret_deadline_ns);
void via_lsdb_send(struct via_node *node, struct via_link *link);

/* segment.c */
void via_segments_init(struct via_node *node);
/* The memory of an access, or -EACCES, -ERANGE, counted as refused. Valid until the end of the
 * channel's turn. */
int via_segment_reach(struct via_channel *channel, uint64_t handle, uint64_t offset, uint64_t bytes,
                      unsigned need, unsigned char **ret_memory);
/* Stores a payload the way its flags ask for. */
void via_segment_store(unsigned char *memory, const void *data, size_t bytes, unsigned flags);
/* The signal of a put: set, or add with VIA_FRAME_SIGNAL_ADD in signal_offset. */
void via_segment_signal(unsigned char *memory, uint64_t signal_offset, uint64_t value);
/* Executes an atomic on a word that via_segment_reach() gave. 0 or -EINVAL. */
int via_segment_atomic(unsigned char *memory, unsigned operation, uint64_t operand,
                       uint64_t compare, uint64_t *ret_old);
/* Bytes of the word an operation works on. */
static inline unsigned via_atomic_bytes(unsigned operation)
{
    return (operation & VIA_ATOMIC_32) != 0 ? 4 : 8;
}

/* channel.c */
void via_channel_init(struct via_channel *channel);
static inline struct via_tx_flow *via_channel_tx(struct via_channel *channel, uint16_t host,
                                                 uint16_t flow)
{
    return &channel->tx[(size_t)host * channel->node->flows_each + flow];
}
static inline struct via_rx_flow *via_channel_rx(struct via_channel *channel, uint16_t host,
                                                 uint16_t flow)
{
    return &channel->rx[(size_t)host * channel->node->flows_each + flow];
}
/* The link towards a host, or NULL when there is no way now. */
struct via_channel_link *via_channel_way(struct via_channel *channel, uint16_t host);

void via_link_ring(struct via_channel_link *way);

/* relay.c: room in out pipes, and frames for others. */
bool via_link_has_room(struct via_channel_link *way);
/* May a frame that starts here leave this way? Keeps a free buffer in every ring of relays. */
bool via_link_may_inject(struct via_channel *channel, struct via_channel_link *way);
/* May a frame that turns from one dimension of a torus into another leave this way, or wait for it?
 */
bool via_link_may_turn(const struct via_channel *channel, struct via_channel_link *way);
void via_link_send(struct via_channel_link *way, const struct via_frame_header *header,
                   const void *body, size_t body_bytes);
/* A frame for another host: 0 = taken (sent, waiting or dropped), -EAGAIN = no room, leave it. */
int via_relay_frame(struct via_channel *channel, struct via_channel_link *from,
                    struct via_frame_header *header, const void *body, uint32_t body_bytes);
void via_relay_drain(struct via_channel *channel, struct via_channel_link *way);
/* After a change of routes: bypassed frames whose way has changed move or are dropped. */
void via_relay_reroute(struct via_channel *channel);

/* After the line of a record was posted: what is to be rung and counted for it. */
void via_link_sent(struct via_channel_link *way, unsigned kind, size_t body_bytes);

/* dma.c: bodies by the port's engine. */
void via_dma_init(struct via_channel *channel, struct via_channel_link *way);
/* The link is up, or gone. */
void via_dma_take_up(struct via_channel_link *way);
void via_dma_let_go(struct via_channel_link *way);
/* Is an engine still at work for the link as it was? Then its pipes must not begin anew. */
static inline bool via_dma_is_busy(const struct via_channel_link *way)
{
    return way->dma != NULL && way->dma->running_count != 0;
}
/* As via_link_send(), which decides. */
void via_dma_send(struct via_channel_link *way, const struct via_frame_header *header,
                  const void *body, size_t body_bytes);
/* Takes what has ended and publishes what waited for it, while via_dma_is_busy(). false: the link
 * has been down, or its engine can not be stopped: it has to go. */
bool via_dma_poll(struct via_channel_link *way);
/* When via_dma_poll() wants to be called at the latest, while via_dma_is_busy(). */
uint64_t via_dma_deadline_ns(const struct via_channel_link *way);

/* outgoing.c: what one frame is made of; payload is borrowed or lies in `operands`. */
struct via_outgoing {
    struct via_frame_header header;
    const void *payload;
    uint32_t bytes;
    struct via_frame_atomic_operands operands;
};
/* Fills in what frame `index` of an operation says and carries; `out` has the rest of the header.
 */
void via_outgoing_make(struct via_channel *channel, struct via_op_slot *op, uint32_t index,
                       struct via_outgoing *out);
/* A small payload goes with the header in one cache line. */
void via_outgoing_inline(struct via_outgoing *out);

/* flow_tx.c */
void via_tx_init(struct via_channel *channel, struct via_tx_flow *flow, uint16_t host,
                 uint16_t number);
/* Puts the flow where it belongs: ready on its link, parked, local, or nowhere. */
void via_tx_update(struct via_channel *channel, struct via_tx_flow *flow);
void via_tx_append(struct via_channel *channel, struct via_tx_flow *flow, struct via_op_slot *op);
/* Sends what may leave on a link, acknowledgements first. */
void via_tx_pump(struct via_channel *channel, struct via_channel_link *way);
void via_tx_acked(struct via_channel *channel, struct via_tx_flow *flow,
                  const struct via_frame_ack *ack);
/* The way to the flow's host has changed. */
void via_tx_rerouted(struct via_channel *channel, struct via_tx_flow *flow);
/* An answer waits for an internal operation: look whether others can be taken back. */
void via_tx_answers_short(struct via_channel *channel);
/* Ends all operations of the flow with status; the next frame starts anew. */
void via_tx_reset(struct via_channel *channel, struct via_tx_flow *flow, int status);
/* The operation needs nothing sent any more beyond what was: the rest becomes SKIP. */
void via_tx_skip(struct via_channel *channel, struct via_op_slot *op);
/* An operation in a flow counts as one that somebody waits for, or no more. */
void via_tx_count(struct via_op_slot *op);
void via_tx_uncount(struct via_op_slot *op);
/* Takes an operation off its flow; its slot is freed if reported. */
void via_tx_remove(struct via_channel *channel, struct via_op_slot *op);
/* Time-outs of all busy flows, when the earliest may have come. */
void via_tx_timers(struct via_channel *channel);

/* flow_rx.c */
void via_rx_init(struct via_rx_flow *flow, uint16_t host, uint16_t number);
/* A frame whose destination is this host. Never blocks. */
void via_rx_frame(struct via_channel *channel, const struct via_frame_header *header,
                  const void *body, uint32_t body_bytes);
void via_rx_update(struct via_channel *channel, struct via_rx_flow *flow);
/* A frame goes to the host: what it is to be told soon goes with it. */
void via_rx_acks_with(struct via_channel *channel, uint16_t host);
/* Acknowledgements that have waited long enough. */
void via_rx_timers(struct via_channel *channel);
/* When via_rx_timers() wants to be called; VIA_NEVER_NS. */
uint64_t via_rx_deadline_ns(const struct via_channel *channel);
/* What a frame asks of this host's consumers and memory: 0, -EAGAIN (not now), or refused. */
int via_rx_message(struct via_channel *channel, uint16_t source, uint16_t flow,
                   const struct via_frame_message *args, const void *data, uint32_t bytes);
int via_rx_put(struct via_channel *channel, const struct via_frame_access *args, const void *data,
               uint32_t bytes, unsigned flags);
int via_rx_put_signal(struct via_channel *channel, const struct via_frame_signal *args,
                      const void *data, uint32_t bytes, unsigned flags);
int via_rx_atomic(struct via_channel *channel, const struct via_frame_atomic *args,
                  const struct via_frame_atomic_operands *operands, uint64_t *ret_old);
/* Sends one acknowledgement that is due; may_inject() was true. */
void via_rx_send_ack(struct via_channel *channel, struct via_channel_link *way,
                     struct via_rx_flow *flow);
/* The source of the flow lives a new life. */
void via_rx_reset(struct via_channel *channel, struct via_rx_flow *flow);

/* ops.c */
void via_ops_init(struct via_channel *channel);
/* The status of an operation is final; via_op_flush() finishes it when it is its turn. */
void via_op_done(struct via_op_slot *op, int status, uint64_t value);
/* All frames of the operation are acknowledged. */
void via_op_acked(struct via_channel *channel, struct via_op_slot *op);
/* Ends the operation out of order; it is reported at the end of the turn. */
void via_op_finish(struct via_channel *channel, struct via_op_slot *op, int status, uint64_t value);
/* Finishes those at the front of a flow that are done, in order. */
void via_op_flush(struct via_channel *channel, struct via_tx_flow *flow);
void via_op_free_if_over(struct via_channel *channel, struct via_op_slot *op);
void via_ops_report(struct via_channel *channel);
/* An internal operation, NULL when there is none. */
struct via_op_slot *via_op_answer_new(struct via_channel *channel, const struct via_op *what);
bool via_op_answer_available(const struct via_channel *channel);
uint64_t via_op_cookie(const struct via_channel *channel, const struct via_op_slot *op);
/* The operation an answer is for, or NULL. */
struct via_op_slot *via_op_by_cookie(struct via_channel *channel, uint64_t cookie,
                                     uint16_t destination);
/* Bounded turn of the operations on the own host. */
void via_ops_local(struct via_channel *channel);

/* answer.c: gets and atomics, at the owner of the memory and at the requester. */
int via_answer_get(struct via_channel *channel, const struct via_frame_header *header);
int via_answer_atomic(struct via_channel *channel, const struct via_frame_header *header,
                      const void *body, uint32_t body_bytes);
void via_answer_get_data(struct via_channel *channel, const struct via_frame_header *header,
                         const void *data, uint32_t bytes);
void via_answer_atomic_result(struct via_channel *channel, const struct via_frame_header *header);
/* `host` has given up answers that it owed. */
void via_answer_lost(struct via_channel *channel, uint16_t host);

/* barrier.c */
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

#endif
