/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_ZCOPY_H
#define VIA_SOCKETS_ZCOPY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "sockets/io/io.h"
#include "sockets/stream/zcopy_rule.h"

/*
 * Zero-copy within one machine: a large send that waits anyway leaves its bytes in the program's
 * buffer, and the receiver fetches them from there (process_vm_readv) into the program's buffer at
 * the other end. stream.h has the rules: which end may touch the sender's memory, and when.
 *
 * A sender offers its bytes when the receiver announces that it waits in a large receive. If the
 * receiver nevertheless does not fetch soon, or a signal comes, the sender revokes the rest and
 * copies. The process to fetch from is the one that the kernel named when the two ends met
 * (SO_PEERCRED), not one that the peer names. Both must belong to one user, and neither side may
 * have been forked since. The kernel decides: a receiver that may not read the sender's memory
 * refuses, once, and then there is no more zero-copy on this connection.
 */

/* Fewer bytes than this are always copied; SIZE_MAX: all are. */
extern size_t via_zcopy_least;
/* Between hosts: may the host read the bytes of frames from the sender's memory? */
extern bool via_zcopy_lends;

/* Reads the environment. */
void via_zcopy_init(void);

/* The two ends have met: control_fd is connected to the peer. Is zero-copy possible between
 * them? */
void via_zcopy_meet(struct via_conn *conn, int control_fd);

/* --- receiving, with the rx token ------------------------------------------------------------ */

void via_zcopy_sink_slowly(struct via_op *op, size_t bytes, int flags);

/* A call begins that accepts up to `bytes` bytes. flags: of recv(). */
static inline void via_zcopy_sink(struct via_op *op, size_t bytes, int flags)
{
    if (via_unlikely(bytes >= via_zcopy_least) || via_unlikely(op->side->rx.avail.sink != 0)) {
        via_zcopy_sink_slowly(op, bytes, flags);
    }
}

/* True if the peer already knows what would be announced. */
static inline bool via_zcopy_sink_is_known(const struct via_op *op, size_t bytes, int flags)
{
    const struct via_stream_rx *rx = &op->side->rx;
    if (via_likely(bytes < via_zcopy_least)) {
        return rx->avail.sink == 0;
    }
    return rx->avail.own == NULL || rx->avail.sink == bytes ||
           (rx->avail.sink == 0 && ((flags & MSG_DONTWAIT) != 0 || via_op_is_nonblocking(op)));
}

/* The next bytes are in the sender's memory: fetches them. Returns bytes, or -ESTALE: check again
 * which bytes are next. */
ssize_t via_zcopy_fetch(struct via_op *op, struct via_iov *iov, bool peek);

/* --- sending, without the tx token ----------------------------------------------------------- */

/* A large send for which both methods are possible: its size (0: no such send), and when it began,
 * if its duration counts. */
struct via_zcopy_trial {
    uint64_t begin_ticks; /* 0: its duration does not count */
    size_t bytes;
};

/* Should the next piece of a waiting call be fetched by the receiver? */
bool via_zcopy_is_suitable(struct via_op *op, const struct via_iov *iov,
                           struct via_zcopy_trial *trial);
/* All bytes of the send were copied. */
void via_zcopy_note_copy(const struct via_zcopy_trial *trial);

/*
 * Sends as many bytes as possible without copying. Returns 0 or more bytes, by which *iov has
 * advanced; the rest must be copied. *ret_interrupted: a signal handler has run. -ECONNRESET.
 */
ssize_t via_zcopy_send(struct via_op *op, struct via_iov *iov, const struct via_zcopy_trial *trial,
                       bool *ret_interrupted);

/* --- copy or fetch, by size: zcopy_tune.c ---------------------------------------------------- */

/* Begins a send of that size: must the receiver fetch it? *ret_counts: report the send's
 * duration. */
bool via_zcopy_is_fetching(size_t bytes, bool *ret_counts);
/* The duration of a send; the result is kept for the next process. */
void via_zcopy_note_duration(size_t bytes, bool fetched, uint64_t ticks);

#endif
