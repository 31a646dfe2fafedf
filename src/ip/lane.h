/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A lane: what one queue of this host has with one queue of another. A pair of inboxes (ring.h),
 * packets that wait for room, and counters. Of one worker's thread, but for the counters, which
 * others may read.
 *
 * meet.c agrees on sessions; here frames go through them.
 */
#ifndef VIA_IP_LANE_H
#define VIA_IP_LANE_H

#include "base/list.h"
#include "ip/ring.h"
#include "viaduct/viaduct.h"

enum via_ip_lane_state {
    VIA_IP_LANE_DOWN,
    VIA_IP_LANE_MEETING, /* an inbox is offered, or one was asked for */
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

/* One writer: its worker. */
static inline void via_ip_count(_Atomic uint64_t *counter, uint64_t more)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
                          memory_order_relaxed);
}

#define VIA_IP_BUFFER_BYTES ((VIA_IP_RECORD_BYTES_MAX + 63u) & ~63u)

/* A packet read from the device; in a pool, being sent, held for a lane, or lent to the host. */
struct via_ip_buffer {
    struct via_list link;
    uint64_t since_ns; /* held */
    uint64_t end;      /* lent: the position behind its record */
    uint32_t number;   /* lent: of the put that reads it; see via_client_remote_ended() */
    size_t bytes;      /* of the record */
    uint8_t *record;   /* VIA_IP_BUFFER_BYTES in the memory that is lent */
};

/*
 * The buffers as a segment of this process: a host takes records that go as frames from there, so
 * they are copied once less. A lent buffer must not change meanwhile.
 */
struct via_ip_lending {
    struct via_segment *segment; /* NULL: none could be made, and records are copied */
    uint8_t *base;
    struct via_list limbo; /* struct via_ip_limbo */
};

/* Buffers that were lent in a session that has ended: the host may still read them. */
struct via_ip_limbo {
    struct via_list link;
    struct via_remote *remote; /* closed when nothing of it is pending */
    struct via_list lent;      /* struct via_ip_buffer */
};

struct via_ip_lane {
    struct via_list link; /* of all lanes of a worker */
    struct via_attach *attach;
    struct via_ip_lending *lending; /* the worker's */
    uint16_t host;
    uint8_t queue;         /* the peer's */
    _Atomic uint8_t state; /* enum via_ip_lane_state; written by the worker */
    uint64_t session;      /* 0: none */
    uint64_t broken_session;
    uint64_t hello_ns;   /* when the next hello may be sent */
    uint64_t backoff_ns; /* until the one after it */
    uint64_t renewed_ns; /* when the last session began */
    uint64_t lost_ns;    /* since when packets find no way to the host; 0: there is one */

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
    struct via_list lent; /* the same, in the order of their records */

    _Atomic uint64_t sessions; /* that came up */
    struct via_ip_counters counters;
};

static inline bool via_ip_lane_is_up(const struct via_ip_lane *lane)
{
    return atomic_load_explicit(&lane->state, memory_order_relaxed) == VIA_IP_LANE_UP;
}

/* An empty inbox of its own for a new session; packets of the old one are discarded. */
int via_ip_lane_new_inbox(struct via_ip_lane *lane, size_t ring_bytes) VIA_MUST_CHECK;
/* The peer's inbox for this session: up. */
int via_ip_lane_open(struct via_ip_lane *lane, uint64_t handle, uint64_t ring_bytes) VIA_MUST_CHECK;
/* Without inboxes, and down. The held packets stay. */
void via_ip_lane_close(struct via_ip_lane *lane);

/*
 * Writes a buffer's record (6 bytes of header, whose length it fills in, and a frame) into the
 * peer's inbox; publish tells the peer of all of them. Neither blocks. 1: done, and the buffer is
 * lent, in lane->lent; 0: done, the buffer is the caller's. -EAGAIN: no room now. Other errors: the
 * session is broken. The lane is up. is_lending_allowed: the caller can do without the buffer for a
 * while. announce: the caller publishes next, so this may do it already.
 */
int via_ip_lane_send(struct via_ip_lane *lane, struct via_ip_buffer *buffer,
                     bool is_lending_allowed, bool announce) VIA_MUST_CHECK;
int via_ip_lane_publish(struct via_ip_lane *lane) VIA_MUST_CHECK;

/* A lent buffer that the host has read, and whose record the peer has taken; NULL: there is none.
 * The peer's word alone is not enough: it might get the next packet that is read into the buffer.
 */
struct via_ip_buffer *via_ip_lane_take_back(struct via_ip_lane *lane);

/*
 * The next frame in the inbox: 1, 0 = none, -EPROTO: the session is broken. After it has been used,
 * via_ip_lane_advance(end). give_credit tells the peer what was taken; it may do so later, when the
 * way is full.
 */
int via_ip_lane_next(struct via_ip_lane *lane, const uint8_t **ret_frame, size_t *ret_bytes,
                     uint64_t *ret_end) VIA_MUST_CHECK;
void via_ip_lane_advance(struct via_ip_lane *lane, uint64_t end);
int via_ip_lane_give_credit(struct via_ip_lane *lane) VIA_MUST_CHECK;

/*
 * Before sleeping: the peer rings for what comes after a poll that found nothing. has_news: call it
 * behind a sequentially consistent fence.
 */
void via_ip_lane_arm(struct via_ip_lane *lane);
void via_ip_lane_disarm(struct via_ip_lane *lane);
bool via_ip_lane_has_news(const struct via_ip_lane *lane);

#endif
