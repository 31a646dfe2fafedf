/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_STREAM_H
#define VIA_SOCKETS_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "core/pipe.h"

/*
 * The stream: one direction of a connection, as a sequence of spans. A span's bytes go either
 * through the kernel's TCP connection or through a pipe, and the writer says in the pipe where one
 * ends and the next begins:
 *
 *   kernel span          pipe span                   kernel span
 *   [0 ........ N)       SWITCH(N) DATA DATA ... DEMOTE(M)   [.........
 *
 * A stream begins in a kernel span, so a writer can send its first bytes at once. Until it has seen
 * SWITCH, a reader takes all the kernel gives; when it has, it reads the kernel until it has had N
 * bytes from there in all, then the pipe. A writer may send kernel bytes after DEMOTE only when the
 * SWITCH before it has been released (via_stream_tx_is_demoted): else a reader that has not read
 * the pipe could not tell the two kernel spans apart.
 *
 * A writer that leaves the pipe may send what is in it, and perhaps not read, once more through the
 * kernel before it writes DEMOTE, which says how many bytes that were. A reader that has read the
 * pipe discards so many of the kernel's bytes. Or it does not need the pipe any more: if the kernel
 * has all of its unread bytes (DEMOTE_WHOLE), it skips the pipe, and discards only the bytes it had
 * read (via_stream_rx_skip): so it can leave for the kernel, too, whichever process reads there
 * then.
 *
 * Nothing here does I/O, or reads a clock but to say when a record was written. A tx and an rx each
 * belong to one thread at a time. The pipe's target must be mapped (via_pipe_target.direct).
 */

enum via_stream_kind {
    VIA_STREAM_DATA = 1,   /* payload inline or as body */
    VIA_STREAM_SWITCH = 2, /* count: bytes that went through the kernel before */
    VIA_STREAM_FIN = 3,    /* count: bytes of the whole stream; nothing follows */
    VIA_STREAM_DEMOTE = 4, /* demote: bytes that went through the pipe before */
    VIA_STREAM_AVAIL = 5,  /* avail: the next bytes are in the writer's own memory */
};

#define VIA_STREAM_INLINE_BYTES_MAX 48u
#define VIA_STREAM_FIN_CLOSED 0x01u /* the end is closed: no thread reads it either */
/* DEMOTE: the kernel has again all bytes that the reader may not have read. */
#define VIA_STREAM_DEMOTE_WHOLE 0x01u

/* Any record, for a reader that asks when it was written: since the record before, the thread that
 * writes it has written to others in the same set, or another thread wrote that one. */
#define VIA_STREAM_OTHERS 0x80u

/* The head of every record of a stream's pipe. */
struct via_stream_head {
    uint8_t kind;
    uint8_t inline_bytes;
    uint8_t flags;
    uint8_t written[5]; /* when, in 16 ticks, for a reader that asks (via_stream_tx.times); or 0 */
    union {
        unsigned char data[VIA_STREAM_INLINE_BYTES_MAX];
        uint64_t count;
        struct {
            uint64_t count;
            uint64_t again; /* bytes of the pipe that the kernel has, too, before all others */
        } demote;
        struct {
            uint64_t address; /* in the writer's process */
            uint64_t bytes;   /* 1..VIA_AVAIL_BYTES_MAX */
            uint64_t id;      /* counts these records, 24 bits */
        } avail;
    } u;
};
_Static_assert(sizeof(struct via_stream_head) == VIA_RECORD_HEAD_BYTES, "the head of a record");
#define VIA_STREAM_HEAD_FIXED_BYTES 8u

/*
 * Zero-copy. A writer that waits anyway can leave its bytes in place and announce them (AVAIL); the
 * reader fetches them from there into the program's buffer, in one or more steps, and publishes its
 * progress; then the writer goes on. Both can end it before: the reader by refusing the rest, the
 * writer by revoking it. Bytes fetched until then are part of the stream, and the rest follows as
 * other records.
 *
 * The reader publishes a claim before it fetches; the writer, when it has revoked, may use its
 * memory again once it sees no claim. Store claim, fence, load revoked; store revoked, fence, load
 * claim: at least one of the two sees the other. At most one AVAIL is open at a time.
 *
 * Bytes that were fetched are in none of the counts of SWITCH, DEMOTE and FIN.
 *
 * These words lie in the memory of each end and are written by its peer.
 */
struct via_avail_words {
    _Atomic uint64_t pulled; /* reader to writer: bits 63..40 id, 39..38 state, 37..0 bytes */
    _Atomic uint64_t sink;   /* reader to writer: the size of the buffer it waits with, 0 = small */
    _Atomic uint64_t revoked; /* writer to reader: this id and all before are void */
};
#define VIA_AVAIL_BYTES_MAX (UINT64_C(1) << 30)
#define VIA_AVAIL_ID_MASK 0xffffffu

enum via_pull_state { VIA_PULL_OPEN = 0, VIA_PULL_CLAIMED = 1, VIA_PULL_REFUSED = 2 };

static inline uint64_t via_pulled_word(uint32_t id, enum via_pull_state state, uint64_t bytes)
{
    return (uint64_t)(id & VIA_AVAIL_ID_MASK) << 40 | (uint64_t)state << 38 | bytes;
}

/* --- a position in an array of buffers ------------------------------------------------------- */

struct via_iov {
    const struct iovec *iov; /* borrowed */
    int count;
    size_t off;  /* in iov[0] */
    size_t left; /* bytes from here to the end */
};

/* -EINVAL when the lengths do not fit ssize_t. */
int via_iov_init(struct via_iov *cursor, const struct iovec *iov, int count);
/* bytes <= left. Copies and moves on; past_caches: as via_copy_past_caches(). */
void via_iov_get(struct via_iov *cursor, void *dst, size_t bytes, bool past_caches);
void via_iov_put(struct via_iov *cursor, const void *src, size_t bytes);
void via_iov_skip(struct via_iov *cursor, size_t bytes);

/* --- writing --------------------------------------------------------------------------------- */

enum via_span {
    VIA_SPAN_KERNEL = 0,       /* bytes go through the kernel */
    VIA_SPAN_KERNEL_UNTIL = 1, /* reader only: through the kernel until switch_at */
    VIA_SPAN_PIPE = 2,
};

struct via_stream_tx {
    struct via_pipe_writer pipe;
    uint64_t kernel_bytes;        /* through the kernel up to the last SWITCH */
    _Atomic uint64_t pipe_bytes;  /* through the pipe, in all */
    const _Atomic uint64_t *read; /* the reader's via_stream_rx.read; NULL: not visible */
    const _Atomic uint64_t
        *times;          /* the set for which the reader asks for time stamps; or 0, NULL */
    uint32_t switch_end; /* pipe sequence after the last SWITCH */
    uint8_t span;        /* VIA_SPAN_KERNEL or _PIPE */
    bool ended;          /* FIN is written */
    bool past_caches;    /* how to write bodies: see io_tx.c */
    struct {
        const struct via_avail_words *own; /* NULL: no zero-copy */
        struct via_avail_words *peer;
        uint64_t bytes;
        uint64_t done; /* fetched, as seen last */
        uint32_t id;   /* of the last */
        bool revoked;
        _Atomic bool open;
    } avail;
};

/* Starts in a kernel span. `pipe` is initialised by the caller. */
void via_stream_tx_init(struct via_stream_tx *tx);

/* Ends the kernel span after kernel_bytes (counted from the connection's start). 0 or -EAGAIN. */
int via_stream_tx_switch(struct via_stream_tx *tx, uint64_t kernel_bytes);

/* Ends the pipe span. 0 or -EAGAIN; then via_stream_tx_is_demoted() tells when the kernel may be
 * used. */
int via_stream_tx_demote(struct via_stream_tx *tx);
bool via_stream_tx_is_demoted(struct via_stream_tx *tx);
/* In the pipe span: has the reader seen where it began? Then the kernel has carried nothing since,
 * and may have the oldest `again` bytes that were not given back, before the span is ended as above
 * but by this. whole: that is all of them. */
bool via_stream_tx_has_begun(struct via_stream_tx *tx);
int via_stream_tx_demote_again(struct via_stream_tx *tx, uint64_t again, bool whole);

/*
 * Writes one record with as much of *iov as fits in one; span must be the pipe. The bytes written
 * (> 0 when left > 0), -EAGAIN when there is no room, -EPROTO when the peer broke the pipe, -EPIPE
 * after FIN.
 */
ssize_t via_stream_tx_write(struct via_stream_tx *tx, struct via_iov *iov);

/* Room for a record of the largest size and for some small ones: what poll calls writable. */
bool via_stream_tx_is_writable(struct via_stream_tx *tx);

/*
 * The reader has stopped reading: are there bytes in the pipe, or offered, that it has not read?
 * The last `fresh` written bytes do not count. Without the token, too.
 */
bool via_stream_tx_is_unread(const struct via_stream_tx *tx, uint64_t fresh);

/* Writes FIN when the span is the pipe; a slot is kept for it. Once; 0, -EALREADY or -EPROTO. */
int via_stream_tx_fin(struct via_stream_tx *tx, uint8_t flags);

/* The words for AVAIL: both streams of an end share them. */
void via_stream_tx_allow_avail(struct via_stream_tx *tx, const struct via_avail_words *own,
                               struct via_avail_words *peer);

/* The size of the buffer that the reader waits with, if it would fetch; a hint. */
uint64_t via_stream_tx_sink(const struct via_stream_tx *tx);

/*
 * Announces that the next `bytes` are at `address`; they must stay there until it has ended. 0,
 * -EAGAIN (no room), -EBUSY (one is open), or as via_stream_tx_write().
 */
int via_stream_tx_avail(struct via_stream_tx *tx, uint64_t address, uint64_t bytes);

enum via_avail_state {
    VIA_AVAIL_OPEN = 1,    /* the reader may fetch */
    VIA_AVAIL_CLAIMED = 2, /* it does, right now */
    VIA_AVAIL_ENDED = 3,   /* and will not any more */
};
/* Its state, and how many bytes have been fetched; -EPROTO if the peer broke the rules. For the
 * thread that opened it, without the token. */
int via_stream_tx_avail_state(struct via_stream_tx *tx, uint64_t *ret_done);
/* Revokes it: poll until it has ended. */
void via_stream_tx_avail_revoke(struct via_stream_tx *tx);
/* It has ended: another may be opened. */
void via_stream_tx_avail_end(struct via_stream_tx *tx);

/* --- reading --------------------------------------------------------------------------------- */

enum via_stream_next {
    VIA_NEXT_KERNEL = 1,       /* read the kernel */
    VIA_NEXT_KERNEL_UNTIL = 2, /* read the kernel until it gave switch_at bytes in all */
    VIA_NEXT_DATA = 3,         /* the pipe has bytes */
    VIA_NEXT_EMPTY = 4,        /* it will have */
    VIA_NEXT_FIN = 5,          /* the stream has ended */
    VIA_NEXT_AVAIL = 6,        /* fetch: rx.avail has the place and size */
    VIA_NEXT_AGAIN = 7,        /* discard rx.again bytes of the kernel's */
};

struct via_stream_rx {
    struct via_pipe_reader pipe;
    struct via_pipe_record record; /* the one being read, when `held` */
    uint64_t switch_at;            /* with VIA_SPAN_KERNEL_UNTIL */
    uint64_t kernel_read;          /* the caller's number, with VIA_SPAN_KERNEL_UNTIL */
    uint64_t pipe_bytes;           /* taken from the pipe, in all */
    _Atomic uint64_t *read;        /* the same in memory that the writer sees; NULL: none */
    uint64_t again;                /* of the kernel's next bytes, the pipe had so many */
    uint64_t turn_bytes;           /* pipe_bytes, when SWITCH or DEMOTE came last */
    uint32_t turn_first;           /* that record, and how many before it were such */
    uint32_t turn_end;             /* the record after it */
    uint32_t unposted_bytes;       /* body bytes released since the last credit */
    uint32_t record_off;           /* next byte of the held record */
    uint32_t record_bytes;
    uint8_t span;
    uint8_t fin_flags;
    bool held;
    bool kernel_known; /* kernel_read is valid */
    bool ended;
    bool broken;
    bool posted; /* a credit went out: the writer may need a ring */
    bool whole;  /* DEMOTE_WHOLE */
    bool probe;  /* a copy for peeking */
    struct {
        const struct via_avail_words *own; /* NULL: no zero-copy */
        struct via_avail_words *peer;
        uint64_t address;
        uint64_t bytes;
        uint64_t done; /* fetched */
        uint32_t id;
        bool held;   /* one is there */
        bool wanted; /* a sink was announced: without it none may come */
        uint64_t sink;
    } avail;
};

void via_stream_rx_init(struct via_stream_rx *rx);

/* The record after the last one taken that had bytes or an end: SWITCH and DEMOTE are none. */
static inline uint32_t via_stream_rx_after_bytes(const struct via_stream_rx *rx)
{
    bool turns = rx->pipe.sequence == rx->turn_end && rx->pipe_bytes == rx->turn_bytes;
    return turns ? rx->turn_first : rx->pipe.sequence;
}

/* Handles control records and returns where the next byte comes from; -EPROTO if the peer broke the
 * rules, for ever. */
int via_stream_rx_next(struct via_stream_rx *rx);

/*
 * With VIA_NEXT_KERNEL_UNTIL: how many bytes the kernel has returned since the connection's start.
 * 0, or -EPROTO if that is more than the writer has announced. _read() adds to it.
 */
int via_stream_rx_kernel_total(struct via_stream_rx *rx, uint64_t total);
void via_stream_rx_kernel_read(struct via_stream_rx *rx, size_t bytes);
/* Bytes still to be read from the kernel (kernel_known must be true). */
uint64_t via_stream_rx_kernel_left(const struct via_stream_rx *rx);

/* With VIA_NEXT_AGAIN: so many have been discarded. */
void via_stream_rx_dropped(struct via_stream_rx *rx, uint64_t bytes);
/* Does the kernel have all of the pipe's bytes, if there are any, and does nothing else follow
 * there? Then the pipe is read no more: the next bytes come by the kernel. */
bool via_stream_rx_skip(struct via_stream_rx *rx);

/* Copies from the pipe, up to iov->left; 0 if the next byte is not in the pipe. */
ssize_t via_stream_rx_read(struct via_stream_rx *rx, struct via_iov *iov);
/* The same without consuming (MSG_PEEK); with VIA_NEXT_KERNEL_UNTIL the bytes after the kernel's.
 * *ret_kernel: all of the pipe's bytes were copied, and the kernel's follow. */
ssize_t via_stream_rx_peek(const struct via_stream_rx *rx, struct via_iov *iov, bool *ret_kernel);

void via_stream_rx_allow_avail(struct via_stream_rx *rx, const struct via_avail_words *own,
                               struct via_avail_words *peer);
/* Publishes the size of the buffer that this end waits with; 0: it does not wait, or with a small
 * one. */
void via_stream_rx_sink(struct via_stream_rx *rx, uint64_t bytes);
/* With VIA_NEXT_AVAIL, before fetching: 0, or -ECANCELED if the writer has revoked it. */
int via_stream_rx_claim(struct via_stream_rx *rx);
/* After fetching: so many more bytes have been fetched, 0 for a check only; the claim is over. */
void via_stream_rx_pulled(struct via_stream_rx *rx, uint64_t bytes);
/* Nothing more will be fetched of it; the claim is over. */
void via_stream_rx_refuse(struct via_stream_rx *rx);

/* Bytes that could be read from the pipe now, after the kernel's if it is their turn, counted up
 * to `enough`. */
size_t via_stream_rx_bytes(const struct via_stream_rx *rx, size_t enough);

/* true if FIN is among the present records. */
bool via_stream_rx_is_ending(const struct via_stream_rx *rx);

/* true if the bytes after the present records come by the kernel. */
bool via_stream_rx_is_left(const struct via_stream_rx *rx);
/* ... and so many of those must be discarded first. */
uint64_t via_stream_rx_comes_again(const struct via_stream_rx *rx);

/* Before sleeping: announces the sleep to the writer and returns all credit that is due;
 * via_stream_rx_must_ring() then tells whether the writer waited for that. */
void via_stream_rx_arm(struct via_stream_rx *rx);

/* After reads: must the reader ring the doorbell of a writer that waits for room? At most once each
 * time. */
bool via_stream_rx_must_ring(struct via_stream_rx *rx);

#endif
