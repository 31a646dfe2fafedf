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
    VIA_PHASE_QUIESCE,   /* until all channels have let go of the pipes */
    VIA_PHASE_HANDSHAKE, /* my epoch is published */
    VIA_PHASE_GREETING,  /* the control pipe runs; the hosts tell each other what they are */
    VIA_PHASE_REFUSED,   /* and cannot work together */
    VIA_PHASE_UP,
    VIA_PHASE_LEAVING, /* the port is taken away: until all channels have let go of the pipes */
    VIA_PHASE_LEFT,    /* until no channel knows the port any more */
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
     * Odd: up. Every change is announced here: a channel that sees a new value lets go of its
     * pipes, takes the epochs when it is odd, and answers in via_way.seen_generation. The epochs
     * are written only while all channels have answered an even value.
     */
    _Atomic uint32_t generation;
    _Atomic bool present; /* there is a physical link: the peer may ring. Channels watch it */
    uint16_t rx_epoch;    /* of records into my inbox; my choice */
    uint16_t tx_epoch;    /* of records into the peer's inbox; the peer's choice */
    struct via_pipe_geometry geometry; /* of channel pipes: as the epochs */
    _Atomic bool broken;               /* set by a channel: the peer posted nonsense */
    _Atomic bool lost; /* set by a channel: it was down, or its engine can not be stopped */

    /* For via_node_arm(0), which must not touch the control thread's reader. */
    _Atomic uint64_t control_word; /* the record word that comes next, length 0; 0 = down */

    /* Control thread only. */
    enum via_link_phase phase;
    uint32_t left_version; /* LEFT: via_node.links_version since when there is no port */
    uint32_t peer_seen_session;
    uint16_t echo; /* peer epoch echoed, 0 = none */
    uint8_t published_state;
    uint64_t next_poll_ns;
    uint64_t next_beat_ns;
    uint64_t heard_ns;
    uint64_t heartbeat_sent;
    uint64_t heartbeat_seen;
    uint64_t heartbeat_checked;      /* as seen at this host's last heartbeat */
    _Atomic uint64_t heartbeats;     /* of the peer since the link is up, as the last one says */
    _Atomic uint64_t silence_max_ns; /* longest time without a sign of life meanwhile */
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

/* Begins when the control pipe does: sends HELLO. 0, or what env.random says. */
int via_greet_start(struct via_node *node, struct via_link *link, uint64_t now_ns);
/*
 * Takes what the peer said. 1: the greeting is complete, via_link.geometry holds and my inbox is
 * clear for it. 0: not yet. -EPROTO: the peer broke the rules. -ETIMEDOUT: it sends nothing.
 * -ECONNREFUSED: refused, *ret_state says why (BAD_*), and via_link_status has the numbers.
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

/* Empties it for the epochs of via_link. My inbox is clear of them. */
void via_control_pipe_open(struct via_link *link);
/* After one or more sends: on their way, and the doorbell wakes the peer if it sleeps. */
void via_control_pipe_sent(struct via_link *link);
/* After records were taken: transfer thread 0 then wakes the control thread for later ones, and the
 * doorbell wakes a peer that waits for room. */
void via_control_pipe_taken(struct via_link *link);
/* No record of it counts any more. */
void via_control_pipe_close(struct via_link *link);
/* Clears words of my inbox for a new epoch: the credit word, the want word and the slots of a pipe.
 * The geometry is that of the channel pipes. */
void via_inbox_clear(struct via_port *port, const struct via_pipe_geometry *geometry,
                     unsigned pipe);

/* --- link.c ---------------------------------------------------------------------------------- */

/* One link's share of via_node_control; lowers *ret_deadline_ns. */
void via_link_control(struct via_node *node, struct via_link *link, uint64_t now_ns,
                      uint64_t *ret_deadline_ns);
/* The same after link states were updated: sends them, arms. */
void via_link_finish(struct via_node *node, struct via_link *link, uint64_t now_ns,
                     uint64_t *ret_deadline_ns);
void via_link_close(struct via_node *node, struct via_link *link);
/* A step of via_node_port_clear(): 0 or -EAGAIN. There is a port. */
int via_link_leave(struct via_node *node, struct via_link *link);
static inline bool via_link_is_leaving(const struct via_link *link)
{
    return link->phase == VIA_PHASE_LEAVING || link->phase == VIA_PHASE_LEFT;
}

#endif
