/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_ZCOPY_H
#define VIA_SOCKETS_ZCOPY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "sockets/io/io.h"
#include "sockets/stream/zcopy_rule.h"

/*
 * Zero-copy within one machine: a large send that blocks leaves its bytes in the program's buffer,
 * and the receiver fetches them from there (process_vm_readv(2)) into the buffer of its own
 * program. stream.h has the rules: which end may access the sender's memory, and when.
 *
 * A sender offers its bytes when the receiver has announced that it blocks in a large receive. If
 * the receiver nevertheless does not fetch soon, or a signal comes, the sender revokes the rest and
 * copies. The receiver fetches from the process that the kernel named when the two ends met
 * (SO_PEERCRED), not from one that the peer names. Both processes must belong to one user, and
 * neither end may have been forked since. If the kernel does not let the receiver read the sender's
 * memory (ptrace(2), access mode checking), the receiver refuses once, and then this connection
 * uses no zero-copy any more.
 */

/* Sends of fewer bytes are always copied; SIZE_MAX: all sends are copied. */
extern size_t via_zcopy_least;
/* Between hosts: true if the daemon may read the bytes of frames from the sender's memory. */
extern bool via_zcopy_lends;

/* Reads VIADUCT_SOCKETS_ZEROCOPY. */
void via_zcopy_init(void);

/* The two ends have met, and control_fd is connected to the peer: determines whether zero-copy is
 * possible between them. */
void via_zcopy_meet(struct via_conn *conn, int control_fd);

/* --- receiving, with the rx token ------------------------------------------------------------ */

void via_zcopy_announce_sink_slowly(struct via_op *op, size_t bytes, int flags);

/* Called when a receive of up to `bytes` bytes begins: announces its size to the sender if it
 * blocks. flags: of recv(). */
static inline void via_zcopy_announce_sink(struct via_op *op, size_t bytes, int flags)
{
    if (via_unlikely(bytes >= via_zcopy_least) || via_unlikely(op->side->rx.avail.sink != 0)) {
        via_zcopy_announce_sink_slowly(op, bytes, flags);
    }
}

/* True if the peer has already got what would be announced. */
static inline bool via_zcopy_is_sink_known(const struct via_op *op, size_t bytes, int flags)
{
    const struct via_stream_rx *rx = &op->side->rx;
    if (via_likely(bytes < via_zcopy_least)) {
        return rx->avail.sink == 0;
    }
    return rx->avail.own == NULL || rx->avail.sink == bytes ||
           (rx->avail.sink == 0 && ((flags & MSG_DONTWAIT) != 0 || via_op_is_nonblocking(op)));
}

/* Called when the next bytes are in the sender's memory: fetches them. Returns bytes, or -ESTALE:
 * the source of the next bytes has changed. */
ssize_t via_zcopy_fetch(struct via_op *op, struct via_iov *iov, bool peek);

/* --- sending, without the tx token ----------------------------------------------------------- */

/* A large send for which both methods are possible: its size (0: there is no such send), and when
 * it began. */
struct via_zcopy_trial {
    uint64_t begin_ticks; /* 0: its duration does not count */
    size_t bytes;
};

/* True if the receiver should fetch the next piece of a blocking call. */
bool via_zcopy_is_suitable(struct via_op *op, const struct via_iov *iov,
                           struct via_zcopy_trial *trial);
/* Called when all bytes of the send were copied. */
void via_zcopy_note_copy(const struct via_zcopy_trial *trial);

/*
 * Sends as many bytes as possible without copying. Returns 0 or more bytes, by which *iov has
 * advanced; the rest must be copied. -ECONNRESET: the peer broke the protocol. *ret_interrupted: a
 * signal handler has run.
 */
ssize_t via_zcopy_send(struct via_op *op, struct via_iov *iov, const struct via_zcopy_trial *trial,
                       bool *ret_interrupted);

/* --- copy or fetch, by size: zcopy_tune.c ---------------------------------------------------- */

/* Begins a send of that size: returns whether the receiver must fetch it. *ret_counts: report the
 * send's duration. */
bool via_zcopy_is_fetching(size_t bytes, bool *ret_counts);
/* Reports the duration of a send; the result is kept for later sends of this process. */
void via_zcopy_note_duration(size_t bytes, bool fetched, uint64_t ticks);

#endif
