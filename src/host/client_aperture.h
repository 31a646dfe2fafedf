/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_CLIENT_APERTURE_H
#define VIA_HOST_CLIENT_APERTURE_H

#include "host/client.h"

/*
 * Puts through an aperture (docs/adr/0016-apertures.md): stores of the calling thread into the
 * window, without a lock, a system call or the host. The memory is not coherent, and a loss of the
 * link can lose stores; so a put ends with a fence, and after a failed fence the same bytes are
 * sent again in frames from the caller's buffer.
 */

/*
 * Longer puts go in frames: there the hosts copy many at once, and with engines. A put through
 * slices has arrived when it returns, but a CPU stores no faster than its write-combining buffers
 * drain. System E found the crossover at 4096 bytes, and so does `viaduct perf put` (ADR 16).
 */
#define VIA_CLIENT_APERTURE_BYTES_MAX 4096u

/* A part of a put. The peer sees a part after all parts before it. */
struct via_client_part {
    uint64_t off;
    const void *src;
    size_t bytes;
};

enum via_client_aperture_mode {
    VIA_CLIENT_APERTURE_WAITS, /* for puts by frames that it must not overtake */
    VIA_CLIENT_APERTURE_TRIES, /* -EAGAIN in their place */
};

/*
 * 1: all parts have arrived at the peer. 0: the caller sends them in frames (the peer may already
 * have seen some). -EAGAIN: puts in frames are under way that it must not overtake; try again
 * later. Other negative errno: the remote's loss, -ENOTCONN. flags: VIADUCT_PUT_LAST_WORD counts,
 * for the last part.
 */
int via_client_aperture_put(struct via_remote *remote, const struct via_client_part *parts,
                            unsigned count, unsigned flags, enum via_client_aperture_mode mode);

/*
 * The same in two steps, for callers that must not fail once anything has been stored. ready: 1:
 * there are slices, by the answers taken so far; else as above. store: [any lock may be held] true:
 * all parts have arrived; false: the caller sends them in frames, because the peer may have seen
 * some. reader: NULL, or its acknowledgement is polled.
 */
int via_client_aperture_ready(struct via_remote *remote, const struct via_client_part *parts,
                              unsigned count, enum via_client_aperture_mode mode);
bool via_client_aperture_store(struct via_remote *remote, const struct via_client_part *parts,
                               unsigned count, unsigned flags,
                               const struct via_client_reader *reader);

/* The same for one part of any length, as much of it as goes in one piece from its beginning:
 * *ret_done bytes have arrived, the rest is to go in frames. 0 or negative errno. */
int via_client_aperture_put_long(struct via_remote *remote, const struct via_client_part *part,
                                 unsigned flags, size_t *ret_done);

#endif
