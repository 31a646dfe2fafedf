/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CORE_LINK_H
#define VIA_CORE_LINK_H

#include "core/lsdb.h"
#include "core/way.h"
#include "wire/greeting.h"

/* Layer 6, beside relay.h: links go up and down, and link states become routes. Control thread. */

enum via_link_phase {
    VIA_PHASE_NO_PORT = 0,
    VIA_PHASE_DOWN,      /* no physical link */
    VIA_PHASE_QUIESCE,   /* until all channels have released the pipes */
    VIA_PHASE_HANDSHAKE, /* this host's epoch is published */
    VIA_PHASE_GREETING,  /* the control pipe runs; the hosts exchange HELLO and READY */
    VIA_PHASE_REFUSED,   /* the HELLOs do not fit together */
    VIA_PHASE_UP,
    VIA_PHASE_LEAVING, /* the port is being removed: until all channels have released the pipes */
    VIA_PHASE_LEFT,    /* until no channel uses the port any more */
};

/* The greeting of a link's hosts so far (greet.c). */
struct via_greet {
    struct via_hello mine;
    struct via_hello peer;
    bool peer_known; /* its HELLO was taken and accepted: READY was sent */
    uint64_t until_ns;
};

struct via_link {
    struct via_port *_Atomic port;
    unsigned index;
    uint8_t dimension; /* of a torus */

    /*
     * Odd: up. Every change increments it: a channel that loads a new value releases its pipes,
     * loads the epochs if the value is odd, and stores the value to via_way.seen_generation. The
     * control thread writes the epochs only after all channels have stored an even value.
     */
    _Atomic uint32_t generation;
    _Atomic bool present; /* the physical link is up: the peer may ring. Channels load it */
    uint16_t rx_epoch;    /* of records into this host's inbox; this host chooses it */
    uint16_t tx_epoch;    /* of records into the peer's inbox; the peer chooses it */
    struct via_pipe_geometry geometry; /* of channel pipes; written when the epochs are */
    _Atomic bool broken;               /* a channel sets it: the peer posted invalid words */
    _Atomic bool lost; /* a channel sets it: the link was down, or its engine can not be stopped */

    /* For via_node_arm(0), which must not use the control thread's reader. */
    _Atomic uint64_t control_word; /* the expected next record word, length 0; 0 = down */

    /* Control thread only. */
    enum via_link_phase phase;
    uint32_t left_version; /* LEFT: via_node.links_version when the port was removed */
    uint32_t peer_seen_session;
    uint16_t echo; /* peer epoch echoed, 0 = none */
    uint8_t published_state;
    uint64_t next_poll_ns;
    uint64_t next_beat_ns;
    uint64_t last_received_ns;
    uint64_t heartbeat_sent;
    uint64_t heartbeat_seen;
    uint64_t heartbeat_checked;      /* heartbeat_seen at this host's last heartbeat */
    _Atomic uint64_t heartbeats;     /* of the peer since the link came up, by the last one */
    _Atomic uint64_t silence_max_ns; /* longest time without a sign of life since then */
    uint64_t activity_seen;
    struct via_pipe_writer control_tx;
    struct via_pipe_reader control_rx;
    enum via_arm_phase control_arm;
    uint32_t control_data_ends[VIA_CONTROL_PIPE_SLOTS];
    struct via_greet greet;
    struct via_lsdb_link lsdb;

    /* For via_node_link_status. */
    _Atomic uint8_t state;
    _Atomic uint16_t peer;
    _Atomic uint32_t peer_session;
    _Atomic uint32_t peer_version;
    _Atomic uint32_t peer_link;
    _Atomic uint32_t pipe_slots; /* 0: not up */
    _Atomic uint8_t refusal_cause;
    _Atomic uint64_t refusal_mine, refusal_peers;
    _Atomic int down_why;
    _Atomic uint32_t ups_count;
    _Atomic uint32_t downs_count;
    _Atomic uint64_t errors;
};

/* --- greet.c: HELLO and READY negotiate the geometry, or refuse the peer (wire/greeting.h) ---- */

/* Sends HELLO; called when the control pipe is open. 0, or the error of env.random. */
int via_greet_start(struct via_node *node, struct via_link *link, uint64_t now_ns);
/*
 * Takes messages of the peer. 1: the greeting is complete, via_link.geometry is valid and this
 * host's inbox is cleared for it. 0: not yet. -EPROTO: the peer violated the protocol. -ETIMEDOUT:
 * the peer sends nothing. -ECONNREFUSED: refused, with the reason in *ret_state (BAD_*) and the
 * numbers in via_link_status.
 */
int via_greet_poll(struct via_node *node, struct via_link *link, uint64_t now_ns,
                   enum via_link_state *ret_state);
/* For via_node_link_status(). */
void via_greet_show_refusal(struct via_link *link, const struct via_link_refusal *refusal);
/*
 * The result of two HELLOs. VIA_LINK_HANDSHAKE and the geometry of the channel
 * pipes, or a BAD_* state and the refusal. Pure; public for tests.
 */
enum via_link_state via_greet_compare(const struct via_hello *mine, const struct via_hello *peer,
                                      struct via_pipe_geometry *ret_geometry,
                                      struct via_link_refusal *ret_refusal);

/* --- control_pipe.c: greetings, then announcements ------------------------------------------- */

/* Opens the control pipe, empty, in the epochs of via_link. This host's inbox contains no word of
 * these epochs. */
void via_control_pipe_open(struct via_link *link);
/* After one or more sends: flushes them, and rings the peer if it sleeps. */
void via_control_pipe_sent(struct via_link *link);
/* After records were taken: transfer thread 0 wakes the control thread for later records from now
 * on. Rings a peer that waits for room. */
void via_control_pipe_taken(struct via_link *link);
/* Ends the control pipe: later records are ignored. */
void via_control_pipe_close(struct via_link *link);
/* Clears words of this host's inbox for a new epoch: the credit word, the want word and the slots
 * of a pipe. geometry: of the channel pipes. */
void via_inbox_clear(struct via_port *port, const struct via_pipe_geometry *geometry,
                     unsigned pipe);

/* --- link.c ---------------------------------------------------------------------------------- */

/* One link's share of via_node_control; lowers *ret_deadline_ns. */
void via_link_control(struct via_node *node, struct via_link *link, uint64_t now_ns,
                      uint64_t *ret_deadline_ns);
/* The same after link states were updated: sends them, and arms the control pipe. */
void via_link_finish(struct via_node *node, struct via_link *link, uint64_t now_ns,
                     uint64_t *ret_deadline_ns);
void via_link_close(struct via_node *node, struct via_link *link);
/* A step of via_node_port_clear() for a link with a port: 0 or -EAGAIN. */
int via_link_leave(struct via_node *node, struct via_link *link);
static inline bool via_link_is_leaving(const struct via_link *link)
{
    return link->phase == VIA_PHASE_LEAVING || link->phase == VIA_PHASE_LEFT;
}

#endif
