/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_SIDE_H
#define VIA_SOCKETS_SIDE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "sockets/meet/stream_offer.h"
#include "sockets/process/token.h"
#include "sockets/stream/phase.h"
#include "sockets/stream/stream.h"
#include "sockets/stream/stream_replay.h"
#include "sockets/stream/stream_stall.h"

/*
 * The part of one end of a connection that all processes which hold it (by fork) share. It lies in
 * shared memory of their own, at the same address in each; the peer can not reach it.
 */

/* The limit for a negative SO_RCVTIMEO or SO_SNDTIMEO, as in Linux: no call waits. */
#define VIA_AT_ONCE_NS 1u

/* Whether the last process that held the other end has ended while bytes were unread (TCP would
 * have reset the connection), or sent bytes could not be delivered. */
enum via_lost {
    VIA_LOST_NOT = 0,
    VIA_LOST_DUE = 1,      /* to be reported to the reader, after everything before has been read */
    VIA_LOST_REFUSED = 2,  /* reported to a writer; the kernel's connection is still to be reset */
    VIA_LOST_REPORTED = 3, /* reported, or the kernel reports it */
    VIA_LOST_TIMED_OUT = 4, /* sent bytes could not be delivered: the next call returns ETIMEDOUT */
    VIA_LOST_TIMED_OUT_REPORTED = 5,
};

/* How much of the pipe's contents an end has resent through the kernel when it left. */
enum via_sent_again { VIA_AGAIN_NOTHING = 0, VIA_AGAIN_WHOLE = 1, VIA_AGAIN_PART = 2 };

enum via_nonblock { VIA_NONBLOCK_UNKNOWN = 0, VIA_NONBLOCK_OFF = 1, VIA_NONBLOCK_ON = 2 };

struct via_side {
    /* reading */
    struct via_token rx_token;
    _Atomic uint32_t shadow; /* POLLRDHUP, POLLHUP, POLLERR that the kernel has reported */
    struct via_phase_word phase;
    _Atomic uint8_t nonblock; /* enum via_nonblock: O_NONBLOCK, once it is known */
    _Atomic uint8_t forked; /* other processes may hold the side: tokens need atomic instructions */
    _Atomic uint8_t rx_shut; /* shutdown(SHUT_RD) here: POLLRDHUP does not come from the peer */
    _Atomic uint8_t tx_shut; /* shutdown(SHUT_WR) here: the end of the other direction is POLLHUP */
    _Atomic uint8_t shutting; /* the kernel's shutdown() must be called later: io_shut.c */
    _Atomic uint8_t lost;     /* enum via_lost */
    uint8_t why;              /* enum via_reason */
    bool connector;
    _Atomic bool ever_forked;
    _Atomic bool options_known; /* socket options set earlier are known: via_conn_learn_options() */
    bool rx_kernel_ended;  /* the kernel reported end of file, but the peer may have switched to the
                              pipe: see fabric.h */
    _Atomic uint32_t refs; /* file descriptors, in all processes */
    /* SO_TIMESTAMP and the like: recvmsg() must return the time when the bytes arrived. */
    _Atomic bool stamps;
    _Atomic uint64_t rcvtimeo_ns; /* 0: none; VIA_AT_ONCE_NS */
    uint64_t rx_polled_ticks;     /* when the kernel was last polled for the peer's end */
    _Atomic uint32_t rx_taken;    /* between hosts: rx.pipe.sequence, for other threads */
    _Atomic bool rx_credit_due;   /* between hosts: the path had no room for the last credit */
    struct via_stream_rx rx;
    struct via_stream_rx rx_left; /* the reader's state when this end left the pipe: see demote.c */

    /* writing */
    struct via_token tx_token __attribute__((aligned(64)));
    _Atomic uint64_t sndtimeo_ns;
    _Atomic uint32_t tx_full; /* how often a writer found no room */
    _Atomic uint32_t shuts;   /* how often a process that holds this side called shutdown() */
    uint64_t tx_polled_ticks; /* when the kernel was last polled for the peer's end */
    uint64_t tx_holder_ticks; /* last query of the kernel whether a process holds the peer's
                                socket */
    /* tx.pipe_bytes when the kernel reported the end */
    _Atomic uint64_t tx_at_end;
    bool tx_fin_seen; /* the peer has shut down its direction, and announced it in the pipe */
    bool tx_peer_over;
    _Atomic uint64_t sent_flags; /* the flags word last sent to the peer */
    _Atomic uint32_t cold_rung;  /* the peer's cold word for which this end rang last */
    uint32_t cold_published;     /* the cold word that this end published last */
    uint64_t cpu_published;      /* the CPU that this end's reader published last */
    struct via_stream_replay replay;
    uint8_t sent_again; /* enum via_sent_again */
    bool leave_failed;  /* this end could not leave the pipes */
    uint64_t again;     /* number of bytes resent, which this end's DEMOTE announces */
    /* Between hosts, a bit per slot: the record was sent as frames, so its bytes are in the
     * mirror. */
    uint64_t tx_mirrored[VIA_RING_SLOTS_MAX / 64];
    struct via_stream_tx tx;

    struct via_stream_stall stall; /* with both tokens; .spills with the tx token */
    uint16_t chunk;                /* index of the chunk in side.c */
    /* VIA_RING_SLOTS_MAX positions, on a page of their own, which is removed while the pipe is
     * empty (quiet.h). */
    uint32_t *data_ends;
};

/* Called in parent and child: sides made later are in memory that the other process does not
 * share. */
void via_side_forked(bool child);
struct via_side *via_side_new(void);       /* zeroed except for the defaults above; NULL: none */
void via_side_free(struct via_side *side); /* this process stops using the side */
/* With the tx token, while the pipe is empty: frees the memory of data_ends. */
void via_side_remove_pages(struct via_side *side);

/*
 * The memory of one end, into which its peer writes: the words, then the pipe that the end reads.
 */
#define VIA_SEGMENT_CREDIT_OFF 0u  /* the credit word of the pipe that this end writes */
#define VIA_SEGMENT_FLAGS_OFF 8u   /* flags of the peer, see below */
#define VIA_SEGMENT_AVAIL_OFF 16u  /* struct via_avail_words, within one machine */
#define VIA_SEGMENT_COLD_OFF 40u   /* the peer requests a ring for the next record: epoll_cold.c */
#define VIA_SEGMENT_CPU_OFF 48u    /* where the peer last read: number of its CPU, plus 1 */
#define VIA_SEGMENT_TIMES_OFF 56u  /* the peer requests time stamps in records: epoll_order.c */
#define VIA_SEGMENT_READ_OFF 64u   /* written by the owner: bytes that it has read */
#define VIA_SEGMENT_SENT_OFF 72u   /* by the owner: records up to the last one sent as frames */
#define VIA_SEGMENT_PROMPT_OFF 80u /* by the peer: via_side_is_peer_prompt() */
#define VIA_SEGMENT_HELLO_OFF 128u /* between hosts: struct via_fabric_hello */
#define VIA_SEGMENT_PIPE_OFF 192u

/* Flags of the peer. */
#define VIA_FLAG_TAKEN 0x1u  /* the connector has taken the offer */
#define VIA_FLAG_CLOSED 0x2u /* the peer's last holder has closed */
/* The peer has left the pipes (demote.h), at the position via_flags_left() of the same word. */
#define VIA_FLAG_DEMOTE 0x4u
/* The answer to DEMOTE: the peer has resent, or will resend, everything after that position. */
#define VIA_FLAG_FOLLOWS 0x8u
/* The peer can not follow: it has ended its direction, with bytes in the pipe. */
#define VIA_FLAG_STAYS 0x10u
/* The peer's direction does not switch to the pipe any more: it ends with the kernel's FIN. */
#define VIA_FLAG_KERNEL_END 0x20u
/* Processes that the peer process has forked may write and read, too: shared.h. */
#define VIA_FLAG_SHARED 0x40u
/* The peer's direction has ended, and the kernel's FIN may come before all bytes are read. */
#define VIA_FLAG_FIN 0x80u
/* Within one machine: the peer's program has ended its direction, by shutdown() or close(). */
#define VIA_FLAG_ENDS 0x100u
/* The peer is about to leave, and to resend everything for which it has got no credit. */
#define VIA_FLAG_LEAVING 0x200u
/* The answer to LEAVING: all credit is returned, the peer may resend the rest. */
#define VIA_FLAG_READY 0x400u

/* The position at which the peer has left: the number of records for which it returned credit, and
 * of bytes that it has read of the next record. */
static inline uint64_t via_flags_left(uint32_t released, uint32_t skip)
{
    return (uint64_t)released << 16 | (uint64_t)skip << 48;
}
#define VIA_FLAGS_LEFT_MASK (~UINT64_C(0) << 16)
#define VIA_FLAGS_LEFT_RELEASED(flags) ((uint32_t)((flags) >> 16))
#define VIA_FLAGS_LEFT_SKIP(flags) ((uint32_t)((flags) >> 48))
_Static_assert(VIA_RECORD_BODY_BYTES_MAX <= UINT16_MAX, "skip has 16 bits");

/* The geometry of the pipes that this end offers; some connections get VIA_RING_LONG_BYTES. */
extern const struct via_pipe_geometry via_ring;

/* Initialises both streams over two mapped segments. */
void via_side_attach(struct via_side *side, const struct via_pipe_geometry *geometry,
                     unsigned char *own, unsigned char *peer);

/* Called when the side is attached within one machine: allows zero-copy. */
void via_side_allow_avail(struct via_side *side);
_Static_assert(VIA_SEGMENT_AVAIL_OFF + sizeof(struct via_avail_words) <= VIA_SEGMENT_COLD_OFF,
               "words of their own");

static inline bool via_side_is_in(const struct via_side *side, uint32_t phases)
{
    return via_phase_is_in(via_phase_get(&side->phase), phases);
}

/* A word of this end's memory, which the peer writes. */
static inline const _Atomic uint64_t *via_side_own_word(const struct via_side *side, size_t off)
{
    return side->tx.pipe.credit + (off - VIA_SEGMENT_CREDIT_OFF) / sizeof(uint64_t);
}

/* The peer's flags. */
static inline uint64_t via_side_flags(const struct via_side *side)
{
    /* Pairs with the release in via_side_publish_flags(). */
    return atomic_load_explicit(via_side_own_word(side, VIA_SEGMENT_FLAGS_OFF),
                                memory_order_acquire);
}

/* Between hosts: true if the peer's announcement that it sleeps arrives before its sleep. */
static inline bool via_side_is_peer_prompt(const struct via_side *side)
{
    return atomic_load_explicit(via_side_own_word(side, VIA_SEGMENT_PROMPT_OFF),
                                memory_order_relaxed) != 0;
}

/* The peer's cold word; 0: none yet. It is only compared with earlier values. */
static inline uint32_t via_side_cold(const struct via_side *side)
{
    return (uint32_t)atomic_load_explicit(via_side_own_word(side, VIA_SEGMENT_COLD_OFF),
                                          memory_order_relaxed);
}

/* Publishes a new cold word of this end. */
void via_side_publish_cold(struct via_side *side);

/* True if the peer's reader runs on another CPU than this thread, or has not published its CPU. */
bool via_side_is_apart(const struct via_side *side);
/* Publishes this thread's CPU if it has changed; with the rx token. */
void via_side_publish_cpu(struct via_side *side);

/* Within one machine: requests time stamps in the peer's records, for the epoll set of this number
 * (not 0). Records written before have none. */
void via_side_request_times(struct via_side *side, uint64_t set);

/* Stores this end's flags into the peer's memory. */
void via_side_publish_flags(struct via_side *side, uint64_t flags);

#endif
