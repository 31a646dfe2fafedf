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
 * Longer puts use frames: there the hosts copy many puts at once, and with DMA engines. A put
 * through slices has arrived when it returns, but a CPU can not store faster than its
 * write-combining buffers drain. System E found the crossover at 4096 bytes, and so does `viaduct
 * perf put` (ADR 16).
 */
#define VIA_CLIENT_APERTURE_BYTES_MAX 4096u

/* A part of a put. The peer sees a part after all parts before it. */
struct via_client_part {
    uint64_t off;
    const void *src;
    size_t bytes;
};

enum via_client_aperture_mode {
    VIA_CLIENT_APERTURE_WAITS, /* waits for puts in frames that it must not overtake */
    VIA_CLIENT_APERTURE_TRIES, /* returns -EAGAIN instead of waiting */
};

/*
 * 1: all parts have arrived at the peer. 0: the caller sends them in frames (the peer may already
 * have seen some). -EAGAIN: it must not overtake puts in frames that are under way; try again
 * later. Other negative errno: the remote's loss, -ENOTCONN. flags: VIADUCT_PUT_LAST_WORD counts,
 * for the last part.
 */
int via_client_aperture_put(struct via_remote *remote, const struct via_client_part *parts,
                            unsigned count, unsigned flags, enum via_client_aperture_mode mode);

/*
 * The same in two steps, for callers that must not fail after the first store. ready: 1: according
 * to the answers received so far there are slices; else as above. store: [any lock may be held]
 * true: all parts have arrived; false: the caller sends them in frames, because the peer may have
 * seen some. reader: NULL, or the reader whose acknowledgement is polled.
 */
int via_client_aperture_ready(struct via_remote *remote, const struct via_client_part *parts,
                              unsigned count, enum via_client_aperture_mode mode);
bool via_client_aperture_store(struct via_remote *remote, const struct via_client_part *parts,
                               unsigned count, unsigned flags,
                               const struct via_client_reader *reader);

/* The same for one part of any length: puts the first bytes of it that one put can carry.
 * *ret_done bytes have arrived; the caller sends the rest in frames. 0 or negative errno. */
int via_client_aperture_put_long(struct via_remote *remote, const struct via_client_part *part,
                                 unsigned flags, size_t *ret_done);

#endif
