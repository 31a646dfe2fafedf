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
 * A stream begins in a kernel span, so a writer can send its first bytes at once. A reader reads
 * the kernel connection until it takes SWITCH(N) from the pipe. Then it reads the kernel connection
 * until it has got N bytes from there in total, and then the pipe. A writer may send through the
 * kernel again after DEMOTE only when the reader has released the SWITCH record before it
 * (via_stream_tx_is_demoted): otherwise a reader that has not read the pipe yet could not tell the
 * two kernel spans apart.
 *
 * A writer that leaves the pipe may first resend, through the kernel, bytes of the pipe that the
 * reader may not have read; then it writes DEMOTE with their number (`again`). A reader that has
 * read the pipe up to DEMOTE discards the next `again` bytes of the kernel. If the kernel has all
 * unread bytes of the pipe (DEMOTE_WHOLE), the reader may instead skip the rest of the pipe, and
 * discard only the resent bytes that it had already read from the pipe (via_stream_rx_skip). Then a
 * process without this library can read the rest from the kernel.
 *
 * No function here does I/O. The clock (a CPU counter) is read only for a record's time stamp. A tx
 * and an rx are used by one thread at a time, the holder of the token. The pipe's target must be
 * mapped (via_pipe_target.direct).
 */

enum via_stream_kind {
    VIA_STREAM_DATA = 1,   /* payload inline or as body */
    VIA_STREAM_SWITCH = 2, /* count: bytes sent through the kernel before it */
    VIA_STREAM_FIN = 3,    /* count: bytes of the whole stream; it is the last record */
    VIA_STREAM_DEMOTE = 4, /* demote.count: bytes sent through the pipe before it */
    VIA_STREAM_AVAIL = 5,  /* avail: the next bytes are in the writer's own memory */
};

#define VIA_STREAM_INLINE_BYTES_MAX 48u
#define VIA_STREAM_FIN_CLOSED 0x01u /* the writing end is closed: it does not read either */
/* DEMOTE: the kernel has all bytes that the reader may not have read. */
#define VIA_STREAM_DEMOTE_WHOLE 0x01u

/* In any record with a time stamp: since the previous record, the writing thread has written to
 * other connections of the reader's epoll set; or another thread wrote the previous record. */
#define VIA_STREAM_OTHERS 0x80u

/* DATA, between hosts: the last bytes of `written` are a receipt (receipt.h). */
#define VIA_STREAM_RECEIPT 0x40u

/* The head of every record of a stream's pipe. */
struct via_stream_head {
    uint8_t kind;
    uint8_t inline_bytes;
    uint8_t flags;
    uint8_t written[5]; /* time stamp in units of 16 ticks, if the reader requests it
                           (via_stream_tx.times); or a receipt; or 0 */
    union {
        unsigned char data[VIA_STREAM_INLINE_BYTES_MAX];
        uint64_t count;
        struct {
            uint64_t count;
            uint64_t again; /* count of the kernel's next bytes that are also in the pipe */
        } demote;
        struct {
            uint64_t address; /* address in the writer's process */
            uint64_t bytes;   /* 1..VIA_AVAIL_BYTES_MAX */
            uint64_t id;      /* number of this AVAIL record, 24 bits; wraps */
        } avail;
    } u;
};
_Static_assert(sizeof(struct via_stream_head) == VIA_RECORD_HEAD_BYTES, "the head of a record");
#define VIA_STREAM_HEAD_FIXED_BYTES 8u

/*
 * Zero-copy. A writer whose call blocks can leave its bytes in the program's buffer and announce
 * them by a record (AVAIL). The reader copies them from there into its own program's buffer, in one
 * or more steps, and publishes its progress; the writer's call returns after that. The reader may
 * refuse the rest, and the writer may revoke it. Bytes fetched until then are part of the stream,
 * and the rest follows in other records.
 *
 * The reader publishes a claim before it fetches. A writer that has revoked may use its memory
 * again as soon as it sees no claim. This is Dekker's algorithm: store claim, fence, load revoked;
 * store revoked, fence, load claim. At least one of the two sees the other's store. At most one
 * AVAIL is open at a time.
 *
 * The counts of SWITCH, DEMOTE and FIN do not include fetched bytes.
 *
 * Each end has these words in its memory, and its peer writes them.
 */
struct via_avail_words {
    _Atomic uint64_t pulled; /* reader to writer: bits 63..40 id, 39..38 state, 37..0 bytes */
    _Atomic uint64_t sink; /* reader to writer: size of the buffer of its blocked call, 0: small, or
                              no such call */
    _Atomic uint64_t revoked; /* writer to reader: this and all earlier ids are revoked */
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
/* Copies bytes <= left, and advances the cursor. past_caches: by via_copy_past_caches(). */
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
    uint64_t kernel_bytes;         /* bytes sent through the kernel up to the last SWITCH */
    _Atomic uint64_t pipe_bytes;   /* total bytes sent through the pipe */
    const _Atomic uint64_t *read;  /* the peer's via_stream_rx.read; NULL: not mapped here */
    const _Atomic uint64_t *times; /* the epoll set for which the reader requests time stamps, 0:
                                      none; NULL: not mapped here */
    uint32_t switch_end;           /* pipe sequence after the last SWITCH */
    uint8_t span;                  /* VIA_SPAN_KERNEL or _PIPE */
    bool ended;                    /* FIN is written */
    bool past_caches;              /* store bodies past the caches: see io_tx.c */
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

/* Writes SWITCH: ends the kernel span after kernel_bytes, counted from the connection's start. 0;
 * -EAGAIN: no room; -EPIPE after FIN. */
int via_stream_tx_switch(struct via_stream_tx *tx, uint64_t kernel_bytes);

/* After DEMOTE has ended the pipe span: true if the writer may use the kernel. Changes nothing:
 * threads without the token ask, too. */
bool via_stream_tx_is_demoted(const struct via_stream_tx *tx);
/* In the pipe span: true if the reader has released the SWITCH record that began it. Then the
 * kernel connection has carried nothing since, and the writer may resend through it the oldest
 * `again` bytes for which the reader has returned no credit. After that _demote_again() writes
 * DEMOTE, which ends the span: 0 or -EAGAIN. whole: these are all such bytes. */
bool via_stream_tx_has_begun(struct via_stream_tx *tx);
int via_stream_tx_demote_again(struct via_stream_tx *tx, uint64_t again, bool whole);

/*
 * Writes one record with as much of *iov as fits in one; the span must be the pipe. Returns the
 * bytes written (> 0 when left > 0); -EAGAIN when there is no room, -EPROTO when the peer broke the
 * pipe, -EPIPE after FIN.
 */
ssize_t via_stream_tx_write(struct via_stream_tx *tx, struct via_iov *iov);

/* True if there is room for a record of the largest size and some small ones: poll() then reports
 * POLLOUT. */
bool via_stream_tx_is_writable(struct via_stream_tx *tx);

/*
 * When the reader has stopped reading: true if it has left bytes unread, in the pipe or offered by
 * an AVAIL. The last `fresh` written bytes do not count. May be called without the token.
 */
bool via_stream_tx_is_unread(const struct via_stream_tx *tx, uint64_t fresh);

/* Ends the stream, and writes FIN if the span is the pipe; a slot is reserved for it. Only once; 0,
 * -EALREADY or -EPROTO. */
int via_stream_tx_fin(struct via_stream_tx *tx, uint8_t flags);

/* Enables zero-copy. Both streams of an end share these words. */
void via_stream_tx_allow_avail(struct via_stream_tx *tx, const struct via_avail_words *own,
                               struct via_avail_words *peer);

/* The size of the buffer of the reader's blocked call, if the reader would fetch; a hint. */
uint64_t via_stream_tx_sink(const struct via_stream_tx *tx);

/*
 * Announces the next bytes of the stream, which must stay at `address` until the AVAIL has ended.
 * 0, -EAGAIN (no room), -EBUSY (one is open), or as via_stream_tx_write().
 */
int via_stream_tx_avail(struct via_stream_tx *tx, uint64_t address, uint64_t bytes);

enum via_avail_state {
    VIA_AVAIL_OPEN = 1,    /* the reader may fetch */
    VIA_AVAIL_CLAIMED = 2, /* the reader is fetching */
    VIA_AVAIL_ENDED = 3,   /* the reader will not fetch any more */
};
/* The state of the AVAIL, and how many bytes were fetched; -EPROTO if the peer broke the rules.
 * Called by the thread that opened the AVAIL, without the token. */
int via_stream_tx_avail_state(struct via_stream_tx *tx, uint64_t *ret_done);
/* Revokes the AVAIL: poll its state until it has ended. */
void via_stream_tx_avail_revoke(struct via_stream_tx *tx);
/* The AVAIL has ended: another may be opened. */
void via_stream_tx_avail_end(struct via_stream_tx *tx);

/* --- reading --------------------------------------------------------------------------------- */

enum via_stream_next {
    VIA_NEXT_KERNEL = 1,       /* read the kernel */
    VIA_NEXT_KERNEL_UNTIL = 2, /* read the kernel until it has returned switch_at bytes in total */
    VIA_NEXT_DATA = 3,         /* the pipe has bytes */
    VIA_NEXT_EMPTY = 4,        /* the pipe is the source, but has no bytes yet */
    VIA_NEXT_FIN = 5,          /* the stream has ended */
    VIA_NEXT_AVAIL = 6,        /* fetch: rx.avail has address and size */
    VIA_NEXT_AGAIN = 7,        /* discard rx.again bytes of the kernel */
};

struct via_stream_rx {
    struct via_pipe_reader pipe;
    struct via_pipe_record record; /* the record being read, when `held` */
    uint64_t switch_at;            /* with VIA_SPAN_KERNEL_UNTIL */
    uint64_t kernel_read;   /* bytes that the kernel has returned, with VIA_SPAN_KERNEL_UNTIL */
    uint64_t pipe_bytes;    /* total bytes read from the pipe */
    _Atomic uint64_t *read; /* the same number in memory that the writer can read; NULL: none */
    uint64_t again; /* count of the kernel's next bytes to discard: they were also in the pipe */
    uint32_t unposted_bytes; /* body bytes released since the last credit */
    uint32_t record_off;     /* offset of the next byte in the held record */
    uint32_t record_bytes;
    uint8_t span;
    uint8_t fin_flags;
    bool held;
    bool kernel_known; /* kernel_read is valid */
    bool ended;
    bool broken;
    bool posted; /* a credit was posted: the writer may have to be woken */
    bool whole;  /* DEMOTE_WHOLE */
    bool probe;  /* a copy, which releases no records */
    struct {
        const struct via_avail_words *own; /* NULL: no zero-copy */
        struct via_avail_words *peer;
        uint64_t address;
        uint64_t bytes;
        uint64_t done; /* bytes fetched */
        uint32_t id;
        bool held;   /* an AVAIL is being read */
        bool wanted; /* a sink was announced; the peer may send AVAIL only after that */
        uint64_t sink;
    } avail;
};

void via_stream_rx_init(struct via_stream_rx *rx);

/* Handles control records and returns the source of the next byte. -EPROTO if the peer broke the
 * rules; then every later call returns -EPROTO, too. */
int via_stream_rx_next(struct via_stream_rx *rx);

/*
 * With VIA_NEXT_KERNEL_UNTIL: sets how many bytes the kernel has returned since the connection's
 * start. 0, or -EPROTO if that is more than the writer has announced. _read() adds to that number.
 */
int via_stream_rx_kernel_total(struct via_stream_rx *rx, uint64_t total);
void via_stream_rx_kernel_read(struct via_stream_rx *rx, size_t bytes);
/* Bytes still to be read from the kernel (kernel_known must be true). */
uint64_t via_stream_rx_kernel_left(const struct via_stream_rx *rx);

/* If the kernel has all of the pipe's bytes, and nothing follows DEMOTE in the pipe, stops reading
 * the pipe: the next bytes come through the kernel. Returns whether it did. */
bool via_stream_rx_skip(struct via_stream_rx *rx);

/* Copies from the pipe, up to iov->left; 0 if the next byte is not in the pipe. */
ssize_t via_stream_rx_read(struct via_stream_rx *rx, struct via_iov *iov);
/* The same without consuming (MSG_PEEK). With VIA_NEXT_KERNEL_UNTIL it copies the pipe's bytes,
 * which follow the kernel's. *ret_kernel: all of the pipe's bytes were copied, and the kernel's
 * next bytes follow them. */
ssize_t via_stream_rx_peek(const struct via_stream_rx *rx, struct via_iov *iov, bool *ret_kernel);

void via_stream_rx_allow_avail(struct via_stream_rx *rx, const struct via_avail_words *own,
                               struct via_avail_words *peer);
/* Publishes the size of the buffer of this end's blocked call; 0: there is no such call, or its
 * buffer is small. */
void via_stream_rx_sink(struct via_stream_rx *rx, uint64_t bytes);
/* With VIA_NEXT_AVAIL, before fetching: 0, or -ECANCELED if the writer has revoked it. */
int via_stream_rx_claim(struct via_stream_rx *rx);
/* After fetching: reports `bytes` more bytes as fetched, 0 for a check only, and ends the claim. */
void via_stream_rx_pulled(struct via_stream_rx *rx, uint64_t bytes);
/* Refuses the rest of the AVAIL, and ends the claim. */
void via_stream_rx_refuse(struct via_stream_rx *rx);

/* Number of bytes that could be read from the pipe now, or after the kernel's bytes that precede
 * them; counts up to `enough`. */
size_t via_stream_rx_bytes(const struct via_stream_rx *rx, size_t enough);

/* true if FIN is among the present records. */
bool via_stream_rx_is_ending(const struct via_stream_rx *rx);

/* true if the bytes after the present records come through the kernel */
bool via_stream_rx_is_left(const struct via_stream_rx *rx);
/* How many of the kernel's bytes behind the present records must be discarded. */
uint64_t via_stream_rx_resent_bytes(const struct via_stream_rx *rx);

/* Called before sleeping: announces the sleep to the writer and returns all credit that is due.
 * Afterwards via_stream_rx_take_writer_ring() returns whether the writer waited for that credit. */
void via_stream_rx_arm(struct via_stream_rx *rx);

/* Called after reads: true if the writer waits for room and the reader must wake it. Returns true
 * once for each such wait. */
bool via_stream_rx_take_writer_ring(struct via_stream_rx *rx);

#endif
