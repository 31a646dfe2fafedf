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
 * through the kernel connection or through a pipe. Records in the pipe mark where one span ends and
 * the next begins:
 *
 *   kernel span          pipe span                   kernel span
 *   [0 ........ N)       SWITCH(N) DATA DATA ... DEMOTE(M)   [.........
 *
 * A stream begins in a kernel span, so a writer can send its first bytes at once. Until a reader
 * has seen SWITCH, it reads the kernel. After that it reads the kernel until it has got N bytes
 * from there in all, then the pipe. A writer may send kernel bytes after DEMOTE only when the
 * SWITCH before it has been released (via_stream_tx_is_demoted): else a reader that has not read
 * the pipe could not tell the two kernel spans apart.
 *
 * A writer that leaves the pipe may send the bytes that the reader may not have read once more
 * through the kernel, before it writes DEMOTE with the number of those bytes. A reader that has
 * read the pipe discards as many of the kernel's bytes as that number says. If the kernel has all
 * of the unread bytes (DEMOTE_WHOLE), the reader may also skip the pipe, and discard only the bytes
 * that it had read (via_stream_rx_skip). So the reader can leave for the kernel, too, whichever
 * process then reads there.
 *
 * No function here does I/O. A clock is read only for the time at which a record was written. A tx
 * and an rx each belong to one thread at a time. The pipe's target must be mapped
 * (via_pipe_target.direct).
 */

enum via_stream_kind {
    VIA_STREAM_DATA = 1,   /* payload inline or as body */
    VIA_STREAM_SWITCH = 2, /* count: bytes sent through the kernel before */
    VIA_STREAM_FIN = 3,    /* count: bytes of the whole stream; it is the last record */
    VIA_STREAM_DEMOTE = 4, /* demote: bytes sent through the pipe before */
    VIA_STREAM_AVAIL = 5,  /* avail: the next bytes are in the writer's own memory */
};

#define VIA_STREAM_INLINE_BYTES_MAX 48u
#define VIA_STREAM_FIN_CLOSED 0x01u /* the end is closed: it does not read either */
/* DEMOTE: the kernel has all bytes that the reader may not have read. */
#define VIA_STREAM_DEMOTE_WHOLE 0x01u

/* In any record, for a reader that asks when records were written: since the previous record, the
 * writing thread has written to other connections of the same set; or another thread wrote that
 * record. */
#define VIA_STREAM_OTHERS 0x80u

/* DATA, between hosts: the last bytes of `written` are a receipt (receipt.h). */
#define VIA_STREAM_RECEIPT 0x40u

/* The head of every record of a stream's pipe. */
struct via_stream_head {
    uint8_t kind;
    uint8_t inline_bytes;
    uint8_t flags;
    uint8_t written[5]; /* time of writing, in units of 16 ticks, for a reader that asks
                           (via_stream_tx.times); or 0,
                           or a receipt */
    union {
        unsigned char data[VIA_STREAM_INLINE_BYTES_MAX];
        uint64_t count;
        struct {
            uint64_t count;
            uint64_t again; /* bytes of the pipe that the kernel has, too, before all others */
        } demote;
        struct {
            uint64_t address; /* address in the writer's process */
            uint64_t bytes;   /* 1..VIA_AVAIL_BYTES_MAX */
            uint64_t id;      /* number of this AVAIL record, 24 bits */
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
    _Atomic uint64_t sink; /* reader to writer: size of the buffer with which it waits, 0 = small */
    _Atomic uint64_t revoked; /* writer to reader: this id and all before are revoked */
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

/* -EINVAL when the sum of the lengths exceeds ssize_t. */
int via_iov_init(struct via_iov *cursor, const struct iovec *iov, int count);
/* Copies bytes <= left, and moves the cursor; past_caches: as via_copy_past_caches(). */
void via_iov_get(struct via_iov *cursor, void *dst, size_t bytes, bool past_caches);
void via_iov_put(struct via_iov *cursor, const void *src, size_t bytes);
void via_iov_skip(struct via_iov *cursor, size_t bytes);

/* --- writing --------------------------------------------------------------------------------- */

enum via_span {
    VIA_SPAN_KERNEL = 0,       /* bytes go through the kernel */
    VIA_SPAN_KERNEL_UNTIL = 1, /* reader only: bytes go through the kernel until switch_at */
    VIA_SPAN_PIPE = 2,
};

struct via_stream_tx {
    struct via_pipe_writer pipe;
    uint64_t kernel_bytes;        /* bytes sent through the kernel up to the last SWITCH */
    _Atomic uint64_t pipe_bytes;  /* bytes sent through the pipe, in all */
    const _Atomic uint64_t *read; /* the reader's via_stream_rx.read; NULL: not visible */
    const _Atomic uint64_t
        *times; /* the set for which the reader asks for time stamps; or 0; NULL: not visible */
    uint32_t switch_end; /* pipe sequence after the last SWITCH */
    uint8_t span;        /* VIA_SPAN_KERNEL or _PIPE */
    bool ended;          /* FIN is written */
    bool past_caches;    /* how to write bodies: see io_tx.c */
    struct {
        const struct via_avail_words *own; /* NULL: no zero-copy */
        struct via_avail_words *peer;
        uint64_t bytes;
        uint64_t done; /* bytes fetched, as last read */
        uint32_t id;   /* id of the last AVAIL */
        bool revoked;
        _Atomic bool open;
    } avail;
};

/* Starts in a kernel span. `pipe` is initialised by the caller. */
void via_stream_tx_init(struct via_stream_tx *tx);

/* Ends the kernel span after kernel_bytes (counted from the connection's start). 0 or -EAGAIN. */
int via_stream_tx_switch(struct via_stream_tx *tx, uint64_t kernel_bytes);

/* Ends the pipe span. 0 or -EAGAIN. After that the writer may use the kernel when
 * via_stream_tx_is_demoted(). */
int via_stream_tx_demote(struct via_stream_tx *tx);
bool via_stream_tx_is_demoted(struct via_stream_tx *tx);
/* In the pipe span: has the reader seen where the span began? Then the kernel connection has been
 * idle since, and the oldest `again` bytes for which the reader has returned no credit may be sent
 * through it. After that the span is ended by _demote_again(). whole: those are all of the
 * bytes. */
bool via_stream_tx_has_begun(struct via_stream_tx *tx);
int via_stream_tx_demote_again(struct via_stream_tx *tx, uint64_t again, bool whole);

/*
 * Writes one record with as much of *iov as fits in one; the span must be the pipe. Returns the
 * bytes written (> 0 when left > 0); -EAGAIN when there is no room, -EPROTO when the peer broke the
 * pipe, -EPIPE after FIN.
 */
ssize_t via_stream_tx_write(struct via_stream_tx *tx, struct via_iov *iov);

/* Is there room for a record of the largest size and some small ones? This is what poll() reports
 * as POLLOUT. */
bool via_stream_tx_is_writable(struct via_stream_tx *tx);

/*
 * The reader has stopped reading: are there bytes in the pipe, or offered, that it has not read?
 * The last `fresh` written bytes do not count. May be called without the token.
 */
bool via_stream_tx_is_unread(const struct via_stream_tx *tx, uint64_t fresh);

/* Writes FIN when the span is the pipe; a slot is reserved for it. Only once; 0, -EALREADY or
 * -EPROTO. */
int via_stream_tx_fin(struct via_stream_tx *tx, uint8_t flags);

/* The words for AVAIL: both streams of an end share them. */
void via_stream_tx_allow_avail(struct via_stream_tx *tx, const struct via_avail_words *own,
                               struct via_avail_words *peer);

/* The size of the buffer with which the reader waits, if it would fetch; a hint. */
uint64_t via_stream_tx_sink(const struct via_stream_tx *tx);

/*
 * Announces that the next `bytes` are at `address`, where they must stay until the AVAIL has ended.
 * 0, -EAGAIN (no room), -EBUSY (one is open), or as via_stream_tx_write().
 */
int via_stream_tx_avail(struct via_stream_tx *tx, uint64_t address, uint64_t bytes);

enum via_avail_state {
    VIA_AVAIL_OPEN = 1,    /* the reader may fetch */
    VIA_AVAIL_CLAIMED = 2, /* the reader is fetching */
    VIA_AVAIL_ENDED = 3,   /* the reader will not fetch any more */
};
/* The state of the AVAIL, and how many bytes were fetched; -EPROTO if the peer broke the rules. For
 * the thread that opened it, without the token. */
int via_stream_tx_avail_state(struct via_stream_tx *tx, uint64_t *ret_done);
/* Revokes the AVAIL: poll its state until it has ended. */
void via_stream_tx_avail_revoke(struct via_stream_tx *tx);
/* The AVAIL has ended: another may be opened. */
void via_stream_tx_avail_end(struct via_stream_tx *tx);

/* --- reading --------------------------------------------------------------------------------- */

enum via_stream_next {
    VIA_NEXT_KERNEL = 1,       /* read the kernel */
    VIA_NEXT_KERNEL_UNTIL = 2, /* read the kernel until it has returned switch_at bytes in all */
    VIA_NEXT_DATA = 3,         /* the pipe has bytes */
    VIA_NEXT_EMPTY = 4,        /* the pipe is the source, but has no bytes yet */
    VIA_NEXT_FIN = 5,          /* the stream has ended */
    VIA_NEXT_AVAIL = 6,        /* fetch: rx.avail has the place and size */
    VIA_NEXT_AGAIN = 7,        /* discard rx.again bytes of the kernel */
};

struct via_stream_rx {
    struct via_pipe_reader pipe;
    struct via_pipe_record record; /* the record being read, when `held` */
    uint64_t switch_at;            /* with VIA_SPAN_KERNEL_UNTIL */
    uint64_t kernel_read;    /* the caller's count of kernel bytes, with VIA_SPAN_KERNEL_UNTIL */
    uint64_t pipe_bytes;     /* bytes read from the pipe, in all */
    _Atomic uint64_t *read;  /* the same in memory that the writer can read; NULL: none */
    uint64_t again;          /* number of the kernel's next bytes that were also in the pipe */
    uint32_t unposted_bytes; /* body bytes released since the last credit */
    uint32_t record_off;     /* offset of the next byte in the held record */
    uint32_t record_bytes;
    uint8_t span;
    uint8_t fin_flags;
    bool held;
    bool kernel_known; /* kernel_read is valid */
    bool ended;
    bool broken;
    bool posted; /* a credit was posted: the writer may need a ring */
    bool whole;  /* DEMOTE_WHOLE */
    bool probe;  /* a copy for peeking */
    struct {
        const struct via_avail_words *own; /* NULL: no zero-copy */
        struct via_avail_words *peer;
        uint64_t address;
        uint64_t bytes;
        uint64_t done; /* bytes fetched */
        uint32_t id;
        bool held;   /* an AVAIL is being read */
        bool wanted; /* a sink was announced: without it no AVAIL may come */
        uint64_t sink;
    } avail;
};

void via_stream_rx_init(struct via_stream_rx *rx);

/* Handles control records and returns the source of the next byte; -EPROTO, from then on always, if
 * the peer broke the rules. */
int via_stream_rx_next(struct via_stream_rx *rx);

/*
 * With VIA_NEXT_KERNEL_UNTIL: sets how many bytes the kernel has returned since the connection's
 * start. 0, or -EPROTO if that is more than the writer has announced. _read() adds to that number.
 */
int via_stream_rx_kernel_total(struct via_stream_rx *rx, uint64_t total);
void via_stream_rx_kernel_read(struct via_stream_rx *rx, size_t bytes);
/* Bytes still to be read from the kernel (kernel_known must be true). */
uint64_t via_stream_rx_kernel_left(const struct via_stream_rx *rx);

/* With VIA_NEXT_AGAIN: the reader has discarded `bytes` bytes. */
void via_stream_rx_dropped(struct via_stream_rx *rx, uint64_t bytes);
/* If the kernel has all of the pipe's bytes, and nothing else follows in the pipe, stops reading
 * the pipe: the next bytes come by the kernel. True if it did. */
bool via_stream_rx_skip(struct via_stream_rx *rx);

/* Copies from the pipe, up to iov->left; 0 if the next byte is not in the pipe. */
ssize_t via_stream_rx_read(struct via_stream_rx *rx, struct via_iov *iov);
/* The same without consuming (MSG_PEEK); with VIA_NEXT_KERNEL_UNTIL the bytes after the kernel's.
 * *ret_kernel: all of the pipe's bytes were copied, and bytes of the kernel follow. */
ssize_t via_stream_rx_peek(const struct via_stream_rx *rx, struct via_iov *iov, bool *ret_kernel);

void via_stream_rx_allow_avail(struct via_stream_rx *rx, const struct via_avail_words *own,
                               struct via_avail_words *peer);
/* Publishes the size of the buffer with which this end waits; 0: it does not wait, or its buffer is
 * small. */
void via_stream_rx_sink(struct via_stream_rx *rx, uint64_t bytes);
/* With VIA_NEXT_AVAIL, before fetching: 0, or -ECANCELED if the writer has revoked it. */
int via_stream_rx_claim(struct via_stream_rx *rx);
/* After fetching: reports `bytes` more bytes as fetched, 0 for a check only, and ends the claim. */
void via_stream_rx_pulled(struct via_stream_rx *rx, uint64_t bytes);
/* Refuses the rest of the AVAIL, and ends the claim. */
void via_stream_rx_refuse(struct via_stream_rx *rx);

/* Number of bytes that could be read from the pipe now, or after the kernel's if those come first;
 * counts up to `enough`. */
size_t via_stream_rx_bytes(const struct via_stream_rx *rx, size_t enough);

/* true if FIN is among the present records. */
bool via_stream_rx_is_ending(const struct via_stream_rx *rx);

/* true if the bytes after the present records come by the kernel. */
bool via_stream_rx_is_left(const struct via_stream_rx *rx);
/* The number of those bytes that must be discarded first. */
uint64_t via_stream_rx_resent_bytes(const struct via_stream_rx *rx);

/* Called before sleeping: announces the sleep to the writer and returns all credit that is due.
 * via_stream_rx_must_wake_writer() then tells whether the writer waited for that. */
void via_stream_rx_arm(struct via_stream_rx *rx);

/* Called after reads: must the reader ring a writer that waits for room? At most once each time. */
bool via_stream_rx_must_wake_writer(struct via_stream_rx *rx);

#endif
