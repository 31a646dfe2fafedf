/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The inbox of one host for the frames of one other host: a byte ring in a segment of the reader,
 * into which the writer stores or puts. Pure: only the reader functions access memory.
 *
 * Positions count bytes since the beginning and do not wrap. Records begin at multiples of 64
 * bytes. A record is a length word, two unused bytes, which align the IP packet, and a frame. A
 * record does not cross the end of the ring: the length VIA_IP_RECORD_SKIP means that the next
 * record is at the ring's beginning.
 */
#ifndef VIA_IP_RING_H
#define VIA_IP_RING_H

#include <errno.h>
#include <stdatomic.h>

#include "ip/packet.h"

#define VIA_IP_RECORD_HEADER_BYTES 6u
#define VIA_IP_RECORD_SKIP UINT32_MAX
#define VIA_IP_RECORD_BYTES_MAX (VIA_IP_RECORD_HEADER_BYTES + VIA_IP_FRAME_BYTES_MAX)
#define VIA_IP_RING_BYTES_MIN (256u << 10)
#define VIA_IP_RING_BYTES_MAX (64u << 20)

/*
 * The first page of the segment. The peer writes tail, credit and card, but can write everything.
 * The owner writes armed and wanted; a peer that has mapped the segment reads and clears them.
 */
struct via_ip_inbox {
    _Atomic uint64_t tail; /* end of the records that the peer has written here */
    uint64_t reserved1[7];
    _Atomic uint64_t credit; /* end of the records that the peer has taken from its own inbox */
    uint64_t reserved2[7];
    _Atomic uint32_t armed; /* 1: the owner sleeps; the peer rings its bell after a new tail */
    uint32_t reserved3[15];
    _Atomic uint32_t wanted; /* 1: the peer rings the owner's bell after new credit */
    uint32_t reserved4[15];
    uint8_t card[64]; /* the peer writes it: direct.h */
};
#define VIA_IP_INBOX_DATA_OFF 4096u
_Static_assert(sizeof(struct via_ip_inbox) <= VIA_IP_INBOX_DATA_OFF, "before the data");

static inline bool via_ip_ring_is_size(uint64_t bytes)
{
    return bytes >= VIA_IP_RING_BYTES_MIN && bytes <= VIA_IP_RING_BYTES_MAX &&
           (bytes & (bytes - 1)) == 0;
}

struct via_ip_ring_writer {
    uint64_t ring_bytes;
    uint64_t tail;
    uint64_t credit;
};

/* Checks and takes the peer's position. -EPROTO: beyond the written records, or below the last
 * credit. */
int via_ip_ring_take_credit(struct via_ip_ring_writer *writer, uint64_t credit) VIA_MUST_CHECK;

/*
 * Reserves room for a record of `bytes` bytes, at most VIA_IP_RECORD_BYTES_MAX. -EAGAIN: no room.
 * *ret_off is the record's offset in the ring; *ret_skip is the offset at which the caller must
 * write VIA_IP_RECORD_SKIP, or UINT64_MAX. The writer's tail is then behind the record: the caller
 * publishes it after it has written record and skip, or restores it.
 */
int via_ip_ring_reserve(struct via_ip_ring_writer *writer, size_t bytes, uint64_t *ret_off,
                        uint64_t *ret_skip) VIA_MUST_CHECK;

struct via_ip_ring_reader {
    const uint8_t *data; /* shared with the peer */
    uint64_t ring_bytes;
    uint64_t head;
};

/*
 * The frame at the head: 1, its address, and *ret_end, the head behind it; 0 = none. -EPROTO: the
 * peer has written an invalid tail or length. tail: a private copy. The length of the frame is
 * checked; its contents can change at any time.
 */
int via_ip_ring_next(const struct via_ip_ring_reader *reader, uint64_t tail,
                     const uint8_t **ret_frame, size_t *ret_bytes,
                     uint64_t *ret_end) VIA_MUST_CHECK;

#endif
