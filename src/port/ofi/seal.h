/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Encrypted messages of a connection (docs/adr/0052-encrypted-links.md): each end makes a key pair
 * for the connection (X25519), the greeting signs the public halves, and both derive one key for
 * each direction. A message is sealed by ChaCha20-Poly1305 with its number as the nonce, so the
 * receiver accepts each message once and in order, or ends the connection. No locks: the seal of a
 * direction belongs to the sending, or the receiving, thread.
 */
#ifndef VIA_PORT_OFI_SEAL_H
#define VIA_PORT_OFI_SEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/types.h"
#include "port/driver.h"
#include "port/ofi/wire.h"

#define VIA_OFI_SEAL_KEY_BYTES 32u

/* One direction of a connection. */
struct via_ofi_seal {
    uint8_t key[VIA_OFI_SEAL_KEY_BYTES];
    uint64_t count; /* messages so far; also the number of the next message */
};

/* Makes this end's key pair; the secret half is for via_ofi_seal_agree(). 0, or -EIO: libsodium can
 * not be initialized. */
VIA_MUST_CHECK int via_ofi_exchange_make(uint8_t ret_secret[VIA_OFI_EXCHANGE_BYTES],
                                         uint8_t ret_public[VIA_OFI_EXCHANGE_BYTES]);

/* Derives the keys of both directions from the greeting of a connection whose proofs are valid. The
 * host has a fabric key. 0, or -EBADMSG: the peer's public half is a point of small order. */
VIA_MUST_CHECK int
via_ofi_seal_agree(const struct via_driver_host *host, bool connector,
                   const uint8_t secret[VIA_OFI_EXCHANGE_BYTES],
                   const struct via_ofi_request *request, const struct via_ofi_answer *answer,
                   const struct via_ofi_proof *mine, const struct via_ofi_proof *peer,
                   struct via_ofi_seal *ret_send, struct via_ofi_seal *ret_receive);

/* Encrypts in place, and appends VIA_OFI_TAG_BYTES. */
void via_ofi_seal_put(struct via_ofi_seal *seal, unsigned char *data, size_t bytes);
/* Verifies and decrypts in place; `bytes` includes the tag. Returns the number of bytes without the
 * tag, or -EBADMSG: not the next message of the peer. The seal must not be used after an error. */
VIA_MUST_CHECK ssize_t via_ofi_seal_take(struct via_ofi_seal *seal, unsigned char *data,
                                         size_t bytes);

/* Overwrites a secret. */
void via_ofi_seal_wipe(void *secret, size_t bytes);

#endif
