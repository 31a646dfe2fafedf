/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_WIRE_FRAME_H
#define VIA_WIRE_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "wire/record.h"

/*
 * The frame: what core sends in a record of a channel pipe. The header fills the record's head (56
 * bytes, little-endian, fields aligned). The payload is the record's body. A small payload is
 * inline behind the arguments instead (`inline_bytes` bytes), and the body is empty.
 *
 * bytes 0..23: the same in every kind. bytes 24..55: arguments by kind, then inline payload.
 */
enum via_frame_kind {
    VIA_FRAME_MESSAGE = 1,        /* to an endpoint number: args via_frame_message */
    VIA_FRAME_PUT = 2,            /* args via_frame_access */
    VIA_FRAME_PUT_SIGNAL = 3,     /* args via_frame_signal: payload, then an 8-byte signal update */
    VIA_FRAME_GET = 4,            /* args via_frame_get; answered by GET_DATA frames */
    VIA_FRAME_GET_DATA = 5,       /* args via_frame_answer */
    VIA_FRAME_ATOMIC = 6,         /* args via_frame_atomic; answered by ATOMIC_RESULT */
    VIA_FRAME_ATOMIC_RESULT = 7,  /* args via_frame_answer */
    VIA_FRAME_BARRIER_ARRIVE = 8, /* args via_frame_barrier */
    VIA_FRAME_BARRIER_RELEASE = 9, /* args via_frame_barrier */
    /* occupies a sequence number and has no effect (a refused or given-up frame) */
    VIA_FRAME_SKIP = 10,
    VIA_FRAME_ACK = 11,         /* not sequenced: args via_frame_ack */
    VIA_FRAME_PUT_STRIDED = 12, /* args via_frame_strided: the payload is whole blocks */
    VIA_FRAME_KINDS
};

/* Bits of via_frame_header.flags. */
#define VIA_FRAME_FLAG_ACK_NOW 0x01u /* last frame of an operation: acknowledge at once */
#define VIA_FRAME_FLAG_NOTIFY 0x02u  /* put: notify the segment's owner after the store */
/* put: store the last aligned 8 bytes of the payload last, with release */
#define VIA_FRAME_FLAG_LAST_WORD 0x04u
#define VIA_FRAME_FLAG_LAST 0x08u /* last frame of its operation */
/* the source has given up all earlier sequence numbers, or never used one */
#define VIA_FRAME_FLAG_START 0x10u
/* GET_DATA: no more data follows, `value` is a negative errno (two's complement). SKIP: the source
 * has given up answers that it owed */
#define VIA_FRAME_FLAG_ERROR 0x20u
/* instead of ACK_NOW: no process waits for the end of this operation, so acknowledge with the next
 * frame to the source, or a little later */
#define VIA_FRAME_FLAG_ACK_SOON 0x40u

struct via_frame_header {
    uint8_t kind;
    uint8_t flags;
    uint8_t inline_bytes; /* payload bytes in the head; 0: the body contains the payload */
    uint8_t reserved;     /* 0 */
    uint16_t source;      /* host ids */
    uint16_t destination;
    uint32_t source_session; /* sessions of the hosts: frames of any other session are dropped */
    uint32_t destination_session;
    uint32_t sequence; /* within the flow (source, destination, channel, flow) */
    uint16_t flow;
    uint16_t hops_left; /* every relay decrements it; a relay drops and counts a frame with 0 */
    unsigned char args[32];
};
_Static_assert(sizeof(struct via_frame_header) == VIA_RECORD_HEAD_BYTES, "the head of a record");

/* A segment handle: index in the low 16 bits, a random key in the high 48. */
static inline uint16_t via_segment_handle_index(uint64_t handle)
{
    return (uint16_t)handle;
}

struct via_frame_message {
    uint32_t endpoint; /* number of the destination endpoint */
    uint32_t source_endpoint;
    /* 24 bytes inline */
};

struct via_frame_access {
    uint64_t segment;
    uint64_t offset;
    /* 16 bytes inline */
};

struct via_frame_signal {
    uint64_t segment;
    uint64_t offset;
    uint64_t
        signal_offset; /* bit 63: add instead of set. Offset of the 8-byte word, same segment */
    uint64_t signal_value;
};
#define VIA_FRAME_SIGNAL_ADD (UINT64_C(1) << 63)

struct via_frame_strided {
    uint64_t segment;
    uint64_t offset; /* of the first block */
    int64_t step;    /* from the beginning of one block to that of the next */
    uint32_t block_bytes;
    uint32_t reserved;
};

struct via_frame_get {
    uint64_t segment;
    uint64_t offset;
    uint64_t cookie;
    uint32_t length;
    uint32_t reserved;
};

struct via_frame_answer {
    uint64_t cookie;
    uint64_t value; /* ATOMIC_RESULT: the old value; GET_DATA: offset of this fragment */
    /* 16 bytes inline */
};

enum via_atomic {
    VIA_ATOMIC_ADD = 1, /* all return the old value; on 8 bytes, or with VIA_ATOMIC_32 on 4 bytes */
    VIA_ATOMIC_AND = 2,
    VIA_ATOMIC_OR = 3,
    VIA_ATOMIC_XOR = 4,
    VIA_ATOMIC_SWAP = 5,
    VIA_ATOMIC_COMPARE_SWAP = 6, /* has two operands: see via_frame_atomic_operands */
    VIA_ATOMIC_FETCH = 7,
};
#define VIA_ATOMIC_32 0x80u

/* An ATOMIC frame always has a body, never inline payload: via_frame_atomic_operands. */
struct via_frame_atomic {
    uint64_t segment;
    uint64_t offset;
    uint64_t cookie;
    uint8_t operation; /* enum via_atomic | VIA_ATOMIC_32 */
    uint8_t reserved[7];
};
struct via_frame_atomic_operands {
    uint64_t operand;
    uint64_t compare;
};

enum via_frame_barrier_action {
    VIA_BARRIER_PLAIN = 0,
    VIA_BARRIER_WITHDRAW = 1, /* ARRIVE: the member no longer waits in this round */
    /* the same, if the root has not released it yet; RELEASE reports the result */
    VIA_BARRIER_LEAVE = 2,
};

/* A group belongs to a user, and each user chooses its own numbers. */
#define VIA_BARRIER_GROUP(user, number) ((uint64_t)(uint32_t)(user) << 32 | (uint32_t)(number))

/* round: the arriving member's own number of this barrier, not 0. The release repeats it. */
struct via_frame_barrier {
    uint64_t group; /* VIA_BARRIER_GROUP() */
    uint32_t round;
    uint32_t action; /* ARRIVE: enum via_frame_barrier_action */
    /* RELEASE: 0: all members have arrived; negative errno: the arrival no longer counts */
    int32_t status;
    uint32_t reserved[3];
};

enum via_frame_ack_state {
    VIA_ACK_OK = 0,
    VIA_ACK_GAP = 1,       /* a later frame has arrived: send again from `next` */
    VIA_ACK_NOT_READY = 2, /* the consumer has no room: hold `next` until RESUME or a time-out */
    VIA_ACK_RESUME = 3,
    /* `next` was refused with `status`: send it as SKIP, its operation has failed */
    VIA_ACK_REFUSED = 4,
    /* the receiver has no state of this flow: send again from its START frame */
    VIA_ACK_NO_STATE = 5,
};

struct via_frame_ack {
    uint32_t next;  /* all earlier sequence numbers are delivered */
    uint32_t state; /* enum via_frame_ack_state */
    int32_t status; /* negative errno when refused */
    uint32_t reserved;
    uint64_t reserved2[2];
};
_Static_assert(sizeof(struct via_frame_signal) == 32 && sizeof(struct via_frame_get) == 32 &&
                   sizeof(struct via_frame_atomic) == 32 &&
                   sizeof(struct via_frame_strided) == 32 &&
                   sizeof(struct via_frame_barrier) == 32 && sizeof(struct via_frame_ack) == 32,
               "arguments fill the header");

/* Bytes of payload that fit inline behind the arguments of a kind; 0 for kinds without. */
static inline unsigned via_frame_inline_max(enum via_frame_kind kind)
{
    switch (kind) {
    case VIA_FRAME_MESSAGE:
        return 32 - (unsigned)sizeof(struct via_frame_message);
    case VIA_FRAME_PUT:
        return 32 - (unsigned)sizeof(struct via_frame_access);
    case VIA_FRAME_GET_DATA:
        return 32 - (unsigned)sizeof(struct via_frame_answer);
    default:
        return 0;
    }
}

#endif
