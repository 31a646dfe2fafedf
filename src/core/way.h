/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CORE_WAY_H
#define VIA_CORE_WAY_H

#include "base/list.h"
#include "base/mutant.h"
#include "core/arm.h"
#include "core/layout.h"

/*
 * Layer 2: a channel's way through one port. Room in its out pipe, frames that leave, bells, and
 * bodies by the port's DMA engine.
 *
 * Bubble rule: a frame that starts at this host (data, acknowledgement) may leave only if one
 * buffer remains free, in the out pipe or among the bypass buffers of that way, and no bypass
 * buffer is in use. A relayed frame needs only its own buffer, unless it turns from one dimension
 * of a torus into the next: in the ring that it enters it counts as a new frame. So on every ring
 * of relays at least one buffer is free at any time, and the frames in the ring can always move on
 * (docs/adr/0002-bubble-with-bypass.md). Age breaks other cycles: a frame that has waited stuck_ns
 * is dropped, and its source sends it again.
 */

/* The buffer of a body that the DMA engine reads. */
struct via_dma_stage {
    struct via_list link;          /* via_dma.free or via_dma.running */
    struct via_dma_record *record; /* NULL: the link has gone down since */
    uint64_t cookie;               /* 0 = no DMA is under way */
    uint64_t since_ns;
    unsigned char *data; /* frame_bytes_max bytes */
};

/* A record that has its slot and place in the pipe, and is not published yet. */
struct via_dma_record {
    struct via_frame_header header;
    uint64_t off; /* of the body in the window */
    uint32_t body_bytes;
    bool waits; /* for its DMA */
};

struct via_dma {
    struct via_channel *channel;
    _Atomic uint32_t bytes_min; /* [control] sets it while the link is down */
    unsigned running_count;
    struct via_dma_stage *stages; /* config.dma_buffers */
    struct via_list free;
    struct via_list running;        /* the oldest first */
    struct via_dma_record *records; /* pipe_slots; by sequence number */
    uint64_t serial;                /* of the last DMA */
    bool lost;                      /* the link was down while a DMA was under way */
    bool aborting;
    uint64_t abort_ns;  /* time of the call of dma_abort() */
    uint64_t resume_ns; /* after a hang: PIO copies bodies until then */
};

struct via_way {
    struct via_link *link;   /* link.h */
    struct via_port *port;   /* set while up */
    uint8_t queue;           /* of the port, and its doorbell bit: the channel's number */
    struct via_list watched; /* via_channel.watched */
    uint8_t dimension;       /* of a torus */
    bool up;
    bool blocked;          /* the frame at the head of rx waits for room elsewhere */
    bool room_requested;   /* a frame of another in-pipe waits for room here */
    bool turn_requested;   /* the same for a frame that turns: via_way_is_turn_allowed() */
    bool sent;             /* records since the last via_pipe_take_reader_ring() */
    bool released;         /* records since the last via_pipe_take_writer_ring() */
    uint16_t bells;        /* doorbells to ring besides the channel's own, with `sent` */
    uint32_t unrung_bytes; /* bodies since the last via_pipe_take_reader_ring() */
    uint32_t seen;
    _Atomic uint32_t seen_generation; /* `seen`, for the control thread */
    enum via_arm_phase arm;
    uint64_t blocked_since_ns;
    struct via_pipe_writer tx;
    struct via_pipe_reader rx;
    uint32_t *data_ends;
    size_t dma_from;     /* while up: bodies from this size on go to via_dma_send(). SIZE_MAX: none.
                            0: all records, because earlier records wait for their DMA */
    struct via_dma *dma; /* NULL: this port is never given DMA */
    struct via_list bypass; /* relay.h: frames that wait here, oldest first */
    unsigned bypass_used;   /* of config.bypass_count */
    struct via_list flows;  /* flow.h: flows with frames to send through this port */
    struct via_list acks;   /* flow.h: flows with an acknowledgement to send through this port */
    _Atomic uint64_t frames_sent, frames_received, bytes_sent, bytes_received;
    _Atomic uint64_t frames_relayed, frames_bypassed;
    _Atomic uint64_t dma_frames, dma_bytes, dma_busy, dma_fallbacks, dma_hangs;
};

/* --- way.c ----------------------------------------------------------------------------------- */

/* The way towards a host, or NULL if the host is unreachable now. */
struct via_way *via_way_to(struct via_channel *channel, uint16_t host);
/* True if at least `least` slots are free. Uses the credits already loaded first: loading fresh
 * ones costs a cache miss. */
static inline bool via_way_has_slots(struct via_way *way, uint32_t least)
{
    struct via_pipe_writer *tx = &way->tx;
    uint32_t known = tx->geometry.slots_count - via_pipe_writer_outstanding(tx);
    return (known >= least && !tx->broken) || via_pipe_writer_room(tx) >= least;
}

static inline bool via_way_has_room(struct via_way *way)
{
    return via_way_has_slots(way, 1);
}

static inline uint32_t via_way_bypass_free(const struct via_channel *channel,
                                           const struct via_way *way)
{
    return channel->node->config.bypass_count - way->bypass_used;
}

/* May a frame that starts at this host leave through this port? Not while a relayed frame waits for
 * it: rings that are full of frames carry little. */
static inline bool via_way_is_inject_allowed(struct via_way *way)
{
    bool none_waits = VIA_MUTANT(NO_BUBBLE) || way->bypass_used == 0;
    return none_waits && via_way_has_slots(way, 1);
}

/* May a frame that turns from one dimension of a torus into another leave through this port, or
 * wait for it? */
static inline bool via_way_is_turn_allowed(const struct via_channel *channel, struct via_way *way)
{
    uint32_t bypass = via_way_bypass_free(channel, way);
    return VIA_MUTANT(NO_TURN_BUBBLE) || bypass >= 2 || via_way_has_slots(way, 2 - bypass);
}

/* Rings the peer if it sleeps and waits for the records sent, or the credits returned, since the
 * last call. */
void via_way_ring(struct via_way *way);

/* After this number of bytes of bodies a thread rings the doorbell of the next hop at once, not at
 * the end of the turn, so that the next hop copies these bodies while this host copies the
 * following ones. With a smaller number the wake-up of the next hop would take longer than its
 * copy. */
#define RING_EARLY_BYTES (128u << 10)

/* After the line of a record was posted: counts it, and rings if that must not wait. */
static inline void via_way_sent(struct via_way *way, unsigned kind, size_t body_bytes)
{
    way->sent = true;
    if (kind == VIA_FRAME_BARRIER_ARRIVE) {
        way->bells |= 1u << VIA_PORT_DOORBELL_BARRIER_START;
    } else if (kind == VIA_FRAME_BARRIER_RELEASE) {
        way->bells |= 1u << VIA_PORT_DOORBELL_BARRIER_END;
    }
    via_count(&way->frames_sent, 1);
    via_count(&way->bytes_sent, body_bytes);
    way->unrung_bytes += (uint32_t)body_bytes;
    if (way->unrung_bytes >= RING_EARLY_BYTES && via_pipe_reader_is_asleep(&way->tx)) {
        via_way_ring(way);
    }
}

/* --- dma.c ----------------------------------------------------------------------------------- */

void via_dma_init(struct via_channel *channel, struct via_way *way);
/* The link has come up; the link has gone down. */
void via_dma_take_up(struct via_way *way);
void via_dma_release(struct via_way *way);
/* Does an engine still copy for the link before it went down? Then its pipes must not restart. */
static inline bool via_dma_is_busy(const struct via_way *way)
{
    return way->dma != NULL && way->dma->running_count != 0;
}
/* As via_way_send(), which calls it for the records that dma_from selects. */
void via_dma_send(struct via_way *way, const struct via_frame_header *header, const void *body,
                  size_t body_bytes);
/* While via_dma_is_busy(): takes ended DMA and publishes its records. False: the link was down
 * meanwhile, or its engine can not be stopped; the caller takes the link down. */
bool via_dma_poll(struct via_way *way);
/* While via_dma_is_busy(): the latest time of the next via_dma_poll(). */
uint64_t via_dma_deadline_ns(const struct via_way *way);

/* --- send.c ---------------------------------------------------------------------------------- */

/* Sends a frame; via_way_has_room() was true. */
void via_way_send(struct via_way *way, const struct via_frame_header *header, const void *body,
                  size_t body_bytes);

#endif
