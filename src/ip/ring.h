/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The inbox of one host for the frames of one other host: a ring of bytes in a segment of the
 * reader, which the writer stores to or puts to. Pure: of this file only the reader touches memory.
 *
 * Positions count bytes since the beginning and do not wrap. Records begin at multiples of 64
 * bytes; a record is a word with its length, two spare bytes, and a frame, so that the IP packet in
 * it is aligned. A record does not go over the end of the ring: a word VIA_IP_RECORD_SKIP says that
 * the next one lies at the ring's beginning.
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
 * The first page of the segment. The peer, which can write all of it, writes tail and credit; the
 * owner writes armed and wanted, and the peer reads these where it has the segment mapped.
 */
struct via_ip_inbox {
    _Atomic uint64_t tail; /* end of what the peer has written here */
    uint64_t reserved1[7];
    _Atomic uint64_t credit; /* end of what the peer has taken out of its own inbox */
    uint64_t reserved2[7];
    _Atomic uint32_t armed; /* 1: the owner sleeps; ring its bell for a new tail */
    uint32_t reserved3[15];
    _Atomic uint32_t wanted; /* 1: ring its bell for new credit */
    uint32_t reserved4[15];
    uint8_t card[64]; /* written by the peer: direct.h */
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

/* The peer's count of taken bytes. -EPROTO: more than was written, or less than the last count. */
int via_ip_ring_take_credit(struct via_ip_ring_writer *writer, uint64_t credit) VIA_MUST_CHECK;

/*
 * A place for a record of `bytes` bytes, at most VIA_IP_RECORD_BYTES_MAX. -EAGAIN: no room. The
 * place is an offset in the ring; *ret_skip is the offset where VIA_IP_RECORD_SKIP has to be
 * written, or UINT64_MAX. The writer's tail is then behind the record: publish it when record and
 * skip are written, or set it back.
 */
int via_ip_ring_reserve(struct via_ip_ring_writer *writer, size_t bytes, uint64_t *ret_off,
                        uint64_t *ret_skip) VIA_MUST_CHECK;

struct via_ip_ring_reader {
    const uint8_t *data; /* shared with the peer */
    uint64_t ring_bytes;
    uint64_t head;
};

/*
 * The frame at the head: 1 and where it lies, and *ret_end, the head after it; 0 = none.
 * -EPROTO: the peer has broken the rules. tail: a private copy. The frame's length is checked, its
 * content can change at any time.
 */
int via_ip_ring_next(const struct via_ip_ring_reader *reader, uint64_t tail,
                     const uint8_t **ret_frame, size_t *ret_bytes,
                     uint64_t *ret_end) VIA_MUST_CHECK;

#endif
