/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_WIRE_GREETING_H
#define VIA_WIRE_GREETING_H

#include <stdint.h>

#include "wire/record.h"

/*
 * The greeting: the two hosts of a link exchange it over the control pipe before any channel uses
 * the link. Each host sends HELLO and checks the peer's HELLO. It answers READY after it has
 * cleared its inbox for the geometry that follows from both. A host is up when it has taken the
 * peer's READY.
 *
 * Hosts with a fabric key prove in READY that they have it: a keyed hash over both HELLOs, whose
 * nonces are new for every greeting.
 */
#define VIA_GREETING_HELLO 2u /* kinds of control records; 1 is an announcement */
#define VIA_GREETING_READY 3u

/* The number of a control pipe's first record: close to the wrap, so that every link crosses the
 * wrap early. It is a constant, because the peer's configuration is not known yet. */
#define VIA_CONTROL_PIPE_FIRST (UINT32_MAX - 7)

#define VIA_GREETING_NONCE_BYTES 32u
#define VIA_GREETING_MAC_BYTES 32u
#define VIA_GREETING_KEYED 1u /* flag: this host has a fabric key and demands a proof */

/* Head of both records. */
struct via_greeting {
    uint8_t kind;
    uint8_t reserved[7];                 /* 0 */
    uint8_t mac[VIA_GREETING_MAC_BYTES]; /* READY of a host with a key, else 0 */
};
_Static_assert(sizeof(struct via_greeting) <= VIA_RECORD_HEAD_BYTES, "it is a head");

/* Body of HELLO. READY has no body. */
struct via_hello {
    uint16_t host;
    uint16_t hosts_max;
    uint32_t session;
    uint8_t side; /* 0 or 1: the side of the sender */
    uint8_t channels_count;
    uint16_t flows_count;
    uint32_t flags;
    uint32_t pipe_slots;   /* maximum per channel; the smaller value of both hosts applies */
    uint32_t frame_bytes;  /* the same for all hosts of a fabric */
    uint32_t pipe_first;   /* number of a pipe's first record */
    uint32_t link;         /* the sender's number of the link, plus 1; 0: not sent */
    uint64_t window_bytes; /* the part of the receiver's inbox that the sender can reach */
    uint64_t inbox_bytes;
    uint64_t ack_ns_max;
    uint8_t nonce[VIA_GREETING_NONCE_BYTES]; /* 0 if the host has no key */
};
_Static_assert(sizeof(struct via_hello) == 88, "no padding on the wire");

/* The input of the proof in a READY. */
struct via_greeting_proof {
    char label[16]; /* VIA_GREETING_LABEL */
    /* sender of the READY; contains the side, so the peer can not send the same proof back */
    struct via_hello sender;
    struct via_hello receiver; /* receiver of the READY */
};
#define VIA_GREETING_LABEL "viaduct link v2"
_Static_assert(sizeof(VIA_GREETING_LABEL) == 16, "with its end");
_Static_assert(sizeof(struct via_greeting_proof) == 16 + 2 * 88, "no padding");

#endif
