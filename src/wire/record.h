/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_WIRE_RECORD_H
#define VIA_WIRE_RECORD_H

#include <stdint.h>

/*
 * The record: the unit that a pipe moves.
 *
 * A pipe's memory is a ring of 64-byte slots followed by a ring of data bytes. A record is one slot
 * (56 bytes of head, then the record word) and 0 or more bytes of body in the data ring, rounded up
 * to 64. The record word is the last aligned 8 bytes of the slot, and the writer stores it last. So
 * a reader that finds the word finds the whole record (posted writes of one initiator stay in
 * order: PCIe base specification 2.4.1). Slots never contain anything but heads and words, so that
 * payload can not be mistaken for a word when the ring wraps.
 *
 * Record word, little-endian 64 bits:
 *   bits 63..48  epoch   1..0xfffe; the word is therefore never zero and never all-ones
 *   bits 47..32  length  of the body in bytes
 *   bits 31..0   sequence number of the record in this epoch, from 0
 *
 * Credit word, posted by the reader into the writer's memory:
 *   bits 63..48  epoch
 *   bits 47..32  arm generation: 0 = the reader is awake; g = ring me once for this g
 *   bits 31..0   records released so far (the sequence number after the last released record)
 *
 * Want word, posted by the writer into the first line of the reader's memory. It has the same
 * fields: the want generation (ring me once for this generation when you return credits), and the
 * number of released records that the writer knew at its request.
 */
#define VIA_RECORD_LINE_BYTES 64u
#define VIA_RECORD_HEAD_BYTES 56u
#define VIA_RECORD_BODY_BYTES_MAX 65472u
#define VIA_EPOCH_MIN 1u
#define VIA_EPOCH_MAX 0xfffeu

struct via_record_line {
    unsigned char head[VIA_RECORD_HEAD_BYTES];
    uint64_t word;
};
_Static_assert(sizeof(struct via_record_line) == VIA_RECORD_LINE_BYTES, "one cache line");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is little-endian");

static inline uint64_t via_record_word(uint16_t epoch, uint16_t length, uint32_t sequence)
{
    return (uint64_t)epoch << 48 | (uint64_t)length << 32 | sequence;
}

static inline uint16_t via_record_word_epoch(uint64_t word)
{
    return (uint16_t)(word >> 48);
}

static inline uint16_t via_record_word_length(uint64_t word)
{
    return (uint16_t)(word >> 32);
}

static inline uint32_t via_record_word_sequence(uint64_t word)
{
    return (uint32_t)word;
}

static inline uint64_t via_credit_word(uint16_t epoch, uint16_t arm, uint32_t released)
{
    return (uint64_t)epoch << 48 | (uint64_t)arm << 32 | released;
}

static inline uint16_t via_credit_word_epoch(uint64_t word)
{
    return (uint16_t)(word >> 48);
}

static inline uint16_t via_credit_word_arm(uint64_t word)
{
    return (uint16_t)(word >> 32);
}

static inline uint32_t via_credit_word_released(uint64_t word)
{
    return (uint32_t)word;
}

/* The epoch after this one; never 0 and never 0xffff. */
static inline uint16_t via_epoch_next(uint16_t epoch)
{
    return epoch >= VIA_EPOCH_MAX ? VIA_EPOCH_MIN : (uint16_t)(epoch + 1);
}

#endif
