/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The proofs that the ends of a link exchange, and the texts of refusals. No state. */
#ifndef VIA_PORT_OFI_GREET_H
#define VIA_PORT_OFI_GREET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/types.h"
#include "port/driver.h"
#include "port/ofi/wire.h"

/* 0, or -EIO: random numbers are not available. */
VIA_MUST_CHECK int via_ofi_request_make(const struct via_driver_host *host, uint16_t to,
                                        bool encrypted, struct via_ofi_request *ret_request);
/* Copies and checks the private data of a connection request. VIA_OFI_ACCEPTED, or a refusal that
 * does not depend on the link; then ret_request holds the fields that were valid. */
enum via_ofi_refusal via_ofi_request_read(const struct via_driver_host *host, const void *data,
                                          size_t bytes, struct via_ofi_request *ret_request);

VIA_MUST_CHECK int via_ofi_answer_make(const struct via_driver_host *host,
                                       const struct via_ofi_request *request,
                                       enum via_ofi_refusal code,
                                       struct via_ofi_answer *ret_answer);
/* false: neither an answer nor a refusal. Does not verify a proof. */
bool via_ofi_answer_read(const void *data, size_t bytes, struct via_ofi_answer *ret_answer);
/* True if the answer proves that the listener has the fabric key. */
bool via_ofi_answer_is_proof(const struct via_driver_host *host,
                             const struct via_ofi_request *request,
                             const struct via_ofi_answer *answer);

/* Sets the proof's mac: of the connector, or of the listener. */
void via_ofi_proof_sign(const struct via_driver_host *host, bool connector,
                        const struct via_ofi_request *request, const struct via_ofi_answer *answer,
                        struct via_ofi_proof *proof);
bool via_ofi_proof_is_valid(const struct via_driver_host *host, bool connector,
                            const struct via_ofi_request *request,
                            const struct via_ofi_answer *answer, const struct via_ofi_proof *proof);

/* The listener's text about a connector that it refuses ("has another fabric key"), and the
 * connector's text about that listener ("refuses: ..."). */
const char *via_ofi_refusal_of_peer(enum via_ofi_refusal code);
const char *via_ofi_refusal_by_peer(enum via_ofi_refusal code);

struct via_ofi_text {
    char text[128];
};
/* Text about a peer whose version, from a request or an answer with the right magic, is another. */
struct via_ofi_text via_ofi_version_text(uint16_t version);
/* As via_ofi_refusal_of_peer(), about the sender of the request, with both versions if possible. */
struct via_ofi_text via_ofi_refusal_text(const struct via_ofi_request *request,
                                         enum via_ofi_refusal code);

#endif
