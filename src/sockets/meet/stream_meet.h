/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_STREAM_MEET_H
#define VIA_SOCKETS_STREAM_MEET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/pipe.h"

/*
 * The messages between two ends on different hosts until they have pipes (fabric.h,
 * docs/protocol.md section 17), and the bytes that an end copies from its peer's memory at a
 * demotion. Another host sends all of this, and it may be forged. No I/O.
 */
#define VIA_FABRIC_MAGIC 0x76696132u
#define VIA_FABRIC_VERSION 3u

/* A note on the board of the acceptor's host. */
struct via_fabric_note {
    uint32_t magic;
    uint16_t version;
    uint16_t host; /* the connector's host */
    uint64_t mailbox;
    uint64_t mailbox_bytes;
    uint32_t slot;
    uint32_t reserved;
    uint64_t nonce; /* repeated in the offer */
};

/* An offer, which the acceptor puts into a slot of the connector's mailbox. It stores `ready`
 * last. */
struct via_fabric_offer {
    uint64_t nonce;
    uint64_t segment;
    uint64_t segment_bytes;
    struct via_pipe_geometry geometry;
    uint32_t host;
    uint64_t reserved[2];
    _Atomic uint64_t ready;
};
_Static_assert(sizeof(struct via_fabric_offer) == 64, "a line, put whole");

/* The hello line, which the connector puts into the acceptor's segment. It stores `ready` last. */
struct via_fabric_hello {
    uint64_t segment;
    uint64_t segment_bytes;
    uint32_t host;
    uint32_t reserved;
    uint64_t reserved2[4];
    _Atomic uint64_t ready;
};
_Static_assert(sizeof(struct via_fabric_hello) == 64, "a line, put whole");

#define VIA_FABRIC_READY ((uint64_t)VIA_FABRIC_MAGIC << 32 | VIA_FABRIC_VERSION)
#define VIA_FABRIC_WITHDRAWN \
    (VIA_FABRIC_READY | UINT64_C(0x10000)) /* the acceptor has returned to the kernel */
#define VIA_FABRIC_ENDED \
    (VIA_FABRIC_READY | UINT64_C(0x20000)) /* the acceptor's direction has ended */

/* True if this is a note of a connector on that host, with a slot inside its mailbox. */
bool via_meet_note_is_sound(const struct via_fabric_note *note, size_t bytes, unsigned host);

/* Takes the acceptor's last message in a slot. host: where the acceptor must be. 0 and a validated
 * copy; -EAGAIN (nothing for this nonce; an older message is removed), -ECANCELED (withdrawn),
 * -ESHUTDOWN (ended), -EPROTO. */
int via_meet_take_offer(struct via_fabric_offer *slot, uint64_t nonce, unsigned host,
                        struct via_fabric_offer *ret_offer);

/* True if the connector on that host, whose segment must be as large as this end's, has put its
 * hello. */
bool via_meet_take_hello(const struct via_fabric_hello *line, unsigned host, uint64_t segment_bytes,
                         struct via_fabric_hello *ret_hello);

/*
 * For the writer, after the reader has left: collects the reader's unread records in `memory`, the
 * writer's mirror of the pipe. Copies records that were stored into the reader's memory from there,
 * by fetch(), into the same place. From then on the writer writes into the mirror. 0, the error of
 * fetch(), or -EPROTO.
 */
struct via_meet_gather {
    unsigned char *memory;
    const uint64_t *mirrored; /* a bit for each slot: the record is already in the mirror */
    /* `off` counts from the beginning of the pipe. */
    int (*fetch)(void *ctx, size_t off, size_t bytes);
    void *ctx;
};
int via_meet_gather(const struct via_meet_gather *gather, struct via_pipe_writer *writer);

static inline bool via_meet_is_mirrored(const uint64_t *mirrored, uint32_t index)
{
    return (mirrored[index / 64] >> index % 64 & 1) != 0;
}

#endif
