/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A lane connects one queue of this host with one queue of another host: a pair of inboxes
 * (ring.h), packets that wait for room, and counters. It belongs to one worker's thread; other
 * threads may read only the counters.
 *
 * meet.c agrees on sessions; this file sends and receives frames in them.
 */
#ifndef VIA_IP_LANE_H
#define VIA_IP_LANE_H

#include "base/list.h"
#include "ip/ring.h"
#include "viaduct/viaduct.h"

enum via_ip_lane_state {
    VIA_IP_LANE_DOWN,
    VIA_IP_LANE_MEETING, /* an inbox was offered or requested */
    VIA_IP_LANE_UP,
};

struct via_ip_counters {
    _Atomic uint64_t packets_sent;
    _Atomic uint64_t bytes_sent;
    _Atomic uint64_t packets_received;
    _Atomic uint64_t bytes_received;
    _Atomic uint64_t drops_sent[VIA_IP_DROPS_COUNT];
    _Atomic uint64_t drops_received[VIA_IP_DROPS_COUNT];
};

/* Only the worker writes a counter. */
static inline void via_ip_count(_Atomic uint64_t *counter, uint64_t more)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
                          memory_order_relaxed);
}

#define VIA_IP_BUFFER_BYTES ((VIA_IP_RECORD_BYTES_MAX + 63u) & ~63u)

/* A buffer for a packet of the device. It is in the pool, being sent, held for a lane, or lent to
 * the host. */
struct via_ip_buffer {
    struct via_list link;
    uint64_t since_ns; /* held: since when */
    uint64_t end;      /* lent: end position of its record */
    uint32_t number;   /* lent: of the put that reads it; see via_client_remote_ended() */
    size_t bytes;      /* of the record */
    uint8_t *record;   /* VIA_IP_BUFFER_BYTES in the lending segment */
};

/*
 * The buffers as a segment of this process: the host's daemon reads records that it sends as frames
 * directly from there, which saves a copy. A lent buffer must not change meanwhile.
 */
struct via_ip_lending {
    struct via_segment *segment; /* NULL: not available, and records are copied */
    uint8_t *base;
    struct via_list limbo; /* struct via_ip_limbo */
};

/* Buffers lent in a session that has ended; the host may still read them. */
struct via_ip_limbo {
    struct via_list link;
    struct via_remote *remote; /* closed when no put of it is pending */
    struct via_list lent;      /* struct via_ip_buffer */
};

struct via_ip_lane {
    struct via_list link; /* in the worker's list of lanes */
    struct via_attach *attach;
    struct via_ip_lending *lending; /* borrowed from the worker */
    uint16_t host;
    uint8_t queue;         /* the peer's */
    _Atomic uint8_t state; /* enum via_ip_lane_state; written by the worker */
    uint64_t session;      /* 0: none */
    uint64_t broken_session;
    uint64_t hello_ns;   /* time from which the next hello may be sent */
    uint64_t backoff_ns; /* interval to the following hello */
    uint64_t renewed_ns; /* when the last session began */
    uint64_t lost_ns;    /* since when no route leads to the host; 0: there is one */

    struct via_segment *segment;
    struct via_ip_inbox *inbox;
    struct via_ip_ring_reader reader;
    uint64_t credit_given;
    bool armed;
    bool wanted;

    struct via_remote *remote;
    struct via_ip_ring_writer writer;
    uint64_t published;

    struct via_list held; /* struct via_ip_buffer */
    unsigned held_count;
    struct via_list lent; /* struct via_ip_buffer, in the order of their records */

    _Atomic uint64_t sessions; /* number of sessions that came up */
    struct via_ip_counters counters;
};

static inline bool via_ip_lane_is_up(const struct via_ip_lane *lane)
{
    return atomic_load_explicit(&lane->state, memory_order_relaxed) == VIA_IP_LANE_UP;
}

/* Makes a new empty inbox for a new session, and discards packets of the old one. */
int via_ip_lane_new_inbox(struct via_ip_lane *lane, size_t ring_bytes) VIA_MUST_CHECK;
/* Opens the peer's inbox for this session; the lane is up. */
int via_ip_lane_open(struct via_ip_lane *lane, uint64_t handle, uint64_t ring_bytes) VIA_MUST_CHECK;
/* Closes the inboxes; the lane is down. Held packets stay. */
void via_ip_lane_close(struct via_ip_lane *lane);

/*
 * send writes a buffer's record (6 bytes of header, whose length it fills in, and a frame) into the
 * peer's inbox; publish announces all written records to the peer. Neither blocks. The lane is up.
 * 1: written, and the buffer is lent, in lane->lent; 0: written, and the caller owns the buffer.
 * -EAGAIN: no room now. Other errors: the session is broken. is_lending_allowed: the buffer may be
 * lent. announce: the caller publishes next, so send may publish already.
 */
int via_ip_lane_send(struct via_ip_lane *lane, struct via_ip_buffer *buffer,
                     bool is_lending_allowed, bool announce) VIA_MUST_CHECK;
int via_ip_lane_publish(struct via_ip_lane *lane) VIA_MUST_CHECK;

/* Returns a lent buffer that the host has read, and whose record the peer has taken; NULL: none.
 * The credit of a hostile peer alone is not enough: the host could send the next packet in that
 * buffer to the peer.
 */
struct via_ip_buffer *via_ip_lane_take_back(struct via_ip_lane *lane);

/*
 * next returns the next frame in the inbox: 1, 0 = none, -EPROTO: the session is broken. After use
 * of the frame the caller calls advance(end). give_credit sends the position to the peer; it may
 * delay this if there is no room.
 */
int via_ip_lane_next(struct via_ip_lane *lane, const uint8_t **ret_frame, size_t *ret_bytes,
                     uint64_t *ret_end) VIA_MUST_CHECK;
void via_ip_lane_advance(struct via_ip_lane *lane, uint64_t end);
int via_ip_lane_give_credit(struct via_ip_lane *lane) VIA_MUST_CHECK;

/*
 * arm: called before sleeping; the peer then rings for records and credit that arrive after the
 * last poll. has_news: the caller executes a sequentially consistent fence between arm and
 * has_news.
 */
void via_ip_lane_arm(struct via_ip_lane *lane);
void via_ip_lane_disarm(struct via_ip_lane *lane);
bool via_ip_lane_has_news(const struct via_ip_lane *lane);

#endif
