/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_WIRE_HANDSHAKE_H
#define VIA_WIRE_HANDSHAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/record.h"

/*
 * The four scratchpads that each side of a link writes, and the heartbeat word.
 *
 *   R0  31..16 magic, 15..8 protocol version, 7..0 state (enum via_handshake_state)
 *   R1  31..22 host id, 21..0 zero: the rest is in the greeting (wire/greeting.h)
 *   R2  session of the host, not 0, not all-ones
 *   R3  31..16 epoch of records into the writing side's inbox, 15..0 the other side's epoch that it
 *       has accepted (echo), 0 = none yet
 *
 * R0 has this layout in every version, so that each version recognizes a mismatch. No register is
 * ever all-ones, which is the result of a read over a dead link. R3 contains epoch and echo, so
 * that the peer loads both together whatever the order of the other registers.
 */
#define VIA_HANDSHAKE_REGISTERS 4u
#define VIA_HANDSHAKE_MAGIC 0x5641u
#define VIA_HANDSHAKE_ALL_ONES 0xffffffffu
#define VIA_HANDSHAKE_FRAME_UNIT 64u

enum via_handshake_state {
    /* this host has chosen its epoch, and its inbox contains no word of that epoch */
    VIA_HANDSHAKE_INIT = 1,
    VIA_HANDSHAKE_READY = 2, /* and it has echoed the peer's epoch */
    VIA_HANDSHAKE_UP = 3,
    VIA_HANDSHAKE_REFUSED = 0x10, /* plus enum via_link_state BAD_*: this host's objection */
};

struct via_handshake {
    uint16_t magic;
    uint8_t version;
    uint8_t state;
    uint16_t host; /* < 1024 */
    uint32_t session;
    uint16_t epoch;
    uint16_t echo;
};

static inline void via_handshake_pack(const struct via_handshake *handshake,
                                      uint32_t ret_registers[VIA_HANDSHAKE_REGISTERS])
{
    ret_registers[0] =
        (uint32_t)handshake->magic << 16 | (uint32_t)handshake->version << 8 | handshake->state;
    ret_registers[1] = (uint32_t)handshake->host << 22;
    ret_registers[2] = handshake->session;
    ret_registers[3] = (uint32_t)handshake->epoch << 16 | handshake->echo;
}

static inline void via_handshake_unpack(const uint32_t registers[VIA_HANDSHAKE_REGISTERS],
                                        struct via_handshake *ret_handshake)
{
    *ret_handshake = (struct via_handshake){
        .magic = (uint16_t)(registers[0] >> 16),
        .version = (uint8_t)(registers[0] >> 8),
        .state = (uint8_t)registers[0],
        .host = (uint16_t)(registers[1] >> 22),
        .session = registers[2],
        .epoch = (uint16_t)(registers[3] >> 16),
        .echo = (uint16_t)registers[3],
    };
}

static inline bool via_epoch_is_valid(uint16_t epoch)
{
    return epoch >= VIA_EPOCH_MIN && epoch <= VIA_EPOCH_MAX;
}

/* The heartbeat word, which the sender posts to offset 0 of the inbox: bits 63..48 epoch of that
 * inbox, 47..0 a counter that changes with each heartbeat. */
#define VIA_HEARTBEAT_COUNTER_MASK ((UINT64_C(1) << 48) - 1)

static inline uint64_t via_heartbeat_word(uint16_t epoch, uint64_t counter)
{
    return (uint64_t)epoch << 48 | (counter & VIA_HEARTBEAT_COUNTER_MASK);
}

#endif
