/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CORE_LINK_H
#define VIA_CORE_LINK_H

#include "core/way.h"
#include "wire/link_state.h"

/* Layer 6, beside relay.h: links go up and down, and link states become routes. Control thread. */

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
     * pipes, takes the epochs when it is odd, and answers in via_way.seen_generation. The epochs
     * are written only while all channels have answered an even value.
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

/* version is a sequence lock for via_node_neighbours(): odd while the control thread writes. */
struct via_lsa {
    _Atomic uint32_t version;
    _Atomic uint32_t session; /* 0 = never seen */
    uint64_t sequence;
    uint64_t forget_ns; /* when a high sequence number is forgotten, or was */
    uint64_t forgotten; /* that number; 0 = none */
    _Atomic uint8_t neighbours_count;
    _Atomic uint16_t neighbours[VIA_LINK_STATE_NEIGHBOURS_MAX];
    uint32_t neighbour_sessions[VIA_LINK_STATE_NEIGHBOURS_MAX];
};

struct via_lsdb {
    struct via_lsa *lsas; /* by host */
    bool own_dirty;       /* my neighbours have changed */
    bool routes_dirty;
    uint64_t forget_ns; /* not later than the earliest via_lsa.forget_ns; VIA_NEVER_NS */
    /* My announcement, as it meets those of my earlier lives and false ones. */
    uint64_t own_sequence_ns; /* when it last had to outnumber another */
    bool own_outnumbered;
    uint64_t own_low;     /* the last number of mine that was not high */
    uint64_t own_high;    /* the greatest number of mine that was high */
    uint64_t own_high_ns; /* when to go back to low numbers; VIA_NEVER_NS */
    uint16_t *queue;      /* scratch of the route computation */
    uint32_t *route_scratch;
};

/* --- lsdb.c ---------------------------------------------------------------------------------- */

void via_lsdb_init(struct via_node *node);
void via_lsdb_link_up(struct via_node *node, struct via_link *link);
/* Takes announcements from a link's control pipe. -EPROTO when the peer broke the rules. */
int via_lsdb_receive(struct via_node *node, struct via_link *link, uint64_t now_ns);
/* After all links were looked at: own announcement, routes. Lowers *ret_deadline_ns. */
void via_lsdb_update(struct via_node *node, uint64_t now_ns, uint64_t *ret_deadline_ns);
void via_lsdb_send(struct via_node *node, struct via_link *link);

/* --- link.c ---------------------------------------------------------------------------------- */

/* One link's share of via_node_control; lowers *ret_deadline_ns. */
void via_link_control(struct via_node *node, struct via_link *link, uint64_t now_ns,
                      uint64_t *ret_deadline_ns);
/* The same after link states were updated: sends them, arms. */
void via_link_finish(struct via_node *node, struct via_link *link, uint64_t now_ns,
                     uint64_t *ret_deadline_ns);
void via_link_close(struct via_node *node, struct via_link *link);

#endif
