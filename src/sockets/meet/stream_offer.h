/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_STREAM_OFFER_H
#define VIA_SOCKETS_STREAM_OFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/pipe.h"

/*
 * The message by which two ends within one machine agree on pipes (rendezvous.h), and its
 * validation. Another process sends it, and any field may be forged.
 */
#define VIA_RENDEZVOUS_MAGIC 0x76696131u
#define VIA_RENDEZVOUS_VERSION 6u

struct via_offer {
    uint32_t magic;
    uint16_t version;
    uint16_t status; /* answer: 0 = taken */
    struct via_pipe_geometry geometry;
    uint32_t reserved;
    uint64_t segment_bytes; /* the memory holds two of these: the acceptor's, the connector's */
    uint32_t bell_word;     /* index in the page that comes with the bell */
    uint32_t reserved2;
    uint64_t reserved3; /* earlier releases send a number for the bell */
};

#define VIA_RING_SLOTS_MAX 1024u
/* The data bytes of a long ring, which some connections get, and the limit for rings that the peer
 * chooses: the bytes that a hostile reader leaves in its ring are charged to the writer. */
#define VIA_RING_LONG_BYTES (1024u * 1024)

/* Parses the message in these bytes: 0, or -EPROTO. */
int via_offer_parse(const void *message, size_t bytes, struct via_offer *ret_offer);

/* True if this end can use pipes of that geometry, with memory of that size for each end. */
bool via_offer_is_of(const struct via_pipe_geometry *geometry, uint64_t segment_bytes);

/* True if the offer describes such pipes, in a memory of that size. */
bool via_offer_is_sound(const struct via_offer *offer, uint64_t memory_bytes);

/* Bytes of the memory of one end. */
size_t via_segment_bytes_for(const struct via_pipe_geometry *geometry);

#endif
