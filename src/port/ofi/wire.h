/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The messages between two ends of an ofi link (docs/ofi-port.md). Little-endian. The receiver
 * treats everything as hostile, and checks each entry even after the peer has proved the fabric
 * key.
 *
 *   connector                                     listener
 *   request, with the connection  ------------>   is it for a link of mine? which host is it?
 *   has the listener the key?     <------------   answer, with the acceptance or the refusal
 *   PROOF: key of my inbox        ------------>   has the connector the key?
 *   up                            <------------   GRANT: key of my inbox; up
 *
 * After that, messages of a link that is encrypted are sealed (port/ofi/seal.h).
 */
#ifndef VIA_PORT_OFI_WIRE_H
#define VIA_PORT_OFI_WIRE_H

#include <stdint.h>

#define VIA_OFI_MAGIC 0x4f414956u /* "VIAO" */
#define VIA_OFI_WIRE_VERSION 4u   /* magic, version and code have fixed places */
#define VIA_OFI_NONCE_BYTES 16u
#define VIA_OFI_MAC_BYTES 32u
#define VIA_OFI_SHORT_MAC_BYTES 16u
#define VIA_OFI_EXCHANGE_BYTES 32u /* half of a key exchange (X25519) */
#define VIA_OFI_TAG_BYTES 16u      /* after a message that is encrypted */

/* Why a connection is refused. The numbers never change. */
enum via_ofi_refusal {
    VIA_OFI_ACCEPTED = 0,
    VIA_OFI_REFUSED_VERSION = 1,
    VIA_OFI_REFUSED_KEY_MISSING = 2, /* the listener has a key, the connector none */
    VIA_OFI_REFUSED_KEY_UNKNOWN = 3, /* the reverse */
    VIA_OFI_REFUSED_KEY_WRONG = 4,
    VIA_OFI_REFUSED_NO_LINK = 5,  /* the listener has no link to the connector's id */
    VIA_OFI_REFUSED_IDENTITY = 6, /* the listener has another id than the connector expects */
    VIA_OFI_REFUSED_FULL = 7,
    VIA_OFI_REFUSED_TAKEN = 8,      /* another host with the connector's id is connected */
    VIA_OFI_REFUSED_INBOX = 9,      /* too small */
    VIA_OFI_REFUSED_PLAIN = 10,     /* the listener encrypts, the connector does not */
    VIA_OFI_REFUSED_ENCRYPTED = 11, /* the reverse */
    VIA_OFI_REFUSALS,
};

#define VIA_OFI_FLAG_KEYED 1u
#define VIA_OFI_FLAG_ENCRYPTED 2u /* encrypted after the greeting; no writes */

/* Private data of the connection: verbs has room for 56 bytes. */
struct via_ofi_request {
    uint32_t magic;
    uint16_t version;
    uint16_t flags;
    uint16_t from;
    uint16_t to;
    uint32_t reserved;
    uint8_t nonce[VIA_OFI_NONCE_BYTES];
    uint8_t mac[VIA_OFI_SHORT_MAC_BYTES]; /* of the fields above; zero without a key */
};
_Static_assert(sizeof(struct via_ofi_request) == 48, "fits private data");

struct via_ofi_answer {
    uint32_t magic;
    uint16_t version;
    uint16_t code; /* enum via_ofi_refusal */
    uint16_t from;
    uint16_t to;
    uint32_t reserved;
    uint8_t nonce[VIA_OFI_NONCE_BYTES];
    uint8_t mac[VIA_OFI_MAC_BYTES]; /* of the request and the fields above; zero in refusals */
};
_Static_assert(sizeof(struct via_ofi_answer) == 64, "no padding");

#define VIA_OFI_FLAG_UNINFORMED 1u /* the sender decided before it knew the peer's decision */

/* A decision of operators: a counter in steps, with bit 0 set for a cut (port/ofi/decision.h). */
#define VIA_OFI_DECISION_CUT 1u
#define VIA_OFI_DECISION_STEP 2u
#define VIA_OFI_DECISION_MAX (1u << 30) /* no honest host reaches it */

struct via_ofi_proof {
    uint64_t instance; /* random, of the sender's port */
    uint64_t inbox_bytes;
    uint64_t inbox_address; /* base of remote addresses */
    uint64_t inbox_key;
    uint32_t flags; /* VIA_OFI_FLAG_UNINFORMED */
    uint32_t decision;
    uint8_t exchange[VIA_OFI_EXCHANGE_BYTES]; /* of a link that is encrypted; else 0 */
    uint8_t mac[VIA_OFI_MAC_BYTES];           /* of request, answer, and the fields above */
};
_Static_assert(sizeof(struct via_ofi_proof) == 104, "no padding");

/* A message is a sequence of entries: a header each, then `bytes` of data, padded to 8. */
enum via_ofi_entry_kind {
    VIA_OFI_ENTRY_PROOF = 1,  /* struct via_ofi_proof: of the connector */
    VIA_OFI_ENTRY_GRANT = 2,  /* struct via_ofi_proof: of the listener */
    VIA_OFI_ENTRY_REFUSE = 3, /* value: enum via_ofi_refusal; the sender hangs up */
    VIA_OFI_ENTRY_MEND = 4,   /* value: the sender's decision */
    VIA_OFI_ENTRY_ALIVE = 5,
    /* On a link that is up. */
    VIA_OFI_ENTRY_BODY = 6,    /* data for off */
    VIA_OFI_ENTRY_WORD = 7,    /* 8 bytes, stored whole, after all earlier entries */
    VIA_OFI_ENTRY_LINE = 8,    /* 64 bytes; the last word as WORD, after the rest. value: the queue
                                  whose thread the line wakes */
    VIA_OFI_ENTRY_BELL = 9,    /* value: doorbells, a bit each */
    VIA_OFI_ENTRY_FENCE = 10,  /* off: queue, value: number of the fence */
    VIA_OFI_ENTRY_FENCED = 11, /* the same: answer to FENCE, after all before it */
    VIA_OFI_ENTRY_SCRATCHPAD = 12, /* off: 0..3 among the sender's registers, value */
};

struct via_ofi_entry {
    uint16_t kind;
    uint16_t bytes;
    uint32_t value;
    uint64_t off;
};
_Static_assert(sizeof(struct via_ofi_entry) == 16, "no padding");

#define VIA_OFI_MESSAGE_BYTES 8192u
#define VIA_OFI_MESSAGE_BYTES_ENCRYPTED 16384u /* with the tag */
/* Larger bodies are written into the peer's inbox, smaller ones go in messages. */
#define VIA_OFI_INLINE_BYTES 2048u

#endif
