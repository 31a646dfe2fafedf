/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CORE_NODE_H
#define VIA_CORE_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/port.h"
#include "wire/frame.h"

/*
 * The node: one host of the fabric, without its threads, clocks and memory allocator.
 *
 * Threads. A node has `channels_count` channels. Calls that take a channel must come from that
 * channel's transfer thread (one thread at a time; different channels at the same time are fine and
 * share no lock). Calls marked [control] come from the control thread, which may be the same as
 * channel 0's. Calls marked [any] may come from anywhere. In the simulator all are one thread.
 *
 * Time. `now_ns` is an argument everywhere; `*ret_deadline_ns` is the latest time of the next call
 * (UINT64_MAX = only when something arrives).
 *
 * Memory. via_node_bytes() returns its size; the caller provides it, once.
 *
 * Layers. A file of src/core uses its own layer and those below it; each layer has a private header
 * and its own state, which other layers hold by pointer only (struct via_channel). A test fails for
 * files that call each other in a circle, and for a use of a higher layer:
 * tests/repo/core_layers.py.
 * - 1, pipe.h, layout.h: pipe, layout. Records between two hosts; places of pipes in an inbox.
 * - 2, way.h, arm.h: way, dma, send, arm. Room, bells, frames that leave through one port, fences.
 * - 3, segment.h: segment, apply. Memory that frames reach, and the execution of requests on it.
 * - 4, flow.h: flow_rx, flow_tx, flow. Numbers and acknowledgements; calls layer 5 through struct
 *   via_flow_calls.
 * - 5, op.h: op, outgoing, answer, barrier, ops. Operations as frames, and back.
 * - 6, relay.h, link.h, lsdb.h: relay, control_pipe, lsa, route, lsdb, greet, link. Frames for
 *   other hosts; links go up and down, hosts greet each other, and link states become routes.
 * - 7, channel.h: channel, node. The turns of a channel; the node as a whole.
 */
#define VIA_HOSTS_MAX 1024u /* host ids are 0..1023 */
#define VIA_PORTS_MAX 1024u
#define VIA_CHANNELS_MAX 14u
#define VIA_DIMENSIONS_MAX 8u /* two ports each */
#define VIA_PROTOCOL_VERSION 5u
/* Hosts drop frames of a kind that they do not know, and the flow then waits forever. */
_Static_assert(VIA_FRAME_KINDS == 13, "a new kind of frames is a new version of the protocol");
#define VIA_PORT_NONE 0xffffu
#define VIA_MAC_BYTES 32u
#define VIA_BARRIER_ARRIVALS_MAX 32u /* of one host that wait at one root */

/* The configuration of one port of a node. */
struct via_node_port_config {
    uint32_t dma_bytes_min; /* size of bodies from which on the port's DMA engine, if any, moves
                               them. 0 = no body */
    uint8_t dimension;      /* < VIA_DIMENSIONS_MAX; the dimension of a torus to which the port's
                               link belongs, the same at both ends. Of equally short routes frames
                               take the one in the lowest dimension, and a frame that turns into a
                               higher dimension needs a bubble, as a new frame does. 0 in any other
                               fabric */
};

struct via_node_config {
    uint16_t host;          /* id of this host, < hosts_max */
    uint16_t hosts_max;     /* all ids in this fabric are below it */
    uint32_t session;       /* random per boot, not 0 */
    uint16_t ports_count;   /* 0..VIA_PORTS_MAX; several may lead to one host */
    uint8_t channels_count; /* 1..VIA_CHANNELS_MAX */
    uint16_t hops_max;      /* hosts farther away are unreachable. 0 = default, hosts_max - 1: the
                               longest possible route */
    uint32_t pipe_slots;    /* per channel pipe, power of two, >= 1 */
    uint32_t
        frame_bytes_max;   /* payload of one frame, multiple of 64, 64..VIA_RECORD_BODY_BYTES_MAX */
    uint32_t bypass_count; /* frames a relay holds per (channel, port), >= 1 */
    uint32_t ops_count;    /* operations in progress per channel, >= 2 */
    uint32_t flows_count;  /* flows per (channel, destination), >= 1 */
    uint32_t window_frames;  /* frames of one flow under way, >= 1 */
    uint32_t segments_count; /* segments registered at once */
    uint32_t batch_frames;   /* most frames one poll takes from one pipe, >= 1 */
    uint32_t epoch_first; /* first link epoch tried (tests start near the wrap); 0 = from session */
    uint32_t pipe_first;  /* number of the first record of each pipe; the same at all hosts. 0, but
                             for tests that start near the wrap */
    uint8_t protocol_version; /* 0 = VIA_PROTOCOL_VERSION; other values are for tests */
    const struct via_node_port_config *ports; /* ports_count, borrowed for the call; NULL = all
                                                 are 0 */
    uint32_t dma_buffers; /* bodies under way by DMA per (channel, port), >= 1; each takes
                             frame_bytes_max of memory where a port's dma_bytes_min is not 0 */
    uint64_t dma_ns_max;  /* a DMA that takes longer hangs: it is aborted, and its body is copied by
                             PIO; an abort that takes longer ends the link. 0 = default 20 ms */
    uint64_t heartbeat_ns; /* 0 = default 20 ms; a daemon sets 25 ms */
    uint64_t dead_ns;      /* silence after which a link is down; 0 = default 80 ms, or what the
                              port says (caps.silence_ns) if that is longer */
    uint64_t retry_ns_min; /* first time-out of an unacknowledged frame; 0 = default 5 ms */
    uint64_t retry_ns_max; /* it doubles up to here; 0 = default 100 ms */
    /* Longest delay of an acknowledgement that is due soon, the same at all hosts; 0 = default 4
     * ms: with this delay the timer of a sleeping thread is seldom the next one of its CPU, so
     * setting it costs no time (setting the next timer of a virtual machine takes 10 us). */
    uint64_t ack_ns_max;
    uint64_t stuck_ns; /* a bypassed frame older than this is dropped (its source sends it
                          again): breaks cycles that bubbles do not cover; 0 = default 50 ms */
    bool keyed;        /* this fabric has a key: env.mac and env.random are set, and a peer has to
                          prove in each greeting that it has the key, too */
    uint64_t
        give_up_ns; /* an operation ends with -EHOSTUNREACH when no frame of its destination arrived
                       for this time: no acknowledgement and no answer; or, for a barrier, when one
                       of its hosts was unreachable. 0 = default 120 s, VIA_NEVER_NS = never */
    uint64_t wait_ns_max; /* an operation ends with -ETIMEDOUT when it is the first of its flow and
                             made no progress for this time although frames of its host arrive: the
                             consumer is not ready, an answer does not arrive, or a member does not
                             enter a barrier. It may take a quarter longer, and up to give_up_ns
                             more if frames of the host arrive seldom, or if a host of a barrier is
                             lost meanwhile. 0 = default 600 s, VIA_NEVER_NS = never */
    uint64_t born;        /* greater after each restart of this host: the time of day at start, in
                             nanoseconds. It lets other hosts order the sessions of this host. 0 =
                             unknown */
};

/* Fills in defaults for everything except host, session and ports_count. */
void via_node_config_init(struct via_node_config *config);

/* A message. Pointers are valid during the call only. */
struct via_delivery {
    uint16_t source;
    uint16_t flow;
    uint32_t endpoint;
    uint32_t source_endpoint;
    const void *data; /* hostile: may change while it is read */
    uint32_t bytes;
    unsigned channel;
};

struct via_node_env {
    void *ctx;
    /*
     * A message has arrived, exactly once, in order of its flow. 0 = taken; -EAGAIN = not now: the
     * node calls again after via_node_resume(); any other negative errno = refused: the sender's
     * operation fails with it. Called from the channel's thread. Must not block.
     */
    int (*deliver)(void *ctx, const struct via_delivery *delivery);
    /*
     * Operation `cookie` has ended: status 0 or negative errno, value the old value of an atomic.
     * Called once per accepted submit, from the channel's thread, never from within submit.
     */
    void (*complete)(void *ctx, unsigned channel, uint64_t cookie, int status, uint64_t value);
    /* A put with NOTIFY was stored into segment `handle`. Channel's thread. */
    void (*notify)(void *ctx, unsigned channel, uint64_t handle);
    /* Another thread of this node has work for channel `channel`: wake its thread. [any] */
    void (*wake)(void *ctx, unsigned channel);
    /* A link or a route changed (for logs and waiting programs). Control thread. May be NULL. */
    void (*changed)(void *ctx);
    /*
     * With config.keyed: a keyed hash of the data with the fabric's key (BLAKE2b or as strong), and
     * random bytes that no attacker can predict (0, or negative errno). Control thread.
     */
    void (*mac)(void *ctx, const void *data, size_t bytes, uint8_t ret_mac[VIA_MAC_BYTES]);
    int (*random)(void *ctx, void *ret_data, size_t bytes);
    /* Readable trace, may be NULL. */
    void (*trace)(void *ctx, const char *text);
};

struct via_node;

size_t via_node_bytes(const struct via_node_config *config); /* 0 when the config is invalid */

/* memory: via_node_bytes() bytes, 64-byte aligned, owned by the caller until after
 * via_node_fini() and the close of all ports: their DMA engines read from it. 0 or -EINVAL. */
int via_node_init(struct via_node **ret_node, void *memory, const struct via_node_config *config,
                  const struct via_node_env *env);

/* Inbox bytes that a port needs for this config. A port with less gets pipes with fewer slots; the
 * state of its link is BAD_GEOMETRY if not even one slot fits. */
size_t via_node_inbox_bytes(const struct via_node_config *config);

/* [control] Gives the node a port (index < ports_count), at any time; borrowed until
 * via_node_port_clear() or via_node_fini(). 0, -EINVAL, -EBUSY (the index has a port). */
int via_node_port_set(struct via_node *node, unsigned index, struct via_port *port);

/*
 * [control] Removes a port: its link goes down, and the peer notices it within two heartbeats. 0:
 * the node no longer uses the port, and the index is free. -EAGAIN: a channel may still use the
 * port; this call has woken the channels. Call it again after the next poll of each channel, and
 * via_node_control() in between. It takes at most a turn of each channel, or, with DMA under way,
 * until the end of the DMA (config.dma_ns_max, and the port's abort). -ENOENT: no port; -EINVAL.
 */
int via_node_port_clear(struct via_node *node, unsigned index);

/* [control] Sets via_node_port_config.dimension of the next port at a free index. 0, -EINVAL,
 * -EBUSY (the index has a port). */
int via_node_port_dimension(struct via_node *node, unsigned index, uint8_t dimension);

/* [control] Replaces via_node_port_config.dma_bytes_min of the port at an index, from the next time
 * on that the link comes up. UINT32_MAX: no DMA. 0, -EINVAL (also if the port was configured
 * without DMA). */
int via_node_port_dma(struct via_node *node, unsigned index, uint32_t bytes_min);

/*
 * [control] Link bring-up, heartbeats, link states, routes. Call it by its deadline, when a port
 * has LINK events, and soon after doorbell 0 of a port was rung (announcements ring it, too;
 * via_node_arm(node, 0) returns VIA_ARM_BUSY until they are taken). Cheap if there is nothing to
 * do.
 */
void via_node_control(struct via_node *node, uint64_t now_ns, uint64_t *ret_deadline_ns);

/*
 * One bounded turn of channel `channel`: takes frames from every port's pipe, delivers, relays,
 * sends, acknowledges, times out. Returns the number of things done (0 = idle).
 */
unsigned via_node_poll(struct via_node *node, unsigned channel, uint64_t now_ns,
                       uint64_t *ret_deadline_ns);

/* May a transfer thread sleep? Only the first of them is zero. */
enum via_arm {
    VIA_ARM_SLEEP = 0, /* yes: anything that arrives from now on wakes the thread */
    VIA_ARM_FENCING,   /* not yet: fences are under way, for about a round trip. Poll the channel,
                          pause, arm again. Nothing wakes the thread, unless via_node_release_ports()
                          returns true */
    VIA_ARM_BUSY,      /* no: there is something to do */
};

/*
 * Before the transfer thread sleeps: arms all its pipes, has the ports fence that, checks the pipes
 * again. Does not block: on ports that are not coherent the first answer is VIA_ARM_FENCING.
 * Channel 0 includes the control pipes.
 */
enum via_arm via_node_arm(struct via_node *node, unsigned channel);

/* After VIA_ARM_FENCING: may the thread sleep until its fences end? True: the ports make progress
 * by themselves, and wake the thread when the fences end. */
bool via_node_release_ports(struct via_node *node, unsigned channel);

/* [control] Ends everything: no callbacks afterwards. The caller still owns the ports. */
void via_node_fini(struct via_node *node);

/* --- operations ------------------------------------------------------------------------------ */

enum via_op_kind {
    VIA_OP_MESSAGE = 1,
    VIA_OP_PUT = 2,
    VIA_OP_PUT_SIGNAL = 3,
    VIA_OP_GET = 4,
    VIA_OP_ATOMIC = 5,
    VIA_OP_BARRIER = 6, /* channel 0 only */
    VIA_OP_PUT_STRIDED = 7,
};

#define VIA_OP_FLAGS (VIA_FRAME_FLAG_NOTIFY | VIA_FRAME_FLAG_LAST_WORD | VIA_FRAME_FLAG_ACK_SOON)

#define VIA_OP_STRIDED_BYTES_MAX (256u << 10)

struct via_op {
    uint8_t kind;   /* enum via_op_kind */
    uint8_t flags;  /* for puts: VIA_FRAME_FLAG_NOTIFY, VIA_FRAME_FLAG_LAST_WORD; for all but
                       barriers VIA_FRAME_FLAG_ACK_SOON: its completion may come later */
    uint8_t atomic; /* enum via_atomic | VIA_ATOMIC_32 */
    uint16_t destination;
    uint16_t flow;     /* < flows_count */
    uint32_t endpoint; /* message */
    uint32_t source_endpoint;
    uint64_t segment; /* put, get, atomic */
    uint64_t offset;
    uint64_t signal_offset; /* put with signal; VIA_FRAME_SIGNAL_ADD in bit 63 */
    uint64_t signal_value;
    uint64_t operand;   /* strided put: bytes from one block to the next, two's complement */
    uint64_t compare;   /* strided put: bytes of a block */
    const void *source; /* message, put: borrowed until complete */
    void *result;       /* get: borrowed until complete, written as data arrives */
    uint64_t bytes; /* message: at most frame_bytes_max; put, get: any; strided put: whole blocks,
                       VIA_OP_STRIDED_BYTES_MAX */
    uint64_t group; /* barrier: VIA_BARRIER_GROUP(); one barrier per group at a time */
    const uint16_t
        *members; /* barrier: host ids, ascending, with this host; borrowed until complete */
    uint32_t members_count;
    uint64_t cookie;
};

/*
 * Starts an operation. 0 = accepted: the node will call `complete`. -EAGAIN: no operation slot now,
 * poll and try again. -EINVAL, -EMSGSIZE, -EHOSTUNREACH (an id of no host of this fabric): nothing
 * happened. An operation to a destination that can not be reached at present is accepted and waits.
 * Operations of one flow are delivered and completed in order. Statuses at completion: 0, -EACCES
 * (wrong key), -ERANGE (outside the segment), -ECONNRESET (the destination host restarted: outcome
 * unknown), -EHOSTUNREACH (give_up_ns, or the owner has given up the answer: outcome unknown),
 * -ETIMEDOUT (wait_ns_max: outcome unknown, but a barrier was not completed and may be entered
 * again), -ENOENT (no such endpoint: result of deliver()), -EINVAL (misaligned word), -ENOSPC
 * (barrier: this host has VIA_BARRIER_ARRIVALS_MAX arrivals at the root), -EPROTO (the peer
 * violates the protocol), -ECANCELED (cancel, fini).
 * This host is a valid destination for all operations.
 */
int via_node_submit(struct via_node *node, unsigned channel, const struct via_op *op);

/* The consumer that returned -EAGAIN for a delivery of (source, flow) has room again. Do not call
 * it from within deliver(). */
void via_node_resume(struct via_node *node, unsigned channel, uint16_t source, uint16_t flow);

/* Gives up all operations with these cookies' `owner` bits: (cookie & mask) == match. They complete
 * with -ECANCELED at once; frames under way are skipped, never touching source or result again. */
void via_node_cancel(struct via_node *node, unsigned channel, uint64_t mask, uint64_t match);

/* Calls relocate() for each uncompleted operation with these owner bits. It may change `source` (to
 * a copy of the same bytes) and `cookie` (not the owner bits). */
void via_node_relocate(struct via_node *node, unsigned channel, uint64_t mask, uint64_t match,
                       void (*relocate)(void *ctx, struct via_op *op), void *ctx);

/* Operations not completed on this channel. */
unsigned via_node_pending(const struct via_node *node, unsigned channel);

/* [thread of channel 0] Number of this user's barriers (VIA_BARRIER_GROUP()) that wait, and of
 * those that ended early, while this root may still count their arrivals. */
uint32_t via_node_barriers(const struct via_node *node, uint32_t user, uint16_t root);
/* May this user enter one more barrier with this root? A root keeps VIA_BARRIER_ARRIVALS_MAX
 * arrivals of a host: a user may have as many as are free, so one user leaves half of them to
 * others, and n users leave a part of n + 1. Thread of channel 0. */
bool via_node_is_barrier_allowed(const struct via_node *node, uint32_t user, uint16_t root);

/* --- segments -------------------------------------------------------------------------------- */

#define VIA_SEGMENT_READ 1u
#define VIA_SEGMENT_WRITE 2u

/*
 * [control] Registers memory for access by (handle, offset). key: 48 random bits. 0 and the handle,
 * -ENOSPC, -EINVAL.
 */
int via_node_segment_add(struct via_node *node, void *base, size_t bytes, unsigned flags,
                         uint64_t key, uint64_t *ret_handle);

/*
 * [control] After this no new access starts; accesses under way in other threads end with their
 * poll. The memory may be unmapped once via_node_segment_is_idle() returns true. -ENOENT for an
 * unknown handle.
 */
int via_node_segment_remove(struct via_node *node, uint64_t handle);
/*
 * [control] The same, but no other segment gets the number in the handle until this one is removed:
 * a caller with a table by these numbers may still need its entry. -ENOENT for an unknown handle.
 */
int via_node_segment_retire(struct via_node *node, uint64_t handle);
/*
 * [control] From now on the segment allows only these accesses; accesses under way end with their
 * poll. -ENOENT for an unknown handle.
 */
int via_node_segment_limit(struct via_node *node, uint64_t handle, unsigned flags);
bool via_node_segment_is_idle(struct via_node *node, uint64_t handle);

/* --- counters and state [any] ---------------------------------------------------------------- */

enum via_link_state {
    VIA_LINK_DOWN = 0,    /* no physical link */
    VIA_LINK_WAITING = 1, /* physical link, peer not seen yet */
    VIA_LINK_HANDSHAKE = 2,
    VIA_LINK_UP = 3,
    VIA_LINK_BAD_MAGIC = 4, /* the peer is not Viaduct */
    VIA_LINK_BAD_VERSION = 5,
    VIA_LINK_BAD_GEOMETRY = 6, /* channels or frames differ, or a window is too small */
    VIA_LINK_BAD_HOST = 7,     /* the peer has the id of this host, or an id outside the fabric */
    VIA_LINK_BAD_FABRIC = 8,   /* the peer is configured for another fabric */
    VIA_LINK_BAD_KEY = 9,      /* the peer has not proven this host's fabric key */
};

/* The cause of a failed greeting (BAD_GEOMETRY, BAD_FABRIC, BAD_KEY), and both ends' values. */
enum via_link_cause {
    VIA_CAUSE_NONE = 0,
    VIA_CAUSE_KEYED = 1,       /* mine, peers: 0 = has no key */
    VIA_CAUSE_KEY = 2,         /* the keys differ */
    VIA_CAUSE_HOSTS_MAX = 3,   /* mine, peers */
    VIA_CAUSE_FLOWS = 4,       /* flows_count */
    VIA_CAUSE_ACK_NS = 5,      /* ack_ns_max */
    VIA_CAUSE_PIPE_FIRST = 6,  /* pipe_first */
    VIA_CAUSE_CHANNELS = 7,    /* channels_count */
    VIA_CAUSE_FRAME_BYTES = 8, /* frame_bytes_max */
    VIA_CAUSE_SLOTS = 9,       /* pipe_slots: the peer's value is not a power of two */
    /* Too small for pipes of one frame each. mine: needed bytes, peers: present bytes */
    VIA_CAUSE_MY_INBOX = 10,
    VIA_CAUSE_MY_WINDOW = 11,
    VIA_CAUSE_PEER_INBOX = 12,
    VIA_CAUSE_PEER_WINDOW = 13,
};

struct via_link_refusal {
    enum via_link_cause cause; /* NONE: the peer refused, and sent only its state */
    uint64_t mine;
    uint64_t peers;
};

struct via_link_status {
    enum via_link_state state;
    uint16_t peer; /* host id, valid from HANDSHAKE on */
    uint32_t peer_session;
    uint32_t peer_version;           /* of the peer's protocol, for messages about BAD_VERSION */
    uint32_t peer_link;              /* UP: the peer's number of the link, plus 1; 0 = unknown */
    struct via_link_refusal refusal; /* with a BAD_ state */
    uint32_t pipe_slots;             /* of a channel pipe, as negotiated; 0 before that */
    uint32_t ups_count;
    uint32_t downs_count;
    int down_why; /* reason of the last change from up to down: -ENOLINK (the port's link is down),
                     -ETIMEDOUT (no sign of life of the peer), -ECONNRESET (the peer restarted the
                     link), -EPROTO (the peer violated the protocol), -EIO (writes were lost, or an
                     engine could not be stopped); 0: it never went down, or the port was removed */
    uint64_t heartbeats;     /* of the peer since the link came up, by the last one that was read */
    uint64_t silence_max_ns; /* the longest time without heartbeat or frame since then */
    uint64_t frames_sent, frames_received, bytes_sent, bytes_received; /* all channels */
    uint64_t relayed_frames, bypassed_frames;
    uint64_t errors;                /* invalid records or words */
    uint64_t dma_frames, dma_bytes; /* bodies that the port's engine has copied */
    uint64_t dma_busy;              /* bodies sent by PIO because the engine had no room */
    uint64_t dma_fallbacks; /* bodies sent by PIO because DMA was refused, failed or aborted */
    uint64_t dma_hangs;     /* number of aborts of a hanging engine */
};
int via_node_link_status(const struct via_node *node, unsigned port,
                         struct via_link_status *ret_status);

struct via_route_status {
    uint16_t port;    /* VIA_PORT_NONE = unreachable; 0 for this host */
    uint16_t hops;    /* 0 = this host */
    uint32_t session; /* 0 = never seen */
};
int via_node_route_status(const struct via_node *node, uint16_t host,
                          struct via_route_status *ret_status);

/* [any] Do two hosts announce themselves with this id at present? Also true if a host sends false
 * announcements of this id. */
bool via_node_is_id_shared(const struct via_node *node, uint16_t host, uint64_t now_ns);

/*
 * [any] Stores the hosts whose routes or sessions have changed since version *seen (at first 0),
 * and sets *seen to the present version. Returns the number of entries; a host may occur twice.
 * -EOVERFLOW: too many, read the status of all hosts. Statuses read afterwards are at least as new
 * as *seen.
 */
#define VIA_ROUTE_CHANGES_MAX 256u
int via_node_route_changes(const struct via_node *node, uint32_t *seen,
                           uint16_t ret_hosts[VIA_ROUTE_CHANGES_MAX]);

/* Stores at most `max` ids of the neighbours that `host` announced last, ascending, for drawing the
 * fabric. Returns the number of neighbours, which may be more than `max`; -ENOENT. */
int via_node_neighbours(const struct via_node *node, uint16_t host, uint16_t *ret_hosts,
                        unsigned max);

struct via_node_counters {
    uint64_t frames_delivered, frames_duplicate, frames_gap, frames_resent;
    uint64_t frames_dropped_stuck, frames_dropped_hops, frames_dropped_session,
        frames_dropped_unroutable, frames_dropped_malformed;
    uint64_t frames_dropped_forged; /* their source is a neighbour, but they did not arrive over a
                                       link to it */
    uint64_t refused_key, refused_range, refused_endpoint;
    uint64_t ops_completed, ops_failed;
    /* Link states: announcements on all links, and the bytes of their records. Routes that were
     * published again, and the number of times that the neighbours of a host were read for this. */
    uint64_t announcements_sent, announcements_received, announcement_bytes_sent;
    uint64_t routes_changed, routes_examined;
};
/* Sum over channels. */
void via_node_counters(const struct via_node *node, struct via_node_counters *ret_counters);

#endif
