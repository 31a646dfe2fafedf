/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "port/ofi/seal.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

#define LABEL_BYTES 24u
#define LABEL_ROOT "viaduct ofi seal"
#define LABEL_TO_LISTENER "viaduct ofi to listener"
#define LABEL_TO_CONNECTOR "viaduct ofi to connector"
#define LABEL_NEXT "viaduct ofi next key"
/* Messages until the next key is derived. A leaked key does not decrypt messages of earlier
 * keys. */
#define MESSAGES_PER_KEY (UINT64_C(1) << 20)

_Static_assert(VIA_OFI_EXCHANGE_BYTES == crypto_scalarmult_BYTES &&
                   VIA_OFI_EXCHANGE_BYTES == crypto_scalarmult_SCALARBYTES,
               "X25519");
_Static_assert(VIA_OFI_TAG_BYTES == crypto_aead_chacha20poly1305_ietf_ABYTES &&
                   VIA_OFI_SEAL_KEY_BYTES == crypto_aead_chacha20poly1305_ietf_KEYBYTES,
               "ChaCha20-Poly1305");

int via_ofi_exchange_make(uint8_t ret_secret[VIA_OFI_EXCHANGE_BYTES],
                          uint8_t ret_public[VIA_OFI_EXCHANGE_BYTES])
{
    if (sodium_init() < 0) {
        return -EIO;
    }
    randombytes_buf(ret_secret, VIA_OFI_EXCHANGE_BYTES);
    return crypto_scalarmult_base(ret_public, ret_secret) == 0 ? 0 : -EIO;
}

static void derive(const uint8_t key[VIA_OFI_SEAL_KEY_BYTES], const char *label,
                   uint8_t ret_key[VIA_OFI_SEAL_KEY_BYTES])
{
    uint8_t next[VIA_OFI_SEAL_KEY_BYTES];
    /* Fails only for invalid lengths; these are constants. */
    (void)crypto_generichash(next, sizeof(next), (const unsigned char *)label, strlen(label), key,
                             VIA_OFI_SEAL_KEY_BYTES);
    memcpy(ret_key, next, sizeof(next));
    sodium_memzero(next, sizeof(next));
}

int via_ofi_seal_agree(const struct via_driver_host *host, bool connector,
                       const uint8_t secret[VIA_OFI_EXCHANGE_BYTES],
                       const struct via_ofi_request *request, const struct via_ofi_answer *answer,
                       const struct via_ofi_proof *mine, const struct via_ofi_proof *peer,
                       struct via_ofi_seal *ret_send, struct via_ofi_seal *ret_receive)
{
    struct {
        char label[LABEL_BYTES];
        uint8_t shared[VIA_OFI_EXCHANGE_BYTES];
        struct via_ofi_request request;
        struct via_ofi_answer answer;
        struct via_ofi_proof proof; /* of the connector */
        struct via_ofi_proof grant; /* of the listener */
    } transcript = {
        .label = LABEL_ROOT,
        .request = *request,
        .answer = *answer,
        .proof = connector ? *mine : *peer,
        .grant = connector ? *peer : *mine,
    };
    _Static_assert(sizeof(transcript) == LABEL_BYTES + VIA_OFI_EXCHANGE_BYTES + sizeof(*request) +
                                             sizeof(*answer) + 2 * sizeof(*mine),
                   "no padding");
    uint8_t root[VIA_OFI_MAC_BYTES];
    /* Returns -1 for a point of small order, which would yield zeros. */
    if (crypto_scalarmult(transcript.shared, secret, peer->exchange) != 0) {
        return -EBADMSG;
    }
    host->mac(host->mac_ctx, &transcript, sizeof(transcript), root);
    *ret_send = (struct via_ofi_seal){0};
    *ret_receive = (struct via_ofi_seal){0};
    derive(root, connector ? LABEL_TO_LISTENER : LABEL_TO_CONNECTOR, ret_send->key);
    derive(root, connector ? LABEL_TO_CONNECTOR : LABEL_TO_LISTENER, ret_receive->key);
    sodium_memzero(&transcript, sizeof(transcript));
    sodium_memzero(root, sizeof(root));
    return 0;
}

/* Returns the nonce of the next message, and derives the next key if it is due. */
static void make_next_nonce(struct via_ofi_seal *seal,
                            uint8_t ret_nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES])
{
    if (seal->count != 0 && seal->count % MESSAGES_PER_KEY == 0) {
        derive(seal->key, LABEL_NEXT, seal->key);
    }
    memset(ret_nonce, 0, crypto_aead_chacha20poly1305_ietf_NPUBBYTES);
    memcpy(ret_nonce, &seal->count, sizeof(seal->count));
    seal->count++;
}

void via_ofi_seal_put(struct via_ofi_seal *seal, unsigned char *data, size_t bytes)
{
    uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];
    make_next_nonce(seal, nonce);
    (void)crypto_aead_chacha20poly1305_ietf_encrypt(data, NULL, data, bytes, NULL, 0, NULL, nonce,
                                                    seal->key);
}

ssize_t via_ofi_seal_take(struct via_ofi_seal *seal, unsigned char *data, size_t bytes)
{
    uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];
    make_next_nonce(seal, nonce);
    if (bytes < VIA_OFI_TAG_BYTES ||
        crypto_aead_chacha20poly1305_ietf_decrypt(data, NULL, NULL, data, bytes, NULL, 0, nonce,
                                                  seal->key) != 0) {
        return -EBADMSG;
    }
    return (ssize_t)(bytes - VIA_OFI_TAG_BYTES);
}

void via_ofi_seal_wipe(void *secret, size_t bytes)
{
    sodium_memzero(secret, bytes);
}
