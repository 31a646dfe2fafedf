/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "port/ofi/greet.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* Labels of the steps of a greeting, so that a proof for one step is not valid for another. */
#define LABEL_BYTES 24u
#define LABEL_REQUEST "viaduct ofi request"
#define LABEL_ANSWER "viaduct ofi answer"
#define LABEL_PROOF "viaduct ofi proof"
#define LABEL_GRANT "viaduct ofi grant"

struct transcript {
    unsigned char bytes[LABEL_BYTES + sizeof(struct via_ofi_request) +
                        sizeof(struct via_ofi_answer) + sizeof(struct via_ofi_proof)];
    size_t used;
};

static void add(struct transcript *transcript, const void *data, size_t bytes)
{
    memcpy(transcript->bytes + transcript->used, data, bytes);
    transcript->used += bytes;
}

static void begin(struct transcript *transcript, const char *label)
{
    *transcript = (struct transcript){.used = LABEL_BYTES};
    memcpy(transcript->bytes, label, strlen(label));
}

static void finish(const struct via_driver_host *host, const struct transcript *transcript,
                   uint8_t ret_mac[VIA_OFI_MAC_BYTES])
{
    memset(ret_mac, 0, VIA_OFI_MAC_BYTES);
    if (host->mac != NULL) {
        host->mac(host->mac_ctx, transcript->bytes, transcript->used, ret_mac);
    }
}

/* Constant-time comparison. */
static bool is_equal(const uint8_t *a, const uint8_t *b, size_t bytes)
{
    uint8_t differs = 0;
    for (size_t i = 0; i < bytes; i++) {
        differs |= (uint8_t)(a[i] ^ b[i]);
    }
    return differs == 0;
}

static void request_mac(const struct via_driver_host *host, const struct via_ofi_request *request,
                        uint8_t ret_mac[VIA_OFI_MAC_BYTES])
{
    struct transcript transcript;
    begin(&transcript, LABEL_REQUEST);
    add(&transcript, request, offsetof(struct via_ofi_request, mac));
    finish(host, &transcript, ret_mac);
}

static int fill_nonce(uint8_t *nonce)
{
    return getrandom(nonce, VIA_OFI_NONCE_BYTES, 0) == (ssize_t)VIA_OFI_NONCE_BYTES ? 0 : -EIO;
}

int via_ofi_request_make(const struct via_driver_host *host, uint16_t to, bool encrypted,
                         struct via_ofi_request *ret_request)
{
    uint8_t mac[VIA_OFI_MAC_BYTES];
    *ret_request = (struct via_ofi_request){
        .magic = VIA_OFI_MAGIC,
        .version = VIA_OFI_WIRE_VERSION,
        .flags = (uint16_t)((host->mac != NULL ? VIA_OFI_FLAG_KEYED : 0u) |
                            (encrypted ? VIA_OFI_FLAG_ENCRYPTED : 0u)),
        .from = host->host,
        .to = to,
    };
    int rc = fill_nonce(ret_request->nonce);
    request_mac(host, ret_request, mac);
    memcpy(ret_request->mac, mac, sizeof(ret_request->mac));
    return rc;
}

enum via_ofi_refusal via_ofi_request_read(const struct via_driver_host *host, const void *data,
                                          size_t bytes, struct via_ofi_request *ret_request)
{
    uint8_t mac[VIA_OFI_MAC_BYTES];
    *ret_request = (struct via_ofi_request){0};
    memcpy(ret_request, data, via_min(bytes, sizeof(*ret_request)));
    if (bytes < sizeof(*ret_request) || ret_request->magic != VIA_OFI_MAGIC ||
        ret_request->version != VIA_OFI_WIRE_VERSION) {
        return VIA_OFI_REFUSED_VERSION;
    }
    bool keyed = (ret_request->flags & VIA_OFI_FLAG_KEYED) != 0;
    if (keyed != (host->mac != NULL)) {
        return keyed ? VIA_OFI_REFUSED_KEY_UNKNOWN : VIA_OFI_REFUSED_KEY_MISSING;
    }
    request_mac(host, ret_request, mac);
    return is_equal(mac, ret_request->mac, sizeof(ret_request->mac)) ? VIA_OFI_ACCEPTED
                                                                     : VIA_OFI_REFUSED_KEY_WRONG;
}

static void answer_mac(const struct via_driver_host *host, const struct via_ofi_request *request,
                       const struct via_ofi_answer *answer, uint8_t ret_mac[VIA_OFI_MAC_BYTES])
{
    struct transcript transcript;
    begin(&transcript, LABEL_ANSWER);
    add(&transcript, request, sizeof(*request));
    add(&transcript, answer, offsetof(struct via_ofi_answer, mac));
    finish(host, &transcript, ret_mac);
}

int via_ofi_answer_make(const struct via_driver_host *host, const struct via_ofi_request *request,
                        enum via_ofi_refusal code, struct via_ofi_answer *ret_answer)
{
    *ret_answer = (struct via_ofi_answer){
        .magic = VIA_OFI_MAGIC,
        .version = VIA_OFI_WIRE_VERSION,
        .code = (uint16_t)code,
        .from = host->host,
        .to = request->from,
    };
    if (code != VIA_OFI_ACCEPTED) {
        return 0; /* a hash that any peer can request proves nothing */
    }
    int rc = fill_nonce(ret_answer->nonce);
    answer_mac(host, request, ret_answer, ret_answer->mac);
    return rc;
}

bool via_ofi_answer_read(const void *data, size_t bytes, struct via_ofi_answer *ret_answer)
{
    if (data == NULL || bytes < sizeof(*ret_answer)) {
        return false;
    }
    memcpy(ret_answer, data, sizeof(*ret_answer));
    return ret_answer->magic == VIA_OFI_MAGIC && ret_answer->code < VIA_OFI_REFUSALS;
}

bool via_ofi_answer_is_proof(const struct via_driver_host *host,
                             const struct via_ofi_request *request,
                             const struct via_ofi_answer *answer)
{
    uint8_t mac[VIA_OFI_MAC_BYTES];
    answer_mac(host, request, answer, mac);
    return is_equal(mac, answer->mac, sizeof(mac));
}

static void proof_mac(const struct via_driver_host *host, bool connector,
                      const struct via_ofi_request *request, const struct via_ofi_answer *answer,
                      const struct via_ofi_proof *proof, uint8_t ret_mac[VIA_OFI_MAC_BYTES])
{
    struct transcript transcript;
    begin(&transcript, connector ? LABEL_PROOF : LABEL_GRANT);
    add(&transcript, request, sizeof(*request));
    add(&transcript, answer, sizeof(*answer));
    add(&transcript, proof, offsetof(struct via_ofi_proof, mac));
    finish(host, &transcript, ret_mac);
}

void via_ofi_proof_sign(const struct via_driver_host *host, bool connector,
                        const struct via_ofi_request *request, const struct via_ofi_answer *answer,
                        struct via_ofi_proof *proof)
{
    proof_mac(host, connector, request, answer, proof, proof->mac);
}

bool via_ofi_proof_is_valid(const struct via_driver_host *host, bool connector,
                            const struct via_ofi_request *request,
                            const struct via_ofi_answer *answer, const struct via_ofi_proof *proof)
{
    uint8_t mac[VIA_OFI_MAC_BYTES];
    proof_mac(host, connector, request, answer, proof, mac);
    return is_equal(mac, proof->mac, sizeof(mac));
}

const char *via_ofi_refusal_of_peer(enum via_ofi_refusal code)
{
    static const char *const texts[VIA_OFI_REFUSALS] = {
        [VIA_OFI_ACCEPTED] = "is welcome",
        [VIA_OFI_REFUSED_VERSION] = "speaks another version of the protocol of ofi links",
        [VIA_OFI_REFUSED_KEY_MISSING] = "has no fabric key, and this host has one",
        [VIA_OFI_REFUSED_KEY_UNKNOWN] = "has a fabric key, and this host has none",
        [VIA_OFI_REFUSED_KEY_WRONG] = "has another fabric key",
        [VIA_OFI_REFUSED_NO_LINK] = "requests a link that this host does not have",
        [VIA_OFI_REFUSED_IDENTITY] = "takes this host for another",
        [VIA_OFI_REFUSED_FULL] = "connects again and again",
        [VIA_OFI_REFUSED_TAKEN] = "has the id of a host that is connected",
        [VIA_OFI_REFUSED_INBOX] = "has too small an inbox",
        [VIA_OFI_REFUSED_PLAIN] = "does not encrypt this link, and this host does",
        [VIA_OFI_REFUSED_ENCRYPTED] = "encrypts this link, and this host does not",
    };
    return code < VIA_OFI_REFUSALS ? texts[code] : "is refused";
}

const char *via_ofi_refusal_by_peer(enum via_ofi_refusal code)
{
    static const char *const texts[VIA_OFI_REFUSALS] = {
        [VIA_OFI_ACCEPTED] = "accepts",
        [VIA_OFI_REFUSED_VERSION] = "speaks another version of the protocol of ofi links",
        [VIA_OFI_REFUSED_KEY_MISSING] = "has a fabric key, and this host has none",
        [VIA_OFI_REFUSED_KEY_UNKNOWN] = "has no fabric key, and this host has one",
        [VIA_OFI_REFUSED_KEY_WRONG] = "has another fabric key",
        [VIA_OFI_REFUSED_NO_LINK] = "has no link to this host's id",
        [VIA_OFI_REFUSED_IDENTITY] = "is another host",
        [VIA_OFI_REFUSED_FULL] = "has too many connections of this host's id",
        [VIA_OFI_REFUSED_TAKEN] = "is connected to another host with this host's id",
        [VIA_OFI_REFUSED_INBOX] = "finds this host's inbox too small",
        [VIA_OFI_REFUSED_PLAIN] = "encrypts this link, and this host does not",
        [VIA_OFI_REFUSED_ENCRYPTED] = "does not encrypt this link, and this host does",
    };
    return code < VIA_OFI_REFUSALS ? texts[code] : "refuses";
}

struct via_ofi_text via_ofi_version_text(uint16_t version)
{
    struct via_ofi_text text;
    snprintf(text.text, sizeof(text.text),
             "speaks version %u of the protocol of ofi links, this host version %u", version,
             VIA_OFI_WIRE_VERSION);
    return text;
}

struct via_ofi_text via_ofi_refusal_text(const struct via_ofi_request *request,
                                         enum via_ofi_refusal code)
{
    struct via_ofi_text text;
    if (code == VIA_OFI_REFUSED_VERSION && request->magic == VIA_OFI_MAGIC) {
        return via_ofi_version_text(request->version);
    }
    snprintf(text.text, sizeof(text.text), "%s", via_ofi_refusal_of_peer(code));
    return text;
}
